//! Execution of a block: its shared memory, its warps in turn, and its barriers.

use super::clock::Clock;
use super::cluster::{Others, Visit};
use super::grid::{Grid, position};
use super::mbarrier::{self, Mbarriers};
use super::order::{Order, Party};
use super::race::Shadow;
use super::regs::{LANES, Raw, lanes};
use super::step;
use super::unset::Written;
use super::warp::Warp;
use super::{Counters, Fault, FaultKind, Trouble, trouble};
use crate::ptx::Kernel;
use crate::ptx::ir::{Bar, BarRed, Op, Placed, Wide};

/// Number of barriers of a block.
pub(super) const BARRIERS: usize = 16;

/// Arrival of lanes of one warp at a barrier.
pub(super) struct Arrival {
    /// Number of the warp.
    pub(super) warp: usize,
    pub(super) lanes: u32,
    /// Number of threads that the barrier is for. None means all threads of the block.
    pub(super) threads: Option<u32>,
    /// Clock of lanes that arrive without waiting.
    pub(super) passed: Option<Clock>,
}

/// Memory of one block, with the state of its ordering.
pub(super) struct BlockMemory {
    shared: Vec<u64>,
    pub(super) shared_len: u64,
    /// Start and end of each variable in its space.
    pub(super) vars: Box<[(u64, u64)]>,
    pub(super) shared_shadow: Shadow,
    pub(super) shared_written: Written,
    /// For each word of shared memory, `thread + 1` of the thread whose `cp.async` to it is pending, or 0.
    ///
    /// `copying_words` is the number of words with a pending copy.
    copying: Vec<u32>,
    copying_words: u32,
    local: Vec<u64>,
    /// Written bytes of the local memory of all threads, at the offsets of [`BlockMemory::local_at`].
    pub(super) local_written: Written,
    local_size: usize,
    pub(super) counters: Counters,
    /// Number of the block in the grid, and its coordinates.
    pub(super) number: u64,
    pub(super) at: [u32; 3],
    /// Arrivals at each barrier since it completed last, in order.
    pub(super) arrivals: [Vec<Arrival>; BARRIERS],
    pub(super) threads: u32,
    /// Number of ordering events so far, and the time of the last one that ordered all threads.
    pub(super) time: u64,
    pub(super) barrier: u64,
    /// Time up to which barriers publish the accesses of each exited thread, because it takes part in none
    /// after.
    pub(super) ended: Box<[u32]>,
    /// State of orderings between some threads, and with other blocks.
    pub(super) order: Option<Box<Order>>,
    /// True if the current atomic reads the old value.
    pub(super) atomic_reads: bool,
    /// Clocks of the barrier of the cluster: of the threads that have arrived, and of its last completion.
    pub(super) arrived: Clock,
    pub(super) told: Clock,
    /// Last accesses of threads of other blocks of the cluster, by rank and thread. `has_ended` is true once
    /// all threads of this block have exited.
    pub(super) visits: Vec<Option<Visit>>,
    pub(super) has_ended: bool,
    pub(super) mbarriers: Mbarriers,
}

impl BlockMemory {
    /// Returns a pointer to shared memory at an address.
    pub(super) fn shared_at(&mut self, address: u64) -> *mut u8 {
        debug_assert!(address < self.shared_len);
        self.shared.as_mut_ptr().cast::<u8>().wrapping_add(address as usize)
    }

    /// Returns the thread whose copy to these bytes is pending.
    #[inline(always)]
    pub(super) fn under_way(&self, address: u64, bytes: u64) -> Option<u32> {
        if self.copying_words == 0 {
            return None;
        }
        let words = &self.copying[address as usize / 4..(address + bytes).div_ceil(4) as usize];
        words.iter().find_map(|&thread| thread.checked_sub(1))
    }

    /// Records the start or the end of a thread's copy to these bytes, which are in no other copy.
    pub(super) fn copy(&mut self, address: u64, bytes: u64, thread: Option<u32>) {
        let words = &mut self.copying[address as usize / 4..(address + bytes).div_ceil(4) as usize];
        words.fill(thread.map_or(0, |thread| thread + 1));
        let count = words.len() as u32;
        self.copying_words = match thread {
            Some(_) => self.copying_words + count,
            None => self.copying_words - count,
        };
    }

    /// Records that lanes of a warp have exited.
    ///
    /// In a kernel with other orderings than barriers of all threads nothing is recorded. There other threads
    /// may know what the lanes did, and publish it at later barriers.
    pub(super) fn end(&mut self, warp: &Warp, exec: u32, orders_some: bool) {
        if !orders_some {
            let known = self.barrier.max(warp.meeting) as u32;
            lanes(exec).for_each(|lane| self.ended[warp.first as usize + lane] = known);
        }
    }

