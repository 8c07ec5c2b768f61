//! Decoder of instructions on floats, and of conversions.

use super::super::ParseError;
use super::super::body::Body;
use super::super::ir::{Alu, Convert, Float, FloatBin, FloatUn, Mode, Op, PLAIN, Round, Test};
use super::super::operand::Names;
use super::super::types::{Class, Type};
use super::{Decoded, Mods, ROUNDINGS, float_type};

fn known(b: &Body<'_, '_>, m: &Mods<'_>, ty: Type) -> Result<Float, ParseError> {
    float_type(ty).map_or_else(|| m.no_type(b, ty), Ok)
}

/// Parses the rounding of an arithmetic instruction of a type.
fn rounding(b: &Body<'_, '_>, m: &mut Mods<'_>, float: Float) -> Result<Option<Round>, ParseError> {
    let round = m.pick(&ROUNDINGS);
    match (float, round) {
        (Float::F32 | Float::F64, _) | (_, None | Some(Round::Nearest)) => Ok(round),
        (Float::F16 | Float::BF16 | Float::F16x2 | Float::BF16x2, Some(_)) => {
            b.wrong(m.at, "halves only round to nearest (`.rn`)")
        }
    }
}

fn may_flush(m: &mut Mods<'_>, float: Float) -> bool {
    matches!(float, Float::F32 | Float::F16 | Float::F16x2) && m.flag("ftz")
}

fn may_saturate(m: &mut Mods<'_>, float: Float) -> bool {
    matches!(float, Float::F32 | Float::F16 | Float::F16x2) && m.flag("sat")
}

fn next(b: &mut Body<'_, '_>, ty: Type) -> Result<u32, ParseError> {
    b.comma()?;
    b.src(ty)
}

pub(super) fn binary(b: &mut Body<'_, '_>, m: &mut Mods<'_>, ty: Type, op: FloatBin) -> Decoded {
    let float = known(b, m, ty)?;
    let mut mode = Mode { ftz: may_flush(m, float), ..PLAIN };
    match op {
        FloatBin::Add | FloatBin::Sub | FloatBin::Mul => {
            mode.round = rounding(b, m, float)?.unwrap_or(Round::Nearest);
            mode.sat = may_saturate(m, float);
        }
        FloatBin::Min | FloatBin::Max => {
            mode.nan = float != Float::F64 && m.flag("NaN");
            mode.xorsign = float != Float::F64 && m.flag("xorsign") && m.flag("abs");
        }
        FloatBin::Div => {
            if !matches!(float, Float::F32 | Float::F64) {
                return m.no_type(b, ty);
            }
            mode.approx = float == Float::F32 && m.flag("approx");
            let full = float == Float::F32 && m.flag("full");
            let round = rounding(b, m, float)?;
            if round.is_none() && !mode.approx && !full {
                return b.wrong(m.at, "the rounding is missing");
            }
            mode.round = round.unwrap_or(Round::Nearest);
        }
        FloatBin::CopySign => {}
    }
    let (d, x, y) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?);
    Ok(Op::Alu(Alu::FloatBin { op, ty: float, mode, d, a: x, b: y }))
}

