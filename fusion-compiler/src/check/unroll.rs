//! Fixed dims that each thread runs through by itself, because something along them is combined or picked.
//!
//! Invariant: what one thread computes of any value in a checked graph has at most `UNROLLED_MAX` elements, so that
//! kernels stay small. The dims are counted as `fuse` will unroll them, or more: results in one order of dims may
//! share a kernel.

use super::build::Builder;
use crate::diag;
use crate::ir::graph::{AxisId, AxisSet, Graph, Node, NodeId, NodeKind, UNROLLED_MAX};

/// Reports what would be unrolled too far.
pub(super) fn check(b: &mut Builder<'_>) {
    let mut orders: Vec<Vec<AxisId>> =
        b.graph.outputs.iter().map(|output| b.graph.parts(&output.axes)).collect();
    orders.sort();
    orders.dedup();
    let found: Vec<(NodeId, AxisSet)> = orders.iter().flat_map(|order| too_far(&b.graph, order)).collect();
    for (node, axes) in found {
        let span = b.graph.node(node).span;
        let (token, dims, count) = (b.token(span), b.axes_text(axes), elements(&b.graph, axes));
        b.error_span(span, diag::unrolled(token, dims, count, UNROLLED_MAX));
    }
}

/// The reductions with too many terms for the results in this order, and the axes of those terms; without one, what
/// makes the results themselves too long.
fn too_far(graph: &Graph, order: &[AxisId]) -> Vec<(NodeId, AxisSet)> {
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
        .map(|(id, _)| (id, runs_along(graph, id)))
        .collect();
    let unrolled = runs.iter().fold(AxisSet::EMPTY, |all, (_, axes)| all.union(*axes));
    let kept = both(order.iter().copied().collect(), unrolled);
    let lanes = backwards(graph, &results, kept, |node, lanes| lanes.union(combined(graph, node)));
    let is_long = |axes| elements(graph, axes) > UNROLLED_MAX;
    let terms = runs.iter().map(|&(id, _)| {
        let axes = combined(graph, graph.node(id));
        (id, if axes.is_empty() { axes } else { lanes[id.0 as usize].unwrap_or(axes).union(axes) })
    });
    let long: Vec<(NodeId, AxisSet)> = terms.filter(|&(_, axes)| is_long(axes)).collect();
    let to_blame = runs.iter().find(|(_, axes)| !both(*axes, kept).is_empty());
    match to_blame {
        Some(&(node, _)) if long.is_empty() && is_long(kept) => vec![(node, kept)],
        Some(_) | None => long,
    }
}

/// The axes that are run through for a node, one element after the other.
fn runs_along(graph: &Graph, id: NodeId) -> AxisSet {
    match graph.picked(id) {
        Some((axis, _)) => AxisSet::EMPTY.with(axis),
        None => combined(graph, graph.node(id)),
    }
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
        | NodeKind::At(..) => AxisSet::EMPTY,
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
        axes[result.0 as usize] = Some(both(first, graph.node(*result).axes));
    }
    for (id, node) in graph.iter().rev() {
        let Some(of_node) = axes[id.0 as usize] else { continue };
        for arg in &node.args {
            let more = both(step(node, of_node), graph.node(*arg).axes);
            let known = axes[arg.0 as usize].unwrap_or(AxisSet::EMPTY);
            axes[arg.0 as usize] = Some(known.union(more));
        }
    }
    axes
}

fn both(a: AxisSet, b: AxisSet) -> AxisSet {
    a.minus(a.minus(b))
}

/// How many elements a value has along these axes, as far as they are fixed.
fn elements(graph: &Graph, axes: AxisSet) -> i64 {
    let extents = axes.iter().filter_map(|axis| graph.axis(axis).extent.as_const());
    extents.fold(1, i64::saturating_mul)
}
