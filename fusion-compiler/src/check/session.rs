//! A function that is checked one part at a time, for graphs that a program builds while it runs.
//!
//! Invariant: a mistake leaves the session as it was. A text is checked like the body of a template: the names
//! that it binds end with it, and later parts see the dims of its value.

use std::str::FromStr;
use std::thread;

use proc_macro2::{LineColumn, Span, TokenStream};

use super::build::{Builder, Env, ExprValue, VarKind};
use super::expr::{self, dtype_of};
use super::function::fit_result;
use super::{dims, rename, renamed, split, unroll};
use crate::diag::{self, Diagnostics};
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{
    Access, AxisId, AxisSet, Dest, Graph, Math, Node, NodeId, NodeKind, Output, Param, ParamId, ParamKind,
    SpanId,
};
use crate::parse::ast::{At, Dim};
use crate::parse::{self, Places, Sink};

/// Stack size of a thread that checks a part, in bytes: enough for the deepest expression.
const STACK_BYTES: usize = 64 << 20;

/// A function under construction.
#[derive(Clone, Debug)]
pub struct Session {
    graph: Graph,
    /// Dims that parts can name. The environment has no variables.
    env: Env,
    views: Vec<(NodeId, Vec<AxisId>)>,
    apart: AxisSet,
    spare: AxisSet,
    has_reused: bool,
    values: Vec<ExprValue>,
    /// Place of each span of the graph.
    places: Vec<SourcePlace>,
    parts: u32,
}

/// A value of the session that made the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// The place of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    /// The part, counted from 1: a parameter or a text.
    pub part: u32,
    /// The column in the text of the part, counted from 1. A line break is one column.
    pub column: u32,
}

/// A mistake in a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The mistake, and how to mend it.
    pub message: String,
    /// The column of its token in the text of the part, counted from 1. A line break is one column.
    pub column: u32,
}

/// All mistakes in a part, in the order of discovery.
pub type Mistakes = Vec<Mistake>;

/// The kind of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType<'t> {
    /// A tensor with these dims, as a signature lists them: `N, C = 3`.
    Tensor(DType, &'t str),
    /// A number of the host.
    Scalar(DType),
    /// An extent of the host, under the name of the parameter.
    Dim,
}

/// A result of the function.
#[derive(Clone, Copy, Debug)]
pub struct Returned<'t> {
    /// The value.
    pub value: ValueId,
    /// Dims of the result, as a signature lists them, or none for the order in which the session met them.
    pub dims: Option<&'t str>,
}

impl Session {
    /// Starts a function of this name.
    pub fn new(name: &str) -> Session {
        Session {
            graph: Graph::new(name),
            env: Env::default(),
            views: Vec::new(),
            apart: AxisSet::EMPTY,
            spare: AxisSet::EMPTY,
            has_reused: false,
            values: Vec::new(),
            places: Vec::new(),
            parts: 0,
        }
    }

    /// Sets the accuracy of operations. Parts from here on are checked for it, and the whole function is compiled
    /// for it.
    pub fn set_math(&mut self, math: Math) {
        self.graph.math = math;
    }

