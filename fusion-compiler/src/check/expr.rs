//! Expressions and statements: each evaluates to a value or reports a mistake.
//!
//! Invariant: a mistake gives the unknown value. Every value computed from an unknown value is unknown,
//! without a further message.

use std::fmt;

use super::build::{Builder, Env, Form, Value, VarKind};
use super::weak::{self, Weak, WeakKind};
use super::{call, inline};
use crate::diag::{self, hints};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisSet, Node, NodeId, NodeKind, ParamId, SpanId};
use crate::ir::op::{Op, Typing};
use crate::parse::ast::{At, Binary, Block, Expr, ExprKind, Link, Name, Pattern, Stmt, Unary};

/// Named constants.
pub(super) const CONSTANTS: [(&str, f64); 4] =
    [("INF", f64::INFINITY), ("NAN", f64::NAN), ("PI", std::f64::consts::PI), ("E", std::f64::consts::E)];

/// Evaluates an expression.
pub(super) fn expr(b: &mut Builder<'_>, env: &mut Env, e: &Expr) -> Value {
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
        ExprKind::Tuple(parts) => Value::Tuple(parts.iter().map(|part| single(b, env, part)).collect()),
        ExprKind::Sized(dim, extent) => b.error(e.at, diag::outside_call(format!("{dim} = {extent}"))),
        ExprKind::Arrow(from, to) => {
            b.error(e.at, diag::outside_call(format!("{} -> {}", Snippet::of(from), Snippet::of(to))))
        }
        ExprKind::Range(from, to) => {
            let [from, to] =
                [from, to].map(|bound| bound.as_ref().map_or(String::new(), |e| Snippet::of(e).to_string()));
            b.error(e.at, diag::outside_call(format!("{from}..{to}")))
        }
        ExprKind::Capture(number) => inline::capture(b, *number),
        ExprKind::Host(number) => inline::host(b, *number),
    }
}

/// Evaluates an expression that must give a single value.
pub(super) fn single(b: &mut Builder<'_>, env: &mut Env, e: &Expr) -> Value {
    let value = expr(b, env, e);
    one(b, e.at, value)
}

/// Reports a tuple where a single value is required.
pub(super) fn one(b: &mut Builder<'_>, at: At, value: Value) -> Value {
    match value {
        Value::Tuple(_) => b.error(at, diag::tuple_value()),
        Value::Node(_) | Value::Weak(_) | Value::Unknown => value,
    }
}

pub(super) fn known(id: Option<NodeId>) -> Value {
    id.map_or(Value::Unknown, Value::Node)
}

fn integer(b: &mut Builder<'_>, at: At, value: u64, suffix: Option<&str>) -> Value {
    let span = b.place(at);
    let Ok(signed) = i64::try_from(value) else {
        return b.error_here(at, diag::huge_literal(value));
    };
    match suffix {
        None => Value::Weak(Weak::int(signed, span)),
        Some(suffix) => match DType::from_name(suffix).filter(|dtype| dtype.is_int()) {
            Some(dtype) => suffixed(b, Weak::int(signed, span), dtype),
            None => b.error_here(at, diag::bad_suffix(suffix)),
        },
    }
}

fn float(b: &mut Builder<'_>, at: At, value: f64, suffix: Option<&str>) -> Value {
    let span = b.place(at);
    if value.is_infinite() {
        return b.error_here(at, diag::huge_float());
    }
    match suffix {
        None => Value::Weak(Weak::float(value, span)),
        Some("f32") => suffixed(b, Weak::float(value, span), DType::F32),
        Some("f64") => suffixed(b, Weak::float(value, span), DType::F64),
        Some(suffix) => b.error_here(at, diag::bad_suffix(suffix)),
    }
}

fn suffixed(b: &mut Builder<'_>, literal: Weak, dtype: DType) -> Value {
    known(weak::resolve(b, &literal, dtype))
}