pub(super) fn unary(b: &mut Body<'_, '_>, m: &mut Mods<'_>, ty: Type, op: FloatUn) -> Decoded {
    let float = known(b, m, ty)?;
    let mut mode = Mode { ftz: may_flush(m, float), ..PLAIN };
    let full = matches!(float, Float::F32 | Float::F64);
    match op {
        FloatUn::Neg | FloatUn::Abs => {}
        FloatUn::Sqrt | FloatUn::Rcp if full => {
            let approximate = m.flag("approx");
            if approximate && float == Float::F64 {
                // The only approximation for f64 is the coarse reciprocal, which flushes subnormals.
                if op != FloatUn::Rcp || !m.flag("ftz") {
                    return m.no_type(b, ty);
                }
                (mode.approx, mode.ftz) = (true, true);
            }
            let round = rounding(b, m, float)?;
            if round.is_none() && !approximate {
                return b.wrong(m.at, "`.approx` or the rounding is missing");
            }
            mode.round = round.unwrap_or(Round::Nearest);
        }
        FloatUn::Rsqrt if full => {
            approx(b, m)?;
            let coarse = float == Float::F64 && m.flag("ftz");
            (mode.approx, mode.ftz) = (coarse, mode.ftz || coarse);
        }
        FloatUn::Sin | FloatUn::Cos | FloatUn::Lg2 if float == Float::F32 => approx(b, m)?,
        FloatUn::Ex2 if float == Float::BF16 || float == Float::BF16x2 => {
            approx(b, m)?;
            mode.ftz = m.flag("ftz");
        }
        FloatUn::Ex2 | FloatUn::Tanh if float != Float::F64 => approx(b, m)?,
        FloatUn::Sqrt
        | FloatUn::Rcp
        | FloatUn::Rsqrt
        | FloatUn::Sin
        | FloatUn::Cos
        | FloatUn::Lg2
        | FloatUn::Ex2
        | FloatUn::Tanh => return m.no_type(b, ty),
    }
    let (d, a) = (b.dst(ty)?, next(b, ty)?);
    Ok(Op::Alu(Alu::FloatUn { op, ty: float, mode, d, a }))
}

fn approx(b: &Body<'_, '_>, m: &mut Mods<'_>) -> Result<(), ParseError> {
    if m.flag("approx") { Ok(()) } else { b.wrong(m.at, "`.approx` is missing") }
}

pub(super) fn fma(b: &mut Body<'_, '_>, m: &mut Mods<'_>, ty: Type) -> Decoded {
    let float = known(b, m, ty)?;
    let Some(round) = rounding(b, m, float)? else { return b.wrong(m.at, "the rounding is missing") };
    let halves = !matches!(float, Float::F32 | Float::F64);
    let mode = Mode {
        round,
        ftz: may_flush(m, float),
        sat: may_saturate(m, float),
        relu: halves && m.flag("relu"),
        ..PLAIN
    };
    let (d, x, y, z) = (b.dst(ty)?, next(b, ty)?, next(b, ty)?, next(b, ty)?);
    Ok(Op::Alu(Alu::Fma { ty: float, mode, d, a: x, b: y, c: z }))
}

const TESTS: [(&str, Test); 6] = [
    ("finite", Test::Finite),
    ("infinite", Test::Infinite),
    ("number", Test::Number),
    ("notanumber", Test::NotANumber),
    ("normal", Test::Normal),
    ("subnormal", Test::Subnormal),
];

pub(super) fn float(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let ty = m.ty(b)?;
    let op = match m.name {
        "sqrt" => FloatUn::Sqrt,
        "rcp" => FloatUn::Rcp,
        "rsqrt" => FloatUn::Rsqrt,
        "ex2" => FloatUn::Ex2,
        "lg2" => FloatUn::Lg2,
        "sin" => FloatUn::Sin,
        "cos" => FloatUn::Cos,
        "tanh" => FloatUn::Tanh,
        "copysign" if matches!(ty, Type::F32 | Type::F64) => {
            // The result has the sign of the first operand.
            return binary(b, m, ty, FloatBin::CopySign);
        }
        "testp" if matches!(ty, Type::F32 | Type::F64) => {
            let (test, float) = (m.need(b, "the test", &TESTS)?, known(b, m, ty)?);
            let (d, a) = (b.dst(Type::Pred)?, next(b, ty)?);
            return Ok(Op::Alu(Alu::Testp { test, ty: float, d, a }));
        }
        _ => return m.no_type(b, ty),
    };
    unary(b, m, ty, op)
}

const INTEGRAL: [(&str, Round); 4] =
    [("rni", Round::Nearest), ("rzi", Round::Zero), ("rmi", Round::Down), ("rpi", Round::Up)];

