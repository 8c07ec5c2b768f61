//! `unfold`, `conv`, `conv_transpose`, `max_pool` and `avg_pool`: windows along dims.
//!
//! A window `(H, KH) -> P` puts two dims in the place of `H`: the positions `P` of the window, and its taps `KH`.
//! Position `p` has tap `k` at `p · stride + k · dilation - before`, and 0 where that is padding. All else is
//! arithmetic of such values: a convolution is a sum of products along taps and channels, and a pool combines taps.

use super::super::build::ExprValue;
use super::super::expr::{Snippet, apply, single};
use super::super::reduce::{ReduceKind, combine};
use super::super::split::{is_possible, sized};
use super::super::value::{dtype_of, typed};
use super::super::{dims, matmul};
use super::{IndexCall, IndexOp, IndexedAxis, difference, named};
use crate::diag;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{AXES_MAX, AxisId, AxisSet, ConcatDim, Dim, NodeId, NodeKind, Reduce, Use};
use crate::ir::op::Op;
use crate::parse::ast::{Arg, Expr, ExprKind};

/// The arguments of an operation on windows.
pub(super) struct WindowArgs<'e> {
    /// Arguments that are neither windows nor options.
    plain: Vec<&'e Expr>,
    windows: Vec<WindowExpr<'e>>,
    options: Vec<(&'e str, &'e Expr)>,
}

/// `(H, KH) -> P` with its options.
pub(super) struct WindowExpr<'e> {
    dim: &'e Expr,
    taps: &'e Expr,
    to: &'e Expr,
}

/// The options of one window, as far as they are given.
struct Options<'e> {
    stride: Option<&'e Expr>,
    padding: Option<&'e Expr>,
    dilation: Option<&'e Expr>,
    output_padding: Option<&'e Expr>,
}

/// An option with another number of entries than the call has windows.
struct EntryMismatch<'e> {
    option: &'e str,
    value: &'e Expr,
    count: usize,
}

/// The elements that a window covers.
struct Geometry {
    stride: DimExpr,
    dilation: DimExpr,
    /// Elements of padding before and after the dim.
    before: DimExpr,
    after: DimExpr,
    /// Elements from the first tap to the last one.
    span: DimExpr,
    /// Number of positions.
    count: DimExpr,
}

/// A value with windows along some dims.
struct Windows {
    value: NodeId,
    taps: Vec<AxisId>,
    /// Dims of the positions.
    positions: Vec<AxisId>,
    /// True where all taps are elements, none of them padding. None if there is no padding.
    within: Option<NodeId>,
}

impl<'e> WindowArgs<'e> {
    /// Takes arguments apart. Returns none if a window is not of the form `(H, KH) -> P`.
    pub(super) fn new(args: &'e [Arg]) -> Option<WindowArgs<'e>> {
        let mut all = WindowArgs { plain: vec![], windows: vec![], options: vec![] };
        for Arg { name, value } in args {
            match (name, &value.kind) {
                (Some(name), _) => all.options.push((&name.text, value)),
                (None, ExprKind::Arrow(from, to)) => {
                    let ExprKind::Tuple(pair) = &from.kind else { return None };
                    let [dim, taps] = pair.as_slice() else { return None };
                    all.windows.push(WindowExpr { dim, taps, to });
                }
                (None, _) => all.plain.push(value),
            }
        }
        (!all.windows.is_empty()).then_some(all)
    }

    /// Returns the options of the window of this number. A tuple has an entry for each window.
    fn options(&self, number: usize) -> Result<Options<'e>, EntryMismatch<'e>> {
        let of = |option: &'static str| {
            let given = self.options.iter().find(|(name, _)| *name == option);
            let Some(&(name, value)) = given else { return Ok(None) };
            match &value.kind {
                ExprKind::Tuple(entries) if entries.len() == self.windows.len() => Ok(Some(&entries[number])),
                ExprKind::Tuple(entries) => Err(EntryMismatch { option: name, value, count: entries.len() }),
                _ => Ok(Some(value)),
            }
        };
        Ok(Options {
            stride: of("stride")?,
            padding: of("padding")?,
            dilation: of("dilation")?,
            output_padding: of("output_padding")?,
        })
    }
}

