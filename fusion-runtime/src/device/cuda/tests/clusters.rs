//! Clusters of blocks that share rows: on a device that has no room for all of them at once, against the CPU.

use super::gpu;
use crate::device::DeviceFacts;
use crate::device::cuda::open::open_as;
use crate::tensor::Tensor;
use crate::{Device, fuse};

fuse! {
    /// Three sums and a maximum of a row, one after another.
    pub(crate) fn scaled(x: f32[N, D], g: f32[D]) -> (f32[N, D], f32[N]) {
        let y = layer_norm(x, D) * g;
        (softmax(y, D), sum(square(y), D))
    }
}

const ROWS: usize = 64;

/// So many blocks at a time that each has several rows one after another.
#[test]
fn a_cluster_has_several_rows() {
    if gpu().is_none_or(|gpu| gpu.facts().cluster_blocks_max < 8) {
        eprintln!("SKIPPED: there are no clusters");
        return;
    }
    let few = |facts| DeviceFacts { grid_max: 13, ..facts };
    let device = open_as(0, few).expect("it opened before");
    for len in [16_389, 33_000] {
        let elements: Vec<f32> = (0..ROWS * len).map(|i| (i * 7919 % 10_007) as f32 / 5000.0 - 1.0).collect();
        let on = |device: &Device| {
            let x = Tensor::from_slice(device, &elements, [ROWS, len])?;
            let (y, sums) = scaled(&x, &Tensor::from_slice(device, &elements[..len], len)?)?;
            Ok::<_, crate::Error>((y.to_vec()?, sums.to_vec()?))
        };
        let (got, expected) = (on(&device).expect("it runs"), on(&Device::cpu()).expect("it runs"));
        for (got, expected) in [(got.0, expected.0), (got.1, expected.1)] {
            let alike = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-5 * b.abs();
            assert!(got.iter().zip(&expected).all(alike), "rows of {len}");
        }
    }
}