fn named(b: &mut Builder<'_>, env: &Env, at: At, name: &str) -> Value {
    if let Some(var) = env.var(name) {
        return var.value.clone();
    }
    let span = b.place(at);
    if let Some(axes) = env.dim(name) {
        let extent = DimExpr::product(axes.iter().map(|&axis| &b.graph.axis(axis).extent));
        return Value::Weak(Weak::extent(extent, span));
    }
    if let Some((_, value)) = CONSTANTS.iter().find(|(constant, _)| *constant == name) {
        return Value::Weak(Weak::float(*value, span));
    }
    if b.form != Form::Function && b.frames.is_empty() {
        return inline::variable(b, at, name);
    }
    if call::is_function(b, name) {
        return b.error_here(at, diag::function_as_value(name));
    }
    if b.mistaken.iter().any(|mistaken| mistaken == name) {
        return Value::Unknown;
    }
    let near = near(env, name);
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

fn unary(b: &mut Builder<'_>, env: &mut Env, at: At, op: Unary, x: &Expr) -> Value {
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
fn chain(b: &mut Builder<'_>, env: &mut Env, first: &Expr, links: &[Link]) -> Value {
    let mut left = (single(b, env, first), Snippet::of(first));
    for Link { op, at, operand } in links {
        let right = (single(b, env, operand), Snippet::of(operand));
        left = (binary(b, *at, *op, [left, right]), Snippet { at: *at, kind: None });
    }
    left.0
}

fn binary(b: &mut Builder<'_>, at: At, op: Binary, sides: [(Value, Snippet<'_>); 2]) -> Value {
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

/// Returns the dtype of a single value. A weak number has its default dtype.
pub(super) fn dtype_of(b: &Builder<'_>, value: &Value) -> Option<DType> {
    match value {
        Value::Node(id) => Some(b.graph.node(*id).dtype),
        Value::Weak(number) => Some(number.default_dtype()),
        Value::Tuple(_) | Value::Unknown => None,
    }
}

/// An operand in a message: its place, and its text if short enough to repeat.
#[derive(Clone, Copy)]
pub(super) struct Snippet<'e> {
    pub(super) at: At,
    kind: Option<&'e ExprKind>,
}

impl<'e> Snippet<'e> {
    pub(super) fn of(e: &'e Expr) -> Snippet<'e> {
        Snippet { at: e.at, kind: Some(&e.kind) }
    }
}

impl fmt::Display for Snippet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(ExprKind::Name(name)) => f.write_str(name),
            Some(ExprKind::Int(value, _)) => write!(f, "{value}"),
            Some(_) | None => f.write_str("(…)"),
        }
    }
}

/// Applies an operation of the op table to operands of a common dtype.
pub(super) fn apply(
    b: &mut Builder<'_>,
    at: At,
    op: Op,
    what: &'static str,
    args: Vec<(Value, Snippet<'_>)>,
) -> Value {
    let (span, typing, called) = (b.place(at), op.info().typing, b.called(what));
    let weak: Option<Vec<Weak>> = args.iter().map(|(value, _)| as_weak(value)).collect();
    let ids = match weak {
        // A result stays weak only if the operation keeps the dtype of its operands.
        Some(numbers) => {
            let is_float = numbers.iter().any(|number| number.is_float);
            match typing {
                Typing::Number => return weak::apply(b, op, what, numbers, span),
                Typing::Float => return weak::apply_float(b, op, what, numbers, span),
                Typing::Int | Typing::Bits if is_float => {
                    return b.error(at, wants(typing, &called, DType::F32));
                }
                Typing::Int | Typing::Bits => return weak::apply(b, op, what, numbers, span),
                Typing::Test | Typing::ToBits => resolve_all(b, &args, DType::F32),
                Typing::Decode if is_float => return b.error(at, wants(typing, &called, DType::F32)),
                Typing::Decode => resolve_all(b, &args, DType::U32),
                Typing::Compare | Typing::Select => {
                    resolve_all(b, &args, if is_float { DType::F32 } else { DType::I32 })
                }
                Typing::Encode | Typing::Double => unreachable!("users have no bits of narrow floats"),
            }
        }
        None => meet(b, at, what, &args),
    };
    let Some(ids) = ids else { return Value::Unknown };
    let dtype = b.graph.node(ids[ids.len() - 1]).dtype;
    if !typing.accepts(dtype) {
        return b.error(at, wants(typing, &called, dtype));
    }
    if dtype == DType::Bool && matches!(op, Op::Lt | Op::Le | Op::Gt | Op::Ge) {
        return b.error(at, diag::no_order());
    }
    if b.is_full() {
        return b.error_span(span, diag::too_many_terms());
    }
    known(b.apply(op, &ids, span))
}

/// Rounds a value to its own dtype, if it is computed in a wider dtype.
fn round(b: &mut Builder<'_>, id: NodeId, span: SpanId) -> Option<NodeId> {
    let Node { dtype, axes, .. } = *b.graph.node(id);
    if !(dtype.is_narrow() && dtype.is_float()) {
        return Some(id);
    }
    b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype, axes, span })
}

