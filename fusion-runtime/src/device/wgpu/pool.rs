//! The pool of device memory: buffers in size classes, kept for reuse.
//!
//! Invariant: commands of a device run in order, so a buffer may be reused while earlier work still uses it.
//! Idle buffers have no more bytes than the peak of memory in use, or `IDLE_BYTES_MIN` if that is larger.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::error::Result;

use super::fault::{Gpu, lock};

/// Alignment of the end of a binding, in bytes.
pub(super) const GRANULE: u64 = 16;
/// Usages of a buffer for kernels, uploads and read-backs.
const USAGES: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_SRC).union(wgpu::BufferUsages::COPY_DST);
/// Usage of a buffer for kernels that read a one-element tensor as a uniform.
pub(super) const UNIFORM: wgpu::BufferUsages = wgpu::BufferUsages::UNIFORM;
/// Idle bytes that are kept regardless of the peak of memory in use.
const IDLE_BYTES_MIN: u64 = 64 << 20;

/// A block of device memory: a buffer with a number. Numbers are never reused.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) buffer: wgpu::Buffer,
    pub(super) id: u64,
}

/// An allocation. Dropping it returns the buffer to its pool.
pub(crate) struct WgpuMemory {
    block: Option<Block>,
    home: Home,
}

/// The destination of a buffer when its memory is dropped.
enum Home {
    /// The pool, for reuse.
    Pool(Arc<Pool>),
    /// The caller, who owns the buffer. The pool only records that the buffer is gone.
    Caller(Arc<Pool>),
}

impl WgpuMemory {
    /// Wraps a buffer of the caller as memory, without a copy.
    ///
    /// # Errors
    /// If the buffer lacks a usage among STORAGE, COPY_SRC and COPY_DST, or its size is not a multiple of 16.
    pub(super) fn external(pool: &Arc<Pool>, buffer: wgpu::Buffer) -> Result<WgpuMemory> {
        if !buffer.usage().contains(USAGES) {
            let usage = buffer.usage();
            return Err(pool
                .gpu
                .unsupported(format!("a tensor in a buffer of usages {usage:?}; it takes {USAGES:?}")));
        }
        if buffer.size() == 0 || !buffer.size().is_multiple_of(GRANULE) {
            let size = buffer.size();
            return Err(pool
                .gpu
                .unsupported(format!("a tensor in a buffer of {size} bytes; it takes a multiple of 16")));
        }
        let block = Block { buffer, id: pool.next_id() };
        Ok(WgpuMemory { block: Some(block), home: Home::Caller(Arc::clone(pool)) })
    }

    /// Returns true if both are in one buffer.
    pub(crate) fn is_same(&self, other: &WgpuMemory) -> bool {
        self.block().buffer == other.block().buffer
    }

    /// Returns true if the buffer belongs to the caller.
    pub(crate) fn is_external(&self) -> bool {
        matches!(self.home, Home::Caller(_))
    }

    pub(super) fn block(&self) -> &Block {
        self.block.as_ref().unwrap_or_else(|| unreachable!("the block is taken only by drop"))
    }
}

impl Drop for WgpuMemory {
    fn drop(&mut self) {
        match (&self.home, self.block.take()) {
            (Home::Pool(pool), Some(block)) => pool.give_back(block),
            (Home::Caller(pool), _) => pool.forgotten.store(true, Relaxed),
            (Home::Pool(_), None) => {}
        }
    }
}

impl fmt::Debug for WgpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WgpuMemory").field("bytes", &self.block().buffer.size()).finish_non_exhaustive()
    }
}

/// The buffers of a device.
#[derive(Debug)]
pub(super) struct Pool {
    gpu: Gpu,
    bytes_max: u64,
    state: Mutex<PoolState>,
    ids: AtomicU64,
    /// Number of buffers made so far.
    pub(super) made: AtomicU64,
    /// True if buffers have been freed that caches may still refer to.
    pub(super) forgotten: AtomicBool,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Idle buffers by size, each with the time of its return. The latest returned is last.
    idle: HashMap<u64, Vec<(u64, Block)>>,
    idle_bytes: u64,
    live_bytes: u64,
    live_bytes_peak: u64,
    clock: u64,
}

