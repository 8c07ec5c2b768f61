//! Contractions agree with sums in f64, for operands of every layout and with every kind of epilogue, on every
//! device.

mod devices;

use devices::{exact_devices, on_devices};
use fusion::prelude::*;
use fusion::{Report, bf16, f16};

fuse! {
    pub(crate) fn nn(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { sum(x * w, K) }
    pub(crate) fn nt(x: f32[M, K], w: f32[N, K]) -> f32[M, N] { sum(x * w, K) }
    pub(crate) fn tn(x: f32[K, M], w: f32[K, N]) -> f32[M, N] { sum(x * w, K) }
    pub(crate) fn tt(x: f32[K, M], w: f32[N, K]) -> f32[M, N] { sum(x * w, K) }
    pub(crate) fn transposed(x: f32[M, K], w: f32[K, N]) -> f32[N, M] { sum(x * w, K) }
    pub(crate) fn doubles(x: f64[M, K], w: f64[N, K]) -> f64[M, N] { sum(x * w, K) }
    pub(crate) fn halves(x: f16[M, K], w: f16[N, K]) -> f16[M, N] { sum(x as f32 * w as f32, K) as f16 }
    pub(crate) fn mixed(x: bf16[M, K], w: f32[K, N]) -> f32[M, N] { sum(x as f32 * w, K) }
    pub(crate) fn heads(q: f32[B, H, T, C], k: f32[B, H, S, C]) -> f32[B, H, T, S] { sum(q * k, C) * 0.125 }
    pub(crate) fn grouped(q: f32[B, H, G, T, C], k: f32[B, H, S, C]) -> f32[B, H, G, T, S] { sum(q * k, C) }
    pub(crate) fn values(p: f32[B, T, H, S], v: f32[B, S, H, C]) -> f32[B, T, H, C] { sum(p * v, S) }
    pub(crate) fn by_two(x: f32[M, J, L, K], w: f32[J, K, N]) -> f32[L, M, N] { sum(x * w, (J, K)) }
    pub(crate) fn outer_columns(x: f32[M, K], w: f32[P, K, N]) -> f32[P, M, N] { sum(x * w, K) }
    pub(crate) fn two_columns(x: f32[M, K], w: f32[K, P, Q], b: f32[Q]) -> f32[M, P, Q] { sum(x * w, K) + b }
    pub(crate) fn biased(x: f32[M, K], w: f32[N, K], b: f32[N], s: f32[M]) -> f32[M, N] {
        tanh(sum(x * w, K) * s + b)
    }
    pub(crate) fn residual(x: f32[M, K], w: f32[K, N], r: f32[N, M]) -> (f32[M, N], f16[M, N]) {
        let y = sum(x * w, K);
        (y, (y + r) as f16)
    }
    pub(crate) fn added(y: &mut f32[M, N], x: f32[M, K], w: f32[K, N], a: f32) { y += a * sum(x * w, K); }
    pub(crate) fn scaled(x: f32[M, K], s: f32[M], w: u8[N, K], z: f32[N]) -> f32[M, N] {
        sum((x * s) * (w as f32 - z), K)
    }
    pub(crate) fn looked_up(table: f32[V, K], ids: i32[M], w: f32[K, N]) -> f32[M, N] {
        sum(take(table, V, ids) * w, K)
    }
    pub(crate) fn squared(x: f32[M, K]) -> f32[M, N] { sum(x * rename(x, M -> N), K) }
    pub(crate) fn distances(x: f32[M, K], s: f32[M]) -> f32[M, N] {
        s + rename(s, M -> N) - 2.0 * sum(x * rename(x, M -> N), K)
    }
    pub(crate) fn weighted(x: f32[M, K], w: f32[K, N], s: f32[K], g: f32[N]) -> f32[M, N] {
        sum(x * w * s * 0.5 * g, K)
    }
    pub(crate) fn gated(x: f32[M, K], w: f32[K, N], g: f32[M, K]) -> f32[M, N] { sum(x * w * g, K) }
    pub(crate) fn masked(x: f32[M, K], w: f32[K, N], g: f32[M, N]) -> f32[M, N] { sum(x * w * g, K) }
    pub(crate) fn counted(x: i32[M, K], w: i32[K, N], s: i32[K]) -> i32[M, N] { sum(x * w * s, K) }
    pub(crate) fn vector(x: f32[M, K], w: f32[K]) -> f32[M] { sum(x * w, K) }
    pub(crate) fn lacking(x: f32[M, K, L], w: f32[K, N]) -> f32[M, N] { sum(x * w, (K, L)) }
    pub(crate) fn lacking_both(x: f32[M, L, K], w: f32[K, N, J]) -> f32[M, N] { tanh(sum(x * w, (K, L, J))) }
    pub(crate) fn outer_sum(x: f32[M, K], w: f32[N]) -> f32[M, N] { sum(x * w, K) }
    pub(crate) fn integers(x: i32[M, K], w: i32[K, N]) -> i32[M, N] { sum(x * w, K) }
    pub(crate) fn unsigned(x: u32[K, M], w: u16[N, K]) -> u32[M, N] { sum(x * w as u32, K) + 1 }
    pub(crate) fn bytes(x: i8[M, K], w: u8[N, K], s: f32[N]) -> f32[M, N] {
        sum(x as i32 * w as i32, K) as f32 * s
    }
    pub(crate) fn few_terms(x: f32[M, K = 3], w: f32[K, N]) -> f32[M, N] { sum(x * w, K) }
    #[fuse(strict)]
    pub(crate) fn strictly(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { sum(x * w, K) }
}

/// Returns pseudo-random numbers from -1 to 1, the same for the same seed.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = seed as u32 ^ 0x9e37_79b9;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Allowed error of a sum, relative to the sum of its terms' magnitudes. The bound of a chain of 600
/// roundings, the longest of any device here, is twelve times as large.
const RELATIVE: f64 = 3e-6;

/// Returns the offset of coordinates in a tensor of this shape.
fn offset(shape: &[usize], at: &[usize]) -> usize {
    shape.iter().zip(at).fold(0, |offset, (extent, at)| offset * extent + at)
}

/// Compares each element with the sum of `terms` for its coordinates. `finish` maps the exact sum and the
/// coordinates to the expected element.
#[track_caller]
fn check(
    what: &str,
    (made, shape): (&[f32], &[usize]),
    terms: impl Fn(&[usize]) -> Vec<f64>,
    finish: impl Fn(f64, &[usize]) -> f64,
) {
    assert_eq!(made.len(), shape.iter().product::<usize>(), "{what}");
    for (i, &made) in made.iter().enumerate() {
        let mut at = vec![0; shape.len()];
        let mut rest = i;
        for (at, extent) in at.iter_mut().zip(shape).rev() {
            (*at, rest) = (rest % extent, rest / extent);
        }
        let terms = terms(&at);
        let (sum, size): (f64, f64) =
            terms.iter().fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
        let (expected, error) = (finish(sum, &at), RELATIVE * (size + 1.0));
        let off = (f64::from(made) - expected).abs();
        assert!(off <= error, "{what} {shape:?}: {made} at {at:?} is {off:e} from {expected}");
    }
}

fn same(sum: f64, _: &[usize]) -> f64 {
    sum
}

/// Extents around the sizes of vectors, panels and blocks of the depth.
const SIZES: [(usize, usize, usize); 19] = [
    (1, 1, 1),
    (4, 8, 4),
    (3, 5, 7),
    (5, 15, 17),
    (7, 16, 16),
    (6, 31, 15),
    (13, 33, 31),
    (12, 255, 32),
    (11, 256, 33),
    (25, 257, 47),
    (48, 100, 65),
    (97, 64, 16),
    (100, 9, 130),
    (4, 600, 513),
    (200, 70, 24),
    (17, 8, 515),
    (40, 257, 48),
    (64, 32, 128),
    (33, 70, 38),
];

#[test]
fn operands_lie_in_any_order() {
    on_devices(|device| {
        for (m, k, n) in SIZES {
            let (x, w) = (numbers(m, m * k), numbers(n, k * n));
            let tensor = |of: &[f32], shape: [usize; 2]| Tensor::from_slice(device, of, shape);
            let (xn, xt) = (tensor(&x, [m, k])?, tensor(&x, [k, m])?);
            let (wn, wt) = (tensor(&w, [k, n])?, tensor(&w, [n, k])?);
            type Place = fn([usize; 2], [usize; 2]) -> usize;
            let plain: Place = |shape, at| at[0] * shape[1] + at[1];
            let swapped: Place = |shape, at| at[1] * shape[0] + at[0];
            let layouts: [(&str, Tensor<f32>, Place, Place); 4] = [
                ("nn", nn(&xn, &wn)?, plain, plain),
                ("nt", nt(&xn, &wt)?, plain, swapped),
                ("tn", tn(&xt, &wn)?, swapped, plain),
                ("tt", tt(&xt, &wt)?, swapped, swapped),
            ];
            for (name, made, left, right) in layouts {
                let terms = |at: &[usize]| {
                    let term =
                        |l| f64::from(x[left([m, k], [at[0], l])]) * f64::from(w[right([k, n], [l, at[1]])]);
                    (0..k).map(term).collect()
                };
                check(&format!("{device} {name} {k}"), (&made.to_vec()?, &[m, n]), terms, same);
            }
            let made = transposed(&xn, &wn)?.to_vec()?;
            let terms = |at: &[usize]| {
                (0..k).map(|l| f64::from(x[at[1] * k + l]) * f64::from(w[l * n + at[0]])).collect()
            };
            check(&format!("{device} transposed {k}"), (&made, &[n, m]), terms, same);
        }
        Ok(())
    });
}

#[test]
fn products_have_any_number_of_dims() {
    on_devices(|device| {
        let tensor = |of: &[f32], shape: &[usize]| Tensor::from_slice(device, of, shape);
        let at = |of: &[f32], shape: &[usize], at: &[usize]| f64::from(of[offset(shape, at)]);
        for (b, h, g, t, s, c) in [(2, 3, 2, 9, 17, 8), (1, 2, 3, 33, 5, 40), (3, 1, 1, 4, 70, 300)] {
            let (qs, ks, gs) = ([b, h, t, c], [b, h, s, c], [b, h, g, t, c]);
            let (q, k, gq) =
                (numbers(1, b * h * t * c), numbers(2, b * h * s * c), numbers(3, b * h * g * t * c));
            let made = heads(&tensor(&q, &qs)?, &tensor(&k, &ks)?)?.to_vec()?;
            let terms = |i: &[usize]| {
                (0..c)
                    .map(|l| at(&q, &qs, &[i[0], i[1], i[2], l]) * at(&k, &ks, &[i[0], i[1], i[3], l]))
                    .collect()
            };
            check(&format!("{device} heads"), (&made, &[b, h, t, s]), terms, |sum, _| sum * 0.125);
            let made = grouped(&tensor(&gq, &gs)?, &tensor(&k, &ks)?)?.to_vec()?;
            let terms = |i: &[usize]| {
                (0..c)
                    .map(|l| at(&gq, &gs, &[i[0], i[1], i[2], i[3], l]) * at(&k, &ks, &[i[0], i[1], i[4], l]))
                    .collect()
            };
            check(&format!("{device} grouped"), (&made, &[b, h, g, t, s]), terms, same);
            let (ps, vs) = ([b, t, h, s], [b, s, h, c]);
            let (p, v) = (numbers(4, b * t * h * s), numbers(5, b * s * h * c));
            let made = values(&tensor(&p, &ps)?, &tensor(&v, &vs)?)?.to_vec()?;
            let terms = |i: &[usize]| {
                (0..s)
                    .map(|l| at(&p, &ps, &[i[0], i[1], i[2], l]) * at(&v, &vs, &[i[0], l, i[2], i[3]]))
                    .collect()
            };
            check(&format!("{device} values"), (&made, &[b, t, h, c]), terms, same);
        }
        for (m, j, l, k, n, p) in [(5, 3, 2, 20, 9, 3), (20, 4, 3, 70, 33, 2)] {
            let (xs, ws) = ([m, j, l, k], [j, k, n]);
            let (x, w) = (numbers(6, m * j * l * k), numbers(7, j * k * n));
            let made = by_two(&tensor(&x, &xs)?, &tensor(&w, &ws)?)?.to_vec()?;
            let terms = |i: &[usize]| {
                let each = (0..j).flat_map(|a| (0..k).map(move |b| (a, b)));
                each.map(|(a, b)| at(&x, &xs, &[i[1], a, i[0], b]) * at(&w, &ws, &[a, b, i[2]])).collect()
            };
            check(&format!("{device} by two"), (&made, &[l, m, n]), terms, same);
            let (xs, ws, us) = ([m, k], [p, k, n], [k, p, n]);
            let (x, w, b) = (numbers(8, m * k), numbers(9, p * k * n), numbers(10, n));
            let made = outer_columns(&tensor(&x, &xs)?, &tensor(&w, &ws)?)?.to_vec()?;
            let terms = |i: &[usize]| {
                (0..k).map(|l| at(&x, &xs, &[i[1], l]) * at(&w, &ws, &[i[0], l, i[2]])).collect()
            };
            check(&format!("{device} outer columns"), (&made, &[p, m, n]), terms, same);
            let made = two_columns(&tensor(&x, &xs)?, &tensor(&w, &us)?, &tensor(&b, &[n])?)?.to_vec()?;
            let terms = |i: &[usize]| {
                (0..k).map(|l| at(&x, &xs, &[i[0], l]) * at(&w, &us, &[l, i[1], i[2]])).collect()
            };
            check(&format!("{device} two columns"), (&made, &[m, p, n]), terms, |sum, i| {
                sum + f64::from(b[i[2]])
            });
        }
        Ok(())
    });
}

#[test]
fn epilogues_see_the_whole_sum() {
    on_devices(|device| {
        for (m, k, n) in SIZES {
            let (x, w) = (numbers(m, m * k), numbers(n, k * n));
            let (b, s, r) = (numbers(3, n), numbers(4, m), numbers(5, n * m));
            let tensor = |of: &[f32], shape: &[usize]| Tensor::from_slice(device, of, shape);
            let (xa, wa, wt) = (tensor(&x, &[m, k])?, tensor(&w, &[k, n])?, tensor(&w, &[n, k])?);
            let nt_terms = |at: &[usize]| -> Vec<f64> {
                (0..k).map(|l| f64::from(x[at[0] * k + l]) * f64::from(w[at[1] * k + l])).collect()
            };
            let nn_terms = |at: &[usize]| -> Vec<f64> {
                (0..k).map(|l| f64::from(x[at[0] * k + l]) * f64::from(w[l * n + at[1]])).collect()
            };
            let made = biased(&xa, &wt, &tensor(&b, &[n])?, &tensor(&s, &[m])?)?.to_vec()?;
            let bias = |sum: f64, at: &[usize]| (sum * f64::from(s[at[0]]) + f64::from(b[at[1]])).tanh();
            check(&format!("{device} biased {k}"), (&made, &[m, n]), nt_terms, bias);
            let (y, z) = residual(&xa, &wa, &tensor(&r, &[n, m])?)?;
            check(&format!("{device} residual {k}"), (&y.to_vec()?, &[m, n]), nn_terms, same);
            for (i, z) in z.to_vec()?.into_iter().enumerate() {
                let sum: f64 = nn_terms(&[i / n, i % n]).iter().sum();
                let expected = sum + f64::from(r[i % n * m + i / n]);
                let off = (z.to_f64() - expected).abs();
                assert!(
                    off <= 1e-3 * (expected.abs() + 1.0),
                    "{device} {m} {k} {n}: {z} at {i}, not {expected}"
                );
            }
            let mut y = tensor(&r, &[m, n])?;
            added(&mut y, &xa, &wa, -0.5)?;
            let add = |sum: f64, at: &[usize]| f64::from(r[at[0] * n + at[1]]) - 0.5 * sum;
            check(&format!("{device} added {k}"), (&y.to_vec()?, &[m, n]), nn_terms, add);
        }
        Ok(())
    });
}

#[test]
fn operands_have_any_float_type() {
    on_devices(|device| {
        for (m, k, n) in SIZES {
            let (x, w) = (numbers(m, m * k), numbers(n, k * n));
            let [xh, wh] = [&x, &w].map(|of| of.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>());
            let xb: Vec<bf16> = x.iter().map(|&x| bf16::from_f32(x)).collect();
            let made =
                halves(&Tensor::from_slice(device, &xh, [m, k])?, &Tensor::from_slice(device, &wh, [n, k])?)?;
            for (i, made) in made.to_vec()?.into_iter().enumerate() {
                let exact: f64 =
                    (0..k).map(|l| xh[i / n * k + l].to_f64() * wh[i % n * k + l].to_f64()).sum();
                let off = (made.to_f64() - exact).abs();
                assert!(off <= 6e-4 * exact.abs() + 1e-5, "{device} {m} {k} {n}: {made} at {i}, not {exact}");
            }
            let made =
                mixed(&Tensor::from_slice(device, &xb, [m, k])?, &Tensor::from_slice(device, &w, [k, n])?)?;
            let terms = |at: &[usize]| {
                (0..k).map(|l| xb[at[0] * k + l].to_f64() * f64::from(w[l * n + at[1]])).collect()
            };
            check(&format!("{device} mixed {k}"), (&made.to_vec()?, &[m, n]), terms, same);
        }
        Ok(())
    });
    for device in exact_devices() {
        for (m, k, n) in SIZES {
            let [x, w] = [(1, m * k), (2, n * k)].map(|(seed, count)| {
                numbers(seed, count).into_iter().map(|x| f64::from(x) / 3.0).collect::<Vec<f64>>()
            });
            let tensor = |of: &[f64], shape: [usize; 2]| Tensor::from_slice(&device, of, shape);
            let made = tensor(&x, [m, k]).and_then(|x| doubles(&x, &tensor(&w, [n, k])?)?.to_vec());
            for (i, made) in made.expect("it fits").into_iter().enumerate() {
                let exact: f64 = (0..k).map(|l| x[i / n * k + l] * w[i % n * k + l]).sum();
                assert!(
                    (made - exact).abs() <= 1e-13 * k as f64,
                    "{device} {m} {k} {n}: {made} at {i}, not {exact}"
                );
            }
        }
    }
}

/// The largest tiles are for large results, so few terms are summed here.
#[test]
fn large_results_are_exact() {
    for device in exact_devices() {
        let (m, k, n) = (1030, 12, 2052);
        let number = |i: usize| (i * 7919 % 31) as f32 - 15.0;
        let (x, w): (Vec<f32>, Vec<f32>) =
            ((0..m * k).map(number).collect(), (0..k * n).map(number).collect());
        let made = nn(
            &Tensor::from_slice(&device, &x, [m, k]).expect("it fits"),
            &Tensor::from_slice(&device, &w, [k, n]).expect("it fits"),
        );
        let made = made.expect("it runs").to_vec().expect("it is read");
        for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
            let sum: f32 = (0..k).map(|l| x[row * k + l] * w[l * n + col]).sum();
            assert!(
                made[row * n + col] == sum,
                "{device}: {} at {row}, {col}, not {sum}",
                made[row * n + col]
            );
        }
    }
}

/// Sums of integers wrap, so they are the same in any order.
#[test]
fn integers_are_exact() {
    on_devices(|device| {
        for (m, k, n) in SIZES {
            let numbers =
                |seed: i64, count| (0..count as i64).map(move |i| (i + seed) * 0x9e37_79b9 % 0x7fff_ffff);
            let ints = |seed, count| numbers(seed, count).map(|x| x as i32).collect::<Vec<_>>();
            let sum = |term: &dyn Fn(usize) -> i32| (0..k).fold(0_i32, |sum, l| sum.wrapping_add(term(l)));
            let (x, w) = (ints(1, m * k), ints(2, k * n));
            let made =
                integers(&Tensor::from_slice(device, &x, [m, k])?, &Tensor::from_slice(device, &w, [k, n])?)?;
            let places = (0..m).flat_map(|row| (0..n).map(move |col| (row, col)));
            let expected: Vec<i32> = places
                .clone()
                .map(|(row, col)| sum(&|l| x[row * k + l].wrapping_mul(w[l * n + col])))
                .collect();
            assert!(made.to_vec()? == expected, "{device} {m} {k} {n}");

            let x: Vec<u32> = numbers(3, k * m).map(|x| x as u32).collect();
            let w: Vec<u16> = numbers(4, n * k).map(|x| x as u16).collect();
            let made =
                unsigned(&Tensor::from_slice(device, &x, [k, m])?, &Tensor::from_slice(device, &w, [n, k])?)?;
            let term = |row: usize, col: usize, l: usize| {
                x[l * m + row].wrapping_mul(u32::from(w[col * k + l])).cast_signed()
            };
            let expected: Vec<u32> = places
                .clone()
                .map(|(row, col)| sum(&|l| term(row, col, l)).cast_unsigned().wrapping_add(1))
                .collect();
            assert!(made.to_vec()? == expected, "{device} unsigned {m} {k} {n}");

            let x: Vec<i8> = numbers(5, m * k).map(|x| x as i8).collect();
            let w: Vec<u8> = numbers(6, n * k).map(|x| x as u8).collect();
            let scales: Vec<f32> = (0..n).map(|col| 1.0 / (1 << (col % 5)) as f32).collect();
            let made = bytes(
                &Tensor::from_slice(device, &x, [m, k])?,
                &Tensor::from_slice(device, &w, [n, k])?,
                &Tensor::from_slice(device, &scales, [n])?,
            )?;
            let term =
                |row: usize, col: usize, l: usize| i32::from(x[row * k + l]) * i32::from(w[col * k + l]);
            let expected: Vec<f32> =
                places.map(|(row, col)| sum(&|l| term(row, col, l)) as f32 * scales[col]).collect();
            assert!(made.to_vec()? == expected, "{device} bytes {m} {k} {n}");
        }
        Ok(())
    });
}

#[test]
fn factors_are_computed() {
    on_devices(|device| {
        for (m, k, n) in SIZES {
            let (x, s, z, w) = (numbers(1, m * k), numbers(2, m), numbers(3, n), numbers(4, k * n));
            let bytes: Vec<u8> = (0..n * k).map(|i| (i * 37 % 11) as u8).collect();
            let tensor = |of: &[f32], shape: &[usize]| Tensor::from_slice(device, of, shape);
            let quantized = Tensor::from_slice(device, &bytes, [n, k])?;
            let made = scaled(&tensor(&x, &[m, k])?, &tensor(&s, &[m])?, &quantized, &tensor(&z, &[n])?)?;
            let terms = |at: &[usize]| {
                let weight = |l: usize| f64::from(bytes[at[1] * k + l]) - f64::from(z[at[1]]);
                (0..k).map(|l| f64::from(x[at[0] * k + l]) * f64::from(s[at[0]]) * weight(l)).collect()
            };
            check(&format!("{device} scaled {k}"), (&made.to_vec()?, &[m, n]), terms, same);
            let rows = 1 + m / 2;
            let (table, ids) =
                (numbers(5, rows * k), (0..m).map(|i| (i * 5 % rows) as i32).collect::<Vec<_>>());
            let ids_there = Tensor::from_slice(device, &ids, [m])?;
            let made = looked_up(&tensor(&table, &[rows, k])?, &ids_there, &tensor(&w, &[k, n])?)?;
            let terms = |at: &[usize]| {
                let row = ids[at[0]] as usize * k;
                (0..k).map(|l| f64::from(table[row + l]) * f64::from(w[l * n + at[1]])).collect()
            };
            check(&format!("{device} looked up {k}"), (&made.to_vec()?, &[m, n]), terms, same);
            let made = squared(&tensor(&x, &[m, k])?)?;
            let terms = |at: &[usize]| {
                (0..k).map(|l| f64::from(x[at[0] * k + l]) * f64::from(x[at[1] * k + l])).collect()
            };
            check(&format!("{device} squared {k}"), (&made.to_vec()?, &[m, m]), terms, same);
            // Both views of `s` are one buffer of the kernel that finishes tiles.
            let made = distances(&tensor(&x, &[m, k])?, &tensor(&s, &[m])?)?;
            let distance = |sum: f64, at: &[usize]| f64::from(s[at[0]]) + f64::from(s[at[1]]) - 2.0 * sum;
            check(&format!("{device} distances {k}"), (&made.to_vec()?, &[m, m]), terms, distance);
        }
        Ok(())
    });
}

#[test]
fn further_factors_join_an_operand() {
    on_devices(|device| {
        for (m, k, n) in SIZES {
            let shapes: [&[usize]; 6] = [&[m, k], &[k, n], &[k], &[n], &[m, k], &[m, n]];
            let values: Vec<Vec<f32>> =
                shapes.iter().enumerate().map(|(i, shape)| numbers(i, shape.iter().product())).collect();
            let tensors =
                shapes.iter().zip(&values).map(|(shape, of)| Tensor::from_slice(device, of, *shape));
            let tensors = tensors.collect::<Result<Vec<Tensor<f32>>>>()?;
            let [x, w, s, g, rows, both] = tensors.as_slice() else { unreachable!() };
            let value = |of: usize, at: usize| f64::from(values[of][at]);
            let product = |at: &[usize], l: usize| value(0, at[0] * k + l) * value(1, l * n + at[1]);
            let made = weighted(x, w, s, g)?.to_vec()?;
            let terms = |at: &[usize]| {
                (0..k).map(|l| product(at, l) * value(2, l) * 0.5 * value(3, at[1])).collect::<Vec<_>>()
            };
            check(&format!("{device} weighted {k}"), (&made, &[m, n]), terms, same);
            let made = gated(x, w, rows)?.to_vec()?;
            let terms =
                |at: &[usize]| (0..k).map(|l| product(at, l) * value(4, at[0] * k + l)).collect::<Vec<_>>();
            check(&format!("{device} gated {k}"), (&made, &[m, n]), terms, same);
            let made = masked(x, w, both)?.to_vec()?;
            let terms = |at: &[usize]| {
                (0..k).map(|l| product(at, l) * value(5, at[0] * n + at[1])).collect::<Vec<_>>()
            };
            check(&format!("{device} masked {k}"), (&made, &[m, n]), terms, same);
            let integers = |of: usize| values[of].iter().map(|&x| (x * 1e9) as i32).collect::<Vec<_>>();
            let tensor = |of: usize| Tensor::from_slice(device, &integers(of), shapes[of]);
            let made = counted(&tensor(0)?, &tensor(1)?, &tensor(2)?)?.to_vec()?;
            let (x, w, s) = (integers(0), integers(1), integers(2));
            for (i, &made) in made.iter().enumerate() {
                let term = |l: usize| x[i / n * k + l].wrapping_mul(w[l * n + i % n]).wrapping_mul(s[l]);
                assert_eq!(made, (0..k).map(term).fold(0, i32::wrapping_add), "{device} counted {k} {i}");
            }
        }
        Ok(())
    });
}

#[test]
fn nothing_is_summed_to_zero() {
    on_devices(|device| {
        for (m, k, n) in [(0, 8, 8), (8, 0, 8), (8, 8, 0), (0, 0, 0)] {
            let (x, w) = (Tensor::zeros(device, [m, k])?, Tensor::zeros(device, [k, n])?);
            assert_eq!(nn(&x, &w)?.to_vec()?, vec![0.0; m * n], "{device} {m} {k} {n}");
            let bias = (Tensor::from_slice(device, &vec![0.5; n], [n])?, Tensor::zeros(device, [m])?);
            let made = biased(&x, &Tensor::zeros(device, [n, k])?, &bias.0, &bias.1)?.to_vec()?;
            assert!(
                made.len() == m * n && made.iter().all(|y| (y - 0.5_f32.tanh()).abs() < 1e-6),
                "{device}"
            );
        }
        Ok(())
    });
}

/// A NaN or an infinity reaches the elements whose sums have it, and no others: elements that fill the last
/// panel are not summed.
#[test]
fn what_is_no_number_stays_in_its_row_and_column() {
    for device in exact_devices() {
        for (m, k, n) in SIZES.into_iter().filter(|(m, _, n)| *m > 3 && *n > 3) {
            let (mut x, mut w) = (vec![1.0_f32; m * k], vec![1.0_f32; k * n]);
            (x[(m - 1) * k + k - 1], w[n - 1]) = (f32::NAN, f32::INFINITY);
            let tensor =
                |of: &[f32], shape: [usize; 2]| Tensor::from_slice(&device, of, shape).expect("it fits");
            let made =
                nn(&tensor(&x, [m, k]), &tensor(&w, [k, n])).expect("it runs").to_vec().expect("it is read");
            for (i, y) in made.into_iter().enumerate() {
                let (row, col) = (i / n, i % n);
                let is_right = match (row == m - 1, col == n - 1) {
                    (true, _) => y.is_nan(),
                    (false, true) => y == f32::INFINITY,
                    (false, false) => y == k as f32,
                };
                assert!(is_right, "{device} {m} {k} {n}: {y} at {row}, {col}");
            }
        }
    }
}

/// A factor is summed along dims that the other factor lacks before it is multiplied.
#[test]
fn sums_of_one_factor_come_first() {
    on_devices(|device| {
        for (m, k, n) in [(1, 1, 1), (5, 9, 4), (40, 17, 36), (33, 70, 38)] {
            let (l, j) = (3, 5);
            let (x, w) = (numbers(m, m * k * l), numbers(n, k * n));
            let v = numbers(n + 1, k * n * j);
            let tensor = |of: &[f32], shape: [usize; 3]| Tensor::from_slice(device, of, shape);
            let weight = Tensor::from_slice(device, &w, [k, n])?;
            let made = lacking(&tensor(&x, [m, k, l])?, &weight)?.to_vec()?;
            let terms = |at: &[usize]| -> Vec<f64> {
                let term = |i: usize| f64::from(x[at[0] * k * l + i]) * f64::from(w[i / l * n + at[1]]);
                (0..k * l).map(term).collect()
            };
            check(&format!("{device} lacking"), (&made, &[m, n]), terms, same);
            let made = lacking_both(&tensor(&x, [m, l, k])?, &tensor(&v, [k, n, j])?)?.to_vec()?;
            let terms = |at: &[usize]| -> Vec<f64> {
                let term = |i: usize| {
                    let (step, one, other) = (i / l / j, i / j % l, i % j);
                    let x = x[(at[0] * l + one) * k + step];
                    f64::from(x) * f64::from(v[(step * n + at[1]) * j + other])
                };
                (0..k * l * j).map(term).collect()
            };
            check(&format!("{device} lacking both"), (&made, &[m, n]), terms, |sum, _| sum.tanh());
        }
        Ok(())
    });
}

#[test]
fn threads_do_not_change_a_bit() {
    let sizes = [
        (130, 700, 90),
        (600, 300, 40),
        (16, 2000, 1100),
        (40, 9000, 64),
        (1, 900, 3000),
        (3000, 900, 2),
        (200, 300, 264),
        (90, 600, 520),
        (60, 9000, 530),
    ];
    for (m, k, n) in sizes {
        let (x, w) = (numbers(m, m * k), numbers(n, k * n));
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
            pool.install(|| {
                let device = Device::cpu();
                let tensor = |of: &[f32], shape: [usize; 2]| Tensor::from_slice(&device, of, shape);
                let plain = nn(&tensor(&x, [m, k])?, &tensor(&w, [k, n])?)?.to_vec()?;
                let line = |len: usize| Tensor::from_slice(&device, &numbers(len, len), [len]);
                let (b, s) = (line(n)?, line(m)?);
                let finished = biased(&tensor(&x, [m, k])?, &tensor(&w, [n, k])?, &b, &s)?.to_vec()?;
                let other = tt(&tensor(&x, [k, m])?, &tensor(&w, [n, k])?)?.to_vec()?;
                Ok::<_, Error>([plain, finished, other].concat())
            })
        };
        let [one, two, seven] = [1, 2, 7].map(|threads| run(threads).expect("it runs"));
        let bits = |of: &[f32]| of.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
        assert!(bits(&one) == bits(&two) && bits(&one) == bits(&seven), "{m} {k} {n}");
    }
}

