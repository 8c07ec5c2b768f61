//! Parameters with a portion of a dim, before or after a cut: `m: &mut f32[B: ..L, K]` and
//! `v: f32[B: L.., K]`.
//!
//! A read outside of the portion gives 0, and a write there is dropped. Values with separate elements on the
//! two sides of a cut thereby share the dim and a kernel.
//!
//! Invariant: a function has one cut, along the outermost dim of each tensor with a portion. A value computed
//! from a portion is never reduced, gathered or renamed along that dim.

use std::collections::BTreeSet;

use super::build::{Builder, Env};
use super::dims;
use crate::diag;
use crate::ir::dim::DimOp;
use crate::ir::graph::{Axis, Cut, NodeKind, Param, ParamKind, Portion, Sum, Use};
use crate::parse::ast::{Dim, Function, TensorType};
use crate::parse::upper;

/// Returns the portion of a parameter of this type. The dims of the type must be declared already.
pub(super) fn declare(
    b: &mut Builder<'_>,
    env: &mut Env,
    ty: &TensorType,
    fixed: &[(String, i64)],
) -> Option<Portion> {
    let (first, inner) = ty.dims.split_first()?;
    for Dim { name, .. } in inner.iter().filter(|dim| dim.portion.is_some()) {
        b.error(name.at, diag::portion_inner(&name.text));
    }
    let (portion, place) = first.portion.as_ref()?;
    let axis = env.axis(&first.name.text)?;
    if b.graph.axis(axis).extent.as_const().is_some() {
        b.error(first.name.at, diag::portion_fixed(&first.name.text));
        return None;
    }
    if place.text.starts_with(|c: char| c.is_lowercase() || c == '_') {
        b.error(place.at, diag::dim_lowercase(&place.text, upper(&place.text)));
        return None;
    }
    let at = dims::axis(b, env, &place.text, place.at, fixed)?;
    let cut = Cut { axis, at: b.graph.axis(at).extent.clone() };
    match &b.graph.cut {
        Some(known) if *known != cut => {
            b.error(place.at, diag::portion_places());
            return None;
        }
        Some(_) => {}
        None => {
            // Each call checks that the cut is within the dim.
            let (whole, before) = (b.graph.axis(axis).clone(), b.graph.axis(at).clone());
            let extent = whole.extent.clone() - before.extent.clone();
            let after = Axis { name: format!("{}..", place.text), extent };
            b.graph.sums.push(Sum { whole, parts: vec![before, after], of: Use::Portion });
            b.graph.cut = Some(cut);
        }
    }
    Some(*portion)
}

/// Reports each portion in the dims of a type that is not a parameter's.
pub(super) fn refuse(b: &mut Builder<'_>, dims: &[Dim]) {
    for Dim { name, .. } in dims.iter().filter(|dim| dim.portion.is_some()) {
        b.error(name.at, diag::portion_param(&name.text));
    }
}

/// Checks that the signature of a cut function determines the extent of the dim and the position of the cut.
pub(super) fn check_signature(b: &mut Builder<'_>, function: &Function) {
    let Some(Cut { axis, at }) = b.graph.cut.clone() else { return };
    let whole = b.graph.axis(axis).extent.clone();
    let portions = function.types().filter_map(|ty| ty.dims.first().filter(|dim| dim.portion.is_some()));
    let Some((dim, (_, place))) = portions.filter_map(|dim| Some((dim, dim.portion.as_ref()?))).next() else {
        return;
    };
    for (extent, name) in [(whole, &dim.name), (at, place)] {
        let gives = |param: &Param| match &param.kind {
            ParamKind::Tensor { axes, .. } => {
                axes.iter().any(|&axis| b.graph.extent_of(axis, param.portion) == extent)
            }
            ParamKind::Dim(symbol) => *extent.0 == [DimOp::Sym(*symbol)],
            ParamKind::Scalar | ParamKind::View { .. } => false,
        };
        if extent.as_const().is_none() && !b.graph.params.iter().any(gives) {
            b.error(name.at, diag::portion_extent(&name.text));
        }
    }
}

/// Reports the operations that the body of a cut function must not contain.
pub(super) fn check_body(b: &mut Builder<'_>) {
    let Some(axis) = b.graph.cut_axis() else { return };
    let name = b.graph.axis(axis).name.clone();
    // True for each value that is computed from a portion, by node number.
    let mut portions = vec![false; b.graph.nodes.len()];
    let mut mistaken = BTreeSet::new();
    for (id, node) in b.graph.iter() {
        let is_portion =
            matches!(node.kind, NodeKind::Input(param) if b.graph.param(param).portion.is_some());
        let of = is_portion || node.args.iter().any(|arg| portions[arg.0 as usize]);
        let combined = matches!(node.kind, NodeKind::Reduce(_, axes) if axes.contains(axis));
        let moved = matches!(node.kind, NodeKind::Gather(along) if along == axis);
        let elsewhere = b.views.iter().any(|(view, axes)| *view == id && axes.first() != Some(&axis));
        if of && (combined || moved || elsewhere) {
            mistaken.insert(node.span);
        }
        portions[id.0 as usize] = of;
    }
    if b.graph.splits.iter().any(|split| split.whole == axis || split.parts.contains(&axis)) {
        mistaken.extend(b.graph.outputs.iter().map(|output| b.graph.node(output.node).span).take(1));
    }
    for span in mistaken {
        b.error_span(span, diag::portion_along(&name));
    }
}
