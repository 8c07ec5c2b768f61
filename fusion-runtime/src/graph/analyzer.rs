//! Fusion analysis over nodes with numeric shapes, by the rules of the first proposal.
//!
//! Element-wise operations of one shape fuse; a reduction is a kernel of its own. `FusionAnalyzer::graph`
//! gives the same nodes to the compiler, which fuses reductions too.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fmt;

use fusion_compiler::ir::dtype::DType;

use super::node::{BinaryOp, MemOp, Node, ReduceOp, UnaryOp};
use super::{Argument, Graph, Value};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// An operation of a fusion graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FusableOp {
    /// An element-wise operation on one input.
    Unary(UnaryOp),
    /// An element-wise operation on two inputs of one shape.
    Binary(BinaryOp),
    /// A reduction of one input along all its dims.
    Reduce(ReduceOp),
    /// A memory operation on one input.
    MemoryOp(MemOp),
}

/// A node of a fusion graph.
#[derive(Clone, Debug, PartialEq)]
pub struct FusionNode {
    /// Number of the node.
    pub id: usize,
    /// Operation of the node.
    pub op: FusableOp,
    /// Shape of the result.
    pub shape: Vec<usize>,
    /// Numbers of the inputs, in order. A number of no node is an input of the graph.
    pub inputs: Vec<usize>,
}

/// Operations that run as one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedKernel {
    /// Number of the kernel, in the order in which kernels run.
    pub id: usize,
    /// Nodes of the kernel, in order.
    pub nodes: Vec<FusionNode>,
    /// Numbers of the values that the kernel reads, each once.
    pub external_inputs: Vec<usize>,
    /// Numbers of the nodes that other kernels or the caller need.
    pub external_outputs: Vec<usize>,
    /// Bytes of `f32` values that fusion keeps out of memory.
    pub memory_saved: usize,
}

/// Operations that are added one by one, and divided into kernels.
#[derive(Clone, Debug, Default)]
pub struct FusionAnalyzer {
    nodes: Vec<FusionNode>,
}

/// The kernels of a fusion graph.
///
/// `Display` prints one line: `Fusion: 10 → 1 kernels (90% reduction), 64.0KB memory saved`.
#[derive(Clone, Debug, PartialEq)]
pub struct FusionResult {
    /// The kernels, in an order in which they can run.
    pub fused_kernels: Vec<FusedKernel>,
    /// Bytes that all kernels keep out of memory.
    pub total_memory_saved: usize,
    /// Number of kernels without fusion: one per node.
    pub original_kernel_count: usize,
}

impl FusionNode {
    fn is_element_wise(&self) -> bool {
        matches!(self.op, FusableOp::Unary(_) | FusableOp::Binary(_))
    }

    fn elements(&self) -> usize {
        self.shape.iter().fold(1, |elements: usize, &extent| elements.saturating_mul(extent))
    }

    /// Returns the operation, for inputs with one element or more.
    fn node(&self, is_single: bool) -> Node {
        use ReduceOp::{Max, Mean, Min, Prod, Sum};
        match self.op {
            // A single element has no dims.
            FusableOp::Reduce(Sum | Max | Min | Mean | Prod) if is_single => Node::Memory(MemOp::Copy),
            FusableOp::Unary(op) => Node::Unary(op),
            FusableOp::Binary(op) => Node::Binary(op),
            FusableOp::Reduce(op) => Node::Reduce(op, Vec::new()),
            FusableOp::MemoryOp(op) => Node::Memory(op),
        }
    }
}

impl FusionAnalyzer {
    /// Starts an empty graph.
    pub fn new() -> FusionAnalyzer {
        FusionAnalyzer::default()
    }

    /// Adds an operation, and returns its number. Numbers count from 0.
    pub fn add_node(&mut self, op: FusableOp, shape: Vec<usize>, inputs: Vec<usize>) -> usize {
        let id = self.nodes.len();
        self.nodes.push(FusionNode { id, op, shape, inputs });
        id
    }

