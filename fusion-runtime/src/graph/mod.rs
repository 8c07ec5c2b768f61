//! Graphs that a program builds while it runs, compiled by the compiler behind `fuse!`.
//!
//! A [`Graph`] has parameters with named dims, nodes, and outputs. A node is a text of the language, or a
//! [`Node`]. [`Graph::fuse_for`] compiles the graph for a device, without rustc: GPUs get kernels, the CPU
//! interprets them.
//!
//! ```
//! use fusion::graph::{Graph, UnaryOp};
//! use fusion::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let device = Device::cpu();
//! let w = Tensor::from_slice(&device, &[1.0f32, -1.0, 0.5, 2.0], [2, 2])?;
//!
//! let mut g = Graph::new("head");
//! let (x, w) = (g.input::<f32>("x", ["N", "D"])?, g.param("w", &w, ["D", "H"])?);
//! let h = g.add("gelu(sum(x * w, D))", [("x", x), ("w", w)])?;
//! let y = g.unary(UnaryOp::Relu, h)?;
//! g.output("y", y)?;
//! g.can_fuse(&[h, y])?;
//!
//! let fused = g.fuse_for(&device)?;
//! let x = Tensor::from_slice(&device, &[1.0f32, 0.0, 0.0, 1.0], [2, 2])?;
//! let y: Tensor<f32> = fused.run(&[("x", &x)])?.take("y")?;
//! assert_eq!(fused.report().kernels(), 1);
//! assert!((y.to_vec()?[0] - 0.8413447).abs() < 1e-6);
//! # Ok(())
//! # }
//! ```
//!
//! Dims are those of the language: names that start with an uppercase letter, `C = 3` for a fixed extent. An
//! output has its dims in the order in which the graph met them, unless [`Graph::output_as`] says otherwise.
//!
//! Compiled plans are kept until the process ends. Graphs of one structure, names of parameters included, share
//! a plan.

mod analyzer;
mod cache;
mod engine;
mod fused;
mod io;
mod node;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fusion_compiler::check::session::{Mistake, Mistakes, ParamType, Returned, Session, ValueId};
use fusion_compiler::ir::dtype::{Const, DType, round, saturate};
use fusion_compiler::ir::graph::{self as ir, Fusing, Math};
use fusion_compiler::ir::plan::Target;

pub use self::analyzer::{FusableOp, FusedKernel, FusionAnalyzer, FusionNode, FusionResult};
pub use self::engine::{ComputeGraph, FusionEngine, FusionPattern, GraphNode, Operation};
pub use self::fused::{Argument, Fused, Outputs};
pub use self::io::{
    FusionBenefit, GraphIoProfile, IoFusionGate, Verdict, fusion_benefit, host_sync_op_kinds,
    profile_graph_io, profile_graph_io_outputs,
};
use self::node::OPERANDS;
pub use self::node::{Attention, BinaryOp, Conv2d, MemOp, Node, PrecisionType, ReduceOp, UnaryOp};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel::Plan;
use crate::report::lacks;
use crate::tensor::{Element, RawTensor, Tensor};

/// A graph of tensor operations.
///
/// `Display` lists the parts of the graph, a numbered line each. Messages and reports refer to these numbers.
pub struct Graph {
    id: u64,
    /// Graphs that this one was cloned from, each with the number of values at that time.
    origins: Vec<(u64, usize)>,
    name: String,
    session: Session,
    params: Vec<Param>,
    /// Lines of the listing: parameters and nodes, in order.
    lines: Vec<Line>,
    outputs: Vec<Output>,
    fusing: Fusing,
}

/// A value of a graph: a parameter, or the result of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    graph: u64,
    id: ValueId,
}

/// A parameter of the compiled function.
#[derive(Clone)]
struct Param {
    name: String,
    /// The tensor on a device, or none for a parameter that each call passes.
    tensor: Option<OnDevice>,
}

/// A function that returns a tensor on a device.
type OnDevice = Arc<dyn Fn(&Device) -> Result<RawTensor> + Send + Sync>;

