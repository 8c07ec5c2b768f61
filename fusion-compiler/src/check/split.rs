//! `split(x, C -> (H, D))` and `merge(x, (H, D) -> C)`: one dim for several and the reverse, without moving
//! data.
//!
//! While a body is checked, both operations give a value with other dims. `refine` then replaces the whole by
//! its parts everywhere, which makes both operations no-ops. Tensors with the whole are read and written as
//! if they had the parts.
//!
//! Invariant: each whole has one list of parts in a function, and each call checks the extents.

use super::build::{Builder, Env, ExprValue, Form};
use super::expr::single;
use super::value::{dtype_of, known, typed};
use super::{axes, dims, weak};
use crate::diag;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AXES_MAX, AxisId, AxisSet, Graph, Library, Node, NodeId, NodeKind, SpanId, SplitDim};
use crate::ir::op::Op;
use crate::parse::ast::{Arg, At, Expr, ExprKind};

/// A regrouping operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Regrouping {
    Split,
    Merge,
}

impl Regrouping {
    fn name(self) -> &'static str {
        match self {
            Regrouping::Split => "split",
            Regrouping::Merge => "merge",
        }
    }

    fn usage(self) -> diag::Message {
        match self {
            Regrouping::Split => diag::split_arguments(),
            Regrouping::Merge => diag::merge_arguments(),
        }
    }
}

/// Evaluates `split(x, C -> (H, D))` or `merge(x, (H, D) -> C)`.
pub(super) fn regroup(
    b: &mut Builder<'_>,
    env: &mut Env,
    at: At,
    way: Regrouping,
    args: &[Arg],
) -> ExprValue {
    if b.form == Form::AnyShape {
        return b.error(at, diag::inline_needs_dims(way.name()));
    }
    let [Arg { name: None, value: operand }, Arg { name: None, value: arrow }] = args else {
        return b.error(at, way.usage());
    };
    let ExprKind::Arrow(from, to) = &arrow.kind else { return b.error(arrow.at, way.usage()) };
    let value = single(b, env, operand);
    let (one, several) = match way {
        Regrouping::Split => (from, to),
        Regrouping::Merge => (to, from),
    };
    let Some(split) = axes(b, env, way, one, several) else { return ExprValue::Unknown };
    let Some(dtype) = dtype_of(b, &value) else { return ExprValue::Unknown };
    let Some(id) = typed(b, &value, dtype) else { return ExprValue::Unknown };
    let parts: AxisSet = split.parts.iter().copied().collect();
    let whole = AxisSet::EMPTY.with(split.whole);
    let (gone, new) = match way {
        Regrouping::Split => (whole, parts),
        Regrouping::Merge => (parts, whole),
    };
    let id = axes::joined(b, id, gone);
    let has = b.graph.node(id).axes;
    if let Some(axis) = gone.minus(has).iter().next() {
        let message = b.lacks(axis, has);
        return b.error(from.at, message);
    }
    if !register(b, &split) {
        let name = &b.graph.axis(split.whole).name;
        let message = match &split.library {
            Some(Library { function, .. }) => diag::groups_twice(function, name),
            None => diag::split_twice(name),
        };
        return b.error(arrow.at, message);
    }
    let elements = |axes: &[AxisId]| {
        let mut extents = axes.iter().map(|&axis| &b.graph.axis(axis).extent);
        // A quotient of extents is undefined if one of the parts is empty.
        let none = extents.clone().any(|extent| extent.as_const() == Some(0));
        if none { Some(0) } else { DimExpr::product(&mut extents).as_const() }
    };
    if let (Some(whole), Some(parts)) = (elements(&[split.whole]), elements(&split.parts))
        && whole != parts
    {
        let message = uneven(b, &split, whole, parts);
        return b.error(arrow.at, message);
    }
    let (axes, span) = (has.minus(gone).union(new), b.place(at));
    known(b.push(Node { kind: NodeKind::Cast, args: vec![id], dtype, axes, span }))
}

