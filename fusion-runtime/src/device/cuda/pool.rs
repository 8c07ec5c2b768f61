//! The pool of device memory: freed blocks, kept for the next request of their size class.
//!
//! Invariant: a block is either in use, or in the pool once under the class that it was made for.

use std::collections::BTreeMap;

/// Size of the smallest block, in bytes. The driver aligns blocks to at least 256 bytes.
const BYTES_MIN: usize = 512;

/// Blocks of memory by size class.
#[derive(Debug)]
pub(super) struct Pool<H> {
    free: BTreeMap<usize, Vec<H>>,
}

impl<H> Pool<H> {
    pub(super) const fn new() -> Pool<H> {
        Pool { free: BTreeMap::new() }
    }

    /// Takes the most recently used block of this class, which is the most likely to be in a cache.
    pub(super) fn take(&mut self, class: usize) -> Option<H> {
        self.free.get_mut(&class)?.pop()
    }

    pub(super) fn give(&mut self, class: usize, block: H) {
        self.free.entry(class).or_default().push(block);
    }

    /// Empties the pool.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = H> {
        std::mem::take(&mut self.free).into_values().flatten()
    }
}

/// Returns the bytes to request from the driver, or `None` if the number overflows.
///
/// Each power of two has eight classes. At most an eighth is unused, and tensors of similar size share
/// blocks.
pub(super) fn size_class(bytes: usize) -> Option<usize> {
    if bytes <= BYTES_MIN {
        return Some(BYTES_MIN);
    }
    let step = 1 << ((bytes - 1).ilog2() - 3);
    bytes.checked_next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_was_asked_for() {
        for (bytes, class) in [
            (0, 512),
            (1, 512),
            (512, 512),
            (513, 576),
            (576, 576),
            (577, 640),
            (1000, 1024),
            (1024, 1024),
            (1025, 1152),
            (64 << 20, 64 << 20),
            ((64 << 20) + 1, 72 << 20),
        ] {
            assert_eq!(size_class(bytes), Some(class), "{bytes}");
        }
        assert_eq!(size_class(usize::MAX), None);
    }

    #[test]
    fn classes_waste_at_most_an_eighth_and_keep_alignment() {
        for bytes in (513..200_000).step_by(37) {
            let class = size_class(bytes).unwrap();
            assert!(class >= bytes && class.is_multiple_of(16), "{bytes} -> {class}");
            assert!((class - bytes) * 8 <= class, "{bytes} -> {class}");
            assert_eq!(size_class(class), Some(class), "a class is its own class");
        }
    }

    #[test]
    fn blocks_come_back_by_class() {
        let mut pool = Pool::new();
        assert_eq!(pool.take(512), None);
        pool.give(512, 'a');
        pool.give(512, 'b');
        pool.give(1024, 'c');
        assert_eq!(pool.take(512), Some('b'));
        assert_eq!(pool.take(1024), Some('c'));
        assert_eq!(pool.take(1024), None);
        pool.give(2048, 'd');
        assert_eq!(pool.drain().collect::<Vec<_>>(), ['a', 'd']);
        assert_eq!(pool.take(512), None);
    }
}
