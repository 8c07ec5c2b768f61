//! Common subexpressions: nodes that compute the same become one, and a choice between two such is none.
//!
//! A compiler of WGSL would see that as well, and what it may then leave out would depend on what was fused.

use rustc_hash::FxHashMap;

use super::rebuild;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisSet, Graph, Node, NodeId, NodeKind};
use crate::ir::ops::Op;

/// What makes two nodes the same; spans do not.
type Key = (NodeKind, Vec<NodeId>, DType, AxisSet);

/// Merges nodes that compute the same.
pub fn cse(graph: Graph) -> Graph {
    let mut seen: FxHashMap<Key, NodeId> = FxHashMap::default();
    rebuild(graph, |graph, node| {
        let node = match (&node.kind, &node.args[..]) {
            (NodeKind::Apply(Op::Select), &[_, yes, no]) if yes == no => {
                let of = graph.node(yes);
                if of.axes == node.axes {
                    return yes;
                }
                // A cast that only widens the axes.
                Node { kind: NodeKind::Cast, args: vec![yes], ..node }
            }
            _ => node,
        };
        let key = (node.kind.clone(), node.args.clone(), node.dtype, node.axes);
        *seen.entry(key).or_insert_with(|| graph.push(node))
    })
}