    /// Adds a parameter. Returns its value; an extent has none.
    ///
    /// # Errors
    /// The mistakes in the dims of a tensor, or in the name of an extent.
    pub fn param(&mut self, name: &str, kind: ParamType<'_>) -> Result<Option<ValueId>, Mistakes> {
        let text = if let ParamType::Tensor(_, dims) = kind { dims } else { name };
        let made = on_thread(|| match kind {
            ParamType::Tensor(dtype, text) => {
                stored(dtype)?;
                let (dims, sink) = parsed(text, parse::dim_list)?;
                self.checked(text, sink, |b, env| {
                    let axes = tensor_dims(b, env, &dims)?;
                    let set = axes.iter().copied().collect();
                    let kind = ParamKind::Tensor { axes, access: Access::Read };
                    add_param(b, (name, dtype, kind), set).map(|value| vec![value])
                })
            }
            ParamType::Scalar(dtype) => self.checked(text, word(name), |b, _| {
                add_param(b, (name, dtype, ParamKind::Scalar), AxisSet::EMPTY).map(|value| vec![value])
            }),
            ParamType::Dim => {
                let (dims, sink) = parsed(text, parse::dim_list)?;
                if !matches!(dims.as_slice(), [Dim { name: one, extent: None, .. }] if one.text == name) {
                    let message = format!("`{name}` is no name of a dim: write one, like `N`");
                    return Err(vec![Mistake { message, column: 1 }]);
                }
                self.checked(text, sink, |b, env| {
                    let axis = dims::axis(b, env, name, At(0), &[])?;
                    let Some(symbol) = b.graph.axis(axis).extent.as_sym() else {
                        b.error(
                            At(0),
                            diag::name_clash(name, "given by the caller", "a dim of fixed extent"),
                        );
                        return None;
                    };
                    let (dtype, kind, span) = (DType::Index, ParamKind::Dim(symbol), b.place(At(0)));
                    b.graph.params.push(Param { name: name.into(), dtype, kind, span });
                    Some(Vec::new())
                })
            }
        })?;
        Ok(made.first().copied())
    }

    /// Adds the values of a text of the language: an expression, or statements that end with one. A tuple
    /// gives several values. `names` are what the text calls the values of earlier parts. `count` is the number
    /// of values that the caller takes, if that matters.
    ///
    /// # Errors
    /// The mistakes in the text, among them a name that the text does not use.
    pub fn text(
        &mut self,
        text: &str,
        names: &[(&str, ValueId)],
        count: Option<usize>,
    ) -> Result<Vec<ValueId>, Mistakes> {
        on_thread(|| {
            let mut found = 0;
            let (block, sink) = parsed(text, parse::body)?;
            let unused = names.iter().find(|(name, _)| !sink.mentions.iter().any(|known| known == name));
            if let Some((name, _)) = unused {
                return Err(vec![Mistake {
                    message: format!("`{name}` is given, and the text does not use it"),
                    column: 1,
                }]);
            }
            let values: Vec<ExprValue> =
                names.iter().map(|(_, id)| self.values[id.0 as usize].clone()).collect();
            let made = self.checked(text, sink, |b, env| {
                let (axes, first) = (b.axes_in_use(), b.graph.nodes.len());
                let mut inner = env.clone();
                for ((name, _), value) in names.iter().zip(values) {
                    inner.bind(name, value, VarKind::Param);
                }
                rename::declare(b, &mut inner, &block, &[]);
                let value = expr::body(b, &mut inner, &block)?;
                let value = rename::given(b, env, axes, value);
                rename::give_back(b, (axes, first), &value);
                let mut values = Vec::new();
                let is_whole = flatten(value, &mut values);
                found = values.len();
                (is_whole && count.is_none_or(|count| count == found)).then_some(values)
            });
            made.map_err(|mistakes| match mistakes.is_empty() {
                true => vec![Mistake {
                    message: format!("the text has {found} values: `add_all` returns them"),
                    column: 1,
                }],
                false => mistakes,
            })
        })
    }

    /// Adds a constant for each element of these dims, which a signature lists: `N, C = 3`.
    ///
    /// # Errors
    /// The mistakes in the dims.
    pub fn filled(&mut self, value: Const, dtype: DType, dims: &str) -> Result<ValueId, Mistakes> {
        stored(dtype)?;
        let made = on_thread(|| {
            let (listed, sink) = parsed(dims, parse::dim_list)?;
            self.checked(dims, sink, |b, env| {
                let axes = tensor_dims(b, env, &listed)?;
                let span = b.place(At(0));
                let literal = b.leaf(NodeKind::Literal(value), dtype, AxisSet::EMPTY, span)?;
                b.widen(literal, axes.into_iter().collect(), span).map(|value| vec![ExprValue::Node(value)])
            })
        })?;
        Ok(made[0])
    }

