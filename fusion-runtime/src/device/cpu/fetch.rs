//! Memory that is asked for before it is needed.
//!
//! A processor sees some hundred instructions ahead, which is less time than memory takes where a loop does much with each element, and
//! what guesses the next line stops at the ends of pages. On a Sapphire Rapids, 2²⁴ elements of a chain of twelve operations took 24.5 ms on
//! two threads, and 14.1 with memory asked for; gelu 4.5 and 3.0; Adam with 8 bits of state 12.3 and 8.7 for 24.6 million parameters.

use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use fusion_compiler::ir::kernel::CACHE_LINE;

use super::stream;
use crate::kernel::CpuBuffer;

/// Bytes of all buffers from which on it pays: more than the caches of a core hold.
const BYTES_MIN: usize = 8 << 20;

/// How far ahead of a run memory is asked for, in bytes.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 2048;

/// Whether loops over these buffers should ask for memory ahead.
pub(super) fn pays(buffers: &[CpuBuffer]) -> bool {
    least().is_some_and(|least| stream::bytes(buffers) >= least)
}

/// The bytes from which on it pays, as `FUSION_CPU_FETCH_BYTES` says or where it was seen to: a Zen 4 goes through rows a tenth to a
/// third slower with it.
fn least() -> Option<usize> {
    static BYTES: OnceLock<Option<usize>> = OnceLock::new();
    *BYTES.get_or_init(|| match std::env::var("FUSION_CPU_FETCH_BYTES") {
        Ok(bytes) => bytes.parse().ok(),
        Err(_) => is_intel().then_some(BYTES_MIN),
    })
}

#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    raw_cpuid::CpuId::new().get_vendor_info().is_some_and(|vendor| vendor.as_str() == "GenuineIntel")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_intel() -> bool {
    false
}

/// Asks for as many bytes as a run has, some way beyond it. They may be any: nothing is read.
#[inline(always)]
pub fn fetch<T>(run: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of_val(run)).step_by(CACHE_LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = run.as_ptr().cast::<i8>().wrapping_add(AHEAD + at);
        // SAFETY: SSE is part of x86-64, and a hint may be of any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = run;
}
