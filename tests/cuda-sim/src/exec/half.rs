//! Conversion of halves to wider floats and back, for whole rows, by integer operations that vectorize.
//!
//! Sums and products of halves are computed in f64 and rounded once more. The second rounding is harmless if
//! every result of f64 that is halfway between two halves is exact. No sum of two halves is close to such a
//! middle without being the middle, because their significands are too short. A fused result of f16 close to
//! the middle is exact in f64. An inexact fused result of bf16, whose exponents have a wider range, is made
//! odd.

use std::sync::atomic::{AtomicU32, Ordering};

use half::{bf16, f16};

use super::regs::{LANES, Raw, Regs, every, lanes};
use crate::ptx::ir::{Mode, Reg};

/// Float format of 16 bits.
pub(super) trait Half {
    /// Bits of the least normal number, of 1, and of infinity.
    const NORMAL: u32;
    const ONE: u32;
    const INFINITY: u32;
    /// Returns the value of the lower 16 bits. The bits above are 0.
    fn widen(bits: u32) -> f32;
    /// Rounds a float that was rounded to odd to the nearest value, ties to even.
    fn nearest(odd: f32) -> u32;
    /// Rounds to the nearest value, ties to even.
    #[inline(always)]
    fn narrow(x: f64) -> u32 {
        Self::nearest(to_odd(x))
    }
    /// Computes `x · y + z`, to be narrowed.
    fn fused(x: f64, y: f64, z: f64) -> f64;
}

/// Rounds to odd: inexact results are odd. Rounding the result to f32 or any narrower format rounds like the
/// original.
#[inline(always)]
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    let (back, bits) = (f64::from(near), near.to_bits());
    let toward_zero = bits.wrapping_sub(u32::from(back.abs() > x.abs()));
    f32::from_bits(toward_zero | u32::from(back != x))
}

impl Half for f16 {
    const NORMAL: u32 = 0x0400;
    const ONE: u32 = 0x3c00;
    const INFINITY: u32 = 0x7c00;

    #[inline(always)]
    fn widen(bits: u32) -> f32 {
        let (sign, rest) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
        let exponent = rest & 0x0f80_0000;
        // Difference of the biases, added twice for infinity and NaN.
        let bias = 112 << 23;
        let moved = rest.wrapping_add(bias);
        let normal = moved.wrapping_add(if exponent == 0x0f80_0000 { bias } else { 0 });
        // A subnormal number gets a hidden bit that it does not have. The subtraction removes that bit.
        let subnormal = (f32::from_bits(moved.wrapping_add(1 << 23)) - f32::from_bits(113 << 23)).to_bits();
        f32::from_bits(sign | if exponent == 0 { subnormal } else { normal })
    }

    #[inline(always)]
    fn nearest(odd: f32) -> u32 {
        let bits = odd.to_bits();
        let (sign, rest) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
        // The last bit of a subnormal half is that of 0.5, so adding 0.5 rounds the number.
        let subnormal = (f32::from_bits(rest) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let normal = rest.wrapping_sub(112 << 23).wrapping_add(0xfff + (rest >> 13 & 1)) >> 13;
        let finite = if rest < 113 << 23 { subnormal } else { normal };
        let large = if rest >= 143 << 23 { 0x7c00 } else { finite };
        if rest > 0x7f80_0000 { 0x7fff } else { sign | large }
    }

    #[inline(always)]
    fn fused(x: f64, y: f64, z: f64) -> f64 {
        x * y + z
    }
}

impl Half for bf16 {
    const NORMAL: u32 = 0x0080;
    const ONE: u32 = 0x3f80;
    const INFINITY: u32 = 0x7f80;

    #[inline(always)]
    fn widen(bits: u32) -> f32 {
        f32::from_bits(bits << 16)
    }

    #[inline(always)]
    fn nearest(odd: f32) -> u32 {
        let bits = odd.to_bits();
        let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1))) >> 16;
        if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff } else { rounded }
    }

    #[inline(always)]
    fn fused(x: f64, y: f64, z: f64) -> f64 {
        let product = x * y;
        let sum = product + z;
        // Error of the sum, which is exactly a float (Knuth). The error is NaN where the sum is infinite.
        let part = sum - product;
        let lacks = (product - (sum - part)) + (z - part);
        let inexact = lacks.abs() > 0.0;
        let beyond = inexact && lacks.is_sign_negative() != sum.is_sign_negative();
        f64::from_bits(sum.to_bits().wrapping_sub(u64::from(beyond)) | u64::from(inexact))
    }
}

/// Flushes a subnormal operand or result to zero with `.ftz`.
#[inline(always)]
fn flushed<T: Half>(mode: Mode, bits: u32) -> u32 {
    let least = if mode.ftz { T::NORMAL } else { 0 };
    if bits & 0x7fff < least { bits & 0x8000 } else { bits }
}

