//! Split reductions, for a few long rows: few kernels compute the same values as for whole rows, within
//! tighter bounds.

use fusion::prelude::*;

use crate::devices::{Kind, devices, exact_devices, on_devices};
use crate::{Host, ReferenceSum, UNIT, check};

fuse! {
    pub(crate) fn all_sums(x: f32[N]) -> (f32[], f32[], f32[]) { (sum(x), mean(x), norm(x)) }
    pub(crate) fn all_ends(x: f32[N]) -> (f32[], f32[]) { (max(x), min(x)) }
    pub(crate) fn all_spread(x: f32[N]) -> (f32[], f32[]) { (var(x), std(x)) }
    pub(crate) fn all_logs(x: f32[N]) -> f32[] { logsumexp(x) }

    pub(crate) fn row_sums(x: f32[N, D]) -> (f32[N], f32[N], f32[N]) { (sum(x, D), mean(x, D), norm(x, D)) }
    pub(crate) fn row_ends(x: f32[N, D]) -> (f32[N], f32[N]) { (max(x, D), min(x, D)) }
    pub(crate) fn row_spread(x: f32[N, D]) -> (f32[N], f32[N]) { (var(x, D), std(x, D)) }
    pub(crate) fn row_logs(x: f32[N, D]) -> f32[N] { logsumexp(x, D) }
    pub(crate) fn row_distances(x: f32[N, D]) -> f32[N] { sum(x - max(x, D), D) }
    pub(crate) fn column_distances(x: f32[D, N]) -> f32[N] { sum(x - max(x, D), D) }
    pub(crate) fn places(x: f32[N, D]) -> (i32[N], i32[N]) { (argmax(x, D), argmin(x, D)) }
    pub(crate) fn column_places(x: f32[D, N]) -> (i32[N], i32[N]) {
        (argmax(x, D), min(if x == max(x, D) { D + 1 } else { D }, D))
    }
    pub(crate) fn whether(x: f32[N, D]) -> (i32[N], u32[N], u32[N]) {
        let count = sum(if x > 1.999 { 1 } else { 0 }, D);
        let one = if any(x > 1.999, D) { 1 } else { 0 };
        let every = if all(x > -3.0, D) { 1 } else { 0 };
        (count, one as u32, every as u32)
    }

    pub(crate) fn shares(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
    pub(crate) fn normal(x: f32[N, D], gamma: f32[D]) -> f32[N, D] { layer_norm(x, D) * gamma }

    // Operands that lack the row, or all but its innermost dim.
    pub(crate) fn weighted(x: f32[N, D], y: f32[D], z: f32[N]) -> f32[] { sum(x * y * z) }
    pub(crate) fn weighted_mean(x: f32[N, D], y: f32[D]) -> f32[] {
        let mu = mean(x * y);
        mean(square(x * y - mu))
    }
    pub(crate) fn squares(x: f32[N, D], y: f32[N, D]) -> f32[] { mse(x, y) }

    // So few parts that one thread combines the partials.
    pub(crate) fn fixed(x: f32[N, D = 70_000]) -> (f32[N], f32[N]) { (sum(x, D), var(x, D)) }

    // An update together with the norm that it needs.
    pub(crate) fn clipped(p: &mut f32[N], most: f32) -> f32[] {
        let length = norm(p);
        p *= min(1.0, most / length);
        length
    }
    pub(crate) fn of_length_one(p: &mut f32[N], calls: &mut f32[]) -> f32[] {
        let length = norm(p);
        p = p / length * calls;
        calls += 1.0;
        length
    }
    pub(crate) fn both_in_place(p: &mut f32[N, D], s: &mut f32[N], g: f32[D]) -> (f32[N], f32[N, D]) {
        let mu = mean(p, D);
        let old = p;
        p = (p - mu) * g + s;
        s = 0.5 * s + mu;
        (mu, 2.0 * old)
    }
    pub(crate) fn one_after_another(x: f32[N, D]) -> (f32[N], f32[N], f32[N, D]) {
        let low = min(x, D);
        let next = min(if x > low { x } else { INF }, D);
        let mid = sum(if x > next { 1.0 } else { 0.0 }, D);
        (next, mid, x - next)
    }
}

const LENGTHS: [usize; 6] = [1, 1023, 65_536, 65_537, 300_001, (1 << 20) + 1];
const COUNTS: [usize; 4] = [1, 2, 3, 33];

/// Returns the largest number of elements, because devices and the unoptimised reference are slow.
fn most(kind: Kind) -> usize {
    match kind {
        Kind::Cpu => (1 << 20) + 1,
        Kind::Wgpu | Kind::Cuda => 1 << 18,
    }
}

/// Runs a test on each device with each number and length of rows.
pub(crate) fn each_size(test: impl Fn(&Device, &Host) -> Result<()>) {
    each_size_of(most, test);
}

fn each_size_of(most: fn(Kind) -> usize, test: impl Fn(&Device, &Host) -> Result<()>) {
    for (kind, device) in devices() {
        for count in COUNTS {
            for len in LENGTHS.into_iter().filter(|len| count * len <= most(kind) + 1) {
                let host = Host::new((count + len) as u32, &[count, len]);
                test(&device, &host)
                    .unwrap_or_else(|error| panic!("{device}: {count} rows of {len}: {error}"));
            }
        }
    }
}

/// Returns the relative error bound of a long sum: a hundred or so roundings in a part, and as many for the
/// partials.
pub(crate) fn unit(len: usize) -> f64 {
    (len / 512 + 300).min(len + 8) as f64 * UNIT
}

/// Returns sum, mean and Euclidean norm of each row, with their bounds.
fn expected_sums(host: &Host) -> [Vec<(f64, f64)>; 3] {
    let sums: Vec<(ReferenceSum, ReferenceSum)> = host
        .rows()
        .map(|row| (ReferenceSum::of(row.iter().copied()), ReferenceSum::of(row.iter().map(|x| x * x))))
        .collect();
    let of = |f: &dyn Fn(&ReferenceSum, &ReferenceSum) -> (f64, f64)| {
        sums.iter().map(|(sum, squares)| f(sum, squares)).collect()
    };
    let bound = |sum: &ReferenceSum| unit(sum.terms) * sum.magnitude;
    [
        of(&|sum, _| (sum.value, bound(sum))),
        of(&|sum, _| (sum.value / sum.terms as f64, (bound(sum) + UNIT * sum.magnitude) / sum.terms as f64)),
        of(&|_, squares| (squares.value.sqrt(), unit(squares.terms) * squares.value.sqrt())),
    ]
}

#[test]
fn sums_means_and_norms() {
    // A million elements run on the simulated device, too.
    each_size_of(
        |kind| most(kind).max(1 << 20),
        |device, host| {
            let (n, expected) = (host.shape[0], expected_sums(host));
            let x = host.on(device)?;
            let (sum, mean, norm) = row_sums(&x)?;
            for ((what, got), expected) in
                [("sum", sum), ("mean", mean), ("norm", norm)].iter().zip(&expected)
            {
                check(what, got, &[n], expected.iter().copied());
            }
            let line = Host::of(&[host.elements.len()], host.elements.clone());
            let of_all = expected_sums(&Host::of(&[1, host.elements.len()], host.elements.clone()));
            let (sum, mean, norm) = all_sums(&line.on(device)?)?;
            for ((what, got), expected) in [("sum", sum), ("mean", mean), ("norm", norm)].iter().zip(&of_all)
            {
                check(what, got, &[], expected.iter().copied());
            }
            Ok(())
        },
    );
}

#[test]
fn extremes_and_where_they_are() {
    each_size(|device, host| {
        let (n, d) = (host.shape[0], host.shape[1]);
        let x = host.on(device)?;
        let exact = |f: fn(f64, f64) -> f64| -> Vec<(f64, f64)> {
            host.rows().map(|row| (row.into_iter().reduce(f).expect("it has elements"), 0.0)).collect()
        };
        let (most, least) = row_ends(&x)?;
        check("max", &most, &[n], exact(f64::max));
        check("min", &least, &[n], exact(f64::min));
        let first =
            |row: &[f64], extreme: f64| row.iter().position(|&x| x == extreme).expect("it is there") as i32;
        let (largest, smallest) = places(&x)?;
        let at = |of: &[(f64, f64)]| -> Vec<i32> {
            host.rows().zip(of).map(|(row, (extreme, _))| first(&row, *extreme)).collect()
        };
        assert_eq!(largest.to_vec()?, at(&exact(f64::max)), "{device}: argmax of {n}x{d}");
        assert_eq!(smallest.to_vec()?, at(&exact(f64::min)), "{device}: argmin of {n}x{d}");
        let (most, least) = all_ends(&Tensor::from_slice(device, &host.elements, [n * d])?)?;
        let whole = |f: fn(f64, f64) -> f64| exact(f).into_iter().map(|(x, _)| x).reduce(f).expect("rows");
        assert_eq!((f64::from(most.item()?), f64::from(least.item()?)), (whole(f64::max), whole(f64::min)));
        let (count, one, every) = whether(&x)?;
        let counts: Vec<i32> =
            host.rows().map(|row| row.iter().filter(|x| **x > 1.999).count() as i32).collect();
        let any: Vec<u32> = counts.iter().map(|&count| u32::from(count > 0)).collect();
        assert_eq!((count.to_vec()?, one.to_vec()?, every.to_vec()?), (counts, any, vec![1; n]), "{device}");
        Ok(())
    });
}

/// Returns variance and deviation of a row, with relative bounds, because both come from squares of small
/// distances.
fn expected_spread(row: &[f64]) -> [(f64, f64); 2] {
    let len = row.len() as f64;
    let mean = row.iter().sum::<f64>() / len;
    let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (len - 1.0);
    // A distance is off by one rounding of the element and one of the mean.
    let most = row.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let bound = unit(row.len()) * var + 8.0 * UNIT * most * var.sqrt();
    [(var, bound), (var.sqrt(), bound / var.sqrt())]
}

#[test]
fn variances_far_from_zero() {
    for offset in [1000.0, -1e6] {
        each_size(|device, host| {
            let (n, d) = (host.shape[0], host.shape[1]);
            let mut host = host.clone();
            host.elements.iter_mut().for_each(|x| *x += offset);
            let (var, std) = row_spread(&host.on(device)?)?;
            if d == 1 {
                assert!(var.to_vec()?.iter().chain(&std.to_vec()?).all(|x| x.is_nan()), "{device}");
                return Ok(());
            }
            let spread: Vec<[(f64, f64); 2]> = host.rows().map(|row| expected_spread(&row)).collect();
            check("var", &var, &[n], spread.iter().map(|both| both[0]));
            check("std", &std, &[n], spread.iter().map(|both| both[1]));
            if n == 1 {
                let (var, std) = all_spread(&Tensor::from_slice(device, &host.elements, [d])?)?;
                check("var", &var, &[], spread.iter().map(|both| both[0]));
                check("std", &std, &[], spread.iter().map(|both| both[1]));
            }
            Ok(())
        });
    }
}

#[test]
fn exponentials() {
    each_size(|device, host| {
        let (n, d) = (host.shape[0], host.shape[1]);
        // Elements from −100 to 100, in parts whose largest element is far from that of the row.
        let elements: Vec<f32> =
            host.elements.iter().enumerate().map(|(i, x)| x * (1.0 + (i / 9000 % 7) as f32 * 8.0)).collect();
        let host = Host::of(&[n, d], elements);
        let of = |row: &[f64]| {
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (most, row.iter().map(|x| (x - most).exp()).sum::<f64>())
        };
        let logs: Vec<(f64, f64)> = host
            .rows()
            .map(|row| of(&row))
            .map(|(most, sum)| (most + sum.ln(), unit(d) + 64.0 * UNIT + 2.0 * UNIT * most.abs()))
            .collect();
        let x = host.on(device)?;
        check("logsumexp", &row_logs(&x)?, &[n], logs.iter().copied());
        if n == 1 {
            check("logsumexp", &all_logs(&Tensor::from_slice(device, &host.elements, [d])?)?, &[], logs);
        }
        let expected = host.rows().flat_map(|row| {
            let (most, sum) = of(&row);
            row.into_iter().map(move |x| ((x - most).exp() / sum, x - most))
        });
        // The difference is rounded before it becomes an exponent. The smallest shares are subnormal, where
        // GPUs round coarsely.
        let bounded =
            expected.map(|(share, shift)| (share, (unit(d) + (32.0 + shift.abs()) * UNIT) * share + 1e-37));
        check("softmax", &shares(&x)?, &[n, d], bounded);
        Ok(())
    });
}

#[test]
fn normalised_rows() {
    each_size(|device, host| {
        let (n, d) = (host.shape[0], host.shape[1]);
        let gamma = Host::new(17, &[d]);
        let expected = host.rows().flat_map(|row| {
            let len = row.len() as f64;
            let mean = row.iter().sum::<f64>() / len;
            let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / len;
            let scale = (var + f64::from(1e-5_f32)).sqrt().recip();
            let shift = 2.0 * unit(row.len()) * scale;
            let gamma = &gamma;
            let element = move |(i, x): (usize, f64)| {
                let (z, g) = ((x - mean) * scale, gamma.at(&[i]));
                (z * g, (shift + (unit(d) + 8.0 * UNIT) * z.abs()) * g.abs())
            };
            row.into_iter().enumerate().map(element).collect::<Vec<_>>()
        });
        check("layer norm", &normal(&host.on(device)?, &gamma.on(device)?)?, &[n, d], expected);
        Ok(())
    });
}

#[test]
fn rows_of_several_dims() {
    let shapes = [[1, 65_537], [3, 40_001], [40, 5003], [40_000, 3], [1100, 65]];
    on_devices(|device| {
        for [n, d] in shapes {
            let (x, y, z) = (Host::new(1, &[n, d]), Host::new(2, &[d]), Host::new(3, &[n]));
            let at = |i: usize| [i / d, i % d];
            let terms: Vec<f64> = (0..n * d).map(|i| x.at(&at(i)) * y.at(&[i % d])).collect();
            let sum = ReferenceSum::of(terms.iter().enumerate().map(|(i, t)| t * z.at(&[i / d])));
            let (gx, gy, gz) = (x.on(device)?, y.on(device)?, z.on(device)?);
            let loose = (n * d) as f64 / 32.0 + 64.0;
            let got = weighted(&gx, &gy, &gz)?;
            check(
                &format!("weighted sum of {n}x{d}"),
                &got,
                &[],
                [(sum.value, loose * UNIT * sum.magnitude)],
            );
            let mean = terms.iter().sum::<f64>() / (n * d) as f64;
            let var = terms.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n * d) as f64;
            check("weighted mean", &weighted_mean(&gx, &gy)?, &[], [(var, loose * UNIT * var)]);
            let other = Host::new(9, &[n, d]);
            let square = |(x, y): (&f32, &f32)| (f64::from(*x) - f64::from(*y)).powi(2);
            let mse = x.elements.iter().zip(&other.elements).map(square).sum::<f64>() / (n * d) as f64;
            check(
                "squares",
                &squares(&gx, &other.on(device)?)?,
                &[],
                [(mse, (unit(n * d) + 4.0 * UNIT) * mse)],
            );
        }
        Ok(())
    });
}

