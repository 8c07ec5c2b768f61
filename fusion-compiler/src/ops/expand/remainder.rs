//! The exact remainder of a division, by long division with signed digits of 10 bits, and functions derived
//! from it.
//!
//! Invariant: every digit is the nearest one up to the error of a division, so a remainder is at most about
//! half of its divisor. Every product is exact, whether or not it is rounded before the subtraction.

use super::float::{INFINITY_BITS, magnitude, with_sign};
use super::pow::in_two_parts;
use super::term::{IntoTerm as _, Term, binary};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Base of the quotient's digits.
const DIGIT: f32 = 1024.0;

/// Number of digits of the largest quotient, `2²⁷⁷`.
const DIGITS: usize = 28;

/// A number that overflows when doubled.
const LARGE: f32 = 1.7014118e38;

/// Computes `x − trunc(x / y) y` exactly, with the sign of `x`.
pub(crate) fn rem(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let rest = with_sign(remainder(x.abs(), y.abs()), x);
        let rest = rest.but(x, magnitude(y).eq(INFINITY_BITS));
        let undefined = y.eq(0.0) | magnitude(x).ge(INFINITY_BITS) | magnitude(y).gt(INFINITY_BITS);
        rest.but(f32::NAN, undefined)
    })
}

/// Computes `x − floor(x / y) y` with the sign of `y`, rounded once. A remainder of 0 has the sign of `x`, as
/// in PyTorch.
pub(crate) fn floor_rem(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let rest = x.binary(Op::Rem, y);
        rest.but(rest + y, has_other_sign(rest, y))
    })
}

/// Computes `floor(x / y)`, or the quotient if `y = 0`. The quotient minus the remainder's share `rest / y`
/// is the quotient truncated to an integer. Rounding recovers that integer exactly while the error of a
/// quotient is below a half.
pub(crate) fn floor_div(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let (quotient, rest) = (x / y, x.binary(Op::Rem, y));
        let near = quotient.unary(Op::Round);
        let step = ((quotient - near).opaque() - rest / y).unary(Op::Round);
        let whole = near + step.but(step - 1.0, has_other_sign(rest, y));
        let zero = 0.0.meet(x).binary(Op::Copysign, quotient);
        let overflows = quotient.unary(Op::IsInf) & x.unary(Op::IsFinite);
        whole.but(zero, whole.eq(0.0)).but(quotient, y.eq(0.0) | overflows)
    })
}

/// Tests for a nonzero remainder whose sign differs from the divisor's.
fn has_other_sign<'b>(rest: Term<'b>, y: Term<'b>) -> Term<'b> {
    rest.ne(0.0) & (rest.lt(0.0) ^ y.lt(0.0))
}

/// Returns the remainder of Python's `x % y`, except for the sign of 0.
pub(crate) fn floor_rem_reference(x: f64, y: f64) -> f64 {
    let rest = x % y;
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
}

/// Returns the quotient of Python's `x // y`, to within the rounding of a quotient. A fused multiply-add
/// tells on which side of `x` the multiple of `y` is.
pub(crate) fn floor_div_reference(x: f64, y: f64) -> f64 {
    if y == 0.0 {
        return x / y;
    }
    if !x.is_finite() || y.is_nan() {
        return f64::NAN;
    }
    let below = x != 0.0 && (x < 0.0) != (y < 0.0);
    if y.is_infinite() {
        return if below { -1.0 } else { x / y };
    }
    let quotient = (x / y).floor();
    let rest = (-quotient).mul_add(y, x);
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) { quotient - 1.0 } else { quotient }
}

/// Computes the remainder of finite `x ≥ 0` by finite `y > 0`. The largest `x` are halved first and their
/// remainders doubled, so that no multiple of the divisor overflows.
fn remainder<'b>(x: Term<'b>, y: Term<'b>) -> Term<'b> {
    let large = x.ge(LARGE);
    let rest = long_division(x.but(x * 0.5, large), y);
    let missing = y - rest;
    let twice = (rest + rest).but(rest - missing, rest.ge(missing));
    rest.but(twice, large)
}

/// Computes the remainder of `0 ≤ x <` [`LARGE`] by finite `y > 0`. The divisor is scaled up until one digit
/// is left, then down.
fn long_division<'b>(x: Term<'b>, y: Term<'b>) -> Term<'b> {
    let mut divisors = vec![y];
    let mut divisor = y;
    for _ in 1..DIGITS {
        divisor = divisor.but(divisor * DIGIT, divisor.le(x * (1.0 / DIGIT)));
        divisors.push(divisor);
    }
    let rest = divisors.into_iter().rev().fold(x, step);
    rest.but(rest + y, rest.lt(0.0))
}

/// Subtracts the nearest multiple of the divisor. The high part of the divisor has 12 bits, and a digit times
/// the low part is at most half of the divisor, so neither difference is rounded.
fn step<'b>(rest: Term<'b>, divisor: Term<'b>) -> Term<'b> {
    let digit = (rest / divisor).unary(Op::Round);
    let (high, low) = in_two_parts(divisor);
    (rest - digit * high).opaque() - digit * low
}
