//! Rules that groups may break, and the value whose storing mends each break.
//!
//! Invariant: a rule asks only for values that are not stored yet, so the search ends.

use std::collections::{BTreeMap, BTreeSet};

use super::attention::Attention;
use super::{
    Group, Load, Reason, Store, attention, is_op, is_transcendental, load_order, of_tensors, points,
    products, storable,
};
use crate::ir::graph::{AxisId, AxisSet, Graph, NodeId, NodeKind, ParamId};
use crate::ir::point::{Moves, Point, point};
use crate::target::TargetFacts;
use crate::target::tuning_table::all;

/// Repetitions without a known limit. No transcendental operation is cheap so many times.
const TIMES_MANY: usize = all::TRANSCENDENTAL_AGAIN + 2;

/// Returns the first rule that the groups break, as the value to store and the reason.
pub(super) fn broken(graph: &Graph, groups: &[Group], budget: Budget<'_>) -> Option<(NodeId, Reason)> {
    let rows = attention::mixed(graph, groups)
        .or_else(|| groups.iter().find_map(|group| group.space_of(graph).err()));
    let shared = || shared(graph, groups).map(|node| (node, Reason::Shared));
    let moved = || groups.iter().find_map(|group| points::misplaced(graph, group));
    rows.or_else(|| products::crowded(graph, groups))
        .or_else(shared)
        .or_else(|| moved().map(|node| (node, Reason::Moved)))
        .or_else(|| groups.iter().find_map(|group| repeated(graph, group)))
        .or_else(|| layout(graph, groups))
        .or_else(|| buffers(graph, groups, budget))
}

/// Returns the last value that several groups compute and that is not cheap. A result that is written in two
/// orders of its axes does not count: it is stored already, and its operands are checked next.
fn shared(graph: &Graph, groups: &[Group]) -> Option<NodeId> {
    let stored = |id: NodeId| groups.iter().any(|group| group.stores.iter().any(|s| s.node == id));
    let mut makers = vec![0; graph.nodes.len()];
    groups.iter().flat_map(|group| &group.nodes).for_each(|id| makers[id.0 as usize] += 1);
    let makers = |id: NodeId| makers[id.0 as usize];
    let mut candidates = graph.iter().rev().map(|(id, _)| id).filter(storable(graph));
    candidates.find(|&id| makers(id) > 1 && !stored(id) && !is_cheap(graph, (id, makers(id)), stored))
}

/// Returns the last value that is not cheap and that a group recomputes for rows that share it. Example:
/// `sum(exp(x) * w, K)` with `x: [N, K]` and `w: [M, K]` would compute each `exp` `M` times.
fn repeated(graph: &Graph, group: &Group) -> Option<(NodeId, Reason)> {
    let (rows, cols) = rows_and_cols(group);
    // Attention computes each factor once.
    if cols.is_empty() || is_bound_by_memory(graph, group) || Attention::of(graph, group).is_some() {
        return None;
    }
    let storable = storable(graph);
    let known =
        |id: NodeId| group.load_of(graph, id).is_some() || group.stores.iter().any(|store| store.node == id);
    let lacks =
        |id: NodeId| -> AxisSet { rows.iter().filter(|axis| !graph.node(id).axes.contains(*axis)).collect() };
    let is_repeated = |id: &NodeId| {
        let is_of_elements = !graph.node(*id).axes.intersection(cols).is_empty();
        is_of_elements && !lacks(*id).is_empty() && storable(id) && !known(*id)
    };
    let mut candidates = group.nodes.iter().rev().copied().filter(is_repeated);
    let found = candidates.find(|&id| !is_cheap(graph, (id, TIMES_MANY), known))?;
    Some((found, Reason::Repeated(lacks(found))))
}

/// Returns the axes of a group's rows and those along its rows, without the unrolled ones.
fn rows_and_cols(group: &Group) -> (AxisSet, AxisSet) {
    let of = |axes: &[AxisId]| axes.iter().copied().filter(|axis| !group.unrolled.contains(*axis)).collect();
    (of(&group.order), of(&group.cols))
}

/// Returns true if a tensor has an element for each point of a group's space. To compute a value for each
/// point takes no longer than the memory traffic of that tensor.
pub(super) fn is_bound_by_memory(graph: &Graph, group: &Group) -> bool {
    let (rows, cols) = rows_and_cols(group);
    let has_all = |axes: AxisSet| rows.union(cols).iter().all(|axis| axes.contains(axis));
    let of = |axes: &[AxisId]| axes.iter().copied().collect();
    let reads = |load: &Load| group.moved.get(load).copied().unwrap_or_else(|| of(&load_order(graph, *load)));
    group.loads.iter().any(|load| has_all(reads(load)))
        || group.stores.iter().any(|store| has_all(of(&store.order)))
}

/// Returns the number of elements along these axes, [`TIMES_MANY`] along an axis without a known extent. An
/// empty axis counts as an element, so that numbers can be divided by the result.
pub(super) fn elements(graph: &Graph, axes: impl IntoIterator<Item = AxisId>) -> usize {
    let extent =
        |axis| graph.axis(axis).extent.as_const().map_or(TIMES_MANY, |extent| extent.max(1) as usize);
    axes.into_iter().map(extent).fold(1, usize::saturating_mul)
}

