//! Inputs at the edges: numbers that a type does not hold, names that are none, and layers that read each other.

use std::collections::HashMap;

use fusion::DType;
use fusion::graph::{
    ComputeGraph, FusableOp, FusedKernel, FusionAnalyzer, FusionEngine, Graph, GraphNode, Node, Operation,
    ReduceOp, UnaryOp,
};
use fusion::prelude::*;

use crate::devices::devices;

/// A constant that its type does not hold is rounded as a cast rounds it.
#[test]
fn filled_numbers() -> Result<()> {
    let cases = [
        (300.0, DType::U8, 255.0),
        (-200.0, DType::I8, -128.0),
        (-1.0, DType::U32, 0.0),
        (1e30, DType::I32, 2147483648.0),
        (f64::NAN, DType::I16, 0.0),
        (0.1, DType::F16, 0.099975586),
        (1e6, DType::F16, f32::INFINITY),
        (0.1, DType::BF16, 0.100097656),
        (1e300, DType::F32, f32::INFINITY),
    ];
    for (value, dtype, want) in cases {
        for (_, device) in devices() {
            let mut g = Graph::new("filled");
            let filled = g.node(&Node::Fill(value, dtype, vec!["N = 2".into()]), &[])?;
            let wide = g.cast(filled, DType::F32)?;
            g.output("y", wide)?;
            let y: Tensor<f32> = g.fuse_for(&device)?.run(&[])?.take("y")?;
            assert_eq!(y.to_vec()?, [want; 2], "{value} as {dtype} on {device}");
        }
    }
    Ok(())
}

#[test]
fn names_and_types() -> Result<()> {
    let mut g = Graph::new("g");
    for name in ["", "N, M", "N = 3", "N,", "N\n"] {
        let error = g.dim(name).expect_err("no name of a dim").to_string();
        assert!(error.contains("is no name of a dim"), "{error}");
    }
    g.dim("N")?;
    let (a, b) = (g.input::<f32>("a", ["N"])?, g.input::<f32>("b", ["M"])?);
    let error = g.add("x + 1.0", [("x", a), ("x", b)]).expect_err("a name for two values").to_string();
    assert_eq!(error, "`g`, part 4, `x + 1.0`: `x` is given twice");
    let error = g.input_of("i", DType::Index, "N").expect_err("no type of a tensor").to_string();
    assert!(error.contains("there is no dtype `index`"), "{error}");
    let fill = Node::Fill(1.0, DType::Index, vec!["N".into()]);
    assert!(g.node(&fill, &[]).expect_err("no type of a tensor").to_string().contains("no dtype `index`"));
    Ok(())
}

/// A value between two others belongs to their kernel: without it, the kernel would wait for itself.
#[test]
fn values_between() -> Result<()> {
    let mut g = Graph::new("g");
    let (x, w) = (g.input::<f32>("x", ["N", "D"])?, g.input::<f32>("w", ["D", "H"])?);
    let a = g.add("exp(x)", [("x", x)])?;
    let b = g.add("sum(a * w, D)", [("a", a), ("w", w)])?;
    let c = g.add("sum(b, N)", [("b", b)])?;
    let d = g.add("sum(c * w, H)", [("c", c), ("w", w)])?;
    let e = g.add("a * d", [("a", a), ("d", d)])?;
    g.can_fuse(&[a, b, c, d, e]).expect_err("several kernels");
    g.can_fuse(&[a, e]).expect_err("the same kernels");
    g.can_fuse(&[e])
}

fn layer(id: usize, op: Operation, inputs: &[usize]) -> GraphNode {
    GraphNode { id, op, inputs: inputs.to_vec(), outputs: Vec::new() }
}

/// Layers that read each other in a circle, or have one number, are joined to none, and the engine ends.
#[test]
fn circles_end() {
    let engine = FusionEngine::new();
    let optimized = |nodes: Vec<GraphNode>| engine.optimize(ComputeGraph { nodes, edges: Vec::new() });
    assert_eq!(optimized(vec![layer(0, Operation::ReLU, &[0])]).nodes.len(), 1);
    optimized(vec![layer(0, Operation::ReLU, &[1]), layer(1, Operation::GELU, &[0])]);
    optimized(vec![layer(0, Operation::ReLU, &[]), layer(0, Operation::GELU, &[0])]);
}

