//! `at`, `slice`, `flip`, `roll`, `pad`, `concat`, `take` and windows: elements of a value at other places,
//! without moving data.
//!
//! Each operation computes an index along a dim for every element of its result.
//!
//! Invariant: an index without a condition is always in range. Known extents are checked here, and the others
//! by `Graph::concats` at each call.

mod declare;
mod window;

pub(super) use declare::{declare, extents};

use super::build::{Builder, Env, ExprValue, Form};
use super::expr::single;
use super::value::{common, dtype_of, known, typed, widened};
use super::weak::{self, Weak};
use super::{axes, dims};
use crate::diag::{self, Message};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisId, AxisSet, ConcatDim, Dim, Node, NodeId, NodeKind, SpanId, Use};
use crate::ir::op::Op;
use crate::parse::ast::{Arg, At, Expr, ExprKind};

/// An index operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexOp {
    At,
    Slice,
    Flip,
    Roll,
    Pad,
    Concat,
    Take,
    Unfold,
    Conv,
    ConvTranspose,
    MaxPool,
    AvgPool,
}

impl IndexOp {
    pub(super) fn from_name(name: &str) -> Option<IndexOp> {
        use IndexOp::{
            At, AvgPool, Concat, Conv, ConvTranspose, Flip, MaxPool, Pad, Roll, Slice, Take, Unfold,
        };
        let all = [At, Slice, Flip, Roll, Pad, Concat, Take, Unfold, Conv, ConvTranspose, MaxPool, AvgPool];
        all.into_iter().find(|kind| kind.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            IndexOp::At => "at",
            IndexOp::Slice => "slice",
            IndexOp::Flip => "flip",
            IndexOp::Roll => "roll",
            IndexOp::Pad => "pad",
            IndexOp::Concat => "concat",
            IndexOp::Take => "take",
            IndexOp::Unfold => "unfold",
            IndexOp::Conv => "conv",
            IndexOp::ConvTranspose => "conv_transpose",
            IndexOp::MaxPool => "max_pool",
            IndexOp::AvgPool => "avg_pool",
        }
    }

    /// Returns true for operations on windows.
    fn has_windows(self) -> bool {
        use IndexOp::{AvgPool, Conv, ConvTranspose, MaxPool, Unfold};
        matches!(self, Unfold | Conv | ConvTranspose | MaxPool | AvgPool)
    }

    fn usage(self) -> Message {
        match self {
            IndexOp::At => diag::at_arguments(),
            IndexOp::Slice => diag::slice_arguments(),
            IndexOp::Flip => diag::flip_arguments(),
            IndexOp::Roll => diag::roll_arguments(),
            IndexOp::Pad => diag::pad_arguments(),
            IndexOp::Concat => diag::concat_arguments(),
            IndexOp::Take => diag::take_arguments(),
            IndexOp::Unfold => diag::unfold_arguments(),
            IndexOp::Conv => diag::conv_arguments(),
            IndexOp::ConvTranspose => diag::conv_transpose_arguments(),
            IndexOp::MaxPool | IndexOp::AvgPool => diag::pool_arguments(self.name()),
        }
    }
}

/// Evaluates a call of an index operation.
pub(super) fn index(b: &mut Builder<'_>, env: &mut Env, at: At, kind: IndexOp, args: &[Arg]) -> ExprValue {
    if b.form == Form::AnyShape {
        return b.error(at, diag::inline_needs_dims(kind.name()));
    }
    let span = b.place(at);
    if b.is_full() {
        return b.error_span(span, diag::too_many_terms());
    }
    let mut call = IndexCall { b, env, kind, at, span };
    let value = match kind {
        IndexOp::Unfold => call.unfold(args),
        IndexOp::Conv | IndexOp::ConvTranspose => return call.conv(args).unwrap_or(ExprValue::Unknown),
        IndexOp::MaxPool | IndexOp::AvgPool => return call.pool(args).unwrap_or(ExprValue::Unknown),
        IndexOp::At => call.at(args),
        IndexOp::Slice => call.slice(args),
        IndexOp::Flip => call.flip(args),
        IndexOp::Roll => call.roll(args),
        IndexOp::Pad => call.pad(args),
        IndexOp::Concat => call.concat(args),
        IndexOp::Take => call.take(args),
    };
    known(value)
}