    /// Divides the graph into kernels. An element-wise node joins the kernels of its inputs that have its shape,
    /// unless a kernel would then wait for itself.
    pub fn fuse(&self) -> FusionResult {
        // Kernel of each node, named by its first node.
        let mut kernel: Vec<usize> = (0..self.nodes.len()).collect();
        for node in self.nodes.iter().filter(|node| node.is_element_wise()) {
            for input in self.producers(node) {
                let same = input.is_element_wise() && input.shape == node.shape;
                let (from, to) = (kernel[input.id], kernel[node.id]);
                if !same || from == to {
                    continue;
                }
                let joined: Vec<usize> = kernel.iter().map(|&of| if of == to { from } else { of }).collect();
                if self.order(&joined).is_some() {
                    kernel = joined;
                }
            }
        }
        let order = self.order(&kernel).unwrap_or_default();
        let kernels = order.iter().enumerate().map(|(id, &of)| self.kernel(id, of, &kernel));
        let fused_kernels: Vec<FusedKernel> = kernels.collect();
        FusionResult {
            total_memory_saved: fused_kernels
                .iter()
                .fold(0, |bytes: usize, kernel| bytes.saturating_add(kernel.memory_saved)),
            original_kernel_count: self.nodes.len(),
            fused_kernels,
        }
    }

    /// Returns the nodes that a node reads.
    fn producers<'n>(&'n self, node: &'n FusionNode) -> impl Iterator<Item = &'n FusionNode> {
        node.inputs.iter().filter(|&&input| input != node.id).filter_map(|&input| self.nodes.get(input))
    }

    /// Returns the kernels in an order in which they can run, unless one waits for itself.
    fn order(&self, kernel: &[usize]) -> Option<Vec<usize>> {
        let mut left: BTreeSet<usize> = kernel.iter().copied().collect();
        let mut order = Vec::new();
        while !left.is_empty() {
            let waits = |of: usize| {
                let nodes = self.nodes.iter().filter(|node| kernel[node.id] == of);
                nodes
                    .flat_map(|node| self.producers(node))
                    .any(|input| kernel[input.id] != of && left.contains(&kernel[input.id]))
            };
            let next = left.iter().copied().find(|&of| !waits(of))?;
            left.remove(&next);
            order.push(next);
        }
        Some(order)
    }

    fn kernel(&self, id: usize, of: usize, kernel: &[usize]) -> FusedKernel {
        let nodes: Vec<FusionNode> =
            self.nodes.iter().filter(|node| kernel[node.id] == of).cloned().collect();
        let is_inside = |id: usize| nodes.iter().any(|node| node.id == id);
        let mut external_inputs = Vec::new();
        for &input in nodes.iter().flat_map(|node| &node.inputs) {
            if !is_inside(input) && !external_inputs.contains(&input) {
                external_inputs.push(input);
            }
        }
        let is_needed = |node: &&FusionNode| {
            let mut consumers = self.nodes.iter().filter(|other| other.inputs.contains(&node.id)).peekable();
            consumers.peek().is_none() || consumers.any(|other| !is_inside(other.id))
        };
        let external_outputs: Vec<usize> = nodes.iter().filter(is_needed).map(|node| node.id).collect();
        let inner = nodes.iter().filter(|node| !external_outputs.contains(&node.id));
        let memory_saved = inner.fold(0, |bytes: usize, node| {
            bytes.saturating_add(node.elements().saturating_mul(size_of::<f32>()))
        });
        FusedKernel { id, external_inputs, external_outputs, memory_saved, nodes }
    }

    /// Returns the nodes as a graph for the compiler, whose inputs and outputs are named by numbers: `"0"`.
    /// Outputs are the nodes that no other reads.
    ///
    /// # Errors
    /// `Error::Graph` for a node with another number of inputs than its operation takes, and for shapes that
    /// differ.
    pub fn graph(&self) -> Result<Graph> {
        let read = |id: usize| self.nodes.iter().any(|node| node.inputs.contains(&id));
        let outputs: Vec<usize> = self.nodes.iter().map(|node| node.id).filter(|&id| !read(id)).collect();
        // An input that only reductions read may have any number of elements.
        let elements = |id: usize| {
            let mut consumers = self.nodes.iter().filter(|node| node.inputs.contains(&id));
            consumers.find(|node| !matches!(node.op, FusableOp::Reduce(_))).map(FusionNode::elements)
        };
        build(&self.nodes, &outputs, &elements).map(|(graph, _)| graph)
    }
}