/// A part of the graph.
#[derive(Clone)]
struct Line {
    text: String,
    /// True for a node, which computes its values.
    is_node: bool,
    /// Values of the part, and the operands by name.
    values: Vec<ValueId>,
    operands: Vec<(String, ValueId)>,
}

#[derive(Clone)]
struct Output {
    name: String,
    value: ValueId,
    dims: Option<String>,
}

impl Graph {
    /// Starts a graph. Errors name it.
    pub fn new(name: &str) -> Graph {
        Graph {
            id: next_id(),
            origins: Vec::new(),
            name: name.into(),
            session: Session::new(cache::NAME),
            params: Vec::new(),
            lines: Vec::new(),
            outputs: Vec::new(),
            fusing: Fusing::On,
        }
    }

    /// Returns the name of the graph.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds an input: a tensor of type `T` with these dims, outermost first, that each call passes.
    ///
    /// # Errors
    /// `Error::Graph` for a name that is taken, and for mistakes in the dims.
    pub fn input<'d, T: Element>(&mut self, name: &str, dims: impl AsRef<[&'d str]>) -> Result<Value> {
        self.tensor(name, T::DTYPE, &dims.as_ref().join(", "), None)
    }

    /// Adds an input whose type is known only at run time, with dims as one text: `N, C = 3`.
    ///
    /// # Errors
    /// The errors of `input`.
    pub fn input_of(&mut self, name: &str, dtype: DType, dims: &str) -> Result<Value> {
        self.tensor(name, dtype, dims, None)
    }

    /// Adds a parameter of a model: a tensor that belongs to the graph. A compiled graph holds it on its
    /// device, and calls do not pass it.
    ///
    /// # Errors
    /// The errors of `input`. A shape that does not fit the dims is an error of each call.
    pub fn param<'d, T: Element>(
        &mut self,
        name: &str,
        tensor: &Tensor<T>,
        dims: impl AsRef<[&'d str]>,
    ) -> Result<Value> {
        let tensor = tensor.clone();
        let on: OnDevice = Arc::new(move |device| tensor.to(device).map(Tensor::into_raw));
        self.tensor(name, T::DTYPE, &dims.as_ref().join(", "), Some(on))
    }

    /// Adds a number that each call passes.
    ///
    /// # Errors
    /// `Error::Graph` for a name that is taken.
    pub fn scalar<T: Element>(&mut self, name: &str) -> Result<Value> {
        let (dtype, kind) = (T::DTYPE, ParamType::Scalar(T::DTYPE));
        let id = self.parameter((name, kind), format!("{name}: {dtype}"), None)?;
        Ok(self.value(id.unwrap_or_else(|| unreachable!("a number has a value"))))
    }

    /// Adds an extent that each call passes, under the name of the dim.
    ///
    /// # Errors
    /// `Error::Graph` for a name that is taken, or that is no name of a dim.
    pub fn dim(&mut self, name: &str) -> Result<()> {
        self.parameter((name, ParamType::Dim), format!("{name}: dim"), None).map(|_| ())
    }

    /// Adds a node: a text of the language with one value. The text may have statements before the value.
    /// `operands` are what the text calls values of the graph.
    ///
    /// # Errors
    /// `Error::Graph` for the first mistake in the text, with its column, for an operand that the text does
    /// not use or that is given twice, and for a value of another graph.
    pub fn add<'n>(&mut self, text: &str, operands: impl AsRef<[(&'n str, Value)]>) -> Result<Value> {
        let values = self.insert(text, operands.as_ref(), Some(1))?;
        Ok(values[0])
    }

    /// Adds a node with several values: a text that ends with a tuple.
    ///
    /// # Errors
    /// The errors of `add`.
    pub fn add_all<'n>(
        &mut self,
        text: &str,
        operands: impl AsRef<[(&'n str, Value)]>,
    ) -> Result<Vec<Value>> {
        self.insert(text, operands.as_ref(), None)
    }

    /// Adds a text, which has as many values as `count` says.
    fn insert(&mut self, text: &str, operands: &[(&str, Value)], count: Option<usize>) -> Result<Vec<Value>> {
        for (i, &(name, value)) in operands.iter().enumerate() {
            self.check_own(value)?;
            if operands[..i].iter().any(|(other, _)| *other == name) {
                return Err(self.error(&self.next(text), format!("`{name}` is given twice")));
            }
        }
        let named: Vec<(&str, ValueId)> = operands.iter().map(|&(name, value)| (name, value.id)).collect();
        let listed = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let values = self.session.text(text, &named, count);
        let values = values.map_err(|mistakes| self.mistake(&listed, mistakes))?;
        let operands = operands.iter().map(|&(name, value)| (name.into(), value.id)).collect();
        self.lines.push(Line { text: listed, is_node: true, values: values.clone(), operands });
        Ok(values.into_iter().map(|value| self.value(value)).collect())
    }

    /// Adds a node.
    ///
    /// # Errors
    /// `Error::Graph` for another number of operands than the node has, for operands that the operation does
    /// not take, and for values of another graph.
    pub fn node(&mut self, node: &Node, operands: &[Value]) -> Result<Value> {
        if operands.len() != node.arity() {
            let (takes, s) = (node.arity(), if node.arity() == 1 { "" } else { "s" });
            let message = format!("the node takes {takes} operand{s}, and {} are given", operands.len());
            return Err(self.error(&self.next(&node.text()), message));
        }
        let is_name = |dim: &&str| !dim.is_empty() && dim.chars().all(|c| c.is_alphanumeric() || c == '_');
        if let Some(dim) = node.dims().into_iter().find(|dim| !is_name(dim)) {
            return Err(self.error(&self.next(""), format!("`{dim}` is no name of a dim")));
        }
        if let Node::Fill(value, dtype, dims) = node {
            return self.fill(*value, *dtype, dims);
        }
        let operands: Vec<(&str, Value)> = OPERANDS.into_iter().zip(operands.iter().copied()).collect();
        self.add(&node.text(), operands)
    }

    /// Adds an operation on one value.
    ///
    /// # Errors
    /// The errors of `node`.
    pub fn unary(&mut self, op: UnaryOp, x: Value) -> Result<Value> {
        self.node(&Node::Unary(op), &[x])
    }

    /// Adds an operation on two values, whose dims meet by name.
    ///
    /// # Errors
    /// The errors of `node`.
    pub fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Result<Value> {
        self.node(&Node::Binary(op), &[a, b])
    }

    /// Adds a reduction along dims, or along all dims if none are given.
    ///
    /// # Errors
    /// The errors of `node`.
    pub fn reduce<'d>(&mut self, op: ReduceOp, x: Value, dims: impl AsRef<[&'d str]>) -> Result<Value> {
        let dims = dims.as_ref().iter().map(|&dim| dim.into()).collect();
        self.node(&Node::Reduce(op, dims), &[x])
    }

    /// Adds a conversion to another type.
    ///
    /// # Errors
    /// The errors of `node`.
    pub fn cast(&mut self, x: Value, dtype: DType) -> Result<Value> {
        self.node(&Node::Cast(dtype), &[x])
    }

    fn fill(&mut self, value: f64, dtype: DType, dims: &[String]) -> Result<Value> {
        let constant = match dtype {
            DType::Bool => Const::Bool(value != 0.0),
            dtype if dtype.is_float() => Const::Float(round(dtype, value)),
            dtype => Const::Int(saturate(dtype, value)),
        };
        let text = Node::Fill(value, dtype, dims.to_vec()).text();
        match self.session.filled(constant, dtype, &dims.join(", ")) {
            Ok(value) => {
                self.lines.push(Line { text, is_node: true, values: vec![value], operands: Vec::new() });
                Ok(self.value(value))
            }
            Err(mistakes) => Err(self.mistake(&text, mistakes)),
        }
    }

    /// Declares an output, with its dims in the order in which the graph met them.
    ///
    /// # Errors
    /// `Error::Graph` for a name that is taken, and for a value of another graph.
    pub fn output(&mut self, name: &str, value: Value) -> Result<()> {
        self.returned(name, value, None)
    }

    /// Declares an output with dims in this order, outermost first. The value is repeated along dims that it
    /// lacks.
    ///
    /// # Errors
    /// `Error::Graph` for a name that is taken, for dims that do not fit the value, and for a value of another
    /// graph.
    pub fn output_as<'d>(&mut self, name: &str, value: Value, dims: impl AsRef<[&'d str]>) -> Result<()> {
        self.returned(name, value, Some(dims.as_ref().join(", ")))
    }

    fn returned(&mut self, name: &str, value: Value, dims: Option<String>) -> Result<()> {
        self.check_own(value)?;
        let place = format!(", output `{name}`");
        if !is_printable(name) {
            let message = format!("an output is named {name:?}: give it a name without control characters");
            return Err(self.error("", message));
        }
        if self.outputs.iter().any(|output| output.name == name) {
            return Err(self.error(&place, String::from("there is an output of this name")));
        }
        let returned = Returned { value: value.id, dims: dims.as_deref() };
        if let Err((_, mistakes)) = self.session.returning(&[returned]) {
            return Err(self.error(&place, first(mistakes)));
        }
        self.outputs.push(Output { name: name.into(), value: value.id, dims });
        Ok(())
    }

    /// Compiles one kernel per operation, as `#[fuse(off)]` does.
    pub fn unfused(&mut self) -> &mut Graph {
        self.fusing = Fusing::Off;
        self
    }

    /// Lets GPUs use their approximate instructions, as `#[fuse(fast_math)]` does.
    pub fn fast_math(&mut self) -> &mut Graph {
        self.session.set_math(Math::Fast);
        self
    }

    /// Rounds each operation to its declared type, as `#[fuse(strict)]` does. Earlier nodes stay as they are.
    pub fn strict(&mut self) -> &mut Graph {
        self.session.set_math(Math::Strict);
        self
    }

    /// Returns the type of a value as the language writes it: `f32[N, D]`.
    ///
    /// # Errors
    /// `Error::Graph` for a value of another graph.
    pub fn type_of(&self, value: Value) -> Result<String> {
        self.check_own(value)?;
        Ok(self.session.type_of(value.id))
    }

    /// Checks that the values are computed in one kernel on every target that can run them, from the values
    /// that they are computed from. Values between them, which are computed from some and which others are
    /// computed from, belong to the kernel.
    ///
    /// # Errors
    /// `Error::NotFused` with the reason that a report gives for the first kernel boundary, and the errors of
    /// `fuse_for`.
    pub fn can_fuse(&self, values: &[Value]) -> Result<()> {
        for &value in values {
            self.check_own(value)?;
        }
        let Some(graph) = self.part_of(values)? else { return Ok(()) };
        let graph = self.with_options(graph);
        let targets = fusion_compiler::kernel_boundaries(graph, &Target::ALL);
        if let Some(target) = targets.into_iter().find(|target| target.kernels > 1) {
            let first = target.boundaries.into_iter().next();
            let first = first.unwrap_or_else(|| unreachable!("a second kernel has a reason"));
            let (graph, kernels) = (self.name.clone(), target.kernels);
            let (value, node, reason) =
                (first.value, self.session.place(first.span).part as usize, first.reason);
            return Err(Error::NotFused { graph, kernels, value, node, reason });
        }
        Ok(())
    }

    /// Returns the graph of some values, with what they are computed from as parameters. Its results are the
    /// values that nothing among them reads, and those that something else needs. Parameters are computed from
    /// nothing, so a list of parameters has no graph.
    fn part_of(&self, values: &[Value]) -> Result<Option<ir::Graph>> {
        let listed = |id: ValueId| values.iter().any(|value| value.id == id);
        let between = self.between(&listed);
        let is_inside =
            |line: &Line| line.is_node && line.values.iter().any(|&id| listed(id) || between.contains(&id));
        let (inside, outside): (Vec<&Line>, Vec<&Line>) = self.lines.iter().partition(|line| is_inside(line));
        let reads = |lines: &[&Line], id: ValueId| {
            lines.iter().any(|line| line.operands.iter().any(|(_, operand)| *operand == id))
        };
        let is_output = |id: ValueId| self.outputs.iter().any(|output| output.value == id);
        let operands = inside.iter().flat_map(|line| line.operands.iter().map(|(_, id)| *id));
        let is_made = |id: ValueId| inside.iter().any(|line| line.values.contains(&id));
        let inputs: Vec<ValueId> = operands.filter(|&id| !is_made(id)).collect();
        let made = inside.iter().flat_map(|line| line.values.iter().copied()).filter(|&id| listed(id));
        let results = made.filter(|&id| is_output(id) || reads(&outside, id) || !reads(&inside, id));
        let results: Vec<Returned<'_>> = results.map(|value| Returned { value, dims: None }).collect();
        if results.is_empty() {
            return Ok(None);
        }
        let graph = self.session.between(&inputs, &results);
        graph.map(Some).map_err(|(_, mistakes)| self.error("", first(mistakes)))
    }

    /// Returns the values that are computed from some of these values, and that others of them are computed from.
    fn between(&self, listed: &dyn Fn(ValueId) -> bool) -> HashSet<ValueId> {
        let nodes = || self.lines.iter().filter(|line| line.is_node);
        let (mut after, mut before): (HashSet<ValueId>, HashSet<ValueId>) = Default::default();
        for line in nodes() {
            if line.operands.iter().any(|(_, id)| listed(*id) || after.contains(id)) {
                after.extend(&line.values);
            }
        }
        for line in nodes().rev() {
            if line.values.iter().any(|id| listed(*id) || before.contains(id)) {
                before.extend(line.operands.iter().map(|(_, id)| *id));
            }
        }
        after.intersection(&before).copied().collect()
    }

    /// Compiles the graph for a device.
    ///
    /// # Errors
    /// `Error::Graph` for a graph without outputs; `Error::Unsupported` if the device cannot compute it;
    /// the errors of moving its parameters to the device.
    pub fn fuse_for(&self, device: &Device) -> Result<Fused> {
        Fused::new(self, device)
    }

    /// Returns the plan of the graph for a target.
    ///
    /// # Errors
    /// `Error::Graph` for a graph without outputs; `Error::Unsupported`, for this device, if the target cannot
    /// compute the graph.
    fn plan(&self, target: Target, device: &dyn fmt::Display) -> Result<Plan> {
        if self.outputs.is_empty() {
            let message = String::from("the graph has no output: add one with `output`");
            return Err(self.error("", message));
        }
        let outputs = self.outputs.iter();
        let returned: Vec<Returned<'_>> =
            outputs.map(|output| Returned { value: output.value, dims: output.dims.as_deref() }).collect();
        let graph = self.session.returning(&returned);
        let graph = graph.map_err(|(i, mistakes)| {
            self.error(&format!(", output `{}`", self.outputs[i].name), first(mistakes))
        })?;
        let places: Vec<(u32, u32)> = self.session.places().map(|place| (place.part, place.column)).collect();
        let plan = cache::plan(&self.with_options(graph), target, &places)
            .map_err(|lack| lacks(&self.name, &lack, device))?;
        Ok(Plan { name: self.name.clone().into(), ..Plan::clone(&plan) })
    }

    fn output_names(&self) -> Vec<String> {
        self.outputs.iter().map(|output| output.name.clone()).collect()
    }

    fn with_options(&self, graph: ir::Graph) -> ir::Graph {
        ir::Graph { fusing: self.fusing, ..graph }
    }

    fn tensor(&mut self, name: &str, dtype: DType, dims: &str, tensor: Option<OnDevice>) -> Result<Value> {
        let line = format!("{name}: {dtype}[{dims}]");
        let value = self.parameter((name, ParamType::Tensor(dtype, dims)), line, tensor)?;
        Ok(self.value(value.unwrap_or_else(|| unreachable!("a tensor has a value"))))
    }

    fn parameter(
        &mut self,
        (name, kind): (&str, ParamType<'_>),
        line: String,
        tensor: Option<OnDevice>,
    ) -> Result<Option<ValueId>> {
        if !matches!(kind, ParamType::Dim) && !is_printable(name) {
            let message = format!("an input is named {name:?}: give it a name without control characters");
            return Err(self.error(&self.next(""), message));
        }
        if self.params.iter().any(|param| param.name == name) {
            return Err(self.error(&self.next(&line), format!("there is a parameter `{name}`")));
        }
        match self.session.param(name, kind) {
            Ok(value) => {
                self.params.push(Param { name: name.into(), tensor });
                self.lines.push(Line {
                    text: line,
                    is_node: false,
                    values: value.into_iter().collect(),
                    operands: Vec::new(),
                });
                Ok(value)
            }
            Err(mistakes) => Err(self.mistake(&line, mistakes)),
        }
    }

    fn value(&self, id: ValueId) -> Value {
        Value { graph: self.id, id }
    }

    fn check_own(&self, value: Value) -> Result<()> {
        let is_of = |&(graph, values): &(u64, usize)| value.graph == graph && (value.id.0 as usize) < values;
        if value.graph == self.id || self.origins.iter().any(is_of) {
            return Ok(());
        }
        Err(self.error(&self.next(""), String::from("a value of another graph is given")))
    }

    /// Returns the error for the first mistake in the next part, which has this text.
    fn mistake(&self, text: &str, mistakes: Mistakes) -> Error {
        self.error(&self.next(text), first(mistakes))
    }

    /// Returns the place of the next part.
    fn next(&self, text: &str) -> String {
        let text = if text.is_empty() { String::new() } else { format!(", `{text}`") };
        format!(", part {}{text}", self.lines.len() + 1)
    }

    fn error(&self, place: &str, message: String) -> Error {
        Error::Graph { graph: self.name.clone(), place: place.into(), message }
    }
}