    /// Returns the offset of an address of a thread's local memory within the memory of all threads.
    #[inline(always)]
    pub(super) fn local_at(&self, thread: usize, address: u64) -> usize {
        thread * self.local_size + address as usize
    }

    /// Returns a pointer to a thread's local memory at an address.
    pub(super) fn local(&mut self, thread: usize, address: u64) -> *mut u8 {
        let at = self.local_at(thread, address);
        self.local.as_mut_ptr().cast::<u8>().wrapping_add(at)
    }
}

/// Returns the start and the end of a variable in a block of `len` bytes.
fn extent(var: &Placed, len: u64) -> (u64, u64) {
    let start = u64::from(var.start);
    (start, var.bytes.map_or(len, |bytes| start + u64::from(bytes)))
}

pub(super) struct Block {
    pub(super) warps: Vec<Warp>,
    pub(super) mem: BlockMemory,
    threads: u32,
}

impl Block {
    /// Allocates a block, which runs the blocks of a grid one after the other.
    pub(super) fn new(grid: &Grid<'_>) -> Block {
        let (code, launch) = (&grid.kernel.code, grid.launch);
        let threads: u32 = launch.block.iter().product();
        let warps =
            (0..threads.div_ceil(32)).map(|i| Warp::new(code, i * 32, |constant| grid.value(constant)));
        let shared_len =
            u64::from(code.dynamic_at.max(grid.kernel.static_shared)) + u64::from(launch.dynamic_shared);
        // Each thread's memory is aligned for the widest access.
        let local_size = code.local.next_multiple_of(32) as usize;
        let local = local_size * threads as usize;
        let mem = BlockMemory {
            // Vectors of the host are aligned to 16 bytes at least, so the alignment of a shared address is
            // that of its place.
            shared: vec![0; shared_len.div_ceil(8) as usize],
            shared_len,
            vars: code.vars.iter().map(|var| extent(var, shared_len)).collect(),
            shared_shadow: Shadow::of(grid.cluster.iter().product::<u32>() as usize),
            shared_written: Written::new(shared_len as usize),
            copying: vec![0; shared_len.div_ceil(4) as usize],
            copying_words: 0,
            local: vec![0; local.div_ceil(8)],
            local_written: Written::new(local),
            local_size,
            counters: Counters::default(),
            number: 0,
            at: [0; 3],
            arrivals: Default::default(),
            threads,
            time: 1,
            barrier: 0,
            ended: vec![u32::MAX; threads as usize].into(),
            order: None,
            atomic_reads: false,
            arrived: Clock::default(),
            told: Clock::default(),
            visits: Vec::new(),
            has_ended: false,
            mbarriers: Mbarriers::default(),
        };
        Block { warps: warps.collect(), mem, threads }
    }

    /// Returns the number of threads that have not exited.
    pub(super) fn live(&self) -> u32 {
        self.warps.iter().map(|warp| warp.live.count_ones()).sum()
    }

    /// Runs each warp until it waits or its turn is over. Returns true if anything ran.
    pub(super) fn turn(&mut self, grid: &Grid<'_>, others: &mut Others<'_>) -> Result<bool, Fault> {
        let mut ran = false;
        for warp in &mut self.warps {
            mbarrier::wake(&self.mem, warp);
            if warp.next().is_some() {
                ran = true;
                let ended = step::run(grid, (&mut self.mem, others), warp);
                ended.map_err(|(pc, trouble)| fault(grid, self.mem.at, warp.first, pc, *trouble))?;
            }
        }
        let released = self.release(grid)?;
        Ok(ran || released)
    }

    /// Resets the block to run as the block at these coordinates of the grid.
    pub(super) fn start(&mut self, grid: &Grid<'_>, at: [u32; 3]) {
        for warp in &mut self.warps {
            warp.start(&grid.kernel.code, self.threads - warp.first);
        }
        let ([x, y, _], [column, row, layer]) = (grid.launch.grid.map(u64::from), at.map(u64::from));
        (self.mem.at, self.mem.number) = (at, (layer * y + row) * x + column);
        (self.mem.time, self.mem.barrier, self.mem.order) = (1, 0, None);
        self.mem.ended.fill(u32::MAX);
        self.mem.shared_shadow.clear();
        self.mem.shared_written.clear();
        self.mem.local_written.clear();
        if std::mem::take(&mut self.mem.copying_words) != 0 {
            self.mem.copying.fill(0);
        }
        self.mem.arrivals.iter_mut().for_each(Vec::clear);
        self.mem.visits.clear();
        self.mem.has_ended = false;
        self.mem.mbarriers.clear();
    }

