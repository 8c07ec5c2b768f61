//! Circular functions and their inverses.
//!
//! Coefficients are minimax fits made for this crate. Each coefficient is rounded to `f32` in order, and the
//! rest is refitted.

use std::f32::consts::{FRAC_PI_2, PI};

use super::float::{INFINITY_BITS, magnitude, with_sign};
use super::hyperbolic::odd;
use super::range_reduction::{ReducedAngle, reduce};
use super::term::{Term, binary, unary};
use crate::ir::dtype::DType;
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Coefficients of `(sin r − r) / r³` in `r²` on |r| ≤ 1, with relative error of the sine 2⁻³¹·⁴.
const SIN: [f32; 4] = [-0.16666667, 0.008333354, -0.000198424, 2.7264512e-6];

/// Coefficients of `(cos r − 1 + r²/2) / r⁴` in `r²` on |r| ≤ 1, with relative error of the cosine 2⁻²⁹·³.
const COS: [f32; 3] = [0.041666575, -0.0013884697, 2.4201614e-5];

/// Coefficients of `(asin x − x) / x³` in `x²` on |x| ≤ 1/2, with relative error of the arcsine 2⁻²⁷·⁶.
const ASIN: [f32; 5] = [0.16666752, 0.074953064, 0.045469772, 0.024180774, 0.042166412];

/// Coefficients of `(atan x − x) / x³` in `x²` on |x| ≤ 1, with relative error of the arctangent 2⁻³¹. The
/// fourth coefficient is one step greater than fitted, which makes `atan 1` the nearest `f32` to π/4.
const ATAN: [f32; 10] = [
    -0.33333328,
    0.19999716,
    -0.14280343,
    0.11061234,
    -0.08821462,
    0.06763649,
    -0.044983257,
    0.022777617,
    -0.007425363,
    0.0011345221,
];

/// Remainders of `π/2` and `π` after their nearest `f32`.
const FRAC_PI_2_LOW: f32 = -4.371139e-8;
const PI_LOW: f32 = -8.742278e-8;

/// Computes the sine.
pub(crate) fn sin(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (quarters, size) = sine_of(reduce(x), 0);
        flip(size, quarters ^ x.bitcast(DType::U32))
    })
}

/// Computes the cosine, the sine a quarter turn later.
pub(crate) fn cos(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (quarters, size) = sine_of(reduce(x), 1);
        flip(size, quarters)
    })
}

/// Computes the tangent as the quotient of sine and cosine.
pub(crate) fn tan(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let turn = reduce(x);
        let odd = is_odd(turn.quarters);
        let (sin, cos) = sine_and_cosine(turn);
        with_sign(odd.select(-cos, sin) / odd.select(sin, cos), x)
    })
}

/// Computes the arcsine, from 1/2 on as `asin x = π/2 − 2 asin √((1 − x)/2)`.
pub(crate) fn asin(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let far = FRAC_PI_2 - (2.0 * odd(half_chord(size), &ASIN) - FRAC_PI_2_LOW);
        let angle = far.but(odd(size, &ASIN), size.lt(0.5));
        outside_one(size, with_sign(angle, x))
    })
}

/// Computes the arccosine from the arcsine of `x` or of half the chord.
pub(crate) fn acos(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let near = FRAC_PI_2 - (odd(x, &ASIN) - FRAC_PI_2_LOW);
        let far = 2.0 * odd(half_chord(size), &ASIN);
        let far = far.but(PI - (far - PI_LOW), x.lt(0.0));
        outside_one(size, far.but(near, size.lt(0.5)))
    })
}

/// Computes the arctangent, from 1 on as `atan x = π/2 − atan 1/x`.
pub(crate) fn atan(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let steep = size.gt(1.0);
        let angle = odd(size.but(1.0 / size, steep), &ATAN);
        with_sign(angle.but(FRAC_PI_2 - (angle - FRAC_PI_2_LOW), steep), x)
    })
}

/// Computes the angle of the point `(y, x)`: an arctangent of at most 1, reflected into its octant.
pub(crate) fn atan2(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |y, x| {
        let (height, width) = (y.abs(), x.abs());
        let steep = height.gt(width);
        let (low, high) = (steep.select(width, height), steep.select(height, width));
        let slope = low / high.but(1.0, high.eq(0.0));
        let slope = slope.but(1.0, magnitude(low).eq(INFINITY_BITS) & magnitude(high).eq(INFINITY_BITS));
        let angle = odd(slope, &ATAN);
        let backwards = x.bits().lt(0);
        let angle = angle.but(-angle, steep ^ backwards);
        let level = angle.but(PI + (angle + PI_LOW), backwards);
        with_sign(level.but(FRAC_PI_2 + (angle + FRAC_PI_2_LOW), steep), y)
    })
}

/// Computes the sine of a nonnegative angle plus `later` quarter turns, up to a sign. The highest bit of the
/// first result is that sign.
fn sine_of(turn: ReducedAngle<'_>, later: i32) -> (Term<'_>, Term<'_>) {
    let quarters = turn.quarters + (later << 30);
    let (sin, cos) = sine_and_cosine(turn);
    (quarters, is_odd(quarters).select(cos, sin))
}

/// Tests for an odd number of quarter turns, given in the highest two bits.
fn is_odd(quarters: Term<'_>) -> Term<'_> {
    (quarters & (1 << 30)).ne(0)
}

/// Flips the sign of `x` where the highest bit of `bits` is set.
fn flip<'b>(x: Term<'b>, bits: Term<'b>) -> Term<'b> {
    with_sign(x, bits.float_of_bits())
}

/// Computes the sine and cosine of a reduced angle.
fn sine_and_cosine(ReducedAngle { r, low, .. }: ReducedAngle<'_>) -> (Term<'_>, Term<'_>) {
    let square = r * r;
    let sin = r + (r * square).fma(square.polynomial(&SIN), low);
    let cos = (square * square).fma(square.polynomial(&COS), -(r * low));
    (sin, 1.0 - (square * 0.5 - cos))
}

/// Computes `√((1 − x)/2)`, the sine of half the angle whose cosine is `x`, for 1/2 ≤ x ≤ 1.
fn half_chord(x: Term<'_>) -> Term<'_> {
    (0.5 - x * 0.5).unary(Op::Sqrt)
}

/// Returns `y`, or NaN where `size` is greater than 1 or NaN.
fn outside_one<'b>(size: Term<'b>, y: Term<'b>) -> Term<'b> {
    y.but(f32::NAN, size.bits().gt(1.0f32.to_bits().cast_signed()))
}
