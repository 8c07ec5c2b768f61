//! Arithmetic on floats.
//!
//! The host's instructions compute the results that they round as required. Exact arithmetic, rounded once,
//! computes the others.

use ::half::{bf16, f16};

use super::half;
use super::regs::{Lane, Regs, lanes};
use super::soft::{self, Exactly, Format};
use crate::ptx::ir::{Float, FloatBin, FloatUn, Mode, PLAIN, Reg, Round, Test, Wide};
use crate::ptx::types::Type;

/// Float type of the host, with the operations that PTX needs.
pub(super) trait Real: Lane + PartialOrd {
    const FORMAT: Format;
    fn wide(self) -> f64;
    fn of_bits(bits: u64) -> Self;
    fn bits(self) -> u64;
    fn flip(self) -> Self;
    fn magnitude(self) -> Self;
    fn is_negative(self) -> bool;
    fn is_nan(self) -> bool;
    /// Flushes a subnormal number to a zero of its sign.
    fn flushed(self) -> Self;
    fn zero() -> Self;
    fn one() -> Self;
    fn nan() -> Self;
}

macro_rules! real {
    ($($ty:ident, $format:expr, $bits:ident, $nan:expr;)*) => {$(
        impl Real for $ty {
            const FORMAT: Format = $format;
            #[inline(always)]
            fn wide(self) -> f64 { f64::from(self) }
            #[inline(always)]
            fn of_bits(bits: u64) -> $ty { $ty::from_bits(bits as $bits) }
            #[inline(always)]
            fn bits(self) -> u64 { u64::from(self.to_bits()) }
            #[inline(always)]
            fn flip(self) -> $ty { $ty::from_bits(self.to_bits() ^ 1 << ($bits::BITS - 1)) }
            #[inline(always)]
            fn magnitude(self) -> $ty { $ty::from_bits(self.to_bits() & !(1 << ($bits::BITS - 1))) }
            #[inline(always)]
            fn is_negative(self) -> bool { self.to_bits() >> ($bits::BITS - 1) == 1 }
            #[inline(always)]
            fn is_nan(self) -> bool { $ty::is_nan(self) }
            #[inline(always)]
            fn flushed(self) -> $ty {
                let sign = self.to_bits() & 1 << ($bits::BITS - 1);
                if (self.to_bits() ^ sign) < $ty::MIN_POSITIVE.to_bits() { $ty::from_bits(sign) } else { self }
            }
            #[inline(always)]
            fn zero() -> $ty { $ty::from_bits(0) }
            #[inline(always)]
            fn one() -> $ty { $ty::from_bits(((1 << ($bits::BITS - 2)) - 1) & !($ty::MIN_POSITIVE.to_bits() - 1)) }
            #[inline(always)]
            fn nan() -> $ty { $ty::from_bits($nan) }
        }
    )*};
}

real! {
    f32, soft::F32, u32, 0x7fff_ffff;
    f64, soft::F64, u64, 0x7ff8_0000_0000_0000;
    f16, soft::F16, u16, 0x7fff;
    bf16, soft::BF16, u16, 0x7fff;
}

/// Replaces a NaN of f32 by the canonical NaN of the hardware. NaN of f64 keep their payload.
///
/// The test is on bits, because the optimiser may replace any NaN by any other.
#[inline(always)]
pub(super) fn canonical(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { bits })
}

/// Applies the modifiers to a result.
#[inline(always)]
pub(super) fn finish<T: Real>(mode: Mode, x: T) -> T {
    let x = if mode.ftz { x.flushed() } else { x };
    if mode.sat && (x.is_nan() || x <= T::zero()) {
        T::zero()
    } else if mode.sat && x > T::one() {
        T::one()
    } else if mode.relu && !x.is_nan() && x.is_negative() {
        T::zero()
    } else {
        x
    }
}

#[inline(always)]
pub(super) fn given<T: Real>(mode: Mode, x: T) -> T {
    if mode.ftz { x.flushed() } else { x }
}

#[inline(never)]
fn exactly<T: Real>(mode: Mode, op: Exactly, operands: [T; 3]) -> T {
    let bits = soft::compute(op, operands.map(|x| given(mode, x).wide()), T::FORMAT, mode.round);
    finish(mode, T::of_bits(bits))
}

fn is_plain(mode: Mode) -> bool {
    mode.round == Round::Nearest && !mode.ftz && !mode.sat && !mode.relu
}

