//! Who touched a piece of memory last, and whether anything orders that with who touches it now.
//!
//! A stamp is a block, a thread, and how many barriers the block and the warp had passed. What is missed is told in
//! the crate's documentation.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `block + 1`: 24 bits; thread: 11; barriers of the block: 15; of the warp: 14.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) u64);

/// Barriers that stamps tell apart; the value itself says that it was before all that are counted since.
pub(super) const BARRIERS: u32 = 0x7fff;
/// The same of a warp's.
pub(super) const MEETINGS: u32 = 0x3fff;
const MANY_BLOCKS: u64 = 0xff_ffff << 40;
/// In the field of the thread: several threads of one warp, whose number is in the lower bits.
const MANY: u64 = 1 << 10;
/// As well: of several warps.
const MANY_WARPS: u64 = 1 << 9;

/// How memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Read,
    Write,
    /// Reads and writes that do not race with their like.
    StrongRead,
    Atomic,
    /// A write that begins here and is noted where it ends.
    Begin,
}

impl Stamp {
    pub(super) fn new(block: u64, thread: u32, barriers: u32, warp_barriers: u32) -> Stamp {
        let block = block % 0xff_fffe + 1;
        Stamp(
            block << 40
                | u64::from(thread) << 29
                | u64::from(barriers % BARRIERS) << 14
                | u64::from(warp_barriers % MEETINGS),
        )
    }

    /// Of another lane of the same warp.
    #[inline(always)]
    pub(super) fn lane(self, lane: usize) -> Stamp {
        Stamp(self.0 | (lane as u64) << 29)
    }

    pub(super) fn block(self) -> u64 {
        self.0 >> 40
    }

    /// Which thread, if it is one.
    pub(super) fn thread(self) -> Option<u64> {
        (self.field() & MANY == 0).then_some(self.field())
    }

    fn field(self) -> u64 {
        self.0 >> 29 & 0x7ff
    }

    fn barriers(self) -> u64 {
        self.0 >> 14 & u64::from(BARRIERS)
    }

    fn warp_barriers(self) -> u64 {
        self.0 & u64::from(MEETINGS)
    }

    /// The warp, if all threads are of one.
    fn warp(self) -> Option<u64> {
        match (self.field() & MANY != 0, self.field() & MANY_WARPS != 0) {
            (false, _) => Some(self.field() >> 5),
            (true, false) => Some(self.field() & 31),
            (true, true) => None,
        }
    }

    /// As of before all barriers of the block.
    pub(super) fn before_barriers(self) -> Stamp {
        Stamp(self.0 | u64::from(BARRIERS) << 14)
    }

    /// As of before all those of its warp, if it is of this one.
    pub(super) fn before_meetings(self, warp: u32) -> Stamp {
        if self.warp() == Some(u64::from(warp)) { Stamp(self.0 | u64::from(MEETINGS)) } else { self }
    }

    /// Whether what `old` did came before what this does.
    fn is_after(self, old: Stamp) -> bool {
        if old.block() != self.block() {
            return false;
        }
        let same_warp = old.warp() == self.warp() && old.warp_barriers() != self.warp_barriers();
        old.barriers() != self.barriers() || same_warp || old.thread() == self.thread()
    }

    /// Both readers in one stamp, or the later where that is all that matters.
    fn with(self, old: Stamp) -> Stamp {
        if old.0 == 0 || old.0 == MANY_BLOCKS {
            return if old.0 == 0 { self } else { old };
        }
        if old.block() != self.block() {
            return Stamp(MANY_BLOCKS);
        }
        if old.barriers() != self.barriers() || old.field() == self.field() {
            return self;
        }
        let field = match old.warp() {
            Some(warp) if Some(warp) == self.warp() => {
                if old.warp_barriers() != self.warp_barriers() {
                    return self;
                }
                MANY | warp
            }
            Some(_) | None => MANY | MANY_WARPS,
        };
        Stamp((self.0 & !(0x7ff << 29)) | field << 29)
    }
}

