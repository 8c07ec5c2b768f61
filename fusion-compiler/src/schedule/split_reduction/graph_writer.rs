//! Values that kernels of a split reduction compute besides those of the function, such as the number of elements of a part.

use std::f64::consts::LN_2;

use super::super::partition::Partition;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisId, AxisSet, Graph, Node, NodeId, NodeKind, SpanId};
use crate::ir::op::Op;

/// Appends to a graph.
pub(super) struct GraphWriter<'g> {
    pub(super) graph: &'g mut Graph,
    pub(super) span: SpanId,
}

impl GraphWriter<'_> {
    pub(super) fn apply(&mut self, op: Op, args: &[NodeId]) -> NodeId {
        self.graph.apply(op, args, self.span)
    }

    /// The second value unless the first is infinite, which then stays.
    pub(super) fn unless_infinite(&mut self, of: NodeId, value: NodeId) -> NodeId {
        let infinite = self.apply(Op::IsInf, &[of]);
        self.apply(Op::Select, &[infinite, of, value])
    }

    pub(super) fn literal(&mut self, value: f64) -> NodeId {
        self.graph.literal(Const::Float(value), DType::F32, self.span)
    }

    /// A number, or -∞ where its exponential changes no sum of exponentials that has one of about 0: less than 2⁻¹⁰⁰.
    pub(super) fn unless_negligible(&mut self, x: NodeId) -> NodeId {
        let [least, none] = [-100.0 * LN_2, f64::NEG_INFINITY].map(|number| self.literal(number));
        let negligible = self.apply(Op::Lt, &[x, least]);
        self.apply(Op::Select, &[negligible, none, x])
    }

    pub(super) fn leaf(&mut self, kind: NodeKind, dtype: DType, axes: AxisSet) -> NodeId {
        self.graph.push(Node { kind, args: vec![], dtype, axes, span: self.span })
    }

    /// A number, or 0 in the place of an infinite one.
    pub(super) fn finite(&mut self, x: NodeId) -> NodeId {
        let (zero, infinite) = (self.literal(0.0), self.apply(Op::IsInf, &[x]));
        self.apply(Op::Select, &[infinite, zero, x])
    }

    /// The mean of a part, of the sum of so many elements. Of those that take turns some may have none.
    pub(super) fn mean(&mut self, partition: &Partition, sum: NodeId, count: NodeId) -> NodeId {
        let count = match partition.interleave {
            None => count,
            Some(_) => {
                let one = self.literal(1.0);
                self.apply(Op::Max, &[count, one])
            }
        };
        self.apply(Op::Div, &[sum, count])
    }

    /// The elements of a part: as all have, but for those of the last run.
    pub(super) fn count(&mut self, partition: &Partition) -> NodeId {
        let number = self.coordinate(partition.part);
        let last = self.leaf(NodeKind::Extent(partition.last()), DType::I32, AxisSet::EMPTY);
        let [rest, whole] = match &partition.interleave {
            None => [partition.rest(), partition.whole()].map(|count| self.number(count)),
            Some(interleave) => {
                let index = self.coordinate(interleave.axis);
                let each = partition.rest() / interleave.count.clone();
                let over = partition.rest() - each.clone() * interleave.count.clone();
                let over = self.leaf(NodeKind::Extent(over), DType::I32, AxisSet::EMPTY);
                let has_more = self.apply(Op::Lt, &[index, over]);
                let [more, each] =
                    [each.clone() + DimExpr::constant(1), each].map(|count| self.number(count));
                let rest = self.apply(Op::Select, &[has_more, more, each]);
                [rest, self.number(partition.whole() / interleave.count.clone())]
            }
        };
        let is_last = self.apply(Op::Eq, &[number, last]);
        self.apply(Op::Select, &[is_last, rest, whole])
    }

    pub(super) fn coordinate(&mut self, axis: AxisId) -> NodeId {
        self.leaf(NodeKind::Coord(axis), DType::I32, AxisSet::EMPTY.with(axis))
    }

    pub(super) fn number(&mut self, count: DimExpr) -> NodeId {
        match count.as_const() {
            Some(count) => self.literal(count as f64),
            None => self.leaf(NodeKind::Extent(count), DType::F32, AxisSet::EMPTY),
        }
    }
}
