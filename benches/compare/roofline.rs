//! The roofline: the memory bandwidth of loops with the same reads and writes, which compute next to nothing.
//!
//! Stores are either plain, which read a cache line before they write it, or non-temporal.

use rayon::prelude::*;

/// Number of elements that a thread takes at a time. The streams of a thread then stay within few pages.
const CHUNK: usize = 1 << 14;

/// Adds up `reads` into the written array, or adds one array to each of three.
pub(crate) fn run(reads: &[Vec<f32>], writes: &mut [Vec<f32>], around_caches: bool) -> f32 {
    let len = reads[0].len();
    let part = len.div_ceil(rayon::current_num_threads()).next_multiple_of(CHUNK);
    let mut rest: Vec<&mut [f32]> = writes.iter_mut().map(Vec::as_mut_slice).collect();
    let mut parts = Vec::new();
    for start in (0..len).step_by(part) {
        let end = len.min(start + part);
        let mine: Vec<&mut [f32]> = rest
            .iter_mut()
            .map(|write| {
                let (mine, others) = std::mem::take(write).split_at_mut(end - start);
                *write = others;
                mine
            })
            .collect();
        let from: Vec<&[f32]> = reads.iter().map(|read| &read[start..end]).collect();
        parts.push((from, mine));
    }
    if parts.len() == 1 {
        return parts.into_iter().map(|(from, to)| stream(&from, to, around_caches)).sum();
    }
    parts.into_par_iter().map(|(from, to)| stream(&from, to, around_caches)).sum()
}

fn stream(from: &[&[f32]], to: Vec<&mut [f32]>, around_caches: bool) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor reports AVX.
        return unsafe { x86::stream(from, to, around_caches) };
    }
    let _ = around_caches;
    plain(from, to)
}

/// The loop for processors without AVX.
fn plain(from: &[&[f32]], mut to: Vec<&mut [f32]>) -> f32 {
    let mut total = 0.0;
    for i in 0..from[0].len() {
        let sum: f32 = from.iter().map(|from| from[i]).sum();
        to.iter_mut().for_each(|to| to[i] = sum);
        total += sum;
    }
    total
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Runs vectors of eight elements. The rest is too short to matter.
    #[target_feature(enable = "avx")]
    pub(super) fn stream(from: &[&[f32]], to: Vec<&mut [f32]>, around_caches: bool) -> f32 {
        match (from, to.as_slice(), around_caches) {
            ([a], [], _) => read(a),
            ([_], [_], false) => each::<1, 1, false>(from, to),
            ([_], [_], true) => each::<1, 1, true>(from, to),
            ([_, _], [_], false) => each::<2, 1, false>(from, to),
            ([_, _], [_], true) => each::<2, 1, true>(from, to),
            ([_, _, _], [_], false) => each::<3, 1, false>(from, to),
            ([_, _, _], [_], true) => each::<3, 1, true>(from, to),
            ([_], [_, _, _], false) => update::<false>(from[0], to),
            ([_], [_, _, _], true) => update::<true>(from[0], to),
            _ => super::plain(from, to),
        }
    }

    /// Has the traffic of an optimizer: another array changes three arrays.
    #[target_feature(enable = "avx")]
    fn update<const AROUND: bool>(from: &[f32], mut to: Vec<&mut [f32]>) -> f32 {
        let len = from.len();
        let start = to[0].as_ptr().align_offset(32).min(len);
        // Arrays of one length usually have the same alignment within their pages.
        let alike = to.iter().all(|to| to.as_ptr().align_offset(32) == start);
        let to: [*mut f32; 3] = std::array::from_fn(|i| to[i].as_mut_ptr());
        for at in (start..start + (len - start) / 8 * 8).step_by(8) {
            // SAFETY: all arrays have this length, and `to` is aligned for non-temporal stores.
            unsafe {
                let change = _mm256_loadu_ps(from.as_ptr().add(at));
                for to in to {
                    let to = to.add(at);
                    let new = _mm256_add_ps(_mm256_loadu_ps(to), change);
                    if AROUND && alike { _mm256_stream_ps(to, new) } else { _mm256_storeu_ps(to, new) }
                }
            }
        }
        _mm_sfence();
        0.0
    }

    #[target_feature(enable = "avx")]
    fn each<const READS: usize, const WRITES: usize, const AROUND: bool>(
        from: &[&[f32]],
        mut to: Vec<&mut [f32]>,
    ) -> f32 {
        let len = from[0].len();
        // Non-temporal stores need aligned vectors.
        let start = to[0].as_ptr().align_offset(32).min(len);
        let to: [*mut f32; WRITES] = std::array::from_fn(|i| to[i].as_mut_ptr());
        let from: [*const f32; READS] = std::array::from_fn(|i| from[i].as_ptr());
        for at in (start..start + (len - start) / 8 * 8).step_by(8) {
            // SAFETY: all arrays have this length, and `to` is aligned if it has one array.
            unsafe {
                let mut sum = _mm256_loadu_ps(from[0].add(at));
                for other in &from[1..] {
                    sum = _mm256_add_ps(sum, _mm256_loadu_ps(other.add(at)));
                }
                for to in to {
                    if AROUND { _mm256_stream_ps(to.add(at), sum) } else { _mm256_storeu_ps(to.add(at), sum) }
                }
            }
        }
        _mm_sfence();
        0.0
    }

    /// Reads four places at once, each with two partial sums.
    #[target_feature(enable = "avx")]
    fn read(from: &[f32]) -> f32 {
        let part = from.len() / 4 / 16 * 16;
        let mut sums = [_mm256_setzero_ps(); 8];
        for at in (0..part).step_by(16) {
            for (i, sum) in sums.iter_mut().enumerate() {
                let at = i / 2 * part + at + i % 2 * 8;
                // SAFETY: the last of the four parts ends within the slice.
                *sum = _mm256_add_ps(*sum, unsafe { _mm256_loadu_ps(from.as_ptr().add(at)) });
            }
        }
        let mut lanes = [0.0; 8];
        let total = sums.into_iter().fold(_mm256_setzero_ps(), |a, b| _mm256_add_ps(a, b));
        // SAFETY: the array has eight elements.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), total) };
        lanes.iter().sum()
    }
}
