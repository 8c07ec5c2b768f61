//! Hyperbolic functions: a polynomial near zero, exponentials elsewhere.
//!
//! Coefficients are minimax fits made for this crate, rounded to `f32` one after another, the rest refitted.

use super::exp::{half_exp, square_of_exp};
use super::float::{over, with_sign};
use super::term::{Term, unary};
use crate::ir::kernel::{Builder, Value};

/// `(tanh x − x) / x³` in `x²`, on |x| ≤ 0.55: relative error of tanh 2⁻²⁹·⁷.
const TANH: [f32; 5] = [-0.33333316, 0.13332544, -0.053847548, 0.021050714, -0.0062428494];

/// `(sinh x − x) / x³` in `x²`, on |x| ≤ 1: relative error of sinh 2⁻³¹·⁶.
const SINH: [f32; 4] = [0.16666667, 0.0083333105, 0.00019842896, 2.7822132e-6];

/// Hyperbolic tangent, `1 − 2 / (e²ˣ + 1)` where that loses nothing.
pub(crate) fn tanh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| tanh_with(x, |x, y| x / y))
}

/// The same for GPUs.
pub(crate) fn tanh_by_reciprocal(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| tanh_with(x, over))
}

/// With a division by a number from 1 to e²⁰ + 1.
fn tanh_with<'b>(x: Term<'b>, over: impl Fn(f32, Term<'b>) -> Term<'b>) -> Term<'b> {
    let size = x.abs();
    let (two_to_n, rest) = square_of_exp(size.but(10.0, size.gt(10.0)));
    let far = 1.0 - over(2.0, two_to_n.fma(rest, 1.0));
    with_sign(far.but(odd(size, &TANH), size.lt(0.55)), x)
}

/// Hyperbolic sine.
pub(crate) fn sinh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let half_exp = half_exp(size);
        let far = half_exp - 0.25 / half_exp;
        with_sign(far.but(odd(size, &SINH), size.lt(1.0)), x)
    })
}

/// Hyperbolic cosine.
pub(crate) fn cosh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let half_exp = half_exp(x.abs());
        half_exp + 0.25 / half_exp
    })
}

/// `x + x³ p(x²)`.
pub(super) fn odd<'b>(x: Term<'b>, p: &[f32]) -> Term<'b> {
    let square = x * x;
    (x * square).fma(square.polynomial(p), x)
}
