//! Who touched a piece of memory last, and whether anything orders that with who touches it now.
//!
//! A stamp is a block, a thread, and how many barriers the block and the warp had passed. Memory has two for each
//! word of 4 bytes, of its last writer and of its readers; and two for each byte where smaller accesses were made.
//! What is missed rather than told wrongly: a barrier of some threads orders all of the block; two blocks that both
//! made a fence for the whole GPU are taken to have used it; of several atomics only the last is known.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// The stamps of some memory.
#[derive(Default)]
pub(super) struct Shadow {
    words: OnceLock<Box<[AtomicU64]>>,
    bytes: OnceLock<Box<[AtomicU64]>>,
}

/// What races: the other's stamp, and whether it wrote.
#[derive(Clone, Copy)]
pub(super) struct Conflict {
    pub(super) old: Stamp,
    pub(super) wrote: bool,
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
        for cells in [self.words.get_mut(), self.bytes.get_mut()].into_iter().flatten() {
            cells.iter_mut().for_each(|cell| *cell.get_mut() = 0);
        }
    }

    /// Notes an access to memory of `len` bytes in all; what it conflicts with, if anything.
    #[inline(always)]
    pub(super) fn touch(&self, len: u64, at: u64, bytes: u64, touch: Touch, me: Stamp) -> Option<Conflict> {
        if bytes < 4 {
            return self.touch_small(len, at, bytes, touch, me);
        }
        let words = self.words.get_or_init(|| zeros(len.div_ceil(4) as usize * 2));
        let mut conflict = None;
        let (first, last) = ((at / 4) as usize * 2, ((at + bytes) / 4) as usize * 2);
        for cell in words[first..last].chunks_exact(2) {
            conflict = conflict.or(note(cell, touch, me));
        }
        if let Some(small) = self.bytes.get() {
            for cell in small[at as usize * 2..(at + bytes) as usize * 2].chunks_exact(2) {
                conflict = conflict.or(compare(cell, touch, me));
            }
        }
        conflict
    }

    fn touch_small(&self, len: u64, at: u64, bytes: u64, touch: Touch, me: Stamp) -> Option<Conflict> {
        let words = self.words.get_or_init(|| zeros(len.div_ceil(4) as usize * 2));
        let small = self.bytes.get_or_init(|| zeros(len as usize * 2));
        let word = (at / 4) as usize * 2;
        let mut conflict = compare(&words[word..word + 2], touch, me);
        for cell in small[at as usize * 2..(at + bytes) as usize * 2].chunks_exact(2) {
            conflict = conflict.or(note(cell, touch, me));
        }
        conflict
    }

    /// Whether all of these bytes were written.
    #[inline(always)]
    pub(super) fn is_written(&self, at: u64, bytes: u64) -> bool {
        let written = |cells: &OnceLock<Box<[AtomicU64]>>, at: u64| {
            cells.get().is_some_and(|cells| cells[at as usize * 2].load(Ordering::Relaxed) != 0)
        };
        let mut byte = at;
        while byte < at + bytes {
            if byte % 4 == 0 && byte + 4 <= at + bytes && written(&self.words, byte / 4) {
                byte += 4;
            } else if written(&self.words, byte / 4) || written(&self.bytes, byte) {
                byte += 1;
            } else {
                return false;
            }
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
