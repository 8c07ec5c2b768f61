//! What is before what, beyond the barriers that all reach: fences with the atomics, strong reads and strong writes about
//! them, those of these that release or acquire themselves, and barriers of some threads.
//!
//! A fence, then a strong write or an atomic: these release what the thread knew at the fence. A strong read or an atomic
//! that sees the value, then a fence: these acquire it. One that releases or acquires itself does so for its own place. An
//! atomic hands on what the one before it released.
//!
//! Invariant: a clock's time of a thread is never later than an event that truly orders it.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};

use super::block::BlockMemory;
use super::clock::{Clock, Times};
use super::grid::Grid;
use super::memory::Who;
use super::race::Stamp;
use super::regs::lanes;
use crate::ptx::ir::Ordered;

/// A place by the block whose shared memory it is, or 0, and the address.
pub(super) type At = (u64, u64);

/// What there is for all, and what for threads of one block at least.
#[derive(Clone, Default)]
struct Scopes<T> {
    wide: T,
    narrow: T,
}

/// What a thread knew at a fence, as it is told once a strong write releases it.
#[derive(Clone)]
struct Knew {
    before: Clock,
    barrier: u64,
    meeting: u64,
    time: u64,
}

/// What a thread knows.
#[derive(Clone, Default)]
struct Thread {
    /// What its strong reads saw at each place that was released; a fence makes it known, as does what acquires there.
    seen: HashMap<At, Scopes<Clock>>,
    /// What its strong writes release, and what those to some places do besides.
    released: Scopes<Option<Knew>>,
    released_at: HashMap<At, Scopes<Clock>>,
}

/// What the threads of a block know.
pub(super) struct Order {
    /// What is before all that each does now.
    before: Vec<Clock>,
    threads: Vec<Thread>,
}

/// What the last writes of a place released: for all, and for the block of the last that was of it.
#[derive(Default)]
pub(super) struct Place {
    wide: Clock,
    narrow: Option<(u64, Clock)>,
}

pub(super) type Places = HashMap<At, Place>;

/// How a strong access touches its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strong {
    Read,
    Write,
    /// An atomic: whether its value is asked for, and whether it wrote.
    Change {
        read: bool,
        wrote: bool,
    },
}

/// Some lanes of a warp that meet others: the warp's first thread, the lanes, and when all of them last met.
pub(super) struct Party {
    pub(super) first: u32,
    pub(super) lanes: u32,
    pub(super) meeting: u64,
}

impl Order {
    /// What is before all that a thread does now.
    pub(super) fn before(&self, thread: u32) -> &Clock {
        &self.before[thread as usize]
    }
}

