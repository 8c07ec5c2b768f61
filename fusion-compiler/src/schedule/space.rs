//! The iteration space of a group: its axes, merged as far as every operand allows.
//!
//! Neighbouring axes that every operand has side by side, or lacks, are one dim: `[N, D]` tensors of one shape
//! are a line, whatever their rank. The innermost dim is the one that vectors run along.

use crate::fuse::Group;
use crate::ir::dim::DimExpr;
use crate::ir::graph::{Access, AxisId, AxisSet, Graph, NodeId};
use crate::ir::kernel::IndexWidth;
use crate::ir::plan::{Condition, Footprint};
use crate::target::{TargetFacts, Vectors};

use super::{Operand, Work};

/// Elements of the largest tensor that 32-bit positions reach.
const BITS32_MAX: i64 = i32::MAX as i64;

/// Axes that are iterated as one.
#[derive(Clone, Debug)]
pub(super) struct SpaceDim {
    /// Outermost first; one if its coordinate is asked for, but for that of parts that take turns.
    pub(super) axes: Vec<AxisId>,
    /// Product of their extents.
    pub(super) extent: DimExpr,
}

impl SpaceDim {
    /// Elements of the dim for each coordinate along one of its axes.
    pub(super) fn each(&self, graph: &Graph, axis: AxisId) -> DimExpr {
        let inner = self.axes.iter().skip_while(|&&other| other != axis).skip(1);
        DimExpr::product(inner.map(|&axis| &graph.axis(axis).extent))
    }
}

/// The dims of the space of a group, outermost first; at least one.
pub(super) fn dims(graph: &Graph, group: &Group, operands: &[Operand]) -> Vec<SpaceDim> {
    merged(graph, group, &group.space(), operands)
}

/// The dims that some axes of the space make, outermost first; none without axes.
pub(super) fn dims_along(work: &Work<'_>, axes: &[AxisId]) -> Vec<SpaceDim> {
    if axes.is_empty() { vec![] } else { merged(work.graph, work.group, axes, &work.operands) }
}

/// The dims of a row, outermost first; at least one.
pub(super) fn cols(graph: &Graph, group: &Group, operands: &[Operand]) -> Vec<SpaceDim> {
    merged(graph, group, &group.cols, operands)
}

/// The number of elements of the space that dims make.
pub(super) fn product(dims: &[SpaceDim]) -> DimExpr {
    DimExpr::product(dims.iter().map(|dim| &dim.extent))
}

/// How many of the dims of a row, the innermost, make a line: a team goes through all of a row by the number of an element, and
/// vector loops run along one dim.
pub(super) fn line(facts: &TargetFacts, cols: &[SpaceDim]) -> usize {
    match facts.vector {
        Vectors::Loops(_) => 1,
        Vectors::Lanes(_) => cols.len(),
    }
}

fn merged(graph: &Graph, group: &Group, axes: &[AxisId], operands: &[Operand]) -> Vec<SpaceDim> {
    let asked: AxisSet = group.nodes.iter().filter_map(|&id| coordinate(graph, id)).collect();
    // Whose turn it is follows from the coordinates of the dim that it is outermost in.
    let asked = asked.minus(operands.iter().filter_map(|operand| operand.interleave_axis).collect());
    let mut dims: Vec<SpaceDim> = Vec::new();
    for &axis in axes {
        let extent = graph.axis(axis).extent.clone();
        match dims.last_mut() {
            Some(dim) if merges(dim, axis, asked, operands) => {
                dim.axes.push(axis);
                dim.extent = dim.extent.clone() * extent;
            }
            Some(_) | None => dims.push(SpaceDim { axes: vec![axis], extent }),
        }
    }
    if dims.is_empty() {
        dims.push(SpaceDim { axes: vec![], extent: DimExpr::constant(1) });
    }
    dims
}

/// The axis whose coordinates a node asks for, or replaces.
fn coordinate(graph: &Graph, id: NodeId) -> Option<AxisId> {
    let gathered = || graph.gather_of(id).filter(|_| graph.static_index(id).is_none());
    graph.coord_of(id).or_else(gathered)
}

fn merges(dim: &SpaceDim, axis: AxisId, asked: AxisSet, operands: &[Operand]) -> bool {
    let Some(&outer) = dim.axes.last() else { return false };
    let place = |axes: &[AxisId], axis| axes.iter().position(|&a| a == axis);
    let side_by_side =
        operands.iter().all(|operand| match (place(&operand.axes, outer), place(&operand.axes, axis)) {
            (Some(outer), Some(inner)) => inner == outer + 1,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        });
    side_by_side && !asked.contains(outer) && !asked.contains(axis)
}