/// Returns the axes of the whole and of its parts. At most one of them may be new, and is created.
fn axes(b: &mut Builder<'_>, env: &mut Env, way: Regrouping, one: &Expr, several: &Expr) -> Option<SplitDim> {
    let ExprKind::Tuple(names) = &several.kind else {
        b.error(several.at, way.usage());
        return None;
    };
    let names: Vec<Expr> =
        names.iter().map(|part| number(b, env, part).unwrap_or_else(|| part.clone())).collect();
    has_elements(b, env, (way, one), &names)?;
    as_before(b, env, one, &names);
    for part in &names {
        sized(b, env, part)?;
    }
    let name = |part: &Expr| match &part.kind {
        ExprKind::Sized(name, _) => Expr { kind: ExprKind::Name(name.clone()), ..part.clone() },
        _ => part.clone(),
    };
    let names: Vec<Expr> = names.iter().map(name).collect();
    let all = || [one].into_iter().chain(&names);
    if let Some(no_dim) = all().find(|e| word(e).is_none()) {
        b.error(no_dim.at, way.usage());
        return None;
    }
    for dim in all() {
        fixed(b, env, dim)?;
    }
    if let Some(value) = names.iter().find(|e| word(e).is_some_and(|word| env.var(&word).is_some())) {
        let whole = word(one).and_then(|word| env.axis(&word)).filter(|_| b.in_std());
        let message = match whole {
            Some(whole) => diag::groups_number(b.called(way.name()), &b.graph.axis(whole).name),
            None => diag::part_is_value(word(value).unwrap_or_default()),
        };
        b.error(value.at, message);
        // Declaring the remaining names prevents further messages where they are used.
        for new in all().filter_map(word) {
            if env.dim(&new).is_none() && env.var(&new).is_none() {
                axes::create(b, env, DimExpr::constant(1), &new);
            }
        }
        return None;
    }
    let words: Vec<String> = all().filter_map(word).collect();
    let new: Vec<(&Expr, &String)> = all().zip(&words).filter(|(_, word)| env.dim(word).is_none()).collect();
    if let [(first, word), (_, second), ..] = new[..] {
        b.error(first.at, diag::two_new_dims(word, second));
        return None;
    }
    if let [(new, word)] = new[..] {
        if let Some(axis) = known_part(b, env, &words, word) {
            env.dims.push((word.clone(), vec![axis]));
        } else if let Some(extent) = extent(b, env, (&words, word), &[]) {
            axes::new_dim(b, env, new, extent)?;
        }
    }
    let mut axes = Vec::new();
    for e in all() {
        let function = b.called(way.name());
        axes.push(dims::one(b, env, e, &function, &way.usage())?);
    }
    if let Some((i, &twice)) = axes.iter().enumerate().find(|(i, axis)| axes[..*i].contains(axis)) {
        let (name, at) = (b.graph.axis(twice).name.clone(), names[i - 1].at);
        b.error(at, diag::dim_twice(way.name(), name));
        return None;
    }
    let whole = axes.remove(0);
    let library = library(b, several, &axes);
    Some(SplitDim { whole, parts: axes, library })
}

/// Checks that no part has 0 elements. The message for a whole of known extent lists the numbers that divide it,
/// so it is left to the check of the extents.
fn has_elements(
    b: &mut Builder<'_>,
    env: &Env,
    (way, whole): (Regrouping, &Expr),
    parts: &[Expr],
) -> Option<()> {
    let is_empty = |part: &&Expr| matches!(part.kind, ExprKind::Sized(_, 0) | ExprKind::Int(0, None));
    let Some(empty) = parts.iter().find(is_empty) else { return Some(()) };
    let whole = word(whole).and_then(|word| env.axis(&word)).filter(|_| b.in_std());
    let message = match whole.map(|whole| b.graph.axis(whole)) {
        Some(whole) if whole.extent.as_const().is_some() => return Some(()),
        Some(whole) => diag::groups_number(b.called(way.name()), &whole.name),
        None => diag::empty_part(way.name()),
    };
    b.error(empty.at, message);
    None
}

/// Returns the library function whose body splits a dim, with the parts that only its body names.
fn library(b: &Builder<'_>, several: &Expr, parts: &[AxisId]) -> Option<Library> {
    let frame = b.frames.last().filter(|_| b.in_std())?;
    let ExprKind::Tuple(names) = &several.kind else { return None };
    let is_given = |name: &Expr| {
        let params = frame.function.params.iter();
        word(name).is_some_and(|word| params.into_iter().any(|param| param.name.text == word))
    };
    let unnamed = names.iter().zip(parts).filter(|(name, _)| !is_given(name)).map(|(_, &axis)| axis);
    Some(Library { function: b.called("split").into_owned(), unnamed: unnamed.collect() })
}