#[test]
fn rows_of_a_fixed_length() {
    on_devices(|device| {
        let host = Host::new(51, &[3, 70_000]);
        let (sum, var) = fixed(&host.on(device)?)?;
        check("sum", &sum, &[3], expected_sums(&host)[0].iter().copied());
        check("var", &var, &[3], host.rows().map(|row| expected_spread(&row)[0]));
        Ok(())
    });
}

/// Places are right across parts: the first of equals in any part, and the first NaN. Some parts of columns
/// are empty.
#[test]
fn places_across_parts() {
    // Eleven runs that 88 parts of three columns interleave along, and fifty elements more.
    const D: usize = 11 * 5632 + 50;
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    // The common value of a row, and the exceptions in it.
    let cases: [(f32, &[(usize, f32)]); 8] = [
        (0.5, &[]),
        (0.5, &[(60_000, 2.0), (61_000, 2.0)]),
        (0.5, &[(100, 2.0), (60_000, nan), (61_500, nan)]),
        (nan, &[(0, 1.0)]),
        (-inf, &[]),
        (-inf, &[(D - 1, -3.0)]),
        (-0.0, &[(50_000, 0.0)]),
        (inf, &[(0, 7.0), (40_000, nan)]),
    ];
    let rows = cases.map(|(full, others)| {
        let mut row = vec![full; D];
        others.iter().for_each(|&(at, x)| row[at] = x);
        row
    });
    let first = |row: &[f32], better: fn(f32, f32) -> bool| {
        let nan = row.iter().position(|x| x.is_nan());
        nan.unwrap_or_else(|| {
            (1..row.len()).fold(0, |best, i| if better(row[i], row[best]) { i } else { best })
        })
    };
    let all = |better| rows.iter().map(|row| first(row, better) as i32).collect::<Vec<_>>();
    let (most, least) = (all(|x, best| x > best), all(|x, best| x < best));
    for device in exact_devices() {
        let n = rows.len();
        let (got_most, got_least) =
            places(&Tensor::from_slice(&device, &rows.concat(), [n, D]).expect("it fits")).expect("it runs");
        assert_eq!(got_most.to_vec().expect("it is there"), most, "{device}");
        assert_eq!(got_least.to_vec().expect("it is there"), least, "{device}");
        // Three columns at a time have interleaved parts.
        for three in 0..n / 3 {
            let columns: Vec<f32> = (0..D)
                .flat_map(|i| (0..3).map(move |c| (i, c)))
                .map(|(i, c)| rows[3 * three + c][i])
                .collect();
            let x = Tensor::from_slice(&device, &columns, [D, 3]).expect("it fits");
            let (place, beyond) = column_places(&x).expect("it runs");
            let of_three = 3 * three..3 * three + 3;
            assert_eq!(place.to_vec().expect("it is there"), most[of_three.clone()], "{device}");
            let alike = |row: &Vec<f32>| D as i32 + i32::from(row.iter().all(|x| *x == row[0]));
            let expected: Vec<i32> = rows[of_three].iter().map(alike).collect();
            assert_eq!(beyond.to_vec().expect("it is there"), expected, "{device}");
        }
    }
}

