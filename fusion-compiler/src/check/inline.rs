//! The inline form, in which captures become parameters in the order of their first use.
//!
//! Invariant: either no captured tensor has dims, or all have.

use proc_macro2::TokenStream;

use super::build::{Builder, Env, Form, Value};
use super::value::{self, dtype_of, known, typed};
use super::{Inline, Options, dims, expr, rename, renamed, split, unroll};
use crate::diag::{self, Diagnostics, hints};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{
    Access, AxisId, AxisSet, Dest, Graph, NodeId, NodeKind, Output, Param, ParamId, ParamKind,
};
use crate::ir::plan::Target;
use crate::parse::ast::{Arg, At, Dim, ExprKind};
use crate::parse::{self, Capture, Sink};

/// The captures of an inline expression.
pub(super) struct Captures<'a> {
    /// Dtype of every capture and of the result.
    dtype: DType,
    /// Captures as parsed.
    parsed: &'a [Capture],
    /// Axes of each capture in order, if dims are named.
    axes: Vec<Vec<AxisId>>,
    /// Rust expression of each parameter.
    rust: Vec<TokenStream>,
    /// Captured paths that already are parameters.
    paths: Vec<(String, NodeId)>,
}

impl Default for Captures<'_> {
    fn default() -> Self {
        Captures { dtype: DType::F32, parsed: &[], axes: vec![], rust: vec![], paths: vec![] }
    }
}

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
    if matches!(value, Value::Tuple(_)) {
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
    let id = rename::joined(b, id, order.iter().flatten().copied().collect());
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

/// Evaluates a captured variable, given by its bare name.
pub(super) fn variable(b: &mut Builder<'_>, at: At, name: &str) -> Value {
    if b.form == Form::Dims {
        let message = lacks_dims(b, name);
        return b.error(at, message);
    }
    let tokens = parse::variable(name, b.places.span(at));
    tensor(b, Some(name), (name, at), tokens, vec![AxisId(0)])
}

/// Evaluates a captured path or Rust expression, or a variable with dims.
pub(super) fn capture(b: &mut Builder<'_>, number: usize) -> Value {
    let Capture { text, tokens, dims, at, is_path } = &b.captures.parsed[number];
    let axes = match b.form {
        Form::Function => unreachable!("functions capture nothing"),
        Form::AnyShape => vec![AxisId(0)],
        Form::Dims if dims.is_none() => {
            let message = lacks_dims(b, text);
            return b.error(*at, message);
        }
        Form::Dims => b.captures.axes[number].clone(),
    };
    tensor(b, is_path.then_some(text.as_str()), (text, *at), tokens.clone(), axes)
}

/// Returns the text that captures a Rust method call: `{a.clone()}`.
pub(super) fn method_text(b: &Builder<'_>, name: &str, args: &[Arg]) -> String {
    let (receiver, dims) = match args.first().map(|receiver| &receiver.value.kind) {
        Some(ExprKind::Name(name)) => (name.as_str(), None),
        Some(ExprKind::Capture(number)) => {
            let Capture { text, dims, .. } = &b.captures.parsed[*number];
            (text.as_str(), dims.as_deref())
        }
        Some(_) | None => ("…", None),
    };
    let args = if args.len() > 1 { "…" } else { "" };
    format!("{{{receiver}.{name}({args})}}{}", dims.map(dims_text).unwrap_or_default())
}

/// Evaluates `scalar(…)`, a number of the host.
pub(super) fn host(b: &mut Builder<'_>, number: usize) -> Value {
    let Capture { text, tokens, at, .. } = &b.captures.parsed[number];
    let (span, dtype) = (b.place(*at), b.captures.dtype);
    let id = ParamId(b.graph.params.len() as u16);
    b.graph.params.push(Param { name: text.clone(), dtype, kind: ParamKind::Scalar, span });
    b.captures.rust.push(tokens.clone());
    known(b.leaf(NodeKind::Scalar(id), dtype, AxisSet::EMPTY, span))
}

/// Adds the parameter of a captured tensor. A path is one parameter however often it occurs.
fn tensor(
    b: &mut Builder<'_>,
    path: Option<&str>,
    (text, at): (&str, At),
    tokens: TokenStream,
    axes: Vec<AxisId>,
) -> Value {
    let path = path.map(|path| format!("{path}{}", context(&tokens)));
    let known_path = b.captures.paths.iter().find(|(known, _)| Some(known) == path.as_ref());
    if let Some((_, node)) = known_path.cloned() {
        return match first_axes(b, node) {
            Some(first) if first != axes => {
                let (first, second) = (b.order_text(&first), b.order_text(&axes));
                b.error(at, diag::capture_dims(text, first, second))
            }
            Some(_) | None => Value::Node(node),
        };
    }
    let (span, dtype) = (b.place(at), b.captures.dtype);
    let id = ParamId(b.graph.params.len() as u16);
    let set = axes.iter().copied().collect();
    let kind = ParamKind::Tensor { axes, access: Access::Read };
    b.graph.params.push(Param { name: text.into(), dtype, kind, span });
    b.captures.rust.push(tokens);
    let node = b.leaf(NodeKind::Input(id), dtype, set, span);
    b.captures.paths.extend(path.zip(node));
    known(node)
}

/// Returns the macro hygiene context of a path's first name. Variables of one name differ if their contexts
/// differ. The context is only visible at the start of a span's debug text, `#5 bytes(…)`. Without a context,
/// names alone decide.
fn context(path: &TokenStream) -> String {
    let span = path.clone().into_iter().next().map(|first| format!("{:?}", first.span()));
    let context = span.as_deref().and_then(|span| span.split_once(' ')).map(|(context, _)| context);
    context.filter(|context| context.starts_with('#')).unwrap_or_default().to_owned()
}

fn first_axes(b: &Builder<'_>, node: NodeId) -> Option<Vec<AxisId>> {
    let NodeKind::Input(id) = b.graph.node(node).kind else { return None };
    match &b.graph.param(id).kind {
        ParamKind::Tensor { axes, .. } => Some(axes.clone()),
        ParamKind::Scalar | ParamKind::Dim(_) | ParamKind::View { .. } => None,
    }
}

/// Returns the message for a tensor without dims where other tensors have dims.
fn lacks_dims(b: &Builder<'_>, name: &str) -> diag::Message {
    let first = b.captures.parsed.iter().find_map(|capture| Some((&capture.text, capture.dims.as_ref()?)));
    let (other, dims) = first.unwrap_or_else(|| unreachable!("a tensor has dims"));
    let text = dims_text(dims);
    match dims.as_slice() {
        // One number in brackets is more likely an index into a list than a dim.
        [Dim { name: dim, extent: Some(extent), .. }] if dim.text == extent.to_string() => {
            diag::some_dims_or_index(name, format!("{other}{text}"), text)
        }
        _ => diag::some_dims(name, text),
    }
}

fn dims_text(dims: &[Dim]) -> String {
    diag::dims(dims.iter().map(|dim| dim.name.text.as_str()))
}

/// Discards the value of a reported mistake where another result type is required.
fn refuse<T>(_: Value) -> Option<T> {
    None
}
