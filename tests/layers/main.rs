//! Layers and losses of the library agree with PyTorch's values, and with plain loops in f64, on every
//! device.
//!
//! Each bound stands next to the comparison that uses it. The largest errors measured are a tenth to two
//! fifths of their bounds, alike on the CPU, the software Vulkan and the simulated NVIDIA GPU. Softmax
//! reaches seven tenths, because small shares inherit the rounding of the subtraction. `--nocapture` prints
//! the errors.

#[path = "../devices/mod.rs"]
mod devices;
mod losses;
mod models;
mod windows;

use devices::{exact_devices, on_devices};
use fusion::prelude::*;
use safetensors::{Dtype, SafeTensors};

fuse! {
    pub(crate) fn softmax_rows(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
    pub(crate) fn log_softmax_rows(x: f32[N, D]) -> f32[N, D] { log_softmax(x, D) }
    pub(crate) fn centered_rows(x: f32[A, B, C]) -> f32[A, B, C] { x - sum(x, C) }
    pub(crate) fn layer_norm_rows(x: f32[N, D], gamma: f32[D], beta: f32[D]) -> f32[N, D] {
        layer_norm(x, D) * gamma + beta
    }
    pub(crate) fn rms_norm_rows(x: f32[N, D], gamma: f32[D]) -> f32[N, D] { rms_norm(x, D) * gamma }
    pub(crate) fn group_norm_planes(x: f32[N, C, H, W], gamma: f32[C], beta: f32[C], G: dim) -> f32[N, C, H, W] {
        group_norm(x, C, G, (H, W)) * gamma + beta
    }
    pub(crate) fn swiglu(x: f32[N, D], y: f32[N, D]) -> f32[N, D] { silu(x) * y }
    pub(crate) fn mean_loss(x: f32[N, V], t: i32[N]) -> f32[] { cross_entropy_mean(x, V, t) }
}

static GOLDEN: &[u8] = include_bytes!("../golden/layers.safetensors");

/// Reads a tensor of the golden file, with its shape.
fn golden(name: &str) -> (Vec<f32>, Vec<usize>) {
    let file = SafeTensors::deserialize(GOLDEN).expect("the file is whole");
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
    let elements = tensor.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    (elements.collect(), tensor.shape().to_vec())
}

fn classes(name: &str) -> Vec<i32> {
    let file = SafeTensors::deserialize(GOLDEN).expect("the file is whole");
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), Dtype::I64, "{name}");
    let elements = tensor.data().chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()));
    elements.map(|class| i32::try_from(class).expect("a class")).collect()
}

fn input(device: &Device, name: &str) -> Result<Tensor<f32>> {
    let (elements, shape) = golden(name);
    Tensor::from_slice(device, &elements, shape)
}

/// Asserts that each element is off by at most `relative` times its size plus `absolute`.
fn check(device: &Device, what: &str, got: &[f32], expected: &[f64], (relative, absolute): (f64, f64)) {
    assert_eq!(got.len(), expected.len(), "{device}: {what}");
    let mut worst = 0f64;
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let same = f64::from(got) == expected || got.is_nan() && expected.is_nan();
        let (error, bound) = ((f64::from(got) - expected).abs(), relative * expected.abs() + absolute);
        assert!(same || error <= bound, "{device}: {what}: [{i}] is {got}, not {expected}");
        worst = if same { worst } else { worst.max(error / bound) };
    }
    eprintln!("{device}: {what}: {:.0} % of the bound", 100.0 * worst);
}

fn check_golden(device: &Device, name: &str, got: &Tensor<f32>, bound: (f64, f64)) -> Result<()> {
    let (expected, _) = golden(name);
    let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();
    check(device, name, &got.to_vec()?, &expected, bound);
    Ok(())
}

/// Returns a relative bound of `count` ulps of f32.
const fn ulps(count: f64) -> f64 {
    count * 1.2e-7
}

