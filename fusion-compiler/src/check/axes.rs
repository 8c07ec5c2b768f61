//! Axes that operations create, and values along other axes than their own.

use std::collections::{BTreeMap, BTreeSet};

use super::build::{Builder, Env};
use crate::diag;
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AXES_MAX, AxisId, AxisSet, ConcatDim, Dim, Node, NodeId, NodeKind, SpanId, Use};
use crate::ir::op::Op;
use crate::parse;
use crate::parse::ast::{Expr, ExprKind};

/// Gathers elements of a value along an axis. `by` is the index node, optionally followed by the condition
/// under which an element exists. An index along the new dim of a renamed value reads the original along its
/// old dim.
pub(super) fn elements(
    b: &mut Builder<'_>,
    (of, axis): (NodeId, AxisId),
    by: &[NodeId],
    span: SpanId,
) -> Option<NodeId> {
    let original = b.graph.renamed(of).filter(|&(_, _, new)| new == axis);
    let (of, axis) = original.map_or((of, axis), |(original, old, _)| (original, old));
    if let [place] = *by
        && b.graph.node(place).kind == NodeKind::Coord(axis)
    {
        return Some(of);
    }
    let Node { dtype, axes, .. } = *b.graph.node(of);
    let left = axes.minus(AxisSet::EMPTY.with(axis));
    let axes = by.iter().fold(left, |axes, &arg| axes.union(b.graph.node(arg).axes));
    b.push(Node { kind: NodeKind::Gather(axis), args: [&[of], by].concat(), dtype, axes, span })
}

/// Creates an axis with the name that the expression spells.
pub(super) fn new_dim(b: &mut Builder<'_>, env: &mut Env, e: &Expr, extent: DimExpr) -> Option<AxisId> {
    let ExprKind::Name(name) = &e.kind else { unreachable!("a dim has a name") };
    let message = if env.var(name).is_some() {
        diag::name_clash(name, "a value", "a dim")
    } else if is_lowercase(name) {
        diag::dim_lowercase(name, parse::upper(name))
    } else if let Some(axis) = create(b, env, extent, name) {
        return Some(axis);
    } else {
        diag::too_many_dims(AXES_MAX)
    };
    b.error(e.at, message);
    None
}

/// Returns a value along these axes, in place of dims of the same names that templates made.
pub(super) fn joined(b: &mut Builder<'_>, id: NodeId, axes: AxisSet) -> NodeId {
    let lacks = axes.minus(b.graph.node(id).axes);
    lacks.iter().fold(id, |id, known| {
        let made = b.namesake(known, b.graph.node(id).axes).filter(|&made| b.apart.contains(made));
        made.and_then(|made| join(b, id, (made, known))).unwrap_or(id)
    })
}

/// Returns a value along a known axis in place of one of the same name that a template made. Each call checks
/// that their extents agree, as if the operation that made the axis had named the known one. Returns none if
/// the extents differ in every call, or if the value is computed from one that has the known axis.
pub(super) fn join(b: &mut Builder<'_>, id: NodeId, (made, known): (AxisId, AxisId)) -> Option<NodeId> {
    if !b.graph.node(id).axes.contains(made) {
        return Some(id);
    }
    let [old, new] = [made, known].map(|axis| b.graph.axis(axis).clone());
    let differ = old.extent.as_const().zip(new.extent.as_const()).is_some_and(|(old, new)| old != new);
    if differ || comes_from(b, id, known) {
        return None;
    }
    let swap = |axis: &Dim| if *axis == old { new.clone() } else { axis.clone() };
    let checks = b.graph.concats.iter().filter(|sum| !matches!(sum.of, Use::Coordinates(_)));
    let checks = checks.filter(|sum| sum.whole == old || sum.parts.contains(&old));
    let checks: Vec<ConcatDim> = checks
        .map(|sum| ConcatDim {
            whole: swap(&sum.whole),
            parts: sum.parts.iter().map(swap).collect(),
            of: sum.of.clone(),
        })
        .collect();
    if checks.is_empty() && old.extent != new.extent {
        return None;
    }
    let value = substitute(b, id, (made, known), &mut BTreeMap::new()).ok().flatten()?;
    checks.into_iter().for_each(|sum| b.graph.check(sum));
    Some(value)
}

impl Builder<'_> {
    /// Appends a pointwise operation. Two dims of its operands that share a name become one. Reports them if
    /// they cannot.
    pub(super) fn apply(&mut self, op: Op, args: &[NodeId], span: SpanId) -> Option<NodeId> {
        let mut args = args.to_vec();
        while let Some((apart, other)) = self.of_one_name(&args) {
            let joined = args.iter().map(|&arg| join(self, arg, (apart, other))).collect();
            let Some(joined) = joined else {
                let message = self.two_dims(other, apart);
                self.error_span(span, message);
                return None;
            };
            args = joined;
        }
        Some(self.graph.apply(op, &args, span))
    }

    /// Returns a dim of these values that a template made, and another dim of the same name.
    fn of_one_name(&self, args: &[NodeId]) -> Option<(AxisId, AxisId)> {
        let axes = args.iter().fold(AxisSet::EMPTY, |all, &arg| all.union(self.graph.node(arg).axes));
        let apart = axes.intersection(self.apart);
        apart.iter().find_map(|apart| Some((apart, self.namesake(apart, axes)?)))
    }
}

