//! Exponentials of `f64`.

use super::super::term::{IntoTerm as _, Term, unary};
use super::{clamped, number, polynomial, scaled};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// ln 2 in two parts. The first part has so few digits that its product with an exponent is exact.
pub(super) const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
pub(super) const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Computes `eˣ`.
pub(crate) fn exp(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let (k, r) = reduced(within(x));
        scaled(expm1_small(r) + 1.0, k)
    })
}

/// Computes `2ˣ`.
pub(crate) fn exp2(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, |x| {
        let x = clamped(x, 1100.0);
        let k = x.unary(Op::Round);
        scaled(expm1_small((x - k) * number(x, std::f64::consts::LN_2)) + 1.0, k)
    })
}

/// Computes `eˣ − 1`.
pub(crate) fn expm1(b: &mut Builder<'_>, x: &[Value]) -> Value {
    unary(b, x, expm1_of)
}

/// Computes `eˣ − 1`, without cancellation for small `x`.
pub(super) fn expm1_of(x: Term<'_>) -> Term<'_> {
    let (k, r) = reduced(within(x));
    let small = expm1_small(r);
    let power = scaled(1.0.meet(x), k);
    let near = small.fma(power, power - 1.0);
    near.but(scaled(small + 1.0, k), x.gt(40.0)).but(x, x.eq(0.0))
}

/// Reduces `x = k ln 2 + r` with an integer `k` and `|r|` at most half of ln 2.
fn reduced(x: Term<'_>) -> (Term<'_>, Term<'_>) {
    let k = (x * number(x, std::f64::consts::LOG2_E)).unary(Op::Round);
    (k, (-k).fma(number(x, LN_2_LOW), (-k).fma(number(x, LN_2_HIGH), x)))
}

/// Clamps an exponent. Exponents beyond the clamp give 0 or infinity, as the clamped ones do.
fn within(x: Term<'_>) -> Term<'_> {
    clamped(x, 760.0)
}

/// Computes `eʳ − 1` for `|r|` at most half of ln 2, by the first terms of its series.
pub(super) fn expm1_small(r: Term<'_>) -> Term<'_> {
    let mut factorial = 1.0;
    let terms: Vec<f64> = (2..=14)
        .map(|n| {
            factorial *= f64::from(n);
            1.0 / factorial
        })
        .collect();
    (r * r).fma(polynomial(r, &terms), r)
}
