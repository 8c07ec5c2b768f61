//! Argument checks of library functions that the language itself cannot express. Each guard returns a value
//! or reports the mistake.
//!
//! Only the library can call guards, so users' functions may have the same names.

use super::build::{Builder, Env, Value};
use super::call::axes_of;
use super::expr::{dtype_of, known, single, typed};
use crate::diag::{self, hints};
use crate::ir::dtype::DType;
use crate::ir::graph::{Node, NodeKind};
use crate::parse::ast::{Arg, At, ExprKind};

/// Evaluates `alike(x, y)`: returns `x` after checking that `x` and `y` have the same dims or one is a
/// scalar.
pub(super) fn alike(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> Value {
    let [first, second] = args else { unreachable!("the library has no mistakes") };
    let [value, second] = [first, second].map(|arg| single(b, env, &arg.value));
    let [has, other] = [&value, &second].map(|value| axes_of(b, value));
    let differs = has.minus(other).union(other.minus(has)).iter().next();
    if let Some(axis) = differs.filter(|_| !has.is_empty() && !other.is_empty()) {
        let [first, second] = [has, other].map(|axes| b.axes_text(axes));
        let dim = b.graph.axis(axis).name.clone();
        return b.error(at, diag::dims_differ(&b.called(""), first, second, dim));
    }
    if matches!(second, Value::Unknown) { Value::Unknown } else { value }
}

/// Evaluates `classes(t)`: converts integers of any type to `i32`. Values out of the range of `i32` keep
/// their low bits.
pub(super) fn classes(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> Value {
    let [arg] = args else { unreachable!("the library has no mistakes") };
    let value = single(b, env, &arg.value);
    let Some(dtype) = dtype_of(b, &value) else { return Value::Unknown };
    if dtype.is_float() || dtype == DType::Bool {
        return b.error(at, diag::wants_classes(&b.called(""), dtype));
    }
    let Some(id) = typed(b, &value, dtype) else { return Value::Unknown };
    if dtype == DType::I32 {
        return Value::Node(id);
    }
    let (axes, span) = (b.graph.node(id).axes, b.place(at));
    known(b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype: DType::I32, axes, span }))
}

/// Evaluates `number(eps)`: returns the argument after checking that it is a scalar. An integer becomes `f32`.
/// The mistake names the argument.
pub(super) fn number(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> Value {
    let [arg] = args else { unreachable!("the library has no mistakes") };
    let value = single(b, env, &arg.value);
    let (has, dtype) = (axes_of(b, &value), dtype_of(b, &value));
    let ExprKind::Name(name) = &arg.value.kind else { unreachable!("the library passes parameters") };
    if !has.is_empty() {
        let has = b.axes_text(has);
        return b.error(at, diag::wants_one_number(&b.called(""), name, has, hints::number(name)));
    }
    match (value, dtype) {
        (_, Some(dtype @ DType::Bool)) => {
            b.error(at, diag::wants_scalar(&b.called(""), name, dtype, hints::number(name)))
        }
        (Value::Node(id), Some(dtype)) if !dtype.is_float() => {
            let (axes, span) = (has, b.place(at));
            known(b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype: DType::F32, axes, span }))
        }
        (value, _) => value,
    }
}
