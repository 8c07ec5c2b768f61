//! Decoder of barriers, and of instructions that the lanes of a warp execute together.

use super::super::ParseError;
use super::super::body::Body;
use super::super::ir::{
    Bar, BarRed, Bits, ClusterBar, Constant, Int, Op, Redux, Reg, ShflMode, Together, Vote, Wide,
};
use super::super::types::Type;
use super::{Decoded, Mods};

fn next(b: &mut Body<'_, '_>, ty: Type) -> Result<u32, ParseError> {
    b.comma()?;
    b.src(ty)
}

pub(super) fn sync(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    if m.name == "bar" && m.flag("warp") {
        m.need(b, "`.sync`", &[("sync", ())])?;
        let mask = b.src(Type::U32)?;
        return Ok(Op::Together { mask, what: Together::Sync });
    }
    match m.name {
        "bar" | "barrier" => barrier(b, m),
        "activemask" => {
            m.need(b, "the type", &[("b32", ())])?;
            Ok(Op::ActiveMask { d: b.dst(Type::B32)? })
        }
        _ => {
            m.need(b, "`.sync` (the forms without it are gone since sm_70)", &[("sync", ())])?;
            together(b, m)
        }
    }
}

fn together(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    match m.name {
        "shfl" => shfl(b, m),
        "vote" => vote(b, m),
        "match" => matching(b, m),
        "redux" => redux(b, m),
        _elect => {
            let d = b.dst_or_sink(Type::U32)?;
            b.sign("|")?;
            let p = b.dst(Type::Pred)?;
            let mask = next(b, Type::U32)?;
            Ok(Op::Together { mask, what: Together::Elect { d, p } })
        }
    }
}

fn shfl(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    const MODES: [(&str, ShflMode); 4] =
        [("up", ShflMode::Up), ("down", ShflMode::Down), ("bfly", ShflMode::Bfly), ("idx", ShflMode::Idx)];
    let (mode, ty) = (m.need(b, "the mode", &MODES)?, Type::B32);
    m.need(b, "the type", &[("b32", ())])?;
    let d = b.dst(ty)?;
    let p = if b.p.take("|") { b.dst_or_sink(Type::Pred)? } else { None };
    let (x, y, z, mask) = (next(b, ty)?, next(b, ty)?, next(b, ty)?, next(b, Type::U32)?);
    Ok(Op::Together { mask, what: Together::Shfl { mode, d, p, a: x, b: y, c: z } })
}

fn vote(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    const VOTES: [(&str, Vote); 4] =
        [("all", Vote::All), ("any", Vote::Any), ("uni", Vote::Uni), ("ballot", Vote::Ballot)];
    let vote = m.need(b, "the vote", &VOTES)?;
    let ty = m.ty(b)?;
    let wanted = if vote == Vote::Ballot { Type::B32 } else { Type::Pred };
    if ty != wanted {
        return m.no_type(b, ty);
    }
    let d = b.dst(wanted)?;
    b.comma()?;
    let p = b.pred()?;
    let mask = next(b, Type::U32)?;
    Ok(Op::Together { mask, what: Together::Vote { vote, d, p } })
}

fn matching(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let all = m.need(b, "`.any` or `.all`", &[("any", false), ("all", true)])?;
    let (ty, bits) =
        m.need(b, "the type", &[("b32", (Type::B32, Bits::B32)), ("b64", (Type::B64, Bits::B64))])?;
    let d = b.dst(Type::U32)?;
    let p = if all && b.p.take("|") { b.dst_or_sink(Type::Pred)? } else { None };
    let (a, mask) = (next(b, ty)?, next(b, Type::U32)?);
    Ok(Op::Together { mask, what: Together::Match { bits, all, d, p, a } })
}