#[test]
fn values_of_pytorch() {
    on_devices(|device| {
        let x = |layer: &str| input(device, &format!("{layer}.in.x"));
        let of = |name: &str| input(device, name);
        check_golden(device, "softmax.out.y", &softmax_rows(&x("softmax")?)?, (ulps(12.0), 0.0))?;
        let y = log_softmax_rows(&x("log_softmax")?)?;
        check_golden(device, "log_softmax.out.y", &y, (ulps(2.0), 1e-6))?;
        let y = layer_norm_rows(&x("layer_norm")?, &of("layer_norm.in.gamma")?, &of("layer_norm.in.beta")?)?;
        check_golden(device, "layer_norm.out.y", &y, (ulps(4.0), 5e-7))?;
        let y = rms_norm_rows(&x("rms_norm")?, &of("rms_norm.in.gamma")?)?;
        check_golden(device, "rms_norm.out.y", &y, (ulps(5.0), 0.0))?;
        let y = swiglu(&x("swiglu")?, &of("swiglu.in.y")?)?;
        check_golden(device, "swiglu.out.y", &y, (ulps(4.0), 0.0))?;
        let targets = classes("cross_entropy.in.target");
        let targets = Tensor::from_slice(device, &targets, [targets.len()])?;
        let y = mean_loss(&x("cross_entropy")?, &targets)?;
        check_golden(device, "cross_entropy.out.y", &y, (ulps(2.0), 0.0))?;
        let (gamma, beta) = (of("group_norm.in.gamma")?, of("group_norm.in.beta")?);
        let y = group_norm_planes(&x("group_norm")?, &gamma, &beta, 2)?;
        check_golden(device, "group_norm.out.y", &y, (ulps(4.0), 5e-7))
    });
}

fuse! {
    pub(crate) fn statistics(x: f32[N, D]) -> (f32[N], f32[N], f32[N], f32[N]) {
        (var(x, D), std(x, D), norm(x, D), logsumexp(x, D))
    }
    pub(crate) fn of_all(x: f32[N, D]) -> (f32[], f32[]) { (var(x), norm(x)) }
    pub(crate) fn of_columns(x: f32[N, D]) -> f32[D] { std(x, N) }
    pub(crate) fn of_batch(x: f32[N, C, H]) -> f32[N, C, H] { batch_norm(x, (N, H)) }
    pub(crate) fn of_running(x: f32[N, C, H], m: f32[C], v: f32[C]) -> f32[N, C, H] { batch_norm(x, m, v, eps = 1e-3) }
    pub(crate) fn corrected(x: f32[N, D], by: f32) -> (f32[N], f32[N], f32[N], f32[D], f32[]) {
        (
            var(x, D, correction = 0),
            std(x, D, correction = 1.5),
            var(x, D, correction = by),
            std(x, N, correction = 0),
            var(x, correction = 0),
        )
    }
    pub(crate) fn places(x: f32[N, D]) -> (i32[N], i32[N]) { (argmax(x, D), argmin(x, D)) }
    pub(crate) fn place_in_column(x: f32[N, D]) -> i32[D] { argmax(x, N) }
    pub(crate) fn integer_places(x: i32[N, D]) -> (i32[N], i32[N]) { (argmax(x, D), argmin(x, D)) }
    // `argmin` numbers the places in the order of its dims, which is not that of the tensor.
    pub(crate) fn places_of_all(_w: f32[D, N], x: f32[N, D]) -> (i32[], i32[]) { (argmax(x), argmin(x, (D, N))) }
    // Places follow the order of the integers and of the operands, although the signature has the dims
    // reversed.
    pub(crate) fn place_of_taken(_w: f32[D, N], x: f32[V], ids: i32[N, D]) -> i32[] { argmax(take(x, V, ids)) }
    pub(crate) fn place_in_rows(_w: f32[M, N], x: f32[N, V], ids: i32[M, N]) -> i32[] { argmax(take(x, V, ids)) }
    pub(crate) fn place_of_product(_w: f32[D, N], x: f32[N], y: f32[D]) -> i32[] { argmax(x * y) }
    // A part of the merged dim is itself split.
    pub(crate) fn place_in_groups(x: f32[N, C], H: dim) -> (i32[], f32[]) {
        let y = group_norm(split(x, C -> (H, D)), H, 2, D);
        let w = merge(y, (H, D) -> C);
        (argmax(w), norm(w))
    }
    pub(crate) fn place_of_filled(p: &mut f32[N, D], s: f32[D]) -> i32[] {
        p = s;
        argmax(p)
    }
    pub(crate) fn place_in_plane(x: f32[N, H, W]) -> i32[N] { argmax(x, (H, W)) }
    pub(crate) fn tests(x: f32[N, D]) -> (i32[N], i32[N], f32[N, D]) {
        (any(x > 1.9, D) as i32, all(x > -1.9, D) as i32, if any(x > 1.9, D) { x } else { 0.0 })
    }
    pub(crate) fn test_of_all(x: f32[N, D]) -> i32[] { all(x < 1.9) as i32 }
}

