//! The error function, as an expansion and as the `f64` reference.
//!
//! Coefficients are minimax fits made for this crate, rounded to `f32` one after another, the rest refitted.

use std::f64::consts::PI;

use super::exp::{EXP2, ROUNDER, nearest, power_of_two};
use super::float::with_sign;
use super::term::unary;
use crate::ir::kernel::{Builder, Value};

/// `erf(x) / x − 1` in `x²`, on |x| ≤ 0.921875: relative error of erf 2⁻³⁰.
const ERF: [f32; 7] =
    [0.12837917, -0.3761263, 0.11283626, -0.02685573, 0.0051923925, -0.0008049515, 7.9950485e-5];

/// `log₂(1 − erf x)` on 0.92 ≤ x ≤ 4: relative error of erf 2⁻²⁹.
const LOG2_ERFC: [f32; 7] =
    [-0.00028231757, -1.626892, -0.9192597, -0.14994164, 0.032066766, -0.004390493, 0.0002826891];

/// The error function; from 4 on it rounds to 1.
pub(crate) fn erf(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let square = x * x;
        let near = x.fma(square.polynomial_by_pairs(&ERF), x);
        let size = x.abs();
        let exponent = size.clamp(0.0, 4.0).polynomial_by_pairs(&LOG2_ERFC);
        let (n, count) = nearest(exponent + ROUNDER);
        let r = exponent - count;
        let erfc = r.fma(r.polynomial_by_pairs(&EXP2), 1.0) * power_of_two(n);
        with_sign(1.0 - erfc, x).but(near, size.lt(0.921875))
    })
}

/// The error function to about 10⁻¹⁵, relative.
///
/// Below 3 the series `2/√π e^(−x²) Σ 2ⁿx²ⁿ⁺¹/(1·3·…·(2n+1))`, whose terms are all positive (Abramowitz and
/// Stegun 7.1.6), above it one minus the continued fraction of erfc (7.1.14), evaluated from its tail.
pub(crate) fn erf_reference(x: f64) -> f64 {
    if x.is_nan() || x == 0.0 {
        return x;
    }
    let size = x.abs();
    let erf = if size < 3.0 { erf_series(size) } else { 1.0 - erfc_fraction(size) };
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

fn erfc_fraction(x: f64) -> f64 {
    let tail = (1..=60).rev().fold(x, |tail, k| x + f64::from(k) / 2.0 / tail);
    (-x * x).exp() / (PI.sqrt() * tail)
}
