//! Instructions that lanes of a warp execute together: the lanes wait for each other, then exchange
//! registers.
//!
//! The lanes may be at different instructions, for example in both arms of a branch. The instructions have to
//! be of the same kind, with one mask.

use super::matrix;
use super::memory::Who;
use super::order::Party;
use super::regs::{LANES, Raw, Regs, lanes};
use super::step::Flow;
use super::warp::Warp;
use super::{FaultKind, Step, Trouble, trouble};
use crate::ptx::ir::{Bits, Code, Int, Op, PredSrc, Redux, Reg, ShflMode, Together, Vote};

/// Lanes, and the instruction that they execute.
type Part<'t> = (u32, &'t Together);

/// Executes the instruction in all lanes whose masks are complete. The other lanes wait.
pub(super) fn together(
    who: &mut Who<'_, '_>,
    warp: &mut Warp,
    (active, exec): (u32, u32),
    pc: u32,
    (mask, what): (Reg, &Together),
) -> Result<Flow, Box<Trouble>> {
    let masks = *u32::row(&warp.regs, mask);
    if exec == active && lanes(exec).all(|lane| masks[lane] == exec) {
        perform(who, warp, exec, &[(exec, what)])?;
        return Ok(Flow::Next);
    }
    if exec == active && is_divided(exec, &masks) {
        let mut left = exec;
        while left != 0 {
            let group = masks[left.trailing_zeros() as usize];
            left &= !group;
            perform(who, warp, group, &[(group, what)])?;
        }
        return Ok(Flow::Next);
    }
    warp.place(active & !exec, pc + 1);
    warp.place(exec, pc);
    let grid = who.grid;
    let code = &grid.kernel.code;
    let at = |warp: &Warp, lane: usize| instruction(code, warp.pcs[lane]);
    let alike = lanes(warp.parked).filter(|&lane| at(warp, lane).is_some_and(|(_, o)| is_same(what, o)));
    let here = alike.fold(exec, |all, lane| all | 1 << lane);
    let mask_of =
        |warp: &Warp, lane: usize| at(warp, lane).map_or(0, |(mask, _)| u32::row(&warp.regs, mask)[lane]);
    let mut left = here;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let named = mask_of(warp, first);
        let same =
            lanes(here).filter(|&lane| mask_of(warp, lane) == named).fold(0, |all, lane| all | 1 << lane);
        left &= !same;
        if let Some(lane) = lanes(same & !named).next() {
            return trouble(FaultKind::Mask, lane, || {
                format!("the mask {named:#010x} does not name lane {lane}, which executes it")
            });
        }
        check_gone(warp, named, first, what)?;
        if same != named & warp.live {
            warp.parked |= same;
            continue;
        }
        warp.parked &= !same;
        let mut parts: Vec<Part<'_>> = Vec::new();
        let mut rest = same;
        while rest != 0 {
            let pc = warp.pcs[rest.trailing_zeros() as usize];
            let those = lanes(rest).filter(|&lane| warp.pcs[lane] == pc).fold(0, |all, lane| all | 1 << lane);
            parts.extend(instruction(code, pc).map(|(_, what)| (those, what)));
            warp.place(those, pc + 1);
            rest &= !those;
        }
        perform(who, warp, same, &parts)?;
    }
    Ok(Flow::Placed)
}

/// Returns true if the masks of the lanes divide them into complete groups.
fn is_divided(exec: u32, masks: &[u32; LANES]) -> bool {
    let mut left = exec;
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        let group = masks[lane];
        if group >> lane & 1 == 0 || group & !left != 0 || lanes(group).any(|other| masks[other] != group) {
            return false;
        }
        left &= !group;
    }
    true
}

/// Returns the exchange at an instruction, with the register of its mask.
fn instruction(code: &Code, pc: u32) -> Option<(Reg, &Together)> {
    match &code.insts[pc as usize].op {
        Op::Together { mask, what } => Some((*mask, what)),
        _not_together => None,
    }
}

