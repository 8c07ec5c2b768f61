//! Race detector: it records which threads touched each piece of memory last, and checks that accesses are
//! ordered.
//!
//! A stamp is a block, threads of it, and the block's time, which every ordering event advances. The crate's
//! documentation lists the races that the detector misses.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::clock::Clock;
use super::readers::Readers;

/// Stamp of an access: `block + 1` in 23 bits, threads in 11 bits, and time in 30 bits.
///
/// A launch has fewer times than instructions. Threads are a node of a tree whose leaves are all 1024
/// threads: the root is 1, and the children of `n` are `2n` and `2n + 1`. Several threads are the lowest node
/// above all of them. The node is as exact as the set of threads where only barriers of the whole block and
/// of whole warps order threads. In other kernels a cell of several threads has no block, and has the number
/// of their set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) u64);

/// Node of the first thread.
pub(super) const LEAVES: u64 = 1024;
/// Stamp of more than one block, or of more threads than a set has room for.
pub(super) const MANY_BLOCKS: u64 = 0x7f_ffff << 41;
/// Stamp of `.nc` readers of memory that nothing writes in the launch. No write is ordered after it.
const CONSTANT: u64 = MANY_BLOCKS | 1;
/// Number of blocks that stamps distinguish.
const BLOCKS: u64 = 0x7f_fffe;

/// Kind of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Read,
    Write,
    /// Strong reads, and strong writes with atomics, of elements of this many bytes.
    ///
    /// Strong accesses race only with weak accesses and with elements of other lengths.
    StrongRead(u32),
    Atomic(u32),
    /// Start of a write, which is recorded where it ends.
    Begin,
    /// Read through a cache that requires that nothing writes the memory in the launch.
    Constant,
}

impl Stamp {
    pub(super) fn new(block: u64, thread: u32, time: u64) -> Stamp {
        debug_assert!(time < 1 << 30 && thread < 1024, "{time} {thread}");
        Stamp((block % BLOCKS + 1) << 41 | (LEAVES + u64::from(thread)) << 30 | time)
    }

    /// Returns the stamp of another lane, if this is the first lane's.
    #[inline(always)]
    pub(super) fn lane(self, lane: usize) -> Stamp {
        Stamp(self.0 | (lane as u64) << 30)
    }

    #[inline(always)]
    pub(super) fn block(self) -> u64 {
        self.0 >> 41
    }

    /// Returns the thread, if the stamp is of one.
    pub(super) fn thread(self) -> Option<u64> {
        self.node().checked_sub(LEAVES)
    }

    /// Returns the number of the set, if the cell has one.
    #[inline(always)]
    pub(super) fn set(self) -> Option<u32> {
        (self.0 != 0 && self.0 < 1 << 30).then_some(self.0 as u32)
    }

    /// Returns the stamp of the first lane of the thread's warp.
    pub(super) fn warp(self) -> Stamp {
        Stamp(self.0 & !(31 << 30))
    }

    /// Returns true if both stamps are of one warp, at any times.
    pub(super) fn is_same_warp(self, o: Stamp) -> bool {
        (self.0 ^ o.0) >> 35 == 0
    }

    #[inline(always)]
    pub(super) fn node(self) -> u64 {
        self.0 >> 30 & 0x7ff
    }

    #[inline(always)]
    pub(super) fn time(self) -> u64 {
        self.0 & 0x3fff_ffff
    }
}

/// Returns the lowest node above two nodes.
fn above(a: u64, b: u64) -> u64 {
    let most = a.leading_zeros().max(b.leading_zeros());
    let (a, b) = (a >> (most - a.leading_zeros()), b >> (most - b.leading_zeros()));
    a >> (u64::BITS - (a ^ b).leading_zeros())
}

/// Returns true if a node is the warp of a leaf, or below that warp.
#[inline(always)]
fn is_in_warp(node: u64, leaf: u64) -> bool {
    node >= 32 && above(node, leaf) >= 32
}

/// Accessing thread, with what is ordered before the access.
pub(super) struct Now<'a> {
    pub(super) stamp: Stamp,
    /// Times at which all threads of the block, and all lanes of the warp, last met.
    pub(super) barrier: u64,
    pub(super) meeting: u64,
    /// Time up to which barriers publish the accesses of each exited thread.
    pub(super) ended: &'a [u32],
    /// Clock of the thread's further knowledge.
    pub(super) clock: Option<&'a Clock>,
    /// True if an instruction of the kernel orders some threads and not others, so that readers are recorded
    /// one by one.
    pub(super) apart: bool,
    /// Number of blocks that have begun.
    pub(super) begun: &'a AtomicU64,
}

