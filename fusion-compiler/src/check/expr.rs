//! Expressions: each evaluates to a value or reports a mistake.
//!
//! Invariant: a mistake gives the unknown value. Every value computed from an unknown value is unknown,
//! without a further message.

mod operation;
mod statement;

use super::build::{Builder, Env, ExprValue, Form};
pub(super) use super::value::dtype_of;
use super::value::{known, one, typed};
use super::weak::{self, Weak, WeakKind};
use super::{call, capture};
use crate::diag::{self, hints};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisSet, Node, NodeId, NodeKind, SpanId};
use crate::ir::op::Op;
use crate::parse::ast::{At, Binary, Block, Expr, ExprKind, Link, Name, Unary};

pub(super) use operation::{Snippet, apply, pick};
pub(super) use statement::{block, body, several};

/// Named constants.
pub(super) const CONSTANTS: [(&str, f64); 4] =
    [("INF", f64::INFINITY), ("NAN", f64::NAN), ("PI", std::f64::consts::PI), ("E", std::f64::consts::E)];

/// Evaluates an expression.
pub(super) fn expr(b: &mut Builder<'_>, env: &mut Env, e: &Expr) -> ExprValue {
    match &e.kind {
        ExprKind::Int(value, suffix) => integer(b, e.at, *value, suffix.as_deref()),
        ExprKind::Float(value, suffix) => float(b, e.at, *value, suffix.as_deref()),
        ExprKind::Bool(value) => {
            let span = b.place(e.at);
            known(b.leaf(NodeKind::Literal(Const::Bool(*value)), DType::Bool, AxisSet::EMPTY, span))
        }
        ExprKind::Name(name) => named(b, env, e.at, name),
        ExprKind::Unary(op, x) => unary(b, env, e.at, *op, x),
        ExprKind::Chain(first, links) => chain(b, env, first, links),
        ExprKind::Cast(x, dtype) => {
            let value = single(b, env, x);
            cast(b, env, e.at, value, dtype)
        }
        ExprKind::If(condition, then, other) => conditional(b, env, e.at, condition, [then, other]),
        ExprKind::Call(name, args) => call::call(b, env, e.at, name, args),
        ExprKind::Method(name, args) => call::method(b, env, e.at, name, args),
        ExprKind::Tuple(parts) => ExprValue::Tuple(parts.iter().map(|part| single(b, env, part)).collect()),
        ExprKind::Sized(dim, extent) => b.error(e.at, diag::outside_call(format!("{dim} = {extent}"))),
        ExprKind::Arrow(from, to) => {
            b.error(e.at, diag::outside_call(format!("{} -> {}", Snippet::of(from), Snippet::of(to))))
        }
        ExprKind::Range(from, to) => {
            let [from, to] =
                [from, to].map(|bound| bound.as_ref().map_or(String::new(), |e| Snippet::of(e).to_string()));
            b.error(e.at, diag::outside_call(format!("{from}..{to}")))
        }
        ExprKind::Capture(number) => capture::capture(b, *number),
        ExprKind::Host(number) => capture::host(b, *number),
    }
}

/// Evaluates an expression that must give a single value.
pub(super) fn single(b: &mut Builder<'_>, env: &mut Env, e: &Expr) -> ExprValue {
    let value = expr(b, env, e);
    one(b, e.at, value)
}

fn integer(b: &mut Builder<'_>, at: At, value: u64, suffix: Option<&str>) -> ExprValue {
    let span = b.place(at);
    let Ok(signed) = i64::try_from(value) else {
        return b.error_here(at, diag::huge_literal(value));
    };
    match suffix {
        None => ExprValue::Weak(Weak::int(signed, span)),
        Some(suffix) => match DType::from_name(suffix).filter(|dtype| dtype.is_int()) {
            Some(dtype) => suffixed(b, Weak::int(signed, span), dtype),
            None => b.error_here(at, diag::bad_suffix(suffix)),
        },
    }
}

