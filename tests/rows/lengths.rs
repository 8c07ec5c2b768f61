//! Rows of every length are right, in small and large numbers, for each variant of the launch and each
//! remainder.

use fusion::prelude::*;

use crate::devices::{Kind, devices};
use crate::{Host, ReferenceSum, UNIT, check, roundings};

fuse! {
    pub(crate) fn total(x: f32[N, D]) -> f32[N] { sum(x, D) }

    pub(crate) fn average(x: f32[N, D]) -> f32[N] { mean(x, D) }

    pub(crate) fn product(x: f32[N, D]) -> f32[N] { prod(x, D) }

    pub(crate) fn ends(x: f32[N, D]) -> (f32[N], f32[N]) { (min(x, D), max(x, D)) }

    pub(crate) fn soft(x: f32[N, D]) -> f32[N, D] {
        let e = exp(x - max(x, D));
        e / sum(e, D)
    }

    pub(crate) fn normal(x: f32[N, D], gamma: f32[D], beta: f32[D], eps: f32) -> f32[N, D] {
        let mu = mean(x, D);
        let var = mean(square(x - mu), D);
        (x - mu) * rsqrt(var + eps) * gamma + beta
    }

    pub(crate) fn wrapped(x: i32[N, D]) -> (i32[N], i32[N], i32[N]) { (sum(x, D), max(x, D), min(x, D)) }
}

/// Numbers of rows. The last exceeds the number of workgroups that a GPU has in one dimension.
const COUNTS: [usize; 4] = [1, 3, 4096, 70_001];
const LENGTHS: [usize; 17] = [0, 1, 2, 4, 16, 31, 32, 33, 64, 65, 96, 100, 1023, 1024, 1025, 40_000, 50_257];

/// Largest number of elements, because devices and the unoptimised reference are slow. It allows few rows of
/// the longest length, or thousands of short ones.
const MOST: usize = 160_000;

/// Runs a test on each device with each number and length of rows up to `MOST` elements.
fn each_size(test: impl Fn(&Device, [usize; 2]) -> Result<()>) {
    each_size_and(|_, _| false, test);
}

/// Runs a test like `each_size`, and with further sizes.
fn each_size_and(also: fn(Kind, [usize; 2]) -> bool, test: impl Fn(&Device, [usize; 2]) -> Result<()>) {
    for (kind, device) in devices() {
        for count in COUNTS {
            for len in LENGTHS.into_iter().filter(|&len| count * len <= MOST || also(kind, [count, len])) {
                test(&device, [count, len])
                    .unwrap_or_else(|error| panic!("{device}: {count} rows of {len}: {error}"));
            }
        }
    }
}

#[test]
fn sums_and_means() {
    let also = |kind, size| match kind {
        Kind::Cpu | Kind::Wgpu => [[4096, 1025], [70_001, 33]].contains(&size),
        Kind::Cuda => false,
    };
    each_size_and(also, |device, [n, d]| {
        let host = Host::new(7, &[n, d]);
        let x = host.on(device)?;
        let sums: Vec<ReferenceSum> = host.rows().map(ReferenceSum::of).collect();
        check("sum", &total(&x)?, &[n], sums.iter().map(|sum| (sum.value, sum.bound())));
        if d > 0 {
            let d = d as f64;
            let means = sums.iter().map(|sum| (sum.value / d, (sum.bound() + 2.0 * UNIT) / d));
            check("mean", &average(&x)?, &[n], means);
        }
        Ok(())
    });
}

#[test]
fn extremes_are_exact() {
    each_size(|device, [n, d]| {
        let host = Host::new(11, &[n, d]);
        if d > 0 {
            let (least, most) = ends(&host.on(device)?)?;
            let of = |f: fn(f64, f64) -> f64| -> Vec<(f64, f64)> {
                host.rows().map(|row| (row.into_iter().reduce(f).expect("rows have elements"), 0.0)).collect()
            };
            check("min", &least, &[n], of(f64::min));
            check("max", &most, &[n], of(f64::max));
        }
        Ok(())
    });
}