/// Returns true if a value costs little to compute `times` times, given the stored values. A looped reduction
/// among its operands counts as a load: the rule checks it by itself, and may store it too. An operand of an
/// unrolled reduction counts once for each element that is reduced.
pub(super) fn is_cheap(graph: &Graph, (id, times): (NodeId, usize), stored: impl Fn(NodeId) -> bool) -> bool {
    let combined = |id: NodeId| !graph.looped_axes(id).is_empty();
    if combined(id) && !stored(id) {
        return false;
    }
    let (mut moves, own) = (Moves::default(), graph.node(id).axes);
    // Points to visit, each with the unrolled axes along which it is computed. An operand has a lower number
    // than its users, so a point is visited after all its users.
    let mut open: BTreeMap<Point, Vec<AxisId>> = BTreeMap::from([(point(graph, id, &[]), Vec::new())]);
    let (mut loads, mut ops, mut transcendental) = (0_usize, 0_usize, 0_usize);
    while let Some((point, unrolled)) = open.pop_last() {
        let (node, count) = (graph.node(point.0), elements(graph, unrolled.iter().copied()));
        if stored(point.0) || combined(point.0) || matches!(node.kind, NodeKind::Input(_)) {
            loads = loads.saturating_add(count);
        } else {
            let costs = matches!(node.kind, NodeKind::Apply(op) if is_transcendental(op));
            // A value with fewer axes is computed less often.
            let is_of_all = own.minus(moves.axes(graph, &point)).is_empty();
            ops = ops.saturating_add(if is_op(graph, node) { count } else { 0 });
            transcendental = transcendental.saturating_add(if costs && is_of_all { count } else { 0 });
            let within = unrolled.into_iter().chain(graph.unrolled_axes(point.0).iter());
            let within: Vec<AxisId> = within.collect();
            for operand in points::operands(graph, &mut moves, &point) {
                let varies = moves.axes(graph, &operand);
                let along: Vec<AxisId> =
                    within.iter().copied().filter(|axis| varies.contains(*axis)).collect();
                let known = open.entry(operand).or_default();
                if elements(graph, along.iter().copied()) > elements(graph, known.iter().copied()) {
                    *known = along;
                }
            }
        }
        let again = transcendental.saturating_mul(times - 1);
        if loads > all::CHEAP_LOADS || ops > all::CHEAP_OPS || again > all::TRANSCENDENTAL_AGAIN {
            return false;
        }
    }
    true
}

/// Returns a value that is reduced or indexed along an unrolled axis which its group does not write
/// innermost.
fn layout(graph: &Graph, groups: &[Group]) -> Option<(NodeId, Reason)> {
    groups.iter().find_map(|group| {
        let inner = group.order.iter().rev().take_while(|&&axis| group.unrolled.contains(axis)).count();
        let outer = &group.order[..group.order.len() - inner];
        let &axis = outer.iter().find(|&&axis| group.unrolled.contains(axis))?;
        let written_out = |id: &NodeId| graph.written_out(*id).contains(axis);
        let node = group.nodes.iter().copied().find(written_out)?;
        Some((node, Reason::Layout(axis)))
    })
}

/// Number of bindings of a kernel: storage buffers, and uniform buffers for small tensors. Parameters in
/// `twice` take two storage buffers each.
#[derive(Clone, Copy)]
pub(super) struct Budget<'a> {
    pub(super) max: usize,
    pub(super) uniforms_max: usize,
    twice: &'a BTreeSet<ParamId>,
}

impl<'a> Budget<'a> {
    /// Returns the budget of a target. Parameters in `twice` are bound as two buffers: old and new value.
    pub(super) fn new(facts: &TargetFacts, twice: &'a BTreeSet<ParamId>) -> Budget<'a> {
        Budget { max: facts.buffers_max, uniforms_max: facts.uniform_buffers_max, twice }
    }

    /// Returns the budget of a kernel that binds every load as a storage buffer.
    fn without_uniforms(self) -> Budget<'a> {
        Budget { uniforms_max: 0, ..self }
    }

    pub(super) fn is_twice(&self, load: Load) -> bool {
        matches!(load, Load::Param(param) if self.twice.contains(&param))
    }
}

/// Returns a value whose storing splits a group that needs too many buffers.
fn buffers(graph: &Graph, groups: &[Group], budget: Budget<'_>) -> Option<(NodeId, Reason)> {
    let needs = |group: &Group| group.buffers(graph, budget);
    let group = groups.iter().find(|group| needs(group) > budget.max)?;
    let number = largest_part(graph, group, budget, storable(graph));
    let node = number.or_else(|| largest_part(graph, group, budget, of_tensors(graph)))?;
    Some((node, Reason::Buffers(needs(group), budget.max)))
}

/// Returns the value of a group that needs the most buffers but fits in a kernel of its own. Only values that
/// `may` accepts and that the group does not store count.
fn largest_part(
    graph: &Graph,
    group: &Group,
    budget: Budget<'_>,
    may: impl Fn(&NodeId) -> bool,
) -> Option<NodeId> {
    let part = |id: NodeId| {
        let mut part = Group::new(Store { node: id, output: None, order: Vec::new() });
        part.fill(graph, |node| group.loads.contains(&Load::Stored(node)));
        part
    };
    let stored = |id: NodeId| group.stores.iter().any(|store| store.node == id);
    let inner = group.nodes.iter().rev().copied().filter(may).filter(|&id| !stored(id));
    let parts = inner.map(|id| (id, part(id))).filter(|(_, part)| part.buffers(graph, budget) <= budget.max);
    // A part with one load only replaces this load by another.
    let gains = parts
        .map(|(id, part)| (part.buffers(graph, budget.without_uniforms()), id))
        .filter(|&(gain, _)| gain > 2);
    gains.max_by_key(|&(gain, _)| gain).map(|(_, id)| id)
}
