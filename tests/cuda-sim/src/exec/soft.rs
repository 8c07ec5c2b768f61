//! Exact arithmetic on floats, rounded once to any format in any direction, where the host has no instruction
//! for it.
//!
//! An exact value is an integer times a power of two. Bits that are shifted out set its lowest bit, which is
//! far below the precision of every format here.

use crate::ptx::ir::Round;

/// Binary format of the kind of IEEE 754.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Bits of the significand, including the hidden one.
    precision: u32,
    /// Exponents of the smallest normal number and of the largest.
    least: i32,
    most: i32,
}

pub(super) const F16: Format = Format { precision: 11, least: -14, most: 15 };
pub(super) const BF16: Format = Format { precision: 8, least: -126, most: 127 };
/// Format whose bits are the upper 19 of an f32.
pub(super) const TF32: Format = Format { precision: 11, least: -126, most: 127 };
pub(super) const F32: Format = Format { precision: 24, least: -126, most: 127 };
pub(super) const F64: Format = Format { precision: 53, least: -1022, most: 1023 };

/// Exact value: `±significand · 2^exponent`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    negative: bool,
    significand: u128,
    exponent: i32,
}

impl Exact {
    /// Converts a finite float.
    pub(super) fn of(x: f64) -> Exact {
        let bits = x.to_bits();
        let (field, fraction) = ((bits >> 52 & 0x7ff) as i32, u128::from(bits & ((1 << 52) - 1)));
        let significand = if field == 0 { fraction } else { fraction | 1 << 52 };
        Exact { negative: x.is_sign_negative(), significand, exponent: field.max(1) - 1075 }
    }

    pub(super) fn of_int(x: i128) -> Exact {
        Exact { negative: x < 0, significand: x.unsigned_abs(), exponent: 0 }
    }

    fn mul(self, o: Exact) -> Exact {
        Exact {
            negative: self.negative != o.negative,
            significand: self.significand * o.significand,
            exponent: self.exponent + o.exponent,
        }
    }

    /// Shifts the highest bit of the significand to 125, so that a sum fits.
    fn lifted(self) -> Exact {
        let up = self.significand.leading_zeros() as i32 - 2;
        if self.significand == 0 {
            return Exact { exponent: i32::MIN / 2, ..self };
        }
        // A product of two significands never reaches the bits above.
        Exact { significand: self.significand << up, exponent: self.exponent - up, ..self }
    }

    fn add(self, o: Exact) -> Exact {
        let (a, b) = (self.lifted(), o.lifted());
        let (high, low) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
        let low_bits = sticky_shr(low.significand, (high.exponent - low.exponent) as u32);
        if high.negative == low.negative {
            return Exact { significand: high.significand + low_bits, ..high };
        }
        let negative = if high.significand >= low_bits { high.negative } else { low.negative };
        Exact { negative, significand: high.significand.abs_diff(low_bits), exponent: high.exponent }
    }

    fn div(self, o: Exact) -> Exact {
        let a = self.lifted();
        let inexact = !a.significand.is_multiple_of(o.significand);
        let significand = ((a.significand / o.significand) << 1) | u128::from(inexact);
        Exact { negative: self.negative != o.negative, significand, exponent: a.exponent - o.exponent - 1 }
    }

    fn sqrt(self) -> Exact {
        let mut a = self.lifted();
        if a.exponent % 2 != 0 {
            a = Exact { significand: a.significand << 1, exponent: a.exponent - 1, ..a };
        }
        let root = a.significand.isqrt();
        let significand = root << 1 | u128::from(root * root != a.significand);
        Exact { negative: false, significand, exponent: a.exponent / 2 - 1 }
    }

