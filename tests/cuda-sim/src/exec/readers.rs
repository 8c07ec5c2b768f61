//! Sets of the threads that have read a place, or changed it by atomics, where one stamp cannot represent
//! them.
//!
//! Some threads of a set may be ordered before a writer, and others not.
//!
//! Invariant: a set has one entry for a warp and a time. A lane has only the latest of its times. A cell gets
//! the number of a set, or loses it, only under the lock of all sets.

use std::sync::atomic::{AtomicU64, Ordering};

use super::race::{MANY_BLOCKS, Now, Stamp};
use super::regs::lanes;

/// Maximum number of entries of a set, for each block that reaches the shared memory.
///
/// A place with more entries counts as read by unrecorded threads of many blocks.
const MOST: usize = 64;

/// Lanes of a warp, at one time.
#[derive(Clone, Copy)]
struct Entry {
    /// Stamp of the warp's first lane.
    warp: Stamp,
    lanes: u32,
}

/// Sets of readers. Cells contain their numbers, from 1 on.
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
    /// Returns the sets of a memory that this many blocks reach. Global memory counts as one.
    pub(super) fn of(blocks: usize) -> Readers {
        Readers { most: MOST * blocks, sets: vec![], free: vec![] }
    }

    /// Removes all readers.
    pub(super) fn clear(&mut self) {
        self.sets.clear();
        self.free.clear();
    }

    /// Adds a thread's stamp to a cell, and keeps the stamps that are not ordered before it. With `others`
    /// the cell keeps stamps of other blocks too.
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
            // Cells without a set may change meanwhile.
            match cell.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return self.free.extend(set),
                Err(_) => self.free.extend(Stamp(new).set()),
            }
        }
    }

    /// Replaces the value of a cell, and frees its set.
    pub(super) fn replace(&mut self, cell: &AtomicU64, new: Stamp) {
        let old = Stamp(cell.swap(new.0, Ordering::SeqCst));
        self.free.extend(old.set());
    }

    /// Returns one of the stamps of a cell.
    pub(super) fn first(&self, cell: &AtomicU64) -> Stamp {
        let stamp = Stamp(cell.load(Ordering::SeqCst));
        stamp.set().map_or(stamp, |set| self.sets[set as usize - 1][0].warp)
    }

    fn entries(&mut self, set: u32) -> &mut Vec<Entry> {
        &mut self.sets[set as usize - 1]
    }

    /// Adds a lane to a set if the set has an entry of its warp and time. Returns true if so.
    ///
    /// The lane that made the entry has already dropped the stamps ordered before it.
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

    /// Returns true if the entries need a set. One of the entries is the thread's own.
    fn is_set(&self, entries: &[Entry]) -> bool {
        let one = entries.len() == 1 && entries[0].lanes.is_power_of_two();
        !one && entries.len() <= self.most
    }

    /// Returns the value of a cell with these entries.
    fn cell(&mut self, entries: Vec<Entry>, me: &Now<'_>) -> u64 {
        if !self.is_set(&entries) {
            return if entries.len() > self.most { MANY_BLOCKS } else { me.stamp.0 };
        }
        let set = self.free.pop().unwrap_or(self.sets.len() as u32 + 1);
        self.sets.resize(self.sets.len().max(set as usize), vec![]);
        *self.entries(set) = entries;
        u64::from(set)
    }

    /// Returns a stamp of a cell that is not ordered before a thread, if any.
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

/// Adds a thread's own entry, and removes the entries that are ordered before the thread.
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
