//! Exponentials: `2ⁿ · p(r)` with an integer `n` and an `r` near zero.
//!
//! Coefficients are minimax fits made for this crate. Each coefficient is rounded to `f32` in order, and the
//! rest is refitted.

use super::term::{IntoTerm, Term, binary, unary};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Bound below which `eˣ − 1` rounds to `x`. Halving such a number on the way could lose its last bit.
const TINY: f32 = f32::EPSILON / 4.0;

/// Rounding constant 1.5 · 2²³. Adding it to a number rounds to an integer, which the low bits of the sum
/// contain.
pub(super) const ROUNDER: f32 = 12_582_912.0;

/// Rounding constant with which the low bits of the sum are the biased exponent of `2ⁿ`.
const BIASED: f32 = ROUNDER + 127.0;

/// Rounding constant with which the low bits of the sum are the biased exponent of `2ⁿ / 2`.
const HALVED: f32 = BIASED - 1.0;

pub(super) const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// ln 2 in two parts. The first part has 15 bits, so that its product with an integer of 9 bits is exact.
pub(super) const LN_2_HIGH: f32 = 0.69314575;
pub(super) const LN_2_LOW: f32 = 1.4286068e-6;

/// Coefficients of `eʳ` on |r| ≤ ln 2 / 2, with relative error 2⁻²⁵·³.
const EXP: [f32; 7] = [1.0, 1.0, 0.49999994, 0.16666576, 0.041670043, 0.008361281, 0.0013579119];

/// Coefficients of `e²ʳ` on |r| ≤ ln 2 / 4, derived exactly from `EXP`.
const EXP_OF_TWICE: [f32; 7] =
    [1.0, 2.0, 4.0 * EXP[2], 8.0 * EXP[3], 16.0 * EXP[4], 32.0 * EXP[5], 64.0 * EXP[6]];

/// Coefficients of `(eʳ − 1 − r) / r²`, with an error relative to `eʳ − 1` of 2⁻²³·⁶.
const EXPM1: [f32; 5] = [0.49999997, 0.16666576, 0.04166833, 0.008361281, 0.0013714668];

/// Coefficients of `(e²ʳ − 1 − 2r) / r²` on |r| ≤ ln 2 / 4. The error relative to `e²ʳ − 1` is 2⁻²³·⁴.
/// Among fits of a similar error, these keep each `tanh` within two units of the exact value, with a fused
/// multiply-add and without.
const EXPM1_OF_TWICE: [f32; 5] =
    [4.0 * 0.5, 8.0 * 0.16666576, 16.0 * 0.041668125, 32.0 * 0.008360101, 64.0 * 0.0013714668];

/// Coefficients of `(2ʳ − 1) / r` on |r| ≤ 1/2, with relative error of `2ʳ` 2⁻²⁷·⁵.
pub(super) const EXP2: [f32; 6] =
    [std::f32::consts::LN_2, 0.2402265, 0.05550353, 0.009617836, 0.0013395228, 0.00015587108];

/// Exponent of the power of two that is 0 in a product with `rest(APART)`, since its bits are those of 0.
const ZERO_POWER: f32 = -127.0 - APART as f32;

/// Operand of `eˣ` whose power of two is 0. A product with 0 is exact, while processors take a hundred cycles for one
/// that is too small for a normal number, and masks make many of them.
const ZERO_EXP: f32 = ZERO_POWER / LOG2_E;

/// Computes `eˣ`. Beyond the clamp the result is infinite or zero anyway.
pub(crate) fn exp(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let power = Power::of(x.bits().lt(0), x);
        let (two_to_n, r) = power.reduce(x.clamp(ZERO_EXP, 89.0));
        r.polynomial(&EXP) * two_to_n * power.rest
    })
}

/// Computes `eˣ` for `x ≤ 0`.
pub(crate) fn exp_of_nonpositive(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (two_to_n, r) = Power::small(x).reduce(x.but(ZERO_EXP, x.lt(ZERO_EXP)));
        r.polynomial(&times(EXP, rest(APART))) * two_to_n
    })
}