/// Returns true if a name has characters, and none of them breaks a line.
fn is_printable(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

/// Returns a number that no graph has.
fn next_id() -> u64 {
    static GRAPHS: AtomicU64 = AtomicU64::new(0);
    GRAPHS.fetch_add(1, Ordering::Relaxed)
}

/// A clone grows apart from its original. Values of the original from before are values of the clone.
impl Clone for Graph {
    fn clone(&self) -> Graph {
        let Graph { id, origins, name, session, params, lines, outputs, fusing } = self;
        let values = lines.iter().map(|line| line.values.len()).sum();
        let origins = origins.iter().copied().chain([(*id, values)]).collect();
        let (name, session, params) = (name.clone(), session.clone(), params.clone());
        let (lines, outputs, fusing) = (lines.clone(), outputs.clone(), *fusing);
        Graph { id: next_id(), origins, name, session, params, lines, outputs, fusing }
    }
}

/// Returns the first of some mistakes, with its column unless it is at the start.
fn first(mistakes: Mistakes) -> String {
    match mistakes.into_iter().next() {
        Some(Mistake { message, column: 0 | 1 }) => message,
        Some(Mistake { message, column }) => format!("column {column}: {message}"),
        None => unreachable!("a part is refused for a mistake"),
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        let line_of = |id: ValueId| {
            self.lines.iter().position(|line| line.values.contains(&id)).map_or(0, |line| line + 1)
        };
        for (i, line) in self.lines.iter().enumerate() {
            write!(f, "{:>4}  {}", i + 1, line.text)?;
            if !line.operands.is_empty() {
                let named = line.operands.iter().map(|(name, id)| format!("{name} = {}", line_of(*id)));
                write!(f, "  where {}", named.collect::<Vec<_>>().join(", "))?;
            }
            if line.is_node {
                let types: Vec<String> = line.values.iter().map(|&id| self.session.type_of(id)).collect();
                write!(f, "  -> {}", types.join(", "))?;
            }
            writeln!(f)?;
        }
        let outputs =
            self.outputs.iter().map(|output| format!("{} = {}", output.name, line_of(output.value)));
        writeln!(f, "      outputs: {}", outputs.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({}, {} parts)", self.name, self.lines.len())
    }
}
