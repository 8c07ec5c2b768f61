//! The systems of the proposals: their examples, and the same systems with numbers on every device.

use std::collections::HashMap;

use fusion::graph::{
    Argument, BinaryOp, ComputeGraph, FusableOp, Fused, FusedKernel, FusionAnalyzer, FusionEngine,
    FusionNode, FusionResult, Graph, GraphIoProfile, GraphNode, IoFusionGate, Operation, PrecisionType,
    ReduceOp, UnaryOp, fusion_benefit, host_sync_op_kinds, profile_graph_io, profile_graph_io_outputs,
};
use fusion::prelude::*;

use crate::devices::devices;
use crate::nodes::{assert_close, numbers};

fn unary(id: usize, op: UnaryOp, inputs: &[usize], shape: &[usize]) -> FusionNode {
    FusionNode { id, op: FusableOp::Unary(op), shape: shape.to_vec(), inputs: inputs.to_vec() }
}

#[test]
fn a_chain_is_one_kernel() {
    let mut analyzer = FusionAnalyzer::new();
    let relu = analyzer.add_node(FusableOp::Unary(UnaryOp::Relu), vec![1024], vec![]);
    let sigmoid = analyzer.add_node(FusableOp::Unary(UnaryOp::Sigmoid), vec![1024], vec![relu]);
    analyzer.add_node(FusableOp::Unary(UnaryOp::Exp), vec![1024], vec![sigmoid]);
    let result = analyzer.fuse();
    assert_eq!(result.fused_kernel_count(), 1);
    assert_eq!(result.total_memory_saved, 2 * 1024 * 4);
    assert!(result.kernel_reduction() > 0.5);
    assert_eq!(result.fused_kernels[0].external_outputs, [2]);
}

#[test]
fn a_reduction_is_a_kernel_of_its_own() -> Result<()> {
    let mut analyzer = FusionAnalyzer::new();
    let relu = analyzer.add_node(FusableOp::Unary(UnaryOp::Relu), vec![1024], vec![7]);
    let sum = analyzer.add_node(FusableOp::Reduce(ReduceOp::Sum), vec![1], vec![relu]);
    analyzer.add_node(FusableOp::Unary(UnaryOp::Log), vec![1], vec![sum]);
    let result = analyzer.fuse();
    assert_eq!(result.fused_kernel_count(), 3);
    // Each kernel computes from what the ones before it wrote.
    let mut values = HashMap::from([(7, numbers(1024, 5))]);
    for kernel in &result.fused_kernels {
        values.extend(kernel.execute(&values)?);
    }
    let want: f64 = values[&7].iter().map(|&x| f64::from(x.max(0.0))).sum();
    assert_close(&values[&2], &[want.ln()], 1e-6, "log of the sum");
    // The compiler needs one kernel for all three.
    let fused = analyzer.graph()?.fuse_for(&Device::cpu())?;
    let x = Tensor::from_slice(&Device::cpu(), &values[&7], [1024])?;
    assert_close(&fused.run(&[("7", &x)])?.take::<f32>("2")?.to_vec()?, &[want.ln()], 1e-6, "graph");
    assert_eq!(fused.report().kernels(), 1);
    Ok(())
}

#[test]
fn kernels_execute() -> Result<()> {
    let binary =
        FusionNode { id: 2, op: FusableOp::Binary(BinaryOp::Add), shape: vec![4], inputs: vec![1, 3] };
    let kernel = FusedKernel {
        id: 0,
        nodes: vec![unary(1, UnaryOp::Relu, &[0], &[4]), binary],
        external_inputs: vec![0, 3],
        external_outputs: vec![2],
        memory_saved: 16,
    };
    let mut inputs = HashMap::from([(0, vec![-1.0, 0.0, 1.0, 2.0]), (3, vec![10.0; 4])]);
    for (_, device) in devices() {
        assert_eq!(kernel.execute_on(&device, &inputs)?[&2], [10.0, 10.0, 11.0, 12.0], "{device}");
    }
    inputs.insert(3, vec![10.0; 3]);
    let error = kernel.execute(&inputs).expect_err("4 and 3 elements do not meet").to_string();
    assert!(error.ends_with("its input 3 has 3 elements, and its shape [4] has 4"), "{error}");
    inputs.remove(&3);
    let error = kernel.execute(&inputs).expect_err("an input is missing").to_string();
    assert_eq!(error, "`kernel`: the input `3` is missing; the inputs are [0, 3]");
    Ok(())
}

