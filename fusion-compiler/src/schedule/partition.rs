//! How rows are cut into parts, and when that pays.
//!
//! Rows whose elements lie next to each other are cut into runs of those. Of rows side by side a run would be too narrow to
//! read where they are few: so as many parts as make one wide enough go through a run of all of them together, taking turns, and
//! lie side by side as rows do. Invariant: parts depend on extents alone.

use super::space::{SpaceDim, cols, line, product};
use super::staging::steps;
use super::{Schedule, Work};
use crate::fuse::{Load, Store};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AXES_MAX, AxisId, AxisSet, Dim, Graph, NodeId, NodeKind};
use crate::ir::kernel::UNIFORM_LEN;
use crate::ir::plan::Condition;
use crate::target::tuning_table::all;
use crate::target::{TargetFacts, Vectors};

/// How rows are cut into parts.
#[derive(Clone)]
pub(super) struct Partition {
    /// How the elements of rows lie.
    pub(super) schedule: Schedule,
    /// The number of the run.
    pub(super) part: AxisId,
    /// The parts that share one.
    pub(super) interleave: Option<Interleave>,
    /// The number of a part where its elements are stored and all parts are combined again, if that is to be.
    pub(super) chunk: Option<AxisId>,
    /// Axes of a row that a part has one coordinate of.
    outer: Vec<AxisId>,
    /// The others, outermost first …
    pub(super) inner: Vec<AxisId>,
    /// … and which of them has to stay a dim by itself, which runs of its coordinates are parts of.
    pub(super) alone: Option<AxisId>,
    /// How many of the axes of rows are outside of those of parts.
    before: usize,
    /// Coordinates along the dim that is cut …
    pub(super) extent: DimExpr,
    /// … those of each run but the last …
    pub(super) len: DimExpr,
    /// … and elements of each.
    each: DimExpr,
    count: DimExpr,
    /// Elements along the innermost dim of a row, in runs of vectors.
    pub(super) innermost: DimExpr,
    /// True if exponentials that are too small to change their sum become 0. Processors take a hundred cycles for products
    /// of numbers that are almost too small for floats.
    pub(super) flushes: bool,
}

/// Parts that go through a run of coordinates together: each takes every so many.
#[derive(Clone)]
pub(super) struct Interleave {
    /// The number of the part among them.
    pub(super) axis: AxisId,
    /// How many there are.
    pub(super) count: DimExpr,
}

impl Partition {
    /// Parts of `len` elements along the axes `inner`, with one coordinate each along the axes `outer`.
    pub(super) fn of_tiles(graph: &Graph, (outer, inner): (Vec<AxisId>, Vec<AxisId>), len: i64) -> Partition {
        let extents = || inner.iter().map(|&axis| &graph.axis(axis).extent);
        let (extent, len) = (DimExpr::product(extents()), DimExpr::constant(len));
        let innermost = extents().next_back().cloned().unwrap_or_else(|| DimExpr::constant(1));
        Partition {
            schedule: Schedule::Row,
            part: AxisId(graph.axes.len() as u8),
            interleave: None,
            chunk: None,
            outer,
            inner,
            alone: None,
            before: 0,
            count: extent.clone().ceil_div(len.clone()),
            extent,
            len,
            each: DimExpr::constant(1),
            innermost,
            flushes: false,
        }
    }

    /// The same parts, where exponentials that are too small to change their sum become 0.
    pub(super) fn flushing(self) -> Partition {
        Partition { flushes: true, ..self }
    }

    /// The number of the last run.
    pub(super) fn last(&self) -> DimExpr {
        self.count.clone() - DimExpr::constant(1)
    }

    /// Its elements.
    pub(super) fn rest(&self) -> DimExpr {
        (self.extent.clone() - self.last() * self.len.clone()) * self.each.clone()
    }

    /// Those of the others.
    pub(super) fn whole(&self) -> DimExpr {
        self.len.clone() * self.each.clone()
    }

    /// The axes of the parts of a row.
    pub(super) fn parts(&self) -> Vec<AxisId> {
        let interleave = self.interleave.as_ref().map(|interleave| interleave.axis);
        self.outer.iter().copied().chain([self.part]).chain(interleave).collect()
    }

    /// Those of the parts of all rows, which have these axes.
    pub(super) fn order(&self, rows: &[AxisId]) -> Vec<AxisId> {
        let (before, after) = rows.split_at(self.before);
        [before, &self.parts(), after].concat()
    }

    /// The axis along which coordinates follow each other in a part.
    pub(super) fn along(&self) -> AxisId {
        let last = || *self.inner.last().unwrap_or_else(|| unreachable!("a part has axes"));
        self.alone.unwrap_or_else(last)
    }

    /// The axes of a value that has these of whole rows.
    pub(super) fn of_part(&self, axes: AxisSet) -> AxisSet {
        let interleave = self.interleave.iter().filter(|_| axes.contains(self.along()));
        interleave.fold(axes, |axes, interleave| axes.with(interleave.axis))
    }