/// Computes `e^−(x + y)` for 0 ≤ x ≤ 150 and a small `y`, as a power of two and its factor. The product of
/// both is rounded once. The sum `x + y` has more digits than one number can represent.
pub(super) fn exp_of_negative_sum<'b>(x: Term<'b>, y: Term<'b>) -> (Term<'b>, Term<'b>) {
    let power = Power::small(x);
    let (two_to_n, n) = power.nearest(x.fma(-LOG2_E, power.rounder));
    let r = n.fma(-LN_2_HIGH, -x).opaque() - n.fma(LN_2_LOW, y);
    (two_to_n, r.polynomial(&times(EXP, rest(APART))))
}

/// Second part of log₂ e in two parts.
const LOG2_E_LOW: f32 = 1.925963e-8;

/// Computes `eˣ = 2ⁿ · 2ʳ` by a GPU's approximate power of two. `n` is clamped to the exponents of normal
/// numbers and `r` takes the excess, so the product becomes infinite, subnormal or zero by itself. The range
/// of exponents is scaled to 0 to 1, because a saturating instruction clamps to that range at no cost. NaN
/// saturates to 0, but `r` is NaN.
pub(crate) fn exp_by_power(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let share = x.saturated_fma(LOG2_E / (MOST - LEAST), -LEAST / (MOST - LEAST));
        by_power(x, share.fma(MOST - LEAST, BIASED + LEAST))
    })
}

/// Computes `eˣ` for `x ≤ 0` by a GPU's approximate power of two.
pub(crate) fn exp_of_nonpositive_by_power(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| by_power(x, (BIASED + LEAST).meet(x).binary(Op::MaxNum, x.fma(LOG2_E, BIASED))))
}

/// Exponents of the smallest and of the largest normal number.
const LEAST: f32 = -126.0;
const MOST: f32 = 127.0;

/// Computes `eˣ` from `x` and `sum`, whose low bits are `x log₂ e` rounded to an exponent.
fn by_power<'b>(x: Term<'b>, sum: Term<'b>) -> Term<'b> {
    let (two_to_n, n) = power_of_two(sum, BIASED);
    let r = x.fma(LOG2_E_LOW, x.fma(LOG2_E, -n));
    r.unary(Op::ApproxExp2) * two_to_n
}

/// Computes `e^(x − y)` for `x ≤ y`. Equal operands give 1, even if they are infinite.
pub(crate) fn exp_below(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x - y).but(0.0, x.eq(y)).unary(Op::ExpOfNonpositive))
}

/// Computes `e^(x − y)` with `y` clamped to finite numbers, so that no two equal infinities are subtracted.
/// Equal infinities give 0 or infinity.
pub(crate) fn exp_below_finite(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x - y.finite()).unary(Op::Exp))
}

/// Computes `2ˣ`. Beyond the clamp the result is infinite or zero anyway.
pub(crate) fn exp2(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let power = Power::of(x.bits().lt(0), x);
        let x = x.clamp(ZERO_POWER, 129.0);
        let (two_to_n, count) = power.nearest(x + power.rounder);
        exp2_near_zero(x - count) * two_to_n * power.rest
    })
}

/// Computes `eˣ − 1 = 2ⁿ(eʳ − 1) + (2ⁿ − 1)`, halved on the way so that `2¹²⁸` does not occur.
pub(crate) fn expm1(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let x = x.clamp(-20.0, 89.0);
        let (half, n) = power_of_two(x.fma(LOG2_E, HALVED), HALVED);
        let r = without(x, n);
        let near_zero = (r * r).fma(r.polynomial(&EXPM1), r);
        let y = half.fma(near_zero, half - 0.5) * 2.0;
        y.but(x, x.abs().lt(TINY))
    })
}

/// Computes `e²ˣ` for |x| ≤ 40 as a power of two and its factor.
pub(super) fn square_of_exp(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let (two_to_n, half_r) = reduce_twice(x, BIASED);
    (two_to_n, half_r.polynomial(&EXP_OF_TWICE))
}

