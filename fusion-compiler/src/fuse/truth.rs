//! Truth values between kernels. No target stores them, so the ones that have to be are numbers there: 1 and 0.
//!
//! Invariant: only where a kernel would bind more buffers than it can, and nothing else can be stored.

use super::{Fused, is_op, rules, varying};
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::ops::Op;

/// The truth value to store, if one helps.
pub(super) fn to_store(graph: &Graph, fused: &Fused, buffers_max: usize) -> Option<NodeId> {
    let group = fused.groups.iter().find(|group| group.buffers() > buffers_max)?;
    let varies = varying(graph);
    let is_truth = |id: &NodeId| {
        let node = graph.node(*id);
        is_op(graph, node) && varies[id.0 as usize] && node.dtype == DType::Bool
    };
    rules::largest_part(graph, group, buffers_max, is_truth)
}

/// The graph with a number made of the truth value, and that made of the number for whatever uses it.
pub(super) fn as_number(graph: Graph, truth: NodeId) -> Graph {
    let Graph { nodes, .. } = &graph;
    let mut new = Graph { nodes: Vec::with_capacity(nodes.len() + 4), ..graph.clone() };
    let mut moved: Vec<NodeId> = Vec::with_capacity(nodes.len());
    for (i, node) in nodes.iter().enumerate() {
        let args = node.args.iter().map(|arg| moved[arg.0 as usize]).collect();
        let mut id = new.push(Node { args, ..node.clone() });
        if i == truth.0 as usize {
            let [one, zero] = [1, 0].map(|number| new.literal(Const::Int(number), DType::I32, node.span));
            let number = new.apply(Op::Select, &[id, one, zero], node.span);
            id = new.apply(Op::Ne, &[number, zero], node.span);
        }
        moved.push(id);
    }
    for output in &mut new.outputs {
        output.node = moved[output.node.0 as usize];
    }
    new
}
