//! The rules that groups may break, and the value to store that mends it.
//!
//! Invariant: what is stored for a rule was not stored before, so there is an end to it.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::{Group, Load, Reason, Store, is_op, is_transcendental, load_order, of_tensors, points, storable};
use crate::ir::graph::{AxisId, AxisSet, Graph, NodeId, NodeKind, ParamId};
use crate::ir::point::{Moves, point};
use crate::target::TargetFacts;

/// A value computed more than once may have at most this many loads …
const CHEAP_LOADS: usize = 4;
/// … and this many operations …
const CHEAP_OPS: usize = 30;
/// … of which, all the times after the first together, this many are transcendental: no more work than it takes to write and read
/// what is stored.
const TRANSCENDENTAL_AGAIN: usize = 2;
/// Times without a limit: nothing transcendental is cheap then.
const TIMES_MANY: usize = TRANSCENDENTAL_AGAIN + 2;

/// The first rule that the groups break, as the value to store and why.
pub(super) fn broken(graph: &Graph, groups: &[Group], budget: Budget<'_>) -> Option<(NodeId, Reason)> {
    let rows = groups.iter().find_map(|group| group.space_of(graph).err());
    let shared = || shared(graph, groups).map(|node| (node, Reason::Shared));
    let moved = || groups.iter().find_map(|group| points::misplaced(graph, group));
    rows.or_else(shared)
        .or_else(|| moved().map(|node| (node, Reason::Moved)))
        .or_else(|| groups.iter().find_map(|group| repeated(graph, group)))
        .or_else(|| layout(graph, groups))
        .or_else(|| buffers(graph, groups, budget))
}

/// The last value that several groups compute and that is not cheap. A result that is written in two orders of
/// its axes is not one: it is stored already, and its operands are looked at next.
fn shared(graph: &Graph, groups: &[Group]) -> Option<NodeId> {
    let stored = |id: NodeId| groups.iter().any(|group| group.whole_stores(graph).any(|s| s.node == id));
    let mut makers = vec![0; graph.nodes.len()];
    groups.iter().flat_map(|group| &group.nodes).for_each(|id| makers[id.0 as usize] += 1);
    let makers = |id: NodeId| makers[id.0 as usize];
    let mut candidates = graph.iter().rev().map(|(id, _)| id).filter(storable(graph));
    candidates.find(|&id| makers(id) > 1 && !stored(id) && !is_cheap(graph, (id, makers(id)), stored))
}

/// The last value that a group makes again for rows that have it in common, and that is not cheap: `sum(exp(x) * w, K)` of `x: [N, K]`
/// and `w: [M, K]` would take each `exp` `M` times. Where a tensor has an element for each that is gone through, to read or
/// write that takes as long.
fn repeated(graph: &Graph, group: &Group) -> Option<(NodeId, Reason)> {
    let by_itself = |axes: AxisSet| axes.iter().filter(|axis| !group.unrolled.contains(*axis)).collect();
    let of = |axes: &[AxisId]| -> AxisSet { by_itself(axes.iter().copied().collect()) };
    let (rows, cols) = (of(&group.order), of(&group.cols));
    let has_all = |axes: AxisSet| rows.union(cols).iter().all(|axis| axes.contains(axis));
    let reads = |load: &Load| group.moved.get(load).copied().unwrap_or_else(|| of(&load_order(graph, *load)));
    if cols.is_empty()
        || group.loads.iter().any(|load| has_all(reads(load)))
        || group.stores.iter().any(|store| has_all(of(&store.order)))
    {
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

/// Whether a value costs little to compute so many times, given what can be read. What is combined of rows to make it is
/// another such value, and can be, too.
pub(super) fn is_cheap(graph: &Graph, (id, times): (NodeId, usize), stored: impl Fn(NodeId) -> bool) -> bool {
    let combined = |id: NodeId| !graph.looped_axes(id).is_empty();
    if combined(id) && !stored(id) {
        return false;
    }
    let (mut moves, mut seen) = (Moves::default(), FxHashSet::default());
    let (mut loads, mut ops, mut transcendental, mut open) = (0, 0, 0, vec![point(graph, id, &[])]);
    while let Some(point) = open.pop() {
        if !seen.insert(point.clone()) {
            continue;
        }
        let node = graph.node(point.0);
        if stored(point.0) || combined(point.0) || matches!(node.kind, NodeKind::Input(_)) {
            loads += 1;
        } else {
            ops += usize::from(is_op(graph, node));
            let costs = matches!(node.kind, NodeKind::Apply(op) if is_transcendental(op));
            // What has fewer axes is computed less often.
            transcendental += usize::from(costs && node.axes == graph.node(id).axes);
            open.extend(points::operands(graph, &mut moves, &point));
        }
        let again = transcendental * (times - 1);
        if loads > CHEAP_LOADS || ops > CHEAP_OPS || again > TRANSCENDENTAL_AGAIN {
            return false;
        }
    }
    true
}

/// A reduced or picked value in a group that writes its axis elsewhere than innermost.
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

/// What a kernel can bind: so many buffers, where these parameters are two each, and so many tensors of one or of few elements
/// besides.
#[derive(Clone, Copy)]
pub(super) struct Budget<'a> {
    pub(super) max: usize,
    pub(super) uniforms_max: usize,
    twice: &'a BTreeSet<ParamId>,
}

impl<'a> Budget<'a> {
    /// Of a target, where these parameters are bound twice: as they were, and as they become.
    pub(super) fn new(facts: &TargetFacts, twice: &'a BTreeSet<ParamId>) -> Budget<'a> {
        Budget { max: facts.buffers_max, uniforms_max: facts.uniform_buffers_max, twice }
    }

    /// Where all that is read is a buffer.
    fn without_uniforms(self) -> Budget<'a> {
        Budget { uniforms_max: 0, ..self }
    }

    pub(super) fn is_twice(&self, load: Load) -> bool {
        matches!(load, Load::Param(param) if self.twice.contains(&param))
    }
}

/// A value whose storing makes a group with too many buffers smaller.
fn buffers(graph: &Graph, groups: &[Group], budget: Budget<'_>) -> Option<(NodeId, Reason)> {
    let needs = |group: &Group| group.buffers(graph, budget);
    let group = groups.iter().find(|group| needs(group) > budget.max)?;
    let number = largest_part(graph, group, budget, storable(graph));
    let node = number.or_else(|| largest_part(graph, group, budget, of_tensors(graph)))?;
    Some((node, Reason::Buffers(needs(group), budget.max)))
}

/// Of the values of a group for which `may` holds and that it does not store, the one that needs the most buffers but fits
/// a kernel of its own.
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
    // What takes the place of one other is no gain.
    let gains = parts
        .map(|(id, part)| (part.buffers(graph, budget.without_uniforms()), id))
        .filter(|&(gain, _)| gain > 2);
    gains.max_by_key(|&(gain, _)| gain).map(|(_, id)| id)
}
