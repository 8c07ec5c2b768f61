//! The inline form, in which captures become parameters in the order of their first use.
//!
//! Invariant: either no captured tensor has dims, or all have.

use proc_macro2::TokenStream;

use super::build::{Builder, Env, ExprValue, Form};
use super::capture::dims_text;
use super::value::{self, dtype_of, typed};
use super::{Inline, Options, axes, dims, expr, rename, renamed, split, unroll};
use crate::diag::{self, Diagnostics, hints};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, Dest, Graph, NodeId, Output, ParamKind};
use crate::ir::plan::Target;
use crate::parse::ast::Dim;
use crate::parse::{self, Sink};

/// Checks the inline form.
pub(super) fn inline(tokens: TokenStream) -> Result<Inline, Diagnostics> {
    let mut sink = Sink::default();
    let form = parse::inline(tokens, &mut sink);
    let Sink { places, mut errors, captures, .. } = sink;
    let Ok(form) = form else { return Err(errors) };
    let captures = captures.unwrap_or_default();
    let mut b = Builder::new("inline", &[], &places, &mut errors);
    b.captures.parsed = &captures;
    let checked = build(&mut b, &form);
    let Builder { mut graph, spans, captures, form, views, .. } = b;
    rename::finish(&mut graph, views);
    let (rust, any_shape) = (captures.rust, form == Form::AnyShape);
    match checked {
        Some(()) if errors.is_empty() => {
            let options = Options { targets: Target::ALL.to_vec() };
            Ok(Inline { graph: Graph { any_shape, ..graph }, captures: rust, options, spans })
        }
        Some(()) | None => Err(errors),
    }
}

fn build(b: &mut Builder<'_>, form: &parse::Inline) -> Option<()> {
    if let Some(name) = &form.dtype {
        match DType::from_name(&name.text) {
            Some(dtype) => b.captures.dtype = dtype,
            None => {
                let near = hints::near_dtype(&name.text, &[]);
                b.error(name.at, diag::unknown_dtype(&name.text, near));
            }
        }
    }
    let mut env = Env::default();
    let order = declare(b, &mut env, form)?;
    let value = expr::expr(b, &mut env, &form.value);
    if matches!(value, ExprValue::Tuple(_)) {
        b.error(form.value.at, diag::inline_tuple());
        return None;
    }
    let is = dtype_of(b, &value)?;
    if !b.graph.params.iter().any(|param| matches!(param.kind, ParamKind::Tensor { .. })) {
        b.error(form.value.at, diag::inline_no_tensor());
        return None;
    }
    let wanted = b.captures.dtype;
    if wanted == DType::Bool && is != DType::Bool {
        return refuse(b.error(form.value.at, diag::result_not_bool(is)));
    }
    let id = typed(b, &value, wanted)?;
    let got = b.graph.node(id).dtype;
    if value::common(got, wanted).is_none() {
        let truth = got == DType::Bool && wanted == DType::F32;
        let message = if truth { diag::inline_bool_result() } else { diag::inline_result_dtype(wanted, is) };
        return refuse(b.error(form.value.at, message));
    }
    let id = value::widened(b, id, wanted)?;
    output(b, id, order, form)
}

/// Declares the dims that captures name. Returns the order of the result's dims, if one is declared.
fn declare(b: &mut Builder<'_>, env: &mut Env, form: &parse::Inline) -> Option<Option<Vec<AxisId>>> {
    let parsed = b.captures.parsed;
    let lists: Vec<&[Dim]> = parsed.iter().filter_map(|capture| capture.dims.as_deref()).collect();
    if lists.is_empty() {
        b.form = Form::AnyShape;
        b.graph.symbols.push(String::from("elements"));
        b.axis("elements", DimExpr::sym(0));
        if let Some((dims, at)) = &form.order {
            return refuse(b.error(*at, diag::inline_result_dims(dims_text(dims))));
        }
        return Some(None);
    }
    b.form = Form::Dims;
    let ordered = form.order.iter().flat_map(|(dims, _)| dims);
    let fixed = dims::fixed(b, lists.iter().copied().flatten().chain(ordered));
    for capture in parsed {
        let dims = capture.dims.as_deref().unwrap_or_default();
        let axes = dims::declare(b, env, dims, &fixed)?;
        b.captures.axes.push(axes);
    }
    rename::declare_inline(b, env, &form.value, &fixed);
    let Some((dims, _)) = &form.order else { return Some(None) };
    for dim in dims {
        if env.dim(&dim.name.text).is_none() {
            let near = diag::did_you_mean(&dim.name.text, env.dims.iter().map(|(dim, _)| dim.as_str()));
            return refuse(b.error(dim.name.at, diag::unknown_dim(&dim.name.text, near)));
        }
    }
    dims::declare(b, env, dims, &fixed).map(Some)
}

fn output(b: &mut Builder<'_>, id: NodeId, order: Option<Vec<AxisId>>, form: &parse::Inline) -> Option<()> {
    let id = axes::joined(b, id, order.iter().flatten().copied().collect());
    let (has, span) = (b.graph.node(id).axes, b.place(form.value.at));
    let order = match order {
        Some(order) => order,
        None if b.form == Form::AnyShape => vec![AxisId(0)],
        None => match leftmost(b, has) {
            Some(order) => order,
            None => {
                let text = b.axes_text(has);
                return refuse(b.error(form.value.at, diag::outer_product(text)));
            }
        },
    };
    let wants: AxisSet = order.iter().copied().collect();
    if let Some(axis) = has.minus(wants).iter().next().filter(|_| b.form == Form::Dims) {
        let at = form.order.as_ref().map_or(form.value.at, |(_, at)| *at);
        let (dim, text, fix) = (b.graph.axis(axis).name.clone(), b.order_text(&order), b.axes_text(has));
        return refuse(b.error(at, diag::result_extra_dim(dim, text, fix)));
    }
    let node = b.widen(id, wants, span)?;
    b.graph.outputs.push(Output { node, axes: order, dest: Dest::Fresh });
    renamed::expand(b);
    split::refine(b);
    unroll::limit(&mut b.graph);
    Some(())
}

/// Returns the dim order of the leftmost tensor that has every axis.
fn leftmost(b: &Builder<'_>, has: AxisSet) -> Option<Vec<AxisId>> {
    b.graph.params.iter().find_map(|param| match &param.kind {
        ParamKind::Tensor { axes, .. } => {
            let all: AxisSet = axes.iter().copied().collect();
            all.contains_all(has).then(|| axes.iter().copied().filter(|&axis| has.contains(axis)).collect())
        }
        ParamKind::Scalar | ParamKind::Dim(_) | ParamKind::View { .. } => None,
    })
}

/// Discards the value of a reported mistake where another result type is required.
fn refuse<T>(_: ExprValue) -> Option<T> {
    None
}