/// Elements of an operand from one coordinate of an axis to the next; nothing if it lacks the axis.
pub(super) fn stride(graph: &Graph, operand: &Operand, axis: AxisId) -> Option<DimExpr> {
    let place = operand.axes.iter().position(|&a| a == axis)?;
    let inner = operand.axes[place + 1..].iter().filter(|&&inner| Some(inner) != operand.interleave_axis);
    Some(DimExpr::product(inner.map(|&axis| &graph.axis(axis).extent)))
}

/// The bytes of an operand. Operands of the same axes, in whatever order, have the same expression.
pub(super) fn bytes(graph: &Graph, operand: &Operand) -> DimExpr {
    let axes: AxisSet = operand.in_memory().collect();
    let elements = DimExpr::product(axes.iter().map(|axis| &graph.axis(axis).extent));
    elements * DimExpr::constant(operand.dtype.size() as i64)
}

/// How positions in an operand follow from those in the space.
pub(super) fn footprint(graph: &Graph, group: &Group, operand: &Operand) -> Footprint {
    if operand.moved {
        return Footprint::Whole;
    }
    let space = group.space();
    let Some(inner) = operand.axes.strip_prefix(space.as_slice()) else {
        let strided = || strided(graph, group, operand);
        return if operand.access == Access::Read { None } else { strided() }.unwrap_or(Footprint::Whole);
    };
    let per = DimExpr::product(inner.iter().map(|&axis| &graph.axis(axis).extent));
    // In the space's own order, a run of the rest for each of its elements.
    if per.as_const().is_none_or(|per| u32::try_from(per).is_ok()) {
        Footprint::Linear(per)
    } else {
        Footprint::Whole
    }
}

/// How positions follow where rows lie side by side.
fn strided(graph: &Graph, group: &Group, operand: &Operand) -> Option<Footprint> {
    let first = operand.axes.iter().position(|axis| group.cols.contains(axis))?;
    let (outer, rest) = operand.axes.split_at(first);
    let inner = rest.strip_prefix(group.cols.as_slice())?;
    let product = |axes: &[AxisId]| DimExpr::product(axes.iter().map(|&axis| &graph.axis(axis).extent));
    let is_rows = [outer, inner].concat() == group.space();
    is_rows.then(|| Footprint::Strided { each: product(&group.cols), inner: product(inner) })
}

/// The numbers of elements of the operands, each once, that 32-bit positions may not reach; and of a row, if it has more dims than
/// any of them.
pub(super) fn wide_lengths(work: &Work<'_>) -> Vec<DimExpr> {
    // Operands of the same axes, in whatever order, have the same length.
    let axes = work.operands.iter().map(|operand| operand.in_memory().collect());
    let mut sets: Vec<AxisSet> = Vec::new();
    for set in axes {
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    let row: AxisSet = work.group.cols.iter().copied().collect();
    if !sets.iter().any(|set| row.minus(*set).is_empty()) {
        sets.push(row);
    }
    let length = |set: &AxisSet| DimExpr::product(set.iter().map(|axis| &work.graph.axis(axis).extent));
    sets.iter().map(length).filter(|len| len.as_const().is_none_or(|len| len > BITS32_MAX)).collect()
}

/// The widths of positions that a call may need, in order of preference.
pub(super) fn widths(work: &Work<'_>, facts: &TargetFacts) -> Vec<IndexWidth> {
    let lengths = wide_lengths(work);
    if !facts.wide || lengths.is_empty() {
        vec![IndexWidth::Bits32]
    } else if lengths.iter().any(|len| len.as_const().is_some()) {
        vec![IndexWidth::Bits64]
    } else {
        vec![IndexWidth::Bits32, IndexWidth::Bits64]
    }
}

/// The lanes of vectors along elements of a group: more where some of them are narrow.
pub(super) fn lanes(work: &Work<'_>, facts: &TargetFacts, lanes: u8) -> u8 {
    let narrow = |operand: &Operand| operand.dtype.size() <= 2 && !operand.axes.is_empty();
    if work.operands.iter().any(narrow) { lanes.max(facts.narrow_lanes) } else { lanes }
}

/// What must hold for positions of this width to do.
pub(super) fn width_conditions(work: &Work<'_>, facts: &TargetFacts, index: IndexWidth) -> Vec<Condition> {
    if index == IndexWidth::Bits64 || !facts.wide {
        return vec![];
    }
    wide_lengths(work).into_iter().map(|len| Condition::AtMost(len, BITS32_MAX)).collect()
}
