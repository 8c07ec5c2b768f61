//! mbarriers: barriers in shared memory whose phases complete when the expected threads have arrived and the
//! expected bytes have come.
//!
//! The clock of a thread has two counts for each mbarrier: how often it was initialised, and how many of its
//! phases are complete ([`Series`]). A phase that the thread does not know to have begun may be the one
//! before.
//!
//! Invariant: while an mbarrier lives, from `init` to `inval`, only its own instructions touch its bytes. The
//! bytes count as unwritten then.

use std::collections::{BTreeMap, HashMap};

use super::block::BlockMemory;
use super::clock::{Clock, Counted, Series};
use super::cluster;
use super::incoming::Incoming;
use super::memory::{self, Spot, Who};
use super::order::Party;
use super::race::{Stamp, Touch};
use super::regs::{LANES, Raw, lanes};
use super::shared::{self, Home};
use super::step::Flow;
use super::warp::Warp;
use super::{FaultKind, Step, Trouble, trouble};
use crate::ptx::ir::{self, Addr, MOST_COUNTED, Reg, Var};

/// Number of mbarriers, among the barriers that lanes wait at.
pub(super) const MBARRIER: u8 = cluster::BARRIER + 1;

/// Bytes of an mbarrier.
const BYTES: u64 = 8;

/// An mbarrier, or one that was invalidated.
pub(super) struct Mbarrier {
    lives: bool,
    /// Stamp of the last initialisation, and the number of initialisations at this address.
    init: Stamp,
    inits: i32,
    /// Arrivals of each phase, and the arrivals and bytes that the current phase lacks. Bytes may come before
    /// they are expected.
    count: u32,
    arrivals: u32,
    bytes: i64,
    /// Number of complete phases since the last initialisation, and at this address in all.
    phases: u32,
    done: i32,
    /// Number of complete phases, of `done`, that a waiting thread has seen.
    seen: i32,
    /// Last stores that the mbarrier has counted since its initialisation, of the block and of other blocks.
    last: [Option<Incoming>; 2],
    /// Clock of the arrivals of this phase, and clock of the arrivals of all phases before.
    arriving: Clock,
    arrived: Clock,
}

/// Mbarriers of a block's shared memory, and the stores that they count.
#[derive(Default)]
pub(super) struct Mbarriers {
    /// Mbarriers by their addresses.
    all: BTreeMap<u64, Mbarrier>,
    /// Last `st.async` to each word, by the word's number.
    pub(super) incoming: HashMap<u64, Incoming>,
    /// Initialisations of each thread before a `fence.mbarrier_init`.
    fenced: HashMap<u32, Clock>,
}

/// State of the lanes that try to wait for phases.
#[derive(Default)]
pub(super) struct Tries {
    /// State of an mbarrier, of [`Mbarriers::turn`], in which a lane last found the phase incomplete.
    failed: HashMap<(usize, u64), i64>,
    /// Address of the mbarrier that each lane waits at.
    at: [u64; LANES],
}

impl Mbarriers {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.incoming.clear();
        self.fenced.clear();
    }

    fn living(&self, address: u64) -> Option<&Mbarrier> {
        self.all.get(&address).filter(|found| found.lives)
    }

    /// Returns a number that changes with every phase and with every initialisation.
    fn turn(&self, address: u64) -> i64 {
        self.living(address).map_or(-1, |found| i64::from(found.inits) + i64::from(found.done))
    }

    /// Returns the number of complete phases of an mbarrier that a waiting thread has seen.
    pub(super) fn seen(&self, address: u64) -> i32 {
        self.all.get(&address).map_or(0, |found| found.seen)
    }

    /// Returns the clock that a relaxed arrival of a thread publishes.
    pub(super) fn fenced(&self, thread: u32) -> Option<&Clock> {
        self.fenced.get(&thread)
    }
}

impl Mbarrier {
    /// Begins the next phase if the current one is complete. Returns an error if its counts are wrong.
    fn settle(&mut self, threads: u32) -> Result<(), String> {
        if self.bytes.unsigned_abs() > u64::from(MOST_COUNTED) {
            return Err(format!(
                "a phase of this mbarrier counts {} bytes, of at most {MOST_COUNTED}",
                self.bytes
            ));
        }
        if self.arrivals > 0 || self.bytes > 0 {
            return Ok(());
        }
        if self.bytes < 0 {
            let more = -self.bytes;
            return Err(format!(
                "{more} bytes more have come than the phase of this mbarrier is for, whose threads have all arrived"
            ));
        }
        self.arrivals = self.count;
        self.phases += 1;
        self.done += 1;
        self.arrived.join(&std::mem::take(&mut self.arriving), threads);
        Ok(())
    }