impl Geometry {
    /// Computes the elements of a window of so many taps along a dim of this extent. `of` evaluates numbers.
    fn new(
        kind: IndexOp,
        [extent, taps]: [&DimExpr; 2],
        options: &Options<'_>,
        of: &mut impl FnMut(&Expr) -> Option<DimExpr>,
    ) -> Option<Geometry> {
        let one = || DimExpr::constant(1);
        let mut or = |option: Option<&Expr>, default: DimExpr| option.map_or(Some(default), &mut *of);
        // Windows of pools lie side by side unless a stride says otherwise, as in PyTorch.
        let default = if kind.is_pool() { taps.clone() } else { one() };
        let (stride, dilation) = (or(options.stride, default)?, or(options.dilation, one())?);
        let more = or(options.output_padding, DimExpr::constant(0))?;
        let span = match dilation.as_const() {
            Some(1) => taps.clone(),
            _ => dilation.clone() * difference(taps, &one()) + one(),
        };
        if options.padding.is_some_and(is_same) {
            return Some(Geometry::same(extent, (stride, dilation), span));
        }
        let (before, after) = match options.padding.map(|padding| &padding.kind) {
            None => (DimExpr::constant(0), DimExpr::constant(0)),
            Some(ExprKind::Tuple(sides)) => {
                let [before, after] = sides.as_slice() else { return None };
                (of(before)?, of(after)?)
            }
            Some(_) => {
                let both = of(options.padding?)?;
                (both.clone(), both)
            }
        };
        let padding = before.clone() + after.clone();
        let count = if kind == IndexOp::ConvTranspose {
            // The span of the first position, and a stride for each other one.
            let each = extent.clone() * stride.clone();
            plus(each, &difference(&(span.clone() + more), &(stride.clone() + padding)))
        } else if stride.as_const() == Some(1) {
            plus(extent.clone(), &(difference(&padding, &span) + one()))
        } else {
            plus(extent.clone(), &difference(&padding, &span)) / stride.clone() + one()
        };
        Some(Geometry { stride, dilation, before, after, span, count })
    }

    /// Computes the padding with which there is a position for each stride, the odd element of it after the dim
    /// (ONNX, `SAME_UPPER`).
    fn same(extent: &DimExpr, (stride, dilation): (DimExpr, DimExpr), span: DimExpr) -> Geometry {
        let (zero, one) = (DimExpr::constant(0), DimExpr::constant(1));
        let (count, all) = if stride == one {
            (extent.clone(), difference(&span, &one))
        } else {
            let count = extent.clone().ceil_div(stride.clone());
            let last = difference(&count, &one) * stride.clone();
            (count, difference(&(last + span.clone()), extent))
        };
        let all = difference(&all, &all.clone().min(zero));
        let before = all.clone() / DimExpr::constant(2);
        let after = difference(&all, &before);
        Geometry { stride, dilation, before, after, span, count }
    }
}

/// Returns a sum without a negative constant.
fn plus(extent: DimExpr, more: &DimExpr) -> DimExpr {
    match more.as_const() {
        Some(less @ ..0) => extent - DimExpr::constant(-less),
        _ => extent + more.clone(),
    }
}

fn is_same(padding: &Expr) -> bool {
    matches!(&padding.kind, ExprKind::Name(name) if name == "same")
}

/// Returns the names and extents of the dims that the windows of a call make, as far as these follow from names
/// alone.
pub(super) fn declared(
    kind: IndexOp,
    args: &[Arg],
    mut of: impl FnMut(&Expr) -> Option<DimExpr>,
) -> Vec<(String, DimExpr)> {
    let Some(args) = WindowArgs::new(args) else { return vec![] };
    let mut all = Vec::new();
    for (i, WindowExpr { dim, taps, to }) in args.windows.iter().enumerate() {
        let (Ok(options), Some(extent)) = (args.options(i), of(dim)) else { continue };
        let taps = match &taps.kind {
            ExprKind::Sized(name, extent) => {
                let extent = i64::try_from(*extent).ok().map(DimExpr::constant);
                all.extend(extent.clone().map(|extent| (name.clone(), extent)));
                extent
            }
            ExprKind::Int(extent, None) => i64::try_from(*extent).ok().map(DimExpr::constant),
            _ => of(taps),
        };
        let Some(taps) = taps else { continue };
        let geometry = Geometry::new(kind, [&extent, &taps], &options, &mut of);
        if let (Some(geometry), ExprKind::Name(name)) = (geometry, &to.kind) {
            all.push((name.clone(), geometry.count));
        }
    }
    all
}

impl IndexOp {
    fn is_pool(self) -> bool {
        matches!(self, IndexOp::MaxPool | IndexOp::AvgPool)
    }