struct IndexCall<'c, 'a> {
    b: &'c mut Builder<'a>,
    env: &'c mut Env,
    kind: IndexOp,
    at: At,
    span: SpanId,
}

/// A value and one of its axes.
struct IndexedAxis {
    id: NodeId,
    axis: AxisId,
    extent: DimExpr,
}

impl IndexCall<'_, '_> {
    fn at(&mut self, args: &[Arg]) -> Option<NodeId> {
        let [x, along, position] = self.plain(args)?;
        let x = self.operand(x, along)?;
        let place = self.amount(position)?;
        let (at, extent) = (place.as_const(), x.extent.as_const());
        if at.is_some_and(|at| at < 0 || extent.is_some_and(|extent| at >= extent)) {
            let symbols = &self.b.graph.symbols;
            let [place, extent] = [&place, &x.extent].map(|e| e.display(symbols).to_string());
            let name = &self.b.graph.axis(x.axis).name;
            let message = match at {
                Some(at @ ..0) => diag::at_negative(place, name, at.unsigned_abs()),
                Some(0..) | None => diag::at_out_of_range(place, name, extent),
            };
            return self.refuse(position.at, message);
        }
        let one = DimExpr::constant(1);
        let next = place.clone() + one.clone();
        let rest = difference(&x.extent, &next);
        let text = place.display(&self.b.graph.symbols).to_string();
        let before = named(format!("..{text}"), place.clone());
        let after = next.as_const().map_or(String::from("rest"), |next| format!("{next}.."));
        let after = named(after, rest);
        let of = Use::Position(text.clone().into());
        self.sum(position.at, x.axis, vec![before, named(text, one), after], of)?;
        let index = self.extent(&place)?;
        self.elements(&x, index, None)
    }

    fn slice(&mut self, args: &[Arg]) -> Option<NodeId> {
        let [x, arrow, range] = self.plain(args)?;
        let (from, to) = self.arrow(arrow)?;
        let ExprKind::Range(start, end) = &range.kind else { return self.misused(range.at) };
        let x = self.operand(x, from)?;
        let start = match start {
            Some(start) => self.amount(start)?,
            None => DimExpr::constant(0),
        };
        let end = match end {
            Some(end) => self.amount(end)?,
            None => x.extent.clone(),
        };
        let [first, last, extent] = [&start, &end, &x.extent].map(DimExpr::as_const);
        if let Some(bound @ ..0) = [first, last].into_iter().flatten().min() {
            let name = &self.b.graph.axis(x.axis).name;
            let message = diag::at_negative(bound, name, bound.unsigned_abs());
            return self.refuse(range.at, message);
        }
        let behind = |a: Option<i64>, b: Option<i64>| a.zip(b).is_some_and(|(a, b)| a > b);
        if behind(first, last) || behind(last, extent) {
            let symbols = &self.b.graph.symbols;
            let [start, end, extent] = [&start, &end, &x.extent].map(|e| e.display(symbols).to_string());
            let name = &self.b.graph.axis(x.axis).name;
            let message = diag::slice_range(start, end, name, extent);
            return self.refuse(range.at, message);
        }
        let length = difference(&end, &start);
        let new = self.new_axis(&x, to, length)?;
        let rest = difference(&x.extent, &end);
        let symbols = &self.b.graph.symbols;
        let [from, to] = [&start, &end].map(|bound| bound.display(symbols).to_string());
        let (before, after) = (format!("..{from}"), format!("{to}.."));
        let part = self.b.graph.axis(new).clone();
        let of = Use::Range(from.into(), to.into());
        self.sum(range.at, x.axis, vec![named(before, start.clone()), part, named(after, rest)], of)?;
        let index = self.shifted(new, Op::Add, &start)?;
        self.elements(&x, index, None)
    }

