//! Sums of products: which of them are contractions, alone and beside others in a function.

mod devices;
mod numbers;

use devices::{exact_devices, on_devices};
use fusion::Report;
use fusion::prelude::*;
use numbers::{Numbers, check, numbers, same};

fuse! {
    pub(crate) fn both_of(x: f32[M, K], a: f32[K, N], b: f32[N, K]) -> (f32[M, N], f32[M, N]) {
        (matmul(x, a, K), matmul(x, b, K))
    }
    pub(crate) fn gated(x: f32[M, K], a: f32[N, K], b: f32[N, K]) -> f32[M, N] {
        silu(matmul(x, a, K)) * matmul(x, b, K)
    }
    pub(crate) fn constant(x: f32[M, K = 24], w: f32[K, N]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn constants(x: f32[K = 64, M], a: f32[K, N], b: f32[K, N]) -> (f32[M, N], f32[M, N]) {
        (matmul(x, a, K), matmul(x, b, K))
    }
    pub(crate) fn single(x: f32[M, K, B = 1], w: f32[B, K, N]) -> f32[B, M, N] { matmul(x, w, K) }
    pub(crate) fn of_wrapped(x: i8[M, K], w: f32[K, N]) -> f32[M, N] { matmul((x + 1) as f32, w, K) }
    pub(crate) fn wrapped(x: i8[M, K], w: i8[N, K]) -> i32[M, N] { sum(x * w, K) }
    pub(crate) fn scaled(x: f32[M, K], s: f32[K]) -> (f32[M, K], f32[M]) {
        let p = x * s;
        (p, sum(p, K))
    }
    pub(crate) fn deep(x: f32[M, K], w: f32[K, N], b: f32[N]) -> f32[N, M] { matmul(x, w, K) + b }
    pub(crate) fn deep_doubles(x: f64[B, M, K], w: f64[N, K]) -> f64[B, M, N] { matmul(x, w, K) }
    pub(crate) fn deep_integers(x: i32[K, M], w: i32[N, K], y: &mut i32[M, N]) { y += matmul(x, w, K); }
    #[fuse(off)]
    pub(crate) fn unfused(x: i8[M, K], w: u8[N, K]) -> i32[M, N] { matmul(x, w, K) }
    pub(crate) fn stored(x: i32[M, K], w: i32[N, K]) -> (i32[K, M, N], i32[M, N]) {
        let p = x * w;
        (p, sum(p, K))
    }
    pub(crate) fn two_orders(x: f32[M, K], w: f32[N, K]) -> (f32[M, N], f32[N, M]) {
        let h = matmul(x, w, K);
        (h, h)
    }
    pub(crate) fn largest(x: f32[M, K], w: f32[N, K]) -> (f32[M, N], f32[M, N]) {
        let p = x * w;
        (sum(p, K), max(p, K))
    }
    pub(crate) fn unsigned(x: u16[M, K], w: u16[N, K]) -> u32[M, N] { matmul(x, w, K) }
    #[fuse(strict)]
    pub(crate) fn strict_halves(x: f16[M, K], w: f16[N, K]) -> f16[M, N] { matmul(x, w, K) }
    pub(crate) fn few_rows(x: f32[M = 3, K], w: f32[N, K]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn inner(x: f32[M, K, B], w: f32[K, N, B]) -> f32[M, N, B] { matmul(x, w, K) }
    pub(crate) fn inner_tanh(x: f32[M, K, B], w: f32[B, N, K], b: f32[N, B]) -> (f32[M, B, N], f32[N, M, B]) {
        let h = matmul(x, w, K);
        (h, tanh(h) + b)
    }
}

/// Each product of a function is a contraction, and constant extents decide only where tiles would be empty.
#[test]
fn products_are_contractions() {
    let words = |report: Report| report.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    for (report, count) in [
        (both_of::report(), 2),
        (gated::report(), 2),
        (constant::report(), 1),
        (constants::report(), 2),
        (single::report(), 1),
        (inner::report(), 1),
        (of_wrapped::report(), 1),
        (two_orders::report(), 1),
        (inner_tanh::report(), 1),
    ] {
        let report = words(report);
        let targets = report.matches("Products:").count();
        assert_eq!(report.matches("FLOP").count(), count * targets, "{report}");
        assert!(!report.contains("is a reduction"), "{report}");
    }
    let report = words(wrapped::report());
    assert!(report.contains("is a reduction: its products become `i8`, and `matmul` widens"), "{report}");
    let report = words(stored::report());
    assert!(report.contains("2*M*N*K FLOP"), "{report}");
    let report = words(largest::report());
    assert!(report.contains("2*M*N*K FLOP"), "{report}");
    let report = words(scaled::report());
    assert!(report.contains("is a reduction: `s` has no dim that `x` lacks"), "{report}");
    let report = words(strict_halves::report());
    assert!(report.contains("is a reduction: `strict` rounds each product"), "{report}");
    let report = words(few_rows::report());
    assert!(report.contains("is a reduction: `x` has few elements along its own dims"), "{report}");
}

#[test]
fn products_of_one_function_are_computed() {
    on_devices(|device| {
        for (m, k, n) in [(5, 9, 7), (40, 9, 36), (40, 64, 36), (33, 24, 35), (64, 24, 32)] {
            let [x, w, v] = [(1, m * k), (2, k * n), (3, k * n)].map(|(seed, count)| numbers(seed, count));
            let tensor = |of: &[f32], shape: [usize; 2]| Tensor::from_slice(device, of, shape);
            let check = |what: &str, made: Vec<f32>, term: &dyn Fn(usize, usize) -> f64| {
                for (i, made) in made.into_iter().enumerate() {
                    let expected = term(i / n, i % n);
                    let off = (f64::from(made) - expected).abs();
                    assert!(off <= 3e-6 * (k as f64 + 1.0), "{device} {what} {m} {k} {n}: {made} at {i}");
                }
            };
            let sum = |of_x: &dyn Fn(usize) -> usize, w: &[f32], of_w: &dyn Fn(usize) -> usize| -> f64 {
                (0..k).map(|step| f64::from(x[of_x(step)]) * f64::from(w[of_w(step)])).sum()
            };
            let nn =
                |w: &[f32], row: usize, col: usize| sum(&|step| row * k + step, w, &|step| step * n + col);
            let nt =
                |w: &[f32], row: usize, col: usize| sum(&|step| row * k + step, w, &|step| col * k + step);
            let tn =
                |w: &[f32], row: usize, col: usize| sum(&|step| step * m + row, w, &|step| step * n + col);
            let (one, two) = both_of(&tensor(&x, [m, k])?, &tensor(&w, [k, n])?, &tensor(&v, [n, k])?)?;
            check("both, NN", one.to_vec()?, &|row, col| nn(&w, row, col));
            check("both, NT", two.to_vec()?, &|row, col| nt(&v, row, col));
            let made = gated(&tensor(&x, [m, k])?, &tensor(&w, [n, k])?, &tensor(&v, [n, k])?)?;
            check("gated", made.to_vec()?, &|row, col| {
                let gate = nt(&w, row, col);
                gate / (1.0 + (-gate).exp()) * nt(&v, row, col)
            });
            if k == 24 {
                let made = constant(&tensor(&x, [m, k])?, &tensor(&w, [k, n])?)?;
                check("constant", made.to_vec()?, &|row, col| nn(&w, row, col));
            }
            if k == 64 {
                let (one, two) = constants(&tensor(&x, [k, m])?, &tensor(&w, [k, n])?, &tensor(&v, [k, n])?)?;
                check("constants", one.to_vec()?, &|row, col| tn(&w, row, col));
                check("constants", two.to_vec()?, &|row, col| tn(&v, row, col));
            }
            let (x, w) =
                (Tensor::from_slice(device, &x, [m, k, 1])?, Tensor::from_slice(device, &w, [1, k, n])?);
            let expected = numbers(2, k * n);
            check("single", single(&x, &w)?.to_vec()?, &|row, col| nn(&expected, row, col));
        }
        Ok(())
    });
}

/// A batch may be the innermost dim of factors and results.
#[test]
fn a_batch_is_innermost() {
    on_devices(|device| {
        for (m, k, n, count) in [(3, 9, 7, 2), (40, 33, 36, 3), (5, 300, 70, 1), (0, 4, 5, 6), (4, 0, 5, 6)] {
            let (x, w) = (Numbers::new(1, &[m, k, count]), Numbers::new(2, &[k, n, count]));
            let (v, b) = (Numbers::new(3, &[count, n, k]), Numbers::new(4, &[n, count]));
            let made = inner(&x.on(device)?, &w.on(device)?)?;
            let terms = |at: &[usize]| {
                let (i, j, b) = (at[0], at[1], at[2]);
                (0..k).map(|l| x.at(&[i, l, b]) * w.at(&[l, j, b])).collect()
            };
            check(&format!("{device} inner {k}"), &made, terms, same)?;
            let (made, of_tanh) = inner_tanh(&x.on(device)?, &v.on(device)?, &b.on(device)?)?;
            let product = |i, j, b| (0..k).map(move |l| (i, j, b, l));
            let term = |(i, j, b, l): (usize, usize, usize, usize)| x.at(&[i, l, b]) * v.at(&[b, j, l]);
            let terms = |at: &[usize]| product(at[0], at[2], at[1]).map(term).collect();
            check(&format!("{device} product {k}"), &made, terms, same)?;
            let terms = |at: &[usize]| {
                let sum: f64 = product(at[1], at[0], at[2]).map(term).sum();
                vec![sum.tanh(), b.at(&[at[0], at[2]])]
            };
            check(&format!("{device} tanh {k}"), &of_tanh, terms, same)?;
        }
        Ok(())
    });
}

/// Products of integers that another kernel stores, too, and results in two orders.
#[test]
fn products_have_other_uses() {
    on_devices(|device| {
        for (m, k, n) in [(3, 9, 5), (40, 33, 36)] {
            let integers = |seed, count| numbers(seed, count).into_iter().map(|x| (x * 127.0) as i32);
            let (x, w): (Vec<i32>, Vec<i32>) = (integers(1, m * k).collect(), integers(2, n * k).collect());
            let term = |i: usize, l: usize| x[i / n * k + l] * w[i % n * k + l];
            let sums: Vec<i32> = (0..m * n).map(|i| (0..k).map(|l| term(i, l)).sum()).collect();
            let on = |of: &[i32], rows| Tensor::from_slice(device, of, [rows, k]);
            let (products, made) = stored(&on(&x, m)?, &on(&w, n)?)?;
            assert_eq!(made.to_vec()?, sums, "{device} {m} {k} {n}");
            let all: Vec<i32> = (0..k * m * n).map(|i| term(i % (m * n), i / (m * n))).collect();
            assert_eq!(products.to_vec()?, all, "{device} {m} {k} {n}");

            let small = |of: &[i32]| of.iter().map(|&x| x as i8).collect::<Vec<_>>();
            let bytes: Vec<u8> = w.iter().map(|&w| w as u8).collect();
            let of_bytes = Tensor::from_slice(device, &bytes, [n, k])?;
            let made = unfused(&Tensor::from_slice(device, &small(&x), [m, k])?, &of_bytes)?;
            let term = |i: usize, l: usize| x[i / n * k + l] * i32::from(bytes[i % n * k + l]);
            let sums: Vec<i32> = (0..m * n).map(|i| (0..k).map(|l| term(i, l)).sum()).collect();
            assert_eq!(made.to_vec()?, sums, "{device} {m} {k} {n}");

            let large: Vec<u16> = x.iter().map(|&x| 65_535 - x.unsigned_abs() as u16).collect();
            let of_large = |rows| Tensor::from_slice(device, &large[..rows * k], [rows, k]);
            let rows = m.min(n);
            let made = unsigned(&of_large(m)?, &of_large(rows)?)?.to_vec()?;
            let term = |i: usize, l: usize| {
                u32::from(large[i / rows * k + l]).wrapping_mul(large[i % rows * k + l].into())
            };
            let sum = |i: usize| (0..k).map(|l| term(i, l)).fold(0, u32::wrapping_add);
            assert_eq!(made, (0..m * rows).map(sum).collect::<Vec<_>>(), "{device} {m} {k}");

            let (x, w) = (Numbers::new(1, &[m, k]), Numbers::new(2, &[n, k]));
            let terms = |i, j| (0..k).map(|l| x.at(&[i, l]) * w.at(&[j, l])).collect::<Vec<_>>();
            let (one, other) = two_orders(&x.on(device)?, &w.on(device)?)?;
            check(&format!("{device} one {k}"), &one, |at| terms(at[0], at[1]), same)?;
            check(&format!("{device} other {k}"), &other, |at| terms(at[1], at[0]), same)?;
            let (sums, most) = largest(&x.on(device)?, &w.on(device)?)?;
            check(&format!("{device} sums {k}"), &sums, |at| terms(at[0], at[1]), same)?;
            let most_of =
                |at: &[usize]| vec![terms(at[0], at[1]).into_iter().fold(f64::NEG_INFINITY, f64::max)];
            check(&format!("{device} largest {k}"), &most, most_of, same)?;
        }
        Ok(())
    });
}

/// Depths of several parts, the last of them shorter, of every type that is computed in tiles.
#[test]
fn deep_products_are_computed() {
    on_devices(|device| {
        for (m, k, n) in [(36, 2048, 40), (33, 2500, 35)] {
            let (x, w, b) = (Numbers::new(1, &[m, k]), Numbers::new(2, &[k, n]), Numbers::new(3, &[n]));
            let terms = |at: &[usize]| {
                let products = (0..k).map(|l| x.at(&[at[1], l]) * w.at(&[l, at[0]]));
                products.chain([b.at(&[at[0]])]).collect()
            };
            check(
                &format!("{device} deep"),
                &deep(&x.on(device)?, &w.on(device)?, &b.on(device)?)?,
                terms,
                same,
            )?;

            let whole = |of: &Numbers| of.elements.iter().map(|x| (x * 8.0).round()).collect::<Vec<_>>();
            let (x, w) = (whole(&Numbers::new(4, &[2, m, k])), whole(&Numbers::new(5, &[n, k])));
            let sum = |row: usize, col: usize| (0..k).map(|l| x[row * k + l] * w[col * k + l]).sum::<f32>();
            let sums: Vec<f32> = (0..2 * m * n).map(|i| sum(i / n, i % n)).collect();
            // WGSL has no numbers of 64 bits.
            let double = |of: &[f32]| of.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            if exact_devices().contains(device) {
                let left = Tensor::from_slice(device, &double(&x), [2, m, k])?;
                let made = deep_doubles(&left, &Tensor::from_slice(device, &double(&w), [n, k])?)?;
                assert_eq!(made.to_vec()?, double(&sums), "{device} {k}");
            }
            let integers: Vec<i32> = (0..k * m).map(|i| x[i % m * k + i / m] as i32).collect();
            let right: Vec<i32> = w.iter().map(|&w| w as i32).collect();
            let mut made = Tensor::full(device, 3, [m, n])?;
            let (x, w) =
                (Tensor::from_slice(device, &integers, [k, m])?, Tensor::from_slice(device, &right, [n, k])?);
            deep_integers(&x, &w, &mut made)?;
            let expected: Vec<i32> = sums[..m * n].iter().map(|&sum| sum as i32 + 3).collect();
            assert_eq!(made.to_vec()?, expected, "{device} {k}");
        }
        Ok(())
    });
}