fn wants(typing: Typing, what: &str, is: DType) -> diag::Message {
    match typing {
        Typing::Float | Typing::Test if is == DType::Bool => diag::wants_number(what, is),
        Typing::Float | Typing::Test => diag::wants_float(what, is),
        Typing::Int => diag::wants_int(what, is),
        Typing::Bits if what == "^" => diag::bits_of_float(is),
        Typing::Bits => diag::wants_bits(what, is),
        Typing::ToBits if is != DType::Bool => diag::wants_dtype(what, DType::F32, is),
        Typing::Decode if is != DType::Bool => diag::wants_dtype(what, DType::U32, is),
        Typing::Number
        | Typing::Compare
        | Typing::Select
        | Typing::ToBits
        | Typing::Encode
        | Typing::Decode
        | Typing::Double => diag::wants_number(what, is),
    }
}

fn as_weak(value: &Value) -> Option<Weak> {
    match value {
        Value::Weak(number) => Some(number.clone()),
        Value::Node(_) | Value::Tuple(_) | Value::Unknown => None,
    }
}

fn resolve_all(b: &mut Builder<'_>, args: &[(Value, Snippet<'_>)], dtype: DType) -> Option<Vec<NodeId>> {
    args.iter().map(|(value, _)| typed(b, value, dtype)).collect()
}

/// Returns the value as a node. A weak number gets this dtype.
pub(super) fn typed(b: &mut Builder<'_>, value: &Value, dtype: DType) -> Option<NodeId> {
    match value {
        Value::Node(id) => Some(*id),
        Value::Weak(number) => weak::resolve(b, number, dtype),
        Value::Tuple(_) | Value::Unknown => None,
    }
}

