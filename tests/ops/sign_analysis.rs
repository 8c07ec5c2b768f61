//! Facts about operands make operations cheaper, with results as exact. An exponential of a number that is
//! not positive gives the same bits. A division by a number from 1 to 2 is within a unit in the last place.

use fusion::prelude::*;
use fusion_compiler::ir::op::Op;

use super::{EDGES, Kind, devices, download, kernels, upload};

fuse! {
    pub(crate) fn of_size(x: f32[N]) -> f32[N] { exp(-abs(x)) }
    pub(crate) fn of_distance(x: f32[N, D]) -> f32[N, D] { exp(x - max(x, D)) }
    pub(crate) fn divided(x: f32[N], y: f32[N]) -> (f32[N], f32[N]) {
        let from_one_to_two = 1.0 + exp(-abs(y));
        (x / from_one_to_two, from_one_to_two)
    }
    #[fuse(strict)]
    pub(crate) fn divided_strictly(x: f32[N], y: f32[N]) -> (f32[N], f32[N]) {
        let from_one_to_two = exp(-abs(y)) + 1.0;
        (x / from_one_to_two, from_one_to_two)
    }
}

/// Returns each argument whose two results differ, with the results. WGSL leaves rounding open, so on wgpu
/// only differences above the sum of both bounds count.
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
    // Arguments around which results become subnormal, and then 0.
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

/// Returns the operands whose quotient is more than `most` units in the last place from the correctly rounded
/// one.
fn far(x: &[f32], by: &[f32], got: &[f32], most: u32) -> Vec<[f32; 4]> {
    let all = x
        .iter()
        .zip(by)
        .zip(got)
        .map(|((&x, &by), &got)| [x, by, (f64::from(x) / f64::from(by)) as f32, got]);
    // Bits of numbers of one sign are in the order of their sizes.
    let differs = |[_, _, expected, got]: &[f32; 4]| match expected.is_nan() {
        true => !got.is_nan(),
        false => expected.to_bits().abs_diff(got.to_bits()) > most,
    };
    all.filter(differs).take(9).collect()
}

#[test]
fn by_what_is_near_one() {
    let pairs = EDGES.iter().flat_map(|&x| EDGES.iter().map(move |&y| (x, y)));
    let all = (0..=u32::MAX).step_by(65_537).enumerate();
    let all = all.map(|(i, bits)| (f32::from_bits(bits), i as f32 * 37.0 % 97.0 / 50.0));
    // Quotients that are subnormal.
    let small = (0..9000).map(|i| (f32::from_bits(0x00ff_0000 - 1801 * i), i as f32 / 9000.0));
    let (x, y): (Vec<f32>, Vec<f32>) = pairs.chain(all).chain(small).unzip();
    for (kind, device) in devices() {
        let [tx, ty] = [&x, &y].map(|values| upload(&device, values));
        let bound = |op: Op| if kind == Kind::Wgpu { op.info().ulp.wgsl } else { op.info().ulp.native };
        let (got, by) = divided(&tx, &ty).expect("the arguments fit");
        let (got, by) = (download(Ok(got)), download(Ok(by)));
        let may = |x: &f32| kind != Kind::Wgpu || x.is_finite() && (*x == 0.0 || x.abs() > 1e-36);
        let of: Vec<usize> = (0..x.len()).filter(|&i| may(&x[i])).collect();
        let pick = |all: &[f32]| of.iter().map(|&i| all[i]).collect::<Vec<_>>();
        let (px, pby, pgot) = (pick(&x), pick(&by), pick(&got));
        assert!(pby.iter().all(|by| by.is_nan() || (1.0..=2.0).contains(by)), "{kind:?}");
        assert_eq!(far(&px, &pby, &pgot, bound(Op::DivNearOne)), [[0.0; 4]; 0], "{kind:?}");
        let (got, by) = divided_strictly(&tx, &ty).expect("the arguments fit");
        let (pgot, pby) = (pick(&download(Ok(got))), pick(&download(Ok(by))));
        assert_eq!(far(&px, &pby, &pgot, bound(Op::Div)), [[0.0; 4]; 0], "{kind:?}, strictly");
    }
}