/// A layer reads another one twice, or one that is made from its other operand.
#[test]
fn layers_that_share() -> Result<()> {
    let product = Operation::MatMul { m: 2, n: 2, k: 2 };
    let first = || layer(0, product.clone(), &[]);
    let cases = [
        (vec![first(), layer(1, product.clone(), &[0, 0])], [7.0, 10.0, 15.0, 22.0]),
        (
            vec![first(), layer(1, Operation::ReLU, &[0]), layer(2, product.clone(), &[0, 1])],
            [7.0, 10.0, 15.0, 22.0],
        ),
        (
            vec![first(), layer(1, product.clone(), &[0, 0]), layer(2, Operation::Add, &[0, 1])],
            [8.0, 12.0, 18.0, 26.0],
        ),
        (
            vec![first(), layer(1, product.clone(), &[0, 0]), layer(2, Operation::Mul, &[1, 0])],
            [7.0, 20.0, 45.0, 88.0],
        ),
    ];
    for (nodes, want) in cases {
        let output = nodes.len() - 1;
        let graph = ComputeGraph { nodes, edges: Vec::new() };
        for (_, device) in devices() {
            let x = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
            let one = Tensor::from_slice(&device, &[1.0f32, 0.0, 0.0, 1.0], [2, 2])?;
            for engine in [FusionEngine::new(), FusionEngine::new().enabled(false)] {
                let fused = engine.compile(&graph, &device)?;
                let mut results = fused.run(&[("0.input", &x), ("0.weight", &one)])?;
                let y: Tensor<f32> = results.take(&output.to_string())?;
                assert_eq!(y.to_vec()?, want, "{graph:?} on {device}");
            }
        }
    }
    Ok(())
}

/// Every reduction takes a single element, whose variance is NaN as it is over one row.
#[test]
fn reductions_of_one() -> Result<()> {
    use ReduceOp::{Argmax, Argmin, Logsumexp, Norm, Std, Sum, Var};
    for (op, want) in [
        (Sum, -3.0),
        (Norm, 3.0),
        (Logsumexp, -3.0),
        (Var, f32::NAN),
        (Std, f32::NAN),
        (Argmax, 0.0),
        (Argmin, 0.0),
    ] {
        let mut analyzer = FusionAnalyzer::new();
        analyzer.add_node(FusableOp::Reduce(op), vec![], vec![9]);
        let kernel = &analyzer.fuse().fused_kernels[0];
        let got = kernel.execute(&HashMap::from([(9, vec![-3.0])]))?[&0][0];
        assert!(got == want || got.is_nan() && want.is_nan(), "{op:?}: {got}, not {want}");
    }
    Ok(())
}

/// The number of bytes of a shape that no memory holds is the largest number.
#[test]
fn huge_shapes() {
    let mut analyzer = FusionAnalyzer::new();
    for input in [9, 0, 1] {
        analyzer.add_node(FusableOp::Unary(UnaryOp::Relu), vec![usize::MAX, 4], vec![input]);
    }
    assert_eq!(analyzer.fuse().total_memory_saved, usize::MAX);
}

/// Names of dims are no texts of the language, and other names print on one line.
#[test]
fn names_are_names() -> Result<()> {
    let mut g = Graph::new("g");
    let x = g.input::<f32>("x", ["N", "D"])?;
    for node in [
        Node::Softmax("D) + sum(a, N".into()),
        Node::Reduce(ReduceOp::Sum, vec![String::new()]),
        Node::LayerNorm(vec!["D".into(), "N), 1.0 + (1.0".into()], 1e-5),
        Node::Matmul("D, N".into()),
    ] {
        let operands = [x, x];
        let message = g.node(&node, &operands[..node.arity()]).expect_err("no name of a dim").to_string();
        assert!(message.ends_with("is no name of a dim"), "{message}");
    }
    for name in ["", "a\nb"] {
        let message = g.input::<f32>(name, ["N"]).expect_err("no name").to_string();
        assert!(message.contains("without control characters"), "{message}");
        let message = g.output(name, x).expect_err("no name").to_string();
        assert!(message.contains("without control characters"), "{message}");
    }
    for dims in [["D", "N", "N"], ["N", "N", "D"]] {
        let message = g.output_as("y", x, dims).expect_err("a dim twice").to_string();
        assert!(message.contains("the dim `N` is named twice"), "{message}");
    }
    g.output_as("y", x, ["D", "N"])
}

/// An output of another type stays, and is taken by its own type afterwards.
#[test]
fn outputs_of_another_type_stay() -> Result<()> {
    let mut g = Graph::new("g");
    let x = g.input::<f32>("x", ["N"])?;
    let y = g.unary(UnaryOp::Neg, x)?;
    g.output("y", y)?;
    let device = Device::cpu();
    let x = Tensor::from_vec(&device, vec![1.0_f32, 2.0], [2])?;
    let mut outputs = g.fuse_for(&device)?.run(&[("x", &x)])?;
    outputs.take::<i32>("y").expect_err("another type");
    assert_eq!(outputs.take::<f32>("y")?.to_vec()?, [-1.0, -2.0]);
    outputs.take::<f32>("y").expect_err("it was taken");
    Ok(())
}

