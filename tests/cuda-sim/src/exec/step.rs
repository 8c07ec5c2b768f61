//! Execution of a warp's instructions.

use super::block::{self, BlockMemory};
use super::cluster::Others;
use super::grid::Grid;
use super::memory::{self, Who};
use super::order;
use super::race::Stamp;
use super::regs::{LANES, Raw, lanes};
use super::unset;
use super::warp::{Group, Warp};
use super::{
    FaultKind, Step, Trouble, alu, atomic, cluster, copy, incoming, mbarrier, shared, special, sync, trouble,
};
use crate::ptx::Kernel;
use crate::ptx::ir::{Bar, Inst, Op, Reg, Together};

/// Number of instructions of a warp's turn. Other warps run after it, so that a warp may wait for another in
/// a loop.
const TURN: u64 = 20_000;

/// Control flow after an instruction.
pub(super) enum Flow {
    Next,
    Jump(u32),
    /// The instruction has set the program counters of the lanes.
    Placed,
}

/// Runs a warp until all its lanes wait or have exited, or its turn is over. An error has the instruction's
/// number.
pub(super) fn run(
    grid: &Grid<'_>,
    (mem, others): (&mut BlockMemory, &mut Others<'_>),
    warp: &mut Warp,
) -> Result<(), (u32, Box<Trouble>)> {
    let mut steps = 0;
    while let Some(group) = warp.next() {
        let mut pc = group.pc;
        self::group(grid, (mem, others), warp, group, &mut pc, &mut steps)
            .map_err(|trouble| (pc, trouble))?;
        if steps >= TURN {
            // Other warps and other blocks run now, because the lanes may wait for them in a loop.
            warp.turn = warp.turn.wrapping_add(1);
            std::thread::yield_now();
            break;
        }
    }
    if grid.count(steps) {
        return Ok(());
    }
    let (lane, pc) = (warp.live.trailing_zeros() as usize % LANES, warp.next().map_or(0, |group| group.pc));
    let what = "the launch has run more instructions than its limit".into();
    Err((pc, Box::new(Trouble { kind: FaultKind::Endless, what, lane })))
}

/// Runs lanes together until they diverge, wait, or reach other lanes.
fn group(
    grid: &Grid<'_>,
    (mem, others): (&mut BlockMemory, &mut Others<'_>),
    warp: &mut Warp,
    group: Group,
    pc: &mut u32,
    steps: &mut u64,
) -> Step {
    let (active, code) = (group.active, &grid.kernel.code);
    while *pc < group.limit {
        let inst = &code.insts[*pc as usize];
        let mut exec = active;
        if let Some(guard) = inst.guard {
            check(grid.kernel, warp, active, &[guard.pred])?;
            exec &= warp.regs.truth(guard.pred, guard.negated);
        }
        *steps += 1;
        if exec == 0 {
            if let Op::Bar { threads: None, .. } = inst.op {
                warp.skipped = Some(*pc);
            }
            *pc += 1;
            continue;
        }
        // Special registers as operands are read before their instruction, which counts once.
        if !matches!(inst.op, Op::Special { .. }) {
            mem.counters.instructions += u64::from(exec.count_ones());
        }
        let undefined = check_reads(grid.kernel, warp, exec, inst)?;
        let flow = if let Op::Alu(op) = &inst.op {
            let parts = if undefined == 0 { Vec::new() } else { unset::parts(&warp.regs, undefined, op) };
            alu::run(&mut warp.regs, exec, op, grid.fast);
            if undefined != 0 {
                unset::computed(&mut warp.regs, undefined, inst.written(&code.writes), &parts);
            }
            Flow::Next
        } else {
            other(grid, (mem, others), warp, (active, exec), *pc, &inst.op)?
        };
        match flow {
            Flow::Next => *pc += 1,
            Flow::Jump(target) => {
                let back = target <= *pc;
                *pc = target;
                if back && *steps >= TURN {
                    break;
                }
            }
            Flow::Placed => return Ok(()),
        }
    }
    warp.place(active, *pc);
    Ok(())
}

/// Checks that all registers that decide anything are defined. Returns the lanes whose computed result is
/// undefined.
#[inline(always)]
fn check_reads(kernel: &Kernel, warp: &Warp, exec: u32, inst: &Inst) -> Result<u32, Box<Trouble>> {
    let (first, count) = inst.reads;
    let reads = &kernel.code.reads[first as usize..(first + count) as usize];
    let missing = missing(warp, exec, reads);
    if missing == 0 { Ok(0) } else { undefined(kernel, warp, exec, (&inst.op, reads)) }
}

/// Returns the lanes in which any of these registers is undefined.
#[inline(always)]
fn missing(warp: &Warp, exec: u32, reads: &[Reg]) -> u32 {
    let mut missing = 0;
    for &reg in reads {
        missing |= exec & !warp.regs.written[reg as usize];
    }
    missing
}

/// Returns the lanes whose result is undefined, or a fault, where an operand is undefined.
#[cold]
fn undefined(
    kernel: &Kernel,
    warp: &Warp,
    exec: u32,
    (op, reads): (&Op, &[Reg]),
) -> Result<u32, Box<Trouble>> {
    let mut exec = exec;
    if let Op::Alu(alu) = op
        && let Some(missing) = alu::undefined(&warp.regs, exec, alu, reads)
    {
        return Ok(missing);
    }
    // A store to the block's own memory makes the bytes undefined there.
    if let Op::Store(access) = op {
        let base = access.addr.base.map(|(reg, _)| reg);
        check(kernel, warp, exec, base.as_slice())?;
        return match unset::refused(&warp.regs, exec, access) {
            Some((lane, reg)) => unwritten(kernel, warp, 1 << lane, (&[reg], reads)).map(|()| 0),
            None => Ok(0),
        };
    }
    if let Op::Together { mask, what } = op {
        match *what {
            // An undefined value matters only to the lanes that receive it.
            Together::Shfl { b, c, .. } => return check(kernel, warp, exec, &[b, c, *mask]).map(|()| 0),
            // Only these lanes have addresses of rows.
            Together::LdMatrix { count, .. } if count < 4 => exec &= (1 << (8 * count)) - 1,
            Together::LdMatrix { .. }
            | Together::Sync
            | Together::Vote { .. }
            | Together::Match { .. }
            | Together::Redux { .. }
            | Together::Elect { .. }
            | Together::Mma(_) => {}
        }
    }
    check(kernel, warp, exec, reads).map(|()| 0)
}

/// Returns a fault if any of these registers is undefined.
#[inline(always)]
fn check(kernel: &Kernel, warp: &Warp, exec: u32, reads: &[Reg]) -> Step {
    if missing(warp, exec, reads) == 0 { Ok(()) } else { unwritten(kernel, warp, exec, (reads, reads)) }
}

#[cold]
fn unwritten(kernel: &Kernel, warp: &Warp, exec: u32, (of, reads): (&[Reg], &[Reg])) -> Step {
    let is_missing = |&&reg: &&Reg| exec & !warp.regs.written[reg as usize] != 0;
    let which = of.iter().find(is_missing).copied().unwrap_or(reads[0]);
    let lane = (exec & !warp.regs.written[which as usize]).trailing_zeros() as usize;
    let number = reads.iter().position(|&reg| reg == which).unwrap_or(0) + 1;
    trouble(FaultKind::Uninitialized, lane, || {
        let why = warp.regs.unset.why(kernel, lane);
        format!(
            "the register that it reads as number {number} is undefined: nothing has written it, or something that it was made of, or a shuffle took it from a lane that took no part{why}"
        )
    })
}

/// Executes all instructions other than arithmetic on a lane's own registers.
fn other(
    grid: &Grid<'_>,
    (mem, others): (&mut BlockMemory, &mut Others<'_>),
    warp: &mut Warp,
    (active, exec): (u32, u32),
    pc: u32,
    op: &Op,
) -> Result<Flow, Box<Trouble>> {
    let stamp = Stamp::new(mem.number, warp.first, mem.time);
    let (first, meeting) = (warp.first, warp.meeting);
    let who = &mut Who { grid, mem, others: others.again(), stamp, first, meeting, pc };
    match op {
        Op::Nop | Op::Alu(_) => {}
        Op::Special { special, wide, d } => special::read(who, warp, exec, *special, (*d, *wide)),
        Op::Cvta { space, to, d, a } => memory::cvta(&mut warp.regs, exec, (*space, *to), *d, *a),
        Op::IsSpace { space, d, a } => memory::is_space(&mut warp.regs, exec, *space, *d, *a),
        Op::MapRank { generic, wide, d, a, b } => {
            shared::map_rank(who, warp, exec, (*generic, *wide), (*d, *a, *b))?;
        }
        Op::RankOf { generic, wide, d, a } => {
            shared::rank_of(who, warp, exec, (*generic, *wide), (*d, *a))?;
        }
        Op::Load(access) => memory::load(who, &mut warp.regs, exec, access)?,
        Op::Store(access) => memory::store(who, &mut warp.regs, exec, access)?,
        Op::Atom(atom) => atomic::atom(who, &mut warp.regs, exec, atom)?,
        Op::CopyAsync { to, from, bytes, fill } => copy::begin(who, warp, exec, (*to, *from), *bytes, *fill)?,
        Op::CopyCommit => warp.copies.commit(exec),
        Op::CopyWait(most) => copy::wait(who, warp, exec, *most)?,
        Op::StoreAsync(store) => incoming::store(who, warp, exec, store)?,
        Op::Mbarrier { addr, what } => {
            return mbarrier::mbarrier(who, warp, (active, exec), pc, (*addr, *what));
        }
        Op::FenceInit => mbarrier::fence(who, exec),
        Op::Fence { wide, acquires, releases } => order::fence(who, exec, *wide, (*acquires, *releases)),
        Op::Branch { target } => return Ok(branch(warp, active, exec, pc, *target)),
        Op::BranchTable { index, targets } => return branch_table(warp, (active, exec), pc, *index, targets),
        Op::Exit => {
            warp.place(active & !exec, pc + 1);
            who.mem.end(warp, exec, grid.kernel.code.orders_some);
            warp.exit(exec);
            return Ok(Flow::Placed);
        }
        Op::Trap => {
            return trouble(FaultKind::Trap, exec.trailing_zeros() as usize, || "the kernel gives up".into());
        }
        Op::Together { mask, what } => return sync::together(who, warp, (active, exec), pc, (*mask, what)),
        Op::ActiveMask { d } => warp.regs.put(exec, *d, &[exec; LANES]),
        Op::Bar { id, threads, bar, aligned } => {
            return barrier(who, warp, (active, exec), pc, ((*id, *threads, *aligned), bar));
        }
        Op::ClusterBar { bar, aligned } => {
            return cluster::barrier(who, warp, (active, exec), pc, (*bar, *aligned));
        }
    }
    Ok(Flow::Next)
}

/// Executes an arrival of lanes at a barrier of the block, with its number, number of threads and alignment.
fn barrier(
    who: &mut Who<'_, '_>,
    warp: &mut Warp,
    (active, exec): (u32, u32),
    pc: u32,
    ((id, threads, aligned), bar): ((Reg, Option<Reg>, bool), &Bar),
) -> Result<Flow, Box<Trouble>> {
    check_guard((active, exec), aligned)?;
    warp.place(active & !exec, pc + 1);
    block::arrive(who.mem, warp, exec, (id, threads), (pc, !matches!(bar, Bar::Arrive)))?;
    Ok(Flow::Placed)
}

/// Returns a fault if a guard keeps lanes from an aligned barrier.
pub(super) fn check_guard((active, exec): (u32, u32), aligned: bool) -> Step {
    if !aligned || exec == active {
        return Ok(());
    }
    let lane = (active & !exec).trailing_zeros() as usize;
    trouble(FaultKind::Barrier, lane, || {
        "its guard keeps some lanes of a warp from this barrier, which is aligned".into()
    })
}

fn branch(warp: &mut Warp, active: u32, exec: u32, pc: u32, target: u32) -> Flow {
    if exec == active {
        return Flow::Jump(target);
    }
    warp.place(active & !exec, pc + 1);
    warp.place(exec, target);
    Flow::Placed
}

fn branch_table(
    warp: &mut Warp,
    (active, exec): (u32, u32),
    pc: u32,
    index: Reg,
    targets: &[u32],
) -> Result<Flow, Box<Trouble>> {
    let index = *u32::row(&warp.regs, index);
    warp.place(active & !exec, pc + 1);
    for lane in lanes(exec) {
        let Some(&target) = targets.get(index[lane] as usize) else {
            return trouble(FaultKind::OutOfBounds, lane, || {
                format!("there is no target {} in a list of {}", index[lane], targets.len())
            });
        };
        warp.pcs[lane] = target;
    }
    Ok(Flow::Placed)
}
