//! Prefetches: requests for memory before its use.
//!
//! A processor looks ahead a few hundred instructions. In a loop with much work per element this is less time
//! than a memory access takes. The hardware prefetcher stops at the ends of pages. Prefetching ahead pays on
//! a Sapphire Rapids, for example for a chain of twelve operations, gelu, and Adam with 8 bits of state.
//!
//! A row that is reduced before its use is read from memory in the first pass, which computes nothing. Later
//! passes read the row from a cache, while memory is idle. Later passes therefore prefetch the next row. On a
//! Zen 4 a `logsumexp` of long rows then runs almost as fast as from the caches.

use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use fusion_compiler::ir::kernel::CACHE_LINE;
#[cfg(target_arch = "x86_64")]
use fusion_compiler::target::tuning_table::cpu;
use fusion_compiler::target::tuning_table::runtime;

/// Prefetches that loops issue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prefetcher {
    ahead: bool,
    next: bool,
}

impl Prefetcher {
    /// Returns the prefetches that pay for loops over buffers of so many bytes, or those that `FUSION_CPU_FETCH_BYTES`
    /// asks for.
    ///
    /// A Zen 4 does not prefetch ahead, since its loops over rows become slower.
    pub(crate) fn of(bytes: usize) -> Prefetcher {
        static LEAST: OnceLock<(Option<usize>, usize)> = OnceLock::new();
        let (ahead, next) = *LEAST.get_or_init(|| {
            let fetch_bytes =
                std::env::var("FUSION_CPU_FETCH_BYTES").ok().map(|bytes| bytes.parse().unwrap_or(usize::MAX));
            (
                fetch_bytes.or(is_intel().then_some(runtime::PREFETCH_AHEAD_BYTES_MIN)),
                fetch_bytes.unwrap_or(runtime::PREFETCH_NEXT_BYTES_MIN),
            )
        });
        Prefetcher { ahead: ahead.is_some_and(|least| bytes >= least), next: bytes >= next }
    }

    /// Returns true if loops prefetch ahead. The loops then run in strips, and prefetch each strip at once.
    #[inline(always)]
    pub fn are_ahead(self) -> bool {
        self.ahead
    }

    /// Prefetches as many bytes as `run` has, at a fixed distance beyond it. The addresses may be invalid:
    /// nothing is read.
    #[inline(always)]
    pub fn ahead<T>(self, run: &[T]) {
        #[cfg(target_arch = "x86_64")]
        if self.ahead {
            use std::arch::x86_64::_MM_HINT_T0;
            prefetch::<_MM_HINT_T0, T>(run, runtime::PREFETCH_DISTANCE);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = run;
    }

    /// Prefetches as many bytes as `run` has, `row` elements further on. The addresses may be invalid:
    /// nothing is read.
    #[inline(always)]
    pub fn next<T>(self, run: &[T], row: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1};
            let row = row.wrapping_mul(size_of::<T>());
            if self.next && row >= cpu::NEXT_ROW_BYTES_MIN {
                if row <= runtime::PREFETCH_NEAR_ROW_MAX {
                    prefetch::<_MM_HINT_T0, T>(run, row);
                } else {
                    prefetch::<_MM_HINT_T1, T>(run, row);
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (run, row, self.next);
    }
}

#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    raw_cpuid::CpuId::new().get_vendor_info().is_some_and(|vendor| vendor.as_str() == "GenuineIntel")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_intel() -> bool {
    false
}

/// Prefetches as many bytes as `run` has, `by` bytes further on.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch<const HINT: i32, T>(run: &[T], by: usize) {
    use std::arch::x86_64::_mm_prefetch;
    for at in (0..size_of_val(run)).step_by(CACHE_LINE) {
        let line = run.as_ptr().cast::<i8>().wrapping_add(by.wrapping_add(at));
        // SAFETY: SSE is part of x86-64, and a prefetch accepts any address.
        unsafe { _mm_prefetch::<HINT>(line) };
    }
}
