//! What `fast_math` makes of GPUs' approximations, and of the operations that the CPU has as they are.

use super::term::{binary, unary};
use crate::ir::kernel::{Builder, Value};
use crate::ir::ops::Op;

/// `eˣ` by a power of two.
pub(crate) fn exp(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| (x * std::f32::consts::LOG2_E).unary(Op::ApproxExp2))
}

/// `e^(x − y)` of an `x` that is no larger: what is the same is 1 even if it is infinite.
pub(crate) fn exp_below(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x - y).but(0.0, x.eq(y)).unary(Op::ApproxExp))
}

/// The same from a `y` that is finite.
pub(crate) fn exp_below_finite(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x - y.finite()).unary(Op::ApproxExp))
}

/// The natural logarithm by that to base 2.
pub(crate) fn log(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| x.unary(Op::ApproxLog2) * std::f32::consts::LN_2)
}

/// `x / y`.
pub(crate) fn div(b: &mut Builder<'_>, x: &[Value]) -> Value {
    b.apply(Op::Div, x)
}

/// `1 / x`.
pub(crate) fn recip(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| 1.0 / x)
}

/// `√x`.
pub(crate) fn sqrt(b: &mut Builder<'_>, x: &[Value]) -> Value {
    b.apply(Op::Sqrt, x)
}
