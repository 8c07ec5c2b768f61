//! Decoder of `mma.sync` and `ldmatrix`.

use super::super::body::Body;
use super::super::ir::{Factor, Mma, Op, Space, Together};
use super::super::types::Type;
use super::sync::everyone;
use super::{Decoded, Mods};

pub(super) fn matrix(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    m.need(b, "`.sync`", &[("sync", ())])?;
    m.need(b, "`.aligned`", &[("aligned", ())])?;
    if m.name == "mma" { mma(b, m) } else { ldmatrix(b, m) }
}

fn ldmatrix(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    m.need(b, "the shape", &[("m8n8", ())])?;
    let count = m.need(b, "the number of matrices", &[("x1", 1), ("x2", 2), ("x4", 4)])?;
    let trans = m.flag("trans");
    let _shared = m.pick(&[("shared", ()), ("shared::cta", ())]);
    let generic = _shared.is_none();
    m.need(b, "the type", &[("b16", ())])?;
    if generic {
        return b.wrong(m.at, "only `.shared` addresses are supported");
    }
    let d = b.fragment(count, |b| b.dst(Type::B32))?;
    b.comma()?;
    let addr = b.addr(Space::Shared)?;
    let mask = everyone(b);
    Ok(Op::Together { mask, what: Together::LdMatrix { trans, d, count: count as u8, addr } })
}

fn mma(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    let k = m.need(b, "the shape", &[("m16n8k4", 4u8), ("m16n8k8", 8), ("m16n8k16", 16)])?;
    m.need(b, "`.row`", &[("row", ())])?;
    m.need(b, "`.col`", &[("col", ())])?;
    let (d_type, a_type, b_type, c_type) = (m.ty(b)?, m.ty(b)?, m.ty(b)?, m.ty(b)?);
    const FACTORS: [(Type, Factor, [u8; 2]); 3] = [
        (Type::F16, Factor::F16, [8, 16]),
        (Type::BF16, Factor::BF16, [8, 16]),
        (Type::TF32, Factor::TF32, [4, 8]),
    ];
    let found = FACTORS.iter().find(|(ty, _, depths)| *ty == a_type && depths.contains(&k));
    let Some(&(_, factor, _)) = found else { return b.wrong(m.at, "this shape does not have these types") };
    let sum = |ty: Type| {
        let half = ty == Type::F16 && factor == Factor::F16;
        (half || ty == Type::F32).then_some(half)
    };
    let (Some(d_half), Some(c_half)) = (sum(d_type), sum(c_type)) else { return m.no_type(b, d_type) };
    if a_type != b_type {
        return m.no_type(b, b_type);
    }
    // A register of a factor contains a pair of halves or one tf32.
    let factors = usize::from(k) / if factor == Factor::TF32 { 2 } else { 4 };
    let sums = |half: bool| if half { (2, Type::F16x2) } else { (4, Type::F32) };
    let (d_count, d_reg) = sums(d_half);
    let d = b.fragment(d_count, |b| b.dst(d_reg))?;
    b.comma()?;
    let a = b.fragment(factors, |b| b.src(Type::F16x2))?;
    b.comma()?;
    let second = b.fragment(factors / 2, |b| b.src(Type::F16x2))?;
    b.comma()?;
    let (c_count, c_reg) = sums(c_half);
    let c = b.fragment(c_count, |b| b.src(c_reg))?;
    let mask = everyone(b);
    Ok(Op::Together {
        mask,
        what: Together::Mma(Mma { k, factor, half: (d_half, c_half), d, a, b: second, c }),
    })
}
