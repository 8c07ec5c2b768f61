//! An exponential of what is known not to be positive takes fewer steps and is the same number.

use fusion::prelude::*;
use fusion_compiler::ir::ops::Op;

use super::{EDGES, Kind, devices, download, kernels, upload};

fuse! {
    pub(crate) fn of_size(x: f32[N]) -> f32[N] { exp(-abs(x)) }
    pub(crate) fn of_distance(x: f32[N, D]) -> f32[N, D] { exp(x - max(x, D)) }
}

/// What differs: an argument, and both results. On wgpu, whose language leaves rounding open, by more than their bounds allow.
fn different(kind: Kind, x: &[f32], known: &[f32], exp: &[f32]) -> Vec<[f32; 3]> {
    assert!(x.len() == known.len() && x.len() == exp.len());
    let most = if kind == Kind::Wgpu { 2 * Op::Exp.info().ulp.wgsl } else { 0 };
    let results = x.iter().zip(known).zip(exp).map(|((x, known), exp)| [*x, *known, *exp]);
    // Neighbours among numbers that are not negative are neighbours as bits.
    let differ =
        |[_, a, b]: &[f32; 3]| a.to_bits().abs_diff(b.to_bits()) > most && !(a.is_nan() && b.is_nan());
    results.filter(differ).take(9).collect()
}

#[test]
fn of_sizes_of_all_magnitudes() {
    let all = (0..=u32::MAX).step_by(65_537).map(f32::from_bits);
    // Where results become subnormal, and then 0.
    let small = (0..40_000).map(|i| 86.0 + i as f32 / 2000.0);
    let x: Vec<f32> = EDGES.into_iter().chain(all).chain(small).collect();
    let size: Vec<f32> = x.iter().map(|x| -x.abs()).collect();
    for (kind, device) in devices() {
        let known = download(of_size(&upload(&device, &x)));
        assert!(known.iter().any(|y| *y > 0.0 && *y < 1e-30), "{kind:?}");
        let exp = download(kernels::f_exp(&upload(&device, &size)));
        assert_eq!(different(kind, &size, &known, &exp), [[0.0; 3]; 0], "{kind:?}");
    }
}

#[test]
fn of_distances_from_the_largest() {
    const D: usize = 300;
    let ramp = |step: f32| (0..D).map(move |i| (i as f32 - 200.0) * step);
    let mut rows: Vec<f32> = [0.01, 0.7, 1e30, 1e-40].into_iter().flat_map(ramp).collect();
    for edge in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        rows.extend((0..D).map(|i| if i == 77 { edge } else { i as f32 }));
    }
    rows.extend([f32::NEG_INFINITY; D]);
    let distances = rows.chunks(D).flat_map(|row| {
        let most = row.iter().copied().reduce(|a, b| if a.is_nan() || a > b { a } else { b });
        row.iter().map(move |x| x - most.expect("rows have elements"))
    });
    let distances: Vec<f32> = distances.collect();
    for (kind, device) in devices() {
        let x = Tensor::from_slice(&device, &rows, [rows.len() / D, D]).expect("there is memory");
        let known = download(of_distance(&x));
        let exp = download(kernels::f_exp(&upload(&device, &distances)));
        assert_eq!(different(kind, &distances, &known, &exp), [[0.0; 3]; 0], "{kind:?}");
    }
}
