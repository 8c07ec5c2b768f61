//! What is before what, beyond the barriers that all reach: fences with the atomics, strong reads and strong writes about
//! them, and barriers of some threads.
//!
//! A fence, then a strong write or an atomic: these release what the thread knew at the fence. A strong read or an atomic
//! that sees the value, then a fence: these acquire it. An atomic hands on what the one before it released.
//!
//! Invariant: a clock's time of some threads is never later than an event that truly orders them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::block::{BlockMemory, Grid};
use super::memory::Who;
use super::race::{LEAVES, Stamp};
use super::regs::lanes;

/// What is known to be before: of threads of a block, up to which of its times. Threads are a node of their tree.
#[derive(Clone, Default)]
pub(super) struct Clock(HashMap<(u64, u64), u64>);

/// A clock that others share, if there is anything to know.
type Shared = Option<Arc<Clock>>;

impl Clock {
    fn add(&mut self, of: (u64, u64), time: u64) {
        let known = self.0.entry(of).or_default();
        *known = time.max(*known);
    }

    fn join(&mut self, o: &Clock) {
        o.0.iter().for_each(|(&of, &time)| self.add(of, time));
    }

    /// Whether all that left a stamp, of blocks with so many threads, is known to be before.
    #[cold]
    pub(super) fn covers(&self, old: Stamp, threads: u32) -> bool {
        let known = |node: u64| self.0.get(&(old.block(), node)).is_some_and(|&time| time >= old.time());
        let mut above = old.node() >> 1;
        while above > 0 {
            if known(above) {
                return true;
            }
            above >>= 1;
        }
        below(old.node(), LEAVES + u64::from(threads), &known)
    }

    /// How many blocks but this one something is known of.
    pub(super) fn others(&self, this: u64) -> usize {
        self.0.keys().map(|(block, _)| *block).filter(|block| *block != this).collect::<HashSet<_>>().len()
    }
}

/// Whether a node is known, or all below it that are threads.
fn below(node: u64, end: u64, known: &impl Fn(u64) -> bool) -> bool {
    let first = node << (node.leading_zeros() - LEAVES.leading_zeros());
    first >= end
        || known(node)
        || node < LEAVES && (2 * node..2 * node + 2).all(|node| below(node, end, known))
}

fn merge(to: &mut Shared, from: &Shared) {
    match (&mut *to, from) {
        (_, None) => {}
        (None, Some(_)) => *to = from.clone(),
        (Some(old), Some(new)) if Arc::ptr_eq(old, new) => {}
        (Some(old), Some(new)) => Arc::make_mut(old).join(new),
    }
}

/// What fences of the GPU, and those of a block at least, release or find.
#[derive(Clone, Default)]
struct Scopes {
    wide: Shared,
    narrow: Shared,
}

/// What a thread knows.
#[derive(Clone, Default)]
struct Thread {
    /// What is before all that it does now.
    before: Shared,
    /// What its strong reads saw; a fence makes it known.
    seen: Scopes,
    /// What its strong writes release.
    released: Scopes,
}

/// What the threads of a block know.
pub(super) struct Order {
    threads: Vec<Thread>,
    /// What those knew that arrived at a barrier without waiting.
    arrived: HashMap<u8, Clock>,
}

/// What the last writes of a place released: for all, and for the block of the last that was of it.
#[derive(Default)]
pub(super) struct Place {
    wide: Shared,
    narrow: Option<(u64, Arc<Clock>)>,
}

/// Places by the block whose shared memory it is, or 0, and the address.
pub(super) type Places = HashMap<(u64, u64), Place>;

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
    pub(super) fn before(&self, thread: u32) -> Option<&Clock> {
        self.threads[thread as usize].before.as_deref()
    }
}

