//! Signs and comparisons of `f32`, and tests of its bits.
//!
//! Invariant: NaN and infinity are detected by their bits, because WGSL may assume that neither exists.

use super::term::{IntoTerm, Term, binary, ternary, unary};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::kernel::{Builder, Uniform, UniformArg, Value};
use crate::ir::op::Op;

/// The bits of infinity. Without the sign, the bits of NaN are greater and those of finite numbers are
/// smaller.
pub(super) const INFINITY_BITS: i32 = 0x7f80_0000;

const SIGN_BIT: i32 = i32::MIN;
const MAGNITUDE_BITS: i32 = i32::MAX;

/// Returns the bits without the sign.
pub(super) fn magnitude(x: Term<'_>) -> Term<'_> {
    x.bits() & MAGNITUDE_BITS
}

/// Returns the sign bit alone.
pub(super) fn sign_bit(x: Term<'_>) -> Term<'_> {
    x.bits() & SIGN_BIT
}

/// Flips the sign of `x ≥ 0` or −0 where `sign` has its sign bit set.
pub(super) fn with_sign<'b>(x: Term<'b>, sign: Term<'b>) -> Term<'b> {
    (x.bits() ^ sign_bit(sign)).float_of_bits()
}

/// Computes the magnitude of the first operand with the sign of the second.
pub(crate) fn copysign(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (magnitude(x) | sign_bit(y)).float_of_bits())
}

/// Tests for NaN.
pub(crate) fn is_nan(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| magnitude(x).gt(INFINITY_BITS))
}

/// Tests for an infinity.
pub(crate) fn is_inf(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| magnitude(x).eq(INFINITY_BITS))
}

/// Tests for a number that is neither NaN nor infinite.
pub(crate) fn is_finite(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| magnitude(x).lt(INFINITY_BITS))
}

/// Returns the operand.
pub(crate) fn same(_: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// Combines the bits of the operand with a zero that is known only at launch.
pub(crate) fn opaque(b: &mut Builder<'_>, x: &[Value]) -> Value {
    let arg = UniformArg::Extent(DimExpr::constant(0));
    let zero = b.uniform(Uniform { name: "zero".into(), dtype: DType::U32, arg });
    let bits = b.bitcast(x[0], DType::U32);
    let bits = b.apply(Op::Xor, &[bits, zero]);
    b.bitcast(bits, DType::F32)
}

/// Computes −1, 0 or 1. Zeros and NaN are unchanged.
pub(crate) fn sign(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| x.but(1.0, x.gt(0.0)).but(-1.0, x.lt(0.0)))
}

/// Computes the minimum, or NaN if either operand is NaN. A comparison with NaN in `y` is false and selects
/// `y`.
pub(crate) fn min(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x.lt(y) | x.unary(Op::IsNan)).select(x, y))
}

/// Computes the maximum, or NaN if either operand is NaN.
pub(crate) fn max(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x.gt(y) | x.unary(Op::IsNan)).select(x, y))
}

/// Computes `min` for CPUs. The minimum instruction gives `y` if either operand is NaN, so a second step
/// restores a NaN of `x`.
pub(crate) fn min_by_instruction(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| x.lt(y).select(x, y).but(f32::NAN, x.unary(Op::IsNan)))
}

/// Computes `max` for CPUs, like `min_by_instruction`.
pub(crate) fn max_by_instruction(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| x.gt(y).select(x, y).but(f32::NAN, x.unary(Op::IsNan)))
}

/// Computes `y` where it is larger, else `x`: one CPU instruction.
pub(crate) fn max_num(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| y.gt(x).select(y, x))
}

/// Computes `y` where it is smaller, else `x`.
pub(crate) fn min_num(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| y.lt(x).select(y, x))
}

/// Computes `x * y + z`, clamped to the range 0 to 1. NaN gives 0.
pub(crate) fn saturated_fma(b: &mut Builder<'_>, x: &[Value]) -> Value {
    ternary(b, x, |x, y, z| {
        let limit = |limit: f32| limit.meet(x);
        limit(1.0).binary(Op::MinNum, limit(0.0).binary(Op::MaxNum, x.fma(y, z)))
    })
}

/// Computes `x / y` for `y` from 1 to 2 to one unit in the last place, by a GPU's reciprocal and one Newton
/// step. The expansion has fewer operations than a division and no branches. An infinite result stays
/// infinite. A subnormal result is rounded once.
pub(crate) fn div_near_one(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let near = y.unary(Op::ApproxRecip);
        near.fma((-y).fma(near, 1.0), near) * x
    })
}
