//! Circular functions and their inverses.
//!
//! Coefficients are minimax fits made for this crate, rounded to `f32` one after another, the rest refitted.

use std::f32::consts::{FRAC_2_PI, FRAC_PI_2, PI};

use super::exp::{ROUNDER, nearest};
use super::float::{INFINITY_BITS, magnitude, with_sign};
use super::hyperbolic::odd;
use super::term::{Term, binary, unary};
use crate::ir::kernel::{Builder, Value};
use crate::ir::ops::Op;

/// π/2 in six parts. The first five have 8 bits, so that their products with a number of quarter turns
/// below 2¹⁶ are exact.
const HALF_PI: [f32; 6] = [1.5703125, 0.0004825592, 1.2665987e-6, 9.895302e-10, 2.5579538e-12, 5.390303e-15];

/// `(sin r − r) / r³` in `r²`, on |r| ≤ π/4: relative error of the sine 2⁻²⁷·⁸.
const SIN: [f32; 3] = [-0.16666654, 0.008332106, -0.00019507883];

/// `(cos r − 1 + r²/2) / r⁴` in `r²`, on |r| ≤ π/4: relative error of the cosine 2⁻³²·⁷.
const COS: [f32; 3] = [0.041666646, -0.0013887298, 2.4430085e-5];

/// `(asin x − x) / x³` in `x²`, on |x| ≤ 1/2: relative error of the arcsine 2⁻²⁷·⁶.
const ASIN: [f32; 5] = [0.16666752, 0.074953064, 0.045469772, 0.024180774, 0.042166412];

/// `(atan x − x) / x³` in `x²`, on |x| ≤ 1: relative error of the arctangent 2⁻³¹. The fourth
/// is one step greater than fitted, which makes `atan 1` the nearest `f32` to π/4.
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

/// What is left of `π/2` and `π` after their nearest `f32`.
const FRAC_PI_2_LOW: f32 = -4.371139e-8;
const PI_LOW: f32 = -8.742278e-8;

/// From here on more quarter turns are taken off than `HALF_PI` has bits for.
const TURNS_LIMIT: f32 = 102_943.0;

/// Sine.
pub(crate) fn sin(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let y = reduce(x).sine();
        y.but(x, x.eq(0.0))
    })
}

/// Cosine, the sine a quarter turn later.
pub(crate) fn cos(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let turn = reduce(x);
        Turn { quarters: turn.quarters + 1, ..turn }.sine()
    })
}

/// Tangent, as the quotient of sine and cosine.
pub(crate) fn tan(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let Turn { quarters, sin, cos } = reduce(x);
        let odd = (quarters & 1).ne(0);
        let y = odd.select(-cos, sin) / odd.select(sin, cos);
        y.but(x, x.eq(0.0))
    })
}

/// Arcsine; from 1/2 on through `asin x = π/2 − 2 asin √((1 − x)/2)`.
pub(crate) fn asin(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let far = FRAC_PI_2 - (2.0 * odd(half_chord(size), &ASIN) - FRAC_PI_2_LOW);
        let angle = far.but(odd(size, &ASIN), size.lt(0.5));
        outside_one(size, with_sign(angle, x))
    })
}

/// Arccosine, from the arcsine of `x` or of half the chord.
pub(crate) fn acos(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let near = FRAC_PI_2 - (odd(x, &ASIN) - FRAC_PI_2_LOW);
        let far = 2.0 * odd(half_chord(size), &ASIN);
        let far = far.but(PI - (far - PI_LOW), x.lt(0.0));
        outside_one(size, far.but(near, size.lt(0.5)))
    })
}

/// Arctangent; from 1 on through `atan x = π/2 − atan 1/x`.
pub(crate) fn atan(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let steep = size.gt(1.0);
        let angle = odd(size.but(1.0 / size, steep), &ATAN);
        with_sign(angle.but(FRAC_PI_2 - (angle - FRAC_PI_2_LOW), steep), x)
    })
}

/// The angle of the point `(y, x)`: an arctangent of at most 1, then reflected into its octant.
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

/// An angle `quarters · π/2 + r`, by the sine and cosine of `r`.
struct Turn<'b> {
    quarters: Term<'b>,
    sin: Term<'b>,
    cos: Term<'b>,
}

impl<'b> Turn<'b> {
    /// The sine of the angle.
    fn sine(self) -> Term<'b> {
        let size = (self.quarters & 1).ne(0).select(self.cos, self.sin);
        (size.bits() ^ ((self.quarters & 2) << 30)).float_of_bits()
    }
}

/// Takes quarter turns off an angle of at most [`TURNS_LIMIT`]; a larger one is taken for 0, an infinity for NaN.
///
/// `r` is kept in two parts. What is left after the first two products is exact; each later difference is
/// rounded only where it is large, and then what was rounded off is exact and goes to the low part.
fn reduce(x: Term<'_>) -> Turn<'_> {
    let x = x.but(0.0, x.abs().gt(TURNS_LIMIT)).but(f32::NAN, magnitude(x).eq(INFINITY_BITS));
    let (quarters, n) = nearest(x.fma(FRAC_2_PI, ROUNDER));
    let exact = n.fma(-HALF_PI[1], n.fma(-HALF_PI[0], x).opaque()).opaque();
    let (third, rest_third) = difference(exact, n * HALF_PI[2]);
    let (fourth, rest_fourth) = difference(third, n * HALF_PI[3]);
    let (fifth, rest_fifth) = difference(fourth, n * HALF_PI[4]);
    let low = n.fma(-HALF_PI[5], rest_third + rest_fourth + rest_fifth);
    let r = (fifth + low).opaque();
    let low = (fifth - r) + low;
    let square = r * r;
    let sin = r + (r * square).fma(square.polynomial(&SIN), low);
    let cos = (square * square).fma(square.polynomial(&COS), -(r * low));
    let cos = 1.0 - (square * 0.5 - cos);
    Turn { quarters, sin, cos }
}

/// `x − y` and what rounding took off it.
fn difference<'b>(x: Term<'b>, y: Term<'b>) -> (Term<'b>, Term<'b>) {
    let z = (x - y).opaque();
    (z, (x - z) - y)
}

/// `√((1 − x)/2)`, the sine of half the angle whose cosine is `x`, for 1/2 ≤ x ≤ 1.
fn half_chord(x: Term<'_>) -> Term<'_> {
    (0.5 - x * 0.5).unary(Op::Sqrt)
}

/// `y`, or NaN where `size` is greater than 1 or NaN.
fn outside_one<'b>(size: Term<'b>, y: Term<'b>) -> Term<'b> {
    y.but(f32::NAN, size.bits().gt(1.0f32.to_bits().cast_signed()))
}