const EXTENTS: [(usize, usize); 6] = [(1, 1), (3, 2), (5, 33), (4, 257), (2, 1030), (0, 5)];

/// Returns pseudo-random numbers from −2 to 2.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn rows(x: &[f32], d: usize) -> Vec<Vec<f64>> {
    x.chunks_exact(d).map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect()
}

fn each(rows: &[Vec<f64>], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    rows.iter().map(|row| f(row)).collect()
}

fn sum(x: &[f64], f: impl Fn(f64) -> f64) -> f64 {
    x.iter().map(|&x| f(x)).sum()
}

fn mean(x: &[f64]) -> f64 {
    sum(x, |x| x) / x.len() as f64
}

fn variance(x: &[f64]) -> f64 {
    let mean = mean(x);
    let count = x.len() as f64 - 1.0;
    if count > 0.0 { sum(x, |x| (x - mean).powi(2)) / count } else { f64::NAN }
}

fn log_sum_exp(x: &[f64]) -> f64 {
    sum(x, f64::exp).ln()
}

#[test]
fn statistics_of_rows_columns_and_all() {
    on_devices(|device| {
        for (n, d) in EXTENTS {
            let data = numbers(n * d, 11);
            let x = Tensor::from_slice(device, &data, [n, d])?;
            let rows = rows(&data, d);
            let (var, std, norm, sums) = statistics(&x)?;
            let what = |name: &str| format!("{name} of {n}x{d}");
            check(device, &what("var"), &var.to_vec()?, &each(&rows, variance), (ulps(4.0), 0.0));
            let deviation = each(&rows, |row| variance(row).sqrt());
            check(device, &what("std"), &std.to_vec()?, &deviation, (ulps(4.0), 0.0));
            let length = each(&rows, |row| sum(row, |x| x * x).sqrt());
            check(device, &what("norm"), &norm.to_vec()?, &length, (ulps(4.0), 0.0));
            check(device, &what("logsumexp"), &sums.to_vec()?, &each(&rows, log_sum_exp), (ulps(4.0), 2e-7));
            let all = rows.concat();
            let (var, norm) = of_all(&x)?;
            if n * d != 1 && n != 0 {
                check(device, &what("var of all"), &[var.item()?], &[variance(&all)], (ulps(4.0), 0.0));
            } else {
                assert!(var.item()?.is_nan(), "{device}: var of {n}x{d} is {}", var.item()?);
            }
            check(
                device,
                &what("norm of all"),
                &[norm.item()?],
                &[sum(&all, |x| x * x).sqrt()],
                (ulps(4.0), 0.0),
            );
            let columns: Vec<Vec<f64>> = (0..d).map(|i| rows.iter().map(|row| row[i]).collect()).collect();
            let deviation = each(&columns, |column| variance(column).sqrt());
            check(device, &what("std of columns"), &of_columns(&x)?.to_vec()?, &deviation, (ulps(4.0), 0.0));
        }
        Ok(())
    });
}

/// PyTorch divides by `max(D − correction, 0)`.
#[test]
fn corrections_of_variances() {
    on_devices(|device| {
        for (n, d) in EXTENTS {
            let data = numbers(n * d, 11);
            let rows = rows(&data, d);
            let by = |correction: f64| {
                move |x: &[f64]| {
                    let mean = mean(x);
                    sum(x, |x| (x - mean).powi(2)) / (x.len() as f64 - correction).max(0.0)
                }
            };
            let (whole, between, given, columns, all) =
                corrected(&Tensor::from_slice(device, &data, [n, d])?, 2.0)?;
            check(device, "correction = 0", &whole.to_vec()?, &each(&rows, by(0.0)), (ulps(4.0), 0.0));
            let deviations = each(&rows, |row| by(1.5)(row).sqrt());
            check(device, "correction = 1.5", &between.to_vec()?, &deviations, (ulps(4.0), 0.0));
            check(device, "correction = by", &given.to_vec()?, &each(&rows, by(2.0)), (ulps(4.0), 0.0));
            let turned: Vec<Vec<f64>> = (0..d).map(|i| rows.iter().map(|row| row[i]).collect()).collect();
            let deviations = each(&turned, |column| by(0.0)(column).sqrt());
            check(device, "of columns", &columns.to_vec()?, &deviations, (ulps(4.0), 0.0));
            check(device, "of all", &[all.item()?], &[by(0.0)(&rows.concat())], (ulps(4.0), 0.0));
        }
        Ok(())
    });
}