#[test]
fn reports_class_each_product_or_say_why_it_is_none() {
    let words = |report: Report| report.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    for (report, expected) in [
        (nt::report(), "contraction along K: M × N, 2*M*N*K FLOP"),
        (grouped::report(), "contraction along C: G, T × S for each B, H"),
        (strictly::report(), "sum along K is a reduction: `strict` rounds each product"),
        (vector::report(), "sum along K is a reduction: `w` has no dim that `x` lacks"),
        (lacking::report(), "contraction along K: M × N, 2*M*N*K FLOP"),
        (lacking_both::report(), "contraction along K: M × N, 2*M*N*K FLOP"),
        (outer_sum::report(), "sum along K is a reduction: `w` lacks `K`"),
        (integers::report(), "contraction along K: M × N, 2*M*N*K FLOP"),
        (weighted::report(), "contraction along K: M × N, 2*M*N*K FLOP"),
        (gated::report(), "contraction along K: M × N, 2*M*N*K FLOP"),
        (counted::report(), "contraction along K: M × N, 2*M*N*K FLOP"),
        (
            few_terms::report(),
            "sum along K is a reduction: it has so few terms that a thread adds them by itself",
        ),
    ] {
        let report = words(report);
        assert!(report.contains(expected), "{expected}\n{report}");
        assert!(expected.contains("reduction") != report.contains("contraction along"), "{report}");
    }
}
