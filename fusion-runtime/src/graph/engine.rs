//! Layers as operations with numbers, and the patterns among them that fuse: the second proposal.

use std::collections::{HashMap, HashSet};

use fusion_compiler::ir::dtype::DType;

use super::node::{Attention, Conv2d, Node, UnaryOp};
use super::{Fused, Graph, Value};
use crate::device::Device;
use crate::error::{Error, Result};

/// A graph of layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComputeGraph {
    /// The layers, each after those that it reads.
    pub nodes: Vec<GraphNode>,
    /// Numbers of nodes: a producer with its consumer.
    pub edges: Vec<(usize, usize)>,
}

/// A layer of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphNode {
    /// Number of the layer.
    pub id: usize,
    /// Operation of the layer.
    pub op: Operation,
    /// Numbers of the layers that it reads. Operands that are left out are inputs of the graph.
    pub inputs: Vec<usize>,
    /// Numbers of the layers that read it.
    pub outputs: Vec<usize>,
}

/// An operation of a layer.
///
/// The compiled graph takes the tensors that a layer does not read from other layers as inputs, named by the
/// number of the layer: `0.input`, `0.weight`. All tensors are `f32`.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A convolution with stride 1 and without padding. Input `[N, C, H, W]`, weight `[channels, C, KH, KW]`.
    Conv2d {
        /// Number of channels of the result.
        channels: usize,
        /// Height and width of the weights.
        kernel: (usize, usize),
    },
    /// A normalisation by running statistics along the second dim: `mean`, `var`, `weight`, `bias`, all
    /// `[channels]`.
    BatchNorm {
        /// Number of channels.
        channels: usize,
    },
    /// `relu`.
    ReLU,
    /// `gelu`, the form with `erf`.
    GELU,
    /// A matrix product. Input `[m, k]`, weight `[k, n]`.
    MatMul {
        /// Number of rows of the result.
        m: usize,
        /// Number of columns of the result.
        n: usize,
        /// Number of products in each sum.
        k: usize,
    },
    /// A sum of two layers of one shape, or of a layer and a `bias` along its last dim.
    Add,
    /// A product of two layers of one shape, or of a layer and a `scale` along its last dim.
    Mul,
    /// `softmax` along a dim.
    Softmax {
        /// Number of the dim. A negative number counts from the last dim, which is -1.
        dim: i32,
    },
    /// `layer_norm` along the last dim, with `weight` and `bias`.
    LayerNorm,
    /// Attention. Query `[T, heads, dim]`, key and value `[S, heads, dim]`.
    Attention {
        /// Number of heads.
        heads: usize,
        /// Number of features of a head.
        dim: usize,
    },
}

impl Operation {
    /// Returns the number of layers that the operation reads. Other tensors are inputs of the compiled graph.
    fn inputs(&self) -> usize {
        match self {
            Operation::BatchNorm { .. }
            | Operation::ReLU
            | Operation::GELU
            | Operation::Softmax { .. }
            | Operation::LayerNorm => 1,
            Operation::Conv2d { .. } | Operation::MatMul { .. } | Operation::Add | Operation::Mul => 2,
            Operation::Attention { .. } => 3,
        }
    }
}

/// A sequence of layers that an engine looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusionPattern {
    /// Convolution, batch normalisation, ReLU.
    ConvBnRelu,
    /// Matrix product, sum, ReLU or GELU.
    MatMulAddActivation,
    /// Sums, products and activations.
    ElementWiseChain,
    /// Matrix product, softmax, matrix product.
    AttentionPattern,
    /// Layer normalisation, matrix product.
    LayerNormLinear,
}

/// An engine that joins layers that the compiler computes in one kernel.
#[derive(Clone, Debug)]
pub struct FusionEngine {
    patterns: Vec<FusionPattern>,
    enabled: bool,
}

impl Default for FusionEngine {
    fn default() -> FusionEngine {
        FusionEngine::new()
    }
}

impl FusionPattern {
    /// All patterns, in the order in which an engine looks for them.
    pub const ALL: [FusionPattern; 5] = [
        FusionPattern::ConvBnRelu,
        FusionPattern::MatMulAddActivation,
        FusionPattern::ElementWiseChain,
        FusionPattern::AttentionPattern,
        FusionPattern::LayerNormLinear,
    ];

