//! The graph being built, and the context of a source position: names, dims and the calls being expanded.
//!
//! Invariant: every node and every error is at a token of the user. Inside an expanded call, the token is the
//! function name of the outermost call.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use proc_macro2::{Span, TokenStream};

use super::weak::Weak;
use crate::diag::{self, Diagnostics, Message};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, Dim, Graph, Node, NodeId, NodeKind, ParamId, SpanId};
use crate::parse::ast::{self, At};
use crate::parse::{Capture, Places};

/// Largest number of nodes of a function once all calls are expanded.
const NODES_MAX: usize = 1 << 16;

/// The result of an expression.
#[derive(Clone, Debug)]
pub(super) enum ExprValue {
    /// A value with a dtype.
    Node(NodeId),
    /// A number that takes the dtype of the value it meets.
    Weak(Weak),
    /// Several values.
    Tuple(Vec<ExprValue>),
    /// A mistake, already reported.
    Unknown,
}

/// A name in scope.
#[derive(Clone, Debug)]
pub(super) struct Var {
    pub(super) name: String,
    pub(super) value: ExprValue,
    pub(super) kind: VarKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VarKind {
    Let,
    Param,
    /// A `&mut` parameter of the function being built.
    InPlace(ParamId),
}

/// The meaning of names in a function body.
#[derive(Clone, Debug, Default)]
pub(super) struct Env {
    /// Variables in scope. The last variable of a name shadows the others.
    pub(super) vars: Vec<Var>,
    /// The axes of each dim. A template may be given several axes for one dim.
    pub(super) dims: Vec<(String, Vec<AxisId>)>,
    /// The dtype of each generic.
    pub(super) types: Vec<(String, DType)>,
}

/// A call being expanded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) function: &'a ast::Function,
    pub(super) origin: Origin,
    /// Token of the function name in the call.
    pub(super) at: At,
    /// True once a mistake of this library call is reported. Further mistakes of the call tell the user
    /// nothing new.
    pub(super) mistaken: bool,
}

impl<'a> Frame<'a> {
    pub(super) fn new(function: &'a ast::Function, origin: Origin, at: At) -> Frame<'a> {
        Frame { function, origin, at, mistaken: false }
    }
}

/// The place where a function is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Block,
    Std,
}

/// The form of a `fuse!`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Function,
    /// Inline form with named dims.
    Dims,
    /// Inline form with one axis for tensors of any shape.
    AnyShape,
}

/// The captures of an inline expression.
pub(super) struct Captures<'a> {
    /// Dtype of every capture and of the result.
    pub(super) dtype: DType,
    /// Captures as parsed.
    pub(super) parsed: &'a [Capture],
    /// Axes of each capture in order, if dims are named.
    pub(super) axes: Vec<Vec<AxisId>>,
    /// Rust expression of each parameter.
    pub(super) rust: Vec<TokenStream>,
    /// Captured paths that already are parameters.
    pub(super) paths: Vec<(String, NodeId)>,
}

impl Default for Captures<'_> {
    fn default() -> Self {
        Captures { dtype: DType::F32, parsed: &[], axes: vec![], rust: vec![], paths: vec![] }
    }
}