    /// Returns the type of a value as a signature has it: `f32[N, D]`.
    pub fn type_of(&self, value: ValueId) -> String {
        match &self.values[value.0 as usize] {
            ExprValue::Node(id) => {
                let node = self.graph.node(*id);
                let names = node.axes.iter().map(|axis| &*self.graph.axis(axis).name);
                format!("{}{}", node.dtype, diag::dims(names))
            }
            ExprValue::Weak(number) => String::from(if number.is_float { "f32[]" } else { "i32[]" }),
            ExprValue::Tuple(_) | ExprValue::Unknown => unreachable!("a session keeps single values"),
        }
    }

    /// Returns the dtype of the elements of a value.
    pub fn dtype(&self, value: ValueId) -> DType {
        match &self.values[value.0 as usize] {
            ExprValue::Node(id) => self.graph.node(*id).dtype,
            ExprValue::Weak(number) => {
                if number.is_float {
                    DType::F32
                } else {
                    DType::I32
                }
            }
            ExprValue::Tuple(_) | ExprValue::Unknown => unreachable!("a session keeps single values"),
        }
    }

    /// Returns the names of the dims of a value, in the order in which the session met them.
    pub fn dims(&self, value: ValueId) -> Vec<String> {
        match &self.values[value.0 as usize] {
            ExprValue::Node(id) => {
                let axes = self.graph.node(*id).axes;
                axes.iter().map(|axis| self.graph.axis(axis).name.to_string()).collect()
            }
            ExprValue::Weak(_) | ExprValue::Tuple(_) | ExprValue::Unknown => Vec::new(),
        }
    }

    /// Returns the place of a token of the session.
    pub fn place(&self, span: SpanId) -> SourcePlace {
        self.places.get(span.0 as usize).copied().unwrap_or(SourcePlace { part: 0, column: 0 })
    }

    /// Returns the place of each token, by `SpanId`.
    pub fn places(&self) -> impl Iterator<Item = SourcePlace> {
        self.places.iter().copied()
    }

