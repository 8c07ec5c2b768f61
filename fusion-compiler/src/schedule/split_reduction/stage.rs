//! A kernel between others of a group: what it works on, and the memory behind it.

use std::collections::{BTreeMap, BTreeSet};

use crate::fuse::{Group, Load, Store};
use crate::ir::graph::{Access, AxisId, AxisSet, Graph, NodeId};
use crate::ir::kernel::BufferId;
use crate::ir::plan::Slot;
use crate::schedule::{Operand, Work};

/// Kinds of stages, by what their kernels work on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::schedule) enum StageKind {
    /// Parts, which are combined.
    Parts,
    /// What parts gave, which is combined for each row.
    Rows,
    /// Parts of the elements of a row; what they gave is combined before.
    Folded,
    /// Elements.
    Elements,
}

/// A kernel: a group of its own, and the memory behind it.
#[derive(Clone)]
pub(in crate::schedule) struct Stage {
    pub(super) kind: StageKind,
    pub(in crate::schedule) graph: Graph,
    pub(super) group: Group,
    pub(in crate::schedule) name: String,
    /// What can be read.
    pub(in crate::schedule) known: BTreeMap<Load, Operand>,
    /// Where each store of the group goes.
    pub(super) stores: Vec<Operand>,
}

impl Stage {
    pub(in crate::schedule) fn new(
        kind: StageKind,
        graph: Graph,
        known: BTreeMap<Load, Operand>,
        of_rows: (Vec<AxisId>, Vec<AxisId>),
    ) -> Stage {
        let (order, cols) = of_rows;
        let (nodes, loads, unrolled) = (vec![], BTreeSet::new(), AxisSet::EMPTY);
        let moved = BTreeMap::new();
        let group = Group { stores: vec![], order, cols, nodes, loads, unrolled, moved };
        Stage { kind, graph, group, name: String::new(), known, stores: vec![] }
    }

    pub(in crate::schedule) fn store(&mut self, store: Store, operand: Operand) {
        self.group.stores.push(store);
        self.stores.push(operand);
    }

    /// Returns the memory that a value is stored in.
    pub(in crate::schedule) fn slot_of(&self, node: NodeId) -> Option<Slot> {
        let mut stores = self.group.stores.iter().zip(&self.stores);
        stores.find_map(|(store, operand)| (store.node == node).then_some(operand.slot))
    }

    /// Finds what is computed and read for the stores, where `also` can be read, too.
    pub(in crate::schedule) fn fill(&mut self, also: &[NodeId]) {
        let Stage { graph, group, known, .. } = self;
        group.fill(graph, |node| known.contains_key(&Load::Stored(node)) || also.contains(&node));
    }

    /// Finds again what is computed and read for the stores. The axis of parts stays a dim of its own.
    pub(in crate::schedule) fn fill_anew(&mut self, part: AxisId) {
        let coordinate = self.graph.coordinate(part);
        self.group.loads.clear();
        self.fill(&[]);
        self.keep_apart(vec![coordinate]);
    }

    /// Makes further axes those of the elements of a row.
    pub(in crate::schedule) fn extend_rows(&mut self, axes: &[AxisId]) {
        self.group.cols.extend(axes);
    }

    /// A value of its own that is the same as another one.
    pub(in crate::schedule) fn copy(&mut self, of: NodeId) -> NodeId {
        self.graph.copy(of)
    }

    /// Keeps axes dims of their own, by nodes of their coordinates. Others may become one dim with their neighbours.
    pub(in crate::schedule) fn keep_apart(&mut self, coordinates: Vec<NodeId>) {
        self.group.nodes.splice(0..0, coordinates);
    }

    pub(in crate::schedule) fn work(&self) -> Work<'_> {
        let Stage { graph, group, name, .. } = self;
        let mut operands: Vec<Operand> = Vec::new();
        let mut loads = BTreeMap::new();
        for &load in &group.loads {
            loads.insert(load, BufferId(operands.len() as u16));
            operands.push(Operand { access: Access::Read, ..self.known[&load].clone() });
        }
        let mut stores = Vec::new();
        for store in &self.stores {
            let read = operands.iter().position(|operand| operand.slot == store.slot);
            if let Some(read) = read {
                operands[read].access = Access::ReadWrite;
            } else {
                operands.push(Operand { access: Access::Write, ..store.clone() });
            }
            stores.push(BufferId(read.unwrap_or(operands.len() - 1) as u16));
        }
        Work { graph, group, name, operands, loads, stores, temporaries: 0, partials: None }
    }

    /// Whether something is combined in a loop.
    pub(super) fn combines(&self) -> bool {
        self.group.nodes.iter().any(|&id| !self.graph.looped_axes(id).is_empty())
    }

    /// Whether a store is of rows, and needs nothing that has to be combined but `reduces`.
    pub(super) fn is_ready(&self, store: &Store, reduces: &[NodeId]) -> bool {
        let (mut open, mut seen) = (vec![store.node], BTreeSet::new());
        while let Some(id) = open.pop() {
            if !seen.insert(id) || reduces.contains(&id) || self.known.contains_key(&Load::Stored(id)) {
                continue;
            }
            if !self.graph.looped_axes(id).is_empty() {
                return false;
            }
            open.extend(&self.graph.node(id).args);
        }
        store.order == self.group.order
    }
}
