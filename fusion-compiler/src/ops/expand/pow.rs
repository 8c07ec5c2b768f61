//! Powers: `xʸ = 2^(y log₂ x)`, with the logarithm to 32 bits in two parts.
//!
//! Coefficients are minimax fits made for this crate. Each coefficient is rounded to `f32` in order, and the
//! rest is refitted.
//!
//! Invariant: high parts have 12 bits, so that their products are exact.

use super::exp::{Power, exp2_near_zero};
use super::float::{INFINITY_BITS, magnitude};
use super::log::split;
use super::term::{IntoTerm as _, Term, binary};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// 2 / ln 2 in two parts.
const TWO_LOG2_E_HIGH: f32 = 2.884_765_6;
const TWO_LOG2_E_LOW: f32 = 6.244568e-4;

/// Coefficients of `(log₂((1 + s) / (1 − s)) − 2s / ln 2) / s³` in `s²` on |s| ≤ 0.172. The error
/// relative to the logarithm is 2⁻³⁴.
const LOG2: [f32; 4] = [0.9617967, 0.5770789, 0.41192147, 0.33662465];

/// Bound of exponents. A greater exponent gives 0, 1 or infinity for every base, and so does the bound.
const LARGEST_EXPONENT: f32 = 2_147_483_648.0;

/// Computes `xʸ`, with the special cases of C.
pub(crate) fn pow(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let size = x.abs();
        let (zero, infinite) = (size.eq(0.0), magnitude(x).eq(INFINITY_BITS));
        let limit = infinite.eq(y.gt(0.0)).select(f32::INFINITY.meet(size), 0.0);
        let power = power_of_positive(size, y).but(limit, zero | infinite);
        let (whole, odd) = parity(y);
        let negative = x.bits().lt(0);
        let power = power.but(-power, negative & odd);
        let power = power.but(f32::NAN, negative & !zero & !infinite & !whole);
        let power = power.but(f32::NAN, x.unary(Op::IsNan) | y.unary(Op::IsNan));
        power.but(1.0, y.eq(0.0) | x.eq(1.0))
    })
}

/// Computes `xʸ` for finite `x > 0`.
fn power_of_positive<'b>(x: Term<'b>, y: Term<'b>) -> Term<'b> {
    let y = y.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT);
    let (log_high, log_low) = log2_in_two_parts(x);
    let (y_high, y_low) = in_two_parts(y);
    let high = y_high * log_high;
    let low = y_low.fma(log_high, y * log_low);
    let whole = (high + low).clamp(-160.0, 160.0);
    let power = Power::of(whole.bits().lt(0), whole);
    let (two_to_n, count) = power.nearest(whole + power.rounder);
    let rest = (high - count) + low;
    exp2_near_zero(rest.clamp(-1.0, 1.0)) * two_to_n * power.rest
}

/// Tests `y` for an integer, and for an odd integer.
fn parity(y: Term<'_>) -> (Term<'_>, Term<'_>) {
    let whole = is_whole(y);
    (whole, whole & !is_whole(y * 0.5))
}

fn is_whole(y: Term<'_>) -> Term<'_> {
    y.unary(Op::Round).eq(y)
}

/// Computes `log₂ x = e + log₂((1 + s) / (1 − s))` for finite `x > 0`. `s` is `(m − 1) / (m + 1)`,
/// divided to two parts.
fn log2_in_two_parts(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let (e, m) = split(x);
    let (numerator, denominator) = (m - 1.0, m + 1.0);
    let s = numerator / denominator;
    let s_high = high_part(s);
    let denominator_high = high_part(denominator);
    let denominator_low = m - (denominator_high - 1.0);
    let s_low = (numerator - s_high * denominator_high - s_high * denominator_low) / denominator;
    let square = s * s;
    let tail = square * s * square.polynomial(&LOG2);
    let first = s_high * TWO_LOG2_E_HIGH;
    let rest = s_high.fma(TWO_LOG2_E_LOW, s_low.fma(2.0 * std::f32::consts::LOG2_E, tail));
    let high = high_part(e + (first + rest));
    (high, rest - ((high - e) - first))
}

/// Splits a number exactly into two parts of 12 bits each.
pub(super) fn in_two_parts(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let high = high_part(x);
    (high, x - high)
}

/// Returns the upper 12 bits of the significand.
fn high_part(x: Term<'_>) -> Term<'_> {
    (x.bits() & !0xfff).float_of_bits()
}
