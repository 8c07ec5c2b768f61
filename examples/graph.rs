//! A graph that is known only when the program runs: a stack of layers whose sizes come from the command line.
//!
//! The command is `cargo run --release --example graph --features graph -- 64 128 10`. The first number is the
//! size of the input, each further one that of a layer.

use std::error::Error;
use std::time::Instant;

use fusion::graph::{Graph, IoFusionGate, Node, UnaryOp, profile_graph_io};
use fusion::prelude::*;

/// Number of rows of the input.
const ROWS: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let sizes: Vec<usize> = std::env::args().skip(1).map(|size| size.parse()).collect::<Result<_, _>>()?;
    let sizes = if sizes.len() > 1 { sizes } else { vec![64, 128, 10] };
    let device = Device::best();

    let start = Instant::now();
    let graph = layers(&sizes, &device)?;
    println!("{graph}");
    let fused = graph.fuse_for(&device)?;
    let x = Tensor::full(&device, 0.5f32, [ROWS, sizes[0]])?;
    let mut results = fused.run(&[("x", &x)])?;
    let y: Tensor<f32> = results.take("y")?;
    let sum: f32 = y.to_vec()?[..sizes[sizes.len() - 1]].iter().sum();
    println!("{:?} of probabilities that sum to {sum} in {:?} on {device}\n", y.shape(), start.elapsed());

    // The gate compares plans by facts that it measures.
    let extents = [("N", ROWS)];
    println!("One kernel per operation: {:?}", profile_graph_io(&graph, &extents)?);
    println!("Fused: {:?}\n", fused.io_profile(&extents)?);
    println!("{}", graph.fuse_gated(&device, &IoFusionGate::of(&device)?, &extents)?);
    Ok(())
}

/// Returns layers of these sizes, with a softmax after the last.
fn layers(sizes: &[usize], device: &Device) -> Result<Graph> {
    let mut graph = Graph::new("layers");
    let mut value = graph.input_of("x", DType::F32, &format!("N, D0 = {}", sizes[0]))?;
    for (i, pair) in sizes.windows(2).enumerate() {
        let [from, to] = [i, i + 1].map(|i| format!("D{i} = {}", sizes[i]));
        let scale = 1.0 / (pair[0] as f32).sqrt();
        let weights: Vec<f32> = (0..pair[0] * pair[1]).map(|i| (i as f32).sin() * scale).collect();
        let weights = Tensor::from_vec(device, weights, [pair[0], pair[1]])?;
        let weights = graph.param(&format!("w{i}"), &weights, [from.as_str(), to.as_str()])?;
        value = graph.node(&Node::Matmul(format!("D{i}")), &[value, weights])?;
        if i + 2 < sizes.len() {
            value = graph.unary(UnaryOp::Gelu, value)?;
        }
    }
    let last = format!("D{}", sizes.len() - 1);
    let y = graph.add(&format!("softmax(x, {last})"), [("x", value)])?;
    graph.output("y", y)?;
    Ok(graph)
}
