//! Logarithms of `f64`.

use super::super::term::{Term, unary};
use super::exp::{LN_2_HIGH, LN_2_LOW};
use super::{number, parts, polynomial};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// Computes the natural logarithm.
pub(crate) fn log(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (e, m) = parts(x);
        let low = e * number(x, LN_2_LOW);
        at_edges(x, e.fma(number(x, LN_2_HIGH), log_near_1(m) + low))
    })
}

/// Computes the logarithm to base 2, which is exact for powers of two.
pub(crate) fn log2(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (e, m) = parts(x);
        at_edges(x, log_near_1(m).fma(number(x, std::f64::consts::LOG2_E), e))
    })
}

/// Computes `log(1 + x)`. The rounding error of `1 + x`, divided by the sum, is added to the logarithm.
pub(crate) fn log1p(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let sum = x + 1.0;
        let lost = (x - (sum - 1.0)) / sum;
        let log = sum.unary(Op::Log) + lost;
        let log = log.but(sum.unary(Op::Log), sum.eq(0.0) | x.unary(Op::IsInf));
        // The sum retains nothing of a tiny `x`.
        log.but(x, x.abs().lt(1e-17))
    })
}

/// Computes `2 atanh((m − 1) / (m + 1))`, the logarithm of a number from √½ to √2. With `f = m − 1`, the
/// logarithm is `f − f s + s R`, where `s R` is the series without its first term. The first digits are
/// therefore those of `f`.
fn log_near_1(m: Term<'_>) -> Term<'_> {
    let f = m - 1.0;
    let s = f / (f + 2.0);
    let z = s * s;
    let terms: Vec<f64> = (1..=12).map(|n| 2.0 / f64::from(2 * n + 1)).collect();
    let half = f * f * 0.5;
    f - (half - s * (half + z * polynomial(z, &terms)))
}

/// Returns the logarithm with the special cases of zeros, infinity, NaN and negative numbers.
fn at_edges<'b>(x: Term<'b>, log: Term<'b>) -> Term<'b> {
    let log = log.but(f32::NEG_INFINITY, x.eq(0.0));
    let log = log.but(f32::NAN, x.lt(0.0) | x.unary(Op::IsNan));
    log.but(x, x.eq(f32::INFINITY))
}
