//! Roots.

use super::float::{INFINITY_BITS, magnitude, with_sign};
use super::term::unary;
use crate::ir::dtype::DType;
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// First approximation of `x^(−1/3)`: the bits of this constant minus a third of the bits of `x`. The
/// constant was found by search and gives a relative error of 3.4 % at most.
const INVERSE_CBRT: i32 = 0x54a2_3400;

/// Computes `1 / √x`.
pub(crate) fn rsqrt(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| 1.0 / x.unary(Op::Sqrt))
}

/// Computes `∛x` by two iterations towards `y = x^(−1/3)`, then one Newton step towards `t³ = x` from
/// `t = x y²`.
pub(crate) fn cbrt(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let subnormal = size.lt(f32::MIN_POSITIVE);
        let a = size.but(size * 16_777_216.0, subnormal);
        let third = a.bitcast(DType::U32).binary(Op::IntDiv, 3).bitcast(DType::I32);
        let mut y = (-third + INVERSE_CBRT).float_of_bits();
        for _ in 0..2 {
            let miss = 1.0 - a * y * y * y;
            y = (y * miss).fma(miss.fma(2.0 / 9.0, 1.0 / 3.0), y);
        }
        let t = a * y * y;
        let root = ((t * t).fma(-t, a) * (y * y)).fma(1.0 / 3.0, t);
        let root = with_sign(root.but(root * (1.0 / 256.0), subnormal), x);
        root.but(x, magnitude(x).ge(INFINITY_BITS))
    })
}
