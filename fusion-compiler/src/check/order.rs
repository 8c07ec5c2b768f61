//! The order of a value's dims, needed where all dims of a value are flattened into one. A value inherits the
//! order of the tensor it is computed from. Index operations replace one dim of that order by others.
//!
//! Values have only sets of axes, so the order matters solely to functions that number elements. For example,
//! `argmax(x)` is a position in `x` in the dim order of the signature of `x`.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::build::{Builder, ExprValue};
use super::{axes, value};
use crate::ir::graph::{AxisId, AxisSet, NodeId, NodeKind, SplitDim};
use crate::ir::op::Op;

/// Returns the axes of all values without duplicates, ordered by first occurrence.
pub(super) fn of_all<'v>(b: &Builder<'_>, values: impl Iterator<Item = &'v ExprValue>) -> Vec<AxisId> {
    in_turn(values.flat_map(|value| of(b, value)))
}

fn of(b: &Builder<'_>, value: &ExprValue) -> Vec<AxisId> {
    match value {
        ExprValue::Node(id) => of_node(b, *id),
        ExprValue::Tuple(parts) => of_all(b, parts.iter()),
        ExprValue::Weak(_) | ExprValue::Unknown => value::axes_of(b, value).iter().collect(),
    }
}

fn of_node(b: &Builder<'_>, id: NodeId) -> Vec<AxisId> {
    let axes = b.graph.node(id).axes;
    if axes.iter().count() <= 1 {
        return axes.iter().collect();
    }
    let mut orders: FxHashMap<NodeId, Vec<AxisId>> = FxHashMap::default();
    // Operands precede their users.
    for id in made_of(b, id) {
        let order = of_one(b, id, &orders);
        debug_assert_eq!(
            order.iter().copied().collect::<AxisSet>(),
            b.graph.node(id).axes,
            "each axis is in the order"
        );
        orders.insert(id, order);
    }
    orders.remove(&id).unwrap_or_default()
}

/// Returns the node and all its transitive operands, in ascending order.
fn made_of(b: &Builder<'_>, id: NodeId) -> BTreeSet<NodeId> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![id]);
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(&b.graph.node(id).args);
        }
    }
    seen
}

/// Returns the axis order of a node, given the orders of its operands. The leftmost operand with all axes of
/// the node decides. Without one, the orders of the operands are concatenated.
fn of_one(b: &Builder<'_>, id: NodeId, orders: &FxHashMap<NodeId, Vec<AxisId>>) -> Vec<AxisId> {
    let node = b.graph.node(id);
    let all_of =
        |args: &[NodeId]| -> Vec<AxisId> { args.iter().flat_map(|arg| orders[arg].clone()).collect() };
    match node.kind {
        NodeKind::Cast => {
            let order = all_of(&node.args);
            let natural: Vec<AxisId> = node.axes.iter().collect();
            let stays = |axis: &AxisId| node.axes.contains(*axis);
            if order.iter().all(stays) && order.len() < natural.len() {
                // A cast that adds dims broadcasts the value.
                return natural;
            }
            let is_of_parts = |split: &&SplitDim| {
                let is_new = |part: &AxisId| stays(part) && !order.contains(part);
                order.contains(&split.whole) && !stays(&split.whole) && split.parts.iter().all(is_new)
            };
            let split = b.graph.splits.iter().find(is_of_parts);
            replaced(&order, node.axes, split.map_or(natural, |split| split.parts.clone()))
        }
        NodeKind::Gather(axis) => {
            let stays = node.axes.minus(AxisSet::EMPTY.with(axis));
            replaced(&orders[&node.args[0]], stays, all_of(&node.args[1..]))
        }
        NodeKind::Apply(_) | NodeKind::Reduce(..) => {
            let mut args = node.args.clone();
            if let NodeKind::Apply(Op::Select) = node.kind {
                // The two choices of a select define the order before the condition does.
                args.rotate_left(1);
            }
            let has_all = |arg: &&NodeId| node.axes.minus(b.graph.node(**arg).axes).is_empty();
            let args = args.iter().find(has_all).map_or(args.as_slice(), std::slice::from_ref);
            in_turn(all_of(args).into_iter().filter(|axis| node.axes.contains(*axis)))
        }
        NodeKind::Input(_)
        | NodeKind::Scalar(_)
        | NodeKind::Literal(_)
        | NodeKind::Coord(_)
        | NodeKind::Extent(_) => axes::order(b, id, &node.kind).unwrap_or_else(|| node.axes.iter().collect()),
    }
}

/// Replaces the first axis of an order that is not in `stays` by the `new` axes.
fn replaced(order: &[AxisId], stays: AxisSet, new: Vec<AxisId>) -> Vec<AxisId> {
    let place = order.iter().position(|axis| !stays.contains(*axis)).unwrap_or(order.len());
    let (before, after) = order.split_at(place);
    let is_new = |axis: &AxisId| !order.contains(axis) || !stays.contains(*axis);
    let after = after.iter().copied().filter(|axis| stays.contains(*axis));
    in_turn(before.iter().copied().chain(new.into_iter().filter(is_new)).chain(after))
}

/// Removes duplicate axes and keeps the first occurrence of each.
fn in_turn(axes: impl Iterator<Item = AxisId>) -> Vec<AxisId> {
    let mut all: Vec<AxisId> = Vec::new();
    for axis in axes {
        if !all.contains(&axis) {
            all.push(axis);
        }
    }
    all
}
