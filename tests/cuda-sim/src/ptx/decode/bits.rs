//! Decoder of logic, shifts and other instructions on bits.

use super::super::ParseError;
use super::super::body::Body;
use super::super::ir::{Alu, Count, Dot, Int, IntBin, IntUn, Logic, Op, Prmt, Shift, Wide};
use super::super::types::Type;
use super::{Decoded, Mods, arithmetic_int, bits_type, unsigned};

fn next(b: &mut Body<'_, '_>, ty: Type) -> Result<u32, ParseError> {
    b.comma()?;
    b.src(ty)
}

pub(super) fn bits(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let ty = if matches!(m.name, "prmt" | "dp4a" | "dp2a" | "vabsdiff4") { Type::B32 } else { m.ty(b)? };
    match m.name {
        "and" | "or" | "xor" => logic(b, m, ty),
        "not" if ty == Type::Pred => {
            let d = b.dst(Type::Pred)?;
            b.comma()?;
            let mut a = b.pred()?;
            a.negated = !a.negated;
            Ok(Op::Alu(Alu::PredMove { d, a }))
        }
        "not" => unary(b, m, ty, IntUn::Not),
        "cnot" => unary(b, m, ty, IntUn::Cnot),
        "brev" if ty != Type::B16 => unary(b, m, ty, IntUn::Brev),
        "popc" if ty != Type::B16 => count(b, m, ty, Count::Popc),
        "clz" if ty != Type::B16 => count(b, m, ty, Count::Clz),
        "bfind" => {
            let op = if m.flag("shiftamt") { Count::BfindShift } else { Count::Bfind };
            let Some(int) = arithmetic_int(ty).filter(|_| ty.bytes() >= 4) else { return m.no_type(b, ty) };
            let (d, a) = (b.dst(Type::U32)?, next(b, ty)?);
            Ok(Op::Alu(Alu::Count { op, ty: int, d, a }))
        }
        "shl" | "shr" => shift(b, m, ty),
        "shf" if ty == Type::B32 => funnel(b, m),
        "lop3" if ty == Type::B32 => lop3(b, m),
        "bmsk" if ty == Type::B32 => {
            let clamp = clamps(b, m)?;
            let (d, x, y) = (b.dst(Type::U32)?, next(b, Type::U32)?, next(b, Type::U32)?);
            Ok(Op::Alu(Alu::Mask { clamp, d, a: x, b: y }))
        }
        "szext" if matches!(ty, Type::U32 | Type::S32) => {
            let (clamp, int) = (clamps(b, m)?, if ty == Type::S32 { Int::S32 } else { Int::U32 });
            let (d, x, y) = (b.dst(ty)?, next(b, ty)?, next(b, Type::U32)?);
            Ok(Op::Alu(Alu::Extend { clamp, ty: int, d, a: x, b: y }))
        }
        "fns" if ty == Type::B32 => {
            let (d, x, y, z) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?, next(b, ty)?);
            Ok(Op::Alu(Alu::Fns { d, a: x, b: y, c: z }))
        }
        "prmt" => permute(b, m),
        "bfe" | "bfi" => field(b, m, ty),
        "vabsdiff4" => {
            let types = [m.ty(b)?, m.ty(b)?, m.ty(b)?];
            if let Some(&other) = types.iter().find(|ty| **ty != Type::U32) {
                return m.no_type(b, other);
            }
            let (d, [x, y, z]) = (b.dst(Type::U32)?, [video(b)?, video(b)?, video(b)?]);
            // Without `.add` the result replaces all bytes of the third operand, which therefore does not
            // matter.
            Ok(Op::Alu(Alu::AbsDiff { add: m.flag("add").then_some(z), d, a: x, b: y }))
        }
        "dp4a" | "dp2a" => {
            let dot = match m.name {
                "dp4a" => Dot::Bytes,
                _dp2a => m.need(b, "the bytes", &[("lo", Dot::HalvesLow), ("hi", Dot::HalvesHigh)])?,
            };
            let (first, second) = (m.ty(b)?, m.ty(b)?);
            if !matches!((first, second), (Type::U32 | Type::S32, Type::U32 | Type::S32)) {
                return m.no_type(b, first);
            }
            let (d, x, y, z) =
                (b.dst(Type::U32)?, next(b, Type::U32)?, next(b, Type::U32)?, next(b, Type::U32)?);
            let signed = (first.is_signed(), second.is_signed());
            Ok(Op::Alu(Alu::Dot { dot, signed, d, a: x, b: y, c: z }))
        }
        _ => m.no_type(b, ty),
    }
}

/// Parses an operand of a video instruction, which cannot be a constant.
fn video(b: &mut Body<'_, '_>) -> Result<u32, ParseError> {
    b.comma()?;
    let (at, reg) = (b.p.at(), b.src(Type::U32)?);
    if b.constant_in(reg).is_some() { b.wrong(at, "operands are registers here") } else { Ok(reg) }
}