impl Now<'_> {
    /// Returns true if the access of `old` is ordered before this one.
    #[inline(always)]
    pub(super) fn is_after(&self, old: Stamp) -> bool {
        let (me, time) = (self.stamp, old.time());
        if old.0 == CONSTANT {
            return false;
        }
        let met = old.block() == me.block()
            && (old.node() == me.node()
                || (time <= self.barrier || time <= self.meeting && is_in_warp(old.node(), me.node()))
                    && !self.is_of_ended(old));
        met || self.clock.is_some_and(|clock| self.knows(clock, old))
    }

    /// Returns true if the thread of a stamp exited without a later barrier.
    ///
    /// A stamp of several threads does not tell which of them have exited.
    #[inline(always)]
    fn is_of_ended(&self, old: Stamp) -> bool {
        let ended = old.thread().and_then(|thread| self.ended.get(thread as usize));
        ended.is_some_and(|&known| old.time() > u64::from(known))
    }

    /// Returns true if the clock orders `old` before this access.
    #[cold]
    fn knows(&self, clock: &Clock, old: Stamp) -> bool {
        if old.0 == MANY_BLOCKS {
            // The readers are not recorded, so the thread has to know of all other blocks.
            return clock.others(self.stamp.block()) + 1 >= self.begun.load(Ordering::SeqCst);
        }
        clock.covers(old)
    }

    /// Returns a stamp of both readers, or of the later one where that suffices.
    fn with(&self, old: Stamp) -> Stamp {
        let me = self.stamp;
        if old.0 == 0 || old.0 >= MANY_BLOCKS {
            return if old.0 == 0 { me } else { old };
        }
        if self.is_after(old) {
            return me;
        }
        if old.block() != me.block() {
            return Stamp(MANY_BLOCKS);
        }
        Stamp(me.0 & !(0x7ff << 30) | above(old.node(), me.node()) << 30)
    }
}

/// Stamps of a range of memory.
///
/// Each granule of each size has a pair of cells, of the last writer and of the readers. An access leaves its
/// stamp at the largest size that fits in it, and checks all sizes.
pub(super) struct Shadow {
    levels: [OnceLock<Level>; 3],
    readers: Mutex<Readers>,
}

/// Bytes of a granule at each level.
const GRANULES: [u64; 3] = [16, 4, 1];
/// Bytes of a region. A level records the regions in which it is used, so that unused sizes cost nothing
/// there.
const REGION: u64 = 1024;

struct Level {
    cells: Box<[AtomicU64]>,
    /// Cells of atomics and of strong reads, if there are any: of elements of a granule, and of longer
    /// elements.
    strong: OnceLock<[Box<[AtomicU64]>; 2]>,
    seen: Box<[AtomicBool]>,
}

/// Conflicting access: its stamp, and true if it was a write.
#[derive(Clone, Copy)]
pub(super) struct Conflict {
    pub(super) old: Stamp,
    pub(super) wrote: bool,
}

impl Conflict {
    /// Returns true if the conflict is with a reader that requires that nothing writes the memory.
    pub(super) fn is_with_constant(self) -> bool {
        self.old.0 == CONSTANT
    }
}

impl Level {
    fn new(len: u64, granule: u64) -> Level {
        let seen = (0..len.div_ceil(REGION)).map(|_| AtomicBool::new(false)).collect();
        Level { cells: zeros(len.div_ceil(granule) as usize * 2), strong: OnceLock::new(), seen }
    }

    /// Returns the numbers of the pairs of cells of some bytes.
    #[inline(always)]
    fn pairs(granule: u64, at: u64, bytes: u64) -> Range<usize> {
        (at / granule) as usize..(at + bytes).div_ceil(granule) as usize
    }

