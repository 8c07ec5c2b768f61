//! Convolutions and pools with all options, against sums in f64.

#[path = "../devices/mod.rs"]
mod devices;
mod reference;
mod statistics;

use devices::on_devices;
use fusion::prelude::*;
use fusion::{bf16, f16};
use reference::{Random, Window, check, coordinates, numbers};

fuse! {
    pub(crate) fn any(
        x: f32[N, G, C, H, W], w: f32[G, O, C, KH, KW], SH: dim, SW: dim, BH: dim, AH: dim, BW: dim, AW: dim,
        DH: dim, DW: dim
    ) -> f32[N, G, O, P, Q] {
        conv(
            x, w, C, (H, KH) -> P, (W, KW) -> Q, stride = (SH, SW), padding = ((BH, AH), (BW, AW)), dilation = (DH, DW)
        )
    }
    /// Channels are the innermost dim.
    pub(crate) fn last(
        x: f32[N, H, W, C], w: f32[KH, KW, C, O], b: f32[O], S: dim, B: dim, D: dim
    ) -> f32[N, P, Q, O] {
        relu(conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, stride = S, padding = B, dilation = D) + b)
    }
    pub(crate) fn depthwise(x: f32[N, C, H, W], w: f32[C, KH = 3, KW = 3], S: dim, B: dim) -> f32[N, C, P, Q] {
        conv(x, w, (H, KH) -> P, (W, KW) -> Q, stride = S, padding = B)
    }
    pub(crate) fn volume(x: f32[C, T, H, W], w: f32[O, C, KT, KH, KW], S: dim, B: dim) -> f32[O, R, P, Q] {
        conv(x, w, C, (T, KT) -> R, (H, KH) -> P, (W, KW) -> Q, stride = S, padding = B)
    }
    /// The gradient of a convolution by its weights.
    pub(crate) fn by_weights(
        x: f32[N, C, H, W], g: f32[N, O, P, Q], KH: dim, KW: dim, S: dim, B: dim
    ) -> f32[O, C, KH, KW] {
        sum(unfold(x, (H, KH) -> P, (W, KW) -> Q, stride = S, padding = B) * g, (N, P, Q))
    }
    pub(crate) fn same_padding(x: f32[C, T], w: f32[O, C, K], S: dim) -> f32[O, P] {
        conv(x, w, C, (T, K) -> P, stride = S, padding = same)
    }
    pub(crate) fn transposed(
        x: f32[N, C, H, W], w: f32[C, O, KH, KW], S: dim, B: dim, D: dim, M: dim
    ) -> f32[N, O, P, Q] {
        conv_transpose(x, w, C, (H, KH) -> P, (W, KW) -> Q, stride = S, padding = B, dilation = D, output_padding = M)
    }
    pub(crate) fn largest(x: f32[N, H, W], S: dim, B: dim) -> f32[N, P, Q] {
        max_pool(x, (H, 3) -> P, (W, 2) -> Q, stride = S, padding = (B, 0))
    }
    pub(crate) fn averages(x: f32[N, H, W], S: dim, B: dim) -> f32[N, P, Q] {
        avg_pool(x, (H, 3) -> P, (W, 2) -> Q, stride = S, padding = (B, 0))
    }
    pub(crate) fn halves(x: f16[C, H, W], w: bf16[O, C, KH, KW]) -> f32[O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1)
    }
    pub(crate) fn of_images(x: u8[C, H, W], w: f32[O, C, KH, KW], s: f32[C]) -> f32[O, P, Q] {
        conv(x as f32 * s, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1)
    }
    pub(crate) fn whole(x: i8[C, H, W], w: i8[O, C, KH, KW]) -> i32[O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1)
    }
    pub(crate) fn taps(x: f32[N, T], D: dim) -> f32[N, P, K] { unfold(x, (T, K = 3) -> P, padding = 1, dilation = D) }
    pub(crate) fn chain(x: f32[C, T], w: f32[E, C, K], v: f32[O, E, L]) -> f32[O, R] {
        conv(relu(conv(x, w, C, (T, K) -> S, padding = 1)), v, E, (S, L) -> R)
    }
    pub(crate) fn of_sums(a: f32[N, C], b: f32[C, T], w: f32[O, C, K]) -> f32[N, O, P] {
        conv(a + b, w, C, (T, K) -> P)
    }
    pub(crate) fn of_products(a: f32[C, T], w: f32[O, C, K]) -> f32[O, P] { conv(2.0 * a + 1.0, w, C, (T, K) -> P, padding = 1) }
    pub(crate) fn padded_too(x: f32[C, T], w: f32[O, C, K]) -> (f32[C, S], f32[O, P]) {
        let s = pad(x, T -> S, 1, 1);
        (s, conv(s, w, C, (S, K) -> P))
    }
    pub(crate) fn backwards(x: i32[C, T], w: i32[O, C], P: dim) -> i32[O, P] {
        sum(take(x, T, index(P) * -1 + 39) * w, C)
    }
    pub(crate) fn diagonals(x: i32[A, H, K], w: i32[O, K]) -> i32[O, Q] {
        sum(slice(take(x, H, index(A)), A -> Q, 1..) * w, K)
    }
    pub(crate) fn four_pads(x: f32[A, B, C, D], w: f32[O, D]) -> f32[O, E, F, G] {
        let y = pad(pad(pad(x, A -> E, 1, 1), B -> F, 1, 1), C -> G, 1, 1);
        let z = pad(y, D -> I, 1, 1);
        sum(z * pad(w, D -> I, 1, 1), I)
    }
    /// Windows move along four dims, along two of them together.
    pub(crate) fn together(x: i32[A, B, C, D], w: i32[O, K], P: dim) -> i32[O, P, R, S] {
        let y = take(unfold(x, (A, K) -> P, stride = 2), D, index(P) * 2 + index(K));
        sum(pad(pad(y, B -> R, 0, 1), C -> S, 0, 1) * w, K)
    }
    pub(crate) fn nearest(x: f32[N, H, W], P: dim, Q: dim) -> f32[N, P, Q] { resize_nearest(x, H -> P, W -> Q) }
    pub(crate) fn bilinear(x: f32[N, H, W], P: dim, Q: dim) -> f32[N, P, Q] { resize_bilinear(x, H -> P, W -> Q) }
}

