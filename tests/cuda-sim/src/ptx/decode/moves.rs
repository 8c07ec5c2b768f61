//! Decoder of comparisons, selections and moves.

use super::super::ParseError;
use super::super::body::Body;
use super::super::ir::{Alu, Bits, Cmp, Float, Logic, Number, Op, PredSrc, Reg, Space, Wide};
use super::super::lex::Tok;
use super::super::operand::Names;
use super::super::types::{Class, Type};
use super::{Decoded, Mods, arithmetic_int, bits_type, float_type, unsigned, width};

fn next(b: &mut Body<'_, '_>, ty: Type) -> Result<u32, ParseError> {
    b.comma()?;
    b.src(ty)
}

pub(super) fn choice(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    match m.name {
        "setp" => setp(b, m),
        "set" => set(b, m),
        "selp" => {
            let ty = m.ty(b)?;
            let Some(bits) = width(ty).filter(|_| fundamental(ty)) else { return m.no_type(b, ty) };
            let (d, x, y) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?);
            b.comma()?;
            let p = b.pred()?;
            Ok(Op::Alu(Alu::Selp { bits, d, a: x, b: y, p }))
        }
        _slct => {
            let (ty, by) = (m.ty(b)?, m.ty(b)?);
            let ftz = by == Type::F32 && m.flag("ftz");
            let Some(bits) = width(ty).filter(|_| fundamental(ty)) else { return m.no_type(b, ty) };
            if !matches!(by, Type::S32 | Type::F32) {
                return m.no_type(b, by);
            }
            let (d, x, y, z) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?, next(b, by)?);
            Ok(Op::Alu(Alu::Slct { bits, float: by == Type::F32, ftz, d, a: x, b: y, c: z }))
        }
    }
}

/// Returns true if `mov`, `selp` and `slct` have the type.
fn fundamental(ty: Type) -> bool {
    ty != Type::F16 && !ty.is_packed()
}

const COMPARISONS: [(&str, Cmp); 18] = [
    ("eq", Cmp::Eq),
    ("ne", Cmp::Ne),
    ("lt", Cmp::Lt),
    ("le", Cmp::Le),
    ("gt", Cmp::Gt),
    ("ge", Cmp::Ge),
    ("lo", Cmp::Lt),
    ("ls", Cmp::Le),
    ("hi", Cmp::Gt),
    ("hs", Cmp::Ge),
    ("equ", Cmp::Equ),
    ("neu", Cmp::Neu),
    ("ltu", Cmp::Ltu),
    ("leu", Cmp::Leu),
    ("gtu", Cmp::Gtu),
    ("geu", Cmp::Geu),
    ("num", Cmp::Num),
    ("nan", Cmp::Nan),
];