    /// Returns a fault if a thread waits for something that never comes. The barrier of the cluster is
    /// checked elsewhere.
    pub(super) fn end(&self, grid: &Grid<'_>) -> Result<(), Fault> {
        for warp in &self.warps {
            if warp.parked != 0 {
                let lane = warp.parked.trailing_zeros() as usize;
                let what = "it waits for lanes that its mask names and that do not come".into();
                let trouble = Trouble { kind: FaultKind::Mask, what, lane };
                return Err(fault(grid, self.mem.at, warp.first, warp.pcs[lane], trouble));
            }
        }
        for warp in &self.warps {
            let waiting = warp.at_mbarrier();
            if waiting != 0 {
                let lane = waiting.trailing_zeros() as usize;
                let what = mbarrier::stuck(&self.mem, warp, lane);
                let trouble = Trouble { kind: FaultKind::Barrier, what, lane };
                return Err(fault(grid, self.mem.at, warp.first, warp.pcs[lane], trouble));
            }
        }
        for warp in &self.warps {
            let waiting = warp.waiting & !warp.at_cluster();
            if waiting != 0 {
                let lane = waiting.trailing_zeros() as usize;
                let live = self.live();
                let there: u32 = self.waiting(warp.barrier[lane]);
                let what = format!(
                    "{there} threads wait at this barrier, and no others come, of {live} that have not exited"
                );
                let trouble = Trouble { kind: FaultKind::Barrier, what, lane };
                return Err(fault(grid, self.mem.at, warp.first, warp.pcs[lane], trouble));
            }
        }
        Ok(())
    }

    /// Returns the number of threads that wait at a barrier.
    fn waiting(&self, id: u8) -> u32 {
        self.warps
            .iter()
            .map(|warp| lanes(warp.waiting).filter(|&lane| warp.barrier[lane] == id).count() as u32)
            .sum()
    }

    /// Releases the threads at each barrier that is complete.
    fn release(&mut self, grid: &Grid<'_>) -> Result<bool, Fault> {
        self.check_missed(grid)?;
        let mut released = false;
        for id in 0..BARRIERS {
            while let Some(count) = self.complete(grid, id)? {
                let phase: Vec<Arrival> = self.mem.arrivals[id].drain(..count).collect();
                self.let_go(grid, &phase)?;
                released = true;
            }
        }
        Ok(released)
    }

    /// Returns the number of arrivals that complete a barrier, if it is complete.
    fn complete(&self, grid: &Grid<'_>, id: usize) -> Result<Option<usize>, Fault> {
        let arrivals = &self.mem.arrivals[id];
        if arrivals.is_empty() {
            return Ok(None);
        }
        let whole = arrivals.iter().any(|arrival| arrival.threads.is_none());
        let (mut came, mut there) = ([0u32; 32], 0);
        for (number, arrival) in arrivals.iter().enumerate() {
            let live = self.warps[arrival.warp].live;
            // The ISA counts a warp as 32 threads once all lanes that have not exited have arrived. Before
            // that, the lanes that have arrived count.
            let counts = |lanes: u32| if live & !lanes == 0 { 32 } else { lanes.count_ones() };
            let before = came[arrival.warp];
            let again = before & arrival.lanes != 0;
            came[arrival.warp] = if again { arrival.lanes } else { before | arrival.lanes };
            there += counts(came[arrival.warp]) - if again || before == 0 { 0 } else { counts(before) };
            let Some(wanted) = arrival.threads.filter(|_| !whole) else { continue };
            let what = match arrivals[0].threads {
                Some(first) if first != wanted => {
                    format!("it is for {wanted} threads, but others have come to this barrier for {first}")
                }
                _ if there > wanted => format!("{there} threads come to this barrier, which is for {wanted}"),
                _ if there == wanted => return Ok(Some(number + 1)),
                _ => continue,
            };
            let warp = &self.warps[arrival.warp];
            let lane = arrival.lanes.trailing_zeros() as usize;
            let trouble = Trouble { kind: FaultKind::Barrier, what, lane };
            return Err(fault(grid, self.mem.at, warp.first, warp.pcs[lane], trouble));
        }
        let all = |(warp, came): (&Warp, &u32)| warp.live & !came == 0;
        let complete = whole && self.warps.iter().zip(&came).all(all);
        Ok(complete.then_some(arrivals.len()))
    }