#[inline(always)]
pub(super) fn binary(
    regs: &mut Regs,
    exec: u32,
    (op, ty, mode): (FloatBin, Float, Mode),
    d: Reg,
    (a, b): (Reg, Reg),
) {
    let plain = is_plain(mode) && !mode.approx;
    match (ty, op) {
        (Float::F32, FloatBin::Add) if plain => regs.map2(exec, d, a, b, |x: f32, y: f32| canonical(x + y)),
        (Float::F32, FloatBin::Sub) if plain => regs.map2(exec, d, a, b, |x: f32, y: f32| canonical(x - y)),
        (Float::F32, FloatBin::Mul) if plain => regs.map2(exec, d, a, b, |x: f32, y: f32| canonical(x * y)),
        (Float::F32, FloatBin::Div) if plain => regs.map2(exec, d, a, b, |x: f32, y: f32| canonical(x / y)),
        (Float::F64, FloatBin::Add) if plain => regs.map2(exec, d, a, b, |x: f64, y: f64| x + y),
        (Float::F64, FloatBin::Sub) if plain => regs.map2(exec, d, a, b, |x: f64, y: f64| x - y),
        (Float::F64, FloatBin::Mul) if plain => regs.map2(exec, d, a, b, |x: f64, y: f64| x * y),
        (Float::F64, FloatBin::Div) if plain => regs.map2(exec, d, a, b, |x: f64, y: f64| x / y),
        (Float::F32, FloatBin::Min) if mode == PLAIN => {
            regs.map2(exec, d, a, b, |x, y| least::<f32>(PLAIN, x, y))
        }
        (Float::F32, FloatBin::Max) if mode == PLAIN => {
            regs.map2(exec, d, a, b, |x, y| most::<f32>(PLAIN, x, y))
        }
        (Float::F32, _) if mode.round == Round::Nearest => {
            each2::<f32>(regs, exec, d, (a, b), |x, y| nearest(op, mode, x, y));
        }
        (Float::F32, _) => each2::<f32>(regs, exec, d, (a, b), |x, y| scalar(op, mode, x, y)),
        (Float::F64, _) => each2::<f64>(regs, exec, d, (a, b), |x, y| scalar(op, mode, x, y)),
        (_, FloatBin::Add) => halves(regs, exec, (ty, mode), d, [a, b], |[x, y]| x + y),
        (_, FloatBin::Sub) => halves(regs, exec, (ty, mode), d, [a, b], |[x, y]| x - y),
        (_, FloatBin::Mul) => halves(regs, exec, (ty, mode), d, [a, b], |[x, y]| x * y),
        (Float::F16, _) => each2::<f16>(regs, exec, d, (a, b), |x, y| scalar(op, mode, x, y)),
        (Float::BF16, _) => each2::<bf16>(regs, exec, d, (a, b), |x, y| scalar(op, mode, x, y)),
        (Float::F16x2, _) => pairs::<f16>(regs, exec, d, [a, b, a], |[x, y, _]| scalar(op, mode, x, y)),
        (Float::BF16x2, _) => pairs::<bf16>(regs, exec, d, [a, b, a], |[x, y, _]| scalar(op, mode, x, y)),
    }
}

/// Computes a result of f32 rounded to nearest, with modifiers.
#[inline(never)]
fn nearest(op: FloatBin, mode: Mode, a: f32, b: f32) -> f32 {
    let (x, y) = (given(mode, a), given(mode, b));
    let result = match op {
        FloatBin::Add => x + y,
        FloatBin::Sub => x - y,
        FloatBin::Mul => x * y,
        FloatBin::Div => {
            // The approximate division multiplies by the reciprocal, which is 0 for these divisors.
            let huge = mode.approx && (y.magnitude() > 2f32.powi(126)) && y.magnitude() < f32::INFINITY;
            if huge { x * 0.0f32.copysign(y) } else { x / y }
        }
        FloatBin::Min | FloatBin::Max | FloatBin::CopySign => return scalar(op, mode, a, b),
    };
    finish(mode, canonical(result))
}

/// Computes one result by exact arithmetic.
#[inline(never)]
fn scalar<T: Real>(op: FloatBin, mode: Mode, x: T, y: T) -> T {
    let none = T::zero();
    match op {
        FloatBin::Add => exactly(mode, Exactly::Add, [x, y, none]),
        FloatBin::Sub => exactly(mode, Exactly::Add, [x, y.flip(), none]),
        FloatBin::Mul => exactly(mode, Exactly::Mul, [x, y, none]),
        FloatBin::Div => exactly(mode, Exactly::Div, [x, y, none]),
        FloatBin::Min => least(mode, x, y),
        FloatBin::Max => most(mode, x, y),
        FloatBin::CopySign => {
            if x.is_negative() {
                y.magnitude().flip()
            } else {
                y.magnitude()
            }
        }
    }
}