    /// Returns the names of the options.
    fn options(self) -> &'static [&'static str] {
        match self {
            IndexOp::ConvTranspose => &["stride", "padding", "dilation", "output_padding"],
            _ => &["stride", "padding", "dilation"],
        }
    }
}

impl IndexCall<'_, '_> {
    /// Evaluates `unfold(x, (H, KH) -> P)`.
    pub(super) fn unfold(&mut self, args: &[Arg]) -> Option<NodeId> {
        let args = self.window_args(args)?;
        let [x] = args.plain[..] else { return self.misused(self.at) };
        let x = single(self.b, self.env, x);
        Some(self.windows(&x, &args)?.value)
    }

    /// Evaluates `conv(x, w, C, (H, KH) -> P)` or `conv_transpose(…)`.
    pub(super) fn conv(&mut self, args: &[Arg]) -> Option<ExprValue> {
        let args = self.window_args(args)?;
        let ([x, w], dims) = match args.plain[..] {
            [x, w] => ([x, w], None),
            [x, w, dims] => ([x, w], Some(dims)),
            _ => return self.misused(self.at),
        };
        let (of_x, of_w) = (Snippet::of(x), Snippet::of(w));
        let x = single(self.b, self.env, x);
        let w = single(self.b, self.env, w);
        let (name, usage) = (self.kind.name(), self.kind.usage());
        let channels = match dims {
            Some(dims) => dims::argument(self.b, self.env, dims, name, &usage)?,
            None => vec![],
        };
        let Windows { value, taps, .. } = self.windows(&x, &args)?;
        let summed: AxisSet = channels.iter().chain(&taps).copied().collect();
        let factors = [ExprValue::Node(value), w];
        let ExprValue::Tuple(factors) = matmul::factors_of(self.b, (self.at, name), factors, summed) else {
            return None;
        };
        let factors = factors.into_iter().zip([of_x, of_w]).collect();
        let ExprValue::Node(product) = apply(self.b, self.at, Op::Mul, name, factors) else { return None };
        let order: Vec<AxisId> = summed.iter().collect();
        Some(combine(self.b, self.at, ReduceKind::Combine(Reduce::Sum), product, &order))
    }

    /// Evaluates `max_pool(x, (H, 2) -> P)` or `avg_pool(…)`.
    pub(super) fn pool(&mut self, args: &[Arg]) -> Option<ExprValue> {
        let args = self.window_args(args)?;
        let [x] = args.plain[..] else { return self.misused(self.at) };
        let x = single(self.b, self.env, x);
        let Windows { value, taps, within, .. } = self.windows(&x, &args)?;
        if self.kind == IndexOp::AvgPool {
            let dtype = self.b.graph.node(value).dtype;
            if !dtype.is_float() {
                return self.refuse(self.at, diag::wants_float(self.kind.name(), dtype));
            }
            return Some(combine(self.b, self.at, ReduceKind::Mean, value, &taps));
        }
        let dtype = self.b.graph.node(value).dtype;
        let value = match within {
            Some(within) => {
                let least = NodeKind::Literal(Reduce::Max.identity(dtype));
                let least = self.b.leaf(least, dtype, AxisSet::EMPTY, self.span)?;
                self.apply(Op::Select, &[within, value, least])
            }
            None => value,
        };
        Some(combine(self.b, self.at, ReduceKind::Combine(Reduce::Max), value, &taps))
    }

