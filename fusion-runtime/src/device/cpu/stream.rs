//! Streaming stores: a kernel writes into a tile in the L1 cache, which then goes around the caches to memory,
//! so that what is written need not be read first.
//!
//! Invariant: only buffers that the kernel never reads are redirected, and only where it was asked for.

use std::sync::OnceLock;
use std::time::Instant;

use fusion_compiler::ir::graph::Access;

use smallvec::SmallVec;

use super::launch::Work;

/// Bytes of all buffers from which kernels stream: `FUSION_CPU_STREAM_BYTES`, never unless set.
///
/// Off by default because it pays only where no one else wants the processor. Medians of 64 alternating runs over
/// 2²⁴ elements on 2 cores of an EPYC, streamed against not: nearly idle, `relu(a + b) * c` 10.1 ms against 11.4 ms
/// and a copy 4.4 ms against 6.2 ms; beside programs that kept both cores busy, 13.9 against 12.6, 8.9 against 8.1,
/// and a chain of twelve operations 14.3 against 11.6.
fn stream_min() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    let set = || std::env::var("FUSION_CPU_STREAM_BYTES").ok()?.parse().ok();
    *BYTES.get_or_init(|| set().unwrap_or(usize::MAX))
}

/// Bytes per nanosecond and thread below which it is not memory that a kernel waits for. Then stores are better left
/// to the caches, which do their work beside the arithmetic: powers of 2²⁴ elements took 28.8 ms when streamed, else
/// 26.8 ms.
const STREAM_RATE_MIN: f64 = 3.0;

/// Bytes of the tile, shared by the buffers written: half of a small L1 cache.
const TILE_BYTES: usize = 16 << 10;

/// A tile, aligned to cache lines.
#[repr(C, align(64))]
struct Tile([u8; TILE_BYTES]);

/// Items that fit a tile, if streaming pays for this work.
pub(super) fn tile_items(work: &Work<'_>) -> Option<usize> {
    let bytes = |only: fn(Access) -> bool| -> usize {
        work.buffers
            .iter()
            .filter(|buffer| only(buffer.access))
            .map(|buffer| buffer.len * buffer.dtype.size())
            .sum()
    };
    let scattered = work.buffers.iter().any(|buffer| buffer.beside.is_some());
    if !cfg!(target_arch = "x86_64")
        || scattered
        || bytes(|_| true) < stream_min()
        || bytes(|access| access == Access::Write) == 0
    {
        return None;
    }
    let written = work.buffers.iter().filter(|buffer| buffer.access == Access::Write);
    // Each part of the tile starts at a cache line.
    let item: usize = written
        .map(|buffer| (work.items.longest() * buffer.per * buffer.dtype.size()).next_multiple_of(64))
        .sum();
    Some(TILE_BYTES / item).filter(|&items| items > 0)
}

/// Runs the items `first..end`, `tile` of them at a time; the first through the caches, to see whether streaming pays.
pub(super) fn run(work: &Work<'_>, first: usize, end: usize, tile: usize) {
    let timed = (first + tile).min(end);
    let start = Instant::now();
    work.run(first, timed, |_, _, _| {});
    let nanoseconds = start.elapsed().as_nanos() as f64;
    if work.bytes(first, timed) as f64 / nanoseconds < STREAM_RATE_MIN {
        return work.run(timed, end, |_, _, _| {});
    }
    let mut memory = Tile([0; TILE_BYTES]);
    for start in (timed..end).step_by(tile) {
        run_tile(work, (start, (start + tile).min(end)), &mut memory.0);
    }
    fence();
}

fn run_tile(work: &Work<'_>, (first, end): (usize, usize), mut tile: &mut [u8]) {
    // From, to, bytes. Addresses, because the kernel holds the tile until it is done.
    let mut flushes: SmallVec<[(*const u8, *mut u8, usize); 4]> = SmallVec::new();
    work.run(first, end, |_, buffer, len| {
        if buffer.access == Access::Write {
            let bytes = len * buffer.dtype.size();
            let (part, rest) = std::mem::take(&mut tile).split_at_mut(bytes.next_multiple_of(64));
            let part = part.as_mut_ptr();
            flushes.push((part, std::mem::replace(&mut buffer.ptr, part), bytes));
            tile = rest;
        }
    });
    for (part, target, bytes) in flushes {
        // SAFETY: the kernel is done, so the part of the tile is ours again; it has these bytes, by `split_at_mut`.
        // The target is the window of these items, as long as the part, and nobody else's.
        unsafe { copy_around_caches(target, std::slice::from_raw_parts(part, bytes)) };
    }
}

/// Copies with stores that go around the caches, but for the ends that do not fill a cache line.
///
/// # Safety
///
/// `target` is memory of as many bytes as `from`, which nothing else accesses.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_around_caches(target: *mut u8, from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let head = target.align_offset(64).min(from.len());
    let body = (from.len() - head) / 64 * 64;
    // SAFETY: all offsets are within both ranges; from `head` on, the target is aligned to 64, more than the 16
    // bytes that a streaming store wants. SSE2 is part of x86-64.
    unsafe {
        target.copy_from_nonoverlapping(from.as_ptr(), head);
        for at in (head..head + body).step_by(16) {
            _mm_stream_si128(
                target.add(at).cast::<__m128i>(),
                _mm_loadu_si128(from.as_ptr().add(at).cast::<__m128i>()),
            );
        }
        let tail = head + body;
        target.add(tail).copy_from_nonoverlapping(from.as_ptr().add(tail), from.len() - tail);
    }
}

/// Copies; there are no streaming stores to use here.
///
/// # Safety
///
/// `target` is memory of as many bytes as `from`, which nothing else accesses.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_around_caches(target: *mut u8, from: &[u8]) {
    // SAFETY: as promised by the caller.
    unsafe { target.copy_from_nonoverlapping(from.as_ptr(), from.len()) }
}

/// Makes the streamed bytes visible before whatever this thread does next.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