#[test]
fn operations_of_the_first_proposal() -> Result<()> {
    let run = |op: FusableOp, shape: &[usize], a: &[f32], b: Option<&[f32]>| {
        let mut analyzer = FusionAnalyzer::new();
        let inputs = if b.is_some() { vec![8, 9] } else { vec![8] };
        analyzer.add_node(op, shape.to_vec(), inputs);
        let mut values = HashMap::from([(8, a.to_vec())]);
        values.extend(b.map(|b| (9, b.to_vec())));
        Ok::<_, Error>(analyzer.fuse().fused_kernels[0].execute(&values)?.remove(&0).unwrap_or_default())
    };
    let x = [-1.0, 0.0, 1.0, 2.0];
    assert_eq!(run(FusableOp::Unary(UnaryOp::Relu), &[4], &x, None)?, [0.0, 0.0, 1.0, 2.0]);
    assert_eq!(run(FusableOp::Unary(UnaryOp::Neg), &[4], &x, None)?, [1.0, 0.0, -1.0, -2.0]);
    assert_eq!(run(FusableOp::Unary(UnaryOp::Abs), &[4], &x, None)?, [1.0, 0.0, 1.0, 2.0]);
    let (a, b) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]);
    assert_eq!(run(FusableOp::Binary(BinaryOp::Add), &[3], &a, Some(&b))?, [5.0, 7.0, 9.0]);
    assert_eq!(run(FusableOp::Binary(BinaryOp::Mul), &[3], &a, Some(&b))?, [4.0, 10.0, 18.0]);
    let x = [1.0, 2.0, 3.0, 4.0];
    for (op, want) in
        [(ReduceOp::Sum, 10.0), (ReduceOp::Max, 4.0), (ReduceOp::Min, 1.0), (ReduceOp::Mean, 2.5)]
    {
        assert_eq!(run(FusableOp::Reduce(op), &[1], &x, None)?, [want]);
    }
    assert_eq!(run(FusableOp::Reduce(ReduceOp::Sum), &[1], &[3.0], None)?, [3.0]);
    let x = [-2.0, -1.0, 0.0, 1.0, 2.0];
    assert!(run(FusableOp::Unary(UnaryOp::Gelu), &[5], &x, None)?.iter().all(|y| y.is_finite()));
    assert!(run(FusableOp::Unary(UnaryOp::Sigmoid), &[5], &x, None)?.iter().all(|y| (0.0..=1.0).contains(y)));
    // A cast rounds: it is no copy.
    let cast = FusableOp::Unary(UnaryOp::Cast(PrecisionType::Fp32, PrecisionType::Int32));
    assert_eq!(run(cast, &[2], &[1.75, -2.5], None)?, [1.0, -2.0]);
    Ok(())
}

#[test]
fn buffers_and_the_line_of_a_result() {
    let kernel = FusedKernel {
        id: 0,
        nodes: vec![
            unary(0, UnaryOp::Relu, &[], &[1024]),
            unary(1, UnaryOp::Sigmoid, &[0], &[1024]),
            unary(2, UnaryOp::Exp, &[1], &[1024]),
        ],
        external_inputs: vec![],
        external_outputs: vec![2],
        memory_saved: 8192,
    };
    assert_eq!(kernel.buffers_eliminated(), 2);
    let result = FusionResult { fused_kernels: vec![], total_memory_saved: 65536, original_kernel_count: 10 };
    assert_eq!(result.to_string(), "Fusion: 10 → 0 kernels (100% reduction), 64.0KB memory saved");
}