/// The graph being built.
pub(super) struct Builder<'a> {
    pub(super) graph: Graph,
    /// The functions of the block.
    pub(super) block: &'a [&'a ast::Function],
    pub(super) places: &'a Places,
    pub(super) form: Form,
    /// The calls being expanded, outermost first.
    pub(super) frames: Vec<Frame<'a>>,
    /// The function being built, which nothing in its body may call.
    pub(super) root: Option<&'a str>,
    /// Names whose definitions could not be parsed.
    pub(super) mistaken: &'a [String],
    /// Nodes that read a tensor at other axes than its own, with those axes in the tensor's order.
    pub(super) views: Vec<(NodeId, Vec<AxisId>)>,
    /// Axes created by calls whose names have another meaning in the caller.
    pub(super) apart: AxisSet,
    /// Axes created by calls and no longer used by any value, for reuse by dims of the same name and extent.
    pub(super) spare: AxisSet,
    /// True once a spare dim has been reused, so that unused values may still have its former meaning.
    pub(super) has_reused: bool,
    /// In-place parameters that have been assigned.
    pub(super) assigned: Vec<ParamId>,
    /// Captures of the inline form.
    pub(super) captures: Captures<'a>,
    pub(super) spans: Vec<Span>,
    span_ids: FxHashMap<At, SpanId>,
    errors: &'a mut Diagnostics,
    /// Number of calls expanded so far.
    pub(super) calls: u32,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        name: &str,
        block: &'a [&'a ast::Function],
        places: &'a Places,
        errors: &'a mut Diagnostics,
    ) -> Builder<'a> {
        Builder {
            graph: Graph::new(name),
            block,
            places,
            form: Form::Function,
            frames: Vec::new(),
            root: None,
            mistaken: &[],
            views: Vec::new(),
            apart: AxisSet::EMPTY,
            spare: AxisSet::EMPTY,
            has_reused: false,
            assigned: Vec::new(),
            captures: Captures::default(),
            spans: Vec::new(),
            span_ids: FxHashMap::default(),
            errors,
            calls: 0,
        }
    }

    /// Returns the span of the user's token for a token of the current body.
    pub(super) fn place(&mut self, at: At) -> SpanId {
        let at = self.frames.first().map_or(at, |frame| frame.at);
        *self.span_ids.entry(at).or_insert_with(|| {
            self.spans.push(self.places.span(at));
            SpanId(self.spans.len() as u32 - 1)
        })
    }

    /// Returns the number of reported mistakes.
    pub(super) fn error_count(&self) -> usize {
        self.errors.len()
    }

    /// Reports a mistake at a token of the current body.
    pub(super) fn error(&mut self, at: At, message: Message) -> ExprValue {
        let users = self.frames.iter().rposition(|frame| frame.origin == Origin::Block).map_or(0, |i| i + 1);
        if let Some(call) = self.frames.get_mut(users)
            && std::mem::replace(&mut call.mistaken, true)
        {
            return ExprValue::Unknown;
        }
        // A mistake inside a typed function is reported at its own token, once for all calls.
        let base = self.frames.iter().rposition(|frame| frame.function.is_typed()).map_or(0, |i| i + 1);
        let chain = &self.frames[base..];
        let message = match chain.iter().rev().find(|frame| frame.origin == Origin::Block) {
            // The token belongs to the innermost function. If that is a library function, the message names
            // the call in the user's function.
            Some(frame) => {
                let inner = chain.iter().rev().take_while(|frame| frame.origin == Origin::Std).last();
                let token = self.places.text(inner.map_or(at, |inner| inner.at));
                message.in_template(&frame.function.name.text, token)
            }
            None => match chain.first() {
                Some(frame) => message.in_call(&frame.function.name.text),
                None => message,
            },
        };
        let at = chain.first().map_or(at, |frame| frame.at);
        self.errors.push(self.places.span(at), message);
        ExprValue::Unknown
    }

    /// Reports a mistake that does not depend on the call of the current function, at its own token and once.
    pub(super) fn error_here(&mut self, at: At, message: Message) -> ExprValue {
        if self.in_std() {
            return self.error(at, message);
        }
        self.errors.push(self.places.span(at), message);
        ExprValue::Unknown
    }

    /// Reports a mistake that concerns the whole chain of calls.
    pub(super) fn error_always(&mut self, at: At, message: Message) -> ExprValue {
        let span = self.place(at);
        self.error_span(span, message)
    }

    /// Reports a mistake at a token of the user.
    pub(super) fn error_span(&mut self, span: SpanId, message: Message) -> ExprValue {
        self.errors.push(self.spans[span.0 as usize], message);
        ExprValue::Unknown
    }

    /// Appends a node, unless the function has too many nodes.
    pub(super) fn push(&mut self, node: Node) -> Option<NodeId> {
        if self.graph.nodes.len() >= NODES_MAX {
            self.error_span(node.span, diag::too_many_terms());
            return None;
        }
        Some(self.graph.push(node))
    }

    /// Returns another of these axes with the name of this one.
    pub(super) fn namesake(&self, axis: AxisId, axes: AxisSet) -> Option<AxisId> {
        axes.iter().find(|&other| other != axis && self.graph.axis(other).name == self.graph.axis(axis).name)
    }

    /// Returns the message for two dims of one name.
    pub(super) fn two_dims(&self, first: AxisId, second: AxisId) -> Message {
        let extent = |axis| self.graph.axis(axis).extent.display(&self.graph.symbols).to_string();
        let name = &self.graph.axis(first).name;
        diag::dims_of_one_name(name, extent(first), extent(second))
    }

    /// Returns the message for a dim that a value with these axes lacks.
    pub(super) fn lacks(&self, axis: AxisId, has: AxisSet) -> Message {
        match self.namesake(axis, has) {
            Some(other) => self.two_dims(axis, other),
            None => diag::no_such_axis(&self.graph.axis(axis).name, self.axes_text(has)),
        }
    }

    /// Returns true if the function has the maximum number of nodes, so that further expansion is pointless.
    pub(super) fn is_full(&self) -> bool {
        self.graph.nodes.len() >= NODES_MAX
    }

    /// Appends a node without operands.
    pub(super) fn leaf(
        &mut self,
        kind: NodeKind,
        dtype: DType,
        axes: AxisSet,
        span: SpanId,
    ) -> Option<NodeId> {
        self.push(Node { kind, args: vec![], dtype, axes, span })
    }

    /// Returns the axes that values may have.
    pub(super) fn axes_in_use(&self) -> AxisSet {
        self.graph.all_axes().minus(self.spare)
    }

    /// Broadcasts a value along more axes. Broadcasting costs nothing at run time.
    pub(super) fn widen(&mut self, id: NodeId, axes: AxisSet, span: SpanId) -> Option<NodeId> {
        let (dtype, has) = (self.graph.node(id).dtype, self.graph.node(id).axes);
        if has == axes {
            return Some(id);
        }
        self.push(Node { kind: NodeKind::Cast, args: vec![id], dtype, axes: has.union(axes), span })
    }

    /// Adds an axis. There must be room.
    pub(super) fn axis(&mut self, name: &str, extent: DimExpr) -> AxisId {
        self.graph.axes.push(Dim { name: String::from(name).into(), extent });
        AxisId((self.graph.axes.len() - 1) as u8)
    }

    /// Returns the axes of a value as text: `[N, D]`.
    pub(super) fn axes_text(&self, axes: AxisSet) -> String {
        if axes.is_empty() {
            return String::from("no dims");
        }
        diag::dims(axes.iter().map(|axis| &*self.graph.axis(axis).name))
    }

    /// Returns the names of axes in this order as text: `N, D`.
    pub(super) fn names_text(&self, axes: &[AxisId]) -> String {
        axes.iter().map(|&axis| &*self.graph.axis(axis).name).collect::<Vec<_>>().join(", ")
    }

    /// Returns axes in this order as text: `[N, D]`.
    pub(super) fn order_text(&self, axes: &[AxisId]) -> String {
        diag::dims(axes.iter().map(|&axis| &*self.graph.axis(axis).name))
    }

    /// Returns the name of the library function that the user called, or `own` outside of the library.
    pub(super) fn called(&self, own: &'static str) -> Cow<'static, str> {
        match self.frames.iter().find(|frame| frame.origin == Origin::Std) {
            Some(frame) => frame.function.name.text.clone().into(),
            None => own.into(),
        }
    }

    /// Returns true if the current body belongs to the standard library.
    pub(super) fn in_std(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.origin == Origin::Std)
    }
}