#[test]
fn updates_in_place() {
    on_devices(|device| {
        for d in [5, 65_537, 300_001] {
            let host = Host::new(23, &[d]);
            let length = host.elements.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            let mut p = host.on(device)?;
            let kept = p.clone();
            let got = clipped(&mut p, 2.0)?;
            check("length", &got, &[], [(length, unit(d) * length)]);
            let scale = (2.0 / length).min(1.0);
            let scaled =
                |x: &f32| (f64::from(*x) * scale, (unit(d) + 4.0 * UNIT) * scale * f64::from(x.abs()));
            check("clipped", &p, &[d], host.elements.iter().map(scaled));
            assert_eq!(kept.to_vec()?, host.elements, "{device}: a clone keeps its elements");

            let (n, old) = (3, Host::new(29, &[3, d]));
            let (s, g) = (Host::new(31, &[n]), Host::new(37, &[d]));
            let (mut p, mut t) = (old.on(device)?, s.on(device)?);
            let (mu, twice) = both_in_place(&mut p, &mut t, &g.on(device)?)?;
            let means: Vec<f64> = old.rows().map(|row| row.iter().sum::<f64>() / d as f64).collect();
            let off = 2.0 * unit(d);
            check("mean", &mu, &[n], means.iter().map(|&mean| (mean, off)));
            check("twice", &twice, &[n, d], old.elements.iter().map(|&x| (2.0 * f64::from(x), 0.0)));
            check("s", &t, &[n], (0..n).map(|i| (0.5 * s.at(&[i]) + means[i], off + 4.0 * UNIT)));
            let element = |i: usize| {
                let value = (f64::from(old.elements[i]) - means[i / d]) * g.at(&[i % d]) + s.at(&[i / d]);
                (value, 2.0 * off + 16.0 * UNIT)
            };
            check("p", &p, &[n, d], (0..n * d).map(element));
        }
        Ok(())
    });
}

