//! Functions of `f64` for PTX, which has none, and `erf`, which Rust has not.
//!
//! Invariant: a power of two is made of the bits of its exponent, and no exponent here is beyond those of normal numbers.

use super::term::{Operand as _, Term, unary};
use crate::ir::dtype::{Const, DType};
use crate::ir::kernel::{Builder, Value};
use crate::ir::ops::Op;

/// ln 2, of which the first part has so few digits that a product with an exponent is exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// What exponents are greater by in the bits of an `f64`, and where those bits are in its high word.
const BIAS: i32 = 1023;
const EXPONENT: i32 = 20;

/// `eˣ`.
pub(crate) fn exp(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (k, r) = reduced(within(x));
        scaled(expm1_small(r) + 1.0, k)
    })
}

/// `2ˣ`.
pub(crate) fn exp2(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let x = clamped(x, 1100.0);
        let k = x.unary(Op::Round);
        scaled(expm1_small((x - k) * number(x, std::f64::consts::LN_2)) + 1.0, k)
    })
}

/// `eˣ − 1`.
pub(crate) fn expm1(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, expm1_of)
}

/// The natural logarithm.
pub(crate) fn log(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (e, m) = parts(x);
        let low = e * number(x, LN_2_LOW);
        at_edges(x, e.fma(number(x, LN_2_HIGH), log_near_1(m) + low))
    })
}

/// The logarithm to base 2, exact of powers of two.
pub(crate) fn log2(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (e, m) = parts(x);
        at_edges(x, log_near_1(m).fma(number(x, std::f64::consts::LOG2_E), e))
    })
}

/// `log(1 + x)`: what is lost when 1 is added is added to the logarithm, which changes so much slower.
pub(crate) fn log1p(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let sum = x + 1.0;
        let lost = (x - (sum - 1.0)) / sum;
        let log = sum.unary(Op::Log) + lost;
        let log = log.but(sum.unary(Op::Log), sum.eq(0.0) | x.unary(Op::IsInf));
        // Where nothing is left of it.
        log.but(x, x.abs().lt(1e-17))
    })
}

/// Hyperbolic sine.
pub(crate) fn sinh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let t = expm1_of(size);
        let near = (t + t / (t + 1.0)) * 0.5;
        let half = (size * 0.5).unary(Op::Exp);
        let far = (half * 0.5) * half;
        signed(near.but(far, size.gt(40.0)), x)
    })
}

/// Hyperbolic cosine.
pub(crate) fn cosh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let half = (x.abs() * 0.5).unary(Op::Exp);
        let e = half * half;
        let near = (e + 1.0 / e) * 0.5;
        near.but((half * 0.5) * half, x.abs().gt(40.0))
    })
}

/// Hyperbolic tangent.
pub(crate) fn tanh(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let t = expm1_of(clamped(size + size, 50.0));
        signed(t / (t + 2.0), x)
    })
}

/// The error function: `x P(x²)` below 1, and `1 − exp(−x²) Q(1 / (x + 3))` above, both fitted by Chebyshev polynomials to
/// 2 units in the last place.
pub(crate) fn erf(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let size = x.abs();
        let near = size * polynomial(size * size, &ERF_NEAR);
        let far = clamped(size, 6.0);
        let place = 1.0.meet(x) / (far + 3.0) * number(x, 14.4) - number(x, 2.6);
        let rest = (-(far * far)).unary(Op::Exp) * polynomial(place, &ERF_FAR);
        signed((1.0 - rest).but(near, size.lt(1.0)), x)
    })
}

#[rustfmt::skip]
const ERF_NEAR: [f64; 13] = [
    std::f64::consts::FRAC_2_SQRT_PI, -0.376_126_389_031_837_5, 0.112_837_916_709_548_79, -0.026_866_170_645_076_792,
    0.005_223_977_624_818_014_5, -0.000_854_832_698_083_379, 0.000_120_553_311_116_427_1, -1.492_559_526_683_118_2e-5,
    1.646_100_048_412_136_8e-6, -1.635_031_270_105_469_5e-7, 1.465_977_527_404_743_6e-8, -1.137_284_885_679_167_4e-9,
    5.957_176_147_748_911e-11,
];
#[rustfmt::skip]
const ERF_FAR: [f64; 17] = [
    0.207_983_291_333_428_85, 0.154_361_174_294_369_19, 0.049_698_445_403_394_8, 0.012_713_147_695_691_995,
    0.002_479_314_697_072_418_7, 0.000_331_602_960_578_454_36, 1.956_358_330_834_969e-5, -2.425_557_481_102_028_4e-6,
    -5.541_277_438_329_464e-7, 4.526_722_197_970_927e-9, 1.134_026_105_584_032_3e-8, 2.637_881_701_943_207_4e-10,
    -2.580_970_329_370_467_5e-10, -6.030_100_178_315_267e-12, 6.716_060_821_011_204e-12, -4.468_786_282_795_809e-15,
    -1.679_977_715_931_145_7e-13,
];

