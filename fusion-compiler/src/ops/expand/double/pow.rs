//! Powers of `f64`: `xʸ = 2^(y log₂ x)`, with the logarithm to 68 bits in two parts.

use super::super::term::{IntoTerm as _, Term, binary};
use super::exp::expm1_small;
use super::pair::Pair;
use super::{clamped, negative, number, parts, polynomial, scaled};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// 2 / ln 2, 1/3 and 1/5 in two parts.
const TWO_LOG2_E: [f64; 2] = [2.0 * std::f64::consts::LOG2_E, 4.071_054_748_186_206_6e-17];
const THIRD: [f64; 2] = [1.0 / 3.0, 1.850_371_707_708_594e-17];
const FIFTH: [f64; 2] = [0.2, -1.110_223_024_625_156_6e-17];

/// Coefficients of `(atanh s / s − 1 − s²/3 − s⁴/5) / s⁶` in `s²` on |s| ≤ 0.172. The error relative to
/// `atanh s` is 2⁻⁷²·⁷.
const ATANH: [f64; 7] = [
    0.142_857_142_857_167_14,
    0.111_111_111_099_595_22,
    0.090_909_093_092_111_98,
    0.076_922_859_878_636_9,
    0.066_678_993_900_298_02,
    0.058_421_643_642_253_57,
    0.059_583_814_164_036_47,
];

/// Bound of exponents. A greater exponent gives 0, 1 or infinity for every base, and so does the bound.
const LARGEST_EXPONENT: f32 = 18_446_744_073_709_551_616.0;

/// Computes `xʸ`, with the special cases of C.
pub(crate) fn pow(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |x, y| {
        let size = x.abs();
        let (zero, infinite) = (size.eq(0.0), size.eq(f32::INFINITY));
        let limit = infinite.eq(y.gt(0.0)).select(f32::INFINITY.meet(size), 0.0);
        let power = power_of_positive(size, y).but(limit, zero | infinite);
        let whole = is_whole(y);
        let odd = whole & !is_whole(y * 0.5);
        let power = power.but(-power, negative(x) & odd);
        let power = power.but(f32::NAN, negative(x) & !zero & !infinite & !whole);
        let power = power.but(f32::NAN, x.unary(Op::IsNan) | y.unary(Op::IsNan));
        power.but(1.0, y.eq(0.0) | x.eq(1.0))
    })
}

fn is_whole(y: Term<'_>) -> Term<'_> {
    y.unary(Op::Round).eq(y)
}

/// Computes `xʸ` for finite `x > 0`.
fn power_of_positive<'b>(x: Term<'b>, y: Term<'b>) -> Term<'b> {
    let y = clamped(y, LARGEST_EXPONENT);
    let log = log2_in_two_parts(x);
    let Pair { high, low } = Pair::product(y, log.high);
    let low = y.fma(log.low, low);
    let count = clamped(high + low, 1200.0).unary(Op::Round);
    let rest = clamped((high - count) + low, 1.0);
    scaled(expm1_small(rest * number(x, std::f64::consts::LN_2)) + 1.0, count)
}

/// Computes `log₂ x = e + 2 atanh(s) / ln 2` with `s = (m − 1) / (m + 1)`. Three terms of the series of
/// `atanh s` are in two parts.
fn log2_in_two_parts(x: Term<'_>) -> Pair<'_> {
    let (e, m) = parts(x);
    let (numerator, denominator) = (m - 1.0, m + 1.0);
    let high = numerator / denominator;
    let lost = (-high).fma(m - (denominator - 1.0), (-high).fma(denominator, numerator));
    let s = Pair { high, low: lost / denominator };
    let square = s.times(s);
    let tail = square.high * polynomial(square.high, &ATANH);
    let fifth = Pair::constant(x, FIFTH);
    let sum = Pair::sum_of_ordered(fifth.high, tail);
    let sum = Pair { low: sum.low + fifth.low, ..sum };
    let sum = Pair::constant(x, THIRD).plus_smaller(square.times(sum));
    let sum = s.plus_smaller(s.times(square.times(sum)));
    let log = sum.times(Pair::constant(x, TWO_LOG2_E));
    let Pair { high, low } = Pair::sum_of_ordered(e, log.high);
    Pair { high, low: low + log.low }
}
