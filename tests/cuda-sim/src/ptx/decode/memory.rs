//! Decoder of loads, stores, atomics and asynchronous copies.

use super::super::ParseError;
use super::super::body::Body;
use super::super::ir::{Access, Atom, AtomOp, Op, Ordered, Reg, Space, Wide};
use super::super::lex::Tok;
use super::super::operand::Names;
use super::super::types::Type;
use super::{Decoded, Mods, mbarrier};

const SPACES: [(&str, Space); 9] = [
    ("global", Space::Global),
    ("const", Space::Const),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    ("shared::cluster", Space::Cluster),
    ("local", Space::Local),
    ("param", Space::Param),
    ("param::entry", Space::Param),
    ("param::func", Space::Param),
];

/// Cache hints, which change no result.
const HINTS: [&str; 17] = [
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "weak",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "mmio",
];

pub(super) fn memory(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    if m.name == "st" && m.flag("async") {
        return mbarrier::store(b, m);
    }
    match m.name {
        "ld" | "ldu" | "st" => load_store(b, m),
        "atom" | "red" => atom(b, m),
        "cp" => copy(b, m),
        _prefetch => {
            const WHERE: [&str; 7] =
                ["global", "local", "L1", "L2", "L2::evict_last", "L2::evict_normal", "L2::128B"];
            while WHERE.iter().any(|word| m.flag(word)) {}
            b.addr(Space::Generic)?;
            if b.p.take(",") {
                let at = b.p.at();
                if b.p.small("a size")? != 128 {
                    return b.wrong(at, "it is for 128 bytes");
                }
            }
            Ok(Op::Nop)
        }
    }
}

/// Returns true if the access is strong, and the ordering of other accesses by it.
fn order(m: &mut Mods<'_>) -> (bool, Ordered) {
    const ORDERS: [(&str, (bool, bool)); 5] = [
        ("volatile", (false, false)),
        ("relaxed", (false, false)),
        ("acquire", (true, false)),
        ("release", (false, true)),
        ("acq_rel", (true, true)),
    ];
    let order = m.pick(&ORDERS);
    let scope = m.pick(&[("cta", false), ("cluster", true), ("gpu", true), ("sys", true)]);
    let (acquires, releases) = order.unwrap_or((false, false));
    (order.is_some(), Ordered { acquires, releases, wide: scope != Some(false) })
}

fn load_store(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let (strong, order) = order(m);
    let mut space = m.pick(&SPACES).unwrap_or(Space::Generic);
    let lanes = m.pick(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1);
    let (is_constant, has_policy) = (m.flag("nc"), m.flag("L2::cache_hint"));
    while HINTS.iter().any(|hint| m.flag(hint)) {}
    let ty = m.ty(b)?;
    if matches!(ty, Type::Pred | Type::F16) || ty.is_packed() {
        return m.no_type(b, ty);
    }
    if ty.bytes() * lanes > 32 || (lanes == 8 && ty.bytes() != 4) {
        return b.wrong(m.at, "no access has so many bytes");
    }
    let (addr, regs);
    if m.name == "st" {
        space = argument(b, space);
        if matches!(space, Space::Param | Space::Const) {
            return b.wrong(m.at, "nothing is stored in this space");
        }
        addr = b.addr(space)?;
        b.comma()?;
        regs = b.vector(|b| b.src_wider(ty, Names::None).map(|(reg, _)| Some((reg, b.declared))))?;
    } else {
        regs = b.vector(|b| if lanes > 1 { sink_or_dst(b, ty) } else { element(b, ty) })?;
        b.comma()?;
        space = argument(b, space);
        addr = b.addr(space)?;
    }
    if has_policy {
        // A cache policy changes no result.
        b.comma()?;
        b.src(Type::B64)?;
    }
    if regs.len() != lanes as usize {
        return b.wrong(m.at, format!("{lanes} elements are needed, not {}", regs.len()));
    }
    if ty.bytes() * lanes > 16 && !matches!(space, Space::Global | Space::Generic) {
        return b.wrong(m.at, "only an access to global memory has so many bytes");
    }
    if regs.iter().all(Option::is_none) {
        return b.wrong(m.at, "one of the elements goes to a register");
    }
    let mut lengths = regs.iter().flatten().map(|(_, declared)| declared.bytes());
    if let Some(first) = lengths.next()
        && lengths.any(|length| length != first)
    {
        return b.wrong(m.at, "the elements are registers of one length");
    }
    let wide =
        |(reg, declared): (Reg, Type)| (reg, if declared.bytes() == 8 { Wide::Two } else { Wide::One });
    let regs: Vec<_> = regs.into_iter().map(|reg| reg.map(wide)).collect();
    let access = Access { space, ty, addr, strong, is_constant, order, regs: regs.into() };
    Ok(if m.name == "st" { Op::Store(access) } else { Op::Load(access) })
}

