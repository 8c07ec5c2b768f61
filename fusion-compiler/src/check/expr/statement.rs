//! Statements and blocks: bindings of names, and assignments to `&mut` parameters.

use super::super::build::{Builder, Env, ExprValue, Var, VarKind};
use super::super::call;
use super::super::fit::fit_in_place;
use super::super::value::{known, one};
use super::{Snippet, apply, expr, single, table_op};
use crate::diag::{self, hints};
use crate::ir::graph::ParamId;
use crate::parse::ast::{At, Binary, Block, Expr, ExprKind, Name, Pattern, Stmt};

/// Evaluates a nested block. Names that the block binds go out of scope.
pub(in crate::check) fn block(b: &mut Builder<'_>, env: &mut Env, block: &Block) -> ExprValue {
    let outer = env.vars.len();
    let value = body(b, env, block).unwrap_or(ExprValue::Unknown);
    env.vars.truncate(outer);
    value
}

/// Evaluates the body of a function. Returns the value of the tail, if there is one.
pub(in crate::check) fn body(b: &mut Builder<'_>, env: &mut Env, block: &Block) -> Option<ExprValue> {
    for stmt in &block.stmts {
        match stmt {
            Stmt::Let(pattern, value) => binding(b, env, pattern, value),
            Stmt::Assign(targets, value, at) => {
                let given = expr(b, env, value);
                let assigned = named_parts(b, targets, (given, value));
                assigned
                    .into_iter()
                    .for_each(|(target, given)| assign(b, env, target, given, (value.at, *at)));
            }
            Stmt::Update(target, op, value, at) => update(b, env, target, *op, (value, *at)),
        }
    }
    block.tail.as_ref().map(|tail| expr(b, env, tail))
}

/// Returns the message for one value where several are wanted, if other libraries return several.
pub(in crate::check) fn several(b: &Builder<'_>, value: &Expr) -> Option<diag::Message> {
    let (ExprKind::Call(name, _) | ExprKind::Method(name, _)) = &value.kind else { return None };
    hints::several(name).filter(|_| !call::is_users(b, name)).map(diag::one_of_several)
}

fn binding(b: &mut Builder<'_>, env: &mut Env, pattern: &Pattern, value: &Expr) {
    let given = expr(b, env, value);
    let named = named_parts(b, pattern, (given, value));
    named.into_iter().for_each(|(name, part)| bind(b, env, name, part));
}

/// Returns the value of each name of a pattern.
fn named_parts<'p>(
    b: &mut Builder<'_>,
    pattern: &'p Pattern,
    (given, value): (ExprValue, &Expr),
) -> Vec<(&'p Name, ExprValue)> {
    let (names, at) = match pattern {
        Pattern::Name(name) => return vec![(name, given)],
        Pattern::Tuple(names, at) => (names, *at),
    };
    for (i, name) in names.iter().enumerate() {
        if name.text != "_" && names[..i].iter().any(|other| other.text == name.text) {
            b.error(name.at, diag::duplicate_pattern(&name.text));
        }
    }
    let mistake = match given {
        ExprValue::Tuple(parts) if parts.len() == names.len() => return names.iter().zip(parts).collect(),
        ExprValue::Tuple(parts) => b.error(at, diag::tuple_length(parts.len(), names.len())),
        ExprValue::Node(_) | ExprValue::Weak(_) => {
            let message = several(b, value).unwrap_or_else(|| diag::not_a_tuple(names.len()));
            b.error(at, message)
        }
        ExprValue::Unknown => ExprValue::Unknown,
    };
    names.iter().map(|name| (name, mistake.clone())).collect()
}

fn bind(b: &mut Builder<'_>, env: &mut Env, name: &Name, value: ExprValue) {
    if env.dim(&name.text).is_some() {
        b.error(name.at, diag::name_clash(&name.text, "a dim", "a value"));
    } else if name.text != "_" {
        env.bind(&name.text, value, VarKind::Let);
    }
}

/// Evaluates the assignment `p = given`. `place` is the token of the value and `at` that of the operator.
fn assign(b: &mut Builder<'_>, env: &mut Env, target: &Name, given: ExprValue, (place, at): (At, At)) {
    if target.text == "_" {
        return;
    }
    let Some((_, param)) = assigned(b, env, target) else { return };
    let given = one(b, place, given);
    let stored = fit_in_place(b, param, given, place, at);
    b.assigned.push(param);
    if let Some(var) = env.var_mut(&target.text) {
        var.value = known(stored);
    }
}

/// Evaluates `p += value`.
fn update(b: &mut Builder<'_>, env: &mut Env, target: &Name, op: Binary, (value, at): (&Expr, At)) {
    let given = single(b, env, value);
    let Some((old, _)) = assigned(b, env, target) else { return };
    let name = ExprKind::Name(target.text.clone());
    let old = (old, Snippet { at: target.at, kind: Some(&name) });
    let new = apply(b, at, table_op(op), op.symbol(), vec![old, (given, Snippet::of(value))]);
    assign(b, env, target, new, (value.at, at));
}

/// Returns the current value of an assigned name with its `&mut` parameter.
fn assigned(b: &mut Builder<'_>, env: &mut Env, target: &Name) -> Option<(ExprValue, ParamId)> {
    let message = match env.var(&target.text) {
        Some(var) => match var.kind {
            VarKind::InPlace(param) => return Some((var.value.clone(), param)),
            VarKind::Param => diag::assign_not_mut(&target.text),
            VarKind::Let => diag::assign_let(&target.text),
        },
        None => {
            let in_place = |var: &&Var| matches!(var.kind, VarKind::InPlace(_));
            let vars = env.vars.iter().filter(in_place).map(|var| var.name.as_str());
            let near = diag::did_you_mean(&target.text, vars);
            // Binding the name prevents a second message where the name is used.
            env.bind(&target.text, ExprValue::Unknown, VarKind::Let);
            diag::assign_unknown(&target.text, near)
        }
    };
    b.error(target.at, message);
    None
}