    /// Returns the graph of the function that returns these values.
    ///
    /// # Errors
    /// The number of the mistaken result, with its mistakes.
    pub fn returning(&self, results: &[Returned<'_>]) -> Result<Graph, (usize, Mistakes)> {
        let mut session = self.clone();
        for (i, result) in results.iter().enumerate() {
            on_thread(|| session.output(result)).map_err(|mistakes| (i, mistakes))?;
        }
        on_thread(|| session.finished()).map_err(|mistakes| (0, mistakes))
    }

    /// Returns the graph of the function that computes values from others, which become its parameters.
    /// `inputs` are cut off from what makes them.
    ///
    /// # Errors
    /// As `returning`.
    pub fn between(&self, inputs: &[ValueId], results: &[Returned<'_>]) -> Result<Graph, (usize, Mistakes)> {
        let mut session = self.clone();
        for (i, input) in inputs.iter().enumerate() {
            let ExprValue::Node(id) = session.values[input.0 as usize] else { continue };
            let Node { dtype, axes, span, .. } = *session.graph.node(id);
            let kind = ParamKind::Tensor { axes: axes.iter().collect(), access: Access::Read };
            let param = ParamId(session.graph.params.len() as u16);
            session.graph.params.push(Param { name: format!("input_{i}"), dtype, kind, span });
            session.graph.nodes[id.0 as usize] =
                Node { kind: NodeKind::Input(param), args: Vec::new(), dtype, axes, span };
        }
        session.returning(results)
    }

    fn output(&mut self, result: &Returned<'_>) -> Result<(), Mistakes> {
        let value = self.values[result.value.0 as usize].clone();
        let (listed, sink) = match result.dims {
            Some(text) => {
                let (dims, sink) = parsed(text, parse::dim_list)?;
                (Some(dims), sink)
            }
            None => (None, word("result")),
        };
        self.checked(result.dims.unwrap_or("result"), sink, |b, env| {
            let dtype = dtype_of(b, &value)?;
            let axes = match listed {
                Some(dims) => {
                    let axes =
                        dims.iter().map(|dim| known_dim(b, env, dim)).collect::<Option<Vec<AxisId>>>()?;
                    if let Some(i) = (0..axes.len()).find(|&i| axes[..i].contains(&axes[i])) {
                        let name = b.graph.axis(axes[i]).name.clone();
                        b.error(At(0), diag::duplicate_dim(name));
                        return None;
                    }
                    axes
                }
                None => match &value {
                    ExprValue::Node(id) => b.graph.node(*id).axes.iter().collect(),
                    ExprValue::Weak(_) | ExprValue::Tuple(_) | ExprValue::Unknown => Vec::new(),
                },
            };
            let node = fit_result(b, value, (dtype, dtype.name()), &axes, At(0))?;
            b.graph.outputs.push(Output { node, axes, dest: Dest::Fresh });
            Some(Vec::new())
        })?;
        Ok(())
    }

    fn finished(mut self) -> Result<Graph, Mistakes> {
        self.checked("result", word("result"), |b, _| {
            renamed::expand(b);
            split::refine(b);
            unroll::limit(&mut b.graph);
            Some(Vec::new())
        })?;
        rename::finish(&mut self.graph, self.views);
        Ok(self.graph)
    }

    /// Checks a part, and keeps its values unless there is a mistake.
    fn checked(
        &mut self,
        text: &str,
        sink: Sink,
        check: impl FnOnce(&mut Builder<'_>, &mut Env) -> Option<Vec<ExprValue>>,
    ) -> Result<Vec<ValueId>, Mistakes> {
        let Sink { mut places, mut errors, .. } = sink;
        // A part without dims has no token.
        if places.texts.is_empty() {
            places = word(text).places;
        }
        let before = self.before();
        let mut b = Builder::new("", &[], &places, &mut errors);
        std::mem::swap(&mut b.graph, &mut self.graph);
        (b.apart, b.spare, b.has_reused) = (self.apart, self.spare, self.has_reused);
        b.views = std::mem::take(&mut self.views);
        b.spans = vec![Span::call_site(); self.places.len()];
        let values = check(&mut b, &mut self.env);
        let Builder { graph, apart, spare, has_reused, views, spans, .. } = b;
        *self =
            Session { graph, apart, spare, has_reused, views, ..std::mem::replace(self, Session::new("")) };
        let Some(values) = values.filter(|_| errors.is_empty()) else {
            self.restore(before);
            return Err(mistakes(&errors, text));
        };
        self.parts += 1;
        let part = self.parts;
        let place = |span: &Span| SourcePlace { part, column: column(text, span.start()) };
        self.places.extend(spans[self.places.len()..].iter().map(place));
        let first = self.values.len() as u32;
        self.values.extend(values);
        Ok((first..self.values.len() as u32).map(ValueId).collect())
    }

    /// Returns the session without its nodes, which parts only append.
    fn before(&mut self) -> (Session, usize) {
        let nodes = std::mem::take(&mut self.graph.nodes);
        let (values, places) = (std::mem::take(&mut self.values), std::mem::take(&mut self.places));
        let before = (self.clone(), nodes.len());
        (self.graph.nodes, self.values, self.places) = (nodes, values, places);
        before
    }

    fn restore(&mut self, (before, len): (Session, usize)) {
        let mut nodes = std::mem::take(&mut self.graph.nodes);
        nodes.truncate(len);
        let (values, places) = (std::mem::take(&mut self.values), std::mem::take(&mut self.places));
        *self = Session { values, places, ..before };
        self.graph.nodes = nodes;
    }
}

/// Runs the checker on a thread of its own. Positions of tokens stay in memory until the thread that parsed
/// them ends, and a caller's stack may be too small for deep expressions.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        match thread.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => panic!("the compiler needs threads: {error}"),
        }
    })
}

/// Checks that tensors can have elements of a dtype: kernels alone have positions.
fn stored(dtype: DType) -> Result<(), Mistakes> {
    match dtype {
        DType::Index => {
            let message = diag::unknown_dtype(dtype.name(), "").to_string();
            Err(vec![Mistake { message, column: 1 }])
        }
        _ => Ok(()),
    }
}

