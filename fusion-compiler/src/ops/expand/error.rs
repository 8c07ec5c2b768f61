//! The error function, as an expansion and as the `f64` reference.
//!
//! Coefficients are minimax fits made for this crate. Each coefficient is rounded to `f32` in order, and the
//! rest is refitted.

use std::f64::consts::PI;

use super::exp::exp_of_negative_sum;
use super::float::with_sign;
use super::pow::in_two_parts;
use super::term::unary;
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Coefficients of `erf(x) / x − 1` in `x²` on |x| ≤ 1.2, with relative error of erf 2⁻³⁰.
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

/// Coefficients of `(1 − erf x)^(−1/8)` on 1.2 ≤ x ≤ 4, after Abramowitz and Stegun 7.1.28, with error of erf
/// 2⁻²⁷.
const ERFC_ROOT: [f32; 8] =
    [0.98909724, 0.19059071, -0.0069335, 0.1291707, -0.065275006, 0.028833438, -0.0060852445, 0.0007087537];

/// Coefficients of `erf(x) / x − 1` in `x²` on |x| ≤ 1.1, with relative error of erf 2⁻²⁷·⁶.
const ERF_NEAR: [f32; 7] =
    [0.12837917, -0.3761261, 0.11283364, -0.026843518, 0.005167731, -0.0007824739, 7.2360635e-5];

/// Coefficients of `log₂(1 − erf x)` on 1.1 ≤ x ≤ 4, with error of erf 2⁻²⁶·⁷. Beyond 4 the polynomial keeps
/// decreasing.
const LOG_ERFC: [f32; 6] = [-0.005302841, -1.6074121, -0.95024407, -0.12410486, 0.020164661, -0.0015208776];

/// Coefficients of `(1 − erf x) e^(x²) (x + 2.5)` in [`PLACE`] on 0.8125 ≤ x ≤ 10.2, with relative error
/// 2⁻²⁹·⁸.
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

/// Factor and offset that map `1 / (x + 2.5)` on the interval of `SCALED_ERFC` to about −1 to 1. The offset
/// is chosen so that the first coefficient is very close to a number of 24 bits.
const PLACE: [f32; 2] = [8.96, -1.7552];

/// Bound below which `1 − erf x` is computed from `erf x`, so that the difference is a quarter or more.
const SMALL: f32 = 0.8125;

/// Computes the error function, which rounds to 1 from 4 on.
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

/// Computes the error function by a GPU's approximate power of two. At most a seventh of the approximation's
/// error reaches the result.
pub(crate) fn erf_by_power(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let near = x.fma((x * x).polynomial(&ERF_NEAR), x);
        let size = x.abs();
        let erf = 1.0 - size.polynomial(&LOG_ERFC).unary(Op::ApproxExp2);
        with_sign(erf, x).but(near, size.lt(1.1))
    })
}

/// Computes `1 − erf x`. The tail is `e^(−x²)` times a smooth function of `1 / (x + 2.5)`.
///
/// The rounding errors of the square and the sum are corrected at the end. The parts of `x` have 12 bits
/// each, so both errors are computed exactly. From 10.2 on the result rounds to 0.
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

/// Returns the error function to a relative error of about 10⁻¹⁵.
///
/// Below 3, the series `2/√π e^(−x²) Σ 2ⁿx²ⁿ⁺¹/(1·3·…·(2n+1))` has only positive terms (Abramowitz and Stegun
/// 7.1.6). Above 3, the result is one minus the continued fraction of erfc (7.1.14), evaluated from its tail.
/// From 6 on, the result is 1.
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

/// Returns one minus the error function to a relative error of about 10⁻¹⁵, where the result is a normal
/// number.
pub(crate) fn erfc_reference(x: f64) -> f64 {
    match x {
        ..0.5 => 1.0 - erf_reference(x),
        0.5.. => erfc_fraction(x),
        _ => x,
    }
}

/// Returns the continued fraction of Abramowitz and Stegun 7.1.14 for `x ≥ 0.5`. A smaller `x` takes more
/// steps.
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