/// A value of the graph of some nodes.
#[derive(Clone)]
struct NodeValue {
    value: Value,
    /// Number of elements; none for an input with any number.
    elements: Option<usize>,
    /// Shape of the node; none for an input of the graph.
    shape: Option<Vec<usize>>,
}

/// Builds the graph of some nodes. `elements` is the number of elements of an input of the graph, or none for
/// an input with any number. Also returns the inputs.
fn build(
    nodes: &[FusionNode],
    outputs: &[usize],
    elements: &dyn Fn(usize) -> Option<usize>,
) -> Result<(Graph, Vec<usize>)> {
    let mut graph = Graph::new("kernel");
    let mut values: HashMap<usize, NodeValue> = HashMap::new();
    let mut inputs = Vec::new();
    for node in nodes {
        for &input in node.inputs.iter().filter(|&&input| nodes.iter().all(|other| other.id != input)) {
            if let Entry::Vacant(vacant) = values.entry(input) {
                let dims = match elements(input) {
                    // A single element has no dims.
                    Some(1) => String::new(),
                    Some(len) => format!("L{len}"),
                    None => format!("I{input}"),
                };
                let value = graph.input_of(&input.to_string(), DType::F32, &dims)?;
                vacant.insert(NodeValue { value, elements: elements(input), shape: None });
                inputs.push(input);
            }
        }
        let operands: Option<Vec<NodeValue>> =
            node.inputs.iter().map(|input| values.get(input).cloned()).collect();
        let fits = operands.ok_or_else(|| String::from("an input of the node comes after it"));
        let fits = fits.and_then(|operands| fit(node, &operands).map(|()| operands));
        let operands = fits.map_err(|message| Error::Graph {
            graph: String::from("kernel"),
            place: format!(", node {}, {:?}", node.id, node.op),
            message,
        })?;
        let mut read: Vec<Value> = operands.iter().map(|operand| operand.value).collect();
        let is_single = operands.iter().all(|operand| operand.elements == Some(1));
        if let (
            FusableOp::Reduce(
                ReduceOp::Var
                | ReduceOp::Std
                | ReduceOp::Norm
                | ReduceOp::Logsumexp
                | ReduceOp::Argmax
                | ReduceOp::Argmin,
            ),
            true,
            [single],
        ) = (node.op, is_single, read.as_mut_slice())
        {
            // A single element has no dims, and these take one.
            let dtype = graph.session.dtype(single.id);
            let one = graph.node(&Node::Fill(1.0, dtype, vec![String::from("One = 1")]), &[])?;
            *single = graph.binary(BinaryOp::Mul, *single, one)?;
        }
        let value = graph.node(&node.node(is_single), &read)?;
        let (elements, shape) = (Some(node.elements()), Some(node.shape.clone()));
        values.insert(node.id, NodeValue { value, elements, shape });
    }
    for output in outputs {
        let Some(operand) = values.get(output) else { continue };
        let value = graph.cast(operand.value, DType::F32)?;
        graph.output(&output.to_string(), value)?;
    }
    Ok((graph, inputs))
}

/// Checks that a node has the shape that its operands give it.
fn fit(node: &FusionNode, operands: &[NodeValue]) -> Result<(), String> {
    let (shape, elements) = (&node.shape, node.elements());
    if let FusableOp::Reduce(_) = node.op {
        return match elements {
            1 => Ok(()),
            _ => Err(format!("a reduction has one element, and its shape is {shape:?}")),
        };
    }
    for (operand, id) in operands.iter().zip(&node.inputs) {
        if let Some(other) = operand.shape.as_ref().filter(|other| *other != shape) {
            return Err(format!(
                "its input {id} has shape {other:?}, and it has {shape:?}: both must be one shape"
            ));
        }
        if let Some(other) = operand.elements.filter(|&other| other != elements) {
            return Err(format!(
                "its input {id} has {other} elements, and its shape {shape:?} has {elements}"
            ));
        }
    }
    Ok(())
}

