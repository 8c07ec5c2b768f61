//! Decoder of arithmetic instructions that have one name for integers and floats.

use super::super::body::Body;
use super::super::ir::{Alu, CarryOp, FloatBin, FloatUn, Int, IntBin, IntTri, IntUn, Op};
use super::super::types::Type;
use super::{Decoded, Mods, arithmetic_int, bits_type, float, unsigned};

/// Part of a product that is the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Lo,
    Hi,
    Wide,
}

const PARTS: [(&str, Part); 3] = [("lo", Part::Lo), ("hi", Part::Hi), ("wide", Part::Wide)];

pub(super) fn arithmetic(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    match m.name {
        "addc" | "subc" | "madc" => return carry(b, m, true),
        "add" | "sub" if has(m, "cc") => return carry(b, m, false),
        "mad" if has(m, "cc") => return carry(b, m, false),
        _ => {}
    }
    let ty = m.ty(b)?;
    if matches!(ty, Type::U16x2 | Type::S16x2) {
        return pairs(b, m, ty);
    }
    let Some(int) = arithmetic_int(ty) else { return floats(b, m, ty) };
    let name = m.name;
    match name {
        "add" if m.flag("sat") => saturating(b, m, int, IntBin::AddSat),
        "sub" if m.flag("sat") => saturating(b, m, int, IntBin::SubSat),
        "add" => binary(b, ty, int, IntBin::Add),
        "sub" => binary(b, ty, int, IntBin::Sub),
        "min" | "max" => binary(b, ty, int, extreme(m)),
        "div" => binary(b, ty, int, IntBin::Div),
        "rem" => binary(b, ty, int, IntBin::Rem),
        "mul" => match m.need(b, "the part of the product", &PARTS)? {
            Part::Lo => binary(b, ty, int, IntBin::MulLo),
            Part::Hi => binary(b, ty, int, IntBin::MulHi),
            Part::Wide => {
                let (d, a, c) = (wide(b, m, ty)?, next(b, ty)?, next(b, ty)?);
                Ok(Op::Alu(Alu::MulWide { ty: int, d, a, b: c }))
            }
        },
        "mad" => mad(b, m, ty, int),
        "mul24" if matches!(int, Int::U32 | Int::S32) => {
            let op =
                m.need(b, "the part of the product", &[("lo", IntBin::Mul24Lo), ("hi", IntBin::Mul24Hi)])?;
            binary(b, ty, int, op)
        }
        "mad24" if matches!(int, Int::U32 | Int::S32) => {
            let parts = [("lo", IntTri::Mad24Lo), ("hi", IntTri::Mad24Hi)];
            let op = m.need(b, "the part of the product", &parts)?;
            let saturates = op == IntTri::Mad24Hi && int == Int::S32 && m.flag("sat");
            ternary(b, ty, int, if saturates { IntTri::Mad24HiSat } else { op })
        }
        "sad" => ternary(b, ty, int, IntTri::Sad),
        "neg" if ty.is_signed() => unary(b, ty, int, IntUn::Neg),
        "abs" if ty.is_signed() => unary(b, ty, int, IntUn::Abs),
        _ => m.no_type(b, ty),
    }
}

/// Returns the minimum or maximum, clamped to no less than 0 with `.relu`.
fn extreme(m: &mut Mods<'_>) -> IntBin {
    match (m.name, m.flag("relu")) {
        ("min", false) => IntBin::Min,
        ("min", true) => IntBin::MinRelu,
        (_max, false) => IntBin::Max,
        (_max, true) => IntBin::MaxRelu,
    }
}

fn pairs(b: &mut Body<'_, '_>, m: &mut Mods<'_>, ty: Type) -> Decoded {
    let op = match m.name {
        "add" => IntBin::Add,
        "min" | "max" => extreme(m),
        _ => return m.no_type(b, ty),
    };
    let int = if ty == Type::S16x2 { Int::S16 } else { Int::U16 };
    let (d, x, y) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?);
    Ok(Op::Alu(Alu::IntPair { op, ty: int, d, a: x, b: y }))
}

fn has(m: &Mods<'_>, name: &str) -> bool {
    m.list.iter().any(|(word, _)| *word == name)
}