#[inline(always)]
fn least<T: Real>(mode: Mode, x: T, y: T) -> T {
    extreme(mode, x, y, |x, y| x < y || (x == y && x.is_negative()))
}

#[inline(always)]
fn most<T: Real>(mode: Mode, x: T, y: T) -> T {
    extreme(mode, x, y, |x, y| x > y || (x == y && !x.is_negative()))
}

/// Computes `min` and `max`. If one operand is NaN the result is the other one, unless `.NaN` asks for NaN.
#[inline(always)]
fn extreme<T: Real>(mode: Mode, x: T, y: T, first: impl Fn(T, T) -> bool) -> T {
    let (x, y) = (given(mode, x), given(mode, y));
    let negative = x.is_negative() != y.is_negative();
    let (x, y) = if mode.xorsign { (x.magnitude(), y.magnitude()) } else { (x, y) };
    let found = match (x.is_nan(), y.is_nan()) {
        (true, true) => T::nan(),
        (true, false) => {
            if mode.nan {
                T::nan()
            } else {
                y
            }
        }
        (false, true) => {
            if mode.nan {
                T::nan()
            } else {
                x
            }
        }
        (false, false) => {
            if first(x, y) {
                x
            } else {
                y
            }
        }
    };
    if mode.xorsign && negative && !found.is_nan() { found.flip() } else { found }
}

#[inline(always)]
pub(super) fn fma(regs: &mut Regs, exec: u32, (ty, mode): (Float, Mode), d: Reg, abc: (Reg, Reg, Reg)) {
    let plain = is_plain(mode);
    let (a, b, c) = abc;
    match ty {
        Float::F32 if plain => regs.map3(exec, d, abc, |x: f32, y: f32, z: f32| canonical(x.mul_add(y, z))),
        Float::F32 if mode.round == Round::Nearest => {
            each3::<f32>(regs, exec, d, abc, |abc| nearest_fma(mode, abc));
        }
        Float::F64 if plain => regs.map3(exec, d, abc, |x: f64, y: f64, z: f64| x.mul_add(y, z)),
        Float::F32 => each3::<f32>(regs, exec, d, abc, |abc| exactly(mode, Exactly::Fma, abc)),
        Float::F64 => each3::<f64>(regs, exec, d, abc, |abc| exactly(mode, Exactly::Fma, abc)),
        Float::F16 | Float::F16x2 => halves(regs, exec, (ty, mode), d, [a, b, c], fused::<f16>),
        Float::BF16 | Float::BF16x2 => halves(regs, exec, (ty, mode), d, [a, b, c], fused::<bf16>),
    }
}

/// Computes sums and products of halves, rounded to nearest.
#[inline(always)]
fn halves<const N: usize>(
    regs: &mut Regs,
    exec: u32,
    (ty, mode): (Float, Mode),
    d: Reg,
    from: [Reg; N],
    f: impl Fn([f64; N]) -> f64 + Copy,
) {
    let plain = is_plain(mode);
    match ty {
        Float::F16 if plain => half::each::<f16, false, N>(regs, exec, d, from, f),
        Float::F16x2 if plain => half::each::<f16, true, N>(regs, exec, d, from, f),
        Float::BF16 if plain => half::each::<bf16, false, N>(regs, exec, d, from, f),
        Float::BF16x2 if plain => half::each::<bf16, true, N>(regs, exec, d, from, f),
        Float::F16 => half::each_in::<f16, false, N>(regs, exec, mode, d, from, f),
        Float::F16x2 => half::each_in::<f16, true, N>(regs, exec, mode, d, from, f),
        Float::BF16 => half::each_in::<bf16, false, N>(regs, exec, mode, d, from, f),
        Float::BF16x2 => half::each_in::<bf16, true, N>(regs, exec, mode, d, from, f),
        Float::F32 | Float::F64 => unreachable!("those are no halves"),
    }
}

#[inline(always)]
fn fused<T: half::Half>([x, y, z]: [f64; 3]) -> f64 {
    T::fused(x, y, z)
}

#[inline(never)]
fn nearest_fma(mode: Mode, abc: [f32; 3]) -> f32 {
    let [x, y, z] = abc.map(|x| given(mode, x));
    finish(mode, canonical(x.mul_add(y, z)))
}

