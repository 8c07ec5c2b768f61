//! Short fixed axes that are looped although each thread could unroll them: `Graph::looped`.
//!
//! An axis that a thread unrolls must be innermost in the stores, and cannot be an axis of another
//! reduction's rows; otherwise more kernels are needed. Invariant: an axis is looped on all targets where the
//! loop saves kernels, except along rows of a few elements, which would leave most of a team idle. An axis is
//! also looped on targets where a loop over its elements is faster and costs no kernel.

use std::collections::BTreeSet;

use super::products::has_tiles;
use super::rules::Budget;
use super::{Group, Grouping, Reason, Store, fuse, is_column_major, load_order};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AxisSet, Graph, NodeKind, ParamId};
use crate::target::TargetFacts;
use crate::target::tuning_table::gpu;

/// Fuses a graph for targets with these facts. Each target's graph has its own set of looped axes.
pub fn fuse_for(mut graph: Graph, facts: &[TargetFacts]) -> Vec<(Graph, Grouping)> {
    let mut fused = fuse_all(&graph, facts);
    while let Some(better) = with_a_loop(&graph, &fused, facts) {
        (graph, fused) = better;
    }
    let twice = fused.iter().flat_map(|fused| fused.double_buffered.clone()).collect();
    let one = |(fused, facts)| with_long_loops((graph.clone(), fused), facts, &twice);
    fused.into_iter().zip(facts).map(one).collect()
}

/// Fuses the graph for all targets. The set of parameters that are bound twice depends on the kernels of all
/// targets, so it grows until all groups fit.
fn fuse_all(graph: &Graph, facts: &[TargetFacts]) -> Vec<Grouping> {
    let mut twice = BTreeSet::new();
    loop {
        let fused: Vec<Grouping> = facts.iter().map(|facts| fuse(graph, facts, &twice)).collect();
        let double_buffered: BTreeSet<ParamId> =
            fused.iter().flat_map(|fused| fused.double_buffered.clone()).collect();
        let fits = |(fused, facts): (&Grouping, &TargetFacts)| {
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

/// Returns the graph with one more looped set of axes, if that saves kernels. Candidates are the unrolled
/// axes of reductions that had to be stored. Static indices are no candidates: a gathered tensor must fit in
/// one binding.
fn with_a_loop(graph: &Graph, fused: &[Grouping], facts: &[TargetFacts]) -> Option<(Graph, Vec<Grouping>)> {
    let kernels = |fused: &[Grouping]| fused.iter().map(|fused| fused.groups.len()).sum::<usize>();
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

/// Adds loops along axes that are too long to unroll on this target. A loop must not add kernels or double
/// buffered parameters.
fn with_long_loops(
    (mut graph, mut fused): (Graph, Grouping),
    facts: &TargetFacts,
    twice: &BTreeSet<ParamId>,
) -> (Graph, Grouping) {
    let elements = |axes: &AxisSet| -> i64 {
        axes.iter().filter_map(|axis| graph.axis(axis).extent.as_const()).product()
    };
    let reduces = || graph.iter().filter(|(_, node)| matches!(node.kind, NodeKind::Reduce(..)));
    let lines: BTreeSet<AxisSet> = reduces().map(|(id, _)| graph.written_out(id)).collect();
    let of_products: BTreeSet<AxisSet> = reduces()
        .filter(|(id, _)| has_tiles(&graph, *id, &facts.contractions))
        .map(|(id, _)| graph.written_out(id))
        .filter(|axes| !axes.is_empty())
        .collect();
    let is_long = |axes: &AxisSet| elements(axes) > facts.unrolled_max || of_products.contains(axes);
    let long: Vec<AxisSet> = lines.into_iter().filter(is_long).collect();
    for axes in long {
        let looped = Graph { looped: graph.looped.union(axes), ..graph.clone() };
        let other = fuse(&looped, facts, twice);
        let is_product =
            |group: &Group| group.nodes.iter().any(|id| has_tiles(&looped, *id, &facts.contractions));
        let is_line = |group: &Group| {
            let is_along = group.cols.iter().any(|axis| axes.contains(*axis));
            !is_along || is_product(group) || !has_column_major_rows(&looped, group)
        };
        // Each product has a kernel of its own.
        let is_allowed = (other.groups.len() <= fused.groups.len() || of_products.contains(&axes))
            && other.double_buffered.is_subset(twice);
        if is_allowed && other.groups.iter().all(is_line) {
            (graph, fused) = (looped, other);
        }
    }
    (graph, fused)
}

/// Returns true if rows are short and not column-major.
fn is_narrow(graph: &Graph, group: &Group) -> bool {
    let len = DimExpr::product(group.cols.iter().map(|&axis| &graph.axis(axis).extent));
    let short = !group.cols.is_empty() && len.as_const().is_some_and(|len| len < gpu::TEAM_ROW_MIN);
    short && !has_column_major_rows(graph, group)
}

/// Returns true if rows are column-major in all loads and stores.
fn has_column_major_rows(graph: &Graph, group: &Group) -> bool {
    let cols: AxisSet = group.cols.iter().copied().collect();
    let next = group.order.last().copied();
    let reads = group.loads.iter().all(|load| is_column_major(&load_order(graph, *load), cols, next));
    let is_stored = |store: &Store| !group.is_of_elements(store) || is_column_major(&store.order, cols, next);
    reads && group.stores.iter().all(is_stored)
}