/// Converts operands to one dtype, the common dtype of the typed operands.
fn meet(b: &mut Builder<'_>, at: At, what: &str, args: &[(Value, Snippet<'_>)]) -> Option<Vec<NodeId>> {
    if args.iter().any(|(value, _)| matches!(value, Value::Unknown | Value::Tuple(_))) {
        return None;
    }
    let has_dtype = |value: &Value| matches!(value, Value::Node(_));
    let (first, left) = args.iter().find(|(value, _)| has_dtype(value))?;
    let mut dtype = dtype_of(b, first)?;
    let known = args.iter().filter(|(value, _)| has_dtype(value));
    if let Some(common) = known.map(|(value, _)| dtype_of(b, value)).reduce(|a, b| common(a?, b?)) {
        dtype = common.unwrap_or(dtype);
    }
    for (value, right) in args {
        let other = dtype_of(b, value)?;
        if has_dtype(value) && common(other, dtype) != Some(dtype) {
            let inside = b.in_std() && dtype != DType::Bool && other != DType::Bool;
            let message = match inside {
                true => diag::mixed_arguments(dtype, other),
                false => mixed(what, (dtype, *left), (other, *right)),
            };
            b.error(at, message);
            return None;
        }
        if !has_dtype(value) && !weak::fits(b, (at, right.at), what, value, dtype) {
            return None;
        }
    }
    let ids = resolve_all(b, args, dtype)?;
    ids.into_iter().map(|id| widened(b, id, dtype)).collect()
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

fn mixed(what: &str, left: (DType, Snippet<'_>), right: (DType, Snippet<'_>)) -> diag::Message {
    if left.0 == DType::Bool || right.0 == DType::Bool {
        return diag::number_and_bool(what);
    }
    diag::mixed(what, left.0, right.0, mend(left, right))
}

/// Suggests an edit that gives two operands one dtype. An integer literal loses its suffix. Otherwise an
/// integer is cast to the float, any operand to `f64`, the narrower integer to the wider one, or the right
/// operand to the left.
fn mend(left: (DType, Snippet<'_>), right: (DType, Snippet<'_>)) -> String {
    let number = [left, right].into_iter().find_map(|(_, operand)| match operand.kind {
        Some(ExprKind::Int(value, Some(_))) => Some(value),
        Some(_) | None => None,
    });
    if let Some(number) = number {
        return number.to_string();
    }
    let widens = left.0.is_int() && right.0.is_int() && left.0.size() < right.0.size();
    let to_right = right.0.is_float() && left.0 != DType::F64 || widens;
    let (side, dtype) = if to_right { (left.1, right.0) } else { (right.1, left.0) };
    format!("{side} as {dtype}")
}

fn cast(b: &mut Builder<'_>, env: &Env, at: At, value: Value, name: &Name) -> Value {
    let Some(dtype) = env.dtype(&name.text) else {
        let near = super::function::near_dtype(&name.text, &[]);
        return b.error_here(name.at, diag::unknown_dtype(&name.text, near));
    };
    let span = b.place(at);
    let Some(from) = dtype_of(b, &value) else { return Value::Unknown };
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
    let alone = if matches!(&value, Value::Weak(number) if holds(&number.kind)) { dtype } else { from };
    let Some(id) = typed(b, &value, alone) else { return Value::Unknown };
    let Node { dtype: has, axes, .. } = *b.graph.node(id);
    if has == dtype {
        return known(round(b, id, span));
    }
    known(b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype, axes, span }))
}

fn conditional(b: &mut Builder<'_>, env: &mut Env, at: At, condition: &Expr, blocks: [&Block; 2]) -> Value {
    let test = single(b, env, condition);
    let sides = blocks.map(|side| block(b, env, side));
    let test = match (dtype_of(b, &test), test) {
        (Some(DType::Bool), Value::Node(id)) => id,
        (Some(dtype), _) => return b.error(condition.at, diag::wants_bool("if", dtype)),
        (None, _) => return Value::Unknown,
    };
    let tails = blocks.map(|side| side.tail.as_ref());
    let [Some(left), Some(right)] = tails else { return Value::Unknown };
    pick(b, at, test, sides, [Snippet::of(left), Snippet::of(right)])
}