/// The stamps of some memory: a pair of cells, of the last writer and of the readers, for every granule of
/// each size. An access leaves its stamp at the largest size that fits in it, and looks at all.
#[derive(Default)]
pub(super) struct Shadow {
    levels: [OnceLock<Level>; 3],
}

/// Bytes of a granule at each level.
const GRANULES: [u64; 3] = [16, 4, 1];
/// Bytes that a level remembers to have seen, so that sizes nobody uses in some place cost nothing there.
const REGION: u64 = 1024;

struct Level {
    cells: Box<[AtomicU64]>,
    /// The same of atomics, and of strong reads, where there are any.
    strong: OnceLock<Box<[AtomicU64]>>,
    seen: Box<[AtomicBool]>,
}

/// What races: the other's stamp, and whether it wrote.
#[derive(Clone, Copy)]
pub(super) struct Conflict {
    pub(super) old: Stamp,
    pub(super) wrote: bool,
}

impl Level {
    fn new(len: u64, granule: u64) -> Level {
        let seen = (0..len.div_ceil(REGION)).map(|_| AtomicBool::new(false)).collect();
        Level { cells: zeros(len.div_ceil(granule) as usize * 2), strong: OnceLock::new(), seen }
    }

    /// The numbers of the pairs of cells of some bytes.
    #[inline(always)]
    fn pairs(granule: u64, at: u64, bytes: u64) -> Range<usize> {
        (at / granule) as usize..(at + bytes).div_ceil(granule) as usize
    }

    /// The cells of a granule, and those of strong accesses.
    #[inline(always)]
    fn pair<'a>(&'a self, number: usize) -> Pair<'a> {
        let of = |cells: &'a [AtomicU64]| &cells[2 * number..2 * number + 2];
        (of(&self.cells), self.strong.get().map(|cells| of(cells)))
    }

    fn strong(&self) -> &[AtomicU64] {
        self.strong.get_or_init(|| zeros(self.cells.len()))
    }

    #[inline(always)]
    fn saw(&self, at: u64) -> bool {
        self.seen[(at / REGION) as usize].load(Ordering::SeqCst)
    }
}

/// So many zeros, which the system hands out without touching them.
fn zeros(len: usize) -> Box<[AtomicU64]> {
    let zeros = Box::into_raw(vec![0u64; len].into_boxed_slice());
    // SAFETY: an AtomicU64 is laid out as a u64, and the box is given up once.
    unsafe { Box::from_raw(zeros as *mut [AtomicU64]) }
}

impl Shadow {
    /// As if nothing had touched the memory.
    pub(super) fn clear(&mut self) {
        for (level, granule) in self.levels.iter_mut().zip(GRANULES) {
            let Some(level) = level.get_mut() else { continue };
            let cells = (REGION / granule) as usize * 2;
            for (seen, cells) in level.seen.iter_mut().zip(level.cells.chunks_mut(cells)) {
                if std::mem::take(seen.get_mut()) {
                    cells.iter_mut().for_each(|cell| *cell.get_mut() = 0);
                }
            }
            if let Some(strong) = level.strong.get_mut() {
                strong.iter_mut().for_each(|cell| *cell.get_mut() = 0);
            }
        }
    }

    /// Puts back the stamps of a block, before its counts start again.
    #[cold]
    pub(super) fn age(&self, block: u64, older: impl Fn(Stamp) -> Stamp) {
        for level in self.levels.iter().filter_map(OnceLock::get) {
            for cell in level.cells.iter().chain(level.strong.get().into_iter().flatten()) {
                let old = Stamp(cell.load(Ordering::SeqCst));
                if old.block() == block {
                    // Where another block is faster its stamp stays.
                    let _ = cell.compare_exchange(old.0, older(old).0, Ordering::SeqCst, Ordering::SeqCst);
                }
            }
        }
    }

