//! Execution of a cluster: its blocks in turn, with access to each other's shared memory, and its barrier.
//!
//! A thread may access the shared memory of another block once it knows that the block has begun. All such
//! accesses have to be ordered before the end of the block. The barrier of the cluster establishes both
//! orders by clocks.

use super::block::{self, Block, BlockMemory};
use super::clock::{Clock, Times};
use super::grid::{Grid, position};
use super::memory::Who;
use super::order::Party;
use super::race::Stamp;
use super::regs::lanes;
use super::step::{self, Flow};
use super::warp::Warp;
use super::{Counters, Fault, FaultKind, Step, Trouble, trouble};
use crate::ptx::ir::ClusterBar;

/// Number of the barrier of the cluster, among the barriers that lanes wait at.
pub(super) const BARRIER: u8 = block::BARRIERS as u8;

/// Last access of a thread of another block to a block's shared memory, and its instruction.
#[derive(Clone, Copy)]
pub(super) struct Visit {
    pub(super) stamp: Stamp,
    pub(super) pc: u32,
}

/// Blocks of the cluster other than the one that runs.
pub(super) struct Others<'a> {
    before: &'a mut [Block],
    after: &'a mut [Block],
}

impl Others<'_> {
    /// Borrows the same blocks for a shorter time.
    pub(super) fn again(&mut self) -> Others<'_> {
        Others { before: self.before, after: self.after }
    }

    /// Returns the rank in the cluster of the block that runs.
    pub(super) fn own_rank(&self) -> usize {
        self.before.len()
    }

    /// Returns the number of blocks of the cluster, including the one that runs.
    pub(super) fn blocks(&self) -> usize {
        self.before.len() + 1 + self.after.len()
    }

    /// Returns the memory of another block. None for the block that runs, and beyond the cluster.
    pub(super) fn memory(&self, rank: usize) -> Option<&BlockMemory> {
        let own = self.own_rank();
        let block =
            if rank < own { self.before.get(rank) } else { self.after.get((rank - own).checked_sub(1)?) };
        block.map(|block| &block.mem)
    }

    /// Returns the memory of another block for modification.
    pub(super) fn memory_mut(&mut self, rank: usize) -> Option<&mut BlockMemory> {
        let own = self.own_rank();
        let block = if rank < own {
            self.before.get_mut(rank)
        } else {
            self.after.get_mut((rank - own).checked_sub(1)?)
        };
        block.map(|block| &mut block.mem)
    }
}

pub(super) struct Cluster(Vec<Block>);

impl Cluster {
    /// Allocates a cluster, which runs the clusters of a grid one after the other.
    pub(super) fn new(grid: &Grid<'_>) -> Cluster {
        Cluster((0..grid.cluster.iter().product()).map(|_| Block::new(grid)).collect())
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.0.len()
    }

    /// Returns the memory of a block.
    pub(super) fn memory(&self, rank: usize) -> &BlockMemory {
        &self.0[rank].mem
    }

    pub(super) fn counters(&self) -> Counters {
        self.0.iter().fold(Counters::default(), |mut all, block| {
            all.add(block.mem.counters);
            all
        })
    }

    /// Runs a cluster to its end.
    pub(super) fn run(&mut self, grid: &Grid<'_>, number: u64) -> Result<(), Fault> {
        for (rank, block) in (0..).zip(&mut self.0) {
            block.start(grid, place(grid, number, rank));
        }
        grid.begin((number + 1) * self.0.len() as u64);
        loop {
            let mut goes_on = false;
            for rank in 0..self.0.len() {
                let (before, rest) = self.0.split_at_mut(rank);
                let Some((block, after)) = rest.split_first_mut() else { break };
                goes_on |= block.turn(grid, &mut Others { before, after })?;
                if self.0.len() > 1 || !self.0[rank].mem.mbarriers.is_empty() {
                    self.check_end(grid, rank)?;
                }
            }
            if !self.meet() && !goes_on {
                return self.end(grid);
            }
        }
    }

