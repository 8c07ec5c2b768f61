//! Streaming stores: write-only results bypass the caches, so that their memory is not read first.
//!
//! A loop computes the elements of one cache line, stores the line, and continues. Reads of memory then stay
//! in order while lines are written. A tile of several lines per store is slower, since LLVM reorders the
//! reads of the tile. The line stays in registers. A processor compares only the low bits of addresses, so a
//! line in the thread's memory may alias the operands of the loop, which slows the loop down several times.
//! Only loops that gather, or that count their lanes, build a tile of several lines in such memory.
//!
//! Invariant: only buffers that the kernel never reads are streamed, and only in memory-bound kernels.

use std::sync::OnceLock;
use std::time::Instant;

use fusion_compiler::ir::graph::Access;
use fusion_compiler::target::tuning_table::runtime;

use super::launch::PreparedLaunch;
use crate::cpu_args::CpuBuffer;

/// Returns the bytes of all buffers above which kernels stream.
///
/// The limit is the size of the processor's last-level cache. A larger result would not stay in the cache for
/// its reader.
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
        largest.max().map_or(runtime::LAST_CACHE_BYTES, |largest| largest.min(runtime::LAST_CACHE_BYTES_MAX))
    })
}

/// Returns the limit that `FUSION_CPU_STREAM_BYTES` sets. With this limit kernels stream at any rate.
fn asked() -> Option<usize> {
    static BYTES: OnceLock<Option<usize>> = OnceLock::new();
    *BYTES.get_or_init(|| std::env::var("FUSION_CPU_STREAM_BYTES").ok()?.parse().ok())
}

/// Returns the bytes of all buffers.
pub(super) fn bytes(buffers: &[CpuBuffer]) -> usize {
    buffers.iter().map(|buffer| buffer.len * buffer.dtype.size()).sum()
}

/// Returns true if streaming may pay for this launch.
pub(super) fn may_pay(launch: &PreparedLaunch<'_>) -> bool {
    let bytes = bytes(&launch.buffers);
    let writes = launch.buffers.iter().any(|buffer| buffer.access == Access::Write);
    cfg!(target_arch = "x86_64") && writes && asked().map_or(bytes > last_cache(), |least| bytes >= least)
}

/// Runs the items `first..end`. The first of them use plain stores, to measure if streaming pays.
pub(super) fn run(launch: &PreparedLaunch<'_>, first: usize, end: usize) {
    let timed = if asked().is_some() {
        first
    } else {
        (first + launch.items.of(runtime::STREAM_PROBE_ELEMENTS)).min(end)
    };
    let start = Instant::now();
    launch.run(first, timed, false);
    let nanoseconds = start.elapsed().as_nanos() as f64;
    let streams =
        timed == first || launch.bytes(first, timed) as f64 / nanoseconds >= runtime::STREAM_RATE_MIN;
    launch.run(timed, end, streams);
    if streams {
        fence();
    }
}

/// Makes streamed stores visible before later operations of this thread.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
