//! Logarithms: `x = 2ᵉ(1 + f)` with `1 + f` between √½ and √2.
//!
//! Coefficients are minimax fits made for this crate. Each coefficient is rounded to `f32` in order, and the
//! rest is refitted.

use super::exp::{LN_2_HIGH, LN_2_LOW};
use super::float::{INFINITY_BITS, magnitude};
use super::term::{Term, unary};
use crate::ir::kernel::{Builder, Value};

const SQRT_HALF_BITS: i32 = 0x3f35_04f3;

/// 1 / ln 2 in two parts.
const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LOG2_E_LOW: f32 = 1.925_963e-8;

/// Coefficients of `(ln(1 + f) − f + f²/2) / f³` on √½ − 1 ≤ f ≤ √2 − 1. The relative error of the
/// logarithm is 2⁻³⁰.
const LOG: [f32; 9] = [
    0.33333308,
    -0.24999976,
    0.20002393,
    -0.16669904,
    0.14216574,
    -0.12374538,
    0.118761174,
    -0.11831394,
    0.06948981,
];

/// Computes the natural logarithm.
pub(crate) fn log(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (e, mantissa) = split(x);
        at_the_ends(x, log_of(e, mantissa - 1.0))
    })
}

/// Computes the logarithm to base 2.
pub(crate) fn log2(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (e, mantissa) = split(x);
        let f = mantissa - 1.0;
        let low = f.fma(LOG2_E_LOW, log_minus_f(f) * LOG2_E);
        at_the_ends(x, e + f.fma(LOG2_E, low))
    })
}

/// Computes `ln(1 + x)`. The rounded sum `1 + x` determines only `e`. `f = 2⁻ᵉ(1 + x) − 1` is computed from
/// `x` itself.
pub(crate) fn log1p(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let sum = x + 1.0;
        let (e, mantissa) = split_normal(sum);
        let scale = ((-whole_exponent(sum) + 127) << 23).float_of_bits();
        let f = x.fma(scale, scale - 1.0).but(mantissa - 1.0, x.gt(67_108_864.0));
        at_the_ends(sum, log_of(e, f)).but(x, x.eq(0.0))
    })
}

/// Splits positive finite `x = 2ᵉ m` with `m` between √½ and √2.
pub(super) fn split(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let subnormal = x.lt(f32::MIN_POSITIVE);
    let (e, mantissa) = split_normal(x.but(x * 8_388_608.0, subnormal));
    (e.but(e - 23.0, subnormal), mantissa)
}

fn split_normal(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let e = whole_exponent(x);
    (e.to_float(), (x.bits() - (e << 23)).float_of_bits())
}

fn whole_exponent(x: Term<'_>) -> Term<'_> {
    (x.bits() - SQRT_HALF_BITS) >> 23
}

/// Computes `e ln 2 + ln(1 + f)`. The largest term is added last.
fn log_of<'b>(e: Term<'b>, f: Term<'b>) -> Term<'b> {
    e.fma(LN_2_HIGH, f + e.fma(LN_2_LOW, log_minus_f(f)))
}

/// Computes `ln(1 + f) − f`.
fn log_minus_f(f: Term<'_>) -> Term<'_> {
    let square = f * f;
    square.fma(-0.5, square * f * f.polynomial(&LOG))
}

/// Returns the logarithm `y` of `x`, with the special cases of zero, negative numbers, infinity and NaN.
fn at_the_ends<'b>(x: Term<'b>, y: Term<'b>) -> Term<'b> {
    let bits = x.bits();
    y.but(x, bits.ge(INFINITY_BITS)).but(f32::NAN, bits.lt(0)).but(f32::NEG_INFINITY, magnitude(x).eq(0))
}