impl Env {
    pub(super) fn var(&self, name: &str) -> Option<&Var> {
        self.vars.iter().rev().find(|var| var.name == name)
    }

    pub(super) fn var_mut(&mut self, name: &str) -> Option<&mut Var> {
        self.vars.iter_mut().rev().find(|var| var.name == name)
    }

    /// Returns the axes of a dim.
    pub(super) fn dim(&self, name: &str) -> Option<&[AxisId]> {
        self.dims.iter().find(|(dim, _)| dim == name).map(|(_, axes)| axes.as_slice())
    }

    /// Returns the dtype of this name, which is a generic or a dtype of the language.
    pub(super) fn dtype(&self, name: &str) -> Option<DType> {
        let generic = self.types.iter().find(|(generic, _)| generic == name);
        generic.map(|(_, dtype)| *dtype).or_else(|| DType::from_name(name))
    }

    /// Returns the axis of a dim that has exactly one.
    pub(super) fn axis(&self, name: &str) -> Option<AxisId> {
        self.dim(name).and_then(only)
    }

    pub(super) fn bind(&mut self, name: &str, value: ExprValue, kind: VarKind) {
        self.vars.push(Var { name: name.into(), value, kind });
    }
}

/// Returns the axis of a list of one.
pub(super) fn only(axes: &[AxisId]) -> Option<AxisId> {
    match axes {
        [axis] => Some(*axis),
        _ => None,
    }
}