#[test]
fn random_windows() {
    on_devices(|device| {
        let mut random = Random(7);
        for case in 0..24 {
            let (h, v) = (random.window(20), random.window(if case % 3 == 0 { 90 } else { 20 }));
            let [n, g, c, o] = [2, 2, 9, 40].map(|most| 1 + random.below(most));
            let (p, q) = (h.count(), v.count());
            let (x, w) = (
                numbers(case, n * g * c * h.extent * v.extent),
                numbers(case + 1, g * o * c * h.taps * v.taps),
            );
            let tensors = (
                Tensor::from_slice(device, &x, [n, g, c, h.extent, v.extent])?,
                Tensor::from_slice(device, &w, [g, o, c, h.taps, v.taps])?,
            );
            let made = any(
                &tensors.0,
                &tensors.1,
                h.stride,
                v.stride,
                h.padding.0,
                h.padding.1,
                v.padding.0,
                v.padding.1,
                h.dilation,
                v.dilation,
            )?;
            assert_eq!(made.shape()[..], [n, g, o, p, q], "{h:?} {v:?}");
            check(device, &format!("{h:?} {v:?}"), &made.to_vec()?, |i| {
                let [image, group, out, row, col] = coordinates(i, [n, g, o, p, q]);
                let mut terms = Vec::new();
                for i in 0..c * h.taps * v.taps {
                    let [channel, kh, kw] = coordinates(i, [c, h.taps, v.taps]);
                    if let (Some(y), Some(z)) = (h.element(row, kh), v.element(col, kw)) {
                        let at = (((image * g + group) * c + channel) * h.extent + y) * v.extent + z;
                        let by = (((group * o + out) * c + channel) * h.taps + kh) * v.taps + kw;
                        terms.push(f64::from(x[at]) * f64::from(w[by]));
                    }
                }
                terms
            });
        }
        Ok(())
    });
}

