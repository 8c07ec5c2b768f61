//! The exact remainder of a division, as long division with digits of 20 bits.
//!
//! Invariant: every quotient digit is the true one or one more, so that each remainder fits an `f32`.

use super::float::{INFINITY_BITS, magnitude, with_sign};
use super::term::{Term, binary};
use crate::ir::kernel::{Builder, Value};
use crate::ir::ops::Op;

/// One digit of the quotient.
const DIGIT: f32 = 1_048_576.0;

/// Digits of the largest quotient, `2²⁷⁷`.
const DIGITS: usize = 14;

/// Makes a quotient digit too large by less than one even where a division is off by 2.5 ulp, never too small.
const UPWARDS: f32 = 1.000_000_5;

/// `x − trunc(x / y) y`, exactly, with the sign of `x`.
pub(crate) fn rem(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let rest = long_division(x.abs(), y.abs());
        let rest = with_sign(rest, x);
        let rest = rest.but(x, magnitude(y).eq(INFINITY_BITS));
        let undefined = y.eq(0.0) | magnitude(x).ge(INFINITY_BITS) | magnitude(y).gt(INFINITY_BITS);
        rest.but(f32::NAN, undefined)
    })
}

/// The remainder of finite `x ≥ 0` by finite `y > 0`. The divisor is scaled up until one digit is left, then down.
fn long_division<'b>(x: Term<'b>, y: Term<'b>) -> Term<'b> {
    let mut divisors = vec![y];
    let mut divisor = y;
    for _ in 1..DIGITS {
        divisor = divisor.but(divisor * DIGIT, divisor.le(x * (1.0 / DIGIT)));
        divisors.push(divisor);
    }
    divisors.into_iter().rev().fold(x, |rest, divisor| {
        let digit = (rest / divisor * UPWARDS).unary(Op::Trunc);
        let rest = digit.fma(-divisor, rest);
        rest.but(rest + divisor, rest.lt(0.0))
    })
}