/// The CPU computes elements by parts only for rows of millions.
#[test]
fn elements_of_a_row_of_millions() {
    let Some(device) = Kind::Cpu.open() else { return };
    let d = (1 << 22) + 3;
    let host = Host::new(53, &[1, d]);
    let row: Vec<f64> = host.elements.iter().map(|&x| f64::from(x)).collect();
    let x = host.on(&device).expect("it fits");
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut p = Tensor::from_slice(&device, &host.elements, [d]).expect("it fits");
    clipped(&mut p, 2.0).expect("it runs");
    let off = unit(d) + 4.0 * UNIT;
    check("clipped", &p, &[d], row.iter().map(|x| (2.0 * x / length, off * 2.0 * x.abs() / length)));
    let total: f64 = row.iter().map(|x| x.exp()).sum();
    let share = |x: &f64| (x.exp() / total, (off + 64.0 * UNIT) * x.exp() / total);
    check("softmax", &shares(&x).expect("it runs"), &[1, d], row.iter().map(share));
    let (next, mid, above) = one_after_another(&x).expect("it runs");
    let low = row.iter().copied().fold(f64::INFINITY, f64::min);
    let second = row.iter().copied().filter(|&x| x > low).fold(f64::INFINITY, f64::min);
    check("next", &next, &[1], [(second, 0.0)]);
    check("mid", &mid, &[1], [(row.iter().filter(|&&x| x > second).count() as f64, 0.0)]);
    check("above", &above, &[1, d], row.iter().map(|x| (x - second, 4.0 * UNIT)));
}