fn float(b: &mut Builder<'_>, at: At, value: f64, suffix: Option<&str>) -> ExprValue {
    let span = b.place(at);
    if value.is_infinite() {
        return b.error_here(at, diag::huge_float());
    }
    match suffix {
        None => ExprValue::Weak(Weak::float(value, span)),
        Some("f32") => suffixed(b, Weak::float(value, span), DType::F32),
        Some("f64") => suffixed(b, Weak::float(value, span), DType::F64),
        Some(suffix) => b.error_here(at, diag::bad_suffix(suffix)),
    }
}

fn suffixed(b: &mut Builder<'_>, literal: Weak, dtype: DType) -> ExprValue {
    known(weak::resolve(b, &literal, dtype))
}

fn named(b: &mut Builder<'_>, env: &Env, at: At, name: &str) -> ExprValue {
    if let Some(var) = env.var(name) {
        return var.value.clone();
    }
    let span = b.place(at);
    if let Some(axes) = env.dim(name) {
        let extent = DimExpr::product(axes.iter().map(|&axis| &b.graph.axis(axis).extent));
        return ExprValue::Weak(Weak::extent(extent, span));
    }
    if let Some((_, value)) = CONSTANTS.iter().find(|(constant, _)| *constant == name) {
        return ExprValue::Weak(Weak::float(*value, span));
    }
    if b.form != Form::Function && b.frames.is_empty() {
        return capture::variable(b, at, name);
    }
    if call::is_function(b, name) {
        return b.error_here(at, diag::function_as_value(name));
    }
    if b.mistaken.iter().any(|mistaken| mistaken == name) {
        return ExprValue::Unknown;
    }
    let near = hints::word(name).map_or_else(|| near(env, name), |how| format!(": {how}"));
    let is_constant = name.len() > 1 && !name.contains(char::is_lowercase);
    if near.is_empty() && is_constant {
        return b.error_here(at, diag::constant_of_rust(name, name.to_lowercase()));
    }
    b.error_here(at, diag::unknown_name(name, near))
}

/// Suggests a similar value, dim or constant.
fn near(env: &Env, name: &str) -> String {
    let vars = env.vars.iter().map(|var| var.name.as_str());
    let dims = env.dims.iter().map(|(dim, _)| dim.as_str());
    let constants = CONSTANTS.map(|(constant, _)| constant);
    diag::did_you_mean(name, vars.chain(dims).chain(constants).chain(["true", "false"]))
}

/// Returns true if no reported mistake explains the name and nothing has the name or a similar one.
pub(super) fn is_unknown(b: &Builder<'_>, env: &Env, name: &str) -> bool {
    let is_constant = CONSTANTS.iter().any(|(constant, _)| *constant == name);
    let is_known = env.var(name).is_some() || env.dim(name).is_some() || is_constant;
    let is_elsewhere = b.form != Form::Function && b.frames.is_empty() || call::is_function(b, name);
    let is_mistaken = b.mistaken.iter().any(|mistaken| mistaken == name);
    !is_known && !is_elsewhere && !is_mistaken && near(env, name).is_empty()
}

fn unary(b: &mut Builder<'_>, env: &mut Env, at: At, op: Unary, x: &Expr) -> ExprValue {
    // The magnitude of the least value of an integer type is out of range, so the sign is applied first.
    if let (Unary::Neg, ExprKind::Int(number, Some(suffix))) = (op, &x.kind)
        && let Some(dtype) = DType::from_name(suffix)
        && let (least @ ..0, _) = dtype.range()
        && *number == least.unsigned_abs()
    {
        let span = b.place(x.at);
        return suffixed(b, Weak::int(least, span), dtype);
    }
    let value = single(b, env, x);
    let (op, what) = match op {
        Unary::Neg => (Op::Neg, "-"),
        Unary::Not => (Op::Not, "!"),
    };
    apply(b, at, op, what, vec![(value, Snippet::of(x))])
}

/// Evaluates operators from left to right.
fn chain(b: &mut Builder<'_>, env: &mut Env, first: &Expr, links: &[Link]) -> ExprValue {
    let mut left = (single(b, env, first), Snippet::of(first));
    for Link { op, at, operand } in links {
        let right = (single(b, env, operand), Snippet::of(operand));
        left = (binary(b, *at, *op, [left, right]), Snippet { at: *at, kind: None });
    }
    left.0
}

