//! Losses agree with plain loops in f64.

use fusion::prelude::*;

use crate::devices::on_devices;
use crate::{EXTENTS, check, log_sum_exp, mean, numbers, rows, ulps};

fuse! {
    pub(crate) fn losses(x: f32[N, D], y: f32[N, D]) -> (f32[N], f32[N], f32[N], f32[N]) {
        (mse(x, y, D), l1(x, y, D), huber(x, y, D, 0.5), kl_div(log_softmax(x, D), softmax(y, D), D))
    }
    pub(crate) fn of_truths(x: f32[N, D], y: f32[N, D]) -> f32[N] { bce_with_logits(x, y, D) }
    pub(crate) fn loss_of_all(x: f32[N, D], y: f32[N, D]) -> f32[] { mse(x, y) }
    pub(crate) fn row_losses(x: f32[N, V], t: i32[N], smoothing: f32) -> (f32[N], f32[N]) {
        (cross_entropy(x, V, t), cross_entropy(x, V, t, smoothing))
    }
    pub(crate) fn smoothed_mean(x: f32[N, V], t: i32[N]) -> f32[] {
        cross_entropy_mean(x, V, t, label_smoothing = 0.1, ignore_index = 0)
    }
    pub(crate) fn weighted_losses(x: f32[N, V], t: i32[N], w: f32[V]) -> (f32[N], f32[N], f32[], f32[]) {
        (
            cross_entropy(x, V, t, weight = w),
            cross_entropy(x, V, t, weight = w, label_smoothing = 0.1),
            cross_entropy_mean(x, V, t, weight = w),
            cross_entropy_mean(x, V, t, weight = w, label_smoothing = 0.1),
        )
    }
    pub(crate) fn unsigned_losses(x: f32[N, V], t: u32[N]) -> f32[N] { cross_entropy(x, V, t) }
}

/// The losses follow PyTorch's definition. The smoothed part weighs the logarithms of all classes, and the
/// mean divides by the weights of the classes that are not ignored. A few rows of 300,007 classes are split
/// into parts.
#[test]
fn losses_with_weights_of_classes() {
    on_devices(|device| {
        for (n, v) in [(1usize, 1usize), (5, 33), (4, 257), (3, 1030), (2, 300_007), (0, 5)] {
            // The largest element of one part is not that of another.
            let drift = |i: usize| 4.0 * (i % v) as f32 / v as f32;
            let x: Vec<f32> = numbers(n * v, 17).into_iter().enumerate().map(|(i, x)| x + drift(i)).collect();
            let w = numbers(v, 4);
            let w: Vec<f32> = w
                .into_iter()
                .enumerate()
                .map(|(i, w)| if i % 7 == 3 { 0.0 } else { w.abs() + 0.25 })
                .collect();
            let targets: Vec<i32> =
                (0..n).map(|i| if i == 3 { -100 } else { ((i * 13 + 1) % v) as i32 }).collect();
            let loss = |(row, &class): (&Vec<f64>, &i32), smoothing: f64| {
                let Ok(class) = usize::try_from(class) else { return 0.0 };
                let total = log_sum_exp(row);
                let smooth =
                    row.iter().zip(&w).map(|(x, &w)| f64::from(w) * (total - x)).sum::<f64>() / v as f64;
                (1.0 - smoothing) * f64::from(w[class]) * (total - row[class]) + smoothing * smooth
            };
            let rows = rows(&x, v);
            let of = |smoothing: f64| {
                rows.iter().zip(&targets).map(|row| loss(row, smoothing)).collect::<Vec<f64>>()
            };
            let weights: f64 = targets
                .iter()
                .filter_map(|&class| w.get(usize::try_from(class).ok()?))
                .map(|&w| f64::from(w))
                .sum();
            let tensor = |x: &[f32], shape: &[usize]| Tensor::from_slice(device, x, shape.to_vec());
            let t = Tensor::from_slice(device, &targets, [n])?;
            let (plain, smooth, mean, smooth_mean) =
                weighted_losses(&tensor(&x, &[n, v])?, &t, &tensor(&w, &[v])?)?;
            let bound = (ulps(8.0), 2e-6);
            check(device, "weighted", &plain.to_vec()?, &of(0.0), bound);
            check(device, "weighted and smoothed", &smooth.to_vec()?, &of(0.1), bound);
            check(device, "weighted mean", &[mean.item()?], &[of(0.0).iter().sum::<f64>() / weights], bound);
            let expect = of(0.1).iter().sum::<f64>() / weights;
            check(device, "weighted mean, smoothed", &[smooth_mean.item()?], &[expect], bound);
        }
        Ok(())
    });
}

