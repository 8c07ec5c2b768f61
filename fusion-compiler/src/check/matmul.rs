//! Matrix products: checks of their factors, and hints at dims that products exchange.

use super::build::{Builder, Env, ExprValue};
use super::expr::single;
use super::value::{axes_of, common, dtype_of, known, typed, widened};
use crate::diag;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, NodeId, NodeKind, Reduce};
use crate::ir::op::Op;
use crate::parse::ast::{Arg, At, ExprKind};

/// Evaluates `factors(x, w, K)`: returns both after checking that each has the dims `K`. One of them must have
/// a dim that the other lacks, unless both have only `K`. Integers of 8 and 16 bits become `i32`, or `u32` if
/// both are `u16`, because their products would wrap.
pub(super) fn factors(b: &mut Builder<'_>, env: &mut Env, at: At, args: &[Arg]) -> ExprValue {
    let [first, second, dim] = args else { unreachable!("the library has no mistakes") };
    let ExprKind::Name(dim) = &dim.value.kind else { unreachable!("the library passes parameters") };
    let summed: AxisSet = env.dim(dim).into_iter().flatten().copied().collect();
    let values = [first, second].map(|arg| single(b, env, &arg.value));
    factors_of(b, (at, ""), values, summed)
}

/// Returns both factors of products that are summed along dims, after the checks of `factors`. `own` is the name of
/// the function outside of the library.
pub(super) fn factors_of(
    b: &mut Builder<'_>,
    (at, own): (At, &'static str),
    values: [ExprValue; 2],
    summed: AxisSet,
) -> ExprValue {
    let [Some(left), Some(right)] = [&values[0], &values[1]].map(|value| dtype_of(b, value)) else {
        return ExprValue::Unknown;
    };
    let has = [&values[0], &values[1]].map(|value| axes_of(b, value));
    for (factor, has, other) in [("x", has[0], has[1]), ("w", has[1], has[0])] {
        if let Some(axis) = summed.minus(has).iter().next() {
            let message = lacks(b, (factor, own), axis, (has, other));
            return b.error(at, message);
        }
    }
    if has[0] == has[1] && has[0] != summed {
        let (dims, dim) = (b.axes_text(has[0]), b.names_text(&summed.iter().collect::<Vec<_>>()));
        let last = has[0].minus(summed).iter().last().map_or("N", |axis| &b.graph.axis(axis).name);
        return b.error(at, diag::factors_alike(b.called(own), dims, last, dim));
    }
    if let Some(&dtype) = [left, right].iter().find(|&&dtype| dtype == DType::Bool) {
        return b.error(at, diag::wants_number(b.called(own), dtype));
    }
    let wide = |dtype: DType| match dtype {
        DType::U16 if left == right => DType::U32,
        dtype if dtype.is_int() && dtype.is_narrow() => DType::I32,
        dtype => dtype,
    };
    if common(wide(left), wide(right)).is_none() {
        return b.error(at, diag::mixed_arguments(left, right));
    }
    let factors = [(&values[0], left), (&values[1], right)].map(|(value, dtype)| {
        let id = typed(b, value, dtype)?;
        if wide(dtype) == dtype { Some(id) } else { widened(b, id, wide(dtype)) }
    });
    ExprValue::Tuple(factors.into_iter().map(known).collect())
}

/// Returns the message for a factor that lacks a dim of the sum. `has` are the dims of this factor and of the
/// other.
fn lacks(
    b: &Builder<'_>,
    (factor, function): (&str, &'static str),
    axis: AxisId,
    has: (AxisSet, AxisSet),
) -> diag::Message {
    if let Some(namesake) = b.namesake(axis, has.0) {
        return b.two_dims(axis, namesake);
    }
    let position = if factor == "x" { "first" } else { "second" };
    let (name, text) = (&b.graph.axis(axis).name, b.axes_text(has.0));
    // The last dim that only this factor has is the likeliest one that was meant.
    match has.0.minus(has.1).iter().last().map(|own| &b.graph.axis(own).name) {
        Some(own) => diag::factor_other_dim(b.called(function), position, name, text, factor, own),
        None => diag::factor_lacks_dim(b.called(function), position, name, text),
    }
}

/// Returns the dim of a result that a sum of products exchanges for `extra`.
///
/// For example, it is `D` in `x + sum(x * w, D)` with a square `w` of the dims `D` and `extra`.
pub(super) fn exchanged(b: &Builder<'_>, id: NodeId, extra: AxisId, result: AxisSet) -> Option<AxisId> {
    let mut seen = vec![false; b.graph.nodes.len()];
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        if std::mem::replace(&mut seen[id.0 as usize], true) {
            continue;
        }
        let node = b.graph.node(id);
        if let NodeKind::Reduce(Reduce::Sum, summed) = &node.kind
            && let product = b.graph.node(node.args[0])
            && matches!(product.kind, NodeKind::Apply(Op::Mul))
            && let [x, w] = [0, 1].map(|i| b.graph.node(product.args[i]).axes)
            && x.contains(extra) != w.contains(extra)
            && let Some(axis) =
                summed.intersection(result).iter().find(|&axis| x.contains(axis) && w.contains(axis))
        {
            return Some(axis);
        }
        // The sums below another reduction have dims of their own.
        if !matches!(node.kind, NodeKind::Reduce(..)) {
            open.extend(node.args.iter().copied().filter(|&arg| b.graph.node(arg).axes.contains(extra)));
        }
    }
    None
}