/// Returns true if two instructions take part in one exchange: the ISA requires the same qualifiers.
///
/// Instructions on matrices have to be one instruction, because they are `.aligned`.
fn is_same(a: &Together, b: &Together) -> bool {
    match (a, b) {
        (Together::Sync, Together::Sync) | (Together::Elect { .. }, Together::Elect { .. }) => true,
        (Together::Shfl { mode: a, .. }, Together::Shfl { mode: b, .. }) => a == b,
        (Together::Vote { vote: a, .. }, Together::Vote { vote: b, .. }) => a == b,
        (Together::Match { bits: a, all: x, .. }, Together::Match { bits: b, all: y, .. }) => {
            (a, x) == (b, y)
        }
        (Together::Redux { op: a, ty: x, .. }, Together::Redux { op: b, ty: y, .. }) => (a, x) == (b, y),
        (a, b) => std::ptr::eq(a, b),
    }
}

/// Returns a fault if a mask names lanes that it must not name.
///
/// A mask may name exited lanes if the instruction reads nothing from them. Only `bar.warp.sync` may name
/// lanes that never existed.
fn check_gone(warp: &Warp, named: u32, first: usize, what: &Together) -> Step {
    let allowed = match what {
        Together::Sync => u32::MAX,
        Together::Vote { .. } | Together::Match { .. } | Together::Redux { .. } | Together::Elect { .. } => {
            warp.started
        }
        Together::Shfl { .. } | Together::LdMatrix { .. } | Together::Mma(_) => warp.live,
    };
    let gone = named & !allowed;
    if gone == 0 {
        return Ok(());
    }
    let lane = gone.trailing_zeros();
    trouble(FaultKind::Mask, first, || {
        format!("the mask {named:#010x} names lane {lane}, which has exited or never was")
    })
}

/// Registers of an exchange: sources and a source predicate, destination and a destination predicate.
struct Operands {
    reads: [Reg; 3],
    pred: Option<PredSrc>,
    d: Option<Reg>,
    p: Option<Reg>,
}

fn operands(what: &Together) -> Operands {
    let of = |reads, d, p| Operands { reads, pred: None, d, p };
    match *what {
        Together::Shfl { d, p, a, b, c, .. } => of([a, b, c], Some(d), p),
        Together::Vote { vote: Vote::Ballot, d, p } => {
            Operands { pred: Some(p), ..of([0; 3], Some(d), None) }
        }
        Together::Vote { d, p, .. } => Operands { pred: Some(p), ..of([0; 3], None, Some(d)) },
        Together::Match { d, p, a, .. } => of([a; 3], Some(d), p),
        Together::Redux { d, a, .. } => of([a; 3], Some(d), None),
        Together::Elect { d, p } => of([0; 3], d, Some(p)),
        Together::Sync | Together::LdMatrix { .. } | Together::Mma(_) => of([0; 3], None, None),
    }
}