    /// Returns a fault if an access of another block to the memory of an ended block is not ordered before
    /// its end.
    fn check_end(&mut self, grid: &Grid<'_>, rank: usize) -> Result<(), Fault> {
        let block = &mut self.0[rank];
        if block.mem.has_ended || block.live() != 0 {
            return Ok(());
        }
        block.mem.has_ended = true;
        self.check_landed(grid, rank)?;
        let block = &self.0[rank];
        let (known, ended, threads) = (block.mem.known_to_any(), block.mem.at, block.mem.threads as usize);
        let late = |visit: &Option<Visit>| visit.is_some_and(|visit| !known.covers(visit.stamp));
        let Some(visitor) = block.mem.visits.iter().position(late) else { return Ok(()) };
        let Some(Visit { pc, .. }) = block.mem.visits[visitor] else { return Ok(()) };
        let what = format!(
            "it is to shared memory of block {ended:?}, which may have ended: nothing orders the access before that"
        );
        let (thread, at) = ((visitor % threads) as u32, self.0[visitor / threads].mem.at);
        let trouble = Trouble { kind: FaultKind::OutOfBounds, what, lane: (thread % 32) as usize };
        Err(block::fault(grid, at, thread & !31, pc, trouble))
    }

    /// Completes the barrier if all threads of the cluster that have not exited have arrived. Returns true if
    /// so.
    fn meet(&mut self) -> bool {
        let warps = || self.0.iter().flat_map(|block| &block.warps);
        if warps().all(|warp| warp.arrived == 0) || warps().any(|warp| warp.live & !warp.arrived != 0) {
            return false;
        }
        let mut told = Clock::default();
        for block in &mut self.0 {
            told.join(&std::mem::take(&mut block.mem.arrived), block.mem.threads);
        }
        for block in &mut self.0 {
            block.mem.told.clone_from(&told);
            for warp in &mut block.warps {
                warp.met = std::mem::take(&mut warp.arrived);
                let waited = warp.at_cluster() & !warp.gathered;
                warp.waiting &= !waited;
                if warp.waiting & !warp.at_mbarrier() == 0 {
                    warp.missed = 0;
                }
                lanes(waited).for_each(|lane| warp.pcs[lane] += 1);
                go_on(&mut block.mem, warp, waited);
            }
        }
        true
    }

    /// Returns a fault if a thread waits for something that never comes.
    fn end(&self, grid: &Grid<'_>) -> Result<(), Fault> {
        self.0.iter().try_for_each(|block| block.end(grid))?;
        let warps = || self.0.iter().flat_map(|block| block.warps.iter().map(move |warp| (block, warp)));
        let divided = warps().find(|(_, warp)| warp.gathered != 0);
        let Some((block, warp)) = divided.or_else(|| warps().find(|(_, warp)| warp.at_cluster() != 0)) else {
            return Ok(());
        };
        let what = if divided.is_some() {
            "the lanes of a warp are not all at this barrier, which is aligned".into()
        } else {
            let live: u32 = warps().map(|(_, warp)| warp.live.count_ones()).sum();
            let there: u32 = warps().map(|(_, warp)| (warp.live & warp.arrived).count_ones()).sum();
            format!(
                "{there} threads have arrived at this barrier of the cluster, and no others come, of {live} that have not exited"
            )
        };
        let waiting = if divided.is_some() { warp.gathered } else { warp.at_cluster() };
        let lane = waiting.trailing_zeros() as usize;
        let trouble = Trouble { kind: FaultKind::Barrier, what, lane };
        Err(block::fault(grid, block.mem.at, warp.first, warp.pcs[lane], trouble))
    }
}

