//! Argument reduction of an angle of any size by quarter turns, after Payne and Hanek, "Radian reduction for
//! trigonometric functions" (SIGNUM Newsletter 18, 1983).
//!
//! An angle is `x · 2⁴⁸ⁱ` with `x` from 1 to 2⁴⁸. Bits of 2/π that contribute multiples of four quarter turns
//! do not matter. The next five digits of 48 bits are multiplied by `x`. No `f64` is nearer to a multiple of
//! a quarter turn than 2⁻⁶¹ quarter turns. The omitted digits contribute less than 2⁻¹³⁸ quarter turns. Both
//! bounds apply to every finite `f64`.
//!
//! Invariant: until the reduced angle is assembled, no product or sum loses more than 2⁻¹³⁸ of a quarter
//! turn.

use super::super::term::Term;
use super::pair::Pair;
use super::{BIAS, EXPONENT, number, power};
use crate::ir::dtype::DType;
use crate::ir::op::Op;

/// 2/π in digits of 48 bits. The last bit of the first digit is 2⁶.
#[rustfmt::skip]
const TWO_OVER_PI: [u64; 26] = [
    0x0000_0000_0000, 0x028b_e60d_b939, 0x1054_a7f0_9d5f, 0x47d4_d377_036d, 0x8a56_64f1_0e41, 0x07f9_458e_af7a,
    0xef15_86dc_91b8, 0xe909_374b_8019, 0x24bb_a827_4648, 0x73f8_77ac_72c4, 0xa69c_fba2_08d7, 0xd4ba_ed12_13a6,
    0x71c0_9ad1_7df9, 0x04e6_4758_e60d, 0x4ce7_d272_117e, 0x2ef7_e4a0_ec7f, 0xe25f_ff78_1660, 0x3fbc_bc46_2d68,
    0x29b4_7db4_d9fb, 0x3c9f_2c26_dd3d, 0x18fd_9a79_7fa8, 0xb5d4_9eeb_1faf, 0x97c5_ecf4_1ce7, 0xde29_4a4b_a9af,
    0xed7e_c47e_3574, 0x2158_0cc1_1bf1,
];
const DIGIT: i32 = 48;
const FIRST_BIT: i32 = 6;

/// π/2 in two parts.
const QUARTER: [f64; 2] = [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17];

/// A reduced angle `rest` of about half a quarter turn at most, and the number of quarter turns that were
/// subtracted.
pub(super) struct ReducedAngle<'b> {
    /// Number of quarter turns as an `i32`, of which only the lowest two bits matter.
    pub(super) quarters: Term<'b>,
    pub(super) rest: Pair<'b>,
}

/// Subtracts quarter turns from `size ≥ 0`. Angles below half a quarter turn are unchanged. Infinities give
/// NaN.
pub(super) fn reduce(size: Term<'_>) -> ReducedAngle<'_> {
    let exponent = size.but(1.0, size.lt(1.0)).unary(Op::High) >> EXPONENT;
    let place = (exponent - BIAS).binary(Op::IntDiv, DIGIT);
    let mut x = size * power(-(place.bitcast(DType::I32) * DIGIT) + FIRST_BIT);
    let [a, b, c, d, e] = window(size, place).map(|digit| {
        let product = Pair::product(x, digit);
        x = x * 2.0f32.powi(-DIGIT);
        product
    });

    // The first two parts have no bits below 2⁻⁴⁷ and a sum of at most 4, so that sum is exact.
    let first = within_a_turn(a.high) + within_a_turn(a.low);
    let (turns, lost) = sum(&[first, within_a_turn(b.high), c.high, b.low]);
    let quarters = turns.unary(Op::Round);
    let (small, lost) = sum(&[lost[0], lost[1], lost[2], c.low, d.high]);
    let smallest = lost.into_iter().fold(d.low + e.high, |sum, lost| sum + lost);
    let rest = Pair::sum(turns - quarters, small);
    let rest = Pair::sum(rest.high, rest.low + smallest).times(Pair::constant(size, QUARTER));

    let near = size.lt(std::f32::consts::FRAC_PI_4);
    ReducedAngle {
        quarters: quarters.to_int().but(0, near),
        rest: Pair { high: rest.high.but(size, near), low: rest.low.but(0.0, near) },
    }
}

/// Returns five digits of 2/π, starting at a place.
fn window<'b>(like: Term<'b>, place: Term<'b>) -> [Term<'b>; 5] {
    let mut digits: Vec<Term<'b>> = TWO_OVER_PI.iter().map(|&digit| number(like, digit as f64)).collect();
    for step in [16, 8, 4, 2, 1] {
        let on = (place & step).ne(0);
        let step = step as usize;
        // A step beyond the table is never taken.
        let digit = |i: usize| digits.get(i + step).map_or(digits[i], |&later| on.select(later, digits[i]));
        digits = (0..step + 4).map(digit).collect();
    }
    [0, 1, 2, 3, 4].map(|i| digits[i])
}

/// Returns the number nearest to 0 that differs from `quarters` by whole turns.
fn within_a_turn(quarters: Term<'_>) -> Term<'_> {
    (quarters * 0.25).unary(Op::Round).fma(-4.0, quarters)
}

/// Computes a sum and the exact errors of its roundings.
fn sum<'b>(terms: &[Term<'b>]) -> (Term<'b>, Vec<Term<'b>>) {
    let mut lost = Vec::new();
    let add = |sum: Term<'b>, &term: &Term<'b>| {
        let Pair { high, low } = Pair::sum(sum, term);
        lost.push(low);
        high
    };
    let total = terms[1..].iter().fold(terms[0], add);
    (total, lost)
}
