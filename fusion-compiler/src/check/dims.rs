//! Dims: which axis a name means, in a signature and in a call.
//!
//! Invariant: a dim has one extent in a function, and a callee's dims are axes of its caller.

use super::build::{Builder, Env};
use crate::diag;
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AXES_MAX, AxisId};
use crate::parse::ast::{At, Dim, Expr, ExprKind, Function, TensorType};

/// Most elements that the fixed dims of a tensor may come to: far more than fit in any memory, and few enough to
/// compute with.
const ELEMENTS_MAX: i64 = 1 << 40;

/// The axis that an argument names: `D`, or `3`.
pub(super) fn named(b: &Builder<'_>, env: &Env, e: &Expr) -> Option<AxisId> {
    match &e.kind {
        ExprKind::Name(name) if env.var(name).is_none() => env.dim(name),
        ExprKind::Int(extent, None) => find(b, env, &extent.to_string()),
        _ => None,
    }
}

/// The axis of a name: as the body at hand calls it, or as the function being built does.
pub(super) fn find(b: &Builder<'_>, env: &Env, name: &str) -> Option<AxisId> {
    let position = || b.graph.axes.iter().position(|axis| axis.name == name);
    env.dim(name).or_else(|| position().map(|axis| AxisId(axis as u8)))
}

/// The axes of a type of a callee, which `bind_callee` has bound.
pub(super) fn lookup(inner: &Env, ty: &TensorType) -> Option<Vec<AxisId>> {
    ty.dims.iter().map(|dim| inner.dim(&dim.name.text)).collect()
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
        let axis = match inner.dim(name) {
            Some(axis) => axis,
            None => {
                let Some(axis) = find(b, env, name) else {
                    b.error(at, diag::callee_dim(&callee.name.text, name));
                    return None;
                };
                inner.dims.push((name.clone(), axis));
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

/// Makes the axes of a list of dims known, in order of first appearance. `fixed` says which have an extent.
/// Whatever is wrong is reported; the axes are those of the dims that could be read, or nothing if there
/// are too many.
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
            continue;
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

/// The axis of a dim, made if it is new.
pub(super) fn axis(
    b: &mut Builder<'_>,
    env: &mut Env,
    name: &str,
    at: At,
    fixed: &[(String, i64)],
) -> Option<AxisId> {
    if let Some(axis) = env.dim(name) {
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
    env.dims.push((name.into(), axis));
    Some(axis)
}

/// The extents that dims are declared with, wherever in a signature; two for one dim is a mistake.
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
