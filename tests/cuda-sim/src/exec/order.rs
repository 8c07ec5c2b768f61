//! Orderings other than barriers of whole blocks: fences with strong accesses, accesses that release or
//! acquire, and barriers of some threads.
//!
//! A fence followed by a strong write or an atomic releases what the thread knew at the fence. A strong read
//! or an atomic that sees the value, followed by a fence, acquires it. An access that releases or acquires
//! does so for its own place only. An atomic passes on what the atomic before it released.
//!
//! Invariant: a clock's time of a thread is never later than an event that truly orders it.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};

use super::block::BlockMemory;
use super::clock::{Clock, Times};
use super::grid::Grid;
use super::memory::Who;
use super::race::Stamp;
use super::regs::{LANES, lanes};
use crate::ptx::ir::Ordered;

/// Key of a place: the number of the block whose shared memory it is, or 0, and the address.
pub(super) type At = (u64, u64);

/// Value for the threads of all blocks, and value for the threads of one block.
#[derive(Clone, Default)]
struct Scopes<T> {
    wide: T,
    narrow: T,
}

/// State of a thread's knowledge at a fence, which a later strong write releases.
#[derive(Clone)]
struct Knew {
    before: Clock,
    barrier: u64,
    meeting: u64,
    time: u64,
}

/// Knowledge of a thread that is not ordered yet.
#[derive(Clone, Default)]
struct Thread {
    /// Clocks that the thread's strong reads saw at each place. A fence, or an access that acquires there,
    /// makes them known.
    seen: HashMap<At, Scopes<Clock>>,
    /// Knowledge that all strong writes of the thread release, and clocks that writes to some places release
    /// in addition.
    released: Scopes<Option<Knew>>,
    released_at: HashMap<At, Scopes<Clock>>,
}

/// Knowledge of the threads of a block.
pub(super) struct Order {
    /// Clocks of what is ordered before the next accesses of each warp's lanes.
    before: Vec<Befores>,
    threads: Vec<Thread>,
}

/// Clocks of the lanes of a warp. Lanes that met last share a clock. A lane without a clock knows nothing.
#[derive(Clone, Default)]
struct Befores(Vec<(u32, Clock)>);

impl Befores {
    /// Returns the clock of a lane.
    fn of(&self, lane: u32) -> &Clock {
        static NOTHING: Clock = Clock::NOTHING;
        self.0.iter().find(|(lanes, _)| lanes >> lane & 1 == 1).map_or(&NOTHING, |(_, clock)| clock)
    }

    /// Returns the clocks of some lanes.
    fn among(&self, lanes: u32) -> impl Iterator<Item = (u32, &Clock)> {
        self.0.iter().map(move |(those, clock)| (those & lanes, clock)).filter(|(those, _)| *those != 0)
    }

    /// Sets the common clock of some lanes.
    fn set(&mut self, lanes: u32, clock: Clock) {
        if let Some((_, old)) = self.0.iter_mut().find(|(those, _)| *those == lanes) {
            *old = clock;
            return;
        }
        self.0.retain_mut(|(those, _)| {
            *those &= !lanes;
            *those != 0
        });
        self.0.push((lanes, clock));
    }
}

/// Clocks that the last writes to a place released: to all threads, and to the block of the last narrow one.
#[derive(Default)]
pub(super) struct Releases {
    wide: Clock,
    narrow: Option<(u64, Clock)>,
}

pub(super) type ReleaseMap = HashMap<At, Releases>;

/// Kind of a strong access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strong {
    Read,
    Write,
    /// Atomic: true if its value is used, and true if it wrote.
    Change {
        read: bool,
        wrote: bool,
    },
}

/// Lanes of a warp that meet others: the warp's first thread, the lanes, and the time when all lanes last
/// met.
pub(super) struct Party {
    pub(super) first: u32,
    pub(super) lanes: u32,
    pub(super) meeting: u64,
}

impl Order {
    /// Returns the clock of what is ordered before the next access of a thread.
    pub(super) fn before(&self, thread: u32) -> &Clock {
        self.before[thread as usize / LANES].of(thread % 32)
    }
}

