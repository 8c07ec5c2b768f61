//! Who touched a piece of memory last, and whether anything orders that with who touches it now.
//!
//! A stamp is a block, a thread, and how many barriers the block and the warp had passed. What is missed rather than told wrongly: a barrier of some threads orders all of the block, and of some
//! lanes all of the warp; two blocks that both
//! made a fence for the whole GPU are taken to have used it; of several atomics only the last is known.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `block + 1`: 24 bits; thread: 11; barriers of the block: 14; of the warp: 14; atomic: 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) u64);

const ATOMIC: u64 = 1;
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
}

impl Stamp {
    pub(super) fn new(block: u64, thread: u32, barriers: u32, warp_barriers: u32) -> Stamp {
        let block = block % 0xff_fffe + 1;
        Stamp(
            block << 40
                | u64::from(thread) << 29
                | u64::from(barriers & 0x3fff) << 15
                | u64::from(warp_barriers & 0x3fff) << 1,
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
        self.0 >> 15 & 0x3fff
    }

    fn warp_barriers(self) -> u64 {
        self.0 >> 1 & 0x3fff
    }

    /// The warp, if all threads are of one.
    fn warp(self) -> Option<u64> {
        match (self.field() & MANY != 0, self.field() & MANY_WARPS != 0) {
            (false, _) => Some(self.field() >> 5),
            (true, false) => Some(self.field() & 31),
            (true, true) => None,
        }
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

/// The stamps of some memory: a pair of cells, of the last writer and of the readers, for every granule of each size.
/// An access leaves its stamp at the largest size that fits in it, and looks at all.
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
        Level { cells: zeros(len.div_ceil(granule) as usize * 2), seen }
    }

    /// The cells of some bytes.
    #[inline(always)]
    fn cells(&self, granule: u64, at: u64, bytes: u64) -> &[AtomicU64] {
        &self.cells[(at / granule) as usize * 2..(at + bytes).div_ceil(granule) as usize * 2]
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
        for cell in level.cells(GRANULES[own], at, bytes).chunks_exact(2) {
            conflict = conflict.or(note(cell, touch, me));
        }
        for (number, granule) in GRANULES.into_iter().enumerate() {
            if number == own {
                continue;
            }
            let Some(level) = self.levels[number].get().filter(|level| level.saw(at)) else { continue };
            for cell in level.cells(granule, at, bytes).chunks_exact(2) {
                conflict = conflict.or(compare(cell, touch, me));
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
                    level.cells[(byte / granule) as usize * 2].load(Ordering::Relaxed) != 0
                })
            });
            let Some((_, granule)) = written else { return false };
            byte = (byte / granule + 1) * granule;
        }
        true
    }
}

/// Compares with a cell and leaves a stamp there. Writers swap before they look at readers, and readers the other way
/// around, so that of two at the same time at least one sees the other.
#[inline(always)]
fn note(cell: &[AtomicU64], touch: Touch, me: Stamp) -> Option<Conflict> {
    match touch {
        Touch::Read => {
            let mut old = cell[1].load(Ordering::Relaxed);
            loop {
                let new = me.with(Stamp(old)).0;
                if new == old {
                    break;
                }
                match cell[1].compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(found) => old = found,
                }
            }
            against(cell[0].load(Ordering::SeqCst), true, me)
        }
        Touch::StrongRead => compare(cell, touch, me),
        Touch::Write => {
            let old = cell[0].swap(me.0, Ordering::SeqCst);
            against(old, true, me).or_else(|| against(cell[1].load(Ordering::SeqCst), false, me))
        }
        Touch::Atomic => {
            let old = cell[0].swap(me.0 | ATOMIC, Ordering::SeqCst);
            let plain = if old & ATOMIC == 0 { old } else { 0 };
            against(plain, true, me).or_else(|| against(cell[1].load(Ordering::SeqCst), false, me))
        }
    }
}

/// Compares with a cell only.
#[inline(always)]
fn compare(cell: &[AtomicU64], touch: Touch, me: Stamp) -> Option<Conflict> {
    let (writer, reader) = (cell[0].load(Ordering::SeqCst), cell[1].load(Ordering::SeqCst));
    let plain = if writer & ATOMIC == 0 { writer } else { 0 };
    match touch {
        Touch::Read => against(writer, true, me),
        Touch::StrongRead => against(plain, true, me),
        Touch::Write => against(writer, true, me).or_else(|| against(reader, false, me)),
        Touch::Atomic => against(plain, true, me).or_else(|| against(reader, false, me)),
    }
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
        ];
        for (a, b) in racing {
            assert!(races((a, me), (b, other)), "{a:?} {b:?}");
            assert!(!races((a, me), (b, me)), "{a:?} {b:?}");
            assert!(!races((a, me), (b, at(0, 40, 1, 1))), "{a:?} {b:?}: a barrier");
            assert!(races((a, me), (b, at(1, 1, 1, 1))), "{a:?} {b:?}: another block");
            assert!(races((a, me), (b, at(0, 40, 0, 1))), "{a:?} {b:?}: the other warp's barrier");
            assert!(!races((a, me), (b, at(0, 2, 0, 1))), "{a:?} {b:?}: the warp's barrier");
        }
        for (a, b) in [(Read, Read), (Atomic, Atomic), (Atomic, StrongRead), (Read, StrongRead)] {
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