/// Returns the message for parts whose product differs from the extent of the whole.
fn uneven(b: &Builder<'_>, split: &SplitDim, whole: i64, parts: i64) -> diag::Message {
    let name = &b.graph.axis(split.whole).name;
    let Some(Library { function, unnamed }) = &split.library else {
        return diag::split_extents(name, whole, parts);
    };
    let named = split.parts.iter().filter(|&&part| !unnamed.contains(part));
    let groups = DimExpr::product(named.map(|&part| &b.graph.axis(part).extent));
    let groups = groups.as_const().unwrap_or(parts);
    diag::groups_extent(function, groups, name, whole, diag::divisors(whole))
}

/// Binds new names of parts to existing axes, if the whole was already split this way, perhaps in another
/// template. Applies only if the extent of some part is written out.
fn as_before(b: &Builder<'_>, env: &mut Env, whole: &Expr, parts: &[Expr]) {
    let Some(whole) = word(whole).and_then(|word| env.axis(&word)) else { return };
    let has = |axis: AxisId, extent: u64| {
        b.graph.axis(axis).extent.as_const().and_then(|extent| u64::try_from(extent).ok()) == Some(extent)
    };
    let is = |(part, &axis): (&Expr, &AxisId)| match &part.kind {
        ExprKind::Sized(name, extent) => {
            has(axis, *extent) && env.axis(name).is_none_or(|known| known == axis)
        }
        ExprKind::Int(extent, None) => has(axis, *extent),
        ExprKind::Name(name) => env.var(name).is_none() && env.axis(name).is_none_or(|known| known == axis),
        _ => false,
    };
    let same = |split: &&SplitDim| {
        split.whole == whole && split.parts.len() == parts.len() && parts.iter().zip(&split.parts).all(is)
    };
    if !parts.iter().any(|part| matches!(part.kind, ExprKind::Sized(..))) {
        return;
    }
    let Some(split) = b.graph.splits.iter().find(same) else { return };
    let named = parts.iter().zip(&split.parts).filter_map(|(part, &axis)| Some((word(part)?, vec![axis])));
    let new: Vec<_> = named.filter(|(name, _)| env.dim(name).is_none()).collect();
    env.dims.extend(new);
}

/// Returns the name of a dim. A dim without a name is named by its extent, as in `f32[N, 3]`.
fn word(e: &Expr) -> Option<String> {
    match &e.kind {
        ExprKind::Name(name) | ExprKind::Sized(name, _) => Some(name.clone()),
        ExprKind::Int(extent @ 1.., None) => Some(extent.to_string()),
        _ => None,
    }
}

/// Returns the dim that an integer value stands for, if a template was given the integer for a dim. The dim
/// is named by that integer. Within the library, it is instead a dim of that extent, independent of the
/// caller's dims.
fn number(b: &Builder<'_>, env: &Env, e: &Expr) -> Option<Expr> {
    let ExprKind::Name(name) = &e.kind else { return None };
    let ExprValue::Weak(number) = &env.var(name)?.value else { return None };
    let number = weak::as_extent(number).and_then(|extent| u64::try_from(extent.as_const()?).ok())?;
    let kind = match b.in_std() {
        true => ExprKind::Sized(number.to_string(), number),
        false => ExprKind::Int(number, None),
    };
    Some(Expr { kind, ..e.clone() })
}

/// Checks that a dim may have so many elements.
pub(super) fn is_possible(b: &mut Builder<'_>, at: At, extent: u64) -> Option<()> {
    let is = i64::try_from(extent).is_ok_and(|extent| extent <= dims::ELEMENTS_MAX);
    if !is {
        b.error(at, diag::too_many_elements());
    }
    is.then_some(())
}

/// Declares a dim whose extent is written here, or checks its known extent.
pub(super) fn sized(b: &mut Builder<'_>, env: &mut Env, part: &Expr) -> Option<()> {
    let ExprKind::Sized(name, extent) = &part.kind else { return Some(()) };
    is_possible(b, part.at, *extent)?;
    let extent = DimExpr::constant(i64::try_from(*extent).unwrap_or(i64::MAX));
    let Some(axes) = env.dim(name).filter(|_| env.var(name).is_none()) else {
        let part = Expr { kind: ExprKind::Name(name.clone()), ..part.clone() };
        return axes::new_dim(b, env, &part, extent).map(|_| ());
    };
    let has = DimExpr::product(axes.iter().map(|&axis| &b.graph.axis(axis).extent));
    if has == extent {
        return Some(());
    }
    let of = |extent: DimExpr| extent.as_const().map_or(String::from("any"), |extent| extent.to_string());
    b.error(part.at, diag::dim_conflict(name, of(has), of(extent)));
    None
}

