//! Exponentials: `2ⁿ · p(r)` with a whole `n` and an `r` near zero.
//!
//! Coefficients are minimax fits made for this crate, rounded to `f32` one after another, the rest refitted.

use super::term::{Operand, Term, binary, unary};
use crate::ir::kernel::{Builder, Value};
use crate::ir::ops::Op;

/// `eˣ − 1` of a smaller number rounds to it; halving one could lose its last bit.
const TINY: f32 = f32::EPSILON / 4.0;

/// Adding 1.5 · 2²³ rounds to a whole number, which the low bits of the sum then hold.
pub(super) const ROUNDER: f32 = 12_582_912.0;

/// The same, where the low bits of the sum are then an exponent.
const BIASED: f32 = ROUNDER + 127.0;

/// … of half the power.
const HALVED: f32 = BIASED - 1.0;

pub(super) const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// ln 2 in two parts; the first has 15 bits, so that its product with a whole number of 9 bits is exact.
pub(super) const LN_2_HIGH: f32 = 0.69314575;
pub(super) const LN_2_LOW: f32 = 1.4286068e-6;

/// `eʳ` on |r| ≤ ln 2 / 2: relative error 2⁻²⁵·³.
const EXP: [f32; 7] = [1.0, 1.0, 0.49999994, 0.16666576, 0.041670043, 0.008361281, 0.0013579119];

/// `e²ʳ` on |r| ≤ ln 2 / 4: what follows from them, exactly.
const EXP_OF_TWICE: [f32; 7] =
    [1.0, 2.0, 4.0 * EXP[2], 8.0 * EXP[3], 16.0 * EXP[4], 32.0 * EXP[5], 64.0 * EXP[6]];

/// `(eʳ − 1 − r) / r²`, for a small error relative to `eʳ − 1`: 2⁻²³·⁶.
const EXPM1: [f32; 5] = [0.49999997, 0.16666576, 0.04166833, 0.008361281, 0.0013714668];

/// `(e²ʳ − 1 − 2r) / r²` on |r| ≤ ln 2 / 4, relative to `e²ʳ − 1`: 2⁻²³·⁴. Of those about as near it is one with which each `tanh` is
/// within two units of the exact one, with a fused multiply-add and without.
const EXPM1_OF_TWICE: [f32; 5] =
    [4.0 * 0.5, 8.0 * 0.16666576, 16.0 * 0.041668125, 32.0 * 0.008360101, 64.0 * 0.0013714668];

/// `(2ʳ − 1) / r` on |r| ≤ 1/2: relative error of `2ʳ` 2⁻²⁷·⁵.
pub(super) const EXP2: [f32; 6] =
    [std::f32::consts::LN_2, 0.2402265, 0.05550353, 0.009617836, 0.0013395228, 0.00015587108];

/// `eˣ`. Beyond the clamp the result is infinite or zero anyway.
pub(crate) fn exp(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let power = Power::of(x.bits().lt(0), x);
        let (two_to_n, r) = power.reduce(x.clamp(-104.0, 89.0));
        r.polynomial(&EXP) * two_to_n * power.rest
    })
}

/// The same of an `x` that is not positive.
pub(crate) fn exp_of_nonpositive(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (two_to_n, r) = Power::small(x).reduce(x.but(-104.0, x.lt(-104.0)));
        r.polynomial(&times(EXP, rest(APART))) * two_to_n
    })
}

/// `e^−(x + y)` for 0 ≤ x ≤ 150 and a small `y`, as a power of two and its factor, whose product is rounded once. The sum has more digits
/// than a number holds.
pub(super) fn exp_of_negative_sum<'b>(x: Term<'b>, y: Term<'b>) -> (Term<'b>, Term<'b>) {
    let power = Power::small(x);
    let (two_to_n, n) = power.nearest(x.fma(-LOG2_E, power.rounder));
    let r = n.fma(-LN_2_HIGH, -x).opaque() - n.fma(LN_2_LOW, y);
    (two_to_n, r.polynomial(&times(EXP, rest(APART))))
}

/// log₂ e in two parts, of which this is the second.
const LOG2_E_LOW: f32 = 1.925963e-8;

/// `eˣ = 2ⁿ · 2ʳ` by a power of two as a GPU has it. The whole `n` is one of a normal number: of what is beyond, `r` has the
/// rest, so that the product is infinite, subnormal or zero by itself. How far it is from the least to the largest is a share of 1,
/// to which an instruction clamps for nothing; of what is no number that is 0, and `r` is none.
pub(crate) fn exp_by_power(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let share = x.saturated_fma(LOG2_E / (MOST - LEAST), -LEAST / (MOST - LEAST));
        by_power(x, share.fma(MOST - LEAST, BIASED + LEAST))
    })
}

/// The same of an `x` that is not positive.
pub(crate) fn exp_of_nonpositive_by_power(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| by_power(x, (BIASED + LEAST).meet(x).binary(Op::MaxNum, x.fma(LOG2_E, BIASED))))
}

/// The exponents of the smallest normal number and of the largest.
const LEAST: f32 = -126.0;
const MOST: f32 = 127.0;

/// With `x log₂ e`, rounded, as its low bits have it.
fn by_power<'b>(x: Term<'b>, sum: Term<'b>) -> Term<'b> {
    let (two_to_n, n) = power_of_two(sum, BIASED);
    let r = x.fma(LOG2_E_LOW, x.fma(LOG2_E, -n));
    r.unary(Op::ApproxExp2) * two_to_n
}

/// `e^(x − y)` of an `x` that is no larger: what is the same is 1 even if it is infinite.
pub(crate) fn exp_below(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x - y).but(0.0, x.eq(y)).unary(Op::ExpOfNonpositive))
}

