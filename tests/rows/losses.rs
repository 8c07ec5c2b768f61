//! Losses of a few long rows, which are split into parts.

use fusion::prelude::*;

use crate::split::{each_size, unit};
use crate::{Host, UNIT, check};

fuse! {
    pub(crate) fn smoothed(x: f32[N, D], classes: i32[N]) -> f32[N] { cross_entropy(x, D, classes, 0.25) }
}

/// Elements far from zero, where the subtracted value has to be near the elements. Otherwise rounding
/// dominates the loss.
#[test]
fn losses_with_smoothing() {
    each_size(|device, host| {
        let (n, d) = (host.shape[0], host.shape[1]);
        let far = Host::of(&[n, d], host.elements.iter().map(|x| x + 30_000.0).collect::<Vec<_>>());
        let classes: Vec<i32> = (0..n).map(|i| (i * 7919 % d) as i32).collect();
        let loss = |(row, &class): (Vec<f64>, &i32)| {
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total = row.iter().map(|x| (x - most).exp()).sum::<f64>().ln() + most;
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            let expected = 0.75 * (total - row[class as usize]) + 0.25 * (total - mean);
            (expected, unit(d) * 4.0 + 40.0 * UNIT * (1.0 + expected))
        };
        let expected = far.rows().zip(&classes).map(loss);
        let classes = Tensor::from_slice(device, &classes, [n])?;
        check("loss", &smoothed(&far.on(device)?, &classes)?, &[n], expected);
        Ok(())
    });
}