/// An input that only reductions read has any number of elements, and shapes are compared, not their products.
#[test]
fn shapes_of_an_analysis() -> Result<()> {
    let mut analyzer = FusionAnalyzer::new();
    let sum = analyzer.add_node(FusableOp::Reduce(ReduceOp::Sum), vec![1], vec![9]);
    analyzer.add_node(FusableOp::Unary(UnaryOp::Neg), vec![1], vec![sum]);
    let fused = analyzer.graph()?.fuse_for(&Device::cpu())?;
    for len in [1usize, 1000] {
        let x = Tensor::full(&Device::cpu(), 0.5f32, [len])?;
        assert_eq!(fused.run(&[("9", &x)])?.take::<f32>("1")?.item()?, -0.5 * len as f32);
    }
    let refused = |build: &dyn Fn(&mut FusionAnalyzer)| {
        let mut analyzer = FusionAnalyzer::new();
        build(&mut analyzer);
        analyzer.graph().expect_err("a mistake").to_string()
    };
    let shapes = refused(&|analyzer| {
        let flat = analyzer.add_node(FusableOp::Unary(UnaryOp::Neg), vec![6], vec![9]);
        analyzer.add_node(FusableOp::Unary(UnaryOp::Neg), vec![2, 3], vec![flat]);
    });
    assert!(
        shapes.ends_with("its input 0 has shape [6], and it has [2, 3]: both must be one shape"),
        "{shapes}"
    );
    let order = refused(&|analyzer| {
        analyzer.add_node(FusableOp::Unary(UnaryOp::Neg), vec![6], vec![1]);
        analyzer.add_node(FusableOp::Unary(UnaryOp::Neg), vec![6], vec![9]);
    });
    assert_eq!(order, "`kernel`, node 0, Unary(Neg): an input of the node comes after it");
    let rows = refused(&|analyzer| {
        analyzer.add_node(FusableOp::Reduce(ReduceOp::Max), vec![4], vec![9]);
    });
    assert!(rows.ends_with("a reduction has one element, and its shape is [4]"), "{rows}");
    let operands = refused(&|analyzer| {
        analyzer.add_node(FusableOp::Binary(BinaryOp::Add), vec![4], vec![9]);
    });
    assert!(operands.ends_with("the node takes 2 operands, and 1 are given"), "{operands}");
    Ok(())
}

/// A value that a second consumer reads stays an output of its kernel, and kernels come after those they read.
#[test]
fn a_second_consumer_is_not_forgotten() -> Result<()> {
    let mut analyzer = FusionAnalyzer::new();
    let relu = analyzer.add_node(FusableOp::Unary(UnaryOp::Relu), vec![8], vec![9]);
    let total = analyzer.add_node(FusableOp::Reduce(ReduceOp::Sum), vec![1], vec![relu]);
    let double = analyzer.add_node(FusableOp::Binary(BinaryOp::Add), vec![8], vec![relu, relu]);
    let exp = analyzer.add_node(FusableOp::Unary(UnaryOp::Exp), vec![8], vec![double]);
    let result = analyzer.fuse();
    assert_eq!(result.fused_kernel_count(), 2);
    assert_eq!(result.fused_kernels[0].external_outputs, [relu, exp]);
    assert_eq!(result.fused_kernels[0].memory_saved, 32);
    let mut values = HashMap::from([(9, numbers(8, 1))]);
    for kernel in &result.fused_kernels {
        values.extend(kernel.execute(&values)?);
    }
    let want: Vec<f64> = values[&9].iter().map(|&x| f64::from(x.max(0.0))).collect();
    assert_close(&values[&total], &[want.iter().sum()], 1e-6, "sum");
    assert_close(&values[&exp], &want.iter().map(|x| (2.0 * x).exp()).collect::<Vec<_>>(), 1e-6, "exp");
    Ok(())
}

/// A node that reads a reduction of its own kernel's value cannot join that kernel.
#[test]
fn no_kernel_waits_for_itself() -> Result<()> {
    let mut analyzer = FusionAnalyzer::new();
    let relu = analyzer.add_node(FusableOp::Unary(UnaryOp::Relu), vec![1], vec![9]);
    let total = analyzer.add_node(FusableOp::Reduce(ReduceOp::Sum), vec![1], vec![relu]);
    analyzer.add_node(FusableOp::Binary(BinaryOp::Mul), vec![1], vec![relu, total]);
    let result = analyzer.fuse();
    assert_eq!(result.fused_kernel_count(), 3);
    let mut values = HashMap::from([(9, vec![3.0])]);
    for kernel in &result.fused_kernels {
        values.extend(kernel.execute(&values)?);
    }
    assert_eq!(values[&2], [9.0]);
    Ok(())
}

fn layers(ops: &[Operation]) -> ComputeGraph {
    let node = |(id, op): (usize, &Operation)| GraphNode {
        id,
        op: op.clone(),
        inputs: id.checked_sub(1).into_iter().collect(),
        outputs: Some(id + 1).filter(|&next| next < ops.len()).into_iter().collect(),
    };
    let nodes = ops.iter().enumerate().map(node).collect();
    ComputeGraph { nodes, edges: (1..ops.len()).map(|id| (id - 1, id)).collect() }
}