#[test]
fn channels_may_be_innermost() {
    on_devices(|device| {
        for (n, h, c, o, k, s, b, d) in
            [(2, 9, 5, 40, 3, 1, 1, 1), (1, 12, 33, 7, 3, 2, 1, 2), (1, 40, 3, 64, 5, 1, 2, 1)]
        {
            let window = Window { extent: h, taps: k, stride: s, padding: (b, b), dilation: d };
            let p = window.count();
            let (x, w, z) = (numbers(h, n * h * h * c), numbers(c, k * k * c * o), numbers(o, o));
            let (tx, tw) = (
                Tensor::from_slice(device, &x, [n, h, h, c])?,
                Tensor::from_slice(device, &w, [k, k, c, o])?,
            );
            let made = last(&tx, &tw, &Tensor::from_slice(device, &z, [o])?, s, b, d)?.to_vec()?;
            for (i, made) in made.into_iter().enumerate() {
                let [image, row, col, out] = coordinates(i, [n, p, p, o]);
                let mut terms = vec![f64::from(z[out])];
                for i in 0..k * k * c {
                    let [kh, kw, channel] = coordinates(i, [k, k, c]);
                    if let (Some(y), Some(v)) = (window.element(row, kh), window.element(col, kw)) {
                        let at = ((image * h + y) * h + v) * c + channel;
                        terms.push(f64::from(x[at]) * f64::from(w[i * o + out]));
                    }
                }
                let (sum, size) = terms.iter().fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                assert!(
                    (f64::from(made) - sum.max(0.0)).abs() <= 1e-6 * (size + 1e-3),
                    "{device}: {made}, {sum}"
                );
            }
        }
        Ok(())
    });
}

/// Windows move along the dims that are summed over, and their steps are dims of the result.
#[test]
fn gradients_by_weights() {
    on_devices(|device| {
        for (n, c, o, h, taps, stride, before) in
            [(2, 9, 40, 8, 3, 1, 1), (3, 33, 5, 9, 3, 2, 1), (1, 4, 33, 12, 5, 1, 2), (2, 33, 33, 6, 1, 1, 0)]
        {
            let window = Window { extent: h, taps, stride, padding: (before, before), dilation: 1 };
            let p = window.count();
            let (x, g) = (numbers(h, n * c * h * h), numbers(c, n * o * p * p));
            let tensors = (
                Tensor::from_slice(device, &x, [n, c, h, h])?,
                Tensor::from_slice(device, &g, [n, o, p, p])?,
            );
            let made = by_weights(&tensors.0, &tensors.1, taps, taps, stride, before)?.to_vec()?;
            check(device, "gradient by weights", &made, |i| {
                let [out, channel, kh, kw] = coordinates(i, [o, c, taps, taps]);
                let term = |i| {
                    let [image, row, col] = coordinates(i, [n, p, p]);
                    let (y, v) = (window.element(row, kh)?, window.element(col, kw)?);
                    let x = x[((image * c + channel) * h + y) * h + v];
                    Some(f64::from(x) * f64::from(g[((image * o + out) * p + row) * p + col]))
                };
                (0..n * p * p).filter_map(term).collect()
            });
        }
        Ok(())
    });
}

#[test]
fn groups_of_one_channel_and_three_dims() {
    on_devices(|device| {
        for (s, b) in [(1, 1), (2, 1), (1, 0), (3, 2)] {
            let window = Window { extent: 13, taps: 3, stride: s, padding: (b, b), dilation: 1 };
            let (p, c) = (window.count(), 5);
            let (x, w) = (numbers(s, 2 * c * 169), numbers(b, c * 9));
            let tensors =
                (Tensor::from_slice(device, &x, [2, c, 13, 13])?, Tensor::from_slice(device, &w, [c, 3, 3])?);
            let made = depthwise(&tensors.0, &tensors.1, s, b)?.to_vec()?;
            check(device, "depthwise", &made, |i| {
                let [plane, row, col] = coordinates(i, [2 * c, p, p]);
                let taps = (0..9).filter_map(|tap| {
                    let (y, z) = (window.element(row, tap / 3)?, window.element(col, tap % 3)?);
                    Some(f64::from(x[(plane * 13 + y) * 13 + z]) * f64::from(w[plane % c * 9 + tap]))
                });
                taps.collect()
            });
            let deep = Window { extent: 5, taps: 2, ..window };
            let (r, wide) = (deep.count(), Window { extent: 9, ..window });
            let v = wide.count();
            let (x, w) = (numbers(3, 3 * 5 * 81), numbers(4, 6 * 3 * 2 * 9));
            let tensors = (
                Tensor::from_slice(device, &x, [3, 5, 9, 9])?,
                Tensor::from_slice(device, &w, [6, 3, 2, 3, 3])?,
            );
            let made = volume(&tensors.0, &tensors.1, s, b)?.to_vec()?;
            check(device, "volume", &made, |i| {
                let [out, slice, row, col] = coordinates(i, [6, r, v, v]);
                let taps = (0..3 * 18).filter_map(|i| {
                    let [channel, kt, kh, kw] = coordinates(i, [3, 2, 3, 3]);
                    let (t, y, z) =
                        (deep.element(slice, kt)?, wide.element(row, kh)?, wide.element(col, kw)?);
                    Some(f64::from(x[((channel * 5 + t) * 9 + y) * 9 + z]) * f64::from(w[out * 54 + i]))
                });
                taps.collect()
            });
        }
        Ok(())
    });
}

