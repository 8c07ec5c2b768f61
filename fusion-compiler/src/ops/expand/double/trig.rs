//! Circular functions of `f64`.

use super::super::term::{Term, unary};
use super::pair::Pair;
use super::range_reduction::{ReducedAngle, reduce};
use super::{number, polynomial, signed};
use crate::ir::kernel::{Builder, Value};

/// Coefficients of `(sin r − r) / r³` in `r²` on |r| ≤ π/4, with relative error of the sine 2⁻⁵⁷·⁹.
const SIN: [f64; 6] = [
    -0.166_666_666_666_666_3,
    0.008_333_333_333_321_917,
    -0.000_198_412_698_294_568_34,
    2.755_731_358_170_352_5e-6,
    -2.505_074_224_258_262e-8,
    1.589_593_980_958_367e-10,
];

/// Coefficients of `(cos r − 1 + r²/2) / r⁴` in `r²` on |r| ≤ π/4, with relative error of the cosine 2⁻⁶³·⁸.
const COS: [f64; 6] = [
    0.041_666_666_666_666_59,
    -0.001_388_888_888_887_234_4,
    2.480_158_728_846_52e-5,
    -2.755_731_407_988_205e-7,
    2.087_568_859_925_544e-9,
    -1.135_795_461_607_566_4e-11,
];

/// Computes the sine.
pub(crate) fn sin(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| signed(sine_of(reduce(x.abs()), 0), x))
}

/// Computes the cosine, the sine a quarter turn later.
pub(crate) fn cos(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| sine_of(reduce(x.abs()), 1))
}

/// Computes the tangent as the quotient of sine and cosine in two parts.
pub(crate) fn tan(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let turn = reduce(x.abs());
        let odd = has(turn.quarters, 1);
        let [sin, cos] = sine_and_cosine(turn).map(|x| Pair::sum_of_ordered(x.high, x.low));
        let above = Pair { high: sin.high.but(-cos.high, odd), low: sin.low.but(-cos.low, odd) };
        let below = Pair { high: cos.high.but(sin.high, odd), low: cos.low.but(sin.low, odd) };
        let inverse = number(x, 1.0) / below.high;
        let quotient = above.high * inverse;
        let miss = (-quotient).fma(below.high, above.high) + (-quotient).fma(below.low, above.low);
        signed(miss.fma(inverse, quotient), x)
    })
}

/// Computes the sine of an angle plus `later` quarter turns.
fn sine_of(turn: ReducedAngle<'_>, later: i32) -> Term<'_> {
    let quarters = turn.quarters + later;
    let [sin, cos] = sine_and_cosine(turn).map(|x| x.high + x.low);
    let size = sin.but(cos, has(quarters, 1));
    size.but(-size, has(quarters, 2))
}

/// Tests a bit of the number of quarter turns.
fn has(quarters: Term<'_>, bit: i32) -> Term<'_> {
    (quarters & bit).ne(0)
}

/// Computes the sine and cosine of a reduced angle `r + low`. The low parts of the results exceed rounding
/// errors.
fn sine_and_cosine(turn: ReducedAngle<'_>) -> [Pair<'_>; 2] {
    let Pair { high: r, low } = turn.rest;
    let square = r * r;
    let half = square * 0.5;
    let rest = (r * square).fma(polynomial(square, &SIN), (-half).fma(low, low));
    let sin = Pair { high: r, low: rest };
    let rest = (square * square).fma(polynomial(square, &COS), -(r * low));
    let Pair { high, low } = Pair::sum_of_ordered(number(r, 1.0), -half);
    [sin, Pair { high, low: low + rest }]
}
