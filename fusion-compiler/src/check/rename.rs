//! `rename(x, T -> S)`: the same values along another dim, without moving data.
//!
//! A renamed value is one index operation on the original, however often it is renamed. An index operation
//! along the new dim becomes one along the old dim of the original. Cheap values are recomputed along the new
//! dim (`renamed.rs`), down to tensors that are read at other axes.
//!
//! Invariant: a node that reads a tensor at other axes than its own is listed in `Builder::views`, with those
//! axes in order. `finish` then creates a parameter for each view.

use std::collections::{BTreeMap, BTreeSet};

use super::axes::{AxisConflict, create, elements, joined, new_dim, substitute};
use super::build::{Builder, Env, ExprValue, Form};
use super::expr::single;
use super::value::{dtype_of, known, typed};
use super::{dims, index, split};
use crate::diag;
use crate::ir::dtype::DType;
use crate::ir::graph::{
    AxisId, AxisSet, ConcatDim, Dim, Graph, NodeId, NodeKind, Param, ParamId, ParamKind, Use,
};
use crate::parse::ast::{Arg, At, Block, Expr, ExprKind, Pattern, Stmt};

/// Evaluates `rename(x, T -> S)`.
pub(super) fn rename(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> ExprValue {
    if b.form == Form::AnyShape {
        return b.error(at, diag::inline_needs_dims("rename"));
    }
    let [Arg { name: None, value: operand }, Arg { name: None, value: arrow }] = args else {
        return b.error(at, diag::rename_arguments());
    };
    let ExprKind::Arrow(from, to) = &arrow.kind else { return b.error(arrow.at, diag::rename_arguments()) };
    let value = single(b, env, operand);
    let Some(old) = dims::one(b, env, from, "rename", &diag::rename_arguments()) else {
        return ExprValue::Unknown;
    };
    let Some(dtype) = dtype_of(b, &value) else { return ExprValue::Unknown };
    let Some(id) = typed(b, &value, dtype) else { return ExprValue::Unknown };
    let id = joined(b, id, AxisSet::EMPTY.with(old));
    let has = b.graph.node(id).axes;
    if !has.contains(old) {
        let message = b.lacks(old, has);
        return b.error(from.at, message);
    }
    let Some(new) = target(b, env, old, to) else { return ExprValue::Unknown };
    if has.contains(new) {
        let name = b.graph.axis(new).name.clone();
        return b.error(to.at, diag::rename_taken(name));
    }
    let span = b.place(at);
    let place = b.leaf(NodeKind::Coord(new), DType::I32, AxisSet::EMPTY.with(new), span);
    known(place.and_then(|place| elements(b, (id, old), &[place], span)))
}

/// Returns the value before a renaming to `new` with its old axis, so that a reduction can skip the renaming.
/// For example, `sum(rename(x, T -> S), S)` is `sum(x, T)`. Returns none if something else has the new axis,
/// or if the value also has the old axis.
pub(super) fn original(b: &mut Builder<'_>, id: NodeId, new: AxisId) -> Option<(NodeId, AxisId)> {
    let (mut seen, mut open, mut old) = (BTreeSet::new(), vec![id], None);
    while let Some(id) = open.pop() {
        let node = b.graph.node(id);
        if !node.axes.contains(new) || !seen.insert(id) {
            continue;
        }
        match b.graph.renamed(id).filter(|&(_, _, to)| to == new) {
            Some((_, from, _)) if *old.get_or_insert(from) == from => {}
            Some(_) => return None,
            None if matches!(node.kind, NodeKind::Input(_)) => return None,
            None => open.extend(&node.args),
        }
    }
    let old = old?;
    let original = substitute(b, id, (new, old), &mut BTreeMap::new()).ok().flatten()?;
    Some((original, old))
}

/// Returns the target axis of a renaming: a new axis of the same extent, or a known axis. Calls check that a
/// known axis has the extent.
fn target(b: &mut Builder<'_>, env: &mut Env, old: AxisId, to: &Expr) -> Option<AxisId> {
    let ExprKind::Name(name) = &to.kind else {
        b.error(to.at, diag::rename_arguments());
        return None;
    };
    match env.dim(name) {
        Some(_) if env.var(name).is_none() => {
            let known = dims::one(b, env, to, "rename", &diag::rename_arguments())?;
            let [whole, part] = [known, old].map(|axis| b.graph.axis(axis).clone());
            match (whole.extent.as_const(), part.extent.as_const()) {
                _ if whole.extent == part.extent => {}
                (Some(is), Some(wants)) => {
                    b.error(to.at, diag::index_extent("rename", name, wants, is));
                    return None;
                }
                (..) => b.graph.check(ConcatDim { parts: vec![part].into(), whole, of: Use::Rename }),
            }
            Some(known)
        }
        Some(_) | None => new_dim(b, env, to, b.graph.axis(old).extent.clone()),
    }
}

/// Hands the result of a template to its caller. Dims that the template created become dims of the caller
/// under their names. A created dim is merged with the caller's dim of the same name and extent. A created
/// dim whose name has another meaning in the caller stays apart.
pub(super) fn given(b: &mut Builder<'_>, env: &mut Env, before: AxisSet, value: ExprValue) -> ExprValue {
    match value {
        ExprValue::Node(id) => {
            let made = b.graph.node(id).axes.minus(before);
            made.iter().fold(ExprValue::Node(id), |value, axis| adopted(b, env, axis, value))
        }
        ExprValue::Tuple(values) => {
            ExprValue::Tuple(values.into_iter().map(|value| given(b, env, before, value)).collect())
        }
        value @ (ExprValue::Weak(_) | ExprValue::Unknown) => value,
    }
}

/// Frees the axes that a template created and that no node behind its value has. Only nodes added since the
/// template began are examined. Consecutive calls thereby reuse one axis.
pub(super) fn give_back(b: &mut Builder<'_>, (before, first): (AxisSet, usize), value: &ExprValue) {
    let made = b.axes_in_use().minus(before);
    if made.is_empty() {
        return;
    }
    let parts = b.graph.splits.iter().flat_map(|split| split.parts.iter().chain([&split.whole]));
    let mut used: AxisSet = parts.copied().collect();
    let (mut seen, mut open) = (BTreeSet::new(), nodes_of(value));
    while let Some(id) = open.pop() {
        if id.0 as usize >= first && seen.insert(id) {
            let node = b.graph.node(id);
            used = used.union(node.axes);
            open.extend(&node.args);
        }
    }
    b.spare = b.spare.union(made.minus(used));
}

fn nodes_of(value: &ExprValue) -> Vec<NodeId> {
    match value {
        ExprValue::Node(id) => vec![*id],
        ExprValue::Tuple(values) => values.iter().flat_map(nodes_of).collect(),
        ExprValue::Weak(_) | ExprValue::Unknown => vec![],
    }
}

/// Returns the value of a template after one created axis became the caller's dim of that name.
fn adopted(b: &mut Builder<'_>, env: &mut Env, made: AxisId, value: ExprValue) -> ExprValue {
    let ExprValue::Node(id) = value else { return value };
    let Dim { name, extent } = b.graph.axis(made).clone();
    match env.dim(&name) {
        None if env.var(&name).is_none() => env.dims.push((name.into_owned(), vec![made])),
        Some(&[known]) if known == made => {}
        Some(&[known]) if b.graph.axis(known).extent == extent => {
            match substitute(b, id, (made, known), &mut BTreeMap::new()) {
                Ok(value) => return super::value::known(value),
                Err(AxisConflict::Taken | AxisConflict::Regrouped) => b.apart = b.apart.with(made),
            }
        }
        Some(_) | None => b.apart = b.apart.with(made),
    }
    value
}

/// Adds a parameter for each view of a tensor, after the parameters of the signature.
pub(super) fn finish(graph: &mut Graph, views: Vec<(NodeId, Vec<AxisId>)>) {
    for (id, axes) in views {
        let NodeKind::Input(of) = graph.node(id).kind else { unreachable!("a view reads a tensor") };
        let Param { name, dtype, kind, span } = graph.param(of).clone();
        if kind.axes() == Some(&axes) {
            continue;
        }
        let kind = ParamKind::View { of, axes };
        let known = graph.params.iter().position(|param| param.kind == kind);
        let view = known.unwrap_or_else(|| {
            graph.params.push(Param { name, dtype, kind, span });
            graph.params.len() - 1
        });
        graph.nodes[id.0 as usize].kind = NodeKind::Input(ParamId(view as u16));
    }
}

/// Declares the dims that index operations in a body create, so that result types may name them.
pub(super) fn declare(b: &mut Builder<'_>, env: &mut Env, body: &Block, fixed: &[(String, i64)]) {
    let mut found = Vec::new();
    in_block(body, &mut found);
    declare_all(b, env, &found, fixed);
}

/// Declares the dims that index operations in an inline expression create.
pub(super) fn declare_inline(b: &mut Builder<'_>, env: &mut Env, value: &Expr, fixed: &[(String, i64)]) {
    let mut found = Vec::new();
    in_expr(value, &mut found);
    declare_all(b, env, &found, fixed);
}

fn declare_all(b: &mut Builder<'_>, env: &mut Env, found: &[Found<'_>], fixed: &[(String, i64)]) {
    let (mut lets, mut blocks) = (Vec::new(), Vec::new());
    for found in found {
        let (function, args) = match *found {
            Found::Let(pattern, value) => {
                let values = index::extents(b, env, &lets, (pattern, value));
                lets.extend(pattern.names().iter().map(|name| name.text.as_str()).zip(values));
                continue;
            }
            Found::Open => {
                blocks.push(lets.len());
                continue;
            }
            Found::Close => {
                lets.truncate(blocks.pop().unwrap_or_default());
                continue;
            }
            Found::Call(function, args) => (function, args),
        };
        if let Some(kind) = index::IndexOp::from_name(function) {
            index::declare(b, env, (kind, args), &lets, fixed);
        }
        let arrow = args.iter().find_map(|arg| match &arg.value.kind {
            ExprKind::Arrow(from, to) => Some((&**from, &**to)),
            _ => None,
        });
        let Some((from, to)) = arrow else { continue };
        split::declare(b, env, function, (from, to), fixed);
        let (ExprKind::Name(from), ExprKind::Name(to)) = (&from.kind, &to.kind) else { continue };
        let is_fixed = fixed.iter().any(|(name, _)| name == to);
        if let ("rename", Some(old), None, false) = (function, env.axis(from), env.dim(to), is_fixed) {
            // The evaluation of the renaming reports an axis that cannot be created.
            create(b, env, b.graph.axis(old).extent.clone(), to);
        }
    }
}