fn conv_bn_relu() -> ComputeGraph {
    let conv = Operation::Conv2d { channels: 64, kernel: (3, 3) };
    layers(&[conv, Operation::BatchNorm { channels: 64 }, Operation::ReLU])
}

#[test]
fn convolutions_take_norm_and_activation() {
    let graph = conv_bn_relu();
    let engine = FusionEngine::new();
    assert!(engine.can_fuse(&graph.nodes[0].op, &graph.nodes[1].op));
    let optimized = engine.optimize(graph.clone());
    assert_eq!(optimized.nodes.len(), 1);
    assert!(matches!(optimized.nodes[0].op, Operation::Conv2d { channels: 64, .. }));
    assert_eq!(optimized.edges, []);
    assert_eq!(FusionEngine::new().enabled(false).optimize(graph.clone()), graph);
    assert!(!FusionEngine::new().enabled(false).can_fuse(&graph.nodes[0].op, &graph.nodes[1].op));
}

/// A layer that two others read is joined to neither, and edges follow the layers that are left.
#[test]
fn shared_layers_stay() {
    let mut graph = layers(&[
        Operation::MatMul { m: 4, n: 8, k: 3 },
        Operation::Add,
        Operation::ReLU,
        Operation::Softmax { dim: -1 },
    ]);
    let optimized = FusionEngine::new().optimize(graph.clone());
    let left: Vec<&Operation> = optimized.nodes.iter().map(|node| &node.op).collect();
    assert_eq!(left, [&Operation::MatMul { m: 4, n: 8, k: 3 }, &Operation::Softmax { dim: -1 }]);
    assert_eq!((optimized.nodes[1].inputs.clone(), optimized.edges), (vec![0], vec![(0, 3)]));
    graph.nodes.push(GraphNode { id: 4, op: Operation::Mul, inputs: vec![1, 3], outputs: vec![] });
    graph.nodes[1].outputs.push(4);
    let optimized = FusionEngine::new().optimize(graph);
    assert!(optimized.nodes.iter().any(|node| node.id == 1), "{optimized:?}");
}

/// Values of the inputs, by name.
type Inputs = HashMap<String, Vec<f64>>;

/// Runs a compiled graph with random inputs. Returns the inputs by name, and the result.
fn run(
    fused: &Fused,
    device: &Device,
    shapes: &[(&str, &[usize])],
    output: &str,
) -> Result<(Inputs, Vec<f32>)> {
    let mut tensors = Vec::new();
    let mut values = HashMap::new();
    for (i, (name, shape)) in shapes.iter().enumerate() {
        let mut data = numbers(shape.iter().product(), i as u64 + 1);
        if name.ends_with("var") {
            data.iter_mut().for_each(|x| *x = x.abs() + 0.5);
        }
        values.insert((*name).to_owned(), data.iter().map(|&x| f64::from(x)).collect());
        tensors.push((*name, Tensor::from_slice(device, &data, shape.to_vec())?));
    }
    let args: Vec<(&str, &dyn Argument)> =
        tensors.iter().map(|(name, tensor)| (*name, tensor as &dyn Argument)).collect();
    Ok((values, fused.run(&args)?.take::<f32>(output)?.to_vec()?))
}

#[test]
fn convolution_with_norm_and_activation_on_devices() -> Result<()> {
    let conv = Operation::Conv2d { channels: 3, kernel: (3, 2) };
    let graph = layers(&[conv, Operation::BatchNorm { channels: 3 }, Operation::ReLU]);
    let shapes: [(&str, &[usize]); 6] = [
        ("0.input", &[2, 4, 6, 5]),
        ("0.weight", &[3, 4, 3, 2]),
        ("1.mean", &[3]),
        ("1.var", &[3]),
        ("1.weight", &[3]),
        ("1.bias", &[3]),
    ];
    for (_, device) in devices() {
        let fused = FusionEngine::new().compile(&graph, &device)?;
        assert_eq!(fused.report().kernels(), 1, "{device}");
        let (v, got) = run(&fused, &device, &shapes, "2")?;
        let mut want = Vec::new();
        for (n, o, p, q) in (0..2 * 3 * 4 * 4).map(|i| (i / 48, i / 16 % 3, i / 4 % 4, i % 4)) {
            let mut sum = 0.0;
            for (c, y, x) in (0..4 * 3 * 2).map(|i| (i / 6, i / 2 % 3, i % 2)) {
                let input = v["0.input"][((n * 4 + c) * 6 + p + y) * 5 + q + x];
                sum += input * v["0.weight"][((o * 4 + c) * 3 + y) * 2 + x];
            }
            let normal = (sum - v["1.mean"][o]) / (v["1.var"][o] + 1e-5).sqrt();
            want.push((normal * v["1.weight"][o] + v["1.bias"][o]).max(0.0));
        }
        assert_close(&got, &want, 1e-5, &format!("{device}"));
        let unfused = FusionEngine::new().enabled(false).compile(&graph, &device)?;
        assert!(unfused.report().kernels() > 3);
        assert_close(&run(&unfused, &device, &shapes, "2")?.1, &want, 1e-5, "unfused");
    }
    Ok(())
}

