//! Numbers without a dtype: literals, extents and expressions of those alone.
//!
//! Invariant: a weak number becomes a node when it meets a value, and takes the dtype of that value. A weak
//! number that meets none is `i32`, or `f32` if any literal in it has a decimal point.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::build::{Builder, ExprValue};
use crate::diag;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType, round};
use crate::ir::graph::{AxisSet, NodeId, NodeKind, SpanId};
use crate::ir::op::Op;
use crate::parse::ast::At;

/// A number without a dtype.
#[derive(Clone, Debug)]
pub(super) struct Weak {
    pub(super) kind: WeakKind,
    /// True if any literal in the tree has a decimal point.
    pub(super) is_float: bool,
    pub(super) span: SpanId,
    /// Number of leaves and operations of the tree, counting shared subtrees repeatedly. The bound on `size`
    /// keeps every traversal short and the recursion shallow.
    size: u32,
}

#[derive(Clone, Debug)]
pub(super) enum WeakKind {
    Literal(Const),
    Extent(DimExpr),
    /// An operation, with its name as the user wrote it.
    Apply(Op, &'static str, Arc<[Weak]>),
    /// A choice between two numbers by a condition.
    Select(NodeId, Arc<[Weak; 2]>),
}

/// Largest `size` of a weak number. Chains and `let`s nest operations, and a `let` may be used many times.
const SIZE_MAX: u32 = 2000;

impl Weak {
    pub(super) fn int(value: i64, span: SpanId) -> Weak {
        Weak { kind: WeakKind::Literal(Const::Int(value)), is_float: false, span, size: 1 }
    }

    pub(super) fn float(value: f64, span: SpanId) -> Weak {
        Weak { kind: WeakKind::Literal(Const::Float(value)), is_float: true, span, size: 1 }
    }

    pub(super) fn extent(extent: DimExpr, span: SpanId) -> Weak {
        match extent.as_const() {
            Some(value) => Weak::int(value, span),
            None => Weak { kind: WeakKind::Extent(extent), is_float: false, span, size: 1 },
        }
    }