impl FusedKernel {
    /// Runs the kernel on the CPU. `inputs` are the values of `external_inputs` by number, and the result those
    /// of `external_outputs`.
    ///
    /// # Errors
    /// `Error::MissingInput` for an input without a value; `Error::UnknownOutput` for an output that no node
    /// makes; `Error::Graph` for shapes that differ.
    pub fn execute(&self, inputs: &HashMap<usize, Vec<f32>>) -> Result<HashMap<usize, Vec<f32>>> {
        self.execute_on(&Device::cpu(), inputs)
    }

    /// Runs the kernel on a device, as `execute` does.
    ///
    /// # Errors
    /// The errors of `execute` and of the device.
    pub fn execute_on(
        &self,
        device: &Device,
        inputs: &HashMap<usize, Vec<f32>>,
    ) -> Result<HashMap<usize, Vec<f32>>> {
        for input in self.nodes.iter().flat_map(|node| &node.inputs) {
            if !inputs.contains_key(input) && self.nodes.iter().all(|node| node.id != *input) {
                let known = format!("{:?}", self.external_inputs);
                return Err(Error::MissingInput {
                    graph: String::from("kernel"),
                    input: input.to_string(),
                    known,
                });
            }
        }
        if let Some(unknown) =
            self.external_outputs.iter().find(|id| self.nodes.iter().all(|node| node.id != **id))
        {
            return Err(Error::UnknownOutput {
                graph: String::from("kernel"),
                output: unknown.to_string(),
                known: self.nodes.iter().map(|node| node.id.to_string()).collect::<Vec<_>>().join(", "),
            });
        }
        if self.external_outputs.is_empty() {
            return Ok(HashMap::new());
        }
        let elements = |id: usize| inputs.get(&id).map(Vec::len);
        let (graph, read) = build(&self.nodes, &self.external_outputs, &elements)?;
        let tensors = read.iter().map(|id| {
            let data = &inputs[id];
            let shape = if data.len() == 1 { vec![] } else { vec![data.len()] };
            Ok((id.to_string(), Tensor::from_slice(device, data, shape)?))
        });
        let tensors = tensors.collect::<Result<Vec<(String, Tensor<f32>)>>>()?;
        let args: Vec<(&str, &dyn Argument)> =
            tensors.iter().map(|(name, tensor)| (name.as_str(), tensor as &dyn Argument)).collect();
        let mut results = graph.fuse_for(device)?.run(&args)?;
        let result = |&id: &usize| Ok((id, results.take::<f32>(&id.to_string())?.to_vec()?));
        self.external_outputs.iter().map(result).collect()
    }

    /// Returns the number of values that are not stored.
    pub fn buffers_eliminated(&self) -> usize {
        self.nodes.iter().filter(|node| !self.external_outputs.contains(&node.id)).count()
    }
}

impl FusionResult {
    /// Returns the number of kernels.
    pub fn fused_kernel_count(&self) -> usize {
        self.fused_kernels.len()
    }

    /// Returns the share of kernels that fusion saves, from 0 to 1.
    pub fn kernel_reduction(&self) -> f64 {
        match self.original_kernel_count {
            0 => 0.0,
            count => 1.0 - self.fused_kernel_count() as f64 / count as f64,
        }
    }
}

impl fmt::Display for FusionResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Fusion: {} → {} kernels ({:.0}% reduction), {:.1}KB memory saved",
            self.original_kernel_count,
            self.fused_kernel_count(),
            self.kernel_reduction() * 100.0,
            self.total_memory_saved as f64 / 1024.0
        )
    }
}
