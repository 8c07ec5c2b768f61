//! Which short fixed axes are gone through in loops, although each thread could go through them by itself.
//!
//! What a thread goes through by itself has to lie innermost in what it writes, and cannot be a part of what others go
//! through together, or more kernels are needed. Invariant: one decision for a function on all targets, `Graph::looped`, and
//! a loop only where it saves kernels, and not along lines of a few elements, which would keep most of a team idle.

use std::collections::BTreeSet;

use super::rules::Budget;
use super::{Fused, Group, Reason, Store, fuse, lies_beside, load_order};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AxisSet, Graph, NodeKind, ParamId};
use crate::target::TargetFacts;

/// Decides what shares a kernel on targets of these facts; the graph says which axes are looped.
pub fn fuse_for(mut graph: Graph, facts: &[TargetFacts]) -> (Graph, Vec<Fused>) {
    let mut fused = fuse_all(&graph, facts);
    while let Some(better) = with_a_loop(&graph, &fused, facts) {
        (graph, fused) = better;
    }
    (graph, fused)
}

/// A parameter that is written where it is read is bound once; which are not follows from the kernels of all targets.
fn fuse_all(graph: &Graph, facts: &[TargetFacts]) -> Vec<Fused> {
    let mut twice = BTreeSet::new();
    loop {
        let fused: Vec<Fused> = facts.iter().map(|facts| fuse(graph, facts, &twice)).collect();
        let swapped: BTreeSet<ParamId> = fused.iter().flat_map(|fused| fused.swapped.clone()).collect();
        let fits = |(fused, facts): (&Fused, &TargetFacts)| {
            fused
                .groups
                .iter()
                .all(|group| group.buffers(graph, Budget::new(facts, &swapped)) <= facts.buffers_max)
        };
        if swapped.is_subset(&twice) || fused.iter().zip(facts).all(fits) {
            return fused;
        }
        twice.extend(swapped);
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

/// Elements of the shortest rows that are worth a team, if they lie in a line.
const LINE_MIN: i64 = 16;

/// Whether rows are short, and do not lie side by side in all that is read and written.
fn is_narrow(graph: &Graph, group: &Group) -> bool {
    let cols: AxisSet = group.cols.iter().copied().collect();
    let len = DimExpr::product(group.cols.iter().map(|&axis| &graph.axis(axis).extent));
    let short = !cols.is_empty() && len.as_const().is_some_and(|len| len < LINE_MIN);
    let next = group.order.last().copied();
    let reads = group.loads.iter().all(|load| lies_beside(&load_order(graph, *load), cols, next));
    let beside = |store: &Store| !group.is_of_elements(store) || lies_beside(&store.order, cols, next);
    short && !(reads && group.stores.iter().all(beside))
}