    /// Returns true if the operation may be the layer of this number in the pattern.
    fn takes(self, i: usize, op: &Operation) -> bool {
        use Operation::{Add, BatchNorm, Conv2d, GELU, LayerNorm, MatMul, Mul, ReLU, Softmax};
        match (self, i) {
            (FusionPattern::ConvBnRelu, 0) => matches!(op, Conv2d { .. }),
            (FusionPattern::ConvBnRelu, 1) => matches!(op, BatchNorm { .. }),
            (FusionPattern::ConvBnRelu, 2) => matches!(op, ReLU),
            (FusionPattern::MatMulAddActivation, 0) => matches!(op, MatMul { .. }),
            (FusionPattern::MatMulAddActivation, 1) => matches!(op, Add),
            (FusionPattern::MatMulAddActivation, 2) => matches!(op, ReLU | GELU),
            (FusionPattern::ElementWiseChain, _) => matches!(op, Add | Mul | ReLU | GELU),
            (FusionPattern::AttentionPattern, 0 | 2) => matches!(op, MatMul { .. }),
            (FusionPattern::AttentionPattern, 1) => matches!(op, Softmax { .. }),
            (FusionPattern::LayerNormLinear, 0) => matches!(op, LayerNorm),
            (FusionPattern::LayerNormLinear, 1) => matches!(op, MatMul { .. }),
            (
                FusionPattern::ConvBnRelu
                | FusionPattern::MatMulAddActivation
                | FusionPattern::AttentionPattern
                | FusionPattern::LayerNormLinear,
                _,
            ) => false,
        }
    }

    /// Returns the smallest number of layers.
    fn len(self) -> usize {
        match self {
            FusionPattern::ConvBnRelu
            | FusionPattern::MatMulAddActivation
            | FusionPattern::AttentionPattern => 3,
            FusionPattern::ElementWiseChain | FusionPattern::LayerNormLinear => 2,
        }
    }

    /// Returns the operation that stands for the joined layers.
    fn joined(self, layers: &[GraphNode]) -> Operation {
        match (self, &layers[0].op) {
            (FusionPattern::AttentionPattern, Operation::MatMul { k, .. }) => {
                Operation::Attention { heads: 1, dim: *k }
            }
            (FusionPattern::LayerNormLinear, _) => layers[1].op.clone(),
            (_, first) => first.clone(),
        }
    }
}

impl FusionEngine {
    /// Makes an engine that looks for all patterns.
    pub fn new() -> FusionEngine {
        FusionEngine { patterns: FusionPattern::ALL.to_vec(), enabled: true }
    }

    /// Turns the engine on or off. An engine that is off leaves graphs as they are, and compiles a kernel for
    /// each operation.
    #[must_use]
    pub fn enabled(self, enabled: bool) -> FusionEngine {
        FusionEngine { enabled, ..self }
    }

    /// Returns the graph with one node in place of each sequence of layers that matches a pattern and that the
    /// compiler computes in one kernel. The node has the number of the first layer. A layer whose value another
    /// layer reads too is joined to none.
    ///
    /// The result is an outline. `compile` takes the graph with all its layers.
    pub fn optimize(&self, graph: ComputeGraph) -> ComputeGraph {
        let patterns = if self.enabled { self.patterns.as_slice() } else { &[] };
        patterns.iter().fold(graph, |mut graph, &pattern| {
            let mut next = 0;
            while next < graph.nodes.len() {
                match self.sequence(&graph, pattern, next) {
                    Some(layers) => graph = join(graph, pattern, &layers),
                    None => next += 1,
                }
            }
            graph
        })
    }

    /// Returns the layers of a pattern that starts at a node, if the compiler computes them in one kernel.
    fn sequence(&self, graph: &ComputeGraph, pattern: FusionPattern, start: usize) -> Option<Vec<GraphNode>> {
        let mut layers: Vec<GraphNode> = Vec::new();
        let mut next = graph.nodes.get(start);
        while let Some(node) = next.filter(|node| pattern.takes(layers.len(), &node.op)) {
            layers.push(node.clone());
            let mut consumers = graph.nodes.iter().filter(|other| other.inputs.contains(&node.id));
            next = consumers.next().filter(|_| consumers.next().is_none());
            // A number that comes twice, or a layer that waits for itself, makes a circle.
            next = next.filter(|next| layers.iter().all(|layer| layer.id != next.id));
        }
        let is_whole = layers.len() >= pattern.len();
        (is_whole && one_kernel(&layers).is_ok()).then_some(layers)
    }

