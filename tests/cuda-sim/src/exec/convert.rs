//! `cvt`: the common conversions as loops over lanes, all others by the exact value.

use ::half::{bf16, f16};

use super::half::{self, Half};
use super::regs::{Regs, lanes};
use super::soft::{self, Exact, Exactly, Format};
use crate::ptx::ir::{Convert, Float, Mode, PLAIN, Reg, Round, Wide};
use crate::ptx::types::{Class, Type};

#[inline(always)]
pub(super) fn convert(regs: &mut Regs, exec: u32, c: &Convert, d: Reg, a: Reg) {
    let plain = !c.ftz && !c.sat && !c.relu;
    const WORDS: (Wide, Wide) = (Wide::One, Wide::One);
    match (c.from, c.to, c.round, c.wide) {
        (Type::S32, Type::F32, Round::Nearest, WORDS) if plain => regs.map(exec, d, a, |x: i32| x as f32),
        (Type::U32, Type::F32, Round::Nearest, WORDS) if plain => regs.map(exec, d, a, |x: u32| x as f32),
        // The host's conversion saturates too, and converts NaN to 0.
        (Type::F32, Type::S32, Round::Zero, WORDS) if plain => regs.map(exec, d, a, |x: f32| x as i32),
        (Type::F32, Type::U32, Round::Zero, WORDS) if plain => regs.map(exec, d, a, |x: f32| x as u32),
        (Type::U32 | Type::S32, Type::U32 | Type::S32, _, WORDS) if plain => regs.map(exec, d, a, |x: u32| x),
        (Type::U32, Type::U64 | Type::S64, _, (Wide::Two, Wide::One)) if plain => {
            regs.map(exec, d, a, |x: u32| u64::from(x))
        }
        (Type::S32, Type::U64 | Type::S64, _, (Wide::Two, Wide::One)) if plain => {
            regs.map(exec, d, a, |x: i32| i64::from(x))
        }
        (Type::U64 | Type::S64, Type::U32 | Type::S32, _, (Wide::One, Wide::Two)) if plain => {
            regs.map(exec, d, a, |x: u64| x as u32)
        }
        (Type::F16, Type::F32, _, WORDS) if plain => regs.map(exec, d, a, |x: f16| from_half(x.to_f32())),
        (Type::BF16, Type::F32, _, WORDS) if plain => regs.map(exec, d, a, |x: bf16| from_half(x.to_f32())),
        (Type::F32, Type::F16, Round::Nearest, WORDS) if !c.ftz => {
            regs.map(exec, d, a, |x: f32| to_half::<f16>(c, x))
        }
        (Type::F32, Type::BF16, Round::Nearest, WORDS) if !c.ftz => {
            regs.map(exec, d, a, |x: f32| to_half::<bf16>(c, x))
        }
        (Type::F32, Type::F32, _, WORDS) if plain && c.integral => whole_f32(regs, exec, c.round, d, a),
        (_, _, _, (d_wide, a_wide)) => {
            for lane in lanes(exec) {
                let value = one(c, regs.get((a, a_wide), lane));
                let value = if d_wide == Wide::One { value & u64::from(u32::MAX) } else { value };
                regs.set((d, d_wide), lane, value);
            }
        }
    }
}

/// Converts to a half, to nearest.
#[inline(always)]
fn to_half<T: Half>(c: &Convert, x: f32) -> u32 {
    let mode = Mode { sat: c.sat, relu: c.relu, ..PLAIN };
    half::finish::<T>(mode, T::narrow(f64::from(x)))
}

#[inline(always)]
fn from_half(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(0x7fff_ffff) } else { x }
}

#[inline(always)]
fn whole_f32(regs: &mut Regs, exec: u32, round: Round, d: Reg, a: Reg) {
    match round {
        Round::Nearest => regs.map(exec, d, a, |x: f32| from_half(x.round_ties_even())),
        Round::Zero => regs.map(exec, d, a, |x: f32| from_half(x.trunc())),
        Round::Down => regs.map(exec, d, a, |x: f32| from_half(x.floor())),
        Round::Up => regs.map(exec, d, a, |x: f32| from_half(x.ceil())),
        Round::Away => unreachable!("not a rounding of `cvt` to whole numbers"),
    }
}

/// Converts one value, by its bits. The bits of the result are extended to 64 by the sign of the type.
fn one(c: &Convert, bits: u64) -> u64 {
    match (c.from.class(), c.to.class()) {
        (Class::Int, Class::Int) => int_to_int(c, bits),
        (Class::Int, Class::Bits | Class::Float) => {
            float_result(c, Exact::of_int(int_value(c.from, bits)).round(format(c.to), c.round))
        }
        (Class::Bits | Class::Float, Class::Int) => float_to_int(c, value(c, bits)),
        (Class::Bits | Class::Float, Class::Bits | Class::Float) => {
            let mut x = value(c, bits);
            if c.integral {
                x = whole(x, c.round);
            }
            if c.to == c.from && x.is_nan() && c.to == Type::F64 {
                return bits;
            }
            float_result(c, soft::compute(Exactly::Same, [x, 0.0, 0.0], format(c.to), c.round))
        }
        (Class::Pred, _) | (_, Class::Pred) => unreachable!("predicates are not converted"),
    }
}

