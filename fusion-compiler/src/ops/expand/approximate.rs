//! Expansions of `fast_math` operations: into GPUs' approximate instructions, or into the exact operations of
//! CPUs.

use super::term::{binary, unary};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Computes `eˣ` by an approximate power of two.
pub(crate) fn exp(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| (x * std::f32::consts::LOG2_E).unary(Op::ApproxExp2))
}

/// Computes `e^(x − y)` for `x ≤ y`. Equal operands give 1, even if they are infinite.
pub(crate) fn exp_below(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x - y).but(0.0, x.eq(y)).unary(Op::ApproxExp))
}

/// Computes `e^(x − y)` with `y` clamped to finite numbers.
pub(crate) fn exp_below_finite(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x - y.finite()).unary(Op::ApproxExp))
}

/// Computes the natural logarithm by the approximate logarithm to base 2.
pub(crate) fn log(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| x.unary(Op::ApproxLog2) * std::f32::consts::LN_2)
}

/// Computes `x / y`.
pub(crate) fn div(b: &mut Builder<'_>, x: &[Value]) -> Value {
    b.apply(Op::Div, x)
}

/// Computes `1 / x`.
pub(crate) fn recip(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| 1.0 / x)
}

/// Computes `√x`.
pub(crate) fn sqrt(b: &mut Builder<'_>, x: &[Value]) -> Value {
    b.apply(Op::Sqrt, x)
}
