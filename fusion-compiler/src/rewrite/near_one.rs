//! Divides by what is known to be near 1 in fewer steps, where a target has some: sigmoids, and what is made of them, divide by one more
//! than an exponential of what is not positive.
//!
//! Invariant: a result is within a unit in the last place of what it was.

use crate::ir::dtype::DType;
use crate::ir::graph::{Graph, NodeId, NodeKind};
use crate::ir::ops::Op;

/// Replaces each such division.
pub fn near_one(mut graph: Graph) -> Graph {
    for i in 0..graph.nodes.len() {
        let node = graph.node(NodeId(i as u32));
        let divides = node.kind == NodeKind::Apply(Op::Div) && node.dtype == DType::F32;
        if divides && graph.is_from_one_to_two(node.args[1]) {
            graph.nodes[i].kind = NodeKind::Apply(Op::DivNearOne);
        }
    }
    graph
}