    /// Releases the threads that complete a barrier, and orders them.
    fn let_go(&mut self, grid: &Grid<'_>, phase: &[Arrival]) -> Result<(), Fault> {
        let whole = phase.iter().any(|arrival| arrival.threads.is_none());
        let parties = self.parties(phase);
        if let Some(party) = parties.first() {
            let (warp, lane) =
                (&self.warps[(party.first / 32) as usize], party.lanes.trailing_zeros() as usize);
            let Op::Bar { aligned, .. } = grid.kernel.code.insts[warp.pcs[lane] as usize].op else {
                unreachable!("lanes wait at barriers only");
            };
            if aligned {
                self.check_aligned(grid, &parties)?;
            }
            if whole {
                self.check_ended(grid, warp, lane)?;
            }
        }
        self.reduce(grid, &parties);
        for party in &parties {
            let warp = &mut self.warps[(party.first / 32) as usize];
            warp.waiting &= !party.lanes;
            lanes(party.lanes).for_each(|lane| warp.pcs[lane] += 1);
            warp.passed |= if whole { party.lanes } else { 0 };
        }
        let passed: Vec<&Clock> = phase.iter().filter_map(|arrival| arrival.passed.as_ref()).collect();
        let met: u32 = parties.iter().map(|party| party.lanes.count_ones()).sum();
        if passed.is_empty() && (whole || met == self.threads) {
            self.mem.meet_all();
        } else {
            self.mem.meet(&parties, &passed);
        }
        Ok(())
    }

    /// Returns the lanes that wait, among the arrivals at a barrier.
    fn parties(&self, phase: &[Arrival]) -> Vec<Party> {
        let mut waiting = [0u32; 32];
        phase.iter().filter(|arrival| arrival.passed.is_none()).for_each(|arrival| {
            waiting[arrival.warp] |= arrival.lanes;
        });
        let parties = self.warps.iter().zip(waiting).filter(|(_, lanes)| *lanes != 0);
        parties.map(|(warp, lanes)| Party { first: warp.first, lanes, meeting: warp.meeting }).collect()
    }

    /// Returns a fault if a lane has exited while others of its warp wait at an aligned barrier.
    fn check_missed(&self, grid: &Grid<'_>) -> Result<(), Fault> {
        for warp in self.warps.iter().filter(|warp| warp.missed != 0) {
            for lane in lanes(warp.waiting) {
                let op = &grid.kernel.code.insts[warp.pcs[lane] as usize].op;
                if let Op::Bar { aligned: true, .. } | Op::ClusterBar { aligned: true, .. } = op {
                    let ended = position(warp.first + warp.missed.trailing_zeros(), grid.launch.block);
                    let what = format!(
                        "thread {ended:?} of the same warp has ended without this barrier, which is aligned"
                    );
                    let trouble = Trouble { kind: FaultKind::Barrier, what, lane };
                    return Err(fault(grid, self.mem.at, warp.first, warp.pcs[lane], trouble));
                }
            }
        }
        Ok(())
    }

    /// Returns a fault if a thread that should be at a barrier of the whole block has exited.
    ///
    /// A thread that exited before its first barrier need not arrive. A thread that took part in a barrier
    /// before, or that its guard led past this one, must.
    fn check_ended(&self, grid: &Grid<'_>, at: &Warp, lane: usize) -> Result<(), Fault> {
        let pc = at.pcs[lane];
        for warp in &self.warps {
            let took_part = warp.passed & !warp.live;
            let passed_by = warp.live == 0 && warp.skipped == Some(pc);
            if took_part == 0 && !passed_by {
                continue;
            }
            let ended = position(warp.first + took_part.trailing_zeros() % 32, grid.launch.block);
            let waiting = self.waiting(at.barrier[lane]);
            let what =
                format!("{waiting} threads wait at this barrier, but thread {ended:?} has ended without it");
            let trouble = Trouble { kind: FaultKind::Barrier, what, lane };
            return Err(fault(grid, self.mem.at, at.first, pc, trouble));
        }
        Ok(())
    }

    /// Returns a fault if the lanes of a warp are not together at an aligned barrier.
    fn check_aligned(&self, grid: &Grid<'_>, parties: &[Party]) -> Result<(), Fault> {
        for party in parties {
            let (warp, lane) =
                (&self.warps[(party.first / 32) as usize], party.lanes.trailing_zeros() as usize);
            let together = warp.live & !party.lanes == 0
                && lanes(party.lanes).all(|other| warp.pcs[other] == warp.pcs[lane]);
            if !together {
                let what = "the lanes of a warp are not all at this barrier, which is aligned".into();
                let trouble = Trouble { kind: FaultKind::Barrier, what, lane };
                return Err(fault(grid, self.mem.at, warp.first, warp.pcs[lane], trouble));
            }
        }
        Ok(())
    }

