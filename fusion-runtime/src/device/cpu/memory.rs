//! Host memory in few size classes. The pool keeps freed blocks, since page faults of a fresh output cost
//! more than its kernel.
//!
//! Invariant: kept blocks and blocks in use together stay within the peak use of the process plus `SLACK`.
//! Every block is initialised from its first use on.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Alignment of every block: cache lines come in pairs, and no vector is wider than a pair.
const ALIGN: usize = 128;
/// Bytes of the smallest blocks with large pages. Large blocks agree in their offset modulo `LARGE_ALIGN`.
///
/// The first-level cache of a Zen distinguishes lines by a hash of pairs of address bits: 12 with 27, 13 with
/// 26, 14 with 25 and so on. Two blocks whose addresses differ in both bits of a pair evict each other's
/// lines. Therefore large blocks agree in bits 12 to 14, the lower bits of the first three pairs.
const LARGE: usize = 4 << 20;
/// Alignment of large blocks.
const LARGE_ALIGN: usize = 32 << 10;
/// Bytes of the smallest blocks that start at staggered offsets within their pages.
const STAGGERED: usize = 64 << 10;
/// Distance between the start offsets of consecutive staggered blocks, modulo `STAGGERS` steps.
///
/// A kernel reads several blocks in step. With equal offsets within their pages, the blocks would compete for
/// the same few lines of a cache.
const STAGGER: usize = 5 * ALIGN;
/// Number of different start offsets.
const STAGGERS: usize = 6;
/// Bytes that the pool may keep beyond the peak of memory in use.
const SLACK: usize = 256 << 20;
/// Number of size classes: four per power of two.
const CLASSES: usize = 4 * usize::BITS as usize;

/// An allocation of the CPU device.
#[derive(Debug)]
pub(crate) struct CpuMemory {
    block: Block,
    pool: Arc<Pool>,
}

/// A block of a size class. A block is not freed when it is dropped: its owner returns it to the pool.
#[derive(Debug)]
struct Block {
    raw: NonNull<u8>,
    class: usize,
    /// Offset of the first byte from the first aligned byte.
    start: usize,
    /// The thread that returned the block, whose processor may have the block in its caches.
    freed_by: usize,
}

/// Returns a number that no other running thread has.
fn this_thread() -> usize {
    thread_local! {
        static OF_THREAD: u8 = const { 0 };
    }
    OF_THREAD.with(|own| std::ptr::from_ref(own).addr())
}

// SAFETY: a block is plain memory that is independent of any thread.
unsafe impl Send for Block {}
// SAFETY: a shared block only reveals an address. The crate writes through the address only for the one
// tensor that owns the memory (invariant of `tensor`).
unsafe impl Sync for Block {}

/// Freed blocks, kept for reuse.
#[derive(Debug)]
pub(crate) struct Pool(Mutex<Kept>);

/// Number of blocks among which a thread looks for one of its own.
const LATEST: usize = 16;

/// State of the pool.
#[derive(Debug)]
struct Kept {
    free: [Vec<Block>; CLASSES],
    /// Bytes in `free`.
    kept: usize,
    /// Bytes in use.
    used: usize,
    /// Maximum of `used` so far.
    peak: usize,
}

impl Pool {
    pub(crate) fn new() -> Arc<Pool> {
        let free = [const { Vec::new() }; CLASSES];
        Arc::new(Pool(Mutex::new(Kept { free, kept: 0, used: 0, peak: 0 })))
    }

