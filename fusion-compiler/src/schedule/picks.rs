//! Sums to which one element of a row adds, whose place a value of the row says: `sum(if index(D) == class { x } else { 0 }, D)`.
//!
//! That element is read there, and the others are not gone through for it. Invariant: the term is computed as for any element,
//! condition and all, and added to nothing.

use super::Work;
use super::body::{Body, Place};
use super::pass::{Along, INDEX, Pass};
use super::runs::Runs;
use super::strips::Steps;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{Access, AxisId, NodeId, NodeKind, Reduce};
use crate::ir::kernel::{Carried, Lanes, Type, Value};
use crate::ir::ops::Op;

/// A sum of one element, and the value that says which.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    pub(super) sum: NodeId,
    place: NodeId,
}

/// The sums of a row group that one element adds to, if rows have one axis, and no thread is alone to know its elements: because it
/// keeps what it reads, or has overwritten it.
pub(super) fn picks(work: &Work<'_>, body: &Body<'_>, (along, how_many): (&Along, Runs)) -> Vec<Pick> {
    let &[axis] = work.group.cols.as_slice() else { return vec![] };
    let overwrites = || work.operands.iter().any(|operand| operand.access == Access::ReadWrite);
    if matches!(along, Along::Team { .. }) && (how_many == Runs::Each || overwrites()) {
        return vec![];
    }
    let combined = work.group.nodes.iter().filter(|&&id| work.combines_row(id));
    combined.filter_map(|&sum| pick(work, body, sum, axis)).collect()
}

fn pick(work: &Work<'_>, body: &Body<'_>, sum: NodeId, axis: AxisId) -> Option<Pick> {
    let graph = work.graph;
    let applied = |id: NodeId, op: Op| {
        let node = graph.node(id);
        (node.kind == NodeKind::Apply(op)).then_some(node.args.as_slice())
    };
    let node = graph.node(sum);
    let is_sum = matches!(&node.kind, NodeKind::Reduce(Reduce::Sum, axes) if axes.iter().eq([axis]));
    let &[condition, x, other] = applied(node.args[0], Op::Select).filter(|_| is_sum)? else { return None };
    let is_zero = match graph.node(other).kind {
        NodeKind::Literal(Const::Float(x)) => x == 0.0 && x.is_sign_positive(),
        NodeKind::Literal(Const::Int(x)) => x == 0,
        NodeKind::Literal(Const::Bool(_))
        | NodeKind::Input(_)
        | NodeKind::Scalar(_)
        | NodeKind::Coord(_)
        | NodeKind::Extent(_)
        | NodeKind::Apply(_)
        | NodeKind::Cast
        | NodeKind::Reduce(..)
        | NodeKind::At(_) => false,
    };
    let &[left, right] = applied(condition, Op::Eq)? else { return None };
    let is_coordinate = |id: NodeId| graph.node(id).kind == NodeKind::Coord(axis);
    let place = if is_coordinate(left) { right } else { left };
    let is_place = is_coordinate(left) != is_coordinate(right)
        && graph.node(place).dtype == DType::I32
        && !graph.node(place).axes.contains(axis)
        && !body.is_made_of_rows(place);
    // What is made of other values might be kept for each element.
    let is_read = |id: NodeId| work.group.load_of(graph, id).is_some();
    let x = if graph.node(x).kind == NodeKind::Cast { graph.node(x).args[0] } else { x };
    (is_zero && is_place && is_read(x)).then_some(Pick { sum, place })
}

impl Pass<'_> {
    /// The sum, of an element that is in the row, or the part of one at hand.
    pub(super) fn picked(&self, body: &mut Body<'_>, Pick { sum, place }: Pick) -> Value {
        let node = self.work.graph.node(sum);
        let zero = body.top().index(0);
        let outside = [self.coordinates, &[zero]].concat();
        let row = Place { element: self.row, coordinates: outside, lanes: Lanes::ONE, in_row: None };
        let number = body.value(place, &vec![], &row);
        let (start, end) = match self.range {
            Some(range) => (range.start, range.end),
            None => (zero, body.extent(&self.dims[0].extent)),
        };
        let (one, nothing) = (body.top().index(1), body.top().i32(0));
        let mut b = body.item();
        let at = b.cast(number, DType::Index);
        let conditions =
            [b.apply(Op::Ge, &[number, nothing]), b.apply(Op::Ge, &[at, start]), b.apply(Op::Lt, &[at, end])];
        let [mut is_there, more, last] = conditions;
        is_there = b.apply(Op::And, &[is_there, more]);
        is_there = b.apply(Op::And, &[is_there, last]);
        let start = b.apply(Op::Select, &[is_there, at, start]);
        let len = b.apply(Op::Select, &[is_there, one, zero]);
        let end = b.apply(Op::Add, &[start, len]);

        let ty = Type { dtype: node.dtype, lanes: Lanes::ONE };
        let nothing = body.top().constant(node.dtype, Const::zero(node.dtype));
        let [counter, so_far, out] = [INDEX, ty, ty].map(|ty| body.top().declare(ty));
        let coordinates = [self.coordinates, &[counter]].concat();
        let there = Place { element: self.row, coordinates, lanes: Lanes::ONE, in_row: Some(counter) };
        let term = body.value(node.args[0], &vec![], &there);
        let next = body.inner().apply(Op::Add, &[so_far, term]);
        let inside = body.take_inner();
        let carried = vec![Carried { start: nothing, var: so_far, next, out }];
        let steps = Steps { var: counter, start, step: one, end };
        body.item().body.push(steps.run(carried, inside));
        out
    }
}
