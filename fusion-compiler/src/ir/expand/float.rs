//! Signs and comparisons of `f32`, and what can be told from the bits of one.
//!
//! Invariant: NaN and infinity are recognised by their bits, as WGSL may assume that neither exists.

use super::term::{Operand, Term, binary, ternary, unary};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::kernel::{Builder, Uniform, UniformArg, Value};
use crate::ir::ops::Op;

/// The bits of infinity. Those of NaN, without the sign, are greater; those of finite numbers smaller.
pub(super) const INFINITY_BITS: i32 = 0x7f80_0000;

const SIGN_BIT: i32 = i32::MIN;
const MAGNITUDE_BITS: i32 = i32::MAX;

/// The bits without the sign.
pub(super) fn magnitude(x: Term<'_>) -> Term<'_> {
    x.bits() & MAGNITUDE_BITS
}

/// The sign bit, alone.
pub(super) fn sign_bit(x: Term<'_>) -> Term<'_> {
    x.bits() & SIGN_BIT
}

/// `x ≥ 0` or −0 with the sign flipped where `sign` has its sign bit set.
pub(super) fn with_sign<'b>(x: Term<'b>, sign: Term<'b>) -> Term<'b> {
    (x.bits() ^ sign_bit(sign)).float_of_bits()
}

/// The size of the first with the sign of the second.
pub(crate) fn copysign(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (magnitude(x) | sign_bit(y)).float_of_bits())
}

/// Whether it is NaN.
pub(crate) fn is_nan(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| magnitude(x).gt(INFINITY_BITS))
}

/// Whether it is an infinity.
pub(crate) fn is_inf(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| magnitude(x).eq(INFINITY_BITS))
}

/// Whether it is neither.
pub(crate) fn is_finite(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| magnitude(x).lt(INFINITY_BITS))
}

/// The operand.
pub(crate) fn same(_: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// The operand with its bits combined with a zero that is only known at launch.
pub(crate) fn opaque(b: &mut Builder<'_>, x: &[Value]) -> Value {
    let arg = UniformArg::Extent(DimExpr::constant(0));
    let zero = b.uniform(Uniform { name: "zero".into(), dtype: DType::U32, arg });
    let bits = b.bitcast(x[0], DType::U32);
    let bits = b.apply(Op::Xor, &[bits, zero]);
    b.bitcast(bits, DType::F32)
}

/// −1, 0 or 1; zeros and NaN are themselves.
pub(crate) fn sign(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| x.but(1.0, x.gt(0.0)).but(-1.0, x.lt(0.0)))
}

/// The smaller, NaN if either is: a comparison with a NaN on the right gives the right one by itself.
pub(crate) fn min(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x.lt(y) | x.unary(Op::IsNan)).select(x, y))
}

/// The larger, NaN if either is.
pub(crate) fn max(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x.gt(y) | x.unary(Op::IsNan)).select(x, y))
}

/// The same for CPUs: their minimum instruction gives `y` where either is NaN, so one more step puts that of `x` back.
pub(crate) fn min_by_instruction(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| x.lt(y).select(x, y).but(f32::NAN, x.unary(Op::IsNan)))
}

/// As the smaller.
pub(crate) fn max_by_instruction(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| x.gt(y).select(x, y).but(f32::NAN, x.unary(Op::IsNan)))
}

/// The second where it is larger, else the first: an instruction of a CPU.
pub(crate) fn max_num(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| y.gt(x).select(y, x))
}

/// The second where it is smaller, else the first.
pub(crate) fn min_num(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| y.lt(x).select(y, x))
}

/// `x * y + z`, clamped to 0 to 1; 0 where that is NaN.
pub(crate) fn saturated_fma(b: &mut Builder<'_>, x: &[Value]) -> Value {
    ternary(b, x, |x, y, z| {
        let limit = |limit: f32| limit.meet(x);
        limit(1.0).binary(Op::MinNum, limit(0.0).binary(Op::MaxNum, x.fma(y, z)))
    })
}

/// `x / y` for a `y` from 1 to 2, to a unit in the last place, by a GPU's reciprocal and a step of Newton's: a third of the
/// operations of a division, and none that branches. What is infinite stays so, and what is subnormal is rounded once.
pub(crate) fn div_near_one(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let near = y.unary(Op::ApproxRecip);
        near.fma((-y).fma(near, 1.0), near) * x
    })
}
