//! Hyperbolic functions of `f64`.

use super::super::term::unary;
use super::exp::expm1_of;
use super::{clamped, signed};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Computes the hyperbolic sine.
pub(crate) fn sinh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let t = expm1_of(size);
        let near = (t + t / (t + 1.0)) * 0.5;
        let half = (size * 0.5).unary(Op::Exp);
        let far = (half * 0.5) * half;
        signed(near.but(far, size.gt(40.0)), x)
    })
}

/// Computes the hyperbolic cosine.
pub(crate) fn cosh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let half = (x.abs() * 0.5).unary(Op::Exp);
        let e = half * half;
        let near = (e + 1.0 / e) * 0.5;
        near.but((half * 0.5) * half, x.abs().gt(40.0))
    })
}

/// Computes the hyperbolic tangent.
pub(crate) fn tanh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let t = expm1_of(clamped(size + size, 50.0));
        signed(t / (t + 2.0), x)
    })
}
