//! Accesses to shared memory cause as few bank rounds as possible.

use fusion::prelude::*;

use crate::{number, reported};

fuse! {
    /// Vectors of four elements, each of which one thread stages for itself.
    pub fn fours(x: f32[N, D], gamma: f32[D]) -> f32[N, D] { layer_norm(x, D) * gamma }
    /// Vectors of eight elements, staged as they are loaded.
    pub fn eights(x: f16[N, D], gamma: f16[D]) -> f16[N, D] { layer_norm(x, D) * gamma }
    /// Vectors of eight elements, staged as computed values of twice the width.
    pub fn exponentials(x: f16[N, D]) -> f16[N, D] { softmax(x, D) }
}

/// Lengths of rows for teams of half a warp, and of 128, 256 and 512 threads.
const LENGTHS: [usize; 4] = [512, 2048, 6144, 16_384];
const ROWS: usize = 16;

/// Banks serve 128 bytes at once, so elements take as many rounds as their bytes. Each value that several
/// warps combine takes one round for each warp that stores it, and one for each that loads all.
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
        // Each element is staged in two bytes or four, and is read at least once more.
        assert!(moved >= (4 * ROWS * LENGTHS[0]) as u64, "{launch}");
        // A sum has two values. A norm has two sums, and a softmax one sum and a maximum.
        let values = if launch.contains("exponentials") { 3 } else { 4 };
        let threads = launch.split_once("block=").and_then(|(_, rest)| rest.split('x').next()?.parse().ok());
        let warps = threads.unwrap_or(0_u64) / 32;
        let combined = if launch.contains("_t32") { 0 } else { values * warps * ROWS as u64 };
        assert!(128 * (rounds - 2 * combined) <= moved - (4 + 128) * combined, "{launch}");
    }
}