/// Declares a dim that is named by its extent.
fn fixed(b: &mut Builder<'_>, env: &mut Env, part: &Expr) -> Option<()> {
    let ExprKind::Int(number, None) = part.kind else { return Some(()) };
    is_possible(b, part.at, number)?;
    let word = number.to_string();
    if env.dim(&word).is_some() {
        return Some(());
    }
    let extent = DimExpr::constant(i64::try_from(number).unwrap_or(i64::MAX));
    let axis = dims::find(b, env, &word).or_else(|| axes::create(b, env, extent, &word));
    if axis.is_none() {
        b.error(part.at, diag::too_many_dims(AXES_MAX));
    } else if env.dim(&word).is_none() {
        env.dims.extend(axis.map(|axis| (word, vec![axis])));
    }
    axis.map(|_| ())
}

/// Returns the part that a new name stands for, if the whole was already split this way, perhaps in another
/// template.
fn known_part(b: &Builder<'_>, env: &Env, names: &[String], new: &str) -> Option<AxisId> {
    let (whole, parts) = names.split_first()?;
    let whole = env.axis(whole)?;
    let split =
        b.graph.splits.iter().find(|split| split.whole == whole && split.parts.len() == parts.len())?;
    let mut pairs = parts.iter().zip(&split.parts);
    let same = pairs.clone().all(|(name, &axis)| *name == new || env.axis(name) == Some(axis));
    pairs.find(|(name, _)| same && **name == new).map(|(_, &axis)| axis)
}

/// Computes the extent of the new dim among these names. The first name is the whole.
fn extent(
    b: &Builder<'_>,
    env: &Env,
    (names, new): (&[String], &str),
    fixed: &[(String, i64)],
) -> Option<DimExpr> {
    let (whole, parts) = names.split_first()?;
    let declared = |name: &String| fixed.iter().find(|(dim, _)| dim == name).map(|(_, extent)| *extent);
    let of = |name: &String| match name.parse().ok().or_else(|| declared(name)) {
        Some(extent) => Some(DimExpr::constant(extent)),
        None => env.axis(name).map(|axis| b.graph.axis(axis).extent.clone()),
    };
    let others: Vec<DimExpr> = parts.iter().filter(|part| **part != new).map(of).collect::<Option<_>>()?;
    let product = DimExpr::product(&others);
    if *whole == new { Some(product) } else { Some(of(whole)? / product) }
}

/// Declares the new dims of the arrow of a `split` or `merge`.
pub(super) fn declare(
    b: &mut Builder<'_>,
    env: &mut Env,
    function: &str,
    (from, to): (&Expr, &Expr),
    fixed: &[(String, i64)],
) {
    let (one, several) = match function {
        "split" => (from, to),
        "merge" => (to, from),
        _ => return,
    };
    let ExprKind::Tuple(names) = &several.kind else { return };
    for part in names {
        if let ExprKind::Sized(name, extent) = &part.kind
            && env.dim(name).is_none()
            && !fixed.iter().any(|(known, _)| known == name)
        {
            axes::create(b, env, DimExpr::constant(i64::try_from(*extent).unwrap_or(i64::MAX)), name);
        }
    }
    let words: Option<Vec<String>> = [one].into_iter().chain(names).map(word).collect();
    let words = words.unwrap_or_default();
    let is_name = |word: &&String| word.parse::<i64>().is_err();
    let mut unknown = words
        .iter()
        .filter(is_name)
        .filter(|word| env.dim(word).is_none() && !fixed.iter().any(|(name, _)| name == *word));
    if let (Some(new), None) = (unknown.next(), unknown.next())
        && let Some(extent) = extent(b, env, (&words, new), fixed)
    {
        axes::create(b, env, extent, new);
    }
}