fn logic(b: &mut Body<'_, '_>, m: &Mods<'_>, ty: Type) -> Decoded {
    if ty == Type::Pred {
        let op = match m.name {
            "and" => Logic::And,
            "or" => Logic::Or,
            _xor => Logic::Xor,
        };
        let d = b.dst(Type::Pred)?;
        b.comma()?;
        let x = b.pred()?;
        b.comma()?;
        let y = b.pred()?;
        return Ok(Op::Alu(Alu::PredBin { op, d, a: x, b: y }));
    }
    let Some(bits) = bits_type(ty) else { return m.no_type(b, ty) };
    let op = match m.name {
        "and" => IntBin::And,
        "or" => IntBin::Or,
        _xor => IntBin::Xor,
    };
    let (d, x, y) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?);
    Ok(Op::Alu(Alu::IntBin { op, ty: unsigned(bits), d, a: x, b: y }))
}

fn unary(b: &mut Body<'_, '_>, m: &Mods<'_>, ty: Type, op: IntUn) -> Decoded {
    let Some(bits) = bits_type(ty) else { return m.no_type(b, ty) };
    let (d, a) = (b.dst(ty)?, next(b, ty)?);
    Ok(Op::Alu(Alu::IntUn { op, ty: unsigned(bits), d, a }))
}

fn count(b: &mut Body<'_, '_>, m: &Mods<'_>, ty: Type, op: Count) -> Decoded {
    let Some(bits) = bits_type(ty) else { return m.no_type(b, ty) };
    let (d, a) = (b.dst(Type::U32)?, next(b, ty)?);
    Ok(Op::Alu(Alu::Count { op, ty: unsigned(bits), d, a }))
}

fn shift(b: &mut Body<'_, '_>, m: &Mods<'_>, ty: Type) -> Decoded {
    let (shift, int) = match m.name {
        "shl" => (Shift::Left, bits_type(ty).map(unsigned)),
        _shr => (Shift::Right, bits_type(ty).map(unsigned).or(arithmetic_int(ty))),
    };
    let Some(int) = int else { return m.no_type(b, ty) };
    let (d, a, amount) = (b.dst(ty)?, next(b, ty)?, next(b, Type::U32)?);
    Ok(Op::Alu(Alu::Shift { shift, ty: int, d, a, b: amount }))
}

/// Returns true if amounts beyond 32 are clamped to 32, and false if they wrap.
fn clamps(b: &Body<'_, '_>, m: &mut Mods<'_>) -> Result<bool, ParseError> {
    m.need(b, "what happens beyond 32", &[("wrap", false), ("clamp", true)])
}

fn funnel(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let shift = m.need(b, "the direction", &[("l", Shift::Left), ("r", Shift::Right)])?;
    let wrap = !clamps(b, m)?;
    let ty = Type::B32;
    let (d, x, y, z) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?, next(b, Type::U32)?);
    Ok(Op::Alu(Alu::Funnel { shift, wrap, d, a: x, b: y, c: z }))
}

fn table(b: &mut Body<'_, '_>) -> Result<u8, ParseError> {
    b.comma()?;
    Ok(b.p.small("a table of 8 bits")? as u8)
}

fn lop3(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let (op, ty) = (m.pick(&[("or", Logic::Or), ("and", Logic::And)]), Type::B32);
    let Some(op) = op else {
        let (d, [x, y, z], table) = (b.dst(ty)?, [next(b, ty)?, next(b, ty)?, next(b, ty)?], table(b)?);
        return Ok(Op::Alu(Alu::Lop3 { table, d, a: x, b: y, c: z }));
    };
    // An unused result is computed as well, into a row that nothing reads.
    let d = b.dst_or_sink(ty)?.unwrap_or_else(|| b.row(Wide::One));
    b.sign("|")?;
    let p = b.dst(Type::Pred)?;
    let (abc, table) = ([next(b, ty)?, next(b, ty)?, next(b, ty)?], table(b)?);
    b.comma()?;
    Ok(Op::Alu(Alu::Lop3Pred { table, op, d, p, abc, q: b.pred()? }))
}

const MODES: [(&str, Prmt); 6] = [
    ("f4e", Prmt::F4e),
    ("b4e", Prmt::B4e),
    ("rc8", Prmt::Rc8),
    ("ecl", Prmt::Ecl),
    ("ecr", Prmt::Ecr),
    ("rc16", Prmt::Rc16),
];

fn permute(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let (ty, mode) = (m.ty(b)?, m.pick(&MODES).unwrap_or(Prmt::Index));
    if ty != Type::B32 {
        return m.no_type(b, ty);
    }
    let (d, x, y, z) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?, next(b, ty)?);
    Ok(Op::Alu(Alu::Prmt { mode, d, a: x, b: y, c: z }))
}

fn field(b: &mut Body<'_, '_>, m: &Mods<'_>, ty: Type) -> Decoded {
    if ty.bytes() < 4 {
        return m.no_type(b, ty);
    }
    let place = |b: &mut Body<'_, '_>| {
        b.comma()?;
        b.src_of(Type::U32, "place or length of a field", |value| value < 256)
    };
    if m.name == "bfe" {
        let Some(int) = arithmetic_int(ty) else { return m.no_type(b, ty) };
        let (d, x, y, z) = (b.dst(ty)?, next(b, ty)?, place(b)?, place(b)?);
        return Ok(Op::Alu(Alu::Bfe { ty: int, d, a: x, b: y, c: z }));
    }
    let Some(bits) = bits_type(ty) else { return m.no_type(b, ty) };
    let (d, x, y, z, e) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?, place(b)?, place(b)?);
    Ok(Op::Alu(Alu::Bfi { ty: unsigned(bits), d, a: x, b: y, c: z, e }))
}