    /// Gives the graph the axes of parts, which come after its own.
    pub(super) fn extend(&self, graph: &mut Graph) {
        graph.axes.push(Dim { name: "part".into(), extent: self.count.clone() });
        if let Some(Interleave { count, .. }) = &self.interleave {
            graph.axes.push(Dim { name: "interleave".into(), extent: count.clone() });
        }
        if self.chunk.is_some() {
            graph.axes.push(Dim { name: "chunk".into(), extent: self.count.clone() });
        }
    }

    /// What tells kernels of several cuts apart.
    pub(super) fn tag(&self) -> &'static str {
        if self.alone.is_some() { "_runs" } else { "" }
    }
}

/// The most axes that parts take beside those of a group.
const AXES_OF_PARTS: usize = 2;

/// How to cut the rows, and when it pays: lines by the numbers of their elements, other rows along the innermost dim where that is
/// long, else along the outermost axis.
pub(super) fn partitions(
    work: &Work<'_>,
    facts: &TargetFacts,
    schedule: Schedule,
) -> Vec<(Partition, Vec<Condition>)> {
    let Some((partition, all)) = unpartitioned(work, facts, schedule) else { return vec![] };
    let (extent, is_line) = (partition.extent.clone(), partition.outer.is_empty());
    let made = match schedule {
        Schedule::Pointwise => None,
        Schedule::Row => Some(of_lines(work, facts, partition)),
        Schedule::Column => of_columns(work, facts, partition),
    };
    let Some((partition, mut when)) = made else { return vec![] };
    when.push(Condition::AtLeast(all, row_min(work, facts, schedule)));
    let mut partitions = vec![(partition, when.clone())];
    if !is_line {
        partitions[0].1.push(Condition::AtLeast(extent, all::INNER_MIN));
        partitions.push((along_outermost(work, &partitions[0].0), when));
    }
    partitions.retain(|(_, when)| !when.iter().any(|condition| condition.known() == Some(false)));
    partitions.iter_mut().for_each(|(_, when)| when.retain(|condition| condition.known().is_none()));
    partitions
}

/// How to cut the only row, whose parts every block may combine again, and when it pays.
pub(super) fn into_few(work: &Work<'_>, facts: &TargetFacts) -> Option<(Partition, Condition)> {
    let (partition, all) = unpartitioned(work, facts, Schedule::Row)?;
    let (is_line, len) = (partition.outer.is_empty(), len_of_few(&all, facts));
    let partition = Partition { count: partition.extent.clone().ceil_div(len.clone()), len, ..partition };
    let partition = if is_line { partition } else { along_outermost(work, &partition) };
    Some((partition, Condition::AtLeast(all, facts.parts.row_min)))
}

/// Rows, and of how many elements, before they are cut.
fn unpartitioned(work: &Work<'_>, facts: &TargetFacts, schedule: Schedule) -> Option<(Partition, DimExpr)> {
    let (graph, group) = (work.graph, work.group);
    if graph.axes.len() + AXES_OF_PARTS > AXES_MAX {
        return None;
    }
    let all = cols(graph, group, &work.operands);
    let in_line = match schedule {
        Schedule::Row => line(facts, &all),
        Schedule::Column | Schedule::Pointwise => 1,
    };
    let (outer, inner) = all.split_at(all.len() - in_line);
    let innermost = inner.last()?.extent.clone();
    let axes = |dims: &[SpaceDim]| dims.iter().flat_map(|dim| dim.axes.clone()).collect();
    let partition = Partition {
        schedule,
        part: AxisId(graph.axes.len() as u8),
        interleave: None,
        chunk: None,
        outer: axes(outer),
        inner: axes(inner),
        alone: None,
        before: group.order.len(),
        extent: product(inner),
        len: DimExpr::constant(1),
        each: DimExpr::constant(1),
        count: product(inner),
        innermost,
        flushes: false,
    };
    Some((partition, product(&all)))
}

/// Elements of the shortest rows that it pays for.
fn row_min(work: &Work<'_>, facts: &TargetFacts, schedule: Schedule) -> i64 {
    let of_elements = work.group.stores.iter().any(|store| work.group.is_of_elements(store));
    let (parts, columns) = (facts.parts, facts.columns);
    match (schedule, of_elements) {
        (Schedule::Column, false) => columns.row_min,
        (Schedule::Column, true) => columns.stored_row_min,
        (Schedule::Row | Schedule::Pointwise, false) => parts.row_min,
        (Schedule::Row | Schedule::Pointwise, true) => parts.stored_row_min,
    }
}

/// The product of the extents of axes, whose order changes nothing.
fn rows(work: &Work<'_>, axes: &[AxisId]) -> DimExpr {
    // In the order of operands' lengths.
    let axes: AxisSet = axes.iter().copied().collect();
    DimExpr::product(axes.iter().map(|axis| &work.graph.axis(axis).extent))
}

/// Whether so few parts are worth it that the kernel which stores elements can combine them for itself: of the only row, which
/// is a line and is gone through once before, so that no block has to hold a part, however long.
fn is_folded(work: &Work<'_>, partition: &Partition) -> bool {
    let of_elements = |store: &Store| work.group.is_of_elements(store);
    let is_line = work.group.order.is_empty() && partition.outer.is_empty();
    is_line && work.group.stores.iter().any(of_elements) && steps(work).iter().all(|(before, _)| *before == 0)
}

