//! Streaming stores: what a kernel only writes goes around the caches to memory, so that it need not be read first.
//!
//! A loop makes as many elements as are a few lines of a cache, a tile, which is then stored so, and goes on: reads of memory and
//! writes to it overlap. The tile is in registers: in memory of the thread it may lie where a processor takes it for what the loop
//! reads, since that compares the low bits of addresses alone; one process in thirty then took two to five times as long. Invariant:
//! only buffers that the kernel never reads are written so, and only where memory is what it waits for.

use std::ops::Range;
use std::sync::OnceLock;
use std::time::Instant;

use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::kernel::STREAM_LANES;

use super::launch::Work;
use crate::kernel::{CpuBuffer, Word};

/// Bytes of all buffers above which kernels stream: more than the processor's last cache holds, in which who reads the result
/// next would not find it anyway.
fn last_cache() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        let largest = raw_cpuid::CpuId::new().get_cache_parameters().into_iter().flatten().map(|cache| {
            cache.sets()
                * cache.associativity()
                * cache.physical_line_partitions()
                * cache.coherency_line_size()
        });
        #[cfg(not(target_arch = "x86_64"))]
        let largest = std::iter::empty();
        largest.max().map_or(LAST_CACHE, |largest| largest.min(LAST_CACHE_MAX))
    })
}

/// The last cache of a processor that does not say.
const LAST_CACHE: usize = 32 << 20;

/// What is more than this is the cache of a whole socket, of which others have their part: 2²⁴ elements of `relu(a + b) * c`, less
/// than the 480 MiB that a Sapphire Rapids says it has, took 15.1 ms, and 10.5 when streamed.
const LAST_CACHE_MAX: usize = 64 << 20;

/// The same as `FUSION_CPU_STREAM_BYTES` says, and then at any pace.
fn asked() -> Option<usize> {
    static BYTES: OnceLock<Option<usize>> = OnceLock::new();
    *BYTES.get_or_init(|| std::env::var("FUSION_CPU_STREAM_BYTES").ok()?.parse().ok())
}

/// Bytes per nanosecond and thread below which it is not memory that a kernel waits for, but others at work on the processor.
const STREAM_RATE_MIN: f64 = 3.0;

/// Elements after which a thread looks at its rate.
const PROBE: usize = 1 << 14;

/// Bytes of all buffers.
pub(super) fn bytes(buffers: &[CpuBuffer]) -> usize {
    buffers.iter().map(|buffer| buffer.len * buffer.dtype.size()).sum()
}

/// Whether streaming may pay for this work.
pub(super) fn may_pay(work: &Work<'_>) -> bool {
    let bytes = bytes(&work.buffers);
    let writes = work.buffers.iter().any(|buffer| buffer.access == Access::Write);
    cfg!(target_arch = "x86_64") && writes && asked().map_or(bytes > last_cache(), |least| bytes >= least)
}

/// Runs the items `first..end`; the first of them through the caches, to see whether streaming pays.
pub(super) fn run(work: &Work<'_>, first: usize, end: usize) {
    let timed = if asked().is_some() { first } else { (first + work.items.of(PROBE)).min(end) };
    let start = Instant::now();
    work.run(first, timed, false);
    let nanoseconds = start.elapsed().as_nanos() as f64;
    let streams = timed == first || work.bytes(first, timed) as f64 / nanoseconds >= STREAM_RATE_MIN;
    work.run(timed, end, streams);
    if streams {
        fence();
    }
}

/// The elements of a run that fill tiles of whole lines.
#[inline(always)]
pub fn tiles<T>(run: &[T]) -> Range<usize> {
    let head = run.as_ptr().align_offset(LINE).min(run.len());
    head..head + (run.len() - head) / STREAM_LANES * STREAM_LANES
}

/// Stores a tile around the caches. It is inlined, and lines as wide as the caller is compiled for with it: the tile need not be in
/// memory.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn stream<T: Word>(to: &mut [T], from: &[T; STREAM_LANES]) {
    assert!(to.len() == STREAM_LANES && to.as_ptr().addr().is_multiple_of(LINE), "whole lines");
    let (to, from, bytes) = (to.as_mut_ptr().cast::<u8>(), from.as_ptr().cast::<u8>(), size_of_val(from));
    // SAFETY: both have these bytes, whole lines, of elements that are plain numbers, and nothing else accesses the target; the
    // processor has what it was asked for, and SSE2 is part of x86-64.
    unsafe {
        if is_x86_feature_detected!("avx512f") {
            lines_of_64(to, from, bytes);
        } else {
            lines_of_16(to, from, bytes);
        }
    }
}

/// Bytes of a line of the caches.
pub(super) const LINE: usize = 64;

macro_rules! lines {
    ($($name:ident: $feature:literal, $lane:ident, $load:ident, $store:ident;)*) => { $(
        /// Copies lines around the caches.
        ///
        /// # Safety
        ///
        /// The target is aligned to lines, both are memory of as many bytes, whole lines, and nothing else accesses the target.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        #[inline]
        unsafe fn $name(to: *mut u8, from: *const u8, bytes: usize) {
            use std::arch::x86_64::{$lane, $load, $store};
            for at in (0..bytes).step_by(size_of::<$lane>()) {
                // SAFETY: as promised by the caller.
                unsafe { $store(to.add(at).cast(), $load(from.add(at).cast())) };
            }
        }
    )* };
}

lines! {
    lines_of_16: "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128;
    lines_of_64: "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512;
}

/// Copies; there are no streaming stores to use here.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn stream<T: Word>(to: &mut [T], from: &[T; STREAM_LANES]) {
    to.copy_from_slice(from);
}

/// Makes the streamed bytes visible before whatever this thread does next.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
