//! Operations on values, which meet in a common dtype.

use std::fmt;

use super::super::build::{Builder, ExprValue};
use super::super::value::{common, dtype_of, known, typed, widened};
use super::super::weak::{self, Weak};
use crate::diag;
use crate::ir::dtype::DType;
use crate::ir::graph::NodeId;
use crate::ir::op::{Op, Typing};
use crate::parse::ast::{At, Expr, ExprKind};

/// An operand in a message: its place, and its text if short enough to repeat.
#[derive(Clone, Copy)]
pub(in crate::check) struct Snippet<'e> {
    pub(in crate::check) at: At,
    pub(super) kind: Option<&'e ExprKind>,
}

impl<'e> Snippet<'e> {
    pub(in crate::check) fn of(e: &'e Expr) -> Snippet<'e> {
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
pub(in crate::check) fn apply(
    b: &mut Builder<'_>,
    at: At,
    op: Op,
    what: &'static str,
    args: Vec<(ExprValue, Snippet<'_>)>,
) -> ExprValue {
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
    let Some(ids) = ids else { return ExprValue::Unknown };
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

fn as_weak(value: &ExprValue) -> Option<Weak> {
    match value {
        ExprValue::Weak(number) => Some(number.clone()),
        ExprValue::Node(_) | ExprValue::Tuple(_) | ExprValue::Unknown => None,
    }
}

fn resolve_all(b: &mut Builder<'_>, args: &[(ExprValue, Snippet<'_>)], dtype: DType) -> Option<Vec<NodeId>> {
    args.iter().map(|(value, _)| typed(b, value, dtype)).collect()
}

/// Converts operands to one dtype, the common dtype of the typed operands.
fn meet(b: &mut Builder<'_>, at: At, what: &str, args: &[(ExprValue, Snippet<'_>)]) -> Option<Vec<NodeId>> {
    if args.iter().any(|(value, _)| matches!(value, ExprValue::Unknown | ExprValue::Tuple(_))) {
        return None;
    }
    let has_dtype = |value: &ExprValue| matches!(value, ExprValue::Node(_));
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

/// Selects one of two values of the same kind by a condition.
pub(in crate::check) fn pick(
    b: &mut Builder<'_>,
    at: At,
    test: NodeId,
    sides: [ExprValue; 2],
    tails: [Snippet<'_>; 2],
) -> ExprValue {
    let span = b.place(at);
    match sides {
        [ExprValue::Tuple(left), ExprValue::Tuple(right)] if left.len() == right.len() => {
            let pairs = left.into_iter().zip(right);
            ExprValue::Tuple(pairs.map(|(left, right)| pick(b, at, test, [left, right], tails)).collect())
        }
        [ExprValue::Unknown, _] | [_, ExprValue::Unknown] => ExprValue::Unknown,
        [ExprValue::Tuple(_), _] | [_, ExprValue::Tuple(_)] => b.error(at, diag::tuple_branches()),
        [ExprValue::Weak(left), ExprValue::Weak(right)] => weak::select(b, test, [left, right], span),
        sides => {
            if let [Some(left), Some(right)] = [dtype_of(b, &sides[0]), dtype_of(b, &sides[1])]
                && common(left, right).is_none()
                && left != DType::Bool
                && right != DType::Bool
                && sides.iter().all(|side| matches!(side, ExprValue::Node(_)))
            {
                return b
                    .error(at, diag::mixed_branches(left, right, mend((left, tails[0]), (right, tails[1]))));
            }
            let args: Vec<(ExprValue, Snippet<'_>)> = sides.into_iter().zip(tails).collect();
            let Some(ids) = meet(b, at, "if", &args) else { return ExprValue::Unknown };
            if b.is_full() {
                return b.error_span(span, diag::too_many_terms());
            }
            known(b.apply(Op::Select, &[test, ids[0], ids[1]], span))
        }
    }
}