    fn window_args<'e>(&mut self, args: &'e [Arg]) -> Option<WindowArgs<'e>> {
        let known = self.kind.options();
        let unknown = args.iter().filter_map(|arg| arg.name.as_ref());
        if let Some(name) = unknown.into_iter().find(|name| !known.contains(&name.text.as_str())) {
            return self.misused(name.at);
        }
        for (i, arg) in args.iter().enumerate() {
            let Some(name) = &arg.name else { continue };
            let is_same = |other: &Arg| other.name.as_ref().is_some_and(|other| other.text == name.text);
            if args[..i].iter().any(is_same) {
                return self.refuse(arg.value.at, diag::argument_twice(&name.text));
            }
        }
        match WindowArgs::new(args) {
            Some(args) => Some(args),
            None => self.misused(self.at),
        }
    }

    /// Computes the windows of a value along all dims.
    fn windows(&mut self, x: &ExprValue, args: &WindowArgs<'_>) -> Option<Windows> {
        let dtype = dtype_of(self.b, x)?;
        if self.kind.is_pool() && dtype == DType::Bool {
            return self.refuse(self.at, diag::wants_number(self.kind.name(), dtype));
        }
        let mut all =
            Windows { value: typed(self.b, x, dtype)?, taps: vec![], positions: vec![], within: None };
        for (i, window) in args.windows.iter().enumerate() {
            let options = match args.options(i) {
                Ok(options) => options,
                Err(EntryMismatch { option, value, count }) => {
                    let message = diag::window_entries(option, count, args.windows.len());
                    return self.refuse(value.at, message);
                }
            };
            self.window(&mut all, window, &options)?;
        }
        Some(all)
    }

    /// Puts the positions and the taps of a window in the place of a dim.
    fn window(&mut self, all: &mut Windows, window: &WindowExpr<'_>, options: &Options<'_>) -> Option<()> {
        let x = self.along(&ExprValue::Node(all.value), window.dim)?;
        if all.taps.iter().chain(&all.positions).any(|made| *made == x.axis) {
            let name = self.b.graph.axis(x.axis).name.clone();
            return self.refuse(window.dim.at, diag::window_of_window(self.kind.name(), name));
        }
        let taps = self.taps(window.taps, &x)?;
        let extent = self.b.graph.axis(taps).extent.clone();
        let padding = options.padding.filter(|padding| !is_same(padding));
        let sides = match padding.map(|padding| &padding.kind) {
            Some(ExprKind::Tuple(sides)) if sides.len() != 2 => {
                return self.refuse(padding?.at, diag::window_padding());
            }
            Some(ExprKind::Tuple(sides)) => sides.iter().collect(),
            Some(_) => vec![padding?],
            None if options.padding.is_some() && self.kind == IndexOp::ConvTranspose => {
                return self.refuse(options.padding?.at, diag::transposed_padding());
            }
            None => vec![],
        };
        for side in sides {
            self.at_least(0, "padding", Some(side))?;
        }
        self.at_least(0, "output_padding", options.output_padding)?;
        self.at_least(1, "stride", options.stride)?;
        self.at_least(1, "dilation", options.dilation)?;
        let kind = self.kind;
        let of = &mut |e: &Expr| self.amount(e);
        let geometry = Geometry::new(kind, [&x.extent, &extent], options, of)?;
        let to = self.positions(&x, window, (taps, &geometry))?;
        if to == taps {
            let name = self.b.graph.axis(to).name.clone();
            return self.refuse(window.to.at, diag::index_taken(self.kind.name(), name));
        }
        let (index, within) = if self.kind == IndexOp::ConvTranspose {
            self.transposed_index(&x, (to, taps), &geometry)?
        } else {
            self.window_index(&x, (to, taps), &geometry)?
        };
        all.value = self.elements(&x, index, within)?;
        all.taps.push(taps);
        all.positions.push(to);
        all.within = match (all.within, within) {
            (Some(before), Some(own)) => Some(self.apply(Op::And, &[before, own])),
            (before, own) => before.or(own),
        };
        Some(())
    }

    /// Checks that an option is not less than a number, now or at each call.
    fn at_least(&mut self, least: i64, option: &'static str, value: Option<&Expr>) -> Option<()> {
        let Some(value) = value else { return Some(()) };
        let extent = self.amount(value)?;
        if extent.as_const().is_some_and(|extent| extent < least) {
            let message = diag::window_least(self.kind.name(), least);
            return self.refuse(value.at, message);
        }
        if extent.as_const().is_none() {
            let least = DimExpr::constant(least);
            let rest = difference(&extent, &least);
            self.b.graph.check(ConcatDim {
                whole: named(option.into(), extent),
                parts: vec![named("least".into(), least), named("rest".into(), rest)].into(),
                of: Use::Option(self.kind.name().into()),
            });
        }
        Some(())
    }

    /// Returns the axis of the taps. A number of taps has an axis without a name.
    fn taps(&mut self, taps: &Expr, x: &IndexedAxis) -> Option<AxisId> {
        let axis = match &taps.kind {
            ExprKind::Int(count @ 1.., None) if self.kind.is_pool() => {
                is_possible(self.b, taps.at, *count)?;
                if self.b.graph.axes.len() >= AXES_MAX {
                    return self.refuse(taps.at, diag::too_many_dims(AXES_MAX));
                }
                self.b.axis(&count.to_string(), DimExpr::constant(i64::try_from(*count).ok()?))
            }
            ExprKind::Sized(name, _) => {
                sized(self.b, self.env, taps)?;
                let name = Expr { kind: ExprKind::Name(name.clone()), ..taps.clone() };
                let usage = self.kind.usage();
                dims::one(self.b, self.env, &name, self.kind.name(), &usage)?
            }
            _ => {
                let usage = self.kind.usage();
                dims::one(self.b, self.env, taps, self.kind.name(), &usage)?
            }
        };
        if self.b.graph.node(x.id).axes.contains(axis) {
            let name = self.b.graph.axis(axis).name.clone();
            return self.refuse(taps.at, diag::index_taken(self.kind.name(), name));
        }
        Some(axis)
    }

    /// Returns the axis of the positions of a window, after checks of all extents.
    fn positions(
        &mut self,
        x: &IndexedAxis,
        window: &WindowExpr<'_>,
        (taps, geometry): (AxisId, &Geometry),
    ) -> Option<AxisId> {
        let Geometry { before, after, span, count, .. } = geometry;
        let function = self.kind.name();
        let own = self.b.graph.axis(x.axis).name.clone();
        if self.kind != IndexOp::ConvTranspose {
            let whole = plus(x.extent.clone(), &(before.clone() + after.clone()));
            let rest = difference(&whole, span);
            if rest.as_const().is_some_and(|rest| rest < 0) {
                let symbols = &self.b.graph.symbols;
                let [whole, span] = [&whole, span].map(|extent| extent.display(symbols).to_string());
                return self.refuse(window.dim.at, diag::window_too_long(function, own, span, whole));
            }
            let window = Dim { name: self.b.graph.axis(taps).name.clone(), extent: span.clone() };
            let parts = vec![window, named("rest".into(), rest)];
            self.b.graph.check(ConcatDim {
                whole: Dim { name: own, extent: whole },
                parts: parts.into(),
                of: Use::Window(function.into()),
            });
        }
        let to = self.new_axis(x, window.to, count.clone())?;
        self.sum(
            window.to.at,
            to,
            vec![named("positions".into(), count.clone())],
            Use::Window(function.into()),
        )?;
        Some(to)
    }

    /// Computes `p · stride + k · dilation - before`, and the condition that an element is there.
    fn window_index(
        &mut self,
        x: &IndexedAxis,
        (to, taps): (AxisId, AxisId),
        geometry: &Geometry,
    ) -> Option<(NodeId, Option<NodeId>)> {
        let Geometry { stride, dilation, before, after, .. } = geometry;
        let first = self.scaled(to, stride)?;
        let ahead = self.scaled(taps, dilation)?;
        let index = self.apply(Op::Add, &[first, ahead]);
        let is_zero = |amount: &DimExpr| amount.as_const() == Some(0);
        if is_zero(before) && is_zero(after) {
            return Some((index, None));
        }
        let index = if is_zero(before) {
            index
        } else {
            let before = self.extent(before)?;
            self.apply(Op::Sub, &[index, before])
        };
        let within = self.inside(index, &x.extent)?;
        Some((index, Some(within)))
    }

    /// Computes `(p + before - k · dilation) / stride`, and the condition that this is an element.
    fn transposed_index(
        &mut self,
        x: &IndexedAxis,
        (to, taps): (AxisId, AxisId),
        geometry: &Geometry,
    ) -> Option<(NodeId, Option<NodeId>)> {
        let Geometry { stride, dilation, before, .. } = geometry;
        let place = self.shifted(to, Op::Add, before)?;
        let ahead = self.scaled(taps, dilation)?;
        let place = self.apply(Op::Sub, &[place, ahead]);
        if stride.as_const() == Some(1) {
            let within = self.inside(place, &x.extent)?;
            return Some((place, Some(within)));
        }
        let (step, zero) = (self.extent(stride)?, self.number(0)?);
        let [index, rest] = [Op::Div, Op::Rem].map(|op| self.apply(op, &[place, step]));
        let whole = self.apply(Op::Eq, &[rest, zero]);
        // The quotient of a negative place near 0 is 0.
        let from = self.apply(Op::Ge, &[place, zero]);
        let end = self.extent(&x.extent)?;
        let to = self.apply(Op::Lt, &[index, end]);
        let within = [from, to].into_iter().fold(whole, |all, one| self.apply(Op::And, &[all, one]));
        Some((index, Some(within)))
    }

    /// Returns the coordinate along an axis, times a number.
    fn scaled(&mut self, axis: AxisId, by: &DimExpr) -> Option<NodeId> {
        let own = self.coordinate(axis)?;
        if by.as_const() == Some(1) {
            return Some(own);
        }
        let by = self.extent(by)?;
        Some(self.apply(Op::Mul, &[own, by]))
    }
}