/// Records a split. Returns false if the whole already has other parts, or if it is among its own parts.
fn register(b: &mut Builder<'_>, split: &SplitDim) -> bool {
    let is_known = |known: &SplitDim| known.whole == split.whole && known.parts == split.parts;
    if b.graph.splits.iter().any(is_known) {
        return true;
    }
    let within = b.graph.parts(&split.parts).contains(&split.whole);
    if within || b.graph.splits.iter().any(|known| known.whole == split.whole) {
        return false;
    }
    b.graph.splits.push(split.clone());
    true
}

/// Replaces each whole by its parts throughout the graph.
pub(super) fn refine(b: &mut Builder<'_>) {
    if b.graph.splits.is_empty() || reports_overlaps(b) {
        return;
    }
    let nodes = std::mem::take(&mut b.graph.nodes);
    let views = std::mem::take(&mut b.views);
    let mut moved: Vec<NodeId> = Vec::with_capacity(nodes.len());
    for (i, node) in nodes.iter().enumerate() {
        let old = NodeId(i as u32);
        let args = node.args.iter().map(|arg| moved[arg.0 as usize]).collect();
        let axes = set(&b.graph, node.axes);
        let as_it_is = |kind| Node { kind, args, axes, ..node.clone() };
        let id = match node.kind {
            NodeKind::Coord(axis) => coordinate(b, axis, node.span),
            NodeKind::Reduce(reduce, along) => {
                let kind = NodeKind::Reduce(reduce, set(&b.graph, along));
                b.graph.push(as_it_is(kind))
            }
            NodeKind::Input(param) => {
                let view = views.iter().find(|(id, _)| *id == old).map(|(_, axes)| axes);
                let order = view.or(b.graph.param(param).kind.axes()).map(|order| b.graph.parts(order));
                let id = b.graph.push(as_it_is(node.kind.clone()));
                b.views.extend(order.map(|order| (id, order)));
                id
            }
            NodeKind::Gather(axis) if b.graph.parts(&[axis]) != [axis] => {
                let args: Vec<NodeId> = node.args.iter().map(|arg| moved[arg.0 as usize]).collect();
                static_index(b, &args, node, axis)
            }
            NodeKind::Cast if is_regrouped(&b.graph, &nodes, node) => moved[node.args[0].0 as usize],
            _ => b.graph.push(as_it_is(node.kind.clone())),
        };
        moved.push(id);
    }
    for output in &mut b.graph.outputs {
        output.node = moved[output.node.0 as usize];
    }
}

/// Returns true if a cast only regroups dims. The pass must drop such a cast: a cast that changes neither
/// dtype nor axes means rounding.
fn is_regrouped(graph: &Graph, nodes: &[Node], node: &Node) -> bool {
    let of = &nodes[node.args[0].0 as usize];
    of.dtype == node.dtype && of.axes != node.axes && set(graph, of.axes) == set(graph, node.axes)
}

/// Gathers elements along a whole by gathering along one part after another. Index coordinates along the
/// parts get temporary twin axes until all parts are gathered. The twins keep these coordinates distinct from
/// those of the gathered value.
fn static_index(b: &mut Builder<'_>, args: &[NodeId], node: &Node, whole: AxisId) -> NodeId {
    let [of, ref place @ ..] = *args else { unreachable!("something is gathered from") };
    let parts = b.graph.parts(&[whole]);
    let by = place.iter().fold(AxisSet::EMPTY, |by, &id| by.union(b.graph.node(id).axes));
    let shared: Vec<AxisId> = parts.iter().copied().filter(|&part| by.contains(part)).collect();
    if b.graph.axes.len() + shared.len() > AXES_MAX {
        b.error_span(node.span, diag::too_many_dims(AXES_MAX));
        return of;
    }
    let own: Vec<(AxisId, AxisId)> = shared.iter().map(|&axis| (axis, b.graph.twin(axis))).collect();
    let graph = &mut b.graph;
    let place: Vec<NodeId> = place.iter().map(|&id| along_others(graph, id, own.iter().copied())).collect();
    let (mut id, mut inner) = (of, DimExpr::constant(1));
    for (i, &part) in parts.iter().enumerate().rev() {
        let extent = graph.axis(part).extent.clone();
        let mut index = place[0];
        for (op, number, needed) in [(Op::Div, &inner, i + 1 < parts.len()), (Op::Rem, &extent, i > 0)] {
            if needed {
                let kind = NodeKind::Extent(number.clone());
                let (args, dtype, axes) = (vec![], DType::I32, AxisSet::EMPTY);
                let number = graph.push(Node { kind, args, dtype, axes, span: node.span });
                index = graph.apply(op, &[index, number], node.span);
            }
        }
        id = pick(graph, (id, part), &[&[index], &place[1..]].concat());
        inner = inner * extent;
    }
    along_others(graph, id, own.into_iter().map(|(axis, own)| (own, axis)))
}