    /// Returns a block of at least `bytes` bytes, or `None` if the system has no more memory.
    pub(crate) fn allocate(self: &Arc<Pool>, bytes: usize) -> Option<CpuMemory> {
        let class = class_of(bytes);
        let size = class_bytes(class)?;
        let mut kept = self.lock();
        let block = match kept.take(class) {
            Some(block) => block,
            None => {
                kept.make_room(size);
                drop(kept);
                let block = Block::new(class).or_else(|| {
                    self.lock().make_room(usize::MAX / 2);
                    Block::new(class)
                })?;
                kept = self.lock();
                block
            }
        };
        kept.used += size;
        kept.peak = kept.peak.max(kept.used);
        Some(CpuMemory { block, pool: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // The lists are valid between any two statements that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes kept for reuse and the bytes in use.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let kept = self.lock();
        (kept.kept, kept.used)
    }
}

impl Kept {
    /// Takes a free block of a class: one that this thread returned lately, or else the last one.
    ///
    /// Threads that take each other's blocks would fetch each line from the caches of another core.
    fn take(&mut self, class: usize) -> Option<Block> {
        let (free, thread) = (&mut self.free[class], this_thread());
        let latest = free.iter().enumerate().rev().take(LATEST);
        let own = latest.into_iter().find(|(_, block)| block.freed_by == thread);
        let block = free.remove(own.map(|(place, _)| place).or(free.len().checked_sub(1))?);
        self.kept -= block.bytes();
        Some(block)
    }

    /// Frees kept blocks, the largest first, until `bytes` more bytes fit within the bound.
    fn make_room(&mut self, bytes: usize) {
        let bound = self.peak.saturating_add(SLACK);
        for class in (0..CLASSES).rev() {
            while self.kept > 0 && self.used.saturating_add(self.kept).saturating_add(bytes) > bound {
                let Some(block) = self.free[class].pop() else { break };
                self.kept -= block.bytes();
                block.free();
            }
        }
    }
}

impl CpuMemory {
    /// Returns the address of the first byte, which is aligned to `ALIGN`.
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.block.ptr()
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.block.bytes()
    }
}

impl Drop for CpuMemory {
    fn drop(&mut self) {
        let mut kept = self.pool.lock();
        let block = Block { freed_by: this_thread(), ..self.block };
        kept.used -= block.bytes();
        kept.kept += block.bytes();
        kept.free[block.class].push(block);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.free.iter_mut().flat_map(|blocks| blocks.drain(..)).for_each(Block::free);
    }
}

impl Block {
    fn new(class: usize) -> Option<Block> {
        static STAGGERED_BLOCKS: AtomicUsize = AtomicUsize::new(0);
        // SAFETY: the layout has more than zero bytes.
        let raw = NonNull::new(unsafe { alloc_zeroed(Block::layout(class)?) })?;
        if !Block::is_staggered(class) {
            return Some(Block { raw, class, start: 0, freed_by: 0 });
        }
        let start = STAGGERED_BLOCKS.fetch_add(1, Relaxed) % STAGGERS * STAGGER;
        let block = Block { raw, class, start, freed_by: 0 };
        if block.bytes() >= LARGE {
            ask_for_large_pages(block.ptr(), block.bytes());
        }
        Some(block)
    }

    fn is_staggered(class: usize) -> bool {
        class_bytes(class).is_some_and(|bytes| bytes >= STAGGERED)
    }

    fn bytes(&self) -> usize {
        class_bytes(self.class).unwrap_or_default()
    }

    fn ptr(&self) -> *mut u8 {
        let raw = self.raw.as_ptr();
        // `layout` reserves the bytes that this offset skips.
        raw.wrapping_add(raw.align_offset(Block::align(self.class)) + self.start)
    }

    fn align(class: usize) -> usize {
        if class_bytes(class).is_some_and(|bytes| bytes >= LARGE) { LARGE_ALIGN } else { ALIGN }
    }

    /// Returns a layout with small alignment and room to align by hand. With a large alignment, the system's
    /// allocator would write every zero, although fresh pages are zero already.
    fn layout(class: usize) -> Option<Layout> {
        let more = if Block::is_staggered(class) { STAGGERS * STAGGER } else { 0 };
        Layout::from_size_align(class_bytes(class)?.checked_add(Block::align(class) + more)?, 16).ok()
    }