const LOGIC: [(&str, Logic); 3] = [("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)];

/// Returns the type in which `setp` and `set` compare, if the type has the comparison.
fn compared(b: &Body<'_, '_>, m: &Mods<'_>, cmp: Cmp, ty: Type) -> Result<Number, ParseError> {
    if let Some(float) = float_type(ty) {
        return Ok(Number::Float(float));
    }
    let int = arithmetic_int(ty).or(bits_type(ty).map(unsigned));
    let ordered = matches!(cmp, Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge);
    match int {
        Some(int) if matches!(cmp, Cmp::Eq | Cmp::Ne) || (ordered && ty.class() == Class::Int) => {
            Ok(Number::Int(int))
        }
        Some(_) => b.wrong(m.at, "this type has no such comparison"),
        None => m.no_type(b, ty),
    }
}

fn flush(m: &mut Mods<'_>, number: Number) -> bool {
    matches!(number, Number::Float(Float::F32 | Float::F16 | Float::F16x2)) && m.flag("ftz")
}

/// Parses `, c` after the operands, if the instruction names an operation to combine with.
fn combined(b: &mut Body<'_, '_>, logic: Option<Logic>) -> Result<Option<(Logic, PredSrc)>, ParseError> {
    let Some(logic) = logic else { return Ok(None) };
    b.comma()?;
    Ok(Some((logic, b.pred()?)))
}

fn setp(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let cmp = m.need(b, "the comparison", &COMPARISONS)?;
    let (logic, ty) = (m.pick(&LOGIC), m.ty(b)?);
    let number = compared(b, m, cmp, ty)?;
    let ftz = flush(m, number);
    let p = b.dst_or_sink(Type::Pred)?;
    let q = if b.p.take("|") { b.dst_or_sink(Type::Pred)? } else { None };
    let (x, y) = (next(b, ty)?, next(b, ty)?);
    let and = combined(b, logic)?;
    Ok(Op::Alu(Alu::Setp { cmp, ty: number, ftz, and, p, q, a: x, b: y }))
}

fn set(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let cmp = m.need(b, "the comparison", &COMPARISONS)?;
    let (logic, to, ty) = (m.pick(&LOGIC), m.ty(b)?, m.ty(b)?);
    let number = compared(b, m, cmp, ty)?;
    let ftz = flush(m, number);
    let pairs = matches!(ty, Type::F16x2 | Type::BF16x2);
    let halves = pairs || matches!(ty, Type::F16 | Type::BF16);
    // True is all ones or 1.0. For pairs this is the value of each half.
    let truth = match (to, pairs) {
        (Type::U32 | Type::S32, false) => u32::MAX,
        (Type::U32 | Type::S32, true) => 0xffff,
        (Type::U16 | Type::S16, false) if halves => 0xffff,
        (Type::F32, false) if !halves => 1f32.to_bits(),
        (Type::F16, false) | (Type::F16x2, true) if to == ty || !pairs => 0x3c00,
        (Type::BF16, false) | (Type::BF16x2, true) if to == ty || !pairs => 0x3f80,
        (_, _) => return m.no_type(b, to),
    };
    let (d, x, y) = (b.dst(to)?, next(b, ty)?, next(b, ty)?);
    let and = combined(b, logic)?;
    Ok(Op::Alu(Alu::Set { cmp, ty: number, ftz, and, truth, d, a: x, b: y }))
}

pub(super) fn moves(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    match m.name {
        "mov" => mov(b, m),
        "cvta" => {
            let (to, space, ty) = (m.flag("to"), window(b, m)?, m.ty(b)?);
            pointer(b, m, ty)?;
            let d = b.dst(ty)?;
            b.comma()?;
            let a = b.src_named(ty, if to { Names::None } else { Names::Address(variables(space)) })?;
            Ok(Op::Cvta { space, to, d, a })
        }
        "isspacep" => {
            let (space, d) = (window(b, m)?, b.dst(Type::Pred)?);
            let a = next(b, Type::U64)?;
            Ok(Op::IsSpace { space, d, a })
        }
        _of_the_cluster => rank(b, m),
    }
}

/// Decodes `mapa`, which maps an address of shared memory to a block of the cluster, and `getctarank`, its
/// inverse.
fn rank(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let (generic, ty) = (!m.flag("shared::cluster"), m.ty(b)?);
    if generic {
        pointer(b, m, ty)?;
    }
    let maps = m.name == "mapa";
    let d = b.dst(if maps { ty } else { Type::U32 })?;
    b.comma()?;
    let a = b.src_named(ty, if generic { Names::None } else { Names::Address(Space::Shared) })?;
    let wide = whole(ty);
    Ok(if maps {
        let rank = next(b, Type::U32)?;
        Op::MapRank { generic, wide, d, a, b: rank }
    } else {
        Op::RankOf { generic, wide, d, a }
    })
}

fn window(b: &Body<'_, '_>, m: &mut Mods<'_>) -> Result<Space, ParseError> {
    const SPACES: [(&str, Space); 6] = [
        ("global", Space::Global),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("shared::cluster", Space::Cluster),
        ("local", Space::Local),
        ("const", Space::Const),
    ];
    m.need(b, "the space", &SPACES)
}

/// Returns the state space of the variables that an address window contains.
fn variables(space: Space) -> Space {
    match space {
        Space::Cluster => Space::Shared,
        Space::Generic | Space::Global | Space::Const | Space::Shared | Space::Local | Space::Param => space,
    }
}

fn pointer(b: &Body<'_, '_>, m: &Mods<'_>, ty: Type) -> Result<(), ParseError> {
    if ty == Type::U64 { Ok(()) } else { m.no_type(b, ty) }
}

fn mov(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let ty = m.ty(b)?;
    if ty == Type::Pred {
        let d = b.dst(Type::Pred)?;
        b.comma()?;
        let a = b.pred_named(Names::All)?;
        return Ok(Op::Alu(Alu::PredMove { d, a }));
    }
    let Some(bits) = width(ty).filter(|_| fundamental(ty)) else { return m.no_type(b, ty) };
    if matches!(b.p.peek(), Tok::Sign("{")) {
        return unpack(b, m, ty);
    }
    let d = b.dst(ty)?;
    b.comma()?;
    if matches!(b.p.peek(), Tok::Sign("{")) {
        return pack(b, m, ty, d);
    }
    let a = b.src_named(ty, Names::All)?;
    Ok(Op::Alu(Alu::Move { bits, d, a }))
}

/// Returns the type of `count` elements that fill a register.
fn part(b: &Body<'_, '_>, m: &Mods<'_>, ty: Type, count: usize) -> Result<(Type, Bits), ParseError> {
    let bytes = ty.bytes() as usize;
    match (count * 2 == bytes, count * 4 == bytes) {
        _ if ty.class() != Class::Bits || count < 2 => b.wrong(m.at, "only `.bN` is made of parts"),
        (true, _) => Ok((Type::B16, Bits::B16)),
        (_, true) => Ok((Type::B32, Bits::B32)),
        (false, false) => b.wrong(m.at, format!("{count} parts of {bytes} bytes are not supported")),
    }
}

fn whole(ty: Type) -> Wide {
    if ty.bytes() == 8 { Wide::Two } else { Wide::One }
}

/// Returns the number of elements in the next braces.
fn ahead(b: &Body<'_, '_>) -> usize {
    let rest = &b.p.text[b.p.at()..];
    rest[..rest.find('}').unwrap_or(rest.len())].matches(',').count() + 1
}

fn unpack(b: &mut Body<'_, '_>, m: &Mods<'_>, ty: Type) -> Decoded {
    let (part, element) = part(b, m, ty, ahead(b))?;
    let d: Vec<Option<Reg>> = b.vector(|b| b.dst_or_sink(part))?;
    if d.iter().all(Option::is_none) {
        return b.wrong(m.at, "one of the parts goes to a register");
    }
    b.comma()?;
    let a = b.src_named(ty, Names::All)?;
    Ok(Op::Alu(Alu::Unpack { element, whole: whole(ty), d: d.into(), a }))
}

fn pack(b: &mut Body<'_, '_>, m: &Mods<'_>, ty: Type, d: Reg) -> Decoded {
    let (part, element) = part(b, m, ty, ahead(b))?;
    let a: Vec<Reg> = b.vector(|b| b.src(part))?;
    Ok(Op::Alu(Alu::Pack { element, whole: whole(ty), d, a: a.into() }))
}