#[test]
fn transposed_windows_spread_elements() {
    on_devices(|device| {
        for (h, k, s, b, d, m) in
            [(5, 3, 2, 1, 1, 1), (4, 4, 3, 0, 1, 0), (6, 3, 1, 1, 2, 0), (33, 2, 2, 0, 1, 1)]
        {
            let (c, o) = (4, 3);
            let p = (h - 1) * s + d * (k - 1) + m + 1 - 2 * b;
            let (x, w) = (numbers(h, c * h * h), numbers(k, c * o * k * k));
            let tensors = (
                Tensor::from_slice(device, &x, [1, c, h, h])?,
                Tensor::from_slice(device, &w, [c, o, k, k])?,
            );
            let made = transposed(&tensors.0, &tensors.1, s, b, d, m)?;
            assert_eq!(made.shape()[..], [1, o, p, p]);
            let mut all = vec![Vec::new(); o * p * p];
            for i in 0..c * h * h * o * k * k {
                let [channel, y, z, out, kh, kw] = coordinates(i, [c, h, h, o, k, k]);
                let place = |at: usize, tap: usize| (at * s + tap * d).checked_sub(b).filter(|&at| at < p);
                if let (Some(row), Some(col)) = (place(y, kh), place(z, kw)) {
                    let by = ((channel * o + out) * k + kh) * k + kw;
                    let term = f64::from(x[(channel * h + y) * h + z]) * f64::from(w[by]);
                    all[(out * p + row) * p + col].push(term);
                }
            }
            check(device, "transposed", &made.to_vec()?, |i| all[i].clone());
        }
        Ok(())
    });
}

#[test]
fn pools_and_taps() {
    on_devices(|device| {
        for (s, b) in [(1, 0), (2, 1), (3, 1)] {
            let tall = Window { extent: 11, taps: 3, stride: s, padding: (b, b), dilation: 1 };
            let wide = Window { extent: 8, taps: 2, padding: (0, 0), ..tall };
            let (p, q) = (tall.count(), wide.count());
            // All numbers are negative, so padding would be the largest.
            let x: Vec<f32> = numbers(s, 3 * 88).into_iter().map(|x| -x.abs() - 1.0).collect();
            let tensor = Tensor::from_slice(device, &x, [3, 11, 8])?;
            let of = |i: usize| -> Vec<f64> {
                let [plane, row, col] = coordinates(i, [3, p, q]);
                let taps = (0..6).filter_map(|tap| {
                    let (y, z) = (tall.element(row, tap / 2)?, wide.element(col, tap % 2)?);
                    Some(f64::from(x[(plane * 11 + y) * 8 + z]))
                });
                taps.collect()
            };
            for (i, made) in largest(&tensor, s, b)?.to_vec()?.into_iter().enumerate() {
                assert_eq!(
                    f64::from(made),
                    of(i).into_iter().fold(f64::NEG_INFINITY, f64::max),
                    "{device} {s} {b}"
                );
            }
            let made = averages(&tensor, s, b)?.to_vec()?;
            check(device, "averages", &made, |i| of(i).into_iter().map(|x| x / 6.0).collect());
        }
        let mut x = numbers(1, 24);
        x[5] = f32::NAN;
        let made = largest(&Tensor::from_slice(device, &x, [1, 4, 6])?, 1, 1)?.to_vec()?;
        let nans: Vec<usize> = (0..20).filter(|&i| made[i].is_nan()).collect();
        assert_eq!(nans, [4, 9], "{device}: {made:?}");
        let made = taps(&Tensor::from_slice(device, &[1.0, 2.0, 3.0, 4.0], [1, 4])?, 2)?.to_vec()?;
        assert_eq!(made, [0.0, 2.0, 4.0, 1.0, 3.0, 0.0], "{device}");
        Ok(())
    });
}