#[inline(always)]
pub(super) fn unary(regs: &mut Regs, exec: u32, (op, ty, mode): (FloatUn, Float, Mode), d: Reg, a: Reg) {
    match (ty, op) {
        (Float::F32, FloatUn::Neg) => regs.map(exec, d, a, |x: f32| given(mode, x).flip()),
        (Float::F32, FloatUn::Abs) => regs.map(exec, d, a, |x: f32| given(mode, x).magnitude()),
        (Float::F32, FloatUn::Sqrt) if is_plain(mode) => regs.map(exec, d, a, |x: f32| canonical(x.sqrt())),
        (Float::F32, FloatUn::Rcp) if is_plain(mode) => regs.map(exec, d, a, |x: f32| canonical(1.0 / x)),
        (Float::F64, FloatUn::Sqrt) if is_plain(mode) => regs.map(exec, d, a, |x: f64| x.sqrt()),
        (Float::F32, _) => each2::<f32>(regs, exec, d, (a, a), |x, _| one(op, mode, x)),
        (Float::F64, _) => each2::<f64>(regs, exec, d, (a, a), |x, _| one(op, mode, x)),
        (_, FloatUn::Ex2) => known(regs, exec, (ty, mode), (d, a), (op, &EX2)),
        (_, FloatUn::Tanh) => known(regs, exec, (ty, mode), (d, a), (op, &TANH)),
        (Float::F16, _) => each2::<f16>(regs, exec, d, (a, a), |x, _| one(op, mode, x)),
        (Float::BF16, _) => each2::<bf16>(regs, exec, d, (a, a), |x, _| one(op, mode, x)),
        (Float::F16x2, _) => pairs::<f16>(regs, exec, d, [a; 3], |[x, _, _]| one(op, mode, x)),
        (Float::BF16x2, _) => pairs::<bf16>(regs, exec, d, [a; 3], |[x, _, _]| one(op, mode, x)),
    }
}

/// Results of the approximations for f16 and for bf16. Each of the two types has one choice of modifiers.
static EX2: [half::Memo; 2] = [const { half::Memo::new() }; 2];
static TANH: [half::Memo; 2] = [const { half::Memo::new() }; 2];

/// Computes an approximation of halves, from a table of the results so far.
#[inline(always)]
fn known(
    regs: &mut Regs,
    exec: u32,
    (ty, mode): (Float, Mode),
    at: (Reg, Reg),
    (op, memos): (FloatUn, &[half::Memo; 2]),
) {
    let of_f16 = |bits| one(op, mode, f16::from_bits(bits as u16)).bits() as u32;
    let of_bf16 = |bits| one(op, mode, bf16::from_bits(bits as u16)).bits() as u32;
    match ty {
        Float::F16 => half::each_known::<false>(regs, exec, &memos[0], at, of_f16),
        Float::F16x2 => half::each_known::<true>(regs, exec, &memos[0], at, of_f16),
        Float::BF16 => half::each_known::<false>(regs, exec, &memos[1], at, of_bf16),
        Float::BF16x2 => half::each_known::<true>(regs, exec, &memos[1], at, of_bf16),
        Float::F32 | Float::F64 => unreachable!("those are no halves"),
    }
}

/// Computes one result. Approximations are f64 functions, rounded, and more accurate than the bounds of the
/// ISA.
#[inline(never)]
fn one<T: Real>(op: FloatUn, mode: Mode, x: T) -> T {
    let (x, none) = (given(mode, x), T::zero());
    let approximate = |f: fn(f64) -> f64| {
        finish(
            mode,
            T::of_bits(soft::compute(Exactly::Same, [f(x.wide()), 0.0, 0.0], T::FORMAT, Round::Nearest)),
        )
    };
    // The approximations of f64 return only the upper half of its bits.
    let coarse = |x: T| T::of_bits(x.bits() & !0xffff_ffff);
    match op {
        FloatUn::Rcp if mode.approx => coarse(exactly(mode, Exactly::Div, [T::one(), coarse(x), none])),
        FloatUn::Rsqrt if mode.approx => coarse(approximate(|x| 1.0 / x.sqrt())),
        FloatUn::Neg => x.flip(),
        FloatUn::Abs => x.magnitude(),
        FloatUn::Sqrt => exactly(mode, Exactly::Sqrt, [x, none, none]),
        FloatUn::Rcp => exactly(mode, Exactly::Div, [T::one(), x, none]),
        FloatUn::Rsqrt => approximate(|x| 1.0 / x.sqrt()),
        FloatUn::Ex2 => approximate(f64::exp2),
        FloatUn::Lg2 => approximate(f64::log2),
        FloatUn::Sin => approximate(f64::sin),
        FloatUn::Cos => approximate(f64::cos),
        FloatUn::Tanh => approximate(f64::tanh),
    }
}

