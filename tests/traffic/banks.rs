//! How often the banks of shared memory have to serve.

use fusion::prelude::*;

use crate::{number, reported};

fuse! {
    /// Vectors of four, each the thread's own.
    pub fn fours(x: f32[N, D], gamma: f32[D]) -> f32[N, D] { layer_norm(x, D) * gamma }
    /// Of eight, held as they are read.
    pub fn eights(x: f16[N, D], gamma: f16[D]) -> f16[N, D] { layer_norm(x, D) * gamma }
    /// And as what is made of them, which is twice as wide.
    pub fn exponentials(x: f16[N, D]) -> f16[N, D] { softmax(x, D) }
}

/// Rows of teams of half a warp, of 128, 256 and 512 threads.
const LENGTHS: [usize; 4] = [512, 2048, 6144, 16_384];
const ROWS: usize = 16;

/// Banks serve 128 bytes at once: elements in as few rounds as their bytes take, and of each value that a team of several warps
/// combines, one round for each warp that stores its own and one for each that loads all.
#[test]
fn banks_serve_no_more_often_than_they_must() {
    let report = reported("banks::banks_serve_no_more_often_than_they_must", |device| {
        for len in LENGTHS {
            let (x, gamma) = (Tensor::full(device, 1.0, [ROWS, len])?, Tensor::full(device, 1.0, len)?);
            let ones = |shape: Shape| Tensor::full(device, f16::ONE, shape);
            let (y, narrow) = (ones([ROWS, len].into())?, ones(len.into())?);
            fours(&x, &gamma)?;
            eights(&y, &narrow)?;
            exponentials(&y)?;
        }
        Ok(())
    });
    let Some(report) = report else { return };
    let launches: Vec<&str> = report.lines().filter(|line| line.starts_with("launch ")).collect();
    assert_eq!(launches.len(), 3 * LENGTHS.len(), "{report}");
    for launch in launches {
        let (moved, rounds) = (number(launch, "shared_moved"), number(launch, "shared_rounds"));
        // Each element is staged, in two bytes or four, and read at least once more.
        assert!(moved >= (4 * ROWS * LENGTHS[0]) as u64, "{launch}");
        // Sums have two values each: a norm adds up twice, a softmax once, beside its maximum.
        let values = if launch.contains("exponentials") { 3 } else { 4 };
        let threads = launch.split_once("block=").and_then(|(_, rest)| rest.split('x').next()?.parse().ok());
        let warps = threads.unwrap_or(0_u64) / 32;
        let combined = if launch.contains("_t32") { 0 } else { values * warps * ROWS as u64 };
        assert!(128 * (rounds - 2 * combined) <= moved - (4 + 128) * combined, "{launch}");
    }
}
