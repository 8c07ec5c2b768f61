//! Argument checks of library functions that the language itself cannot express. Each guard returns a value
//! or reports the mistake.
//!
//! Only the library can call guards, so users' functions may have the same names.

use super::build::{Builder, Env, ExprValue};
use super::dims;
use super::expr::single;
use super::matmul;
use super::value::{axes_of, common, dtype_of, known, typed};
use super::weak::{self, Weak};
use crate::diag::{self, hints};
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisSet, ConcatDim, Dim, Node, NodeKind, Use};
use crate::ir::op::Op;
use crate::parse::ast::{Arg, At, ExprKind};

/// Evaluates a call of a guard. Returns none if no guard has the name.
pub(super) fn guard(
    b: &mut Builder<'_>,
    env: &mut Env,
    at: At,
    name: &str,
    args: &[Arg],
) -> Option<ExprValue> {
    Some(match name {
        "alike" => alike(b, env, at, args),
        "classes" => classes(b, env, at, args),
        "factors" => matmul::factors(b, env, at, args),
        "number" => number(b, env, at, args),
        "scaled" => scaled(b, env, at, args),
        "truths" => truths(b, env, at, args),
        "weights" => weights(b, env, at, args),
        _ => return None,
    })
}

/// Evaluates `alike(x, y)`: returns `x` after checking that `x` and `y` have the same dims or one is a
/// scalar.
fn alike(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> ExprValue {
    let [first, second] = args else { unreachable!("the library has no mistakes") };
    let [value, second] = [first, second].map(|arg| single(b, env, &arg.value));
    let [has, other] = [&value, &second].map(|value| axes_of(b, value));
    let differs = has.minus(other).union(other.minus(has)).iter().next();
    if let Some(axis) = differs.filter(|_| !has.is_empty() && !other.is_empty()) {
        let [first, second] = [has, other].map(|axes| b.axes_text(axes));
        let dim = b.graph.axis(axis).name.clone();
        return b.error(at, diag::dims_differ(b.called(""), first, second, dim));
    }
    if matches!(second, ExprValue::Unknown) { ExprValue::Unknown } else { value }
}

/// Evaluates `scaled(P, H)`: the coordinate along `P` times the extent of `H`. Each call checks that `i32` has all of
/// these numbers.
fn scaled(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> ExprValue {
    let axes = args.iter().filter_map(|arg| match &arg.value.kind {
        ExprKind::Name(name) => env.axis(name),
        _ => None,
    });
    let [along, by] = axes.collect::<Vec<_>>()[..] else {
        let text =
            b.axes_text(args.iter().filter_map(|arg| dims::named(b, env, &arg.value)).flatten().collect());
        return b.error(at, diag::one_dim(b.called(""), text));
    };
    let [along_dim, by_dim] = [along, by].map(|axis| b.graph.axis(axis).clone());
    let extent = along_dim.extent * by_dim.extent.clone();
    if extent.as_const().is_none_or(|extent| i32::try_from(extent).is_err()) {
        let whole = Dim { name: format!("{} * {}", along_dim.name, by_dim.name).into(), extent };
        let of = Use::Coordinates(b.called(""));
        b.graph.check(ConcatDim { parts: vec![whole.clone()].into(), whole, of });
    }
    let span = b.place(at);
    let own = b.leaf(NodeKind::Coord(along), DType::I32, AxisSet::EMPTY.with(along), span);
    let by = weak::resolve(b, &Weak::extent(by_dim.extent, span), DType::I32);
    let (Some(own), Some(by)) = (own, by) else { return ExprValue::Unknown };
    ExprValue::Node(b.graph.apply(Op::Mul, &[own, by], span))
}

/// Evaluates `classes(t)`: converts integers of any type to `i32`. Values out of the range of `i32` keep
/// their low bits.
fn classes(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> ExprValue {
    let [arg] = args else { unreachable!("the library has no mistakes") };
    let value = single(b, env, &arg.value);
    let Some(dtype) = dtype_of(b, &value) else { return ExprValue::Unknown };
    if dtype.is_float() || dtype == DType::Bool {
        return b.error(at, diag::wants_classes(b.called(""), dtype));
    }
    let Some(id) = typed(b, &value, dtype) else { return ExprValue::Unknown };
    if dtype == DType::I32 {
        return ExprValue::Node(id);
    }
    let (axes, span) = (b.graph.node(id).axes, b.place(at));
    known(b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype: DType::I32, axes, span }))
}

/// Evaluates `truths(x)`: returns `x` after checking that it is `bool`.
fn truths(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> ExprValue {
    let [arg] = args else { unreachable!("the library has no mistakes") };
    let value = single(b, env, &arg.value);
    match dtype_of(b, &value) {
        Some(DType::Bool) => value,
        Some(dtype) => b.error(at, diag::wants_truths(b.called(""), dtype)),
        None => ExprValue::Unknown,
    }
}

/// Evaluates `weights(w, V, logits)`: returns `w` after checking that it has the dim `V` alone, and a dtype
/// that meets that of the logits.
fn weights(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> ExprValue {
    let [weight, dim, logits] = args else { unreachable!("the library has no mistakes") };
    let [value, logits] = [weight, logits].map(|arg| single(b, env, &arg.value));
    let (ExprKind::Name(name), ExprKind::Name(dim)) = (&weight.value.kind, &dim.value.kind) else {
        unreachable!("the library passes parameters")
    };
    let wants: AxisSet = env.dim(dim).into_iter().flatten().copied().collect();
    let has = axes_of(b, &value);
    let (Some(is), Some(meets)) = (dtype_of(b, &value), dtype_of(b, &logits)) else {
        return ExprValue::Unknown;
    };
    if has != wants {
        let (dim, has) = (b.names_text(&wants.iter().collect::<Vec<_>>()), b.axes_text(has));
        return b.error(at, diag::class_weights(b.called(""), name, dim, has));
    }
    if meets.is_float() && common(is, meets).is_none() {
        return b.error(at, diag::argument_dtype(b.called(""), name, meets, is));
    }
    value
}

/// Evaluates `number(eps)`: returns the argument after checking that it is a scalar. An integer becomes `f32`.
/// The mistake names the argument.
fn number(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> ExprValue {
    let [arg] = args else { unreachable!("the library has no mistakes") };
    let value = single(b, env, &arg.value);
    let (has, dtype) = (axes_of(b, &value), dtype_of(b, &value));
    let ExprKind::Name(name) = &arg.value.kind else { unreachable!("the library passes parameters") };
    if !has.is_empty() {
        let has = b.axes_text(has);
        return b
            .error(at, diag::wants_one_number(b.called(""), name, has, hints::number(&b.called(""), name)));
    }
    match (value, dtype) {
        (_, Some(dtype @ DType::Bool)) => {
            b.error(at, diag::wants_scalar(b.called(""), name, dtype, hints::number(&b.called(""), name)))
        }
        (ExprValue::Node(id), Some(dtype)) if !dtype.is_float() => {
            let (axes, span) = (has, b.place(at));
            known(b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype: DType::F32, axes, span }))
        }
        (value, _) => value,
    }
}