    fn flip(&mut self, args: &[Arg]) -> Option<NodeId> {
        let [x, along] = self.plain(args)?;
        let x = self.operand(x, along)?;
        self.reaches(&x)?;
        let (extent, one) = (self.extent(&x.extent)?, self.number(1)?);
        let last = self.apply(Op::Sub, &[extent, one]);
        let own = self.coordinate(x.axis)?;
        let index = self.apply(Op::Sub, &[last, own]);
        self.elements(&x, index, None)
    }

    /// Computes the index `(i - distance) mod D` for a distance of either sign. No intermediate result leaves
    /// `i32`.
    fn roll(&mut self, args: &[Arg]) -> Option<NodeId> {
        let [x, along, distance] = self.plain(args)?;
        let x = self.operand(x, along)?;
        let at = distance.at;
        let distance = single(self.b, self.env, distance);
        let is = dtype_of(self.b, &distance)?;
        if is != DType::I32 {
            return self.refuse(at, diag::roll_distance(is));
        }
        let distance = typed(self.b, &distance, is)?;
        self.reaches(&x)?;
        let extent = self.extent(&x.extent)?;
        let rest = self.apply(Op::Rem, &[distance, extent]);
        let distance = self.wrapped(rest, extent)?;
        let own = self.coordinate(x.axis)?;
        let index = self.apply(Op::Sub, &[own, distance]);
        let index = self.wrapped(index, extent)?;
        self.elements(&x, index, None)
    }

    fn pad(&mut self, args: &[Arg]) -> Option<NodeId> {
        let (args, fill) = match args {
            [args @ .., fill] if args.len() == 4 => (args, Some(fill)),
            args => (args, None),
        };
        let is_fill = |arg: &Arg| arg.name.as_ref().is_none_or(|name| name.text == "value");
        if !fill.is_none_or(is_fill) {
            return self.misused(self.at);
        }
        let [x, arrow, before, after] = self.plain(args)?;
        let (from, to) = self.arrow(arrow)?;
        let x = self.operand(x, from)?;
        let mut amounts = Vec::new();
        for amount in [before, after] {
            let extent = self.amount(amount)?;
            if extent.as_const().is_some_and(|extent| extent < 0) {
                return self.refuse(amount.at, diag::pad_negative());
            }
            amounts.push(extent);
        }
        let after = amounts.remove(1);
        let before = amounts.remove(0);
        let whole = self.new_axis(&x, to, before.clone() + x.extent.clone() + after.clone())?;
        let own = self.b.graph.axis(x.axis).clone();
        let symbols = &self.b.graph.symbols;
        let [first, last] = [&before, &after].map(|amount| amount.display(symbols).to_string().into());
        let parts = vec![named("before".into(), before.clone()), own, named("after".into(), after)];
        self.sum(to.at, whole, parts, Use::Padding(first, last))?;
        let index = self.shifted(whole, Op::Sub, &before)?;
        let within = self.inside(index, &x.extent)?;
        let static_index = self.elements(&x, index, Some(within))?;
        let Some(fill) = fill else { return Some(static_index) };
        let (at, dtype) = (fill.value.at, self.b.graph.node(static_index).dtype);
        let fill = single(self.b, self.env, &fill.value);
        let is = dtype_of(self.b, &fill)?;
        let weak_float = matches!(&fill, ExprValue::Weak(number) if number.is_float);
        let fits =
            matches!(fill, ExprValue::Weak(_)) && !(weak_float && dtype.is_int()) && dtype != DType::Bool;
        if common(is, dtype) != Some(dtype) && !fits {
            return self.mixed(at, [dtype, is]);
        }
        let fill = typed(self.b, &fill, dtype)?;
        let fill = widened(self.b, fill, dtype)?;
        let is_zero = |value: Const| match value {
            Const::Float(x) => x == 0.0 && x.is_sign_positive(),
            Const::Int(x) => x == 0,
            Const::Bool(x) => !x,
        };
        if let NodeKind::Literal(value) = self.b.graph.node(fill).kind
            && is_zero(value)
        {
            return Some(static_index);
        }
        Some(self.apply(Op::Select, &[within, static_index, fill]))
    }

