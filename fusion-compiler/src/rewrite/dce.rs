//! Dead code elimination: removes nodes that no result needs.

use super::rebuild;
use crate::ir::graph::{Graph, NodeId};

/// Removes nodes that no result needs.
pub fn dce(graph: Graph) -> Graph {
    let mut live = vec![false; graph.nodes.len()];
    for output in &graph.outputs {
        live[output.node.0 as usize] = true;
    }
    for (id, node) in graph.iter().rev() {
        if live[id.0 as usize] {
            node.args.iter().for_each(|arg| live[arg.0 as usize] = true);
        }
    }
    let mut live = live.into_iter();
    // No live node refers to the place of a dead node.
    rebuild(graph, |graph, node| if live.next() == Some(true) { graph.push(node) } else { NodeId(u32::MAX) })
}