/// `eˣ − 1`, of small `x` without subtraction.
fn expm1_of(x: Term<'_>) -> Term<'_> {
    let (k, r) = reduced(within(x));
    let small = expm1_small(r);
    let power = scaled(1.0.meet(x), k);
    let near = small.fma(power, power - 1.0);
    near.but(scaled(small + 1.0, k), x.gt(40.0)).but(x, x.abs().lt(1e-300))
}

/// `x = k ln 2 + r` with a whole number `k`, and `|r|` at most half of ln 2.
fn reduced(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let k = (x * number(x, std::f64::consts::LOG2_E)).unary(Op::Round);
    (k, (-k).fma(number(x, LN_2_LOW), (-k).fma(number(x, LN_2_HIGH), x)))
}

/// Exponents beyond these give 0 or infinity, as they do.
fn within(x: Term<'_>) -> Term<'_> {
    clamped(x, 760.0)
}

fn clamped(x: Term<'_>, most: f32) -> Term<'_> {
    x.but(-most, x.lt(-most)).but(most, x.gt(most))
}

/// `eʳ − 1` for `|r|` at most half of ln 2: the first terms of its series.
fn expm1_small(r: Term<'_>) -> Term<'_> {
    let mut factorial = 1.0;
    let terms: Vec<f64> = (2..=14)
        .map(|n| {
            factorial *= f64::from(n);
            1.0 / factorial
        })
        .collect();
    (r * r).fma(polynomial(r, &terms), r)
}

/// `2 atanh((m − 1) / (m + 1))`, the logarithm of a number from √½ to √2. With `f = m − 1` that is `f − f s + s R`, where `s R` is
/// all but the first term of the series: so the first digits are those of `f`.
fn log_near_1(m: Term<'_>) -> Term<'_> {
    let f = m - 1.0;
    let s = f / (f + 2.0);
    let z = s * s;
    let terms: Vec<f64> = (1..=12).map(|n| 2.0 / f64::from(2 * n + 1)).collect();
    let half = f * f * 0.5;
    f - (half - s * (half + z * polynomial(z, &terms)))
}

/// `x = 2ᵉ m` with `m` from √½ to √2, for a positive finite `x`.
fn parts(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let tiny = x.lt(f32::MIN_POSITIVE);
    let raised = x.but(x * 2.0_f32.powi(100) * 2.0_f32.powi(100), tiny);
    let exponent = (raised.unary(Op::High).bitcast(DType::I32) >> EXPONENT) - BIAS;
    // Half of what makes it one: of the largest, that would be subnormal.
    let m = raised * power(-exponent + 1) * 0.5;
    let above = m.gt(std::f32::consts::SQRT_2);
    let e = exponent.to_double();
    let e = e.but(e - 200.0, tiny);
    (e.but(e + 1.0, above), m.but(m * 0.5, above))
}

/// The logarithms of zeros, infinity and what is negative.
fn at_edges<'b>(x: Term<'b>, log: Term<'b>) -> Term<'b> {
    let log = log.but(f32::NEG_INFINITY, x.eq(0.0));
    let log = log.but(f32::NAN, x.lt(0.0) | x.unary(Op::IsNan));
    log.but(x, x.eq(f32::INFINITY))
}

/// `x · 2ᵏ` for `|k|` below 2000, by two steps, of which the last rounds.
fn scaled<'b>(x: Term<'b>, k: Term<'b>) -> Term<'b> {
    let first = (k * 0.5).unary(Op::Round);
    x * power(first.to_int()) * power((k - first).to_int())
}

/// `2ᵏ` for an `i32` from −1022 to 1023.
fn power(k: Term<'_>) -> Term<'_> {
    ((k + BIAS) << EXPONENT).bitcast(DType::U32).unary(Op::OfHigh)
}

/// `size ≥ 0` with the sign of `x`; zeros and NaN are themselves.
fn signed<'b>(size: Term<'b>, x: Term<'b>) -> Term<'b> {
    size.but(-size, x.lt(0.0)).but(x, x.eq(0.0))
}

fn polynomial<'b>(x: Term<'b>, coefficients: &[f64]) -> Term<'b> {
    let mut highest_first = coefficients.iter().rev().map(|&c| number(x, c));
    let Some(highest) = highest_first.next() else { unreachable!("a polynomial has a coefficient") };
    highest_first.fold(highest, |sum, c| sum.fma(x, c))
}

fn number(like: Term<'_>, x: f64) -> Term<'_> {
    like.constant(Const::Float(x))
}
