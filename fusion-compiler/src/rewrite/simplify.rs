//! Constant folding and identities that hold for every value, NaN, infinities and signed zeros included.
//!
//! Folding is not only for speed: WGSL rejects constant expressions such as `1.0 / 0.0`.

use super::rebuild;
use crate::ir::dtype::{Class, Const, DType, wrap};
use crate::ir::graph::{Graph, Node, NodeId, NodeKind};
use crate::ir::ops::{Op, Typing};

/// Folds constants and drops operations that change nothing.
pub fn simplify(graph: Graph) -> Graph {
    rebuild(graph, |graph, node| match step(graph, &node) {
        Step::Keep => graph.push(node),
        Step::Become(id) => id,
        Step::Replace(kind, args) => graph.push(Node { kind, args, ..node }),
    })
}

enum Step {
    Keep,
    Become(NodeId),
    Replace(NodeKind, Vec<NodeId>),
}

fn step(graph: &Graph, node: &Node) -> Step {
    match node.kind {
        NodeKind::Apply(op) => apply(graph, node, op),
        NodeKind::Cast => cast(graph, node),
        NodeKind::Input(_)
        | NodeKind::Scalar(_)
        | NodeKind::Literal(_)
        | NodeKind::Coord(_)
        | NodeKind::Extent(_)
        | NodeKind::Reduce(..)
        | NodeKind::At(..) => Step::Keep,
    }
}

fn cast(graph: &Graph, node: &Node) -> Step {
    let arg = graph.node(node.args[0]);
    match arg.kind {
        NodeKind::Literal(value) if node.axes.is_empty() => {
            Step::Replace(NodeKind::Literal(convert(value, arg.dtype, node.dtype)), vec![])
        }
        // A cast may also widen the axes; then it stays.
        _ if arg.dtype == node.dtype && arg.axes == node.axes => Step::Become(node.args[0]),
        _ => Step::Keep,
    }
}

fn apply(graph: &Graph, node: &Node, op: Op) -> Step {
    let literals: Option<Vec<Const>> = node.args.iter().map(|&arg| literal(graph, arg)).collect();
    if let Some(values) = literals {
        let dtype = graph.node(*node.args.last().unwrap_or(&NodeId(0))).dtype;
        return Step::Replace(NodeKind::Literal(eval(op, &values, dtype)), vec![]);
    }
    identity(graph, node, op)
}

fn identity(graph: &Graph, node: &Node, op: Op) -> Step {
    let arg = |i: usize| node.args[i];
    let is = |i: usize, value: f64| match literal(graph, arg(i)) {
        Some(Const::Float(x)) => x == value,
        Some(Const::Int(x)) => x as f64 == value,
        Some(Const::Bool(_)) | None => false,
    };
    let same_axes = |i: usize| graph.node(arg(i)).axes == node.axes;
    match op {
        Op::Mul if is(1, 1.0) && same_axes(0) => Step::Become(arg(0)),
        Op::Mul if is(0, 1.0) && same_axes(1) => Step::Become(arg(1)),
        Op::Div if is(1, 1.0) && same_axes(0) => Step::Become(arg(0)),
        Op::Pow if is(1, 2.0) => Step::Replace(NodeKind::Apply(Op::Mul), vec![arg(0), arg(0)]),
        Op::Pow if is(1, 1.0) && same_axes(0) => Step::Become(arg(0)),
        Op::Neg => inverse(graph, node, Op::Neg),
        Op::Not => inverse(graph, node, Op::Not),
        Op::Select => match literal(graph, arg(0)) {
            Some(Const::Bool(c)) if same_axes(if c { 1 } else { 2 }) => {
                Step::Become(arg(if c { 1 } else { 2 }))
            }
            Some(Const::Bool(_) | Const::Int(_) | Const::Float(_)) | None => Step::Keep,
        },
        _ => Step::Keep,
    }
}

/// Twice the same involution is nothing.
fn inverse(graph: &Graph, node: &Node, op: Op) -> Step {
    let inner = graph.node(node.args[0]);
    if inner.kind == NodeKind::Apply(op) { Step::Become(inner.args[0]) } else { Step::Keep }
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
        | NodeKind::At(..) => None,
    }
}

/// The value of an operation on constants; `dtype` is that of the last operand.
fn eval(op: Op, args: &[Const], dtype: DType) -> Const {
    let info = op.info();
    let result = match info.typing {
        Typing::Compare | Typing::Test => DType::Bool,
        Typing::Number | Typing::Float | Typing::Int | Typing::Bits | Typing::Select => dtype,
    };
    if dtype.is_float() {
        let args: Vec<f64> = args.iter().map(|&arg| round(as_f64(arg), dtype)).collect();
        let value = (info.eval.float)(&args);
        if result == DType::Bool { Const::Bool(value != 0.0) } else { Const::Float(round(value, dtype)) }
    } else {
        let args: Vec<i64> = args.iter().map(|&arg| as_i64(arg)).collect();
        let value = (info.eval.int)(&args, dtype.size() as u32 * 8);
        if result == DType::Bool { Const::Bool(value & 1 != 0) } else { Const::Int(wrap(dtype, value)) }
    }
}

/// A constant as another type, as `as` converts it.
fn convert(value: Const, from: DType, to: DType) -> Const {
    match to.class() {
        Class::Float => Const::Float(round(as_f64(value), to)),
        Class::Bool => Const::Bool(as_i64(value) != 0),
        Class::Int | Class::Uint if from.is_float() => Const::Int(saturate(as_f64(value), to)),
        Class::Int | Class::Uint => Const::Int(wrap(to, as_i64(value))),
    }
}

fn saturate(x: f64, to: DType) -> i64 {
    match to {
        DType::I32 => i64::from(x as i32),
        DType::U32 => i64::from(x as u32),
        DType::I8 => i64::from(x as i8),
        DType::U8 => i64::from(x as u8),
        DType::F32 | DType::F16 | DType::BF16 | DType::F64 | DType::Bool | DType::Index => x as i64,
    }
}

fn as_f64(value: Const) -> f64 {
    match value {
        Const::Float(x) => x,
        Const::Int(x) => x as f64,
        Const::Bool(x) => f64::from(u8::from(x)),
    }
}

fn as_i64(value: Const) -> i64 {
    match value {
        Const::Float(x) => x as i64,
        Const::Int(x) => x,
        Const::Bool(x) => i64::from(x),
    }
}

/// Arithmetic of 16-bit floats is `f32`.
fn round(x: f64, dtype: DType) -> f64 {
    if dtype == DType::F64 { x } else { f64::from(x as f32) }
}
