//! Functions of `f64` for PTX, which has no instructions for them, and `erf` and `erfc`, which Rust lacks.
//!
//! Coefficients are fits made for this crate. Each coefficient is rounded to `f64` in order, and the rest is
//! refitted.
//!
//! Invariant: a power of two is built from the bits of its exponent, and no such exponent is beyond those of
//! normal numbers. `fma` is rounded once, as it is in PTX.

mod arc;
mod error;
mod exp;
mod hyperbolic;
mod log;
mod pair;
mod pow;
mod range_reduction;
mod remainder;
mod root;
mod trig;

pub(crate) use arc::{acos, asin, atan, atan2};
pub(crate) use error::{erf, erfc};
pub(crate) use exp::{exp, exp2, expm1};
pub(crate) use hyperbolic::{cosh, sinh, tanh};
pub(crate) use log::{log, log1p, log2};
pub(crate) use pow::pow;
pub(crate) use remainder::rem;
pub(crate) use root::cbrt;
pub(crate) use trig::{cos, sin, tan};

use super::term::Term;
use crate::ir::dtype::{Const, DType};
use crate::ir::op::Op;

/// Exponent bias of an `f64`, and the position of the exponent in the high word.
const BIAS: i32 = 1023;
const EXPONENT: i32 = 20;

/// Splits positive finite `x = 2ᵉ m` with `m` from √½ to √2.
fn parts(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let tiny = x.lt(f32::MIN_POSITIVE);
    let raised = x.but(x * 2.0_f32.powi(100) * 2.0_f32.powi(100), tiny);
    let exponent = (raised.unary(Op::High).bitcast(DType::I32) >> EXPONENT) - BIAS;
    // The scale is applied in two factors, because it would be subnormal for the largest `x`.
    let m = raised * power(-exponent + 1) * 0.5;
    let above = m.gt(std::f32::consts::SQRT_2);
    let e = exponent.to_double();
    let e = e.but(e - 200.0, tiny);
    (e.but(e + 1.0, above), m.but(m * 0.5, above))
}

/// Computes `x · 2ᵏ` for `|k|` below 2000, in two steps. Only the last step rounds.
fn scaled<'b>(x: Term<'b>, k: Term<'b>) -> Term<'b> {
    let first = (k * 0.5).unary(Op::Round);
    x * power(first.to_int()) * power((k - first).to_int())
}

/// Computes `2ᵏ` for an `i32` from −1022 to 1023.
fn power(k: Term<'_>) -> Term<'_> {
    ((k + BIAS) << EXPONENT).bitcast(DType::U32).unary(Op::OfHigh)
}

/// Returns `size ≥ 0` with the sign of `x`. Zeros and NaN are unchanged.
fn signed<'b>(size: Term<'b>, x: Term<'b>) -> Term<'b> {
    size.but(-size, x.lt(0.0)).but(x, x.eq(0.0))
}

fn polynomial<'b>(x: Term<'b>, coefficients: &[f64]) -> Term<'b> {
    let mut highest_first = coefficients.iter().rev().map(|&c| number(x, c));
    let Some(highest) = highest_first.next() else { unreachable!("a polynomial has a coefficient") };
    highest_first.fold(highest, |sum, c| sum.fma(x, c))
}

fn clamped(x: Term<'_>, most: f32) -> Term<'_> {
    x.but(-most, x.lt(-most)).but(most, x.gt(most))
}

fn number(like: Term<'_>, x: f64) -> Term<'_> {
    like.constant(Const::Float(x))
}

/// Tests the sign bit, of zeros and NaN, too.
fn negative(x: Term<'_>) -> Term<'_> {
    x.unary(Op::High).bitcast(DType::I32).lt(0)
}
