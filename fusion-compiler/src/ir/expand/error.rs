//! The error function, as an expansion and as the `f64` reference.
//!
//! Coefficients are minimax fits made for this crate, rounded to `f32` one after another, the rest refitted.

use std::f64::consts::PI;

use super::exp::exp_of_negative_sum;
use super::float::with_sign;
use super::pow::in_two_parts;
use super::term::unary;
use crate::ir::kernel::{Builder, Value};
use crate::ir::ops::Op;

/// `erf(x) / x − 1` in `x²`, on |x| ≤ 1.2: relative error of erf 2⁻³⁰.
const ERF: [f32; 8] = [
    0.12837917,
    -0.37612632,
    0.11283702,
    -0.026861519,
    0.0052117757,
    -0.0008369578,
    0.0001055328,
    -7.90221e-6,
];

/// `(1 − erf x)^(−1/8)` on 1.2 ≤ x ≤ 4, after Abramowitz and Stegun 7.1.28: error of erf 2⁻²⁷.
const ERFC_ROOT: [f32; 8] =
    [0.98909724, 0.19059071, -0.0069335, 0.1291707, -0.065275006, 0.028833438, -0.0060852445, 0.0007087537];

/// `erf(x) / x − 1` in `x²`, on |x| ≤ 1.1: relative error of erf 2⁻²⁷·⁶.
const ERF_NEAR: [f32; 7] =
    [0.12837917, -0.3761261, 0.11283364, -0.026843518, 0.005167731, -0.0007824739, 7.2360635e-5];

/// `log₂(1 − erf x)` on 1.1 ≤ x ≤ 4: error of erf 2⁻²⁶·⁷. Beyond, it goes on down.
const LOG_ERFC: [f32; 6] = [-0.005302841, -1.6074121, -0.95024407, -0.12410486, 0.020164661, -0.0015208776];

/// `(1 − erf x) e^(x²) (x + 2.5)` in [`PLACE`], on 0.8125 ≤ x ≤ 10.2: relative error 2⁻²⁹·⁸.
const SCALED_ERFC: [f32; 9] = [
    1.0376977,
    0.43874142,
    0.1380878,
    0.02934823,
    0.0028307235,
    -0.00042175688,
    -0.00014663873,
    5.187955e-6,
    5.9841213e-6,
];

/// The factor and the term that take `1 / (x + 2.5)` on that interval to about −1 to 1. The term is one by which the first coefficient
/// is next to a number of 24 bits.
const PLACE: [f32; 2] = [8.96, -1.7552];

/// `1 − erf x` is made of `erf x` below this, so that it is a quarter or more.
const SMALL: f32 = 0.8125;

/// The error function; from 4 on it rounds to 1.
pub(crate) fn erf(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let square = x * x;
        let near = x.fma(square.polynomial_by_pairs(&ERF), x);
        let size = x.abs();
        let root = size.clamp(0.0, 4.0).polynomial_by_pairs(&ERFC_ROOT);
        let square = root * root;
        let fourth = square * square;
        let erf = 1.0 - 1.0 / (fourth * fourth);
        with_sign(erf, x).but(near, size.lt(1.2))
    })
}

/// The same by a power of two as a GPU has it: what that is wrong by is a seventh of it in the result, at most.
pub(crate) fn erf_by_power(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let near = x.fma((x * x).polynomial(&ERF_NEAR), x);
        let size = x.abs();
        let erf = 1.0 - size.polynomial(&LOG_ERFC).unary(Op::ApproxExp2);
        with_sign(erf, x).but(near, size.lt(1.1))
    })
}

/// `1 − erf x`; the tail is `e^(−x²)` times a smooth function of `1 / (x + 2.5)`.
///
/// The square and the sum are rounded, and what that loses is taken off at the end: the parts of `x` have 12 bits each, so both errors
/// are exact. From 10.2 on the result rounds to 0.
pub(crate) fn erfc(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let near = 1.0 - x.fma((x * x).polynomial_by_pairs(&ERF), x);
        let size = x.abs().clamp(SMALL, 10.2);
        let (high, low) = in_two_parts(size);
        let square = (size * size).opaque();
        let lost = low.fma(size + high, (high * high - square).opaque());
        let sum = (size + 2.5).opaque();
        let inverse = 1.0 / sum;
        let lost = inverse.fma(size - (sum - 2.5).opaque(), lost);
        let (two_to_n, bell) = exp_of_negative_sum(square, lost);
        let [factor, term] = PLACE;
        let tail = bell * inverse.fma(factor, term).polynomial(&SCALED_ERFC) / sum * two_to_n;
        tail.but(2.0 - tail, x.lt(0.0)).but(near, x.abs().lt(SMALL))
    })
}

/// The error function to about 10⁻¹⁵, relative.
///
/// Below 3 the series `2/√π e^(−x²) Σ 2ⁿx²ⁿ⁺¹/(1·3·…·(2n+1))`, whose terms are all positive (Abramowitz and
/// Stegun 7.1.6), above it one minus the continued fraction of erfc (7.1.14), evaluated from its tail; from 6 on that is 1.
pub(crate) fn erf_reference(x: f64) -> f64 {
    if x.is_nan() || x == 0.0 {
        return x;
    }
    let erf = match x.abs() {
        size @ ..3.0 => erf_series(size),
        size @ ..6.0 => 1.0 - erfc_fraction(size),
        _ => 1.0,
    };
    erf.copysign(x)
}

fn erf_series(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    let mut n = 0.0;
    while term > sum * 1e-18 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

/// One minus the error function to about 10⁻¹⁵, relative, where that is a normal number.
pub(crate) fn erfc_reference(x: f64) -> f64 {
    match x {
        ..0.5 => 1.0 - erf_reference(x),
        0.5.. => erfc_fraction(x),
        _ => x,
    }
}

/// The continued fraction of Abramowitz and Stegun 7.1.14 for `x ≥ 0.5`. It takes the more steps the smaller `x` is.
fn erfc_fraction(x: f64) -> f64 {
    if x > 28.0 {
        return 0.0;
    }
    let steps = 30 + (300.0 / (x * x)) as u32;
    let tail = (1..=steps).rev().fold(x, |tail, k| x + f64::from(k) / 2.0 / tail);
    let square = x * x;
    let lost = x.mul_add(x, -square);
    (-square).exp() * (1.0 - lost) / (PI.sqrt() * tail)
}