/// A part of a body that matters to the dims that calls create.
enum Found<'e> {
    /// `let name = value;`, or `let` with a tuple pattern.
    Let(&'e Pattern, &'e Expr),
    /// `{`.
    Open,
    /// `}`, where the scope of the block's names ends.
    Close,
    /// `name(args)`.
    Call(&'e str, &'e [Arg]),
}

fn in_block<'e>(block: &'e Block, found: &mut Vec<Found<'e>>) {
    for stmt in &block.stmts {
        match stmt {
            Stmt::Let(_, value) | Stmt::Assign(_, value, _) | Stmt::Update(_, _, value, _) => {
                in_expr(value, found);
            }
        }
        if let Stmt::Let(pattern, value) = stmt {
            found.push(Found::Let(pattern, value));
        }
    }
    block.tail.iter().for_each(|tail| in_expr(tail, found));
}

/// Collects the parts of an expression in evaluation order.
fn in_expr<'e>(e: &'e Expr, found: &mut Vec<Found<'e>>) {
    match &e.kind {
        ExprKind::Call(name, args) | ExprKind::Method(name, args) => {
            args.iter().for_each(|arg| in_expr(&arg.value, found));
            found.push(Found::Call(name, args));
        }
        ExprKind::Unary(_, x) | ExprKind::Cast(x, _) => in_expr(x, found),
        ExprKind::Chain(first, links) => {
            in_expr(first, found);
            links.iter().for_each(|link| in_expr(&link.operand, found));
        }
        ExprKind::If(condition, then, other) => {
            in_expr(condition, found);
            for block in [then, other] {
                found.push(Found::Open);
                in_block(block, found);
                found.push(Found::Close);
            }
        }
        // The last part of a `concat` is the left side of its arrow.
        ExprKind::Arrow(from, _) => in_expr(from, found),
        ExprKind::Tuple(parts) => parts.iter().for_each(|part| in_expr(part, found)),
        ExprKind::Int(..)
        | ExprKind::Float(..)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Sized(..)
        | ExprKind::Range(..)
        | ExprKind::Capture(_)
        | ExprKind::Host(_) => {}
    }
}