    /// Notes an access to memory of `len` bytes in all; what it conflicts with, if anything. It is aligned.
    #[inline(always)]
    pub(super) fn touch(&self, len: u64, at: u64, bytes: u64, touch: Touch, me: Stamp) -> Option<Conflict> {
        let own = match bytes {
            16.. => 0,
            4..16 => 1,
            0..4 => 2,
        };
        let level = self.levels[own].get_or_init(|| Level::new(len, GRANULES[own]));
        if !level.saw(at) {
            level.seen[(at / REGION) as usize].store(true, Ordering::SeqCst);
        }
        let mut conflict = None;
        if matches!(touch, Touch::StrongRead | Touch::Atomic) {
            level.strong();
        }
        for number in Level::pairs(GRANULES[own], at, bytes) {
            conflict = conflict.or(note(level.pair(number), touch, me));
        }
        for (number, granule) in GRANULES.into_iter().enumerate() {
            if number == own {
                continue;
            }
            let Some(level) = self.levels[number].get().filter(|level| level.saw(at)) else { continue };
            for number in Level::pairs(granule, at, bytes) {
                conflict = conflict.or(compare(level.pair(number), touch, me));
            }
        }
        conflict
    }

    /// Whether all of these bytes were written.
    #[inline(always)]
    pub(super) fn is_written(&self, at: u64, bytes: u64) -> bool {
        let mut byte = at;
        while byte < at + bytes {
            let written = GRANULES.into_iter().enumerate().find(|&(number, granule)| {
                let level = self.levels[number].get().filter(|level| level.saw(byte));
                level.is_some_and(|level| {
                    let (plain, strong) = level.pair((byte / granule) as usize);
                    let wrote = |cells: &[AtomicU64]| cells[0].load(Ordering::Relaxed) != 0;
                    wrote(plain) || strong.is_some_and(wrote)
                })
            });
            let Some((_, granule)) = written else { return false };
            byte = (byte / granule + 1) * granule;
        }
        true
    }
}

/// The cells of a granule: of the last plain writer and the plain readers, and of atomics and strong readers.
type Pair<'a> = (&'a [AtomicU64], Option<&'a [AtomicU64]>);

/// Compares with a granule and leaves a stamp there. Everyone leaves it before looking at the others', so that of two at
/// the same time at least one sees the other.
#[inline(always)]
fn note((plain, strong): Pair<'_>, touch: Touch, me: Stamp) -> Option<Conflict> {
    match (touch, strong) {
        (Touch::Read, _) => join(&plain[1], me, Stamp::with),
        (Touch::Write, _) => {
            let old = plain[0].swap(me.0, Ordering::SeqCst);
            return against(old, true, me).or_else(|| compare((plain, strong), touch, me));
        }
        (Touch::StrongRead, Some(strong)) => join(&strong[1], me, Stamp::with),
        // Of other blocks' atomics the last one is enough: barriers order none of them.
        (Touch::Atomic, Some(strong)) => {
            join(&strong[0], me, |me, old| if old.block() == me.block() { me.with(old) } else { me })
        }
        (Touch::StrongRead | Touch::Atomic, None) | (Touch::Begin, _) => {}
    }
    compare((plain, strong), touch, me)
}

/// Leaves a stamp together with what was there.
#[inline(always)]
fn join(cell: &AtomicU64, me: Stamp, with: impl Fn(Stamp, Stamp) -> Stamp) {
    let mut old = cell.load(Ordering::Relaxed);
    loop {
        let new = with(me, Stamp(old)).0;
        if new == old {
            return;
        }
        match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => old = found,
        }
    }
}

