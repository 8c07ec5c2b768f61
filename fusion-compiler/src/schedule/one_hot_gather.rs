//! Sums to which one element of a row adds, whose place a value of the row says: `sum(if index(D) == class { x } else { 0 }, D)`.
//!
//! That element is read there, if it is one, and the others are not gone through for it. Invariant: the term is computed as for any
//! element, condition and all; where there is no such element it is 0.

use super::Work;
use super::body::{Body, Place};
use super::row_loop::{RowLoop, ThreadMapping};
use crate::fuse::Load;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{Access, AxisId, NodeId, NodeKind, Reduce};
use crate::ir::kernel::{Lanes, Value};
use crate::ir::op::Op;

/// A sum of one element, and the value that says which.
#[derive(Clone, Copy)]
pub(super) struct OneHotGather {
    pub(super) sum: NodeId,
    place: NodeId,
}

/// The sums of a row group that one element adds to, if rows have one axis, and no thread is alone to know its elements: because it
/// keeps what it reads, or has overwritten it.
pub(super) fn one_hot_gathers(work: &Work<'_>, body: &Body<'_>, along: &ThreadMapping) -> Vec<OneHotGather> {
    let &[axis] = work.group.cols.as_slice() else { return vec![] };
    let overwrites = || work.operands.iter().any(|operand| operand.access == Access::ReadWrite);
    if matches!(along, ThreadMapping::Team { .. }) && (body.stages_values() || overwrites()) {
        return vec![];
    }
    let combined = work.group.nodes.iter().filter(|&&id| work.combines_row(id));
    combined.filter_map(|&sum| one_hot_gather(work, body, sum, axis)).collect()
}

fn one_hot_gather(work: &Work<'_>, body: &Body<'_>, sum: NodeId, axis: AxisId) -> Option<OneHotGather> {
    let graph = work.graph;
    let node = graph.node(sum);
    // What another kernel has computed is read as it is.
    let is_computed = |id: NodeId| !work.loads.contains_key(&Load::Stored(id));
    let is_sum = matches!(&node.kind, NodeKind::Reduce(Reduce::Sum, axes) if axes.iter().eq([axis]));
    let is_choice = is_sum && is_computed(node.args[0]);
    let &[condition, x, other] = graph.operands_of(node.args[0], Op::Select).filter(|_| is_choice)? else {
        return None;
    };
    let is_zero = match graph.literal_of(other) {
        Some(Const::Float(x)) => x == 0.0 && x.is_sign_positive(),
        Some(Const::Int(x)) => x == 0,
        Some(Const::Bool(_)) | None => false,
    };
    let &[left, right] = graph.operands_of(condition, Op::Eq).filter(|_| is_computed(condition))? else {
        return None;
    };
    let is_coordinate = |id: NodeId| graph.coord_of(id) == Some(axis);
    let place = if is_coordinate(left) { right } else { left };
    let is_place = is_coordinate(left) != is_coordinate(right)
        && graph.node(place).dtype == DType::I32
        && !graph.node(place).axes.contains(axis)
        && !body.is_made_of_rows(place);
    // What is made of other values might be kept for each element.
    let is_read = |id: NodeId| work.group.load_of(graph, id).is_some();
    let x = if graph.node(x).kind == NodeKind::Cast { graph.node(x).args[0] } else { x };
    (is_zero && is_place && is_read(x)).then_some(OneHotGather { sum, place })
}

impl RowLoop<'_> {
    /// The sum, of an element that is in the row, or the part of one at hand; or else 0.
    pub(super) fn static_index(
        &self,
        body: &mut Body<'_>,
        OneHotGather { sum, place }: OneHotGather,
    ) -> Value {
        let node = self.work.graph.node(sum);
        let zero = body.top().index(0);
        let outside = [self.coordinates, &[zero]].concat();
        let row =
            Place { element: self.row, coordinates: outside, lanes: Lanes::ONE, apart: false, in_row: None };
        let number = body.value(place, &vec![], &row);
        let (start, end) = match self.range {
            Some(range) => (range.start, range.end),
            None => (zero, body.extent(&self.dims[0].extent)),
        };
        let first = body.top().i32(0);
        let mut b = body.item();
        let at = b.cast(number, DType::Index);
        let conditions =
            [b.apply(Op::Ge, &[number, first]), b.apply(Op::Ge, &[at, start]), b.apply(Op::Lt, &[at, end])];
        let is_there = conditions.into_iter().reduce(|all, one| b.apply(Op::And, &[all, one]));
        let at = is_there.map_or(at, |is_there| b.apply(Op::Select, &[is_there, at, start]));

        let coordinates = [self.coordinates, &[at]].concat();
        let there =
            Place { element: self.row, coordinates, lanes: Lanes::ONE, apart: false, in_row: Some(at) };
        body.is_there = is_there;
        let term = body.value(node.args[0], &vec![], &there);
        body.is_there = None;
        let read = body.take_inner();
        body.item.extend(read);
        let nothing = body.top().constant(node.dtype, Const::zero(node.dtype));
        let mut b = body.item();
        let term = is_there.map_or(term, |is_there| b.apply(Op::Select, &[is_there, term, nothing]));
        // As any sum, it begins with 0: that of -0 is 0.
        b.apply(Op::Add, &[nothing, term])
    }
}
