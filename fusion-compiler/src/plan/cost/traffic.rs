//! Kernels of a group → the bytes of tensors that they move.
//!
//! Invariant: the bytes are counted in the kernel that is launched, so that reports and devices agree. A
//! kernel with two passes over a row counts the row's own elements twice, unless they are still in the
//! thread's cache.

use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet};
use crate::ir::kernel::{BufferId, Expr, Kernel, LoopKind, Stmt, Value, statements};
use crate::ir::plan::{Contraction, Factor, Slot};
use crate::plan::assemble::{collect_terms, traffic};
use crate::schedule::{Schedule, Scheduled, Scratch, UnstagedTail, Work, chosen};
use crate::target::{RowMemory, TargetFacts};

/// Axes and dtype of an array.
type Amount = (AxisSet, DType);

/// Returns the bytes of tensors that a kernel of a group reads and writes.
pub(crate) fn bytes(
    work: &Work<'_>,
    scratch: &[Scratch],
    facts: &TargetFacts,
    (kernel, scheduled): (&Kernel, &Scheduled),
) -> DimExpr {
    let (buffers, unstaged_tail) = (&scheduled.buffers, scheduled.unstaged_tail.as_ref());
    // The driver reads the operands of a contraction, each once from memory.
    let operands: Vec<Factor> = scheduled.contraction.iter().flat_map(Contraction::factors).collect();
    let is_operand = |buffer| operands.contains(&Factor::Buffer(buffer));
    let is_row = chosen(work) == Schedule::Row || scheduled.contraction.is_some();
    let cached = facts.row_memory == RowMemory::Scratch && is_row;
    let rows: AxisSet = work.group.order.iter().copied().collect();
    let mut slots: Vec<Slot> = Vec::new();
    for buffer in buffers {
        if !slots.contains(&buffer.slot) {
            slots.push(buffer.slot);
        }
    }
    let (mut amounts, mut passed_on): (Vec<Amount>, Vec<DimExpr>) = (vec![], vec![]);
    for slot in slots {
        // Several buffers may refer to one tensor: windows on it, or its views.
        let alike = (0..buffers.len()).filter(|&buffer| buffers[buffer].slot == slot);
        let ids = || alike.clone().map(|buffer| BufferId(buffer as u16));
        // Loops that end at the first unstaged element read only staged ones. The other loops tell how often
        // the unstaged elements are read.
        let is_staged = |end: Value| unstaged_tail.is_some_and(|unstaged_tail| unstaged_tail.first == end);
        let most = |counts: &dyn Fn(Value) -> bool| {
            let times =
                |id: BufferId| times_read(&kernel.body, id, counts).max(usize::from(is_operand(id.0)));
            ids().map(times).max().unwrap_or(0)
        };
        let rest = most(&|end| !is_staged(end));
        let times = if unstaged_tail.is_some() { most(&is_staged) } else { rest };
        let times = if cached { times.min(1) } else { times };
        let written = statements(&kernel.body)
            .any(|stmt| matches!(stmt, Stmt::Store(at, _) if ids().any(|id| id == at.buffer)));
        let partials = work.partials.and_then(|partials| partials.scratch_of(slot));
        if let Some(scratch) = partials.or_else(|| scratch_of(work, scratch, slot)) {
            let all = (times + usize::from(written)) * scratch.dtype.size();
            passed_on.push(scratch.len.clone() * DimExpr::constant(all as i64));
            continue;
        }
        let (read, stored) = amounts_of(work, slot);
        // Elements that rows share stay in the device's cache.
        let own = |(axes, _): &Amount| rows.iter().all(|axis| axes.contains(axis));
        let repeated =
            |amount: Amount| std::iter::repeat_n(amount, if own(&amount) { times } else { times.min(1) });
        let again = rest.saturating_sub(times);
        for (axes, dtype) in read.iter().filter(|amount| again > 0 && own(amount)) {
            let bytes = DimExpr::constant((again * dtype.size()) as i64);
            passed_on.extend(
                unstaged_tail.map(|unstaged_tail| bytes * unstaged_bytes(work, *axes, unstaged_tail)),
            );
        }
        amounts.extend(read.into_iter().flat_map(repeated));
        amounts.extend(stored.into_iter().filter(|_| written));
    }
    let tensors = collect_terms(work.graph, amounts.into_iter());
    passed_on.into_iter().fold(tensors, |sum, bytes| sum + bytes)
}

