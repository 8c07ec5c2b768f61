//! Dtypes, axes and conversions of the values of expressions.

use super::build::{Builder, ExprValue};
use super::weak;
use crate::diag;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisSet, Node, NodeId, NodeKind};
use crate::parse::ast::At;

/// Reports a tuple where a single value is required.
pub(super) fn one(b: &mut Builder<'_>, at: At, value: ExprValue) -> ExprValue {
    match value {
        ExprValue::Tuple(_) => b.error(at, diag::tuple_value()),
        ExprValue::Node(_) | ExprValue::Weak(_) | ExprValue::Unknown => value,
    }
}

/// Returns the value of a node. A node that could not be made is a mistake.
pub(super) fn known(id: Option<NodeId>) -> ExprValue {
    id.map_or(ExprValue::Unknown, ExprValue::Node)
}

/// Returns the dtype of a single value. A weak number has its default dtype.
pub(super) fn dtype_of(b: &Builder<'_>, value: &ExprValue) -> Option<DType> {
    match value {
        ExprValue::Node(id) => Some(b.graph.node(*id).dtype),
        ExprValue::Weak(number) => Some(number.default_dtype()),
        ExprValue::Tuple(_) | ExprValue::Unknown => None,
    }
}

/// Returns the value as a node. A weak number gets this dtype.
pub(super) fn typed(b: &mut Builder<'_>, value: &ExprValue, dtype: DType) -> Option<NodeId> {
    match value {
        ExprValue::Node(id) => Some(*id),
        ExprValue::Weak(number) => weak::resolve(b, number, dtype),
        ExprValue::Tuple(_) | ExprValue::Unknown => None,
    }
}

/// Returns the dtype in which values of two dtypes meet. Different floats of at most 32 bits meet in `f32`.
pub(super) fn common(a: DType, b: DType) -> Option<DType> {
    let single = [a, b].iter().all(|dtype| dtype.computed() == DType::F32);
    match () {
        () if a == b => Some(a),
        () if single => Some(DType::F32),
        () => None,
    }
}

/// Casts a value to a dtype, unless it has that dtype already.
pub(super) fn widened(b: &mut Builder<'_>, id: NodeId, dtype: DType) -> Option<NodeId> {
    let Node { dtype: has, axes, span, .. } = *b.graph.node(id);
    if has == dtype {
        return Some(id);
    }
    b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype, axes, span })
}

/// Returns the axes of a value or of a tuple of values.
pub(super) fn axes_of(b: &Builder<'_>, value: &ExprValue) -> AxisSet {
    match value {
        ExprValue::Node(id) => b.graph.node(*id).axes,
        ExprValue::Tuple(parts) => {
            parts.iter().map(|part| axes_of(b, part)).fold(AxisSet::EMPTY, AxisSet::union)
        }
        ExprValue::Weak(number) => weak::axes(b, number),
        ExprValue::Unknown => AxisSet::EMPTY,
    }
}