#[test]
fn same_padding_has_a_position_for_each_stride() {
    on_devices(|device| {
        for (t, k, s) in [(10usize, 3, 1), (10, 3, 2), (11, 4, 3), (5, 1, 2), (7, 6, 1)] {
            let p = t.div_ceil(s);
            let padding = ((p - 1) * s + k).saturating_sub(t);
            let window = Window {
                extent: t,
                taps: k,
                stride: s,
                padding: (padding / 2, padding - padding / 2),
                dilation: 1,
            };
            let (x, w) = (numbers(t, 3 * t), numbers(k, 4 * 3 * k));
            let made = same_padding(
                &Tensor::from_slice(device, &x, [3, t])?,
                &Tensor::from_slice(device, &w, [4, 3, k])?,
                s,
            )?;
            assert_eq!(made.shape()[..], [4, p]);
            check(device, "same", &made.to_vec()?, |i| {
                let terms = (0..3 * k).filter_map(|tap| {
                    let at = window.element(i % p, tap % k)?;
                    Some(f64::from(x[tap / k * t + at]) * f64::from(w[i / p * 3 * k + tap]))
                });
                terms.collect()
            });
        }
        Ok(())
    });
}

#[test]
fn windows_of_other_dtypes() {
    on_devices(|device| {
        let (c, h, o) = (5, 9, 34);
        let window = Window { extent: h, taps: 3, stride: 1, padding: (1, 1), dilation: 1 };
        let terms = |i: usize, x: &dyn Fn(usize) -> f64, w: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let [out, row, col] = coordinates(i, [o, h, h]);
            let taps = (0..c * 9).filter_map(|i| {
                let [channel, kh, kw] = coordinates(i, [c, 3, 3]);
                let (y, z) = (window.element(row, kh)?, window.element(col, kw)?);
                Some(x((channel * h + y) * h + z) * w(out * c * 9 + i))
            });
            taps.collect()
        };
        let (x, w) = (numbers(1, c * h * h), numbers(2, o * c * 9));
        let narrow: Vec<f16> = x.iter().copied().map(f16::from_f32).collect();
        let brief: Vec<bf16> = w.iter().copied().map(bf16::from_f32).collect();
        let made = halves(
            &Tensor::from_slice(device, &narrow, [c, h, h])?,
            &Tensor::from_slice(device, &brief, [o, c, 3, 3])?,
        )?;
        check(device, "halves", &made.to_vec()?, |i| {
            terms(i, &|at| narrow[at].to_f64(), &|at| brief[at].to_f64())
        });
        let bytes: Vec<u8> = (0..c * h * h).map(|i| (i * 37 % 256) as u8).collect();
        let s = numbers(3, c);
        let made = of_images(
            &Tensor::from_slice(device, &bytes, [c, h, h])?,
            &Tensor::from_slice(device, &w, [o, c, 3, 3])?,
            &Tensor::from_slice(device, &s, [c])?,
        )?;
        let scaled = |at: usize| f64::from(f32::from(bytes[at]) * s[at / (h * h)]);
        check(device, "images", &made.to_vec()?, |i| terms(i, &scaled, &|at| f64::from(w[at])));
        let (x, w): (Vec<i8>, Vec<i8>) = (
            (0..c * h * h).map(|i| (i * 91 % 256) as i8).collect(),
            (0..o * c * 9).map(|i| (i * 57 % 256) as i8).collect(),
        );
        let made = whole(
            &Tensor::from_slice(device, &x, [c, h, h])?,
            &Tensor::from_slice(device, &w, [o, c, 3, 3])?,
        )?;
        for (i, made) in made.to_vec()?.into_iter().enumerate() {
            let terms = terms(i, &|at| f64::from(x[at]), &|at| f64::from(w[at]));
            assert_eq!(f64::from(made), terms.iter().sum::<f64>(), "{device}");
        }
        Ok(())
    });
}