/// Returns true if a value, or one that it is computed from, has this axis.
fn comes_from(b: &Builder<'_>, id: NodeId, axis: AxisId) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![id]);
    while let Some(id) = open.pop() {
        let node = b.graph.node(id);
        if node.axes.contains(axis) {
            return true;
        }
        open.extend(node.args.iter().filter(|&&arg| seen.insert(arg)));
    }
    false
}

fn is_lowercase(name: &str) -> bool {
    name.starts_with(|c: char| c.is_lowercase() || c == '_')
}

/// Creates an axis, or reuses a spare one. Returns none if the name is lowercase or there is no room.
pub(super) fn create(b: &mut Builder<'_>, env: &mut Env, extent: DimExpr, name: &str) -> Option<AxisId> {
    if is_lowercase(name) {
        return None;
    }
    let is = |axis: &AxisId| {
        let axis = b.graph.axis(*axis);
        axis.name == name && axis.extent == extent
    };
    let axis = match b.spare.iter().find(is) {
        Some(axis) => {
            (b.spare, b.has_reused) = (b.spare.minus(AxisSet::EMPTY.with(axis)), true);
            axis
        }
        None if b.graph.axes.len() >= AXES_MAX => return None,
        None => b.axis(name, extent),
    };
    env.dims.push((name.into(), vec![axis]));
    Some(axis)
}

/// The reason why a value cannot be computed along another axis.
pub(super) enum AxisConflict {
    /// An operand already has the new axis.
    Taken,
    /// The old axis is the whole or a part of a split.
    Regrouped,
}

/// Rebuilds a value with the axis `new` in place of `old`. Only nodes with the old axis are copied. `made`
/// maps nodes to their copies across calls. Returns none if the graph is full.
pub(super) fn substitute(
    b: &mut Builder<'_>,
    root: NodeId,
    (old, new): (AxisId, AxisId),
    made: &mut BTreeMap<NodeId, NodeId>,
) -> Result<Option<NodeId>, AxisConflict> {
    let (mut part, mut open) = (BTreeSet::new(), vec![root]);
    while let Some(id) = open.pop() {
        let node = b.graph.node(id);
        if node.axes.contains(old) && !made.contains_key(&id) && part.insert(id) {
            open.extend(&node.args);
        }
    }
    if part.iter().any(|&id| b.graph.node(id).axes.contains(new)) {
        return Err(AxisConflict::Taken);
    }
    let regrouped = b.graph.splits.iter().any(|split| split.whole == old || split.parts.contains(&old));
    let makes_it = |&id: &NodeId| {
        let node = b.graph.node(id);
        node.kind == NodeKind::Cast && !node.args.iter().any(|&arg| b.graph.node(arg).axes.contains(old))
    };
    if regrouped && part.iter().any(makes_it) {
        return Err(AxisConflict::Regrouped);
    }
    let swap = |axis: AxisId| if axis == old { new } else { axis };
    // Ascending node numbers put operands before their users.
    for id in part {
        let Node { kind, args, dtype, axes, span } = b.graph.node(id).clone();
        let order = order(b, id, &kind);
        let kind = match kind {
            NodeKind::Coord(axis) => NodeKind::Coord(swap(axis)),
            // A value gathered along the old axis has that axis, so its copy is gathered along the new axis.
            NodeKind::Gather(axis) => NodeKind::Gather(swap(axis)),
            // A reduction along the old axis gives a value without that axis, so no swap is needed.
            kind => kind,
        };
        let args: Vec<NodeId> = args.iter().map(|arg| made.get(arg).copied().unwrap_or(*arg)).collect();
        if let (&NodeKind::Gather(axis), &[of, place]) = (&kind, args.as_slice())
            && b.graph.node(place).kind == NodeKind::Coord(axis)
        {
            // A value that is renamed back is the original.
            made.insert(id, of);
            continue;
        }
        let axes = axes.iter().map(swap).collect();
        let Some(copy) = b.push(Node { kind, args, dtype, axes, span }) else { return Ok(None) };
        b.views.extend(order.map(|order| (copy, order.into_iter().map(swap).collect())));
        made.insert(id, copy);
    }
    Ok(made.get(&root).copied())
}

/// Returns the axes at which a node reads a tensor, in the order of the tensor's own axes.
pub(super) fn order(b: &Builder<'_>, id: NodeId, kind: &NodeKind) -> Option<Vec<AxisId>> {
    let NodeKind::Input(param) = kind else { return None };
    let view = b.views.iter().find(|(view, _)| *view == id).map(|(_, axes)| axes.clone());
    view.or_else(|| b.graph.param(*param).kind.axes().cloned())
}
