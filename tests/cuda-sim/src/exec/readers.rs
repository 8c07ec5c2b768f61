//! The threads that have read a place, or changed it by atomics, where one stamp does not tell them: some of them may be
//! ordered before a writer, and others not.
//!
//! Invariant: a set has an entry for a warp and a time; a lane has the latest of its times only. A cell has the number of
//! a set, or gets another value, only under the lock that guards them all.

use std::sync::atomic::{AtomicU64, Ordering};

use super::race::{MANY_BLOCKS, Now, Stamp};
use super::regs::lanes;

/// Most entries of a set, of each block that reaches a place of shared memory; a place with more is one that blocks have
/// read that nobody noted.
const MOST: usize = 64;

/// Some lanes of a warp, at a time.
#[derive(Clone, Copy)]
struct Entry {
    /// Of the warp's first lane.
    warp: Stamp,
    lanes: u32,
}

/// The sets that cells have numbers of, from 1.
pub(super) struct Readers {
    most: usize,
    sets: Vec<Vec<Entry>>,
    free: Vec<u32>,
}

impl Entry {
    fn new(stamp: Stamp) -> Entry {
        Entry { warp: stamp.warp(), lanes: 1 << (stamp.node() & 31) }
    }

    fn stamps(self) -> impl Iterator<Item = Stamp> {
        lanes(self.lanes).map(move |lane| self.warp.lane(lane))
    }
}

impl Readers {
    /// Those of a memory that so many blocks reach, or all.
    pub(super) fn of(blocks: usize) -> Readers {
        Readers { most: MOST * blocks, sets: vec![], free: vec![] }
    }

    /// As if nobody had read anything.
    pub(super) fn clear(&mut self) {
        self.sets.clear();
        self.free.clear();
    }

    /// Leaves a thread's stamp in a cell, together with those that are not known to be before it, of other blocks too or
    /// of this one only.
    #[cold]
    pub(super) fn join(&mut self, cell: &AtomicU64, me: &Now<'_>, others: bool) {
        loop {
            let old = cell.load(Ordering::SeqCst);
            if old >= MANY_BLOCKS {
                return;
            }
            let set = Stamp(old).set();
            let entries = match set {
                Some(set) if self.has(set, me.stamp) => return,
                Some(set) => self.entries(set).clone(),
                None if old == 0 => vec![],
                None => vec![Entry::new(Stamp(old))],
            };
            let entries = with(entries, me, others);
            if let Some(set) = set.filter(|_| self.is_set(&entries)) {
                *self.entries(set) = entries;
                return;
            }
            let new = self.cell(entries, me);
            // Cells without a set change meanwhile.
            match cell.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return self.free.extend(set),
                Err(_) => self.free.extend(Stamp(new).set()),
            }
        }
    }

    /// Leaves a value that says all there is to say.
    pub(super) fn replace(&mut self, cell: &AtomicU64, new: Stamp) {
        let old = Stamp(cell.swap(new.0, Ordering::SeqCst));
        self.free.extend(old.set());
    }

    /// One of those that a cell tells of.
    pub(super) fn first(&self, cell: &AtomicU64) -> Stamp {
        let stamp = Stamp(cell.load(Ordering::SeqCst));
        stamp.set().map_or(stamp, |set| self.sets[set as usize - 1][0].warp)
    }

    fn entries(&mut self, set: u32) -> &mut Vec<Entry> {
        &mut self.sets[set as usize - 1]
    }

    /// Adds a lane to a set where others of its warp came at the same time, which dropped what is before them; whether
    /// there were any.
    fn has(&mut self, set: u32, me: Stamp) -> bool {
        let (own, entries) = (Entry::new(me), self.entries(set));
        let Some(found) = entries.iter().position(|old| old.warp == own.warp) else { return false };
        if entries[found].lanes & own.lanes == 0 {
            for old in entries.iter_mut().filter(|old| old.warp.is_same_warp(own.warp)) {
                old.lanes &= !own.lanes;
            }
            entries[found].lanes |= own.lanes;
            entries.retain(|old| old.lanes != 0);
        }
        true
    }

    /// Whether it takes a set to tell of entries, of which a thread's own is one.
    fn is_set(&self, entries: &[Entry]) -> bool {
        let one = entries.len() == 1 && entries[0].lanes.is_power_of_two();
        !one && entries.len() <= self.most
    }

    /// What a cell has that says all this.
    fn cell(&mut self, entries: Vec<Entry>, me: &Now<'_>) -> u64 {
        if !self.is_set(&entries) {
            return if entries.len() > self.most { MANY_BLOCKS } else { me.stamp.0 };
        }
        let set = self.free.pop().unwrap_or(self.sets.len() as u32 + 1);
        self.sets.resize(self.sets.len().max(set as usize), vec![]);
        *self.entries(set) = entries;
        u64::from(set)
    }

    /// One that a cell tells of and that is not known to be before a thread.
    #[cold]
    pub(super) fn unordered(&self, cell: &AtomicU64, me: &Now<'_>) -> Option<Stamp> {
        let stamp = Stamp(cell.load(Ordering::SeqCst));
        match stamp.set() {
            Some(set) => {
                let entries = &self.sets[set as usize - 1];
                entries.iter().flat_map(|entry| entry.stamps()).find(|old| !me.is_after(*old))
            }
            None => Some(stamp).filter(|old| old.0 != 0 && !me.is_after(*old)),
        }
    }
}

/// Entries with a thread's own, and without those that are before it.
fn with(mut entries: Vec<Entry>, me: &Now<'_>, others: bool) -> Vec<Entry> {
    let own = Entry::new(me.stamp);
    for entry in &mut entries {
        let kept = entry.stamps().filter(|old| others || old.block() == me.stamp.block());
        entry.lanes = kept.filter(|old| !me.is_after(*old)).fold(0, |all, old| all | 1 << (old.node() & 31));
    }
    entries.retain(|entry| entry.lanes != 0);
    match entries.iter_mut().find(|entry| entry.warp == own.warp) {
        Some(entry) => entry.lanes |= own.lanes,
        None => entries.push(own),
    }
    entries
}