    /// Returns the cells of a granule, and the cells of its strong accesses.
    #[inline(always)]
    fn pair<'a>(&'a self, number: usize) -> Pair<'a> {
        let of = |cells: &'a [AtomicU64]| &cells[2 * number..2 * number + 2];
        (of(&self.cells), self.strong.get().map(|[one, longer]| [of(one), of(longer)]))
    }

    fn strong(&self) {
        self.strong.get_or_init(|| [zeros(self.cells.len()), zeros(self.cells.len())]);
    }

    #[inline(always)]
    fn saw(&self, at: u64) -> bool {
        self.seen[(at / REGION) as usize].load(Ordering::SeqCst)
    }
}

/// Allocates zeros, which the system provides without touching them.
fn zeros(len: usize) -> Box<[AtomicU64]> {
    let zeros = Box::into_raw(vec![0u64; len].into_boxed_slice());
    // SAFETY: an `AtomicU64` has the layout of a `u64`, and the box is given up once.
    unsafe { Box::from_raw(zeros as *mut [AtomicU64]) }
}

impl Default for Shadow {
    fn default() -> Shadow {
        Shadow::of(1)
    }
}

impl Shadow {
    /// Returns a shadow of shared memory that this many blocks reach.
    pub(super) fn of(blocks: usize) -> Shadow {
        Shadow { levels: Default::default(), readers: Mutex::new(Readers::of(blocks)) }
    }

    /// Resets the shadow to that of untouched memory.
    pub(super) fn clear(&mut self) {
        self.readers.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        for (level, granule) in self.levels.iter_mut().zip(GRANULES) {
            let Some(level) = level.get_mut() else { continue };
            let cells = (REGION / granule) as usize * 2;
            for (seen, cells) in level.seen.iter_mut().zip(level.cells.chunks_mut(cells)) {
                if std::mem::take(seen.get_mut()) {
                    cells.iter_mut().for_each(|cell| *cell.get_mut() = 0);
                }
            }
            if let Some(strong) = level.strong.get_mut() {
                strong.iter_mut().flatten().for_each(|cell| *cell.get_mut() = 0);
            }
        }
    }

    /// Records an aligned access to a memory of `len` bytes, and returns the access that it conflicts with,
    /// if any.
    #[inline(always)]
    pub(super) fn touch(
        &self,
        len: u64,
        at: u64,
        bytes: u64,
        touch: Touch,
        me: &Now<'_>,
    ) -> Option<Conflict> {
        let (length, is_strong) = match touch {
            Touch::StrongRead(element) | Touch::Atomic(element) => (u64::from(element), true),
            Touch::Read | Touch::Write | Touch::Begin | Touch::Constant => (bytes, false),
        };
        let own = match length {
            16.. => 0,
            4..16 => 1,
            0..4 => 2,
        };
        let level = self.levels[own].get_or_init(|| Level::new(len, GRANULES[own]));
        if !level.saw(at) {
            level.seen[(at / REGION) as usize].store(true, Ordering::SeqCst);
        }
        let mut conflict = None;
        if is_strong {
            level.strong();
        }
        let own_length = usize::from(length > GRANULES[own]);
        for number in Level::pairs(GRANULES[own], at, bytes) {
            conflict = conflict.or(note(level.pair(number), touch, own_length, me, &self.readers));
        }
        for (number, granule) in GRANULES.into_iter().enumerate() {
            if number == own {
                continue;
            }
            let Some(level) = self.levels[number].get().filter(|level| level.saw(at)) else { continue };
            for number in Level::pairs(granule, at, bytes) {
                conflict = conflict.or(compare(level.pair(number), touch, None, me, &self.readers));
            }
        }
        conflict
    }
}