impl Pool {
    pub(super) fn new(gpu: Gpu, bytes_max: u64) -> Pool {
        let state = Mutex::default();
        Pool {
            gpu,
            bytes_max,
            state,
            ids: AtomicU64::new(0),
            made: AtomicU64::new(0),
            forgotten: AtomicBool::new(false),
        }
    }

    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }

    /// Allocates at least `bytes` bytes.
    pub(super) fn allocate(self: &Arc<Pool>, bytes: usize) -> Result<WgpuMemory> {
        let size = size_class(bytes as u64, self.bytes_max)
            .ok_or_else(|| self.gpu.out_of_memory(bytes, Some(self.bytes_max)))?;
        let block = match self.take_idle(size) {
            Some(block) => block,
            None => self.make(size)?,
        };
        lock(&self.state).gained(size);
        Ok(WgpuMemory { block: Some(block), home: Home::Pool(Arc::clone(self)) })
    }

    fn take_idle(&self, size: u64) -> Option<Block> {
        let mut state = lock(&self.state);
        let (_, block) = state.idle.get_mut(&size)?.pop()?;
        state.idle_bytes -= size;
        Some(block)
    }

    fn make(&self, size: u64) -> Result<Block> {
        let buffer = self.gpu.make_buffer(&wgpu::BufferDescriptor {
            label: Some("fusion tensor"),
            size,
            usage: USAGES | UNIFORM,
            mapped_at_creation: false,
        })?;
        self.made.fetch_add(1, Relaxed);
        Ok(Block { buffer, id: self.next_id() })
    }

    /// Frees all idle buffers. The memory of a buffer is free once no command and no cached bind group refers
    /// to the buffer.
    pub(super) fn trim(&self) {
        let mut state = lock(&self.state);
        state.idle_bytes = 0;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        drop(idle);
    }

    fn give_back(&self, block: Block) {
        let evicted = lock(&self.state).give_back(block);
        if !evicted.is_empty() {
            self.forgotten.store(true, Relaxed);
        }
    }
}

impl PoolState {
    fn gained(&mut self, size: u64) {
        self.live_bytes += size;
        self.live_bytes_peak = self.live_bytes_peak.max(self.live_bytes);
    }

    /// Takes a buffer back and returns the surplus buffers, the longest idle first.
    fn give_back(&mut self, block: Block) -> Vec<Block> {
        let size = block.buffer.size();
        self.clock += 1;
        self.live_bytes -= size;
        self.idle_bytes += size;
        self.idle.entry(size).or_default().push((self.clock, block));
        let mut evicted = Vec::new();
        while self.idle_bytes > self.live_bytes_peak.max(IDLE_BYTES_MIN) {
            let oldest =
                self.idle.values_mut().filter(|blocks| !blocks.is_empty()).min_by_key(|blocks| blocks[0].0);
            let Some(blocks) = oldest else { break };
            let (_, block) = blocks.remove(0);
            self.idle_bytes -= block.buffer.size();
            evicted.push(block);
        }
        evicted
    }
}

/// Rounds a size up to quarters of a power of two. Nearby sizes then share buffers, and little more than a
/// fifth is wasted.
///
/// If the class is beyond the limit, the size is only rounded up to 16 bytes. Returns `None` if that is
/// beyond the limit too.
fn size_class(bytes: u64, max: u64) -> Option<u64> {
    let exact = bytes.max(GRANULE).checked_next_multiple_of(GRANULE)?;
    let quarter = (1u64 << exact.ilog2()) / 4;
    let class = exact.checked_next_multiple_of(quarter.max(64))?;
    let apart = if class >= LARGE { class.checked_add(APART)? } else { class };
    [apart, class, exact].into_iter().find(|&size| size <= max)
}

/// Size of the smallest buffers that get `APART` extra bytes.
///
/// Otherwise a software renderer places large buffers at distances that are powers of two. A kernel that
/// accesses several buffers in step would then use the same few cache lines for all of them.
const LARGE: u64 = 1 << 20;
/// Extra bytes of a large buffer.
const APART: u64 = 5 * 4096;

#[cfg(test)]
mod tests {
    use super::{APART, size_class};

    #[test]
    fn size_classes_waste_at_most_a_quarter() {
        let check = |bytes, class| assert_eq!(size_class(bytes, 1 << 30), Some(class), "{bytes} bytes");
        check(0, 64);
        check(65, 128);
        check(256, 256);
        check(257, 320);
        check(1 << 19, 1 << 19);
        check(1 << 20, (1 << 20) + APART);
        check((1 << 20) + 1, (1 << 20) + (1 << 18) + APART);
        for bytes in (256..1 << 16).step_by(7) {
            let class = size_class(bytes, 1 << 30).unwrap_or(0);
            assert!(
                class >= bytes && class * 4 <= bytes * 5 + 64 && class.is_multiple_of(16),
                "{bytes} -> {class}"
            );
        }
    }

    #[test]
    fn the_limit_is_reached_exactly() {
        assert_eq!(size_class(1 << 20, (1 << 20) + 100), Some(1 << 20));
        assert_eq!(size_class((1 << 20) + 1, (1 << 20) + 100), Some((1 << 20) + 16));
        assert_eq!(size_class((1 << 20) + 101, (1 << 20) + 100), None);
        assert_eq!(size_class(u64::MAX, u64::MAX), None);
    }
}
