//! Every float operation as each target computes it, against its `f64` reference and values worked out by hand.
//!
//! Unary operations are swept over all `f32` at a prime stride; `FUSION_EXHAUSTIVE=1` visits every one.

use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::ops::{Op, Typing};
use fusion_compiler::ir::scalar::{Column, Program, Scalar};

/// A column's error bound for an operation, in units in the last place.
fn bound(op: Op, column: Column) -> u32 {
    let ulp = op.info().ulp;
    match column {
        Column::Cpu | Column::CpuBase | Column::Ptx => ulp.native,
        Column::Wgsl => ulp.wgsl,
    }
}

/// The number of `f32` between 0 and `x`, with its sign: neighbours differ by one, and infinity follows the last.
fn position(x: f32) -> i64 {
    let size = i64::from(x.to_bits() & 0x7fff_ffff);
    if x.is_sign_negative() { -size } else { size }
}

/// How many `f32` lie between a value and what it should be; NaN is at no distance from NaN only.
fn distance(x: f32, y: f32) -> u64 {
    match (x.is_nan(), y.is_nan()) {
        (true, true) => 0,
        (false, false) => position(x).abs_diff(position(y)),
        (true, false) | (false, true) => u64::MAX,
    }
}

/// Largest argument that the bound is promised for.
fn limit(op: Op) -> f32 {
    match op {
        Op::Sin | Op::Cos | Op::Tan => 1e5,
        _ => f32::INFINITY,
    }
}

fn expanded(typing: Typing, arity: usize) -> impl Iterator<Item = Op> {
    Op::ALL.iter().copied().filter(move |op| {
        let info = op.info();
        info.arity == arity
            && info.typing.accepts(DType::F32)
            && (typing == info.typing || info.typing == Typing::Number)
    })
}

fn stride() -> usize {
    match std::env::var_os("FUSION_EXHAUSTIVE") {
        Some(_) => 1,
        None => 15_013,
    }
}

/// The worst distance of a column from the reference and the arguments where it occurs.
fn worst<'a>(op: Op, column: Column, points: impl Iterator<Item = Vec<f32>> + 'a) -> (u64, Vec<f32>) {
    let program = Program::new(op, &vec![DType::F32; op.info().arity], column);
    let mut worst = (0, vec![]);
    for point in points {
        let args: Vec<Scalar> = point.iter().map(|&x| Scalar::F32(x)).collect();
        let wide: Vec<f64> = point.iter().map(|&x| f64::from(x)).collect();
        let expect = (op.info().eval.float)(&wide) as f32;
        let actual = program.run(&args).to_f64() as f32;
        let distance = distance(actual, expect);
        if distance > worst.0 {
            worst = (distance, point);
        }
    }
    worst
}

#[test]
fn unary_operations_are_within_their_bounds_on_all_f32() {
    let mut failures = vec![];
    for op in expanded(Typing::Float, 1) {
        for column in Column::ALL {
            let points = (0..=u32::MAX).step_by(stride()).map(f32::from_bits);
            let points = points.filter(|x| !(x.abs() > limit(op) && x.is_finite())).map(|x| vec![x]);
            let (distance, point) = worst(op, column, points);
            eprintln!("{op:?} {column:?}: {distance} at {point:?}");
            if distance > u64::from(bound(op, column)) {
                failures.push(format!("{op:?} {column:?}: {distance} ulp at {point:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