/// The rounding of the mean is more than a thousandth of the smaller deviations.
#[test]
fn deviations_from_a_large_mean() {
    on_devices(|device| {
        for (n, d) in EXTENTS.into_iter().filter(|(n, d)| n * d > 1) {
            let data: Vec<f32> = numbers(n * d, 7).into_iter().map(|x| 1e4 + 0.1 * x).collect();
            let x = Tensor::from_slice(device, &data, [n, d])?;
            let rows = rows(&data, d);
            let (var, std, ..) = statistics(&x)?;
            let deviation = each(&rows, |row| variance(row).sqrt());
            check(device, "var", &var.to_vec()?, &each(&rows, variance), (ulps(8.0), 0.0));
            check(device, "std", &std.to_vec()?, &deviation, (ulps(8.0), 0.0));
            let (all, _) = of_all(&x)?;
            check(device, "var of all", &[all.item()?], &[variance(&rows.concat())], (ulps(8.0), 0.0));
            let columns: Vec<Vec<f64>> = (0..d).map(|i| rows.iter().map(|row| row[i]).collect()).collect();
            let deviation = each(&columns, |column| variance(column).sqrt());
            check(device, "std of columns", &of_columns(&x)?.to_vec()?, &deviation, (ulps(8.0), 0.0));
        }
        // The parts differ in their means, which are rounded too.
        let long = 300_007;
        let drift = numbers(long, 3).into_iter().enumerate();
        let data: Vec<f32> = drift.map(|(i, x)| 1e5 + x + 3.0 * i as f32 / long as f32).collect();
        let (all, _) = of_all(&Tensor::from_slice(device, &data, [1, long])?)?;
        let exact = variance(&data.iter().copied().map(f64::from).collect::<Vec<f64>>());
        check(device, "var of many", &[all.item()?], &[exact], (1e-5, 0.0));
        // Squares of deviations near the largest float.
        for (x, y, expected) in [(1.1e25f32, 1.1e25f32.next_up(), 0.0), (f32::MAX, f32::MAX, f64::INFINITY)] {
            let (all, _) = of_all(&Tensor::from_slice(device, &[x, y].repeat(50), [10, 10])?)?;
            let expected =
                if expected > 0.0 { expected } else { variance(&[x, y].map(f64::from).repeat(50)) };
            check(device, "var of large numbers", &[all.item()?], &[expected], (0.2, 0.0));
        }
        Ok(())
    });
}

#[test]
fn batch_statistics() {
    on_devices(|device| {
        let (n, c, h) = (6, 3, 7);
        let data = numbers(n * c * h, 5);
        let x = Tensor::from_slice(device, &data, [n, c, h])?;
        let at = |i: usize| f64::from(data[i]);
        let channel = |i: usize| i / h % c;
        let of = |k: usize| (0..data.len()).filter(|&i| channel(i) == k).map(at).collect::<Vec<f64>>();
        let normal = |i: usize| {
            let all = of(channel(i));
            let mean = mean(&all);
            (at(i) - mean) / (sum(&all, |x| (x - mean).powi(2)) / all.len() as f64 + 1e-5).sqrt()
        };
        let expected: Vec<f64> = (0..data.len()).map(normal).collect();
        check(device, "batch statistics", &of_batch(&x)?.to_vec()?, &expected, (ulps(4.0), 2e-7));
        let (m, v) = ([0.5f32, -1.0, 0.0], [1.0f32, 0.25, 3.0]);
        let y = of_running(&x, &Tensor::from_slice(device, &m, [c])?, &Tensor::from_slice(device, &v, [c])?)?;
        let normal = |i: usize| (at(i) - f64::from(m[channel(i)])) / (f64::from(v[channel(i)]) + 1e-3).sqrt();
        let expected: Vec<f64> = (0..data.len()).map(normal).collect();
        check(device, "running statistics", &y.to_vec()?, &expected, (ulps(4.0), 0.0));
        Ok(())
    });
}