/// Returns the number of unstaged elements of all rows. The number is an upper bound for elements that are
/// read for a part of each row.
fn unstaged_bytes(work: &Work<'_>, axes: AxisSet, unstaged_tail: &UnstagedTail) -> DimExpr {
    let (graph, group) = (work.graph, work.group);
    let extent = |axis| graph.axis(axis).extent.clone();
    let (rows, along): (Vec<AxisId>, Vec<AxisId>) = axes.iter().partition(|axis| group.order.contains(axis));
    let rows = rows.into_iter().fold(DimExpr::constant(1), |rows, axis| rows * extent(axis));
    let is_whole = along.iter().all(|axis| group.cols.contains(axis));
    let own = along.into_iter().fold(DimExpr::constant(1), |all, axis| all * extent(axis));
    rows * if is_whole { unstaged_tail.each.clone() } else { own.min(unstaged_tail.each.clone()) }
}

/// Returns the memory between the group's kernels that a slot refers to, if any.
fn scratch_of<'s>(work: &Work<'_>, scratch: &'s [Scratch], slot: Slot) -> Option<&'s Scratch> {
    match slot {
        Slot::Temp(number) => scratch.get(usize::from(number.checked_sub(work.temporaries)?)),
        Slot::Param(_) | Slot::Output(_) => None,
    }
}

/// Returns the arrays that the group reads from a slot, and those that it writes to it.
fn amounts_of(work: &Work<'_>, slot: Slot) -> (Vec<Amount>, Vec<Amount>) {
    let buffers = work.group.loads.iter().map(|load| work.loads[load]).chain(work.stores.iter().copied());
    let is_ours = |buffer: BufferId| work.operands[usize::from(buffer.0)].slot == slot;
    let all: Vec<(usize, Amount)> = traffic(work.graph, work.group)
        .enumerate()
        .zip(buffers)
        .filter(|(_, buffer)| is_ours(*buffer))
        .map(|(amount, _)| amount)
        .collect();
    let (read, stored): (Vec<_>, Vec<_>) = all.into_iter().partition(|(i, _)| *i < work.group.loads.len());
    let amounts = |of: Vec<(usize, Amount)>| of.into_iter().map(|(_, amount)| amount).collect();
    (amounts(read), amounts(stored))
}

/// Returns how often statements traverse a buffer, in the loops whose end `counts` accepts. Iterations of
/// distributed loops access different rows or elements.
fn times_read(stmts: &[Stmt], buffer: BufferId, counts: &dyn Fn(Value) -> bool) -> usize {
    let mut times = Times::default();
    times.add(stmts, buffer, counts);
    times.loops.max(times.distributed).max(times.once)
}

/// Numbers of reads of a buffer: outside of loops, in distributed loops, and in serial loops.
#[derive(Default)]
struct Times {
    once: usize,
    distributed: usize,
    loops: usize,
    /// End and number of reads of the last loop. A loop that starts at this end continues it.
    last: Option<(Value, usize)>,
}

impl Times {
    fn add(&mut self, stmts: &[Stmt], buffer: BufferId, counts: &dyn Fn(Value) -> bool) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(_, Expr::Load(at) | Expr::LoadWhere(at, _)) if at.buffer == buffer => self.once = 1,
                Stmt::Loop { kind: LoopKind::Grid | LoopKind::Team | LoopKind::Remainder, body, .. } => {
                    self.distributed = self.distributed.max(times_read(body, buffer, counts));
                }
                Stmt::Loop { kind: LoopKind::Serial, end, .. } if !counts(*end) => {}
                Stmt::Loop { kind: LoopKind::Serial, start, end, body, .. } => {
                    let times = times_read(body, buffer, counts);
                    let before = self.last.filter(|(end, _)| end == start).map_or(0, |(_, times)| times);
                    self.loops += times.saturating_sub(before);
                    self.last = Some((*end, times.max(before)));
                }
                Stmt::Vector { body, .. } => self.loops += times_read(body, buffer, counts),
                Stmt::If { body, .. } => self.add(body, buffer, counts),
                _ => {}
            }
        }
    }
}