/// Returns the coordinates of a block of a cluster in the grid.
fn place(grid: &Grid<'_>, number: u64, rank: u32) -> [u32; 3] {
    let clusters: [u64; 3] =
        std::array::from_fn(|axis| u64::from(grid.launch.grid[axis] / grid.cluster[axis]));
    let [x, y, _] = clusters;
    let of = [number % x, number / x % y, number / x / y];
    let within = position(rank, grid.cluster);
    std::array::from_fn(|axis| of[axis] as u32 * grid.cluster[axis] + within[axis])
}

/// Executes an arrival or a wait of lanes at the barrier of the cluster.
pub(super) fn barrier(
    who: &mut Who<'_, '_>,
    warp: &mut Warp,
    (active, exec): (u32, u32),
    pc: u32,
    (bar, aligned): (ClusterBar, bool),
) -> Result<Flow, Box<Trouble>> {
    step::check_guard((active, exec), aligned)?;
    warp.place(active & !exec, pc + 1);
    let mut here = exec;
    if aligned {
        // Lanes of the warp that arrived earlier wait for its last lane.
        let before = warp.gathered & lanes_at(warp, pc);
        here |= before;
        if here != warp.live {
            warp.gathered |= exec;
            wait(warp, exec, pc);
            return Ok(Flow::Placed);
        }
        warp.gathered &= !before;
        warp.waiting &= !before;
    }
    match bar {
        ClusterBar::Arrive { releases } => {
            arrive(who, warp, here, releases)?;
            warp.place(here, pc + 1);
        }
        ClusterBar::Wait => {
            check_arrived(warp, here)?;
            let met = here & warp.met;
            warp.place(met, pc + 1);
            go_on(who.mem, warp, met);
            wait(warp, here & !met, pc);
        }
    }
    Ok(Flow::Placed)
}

fn lanes_at(warp: &Warp, pc: u32) -> u32 {
    lanes(warp.live).filter(|&lane| warp.pcs[lane] == pc).fold(0, |all, lane| all | 1 << lane)
}

fn wait(warp: &mut Warp, exec: u32, pc: u32) {
    warp.waiting |= exec;
    lanes(exec).for_each(|lane| warp.barrier[lane] = BARRIER);
    warp.place(exec, pc);
}

fn arrive(who: &mut Who<'_, '_>, warp: &mut Warp, exec: u32, releases: bool) -> Step {
    let twice = exec & (warp.arrived | warp.met);
    if twice != 0 {
        return trouble(FaultKind::Barrier, twice.trailing_zeros() as usize, || {
            "it has arrived at the barrier of the cluster before, and has not waited there since".into()
        });
    }
    warp.arrived |= exec;
    let told = if releases {
        who.mem.arrive(Party { first: warp.first, lanes: exec, meeting: warp.meeting })
    } else {
        // A relaxed arrival publishes only that the block has begun, and the accesses before
        // `fence.mbarrier_init`.
        let mut told = Clock::of(who.stamp.block(), Times::One { all: 0, thread: warp.first, time: 0 });
        let fenced = lanes(exec).filter_map(|lane| who.mem.mbarriers.fenced(warp.first + lane as u32));
        fenced.for_each(|fenced| told.join(fenced, who.mem.threads));
        told
    };
    who.mem.arrived.join(&told, who.mem.threads);
    Ok(())
}

fn check_arrived(warp: &Warp, exec: u32) -> Step {
    let missing = exec & !(warp.arrived | warp.met);
    if missing == 0 {
        return Ok(());
    }
    trouble(FaultKind::Barrier, missing.trailing_zeros() as usize, || {
        "it waits at the barrier of the cluster, but has not arrived there".into()
    })
}

/// Lets lanes that have waited go on. The lanes then know what all threads did before they arrived.
fn go_on(mem: &mut BlockMemory, warp: &mut Warp, exec: u32) {
    warp.met &= !exec;
    if exec != 0 {
        let told = mem.told.clone();
        mem.learn(&Party { first: warp.first, lanes: exec, meeting: warp.meeting }, &told);
    }
}