#[test]
fn losses_of_rows_and_all() {
    on_devices(|device| {
        for (n, d) in EXTENTS {
            let (a, b) = (numbers(n * d, 3), numbers(n * d, 8));
            let (x, y) = (Tensor::from_slice(device, &a, [n, d])?, Tensor::from_slice(device, &b, [n, d])?);
            let pairs: Vec<(Vec<f64>, Vec<f64>)> = rows(&a, d).into_iter().zip(rows(&b, d)).collect();
            let of = |point: fn(f64, f64) -> f64| -> Vec<f64> {
                let row = |(x, y): &(Vec<f64>, Vec<f64>)| {
                    x.iter().zip(y).map(|(&x, &y)| point(x, y)).sum::<f64>() / d as f64
                };
                pairs.iter().map(row).collect()
            };
            let huber = |x: f64, y: f64| {
                let d = (x - y).abs();
                if d < 0.5 { 0.5 * d * d } else { 0.5 * (d - 0.25) }
            };
            let divergence = pairs.iter().map(|(x, y)| {
                let (p, q) = (log_sum_exp(y), log_sum_exp(x));
                let point = |(&x, &y): (&f64, &f64)| (y - p).exp() * ((y - p) - (x - q));
                x.iter().zip(y).map(point).sum::<f64>() / d as f64
            });
            let (squared, absolute, robust, kl) = losses(&x, &y)?;
            let what = |name: &str| format!("{name} of {n}x{d}");
            check(device, &what("mse"), &squared.to_vec()?, &of(|x, y| (x - y).powi(2)), (ulps(4.0), 0.0));
            check(device, &what("l1"), &absolute.to_vec()?, &of(|x, y| (x - y).abs()), (ulps(4.0), 0.0));
            check(device, &what("huber"), &robust.to_vec()?, &of(huber), (ulps(4.0), 0.0));
            check(device, &what("kl_div"), &kl.to_vec()?, &divergence.collect::<Vec<f64>>(), (0.0, 2e-7));
            let truths: Vec<f32> = b.iter().map(|y| y.rem_euclid(1.0)).collect();
            let binary = |(x, y): (&f32, &f32)| {
                let (x, y) = (f64::from(*x), f64::from(*y));
                -y * (-(-x).exp().ln_1p()) - (1.0 - y) * (-x.exp().ln_1p())
            };
            let each: Vec<f64> = a.iter().zip(&truths).map(binary).collect();
            let means: Vec<f64> = (0..n).map(|row| mean(&each[row * d..][..d])).collect();
            let truths = Tensor::from_slice(device, &truths, [n, d])?;
            check(
                device,
                &what("bce_with_logits"),
                &of_truths(&x, &truths)?.to_vec()?,
                &means,
                (ulps(8.0), 1e-7),
            );
            if n > 0 {
                let all = mean(&of(|x, y| (x - y).powi(2)));
                check(device, &what("mse of all"), &[loss_of_all(&x, &y)?.item()?], &[all], (ulps(4.0), 0.0));
            }
        }
        Ok(())
    });
}

#[test]
fn cross_entropies() {
    on_devices(|device| {
        for (n, v) in EXTENTS {
            let data = numbers(n * v, 17);
            let targets: Vec<i32> =
                (0..n).map(|i| if i % 4 == 2 { -100 } else { (i * 7919 % v) as i32 }).collect();
            let (x, t) =
                (Tensor::from_slice(device, &data, [n, v])?, Tensor::from_slice(device, &targets, [n])?);
            let rows = rows(&data, v);
            let loss = |smoothing: f64, ignored: i32| -> Vec<f64> {
                let row = |(row, &target): (&Vec<f64>, &i32)| match usize::try_from(target) {
                    _ if target == ignored => 0.0,
                    Err(_) => f64::NAN,
                    Ok(class) => {
                        let total = log_sum_exp(row);
                        (1.0 - smoothing) * (total - row[class]) + smoothing * (total - mean(row))
                    }
                };
                rows.iter().zip(&targets).map(row).collect()
            };
            let (plain, smoothed) = row_losses(&x, &t, 0.25)?;
            let what = |name: &str| format!("{name} of {n}x{v}");
            check(device, &what("cross entropy"), &plain.to_vec()?, &loss(0.0, -100), (ulps(4.0), 2e-7));
            let unsigned: Vec<u32> = targets.iter().map(|&target| target as u32).collect();
            let unsigned = unsigned_losses(&x, &Tensor::from_slice(device, &unsigned, n)?)?;
            check(device, &what("classes of u32"), &unsigned.to_vec()?, &loss(0.0, -100), (ulps(4.0), 2e-7));
            check(device, &what("smoothed"), &smoothed.to_vec()?, &loss(0.25, -100), (ulps(4.0), 2e-7));
            // Class 0 is ignored from here on, and −100 is no class.
            let losses = loss(0.1, 0);
            let counted = targets.iter().filter(|&&target| target != 0).count();
            let expected = losses.iter().sum::<f64>() / counted as f64;
            check(device, &what("mean"), &[smoothed_mean(&x, &t)?.item()?], &[expected], (ulps(4.0), 2e-7));
        }
        Ok(())
    });
}
