//! The cube root of `f64`.

use super::super::term::{IntoTerm as _, unary};
use super::pair::Pair;
use super::{number, signed};
use crate::ir::dtype::DType;
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// First approximation of `x^(−1/3)`, as for `f32`: this constant minus a third of the high word of `x`. The
/// relative error is 3.4 %.
const INVERSE_CBRT: i32 = 0x553e_f12b;

/// Computes `∛x` by two iterations towards `y = x^(−1/3)`, then one Newton step towards `t³ = x` from
/// `t = x y²`. The step computes the cube in two parts.
pub(crate) fn cbrt(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        // The residual of the smallest numbers would be subnormal.
        let tiny = size.lt(f32::MIN_POSITIVE);
        let a = size.but(size * 2.0f32.powi(120), tiny);
        let third = a.unary(Op::High).binary(Op::IntDiv, 3).bitcast(DType::I32);
        let mut y = (-third + INVERSE_CBRT).bitcast(DType::U32).unary(Op::OfHigh);
        for _ in 0..2 {
            let miss = 1.0.meet(x) - a * y * y * y;
            y = (y * miss).fma(miss.fma(number(x, 2.0 / 9.0), number(x, 1.0 / 3.0)), y);
        }
        let t = a * y * y;
        let square = Pair::product(t, t);
        let miss = (-t).fma(square.high, a) - t * square.low;
        let root = (miss * (y * y)).fma(number(x, 1.0 / 3.0), t);
        let root = root.but(root * 2.0f32.powi(-40), tiny);
        signed(root.but(size, size.eq(f32::INFINITY)), x)
    })
}