/// The numbers of a layer are those of the layers that it reads.
#[test]
fn layers_of_other_sizes_are_refused() {
    let engine = FusionEngine::new();
    let product = |m, n, k| Operation::MatMul { m, n, k };
    let conv = Operation::Conv2d { channels: 8, kernel: (3, 3) };
    for (ops, message) in [
        ([product(1, 2, 1), product(7, 1, 2)], "its input has 1 elements along a dim, and the layer takes 7"),
        ([product(1, 2, 1), product(1, 1, 9)], "its input has 2 elements along a dim, and the layer takes 9"),
        ([conv, Operation::BatchNorm { channels: 9 }], "its input has 8 elements along a dim"),
    ] {
        assert!(!engine.can_fuse(&ops[0], &ops[1]));
        let [first, second] = ops;
        let graph = ComputeGraph { nodes: vec![layer(0, first, &[]), layer(1, second, &[0])], edges: vec![] };
        assert_eq!(engine.optimize(graph.clone()).nodes.len(), 2);
        let error = engine.compile(&graph, &Device::cpu()).expect_err("other sizes").to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// Layers follow each other by their inputs, in any order of the list.
#[test]
fn layers_in_any_order() -> Result<()> {
    let device = Device::cpu();
    let nodes = vec![layer(1, Operation::Softmax { dim: -1 }, &[0]), layer(0, Operation::ReLU, &[])];
    let fused = FusionEngine::new().compile(&ComputeGraph { nodes, edges: vec![(0, 1)] }, &device)?;
    let x = Tensor::from_vec(&device, vec![0.0_f32, -1.0], [1, 2])?;
    let mut outputs = fused.run(&[("0.input", &x)])?;
    assert_eq!(outputs.names().collect::<Vec<_>>(), ["1"]);
    assert_eq!(outputs.take::<f32>("1")?.to_vec()?, [0.5, 0.5]);
    for (nodes, message) in [
        (vec![], "the graph has no layers"),
        (vec![layer(0, Operation::ReLU, &[1]), layer(1, Operation::ReLU, &[0])], "wait for each other"),
        (vec![layer(3, Operation::ReLU, &[3])], "the layers 3 wait for each other"),
        (
            vec![layer(3, Operation::ReLU, &[]), layer(3, Operation::GELU, &[])],
            "two layers have the number 3",
        ),
        (vec![layer(3, Operation::ReLU, &[55])], "it reads the layer 55, which the graph does not have"),
        (
            vec![layer(0, Operation::ReLU, &[]), layer(1, Operation::GELU, &[0, 0])],
            "`layers`, node 1, GELU: it takes 1 input, and 2 are given",
        ),
        (
            vec![layer(0, Operation::ReLU, &[]), layer(1, Operation::Add, &[0, 0, 0])],
            "`layers`, node 1, Add: it takes 2 inputs, and 3 are given",
        ),
        (
            vec![
                layer(0, Operation::Softmax { dim: 0 }, &[]),
                layer(1, Operation::Attention { heads: 2, dim: 4 }, &[]),
                layer(2, Operation::Attention { heads: 3, dim: 4 }, &[1]),
            ],
            "its query has 2 elements along a dim, and the layer takes 3",
        ),
        (
            vec![
                layer(0, Operation::MatMul { m: 2, n: 3, k: 4 }, &[]),
                layer(1, Operation::MatMul { m: 4, n: 3, k: 5 }, &[]),
                layer(2, Operation::MatMul { m: 2, n: 3, k: 3 }, &[0, 1]),
            ],
            "its weight has 4 elements along a dim, and the layer takes 3",
        ),
    ] {
        let graph = ComputeGraph { nodes, edges: vec![] };
        let error = FusionEngine::new().compile(&graph, &device).expect_err("refused").to_string();
        assert!(error.contains(message), "{error}");
    }
    Ok(())
}

/// A kernel without nodes has no values, and one with an output that no node makes is refused.
#[test]
fn kernels_without_nodes() -> Result<()> {
    let kernel = |external_outputs| FusedKernel {
        id: 0,
        nodes: vec![],
        external_inputs: vec![],
        external_outputs,
        memory_saved: 0,
    };
    assert!(kernel(vec![]).execute(&HashMap::new())?.is_empty());
    let error = kernel(vec![4]).execute(&HashMap::new()).expect_err("no node makes it").to_string();
    assert!(error.contains("has no output `4`"), "{error}");
    Ok(())
}