    fn free(self) {
        if let Some(layout) = Block::layout(self.class) {
            // SAFETY: `new` allocated the block with this layout, and `self` is its only owner.
            unsafe { dealloc(self.raw.as_ptr(), layout) }
        }
    }
}

/// Advises the system to use large pages.
///
/// With small pages, the page tables of a processor are too small for a handful of large tensors in step.
/// Memory works without large pages too.
#[cfg(target_os = "linux")]
fn ask_for_large_pages(start: *mut u8, bytes: usize) {
    const PAGE: usize = 4096;
    let inside = start.align_offset(PAGE);
    let whole = bytes.saturating_sub(inside) / PAGE * PAGE;
    // SAFETY: the pages belong to one allocation, and the advice does not change their contents.
    unsafe { libc::madvise(start.wrapping_add(inside).cast(), whole, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_large_pages(_start: *mut u8, _bytes: usize) {}

/// Returns the smallest class with room for `bytes` bytes.
fn class_of(bytes: usize) -> usize {
    let bytes = bytes.max(ALIGN);
    // Logarithm of the power of two below, and the quarter of the distance to the next.
    let log = (bytes - 1).ilog2() as usize;
    let quarter = ((bytes - 1) >> (log - 2)) & 3;
    log * 4 + quarter
}

/// Returns the bytes of the blocks of a class, a multiple of 16.
fn class_bytes(class: usize) -> Option<usize> {
    let (log, quarter) = (class / 4, class % 4);
    (5 + quarter).checked_mul(1usize.checked_shl(log as u32 - 2)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_sizes_and_waste_little() {
        for bytes in (1..4096).chain([1 << 20, (1 << 20) + 1, 67_108_864, 100_000_001]) {
            let (class, size) = (class_of(bytes), class_bytes(class_of(bytes)).unwrap());
            assert!(size >= bytes && size % 16 == 0, "{bytes} in {size}");
            assert!(bytes <= ALIGN || size <= bytes + bytes / 4, "{bytes} in {size}");
            assert!(bytes <= ALIGN || class_bytes(class - 1).unwrap() < bytes, "{bytes} in {size}");
        }
    }

    #[test]
    fn blocks_are_aligned_zeroed_and_reused() {
        let pool = Pool::new();
        let first = pool.allocate(1000).unwrap();
        let address = first.ptr() as usize;
        assert_eq!(address % ALIGN, 0);
        drop(first);
        assert_eq!(pool.bytes(), (1024, 0));
        let second = pool.allocate(1001).unwrap();
        assert_eq!(second.ptr() as usize, address);
        assert_eq!(pool.bytes(), (0, 1024));
    }

    /// Staggered blocks are fully within their allocations, do not overlap, and start at different offsets in
    /// their pages.
    #[test]
    fn blocks_are_staggered() {
        let pool = Pool::new();
        let size = |i: usize| if i < STAGGERS { STAGGERED } else { LARGE };
        let blocks: Vec<CpuMemory> = (0..2 * STAGGERS).map(|i| pool.allocate(size(i)).unwrap()).collect();
        let (mut ranges, mut places) = (Vec::new(), Vec::new());
        for block in &blocks {
            let (start, raw) = (block.ptr() as usize, block.block.raw.as_ptr() as usize);
            let layout = Block::layout(block.block.class).unwrap();
            assert!(start.is_multiple_of(ALIGN) && start + block.bytes() <= raw + layout.size());
            ranges.push(start..start + block.bytes());
            places.push(block.block.start);
            let is_large = block.bytes() >= LARGE;
            // The block starts within the first page after the alignment.
            assert!(!is_large || start % LARGE_ALIGN == block.block.start && block.block.start < 4096);
        }
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.is_sorted_by(|a, b| a.end <= b.start));
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 1, "{places:?}");
        assert_eq!(pool.allocate(STAGGERED / 2).unwrap().block.start, 0);
    }

    #[test]
    fn what_is_kept_stays_below_the_peak_and_slack() {
        let pool = Pool::new();
        for log in 20..29 {
            drop(pool.allocate(1 << log).unwrap());
            let (kept, used) = pool.bytes();
            assert!(kept + used <= (1 << log) + SLACK, "{kept} kept after {log}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(Pool::new().allocate(isize::MAX as usize / 2).is_none());
        assert!(Pool::new().allocate(usize::MAX).is_none());
    }
}
