//! Handwritten competitors: a fused loop per workload, vectorised for the processor at hand, on chunks that
//! threads share.
//!
//! The `…_around` functions use non-temporal stores. `chunks_around` writes tiles that stay in the
//! first-level cache.

use rayon::prelude::*;

/// Number of elements that a thread takes at a time.
pub(crate) const CHUNK: usize = 1 << 14;

/// Number of elements of a tile.
const TILE: usize = 1 << 11;

/// Functions compiled for the vectors of the processor at hand, independent of the program's target.
macro_rules! vectors {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $result:ty)? $body:block)*) => { $(
        pub(crate) fn $name($($arg: $ty),*) $(-> $result)? {
            #[inline(always)]
            fn of($($arg: $ty),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
                fn wide($($arg: $ty),*) $(-> $result)? { of($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn narrow($($arg: $ty),*) $(-> $result)? { of($($arg),*) }
                if is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl") {
                    // SAFETY: processors with these extensions have the other ones too.
                    return unsafe { wide($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor reports both extensions.
                    return unsafe { narrow($($arg),*) };
                }
            }
            of($($arg),*)
        }
    )* };
}

vectors! {
    fn gate(out: &mut [f32], a: &[f32], b: &[f32], c: &[f32]) {
        for (((out, a), b), c) in out.iter_mut().zip(a).zip(b).zip(c) {
            *out = (a + b).max(0.0) * c;
        }
    }

    fn chain(out: &mut [f32], x: &[f32], y: &[f32]) {
        for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
            let t = tanh(x.mul_add(0.5, *y));
            let s = t.mul_add(t, 1.0).sqrt();
            *out = tanh(exp(-s).mul_add(*y, *x)) * s;
        }
    }

    fn gelu(out: &mut [f32], x: &[f32]) {
        for (out, x) in out.iter_mut().zip(x) {
            *out = 0.5 * x * (1.0 + tanh(0.797_884_6 * (x + 0.044_715 * x * x * x)));
        }
    }

    fn swiglu(out: &mut [f32], x: &[f32], y: &[f32]) {
        for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
            *out = x / (1.0 + exp(-x)) * y;
        }
    }

    fn softmax(out: &mut [f32], x: &[f32]) {
        let most = most(x);
        for (out, x) in out.iter_mut().zip(x) {
            *out = exp(x - most);
        }
        let scale = 1.0 / sum(out, |y| y);
        out.iter_mut().for_each(|y| *y *= scale);
    }

    fn layer_norm(out: &mut [f32], x: &[f32], gamma: &[f32], beta: &[f32]) {
        let mean = sum(x, |x| x) / x.len() as f32;
        let variance = sum(x, |x| (x - mean) * (x - mean)) / x.len() as f32;
        let scale = 1.0 / (variance + 1e-5).sqrt();
        for (((out, x), gamma), beta) in out.iter_mut().zip(x).zip(gamma).zip(beta) {
            *out = ((x - mean) * scale).mul_add(*gamma, *beta);
        }
    }

    fn rms_norm(out: &mut [f32], x: &[f32], gamma: &[f32]) {
        let scale = 1.0 / (sum(x, |x| x * x) / x.len() as f32 + 1e-5).sqrt();
        for ((out, x), gamma) in out.iter_mut().zip(x).zip(gamma) {
            *out = x * scale * gamma;
        }
    }

    fn cross_entropy(x: &[f32], class: usize) -> f32 {
        let most = most(x);
        sum(x, |x| exp(x - most)).ln() + most - x[class]
    }

    fn sum_of_squares(x: &[f32]) -> f32 {
        sum(x, |x| x * x)
    }

    fn sums_of_8(out: &mut [f32], rows: &[[f32; 8]]) {
        for (out, [a, b, c, d, e, f, g, h]) in out.iter_mut().zip(rows) {
            *out = ((a + e) + (c + g)) + ((b + f) + (d + h));
        }
    }

    fn adamw(p: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32], corrections: [f32; 2]) {
        let [rate, c2] = corrections;
        for (((p, m), v), g) in p.iter_mut().zip(m).zip(v).zip(g) {
            *m = (g - *m).mul_add(0.1, *m);
            *v = (g * g - *v).mul_add(0.001, *v);
            *p = *p * (1.0 - 1e-3 * 0.01) - rate * (*m / ((*v * c2).sqrt() + 1e-8));
        }
    }
}

/// Calls `f` with chunks of the result and their start offsets, on all threads.
pub(crate) fn chunks(out: &mut [f32], chunk: usize, f: impl Fn(&mut [f32], usize) + Sync) {
    if rayon::current_num_threads() == 1 || out.len() <= chunk {
        out.chunks_mut(chunk).enumerate().for_each(|(i, out)| f(out, i * chunk));
    } else {
        out.par_chunks_mut(chunk).enumerate().for_each(|(i, out)| f(out, i * chunk));
    }
}