    fn concat(&mut self, args: &[Arg]) -> Option<NodeId> {
        let Some((to, parts)) = parts(args) else { return self.misused(self.at) };
        let mut operands: Vec<IndexedAxis> = Vec::new();
        for &(value, along) in &parts {
            let next = self.operand(value, along)?;
            let dtype = |operand: &IndexedAxis| self.b.graph.node(operand.id).dtype;
            let first = operands.first().map_or(dtype(&next), dtype);
            let Some(common) = common(first, dtype(&next)) else {
                let dtypes = [first, dtype(&next)];
                return self.mixed(value.at, dtypes);
            };
            operands.push(next);
            for operand in &mut operands {
                operand.id = widened(self.b, operand.id, common)?;
            }
        }
        let total = operands.iter().map(|operand| operand.extent.clone()).reduce(|sum, next| sum + next)?;
        let mut whole = None;
        for operand in &operands {
            whole = Some(self.new_axis(operand, to, total.clone())?);
        }
        let whole = whole?;
        let names = operands.iter().map(|operand| self.b.graph.axis(operand.axis).clone()).collect();
        self.sum(to.at, whole, names, Use::Concat)?;
        let mut before = DimExpr::constant(0);
        // The elements that each part contributes, and the condition that the place is before the end of the
        // part.
        let mut static_index: Vec<(NodeId, NodeId)> = Vec::new();
        for operand in &operands {
            let index = self.shifted(whole, Op::Sub, &before)?;
            let within = self.inside(index, &operand.extent)?;
            before = before + operand.extent.clone();
            let (own, end) = (self.coordinate(whole)?, self.extent(&before)?);
            let ahead = self.apply(Op::Lt, &[own, end]);
            static_index.push((self.elements(operand, index, Some(within))?, ahead));
        }
        let (mut all, _) = static_index.pop()?;
        while let Some((part, ahead)) = static_index.pop() {
            all = self.apply(Op::Select, &[ahead, part, all]);
        }
        Some(all)
    }

    fn take(&mut self, args: &[Arg]) -> Option<NodeId> {
        let [table, along, ids] = self.plain(args)?;
        let table = self.operand(table, along)?;
        let at = ids.at;
        let ids = single(self.b, self.env, ids);
        let is = dtype_of(self.b, &ids)?;
        if !is.is_int() {
            return self.refuse(at, diag::take_ids(is));
        }
        let mut ids = typed(self.b, &ids, is)?;
        if is != DType::I32 {
            // A `u32` beyond `i32` becomes negative, so an index out of range stays out of range.
            let (axes, span) = (self.b.graph.node(ids).axes, self.span);
            let kind = NodeKind::Cast;
            ids = self.b.push(Node { kind, args: vec![ids], dtype: DType::I32, axes, span })?;
        }
        self.reaches(&table)?;
        let within = self.inside(ids, &table.extent)?;
        let static_index = self.elements(&table, ids, Some(within))?;
        let dtype = self.b.graph.node(static_index).dtype;
        if !dtype.is_float() {
            return Some(static_index);
        }
        let nothing =
            self.b.leaf(NodeKind::Literal(Const::Float(f64::NAN)), dtype, AxisSet::EMPTY, self.span)?;
        Some(self.apply(Op::Select, &[within, static_index, nothing]))
    }