/// Locks the places of a grid, so that a strong access and its ordering are one step. None for kernels
/// without fences.
pub(super) fn places<'g>(grid: &'g Grid<'_>) -> Option<MutexGuard<'g, ReleaseMap>> {
    let asked = grid.kernel.code.has_fences;
    asked.then(|| grid.places.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Records a strong access of a lane to a place. An access that releases has to be completed by [`released`].
pub(super) fn strong(
    who: &mut Who<'_, '_>,
    places: &mut ReleaseMap,
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

/// Records a read: the thread sees what was released at the place, and knows it at once if the read acquires.
fn acquire(who: &mut Who<'_, '_>, places: &ReleaseMap, lane: usize, at: At, order: Ordered) {
    let (block, threads) = (who.stamp.block(), who.mem.threads);
    let number = who.first as usize + lane;
    let Order { before, threads: all } = who.mem.order();
    let (warp, thread) = (&mut before[number / LANES], &mut all[number]);
    if let Some(place) = places.get(&at) {
        let narrow = place.narrow.as_ref().filter(|(of, _)| *of == block).map(|(_, clock)| clock);
        if narrow.is_some() || !place.wide.is_empty() {
            let seen = thread.seen.entry(at).or_default();
            seen.wide.join(&place.wide, threads);
            narrow.into_iter().for_each(|clock| seen.narrow.join(clock, threads));
        }
    }
    if order.acquires {
        thread.know(Some(at), order.wide, (warp, lane), threads);
    }
}

/// Records a write: the place gets what the thread knew at its last fence, and what its own releases there
/// add.
fn release(who: &mut Who<'_, '_>, places: &mut ReleaseMap, lane: usize, at: At, order: Ordered) {
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

/// Advances the time after an access that releases, which does not release what the thread does later.
#[inline(always)]
pub(super) fn released(who: &mut Who<'_, '_>, order: Ordered) {
    who.mem.time += u64::from(order.releases);
}

/// Executes a fence of lanes, or one half of a fence, for the GPU or for their block.
pub(super) fn fence(who: &mut Who<'_, '_>, exec: u32, wide: bool, (acquires, releases): (bool, bool)) {
    let (threads, meeting, first) = (who.mem.threads, who.meeting, who.first as usize);
    let (barrier, time) = (who.mem.barrier, who.mem.time);
    let Order { before, threads: all } = who.mem.order();
    let warp = &mut before[first / LANES];
    for lane in lanes(exec) {
        let thread = &mut all[first + lane];
        if acquires {
            thread.know(None, wide, (warp, lane), threads);
        }
        if releases {
            let knew = Knew { before: warp.of(lane as u32).clone(), barrier, meeting, time };
            if wide {
                thread.released.wide = Some(knew.clone());
            }
            thread.released.narrow = Some(knew);
        }
    }
    who.mem.time += 1;
}

impl Thread {
    /// Orders what the thread has seen at a place, or at all places, before its next accesses.
    fn know(&mut self, at: Option<At>, wide: bool, (warp, lane): (&mut Befores, usize), threads: u32) {
        if self.seen.is_empty() {
            return;
        }
        let mut before = warp.of(lane as u32).clone();
        for (_, seen) in self.seen.iter().filter(|(place, _)| at.is_none_or(|at| at == **place)) {
            before.join(&seen.narrow, threads);
            if wide {
                before.join(&seen.wide, threads);
            }
        }
        if !before.is(warp.of(lane as u32)) {
            warp.set(1 << lane, before);
        }
        // A narrow fence leaves the clocks of other blocks to a later wide one.
        if wide {
            self.seen.retain(|place, _| at.is_some_and(|at| at != *place));
        }
    }
}

impl Knew {
    /// Returns the clock of this knowledge.
    fn clock(&self, block: u64, thread: u32, threads: u32) -> Clock {
        let party = Party { first: thread & !31, lanes: 1 << (thread & 31), meeting: self.meeting };
        let mut clock = Clock::of(block, times(&[party], self.barrier, self.time, threads));
        clock.join(&self.before, threads);
        clock
    }
}

impl Who<'_, '_> {
    /// Returns the current knowledge of a lane.
    fn knew(&mut self, lane: usize) -> Knew {
        let (barrier, time, meeting) = (self.mem.barrier, self.mem.time, self.meeting);
        let before = self.mem.order().before(self.first + lane as u32).clone();
        Knew { before, barrier, meeting, time }
    }
}

/// Returns the times that lanes know of their own block without clocks.
///
/// The lanes know themselves now, their warps at their last meetings, and all threads at the barrier. The
/// warps are in order.
fn times(parties: &[Party], barrier: u64, time: u64, threads: u32) -> Times {
    let (all, time) = (barrier as i32, time as i32);
    if let [Party { first, lanes, meeting }] = parties
        && lanes.is_power_of_two()
        && *meeting <= barrier
    {
        return Times::One { all, thread: first + lanes.trailing_zeros(), time };
    }
    let (Some(start), Some(last)) = (parties.first(), parties.last()) else {
        return Times::One { all, thread: 0, time: all };
    };
    // The range goes from the first party's warp to the last one's.
    let start = start.first;
    let mut times = vec![all; (threads.min(last.first + 32) - start) as usize];
    parties.iter().for_each(|party| party.raise(&mut times[(party.first - start) as usize..], time));
    Times::some(all, start, times, threads)
}

impl Party {
    /// Raises the times of the warp's threads to what its lanes know: themselves now, and the others at their
    /// meeting.
    fn raise(&self, times: &mut [i32], time: i32) {
        let met = self.meeting as i32;
        for (lane, known) in times.iter_mut().enumerate().take(LANES) {
            let here = if self.lanes >> lane & 1 == 1 { time } else { met };
            *known = here.max(*known);
        }
    }
}

impl BlockMemory {
    /// Returns the knowledge of the threads, which is created at the first use.
    fn order(&mut self) -> &mut Order {
        let threads = self.threads as usize;
        self.order.get_or_insert_with(|| {
            Box::new(Order {
                before: vec![Befores::default(); threads.div_ceil(LANES)],
                threads: vec![Thread::default(); threads],
            })
        })
    }

    /// Returns a stamp of the block.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp::new(self.number, 0, 0)
    }

    /// Returns the clock of what any thread of the block knows.
    pub(super) fn known_to_any(&self) -> Clock {
        let mut all = Clock::default();
        for (_, before) in self.order.iter().flat_map(|order| &order.before).flat_map(|warp| &warp.0) {
            all.join(before, self.threads);
        }
        all
    }

    /// Returns the clock of what is ordered before the next accesses of some lanes together.
    fn known(&self, parties: &[Party]) -> Clock {
        let (block, threads) = (self.stamp().block(), self.threads);
        let mut own = times(parties, self.barrier, self.time, threads);
        let mut others = Clock::default();
        if let Some(order) = &self.order {
            let among = |party: &Party| order.before[party.first as usize / LANES].among(party.lanes);
            for (_, before) in parties.iter().flat_map(among) {
                others.join(&before.without(block), threads);
                if let Some(known) = before.times(block) {
                    own = own.with(known, threads);
                }
            }
        }
        let mut clock = Clock::of(block, own);
        clock.join(&others, threads);
        clock
    }

    /// Orders threads that meet, and threads that arrived and went on, before the next accesses of the
    /// former.
    pub(super) fn meet(&mut self, parties: &[Party], arrived: &[&Clock]) {
        if arrived.is_empty()
            && let [party] = parties
            && self.meet_again(party)
        {
            return;
        }
        let mut clock = self.known(parties);
        arrived.iter().for_each(|arrived| clock.join(arrived, self.threads));
        let order = self.order();
        for party in parties {
            order.before[party.first as usize / LANES].set(party.lanes, clock.clone());
        }
        self.time += 1;
    }

    /// Updates the clock of lanes that were the last to meet each other, too.
    ///
    /// Returns false if the lanes have no clock of their own.
    fn meet_again(&mut self, party: &Party) -> bool {
        let (block, barrier, time) = (self.stamp().block(), self.barrier as i32, self.time as i32);
        let warp = self.order.as_mut().map(|order| &mut order.before[party.first as usize / LANES]);
        let clock = warp.and_then(|warp| warp.0.iter_mut().find(|(those, _)| *those == party.lanes));
        let Some(Times::Some { all, first, times }) = clock.and_then(|(_, clock)| clock.alone(block)) else {
            return false;
        };
        // Times of more threads than the warp's come from earlier meetings with other warps.
        if *first != party.first || times.len() > LANES {
            return false;
        }
        *all = barrier.max(*all);
        times.iter_mut().for_each(|known| *known = barrier.max(*known));
        party.raise(times, time);
        self.time += 1;
        true
    }

    /// Orders all threads of the block at a barrier.
    pub(super) fn meet_all(&mut self) {
        self.barrier = self.time;
        self.time += 1;
        // The time of the barrier already orders the threads of the block.
        let all = self.known_to_any().without(self.stamp().block());
        let Some(order) = &mut self.order else { return };
        order.before.iter_mut().for_each(|warp| warp.set(u32::MAX, all.clone()));
    }

    /// Adds a published clock to what lanes know.
    pub(super) fn learn(&mut self, party: &Party, told: &Clock) {
        let (threads, order) = (self.threads, self.order());
        let warp = &mut order.before[party.first as usize / LANES];
        let known = warp.among(party.lanes).fold(0, |all, (those, _)| all | those);
        let mut new: Vec<(u32, Clock)> = warp
            .among(party.lanes)
            .map(|(those, before)| {
                let mut clock = before.clone();
                clock.join(told, threads);
                (those, clock)
            })
            .collect();
        if party.lanes & !known != 0 {
            new.push((party.lanes & !known, told.clone()));
        }
        new.into_iter().for_each(|(those, clock)| warp.set(those, clock));
    }

    /// Orders all lanes of a warp, and returns the time of the meeting.
    pub(super) fn meet_warp(&mut self, party: &Party) -> u64 {
        let time = self.time;
        let knows = |order: &Order| {
            order.before[party.first as usize / LANES].0.iter().any(|(_, before)| !before.is_empty())
        };
        if self.order.as_deref().is_some_and(knows) {
            self.meet(std::slice::from_ref(party), &[]);
        } else {
            self.time += 1;
        }
        time
    }

    /// Returns the clock that lanes publish when they arrive at a barrier and go on.
    pub(super) fn arrive(&mut self, party: Party) -> Clock {
        let known = self.known(&[party]);
        self.time += 1;
        known
    }
}
