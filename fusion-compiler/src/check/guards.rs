//! What functions of the library ask of their arguments and the language cannot say: each gives a value, or the mistake.
//!
//! Only the library can call them, by names that are free for users' functions.

use super::build::{Builder, Env, Value};
use super::call::axes_of;
use super::expr::{dtype_of, known, single, typed};
use crate::diag::{self, hints};
use crate::ir::dtype::DType;
use crate::ir::graph::{Node, NodeKind};
use crate::parse::ast::{Arg, At, ExprKind};

/// `alike(x, y)`: `x`, which has the dims of `y`, unless one of both is a single number.
pub(super) fn alike(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> Value {
    let [first, second] = args else { unreachable!("the library has no mistakes") };
    let [value, second] = [first, second].map(|arg| single(b, env, &arg.value));
    let [has, other] = [&value, &second].map(|value| axes_of(b, value));
    let differs = has.minus(other).union(other.minus(has)).iter().next();
    if let Some(axis) = differs.filter(|_| !has.is_empty() && !other.is_empty()) {
        let [first, second] = [has, other].map(|axes| b.axes_text(axes));
        let dim = b.graph.axis(axis).name.clone();
        return b.error(at, diag::dims_differ(function(b), first, second, dim));
    }
    if matches!(second, Value::Unknown) { Value::Unknown } else { value }
}

/// `classes(t)`: whole numbers of any type as `i32`, those beyond it by their bits.
pub(super) fn classes(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> Value {
    let [arg] = args else { unreachable!("the library has no mistakes") };
    let value = single(b, env, &arg.value);
    let Some(dtype) = dtype_of(b, &value) else { return Value::Unknown };
    if dtype.is_float() || dtype == DType::Bool {
        return b.error(at, diag::wants_classes(function(b), dtype));
    }
    let Some(id) = typed(b, &value, dtype) else { return Value::Unknown };
    if dtype == DType::I32 {
        return Value::Node(id);
    }
    let (axes, span) = (b.graph.node(id).axes, b.place(at));
    known(b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype: DType::I32, axes, span }))
}

/// `number(eps)`: one number for all elements, by the name of the argument that it is.
pub(super) fn number(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> Value {
    let [arg] = args else { unreachable!("the library has no mistakes") };
    let value = single(b, env, &arg.value);
    let has = axes_of(b, &value);
    match &arg.value.kind {
        ExprKind::Name(name) if !has.is_empty() => {
            let has = b.axes_text(has);
            b.error(at, diag::wants_one_number(function(b), name, has, hints::number(name)))
        }
        _ => value,
    }
}

/// The function of the library that asks.
fn function<'b>(b: &Builder<'b>) -> &'b str {
    b.frames.last().map_or("", |frame| frame.function.name.text.as_str())
}