/// Parses a text.
fn parsed<T>(
    text: &str,
    parse: impl FnOnce(TokenStream, &mut Sink) -> parse::Parsed<T>,
) -> Result<(T, Sink), Mistakes> {
    let Ok(tokens) = TokenStream::from_str(text) else {
        let message = String::from(
            "this is no text of the language: a bracket is not closed, or a letter is none of Rust's",
        );
        return Err(vec![Mistake { message, column: 1 }]);
    };
    let mut sink = Sink::default();
    match parse(tokens, &mut sink) {
        Ok(parsed) => Ok((parsed, sink)),
        Err(_) => Err(mistakes(&sink.errors, text)),
    }
}

/// Returns the output of the parser for a single word.
fn word(name: &str) -> Sink {
    let places = Places { spans: vec![Span::call_site()], texts: vec![name.into()] };
    Sink { places, ..Sink::default() }
}

/// Returns the axes of a tensor's dims, and creates those that are new.
fn tensor_dims(b: &mut Builder<'_>, env: &mut Env, dims: &[Dim]) -> Option<Vec<AxisId>> {
    let fixed = dims::fixed(b, dims.iter());
    for dim in dims.iter().filter(|dim| dim.extent.is_some()) {
        if env.axis(&dim.name.text).is_some() {
            known_dim(b, env, dim)?;
        }
    }
    dims::declare(b, env, dims, &fixed)
}

/// Returns the axis of a dim of the session. Reports a dim that has another extent, or that there is not.
fn known_dim(b: &mut Builder<'_>, env: &Env, dim: &Dim) -> Option<AxisId> {
    let (name, at) = (&dim.name.text, dim.name.at);
    let Some(axis) = env.axis(name) else {
        let near = diag::did_you_mean(name, env.dims.iter().map(|(dim, _)| dim.as_str()));
        b.error(at, diag::unknown_dim(name, near));
        return None;
    };
    let extent = &b.graph.axis(axis).extent;
    let Some(wants) = dim.extent.filter(|&wants| extent.as_const() != Some(wants)) else { return Some(axis) };
    let has = extent.as_const().map_or_else(|| format!("of each call (`{name}`)"), |has| has.to_string());
    b.error(at, diag::dim_conflict(name, has, wants));
    None
}

/// Adds a parameter with a value.
fn add_param(
    b: &mut Builder<'_>,
    (name, dtype, kind): (&str, DType, ParamKind),
    axes: AxisSet,
) -> Option<ExprValue> {
    let (id, span) = (ParamId(b.graph.params.len() as u16), b.place(At(0)));
    let node = match kind {
        ParamKind::Tensor { .. } | ParamKind::View { .. } => NodeKind::Input(id),
        ParamKind::Scalar | ParamKind::Dim(_) => NodeKind::Scalar(id),
    };
    b.graph.params.push(Param { name: name.into(), dtype, kind, span });
    b.leaf(node, dtype, axes, span).map(ExprValue::Node)
}

/// Appends the parts of a value. Returns false for a mistake.
fn flatten(value: ExprValue, values: &mut Vec<ExprValue>) -> bool {
    match value {
        ExprValue::Tuple(parts) => parts.into_iter().all(|part| flatten(part, values)),
        ExprValue::Unknown => false,
        one @ (ExprValue::Node(_) | ExprValue::Weak(_)) => {
            values.push(one);
            true
        }
    }
}

fn mistakes(errors: &Diagnostics, text: &str) -> Mistakes {
    let mistake = |(span, message): (Span, &str)| Mistake {
        message: message.into(),
        column: column(text, span.start()),
    };
    errors.iter().map(mistake).collect()
}

/// Returns the column of a position in a text, counted from 1, with a line break as one column.
fn column(text: &str, position: LineColumn) -> u32 {
    let before = text.split('\n').take(position.line.saturating_sub(1));
    let lines: usize = before.map(|line| line.chars().count() + 1).sum();
    (lines + position.column + 1) as u32
}
