//! Rows that a team processes one after another, on a device with fewer teams than rows, against the CPU.

use super::gpu;
use crate::device::DeviceFacts;
use crate::device::cuda::open::open_as;
use crate::tensor::Tensor;
use crate::{Device, fuse};

fuse! {
    /// Computes three sums and a maximum of a row, one after another.
    pub(crate) fn scaled(x: f32[N, D], g: f32[D]) -> (f32[N, D], f32[N]) {
        let y = layer_norm(x, D) * g;
        (softmax(y, D), sum(square(y), D))
    }

    /// Computes one sum per row, after which only the sum of the next row is waited for.
    pub(crate) fn normed(x: f32[N, D]) -> f32[N, D] { rms_norm(x, D) }
}

const ROWS: usize = 64;

/// Checks rows of these lengths on a grid so small that each team has several rows.
fn check(lengths: &[usize]) {
    let few = |facts| DeviceFacts { grid_max: 13, ..facts };
    let device = open_as(0, few).expect("it opened before");
    for &len in lengths {
        let elements: Vec<f32> = (0..ROWS * len).map(|i| (i * 7919 % 10_007) as f32 / 5000.0 - 1.0).collect();
        let on = |device: &Device| {
            let x = Tensor::from_slice(device, &elements, [ROWS, len])?;
            let (y, sums) = scaled(&x, &Tensor::from_slice(device, &elements[..len], len)?)?;
            Ok::<_, crate::Error>([y.to_vec()?, sums.to_vec()?, normed(&x)?.to_vec()?])
        };
        let (got, expected) = (on(&device).expect("it runs"), on(&Device::cpu()).expect("it runs"));
        for (got, expected) in got.iter().zip(&expected) {
            let alike = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-5 * b.abs();
            assert!(got.iter().zip(expected).all(alike), "rows of {len}");
        }
    }
}

#[test]
fn a_team_has_several_rows() {
    if gpu().is_some() {
        check(&[33, 512, 515, 1024, 4097, 12_289, 12_292]);
    }
}

#[test]
fn a_cluster_has_several_rows() {
    match gpu() {
        Some(gpu) if gpu.facts().cluster_blocks_max >= 8 => check(&[16_389, 33_000]),
        Some(gpu) => eprintln!("SKIPPED: {gpu} has no clusters"),
        None => {}
    }
}
