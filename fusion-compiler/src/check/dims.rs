//! Dims: resolution of dim names to axes, in signatures and in calls.
//!
//! Invariant: a dim has one extent in a function, and a callee's dims are axes of its caller.

use super::build::{Builder, Env, Form, only};
use super::expr::CONSTANTS;
use crate::diag::{self, Message, hints};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AXES_MAX, AxisId};
use crate::parse::ast::{At, Dim, Expr, ExprKind, Function, Param, TensorType};

/// Largest number of elements that the fixed dims of a tensor may multiply to. The limit exceeds any memory,
/// and products below it do not overflow.
pub(super) const ELEMENTS_MAX: i64 = 1 << 40;

/// Returns the axes that an argument names: `D`, `3`, or a tuple such as `(H, W)`.
pub(super) fn named(b: &Builder<'_>, env: &Env, e: &Expr) -> Option<Vec<AxisId>> {
    match &e.kind {
        ExprKind::Name(name) if env.var(name).is_none() => env.dim(name).map(<[AxisId]>::to_vec),
        ExprKind::Int(extent, None) => find(b, env, &extent.to_string()).map(|axis| vec![axis]),
        ExprKind::Tuple(parts) => {
            let parts: Option<Vec<_>> = parts.iter().map(|part| named(b, env, part)).collect();
            parts.map(|parts| parts.concat())
        }
        _ => None,
    }
}

/// Returns true if the name can only be meant as a dim, but no dim has it.
pub(super) fn is_mistyped(env: &Env, e: &Expr) -> bool {
    let ExprKind::Name(name) = &e.kind else { return false };
    let is_upper = name.starts_with(char::is_uppercase);
    let is_constant = CONSTANTS.iter().any(|(constant, _)| constant == name);
    is_upper && !is_constant && env.var(name).is_none() && env.dim(name).is_none()
}

/// Returns the axes that an argument of `function` names, without duplicates. `otherwise` is the message for
/// an argument that is no dim at all.
pub(super) fn argument(
    b: &mut Builder<'_>,
    env: &Env,
    e: &Expr,
    function: &str,
    otherwise: &Message,
) -> Option<Vec<AxisId>> {
    if let ExprKind::Tuple(parts) = &e.kind {
        let mut axes = Vec::new();
        for part in parts {
            for axis in argument(b, env, part, function, otherwise)? {
                if axes.contains(&axis) {
                    let name = b.graph.axis(axis).name.clone();
                    b.error(part.at, diag::dim_twice(function, name));
                    return None;
                }
                axes.push(axis);
            }
        }
        return Some(axes);
    }
    let axes = named(b, env, e);
    if axes.is_none() {
        let message = match &e.kind {
            ExprKind::Name(name) if env.var(name).is_none() => {
                let dims = env.dims.iter().map(|(dim, _)| dim.as_str());
                let near = hints::word(name)
                    .map_or_else(|| diag::did_you_mean(name, dims), |how| format!(": {how}"));
                let is_inline = b.form == Form::Dims && b.frames.is_empty();
                match near.is_empty() && is_inline {
                    true => diag::unknown_dim_inline(name),
                    false => diag::unknown_dim(name, near),
                }
            }
            ExprKind::Int(extent, None) => diag::unknown_dim(extent, ": a dim goes by its name"),
            _ => otherwise.clone(),
        };
        b.error(e.at, message);
    }
    axes
}

/// Returns the one axis that an argument of `function` names.
pub(super) fn one(
    b: &mut Builder<'_>,
    env: &Env,
    e: &Expr,
    function: &str,
    otherwise: &Message,
) -> Option<AxisId> {
    let axes = argument(b, env, e, function, otherwise)?;
    let axis = only(&axes);
    if axis.is_none() {
        let text = b.axes_text(axes.into_iter().collect());
        b.error(e.at, diag::one_dim(function, text));
    }
    axis
}

/// Returns the axis of a name in the current body, or else in the function being built.
pub(super) fn find(b: &Builder<'_>, env: &Env, name: &str) -> Option<AxisId> {
    match env.dim(name) {
        Some(axes) => only(axes),
        None => b.graph.axes.iter().position(|axis| axis.name == name).map(|axis| AxisId(axis as u8)),
    }
}

/// Returns the axes of a callee's type, which `bind_callee` has bound.
pub(super) fn lookup(inner: &Env, ty: &TensorType) -> Option<Vec<AxisId>> {
    ty.dims.iter().map(|dim| inner.axis(&dim.name.text)).collect()
}

