//! Streaming stores: what a kernel only writes goes around the caches to memory, so that it need not be read first.
//!
//! A loop makes as many elements as are a line of a cache, stores it so, and goes on: memory is read in its order, and written
//! meanwhile. 2²⁴ elements of `relu(a + b) * c` took 7.7 ms so, and 8.5 where four lines were made and then stored, of which LLVM read
//! the third first. The line is in registers: in memory of the thread it may lie where a processor takes it for what the loop reads,
//! since that compares the low bits of addresses alone; one process in thirty then took two to five times as long. Only loops that
//! gather or count their lanes make a tile of several lines in such memory. Invariant: only buffers that the kernel never reads are
//! written so, and only where memory is what it waits for.

use std::ops::Range;
use std::sync::OnceLock;
use std::time::Instant;

use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::kernel::{CACHE_LINE, STREAM_LANES};

use super::launch::Work;
use crate::kernel::CpuBuffer;

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
        let largest = std::iter::empty::<usize>();
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

/// A tile until it is stored, in lines of its own: where its loop leaves it in memory, as one does that reads every eighth element, and
/// the stack begins so that a vector of it lies in two pages, as in three processes of 64, 2²¹ sums of eight took 5.3 ms for 2.0.
#[derive(Debug)]
#[repr(align(64))]
pub struct Lines<T>(pub T);

/// The elements of a run that fill tiles of whole lines.
#[inline(always)]
pub fn tiles<T>(run: &[T]) -> Range<usize> {
    let head = run.as_ptr().align_offset(CACHE_LINE).min(run.len());
    head..head + (run.len() - head) / STREAM_LANES * STREAM_LANES
}

/// Makes the streamed bytes visible before whatever this thread does next.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