/// Each part of the elements combines the partials of all parts again. Above 8,388,608 elements a GPU has
/// parts of twice the length, so that they stay few. The CPU has parts of its own, of millions of elements.
#[test]
fn elements_by_a_norm_of_all() {
    for (kind, device) in devices() {
        let long = match kind {
            Kind::Cpu => (1 << 22) + 3,
            Kind::Wgpu => (1 << 23) + 5,
            // A row above the threshold is slow to simulate, and its parts would be those of the other GPU.
            Kind::Cuda => 1_000_003,
        };
        for d in [65_537, long] {
            const ELEMENTS: usize = 97;
            let elements: Vec<f32> = (0..ELEMENTS).map(|i| i as f32 * 0.125 - 6.0).collect();
            let host: Vec<f32> = elements.iter().copied().cycle().take(d).collect();
            let mut p = Tensor::from_slice(&device, &host, [d]).expect("it fits");
            // One thread writes the scalar while others read it.
            let mut calls = Tensor::full(&device, 1.0, []).expect("it fits");
            let length_of_all = of_length_one(&mut p, &mut calls).expect("it runs");
            check("calls", &calls, &[], [(2.0, 0.0)]);
            let squares = |elements: &[f32]| elements.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
            let rounds = (d / ELEMENTS) as f64;
            let length = (rounds * squares(&elements) + squares(&elements[..d % ELEMENTS])).sqrt();
            check("length", &length_of_all, &[], [(length, (unit(d) + 4.0 * UNIT) * length)]);
            let expected = elements.iter().cycle().take(d).map(|&x| {
                let x = f64::from(x) / length;
                (x, (unit(d) + 4.0 * UNIT) * x.abs())
            });
            check("of length one", &p, &[d], expected);
        }
    }
}

