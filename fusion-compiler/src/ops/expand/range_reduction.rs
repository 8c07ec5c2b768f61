//! Argument reduction of an angle of any size by quarter turns, after Payne and Hanek, "Radian reduction for
//! trigonometric functions" (SIGNUM Newsletter 18, 1983).
//!
//! An angle is `m · 2ᵏ` with an integer `m` of 24 bits. Bits of 2/π that contribute multiples of four quarter
//! turns do not matter. The next 96 bits are multiplied by `m` as integers. No `f32` is nearer to a multiple
//! of a quarter turn than 2⁻³⁰ quarter turns. The result is exact to 2⁻⁵⁵ quarter turns. Both bounds apply to
//! every finite `f32`.
//!
//! Invariant: integer arithmetic is exact on every target. Float arithmetic starts after the cancellation in
//! `r`.

use super::term::Term;
use crate::ir::dtype::{Const, DType};
use crate::ir::op::Op;

/// Fraction bits of 2/π, after 25 leading zeros. The window of bits for angles from 1 to 2 starts with those
/// zeros.
const TWO_OVER_PI: [u32; 7] =
    [0x0000_0051, 0x7cc1_b727, 0x220a_94fe, 0x13ab_e8fa, 0x9a6e_e06d, 0xb14a_cc9e, 0x21c8_20ff];

/// Number of fraction bits of an `f32`, the mask of these bits, and the implicit bit above them.
const FRACTION_BITS: i32 = 23;
const FRACTION: i32 = (1 << FRACTION_BITS) - 1;
const IMPLICIT: i32 = 1 << FRACTION_BITS;

/// π/2 divided by 2²⁵, as its nearest `f32` and the remainder.
const UNIT: f32 = std::f32::consts::FRAC_PI_2 / 33_554_432.0;
const UNIT_LOW: f32 = -4.371139e-8 / 33_554_432.0;

/// A reduced angle `r + low` of at most 1, and the number of quarter turns that were subtracted.
pub(super) struct ReducedAngle<'b> {
    /// Number of quarter turns modulo 4, in the highest two bits of a `u32`. The other bits are arbitrary.
    pub(super) quarters: Term<'b>,
    pub(super) r: Term<'b>,
    pub(super) low: Term<'b>,
}

/// Subtracts quarter turns from `|x|`. Angles below 1 are unchanged. Infinities give NaN.
pub(super) fn reduce(x: Term<'_>) -> ReducedAngle<'_> {
    let size = x.abs();
    let bits = size.bitcast(DType::U32);
    let exponent = bits - 1.0f32.to_bits().cast_signed();
    let small = exponent.bitcast(DType::I32).lt(0);
    let m = ((bits & FRACTION) | IMPLICIT).but(0, small);
    let [high, middle, rest] = window(exponent);

    // `m · 2/π` in quarter turns: `top` has two bits before the binary point and 30 after it, `next` those
    // from 2⁻³¹ on. The contribution of the last word is far below `top`.
    let top = m * high + m.binary(Op::MulHigh, middle);
    let next = m * middle;
    // Rounding to 2⁻²⁵ leaves 24 bits and a sign for `a`. `b` is the rounding error plus `next`, in units of
    // 2⁻⁵⁶.
    let rounded = top + 16;
    let a = ((rounded << 2).bitcast(DType::I32) >> 7).to_float();
    let b = ((top << 27).bitcast(DType::I32) >> 1) + (next >> 6).bitcast(DType::I32);
    let last = signed_float(m) * signed_float(rest >> 1);
    let b = last.fma(power(-37), b.to_float());
    let (sum, sum_low) = (b.fma(power(-31), a).opaque(), b);
    let sum_low = sum_low.fma(power(-31), a - sum);

    let r = (sum * UNIT).opaque();
    // Zero, or NaN for an infinity.
    let undefined = size * size.constant(Const::Float(0.0)).opaque();
    let low = sum.fma(UNIT, -r) + sum.fma(UNIT_LOW, sum_low.fma(UNIT, undefined));
    ReducedAngle { quarters: rounded + (1 << 29), r: r.but(size, small), low }
}

/// Returns the 96 bits of 2/π from `exponent` on, highest first. `exponent` is in the bit position of an
/// `f32`'s.
fn window(exponent: Term<'_>) -> [Term<'_>; 3] {
    let word = |i: usize| exponent.constant(Const::Int(i64::from(TWO_OVER_PI[i])));
    let bit = |i: i32| (exponent & (1 << (FRACTION_BITS + i))).ne(0);
    let (two_words, one_word) = (bit(6), bit(5));
    let words = [0, 1, 2, 3, 4].map(|i| two_words.select(word(i + 2), word(i)));
    let words = [0, 1, 2, 3].map(|i| one_word.select(words[i + 1], words[i]));
    let shift = (exponent >> FRACTION_BITS) & 31;
    let missing = shift ^ 31;
    [0, 1, 2].map(|i| (words[i] << shift) | ((words[i + 1] >> 1) >> missing))
}

/// Converts a `u32` below 2³¹ to `f32`. Targets convert signed integers faster.
fn signed_float(x: Term<'_>) -> Term<'_> {
    x.bitcast(DType::I32).to_float()
}

/// Returns `2ⁿ`.
fn power(n: i32) -> f32 {
    (n as f32).exp2()
}