    /// Writes the results of a barrier that reduces to its threads.
    fn reduce(&mut self, grid: &Grid<'_>, parties: &[Party]) {
        let (mut count, mut all) = (0, 0);
        let mut of: Vec<(usize, usize, BarRed, u32)> = Vec::new();
        let mut no_reduction = u32::MAX;
        for party in parties {
            let number = (party.first / 32) as usize;
            let warp = &self.warps[number];
            for lane in lanes(party.lanes) {
                // Most lanes are at one instruction, so the last one without a reduction is remembered.
                let pc = warp.pcs[lane];
                if pc == no_reduction {
                    continue;
                }
                let Op::Bar { bar: Bar::Red { op, d, p }, .. } = &grid.kernel.code.insts[pc as usize].op
                else {
                    no_reduction = pc;
                    continue;
                };
                count += warp.regs.truth(p.pred, p.negated) >> lane & 1;
                all += 1;
                of.push((number, lane, *op, *d));
            }
        }
        for (number, lane, op, d) in of {
            let regs = &mut self.warps[number].regs;
            match op {
                BarRed::Popc => regs.set((d, Wide::One), lane, u64::from(count)),
                BarRed::And => regs.set_mask(1 << lane, d, if count == all { u32::MAX } else { 0 }),
                BarRed::Or => regs.set_mask(1 << lane, d, if count > 0 { u32::MAX } else { 0 }),
            }
        }
    }
}

/// Records that lanes arrive at a barrier of the block. The lanes wait there or go on.
///
/// Each lane names the barrier's number and, optionally, the number of threads.
pub(super) fn arrive(
    mem: &mut BlockMemory,
    warp: &mut Warp,
    exec: u32,
    (id, threads): (u32, Option<u32>),
    (pc, waits): (u32, bool),
) -> Result<(), Box<Trouble>> {
    let ids = *u32::row(&warp.regs, id);
    let counts = threads.map(|reg| *u32::row(&warp.regs, reg));
    let wants = |lane: usize| (ids[lane], counts.map(|counts| counts[lane]));
    let having = |row: &[u32; LANES], value: u32| {
        row.iter().enumerate().fold(0, |all, (lane, &found)| all | u32::from(found == value) << lane)
    };
    let mut left = exec;
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        let (id, threads) = wants(lane);
        let same_count = counts.zip(threads).map_or(u32::MAX, |(counts, count)| having(&counts, count));
        let alike = left & having(&ids, id) & same_count;
        left &= !alike;
        if id as usize >= BARRIERS {
            return trouble(FaultKind::Barrier, lane, || format!("there is no barrier {id}, only 0 to 15"));
        }
        if let Some(count) = threads
            && (count == 0 || count % 32 != 0)
        {
            return trouble(FaultKind::Barrier, lane, || format!("{count} threads are not whole warps"));
        }
        let party = Party { first: warp.first, lanes: alike, meeting: warp.meeting };
        let passed = (!waits).then(|| mem.arrive(party));
        let number = (warp.first / 32) as usize;
        mem.arrivals[id as usize].push(Arrival { warp: number, lanes: alike, threads, passed });
        lanes(alike).for_each(|lane| warp.barrier[lane] = id as u8);
    }
    warp.waiting |= if waits { exec } else { 0 };
    warp.place(exec, if waits { pc } else { pc + 1 });
    Ok(())
}

/// Returns the line of an instruction, counted from 1.
pub(super) fn line(kernel: &Kernel, pc: u32) -> u32 {
    let start = kernel.code.insts[pc as usize].text.0 as usize;
    kernel.text[..start].matches('\n').count() as u32 + 1
}

/// Returns the fault that reports a lane's trouble.
pub(super) fn fault(grid: &Grid<'_>, block: [u32; 3], first: u32, pc: u32, trouble: Trouble) -> Fault {
    let inst = &grid.kernel.code.insts[pc as usize];
    let (start, end) = (inst.text.0 as usize, inst.text.1 as usize);
    let text = &grid.kernel.text;
    Fault {
        kind: trouble.kind,
        kernel: grid.kernel.name.clone(),
        line: line(grid.kernel, pc),
        instruction: text[start..end].split_whitespace().collect::<Vec<_>>().join(" "),
        what: trouble.what,
        block,
        thread: position(first + trouble.lane as u32, grid.launch.block),
    }
}
