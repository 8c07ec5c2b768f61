//! Results of row kernels are right: values of rows next to elements, in place, and from the inline form. The
//! same functions run with a kernel for each operation, too.

use fusion::prelude::*;

use crate::devices::on_devices;
use crate::{Host, ReferenceSum, UNIT, check, roundings, sums};

/// Defines the same functions twice: as written in `fused`, and with a kernel for each operation in
/// `unfused`.
macro_rules! both {
    ($({ $($function:tt)* })*) => {
        pub(crate) mod fused {
            fusion::fuse! { $($($function)*)* }
        }
        pub(crate) mod unfused {
            fusion::fuse! { $(#[fuse(off)] $($function)*)* }
        }
    };
}

both! {
    { pub(crate) fn centred(p: &mut f32[N, D]) { p = p - mean(p, D); } }
    // Old values are read next to new ones.
    { pub(crate) fn old_and_new(p: &mut f32[N, D], x: f32[N, D]) -> f32[N, D] {
        let old = p;
        p = x - mean(x, D);
        old * 2.0
    } }
    { pub(crate) fn crossed(p: &mut f32[N, D], q: &mut f32[N, D]) {
        let old = p;
        p = q - sum(q, D);
        q = old;
    } }
    { pub(crate) fn counted(s: &mut f32[N], x: f32[N, D]) { s += sum(x, D); } }
    { pub(crate) fn both_in_place(p: &mut f32[N, D], s: &mut f32[N], g: f32[D]) -> f32[N] {
        let mu = mean(p, D);
        p = (p - mu) * g + s;
        s = 0.5 * s + mu;
        mu
    } }
    { pub(crate) fn running(m: &mut f32[D], x: f32[N, D]) { m = 0.75 * m + 0.25 * mean(x, N); } }
    { pub(crate) fn whole_in_place(p: &mut f32[N, D], t: &mut f32[]) {
        t += sum(p);
        p *= 2.0;
    } }
    { pub(crate) fn of_both(x: f32[N, D]) -> (f32[N], f32[N, D], f32[N, D], f32[N]) {
        let s = sum(x, D);
        (s, x * 2.0, x - s, s + 1.0)
    } }
    { pub(crate) fn with_rows_alone(x: f32[N, D], y: f32[N]) -> (f32[N], f32[N], f32[N, D]) {
        (sum(x, D), y * 3.0, x * y)
    } }
    { pub(crate) fn statistics(x: f32[N, D]) -> (f32[N], f32[N], f32[N], f32[N], f32[N]) {
        let mu = mean(x, D);
        (mu, mean(square(x - mu), D), max(x, D), min(x, D), sum(abs(x), D))
    } }
    { pub(crate) fn probabilities(x: f32[N, D]) -> (f32[N, D], f32[N]) {
        let m = max(x, D);
        let e = exp(x - m);
        let s = sum(e, D);
        (e / s, log(s) + m)
    } }
    { pub(crate) fn spread_out(x: f32[N, D], y: f32[D]) -> f32[N, D] { sum(x, D) * y } }
    { pub(crate) fn two_axes(x: f32[N, D]) -> (f32[N], f32[D]) { (sum(x, D), sum(x, N)) }  }
}

const SHAPES: [[usize; 2]; 7] = [[1, 1], [3, 4], [5, 33], [129, 8], [2, 1027], [3, 1100], [0, 5]];

fn each(test: impl Fn(&Device, [usize; 2], &Host, &[ReferenceSum]) -> Result<()>) {
    on_devices(|device| {
        for shape in SHAPES {
            let host = Host::new(31, &shape);
            let whole = sums(&shape, &[1], |at| host.at(at));
            test(device, shape, &host, &whole)?;
        }
        Ok(())
    });
}

/// Returns the mean of a row and its bound.
fn mean((sum, d): (&ReferenceSum, usize)) -> (f64, f64) {
    (sum.value / d as f64, (sum.bound() + 2.0 * UNIT * sum.magnitude) / d as f64)
}

#[test]
fn a_tensor_is_updated_by_its_own_rows() {
    each(|device, [n, d], host, whole| {
        for centred in [fused::centred, unfused::centred] {
            let mut p = host.on(device)?;
            let before = p.clone();
            centred(&mut p)?;
            let expected = (0..n * d).map(|i| {
                let (mean, bound) = mean((&whole[i / d], d));
                (f64::from(host.elements[i]) - mean, bound + 4.0 * UNIT)
            });
            check("centred", &p, &[n, d], expected);
            assert_eq!(before.to_vec()?, host.elements, "{device}: a clone keeps its elements");
        }
        Ok(())
    });
}

#[test]
fn old_values_are_read_before_new_ones_are_written() {
    each(|device, [n, d], host, whole| {
        let other = Host::new(38, &[n, d]);
        for old_and_new in [fused::old_and_new, unfused::old_and_new] {
            let mut p = other.on(device)?;
            let twice = old_and_new(&mut p, &host.on(device)?)?;
            check("twice", &twice, &[n, d], other.elements.iter().map(|&x| (2.0 * f64::from(x), 0.0)));
            let element = |i: usize| {
                let (mean, bound) = mean((&whole[i / d], d));
                (f64::from(host.elements[i]) - mean, bound + 4.0 * UNIT)
            };
            check("new", &p, &[n, d], (0..n * d).map(element));
        }
        for crossed in [fused::crossed, unfused::crossed] {
            let (mut p, mut q) = (other.on(device)?, host.on(device)?);
            crossed(&mut p, &mut q)?;
            check("old", &q, &[n, d], other.elements.iter().map(|&x| (f64::from(x), 0.0)));
            let element = |i: usize| {
                let sum = &whole[i / d];
                (f64::from(host.elements[i]) - sum.value, sum.bound() + UNIT * (sum.magnitude + 2.0))
            };
            check("rest", &p, &[n, d], (0..n * d).map(element));
        }
        Ok(())
    });
}

#[test]
fn a_tensor_of_rows_is_updated() {
    each(|device, [n, d], host, whole| {
        for counted in [fused::counted, unfused::counted] {
            let old = Host::new(33, &[n]);
            let mut s = old.on(device)?;
            counted(&mut s, &host.on(device)?)?;
            let row = |i: usize| {
                let sum = whole[i];
                (old.at(&[i]) + sum.value, sum.bound() + UNIT * (2.0 + sum.magnitude))
            };
            check("counted", &s, &[n], (0..n).map(row));
            assert_eq!(d, host.shape[1]);
        }
        Ok(())
    });
}

#[test]
fn rows_and_elements_are_updated_together() {
    each(|device, [n, d], host, whole| {
        for both_in_place in [fused::both_in_place, unfused::both_in_place] {
            let (old, gamma) = (Host::new(33, &[n]), Host::new(34, &[d]));
            let (mut p, mut s) = (host.on(device)?, old.on(device)?);
            let mu = both_in_place(&mut p, &mut s, &gamma.on(device)?)?;
            let means: Vec<(f64, f64)> = whole.iter().map(|sum| mean((sum, d))).collect();
            check("mean", &mu, &[n], means.iter().copied());
            let row =
                |(i, (mean, bound)): (usize, &(f64, f64))| (0.5 * old.at(&[i]) + mean, bound + 4.0 * UNIT);
            check("rows", &s, &[n], means.iter().enumerate().map(row));
            let element = |i: usize| {
                let ((mean, bound), g) = (means[i / d], gamma.at(&[i % d]));
                let value = (f64::from(host.elements[i]) - mean) * g + old.at(&[i / d]);
                (value, bound * g.abs() + 32.0 * UNIT)
            };
            check("elements", &p, &[n, d], (0..n * d).map(element));
        }
        Ok(())
    });
}

#[test]
fn running_statistics() {
    on_devices(|device| {
        for [n, d] in [[1, 1], [7, 3], [130, 33]] {
            for running in [fused::running, unfused::running] {
                let (host, old) = (Host::new(35, &[n, d]), Host::new(36, &[d]));
                let mut m = old.on(device)?;
                running(&mut m, &host.on(device)?)?;
                let columns = sums(&[n, d], &[0], |at| host.at(at));
                let expected = columns.iter().enumerate().map(|(i, sum)| {
                    let (mean, bound) = mean((sum, n));
                    (0.75 * old.at(&[i]) + 0.25 * mean, bound + 8.0 * UNIT)
                });
                check("running mean", &m, &[d], expected);
            }
        }
        Ok(())
    });
}

#[test]
fn a_total_is_of_old_values() {
    each(|device, [n, d], host, whole| {
        for whole_in_place in [fused::whole_in_place, unfused::whole_in_place] {
            let (mut p, mut t) = (host.on(device)?, Host::of(&[], [0.5]).on(device)?);
            whole_in_place(&mut p, &mut t)?;
            let doubled = host.elements.iter().map(|&x| (2.0 * f64::from(x), 0.0));
            check("doubled", &p, &[n, d], doubled);
            let magnitude: f64 = whole.iter().map(|sum| sum.magnitude).sum();
            let total: f64 = whole.iter().map(|sum| sum.value).sum();
            let bound = (roundings(n * d) + (n + d) as f64) * UNIT * (magnitude + 0.5);
            check("total", &t, &[], [(0.5 + total, bound)]);
        }
        Ok(())
    });
}

#[test]
fn reduced_and_unreduced_results() {
    each(|device, [n, d], host, whole| {
        for of_both in [fused::of_both, unfused::of_both] {
            let (s, twice, rest, more) = of_both(&host.on(device)?)?;
            let rows = |plus: f64| {
                whole.iter().map(move |sum| (sum.value + plus, sum.bound() + UNIT * (sum.magnitude + 2.0)))
            };
            check("sum", &s, &[n], rows(0.0));
            check("sum and one", &more, &[n], rows(1.0));
            check("twice", &twice, &[n, d], host.elements.iter().map(|&x| (2.0 * f64::from(x), 0.0)));
            let element = |i: usize| {
                let sum = &whole[i / d];
                (f64::from(host.elements[i]) - sum.value, sum.bound() + UNIT * (sum.magnitude + 2.0))
            };
            check("rest", &rest, &[n, d], (0..n * d).map(element));
        }
        for with_rows_alone in [fused::with_rows_alone, unfused::with_rows_alone] {
            let y = Host::new(37, &[n]);
            let (s, thrice, products) = with_rows_alone(&host.on(device)?, &y.on(device)?)?;
            check("sum", &s, &[n], whole.iter().map(|sum| (sum.value, sum.bound())));
            check("thrice", &thrice, &[n], (0..n).map(|i| (3.0 * y.at(&[i]), 8.0 * UNIT)));
            let element = |i: usize| (f64::from(host.elements[i]) * y.at(&[i / d]), 4.0 * UNIT);
            check("products", &products, &[n, d], (0..n * d).map(element));
        }
        for spread_out in [fused::spread_out, unfused::spread_out] {
            let halves = Tensor::full(device, 0.5, [d])?;
            let element = |i: usize| (0.5 * whole[i / d].value, whole[i / d].bound());
            check("spread out", &spread_out(&host.on(device)?, &halves)?, &[n, d], (0..n * d).map(element));
        }
        for two_axes in [fused::two_axes, unfused::two_axes] {
            let (rows, columns) = two_axes(&host.on(device)?)?;
            check("rows", &rows, &[n], whole.iter().map(|sum| (sum.value, sum.bound())));
            let of_columns = sums(&[n, d], &[0], |at| host.at(at));
            check("columns", &columns, &[d], of_columns.iter().map(|sum| (sum.value, sum.bound())));
        }
        Ok(())
    });
}

#[test]
fn several_reductions_of_one_tensor() {
    each(|device, [n, d], host, whole| {
        let unit = roundings(d) * UNIT;
        for statistics in [fused::statistics, unfused::statistics] {
            let (mu, var, most, least, size) = statistics(&host.on(device)?)?;
            check("mean", &mu, &[n], whole.iter().map(|sum| mean((sum, d))));
            let variance = |row: Vec<f64>| {
                let mean = row.iter().sum::<f64>() / d as f64;
                // Deviations of up to 4, off by as much as the mean, which is up to 2.
                (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64, 64.0 * unit)
            };
            check("variance", &var, &[n], host.rows().map(variance));
            let exact =
                |row: Vec<f64>, f: fn(f64, f64) -> f64| (row.into_iter().reduce(f).unwrap_or(0.0), 0.0);
            check("max", &most, &[n], host.rows().map(|row| exact(row, f64::max)));
            check("min", &least, &[n], host.rows().map(|row| exact(row, f64::min)));
            check("size", &size, &[n], whole.iter().map(|sum| (sum.magnitude, unit * sum.magnitude)));
        }
        for probabilities in [fused::probabilities, unfused::probabilities] {
            let (p, total) = probabilities(&host.on(device)?)?;
            let sums: Vec<f64> = host.rows().map(|row| row.iter().map(|x| x.exp()).sum()).collect();
            let element = |i: usize| {
                let p = f64::from(host.elements[i]).exp() / sums[i / d];
                (p, (unit + 16.0 * UNIT) * p)
            };
            check("probabilities", &p, &[n, d], (0..n * d).map(element));
            check("log of sums", &total, &[n], sums.iter().map(|sum| (sum.ln(), 4.0 * unit + 16.0 * UNIT)));
        }
        Ok(())
    });
}

#[test]
fn the_inline_form() {
    each(|device, [n, d], host, _| {
        // Positive elements, so that no sum is near zero.
        let host = Host::of(&[n, d], host.elements.iter().map(|x| x + 2.5).collect::<Vec<_>>());
        let whole = sums(&[n, d], &[1], |at| host.at(at));
        let x = host.on(device)?;
        let element = |i: usize| {
            let part = f64::from(host.elements[i]) / whole[i / d].value;
            (part, (roundings(d) + 4.0) * UNIT * part)
        };
        check("parts", &fuse!(x[N, D] / sum(x[N, D], D))?, &[n, d], (0..n * d).map(element));
        let total: f64 = whole.iter().map(|sum| sum.value).sum();
        let bound = (roundings(n * d) + (n + d) as f64) * UNIT * total;
        check("total", &fuse!(sum(x[N, D]))?, &[], [(total, bound)]);
        check("sums", &fuse!(sum(x[N, D], D))?, &[n], whole.iter().map(|sum| (sum.value, sum.bound())));
        Ok(())
    });
}

#[test]
fn into_a_given_tensor() {
    each(|device, [n, d], host, whole| {
        let x = host.on(device)?;
        let (mut s, mut twice) =
            (Tensor::full(device, f32::NAN, [n])?, Tensor::full(device, f32::NAN, [n, d])?);
        let (mut rest, mut more) = (twice.clone(), s.clone());
        fused::of_both::into(&mut s, &mut twice, &mut rest, &mut more, &x)?;
        check("sum", &s, &[n], whole.iter().map(|sum| (sum.value, sum.bound())));
        check("twice", &twice, &[n, d], host.elements.iter().map(|&x| (2.0 * f64::from(x), 0.0)));
        let same =
            |one: &Tensor<f32>, other: &Tensor<f32>| -> Result<bool> { Ok(one.to_vec()? == other.to_vec()?) };
        let made = fused::of_both(&x)?;
        assert!(same(&rest, &made.2)? && same(&more, &made.3)?, "{device}");
        Ok(())
    });
}

#[test]
fn kernels() {
    let kernels = [
        fused::centred::report().kernels(),
        fused::counted::report().kernels(),
        fused::both_in_place::report().kernels(),
        fused::running::report().kernels(),
        fused::of_both::report().kernels(),
        fused::with_rows_alone::report().kernels(),
        fused::statistics::report().kernels(),
        fused::probabilities::report().kernels(),
        fused::spread_out::report().kernels(),
    ];
    assert_eq!(kernels, [1; 9]);
    assert_eq!(fused::two_axes::report().kernels(), 2);
}