/// The places of a grid, for a strong access to be one with what it says of the order; none where no fence asks.
pub(super) fn places<'g>(grid: &'g Grid<'_>) -> Option<MutexGuard<'g, Places>> {
    let asked = grid.kernel.code.has_fences;
    asked.then(|| grid.places.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Notes a strong access of a lane to a place. One that releases is over only with [`released`].
pub(super) fn strong(
    who: &mut Who<'_, '_>,
    places: &mut Places,
    lane: usize,
    at: At,
    (how, order): (Strong, Ordered),
) {
    let (reads, writes) = match how {
        Strong::Read => (true, false),
        Strong::Write => (false, true),
        Strong::Change { read, wrote } => (read, wrote),
    };
    if reads || order.acquires {
        acquire(who, places, lane, at, order);
    }
    if writes {
        if how == Strong::Write {
            places.remove(&at);
        }
        release(who, places, lane, at, order);
    }
}

/// A read: what was released at the place is seen, and known at once where it acquires.
fn acquire(who: &mut Who<'_, '_>, places: &Places, lane: usize, at: At, order: Ordered) {
    let (block, threads) = (who.stamp.block(), who.mem.threads);
    let number = who.first as usize + lane;
    let Order { before, threads: all } = who.mem.order();
    let (before, thread) = (&mut before[number], &mut all[number]);
    if let Some(place) = places.get(&at) {
        let narrow = place.narrow.as_ref().filter(|(of, _)| *of == block).map(|(_, clock)| clock);
        if narrow.is_some() || !place.wide.is_empty() {
            let seen = thread.seen.entry(at).or_default();
            seen.wide.join(&place.wide, threads);
            narrow.into_iter().for_each(|clock| seen.narrow.join(clock, threads));
        }
    }
    if order.acquires {
        thread.know(Some(at), order.wide, (before, threads));
    }
}

/// A write: what the thread knew at its last fence, and what it released at this place or does now, is there to be seen.
fn release(who: &mut Who<'_, '_>, places: &mut Places, lane: usize, at: At, order: Ordered) {
    let (block, threads, number) = (who.stamp.block(), who.mem.threads, who.first + lane as u32);
    if order.releases {
        let known = who.knew(lane).clock(block, number, threads);
        let own = who.mem.order().threads[number as usize].released_at.entry(at).or_default();
        own.narrow.clone_from(&known);
        if order.wide {
            own.wide = known;
        }
    }
    let thread = &who.mem.order().threads[number as usize];
    let of_fence = |knew: &Option<Knew>| knew.as_ref().map(|knew| knew.clock(block, number, threads));
    let own = thread.released_at.get(&at);
    if thread.released.narrow.is_none() && own.is_none() {
        return;
    }
    let place = places.entry(at).or_default();
    for clock in of_fence(&thread.released.wide).iter().chain(own.map(|own| &own.wide)) {
        place.wide.join(clock, threads);
    }
    let mut all =
        place.narrow.take().filter(|(of, _)| *of == block).map(|(_, clock)| clock).unwrap_or_default();
    for clock in of_fence(&thread.released.narrow).iter().chain(own.map(|own| &own.narrow)) {
        all.join(clock, threads);
    }
    place.narrow = Some((block, all));
}

/// What a thread does after an access that released is not what it released.
#[inline(always)]
pub(super) fn released(who: &mut Who<'_, '_>, order: Ordered) {
    who.mem.time += u64::from(order.releases);
}

/// Lanes make a fence, or one half of it, for the GPU or for their block.
pub(super) fn fence(who: &mut Who<'_, '_>, exec: u32, wide: bool, (acquires, releases): (bool, bool)) {
    let threads = who.mem.threads;
    for lane in lanes(exec) {
        let number = who.first as usize + lane;
        if acquires {
            let Order { before, threads: all } = who.mem.order();
            all[number].know(None, wide, (&mut before[number], threads));
        }
        if releases {
            let knew = Some(who.knew(lane));
            let released = &mut who.mem.order().threads[number].released;
            if wide {
                released.wide.clone_from(&knew);
            }
            released.narrow = knew;
        }
    }
    who.mem.time += 1;
}

impl Thread {
    /// What it has seen at a place, or at all, is before what it does now.
    fn know(&mut self, at: Option<At>, wide: bool, (before, threads): (&mut Clock, u32)) {
        for (_, seen) in self.seen.iter().filter(|(place, _)| at.is_none_or(|at| at == **place)) {
            before.join(&seen.narrow, threads);
            if wide {
                before.join(&seen.wide, threads);
            }
        }
        // What is not known of the others is seen still.
        if wide && !self.seen.is_empty() {
            self.seen.retain(|place, _| at.is_some_and(|at| at != *place));
        }
    }
}

impl Knew {
    /// The clock of it.
    fn clock(&self, block: u64, thread: u32, threads: u32) -> Clock {
        let party = Party { first: thread & !31, lanes: 1 << (thread & 31), meeting: self.meeting };
        let mut clock = Clock::of(block, times(&[party], self.barrier, self.time, threads));
        clock.join(&self.before, threads);
        clock
    }
}

impl Who<'_, '_> {
    /// What a lane knows now.
    fn knew(&mut self, lane: usize) -> Knew {
        let (barrier, time, meeting) = (self.mem.barrier, self.mem.time, self.meeting);
        let before = self.mem.order().before[self.first as usize + lane].clone();
        Knew { before, barrier, meeting, time }
    }
}

/// What lanes know of their own block but by clocks: themselves now, their warps at their meetings, all at the barrier.
fn times(parties: &[Party], barrier: u64, time: u64, threads: u32) -> Times {
    let (all, time) = (barrier as i32, time as i32);
    if let [Party { first, lanes, meeting }] = parties
        && lanes.is_power_of_two()
        && *meeting <= barrier
    {
        return Times::One { all, thread: first + lanes.trailing_zeros(), time };
    }
    let mut times = vec![all; threads as usize];
    for party in parties {
        let first = party.first as usize;
        let end = times.len().min(first + 32);
        times[first..end].iter_mut().for_each(|known| *known = all.max(party.meeting as i32));
        lanes(party.lanes).for_each(|lane| times[first + lane] = time);
    }
    Times::Each(times.into())
}

impl BlockMemory {
    /// What its threads know, from the first time on that anybody asks.
    fn order(&mut self) -> &mut Order {
        let threads = self.threads as usize;
        self.order.get_or_insert_with(|| {
            Box::new(Order {
                before: vec![Clock::default(); threads],
                threads: vec![Thread::default(); threads],
            })
        })
    }

    /// A stamp of the block.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp::new(self.number, 0, 0)
    }

    /// What any of its threads knows.
    pub(super) fn known_to_any(&self) -> Clock {
        let (mut all, mut last) = (Clock::default(), &Clock::default());
        for before in self.order.iter().flat_map(|order| &order.before) {
            if !before.is(last) {
                all.join(before, self.threads);
                last = before;
            }
        }
        all
    }

    /// All that is before what some lanes do next, if they were one.
    fn known(&self, parties: &[Party]) -> Clock {
        let (block, threads) = (self.stamp().block(), self.threads);
        let mut own = times(parties, self.barrier, self.time, threads);
        let (mut others, mut last) = (Clock::default(), &Clock::default());
        let befores = self.order.iter().flat_map(|order| {
            let numbers =
                parties.iter().flat_map(|party| lanes(party.lanes).map(|lane| party.first + lane as u32));
            numbers.map(|thread| order.before(thread))
        });
        for before in befores {
            // What met before has one clock.
            if before.is(last) {
                continue;
            }
            last = before;
            others.join(&before.without(block), threads);
            if let Some(known) = before.times(block) {
                own = own.with(known, threads);
            }
        }
        let mut clock = Clock::of(block, own);
        clock.join(&others, threads);
        clock
    }

    /// Some threads have met, and others that arrived and went on: what they did is before what the first do now.
    pub(super) fn meet(&mut self, parties: &[Party], arrived: &[&Clock]) {
        let mut clock = self.known(parties);
        arrived.iter().for_each(|arrived| clock.join(arrived, self.threads));
        let order = self.order();
        for party in parties {
            for lane in lanes(party.lanes) {
                order.before[party.first as usize + lane].clone_from(&clock);
            }
        }
        self.time += 1;
    }

    /// All threads of the block have met.
    pub(super) fn meet_all(&mut self) {
        self.barrier = self.time;
        self.time += 1;
        // What they know of each other is told by the barrier.
        let all = self.known_to_any().without(self.stamp().block());
        let Some(order) = &mut self.order else { return };
        order.before.iter_mut().for_each(|before| before.clone_from(&all));
    }

    /// Lanes get to know what others have told.
    pub(super) fn learn(&mut self, party: &Party, told: &Clock) {
        let (threads, order) = (self.threads, self.order());
        let (mut last, mut new) = (Clock::default(), told.clone());
        for lane in lanes(party.lanes) {
            let before = &mut order.before[party.first as usize + lane];
            // What met before has one clock.
            if !before.is(&last) {
                last.clone_from(before);
                new.clone_from(before);
                new.join(told, threads);
            }
            before.clone_from(&new);
        }
    }

    /// All lanes of a warp have met; the time of that.
    pub(super) fn meet_warp(&mut self, party: &Party) -> u64 {
        let time = self.time;
        let range = party.first as usize..(party.first as usize + 32).min(self.threads as usize);
        let knows = |order: &Order| order.before[range.clone()].iter().any(|before| !before.is_empty());
        if self.order.as_deref().is_some_and(knows) {
            self.meet(std::slice::from_ref(party), &[]);
        } else {
            self.time += 1;
        }
        time
    }

    /// What lanes know that arrive at a barrier and go on.
    pub(super) fn arrive(&mut self, party: Party) -> Clock {
        let known = self.known(&[party]);
        self.time += 1;
        known
    }
}
