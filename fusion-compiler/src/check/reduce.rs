//! Operations along dims: reductions and `index`.
//!
//! Invariant: names alone decide whether a call reduces. A call reduces if its last argument is a dim that
//! exists once the first argument has been evaluated.

use super::build::{Builder, Env, ExprValue, Form};
use super::expr::{Snippet, apply, single};
use super::value::{axes_of, dtype_of, known, typed, widened};
use super::{axes, dims, rename, split};
use crate::diag::{self, hints};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, ConcatDim, Dim, Math, Node, NodeId, NodeKind, Reduce, SpanId, Use};
use crate::ir::op::Op;
use crate::parse::ast::{Arg, At, Expr, ExprKind};

use super::weak::{self, Weak};

/// Names of the operations along dims that are built into the compiler rather than written in `std.fuse`.
pub(super) const NAMES: [&str; 21] = [
    "sum",
    "mean",
    "prod",
    "max",
    "min",
    "index",
    "at",
    "rename",
    "split",
    "merge",
    "slice",
    "flip",
    "roll",
    "pad",
    "concat",
    "take",
    "unfold",
    "conv",
    "conv_transpose",
    "max_pool",
    "avg_pool",
];

/// The operation of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReduceKind {
    Combine(Reduce),
    Mean,
}

impl ReduceKind {
    pub(super) fn from_name(name: &str) -> Option<ReduceKind> {
        Some(match name {
            "sum" => ReduceKind::Combine(Reduce::Sum),
            "prod" => ReduceKind::Combine(Reduce::Prod),
            "max" => ReduceKind::Combine(Reduce::Max),
            "min" => ReduceKind::Combine(Reduce::Min),
            "mean" => ReduceKind::Mean,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            ReduceKind::Combine(reduce) => reduce.name(),
            ReduceKind::Mean => "mean",
        }
    }

    /// Returns true if the name is also a function of two values.
    fn compares(self) -> bool {
        matches!(self, ReduceKind::Combine(Reduce::Max | Reduce::Min))
    }
}

/// Returns true if the last argument of `max` or `min` names dims instead of a second value. A number is a
/// second value, unless the value has a dim of that name; `reduce` then reports the ambiguity. The caller
/// evaluates the value first, because the value's expression may create the dim.
fn is_dims(b: &Builder<'_>, env: &Env, value: &ExprValue, last: &Expr) -> bool {
    match &last.kind {
        ExprKind::Tuple(_) => true,
        // A template sees only the dims that are passed to it or created by it. The caller's dims may have
        // any number as their name.
        ExprKind::Int(extent, None) => {
            let axes = match env.dim(&extent.to_string()) {
                None if b.frames.is_empty() => dims::named(b, env, last),
                known => known.map(<[AxisId]>::to_vec),
            };
            axes.is_some_and(|axes| axes.iter().all(|&axis| axes_of(b, value).contains(axis)))
        }
        _ => dims::named(b, env, last).is_some(),
    }
}

/// Evaluates `sum(x, D)`, `sum(x, (H, W))` or `sum(x)`.
pub(super) fn reduce(
    b: &mut Builder<'_>,
    env: &mut Env,
    at: At,
    kind: ReduceKind,
    args: &[Arg],
) -> ExprValue {
    let name = kind.name();
    if let Some(label) = args.iter().find_map(|arg| arg.name.as_ref()) {
        return b.error(label.at, hints::named_argument(name, &label.text));
    }
    let (Some(operand), 1..=2) = (args.first(), args.len()) else {
        return b.error(
            at,
            match kind.compares() {
                true => diag::arity(name, "a value and dims, or two values", diag::were(args.len())),
                false => diag::wants_dim_last(name),
            },
        );
    };
    if let [Arg { value: Expr { kind: ExprKind::Name(dim), at, .. }, .. }, Arg { value: last, .. }] = args
        && !kind.compares()
        && env.var(dim).is_none()
        && env.dim(dim).is_some()
        && dims::named(b, env, last).is_none()
    {
        return b.error(*at, diag::tensor_first(name, dim));
    }
    let value = single(b, env, &operand.value);
    if let [_, Arg { value: last, .. }] = args
        && kind.compares()
        && !is_dims(b, env, &value, last)
    {
        let op = if kind == ReduceKind::Combine(Reduce::Max) { Op::Max } else { Op::Min };
        let other = single(b, env, last);
        let operands = vec![(value, Snippet::of(&operand.value)), (other, Snippet::of(last))];
        return apply(b, at, op, name, operands);
    }
    if b.form == Form::AnyShape {
        return b.error(at, diag::inline_needs_dims(name));
    }
    let Some(dtype) = dtype_of(b, &value) else { return ExprValue::Unknown };
    let Some(id) = typed(b, &value, dtype) else { return ExprValue::Unknown };
    if dtype == DType::Bool {
        return b.error(at, diag::wants_number(b.called(name), dtype));
    }
    if kind == ReduceKind::Mean && !dtype.is_float() {
        return b.error(at, diag::wants_float(b.called(name), dtype));
    }
    let has = b.graph.node(id).axes;
    let (id, axes) = match args.get(1) {
        None if has.is_empty() => return b.error(at, diag::nothing_to_reduce(b.called(name))),
        None => (id, has.iter().collect()),
        Some(arg) => match reduced(b, env, kind, &arg.value, id) {
            Some(reduced) => reduced,
            None => return ExprValue::Unknown,
        },
    };
    // Sums and products of 8-bit and 16-bit integers would wrap, so `i32` accumulates them.
    let sums = matches!(kind, ReduceKind::Combine(Reduce::Sum | Reduce::Prod));
    let id = if sums && dtype.is_narrow() && dtype.is_int() { widened(b, id, DType::I32) } else { Some(id) };
    let Some(id) = id else { return ExprValue::Unknown };
    combine(b, at, kind, id, &axes)
}

/// Computes a mean of 16-bit floats in `f32` and rounds it once. Under strict maths each operation rounds,
/// and a mean is one operation, so its sum stays unrounded.
fn strict_mean(b: &mut Builder<'_>, at: At, id: NodeId, axes: &[AxisId]) -> ExprValue {
    let dtype = b.graph.node(id).dtype;
    let Some(wide) = widened(b, id, DType::F32) else { return ExprValue::Unknown };
    match combine(b, at, ReduceKind::Mean, wide, axes) {
        ExprValue::Node(mean) => known(widened(b, mean, dtype)),
        other => other,
    }
}

/// Combines the elements of a value along axes.
pub(super) fn combine(
    b: &mut Builder<'_>,
    at: At,
    kind: ReduceKind,
    id: NodeId,
    axes: &[AxisId],
) -> ExprValue {
    let is_half = b.graph.node(id).dtype.is_narrow() && b.graph.node(id).dtype.is_float();
    if kind == ReduceKind::Mean && is_half && b.graph.math == Math::Strict {
        return strict_mean(b, at, id, axes);
    }
    let span = b.place(at);
    let (mut id, mut axes) = (id, axes.to_vec());
    for axis in &mut axes {
        if let Some((original, old)) = rename::original(b, id, *axis) {
            (id, *axis) = (original, old);
        }
    }
    let set: AxisSet = axes.iter().copied().collect();
    let (dtype, has) = (b.graph.node(id).dtype, b.graph.node(id).axes);
    let combine = match kind {
        ReduceKind::Combine(combine) => combine,
        ReduceKind::Mean => Reduce::Sum,
    };
    let none = axes.iter().find(|&&axis| b.graph.axis(axis).extent.as_const() == Some(0));
    let combined = match none {
        Some(&axis) if kind.compares() => {
            let name = b.graph.axis(axis).name.clone();
            return b.error(at, diag::nothing_to_compare(b.called(kind.name()), name));
        }
        Some(_) => of_nothing(b, (combine, dtype), has.minus(set), span),
        None => b.push(Node {
            kind: NodeKind::Reduce(combine, set),
            args: vec![id],
            dtype,
            axes: has.minus(set),
            span,
        }),
    };
    let Some(sum) = combined else { return ExprValue::Unknown };
    if kind != ReduceKind::Mean {
        return ExprValue::Node(sum);
    }
    let count = DimExpr::product(axes.iter().map(|&axis| &b.graph.axis(axis).extent));
    let Some(count) = weak::resolve(b, &Weak::extent(count, span), dtype) else { return ExprValue::Unknown };
    if b.is_full() {
        return b.error_span(span, diag::too_many_terms());
    }
    ExprValue::Node(b.graph.apply(Op::Div, &[sum, count], span))
}

/// Returns the reduction of zero elements, the identity, widened to the given axes.
fn of_nothing(
    b: &mut Builder<'_>,
    (combine, dtype): (Reduce, DType),
    axes: AxisSet,
    span: SpanId,
) -> Option<NodeId> {
    let nothing = b.leaf(NodeKind::Literal(combine.identity(dtype)), dtype, AxisSet::EMPTY, span)?;
    b.widen(nothing, axes, span)
}

/// Returns the axes that the last argument names, and the value, which has them.
fn reduced(
    b: &mut Builder<'_>,
    env: &Env,
    kind: ReduceKind,
    arg: &Expr,
    id: NodeId,
) -> Option<(NodeId, Vec<AxisId>)> {
    let name = kind.name();
    let axes = dims::argument(b, env, arg, name, &diag::wants_dim_last(name))?;
    if axes.is_empty() {
        b.error(arg.at, diag::nothing_to_reduce(b.called(name)));
        return None;
    }
    let id = axes::joined(b, id, axes.iter().copied().collect());
    let (has, dtype) = (b.graph.node(id).axes, b.graph.node(id).dtype);
    if let Some(&axis) = axes.iter().find(|&&axis| !has.contains(axis)) {
        let message = b.lacks(axis, has);
        let at = match &arg.kind {
            ExprKind::Tuple(parts) => {
                let names = |part: &&Expr| dims::named(b, env, part).is_some_and(|axes| axes.contains(&axis));
                parts.iter().find(names).map_or(arg.at, |part| part.at)
            }
            _ => arg.at,
        };
        b.error(at, message);
        return None;
    }
    if let (true, ExprKind::Int(dim, _)) = (kind.compares(), &arg.kind) {
        let number = if dtype.is_float() { format!("{dim}.0") } else { format!("{dim}i32") };
        b.error(arg.at, diag::reduce_or_compare(name, dim, number));
        return None;
    }
    Some((id, axes))
}

/// Evaluates `index(T)`, the coordinate along a dim, or `index((H, W))`, a row-major coordinate along several
/// dims.
pub(super) fn index(b: &mut Builder<'_>, env: &Env, at: At, args: &[Arg]) -> ExprValue {
    if b.form == Form::AnyShape {
        return b.error(at, diag::inline_needs_dims("index"));
    }
    let [Arg { name: None, value }] = args else { return b.error(at, diag::index_argument()) };
    if !matches!(value.kind, ExprKind::Name(_) | ExprKind::Int(..) | ExprKind::Tuple(_)) {
        return b.error(at, diag::index_argument());
    }
    let Some(axes) = dims::argument(b, env, value, "index", &diag::index_argument()) else {
        return ExprValue::Unknown;
    };
    let span = b.place(at);
    if b.is_full() {
        return b.error_span(span, diag::too_many_terms());
    }
    within_i32(b, &axes);
    ExprValue::Node(split::row_major(&mut b.graph, &axes, span))
}

/// Records a call-time check that the row-major coordinate along these axes fits `i32`.
fn within_i32(b: &mut Builder<'_>, axes: &[AxisId]) {
    let extent = DimExpr::product(axes.iter().map(|&axis| &b.graph.axis(axis).extent));
    let fits = extent.as_const().is_some_and(|extent| i32::try_from(extent).is_ok());
    let whole = Dim { name: b.names_text(axes).into(), extent };
    if !fits {
        let of = Use::Coordinates(b.called("index"));
        b.graph.check(ConcatDim { parts: vec![whole.clone()].into(), whole, of });
    }
}
