//! Constant folding, and identities that are true for every value, NaN, infinities and signed zeros included.
//!
//! Folding is necessary, not only fast: WGSL rejects constant expressions such as `1.0 / 0.0`.

use super::rebuild;
use crate::ir::dtype::{Const, DType, round, wrap};
use crate::ir::graph::{AxisSet, Graph, Node, NodeId, NodeKind};
use crate::ir::op::Op;
use crate::ops::Dialect;
use crate::ops::scalar::{Scalar, eval_op};

/// Folds constants and removes operations without an effect. Broadcasts follow the operations on their
/// values, which then are computed once.
pub fn simplify(graph: Graph) -> Graph {
    rebuild(graph, |graph, node| {
        let NodeKind::Apply(_) = node.kind else { return simplified(graph, node) };
        let args: Vec<NodeId> = node.args.iter().map(|&arg| before_broadcast(graph, arg)).collect();
        let axes = args.iter().fold(AxisSet::EMPTY, |axes, &arg| axes.union(graph.node(arg).axes));
        let Node { dtype, axes: wants, span, .. } = node;
        let id = simplified(graph, Node { args, axes, ..node });
        match axes == wants {
            true => id,
            false => graph.push(Node { kind: NodeKind::Cast, args: vec![id], dtype, axes: wants, span }),
        }
    })
}

fn simplified(graph: &mut Graph, node: Node) -> NodeId {
    match rewritten(graph, &node) {
        Rewrite::Keep => graph.push(node),
        Rewrite::Become(id) => id,
        Rewrite::Replace(kind, args) => graph.push(Node { kind, args, ..node }),
    }
}

/// Returns the value that a broadcast repeats, or the value itself.
fn before_broadcast(graph: &Graph, id: NodeId) -> NodeId {
    let node = graph.node(id);
    match node.kind {
        NodeKind::Cast if graph.node(node.args[0]).dtype == node.dtype => node.args[0],
        _ => id,
    }
}

enum Rewrite {
    Keep,
    Become(NodeId),
    Replace(NodeKind, Vec<NodeId>),
}

fn rewritten(graph: &Graph, node: &Node) -> Rewrite {
    match node.kind {
        NodeKind::Apply(op) => apply(graph, node, op),
        NodeKind::Cast => cast(graph, node),
        NodeKind::Input(_)
        | NodeKind::Scalar(_)
        | NodeKind::Literal(_)
        | NodeKind::Coord(_)
        | NodeKind::Extent(_)
        | NodeKind::Reduce(..)
        | NodeKind::Gather(..) => Rewrite::Keep,
    }
}

fn cast(graph: &Graph, node: &Node) -> Rewrite {
    let arg = graph.node(node.args[0]);
    match arg.kind {
        NodeKind::Literal(value) if node.axes.is_empty() => {
            let value = Scalar::new(arg.dtype.computed(), value);
            let value = match node.dtype {
                DType::F16 | DType::BF16 => Const::Float(round(node.dtype, value.to_f64())),
                dtype => narrowed(dtype, value.cast(dtype.computed()).to_const()),
            };
            Rewrite::Replace(NodeKind::Literal(value), vec![])
        }
        // A cast that also broadcasts to more axes stays.
        _ if arg.dtype == node.dtype && arg.axes == node.axes => Rewrite::Become(node.args[0]),
        _ => Rewrite::Keep,
    }
}

/// Wraps an integer of the computed dtype to the stored dtype.
fn narrowed(dtype: DType, value: Const) -> Const {
    match value {
        Const::Int(x) => Const::Int(wrap(dtype, x)),
        Const::Float(_) | Const::Bool(_) => value,
    }
}

fn apply(graph: &Graph, node: &Node, op: Op) -> Rewrite {
    let scalar = |&arg: &NodeId| Some(Scalar::new(graph.node(arg).dtype, literal(graph, arg)?));
    if let Some(scalars) = node.args.iter().map(scalar).collect::<Option<Vec<Scalar>>>() {
        // The CPU's own arithmetic folds constants, so that folding changes no result.
        let value = eval_op(op, &scalars, Dialect::Cpu).to_const();
        return Rewrite::Replace(NodeKind::Literal(value), vec![]);
    }
    identity(graph, node, op)
}

fn identity(graph: &Graph, node: &Node, op: Op) -> Rewrite {
    let arg = |i: usize| node.args[i];
    let is = |i: usize, value: f64| match literal(graph, arg(i)) {
        Some(Const::Float(x)) => x == value,
        Some(Const::Int(x)) => x as f64 == value,
        Some(Const::Bool(_)) | None => false,
    };
    let same_axes = |i: usize| graph.node(arg(i)).axes == node.axes;
    match op {
        Op::Mul if is(1, 1.0) && same_axes(0) => Rewrite::Become(arg(0)),
        Op::Mul if is(0, 1.0) && same_axes(1) => Rewrite::Become(arg(1)),
        Op::Div if is(1, 1.0) && same_axes(0) => Rewrite::Become(arg(0)),
        Op::Pow if is(1, 2.0) => Rewrite::Replace(NodeKind::Apply(Op::Mul), vec![arg(0), arg(0)]),
        Op::Pow if is(1, 1.0) && same_axes(0) => Rewrite::Become(arg(0)),
        Op::Neg => inverse(graph, node, Op::Neg),
        Op::Not => inverse(graph, node, Op::Not),
        Op::Select => match literal(graph, arg(0)) {
            Some(Const::Bool(c)) if same_axes(if c { 1 } else { 2 }) => {
                Rewrite::Become(arg(if c { 1 } else { 2 }))
            }
            Some(Const::Bool(_) | Const::Int(_) | Const::Float(_)) | None => Rewrite::Keep,
        },
        _ => Rewrite::Keep,
    }
}

/// Removes two applications of an involution.
fn inverse(graph: &Graph, node: &Node, op: Op) -> Rewrite {
    let inner = graph.node(node.args[0]);
    if inner.kind == NodeKind::Apply(op) { Rewrite::Become(inner.args[0]) } else { Rewrite::Keep }
}

fn literal(graph: &Graph, id: NodeId) -> Option<Const> {
    match graph.node(id).kind {
        NodeKind::Literal(value) => Some(value),
        NodeKind::Input(_)
        | NodeKind::Scalar(_)
        | NodeKind::Coord(_)
        | NodeKind::Extent(_)
        | NodeKind::Apply(_)
        | NodeKind::Cast
        | NodeKind::Reduce(..)
        | NodeKind::Gather(..) => None,
    }
}
