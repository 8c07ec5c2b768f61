//! Renamed values on every device: nested stencils, pairs, rows of pairs, and updates in place.

use fusion::prelude::*;

use crate::devices::on_devices;
use crate::{numbers, same};

fuse! {
    fn at_edge(x, D: dim, k) { take(rename(x, D -> S), S, clamp(index(D) + k, 0, D - 1)) }
    fn blur(x, D: dim) { 0.25 * at_edge(x, D, -1) + 0.5 * x + 0.25 * at_edge(x, D, 1) }
    pub(crate) fn blurred(x: f32[H, W]) -> f32[H, W] { blur(blur(blur(blur(x, H), W), H), W) }
    fn plain_edge(x, D: dim, k) { take(x, D, clamp(index(D) + k, 0, D - 1)) }
    fn plain_blur(x, D: dim) { 0.25 * plain_edge(x, D, -1) + 0.5 * x + 0.25 * plain_edge(x, D, 1) }
    pub(crate) fn plainly_blurred(x: f32[H, W]) -> f32[H, W] {
        plain_blur(plain_blur(plain_blur(plain_blur(x, H), W), H), W)
    }
    /// A renamed value is not stored as a value of its own.
    fn inner_edge(x, D: dim, k) { take(rename(exp(x), D -> S) + index(S) as f32, S, clamp(index(D) + k, 0, D - 1)) }
    pub(crate) fn of_inner(x: f32[H, W]) -> f32[H, W] { inner_edge(0.25 * inner_edge(x, H, -1), W, 1) - x }
}

fuse! {
    pub(crate) fn between_rows(x: f32[N, D]) -> f32[N, M] { sqrt(sum(square(x - rename(x, N -> M)), D)) }
    /// A costly value is stored, and read at both places.
    pub(crate) fn between_costly(x: f32[N, D]) -> f32[N, M] {
        let y = softmax(x, D) * exp(sin(x)) + tanh(x) * log1p(exp(x));
        sum(abs(y - rename(y, N -> M)), D)
    }
    /// Pairs of a reduced value, which is a result, too.
    pub(crate) fn between_norms(x: f32[N, D]) -> (f32[N, M], f32[N]) {
        let n = norm(x, D);
        (n * rename(n, N -> M), n)
    }
    /// Three names of one tensor, and a sum along one of them.
    pub(crate) fn triples(x: f32[N]) -> f32[N, M] {
        sum(x * rename(x, N -> M) * rename(x, N -> K), K) - flip(rename(x, N -> M), M)
    }
    /// Renames to a dim that an inner reduction has used.
    pub(crate) fn along_inside(x: f32[N, M = 4]) -> f32[M, L] {
        let s = at(x, N, 0) + sum(rename(at(x, N, 0), M -> L), L);
        s * rename(s, M -> L)
    }
    /// Renames to dims of other tensors, one of which the value is summed along.
    pub(crate) fn onto_known(x: f32[N, D], w: f32[D, E]) -> f32[N, D] { x + rename(sum(x * w, D), E -> D) }
    pub(crate) fn known_pairs(x: f32[T], y: f32[S]) -> f32[T, S] { y - rename(x, T -> S) + x }
    pub(crate) fn onto_fixed(x: f32[T]) -> f32[S = 3] { 2.0 * rename(x, T -> S) }
    pub(crate) fn of_square(x: f32[N, D], w: f32[E, D]) -> f32[N, D] { x + sum(rename(x, D -> E) * w, E) }
    fn attention(x, T: dim, D: dim) {
        let keys = rename(x, T -> S);
        sum(softmax(sum(x * keys, D) * rsqrt(D), S) * keys, S)
    }
    pub(crate) fn layers(x: f32[T, D]) -> f32[T, D] {
        let y = x + attention(x, T, D);
        y + attention(y, T, D)
    }
    fn evens(x, D: dim) { at(split(x, D -> (Half, P = 2)), P, 0) }
    fn after_first(x, D: dim) { slice(x, D -> Rest, 1..) }
    /// The dims of the results are the templates'.
    pub(crate) fn parts(x: f32[N, D]) -> (f32[Half, N], f32[N, Rest], f32[N]) {
        let even = evens(x, D);
        (even + evens(2.0 * x, D), after_first(x, D), sum(even, Half))
    }
    pub(crate) fn smoothed(p: &mut f32[N, D]) { p = 0.5 * (p + at_place(p, N)); }
    fn at_place(x, N: dim) { take(rename(x, N -> M), M, (index(N) + 1) % N) }
    pub(crate) fn drawn_together(p: &mut f32[N]) { p += 0.1 * mean(rename(p, N -> M) - p, M); }
}