/// Cells of a granule: of the last plain writer and of the plain readers, and cells of strong accesses by
/// their length.
type Pair<'a> = (&'a [AtomicU64], Option<[&'a [AtomicU64]; 2]>);

/// Sets of readers, whose numbers the cells contain.
type Sets = Mutex<Readers>;

fn lock(sets: &Sets) -> MutexGuard<'_, Readers> {
    sets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compares with a granule and leaves a stamp there.
///
/// Each thread leaves its stamp before it looks at the others. At least one of two concurrent threads
/// therefore sees the other.
#[inline(always)]
fn note(
    (plain, strong): Pair<'_>,
    touch: Touch,
    length: usize,
    me: &Now<'_>,
    sets: &Sets,
) -> Option<Conflict> {
    match (touch, strong) {
        (Touch::Read, _) => join(&plain[1], me, sets, true),
        (Touch::Constant, _) => keep_constant(&plain[1], sets),
        (Touch::Write, _) => {
            let old = plain[0].swap(me.stamp.0, Ordering::SeqCst);
            return against(Stamp(old), true, me).or_else(|| compare((plain, strong), touch, None, me, sets));
        }
        (Touch::StrongRead(_), Some(strong)) => join(&strong[length][1], me, sets, true),
        // The last atomic of other blocks suffices, because barriers order none of them.
        (Touch::Atomic(_), Some(strong)) => join(&strong[length][0], me, sets, false),
        (Touch::StrongRead(_) | Touch::Atomic(_), None) | (Touch::Begin, _) => {}
    }
    compare((plain, strong), touch, Some(length), me, sets)
}

/// Marks a cell: nothing may write here in the launch.
#[inline(always)]
fn keep_constant(cell: &AtomicU64, sets: &Sets) {
    let mut old = cell.load(Ordering::Relaxed);
    while old != CONSTANT {
        if Stamp(old).set().is_some() {
            return lock(sets).replace(cell, Stamp(CONSTANT));
        }
        match cell.compare_exchange_weak(old, CONSTANT, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => old = found,
        }
    }
}

/// Returns the write to memory that is read by `.nc`, if any.
#[inline(always)]
fn written((plain, strong): Pair<'_>, sets: &Sets) -> Option<Conflict> {
    let wrote = |cell: &&AtomicU64| cell.load(Ordering::SeqCst) != 0;
    let strong = strong.into_iter().flatten().map(|strong| &strong[0]);
    let cell = std::iter::once(&plain[0]).chain(strong).find(wrote)?;
    Some(Conflict { old: lock(sets).first(cell), wrote: true })
}

/// Joins a stamp to a cell. With `others` the cell keeps threads of other blocks too.
#[inline(always)]
fn join(cell: &AtomicU64, me: &Now<'_>, sets: &Sets, others: bool) {
    let mut old = cell.load(Ordering::Relaxed);
    loop {
        let stamp = Stamp(old);
        if me.apart && old != 0 && (stamp.set().is_some() || !me.is_after(stamp)) {
            return lock(sets).join(cell, me, others);
        }
        let new = if others || stamp.block() == me.stamp.block() { me.with(stamp).0 } else { me.stamp.0 };
        if new == old {
            return;
        }
        match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => old = found,
        }
    }
}

/// Compares with a granule without leaving a stamp. `length` selects the strong accesses that do not race
/// with this one.
#[inline(always)]
fn compare(
    (plain, strong): Pair<'_>,
    touch: Touch,
    length: Option<usize>,
    me: &Now<'_>,
    sets: &Sets,
) -> Option<Conflict> {
    if touch == Touch::Constant {
        return written((plain, strong), sets);
    }
    let look = |cell: &AtomicU64, wrote| {
        let old = Stamp(cell.load(Ordering::SeqCst));
        match old.set() {
            Some(_) => lock(sets).unordered(cell, me).map(|old| Conflict { old, wrote }),
            None => against(old, wrote, me),
        }
    };
    let (writes, is_strong) = match touch {
        Touch::Write | Touch::Begin => (true, false),
        Touch::Atomic(_) => (true, true),
        Touch::StrongRead(_) => (false, true),
        Touch::Read | Touch::Constant => (false, false),
    };
    let mut found = look(&plain[0], true);
    if writes {
        found = found.or_else(|| look(&plain[1], false));
    }
    for (number, strong) in strong.iter().flatten().enumerate() {
        if is_strong && length == Some(number) {
            continue;
        }
        found = found.or_else(|| look(&strong[0], true));
        if writes {
            found = found.or_else(|| look(&strong[1], false));
        }
    }
    found
}