#[test]
fn windows_of_windows() {
    on_devices(|device| {
        let (c, e, o, t) = (3, 34, 33, 50);
        let (x, w, v) = (numbers(1, c * t), numbers(2, e * c * 3), numbers(3, o * e * 2));
        let made = chain(
            &Tensor::from_slice(device, &x, [c, t])?,
            &Tensor::from_slice(device, &w, [e, c, 3])?,
            &Tensor::from_slice(device, &v, [o, e, 2])?,
        )?;
        let window = Window { extent: t, taps: 3, stride: 1, padding: (1, 1), dilation: 1 };
        let inner: Vec<f64> = (0..e * t)
            .map(|i| {
                let terms = (0..c * 3).filter_map(|tap| {
                    let at = window.element(i % t, tap % 3)?;
                    Some(f64::from(x[tap / 3 * t + at]) * f64::from(w[i / t * c * 3 + tap]))
                });
                terms.sum::<f64>().max(0.0)
            })
            .collect();
        for (i, made) in made.to_vec()?.into_iter().enumerate() {
            let terms = (0..e * 2).map(|tap| {
                inner[tap / 2 * t + i % (t - 1) + tap % 2] * f64::from(v[i / (t - 1) * e * 2 + tap])
            });
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), x: f64| (sum + x, size + x.abs()));
            assert!((f64::from(made) - sum).abs() <= 2e-6 * (size + 1e-3), "{device}: {made}, {sum}");
        }
        Ok(())
    });
}

/// PyTorch 2's `interpolate` of a 3 × 4 image to 5 × 7, without `align_corners`.
#[test]
fn resized_images_have_pytorchs_positions() {
    on_devices(|device| {
        let x: Vec<f32> = (0..12).map(|i| (i * i) as f32).collect();
        let tensor = Tensor::from_slice(device, &x, [1, 3, 4])?;
        let made = nearest(&tensor, 5, 7)?.to_vec()?;
        for (i, made) in made.into_iter().enumerate() {
            assert_eq!(made, x[i / 7 * 3 / 5 * 4 + i % 7 * 4 / 7], "{device}");
        }
        let along = |at: usize, from: usize, to: usize| {
            let at = ((at as f64 + 0.5) * from as f64 / to as f64 - 0.5).max(0.0);
            let low = (at as usize).min(from - 1);
            (low, (low + 1).min(from - 1), at - low as f64)
        };
        let made = bilinear(&tensor, 5, 7)?.to_vec()?;
        for (i, made) in made.into_iter().enumerate() {
            let ((a, b, s), (c, d, t)) = (along(i / 7, 3, 5), along(i % 7, 4, 7));
            let of = |row: usize| f64::from(x[row * 4 + c]) * (1.0 - t) + f64::from(x[row * 4 + d]) * t;
            let expected = of(a) * (1.0 - s) + of(b) * s;
            assert!((f64::from(made) - expected).abs() < 1e-4, "{device}: {made}, {expected}");
        }
        Ok(())
    });
}

#[test]
fn windows_that_do_not_fit_are_refused() {
    let device = Device::cpu();
    let tensor = |shape: [usize; 3]| Tensor::full(&device, 1.0, shape);
    let error = same_padding(
        &Tensor::full(&device, 1.0, [3, 4]).expect("memory"),
        &tensor([2, 3, 9]).expect("memory"),
        1,
    );
    assert!(error.is_ok(), "`same` pads as much as the window needs");
    let x = Tensor::full(&device, 1.0, [3, 2, 2]).expect("memory");
    let error = largest(&x, 1, 0).expect_err("the window has three rows").to_string();
    assert_eq!(
        error,
        "`largest`: the window of `max_pool` covers 3 elements of `H`, which has 2 with its padding; `H` of 3 would fit"
    );
}