#[test]
fn products() {
    each_size(|device, [n, d]| {
        let mut host = Host::new(13, &[n, d]);
        // Elements near one, so that a product of thousands neither overflows nor vanishes.
        host.elements.iter_mut().for_each(|x| *x = 1.0 + *x / 1024.0);
        let expected = host.rows().map(|row| {
            let product: f64 = row.iter().product();
            // Each product is rounded relative to itself, in any order of factors.
            (product, 1.01 * (d + 1) as f64 * UNIT * product)
        });
        check("prod", &product(&host.on(device)?)?, &[n], expected);
        Ok(())
    });
}

#[test]
fn softmax() {
    each_size(|device, [n, d]| {
        let host = Host::new(3, &[n, d]);
        let expected = host.rows().flat_map(|row| {
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let e: Vec<f64> = row.iter().map(|x| (x - most).exp()).collect();
            let sum: f64 = e.iter().sum();
            e.into_iter().map(move |e| e / sum)
        });
        // The terms are positive, and a few units are the exponential's error.
        let within = |p: f64| (p, (roundings(d) + 16.0) * UNIT * p);
        check("softmax", &soft(&host.on(device)?)?, &[n, d], expected.map(within));
        Ok(())
    });
}

#[test]
fn layer_norm() {
    each_size(|device, [n, d]| {
        let (x, gamma, beta) = (Host::new(3, &[n, d]), Host::new(5, &[d]), Host::new(9, &[d]));
        let got = normal(&x.on(device)?, &gamma.on(device)?, &beta.on(device)?, 1e-5)?;
        let expected = x.rows().flat_map(|row| {
            let (len, unit) = (row.len() as f64, roundings(row.len()) * UNIT);
            let sum = ReferenceSum::of(row.iter().copied());
            let mean = sum.value / len;
            let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / len;
            let scale = (var + f64::from(1e-5_f32)).sqrt().recip();
            let shift = unit * sum.magnitude / len;
            let element = |(i, x): (usize, f64)| {
                let (z, g, b) = ((x - mean) * scale, gamma.at(&[i]), beta.at(&[i]));
                // The mean is off by `shift`, and the standard deviation by twice as much, relative to its
                // size.
                let error = shift * scale * (1.0 + z.abs()) + unit * z.abs();
                (z * g + b, error * g.abs() + 4.0 * UNIT * ((z * g).abs() + b.abs()))
            };
            row.into_iter().enumerate().map(element).collect::<Vec<_>>()
        });
        check("layer norm", &got, &[n, d], expected);
        Ok(())
    });
}

#[test]
fn integers_wrap() {
    each_size(|device, [n, d]| {
        let element = |i: usize| (i as i32).wrapping_mul(0x9e37_79b1_u32 as i32);
        let elements: Vec<i32> = (0..n * d).map(element).collect();
        let given = Tensor::from_slice(device, &elements, [n, d])?;
        if d == 0 {
            assert!(matches!(wrapped(&given), Err(Error::Empty { .. })), "{device}: the largest of nothing");
            return Ok(());
        }
        let (sum, most, least) = wrapped(&given)?;
        let of = |f: fn(i32, i32) -> i32, start: i32| -> Vec<i32> {
            (0..n).map(|row| elements[row * d..][..d].iter().copied().fold(start, f)).collect()
        };
        assert_eq!(sum.to_vec()?, of(i32::wrapping_add, 0), "{device}: sums of {n}x{d}");
        assert_eq!(most.to_vec()?, of(i32::max, i32::MIN), "{device}: largest of {n}x{d}");
        assert_eq!(least.to_vec()?, of(i32::min, i32::MAX), "{device}: least of {n}x{d}");
        Ok(())
    });
}

/// Each function is one kernel in every variant.
#[test]
fn each_is_one_kernel() {
    let kernels = [
        total::report().kernels(),
        average::report().kernels(),
        product::report().kernels(),
        ends::report().kernels(),
        soft::report().kernels(),
        normal::report().kernels(),
        wrapped::report().kernels(),
    ];
    assert_eq!(kernels, [1; 7]);
}