pub(super) fn cvt(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    if m.flag("pack") {
        return b.wrong(m.at, "`.pack` is not supported");
    }
    let (to, from) = (m.ty(b)?, m.ty(b)?);
    let integral = m.pick(&INTEGRAL);
    let round = if to == Type::TF32 {
        m.pick(&[("rna", Round::Away), ("rn", Round::Nearest), ("rz", Round::Zero)])
    } else {
        m.pick(&ROUNDINGS)
    };
    let relu = m.flag("relu");
    if let (Type::F16x2 | Type::BF16x2, Some(pair)) = (to, float_type(to)) {
        let Some(round) = round.filter(|round| matches!(round, Round::Nearest | Round::Zero)) else {
            return b.wrong(m.at, "`.rn` or `.rz` is missing");
        };
        if from != Type::F32 {
            return m.no_type(b, from);
        }
        let (d, x, y) = (b.dst(to)?, next(b, from)?, next(b, from)?);
        return Ok(Op::Alu(Alu::ConvertPair { to: pair, round, relu, d, a: x, b: y }));
    }
    let convert = Convert {
        to,
        from,
        round: integral.or(round).unwrap_or(Round::Zero),
        integral: integral.is_some(),
        ftz: (to == Type::F32 || from == Type::F32) && m.flag("ftz"),
        sat: m.flag("sat"),
        relu,
        wide: (super::super::ir::Wide::One, super::super::ir::Wide::One),
    };
    check(b, m, &convert, integral.is_some(), round.is_some())?;
    let (d, d_wide) = b.dst_wider(to)?;
    let kept = b.declared;
    b.comma()?;
    let whole = to.class() == Class::Int && from.class() == Class::Int;
    let (a, a_wide) = b.src_wider(from, if whole { Names::Special } else { Names::None })?;
    // Conversions of types that no register is declared as take no wider registers, except for types of one
    // byte.
    let wider = |ty: Type, declared: Type| ty.bytes() > 1 && declared.bytes() > ty.bytes();
    if (to.is_packed() || from.is_packed()) && (wider(to, kept) || wider(from, b.declared)) {
        return b.wrong(m.at, "here registers are as long as the types");
    }
    Ok(Op::Alu(Alu::Convert { convert: Convert { wide: (d_wide, a_wide), ..convert }, d, a }))
}

/// Returns an error if the ISA does not have the conversion with this rounding.
fn check(
    b: &Body<'_, '_>,
    m: &Mods<'_>,
    c: &Convert,
    integral: bool,
    rounds: bool,
) -> Result<(), ParseError> {
    for ty in [c.to, c.from] {
        let bits = matches!(
            ty,
            Type::Pred
                | Type::B8
                | Type::B16
                | Type::B32
                | Type::B64
                | Type::U16x2
                | Type::S16x2
                | Type::F16x2
                | Type::BF16x2
        );
        if bits || (ty == Type::TF32 && ty == c.from) {
            return m.no_type(b, ty);
        }
    }
    if c.relu && !matches!((c.to, c.from), (Type::F16 | Type::BF16 | Type::TF32, Type::F32)) {
        return b.wrong(m.at, "`.relu` is for f32 that becomes less");
    }
    let is_int = |ty: Type| ty.class() == Class::Int;
    let wants = match (is_int(c.from), is_int(c.to)) {
        (true, true) => Wants::Nothing,
        (true, false) => Wants::Rounding,
        (false, true) => Wants::Integral,
        (false, false) if c.to == c.from => Wants::MaybeIntegral,
        (false, false) if c.to == Type::TF32 || c.to.bytes() < c.from.bytes() => Wants::Rounding,
        (false, false) if c.to.bytes() == c.from.bytes() => Wants::Rounding,
        (false, false) => Wants::Nothing,
    };
    match (wants, integral, rounds) {
        (Wants::Nothing | Wants::MaybeIntegral, false, false)
        | (Wants::Rounding, false, true)
        | (Wants::Integral | Wants::MaybeIntegral, true, false) => Ok(()),
        (Wants::Rounding, _, false) => b.wrong(m.at, "the rounding is missing"),
        (Wants::Integral, false, _) => b.wrong(m.at, "the rounding to a whole number is missing"),
        (Wants::Nothing | Wants::MaybeIntegral | Wants::Rounding | Wants::Integral, _, _) => {
            b.wrong(m.at, "this conversion has no such rounding")
        }
    }
}

/// Rounding that a conversion has to name.
enum Wants {
    Nothing,
    Rounding,
    Integral,
    MaybeIntegral,
}
