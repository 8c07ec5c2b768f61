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
use super::regs::{LANES, lanes};
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
    /// What is before all that the lanes of each warp do now.
    before: Vec<Befores>,
    threads: Vec<Thread>,
}

/// What is before what the lanes of a warp do. Lanes that met last have one clock; what is of no clock knows nothing.
#[derive(Clone, Default)]
struct Befores(Vec<(u32, Clock)>);

impl Befores {
    /// That of a lane.
    fn of(&self, lane: u32) -> &Clock {
        static NOTHING: Clock = Clock::NOTHING;
        self.0.iter().find(|(lanes, _)| lanes >> lane & 1 == 1).map_or(&NOTHING, |(_, clock)| clock)
    }

    /// Those of some lanes.
    fn among(&self, lanes: u32) -> impl Iterator<Item = (u32, &Clock)> {
        self.0.iter().map(move |(those, clock)| (those & lanes, clock)).filter(|(those, _)| *those != 0)
    }

    /// Some lanes have one now.
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
        self.before[thread as usize / LANES].of(thread % 32)
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
    /// What it has seen at a place, or at all, is before what it does now.
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
        // What is not known of the others is seen still.
        if wide {
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
        let before = self.mem.order().before(self.first + lane as u32).clone();
        Knew { before, barrier, meeting, time }
    }
}

/// What lanes know of their own block but by clocks: themselves now, their warps, which are in order, at their meetings, all at
/// the barrier.
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
    // Of the warps from the first party's to the last's.
    let start = start.first;
    let mut times = vec![all; (threads.min(last.first + 32) - start) as usize];
    parties.iter().for_each(|party| party.raise(&mut times[(party.first - start) as usize..], time));
    Times::some(all, start, times, threads)
}

impl Party {
    /// What its lanes know of their warp, the first of these threads: it at their meeting, themselves now.
    fn raise(&self, times: &mut [i32], time: i32) {
        let met = self.meeting as i32;
        for (lane, known) in times.iter_mut().enumerate().take(LANES) {
            let here = if self.lanes >> lane & 1 == 1 { time } else { met };
            *known = here.max(*known);
        }
    }
}

impl BlockMemory {
    /// What its threads know, from the first time on that anybody asks.
    fn order(&mut self) -> &mut Order {
        let threads = self.threads as usize;
        self.order.get_or_insert_with(|| {
            Box::new(Order {
                before: vec![Befores::default(); threads.div_ceil(LANES)],
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
        let mut all = Clock::default();
        for (_, before) in self.order.iter().flat_map(|order| &order.before).flat_map(|warp| &warp.0) {
            all.join(before, self.threads);
        }
        all
    }

    /// All that is before what some lanes do next, if they were one.
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

    /// Some threads have met, and others that arrived and went on: what they did is before what the first do now.
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

    /// The same of lanes that were the last to meet each other, who have a clock to themselves; whether they were.
    fn meet_again(&mut self, party: &Party) -> bool {
        let (block, barrier, time) = (self.stamp().block(), self.barrier as i32, self.time as i32);
        let warp = self.order.as_mut().map(|order| &mut order.before[party.first as usize / LANES]);
        let clock = warp.and_then(|warp| warp.0.iter_mut().find(|(those, _)| *those == party.lanes));
        let Some(Times::Some { all, first, times }) = clock.and_then(|(_, clock)| clock.alone(block)) else {
            return false;
        };
        // More than their warp is told of where they met others before.
        if *first != party.first || times.len() > LANES {
            return false;
        }
        *all = barrier.max(*all);
        times.iter_mut().for_each(|known| *known = barrier.max(*known));
        party.raise(times, time);
        self.time += 1;
        true
    }

    /// All threads of the block have met.
    pub(super) fn meet_all(&mut self) {
        self.barrier = self.time;
        self.time += 1;
        // What they know of each other is told by the barrier.
        let all = self.known_to_any().without(self.stamp().block());
        let Some(order) = &mut self.order else { return };
        order.before.iter_mut().for_each(|warp| warp.set(u32::MAX, all.clone()));
    }

    /// Lanes get to know what others have told.
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

    /// All lanes of a warp have met; the time of that.
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

    /// What lanes know that arrive at a barrier and go on.
    pub(super) fn arrive(&mut self, party: Party) -> Clock {
        let known = self.known(&[party]);
        self.time += 1;
        known
    }
}