    /// Returns true if the compiler computes the second operation, with the first as its input, in one kernel
    /// with the first, on every target.
    pub fn can_fuse(&self, first: &Operation, second: &Operation) -> bool {
        let node = |id, op: &Operation, inputs, outputs| GraphNode { id, op: op.clone(), inputs, outputs };
        let layers = [node(0, first, vec![], vec![1]), node(1, second, vec![0], vec![])];
        self.enabled && one_kernel(&layers).is_ok()
    }

    /// Compiles a graph for a device, fused unless the engine is off. The outputs are the layers that no other
    /// reads, named by their numbers.
    ///
    /// # Errors
    /// `Error::Graph` for layers whose shapes do not fit, and the errors of `Graph::fuse_for`.
    pub fn compile(&self, graph: &ComputeGraph, device: &Device) -> Result<Fused> {
        let (mut lowered, values) = lowered(&ordered(&graph.nodes)?)?;
        for node in &graph.nodes {
            if graph.nodes.iter().all(|other| !other.inputs.contains(&node.id)) {
                let (value, dims) = &values[&node.id];
                lowered.output_as(
                    &node.id.to_string(),
                    *value,
                    dims.iter().map(String::as_str).collect::<Vec<_>>(),
                )?;
            }
        }
        if !self.enabled {
            lowered.unfused();
        }
        lowered.fuse_for(device)
    }
}

/// Replaces layers by one node.
fn join(graph: ComputeGraph, pattern: FusionPattern, layers: &[GraphNode]) -> ComputeGraph {
    let is_layer = |id: usize| layers.iter().any(|layer| layer.id == id);
    let (first, last) = (layers[0].id, &layers[layers.len() - 1]);
    let mut inputs: Vec<usize> = Vec::new();
    for &input in layers.iter().flat_map(|layer| &layer.inputs) {
        if !is_layer(input) && !inputs.contains(&input) {
            inputs.push(input);
        }
    }
    let joined = GraphNode { id: first, op: pattern.joined(layers), inputs, outputs: last.outputs.clone() };
    let of = |id: usize| if is_layer(id) { first } else { id };
    let renumbered = |node: GraphNode| GraphNode {
        inputs: node.inputs.into_iter().map(of).collect(),
        outputs: node.outputs.into_iter().map(of).collect(),
        ..node
    };
    // The node takes the place of the last layer, after all that the layers read.
    let nodes = graph.nodes.into_iter().filter_map(|node| match node.id {
        id if id == last.id => Some(joined.clone()),
        id if is_layer(id) => None,
        _ => Some(renumbered(node)),
    });
    let nodes: Vec<GraphNode> = nodes.collect();
    let is_node = |id: usize| nodes.iter().any(|node| node.id == id);
    let edges = nodes.iter().flat_map(|node| node.inputs.iter().map(|&input| (input, node.id)));
    let edges = edges.filter(|(from, _)| is_node(*from)).collect();
    ComputeGraph { nodes, edges }
}

/// Checks that layers, each of which reads the one before it, are one kernel.
fn one_kernel(layers: &[GraphNode]) -> Result<()> {
    let (graph, values) = lowered(layers)?;
    let values: Vec<Value> = layers.iter().map(|layer| values[&layer.id].0).collect();
    graph.can_fuse(&values)
}

/// Returns the layers of a graph, each after those that it reads.
///
/// # Errors
/// `Error::Graph` for a graph without layers, a number that comes twice, an input that no layer has, and layers
/// that wait for each other.
fn ordered(layers: &[GraphNode]) -> Result<Vec<GraphNode>> {
    let refused =
        |message: String| Error::Graph { graph: String::from("layers"), place: String::new(), message };
    let numbers: HashSet<usize> = layers.iter().map(|layer| layer.id).collect();
    let mut seen = HashSet::new();
    for layer in layers {
        if !seen.insert(layer.id) {
            return Err(refused(format!("two layers have the number {}: give each its own", layer.id)));
        }
        if let Some(unknown) = layer.inputs.iter().find(|input| !numbers.contains(*input)) {
            let message = format!("it reads the layer {unknown}, which the graph does not have");
            return Err(LayerLowering::wrong(layer, message));
        }
    }
    let (mut left, mut made, mut all) = (layers.to_vec(), HashSet::new(), Vec::new());
    while !left.is_empty() {
        let (ready, waiting): (Vec<GraphNode>, Vec<GraphNode>) =
            left.into_iter().partition(|layer| layer.inputs.iter().all(|input| made.contains(input)));
        if ready.is_empty() {
            let numbers: Vec<String> = waiting.iter().map(|layer| layer.id.to_string()).collect();
            return Err(refused(format!("the layers {} wait for each other", numbers.join(", "))));
        }
        made.extend(ready.iter().map(|layer| layer.id));
        all.extend(ready);
        left = waiting;
    }
    match all.is_empty() {
        true => Err(refused(String::from("the graph has no layers"))),
        false => Ok(all),
    }
}