fn format(ty: Type) -> Format {
    match ty {
        Type::F16 | Type::F16x2 => soft::F16,
        Type::BF16 | Type::BF16x2 => soft::BF16,
        Type::TF32 => soft::TF32,
        Type::F32 => soft::F32,
        Type::F64 => soft::F64,
        Type::Pred
        | Type::B8
        | Type::B16
        | Type::B32
        | Type::B64
        | Type::U16x2
        | Type::S16x2
        | Type::U8
        | Type::U16
        | Type::U32
        | Type::U64
        | Type::S8
        | Type::S16
        | Type::S32
        | Type::S64 => unreachable!("not a float"),
    }
}

/// Returns the value of a float operand.
fn value(c: &Convert, bits: u64) -> f64 {
    let flushed = |x: f32| if c.ftz && x.is_subnormal() { 0f32.copysign(x) } else { x };
    match c.from {
        Type::F16 => f16::from_bits(bits as u16).to_f64(),
        Type::BF16 => bf16::from_bits(bits as u16).to_f64(),
        Type::F64 => f64::from_bits(bits),
        _f32 => f64::from(flushed(f32::from_bits(bits as u32))),
    }
}

fn int_value(ty: Type, bits: u64) -> i128 {
    let unused = 64 - 8 * ty.bytes();
    if ty.is_signed() {
        i128::from((bits << unused) as i64 >> unused)
    } else {
        i128::from(bits << unused >> unused)
    }
}

fn range(ty: Type) -> (i128, i128) {
    let width = 8 * ty.bytes();
    if ty.is_signed() { (-(1 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) }
}

fn int_to_int(c: &Convert, bits: u64) -> u64 {
    let x = int_value(c.from, bits);
    let (least, most) = range(c.to);
    // A result in a wider register is extended by the sign of the type.
    int_bits(c, if c.sat { x.clamp(least, most) } else { int_value(c.to, x as u64) })
}

/// Returns the bits of a value in the register, extended to its width by the value's sign.
fn int_bits(c: &Convert, x: i128) -> u64 {
    match c.wide.0 {
        Wide::One => u64::from(x as u32),
        Wide::Two => x as u64,
    }
}

fn whole(x: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => x.round_ties_even(),
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
        Round::Away => x.round(),
    }
}

fn float_to_int(c: &Convert, x: f64) -> u64 {
    let (least, most) = range(c.to);
    if x.is_nan() {
        // The ISA defines the result for NaN as zero, or as the top bit alone where one side has 64 bits.
        let top = c.to.bytes() == 8 || c.from == Type::F64;
        let upper = if c.to.is_signed() { least } else { most / 2 + 1 };
        return int_bits(c, if top { upper } else { 0 });
    }
    // The host's conversion saturates at a range that includes this one.
    int_bits(c, (whole(x, c.round) as i128).clamp(least, most))
}

/// Applies the modifiers of a float result.
fn float_result(c: &Convert, bits: u64) -> u64 {
    let format = format(c.to);
    let top = 1u64 << (8 * c.to.bytes().min(8) - 1);
    let bits = if c.to == Type::TF32 { bits << 13 } else { bits };
    let one = soft::compute(Exactly::Same, [1.0, 0.0, 0.0], format, Round::Nearest);
    let is_nan = bits & !top
        > soft::compute(Exactly::Same, [f64::INFINITY, 0.0, 0.0], format, Round::Nearest)
            << if c.to == Type::TF32 { 13 } else { 0 };
    if c.sat {
        return if is_nan || bits & top != 0 { 0 } else { bits.min(one) };
    }
    if c.relu && bits & top != 0 && !is_nan {
        return 0;
    }
    if c.ftz && c.to == Type::F32 && (bits & !top) < 0x0080_0000 { bits & top } else { bits }
}

/// Converts two f32 to the halves of a register.
pub(super) fn pair(
    regs: &mut Regs,
    exec: u32,
    (to, round, relu): (Float, Round, bool),
    d: Reg,
    (a, b): (Reg, Reg),
) {
    let to = match to {
        Float::BF16 | Float::BF16x2 => Type::BF16,
        Float::F16 | Float::F16x2 | Float::F32 | Float::F64 => Type::F16,
    };
    let wide = (Wide::One, Wide::One);
    let c = Convert { to, from: Type::F32, round, integral: false, ftz: false, sat: false, relu, wide };
    if round == Round::Nearest {
        return match to {
            Type::BF16 => regs
                .map2(exec, d, a, b, |a: f32, b: f32| to_half::<bf16>(&c, a) << 16 | to_half::<bf16>(&c, b)),
            _f16 => {
                regs.map2(exec, d, a, b, |a: f32, b: f32| to_half::<f16>(&c, a) << 16 | to_half::<f16>(&c, b))
            }
        };
    }
    for lane in lanes(exec) {
        let half = |reg| one(&c, regs.get((reg, Wide::One), lane));
        let value = half(a) << 16 | half(b);
        regs.set((d, Wide::One), lane, value);
    }
}