/// The first of equal extremes among all elements matches a plain loop, in the tensor's order and with its
/// dims reversed. The last shape is split into parts on every device.
#[test]
fn places_among_all_elements() {
    on_devices(|device| {
        for (n, d) in EXTENTS.into_iter().chain([(5, 60_001), (30_001, 9)]) {
            let data: Vec<f32> = numbers(n * d, 31).into_iter().map(|x| (x * 4.0).round() / 2.0).collect();
            let (x, w) = (Tensor::from_slice(device, &data, [n, d])?, Tensor::zeros(device, [d, n])?);
            if n == 0 {
                assert!(matches!(places_of_all(&w, &x), Err(Error::Empty { .. })), "{device}: none of none");
                continue;
            }
            let (most, least) = places_of_all(&w, &x)?;
            assert_eq!(most.item()?, first(&data, |x, best| x > best), "{device}: argmax of {n}x{d}");
            let across: Vec<f32> = (0..n * d).map(|i| data[i % n * d + i / n]).collect();
            assert_eq!(least.item()?, first(&across, |x, best| x < best), "{device}: argmin of {d}x{n}");
        }
        let (w, table) =
            (Tensor::zeros(device, [3, 5])?, Tensor::from_slice(device, &numbers(15, 32), [15])?);
        let ids: Vec<i32> = (0..15).map(|i| i * 7 % 15).collect();
        let taken: Vec<f32> = ids.iter().map(|&id| numbers(15, 32)[id as usize]).collect();
        let place = place_of_taken(&w, &table, &Tensor::from_slice(device, &ids, [5, 3])?)?.item()?;
        assert_eq!(place, first(&taken, |x, best| x > best), "{device}: argmax of what is taken");
        // Elements taken from each row of a table are numbered by the table's row first.
        let rows = Tensor::from_slice(device, &[1.0, 2.0, 3.0, 4.0, 9.0, 8.0], [2, 3])?;
        let ids = Tensor::from_slice(device, &[0, 0, 1, 1, 2, 2], [3, 2])?;
        let place = place_in_rows(&Tensor::zeros(device, [3, 2])?, &rows, &ids)?.item()?;
        assert_eq!(place, 4, "{device}: argmax of what is taken of each row");
        let (x, y) = (slice_of(device, &[1.0, 4.0, -1.0, 2.0, 3.0])?, slice_of(device, &[-1.0, 1.0, 2.0])?);
        assert_eq!(place_of_product(&w, &x, &y)?.item()?, 5, "{device}: argmax of a product");
        let mut filled = Tensor::zeros(device, [4, 3])?;
        assert_eq!(place_of_filled(&mut filled, &y)?.item()?, 2, "{device}: argmax of what is filled");
        // Two heads of two elements and two groups, so that each group is one head.
        let x = Tensor::from_slice(device, &[0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 9.0, 1.0], [2, 4])?;
        let (place, length) = place_in_groups(&x, 2)?;
        assert_eq!(place.item()?, 6, "{device}: argmax of what is merged");
        // Both normalised elements of a group have a square of 1, except in the group without variance, where
        // it is 0.
        let length = length.item()?;
        assert!((length - 6f32.sqrt()).abs() < 1e-3, "{device}: the norm of what is merged is {length}");
        let planes = Tensor::<f32>::zeros(device, [0, 1 << 16, 1 << 15])?;
        let error = place_in_plane(&planes).expect_err("2^31 elements have no number in i32");
        assert!(matches!(&error, Error::TooLong { dim, .. } if dim == "H, W"), "{device}: {error}");
        assert_eq!(place_in_plane(&Tensor::zeros(device, [0, 1 << 16, (1 << 15) - 1])?)?.to_vec()?, [0; 0]);
        Ok(())
    });
    for device in exact_devices() {
        let data = [1.0, -2.0, f32::NAN, 9.0, f32::NAN, -9.0];
        let x =
            Tensor::from_slice(&device, &data, [2, 3]).and_then(|x| Ok((x, Tensor::zeros(&device, [3, 2])?)));
        let (x, w) = x.unwrap_or_else(|error| panic!("{device}: {error}"));
        let places = places_of_all(&w, &x).and_then(|(most, least)| Ok((most.item()?, least.item()?)));
        assert_eq!(places, Ok((2, 3)), "{device}: the first that is no number");
    }
}