/// Calls `f` like `chunks`, on tiles that are then written with non-temporal stores.
pub(crate) fn chunks_around(
    out: &mut [f32],
    chunk: usize,
    tile: usize,
    f: impl Fn(&mut [f32], usize) + Sync,
) {
    let tile = if tile == 0 { TILE } else { tile };
    chunks(out, chunk.next_multiple_of(tile), |out, start| {
        let mut computed = vec![0.0; tile];
        for (i, out) in out.chunks_mut(tile).enumerate() {
            let computed = &mut computed[..out.len()];
            f(computed, start + i * tile);
            store_around(out, computed);
        }
    });
}

/// Copies with non-temporal stores.
fn store_around(out: &mut [f32], from: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor reports AVX.
        return unsafe { store_lines(out, from) };
    }
    out.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn store_lines(out: &mut [f32], from: &[f32]) {
    use std::arch::x86_64::*;
    let start = out.as_ptr().align_offset(32).min(out.len());
    let end = start + (out.len() - start) / 8 * 8;
    out[..start].copy_from_slice(&from[..start]);
    for at in (start..end).step_by(8) {
        // SAFETY: both slices have eight elements from `at` on, and the target is aligned.
        unsafe { _mm256_stream_ps(out.as_mut_ptr().add(at), _mm256_loadu_ps(from.as_ptr().add(at))) };
    }
    out[end..].copy_from_slice(&from[end..]);
    _mm_sfence();
}

/// Computes `relu(a + b) * c`, with a non-temporal store per vector.
pub(crate) fn gate_around(out: &mut [f32], a: &[f32], b: &[f32], c: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor reports AVX.
        return unsafe { gate_lines(out, a, b, c) };
    }
    gate(out, a, b, c);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn gate_lines(out: &mut [f32], a: &[f32], b: &[f32], c: &[f32]) {
    use std::arch::x86_64::*;
    let len = out.len();
    assert!([a, b, c].iter().all(|x| x.len() == len), "all are of this length");
    let start = out.as_ptr().align_offset(32).min(len);
    let end = start + (len - start) / 8 * 8;
    for rest in [0..start, end..len] {
        gate(&mut out[rest.clone()], &a[rest.clone()], &b[rest.clone()], &c[rest]);
    }
    for at in (start..end).step_by(8) {
        // SAFETY: all slices have eight elements from `at` on, and the target is aligned.
        unsafe {
            let [a, b, c] = [a, b, c].map(|x| _mm256_loadu_ps(x.as_ptr().add(at)));
            let open = _mm256_max_ps(_mm256_add_ps(a, b), _mm256_setzero_ps());
            _mm256_stream_ps(out.as_mut_ptr().add(at), _mm256_mul_ps(open, c));
        }
    }
    _mm_sfence();
}

/// Sums with enough partial sums to keep the adders busy.
#[inline(always)]
fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0f32; 64];
    let lines = x.chunks_exact(64);
    let rest: f32 = lines.remainder().iter().map(|&x| f(x)).sum();
    for line in lines {
        sums.iter_mut().zip(line).for_each(|(sum, &x)| *sum += f(x));
    }
    sums.iter().sum::<f32>() + rest
}

#[inline(always)]
fn most(x: &[f32]) -> f32 {
    let mut largest = [f32::NEG_INFINITY; 64];
    let lines = x.chunks_exact(64);
    let rest = lines.remainder().iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for line in lines {
        largest.iter_mut().zip(line).for_each(|(most, &x)| *most = if x > *most { x } else { *most });
    }
    largest.iter().copied().fold(rest, f32::max)
}

/// Computes the exponential without branches, by Taylor's series around the nearest multiple of ln 2.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    let rounded = x.mul_add(std::f32::consts::LOG2_E, 12_582_912.0);
    let n = rounded - 12_582_912.0;
    let r = n.mul_add(-0.693_145_75, x);
    let r = n.mul_add(-1.428_606_8e-6, r);
    let p = r.mul_add(1.0 / 720.0, 1.0 / 120.0);
    let p = p.mul_add(r, 1.0 / 24.0).mul_add(r, 1.0 / 6.0).mul_add(r, 0.5).mul_add(r, 1.0).mul_add(r, 1.0);
    p * f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23))
}

/// Computes the hyperbolic tangent, with an absolute error of about 2⁻²².
#[inline(always)]
fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x.clamp(-9.0, 9.0)) + 1.0)
}
