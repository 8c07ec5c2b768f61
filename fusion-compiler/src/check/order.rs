//! The order of a value's dims, where all of them are gone through as one: that of the tensor that it is made of, with what
//! index operations put in the place of a dim.
//!
//! Values have sets of axes, so this is for functions alone that number their elements: `argmax(x)` is the place in `x` as
//! its signature has it.

use super::build::{Builder, Value};
use super::{call, rename};
use crate::ir::graph::{AxisId, Node, NodeId, NodeKind};

/// The axes of all of these values, each once, in the order of the first that has it.
pub(super) fn of_all<'v>(b: &Builder<'_>, values: impl Iterator<Item = &'v Value>) -> Vec<AxisId> {
    let mut axes: Vec<AxisId> = Vec::new();
    for axis in values.flat_map(|value| of(b, value)) {
        if !axes.contains(&axis) {
            axes.push(axis);
        }
    }
    axes
}

fn of(b: &Builder<'_>, value: &Value) -> Vec<AxisId> {
    match value {
        Value::Node(id) => of_node(b, *id),
        Value::Tuple(parts) => of_all(b, parts.iter()),
        Value::Weak(_) | Value::Unknown => call::axes_of(b, value).iter().collect(),
    }
}

fn of_node(b: &Builder<'_>, id: NodeId) -> Vec<AxisId> {
    // From the value to the tensor, and back.
    let mut path = vec![id];
    while let Some(next) = source(b, b.graph.node(path[path.len() - 1])) {
        path.push(next);
    }
    let last = path[path.len() - 1];
    let natural = || b.graph.node(last).axes.iter().collect();
    let order = rename::order(b, last, &b.graph.node(last).kind).unwrap_or_else(natural);
    path.into_iter().rev().skip(1).fold(order, |order, id| with(b, &order, b.graph.node(id)))
}

/// The operand whose order a value takes: the leftmost with all of its axes, or what others are put in the place of.
fn source(b: &Builder<'_>, node: &Node) -> Option<NodeId> {
    let has_all = |arg: &NodeId| node.axes.minus(b.graph.node(*arg).axes).is_empty();
    let first = node.args.first().copied();
    match node.kind {
        NodeKind::Cast | NodeKind::At(_) => {
            let replaces = |arg: &NodeId| !b.graph.node(*arg).axes.minus(node.axes).is_empty();
            first.filter(|arg| has_all(arg) || replaces(arg))
        }
        NodeKind::Apply(_) | NodeKind::Reduce(..) => node.args.iter().copied().find(has_all),
        NodeKind::Input(_)
        | NodeKind::Scalar(_)
        | NodeKind::Literal(_)
        | NodeKind::Coord(_)
        | NodeKind::Extent(_) => None,
    }
}

/// The order with the axes of a value that are new in the place of the first that is gone.
fn with(b: &Builder<'_>, order: &[AxisId], node: &Node) -> Vec<AxisId> {
    let stays = |axis: &AxisId| node.axes.contains(*axis);
    let new = node.axes.minus(order.iter().copied().collect());
    let split = b.graph.splits.iter().find(|split| order.contains(&split.whole) && !stays(&split.whole));
    let parts = split.map(|split| split.parts.clone()).filter(|parts| new == parts.iter().copied().collect());
    let new = parts.unwrap_or_else(|| new.iter().collect());
    let place = order.iter().position(|axis| !stays(axis)).unwrap_or(order.len());
    let (before, after) = order.split_at(place);
    [before, &new, &after.iter().copied().filter(stays).collect::<Vec<_>>()].concat()
}