    /// Counts the bytes of a store.
    pub(super) fn receive(&mut self, store: Incoming, bytes: u64, threads: u32) -> Result<(), String> {
        self.bytes -= bytes as i64;
        self.last[usize::from(store.is_remote)] = Some(store);
        self.settle(threads)
    }

    /// Returns the number of complete phases at this address once the current phase is complete.
    pub(super) fn due(&self) -> i32 {
        self.done + 1
    }
}

/// An mbarrier of a block, as a lane names it.
#[derive(Clone, Copy)]
pub(super) struct MbarrierRef {
    pub(super) home: Home,
    pub(super) lane: usize,
    pub(super) address: u64,
    /// Variable that the address stays in.
    pub(super) var: Option<Var>,
}

impl MbarrierRef {
    fn spot(self) -> Spot {
        Spot { lane: self.lane, address: self.address, bytes: BYTES }
    }
}

impl Who<'_, '_> {
    /// Returns the count of an mbarrier that a lane knows.
    pub(super) fn counts(&self, home: Home, lane: usize, (what, address): (Counted, u64)) -> i32 {
        let series = Series::new(what, self.memory(home).stamp().block(), address);
        self.now(lane).clock.map_or(0, |clock| clock.counts(series))
    }
}

/// Returns the mbarrier that a lane names. The lane has to know its initialisation.
pub(super) fn reach<'m>(who: &'m Who<'_, '_>, mbarrier: MbarrierRef) -> Result<&'m Mbarrier, Box<Trouble>> {
    let MbarrierRef { home, lane, address, var } = mbarrier;
    let name = || who.name_of(home);
    memory::aligned(mbarrier.spot())?;
    memory::inside(who, mbarrier.spot(), (var, who.mem.shared_len), name)?;
    let Some(found) = who.memory(home).mbarriers.living(address) else {
        return trouble(FaultKind::Uninitialized, lane, || {
            format!(
                "there is no mbarrier at {address:#x} of {}: nothing has initialised one there, or it was invalidated since",
                name()
            )
        });
    };
    let is_known = who.now(lane).is_after(found.init)
        || who.counts(home, lane, (Counted::Inits, address)) >= found.inits;
    if !is_known {
        return trouble(FaultKind::Race, lane, || {
            let whom = who.grid.name(found.init, who.stamp);
            format!(
                "the mbarrier at {address:#x} of {} was initialised by {whom}, and nothing orders that before",
                name()
            )
        });
    }
    Ok(found)
}

/// Returns the mbarrier for an operation that its phase counts. The lane has to know that the phase has
/// begun.
pub(super) fn reach_phase<'m>(
    who: &'m Who<'_, '_>,
    mbarrier: MbarrierRef,
) -> Result<&'m Mbarrier, Box<Trouble>> {
    let MbarrierRef { home, lane, address, .. } = mbarrier;
    let found = reach(who, mbarrier)?;
    let knows = |what| who.counts(home, lane, (what, address)) >= found.done;
    if found.phases == 0 || knows(Counted::Done) || knows(Counted::DoneWide) {
        return Ok(found);
    }
    trouble(FaultKind::Barrier, lane, || {
        format!(
            "nothing tells the thread that a phase of the mbarrier at {address:#x} of {} is complete: it may count for that one, or for the next",
            who.name_of(home)
        )
    })
}

/// Returns the mbarrier for modification.
pub(super) fn reached<'m>(who: &'m mut Who<'_, '_>, mbarrier: MbarrierRef) -> Option<&'m mut Mbarrier> {
    who.memory_mut(mbarrier.home).mbarriers.all.get_mut(&mbarrier.address)
}

/// Returns a fault if another instruction touches the bytes of an mbarrier.
pub(super) fn check_touch(who: &Who<'_, '_>, home: Home, spot: Spot) -> Step {
    let Spot { lane, address, bytes } = spot;
    let mut there =
        who.memory(home).mbarriers.all.range((address + 1).saturating_sub(BYTES)..address + bytes);
    let Some((at, _)) = there.find(|(_, found)| found.lives) else { return Ok(()) };
    trouble(FaultKind::Barrier, lane, || {
        format!(
            "{bytes} bytes at {address:#x} of {} are of the mbarrier at {at:#x}, which lives: only its own instructions touch it",
            who.name_of(home)
        )
    })
}

/// Records that a lane has used an mbarrier, for later writers of its bytes. The mbarrier's own checks cover
/// earlier accesses.
fn note(who: &Who<'_, '_>, lane: usize, address: u64) {
    let len = who.mem.shared_len;
    let _known =
        who.mem.shared_shadow.touch(len, address, BYTES, Touch::Atomic(BYTES as u32), &who.now(lane));
}