fn redux(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    const OPS: [(&str, Redux); 6] = [
        ("add", Redux::Add),
        ("min", Redux::Min),
        ("max", Redux::Max),
        ("and", Redux::And),
        ("or", Redux::Or),
        ("xor", Redux::Xor),
    ];
    let op = m.need(b, "the operation", &OPS)?;
    let ty = m.ty(b)?;
    let arithmetic = matches!(op, Redux::Add | Redux::Min | Redux::Max);
    let known = if arithmetic { matches!(ty, Type::U32 | Type::S32) } else { ty == Type::B32 };
    if !known {
        return m.no_type(b, ty);
    }
    let (int, ty) = if ty == Type::S32 { (Int::S32, ty) } else { (Int::U32, Type::U32) };
    let (d, a, mask) = (b.dst(ty)?, next(b, ty)?, next(b, Type::U32)?);
    Ok(Op::Together { mask, what: Together::Redux { op, ty: int, d, a } })
}

fn barrier(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    if m.name == "barrier" && m.flag("cluster") {
        return cluster(b, m);
    }
    m.flag("cta");
    // `bar` is always aligned. `barrier` is aligned with `.aligned`.
    let aligned = m.flag("aligned") || m.name == "bar";
    match m.need(b, "what to do", &[("sync", 0), ("arrive", 1), ("red", 2)])? {
        0 => {
            let id = number(b)?;
            let threads = counted(b)?;
            Ok(Op::Bar { id, threads, aligned, bar: Bar::Sync })
        }
        1 => {
            let id = number(b)?;
            b.comma()?;
            let threads = Some(threads_of(b)?);
            Ok(Op::Bar { id, threads, aligned, bar: Bar::Arrive })
        }
        _ => reduce(b, m, aligned),
    }
}

/// Decodes `barrier.cluster`. Arrivals release by default, and waits acquire.
fn cluster(b: &Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let waits = m.need(b, "what to do", &[("arrive", false), ("wait", true)])?;
    let bar = if waits {
        m.flag("acquire");
        ClusterBar::Wait
    } else {
        let releases = m.pick(&[("release", true), ("relaxed", false)]).unwrap_or(true);
        ClusterBar::Arrive { releases }
    };
    Ok(Op::ClusterBar { bar, aligned: m.flag("aligned") })
}

/// Parses the number of a barrier.
fn number(b: &mut Body<'_, '_>) -> Result<Reg, ParseError> {
    b.src_of(Type::U32, "barrier, which are 0 to 15", |value| value < 16)
}

/// Parses the number of threads of a barrier.
fn threads_of(b: &mut Body<'_, '_>) -> Result<Reg, ParseError> {
    b.src_of(Type::U32, "multiple of the threads of a warp", |value| value % 32 == 0)
}

/// Parses `, threads`, or nothing.
fn counted(b: &mut Body<'_, '_>) -> Result<Option<Reg>, ParseError> {
    if b.p.take(",") { threads_of(b).map(Some) } else { Ok(None) }
}

fn reduce(b: &mut Body<'_, '_>, m: &mut Mods<'_>, aligned: bool) -> Decoded {
    let op =
        m.need(b, "the operation", &[("popc", BarRed::Popc), ("and", BarRed::And), ("or", BarRed::Or)])?;
    let ty = m.ty(b)?;
    let wanted = if op == BarRed::Popc { Type::U32 } else { Type::Pred };
    if ty != wanted {
        return m.no_type(b, ty);
    }
    let d = b.dst(wanted)?;
    b.comma()?;
    let id = number(b)?;
    b.comma()?;
    // The number of threads is optional. Without it the predicate follows at once.
    let (threads, p);
    if b.next_is_predicate() {
        (threads, p) = (None, b.pred()?);
    } else {
        threads = Some(threads_of(b)?);
        b.comma()?;
        p = b.pred()?;
    }
    Ok(Op::Bar { id, threads, aligned, bar: Bar::Red { op, d, p } })
}

/// Returns the mask of all lanes, for instructions without a mask operand.
pub(super) fn everyone(b: &mut Body<'_, '_>) -> Reg {
    b.constant(Constant::Bits(u64::from(u32::MAX)), Wide::One)
}