/// Returns the `n`th source of each lane, from the lane's instruction.
#[inline(always)]
fn gather<R: Raw>(regs: &Regs, parts: &[Part<'_>], n: usize) -> [R; LANES] {
    let mut all = [R::default(); LANES];
    for (those, what) in parts {
        let row = R::row(regs, operands(what).reads[n]);
        if parts.len() == 1 {
            return *row;
        }
        lanes(*those).for_each(|lane| all[lane] = row[lane]);
    }
    all
}

/// Writes the results of each lane, to the destinations of the lane's instruction.
#[inline(always)]
fn scatter(regs: &mut Regs, parts: &[Part<'_>], values: &[u32; LANES], truth: u32) {
    for (those, what) in parts {
        let Operands { d, p, .. } = operands(what);
        if let Some(d) = d {
            regs.put(*those, d, values);
        }
        if let Some(p) = p {
            regs.set_mask(*those, p, truth);
        }
    }
}

/// Executes an exchange of lanes that have all arrived, at one instruction or at several.
fn perform(who: &mut Who<'_, '_>, warp: &mut Warp, group: u32, parts: &[Part<'_>]) -> Step {
    let all = |holds: bool| if holds { u32::MAX } else { 0 };
    let regs = &mut warp.regs;
    match *parts[0].1 {
        Together::Sync => {
            let party = Party { first: warp.first, lanes: group, meeting: warp.meeting };
            if group == warp.live {
                warp.meeting = who.mem.meet_warp(&party);
            } else {
                who.mem.meet(&[party], &[]);
            }
        }
        Together::Shfl { mode, .. } => {
            let [values, steps, clamps] = [0, 1, 2].map(|n| gather(regs, parts, n));
            let (out, ranged, from) = shuffle(group, mode, (&values, &steps, &clamps));
            let written = parts
                .iter()
                .fold(0, |all, &(those, what)| all | those & regs.written[operands(what).reads[0] as usize]);
            scatter(regs, parts, &out, ranged);
            if from & !written != 0 {
                undefine(regs, parts, |lane| {
                    written >> source(mode, lane as u32, steps[lane], clamps[lane]).0 & 1 == 0
                });
            }
        }
        Together::Vote { vote, .. } => {
            let truths = parts.iter().map(|(those, what)| {
                operands(what).pred.map_or(0, |p| regs.truth(p.pred, p.negated) & those)
            });
            let truth = truths.fold(0, |all, truth| all | truth);
            let holds = match vote {
                Vote::All => truth == group,
                Vote::Any => truth != 0,
                Vote::Uni | Vote::Ballot => truth == group || truth == 0,
            };
            scatter(regs, parts, &[truth; LANES], all(holds));
        }
        Together::Match { bits, all: every, .. } => {
            let values: [u64; LANES] = match bits {
                Bits::B16 | Bits::B32 => gather::<u32>(regs, parts, 0).map(u64::from),
                Bits::B64 => gather(regs, parts, 0),
            };
            let (out, one) = matching(group, every, &values);
            scatter(regs, parts, &out, all(one));
        }
        Together::Redux { op, ty, .. } => {
            let result = redux(group, (op, ty), &gather(regs, parts, 0));
            scatter(regs, parts, &[result; LANES], 0);
        }
        Together::Elect { .. } => {
            let leader = group.trailing_zeros();
            scatter(regs, parts, &[leader; LANES], 1 << leader);
        }
        Together::LdMatrix { trans, d, count, addr } => {
            matrix::load(who, regs, group, (d, count, trans), addr)?
        }
        Together::Mma(ref mma) => matrix::multiply(regs, group, mma, who.grid.fast),
    }
    Ok(())
}

/// Returns the source lane of a shuffle, by the formulas of the ISA, and true if the lane is in range.
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

/// Returns the shuffled values, the lanes that read within their range, and the lanes that are read.
#[inline(always)]
fn shuffle(
    group: u32,
    mode: ShflMode,
    (values, steps, clamps): (&[u32; LANES], &[u32; LANES], &[u32; LANES]),
) -> ([u32; LANES], u32, u32) {
    let (mut out, mut ranged, mut read) = ([0; LANES], 0, 0);
    for lane in lanes(group) {
        let (from, inside) = source(mode, lane as u32, steps[lane], clamps[lane]);
        out[lane] = values[from as usize];
        ranged |= u32::from(inside) << lane;
        read |= 1 << from;
    }
    (out, ranged, read)
}

/// Marks the destinations of some lanes as undefined.
#[cold]
fn undefine(regs: &mut Regs, parts: &[Part<'_>], is: impl Fn(usize) -> bool) {
    for (those, what) in parts {
        let undefined = lanes(*those).filter(|&lane| is(lane)).fold(0, |all, lane| all | 1 << lane);
        operands(what).d.into_iter().for_each(|d| regs.undefine(undefined, d));
    }
}

/// Returns the lanes that have the same value as each lane, and true if all lanes have one value.
fn matching(group: u32, all: bool, values: &[u64; LANES]) -> ([u32; LANES], bool) {
    let same = |lane: usize| {
        lanes(group).filter(|&other| values[other] == values[lane]).fold(0, |all, lane| all | 1 << lane)
    };
    let mut out = [0; LANES];
    lanes(group).for_each(|lane| out[lane] = same(lane));
    let one = lanes(group).all(|lane| out[lane] == group);
    if all && !one {
        out = [0; LANES];
    }
    (out, one)
}

fn redux(group: u32, (op, ty): (Redux, Int), values: &[u32; LANES]) -> u32 {
    let of = lanes(group).map(|lane| values[lane]);
    let signed = matches!(ty, Int::S16 | Int::S32 | Int::S64);
    match op {
        Redux::Add => of.fold(0, u32::wrapping_add),
        Redux::Min if signed => of.map(|x| x as i32).min().unwrap_or(0) as u32,
        Redux::Max if signed => of.map(|x| x as i32).max().unwrap_or(0) as u32,
        Redux::Min => of.min().unwrap_or(0),
        Redux::Max => of.max().unwrap_or(0),
        Redux::And => of.fold(u32::MAX, |x, y| x & y),
        Redux::Or => of.fold(0, |x, y| x | y),
        Redux::Xor => of.fold(0, |x, y| x ^ y),
    }
}
