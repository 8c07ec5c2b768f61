//! Conversions between floats and their bits in a `u32`. 16-bit floats are in the low half, and are rounded
//! to nearest, ties to even.
//!
//! Invariant: no result depends on a target's treatment of subnormal `f32`.

use super::term::{Term, unary};
use crate::ir::dtype::DType;
use crate::ir::kernel::{Builder, Value};

/// Difference between the exponent biases of `f32` and `f16`, shifted into the exponent field.
const REBIAS: i32 = 112 << 23;
/// The bits of infinity, and of the smallest normal number, as `f16`.
const F16_INFINITY: i32 = 0x7c00;
const F16_NORMAL: i32 = 0x400;
/// The bits of infinity, of 2¹⁶ and of 2⁻¹⁴, as `f32`.
const INFINITY: i32 = 0x7f80_0000;
const TWO_TO_16: i32 = 0x4780_0000;
const TWO_TO_MINUS_14: i32 = 0x3880_0000;

/// Returns the bits of an `f32`.
pub(crate) fn to_bits(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| x.bitcast(DType::U32))
}

/// Returns the `f32` of its bits.
pub(crate) fn from_bits(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| x.float_of_bits())
}

/// Converts the bits of an `f16` to `f32`.
pub(crate) fn from_f16(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (sign, size) = ((x & 0x8000) << 16, x & 0x7fff);
        let shifted = (size << 13) + REBIAS;
        let special = shifted.but(shifted + REBIAS, size.ge(F16_INFINITY));
        // Subnormal numbers are multiples of the smallest one.
        let small = (size.bitcast(DType::I32).to_float() * 2.0_f32.powi(-24)).bitcast(DType::U32);
        (special.but(small, size.lt(F16_NORMAL)) | sign).float_of_bits()
    })
}

/// Converts to the bits of the nearest `f16`. NaN gives a quiet NaN.
pub(crate) fn to_f16(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let bits = x.bitcast(DType::U32);
        let (sign, size) = ((bits >> 16) & 0x8000, bits & i32::MAX);
        let normal = to_even(size, 13) - (REBIAS >> 13);
        // The last bit of an `f32` from ½ to 1 is worth the smallest `f16`, so the addition rounds.
        let small = (size.float_of_bits() + 0.5).bitcast(DType::U32) - 0x3f00_0000;
        let finite = normal.but(small, size.lt(TWO_TO_MINUS_14));
        let number = finite.but(F16_INFINITY, size.ge(TWO_TO_16));
        number.but(F16_INFINITY | 0x200, size.gt(INFINITY)) | sign
    })
}

/// Converts the bits of a `bf16` to `f32`.
pub(crate) fn from_bf16(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| (x << 16).float_of_bits())
}

/// Converts to the bits of the nearest `bf16`. NaN gives a quiet NaN.
pub(crate) fn to_bf16(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let bits = x.bitcast(DType::U32);
        let size = (bits & i32::MAX).bitcast(DType::I32);
        half_added(bits, 16).but(-1, size.gt(INFINITY)) >> 16
    })
}

/// Returns the bits of the nearest number with a significand of 11 bits, ties away from zero.
pub(crate) fn tf32_bits(x: f32) -> u32 {
    if x.is_nan() { x.to_bits() } else { (x.to_bits() + 0x1000) & !0x1fff }
}

/// Drops the last `dropped` bits, rounding to nearest, ties to even.
fn to_even(bits: Term<'_>, dropped: i32) -> Term<'_> {
    half_added(bits, dropped) >> dropped
}

/// Adds half a unit, so that cutting off the last `dropped` bits rounds to nearest, ties to even.
fn half_added(bits: Term<'_>, dropped: i32) -> Term<'_> {
    bits + ((1 << (dropped - 1)) - 1) + ((bits >> dropped) & 1)
}
