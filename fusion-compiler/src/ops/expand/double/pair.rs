//! Numbers of twice the digits: unevaluated sums of two `f64`.
//!
//! Invariant: operations documented as exact are exact unless something overflows or a low part is subnormal.

use super::super::term::Term;
use super::number;

/// The sum `high + low`.
#[derive(Clone, Copy)]
pub(super) struct Pair<'b> {
    pub(super) high: Term<'b>,
    pub(super) low: Term<'b>,
}

impl<'b> Pair<'b> {
    /// Computes `x y` exactly.
    pub(super) fn product(x: Term<'b>, y: Term<'b>) -> Pair<'b> {
        let high = x * y;
        Pair { high, low: x.fma(y, -high) }
    }

    /// Computes `x + y` exactly.
    pub(super) fn sum(x: Term<'b>, y: Term<'b>) -> Pair<'b> {
        let high = x + y;
        let part = high - x;
        Pair { high, low: (x - (high - part)) + (y - part) }
    }

    /// Computes `x + y` exactly, if `x` is 0 or not less in magnitude than `y`.
    pub(super) fn sum_of_ordered(x: Term<'b>, y: Term<'b>) -> Pair<'b> {
        let high = x + y;
        Pair { high, low: (x - high) + y }
    }

    /// Returns a constant that is written in two parts.
    pub(super) fn constant(like: Term<'b>, [high, low]: [f64; 2]) -> Pair<'b> {
        Pair { high: number(like, high), low: number(like, low) }
    }

    /// Computes `self · other` to twice the digits, if low parts are about as small as rounding errors.
    pub(super) fn times(self, other: Pair<'b>) -> Pair<'b> {
        let Pair { high, low } = Pair::product(self.high, other.high);
        Pair { high, low: low + self.high.fma(other.low, self.low * other.high) }
    }

    /// Computes `self + other` to twice the digits, if `self` is 0 or not less in magnitude than `other`.
    pub(super) fn plus_smaller(self, other: Pair<'b>) -> Pair<'b> {
        let Pair { high, low } = Pair::sum_of_ordered(self.high, other.high);
        Pair { high, low: low + (self.low + other.low) }
    }
}
