//! Decoder of jumps, exits, fences, and hints to the hardware.

use super::super::body::Body;
use super::super::call;
use super::super::ir::Op;
use super::super::types::Type;
use super::{Decoded, Mods};

pub(super) fn control(b: &mut Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    match m.name {
        "bra" => {
            m.flag("uni");
            let at = b.p.at();
            b.target = Some((b.p.name()?, at));
            Ok(Op::Branch { target: 0 })
        }
        "brx" => {
            if !m.flag("idx") {
                return b.wrong(m.at, "`.idx` is missing");
            }
            m.flag("uni");
            let index = b.src(Type::U32)?;
            b.comma()?;
            let at = b.p.at();
            b.target = Some((b.p.name()?, at));
            Ok(Op::BranchTable { index, targets: Box::default() })
        }
        "ret" => {
            m.flag("uni");
            // The end of a function, where its returns jump to, is known once it is parsed.
            Ok(if b.returns.is_some() { Op::Branch { target: 0 } } else { Op::Exit })
        }
        "exit" => Ok(Op::Exit),
        "trap" => Ok(Op::Trap),
        "call" => {
            m.flag("uni");
            call::call(b)
        }
        "nanosleep" => {
            if m.flag("u32") {
                b.src(Type::U32)?;
            }
            Ok(Op::Nop)
        }
        "griddepcontrol" => {
            m.need(b, "what to do", &[("wait", ()), ("launch_dependents", ())])?;
            Ok(Op::Nop)
        }
        "pmevent" => {
            let at = b.p.at();
            if b.p.small("a number of an event")? >= 16 {
                return b.wrong(at, "events are 0 to 15");
            }
            Ok(Op::Nop)
        }
        "membar" => {
            let wide = m.need(b, "the level", &[("cta", false), ("gl", true), ("sys", true)])?;
            Ok(Op::Fence { wide, acquires: true, releases: true })
        }
        "fence" => fence(b, m),
        _ => b.wrong(m.at, "this instruction is not supported"),
    }
}

fn fence(b: &Body<'_, '_>, m: &mut Mods<'_>) -> Decoded {
    if m.flag("mbarrier_init") {
        m.need(b, "`.release`", &[("release", ())])?;
        m.need(b, "the scope", &[("cluster", ())])?;
        return Ok(Op::FenceInit);
    }
    const HALVES: [(&str, (bool, bool)); 4] = [
        ("sc", (true, true)),
        ("acq_rel", (true, true)),
        ("acquire", (true, false)),
        ("release", (false, true)),
    ];
    let (acquires, releases) = m.pick(&HALVES).unwrap_or((true, true));
    let wide = m.need(b, "the scope", &[("cta", false), ("cluster", true), ("gpu", true), ("sys", true)])?;
    Ok(Op::Fence { wide, acquires, releases })
}