/// A value with its dims, outermost first.
type Shaped = (Value, Vec<String>);

/// Builds the graph of layers. Also returns their values by number.
fn lowered(layers: &[GraphNode]) -> Result<(Graph, HashMap<usize, Shaped>)> {
    let mut lowering =
        LayerLowering { graph: Graph::new("layers"), values: HashMap::new(), extents: HashMap::new() };
    for layer in layers {
        let value = lowering.layer(layer)?;
        lowering.values.insert(layer.id, value);
    }
    Ok((lowering.graph, lowering.values))
}

struct LayerLowering {
    graph: Graph,
    values: HashMap<usize, Shaped>,
    /// Extents of the dims that have one extent in all calls.
    extents: HashMap<String, usize>,
}

impl LayerLowering {
    fn layer(&mut self, layer: &GraphNode) -> Result<Shaped> {
        let most = layer.op.inputs();
        if layer.inputs.len() > most {
            let (s, given) = (if most == 1 { "" } else { "s" }, layer.inputs.len());
            return Err(LayerLowering::wrong(
                layer,
                format!("it takes {most} input{s}, and {given} are given"),
            ));
        }
        match &layer.op {
            Operation::Conv2d { channels, kernel } => self.conv2d(layer, *channels, *kernel),
            Operation::BatchNorm { channels } => self.batch_norm(layer, *channels),
            Operation::ReLU => self.activation(layer, UnaryOp::Relu),
            Operation::GELU => self.activation(layer, UnaryOp::Gelu),
            Operation::MatMul { m, n, k } => self.product(layer, (*m, *n, *k)),
            Operation::Add => self.element_wise(layer, "+", "bias"),
            Operation::Mul => self.element_wise(layer, "*", "scale"),
            Operation::Softmax { dim } => self.softmax(layer, *dim),
            Operation::LayerNorm => self.layer_norm(layer),
            Operation::Attention { heads, dim } => self.attention(layer, *heads, *dim),
        }
    }

    /// Returns an operand: a layer, or an input of the graph with these dims.
    fn operand(&mut self, layer: &GraphNode, (i, role): (usize, &str), dims: &[String]) -> Result<Shaped> {
        if let Some(known) = layer.inputs.get(i).and_then(|id| self.values.get(id)) {
            return Ok(known.clone());
        }
        self.tensor(layer, role, dims)
    }