/// Applies the modifiers to a result.
#[inline(always)]
pub(super) fn finish<T: Half>(mode: Mode, bits: u32) -> u32 {
    let bits = flushed::<T>(mode, bits);
    let is_nan = bits & 0x7fff > T::INFINITY;
    // Branches would keep the loop over a row from vectorizing.
    let (negative, none) = ((bits & 0x8000 != 0) & !is_nan, mode.sat & is_nan);
    let most = if mode.sat { T::ONE } else { 0xffff };
    if (mode.sat | mode.relu) & negative | none { 0 } else { bits.min(most) }
}

/// Computes `d = f(a, b, c)` of halves, or of pairs of halves, rounded to nearest.
#[inline(always)]
pub(super) fn each<T: Half, const PAIRS: bool, const N: usize>(
    regs: &mut Regs,
    exec: u32,
    d: Reg,
    from: [Reg; N],
    f: impl Fn([f64; N]) -> f64,
) {
    let rows = from.map(|reg| u32::row(regs, reg));
    let out = computed::<T, PAIRS, N>(rows, f);
    regs.put(exec, d, &out);
}

/// Computes `d = f(a, b, c)` of halves, or of pairs of halves, with modifiers.
#[inline(always)]
pub(super) fn each_in<T: Half, const PAIRS: bool, const N: usize>(
    regs: &mut Regs,
    exec: u32,
    mode: Mode,
    d: Reg,
    from: [Reg; N],
    f: impl Fn([f64; N]) -> f64,
) {
    let given = from.map(|reg| {
        let row = u32::row(regs, reg);
        if mode.ftz { of_halves::<PAIRS>(row, |bits| flushed::<T>(mode, bits)) } else { *row }
    });
    let out = computed::<T, PAIRS, N>(given.each_ref(), f);
    let out = of_halves::<PAIRS>(&out, |bits| finish::<T>(mode, bits));
    regs.put(exec, d, &out);
}

/// Rounds each value to the nearest half, ties to even.
///
/// Each step is a loop of its own, whose values fit the vector registers of the host.
#[inline(always)]
pub(super) fn rounded<T: Half>(row: &[f64; LANES]) -> [u32; LANES] {
    let (mut odd, mut out) = ([0.0; LANES], [0; LANES]);
    for (&x, odd) in row.iter().zip(&mut odd) {
        *odd = to_odd(x);
    }
    for (&odd, out) in odd.iter().zip(&mut out) {
        *out = T::nearest(odd);
    }
    out
}

/// Combines lower and upper halves to words.
#[inline(always)]
pub(super) fn paired(low: &[u32; LANES], high: &[u32; LANES]) -> [u32; LANES] {
    let mut out = *low;
    for (word, high) in out.iter_mut().zip(high) {
        *word |= high << 16;
    }
    out
}

/// Computes the results of `f`, rounded to nearest.
#[inline(always)]
fn computed<T: Half, const PAIRS: bool, const N: usize>(
    rows: [&[u32; LANES]; N],
    f: impl Fn([f64; N]) -> f64,
) -> [u32; LANES] {
    let low = of_lower::<T, N>(rows, 0, &f);
    if PAIRS { paired(&low, &of_lower::<T, N>(rows, 16, &f)) } else { low }
}

/// Computes the results of `f` for the halves from bit `shift` on.
#[inline(always)]
fn of_lower<T: Half, const N: usize>(
    rows: [&[u32; LANES]; N],
    shift: u32,
    f: &impl Fn([f64; N]) -> f64,
) -> [u32; LANES] {
    let mut wide = [[0.0; LANES]; N];
    for (row, wide) in rows.iter().zip(&mut wide) {
        *wide = every(row, |bits| T::widen(bits >> shift & 0xffff));
    }
    let mut exact = [0.0; LANES];
    for (lane, result) in exact.iter_mut().enumerate() {
        let mut operands = [0.0; N];
        for (row, operand) in wide.iter().zip(&mut operands) {
            *operand = f64::from(row[lane]);
        }
        *result = f(operands);
    }
    rounded::<T>(&exact)
}

/// Applies a function to the lower halves of a row, or to both halves.
#[inline(always)]
fn of_halves<const PAIRS: bool>(row: &[u32; LANES], f: impl Fn(u32) -> u32) -> [u32; LANES] {
    let high = |bits: u32| if PAIRS { f(bits >> 16) << 16 } else { 0 };
    every(row, |bits| f(bits & 0xffff) | high(bits))
}

/// Table of the results of a function of one half, by its bits. An entry with a result has a bit above it
/// set.
pub(super) struct Memo([AtomicU32; 1 << 16]);

impl Memo {
    pub(super) const fn new() -> Memo {
        Memo([const { AtomicU32::new(0) }; 1 << 16])
    }

    /// Returns the result of a function, which has to be the same function for all calls on one table.
    #[inline(always)]
    fn get(&self, bits: u32, f: impl Fn(u32) -> u32) -> u32 {
        let known = self.0[bits as usize].load(Ordering::Relaxed);
        if known != 0 {
            return known & 0xffff;
        }
        let found = f(bits);
        self.0[bits as usize].store(found | 1 << 16, Ordering::Relaxed);
        found
    }
}

