//! The exact remainder of a division of `f64`, by long division with signed digits of 50 bits.
//!
//! Invariant: every digit is the nearest one up to the error of a product. A partial remainder is therefore
//! at most about half of the divisor, and a number of 53 bits.

use super::super::term::{IntoTerm as _, Term, binary};
use super::{parts, power, scaled, signed};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Number of bits of a digit.
const DIGIT: i32 = 50;

/// Number of digits after the first one of the largest quotient, `2²⁰⁹⁸`.
const DIGITS: i32 = 41;

/// Computes `x − trunc(x / y) y` exactly, with the sign of `x`.
pub(crate) fn rem(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let (dividend, divisor) = (x.abs(), y.abs());
        let rest = signed(remainder(dividend, divisor), x);
        let rest = rest.but(x, dividend.lt(divisor));
        let undefined = divisor.eq(0.0) | dividend.eq(f32::INFINITY);
        rest.but(f32::NAN, undefined | (x.unary(Op::IsNan) | y.unary(Op::IsNan)))
    })
}

/// Computes the remainder of finite `x ≥ y > 0` on their significands. Each digit scales the remainder of the
/// previous one up, so nothing overflows and no divisor is subnormal.
fn remainder<'b>(x: Term<'b>, y: Term<'b>) -> Term<'b> {
    let ((x_exponent, x), (y_exponent, y)) = (parts(x), parts(y));
    let bits = (x_exponent - y_exponent).to_int();
    let inverse = 1.0.meet(y) / y;
    let digit = |rest: Term<'b>| (-(rest * inverse).unary(Op::Round)).fma(y, rest);
    let digits = bits.binary(Op::IntDiv, DIGIT);
    let mut rest = digit(x * power(bits - digits * DIGIT));
    for place in 0..DIGITS {
        rest = rest.but(digit(rest * 2.0f32.powi(DIGIT)), digits.gt(place));
    }
    scaled(rest.but(rest + y, rest.lt(0.0)), y_exponent)
}