/// Binds the dims of a callee's types to the caller's axes of the same names.
pub(super) fn bind_callee(
    b: &mut Builder<'_>,
    env: &Env,
    inner: &mut Env,
    callee: &Function,
    at: At,
) -> Option<()> {
    for dim in callee.types().flat_map(|ty| &ty.dims) {
        let name = &dim.name.text;
        let several = inner.dim(name).or(env.dim(name)).filter(|axes| axes.len() != 1);
        if let Some(axes) = several {
            let text = b.axes_text(axes.iter().copied().collect());
            b.error(at, diag::callee_one_dim(&callee.name.text, name, text));
            return None;
        }
        let axis = match inner.axis(name) {
            Some(axis) => axis,
            None => {
                let is_found = find(b, env, name);
                // The body of the callee may make a dim that only its results have.
                let in_params = callee.params.iter().filter_map(Param::tensor).flat_map(|ty| &ty.dims);
                let is_result =
                    dim.extent.is_none() && !in_params.into_iter().any(|of| of.name.text == *name);
                if is_found.is_none() && is_result {
                    continue;
                }
                let Some(axis) = is_found else {
                    b.error(at, diag::callee_dim(&callee.name.text, name));
                    return None;
                };
                inner.dims.push((name.clone(), vec![axis]));
                axis
            }
        };
        let has = b.graph.axis(axis).extent.clone();
        if let Some(wants) = dim.extent
            && has.as_const() != Some(wants)
        {
            let has = has.as_const().map_or(String::from("any"), |has| has.to_string());
            b.error(at, diag::callee_extent(&callee.name.text, name, wants, has));
            return None;
        }
    }
    Some(())
}

/// Declares the axes of a list of dims, in order of first appearance. `fixed` lists the dims with known
/// extents. Reports mistakes. Returns none if a dim occurs twice or there are too many dims or elements.
pub(super) fn declare(
    b: &mut Builder<'_>,
    env: &mut Env,
    dims: &[Dim],
    fixed: &[(String, i64)],
) -> Option<Vec<AxisId>> {
    let mut axes = Vec::new();
    for (i, dim) in dims.iter().enumerate() {
        let name = &dim.name.text;
        if dims[..i].iter().any(|other| other.name.text == *name) {
            b.error(dim.name.at, diag::duplicate_dim(name));
            return None;
        }
        axes.push(axis(b, env, &dim.name.text, dim.name.at, fixed)?);
        let extents = axes.iter().filter_map(|&axis| b.graph.axis(axis).extent.as_const());
        if extents.fold(1, i64::saturating_mul) > ELEMENTS_MAX {
            b.error(dim.name.at, diag::too_many_elements());
            return None;
        }
    }
    Some(axes)
}

/// Returns the axis of a dim, and creates it if it is new.
pub(super) fn axis(
    b: &mut Builder<'_>,
    env: &mut Env,
    name: &str,
    at: At,
    fixed: &[(String, i64)],
) -> Option<AxisId> {
    if let Some(axis) = env.axis(name) {
        return Some(axis);
    }
    if b.graph.axes.len() >= AXES_MAX {
        b.error(at, diag::too_many_dims(AXES_MAX));
        return None;
    }
    let extent = match fixed.iter().find(|(dim, _)| dim == name) {
        Some((_, extent)) => DimExpr::constant(*extent),
        None => {
            b.graph.symbols.push(name.into());
            DimExpr::sym(b.graph.symbols.len() as u16 - 1)
        }
    };
    let axis = b.axis(name, extent);
    env.dims.push((name.into(), vec![axis]));
    Some(axis)
}

/// Returns the extents that dims are declared with anywhere in a signature. Reports a dim with two extents.
pub(super) fn fixed<'d>(b: &mut Builder<'_>, dims: impl Iterator<Item = &'d Dim>) -> Vec<(String, i64)> {
    let mut fixed: Vec<(String, i64)> = Vec::new();
    for dim in dims {
        let Some(extent) = dim.extent else { continue };
        match fixed.iter().find(|(name, _)| *name == dim.name.text) {
            Some((name, first)) if *first != extent => {
                let message = diag::dim_conflict(name, first, extent);
                b.error(dim.name.at, message);
            }
            Some(_) => {}
            None => fixed.push((dim.name.text.clone(), extent)),
        }
    }
    fixed
}