    /// Returns the arguments, if there are exactly `N` and none has a name.
    fn plain<'e, const N: usize>(&mut self, args: &'e [Arg]) -> Option<[&'e Expr; N]> {
        let plain: Vec<&Expr> = args.iter().filter(|arg| arg.name.is_none()).map(|arg| &arg.value).collect();
        match <[&Expr; N]>::try_from(plain) {
            Ok(plain) if args.len() == N => Some(plain),
            Ok(_) | Err(_) => self.misused(self.at),
        }
    }

    fn arrow<'e>(&mut self, e: &'e Expr) -> Option<(&'e Expr, &'e Expr)> {
        match &e.kind {
            ExprKind::Arrow(from, to) => Some((from, to)),
            _ => self.misused(e.at),
        }
    }

    /// Evaluates a value and one dim that the value must have.
    fn operand(&mut self, value: &Expr, along: &Expr) -> Option<IndexedAxis> {
        let number = single(self.b, self.env, value);
        self.along(&number, along)
    }

    /// Finds one dim that a value must have.
    fn along(&mut self, number: &ExprValue, along: &Expr) -> Option<IndexedAxis> {
        let (name, usage) = (self.b.called(self.kind.name()), self.kind.usage());
        let axis = dims::one(self.b, self.env, along, &name, &usage)?;
        let dtype = dtype_of(self.b, number)?;
        let id = typed(self.b, number, dtype)?;
        let id = axes::joined(self.b, id, AxisSet::EMPTY.with(axis));
        let has = self.b.graph.node(id).axes;
        if !has.contains(axis) {
            let message = self.b.lacks(axis, has);
            return self.refuse(along.at, message);
        }
        Some(IndexedAxis { id, axis, extent: self.b.graph.axis(axis).extent.clone() })
    }

    /// Reports two dtypes that do not meet.
    fn mixed<T>(&mut self, at: At, [first, second]: [DType; 2]) -> Option<T> {
        let message = match [first, second].contains(&DType::Bool) {
            true => diag::number_and_bool(self.kind.name()),
            false => diag::mixed_arguments(first, second),
        };
        self.refuse(at, message)
    }

    /// Evaluates a number of elements, which must be computed from extents.
    fn amount(&mut self, e: &Expr) -> Option<DimExpr> {
        let value = single(self.b, self.env, e);
        let extent = match &value {
            ExprValue::Unknown => return None,
            ExprValue::Weak(number) => weak::as_extent(number),
            ExprValue::Node(_) | ExprValue::Tuple(_) => None,
        };
        match extent {
            Some(extent) => Some(extent),
            None if self.kind == IndexOp::At => self.refuse(e.at, diag::at_position()),
            None => self.refuse(e.at, diag::amount(self.kind.name())),
        }
    }

    /// Returns the axis of the result, which has this extent and must be new to the operand.
    fn new_axis(&mut self, operand: &IndexedAxis, to: &Expr, extent: DimExpr) -> Option<AxisId> {
        let name = match &to.kind {
            ExprKind::Name(name) => name.clone(),
            ExprKind::Int(extent, None) => extent.to_string(),
            _ => return self.misused(to.at),
        };
        let is_value = self.env.var(&name).is_some();
        if is_value || self.env.dim(&name).is_none() && matches!(to.kind, ExprKind::Name(_)) {
            return axes::new_dim(self.b, self.env, to, extent);
        }
        let usage = self.kind.usage();
        let axis = dims::one(self.b, self.env, to, self.kind.name(), &usage)?;
        if self.b.graph.node(operand.id).axes.contains(axis) {
            return self.refuse(to.at, diag::index_taken(self.kind.name(), name));
        }
        let is = self.b.graph.axis(axis).extent.as_const();
        if let (Some(is), Some(wants)) = (is, extent.as_const())
            && is != wants
        {
            return self.refuse(to.at, diag::index_extent(self.kind.name(), name, wants, is));
        }
        Some(axis)
    }

    /// Records a call-time check that the extents of consecutive parts add up to the extent of the whole.
    fn sum(&mut self, at: At, whole: AxisId, parts: Vec<Dim>, of: Use) -> Option<()> {
        let total = parts.iter().map(|part| part.extent.clone()).reduce(|sum, next| sum + next)?;
        let axis = self.b.graph.axis(whole);
        if let (Some(is), Some(wants)) = (axis.extent.as_const(), total.as_const()) {
            if is != wants {
                let name = axis.name.clone();
                return self.refuse(at, diag::index_extent(self.kind.name(), name, wants, is));
            }
            return Some(());
        }
        let whole = axis.clone();
        self.b.graph.check(ConcatDim { whole, parts: parts.into(), of });
        Some(())
    }

    /// Records a call-time check that coordinates along a dim fit `i32`.
    fn reaches(&mut self, operand: &IndexedAxis) -> Option<()> {
        let own = self.b.graph.axis(operand.axis).clone();
        let of = Use::Coordinates(self.b.called(self.kind.name()));
        self.sum(self.at, operand.axis, vec![own], of)
    }

    /// Returns the coordinate along an axis, shifted by a distance.
    fn shifted(&mut self, axis: AxisId, op: Op, distance: &DimExpr) -> Option<NodeId> {
        let own = self.coordinate(axis)?;
        if distance.as_const() == Some(0) {
            return Some(own);
        }
        let distance = self.extent(distance)?;
        Some(self.apply(op, &[own, distance]))
    }

    /// Computes `i`, or `i + extent` if `i` is negative.
    fn wrapped(&mut self, i: NodeId, extent: NodeId) -> Option<NodeId> {
        let zero = self.number(0)?;
        let (below, above) = (self.apply(Op::Lt, &[i, zero]), self.apply(Op::Add, &[i, extent]));
        Some(self.apply(Op::Select, &[below, above, i]))
    }

    /// Computes the condition `0 <= index < extent`.
    fn inside(&mut self, index: NodeId, extent: &DimExpr) -> Option<NodeId> {
        let (zero, end) = (self.number(0)?, self.extent(extent)?);
        let (from, to) = (self.apply(Op::Ge, &[index, zero]), self.apply(Op::Lt, &[index, end]));
        Some(self.apply(Op::And, &[from, to]))
    }

    fn elements(&mut self, of: &IndexedAxis, index: NodeId, within: Option<NodeId>) -> Option<NodeId> {
        let by: Vec<NodeId> = [index].into_iter().chain(within).collect();
        axes::elements(self.b, (of.id, of.axis), &by, self.span)
    }

    fn coordinate(&mut self, axis: AxisId) -> Option<NodeId> {
        self.b.leaf(NodeKind::Coord(axis), DType::I32, AxisSet::EMPTY.with(axis), self.span)
    }

    fn extent(&mut self, extent: &DimExpr) -> Option<NodeId> {
        weak::resolve(self.b, &Weak::extent(extent.clone(), self.span), DType::I32)
    }

    fn number(&mut self, value: i64) -> Option<NodeId> {
        self.extent(&DimExpr::constant(value))
    }

    fn apply(&mut self, op: Op, args: &[NodeId]) -> NodeId {
        self.b.graph.apply(op, args, self.span)
    }

    fn misused<T>(&mut self, at: At) -> Option<T> {
        let usage = self.kind.usage();
        self.refuse(at, usage)
    }

    fn refuse<T>(&mut self, at: At, message: Message) -> Option<T> {
        self.b.error(at, message);
        None
    }
}

/// Splits `(x, A), (y, B) -> D` into `D` and the pairs. There must be at least two pairs.
fn parts(args: &[Arg]) -> Option<(&Expr, Vec<(&Expr, &Expr)>)> {
    let (last, first) = args.split_last()?;
    let ExprKind::Arrow(last, to) = &last.value.kind else { return None };
    let all = first.iter().map(|arg| &arg.value).chain([&**last]);
    let mut pairs = Vec::new();
    for e in all {
        let ExprKind::Tuple(pair) = &e.kind else { return None };
        let [value, along] = pair.as_slice() else { return None };
        pairs.push((value, along));
    }
    let plain = args.iter().all(|arg| arg.name.is_none());
    (plain && pairs.len() > 1).then_some((to, pairs))
}

fn named(name: String, extent: DimExpr) -> Dim {
    Dim { name: name.into(), extent }
}

fn difference(a: &DimExpr, b: &DimExpr) -> DimExpr {
    if a == b { DimExpr::constant(0) } else { a.clone() - b.clone() }
}
