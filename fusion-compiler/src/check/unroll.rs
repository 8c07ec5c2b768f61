//! Fixed dims that each thread runs through by itself, because something along them is combined or picked.
//!
//! Invariant: what one thread computes of any value in a checked graph has at most `UNROLLED_MAX` elements, so that
//! kernels stay small: where there would be more, loops go through some of the dims (`Graph::looped`). The dims are counted
//! as `fuse` will unroll them, or more: results in one order of dims may share a kernel.

use crate::ir::graph::{AxisId, AxisSet, Graph, Node, NodeId, NodeKind, UNROLLED_MAX};

/// Has loops go through what would be written out too far.
pub(super) fn limit(graph: &mut Graph) {
    let mut orders: Vec<Vec<AxisId>> = graph.outputs.iter().map(|output| graph.parts(&output.axes)).collect();
    orders.sort();
    orders.dedup();
    while let Some(axes) = orders.iter().find_map(|order| too_far(graph, order)) {
        graph.looped = graph.looped.union(axes);
    }
}

/// The axes to go through in a loop, if the results in this order have too many terms, or themselves are too long: those of
/// the last operation along any of the axes that are too many together. What it is made of is then made once for each
/// iteration.
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
    let lanes = backwards(graph, &results, kept, |node, lanes| lanes.union(combined(graph, node)));
    let terms = runs.iter().map(|&(id, _)| {
        let axes = combined(graph, graph.node(id));
        if axes.is_empty() { axes } else { lanes[id.0 as usize].unwrap_or(axes).union(axes) }
    });
    let long = terms.chain([kept]).find(|&axes| elements(graph, axes) > UNROLLED_MAX)?;
    runs.iter().rev().map(|&(_, axes)| axes).find(|&axes| !axes.intersection(long).is_empty())
}

/// The axes that a node combines the elements along, all of them written out.
fn combined(graph: &Graph, node: &Node) -> AxisSet {
    match node.kind {
        NodeKind::Reduce(_, axes) if !graph.is_looped(axes) => axes,
        NodeKind::Reduce(..)
        | NodeKind::Input(_)
        | NodeKind::Scalar(_)
        | NodeKind::Literal(_)
        | NodeKind::Coord(_)
        | NodeKind::Extent(_)
        | NodeKind::Apply(_)
        | NodeKind::Cast
        | NodeKind::Gather(..) => AxisSet::EMPTY,
    }
}

/// For each node that the results need, the axes along which one thread needs it: `first` for the results, and for
/// operands what `step` makes of those of their node, as far as they have them.
fn backwards(
    graph: &Graph,
    results: &[NodeId],
    first: AxisSet,
    step: impl Fn(&Node, AxisSet) -> AxisSet,
) -> Vec<Option<AxisSet>> {
    let mut axes: Vec<Option<AxisSet>> = vec![None; graph.nodes.len()];
    for result in results {
        axes[result.0 as usize] = Some(first.intersection(graph.node(*result).axes));
    }
    for (id, node) in graph.iter().rev() {
        let Some(of_node) = axes[id.0 as usize] else { continue };
        for arg in &node.args {
            let more = step(node, of_node).intersection(graph.node(*arg).axes);
            let known = axes[arg.0 as usize].unwrap_or(AxisSet::EMPTY);
            axes[arg.0 as usize] = Some(known.union(more));
        }
    }
    axes
}

/// How many elements a value has along these axes, as far as they are fixed.
fn elements(graph: &Graph, axes: AxisSet) -> i64 {
    let extents = axes.iter().filter_map(|axis| graph.axis(axis).extent.as_const());
    extents.fold(1, i64::saturating_mul)
}
