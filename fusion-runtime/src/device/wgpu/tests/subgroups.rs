//! Blocks that combine values of their threads through subgroups, against the CPU.

use super::windows::device;
use super::*;
use crate::device::wgpu::Subgroups;
use crate::tensor::Tensor;
use crate::{Device, fuse};

fuse! {
    pub(crate) fn soft(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
    pub(crate) fn several(x: f32[N, D]) -> (f32[N], f32[N], f32[N], f32[N]) {
        (sum(x, D), max(x, D), min(x, D), logsumexp(x, D))
    }
    pub(crate) fn places(x: f32[N, D]) -> (i32[N], i32[N]) { (argmax(x, D), sum((x > 0.5) as i32, D)) }
}

/// Compares a GPU with the CPU. Extrema, positions and counts agree bit for bit, sums up to some roundings.
fn check(gpu: &Device, n: usize, d: usize) -> Result<()> {
    let elements: Vec<f32> = (0..n * d).map(|i| (i * 7919 % 1013) as f32 / 506.5 - 1.0).collect();
    let on = |device: &Device| -> Result<_> {
        let x = Tensor::from_slice(device, &elements, [n, d])?;
        let (sum, most, least, log) = several(&x)?;
        let (place, count) = places(&x)?;
        let close = [soft(&x)?.to_vec()?, log.to_vec()?];
        Ok((sum.to_vec()?, close, [most.to_vec()?, least.to_vec()?], [place.to_vec()?, count.to_vec()?]))
    };
    let ((expected_sum, expected, extremes, integers), got) = (on(&Device::cpu())?, on(gpu)?);
    assert_eq!((&got.2, &got.3), (&extremes, &integers), "{n} rows of {d}");
    for (got, expected) in got.1.iter().flatten().zip(expected.iter().flatten()) {
        assert!((got - expected).abs() <= 4e-6 * expected.abs(), "{n} rows of {d}: {got}, not {expected}");
    }
    for (got, expected) in got.0.iter().zip(&expected_sum) {
        assert!((got - expected).abs() <= 1e-7 * d as f32, "{n} rows of {d}: {got}, not {expected}");
    }
    Ok(())
}

/// Rows that share a workgroup or have one, staged or not, in vectors or one element at a time.
#[test]
fn rows_through_subgroups() {
    let Some((gpu, backend)) = device(Options { subgroups: Subgroups::Always, ..PLAIN }) else { return };
    if gpu.facts().subgroup_size == 0 {
        eprintln!("SKIPPED: {gpu} has no subgroups of one size");
        return;
    }
    for [n, d] in [
        [1, 1],
        [11, 5],
        [4, 257],
        [2, 64],
        [5, 1000],
        [2, 1024],
        [3, 1025],
        [2, 1500],
        [2, 3072],
        [2, 5000],
        [1, 9001],
    ] {
        check(&gpu, n, d).unwrap_or_else(|error| panic!("{n} rows of {d}: {error}"));
    }
    let kernels = backend.pipelines.kernels();
    // Only rows staged by teams of 256 threads, in vectors of four, have a variant for subgroups.
    let is_common = |kernel: &str| kernel.contains("_t256_staged_v4");
    assert!(kernels.iter().all(|kernel| kernel.contains("_subgroups") == is_common(kernel)), "{kernels:?}");
    let softmax = kernels.iter().filter(|kernel| kernel.starts_with("fuse_soft_")).count();
    assert_eq!(softmax, 8, "held by one of three teams or not held, in vectors or not: {kernels:?}");
}