/// Blurs along both dims, as the functions do.
fn blur(x: &[f64], (h, w): (usize, usize)) -> Vec<f64> {
    let along = |x: &[f64], place: &dyn Fn(usize, usize, i64) -> usize| -> Vec<f64> {
        let at = |i: usize, k: i64| x[place(i / w, i % w, k)];
        (0..h * w).map(|i| 0.25 * at(i, -1) + 0.5 * at(i, 0) + 0.25 * at(i, 1)).collect()
    };
    let clamped = |i: usize, k: i64, n: usize| (i as i64 + k).clamp(0, n as i64 - 1) as usize;
    let rows = along(x, &|i, j, k| clamped(i, k, h) * w + j);
    along(&rows, &|i, j, k| i * w + clamped(j, k, w))
}

#[track_caller]
fn near(got: &[f32], expected: &[f64], bound: f64, what: &str) {
    let is = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() <= bound * (1.0 + b.abs());
    assert!(
        got.len() == expected.len() && got.iter().zip(expected).all(is),
        "{what}: {got:?}, not {expected:?}"
    );
}

/// Returns numbers between -1 and 1.
fn wide(count: usize) -> Vec<f32> {
    numbers(count).iter().map(|x| x / 12.0).collect()
}

fn exact(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

#[test]
fn nests_of_stencils() {
    on_devices(|device| {
        for (h, w) in [(1, 1), (2, 3), (7, 5), (16, 33), (3, 260)] {
            let (a, what) = (wide(h * w), format!("{device}: {h}x{w}"));
            let x = Tensor::from_slice(device, &a, [h, w])?;
            let got = blurred(&x)?.to_vec()?;
            let once = blur(&exact(&a), (h, w));
            near(&got, &blur(&once, (h, w)), 1e-6, &what);
            same(&got, &plainly_blurred(&x)?.to_vec()?, &what);
            let inner = |x: &[f64], along: bool, k: i64| -> Vec<f64> {
                let place = |i: usize| match along {
                    false => ((i / w) as i64 + k).clamp(0, h as i64 - 1) as usize,
                    true => ((i % w) as i64 + k).clamp(0, w as i64 - 1) as usize,
                };
                let from = |i: usize| if along { i / w * w + place(i) } else { place(i) * w + i % w };
                (0..h * w).map(|i| x[from(i)].exp() + place(i) as f64).collect()
            };
            let first: Vec<f64> = inner(&exact(&a), false, -1).iter().map(|x| 0.25 * x).collect();
            let both = inner(&first, true, 1);
            let expected: Vec<f64> = both.iter().zip(exact(&a)).map(|(y, x)| y - x).collect();
            near(&of_inner(&x)?.to_vec()?, &expected, 1e-5, &what);
        }
        Ok(())
    });
}

#[test]
fn pairs() {
    on_devices(|device| {
        for (n, d) in [(1, 1), (3, 5), (6, 33), (5, 260)] {
            let (a, what) = (wide(n * d), format!("{device}: {n}x{d}"));
            let x = Tensor::from_slice(device, &a, [n, d])?;
            let at = |i: usize, k: usize| f64::from(a[i * d + k]);
            let pairs = |of: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
                (0..n * n).map(|i| of(i / n, i % n)).collect()
            };
            let squares = |i, j| (0..d).map(|k| (at(i, k) - at(j, k)).powi(2)).sum::<f64>();
            near(&between_rows(&x)?.to_vec()?, &pairs(&|i, j| squares(i, j).sqrt()), 1e-5, &what);
            let costly = |i: usize, k: usize| {
                let all: f64 = (0..d).map(|k| at(i, k).exp()).sum();
                let x = at(i, k);
                x.exp() / all * x.sin().exp() + x.tanh() * x.exp().ln_1p()
            };
            let apart = |i, j| (0..d).map(|k| (costly(i, k) - costly(j, k)).abs()).sum::<f64>();
            near(&between_costly(&x)?.to_vec()?, &pairs(&apart), 1e-4, &what);
            let norm = |i: usize| (0..d).map(|k| at(i, k).powi(2)).sum::<f64>().sqrt();
            let (products, norms) = between_norms(&x)?;
            near(&products.to_vec()?, &pairs(&|i, j| norm(i) * norm(j)), 1e-5, &what);
            near(&norms.to_vec()?, &(0..n).map(norm).collect::<Vec<_>>(), 1e-5, &what);
            let line = Tensor::from_slice(device, &a[..n], [n])?;
            let of = |i: usize| f64::from(a[i]);
            let sum: f64 = (0..n).map(of).sum();
            let expected = pairs(&|i, j| of(i) * of(j) * sum - of(n - 1 - j));
            near(&triples(&line)?.to_vec()?, &expected, 1e-5, &what);
        }
        let a = wide(12);
        let x = Tensor::from_slice(device, &a, [3, 4])?;
        let sum: f64 = exact(&a[..4]).iter().sum();
        let s = |i: usize| f64::from(a[i]) + sum;
        let expected: Vec<f64> = (0..16).map(|i| s(i / 4) * s(i % 4)).collect();
        near(&along_inside(&x)?.to_vec()?, &expected, 1e-5, &format!("{device}"));
        Ok(())
    });
}