/// The places of a grid, for a strong access to be one with what it says of the order; none where no fence asks.
pub(super) fn places<'g>(grid: &'g Grid<'_>) -> Option<MutexGuard<'g, Places>> {
    let asked = grid.kernel.code.has_fences;
    asked.then(|| grid.places.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Notes a strong access of a lane to a place.
pub(super) fn strong(who: &mut Who<'_, '_>, places: &mut Places, lane: usize, at: (u64, u64), how: Strong) {
    let (block, thread) = (who.stamp.block(), who.first as usize + lane);
    let thread = &mut who.mem.order().threads[thread];
    let (reads, writes) = match how {
        Strong::Read => (true, false),
        Strong::Write => (false, true),
        Strong::Change { read, wrote } => (read, wrote),
    };
    if reads && let Some(place) = places.get(&at) {
        merge(&mut thread.seen.wide, &place.wide);
        if let Some((of, clock)) = &place.narrow
            && *of == block
        {
            merge(&mut thread.seen.narrow, &Some(Arc::clone(clock)));
        }
    }
    if !writes {
        return;
    }
    let place = places.entry(at).or_default();
    if how == Strong::Write {
        *place = Place::default();
    }
    merge(&mut place.wide, &thread.released.wide);
    if let Some(clock) = &thread.released.narrow {
        let mut all = place.narrow.take().filter(|(of, _)| *of == block).map(|(_, clock)| clock);
        merge(&mut all, &Some(Arc::clone(clock)));
        place.narrow = all.map(|clock| (block, clock));
    }
}

/// Lanes make a fence, or one half of it, for the GPU or for their block.
pub(super) fn fence(who: &mut Who<'_, '_>, exec: u32, wide: bool, (acquires, releases): (bool, bool)) {
    for lane in lanes(exec) {
        let party = Party { first: who.first, lanes: 1 << lane, meeting: who.meeting };
        let thread = &mut who.mem.order().threads[who.first as usize + lane];
        if acquires {
            let seen = if wide { std::mem::take(&mut thread.seen) } else { Scopes::default() };
            let narrow = seen.narrow.or_else(|| thread.seen.narrow.take());
            merge(&mut thread.before, &narrow);
            merge(&mut thread.before, &seen.wide);
        }
        if releases {
            let known = Some(Arc::new(who.mem.known(&party)));
            let thread = &mut who.mem.order().threads[who.first as usize + lane];
            thread.released.narrow.clone_from(&known);
            if wide {
                thread.released.wide = known;
            }
        }
    }
    who.mem.time += 1;
}

impl BlockMemory {
    /// What its threads know, from the first time on that anybody asks.
    fn order(&mut self) -> &mut Order {
        let threads = self.threads as usize;
        self.order.get_or_insert_with(|| {
            Box::new(Order { threads: vec![Thread::default(); threads], arrived: HashMap::new() })
        })
    }

    /// All that is before what some lanes do next, if they were one.
    fn known(&self, party: &Party) -> Clock {
        let block = Stamp::new(self.number, 0, 0).block();
        let mut clock = Clock::default();
        for lane in lanes(party.lanes) {
            let before = self.order.as_ref().and_then(|order| order.before(party.first + lane as u32));
            before.into_iter().for_each(|before| clock.join(before));
            clock.add((block, LEAVES + u64::from(party.first) + lane as u64), self.time);
        }
        let warp = (LEAVES + u64::from(party.first)) >> 5;
        clock.add((block, 1), self.barrier);
        clock.add((block, warp), party.meeting);
        clock
    }

    /// Some threads have met, and those that arrived at the barrier before: what they did is before what they do now.
    pub(super) fn meet(&mut self, parties: &[Party], barrier: Option<u8>) {
        let mut clock = barrier.and_then(|id| self.order().arrived.remove(&id)).unwrap_or_default();
        parties.iter().for_each(|party| clock.join(&self.known(party)));
        let clock = Some(Arc::new(clock));
        for party in parties {
            for lane in lanes(party.lanes) {
                self.order().threads[party.first as usize + lane].before.clone_from(&clock);
            }
        }
        self.time += 1;
    }

    /// All threads of the block have met.
    pub(super) fn meet_all(&mut self) {
        self.barrier = self.time;
        self.time += 1;
        let block = Stamp::new(self.number, 0, 0).block();
        let Some(order) = &mut self.order else { return };
        // What they know of each other is told by the barrier.
        let mut all = Clock::default();
        order.threads.iter().filter_map(|thread| thread.before.as_deref()).for_each(|clock| all.join(clock));
        all.0.retain(|(of, _), _| *of != block);
        let all = (!all.0.is_empty()).then(|| Arc::new(all));
        order.threads.iter_mut().for_each(|thread| thread.before.clone_from(&all));
    }

    /// All lanes of a warp have met; the time of that.
    pub(super) fn meet_warp(&mut self, party: &Party) -> u64 {
        let time = self.time;
        let range = party.first as usize..(party.first as usize + 32).min(self.threads as usize);
        let knows = |order: &Order| order.threads[range.clone()].iter().any(|thread| thread.before.is_some());
        if self.order.as_deref().is_some_and(knows) {
            self.meet(std::slice::from_ref(party), None);
        } else {
            self.time += 1;
        }
        time
    }

    /// Lanes arrive at a barrier and go on.
    pub(super) fn arrive(&mut self, party: &Party, id: u8) {
        let known = self.known(party);
        self.order().arrived.entry(id).or_default().join(&known);
        self.time += 1;
    }
}