fn floats(b: &mut Body<'_, '_>, m: &mut Mods<'_>, ty: Type) -> Decoded {
    match m.name {
        "add" => float::binary(b, m, ty, FloatBin::Add),
        "sub" => float::binary(b, m, ty, FloatBin::Sub),
        "mul" => float::binary(b, m, ty, FloatBin::Mul),
        "div" => float::binary(b, m, ty, FloatBin::Div),
        "min" => float::binary(b, m, ty, FloatBin::Min),
        "max" => float::binary(b, m, ty, FloatBin::Max),
        "neg" => float::unary(b, m, ty, FloatUn::Neg),
        "abs" => float::unary(b, m, ty, FloatUn::Abs),
        "fma" => float::fma(b, m, ty),
        // `mad` of floats is another name of `fma`.
        "mad" if matches!(ty, Type::F32 | Type::F64) => float::fma(b, m, ty),
        _ => m.no_type(b, ty),
    }
}

/// Parses a comma and an operand.
fn next(b: &mut Body<'_, '_>, ty: Type) -> Result<u32, super::ParseError> {
    b.comma()?;
    b.src(ty)
}

fn unary(b: &mut Body<'_, '_>, ty: Type, int: Int, op: IntUn) -> Decoded {
    let (d, a) = (b.dst(ty)?, next(b, ty)?);
    Ok(Op::Alu(Alu::IntUn { op, ty: int, d, a }))
}

fn binary(b: &mut Body<'_, '_>, ty: Type, int: Int, op: IntBin) -> Decoded {
    let (d, x, y) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?);
    Ok(Op::Alu(Alu::IntBin { op, ty: int, d, a: x, b: y }))
}

fn ternary(b: &mut Body<'_, '_>, ty: Type, int: Int, op: IntTri) -> Decoded {
    let (d, x, y, z) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?, next(b, ty)?);
    Ok(Op::Alu(Alu::IntTri { op, ty: int, d, a: x, b: y, c: z }))
}

fn saturating(b: &mut Body<'_, '_>, m: &Mods<'_>, int: Int, op: IntBin) -> Decoded {
    if int == Int::S32 { binary(b, Type::S32, int, op) } else { b.wrong(m.at, "only `.s32` saturates") }
}

fn doubled(b: &Body<'_, '_>, m: &Mods<'_>, ty: Type) -> Result<Type, super::ParseError> {
    const DOUBLED: [(Type, Type); 4] =
        [(Type::U16, Type::U32), (Type::S16, Type::S32), (Type::U32, Type::U64), (Type::S32, Type::S64)];
    let found = DOUBLED.iter().find(|(single, _)| *single == ty);
    found.map_or_else(|| b.wrong(m.at, "no type is wider than this"), |(_, double)| Ok(*double))
}

fn wide(b: &mut Body<'_, '_>, m: &Mods<'_>, ty: Type) -> Result<u32, super::ParseError> {
    let ty = doubled(b, m, ty)?;
    b.dst(ty)
}

fn mad(b: &mut Body<'_, '_>, m: &mut Mods<'_>, ty: Type, int: Int) -> Decoded {
    match m.need(b, "the part of the product", &PARTS)? {
        Part::Lo => ternary(b, ty, int, IntTri::MadLo),
        Part::Hi if m.flag("sat") => {
            if int == Int::S32 {
                ternary(b, ty, int, IntTri::MadHiSat)
            } else {
                b.wrong(m.at, "only `.s32` saturates")
            }
        }
        Part::Hi => ternary(b, ty, int, IntTri::MadHi),
        Part::Wide => {
            let sum = doubled(b, m, ty)?;
            let (d, x, y, z) = (b.dst(sum)?, next(b, ty)?, next(b, ty)?, next(b, sum)?);
            Ok(Op::Alu(Alu::MadWide { ty: int, d, a: x, b: y, c: z }))
        }
    }
}

/// Decodes `add.cc`, `addc`, `addc.cc` and their forms for `sub` and `mad`.
fn carry(b: &mut Body<'_, '_>, m: &mut Mods<'_>, carry_in: bool) -> Decoded {
    let (carry_out, ty) = (m.flag("cc"), m.ty(b)?);
    // Signed, unsigned and untyped bits carry the same.
    let int = arithmetic_int(ty).or(bits_type(ty).map(unsigned)).filter(|_| ty.bytes() >= 4);
    let Some(int) = int else { return m.no_type(b, ty) };
    let op = match m.name {
        "add" | "addc" => CarryOp::Add,
        "sub" | "subc" => CarryOp::Sub,
        _mad => m.need(b, "the part of the product", &[("lo", CarryOp::MadLo), ("hi", CarryOp::MadHi)])?,
    };
    let (d, x, y) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?);
    let z = if matches!(op, CarryOp::MadLo | CarryOp::MadHi) { next(b, ty)? } else { x };
    Ok(Op::Alu(Alu::Carry { op, ty: int, carry_in, carry_out, d, a: x, b: y, c: z }))
}