/// The same from a `y` that is finite, so that no difference is of the same infinities: of those it is 0 or infinite.
pub(crate) fn exp_below_finite(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| (x - y.finite()).unary(Op::Exp))
}

/// `2ˣ`. Beyond the clamp the result is infinite or zero anyway.
pub(crate) fn exp2(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let power = Power::of(x.bits().lt(0), x);
        let x = x.clamp(-151.0, 129.0);
        let (two_to_n, count) = power.nearest(x + power.rounder);
        exp2_near_zero(x - count) * two_to_n * power.rest
    })
}

/// `eˣ − 1 = 2ⁿ(eʳ − 1) + (2ⁿ − 1)`, halved on the way so that `2¹²⁸` does not occur.
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

/// `e²ˣ` for |x| ≤ 40, as a power of two and its factor.
pub(super) fn square_of_exp(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let (two_to_n, half_r) = reduce_twice(x, BIASED);
    (two_to_n, half_r.polynomial(&EXP_OF_TWICE))
}

/// `(e²ˣ − 1) / 2` for |x| ≤ 40, as exact near zero as elsewhere.
pub(super) fn half_square_of_exp_less_1(x: Term<'_>) -> Term<'_> {
    let (half, half_r) = reduce_twice(x, HALVED);
    let near_zero = (half_r * half_r).fma(half_r.polynomial(&EXPM1_OF_TWICE), half_r + half_r);
    half.fma(near_zero, half - 0.5)
}

/// `2x = n ln 2 + r`: the power of two that the rounder is for, and `r / 2`.
fn reduce_twice(x: Term<'_>, rounder: f32) -> (Term<'_>, Term<'_>) {
    let (two_to_n, n) = power_of_two(x.fma(2.0 * LOG2_E, rounder), rounder);
    (two_to_n, n.fma(-LN_2_LOW / 2.0, n.fma(-LN_2_HIGH / 2.0, x).opaque()))
}

/// `eˣ / 2` for x ≥ 0, which is finite a little longer than `eˣ`.
pub(super) fn half_exp(x: Term<'_>) -> Term<'_> {
    let (two_to_n, r) = Power::large(x).reduce(x.clamp(0.0, 90.0));
    r.polynomial(&times(EXP, 0.5 * rest(-APART))) * two_to_n
}

/// `2ʳ` for |r| ≤ 1/2.
pub(super) fn exp2_near_zero(r: Term<'_>) -> Term<'_> {
    r.fma(r.polynomial(&EXP2), 1.0)
}

/// `2ⁿ` where it may be none of a normal number: in two factors, of which the second is one of two numbers. What is
/// multiplied by the first is exact, and so is rounded once.
pub(super) struct Power<'b> {
    /// Added to a number, it rounds to the nearest `n`; the low bits of the sum are then the exponent of the first factor.
    pub(super) rounder: Term<'b>,
    /// The second factor.
    pub(super) rest: Term<'b>,
}

/// How far the exponents of the two factors lie from `n` and from 0.
const APART: i32 = 100;

/// The second factor of a power of two whose first has an exponent larger by this.
fn rest(by: i32) -> f32 {
    f32::from_bits(((127 - by) as u32) << 23)
}

/// The coefficients of a polynomial times a power of two, which changes nothing but their exponents: a product less than to multiply
/// the polynomial's value by it.
fn times<const N: usize>(polynomial: [f32; N], power: f32) -> [f32; N] {
    polynomial.map(|coefficient| coefficient * power)
}

impl<'b> Power<'b> {
    /// For `n ≤ 26` where this holds, for `n ≥ -26` elsewhere; far from both |n| ≤ 226.
    pub(super) fn of(small: Term<'b>, like: Term<'b>) -> Power<'b> {
        let (down, up) = (Power::small(like), Power::large(like));
        Power { rounder: small.select(down.rounder, up.rounder), rest: small.select(down.rest, up.rest) }
    }

    /// For −226 ≤ n ≤ 26.
    fn small(like: Term<'b>) -> Power<'b> {
        Power::apart(APART, like)
    }

    /// For −26 ≤ n ≤ 226.
    fn large(like: Term<'b>) -> Power<'b> {
        Power::apart(-APART, like)
    }

    fn apart(by: i32, like: Term<'b>) -> Power<'b> {
        let rounder = ROUNDER + (127 + by) as f32;
        Power { rounder: rounder.meet(like), rest: rest(by).meet(like) }
    }

    /// The first factor, and `n`, of a sum with the rounder.
    pub(super) fn nearest(&self, sum: Term<'b>) -> (Term<'b>, Term<'b>) {
        power_of_two(sum, self.rounder)
    }

    /// `x = n ln 2 + r` with |r| ≤ ln 2 / 2, for |x| < 170: the first factor, and `r`.
    fn reduce(&self, x: Term<'b>) -> (Term<'b>, Term<'b>) {
        let (two_to_n, count) = self.nearest(x.fma(LOG2_E, self.rounder));
        (two_to_n, without(x, count))
    }
}

/// `2ⁿ` and `n` of a sum with a rounder by which its low bits are the exponent.
fn power_of_two<'b>(sum: Term<'b>, rounder: impl Operand<'b>) -> (Term<'b>, Term<'b>) {
    let sum = sum.opaque();
    ((sum.bits() << 23).float_of_bits(), sum - rounder)
}

/// `x − n ln 2`.
fn without<'b>(x: Term<'b>, n: Term<'b>) -> Term<'b> {
    n.fma(-LN_2_LOW, n.fma(-LN_2_HIGH, x).opaque())
}