/// Returns the local space for arguments and results of calls, which are in local memory.
fn argument(b: &mut Body<'_, '_>, space: Space) -> Space {
    if space == Space::Param && b.next_is_argument() { Space::Local } else { space }
}

fn element(b: &mut Body<'_, '_>, ty: Type) -> Result<Option<(Reg, Type)>, ParseError> {
    b.dst_wider(ty).map(|(reg, _)| Some((reg, b.declared)))
}

fn sink_or_dst(b: &mut Body<'_, '_>, ty: Type) -> Result<Option<(Reg, Type)>, ParseError> {
    if matches!(b.p.peek(), Tok::Name("_")) {
        b.p.next();
        return Ok(None);
    }
    element(b, ty)
}

const OPS: [(&str, AtomOp); 10] = [
    ("add", AtomOp::Add),
    ("min", AtomOp::Min),
    ("max", AtomOp::Max),
    ("and", AtomOp::And),
    ("or", AtomOp::Or),
    ("xor", AtomOp::Xor),
    ("exch", AtomOp::Exch),
    ("cas", AtomOp::Cas),
    ("inc", AtomOp::Inc),
    ("dec", AtomOp::Dec),
];

fn atom(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let (_strong, order) = order(m);
    const SPACES: [(&str, Space); 4] = [
        ("global", Space::Global),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("shared::cluster", Space::Cluster),
    ];
    let space = m.pick(&SPACES);
    let (op, ty) = (m.need(b, "the operation", &OPS)?, m.ty(b)?);
    let halves = matches!(ty, Type::F16 | Type::F16x2 | Type::BF16 | Type::BF16x2);
    if halves && !m.flag("noftz") {
        return b.wrong(m.at, "`.noftz` is missing");
    }
    let fits = match op {
        AtomOp::Add => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::F32 | Type::F64) || halves,
        AtomOp::Min | AtomOp::Max => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64),
        AtomOp::And | AtomOp::Or | AtomOp::Xor => matches!(ty, Type::B32 | Type::B64),
        AtomOp::Exch => m.name == "atom" && matches!(ty, Type::B32 | Type::B64),
        AtomOp::Cas => m.name == "atom" && matches!(ty, Type::B16 | Type::B32 | Type::B64),
        AtomOp::Inc | AtomOp::Dec => ty == Type::U32,
    };
    if !fits {
        return m.no_type(b, ty);
    }
    let space = space.unwrap_or(Space::Generic);
    let mut d = None;
    if m.name == "atom" {
        d = b.dst_or_sink(ty)?;
        b.comma()?;
    }
    let addr = b.addr(space)?;
    b.comma()?;
    let first = b.src(ty)?;
    let mut c = None;
    if op == AtomOp::Cas {
        b.comma()?;
        c = Some(b.src(ty)?);
    }
    Ok(Op::Atom(Atom { op, ty, space, addr, order, d, b: first, c }))
}

fn copy(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    if !m.flag("async") {
        return b.wrong(m.at, "only `cp.async` is supported");
    }
    if m.flag("commit_group") {
        return Ok(Op::CopyCommit);
    }
    if m.flag("wait_all") {
        return Ok(Op::CopyWait(None));
    }
    if m.flag("wait_group") {
        return Ok(Op::CopyWait(Some(b.p.small("a number of groups")? as u32)));
    }
    let all_levels = m.need(b, "the cache", &[("ca", true), ("cg", false)])?;
    let _cached = ["L2::64B", "L2::128B", "L2::256B"].iter().any(|hint| m.flag(hint));
    if !(m.flag("shared") || m.flag("shared::cta")) || !m.flag("global") {
        return b.wrong(m.at, "it copies from `.global` to `.shared`");
    }
    let to = b.addr(Space::Shared)?;
    b.comma()?;
    let from = b.addr(Space::Global)?;
    b.comma()?;
    let at = b.p.at();
    let bytes = b.p.small("a number of bytes")? as u32;
    if !(bytes == 16 || (all_levels && matches!(bytes, 4 | 8))) {
        return b.wrong(at, "it copies 16 bytes, or with `.ca` also 4 or 8");
    }
    let mut fill = None;
    if b.p.take(",") {
        fill =
            Some(b.src_of(Type::U32, "number of bytes that it may read", |value| value <= u64::from(bytes))?);
    }
    Ok(Op::CopyAsync { to, from, bytes, fill })
}
