//! Replaces divisions by divisors from 1 to 2 by cheaper ones, on targets that have them.
//!
//! Sigmoids, and functions computed from them, divide by one plus an exponential of a value that is not
//! positive. Invariant: a result is within one unit in the last place of the original.

use crate::ir::dtype::DType;
use crate::ir::graph::{Graph, NodeId, NodeKind};
use crate::ir::op::Op;

/// Replaces each division by a divisor from 1 to 2.
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