/// Returns a value along other axes of the same extents.
fn along_others(graph: &mut Graph, id: NodeId, axes: impl Iterator<Item = (AxisId, AxisId)>) -> NodeId {
    let mut value = id;
    for (from, to) in axes {
        if graph.node(value).axes.contains(from) {
            let place = row_major(graph, &[to], graph.node(value).span);
            value = pick(graph, (value, from), &[place]);
        }
    }
    value
}

/// Gathers elements of a value along an axis. `place` is the index, optionally followed by a condition.
fn pick(graph: &mut Graph, (of, axis): (NodeId, AxisId), place: &[NodeId]) -> NodeId {
    let Node { dtype, axes, span, .. } = *graph.node(of);
    let left = axes.minus(AxisSet::EMPTY.with(axis));
    let axes = place.iter().fold(left, |axes, &arg| axes.union(graph.node(arg).axes));
    graph.push(Node { kind: NodeKind::Gather(axis), args: [&[of], place].concat(), dtype, axes, span })
}

fn set(graph: &Graph, axes: AxisSet) -> AxisSet {
    graph.parts(&axes.iter().collect::<Vec<_>>()).into_iter().collect()
}

/// Computes the coordinate along a whole from the coordinates along its parts.
fn coordinate(b: &mut Builder<'_>, axis: AxisId, span: SpanId) -> NodeId {
    let parts = b.graph.parts(&[axis]);
    row_major(&mut b.graph, &parts, span)
}

/// Computes the row-major coordinate along several axes, the last one innermost. Without axes it is 0.
pub(super) fn row_major(graph: &mut Graph, axes: &[AxisId], span: SpanId) -> NodeId {
    let Some((&first, rest)) = axes.split_first() else {
        return graph.literal(Const::Int(0), DType::I32, span);
    };
    let along = |graph: &mut Graph, axis: AxisId| {
        let axes = AxisSet::EMPTY.with(axis);
        graph.push(Node { kind: NodeKind::Coord(axis), args: vec![], dtype: DType::I32, axes, span })
    };
    let mut all = along(graph, first);
    for &part in rest {
        let kind = NodeKind::Extent(graph.axis(part).extent.clone());
        let extent = graph.push(Node { kind, args: vec![], dtype: DType::I32, axes: AxisSet::EMPTY, span });
        let scaled = graph.apply(Op::Mul, &[all, extent], span);
        let next = along(graph, part);
        all = graph.apply(Op::Add, &[scaled, next], span);
    }
    all
}

/// Reports values with a dim and one of its own parts, and values with two dims that share parts.
fn reports_overlaps(b: &mut Builder<'_>) -> bool {
    let mut found = Vec::new();
    let (graph, splits) = (&b.graph, &b.graph.splits);
    let name = |axis: AxisId| &graph.axis(axis).name;
    for node in &graph.nodes {
        for (i, SplitDim { whole, .. }) in splits.iter().enumerate() {
            let parts = graph.parts(&[*whole]);
            let part = |node: &Node| {
                let part = parts.iter().copied().find(|&part| node.axes.contains(part));
                part.filter(|_| node.axes.contains(*whole))
            };
            let other = |node: &Node| {
                let shared =
                    |other: &&SplitDim| graph.parts(&other.parts).iter().any(|part| parts.contains(part));
                let others = splits[i + 1..].iter().filter(|other| node.axes.contains(other.whole));
                others.filter(shared).find(|_| node.axes.contains(*whole)).map(|other| other.whole)
            };
            let is_first = |has: &dyn Fn(&Node) -> bool| !node.args.iter().any(|&arg| has(graph.node(arg)));
            if let Some(part) = part(node).filter(|_| is_first(&|node| part(node).is_some())) {
                found.push((node.span, diag::split_beside(name(*whole), name(part))));
            } else if let Some(other) = other(node).filter(|_| is_first(&|node| other(node).is_some())) {
                found.push((node.span, diag::split_common(name(*whole), name(other))));
            }
        }
    }
    let any = !found.is_empty();
    for (span, message) in found {
        b.error_span(span, message);
    }
    any
}