    /// Returns the dtype of a weak number that meets no typed value.
    pub(super) fn default_dtype(&self) -> DType {
        if self.is_float { DType::F32 } else { DType::I32 }
    }
}

/// Applies an operation to weak numbers. Negation folds into a literal.
pub(super) fn apply(
    b: &mut Builder<'_>,
    op: Op,
    what: &'static str,
    args: Vec<Weak>,
    span: SpanId,
) -> ExprValue {
    if let (Op::Neg, [Weak { kind: WeakKind::Literal(value), is_float, .. }]) = (op, args.as_slice()) {
        let value = match *value {
            Const::Float(x) => Const::Float(-x),
            Const::Int(x) => Const::Int(x.wrapping_neg()),
            Const::Bool(x) => Const::Bool(x),
        };
        let kind = WeakKind::Literal(value);
        return ExprValue::Weak(Weak { kind, is_float: *is_float, span: args[0].span, size: 1 });
    }
    let (is_float, size) = summary(&args);
    grown(b, Weak { is_float, span, size, kind: WeakKind::Apply(op, what, args.into()) })
}

/// Applies an operation of floats, which turns integers into floats: `rsqrt(N)`.
pub(super) fn apply_float(
    b: &mut Builder<'_>,
    op: Op,
    what: &'static str,
    args: Vec<Weak>,
    span: SpanId,
) -> ExprValue {
    let (_, size) = summary(&args);
    grown(b, Weak { is_float: true, span, size, kind: WeakKind::Apply(op, what, args.into()) })
}

/// Builds a choice between two weak numbers.
pub(super) fn select(b: &mut Builder<'_>, condition: NodeId, sides: [Weak; 2], span: SpanId) -> ExprValue {
    let (is_float, size) = summary(&sides);
    grown(b, Weak { is_float, span, size, kind: WeakKind::Select(condition, sides.into()) })
}

fn summary(args: &[Weak]) -> (bool, u32) {
    let size = args.iter().fold(1, |size: u32, arg| size.saturating_add(arg.size));
    (args.iter().any(|arg| arg.is_float), size)
}

fn grown(b: &mut Builder<'_>, weak: Weak) -> ExprValue {
    if weak.size > SIZE_MAX {
        b.error_span(weak.span, diag::too_many_numbers())
    } else {
        ExprValue::Weak(weak)
    }
}

/// Lowers the number to nodes of a dtype. `dtype` must be a float if the number is a float.
pub(super) fn resolve(b: &mut Builder<'_>, weak: &Weak, dtype: DType) -> Option<NodeId> {
    let span = weak.span;
    match &weak.kind {
        WeakKind::Literal(value) => {
            let value = literal(b, *value, dtype, span)?;
            b.leaf(NodeKind::Literal(value), dtype, AxisSet::EMPTY, span)
        }
        WeakKind::Extent(extent) => b.leaf(NodeKind::Extent(extent.clone()), dtype, AxisSet::EMPTY, span),
        WeakKind::Apply(op, what, args) => {
            let args: Vec<NodeId> = args.iter().map(|arg| resolve(b, arg, dtype)).collect::<Option<_>>()?;
            // A bitwise or integer operation is undefined once its operands become floats.
            if !op.info().typing.accepts(dtype) {
                b.error_span(span, diag::wants_int(what, dtype));
                return None;
            }
            (!b.is_full()).then(|| b.graph.apply(*op, &args, span))
        }
        WeakKind::Select(condition, sides) => {
            let [left, right] = &**sides;
            let args = [*condition, resolve(b, left, dtype)?, resolve(b, right, dtype)?];
            (!b.is_full()).then(|| b.graph.apply(Op::Select, &args, span))
        }
    }
}

/// Returns true if a weak number may take this dtype; any typed value fits. `op` is the token of the
/// operation and `at` the token of the number, for messages.
pub(super) fn fits(
    b: &mut Builder<'_>,
    (op, at): (At, At),
    what: &str,
    value: &ExprValue,
    dtype: DType,
) -> bool {
    let ExprValue::Weak(number) = value else { return true };
    if dtype == DType::Bool {
        b.error(op, diag::number_and_bool(what));
    } else if number.is_float && dtype.is_int() {
        b.error(at, diag::float_literal_for_int(dtype));
    } else {
        return true;
    }
    false
}

/// Returns the axes of the conditions inside the number.
pub(super) fn axes(b: &Builder<'_>, weak: &Weak) -> AxisSet {
    let all =
        |numbers: &[Weak]| numbers.iter().map(|number| axes(b, number)).fold(AxisSet::EMPTY, AxisSet::union);
    match &weak.kind {
        WeakKind::Literal(_) | WeakKind::Extent(_) => AxisSet::EMPTY,
        WeakKind::Apply(_, _, args) => all(args),
        WeakKind::Select(condition, sides) => b.graph.node(*condition).axes.union(all(&**sides)),
    }
}

/// Returns the number as an extent, if only integers, extents and `+ - * /` occur in it.
pub(super) fn as_extent(weak: &Weak) -> Option<DimExpr> {
    match &weak.kind {
        WeakKind::Literal(Const::Int(value)) => Some(DimExpr::constant(*value)),
        WeakKind::Extent(extent) => Some(extent.clone()),
        WeakKind::Apply(Op::Neg, _, args) => extent_op(Op::Sub, DimExpr::constant(0), as_extent(&args[0])?),
        WeakKind::Apply(op, _, args) if args.len() == 2 => {
            extent_op(*op, as_extent(&args[0])?, as_extent(&args[1])?)
        }
        WeakKind::Literal(Const::Float(_) | Const::Bool(_)) | WeakKind::Apply(..) | WeakKind::Select(..) => {
            None
        }
    }
}

/// Largest number of steps of an extent expression. A `let` may be used many times, so expressions can grow
/// fast.
const EXTENT_MAX: usize = 1000;

/// Applies an operation to extents. Returns none for an unsupported operation or an expression that is too
/// long.
pub(super) fn extent_op(op: Op, left: DimExpr, right: DimExpr) -> Option<DimExpr> {
    if left.0.len() + right.0.len() > EXTENT_MAX {
        return None;
    }
    match op {
        Op::Add => Some(left + right),
        Op::Sub if left == right => Some(DimExpr::constant(0)),
        Op::Sub => Some(left - right),
        Op::Mul => Some(left * right),
        Op::Div => Some(left / right),
        _ => None,
    }
}

/// Converts the literal to a dtype, and reports a literal out of range.
pub(super) fn literal(b: &mut Builder<'_>, value: Const, dtype: DType, span: SpanId) -> Option<Const> {
    match value {
        Const::Int(x) if dtype.is_float() => Some(Const::Float(x as f64)),
        Const::Int(x) if range(dtype).contains(&x) => Some(value),
        Const::Float(x) if dtype.is_float() => {
            if x.is_finite() && !round(dtype.computed(), x).is_finite() {
                b.error_span(span, diag::float_range(format!("{x:?}"), dtype.computed()));
                return None;
            }
            Some(value)
        }
        Const::Int(_) | Const::Float(_) => {
            let (low, high) = range(dtype).into_inner();
            b.error_span(span, diag::literal_range(value, dtype, low, high));
            None
        }
        Const::Bool(_) => Some(value),
    }
}

fn range(dtype: DType) -> RangeInclusive<i64> {
    let (low, high) = dtype.range();
    low..=high
}