/// Values along dims that other tensors have, too.
#[test]
fn known_dims() {
    on_devices(|device| {
        for (n, d) in [(1, 1), (3, 5), (6, 33)] {
            let (a, b, what) = (wide(n * d), wide(d * d), format!("{device}: {n}x{d}"));
            let (x, w) = (Tensor::from_slice(device, &a, [n, d])?, Tensor::from_slice(device, &b, [d, d])?);
            let product = |i: usize| -> f64 {
                (0..d).map(|k| f64::from(a[i / d * d + k]) * f64::from(b[k * d + i % d])).sum()
            };
            let expected: Vec<f64> = (0..n * d).map(|i| f64::from(a[i]) + product(i)).collect();
            near(&onto_known(&x, &w)?.to_vec()?, &expected, 1e-5, &what);
            near(&of_square(&x, &w)?.to_vec()?, &expected, 1e-5, &what);
            let (x, y) =
                (Tensor::from_slice(device, &a[..d], [d])?, Tensor::from_slice(device, &b[..d], [d])?);
            let of = |i: usize| f64::from(b[i % d]) - f64::from(a[i % d]) + f64::from(a[i / d]);
            let expected: Vec<f64> = (0..d * d).map(of).collect();
            near(&known_pairs(&x, &y)?.to_vec()?, &expected, 1e-6, &what);
        }
        let x = Tensor::from_slice(device, &[1.0, 2.0, 3.0], [3])?;
        same(&onto_fixed(&x)?.to_vec()?, &[2.0, 4.0, 6.0], &device.to_string());
        Ok(())
    });
}

#[test]
fn layers_of_attention() {
    on_devices(|device| {
        for (t, d) in [(1, 1), (5, 4), (9, 33), (40, 8)] {
            let a = wide(t * d);
            let x = Tensor::from_slice(device, &a, [t, d])?;
            let attention = |x: &[f64]| -> Vec<f64> {
                let mut all = vec![];
                for i in 0..t {
                    let score = |j: usize| {
                        let product: f64 = (0..d).map(|k| x[i * d + k] * x[j * d + k]).sum();
                        (product / (d as f64).sqrt()).exp()
                    };
                    let total: f64 = (0..t).map(score).sum();
                    let mixed = |k: usize| (0..t).map(|j| score(j) * x[j * d + k]).sum::<f64>() / total;
                    all.extend((0..d).map(mixed));
                }
                all
            };
            let layer = |x: &[f64]| -> Vec<f64> { x.iter().zip(attention(x)).map(|(x, y)| x + y).collect() };
            let expected = layer(&layer(&exact(&a)));
            near(&layers(&x)?.to_vec()?, &expected, 1e-5, &format!("{device}: {t}x{d}"));
        }
        Ok(())
    });
}

/// A tensor that is read at other places is read before it is overwritten.
#[test]
fn in_place() {
    on_devices(|device| {
        for (n, d) in [(1, 1), (2, 3), (70, 33), (300, 7)] {
            let (a, what) = (wide(n * d), format!("{device}: {n}x{d}"));
            let mut p = Tensor::from_slice(device, &a, [n, d])?;
            smoothed(&mut p)?;
            let next = |i: usize| f64::from(a[(i + d) % (n * d)]);
            let expected: Vec<f64> = (0..n * d).map(|i| 0.5 * (f64::from(a[i]) + next(i))).collect();
            near(&p.to_vec()?, &expected, 1e-6, &what);
            let mut p = Tensor::from_slice(device, &a, [n * d])?;
            drawn_together(&mut p)?;
            let mean = exact(&a).iter().sum::<f64>() / (n * d) as f64;
            let expected: Vec<f64> = exact(&a).iter().map(|x| x + 0.1 * (mean - x)).collect();
            near(&p.to_vec()?, &expected, 1e-5, &what);
        }
        Ok(())
    });
}

/// A dim that a template makes is one of its caller's results.
#[test]
fn dims_of_templates() {
    on_devices(|device| {
        for (n, d) in [(1, 2), (3, 8), (5, 70)] {
            let (a, what) = (wide(n * d), format!("{device}: {n}x{d}"));
            let (evens, rest, sums) = parts(&Tensor::from_slice(device, &a, [n, d])?)?;
            assert_eq!(
                (evens.shape().dims(), rest.shape().dims()),
                (&[d / 2, n][..], &[n, d - 1][..]),
                "{what}"
            );
            let even = |row: usize, i: usize| f64::from(a[row * d + 2 * i]);
            let expected: Vec<f64> = (0..n * d / 2).map(|i| 3.0 * even(i % n, i / n)).collect();
            near(&evens.to_vec()?, &expected, 1e-6, &what);
            let expected: Vec<f32> = a.chunks(d).flat_map(|row| &row[1..]).copied().collect();
            same(&rest.to_vec()?, &expected, &what);
            let expected: Vec<f64> = (0..n).map(|row| (0..d / 2).map(|i| even(row, i)).sum()).collect();
            near(&sums.to_vec()?, &expected, 1e-5, &what);
        }
        Ok(())
    });
}