fn slice_of(device: &Device, values: &[f32]) -> Result<Tensor<f32>> {
    Tensor::from_slice(device, values, [values.len()])
}

/// Returns the place of the first of the best elements.
fn first(data: &[f32], better: fn(f32, f32) -> bool) -> i32 {
    (1..data.len()).fold(0, |best, i| if better(data[i], data[best]) { i } else { best }) as i32
}

#[test]
fn places_and_tests() {
    on_devices(|device| {
        for (n, d) in EXTENTS {
            // A small set of values makes ties likely.
            let data: Vec<f32> = numbers(n * d, 23).into_iter().map(|x| (x * 4.0).round() / 2.0).collect();
            let x = Tensor::from_slice(device, &data, [n, d])?;
            let of = |better| data.chunks_exact(d).map(|row| first(row, better)).collect::<Vec<i32>>();
            let (most, least) = places(&x)?;
            assert_eq!(most.to_vec()?, of(|x, best| x > best), "{device}: argmax of {n}x{d}");
            assert_eq!(least.to_vec()?, of(|x, best| x < best), "{device}: argmin of {n}x{d}");
            let whole: Vec<i32> = data.iter().map(|&x| x as i32).collect();
            let (most, least) = integer_places(&Tensor::from_slice(device, &whole, [n, d])?)?;
            let data_of = data.clone();
            let data: Vec<f32> = whole.iter().map(|&x| x as f32).collect();
            let of = |better| data.chunks_exact(d).map(|row| first(row, better)).collect::<Vec<i32>>();
            assert_eq!(most.to_vec()?, of(|x, best| x > best), "{device}: argmax of integers, {n}x{d}");
            assert_eq!(least.to_vec()?, of(|x, best| x < best), "{device}: argmin of integers, {n}x{d}");
            let (data, some) = (data_of, |row: &[f32]| row.iter().any(|&x| x > 1.9));
            let (any, all, kept) = tests(&x)?;
            let of = |test: &dyn Fn(&[f32]) -> bool| -> Vec<i32> {
                data.chunks_exact(d).map(|row| i32::from(test(row))).collect()
            };
            assert_eq!(any.to_vec()?, of(&some), "{device}: any of {n}x{d}");
            assert_eq!(all.to_vec()?, of(&|row| row.iter().all(|&x| x > -1.9)), "{device}: all of {n}x{d}");
            let rows = data.chunks_exact(d);
            let masked: Vec<f32> =
                rows.flat_map(|row| row.iter().map(|&x| if some(row) { x } else { 0.0 })).collect();
            assert_eq!(kept.to_vec()?, masked, "{device}: rows of {n}x{d}");
            let every = i32::from(data.iter().all(|&x| x < 1.9));
            assert_eq!(test_of_all(&x)?.item()?, every, "{device}: all of {n}x{d}");
        }
        Ok(())
    });
}

#[test]
fn nan_and_infinities() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let data = [[-inf, -inf, -inf], [1.0, nan, nan], [-inf, 0.0, 0.0], [inf, 0.0, inf], [inf, nan, 0.0]];
    for device in exact_devices() {
        let test = || -> Result<()> {
            let x = Tensor::from_slice(&device, &data.concat(), [5, 3])?;
            let half = 2f64.ln();
            let bound = (ulps(4.0), 0.0);
            let nans = [f64::NAN; 3];
            let expected = [nans, nans, [0.0, 0.5, 0.5], nans, nans].concat();
            check(&device, "softmax", &softmax_rows(&x)?.to_vec()?, &expected, bound);
            let expected = [nans, nans, [f64::NEG_INFINITY, -half, -half], nans, nans].concat();
            check(&device, "log_softmax", &log_softmax_rows(&x)?.to_vec()?, &expected, bound);
            let (.., sums) = statistics(&x)?;
            let expected = [f64::NEG_INFINITY, f64::NAN, half, f64::INFINITY, f64::NAN];
            check(&device, "logsumexp", &sums.to_vec()?, &expected, bound);
            let (most, least) = places(&x)?;
            assert_eq!(
                (most.to_vec()?, least.to_vec()?),
                (vec![0, 1, 1, 0, 1], vec![0, 1, 0, 1, 1]),
                "{device}"
            );
            let column = place_in_column(&x)?.to_vec()?;
            assert_eq!(column, [3, 1, 1], "{device}");
            Ok(())
        };
        test().unwrap_or_else(|error| panic!("{device}: {error}"));
    }
}

