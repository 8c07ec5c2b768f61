//! Common subexpressions: nodes that compute the same become one.

use rustc_hash::FxHashMap;

use super::rebuild;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisSet, Graph, NodeId, NodeKind};

/// What makes two nodes the same; spans do not.
type Key = (NodeKind, Vec<NodeId>, DType, AxisSet);

/// Merges nodes that compute the same.
pub fn cse(graph: Graph) -> Graph {
    let mut seen: FxHashMap<Key, NodeId> = FxHashMap::default();
    rebuild(graph, |graph, node| {
        let key = (node.kind.clone(), node.args.clone(), node.dtype, node.axes);
        *seen.entry(key).or_insert_with(|| graph.push(node))
    })
}
