//! Integers and truth values: division that never traps, and shifts that never overflow.
//!
//! Invariant: no operation here divides by zero, divides the smallest number by −1, or shifts by the width of
//! its type.

use super::term::{Term, binary, ternary, unary};
use crate::ir::dtype::{Class, Const, DType};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Computes `x / y`, truncated. Division by 1 gives `x / 0 = x` and `MIN / -1 = MIN`.
pub(crate) fn div(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| x.binary(Op::IntDiv, safe_divisor(x, y)))
}

/// Computes `x % y` with the sign of `x`. Division by 1 gives `x % 0 = 0` and `MIN % -1 = 0`.
pub(crate) fn rem(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| x.binary(Op::IntRem, safe_divisor(x, y)))
}

/// Computes `x / y`, with `x / 0 = x`.
pub(crate) fn div_unsigned(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| x.binary(Op::IntDiv, y.but(1, y.eq(0))))
}

/// Computes `x % y`, with `x % 0 = 0`.
pub(crate) fn rem_unsigned(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| x.binary(Op::IntRem, y.but(1, y.eq(0))))
}

/// Computes `floor(x / y)`, with `x / 0 = x` and `MIN / -1 = MIN` as in [`div`].
pub(crate) fn floor_div(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let y = safe_divisor(x, y);
        let quotient = x.binary(Op::IntDiv, y);
        quotient.but(quotient - 1, has_other_sign(x - quotient * y, y))
    })
}

/// Computes `x − floor(x / y) y` with the sign of `y`. The result is 0 in the cases in which [`rem`] is 0.
pub(crate) fn floor_rem(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let y = safe_divisor(x, y);
        let rest = x.binary(Op::IntRem, y);
        rest.but(rest + y, has_other_sign(rest, y))
    })
}

/// Returns the floor quotient of wide integers, derived from Euclidean division.
pub(crate) fn floor_div_reference(x: i64, y: i64) -> i64 {
    let above = y < 0 && x.checked_rem_euclid(y).is_some_and(|rest| rest > 0);
    if y == 0 { x } else { x.wrapping_div_euclid(y) - i64::from(above) }
}

/// Returns the remainder of the floor quotient of wide integers.
pub(crate) fn floor_rem_reference(x: i64, y: i64) -> i64 {
    if y == 0 { 0 } else { x.wrapping_sub(floor_div_reference(x, y).wrapping_mul(y)) }
}

/// Tests for a nonzero remainder whose sign differs from the divisor's.
fn has_other_sign<'b>(rest: Term<'b>, y: Term<'b>) -> Term<'b> {
    rest.ne(0) & (rest ^ y).lt(0)
}

/// Computes the high half of a product of `u32` from products of 16-bit halves. No sum here reaches 2³².
pub(crate) fn mul_high(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let [(x, x_high), (y, y_high)] = [x, y].map(|x| (x & 0xffff, x >> 16));
        let middle = x_high * y + ((x * y) >> 16);
        let other = x * y_high + (middle & 0xffff);
        x_high * y_high + (middle >> 16) + (other >> 16)
    })
}

/// Computes −1, 0 or 1.
pub(crate) fn sign(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let positive = x.but(1, x.gt(0));
        match x.dtype().class() {
            Class::Int => positive.but(-1, x.lt(0)),
            Class::Uint => positive,
            Class::Float | Class::Bool => unreachable!("the sign of an integer"),
        }
    })
}

/// Computes `x << y`, with `y` modulo the bits of the type.
pub(crate) fn shl_masked(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| x << (y & (bits_of(y.dtype()) - 1)))
}

/// Computes `x >> y`, with `y` modulo the bits of the type.
pub(crate) fn shr_masked(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| x >> (y & (bits_of(y.dtype()) - 1)))
}

/// Tests two truth values for equality.
pub(crate) fn same(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| !(x ^ y))
}

/// Computes `if c { x } else { y }` for truth values.
pub(crate) fn select_bool(b: &mut Builder<'_>, x: &[Value]) -> Value {
    ternary(b, x, |c, x, y| (c & x) | (!c & y))
}

/// Returns `y`, or 1 where dividing `x` by `y` would trap.
fn safe_divisor<'b>(x: Term<'b>, y: Term<'b>) -> Term<'b> {
    let (smallest, _) = x.dtype().range();
    let overflows = x.eq(x.constant(Const::Int(smallest))) & y.eq(-1);
    y.but(1, y.eq(0) | overflows)
}

fn bits_of(dtype: DType) -> i32 {
    dtype.bits() as i32
}
