//! Hyperbolic functions: a polynomial near zero, exponentials elsewhere.
//!
//! Coefficients are minimax fits made for this crate. Each coefficient is rounded to `f32` in order, and the
//! rest is refitted.

use super::exp::{LOG2_E, half_exp, half_square_of_exp_less_1, square_of_exp};
use super::float::with_sign;
use super::term::{Term, unary};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Coefficients of `(tanh x − x) / x³` in `x²` on |x| ≤ 0.6, with relative error of tanh 2⁻²⁸·⁴.
const TANH: [f32; 5] = [-0.333333, 0.13331936, -0.053784717, 0.020798625, -0.005897966];

/// Coefficients of `(sinh x − x) / x³` in `x²` on |x| ≤ 1, with relative error of sinh 2⁻³¹·⁶.
const SINH: [f32; 4] = [0.16666667, 0.0083333105, 0.00019842896, 2.7822132e-6];

/// Computes the hyperbolic tangent as `(e²ˣ − 1) / (e²ˣ + 1)`. CPUs use this form, because they wait for
/// arithmetic rather than memory.
pub(crate) fn tanh_of_one_exponential(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let half = half_square_of_exp_less_1(size.but(10.0, size.gt(10.0)));
        with_sign(half / (half + 1.0), x)
    })
}

/// Computes the hyperbolic tangent as `1 − 2 / (e²ˣ + 1)` away from zero. The subtraction loses no accuracy
/// there, so an inexact division suffices.
pub(crate) fn tanh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let (two_to_n, rest) = square_of_exp(size.but(10.0, size.gt(10.0)));
        tanh_of(x, 1.0 - 2.0 / two_to_n.fma(rest, 1.0))
    })
}

/// Computes the hyperbolic tangent by a GPU's approximate power of two and reciprocal, like CUDA's `tanhf`.
/// At most seven tenths of the relative error of the power reach the result, and at most nine tenths of that
/// of the reciprocal. For a large `x` the power is infinite and its reciprocal is 0.
pub(crate) fn tanh_by_power(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let power = (x.abs() * (2.0 * LOG2_E)).unary(Op::ApproxExp2);
        tanh_of(x, (power + 1.0).unary(Op::ApproxRecip).fma(-2.0, 1.0))
    })
}

/// Selects `far` away from zero and the polynomial near zero, with the sign of `x`.
fn tanh_of<'b>(x: Term<'b>, far: Term<'b>) -> Term<'b> {
    let size = x.abs();
    with_sign(far.but(odd(size, &TANH), size.lt(0.6)), x)
}

/// Computes the hyperbolic sine.
pub(crate) fn sinh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let half_exp = half_exp(size);
        let far = half_exp - 0.25 / half_exp;
        with_sign(far.but(odd(size, &SINH), size.lt(1.0)), x)
    })
}

/// Computes the hyperbolic cosine.
pub(crate) fn cosh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let half_exp = half_exp(x.abs());
        half_exp + 0.25 / half_exp
    })
}

/// Computes `x + x³ p(x²)`.
pub(super) fn odd<'b>(x: Term<'b>, p: &[f32]) -> Term<'b> {
    let square = x * x;
    (x * square).fma(square.polynomial(p), x)
}