/// Computes `(e²ˣ − 1) / 2` for |x| ≤ 40, as exact near zero as elsewhere.
pub(super) fn half_square_of_exp_less_1(x: Term<'_>) -> Term<'_> {
    let (half, half_r) = reduce_twice(x, HALVED);
    let near_zero = (half_r * half_r).fma(half_r.polynomial(&EXPM1_OF_TWICE), half_r + half_r);
    half.fma(near_zero, half - 0.5)
}

/// Reduces `2x = n ln 2 + r`. Returns the power of two that `rounder` is for, and `r / 2`.
fn reduce_twice(x: Term<'_>, rounder: f32) -> (Term<'_>, Term<'_>) {
    let (two_to_n, n) = power_of_two(x.fma(2.0 * LOG2_E, rounder), rounder);
    (two_to_n, n.fma(-LN_2_LOW / 2.0, n.fma(-LN_2_HIGH / 2.0, x).opaque()))
}

/// Computes `eˣ / 2` for `x ≥ 0`. The result overflows later than `eˣ`.
pub(super) fn half_exp(x: Term<'_>) -> Term<'_> {
    let (two_to_n, r) = Power::large(x).reduce(x.clamp(0.0, 90.0));
    r.polynomial(&times(EXP, 0.5 * rest(-APART))) * two_to_n
}

/// Computes `2ʳ` for |r| ≤ 1/2.
pub(super) fn exp2_near_zero(r: Term<'_>) -> Term<'_> {
    r.fma(r.polynomial(&EXP2), 1.0)
}

/// `2ⁿ` in two factors, since it may be no normal number. The second factor is one of two numbers. Products
/// with the first factor are exact, so the result is rounded once.
pub(super) struct Power<'b> {
    /// Rounding constant. Adding it to a number rounds to the nearest `n`, and the low bits of the sum are
    /// the exponent of the first factor.
    pub(super) rounder: Term<'b>,
    /// The second factor.
    pub(super) rest: Term<'b>,
}

/// Distance of the first factor's exponent from `n`, and of the second factor's exponent from 0.
const APART: i32 = 100;

/// Returns the second factor of a power of two whose first factor has an exponent larger by `by`.
fn rest(by: i32) -> f32 {
    f32::from_bits(((127 - by) as u32) << 23)
}

/// Multiplies the coefficients of a polynomial by a power of two, which changes only their exponents.
/// Scaling the coefficients saves the multiplication of the polynomial's value.
fn times<const N: usize>(polynomial: [f32; N], power: f32) -> [f32; N] {
    polynomial.map(|coefficient| coefficient * power)
}

impl<'b> Power<'b> {
    /// Selects the factors for −227 ≤ n ≤ 26 where `small` is true, and those for −26 ≤ n ≤ 226 elsewhere.
    pub(super) fn of(small: Term<'b>, like: Term<'b>) -> Power<'b> {
        let (down, up) = (Power::small(like), Power::large(like));
        Power { rounder: small.select(down.rounder, up.rounder), rest: small.select(down.rest, up.rest) }
    }

    /// Returns the factors for −227 ≤ n ≤ 26, where a power of −227 is 0.
    fn small(like: Term<'b>) -> Power<'b> {
        Power::apart(APART, like)
    }

    /// Returns the factors for −26 ≤ n ≤ 226.
    fn large(like: Term<'b>) -> Power<'b> {
        Power::apart(-APART, like)
    }

    fn apart(by: i32, like: Term<'b>) -> Power<'b> {
        let rounder = ROUNDER + (127 + by) as f32;
        Power { rounder: rounder.meet(like), rest: rest(by).meet(like) }
    }

    /// Returns the first factor and `n`, given a sum with the rounder.
    pub(super) fn nearest(&self, sum: Term<'b>) -> (Term<'b>, Term<'b>) {
        power_of_two(sum, self.rounder)
    }

    /// Reduces `x = n ln 2 + r` with |r| ≤ ln 2 / 2, for |x| < 170. Returns the first factor and `r`.
    fn reduce(&self, x: Term<'b>) -> (Term<'b>, Term<'b>) {
        let (two_to_n, count) = self.nearest(x.fma(LOG2_E, self.rounder));
        (two_to_n, without(x, count))
    }
}

/// Returns `2ⁿ` and `n` of a sum with a rounding constant. The low bits of the sum are the exponent.
fn power_of_two<'b>(sum: Term<'b>, rounder: impl IntoTerm<'b>) -> (Term<'b>, Term<'b>) {
    let sum = sum.opaque();
    ((sum.bits() << 23).float_of_bits(), sum - rounder)
}

/// Computes `x − n ln 2`.
fn without<'b>(x: Term<'b>, n: Term<'b>) -> Term<'b> {
    n.fma(-LN_2_LOW, n.fma(-LN_2_HIGH, x).opaque())
}
