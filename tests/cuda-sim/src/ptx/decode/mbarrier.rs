//! Decoder of mbarriers, and of stores whose bytes they count.
//!
//! Supported are mbarriers in the block's own shared memory, without a state operand, and waits by parity.

use super::super::ParseError;
use super::super::body::Body;
use super::super::ir::{AsyncStore, MOST_COUNTED, Mbarrier, Op, Space, Wide};
use super::super::types::Type;
use super::{Decoded, Mods};

pub(super) fn mbarrier(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    const WHAT: [(&str, u8); 4] = [("init", 0), ("inval", 1), ("arrive", 2), ("try_wait", 3)];
    let what = m.need(b, "what to do", &WHAT)?;
    if what == 3 {
        m.need(b, "how to wait", &[("parity", ())])?;
    }
    let expects = what == 2 && m.flag("expect_tx");
    let wide = what >= 2 && scope(b, m, if what == 2 { "release" } else { "acquire" })?;
    m.need(b, "the space", &[("shared", ()), ("shared::cta", ())])?;
    m.need(b, "the type", &[("b64", ())])?;
    match what {
        0 => {
            let addr = b.addr(Space::Shared)?;
            b.comma()?;
            let is = |count| (1..=u64::from(MOST_COUNTED)).contains(&count);
            let count = b.src_of(Type::U32, "count of arrivals, which are 1 to 1048575", is)?;
            Ok(Op::Mbarrier { addr, what: Mbarrier::Init { count } })
        }
        1 => Ok(Op::Mbarrier { addr: b.addr(Space::Shared)?, what: Mbarrier::Inval }),
        2 => {
            if b.dst_or_sink(Type::B64)?.is_some() {
                return b.wrong(m.at, "the state of an mbarrier is not supported: only `_`");
            }
            b.comma()?;
            let addr = b.addr(Space::Shared)?;
            let bytes = if expects {
                b.comma()?;
                Some(b.src(Type::U32)?)
            } else {
                None
            };
            Ok(Op::Mbarrier { addr, what: Mbarrier::Arrive { bytes } })
        }
        _try_wait => {
            let p = b.dst(Type::Pred)?;
            b.comma()?;
            let addr = b.addr(Space::Shared)?;
            b.comma()?;
            let parity = b.src_of(Type::U32, "parity, which is 0 or 1", |parity| parity < 2)?;
            Ok(Op::Mbarrier { addr, what: Mbarrier::TryWait { wide, p, parity } })
        }
    }
}

/// Returns true for the scope of the cluster. Without an order the scope is the block.
fn scope(b: &Body<'_, '_>, m: &mut Mods<'_>, order: &str) -> Result<bool, ParseError> {
    if !m.flag(order) {
        return Ok(false);
    }
    m.need(b, "the scope", &[("cta", false), ("cluster", true)])
}

/// Decodes `st.async`.
pub(super) fn store(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    m.flag("weak");
    m.need(b, "the space", &[("shared::cluster", ())])?;
    m.need(b, "what tells of its end", &[("mbarrier::complete_tx::bytes", ())])?;
    let (count, ty) = (m.pick(&[("v2", 2), ("v4", 4)]).unwrap_or(1), m.ty(b)?);
    if ty == Type::Pred || ty.is_packed() || ty.bytes() < 4 {
        return m.no_type(b, ty);
    }
    if ty.bytes() * count > 16 {
        return b.wrong(m.at, "no such store has so many bytes");
    }
    let to = b.addr(Space::Cluster)?;
    b.comma()?;
    let regs = b.vector(|b| b.src(ty))?;
    b.comma()?;
    let mbarrier = b.addr(Space::Cluster)?;
    if regs.len() != count as usize {
        return b.wrong(m.at, format!("{count} elements are needed, not {}", regs.len()));
    }
    let wide = if ty.bytes() == 8 { Wide::Two } else { Wide::One };
    let regs = regs.into_iter().map(|reg| (reg, wide)).collect();
    Ok(Op::StoreAsync(AsyncStore { ty, to, mbarrier, regs }))
}
