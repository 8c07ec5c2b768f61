//! Rewrites of graphs before fusion, and of kernels after it, with one pass in each file.
//!
//! Invariant: a pass preserves the results of the IR, and does not depend on another pass.

use crate::ir::graph::{Graph, Node, NodeId};

mod cse;
mod dce;
mod fast_math;
mod fma;
mod group_factors;
mod hide_arithmetic;
mod kernel_cse;
mod kernel_dce;
mod max_num;
mod near_one;
mod normalize_late;
mod prune_uniforms;
mod reduce_factors;
mod simplify;
mod skip_unchanged;
#[cfg(test)]
mod tests;
mod widen;

pub use cse::cse;
pub use dce::dce;
pub use fast_math::fast_math;
pub use fma::fma;
pub use group_factors::group_factors;
pub use hide_arithmetic::hide_arithmetic;
pub use kernel_cse::kernel_cse;
pub use kernel_dce::kernel_dce;
pub use max_num::max_num;
pub use near_one::near_one;
pub use normalize_late::normalize_late;
pub use prune_uniforms::prune_uniforms;
pub use reduce_factors::reduce_factors;
pub use simplify::simplify;
pub use skip_unchanged::skip_unchanged;
pub use widen::widen;

/// Rebuilds a graph node by node. `place` appends the replacement of a node and returns its id.
fn rebuild(graph: Graph, mut place: impl FnMut(&mut Graph, Node) -> NodeId) -> Graph {
    let Graph { nodes, outputs, .. } = graph;
    let mut new = Graph { nodes: Vec::with_capacity(nodes.len()), outputs: Vec::new(), ..graph };
    let mut moved: Vec<NodeId> = Vec::with_capacity(nodes.len());
    for mut node in nodes {
        for arg in &mut node.args {
            *arg = moved.get(arg.0 as usize).copied().unwrap_or(*arg);
        }
        let id = place(&mut new, node);
        moved.push(id);
    }
    new.outputs = outputs;
    for output in &mut new.outputs {
        output.node = moved[output.node.0 as usize];
    }
    new
}

/// Counts the uses of each node, results included.
fn uses(graph: &Graph) -> Vec<u32> {
    let mut uses = vec![0; graph.nodes.len()];
    let args = graph.nodes.iter().flat_map(|node| &node.args);
    for used in args.chain(graph.outputs.iter().map(|output| &output.node)) {
        uses[used.0 as usize] += 1;
    }
    uses
}