/// Executes an `mbarrier` instruction.
pub(super) fn mbarrier(
    who: &mut Who<'_, '_>,
    warp: &mut Warp,
    (active, exec): (u32, u32),
    pc: u32,
    (addr, what): (Addr, ir::Mbarrier),
) -> Result<Flow, Box<Trouble>> {
    let (at, var) = (memory::addresses(&warp.regs, addr), addr.var);
    let of_lane = |lane: usize| MbarrierRef { home: None, lane, address: at[lane], var };
    match what {
        ir::Mbarrier::Init { count } => {
            let counts = *u32::row(&warp.regs, count);
            lanes(exec).try_for_each(|lane| init(who, of_lane(lane), counts[lane]))?;
        }
        ir::Mbarrier::Inval => lanes(exec).try_for_each(|lane| invalidate(who, of_lane(lane)))?,
        ir::Mbarrier::Arrive { bytes } => {
            let bytes = bytes.map_or([0; LANES], |bytes| *u32::row(&warp.regs, bytes));
            lanes(exec).try_for_each(|lane| arrive(who, of_lane(lane), bytes[lane]))?;
        }
        ir::Mbarrier::TryWait { wide, p, parity } => {
            let waits = try_wait(who, warp, exec, (at, var), (wide, p, parity))?;
            warp.place(active & !waits, pc + 1);
            warp.place(waits, pc);
            warp.waiting |= waits;
            return Ok(Flow::Placed);
        }
    }
    Ok(Flow::Next)
}

fn init(who: &mut Who<'_, '_>, mbarrier: MbarrierRef, count: u32) -> Step {
    let MbarrierRef { lane, address, var, .. } = mbarrier;
    if who.mem.mbarriers.living(address).is_some() {
        return trouble(FaultKind::Barrier, lane, || {
            format!(
                "the mbarrier at {address:#x} lives: it has not been invalidated since it was initialised"
            )
        });
    }
    if !(1..=MOST_COUNTED).contains(&count) {
        return trouble(FaultKind::Barrier, lane, || {
            format!("an mbarrier is for 1 to {MOST_COUNTED} arrivals, not for {count}")
        });
    }
    clear(who, mbarrier.spot(), var)?;
    let stamp = who.stamp.lane(lane);
    let (inits, done, seen) =
        who.mem.mbarriers.all.get(&address).map_or((0, 0, 0), |old| (old.inits, old.done, old.seen));
    let new = Mbarrier {
        lives: true,
        init: stamp,
        inits: inits + 1,
        count,
        arrivals: count,
        bytes: 0,
        phases: 0,
        done,
        seen,
        last: [None; 2],
        arriving: Clock::default(),
        arrived: Clock::default(),
    };
    who.mem.mbarriers.all.insert(address, new);
    Ok(())
}

fn invalidate(who: &mut Who<'_, '_>, mbarrier: MbarrierRef) -> Step {
    let MbarrierRef { lane, address, var, .. } = mbarrier;
    let last = reach(who, mbarrier)?.last;
    if let Some(store) = last.into_iter().flatten().find(|store| !store.is_known(who, None, lane)) {
        return trouble(FaultKind::Race, lane, || {
            format!(
                "the mbarrier at {address:#x} counts an `st.async` of {}, and the thread has not seen the phase complete that it is of",
                store.of(who)
            )
        });
    }
    if let Some(found) = reached(who, mbarrier) {
        found.lives = false;
    }
    clear(who, mbarrier.spot(), var)
}

/// Marks bytes as unwritten, after a check that the lane may write them.
fn clear(who: &mut Who<'_, '_>, spot: Spot, var: Option<Var>) -> Step {
    shared::shared_spot(who, spot, var, Touch::Write)?;
    who.mem.shared_written.set(spot.address as usize, spot.bytes as u32, 0);
    Ok(())
}

fn arrive(who: &mut Who<'_, '_>, mbarrier: MbarrierRef, bytes: u32) -> Step {
    let MbarrierRef { lane, address, .. } = mbarrier;
    let found = reach_phase(who, mbarrier)?;
    if found.arrivals == 0 {
        let (count, missing) = (found.count, found.bytes);
        return trouble(FaultKind::Barrier, lane, || {
            format!(
                "{count} threads have arrived in this phase of the mbarrier at {address:#x}, which is for no more, and {missing} bytes are missing"
            )
        });
    }
    note(who, lane, address);
    let (first, meeting, threads) = (who.first, who.meeting, who.mem.threads);
    let told = who.mem.arrive(Party { first, lanes: 1 << lane, meeting });
    let Some(found) = reached(who, mbarrier) else { return Ok(()) };
    found.bytes += i64::from(bytes);
    found.arrivals -= 1;
    found.arriving.join(&told, threads);
    found.settle(threads).or_else(|what| trouble(FaultKind::Barrier, lane, || what))
}

