//! Inverses of circular functions of `f64`.

use super::super::term::{IntoTerm as _, Term, binary, unary};
use super::{negative, number, polynomial, signed};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Coefficients of `(asin x − x) / x³` in `x²` on |x| ≤ 1/2, with relative error of the arcsine 2⁻⁵⁹·⁷.
#[rustfmt::skip]
const ASIN: [f64; 13] = [
    0.166_666_666_666_667_6, 0.074_999_999_999_710_95, 0.044_642_857_174_224_136, 0.030_381_942_729_507_77,
    0.022_372_214_318_213_676, 0.017_351_624_732_641_444, 0.013_980_662_389_073_067, 0.011_400_238_094_136_402,
    0.010_772_700_783_410_17, 0.003_735_234_320_008_570_5, 0.021_636_856_974_466_507, -0.020_898_809_490_814_328,
    0.032_565_839_274_904_58,
];

/// Coefficients of `(atan x − x) / x³` in `x²` on |x| ≤ 1/2, with relative error of the arctangent 2⁻⁶¹·⁸.
#[rustfmt::skip]
const ATAN: [f64; 13] = [
    -0.333_333_333_333_333_1, 0.199_999_999_999_926_35, -0.142_857_142_849_101_92, 0.111_111_110_664_286_82,
    -0.090_909_076_155_968_84, 0.076_922_761_884_970_78, -0.066_662_090_845_141_26, 0.058_776_953_091_279_61,
    -0.052_294_173_894_513_18, 0.045_873_043_809_530_37, -0.037_068_883_058_935_596, 0.023_587_406_024_428_68,
    -0.008_325_065_145_661_724,
];

/// π/4 as the nearest `f64` and the remainder. Both parts scale to the multiples of π/4.
const EIGHTH: f64 = std::f64::consts::FRAC_PI_4;
const EIGHTH_LOW: f64 = 3.061_616_997_868_383e-17;

/// Computes the arcsine, from 1/2 on as `asin x = π/2 − 2 asin √((1 − x)/2)`. The root gives NaN beyond 1.
pub(crate) fn asin(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let (chord, rest) = of_half_chord(size);
        let far = number(x, 2.0 * EIGHTH) - ((chord + chord) + ((rest + rest) - number(x, 2.0 * EIGHTH_LOW)));
        let angle = far.but(size + beyond_first(size, &ASIN), size.lt(0.5));
        signed(angle, x)
    })
}

/// Computes the arccosine from the arcsine of `x` or of half the chord.
pub(crate) fn acos(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let near = number(x, 2.0 * EIGHTH) - (x + (beyond_first(x, &ASIN) - number(x, 2.0 * EIGHTH_LOW)));
        let (chord, rest) = of_half_chord(size);
        let (chord, rest) = (chord + chord, rest + rest);
        let back = number(x, 4.0 * EIGHTH) - (chord + (rest - number(x, 4.0 * EIGHTH_LOW)));
        let far = (chord + rest).but(back, x.lt(0.0));
        far.but(near, size.lt(0.5))
    })
}

/// Computes the arctangent, the angle of the point `(1, x)`.
pub(crate) fn atan(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| signed(Angle::acute(x.abs(), number(x, 1.0)).radians(), x))
}

/// Computes the angle of the point `(y, x)`: an arctangent of at most 1, reflected into its octant.
pub(crate) fn atan2(b: &mut Builder<'_>, x: &[Value]) -> Value {
    binary(b, x, |y, x| {
        let (height, width) = (y.abs(), x.abs());
        let infinite = height.eq(f32::INFINITY) & width.eq(f32::INFINITY);
        let angle = Angle::acute(height.but(1.0, infinite), width.but(1.0, infinite));
        let size = angle.taken_off(4.0, negative(x)).radians();
        size.but(-size, negative(y))
    })
}

/// An angle in radians, `eighths · π/4 + rest`.
struct Angle<'b> {
    eighths: Term<'b>,
    rest: Term<'b>,
}

impl<'b> Angle<'b> {
    /// Computes the angle of the point `(width, height)`, from 0 to π/2. Neither coordinate may be negative.
    fn acute(height: Term<'b>, width: Term<'b>) -> Angle<'b> {
        let steep = height.gt(width);
        let (low, high) = (steep.select(width, height), steep.select(height, width));
        // The sum of the two largest numbers would overflow.
        let scale = 1.0.meet(high).but(2.0f32.powi(-60), high.gt(number(high, 2.0f64.powi(500))));
        let (low, high) = (low * scale, high * scale);
        let turned = (low + low).gt(high);
        let (low, high) = (low.but(low - high, turned), high.but(low + high, turned));
        let slope = low / high.but(1.0, high.eq(0.0));
        let rest = slope + beyond_first(slope, &ATAN);
        Angle { eighths: turned.select(number(high, 1.0), 0.0), rest }.taken_off(2.0, steep)
    }

    /// Returns `from` eighths minus the angle where the condition is true, else the angle.
    fn taken_off(self, from: f32, condition: Term<'b>) -> Angle<'b> {
        let Angle { eighths, rest } = self;
        Angle { eighths: eighths.but(from - eighths, condition), rest: rest.but(-rest, condition) }
    }

    fn radians(self) -> Term<'b> {
        let Angle { eighths, rest } = self;
        let high = eighths * number(rest, EIGHTH);
        let low = eighths.fma(number(rest, EIGHTH), -high);
        high + (rest + eighths.fma(number(rest, EIGHTH_LOW), low))
    }
}

/// Computes `√((1 − x)/2)`, and the excess of its arcsine over it, for 1/2 ≤ x ≤ 1. The root is the sine of
/// half the angle whose cosine is `x`.
fn of_half_chord(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let square = number(x, 0.5) - x * 0.5;
    let chord = square.unary(Op::Sqrt);
    let lost = (-chord).fma(chord, square) / (chord + chord).but(1.0, chord.eq(0.0));
    (chord, lost + beyond_first(chord, &ASIN))
}

/// Computes `x³ p(x²)`.
fn beyond_first<'b>(x: Term<'b>, p: &[f64]) -> Term<'b> {
    let square = x * x;
    (x * square) * polynomial(square, p)
}