fuse! {
    pub(crate) fn largest(x: f32[N, Depth]) -> f32[N] { max(x, Depth) }
    pub(crate) fn smallest_of_all(x: f32[N, Depth]) -> f32[] { min(x) }
    pub(crate) fn place(x: f32[N, Depth]) -> i32[N] { argmin(x, Depth) }
    pub(crate) fn farthest(x: f32[N]) -> f32[N] { max(abs(x - rename(x, N -> M)), M) }
    pub(crate) fn raise(total: &mut f32[N], x: f32[Depth]) { total = total + max(x, Depth); }
    pub(crate) fn first_and_sum(x: f32[N, Depth]) -> (f32[N], f32[]) { (max(x, Depth), sum(x)) }
    pub(crate) fn averages(x: f32[N, Depth]) -> (f32[N], f32[N], f32[N], i32[N]) {
        (sum(x, Depth), prod(x, Depth), mean(x, Depth), all(x > 0.0, Depth) as i32)
    }
}

#[test]
fn rows_without_elements() {
    let says = |error: Error, function: &str, dim: &str| {
        let text = error.to_string();
        assert!(matches!(error, Error::Empty { .. }), "{text}");
        assert!(text.contains(&format!("`{function}`: dim `{dim}` is 0")), "{text}");
    };
    on_devices(|device| {
        let x = Tensor::zeros(device, [3, 0])?;
        says(largest(&x).expect_err("there is no largest"), "largest", "Depth");
        says(place(&x).expect_err("there is no place"), "place", "Depth");
        says(smallest_of_all(&x).expect_err("there is no smallest"), "smallest_of_all", "Depth");
        let none = Tensor::zeros(device, [0, 3])?;
        says(smallest_of_all(&none).expect_err("there is no smallest"), "smallest_of_all", "N");
        assert!(largest(&none)?.to_vec()?.is_empty());
        let (no_row, no_total) = (Tensor::zeros(device, [0])?, Tensor::zeros(device, [0, 0])?);
        says(
            raise(&mut Tensor::zeros(device, [2])?, &no_row).expect_err("there is no largest"),
            "raise",
            "Depth",
        );
        says(first_and_sum(&x).expect_err("there is no largest"), "first_and_sum", "Depth");
        says(first_and_sum(&no_total).expect_err("the sum has an element"), "first_and_sum", "Depth");
        // Results without elements need no operand elements.
        assert!(largest(&no_total)?.to_vec()?.is_empty());
        assert!(farthest(&no_row)?.to_vec()?.is_empty());
        raise(&mut Tensor::zeros(device, [0])?, &no_row)?;
        // A softmax without elements needs no largest element.
        assert!(softmax_rows(&x)?.to_vec()?.is_empty());
        // More rows than any launch has, all without elements.
        let many = Tensor::zeros(device, [1 << 16, 1 << 16, 0])?;
        assert!(centered_rows(&many)?.to_vec()?.is_empty(), "{device}");
        let (sum, product, mean, all) = averages(&x)?;
        assert_eq!(
            (sum.to_vec()?, product.to_vec()?, all.to_vec()?),
            (vec![0.0; 3], vec![1.0; 3], vec![1; 3])
        );
        assert!(mean.to_vec()?.iter().all(|mean| mean.is_nan()), "{device}");
        Ok(())
    });
}

#[test]
fn one_kernel_for_each_layer() {
    let kernels = [
        softmax_rows::report().kernels(),
        log_softmax_rows::report().kernels(),
        layer_norm_rows::report().kernels(),
        rms_norm_rows::report().kernels(),
        losses::row_losses::report().kernels(),
        places::report().kernels(),
        statistics::report().kernels(),
        losses::losses::report().kernels(),
        group_norm_planes::report().kernels(),
    ];
    assert_eq!(kernels, [1; 9]);
}