/// Elements of parts so few that every block may combine them again.
fn len_of_few(all: &DimExpr, facts: &TargetFacts) -> DimExpr {
    let len = DimExpr::constant(facts.parts.len);
    let more = all.clone().ceil_div(len.clone() * DimExpr::constant(UNIFORM_LEN.into()));
    len * more
}

/// Runs of elements, where rows are few.
fn of_lines(work: &Work<'_>, facts: &TargetFacts, partition: Partition) -> (Partition, Vec<Condition>) {
    let when = vec![Condition::AtMost(rows(work, &work.group.order), facts.parts.rows_max)];
    let (chunk, len) = if is_folded(work, &partition) {
        (Some(AxisId(partition.part.0 + 1)), len_of_few(&partition.extent, facts))
    } else {
        (None, DimExpr::constant(facts.parts.len))
    };
    let count = partition.extent.clone().ceil_div(len.clone());
    (Partition { chunk, len, count, ..partition }, when)
}

/// Parts of rows side by side. If something is read along what is cut: from there they have their order.
fn of_columns(
    work: &Work<'_>,
    facts: &TargetFacts,
    partition: Partition,
) -> Option<(Partition, Vec<Condition>)> {
    let (order, along) = (&work.group.order, partition.along());
    let place = |axes: &[AxisId], axis| axes.iter().position(|&other| other == axis);
    let read = work.group.loads.iter().map(|load: &Load| &work.operands[usize::from(work.loads[load].0)]);
    let widest =
        read.filter(|operand| operand.axes.contains(&along)).max_by_key(|operand| operand.axes.len())?;
    let is_after = |axis: &AxisId| place(&widest.axes, *axis) > place(&widest.axes, along);
    let before = order.iter().position(is_after).unwrap_or(order.len());
    let number = DimExpr::constant;
    let columns = facts.columns;
    // A multiple of what GPUs read at once, and as many as make a run of a few hundred elements; one where values are
    // asked for at other places, which are not every so many.
    let lanes = match facts.vector {
        Vectors::Loops(_) => 1,
        Vectors::Lanes(lanes) => i64::from(lanes),
    };
    let wide = number(columns.width) / (number(lanes) * rows(work, &order[before..]));
    let moves = |&id: &NodeId| {
        matches!(work.graph.node(id).kind, NodeKind::Gather(_)) && work.graph.static_index(id).is_none()
    };
    let is_moved = work.group.nodes.iter().any(moves);
    let count = if is_moved { number(1) } else { number(lanes) * (number(1) + wide) };
    // More rows need fewer parts to keep a device busy; of the longest rows there would be too many to combine.
    let all = rows(work, order);
    let more = number(all::COLUMN_PART_STEPS_MAX - columns.steps) * all.clone();
    let steps = number(columns.steps)
        + more / (all.clone() + number(all::COLUMN_PART_ROW_LEN))
        + partition.extent.clone() / number(all::COLUMN_PART_ROW_LEN);
    let len = steps * count.clone();
    let interleave = (!is_moved).then_some(Interleave { axis: AxisId(partition.part.0 + 1), count });
    let before = if is_moved { run_of_minor(order, before) } else { before };
    let runs = partition.extent.clone().ceil_div(len.clone());
    // Where nothing has elements of all rows along what is cut, parts of many would take more memory than all that is read.
    let is_of_all = order.iter().all(|axis| widest.axes.contains(axis));
    let few = (!is_of_all).then(|| Condition::AtMost(all.clone(), facts.parts.rows_max));
    let when = [Condition::AtLeast(all, 1)].into_iter().chain(few).collect();
    Some((Partition { interleave, before, len, count: runs, ..partition }, when))
}

/// The same along the outermost axis, by runs of it.
fn along_outermost(work: &Work<'_>, partition: &Partition) -> Partition {
    let (graph, group) = (work.graph, work.group);
    let (&alone, rest) = group.cols.split_first().unwrap_or_else(|| unreachable!("a row has axes"));
    let each = DimExpr::product(rest.iter().map(|&axis| &graph.axis(axis).extent));
    let extent = graph.axis(alone).extent.clone();
    let steps = match &partition.interleave {
        None => partition.len.clone(),
        Some(interleave) => partition.len.clone() / interleave.count.clone(),
    };
    let len = steps.ceil_div(each.clone());
    let count = extent.clone().ceil_div(len.clone());
    let (outer, inner, alone) = (vec![], group.cols.clone(), Some(alone));
    let before = match partition.schedule {
        Schedule::Column => run_of_minor(&group.order, partition.before),
        Schedule::Row | Schedule::Pointwise => partition.before,
    };
    Partition { interleave: None, outer, inner, alone, before, extent, len, each, count, ..partition.clone() }
}

/// Where among the axes of rows those of parts may be that take no turns: vectors run along rows, not along parts, whose
/// loops have bounds of their own.
fn run_of_minor(order: &[AxisId], before: usize) -> usize {
    before.min(order.len() - 1)
}