/// Returns the product of a matrix with `k` columns and one with `n`.
fn product(a: &[f64], b: &[f64], k: usize, n: usize) -> Vec<f64> {
    let rows = a.chunks(k);
    rows.flat_map(|row| (0..n).map(move |j| row.iter().enumerate().map(|(i, a)| a * b[i * n + j]).sum()))
        .collect()
}

fn softmax(x: &[f64], d: usize) -> Vec<f64> {
    let row = |row: &[f64]| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exp: Vec<f64> = row.iter().map(|x| (x - max).exp()).collect();
        let sum: f64 = exp.iter().sum();
        exp.into_iter().map(move |x| x / sum).collect::<Vec<_>>()
    };
    x.chunks(d).flat_map(row).collect()
}

#[test]
fn the_other_patterns_on_devices() -> Result<()> {
    let linear = layers(&[Operation::MatMul { m: 5, n: 7, k: 6 }, Operation::Add, Operation::ReLU]);
    let chain = layers(&[Operation::Mul, Operation::Add, Operation::ReLU, Operation::GELU]);
    let attention = layers(&[
        Operation::MatMul { m: 4, n: 6, k: 3 },
        Operation::Softmax { dim: 1 },
        Operation::MatMul { m: 4, n: 3, k: 6 },
    ]);
    let norm = layers(&[Operation::LayerNorm, Operation::MatMul { m: 4, n: 3, k: 6 }]);
    for (_, device) in devices() {
        let compile = |graph: &ComputeGraph| FusionEngine::new().compile(graph, &device);

        let fused = compile(&linear)?;
        assert_eq!(fused.report().kernels(), 1);
        let shapes: [(&str, &[usize]); 3] = [("0.input", &[5, 6]), ("0.weight", &[6, 7]), ("1.bias", &[7])];
        let (v, got) = run(&fused, &device, &shapes, "2")?;
        let sums = product(&v["0.input"], &v["0.weight"], 6, 7);
        let want: Vec<f64> =
            sums.iter().enumerate().map(|(i, x)| (x + v["1.bias"][i % 7]).max(0.0)).collect();
        assert_close(&got, &want, 1e-5, "linear");

        let fused = compile(&chain)?;
        assert_eq!(fused.report().kernels(), 1);
        let shapes: [(&str, &[usize]); 3] = [("0.input", &[5, 6]), ("0.scale", &[6]), ("1.bias", &[6])];
        let (v, got) = run(&fused, &device, &shapes, "3")?;
        assert_eq!(got.len(), 30);
        let linear = |i: usize| (v["0.input"][i] * v["0.scale"][i % 6] + v["1.bias"][i % 6]).max(0.0);
        let gelu = |x: f64| 0.5 * x * (1.0 + erf(x / 2f64.sqrt()));
        assert_close(&got, &(0..30).map(|i| gelu(linear(i))).collect::<Vec<_>>(), 1e-5, "chain");

        let fused = compile(&attention)?;
        let shapes: [(&str, &[usize]); 3] =
            [("0.input", &[4, 3]), ("0.weight", &[3, 6]), ("2.weight", &[6, 3])];
        let (v, got) = run(&fused, &device, &shapes, "2")?;
        let weights = softmax(&product(&v["0.input"], &v["0.weight"], 3, 6), 6);
        assert_close(&got, &product(&weights, &v["2.weight"], 6, 3), 1e-5, "attention");
        assert_eq!(fused.report().kernels(), 1);

        let fused = compile(&norm)?;
        let shapes: [(&str, &[usize]); 4] =
            [("0.input", &[4, 6]), ("0.weight", &[6]), ("0.bias", &[6]), ("1.weight", &[6, 3])];
        let (v, got) = run(&fused, &device, &shapes, "1")?;
        let normal: Vec<f64> = v["0.input"]
            .chunks(6)
            .flat_map(|row| {
                let mean = row.iter().sum::<f64>() / 6.0;
                let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 6.0;
                let scaled = row.iter().enumerate();
                scaled
                    .map(|(i, x)| (x - mean) / (var + 1e-5).sqrt() * v["0.weight"][i] + v["0.bias"][i])
                    .collect::<Vec<_>>()
            })
            .collect();
        assert_close(&got, &product(&normal, &v["1.weight"], 6, 3), 1e-5, "layer norm");
        // The normalised rows are stored until products have schedules of their own.
        assert_eq!(fused.report().kernels(), 2);
    }
    let left = |graph: &ComputeGraph| FusionEngine::new().optimize(graph.clone()).nodes;
    assert_eq!([&linear, &chain, &attention, &norm].map(|graph| left(graph).len()), [1, 1, 1, 2]);
    assert_eq!(left(&attention)[0].op, Operation::Attention { heads: 1, dim: 3 });
    Ok(())
}

