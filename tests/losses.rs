//! Reductions of logits, which are a product: losses, logarithms of sums of exponentials, and the largest.

#[path = "devices/mod.rs"]
mod devices;

use devices::on_devices;
use fusion::prelude::*;

fuse! {
    pub(crate) fn logarithms(x: f32[N, D], w: f32[V, D]) -> f32[N] { logsumexp(matmul(x, w, D), V) }
    /// The bias is part of the logits.
    pub(crate) fn losses(x: f32[N, D], w: f32[D, V], b: f32[V], target: i32[N]) -> f32[N] {
        cross_entropy(matmul(x, w, D) + b, V, target)
    }
    pub(crate) fn smoothed(x: f32[N, D], w: f32[V, D], target: i32[N]) -> f32[N] {
        cross_entropy(matmul(x, w, D), V, target, label_smoothing = 0.1)
    }
    pub(crate) fn best(x: f32[N, D], w: f32[V, D]) -> (i32[N], f32[N]) {
        let y = matmul(x, w, D);
        (argmax(y, V), max(y, V))
    }
    /// The mean of all losses is another kernel.
    pub(crate) fn mean_loss(x: f32[N, D], w: f32[V, D], target: i32[N]) -> f32[] {
        mean(cross_entropy(matmul(x, w, D), V, target))
    }
    /// The logits are a result, too.
    pub(crate) fn with_logits(x: f32[N, D], w: f32[V, D]) -> (f32[N], f32[N, V]) {
        let y = matmul(x, w, D);
        (logsumexp(y, V), y)
    }
}

/// Rows, depth and logits of each row: parts that are whole and others, and too few rows, logits or steps for tiles.
const EXTENTS: [[usize; 3]; 7] =
    [[7, 40, 513], [64, 16, 1024], [33, 9, 100], [3, 30, 700], [40, 5, 90], [1, 64, 3000], [50, 20, 3]];

fn numbers(seed: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
}

fn close(at: &str, what: &str, made: &[f32], expected: &[f64]) {
    assert_eq!(made.len(), expected.len());
    for (i, (&made, &expected)) in made.iter().zip(expected).enumerate() {
        let distance = (f64::from(made) - expected).abs();
        assert!(distance <= 2e-5 * (1.0 + expected.abs()), "{at} {what}: {i}: {made}, {expected}");
    }
}

#[test]
fn reductions_of_logits() {
    on_devices(|device| {
        for (seed, [rows, depth, classes]) in EXTENTS.into_iter().enumerate() {
            let (x, w, b) =
                (numbers(seed, rows * depth), numbers(seed + 1, classes * depth), numbers(seed + 2, classes));
            let target: Vec<i32> =
                (0..rows).map(|row| if row % 5 == 4 { -100 } else { (row * 37 % classes) as i32 }).collect();
            let logit = |row: usize, class: usize| {
                (0..depth)
                    .map(|i| f64::from(x[row * depth + i]) * f64::from(w[class * depth + i]))
                    .sum::<f64>()
            };
            let logits: Vec<Vec<f64>> =
                (0..rows).map(|row| (0..classes).map(|class| logit(row, class)).collect()).collect();
            let total = |row: &[f64]| {
                let most = row.iter().copied().fold(f64::MIN, f64::max);
                row.iter().map(|y| (y - most).exp()).sum::<f64>().ln() + most
            };
            let at = format!("{device} {rows} {depth} {classes}");
            let close = |what: &str, made: &[f32], expected: &[f64]| close(&at, what, made, expected);
            let across: Vec<f32> =
                (0..depth * classes).map(|i| w[i % classes * depth + i / classes]).collect();
            let x = Tensor::from_slice(device, &x, [rows, depth])?;
            let w = Tensor::from_slice(device, &w, [classes, depth])?;
            let across = Tensor::from_slice(device, &across, [depth, classes])?;
            let targets = Tensor::from_slice(device, &target, [rows])?;
            let totals: Vec<f64> = logits.iter().map(|row| total(row)).collect();
            close("logarithms", &logarithms(&x, &w)?.to_vec()?, &totals);
            let loss = |row: usize, logits: &[f64], smoothing: f64| {
                if target[row] < 0 {
                    return 0.0;
                }
                let mean = logits.iter().sum::<f64>() / classes as f64;
                total(logits) - (1.0 - smoothing) * logits[target[row] as usize] - smoothing * mean
            };
            let all = |smoothing| -> Vec<f64> {
                logits.iter().enumerate().map(|(row, logits)| loss(row, logits, smoothing)).collect()
            };
            let biased: Vec<f64> = logits
                .iter()
                .enumerate()
                .map(|(row, logits)| {
                    let logits: Vec<f64> = logits.iter().zip(&b).map(|(y, b)| y + f64::from(*b)).collect();
                    loss(row, &logits, 0.0)
                })
                .collect();
            let b = Tensor::from_slice(device, &b, [classes])?;
            close("losses", &losses(&x, &across, &b, &targets)?.to_vec()?, &biased);
            close("smoothed", &smoothed(&x, &w, &targets)?.to_vec()?, &all(0.1));
            let mean = all(0.0).iter().sum::<f64>() / rows as f64;
            close("mean", &mean_loss(&x, &w, &targets)?.to_vec()?, &[mean]);
            let (places, most) = best(&x, &w)?;
            let largest: Vec<f64> =
                logits.iter().map(|row| row.iter().copied().fold(f64::MIN, f64::max)).collect();
            close("largest", &most.to_vec()?, &largest);
            for (row, place) in places.to_vec()?.into_iter().enumerate() {
                // Rounding may exchange equal numbers.
                assert!(logits[row][place as usize] >= largest[row] - 1e-5, "{device}: row {row}: {place}");
            }
            let (made, stored) = with_logits(&x, &w)?;
            close("logarithms", &made.to_vec()?, &totals);
            close("logits", &stored.to_vec()?, &logits.concat());
        }
        Ok(())
    });
}