    /// Checks that a dim of an operand has the extent that the layer says. Each call decides on dims without a
    /// known extent.
    fn check_extent(&self, layer: &GraphNode, role: &str, (dim, wanted): (&str, usize)) -> Result<()> {
        match self.extents.get(dim) {
            Some(&is) if is != wanted => {
                let message =
                    format!("its {role} has {is} elements along a dim, and the layer takes {wanted}");
                Err(LayerLowering::wrong(layer, message))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn tensor(&mut self, layer: &GraphNode, role: &str, dims: &[String]) -> Result<Shaped> {
        for (name, extent) in dims.iter().filter_map(|dim| dim.split_once(" = ")) {
            self.extents.extend(extent.parse().map(|extent| (name.to_owned(), extent)));
        }
        let value = self.graph.input_of(&format!("{}.{role}", layer.id), DType::F32, &dims.join(", "))?;
        let name = |dim: &String| dim.split(" = ").next().unwrap_or_default().to_owned();
        Ok((value, dims.iter().map(name).collect()))
    }

    /// Returns the dims of a layer that only its own number distinguishes: `N3`.
    fn own(layer: &GraphNode, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("{name}{}", layer.id)).collect()
    }

    fn wrong(layer: &GraphNode, message: String) -> Error {
        Error::Graph {
            graph: String::from("layers"),
            place: format!(", node {}, {:?}", layer.id, layer.op),
            message,
        }
    }

    fn of_rank(layer: &GraphNode, (value, dims): Shaped, rank: usize) -> Result<Shaped> {
        if dims.len() == rank {
            return Ok((value, dims));
        }
        Err(LayerLowering::wrong(
            layer,
            format!("its input has {} dims, and the layer takes {rank}", dims.len()),
        ))
    }

    fn conv2d(
        &mut self,
        layer: &GraphNode,
        channels: usize,
        (height, width): (usize, usize),
    ) -> Result<Shaped> {
        let x = self.operand(layer, (0, "input"), &LayerLowering::own(layer, &["N", "C", "H", "W"]))?;
        let (x, dims) = LayerLowering::of_rank(layer, x, 4)?;
        let own = LayerLowering::own(layer, &["O", "KH", "KW", "P", "Q"]);
        let weight = [
            format!("{} = {channels}", own[0]),
            dims[1].clone(),
            format!("{} = {height}", own[1]),
            format!("{} = {width}", own[2]),
        ];
        let (w, _) = self.operand(layer, (1, "weight"), &weight)?;
        let conv = Conv2d {
            channels: dims[1].clone(),
            dims: [
                [dims[2].clone(), dims[3].clone()],
                [own[1].clone(), own[2].clone()],
                [own[3].clone(), own[4].clone()],
            ],
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
        };
        let y = self.graph.node(&Node::Conv2d(conv), &[x, w])?;
        Ok((y, vec![dims[0].clone(), own[0].clone(), own[3].clone(), own[4].clone()]))
    }

    fn batch_norm(&mut self, layer: &GraphNode, channels: usize) -> Result<Shaped> {
        let mut wants = LayerLowering::own(layer, &["N", "C", "H", "W"]);
        wants[1] += &format!(" = {channels}");
        let (x, dims) = self.operand(layer, (0, "input"), &wants)?;
        // Every layer has two dims or more.
        let channel = dims[1].clone();
        self.check_extent(layer, "input", (&channel, channels))?;
        let mut operands = vec![("x", x)];
        for role in ["mean", "var", "weight", "bias"] {
            operands.push((role, self.tensor(layer, role, std::slice::from_ref(&channel))?.0));
        }
        let y = self.graph.add("batch_norm(x, mean, var) * weight + bias", operands)?;
        Ok((y, dims))
    }

    fn activation(&mut self, layer: &GraphNode, op: UnaryOp) -> Result<Shaped> {
        let (x, dims) = self.operand(layer, (0, "input"), &LayerLowering::own(layer, &["N", "D"]))?;
        Ok((self.graph.unary(op, x)?, dims))
    }

    fn product(&mut self, layer: &GraphNode, (m, n, k): (usize, usize, usize)) -> Result<Shaped> {
        let own = LayerLowering::own(layer, &["M", "N", "K"]);
        let a =
            self.operand(layer, (0, "input"), &[format!("{} = {m}", own[0]), format!("{} = {k}", own[2])])?;
        let (a, mut dims) = LayerLowering::of_rank(layer, a, 2)?;
        self.check_extent(layer, "input", (&dims[0], m))?;
        self.check_extent(layer, "input", (&dims[1], k))?;
        let inner = dims.pop().unwrap_or_default();
        let is_layer = layer.inputs.get(1).is_some_and(|id| self.values.contains_key(id));
        let b = self.operand(layer, (1, "weight"), &[inner.clone(), format!("{} = {n}", own[1])])?;
        let (b, columns) = LayerLowering::of_rank(layer, b, 2)?;
        self.check_extent(layer, "weight", (&columns[0], k))?;
        self.check_extent(layer, "weight", (&columns[1], n))?;
        // A layer may be made with the dims of the other operand, such as the same layer.
        let (a, inner) = match is_layer {
            true => (self.renamed(a, &[inner], &own[2..])?, own[2].clone()),
            false => (a, inner),
        };
        let b = self.renamed(b, &columns, &[inner.clone(), own[1].clone()])?;
        let y = self.graph.node(&Node::Matmul(inner), &[a, b])?;
        Ok((y, vec![dims[0].clone(), own[1].clone()]))
    }

    /// Returns a value along other dims of the same extents.
    fn renamed(&mut self, value: Value, from: &[String], to: &[String]) -> Result<Value> {
        from.iter().zip(to).filter(|(from, to)| from != to).try_fold(value, |value, (from, to)| {
            let renamed = self.graph.add(&format!("rename(x, {from} -> {to})"), [("x", value)])?;
            let extent = self.extents.get(from).map(|&extent| (to.clone(), extent));
            self.extents.extend(extent);
            Ok(renamed)
        })
    }

    /// Returns two values along the same dims: those of the first, or new ones if the second is made with them.
    fn aligned(
        &mut self,
        layer: &GraphNode,
        (a, dims): Shaped,
        (b, other): Shaped,
    ) -> Result<(Value, Value, Vec<String>)> {
        if let Ok(b) = self.renamed(b, &other, &dims) {
            return Ok((a, b, dims));
        }
        let pairs = dims.iter().zip(&other).enumerate();
        let new = pairs.map(|(i, (dim, other))| match dim == other {
            true => dim.clone(),
            false => format!("E{}N{i}", layer.id),
        });
        let new: Vec<String> = new.collect();
        Ok((self.renamed(a, &dims, &new)?, self.renamed(b, &other, &new)?, new))
    }

    fn element_wise(&mut self, layer: &GraphNode, symbol: &str, role: &str) -> Result<Shaped> {
        let (a, dims) = self.operand(layer, (0, "input"), &LayerLowering::own(layer, &["N", "D"]))?;
        let last = dims.last().cloned().into_iter().collect::<Vec<_>>();
        let (b, other) = self.operand(layer, (1, role), &last)?;
        let is_layer = other.len() == dims.len();
        let (a, b, dims) = if is_layer { self.aligned(layer, (a, dims), (b, other))? } else { (a, b, dims) };
        Ok((self.graph.add(&format!("a {symbol} b"), [("a", a), ("b", b)])?, dims))
    }

    fn softmax(&mut self, layer: &GraphNode, dim: i32) -> Result<Shaped> {
        let (x, dims) = self.operand(layer, (0, "input"), &LayerLowering::own(layer, &["N", "D"]))?;
        let rank = dims.len() as i32;
        let Some(along) = (-rank..rank).contains(&dim).then(|| dims[dim.rem_euclid(rank) as usize].clone())
        else {
            return Err(LayerLowering::wrong(
                layer,
                format!("its input has {rank} dims, and none is dim {dim}"),
            ));
        };
        Ok((self.graph.node(&Node::Softmax(along), &[x])?, dims))
    }

    fn layer_norm(&mut self, layer: &GraphNode) -> Result<Shaped> {
        let (x, dims) = self.operand(layer, (0, "input"), &LayerLowering::own(layer, &["N", "D"]))?;
        let last = dims[dims.len() - 1].clone();
        let weight = self.tensor(layer, "weight", std::slice::from_ref(&last))?.0;
        let bias = self.tensor(layer, "bias", std::slice::from_ref(&last))?.0;
        let text = format!("layer_norm(x, {last}) * weight + bias");
        Ok((self.graph.add(&text, [("x", x), ("weight", weight), ("bias", bias)])?, dims))
    }

    fn attention(&mut self, layer: &GraphNode, heads: usize, dim: usize) -> Result<Shaped> {
        let own = LayerLowering::own(layer, &["T", "S", "H", "E", "F"]);
        let head = format!("{} = {heads}", own[2]);
        let [key, value] = [&own[3], &own[4]].map(|name| format!("{name} = {dim}"));
        let mut operand = |i, role, dims: [&String; 3], names: [&String; 3]| {
            let dims: Vec<String> = dims.into_iter().cloned().collect();
            let names: Vec<String> = names.into_iter().cloned().collect();
            let given = self.operand(layer, (i, role), &dims)?;
            let (operand, has) = LayerLowering::of_rank(layer, given, 3)?;
            self.check_extent(layer, role, (&has[1], heads))?;
            self.check_extent(layer, role, (&has[2], dim))?;
            self.renamed(operand, &has, &names)
        };
        let q = operand(0, "query", [&own[0], &head, &key], [&own[0], &own[2], &own[3]])?;
        let k = operand(1, "key", [&own[1], &head, &key], [&own[1], &own[2], &own[3]])?;
        let v = operand(2, "value", [&own[1], &head, &value], [&own[1], &own[2], &own[4]])?;
        let attention = Attention {
            queries: own[0].clone(),
            keys: own[1].clone(),
            features: own[3].clone(),
            scale: None,
            causal: false,
        };
        let y = self.graph.node(&Node::Attention(attention), &[q, k, v])?;
        Ok((y, vec![own[0].clone(), own[2].clone(), own[4].clone()]))
    }
}