#[inline(always)]
fn against(old: Stamp, wrote: bool, me: &Now<'_>) -> Option<Conflict> {
    (old.0 != 0 && !me.is_after(old)).then_some(Conflict { old, wrote })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Block, thread and time, and the times when the block and the warp last met.
    type At = (u64, u32, u64, (u64, u64));

    fn touches(shadow: &Shadow, at: u64, bytes: u64, touch: Touch, now: At) -> bool {
        let ((block, thread, time, (barrier, meeting)), begun) = (now, AtomicU64::new(2));
        let stamp = Stamp::new(block, thread, time);
        let now = Now { stamp, barrier, meeting, ended: &[], clock: None, apart: false, begun: &begun };
        shadow.touch(64, at, bytes, touch, &now).is_some()
    }

    fn races(first: (Touch, At), second: (Touch, At)) -> bool {
        let shadow = Shadow::default();
        assert!(!touches(&shadow, 8, 4, first.0, first.1));
        touches(&shadow, 8, 4, second.0, second.1)
    }

    const APART: (u64, u64) = (0, 0);

    #[test]
    fn what_races_with_what() {
        use Touch::{Read, Write};
        let (strong, atomic) = (Touch::StrongRead(4), Touch::Atomic(4));
        let (me, other) = ((0, 1, 1, APART), (0, 40, 1, APART));
        let racing = [
            (Write, Write),
            (Write, Read),
            (Read, Write),
            (atomic, Write),
            (Write, atomic),
            (atomic, Read),
            (Read, atomic),
            (Write, strong),
            (strong, Write),
        ];
        for (a, b) in racing {
            assert!(races((a, me), (b, other)), "{a:?} {b:?}");
            assert!(!races((a, me), (b, me)), "{a:?} {b:?}");
            assert!(!races((a, me), (b, (0, 40, 2, (1, 0)))), "{a:?} {b:?}: a barrier");
            assert!(races((a, (0, 1, 2, (1, 0))), (b, (0, 40, 2, (1, 0)))), "{a:?} {b:?}: one before both");
            assert!(races((a, me), (b, (1, 1, 2, (1, 1)))), "{a:?} {b:?}: another block");
            assert!(races((a, me), (b, (0, 40, 2, (0, 1)))), "{a:?} {b:?}: the other warp's barrier");
            assert!(!races((a, me), (b, (0, 2, 2, (0, 1)))), "{a:?} {b:?}: the warp's barrier");
        }
        // Strong accesses of different lengths race.
        let (short_strong, short_atomic) = (Touch::StrongRead(2), Touch::Atomic(2));
        for (a, b) in [(atomic, short_atomic), (short_atomic, strong), (short_strong, atomic)] {
            assert!(races((a, me), (b, other)) && races((b, me), (a, other)), "{a:?} {b:?}");
        }
        assert!(!races((short_strong, me), (strong, other)), "both read");
        for (a, b) in [(Read, Read), (atomic, atomic), (atomic, strong), (strong, Read), (Read, strong)] {
            assert!(!races((a, me), (b, other)), "{a:?} {b:?}");
        }
    }

    #[test]
    fn many_readers_are_remembered() {
        let shadow = Shadow::default();
        for thread in [3, 4, 3] {
            assert!(!touches(&shadow, 0, 4, Touch::Read, (0, thread, 1, APART)));
        }
        assert!(touches(&shadow, 0, 4, Touch::Write, (0, 3, 1, APART)), "thread 4 read it");
        let shadow = Shadow::default();
        for thread in [3, 4] {
            touches(&shadow, 0, 4, Touch::Read, (0, thread, 1, APART));
        }
        assert!(!touches(&shadow, 0, 4, Touch::Write, (0, 3, 2, (0, 1))), "the warp met");
    }

    #[test]
    fn threads_are_nodes_of_a_tree() {
        let leaf = |thread: u64| LEAVES + thread;
        assert_eq!(above(leaf(0), leaf(1)), 512);
        assert_eq!(above(leaf(0), leaf(1023)), 1);
        assert_eq!(above(512, leaf(1)), 512);
        assert_eq!((above(leaf(7), leaf(7)), above(1, leaf(9))), (leaf(7), 1));
        assert!(is_in_warp(leaf(33), leaf(63)) && is_in_warp(33, leaf(40)));
        assert!(!is_in_warp(leaf(31), leaf(32)) && !is_in_warp(16, leaf(40)) && !is_in_warp(32, leaf(40)));
    }

    #[test]
    fn bytes_of_a_word_are_apart() {
        let shadow = Shadow::default();
        let [me, other] = [(0, 0, 1, APART), (0, 1, 1, APART)];
        assert!(!touches(&shadow, 0, 2, Touch::Write, me));
        assert!(!touches(&shadow, 2, 2, Touch::Write, other));
        assert!(touches(&shadow, 0, 2, Touch::Read, other));
        assert!(touches(&shadow, 0, 4, Touch::Read, other));
    }
}
