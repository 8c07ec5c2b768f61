//! What the lanes of a warp do together: they wait for each other, then exchange registers.

use super::matrix;
use super::memory::Who;
use super::race;
use super::regs::{LANES, Raw, Regs, lanes};
use super::step::Flow;
use super::warp::Warp;
use super::{FaultKind, Step, Trouble, trouble};
use crate::ptx::ir::{Bits, Int, Redux, Reg, ShflMode, Together, Vote, Wide};

/// Executes the instruction in all lanes whose masks are complete; the others wait.
pub(super) fn together(
    who: &mut Who<'_, '_>,
    warp: &mut Warp,
    (active, exec): (u32, u32),
    pc: u32,
    (mask, what): (Reg, &Together),
) -> Result<Flow, Box<Trouble>> {
    let masks = *u32::row(&warp.regs, mask);
    if exec == active && lanes(exec).all(|lane| masks[lane] == exec) {
        perform(who, warp, exec, what)?;
        return Ok(Flow::Next);
    }
    warp.place(active & !exec, pc + 1);
    warp.place(exec, pc);
    let here =
        exec | lanes(warp.parked).filter(|&lane| warp.pcs[lane] == pc).map(|lane| 1 << lane).sum::<u32>();
    let mut left = here;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let named = masks[first];
        let same = lanes(here).filter(|&lane| masks[lane] == named).map(|lane| 1 << lane).sum::<u32>();
        left &= !same;
        if let Some(lane) = lanes(same & !named).next() {
            return trouble(FaultKind::Mask, lane, || {
                format!("the mask {named:#010x} does not name lane {lane}, which executes it")
            });
        }
        let gone = named & !warp.live;
        if gone != 0 && !matches!(what, Together::Sync) {
            let lane = gone.trailing_zeros();
            return trouble(FaultKind::Mask, first, || {
                format!("the mask {named:#010x} names lane {lane}, which has exited or never was")
            });
        }
        if same == named & warp.live {
            warp.parked &= !same;
            warp.place(same, pc + 1);
            perform(who, warp, same, what)?;
        } else {
            warp.parked |= same;
        }
    }
    Ok(Flow::Placed)
}

/// What lanes do that are all there.
fn perform(who: &mut Who<'_, '_>, warp: &mut Warp, group: u32, what: &Together) -> Step {
    let regs = &mut warp.regs;
    match *what {
        Together::Sync => {
            warp.meetings += 1;
            if warp.meetings == race::MEETINGS {
                warp.meetings = 0;
                who.mem.age(who.grid, |stamp| stamp.before_meetings(warp.first / 32));
            }
        }
        Together::Shfl { mode, d, p, a, b, c } => shuffle(regs, group, mode, (d, p), (a, b, c))?,
        Together::Vote { vote, d, p } => {
            let truth = regs.truth(p.pred, p.negated) & group;
            let all = |holds: bool| if holds { u32::MAX } else { 0 };
            match vote {
                Vote::All => regs.set_mask(group, d, all(truth == group)),
                Vote::Any => regs.set_mask(group, d, all(truth != 0)),
                Vote::Uni => regs.set_mask(group, d, all(truth == group || truth == 0)),
                Vote::Ballot => regs.put(group, d, &[truth; LANES]),
            }
        }
        Together::Match { bits, all, d, p, a } => matching(regs, group, (bits, all), (d, p), a),
        Together::Redux { op, ty, d, a } => redux(regs, group, (op, ty), d, a),
        Together::Elect { d, p } => {
            let leader = group.trailing_zeros();
            if let Some(d) = d {
                regs.put(group, d, &[leader; LANES]);
            }
            regs.set_mask(group, p, 1 << leader);
        }
        Together::LdMatrix { trans, d, count, addr } => {
            matrix::load(who, regs, group, (d, count, trans), addr)?
        }
        Together::Mma(ref mma) => matrix::multiply(regs, group, mma),
    }
    Ok(())
}

/// The lane that a lane reads, by the ISA's formulas, and whether it is in range.
fn source(mode: ShflMode, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (step, clamp, segments) = (b & 31, c & 31, c >> 8 & 31);
    let (least, most) = (lane & segments, (lane & segments) | (clamp & !segments & 31));
    let (from, inside) = match mode {
        ShflMode::Up => {
            let from = lane as i32 - step as i32;
            (from as u32, from >= most as i32)
        }
        ShflMode::Down => (lane + step, lane + step <= most),
        ShflMode::Bfly => (lane ^ step, lane ^ step <= most),
        ShflMode::Idx => {
            let from = least | (step & !segments & 31);
            (from, from <= most)
        }
    };
    if inside { (from, true) } else { (lane, false) }
}

fn shuffle(
    regs: &mut Regs,
    group: u32,
    mode: ShflMode,
    (d, p): (Reg, Option<Reg>),
    (a, b, c): (Reg, Reg, Reg),
) -> Step {
    let (values, steps, clamps) = (*u32::row(regs, a), *u32::row(regs, b), *u32::row(regs, c));
    let (mut out, mut ranged) = ([0; LANES], 0);
    for lane in lanes(group) {
        let (from, inside) = source(mode, lane as u32, steps[lane], clamps[lane]);
        if group >> from & 1 == 0 {
            return trouble(FaultKind::Mask, lane, || {
                format!("it reads lane {from}, which does not take part")
            });
        }
        out[lane] = values[from as usize];
        ranged |= u32::from(inside) << lane;
    }
    regs.put(group, d, &out);
    if let Some(p) = p {
        regs.set_mask(group, p, ranged);
    }
    Ok(())
}

fn matching(regs: &mut Regs, group: u32, (bits, all): (Bits, bool), (d, p): (Reg, Option<Reg>), a: Reg) {
    let wide = match bits {
        Bits::B16 | Bits::B32 => Wide::One,
        Bits::B64 => Wide::Two,
    };
    let value = |lane: usize| regs.get((a, wide), lane);
    let same = |lane: usize| {
        lanes(group).filter(|&other| value(other) == value(lane)).map(|lane| 1 << lane).sum::<u32>()
    };
    let mut out = [0; LANES];
    lanes(group).for_each(|lane| out[lane] = same(lane));
    let one = lanes(group).all(|lane| out[lane] == group);
    if all && !one {
        out = [0; LANES];
    }
    regs.put(group, d, &out);
    if let Some(p) = p {
        regs.set_mask(group, p, if one { u32::MAX } else { 0 });
    }
}

fn redux(regs: &mut Regs, group: u32, (op, ty): (Redux, Int), d: Reg, a: Reg) {
    let values = *u32::row(regs, a);
    let of = lanes(group).map(|lane| values[lane]);
    let signed = matches!(ty, Int::S16 | Int::S32 | Int::S64);
    let result = match op {
        Redux::Add => of.fold(0, u32::wrapping_add),
        Redux::Min if signed => of.map(|x| x as i32).min().unwrap_or(0) as u32,
        Redux::Max if signed => of.map(|x| x as i32).max().unwrap_or(0) as u32,
        Redux::Min => of.min().unwrap_or(0),
        Redux::Max => of.max().unwrap_or(0),
        Redux::And => of.fold(u32::MAX, |x, y| x & y),
        Redux::Or => of.fold(0, |x, y| x | y),
        Redux::Xor => of.fold(0, |x, y| x ^ y),
    };
    regs.put(group, d, &[result; LANES]);
}