/// Sets `p` in the lanes whose phase is complete, and returns the lanes that wait.
fn try_wait(
    who: &mut Who<'_, '_>,
    warp: &mut Warp,
    exec: u32,
    (at, var): ([u64; LANES], Option<Var>),
    (wide, p, parity): (bool, Reg, Reg),
) -> Result<u32, Box<Trouble>> {
    let parities = *u32::row(&warp.regs, parity);
    let (mut complete, mut waits) = (0, 0);
    for lane in lanes(exec) {
        let (address, parity) = (at[lane], parities[lane]);
        let phases = reach(who, MbarrierRef { home: None, lane, address, var })?.phases;
        if parity > 1 {
            return trouble(FaultKind::Barrier, lane, || format!("a parity is 0 or 1, not {parity}"));
        }
        note(who, lane, address);
        // The phase before the first counts as complete.
        if phases & 1 != parity {
            complete |= 1 << lane;
            continue;
        }
        let turn = who.mem.mbarriers.turn(address);
        // The first try fails, because a wait may end before its phase does. A missing loop shows that way.
        if warp.tries.failed.insert((lane, address), turn) == Some(turn) {
            warp.tries.at[lane] = address;
            warp.barrier[lane] = MBARRIER;
            waits |= 1 << lane;
        }
    }
    warp.regs.set_mask(exec & !waits, p, complete);
    let mut left = complete;
    while left != 0 {
        let address = at[left.trailing_zeros() as usize];
        let same = lanes(left).filter(|&lane| at[lane] == address).fold(0, |all, lane| all | 1 << lane);
        left &= !same;
        learn(who, same, address, wide);
    }
    Ok(waits)
}

/// Makes lanes know that the last phase, if any, is complete, and the accesses before its arrivals.
fn learn(who: &mut Who<'_, '_>, exec: u32, address: u64, wide: bool) {
    let (first, meeting, threads) = (who.first, who.meeting, who.mem.threads);
    let Some(found) = who.mem.mbarriers.all.get_mut(&address).filter(|found| found.phases > 0) else {
        return;
    };
    found.seen = found.done;
    let mut told = found.arrived.clone();
    let whats: &[Counted] = if wide { &[Counted::Done, Counted::DoneWide] } else { &[Counted::Done] };
    for &what in whats {
        told.join(&Clock::count(Series::new(what, who.stamp.block(), address), found.done), threads);
    }
    who.mem.learn(&Party { first, lanes: exec, meeting }, &told);
}

/// Executes `fence.mbarrier_init`: a later arrival of the lanes at the barrier of the cluster publishes their
/// initialisations.
pub(super) fn fence(who: &mut Who<'_, '_>, exec: u32) {
    let (block, threads) = (who.stamp.block(), who.mem.threads);
    let Mbarriers { all, fenced, .. } = &mut who.mem.mbarriers;
    for lane in lanes(exec) {
        let own = who.stamp.lane(lane).node();
        for (&address, found) in all.iter().filter(|(_, found)| found.init.node() == own) {
            let count = Clock::count(Series::new(Counted::Inits, block, address), found.inits);
            fenced.entry(who.first + lane as u32).or_default().join(&count, threads);
        }
    }
}

impl Tries {
    pub(super) fn clear(&mut self) {
        self.failed.clear();
    }
}

/// Wakes the lanes that wait at an mbarrier that has changed.
pub(super) fn wake(mem: &BlockMemory, warp: &mut Warp) {
    for lane in lanes(warp.at_mbarrier()) {
        let address = warp.tries.at[lane];
        if warp.tries.failed.get(&(lane, address)) != Some(&mem.mbarriers.turn(address)) {
            warp.waiting &= !(1 << lane);
        }
    }
}

/// Describes why a lane waits forever.
pub(super) fn stuck(mem: &BlockMemory, warp: &Warp, lane: usize) -> String {
    let address = warp.tries.at[lane];
    let (arrivals, bytes) =
        mem.mbarriers.living(address).map_or((0, 0), |found| (found.arrivals, found.bytes));
    let bytes = if bytes < 0 {
        format!("{} bytes have come that nobody expects", -bytes)
    } else {
        format!("{bytes} bytes")
    };
    format!(
        "it waits for a phase of the mbarrier at {address:#x} that lacks {arrivals} arrivals and {bytes}, and nobody goes on"
    )
}