pub(super) fn test(regs: &mut Regs, exec: u32, (test, ty): (Test, Float), d: Reg, a: Reg) {
    let wide = match ty {
        Float::F64 => Wide::Two,
        Float::F32 | Float::F16 | Float::BF16 | Float::F16x2 | Float::BF16x2 => Wide::One,
    };
    let mut truth = 0;
    for lane in lanes(exec) {
        let bits = regs.get((a, wide), lane);
        let (x, normal) = match wide {
            Wide::One => (f64::from(f32::from_bits(bits as u32)), f32::from_bits(bits as u32).is_normal()),
            Wide::Two => (f64::from_bits(bits), f64::from_bits(bits).is_normal()),
        };
        let holds = match test {
            Test::Finite => x.is_finite(),
            Test::Infinite => x.is_infinite(),
            Test::Number => !x.is_nan(),
            Test::NotANumber => x.is_nan(),
            Test::Normal => normal,
            Test::Subnormal => x.is_finite() && !normal && x != 0.0,
        };
        truth |= u32::from(holds) << lane;
    }
    regs.set_mask(exec, d, truth);
}

/// Computes `d = f(a, b)` in the active lanes only, for an `f` that takes long.
#[inline(always)]
fn each2<T: Real>(regs: &mut Regs, exec: u32, d: Reg, (a, b): (Reg, Reg), f: impl Fn(T, T) -> T) {
    each3::<T>(regs, exec, d, (a, b, b), |[x, y, _]| f(x, y));
}

#[inline(never)]
fn each3<T: Real>(regs: &mut Regs, exec: u32, d: Reg, (a, b, c): (Reg, Reg, Reg), f: impl Fn([T; 3]) -> T) {
    let row = |regs: &Regs, reg: Reg| *<T::Raw as super::regs::Raw>::row(regs, reg);
    let (x, y, z) = (row(regs, a), row(regs, b), row(regs, c));
    let mut out = [T::Raw::default(); super::regs::LANES];
    for lane in lanes(exec) {
        out[lane] = f([T::of(x[lane]), T::of(y[lane]), T::of(z[lane])]).raw();
    }
    regs.put(exec, d, &out);
}

/// Computes `d = f(a, b, c)` for both halves of registers.
#[inline(never)]
fn pairs<T: Real + Lane<Raw = u32>>(
    regs: &mut Regs,
    exec: u32,
    d: Reg,
    from: [Reg; 3],
    f: impl Fn([T; 3]) -> T,
) {
    let rows = from.map(|reg| *<u32 as super::regs::Raw>::row(regs, reg));
    let mut out = [0u32; super::regs::LANES];
    for lane in lanes(exec) {
        let low = f(rows.map(|row| T::of(row[lane] & 0xffff))).raw();
        let high = f(rows.map(|row| T::of(row[lane] >> 16))).raw();
        out[lane] = high << 16 | low;
    }
    regs.put(exec, d, &out);
}

/// Computes the sum of an atomic, by bits.
pub(super) fn sum(ty: Type, ftz: bool, a: u64, b: u64) -> u64 {
    fn of<T: Real>(ftz: bool, a: u64, b: u64) -> T {
        let mode = Mode { ftz, ..PLAIN };
        exactly(mode, Exactly::Add, [T::of_bits(a), T::of_bits(b), T::zero()])
    }
    let halves = |f: fn(bool, u64, u64) -> u64| {
        f(ftz, a >> 16 & 0xffff, b >> 16 & 0xffff) << 16 | f(ftz, a & 0xffff, b & 0xffff)
    };
    let f16 = |ftz, a, b| u64::from(of::<f16>(ftz, a, b).to_bits());
    let bf16 = |ftz, a, b| u64::from(of::<bf16>(ftz, a, b).to_bits());
    match ty {
        Type::F64 => of::<f64>(ftz, a, b).to_bits(),
        Type::F16 => f16(ftz, a, b),
        Type::BF16 => bf16(ftz, a, b),
        Type::F16x2 => halves(f16),
        Type::BF16x2 => halves(bf16),
        _f32 => u64::from(of::<f32>(ftz, a, b).to_bits()),
    }
}