/// Returns the error function by its series, which converges for all numbers of the tests.
fn erf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn attention_with_heads_on_devices() -> Result<()> {
    let graph = layers(&[Operation::Attention { heads: 2, dim: 4 }]);
    for (_, device) in devices() {
        let fused = FusionEngine::new().compile(&graph, &device)?;
        let shapes: [(&str, &[usize]); 3] =
            [("0.query", &[3, 2, 4]), ("0.key", &[5, 2, 4]), ("0.value", &[5, 2, 4])];
        let (v, got) = run(&fused, &device, &shapes, "0")?;
        let mut want = vec![0.0; 3 * 2 * 4];
        for (t, h) in (0..6).map(|i| (i / 2, i % 2)) {
            let at = |of: &str, row: usize, e: usize| v[of][(row * 2 + h) * 4 + e];
            let score = |s: usize| (0..4).map(|e| at("0.query", t, e) * at("0.key", s, e)).sum::<f64>() / 2.0;
            let weights = softmax(&(0..5).map(score).collect::<Vec<_>>(), 5);
            for e in 0..4 {
                want[(t * 2 + h) * 4 + e] = (0..5).map(|s| weights[s] * at("0.value", s, e)).sum();
            }
        }
        assert_close(&got, &want, 1e-5, &format!("{device}"));
    }
    Ok(())
}

#[test]
fn layers_that_do_not_fit_are_refused() {
    let engine = FusionEngine::new();
    let conv = Operation::Conv2d { channels: 3, kernel: (3, 3) };
    assert!(!engine.can_fuse(&conv, &Operation::MatMul { m: 1, n: 1, k: 1 }));
    let error =
        |ops: &[Operation]| engine.compile(&layers(ops), &Device::cpu()).expect_err("refused").to_string();
    let message = error(&[conv, Operation::MatMul { m: 1, n: 1, k: 1 }]);
    assert!(message.contains("its input has 4 dims, and the layer takes 2"), "{message}");
    let message = error(&[Operation::ReLU, Operation::Softmax { dim: 2 }]);
    assert!(message.contains("its input has 2 dims, and none is dim 2"), "{message}");
    let sum = Operation::Attention { heads: 1, dim: 2 };
    let message = error(&[Operation::ReLU, sum]);
    assert!(message.contains("its input has 2 dims, and the layer takes 3"), "{message}");
}