    /// Returns the bits of the value rounded to a format.
    pub(super) fn round(self, to: Format, round: Round) -> u64 {
        let sign = u64::from(self.negative) << sign_bit(to);
        if self.significand == 0 {
            return sign;
        }
        let top = self.exponent + 127 - self.significand.leading_zeros() as i32;
        let precision = to.precision as i32;
        let last = top.max(to.least) - (precision - 1);
        let shift = last - self.exponent;
        let (kept, rest) = if shift <= 0 {
            (self.significand << -shift, 0)
        } else {
            (shr(self.significand, shift as u32), self.significand & low_mask(shift as u32))
        };
        let half = if shift <= 0 || shift > 128 { u128::MAX } else { 1 << (shift - 1) };
        let up = match round {
            Round::Nearest => rest > half || (rest == half && kept & 1 == 1),
            Round::Away => rest >= half,
            Round::Zero => false,
            Round::Down => self.negative && rest != 0,
            Round::Up => !self.negative && rest != 0,
        };
        let kept = kept as u64 + u64::from(up);
        // A carry out of the significand increments the exponent.
        let hidden = 1u64 << (precision - 1);
        let bits = if kept < hidden {
            kept
        } else {
            (((last + precision - 1 - to.least + 1) as u64) << (precision - 1)) + kept - hidden
        };
        sign | bits.min(self.overflowed(to, round, bits))
    }

    /// Returns the bits for an overflow: infinity, or the largest number.
    fn overflowed(self, to: Format, round: Round, bits: u64) -> u64 {
        let infinity = infinity(to);
        let largest = match round {
            Round::Nearest | Round::Away => false,
            Round::Zero => true,
            Round::Down => !self.negative,
            Round::Up => self.negative,
        };
        if bits >= infinity && largest { infinity - 1 } else { infinity }
    }
}

fn sign_bit(format: Format) -> u32 {
    format.precision - 1
        + if format.most == 15 {
            5
        } else if format.most == 127 {
            8
        } else {
            11
        }
}

fn infinity(format: Format) -> u64 {
    ((2 * format.most + 1) as u64) << (format.precision - 1)
}

fn shr(x: u128, n: u32) -> u128 {
    x.checked_shr(n).unwrap_or(0)
}

fn low_mask(n: u32) -> u128 {
    1u128.checked_shl(n).map_or(u128::MAX, |bit| bit - 1)
}

fn sticky_shr(x: u128, n: u32) -> u128 {
    shr(x, n) | u128::from(x & low_mask(n) != 0)
}

/// Operations that are computed exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exactly {
    Add,
    Mul,
    Div,
    /// `a · b + c`.
    Fma,
    /// Square root of `a`.
    Sqrt,
    /// `a` itself.
    Same,
}

/// Returns the rounded bits of `op`. The operands are values of the format or of a smaller one. NaN is
/// canonical.
pub(super) fn compute(op: Exactly, [a, b, c]: [f64; 3], to: Format, round: Round) -> u64 {
    let native = match op {
        Exactly::Add => a + b,
        Exactly::Mul => a * b,
        Exactly::Div => a / b,
        Exactly::Fma => a.mul_add(b, c),
        Exactly::Sqrt => a.sqrt(),
        Exactly::Same => a,
    };
    let operands: &[f64] = match op {
        Exactly::Add | Exactly::Mul | Exactly::Div => &[a, b],
        Exactly::Fma => &[a, b, c],
        Exactly::Sqrt | Exactly::Same => &[a],
    };
    let finite =
        operands.iter().all(|x| x.is_finite()) && !native.is_nan() && !(op == Exactly::Div && b == 0.0);
    if !finite {
        let sign = u64::from(native.is_sign_negative()) << sign_bit(to);
        return match (native.is_nan(), native == 0.0) {
            (true, _) => nan(to),
            (false, true) => sign,
            (false, false) => sign | infinity(to),
        };
    }
    let (x, y, z) = (Exact::of(a), Exact::of(b), Exact::of(c));
    let exact = match op {
        Exactly::Add => x.add(y),
        Exactly::Mul => x.mul(y),
        Exactly::Div => x.div(y),
        Exactly::Fma => x.mul(y).add(z),
        Exactly::Sqrt => x.sqrt(),
        Exactly::Same => x,
    };
    if exact.significand == 0 {
        let negative = zero_is_negative(op, (x, y, z), round);
        return u64::from(negative) << sign_bit(to);
    }
    exact.round(to, round)
}

