//! Which short fixed axes are gone through in loops, although each thread could go through them by itself: `Graph::looped`.
//!
//! What a thread goes through by itself has to lie innermost in what it writes, and cannot be a part of what others go
//! through together, or more kernels are needed. Invariant: a loop is there on all targets where it saves kernels, but not along lines
//! of a few elements, which would keep most of a team idle; and on those that go through a line faster in one where it costs none.

use std::collections::BTreeSet;

use super::rules::Budget;
use super::{Fused, Group, Reason, Store, fuse, is_column_major, load_order};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AxisSet, Graph, NodeKind, ParamId};
use crate::target::TargetFacts;

/// Decides what shares a kernel on targets of these facts; the graph of each says which axes are looped there.
pub fn fuse_for(mut graph: Graph, facts: &[TargetFacts]) -> Vec<(Graph, Fused)> {
    let mut fused = fuse_all(&graph, facts);
    while let Some(better) = with_a_loop(&graph, &fused, facts) {
        (graph, fused) = better;
    }
    let twice = fused.iter().flat_map(|fused| fused.double_buffered.clone()).collect();
    let one = |(fused, facts)| with_long_loops((graph.clone(), fused), facts, &twice);
    fused.into_iter().zip(facts).map(one).collect()
}

/// A parameter that is written where it is read is bound once; which are not follows from the kernels of all targets.
fn fuse_all(graph: &Graph, facts: &[TargetFacts]) -> Vec<Fused> {
    let mut twice = BTreeSet::new();
    loop {
        let fused: Vec<Fused> = facts.iter().map(|facts| fuse(graph, facts, &twice)).collect();
        let double_buffered: BTreeSet<ParamId> =
            fused.iter().flat_map(|fused| fused.double_buffered.clone()).collect();
        let fits = |(fused, facts): (&Fused, &TargetFacts)| {
            fused
                .groups
                .iter()
                .all(|group| group.buffers(graph, Budget::new(facts, &double_buffered)) <= facts.buffers_max)
        };
        if double_buffered.is_subset(&twice) || fused.iter().zip(facts).all(fits) {
            return fused;
        }
        twice.extend(double_buffered);
    }
}

/// The same with a loop more, if that saves kernels: along axes that a thread goes through by itself to combine what had to
/// be stored. For what is only picked there is none: a tensor that is read at other places has to fit in one binding.
fn with_a_loop(graph: &Graph, fused: &[Fused], facts: &[TargetFacts]) -> Option<(Graph, Vec<Fused>)> {
    let kernels = |fused: &[Fused]| fused.iter().map(|fused| fused.groups.len()).sum::<usize>();
    let stored = fused.iter().flat_map(|fused| &fused.boundaries);
    let stored = stored.filter(|(_, reason)| matches!(reason, Reason::Layout(_) | Reason::Rows(_)));
    let stored = stored.filter(|(id, _)| matches!(graph.node(**id).kind, NodeKind::Reduce(..)));
    let candidates: BTreeSet<AxisSet> = stored.map(|(&id, _)| graph.written_out(id)).collect();
    candidates.into_iter().filter(|axes| !axes.is_empty()).find_map(|axes| {
        let looped = Graph { looped: graph.looped.union(axes), ..graph.clone() };
        let other = fuse_all(&looped, facts);
        let narrow = other.iter().flat_map(|fused| &fused.groups).any(|group| is_narrow(&looped, group));
        (kernels(&other) < kernels(fused) && !narrow).then_some((looped, other))
    })
}

/// The same with loops along lines that are too long for a thread of this target to go through by itself, where they take no more
/// kernels, and none binds another parameter twice.
fn with_long_loops(
    (mut graph, mut fused): (Graph, Fused),
    facts: &TargetFacts,
    twice: &BTreeSet<ParamId>,
) -> (Graph, Fused) {
    let elements = |axes: &AxisSet| -> i64 {
        axes.iter().filter_map(|axis| graph.axis(axis).extent.as_const()).product()
    };
    let reduces = graph.iter().filter(|(_, node)| matches!(node.kind, NodeKind::Reduce(..)));
    let lines: BTreeSet<AxisSet> = reduces.map(|(id, _)| graph.written_out(id)).collect();
    let long: Vec<AxisSet> = lines.into_iter().filter(|axes| elements(axes) > facts.unrolled_max).collect();
    for axes in long {
        let looped = Graph { looped: graph.looped.union(axes), ..graph.clone() };
        let other = fuse(&looped, facts, twice);
        let is_line = |group: &Group| {
            let is_along = group.cols.iter().any(|axis| axes.contains(*axis));
            !is_along || !lies_side_by_side(&looped, group)
        };
        let is_allowed = other.groups.len() <= fused.groups.len() && other.double_buffered.is_subset(twice);
        if is_allowed && other.groups.iter().all(is_line) {
            (graph, fused) = (looped, other);
        }
    }
    (graph, fused)
}

/// Elements of the shortest rows that are worth a team, if they lie in a line.
const LINE_MIN: i64 = 16;

/// Whether rows are short, and do not lie side by side.
fn is_narrow(graph: &Graph, group: &Group) -> bool {
    let len = DimExpr::product(group.cols.iter().map(|&axis| &graph.axis(axis).extent));
    let short = !group.cols.is_empty() && len.as_const().is_some_and(|len| len < LINE_MIN);
    short && !lies_side_by_side(graph, group)
}

/// Whether rows lie side by side in all that is read and written.
fn lies_side_by_side(graph: &Graph, group: &Group) -> bool {
    let cols: AxisSet = group.cols.iter().copied().collect();
    let next = group.order.last().copied();
    let reads = group.loads.iter().all(|load| is_column_major(&load_order(graph, *load), cols, next));
    let beside = |store: &Store| !group.is_of_elements(store) || is_column_major(&store.order, cols, next);
    reads && group.stores.iter().all(beside)
}