#[test]
fn benefits_of_the_third_proposal() {
    let profile = |kernel_launches, sync_points, host_output_bytes, device_traffic_bytes| GraphIoProfile {
        kernel_launches,
        sync_points,
        host_output_bytes,
        device_traffic_bytes,
    };
    let benefit = fusion_benefit(&profile(2, 1, 8192, 16384), &profile(1, 1, 512, 16384));
    assert_eq!((benefit.host_readback_bytes_saved, benefit.launches_saved), (7680, 1));
    let (dense, fused) = (profile(3, 0, 33_554_432, 184_549_376), profile(4, 1, 1_048_576, 219_152_384));
    let unified = IoFusionGate {
        dispatch_ns: 500.0,
        roundtrip_ns: 5_000.0,
        memory_bw: 200.0,
        host_readback_bw: 200.0,
        unified_memory: true,
        host_thunk_penalty_ns: 2_000_000.0,
        min_gain_ns: 1_000.0,
    };
    assert!(unified.should_fuse(&dense, &fused));
    let discrete = IoFusionGate {
        dispatch_ns: 3_000.0,
        roundtrip_ns: 30_000.0,
        memory_bw: 100.0,
        host_readback_bw: 40.0,
        unified_memory: false,
        host_thunk_penalty_ns: 25_000_000.0,
        min_gain_ns: 10_000.0,
    };
    assert!(!discrete.should_fuse(&dense, &fused));
    // The formula charges a byte of unified memory a nanosecond; the cost of the plans does not.
    let score = -500.0 - 5_000.0 - 34_603_008.0 / 200.0 + 32_505_856.0 - 2_000_000.0;
    assert_eq!(unified.score_ns(&fusion_benefit(&dense, &fused)), score);
    assert!(unified.cost_ns(&fused) > unified.cost_ns(&dense));
    assert_eq!(unified.cost_ns(&dense), 3.0 * 500.0 + 184_549_376.0 / 200.0);
}

#[test]
fn profiles_and_gate_of_a_graph() -> Result<()> {
    let device = Device::cpu();
    let mut g = Graph::new("head");
    let (x, b) = (g.input::<f32>("x", ["N", "D"])?, g.input::<f32>("b", ["D"])?);
    let y = g.add("relu(x + b) * 2.0", [("x", x), ("b", b)])?;
    let total = g.add("sum(y, D)", [("y", y)])?;
    g.output("y", y)?;
    g.output("total", total)?;
    let extents = [("N", 1000), ("D", 64)];
    let before = profile_graph_io(&g, &extents)?;
    let all = 64_000 * 4;
    assert_eq!((before.kernel_launches, before.sync_points, before.host_output_bytes), (4, 0, all + 4000));
    assert_eq!(before.device_traffic_bytes, 6 * all + 256 + all + 4000);
    let refused = |result: Result<GraphIoProfile>| result.expect_err("a mistake").to_string();
    assert_eq!(
        refused(profile_graph_io(&g, &extents[..1])),
        "`head`: the input `D` is missing; the inputs are N, D"
    );
    assert_eq!(refused(profile_graph_io(&g, &[("Q", 1)])), "`head` has no dim `Q`; its dims are [N, D]");
    let unknown = profile_graph_io_outputs(&g, &["z"], &extents);
    assert_eq!(refused(unknown), "`head` has no output `z` to take; there are [y, total]");
    let one = profile_graph_io_outputs(&g, &["total"], &extents)?;
    assert_eq!(one.host_output_bytes, 4000);
    let after = g.fuse_for(&device)?.io_profile(&extents)?;
    assert_eq!((after.kernel_launches, after.device_traffic_bytes), (1, 2 * all + 256 + 4000));
    assert_eq!(host_sync_op_kinds(), [""; 0]);

    let gate = IoFusionGate::of(&device)?;
    assert!(
        gate.dispatch_ns > 0.0 && gate.memory_bw > 0.1 && gate.host_readback_bw > 0.1 && gate.unified_memory
    );
    assert_eq!(IoFusionGate::of(&device)?, gate);
    let fused = g.fuse_gated(&device, &gate, &extents)?;
    let verdict = fused.verdict().expect("the gate decided");
    assert!(verdict.fused && verdict.before_ns > verdict.after_ns && fused.report().kernels() == 1);
    for text in [fused.to_string(), fused.report().to_string()] {
        assert!(text.contains("\nGate: fused; fusion gains "), "{text}");
    }
    // A gate that wants more than there is to gain runs the plan with one kernel per operation.
    let greedy = IoFusionGate { min_gain_ns: 1e12, ..gate };
    let unfused = g.fuse_gated(&device, &greedy, &extents)?;
    assert!(!unfused.verdict().expect("the gate decided").fused && unfused.report().kernels() > 1);
    let input = |len: usize, seed, shape: Vec<usize>| Tensor::from_slice(&device, &numbers(len, seed), shape);
    let (x, b) = (input(64_000, 1, vec![1000, 64])?, input(64, 2, vec![64])?);
    let total = |fused: &Fused| fused.run(&[("x", &x), ("b", &b)])?.take::<f32>("total")?.to_vec();
    let want: Vec<f64> = total(&unfused)?.into_iter().map(f64::from).collect();
    assert_close(&total(&fused)?, &want, 1e-5, "gated");
    Ok(())
}
