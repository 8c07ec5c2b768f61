//! Common subexpression elimination: nodes with the same computation become one, and a select between equal
//! values disappears.
//!
//! WGSL compilers do this too, but their simplifications would then depend on fusion.

use rustc_hash::FxHashMap;

use super::rebuild;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisSet, Graph, Node, NodeId, NodeKind};
use crate::ir::op::Op;

/// Key by which two nodes are the same. Spans do not matter.
type Key = (NodeKind, Vec<NodeId>, DType, AxisSet);

/// Merges nodes with the same computation.
pub fn cse(graph: Graph) -> Graph {
    let mut seen: FxHashMap<Key, NodeId> = FxHashMap::default();
    rebuild(graph, |graph, node| {
        let node = match (&node.kind, &node.args[..]) {
            (NodeKind::Apply(Op::Select), &[_, yes, no]) if yes == no => {
                let of = graph.node(yes);
                if of.axes == node.axes {
                    return yes;
                }
                // This cast only broadcasts to more axes.
                Node { kind: NodeKind::Cast, args: vec![yes], ..node }
            }
            _ => node,
        };
        let key = (node.kind.clone(), node.args.clone(), node.dtype, node.axes);
        *seen.entry(key).or_insert_with(|| graph.push(node))
    })
}