/// Compares with a granule only.
#[inline(always)]
fn compare((plain, strong): Pair<'_>, touch: Touch, me: Stamp) -> Option<Conflict> {
    let look = |cell: &AtomicU64, wrote| against(cell.load(Ordering::SeqCst), wrote, me);
    let writes = matches!(touch, Touch::Write | Touch::Begin);
    let mut found = look(&plain[0], true);
    if writes || touch == Touch::Atomic {
        found = found.or_else(|| look(&plain[1], false));
    }
    let Some(strong) = strong else { return found };
    if writes || touch == Touch::Read {
        found = found.or_else(|| look(&strong[0], true));
    }
    if writes {
        found = found.or_else(|| look(&strong[1], false));
    }
    found
}

#[inline(always)]
fn against(old: u64, wrote: bool, me: Stamp) -> Option<Conflict> {
    let old = Stamp(old);
    (old.0 != 0 && !me.is_after(old)).then_some(Conflict { old, wrote })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(block: u64, thread: u32, barriers: u32, warp_barriers: u32) -> Stamp {
        Stamp::new(block, thread, barriers, warp_barriers)
    }

    fn races(first: (Touch, Stamp), second: (Touch, Stamp)) -> bool {
        let shadow = Shadow::default();
        assert!(shadow.touch(64, 8, 4, first.0, first.1).is_none());
        shadow.touch(64, 8, 4, second.0, second.1).is_some()
    }

    #[test]
    fn what_races_with_what() {
        use Touch::{Atomic, Read, StrongRead, Write};
        let (me, other) = (at(0, 1, 0, 0), at(0, 40, 0, 0));
        let racing = [
            (Write, Write),
            (Write, Read),
            (Read, Write),
            (Atomic, Write),
            (Write, Atomic),
            (Atomic, Read),
            (Read, Atomic),
            (Write, StrongRead),
            (StrongRead, Write),
        ];
        for (a, b) in racing {
            assert!(races((a, me), (b, other)), "{a:?} {b:?}");
            assert!(!races((a, me), (b, me)), "{a:?} {b:?}");
            assert!(!races((a, me), (b, at(0, 40, 1, 1))), "{a:?} {b:?}: a barrier");
            assert!(races((a, me), (b, at(1, 1, 1, 1))), "{a:?} {b:?}: another block");
            assert!(races((a, me), (b, at(0, 40, 0, 1))), "{a:?} {b:?}: the other warp's barrier");
            assert!(!races((a, me), (b, at(0, 2, 0, 1))), "{a:?} {b:?}: the warp's barrier");
        }
        for (a, b) in
            [(Read, Read), (Atomic, Atomic), (Atomic, StrongRead), (StrongRead, Read), (Read, StrongRead)]
        {
            assert!(!races((a, me), (b, other)), "{a:?} {b:?}");
        }
    }

    #[test]
    fn many_readers_are_remembered() {
        let shadow = Shadow::default();
        for thread in [3, 4, 3] {
            assert!(shadow.touch(64, 0, 4, Touch::Read, at(0, thread, 0, 0)).is_none());
        }
        assert!(shadow.touch(64, 0, 4, Touch::Write, at(0, 3, 0, 0)).is_some(), "thread 4 read it");
        let shadow = Shadow::default();
        for thread in [3, 4] {
            shadow.touch(64, 0, 4, Touch::Read, at(0, thread, 0, 0));
        }
        assert!(shadow.touch(64, 0, 4, Touch::Write, at(0, 3, 0, 1)).is_none(), "the warp met");
    }

    #[test]
    fn bytes_of_a_word_are_apart() {
        let shadow = Shadow::default();
        assert!(shadow.touch(64, 0, 2, Touch::Write, at(0, 0, 0, 0)).is_none());
        assert!(shadow.touch(64, 2, 2, Touch::Write, at(0, 1, 0, 0)).is_none());
        assert!(shadow.touch(64, 0, 2, Touch::Read, at(0, 1, 0, 0)).is_some());
        assert!(shadow.touch(64, 0, 4, Touch::Read, at(0, 1, 0, 0)).is_some());
        assert!(shadow.is_written(0, 4) && !shadow.is_written(2, 4));
    }
}