/// Returns the sign of an exact zero. For a sum of opposites the sign depends on the rounding direction.
fn zero_is_negative(op: Exactly, (x, y, z): (Exact, Exact, Exact), round: Round) -> bool {
    let sum = |p: bool, q: bool| if p == q { p } else { round == Round::Down };
    match op {
        Exactly::Add => sum(x.negative, y.negative),
        Exactly::Mul | Exactly::Div => x.negative != y.negative,
        Exactly::Fma => sum(x.negative != y.negative, z.negative),
        Exactly::Sqrt | Exactly::Same => x.negative,
    }
}

/// Returns the NaN that instructions produce: all ones but for the sign, or the default quiet NaN for f64.
pub(super) fn nan(format: Format) -> u64 {
    if format.precision == 53 { f64::NAN.to_bits() } else { (1 << sign_bit(format)) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers of all sizes, from a linear recurrence.
    fn numbers() -> impl Iterator<Item = f64> {
        let mut state = 1u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from_bits(state)
        })
        .filter(|x| x.is_finite())
    }

    #[test]
    fn to_nearest_is_what_the_host_does() {
        let all: Vec<f64> = numbers().take(4000).collect();
        for abc in all.windows(3) {
            // Nearby numbers cancel. Distant ones affect only the sticky bit.
            let near = abc[0] * (1.0 + abc[1].fract() * 1e-10);
            for [a, b, c] in [[abc[0], abc[1], abc[2]], [abc[0], near, abc[2]], [1.5, near, -near]] {
                if ![a, b, c].iter().all(|x| x.is_finite()) {
                    continue;
                }
                let check = |op, host: f64| {
                    let found = compute(op, [a, b, c], F64, Round::Nearest);
                    assert!(found == host.to_bits() || host.is_nan(), "{op:?} {a:e} {b:e} {c:e}: {host:e}");
                };
                check(Exactly::Add, a + b);
                check(Exactly::Mul, a * b);
                check(Exactly::Div, a / b);
                check(Exactly::Fma, a.mul_add(b, c));
                check(Exactly::Sqrt, a.sqrt());
                assert_eq!(
                    compute(Exactly::Same, [a, b, c], F32, Round::Nearest),
                    u64::from((a as f32).to_bits())
                );
            }
        }
    }

    #[test]
    fn directions_enclose_the_value() {
        // Numbers of all sizes of f32, including subnormal numbers.
        let sized = |bits: u64| f64::from_bits((bits & !(0x7ff << 52)) | (0x370 + (bits >> 52 & 0xff)) << 52);
        for x in numbers().take(4000).map(|x| sized(x.to_bits())) {
            let rounded =
                |round| f64::from(f32::from_bits(compute(Exactly::Same, [x, 0.0, 0.0], F32, round) as u32));
            let (down, up, zero) = (rounded(Round::Down), rounded(Round::Up), rounded(Round::Zero));
            assert!(down <= x && x <= up && zero.abs() <= x.abs(), "{x:e}");
            assert!(
                f32::to_bits(up as f32).abs_diff(f32::to_bits(down as f32)) <= 1 || x.abs() < 1e-37,
                "{x:e}"
            );
        }
    }

    #[test]
    fn ends_of_the_range() {
        let bits = |x: f64, to, round| compute(Exactly::Same, [x, 0.0, 0.0], to, round);
        assert_eq!(bits(65520.0, F16, Round::Nearest), 0x7c00);
        assert_eq!(bits(65519.0, F16, Round::Nearest), 0x7bff);
        assert_eq!(bits(1e9, F16, Round::Zero), 0x7bff);
        assert_eq!(bits(-1e9, F16, Round::Up), 0xfbff);
        assert_eq!(bits(-1e9, F16, Round::Down), 0xfc00);
        assert_eq!(bits(f64::powi(2.0, -25), F16, Round::Nearest), 0);
        assert_eq!(bits(f64::powi(2.0, -25), F16, Round::Away), 1);
        assert_eq!(bits(f64::powi(2.0, -25) * 1.001, F16, Round::Nearest), 1);
        assert_eq!(bits(1e-300, F16, Round::Up), 1);
        assert_eq!(bits(f64::NAN, BF16, Round::Up), 0x7fff);
    }
}