/// A reduction that depends on another one takes a round of kernels of its own.
#[test]
fn one_round_after_another() {
    on_devices(|device| {
        for [n, d] in [[2, 70_001], [1, 262_145]] {
            let host = Host::new(41, &[n, d]);
            let (next, mid, above) = one_after_another(&host.on(device)?)?;
            let expected: Vec<(f64, f64)> = host
                .rows()
                .map(|row| {
                    let low = row.iter().copied().fold(f64::INFINITY, f64::min);
                    let next = row.iter().copied().filter(|&x| x > low).fold(f64::INFINITY, f64::min);
                    (next, row.iter().filter(|&&x| x > next).count() as f64)
                })
                .collect();
            check("next", &next, &[n], expected.iter().map(|&(next, _)| (next, 0.0)));
            check("mid", &mid, &[n], expected.iter().map(|&(_, mid)| (mid, 0.0)));
            let element = |i: usize| (f64::from(host.elements[i]) - expected[i / d].0, 4.0 * UNIT);
            check("above", &above, &[n, d], (0..n * d).map(element));
        }
        Ok(())
    });
}

/// Special values behave as in whole rows. A NaN gives NaN, infinities follow IEEE, and a row of −∞ has NaN
/// shares.
#[test]
fn no_numbers() {
    const D: usize = 70_000;
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    // Pairs of a place and its special value. All other elements are plain numbers.
    let cases: [&[(usize, f32)]; 10] = [
        &[(0, nan)],
        &[(D - 1, nan)],
        &[(3, inf), (60_000, nan)],
        &[(3, nan), (4, inf)],
        &[(20_000, nan), (60_000, -inf)],
        &[(20_000, inf)],
        &[(20_000, -inf)],
        &[(3, inf), (60_000, -inf)],
        &[(3, inf), (4, inf)],
        &[(3, -inf), (60_000, -inf)],
    ];
    let nearly = |got: f32, expected: f64| {
        let got = f64::from(got);
        got == expected
            || got.is_nan() && expected.is_nan()
            || (got - expected).abs() <= 1e-4 * (1.0 + expected.abs())
    };
    for device in exact_devices() {
        for base in [0.5, -200.0, -inf, nan] {
            for case in cases {
                let mut row = vec![base; D];
                case.iter().for_each(|&(at, x)| row[at] = x);
                // A part of −∞ in a row of numbers.
                row[30_000..50_000].fill(-inf);
                let x = Tensor::from_slice(&device, &row, [1, D]).expect("it fits");
                let wide: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
                let any_nan = wide.iter().any(|x| x.is_nan());
                let sum: f64 = wide.iter().sum();
                let most =
                    if any_nan { f64::NAN } else { wide.iter().copied().fold(-f64::INFINITY, f64::max) };
                let least =
                    if any_nan { f64::NAN } else { wide.iter().copied().fold(f64::INFINITY, f64::min) };
                let what = format!("{device}: {base} but for {case:?}");
                let one = |tensor: Tensor<f32>| tensor.to_vec().expect("it runs")[0];
                let sums = row_sums(&x).expect("it runs");
                assert!(nearly(one(sums.0), sum), "sum of {what}");
                let ends = row_ends(&x).expect("it runs");
                assert!(nearly(one(ends.0), most) && nearly(one(ends.1), least), "ends of {what}");
                let spread = row_spread(&x).expect("it runs");
                assert!(one(spread.0).is_nan() && one(spread.1).is_nan(), "spread of {what}: −∞ is in it");
                let shift = if most.is_infinite() { 0.0 } else { most };
                let distances: f64 = wide.iter().map(|x| x - most).sum();
                let column = x.reshape([D, 1]).and_then(|x| column_distances(&x)).expect("it runs");
                for got in [row_distances(&x).expect("it runs"), column] {
                    let got = one(got);
                    assert!(nearly(got, distances), "distances of {what}: {got}, not {distances}");
                }
                let log = wide.iter().map(|x| (x - shift).exp()).sum::<f64>().ln() + shift;
                assert!(nearly(one(row_logs(&x).expect("it runs")), log), "logsumexp of {what}");
                let total: f64 = wide.iter().map(|x| (x - most).exp()).sum();
                let got = shares(&x).and_then(|got| got.to_vec()).expect("it runs");
                for at in [0, 3, 20_000, 40_000, D - 1] {
                    let share = (wide[at] - most).exp() / total;
                    assert!(nearly(got[at], share), "share {at} of {what}: {}, not {share}", got[at]);
                }
            }
        }
    }
}

/// The bounds on sums are relative to the sum of magnitudes. Split rows have far tighter ones.
#[test]
fn sums_are_accurate() {
    on_devices(|device| {
        for (len, most) in [(4, 1.7e-6), (1 << 10, 3.3e-5), (1 << 16, 1e-6), (1 << 20, 1e-6)] {
            let host = Host::new(len as u32, &[len]);
            let sum = ReferenceSum::of(host.elements.iter().map(|&x| f64::from(x)));
            let got = all_sums(&host.on(device)?)?.0.item()?;
            let error = (f64::from(got) - sum.value).abs() / sum.magnitude;
            assert!(error <= most, "{device}: sum of {len} is off by {error:e}");
        }
        Ok(())
    });
}
