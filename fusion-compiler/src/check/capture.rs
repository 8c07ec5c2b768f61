//! Captures of the inline form, which become parameters in the order of their first use.

use proc_macro2::TokenStream;

use super::build::{Builder, ExprValue, Form};
use super::value::known;
use crate::diag;
use crate::ir::graph::{Access, AxisId, AxisSet, NodeId, NodeKind, Param, ParamId, ParamKind};
use crate::parse::ast::{Arg, At, Dim, ExprKind};
use crate::parse::{self, Capture};

/// Evaluates a captured variable, given by its bare name.
pub(super) fn variable(b: &mut Builder<'_>, at: At, name: &str) -> ExprValue {
    if b.form == Form::Dims {
        let message = lacks_dims(b, name);
        return b.error(at, message);
    }
    let tokens = parse::variable(name, b.places.span(at));
    tensor(b, Some(name), (name, at), tokens, vec![AxisId(0)])
}

/// Evaluates a captured path or Rust expression, or a variable with dims.
pub(super) fn capture(b: &mut Builder<'_>, number: usize) -> ExprValue {
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
pub(super) fn host(b: &mut Builder<'_>, number: usize) -> ExprValue {
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
) -> ExprValue {
    let path = path.map(|path| format!("{path}{}", context(&tokens)));
    let known_path = b.captures.paths.iter().find(|(known, _)| Some(known) == path.as_ref());
    if let Some((_, node)) = known_path.cloned() {
        return match first_axes(b, node) {
            Some(first) if first != axes => {
                let (first, second) = (b.order_text(&first), b.order_text(&axes));
                b.error(at, diag::capture_dims(text, first, second))
            }
            Some(_) | None => ExprValue::Node(node),
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

pub(super) fn dims_text(dims: &[Dim]) -> String {
    diag::dims(dims.iter().map(|dim| dim.name.text.as_str()))
}
