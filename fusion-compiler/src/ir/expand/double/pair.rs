//! Numbers of twice the digits: sums of two `f64`.
//!
//! Invariant: what is called exact is so where nothing overflows and no low part is subnormal.

use super::super::term::Term;
use super::number;

/// `high + low`.
#[derive(Clone, Copy)]
pub(super) struct Pair<'b> {
    pub(super) high: Term<'b>,
    pub(super) low: Term<'b>,
}

impl<'b> Pair<'b> {
    /// `x y`, exactly.
    pub(super) fn product(x: Term<'b>, y: Term<'b>) -> Pair<'b> {
        let high = x * y;
        Pair { high, low: x.fma(y, -high) }
    }

    /// `x + y`, exactly.
    pub(super) fn sum(x: Term<'b>, y: Term<'b>) -> Pair<'b> {
        let high = x + y;
        let part = high - x;
        Pair { high, low: (x - (high - part)) + (y - part) }
    }

    /// `x + y`, exactly, where `x` is 0 or not less in size than `y`.
    pub(super) fn sum_of_ordered(x: Term<'b>, y: Term<'b>) -> Pair<'b> {
        let high = x + y;
        Pair { high, low: (x - high) + y }
    }

    /// A number that is written in two parts.
    pub(super) fn constant(like: Term<'b>, [high, low]: [f64; 2]) -> Pair<'b> {
        Pair { high: number(like, high), low: number(like, low) }
    }

    /// `self · other` to twice the digits, where low parts are about what a rounding takes off.
    pub(super) fn times(self, other: Pair<'b>) -> Pair<'b> {
        let Pair { high, low } = Pair::product(self.high, other.high);
        Pair { high, low: low + self.high.fma(other.low, self.low * other.high) }
    }

    /// `self + other` to twice the digits, where `self` is 0 or not less in size than `other`.
    pub(super) fn plus_smaller(self, other: Pair<'b>) -> Pair<'b> {
        let Pair { high, low } = Pair::sum_of_ordered(self.high, other.high);
        Pair { high, low: low + (self.low + other.low) }
    }
}
