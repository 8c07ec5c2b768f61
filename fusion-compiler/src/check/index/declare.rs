//! The dims that index operations create, declared before a body is checked, so that result types may name them.

use super::super::build::{Builder, Env};
use super::super::{axes, weak};
use super::{IndexOp, difference, parts, window};
use crate::ir::dim::DimExpr;
use crate::ir::op::Op;
use crate::parse::ast::{Arg, Binary, Expr, ExprKind, Pattern, Unary};

/// Names in scope before an expression, each with the extent it stands for, if any.
pub(in crate::check) type Lets<'e> = [(&'e str, Option<DimExpr>)];

/// Declares the dim of the result of a call, if its extent follows from names alone.
pub(in crate::check) fn declare(
    b: &mut Builder<'_>,
    env: &mut Env,
    (kind, args): (IndexOp, &[Arg]),
    lets: &Lets<'_>,
    fixed: &[(String, i64)],
) {
    let of = |e: &Expr| extent(b, env, lets, e);
    if kind.has_windows() {
        for (name, extent) in window::declared(kind, args, of) {
            create(b, env, (&name, extent), fixed);
        }
        return;
    }
    let arrow = args.iter().find_map(|arg| match &arg.value.kind {
        ExprKind::Arrow(from, to) => Some((&**from, &**to)),
        _ => None,
    });
    let Some((from, to)) = arrow else { return };
    let length = match (kind, args) {
        (IndexOp::Slice, [_, _, Arg { value: Expr { kind: ExprKind::Range(start, end), .. }, .. }]) => {
            let start = start.as_ref().map_or(Some(DimExpr::constant(0)), |start| of(start));
            let end = end.as_ref().map_or_else(|| of(from), |end| of(end));
            end.zip(start).map(|(end, start)| difference(&end, &start))
        }
        (IndexOp::Pad, [_, _, before, after, ..]) => {
            let all = [&before.value, from, &after.value].map(of);
            let [before, own, after] = all;
            before.zip(own).zip(after).map(|((before, own), after)| before + own + after)
        }
        (IndexOp::Concat, _) => parts(args).and_then(|(_, parts)| {
            let extents: Option<Vec<DimExpr>> = parts.iter().map(|(_, along)| of(along)).collect();
            extents?.into_iter().reduce(|sum, next| sum + next)
        }),
        _ => None,
    };
    if let (Some(length), ExprKind::Name(name)) = (length, &to.kind) {
        create(b, env, (name, length), fixed);
    }
}

/// Creates a dim, unless one has the name.
fn create(b: &mut Builder<'_>, env: &mut Env, (name, extent): (&str, DimExpr), fixed: &[(String, i64)]) {
    if env.dim(name).is_none() && !fixed.iter().any(|(fixed, _)| fixed == name) {
        axes::create(b, env, extent, name);
    }
}

/// Returns the extent of each name that a `let` binds, if the name stands for one.
pub(in crate::check) fn extents(
    b: &Builder<'_>,
    env: &Env,
    lets: &Lets<'_>,
    (pattern, value): (&Pattern, &Expr),
) -> Vec<Option<DimExpr>> {
    match (pattern, &value.kind) {
        (Pattern::Name(_), _) => vec![extent(b, env, lets, value)],
        (Pattern::Tuple(names, _), ExprKind::Tuple(parts)) if names.len() == parts.len() => {
            parts.iter().map(|part| extent(b, env, lets, part)).collect()
        }
        (Pattern::Tuple(names, _), _) => vec![None; names.len()],
    }
}

/// Evaluates an expression of names and integers to an extent.
fn extent(b: &Builder<'_>, env: &Env, lets: &Lets<'_>, e: &Expr) -> Option<DimExpr> {
    match &e.kind {
        ExprKind::Int(value, None) => match env.axis(&value.to_string()) {
            Some(axis) => Some(b.graph.axis(axis).extent.clone()),
            None => i64::try_from(*value).ok().map(DimExpr::constant),
        },
        ExprKind::Name(name) => match env.dim(name) {
            Some(axes) => Some(DimExpr::product(axes.iter().map(|&axis| &b.graph.axis(axis).extent))),
            None => lets.iter().rev().find(|(known, _)| known == name)?.1.clone(),
        },
        ExprKind::Unary(Unary::Neg, x) => {
            extent(b, env, lets, x).map(|x| difference(&DimExpr::constant(0), &x))
        }
        ExprKind::Chain(first, links) => {
            let first = extent(b, env, lets, first);
            links.iter().fold(first, |left, link| {
                let (left, right) = (left?, extent(b, env, lets, &link.operand)?);
                weak::extent_op(table_op(link.op)?, left, right)
            })
        }
        _ => None,
    }
}

fn table_op(op: Binary) -> Option<Op> {
    matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div)
        .then(|| super::super::expr::table_op(op))
}