/// Computes `d = f(a)` of halves, or of pairs of halves, for a function that takes long.
#[inline(never)]
pub(super) fn each_known<const PAIRS: bool>(
    regs: &mut Regs,
    exec: u32,
    memo: &Memo,
    (d, a): (Reg, Reg),
    f: impl Fn(u32) -> u32,
) {
    let row = u32::row(regs, a);
    let mut out = [0u32; LANES];
    for lane in lanes(exec) {
        out[lane] = memo.get(row[lane] & 0xffff, &f);
        if PAIRS {
            out[lane] |= memo.get(row[lane] >> 16, &f) << 16;
        }
    }
    regs.put(exec, d, &out);
}

#[cfg(test)]
mod tests {
    use super::super::soft::{self, Exactly};
    use super::*;
    use crate::ptx::ir::Round;

    #[test]
    fn all_halves_are_widened_and_come_back() {
        for bits in 0..=u16::MAX {
            let (x, y) = (f16::from_bits(bits), bf16::from_bits(bits));
            let (wide, wide_b) = (f16::widen(bits.into()), bf16::widen(bits.into()));
            assert!(wide.to_bits() == x.to_f32().to_bits() || x.is_nan() && wide.is_nan(), "{bits:#x}");
            assert!(wide_b.to_bits() == y.to_f32().to_bits() || y.is_nan() && wide_b.is_nan(), "{bits:#x}");
            let whole = |nan: bool| if nan { 0x7fff } else { u32::from(bits) };
            assert_eq!(f16::narrow(wide.into()), whole(x.is_nan()), "{bits:#x}");
            assert_eq!(bf16::narrow(wide_b.into()), whole(y.is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn rounding_is_that_of_exact_arithmetic() {
        let exact = |x: f64, to| soft::compute(Exactly::Same, [x, 0.0, 0.0], to, Round::Nearest) as u32;
        let check = |x: f64| {
            assert_eq!(f16::narrow(x), exact(x, soft::F16), "{x:e}");
            assert_eq!(bf16::narrow(x), exact(x, soft::BF16), "{x:e}");
        };
        for bits in 0..0x7c00u16 {
            // Middle between neighbours, and the values closest to it.
            let [a, b] = [bits, bits + 1].map(|bits| f64::from(f16::widen(bits.into())).min(65536.0));
            let middle = (a + b) / 2.0;
            for x in [middle, middle * (1.0 + f64::EPSILON), middle * (1.0 - f64::EPSILON)] {
                check(x);
                check(-x);
            }
        }
        let mut state = 1u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            check(f64::from_bits(state));
            // Numbers in the range of halves.
            check(f64::from_bits(state & !(0x7ff << 52) | (0x3e0 + (state >> 52 & 0x3f)) << 52));
        }
        for x in [0.0, f64::INFINITY, f64::NAN, f64::MAX, f64::MIN_POSITIVE, 65519.99, 65520.0, 3.4e38, 1e-45]
        {
            check(x);
            check(-x);
        }
    }

    #[test]
    fn modifiers_do_what_they_do_to_floats() {
        use super::super::float;
        use crate::ptx::ir::PLAIN;
        for (ftz, sat, relu) in
            [(true, false, false), (true, true, false), (false, true, false), (false, false, true)]
        {
            let mode = Mode { ftz, sat, relu, ..PLAIN };
            for bits in 0..=u16::MAX {
                let (x, y) = (f16::from_bits(bits), bf16::from_bits(bits));
                assert_eq!(
                    finish::<f16>(mode, bits.into()),
                    float::finish(mode, x).to_bits().into(),
                    "{bits:#x}"
                );
                assert_eq!(
                    finish::<bf16>(mode, bits.into()),
                    float::finish(mode, y).to_bits().into(),
                    "{bits:#x}"
                );
                assert_eq!(
                    flushed::<f16>(mode, bits.into()),
                    float::given(mode, x).to_bits().into(),
                    "{bits:#x}"
                );
            }
        }
    }

    #[test]
    fn fused_sums_are_rounded_once() {
        let mut state = 7u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = [state >> 48, state >> 32, state >> 16].map(|bits| bits as u32 & 0xffff);
            let x = bits.map(|bits| f64::from(f16::widen(bits)));
            let found = f16::narrow(f16::fused(x[0], x[1], x[2]));
            assert_eq!(found, soft::compute(Exactly::Fma, x, soft::F16, Round::Nearest) as u32, "{bits:x?}");
            let x = bits.map(|bits| f64::from(bf16::widen(bits)));
            let found = bf16::narrow(bf16::fused(x[0], x[1], x[2]));
            assert_eq!(found, soft::compute(Exactly::Fma, x, soft::BF16, Round::Nearest) as u32, "{bits:x?}");
        }
    }
}
