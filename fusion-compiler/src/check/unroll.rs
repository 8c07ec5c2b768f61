//! Limits on unrolled dims: short fixed dims that a single thread computes because they are reduced or
//! indexed.
//!
//! Invariant: in a checked graph, one thread computes at most `UNROLLED_MAX` elements of any value, so
//! kernels stay small. Where it would compute more, some of the dims become loops (`Graph::looped`). The
//! count covers at least the dims that `fuse` will unroll, because results in one order of dims may share a
//! kernel.

use crate::ir::graph::{AxisId, AxisSet, Graph, NodeId, UNROLLED_MAX};

/// Turns dims into loops until no result is unrolled too far.
pub(super) fn limit(graph: &mut Graph) {
    let mut orders: Vec<Vec<AxisId>> = graph.outputs.iter().map(|output| graph.parts(&output.axes)).collect();
    orders.sort();
    orders.dedup();
    while let Some(axes) = orders.iter().find_map(|order| too_far(graph, order)) {
        graph.looped = graph.looped.union(axes);
    }
}

/// Returns the axes to loop over, if results in this order have too many terms or elements per thread. The
/// axes are those of the last operation along any of the excess axes. Each iteration of the loop then
/// computes the operands of that operation once.
fn too_far(graph: &Graph, order: &[AxisId]) -> Option<AxisSet> {
    let results: Vec<NodeId> = graph
        .outputs
        .iter()
        .filter(|output| graph.parts(&output.axes) == order)
        .map(|output| output.node)
        .collect();
    let needed = backwards(graph, &results, AxisSet::EMPTY, |_, _| AxisSet::EMPTY);
    let runs: Vec<(NodeId, AxisSet)> = graph
        .iter()
        .filter(|(id, _)| needed[id.0 as usize].is_some())
        .map(|(id, _)| (id, graph.written_out(id)))
        .collect();
    let unrolled = runs.iter().fold(AxisSet::EMPTY, |all, (_, axes)| all.union(*axes));
    let kept = unrolled.intersection(order.iter().copied().collect());
    let lanes = backwards(graph, &results, kept, |id, lanes| lanes.union(graph.unrolled_axes(id)));
    let terms = runs.iter().map(|&(id, _)| {
        let axes = graph.unrolled_axes(id);
        if axes.is_empty() { axes } else { lanes[id.0 as usize].unwrap_or(axes).union(axes) }
    });
    let long = terms.chain([kept]).find(|&axes| elements(graph, axes) > UNROLLED_MAX)?;
    runs.iter().rev().map(|&(_, axes)| axes).find(|&axes| !axes.intersection(long).is_empty())
}

/// Computes, for each node that the results need, the axes along which one thread needs it. `first` gives
/// these axes for the results. `step` maps the axes of a node to those of its operands, restricted to axes
/// the operands have.
fn backwards(
    graph: &Graph,
    results: &[NodeId],
    first: AxisSet,
    step: impl Fn(NodeId, AxisSet) -> AxisSet,
) -> Vec<Option<AxisSet>> {
    let mut axes: Vec<Option<AxisSet>> = vec![None; graph.nodes.len()];
    for result in results {
        axes[result.0 as usize] = Some(first.intersection(graph.node(*result).axes));
    }
    for (id, node) in graph.iter().rev() {
        let Some(of_node) = axes[id.0 as usize] else { continue };
        for arg in &node.args {
            let mut more = step(id, of_node);
            // A renamed value is needed along the old dim as often as along the new one.
            if let Some((_, old, _)) =
                graph.renamed(id).filter(|&(of, _, new)| of == *arg && more.contains(new))
            {
                more = more.with(old);
            }
            let more = more.intersection(graph.node(*arg).axes);
            let known = axes[arg.0 as usize].unwrap_or(AxisSet::EMPTY);
            axes[arg.0 as usize] = Some(known.union(more));
        }
    }
    axes
}

/// Returns the number of elements of a value along these axes, counting only fixed ones.
fn elements(graph: &Graph, axes: AxisSet) -> i64 {
    let extents = axes.iter().filter_map(|axis| graph.axis(axis).extent.as_const());
    extents.fold(1, i64::saturating_mul)
}
