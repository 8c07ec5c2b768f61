//! Checks of new values against the declarations of results and of `&mut` parameters.

use super::build::{Builder, ExprValue};
use super::value::{self, dtype_of, typed};
use super::{axes, matmul, weak};
use crate::diag;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, NodeId, Param, ParamId, ParamKind};
use crate::parse::ast::At;

/// Checks a result against its declaration, which must have a compatible dtype and all dims of the value.
/// `written` is the dtype as the user wrote it, possibly a generic. The value is broadcast along dims that it
/// lacks.
pub(super) fn fit_result(
    b: &mut Builder<'_>,
    value: ExprValue,
    (wants, written): (DType, &str),
    order: &[AxisId],
    at: At,
) -> Option<NodeId> {
    let value = value::one(b, at, value);
    let is = dtype_of(b, &value)?;
    if wants == DType::Bool && is != DType::Bool {
        b.error(at, diag::result_not_bool(is));
        return None;
    }
    if let ExprValue::Weak(number) = &value
        && number.is_float
        && wants.is_int()
    {
        b.error(at, diag::float_literal_for_int(wants));
        return None;
    }
    let declared: AxisSet = order.iter().copied().collect();
    let id = typed(b, &value, wants)?;
    let id = axes::joined(b, id, declared);
    let (is, has) = (b.graph.node(id).dtype, b.graph.node(id).axes);
    if value::common(is, wants).is_none() {
        let is_bool = is == DType::Bool;
        b.error(at, if is_bool { diag::result_bool(written) } else { diag::result_dtype(written, is) });
        return None;
    }
    if let Some(axis) = has.minus(declared).iter().next() {
        if let Some(namesake) = b.namesake(axis, declared) {
            let message = b.two_dims(namesake, axis);
            b.error(at, message);
            return None;
        }
        if let Some(summed) = matmul::exchanged(b, id, axis, declared) {
            let [dim, summed] = [axis, summed].map(|axis| b.graph.axis(axis).name.clone());
            let text = b.order_text(order);
            b.error(at, diag::result_other_dim(dim, summed, text));
            return None;
        }
        let own = order.iter().copied().filter(|&axis| has.contains(axis));
        let fixed: Vec<AxisId> = own.chain(has.minus(declared).iter()).collect();
        let (dim, text, fix) = (b.graph.axis(axis).name.clone(), b.order_text(order), b.order_text(&fixed));
        b.error(at, diag::result_extra_dim(dim, text, fix));
        return None;
    }
    // A store rounds to the declared dtype.
    let id = value::widened(b, id, wants)?;
    let span = b.place(at);
    b.widen(id, declared, span)
}

/// Converts the new value of a `&mut` parameter to the dtype of the parameter and broadcasts it along all its
/// dims.
pub(super) fn fit_in_place(
    b: &mut Builder<'_>,
    param: ParamId,
    value: ExprValue,
    at: At,
    op: At,
) -> Option<NodeId> {
    let Param { name, dtype, kind, .. } = b.graph.param(param).clone();
    let ParamKind::Tensor { axes, .. } = kind else { unreachable!("only tensors are `&mut`") };
    let is = dtype_of(b, &value)?;
    if !weak::fits(b, (op, at), "=", &value, dtype) {
        return None;
    }
    let id = typed(b, &value, dtype)?;
    if value::common(b.graph.node(id).dtype, dtype).is_none() {
        b.error(at, diag::assign_dtype(name, dtype, is));
        return None;
    }
    let own: AxisSet = axes.iter().copied().collect();
    let id = axes::joined(b, id, own);
    if let Some(axis) = b.graph.node(id).axes.minus(own).iter().next() {
        let (dim, has) = (&b.graph.axis(axis).name, b.order_text(&axes));
        let message = match (b.namesake(axis, own), matmul::exchanged(b, id, axis, own)) {
            (Some(namesake), _) => b.two_dims(namesake, axis),
            (None, Some(summed)) => diag::assign_other_dim(name, dim, &b.graph.axis(summed).name, has),
            (None, None) => diag::assign_extra_dim(name, dim, has),
        };
        b.error(at, message);
        return None;
    }
    let span = b.place(op);
    let id = value::widened(b, id, dtype)?;
    b.widen(id, axes.into_iter().collect(), span)
}