fn binary(b: &mut Builder<'_>, at: At, op: Binary, sides: [(ExprValue, Snippet<'_>); 2]) -> ExprValue {
    if matches!(op, Binary::And | Binary::Or) {
        for (value, side) in &sides {
            if let Some(dtype) = dtype_of(b, value)
                && dtype != DType::Bool
            {
                return b.error(side.at, diag::wants_bool(op.symbol(), dtype));
            }
        }
    }
    apply(b, at, table_op(op), op.symbol(), sides.into())
}

/// Returns the operation of an operator.
pub(super) fn table_op(op: Binary) -> Op {
    match op {
        Binary::Add => Op::Add,
        Binary::Sub => Op::Sub,
        Binary::Mul => Op::Mul,
        Binary::Div => Op::Div,
        Binary::Rem => Op::Rem,
        Binary::BitAnd | Binary::And => Op::And,
        Binary::BitOr | Binary::Or => Op::Or,
        Binary::BitXor => Op::Xor,
        Binary::Shl => Op::Shl,
        Binary::Shr => Op::Shr,
        Binary::Lt => Op::Lt,
        Binary::Le => Op::Le,
        Binary::Gt => Op::Gt,
        Binary::Ge => Op::Ge,
        Binary::Eq => Op::Eq,
        Binary::Ne => Op::Ne,
    }
}

/// Rounds a value to its own dtype, if it is computed in a wider dtype.
fn round(b: &mut Builder<'_>, id: NodeId, span: SpanId) -> Option<NodeId> {
    let Node { dtype, axes, .. } = *b.graph.node(id);
    if !(dtype.is_narrow() && dtype.is_float()) {
        return Some(id);
    }
    b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype, axes, span })
}

fn cast(b: &mut Builder<'_>, env: &Env, at: At, value: ExprValue, name: &Name) -> ExprValue {
    let Some(dtype) = env.dtype(&name.text) else {
        let near = hints::near_dtype(&name.text, &[]);
        return b.error_here(name.at, diag::unknown_dtype(&name.text, near));
    };
    let span = b.place(at);
    let Some(from) = dtype_of(b, &value) else { return ExprValue::Unknown };
    if dtype == DType::Bool && from != DType::Bool {
        return b.error(at, diag::cast_to_bool());
    }
    // An extent or an integer literal is exact in the requested dtype, but might overflow an intermediate
    // `i32`.
    let holds = |kind: &WeakKind| match kind {
        WeakKind::Literal(Const::Int(x)) => dtype.is_float() || dtype == DType::U32 && *x >= 0,
        WeakKind::Extent(_) => dtype.is_float() || dtype == DType::U32,
        WeakKind::Literal(Const::Float(_) | Const::Bool(_)) => dtype.is_float(),
        WeakKind::Apply(..) | WeakKind::Select(..) => false,
    };
    let alone = if matches!(&value, ExprValue::Weak(number) if holds(&number.kind)) { dtype } else { from };
    let Some(id) = typed(b, &value, alone) else { return ExprValue::Unknown };
    let Node { dtype: has, axes, .. } = *b.graph.node(id);
    if has == dtype {
        return known(round(b, id, span));
    }
    known(b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype, axes, span }))
}

fn conditional(
    b: &mut Builder<'_>,
    env: &mut Env,
    at: At,
    condition: &Expr,
    blocks: [&Block; 2],
) -> ExprValue {
    let test = single(b, env, condition);
    let sides = blocks.map(|side| block(b, env, side));
    let test = match (dtype_of(b, &test), test) {
        (Some(DType::Bool), ExprValue::Node(id)) => id,
        (Some(dtype), _) => return b.error(condition.at, diag::wants_bool("if", dtype)),
        (None, _) => return ExprValue::Unknown,
    };
    let tails = blocks.map(|side| side.tail.as_ref());
    let [Some(left), Some(right)] = tails else { return ExprValue::Unknown };
    pick(b, at, test, sides, [Snippet::of(left), Snippet::of(right)])
}