/// Selects one of two values of the same kind by a condition.
pub(super) fn pick(
    b: &mut Builder<'_>,
    at: At,
    test: NodeId,
    sides: [Value; 2],
    tails: [Snippet<'_>; 2],
) -> Value {
    let span = b.place(at);
    match sides {
        [Value::Tuple(left), Value::Tuple(right)] if left.len() == right.len() => {
            let pairs = left.into_iter().zip(right);
            Value::Tuple(pairs.map(|(left, right)| pick(b, at, test, [left, right], tails)).collect())
        }
        [Value::Unknown, _] | [_, Value::Unknown] => Value::Unknown,
        [Value::Tuple(_), _] | [_, Value::Tuple(_)] => b.error(at, diag::tuple_branches()),
        [Value::Weak(left), Value::Weak(right)] => weak::select(b, test, [left, right], span),
        sides => {
            if let [Some(left), Some(right)] = [dtype_of(b, &sides[0]), dtype_of(b, &sides[1])]
                && common(left, right).is_none()
                && left != DType::Bool
                && right != DType::Bool
                && sides.iter().all(|side| matches!(side, Value::Node(_)))
            {
                return b
                    .error(at, diag::mixed_branches(left, right, mend((left, tails[0]), (right, tails[1]))));
            }
            let args: Vec<(Value, Snippet<'_>)> = sides.into_iter().zip(tails).collect();
            let Some(ids) = meet(b, at, "if", &args) else { return Value::Unknown };
            if b.is_full() {
                return b.error_span(span, diag::too_many_terms());
            }
            known(b.apply(Op::Select, &[test, ids[0], ids[1]], span))
        }
    }
}

/// Evaluates a nested block. Names that the block binds go out of scope.
pub(super) fn block(b: &mut Builder<'_>, env: &mut Env, block: &Block) -> Value {
    let outer = env.vars.len();
    let value = body(b, env, block).unwrap_or(Value::Unknown);
    env.vars.truncate(outer);
    value
}

/// Evaluates the body of a function. Returns the value of the tail, if there is one.
pub(super) fn body(b: &mut Builder<'_>, env: &mut Env, block: &Block) -> Option<Value> {
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
pub(super) fn several(b: &Builder<'_>, value: &Expr) -> Option<diag::Message> {
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
    (given, value): (Value, &Expr),
) -> Vec<(&'p Name, Value)> {
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
        Value::Tuple(parts) if parts.len() == names.len() => return names.iter().zip(parts).collect(),
        Value::Tuple(parts) => b.error(at, diag::tuple_length(parts.len(), names.len())),
        Value::Node(_) | Value::Weak(_) => {
            let message = several(b, value).unwrap_or_else(|| diag::not_a_tuple(names.len()));
            b.error(at, message)
        }
        Value::Unknown => Value::Unknown,
    };
    names.iter().map(|name| (name, mistake.clone())).collect()
}

fn bind(b: &mut Builder<'_>, env: &mut Env, name: &Name, value: Value) {
    if env.dim(&name.text).is_some() {
        b.error(name.at, diag::name_clash(&name.text, "a dim", "a value"));
    } else if name.text != "_" {
        env.bind(&name.text, value, VarKind::Let);
    }
}

/// Evaluates the assignment `p = given`. `place` is the token of the value and `at` that of the operator.
fn assign(b: &mut Builder<'_>, env: &mut Env, target: &Name, given: Value, (place, at): (At, At)) {
    if target.text == "_" {
        return;
    }
    let Some((_, param)) = assigned(b, env, target) else { return };
    let given = one(b, place, given);
    let stored = super::function::fit_in_place(b, param, given, place, at);
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
fn assigned(b: &mut Builder<'_>, env: &mut Env, target: &Name) -> Option<(Value, ParamId)> {
    let message = match env.var(&target.text) {
        Some(var) => match var.kind {
            VarKind::InPlace(param) => return Some((var.value.clone(), param)),
            VarKind::Param => diag::assign_not_mut(&target.text),
            VarKind::Let => diag::assign_let(&target.text),
        },
        None => {
            let in_place = |var: &&super::build::Var| matches!(var.kind, VarKind::InPlace(_));
            let vars = env.vars.iter().filter(in_place).map(|var| var.name.as_str());
            let near = diag::did_you_mean(&target.text, vars);
            // Binding the name prevents a second message where the name is used.
            env.bind(&target.text, Value::Unknown, VarKind::Let);
            diag::assign_unknown(&target.text, near)
        }
    };
    b.error(target.at, message);
    None
}