/// Elements of tensors that are computed or stored before, and of index operations that are no windows.
#[test]
fn windows_of_other_values() {
    on_devices(|device| {
        // Sums of fewer than eight terms take no tiles.
        let (n, c, t, o) = (3, 9, 40, 36);
        let (a, b, w) = (numbers(1, n * c), numbers(2, c * t), numbers(3, o * c * 3));
        let tensor = |values: &[f32], shape: &[usize]| Tensor::from_slice(device, values, shape.to_vec());
        let (y, x, weights) = (tensor(&a, &[n, c])?, tensor(&b, &[c, t])?, tensor(&w, &[o, c, 3])?);
        let element = |at: usize| f64::from(b[at]);
        let made = of_sums(&y, &x, &weights)?.to_vec()?;
        check(device, "sums", &made, |i| {
            let [image, out, at] = coordinates(i, [n, o, t - 2]);
            let terms = (0..c * 3).map(|tap| {
                let channel = tap / 3;
                let sum = f64::from(a[image * c + channel] + b[channel * t + at + tap % 3]);
                sum * f64::from(w[out * c * 3 + tap])
            });
            terms.collect()
        });
        let window = Window { extent: t, taps: 3, stride: 1, padding: (1, 1), dilation: 1 };
        let terms = |i: usize, of: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let terms = (0..c * 3).filter_map(|tap| {
                let at = window.element(i % t, tap % 3)?;
                Some(of(tap / 3 * t + at) * f64::from(w[i / t * c * 3 + tap]))
            });
            terms.collect()
        };
        let made = of_products(&x, &weights)?.to_vec()?;
        check(device, "products", &made, |i| terms(i, &|at| 2.0 * element(at) + 1.0));
        let (padded, made) = padded_too(&x, &weights)?;
        assert_eq!(padded.to_vec()?[1..=t], b[..t]);
        check(device, "padded", &made.to_vec()?, |i| terms(i, &element));
        let whole = |count: usize| (0..count).map(|i| (i * 37 % 101) as i32 - 50).collect::<Vec<i32>>();
        let (x, w) = (whole(c * t), whole(o * c));
        let made =
            backwards(&Tensor::from_slice(device, &x, [c, t])?, &Tensor::from_slice(device, &w, [o, c])?, t)?;
        for (i, made) in made.to_vec()?.into_iter().enumerate() {
            let sum: i32 =
                (0..c).map(|channel| x[channel * t + t - 1 - i % t] * w[i / t * c + channel]).sum();
            assert_eq!(made, sum, "{device}");
        }
        let (side, k) = (37, 12);
        let (x, w) = (whole(side * side * k), whole(o * k));
        let made = diagonals(
            &Tensor::from_slice(device, &x, [side, side, k])?,
            &Tensor::from_slice(device, &w, [o, k])?,
        )?;
        for (i, made) in made.to_vec()?.into_iter().enumerate() {
            let at = i % (side - 1) + 1;
            let sum: i32 = (0..k).map(|l| x[(at * side + at) * k + l] * w[i / (side - 1) * k + l]).sum();
            assert_eq!(made, sum, "{device}");
        }
        let (x, w) = (numbers(5, 4 * 5 * 6 * 7), numbers(6, o * 7));
        let made = four_pads(&tensor(&x, &[4, 5, 6, 7])?, &tensor(&w, &[o, 7])?)?.to_vec()?;
        check(device, "four pads", &made, |i| {
            let [out, a, b, c] = coordinates(i, [o, 6, 7, 8]);
            let inside = (1..=4).contains(&a) && (1..=5).contains(&b) && (1..=6).contains(&c);
            let at = |d: usize| (((a - 1) * 5 + b - 1) * 6 + c - 1) * 7 + d;
            let terms = (0..7).filter(|_| inside).map(|d| f64::from(x[at(d)]) * f64::from(w[out * 7 + d]));
            terms.collect()
        });
        Ok(())
    });
}

#[test]
fn windows_along_two_dims_together() {
    on_devices(|device| {
        let ([a, b, c, d], [o, k, p]) = ([15, 6, 6, 20], [40, 9, 4]);
        let whole = |seed, count| numbers(seed, count).iter().map(|x| (x * 9.0) as i32).collect::<Vec<i32>>();
        let (x, w) = (whole(1, a * b * c * d), whole(2, o * k));
        let tensors =
            (Tensor::from_slice(device, &x, [a, b, c, d])?, Tensor::from_slice(device, &w, [o, k])?);
        let made = together(&tensors.0, &tensors.1, p)?.to_vec()?;
        for (i, made) in made.into_iter().enumerate() {
            let [out, at, row, col] = coordinates(i, [o, p, b + 1, c + 1]);
            let term = |k: usize| x[(((2 * at + k) * b + row) * c + col) * d + 2 * at + k] * w[out * 9 + k];
            let sum: i32 = if row < b && col < c { (0..k).map(term).sum() } else { 0 };
            assert_eq!(made, sum, "{device} {i}");
        }
        Ok(())
    });
}

#[test]
fn options_of_calls_are_checked() {
    let x = Tensor::full(&Device::cpu(), 1.0, [1, 4]).expect("memory");
    let error = taps(&x, 0).expect_err("a dilation of 0").to_string();
    assert_eq!(error, "`taps`: the `dilation` of `unfold` is 0, and is at least 1");
}
