//! The graph of a kernel of a split, made anew from that of all: nodes become those of parts, or of what parts gave.

use std::collections::BTreeMap;

use super::super::Operand;
use super::super::partition::Partition;
use super::super::staging::reduction;
use crate::fuse::Load;
use crate::ir::graph::{AxisId, AxisSet, Graph, Node, NodeId, NodeKind};
use crate::ir::op::Op;

/// A graph made anew from another.
pub(in crate::schedule) struct GraphCopy {
    pub(in crate::schedule) graph: Graph,
    /// The new number of each old node.
    pub(in crate::schedule) map: Vec<NodeId>,
}

impl GraphCopy {
    pub(in crate::schedule) fn new(of: &Graph) -> GraphCopy {
        GraphCopy { graph: Graph { nodes: vec![], ..of.clone() }, map: vec![] }
    }

    pub(in crate::schedule) fn of(&self, id: NodeId) -> NodeId {
        self.map[id.0 as usize]
    }

    pub(super) fn coordinate(&mut self, axis: AxisId) -> NodeId {
        self.graph.coordinate(axis)
    }

    /// A node of new operands, which also has those of their axes that are `within`.
    pub(in crate::schedule) fn node(&mut self, node: &Node, within: AxisSet) -> NodeId {
        let args: Vec<NodeId> = node.args.iter().map(|&arg| self.of(arg)).collect();
        let all = args.iter().fold(AxisSet::EMPTY, |all, &arg| all.union(self.graph.node(arg).axes));
        let axes = node.axes.union(all.minus(all.minus(within)));
        self.graph.push(Node { args, axes, ..node.clone() })
    }

    /// A node where parts are combined. The coordinate along what is cut is that of the first of those that take turns.
    pub(super) fn of_part(&mut self, node: &Node, partition: &Partition, within: AxisSet) -> NodeId {
        if let Some(interleave) = &partition.interleave
            && node.kind == NodeKind::Coord(partition.along())
        {
            let (first, interleave) = (self.coordinate(partition.along()), self.coordinate(interleave.axis));
            return self.graph.apply(Op::Add, &[first, interleave], node.span);
        }
        let node = Node { axes: partition.of_part(node.axes), ..node.clone() };
        self.node(&node, within)
    }

    /// What a reduction gives for each part.
    pub(super) fn partial(&mut self, node: &Node, partition: &Partition, parts: AxisSet) -> NodeId {
        let args = node.args.iter().map(|&arg| self.of(arg)).collect();
        let kind = NodeKind::Reduce(reduction(node), partition.inner.iter().copied().collect());
        self.graph.push(Node { kind, args, axes: parts, ..node.clone() })
    }

    pub(in crate::schedule) fn known(&self, known: &BTreeMap<Load, Operand>) -> BTreeMap<Load, Operand> {
        let load = |load: &Load| match *load {
            Load::Param(param) => Load::Param(param),
            Load::Stored(node) => Load::Stored(self.of(node)),
        };
        known.iter().map(|(of, operand)| (load(of), operand.clone())).collect()
    }
}
