//! Graphs at run time on the CPU, compared with the macro: the first run of a new graph, and long chains.
//!
//! `cargo bench --features graph --bench graph` runs the benchmark. The graph and the macro run alternately, on
//! one thread for each processor.

use std::time::{Duration, Instant};

use fusion::graph::{Fused, Graph};
use fusion::prelude::*;

fuse! {
    pub(crate) fn gate(x: f32[N], y: f32[N]) -> f32[N] { relu(x + y) * x }

    pub(crate) fn chain(x: f32[N], y: f32[N]) -> f32[N] {
        let t = tanh(x * 0.5 + y);
        let s = sqrt(t * t + 1.0);
        tanh(exp(-s) * y + x) * s
    }

    pub(crate) fn rows(x: f32[N, D], y: f32[N, D]) -> f32[N, D] { softmax(x * y, D) }
}

/// Number of elements, past the caches.
const ELEMENTS: usize = 1 << 24;
/// Number of measurements, the median of which counts.
const ROUNDS: usize = 7;

fn main() -> Result<()> {
    for nodes in [20, 200] {
        let mut times: Vec<Duration> = (0..ROUNDS).map(|i| first_run(nodes, i)).collect::<Result<_>>()?;
        times.sort();
        println!(
            "first run of a new graph of {nodes} nodes: {:.1} ms",
            times[ROUNDS / 2].as_secs_f64() * 1e3
        );
    }
    println!("| function | macro, ms | graph, ms | macro / graph |");
    println!("|---|--:|--:|--:|");
    let flat = fused("relu(x + y) * x", "N")?;
    compare("gate", &[ELEMENTS], &flat, gate)?;
    let text = "let t = tanh(x * 0.5 + y); let s = sqrt(t * t + 1.0); tanh(exp(-s) * y + x) * s";
    compare("chain", &[ELEMENTS], &fused(text, "N")?, chain)?;
    let softmax = fused("softmax(x * y, D)", "N, D")?;
    compare("softmax, rows of 1024", &[ELEMENTS >> 10, 1 << 10], &softmax, rows)
}

/// Returns the time from an empty graph to its first result.
fn first_run(nodes: usize, number: usize) -> Result<Duration> {
    let x = Tensor::full(&Device::cpu(), 0.5f32, [64])?;
    let start = Instant::now();
    let mut graph = Graph::new("first");
    let mut value = graph.input::<f32>("x", ["N"])?;
    for i in 0..nodes {
        value = graph.add(&format!("tanh(x * 0.{number}5 + {i}.0)"), [("x", value)])?;
    }
    graph.output("y", value)?;
    graph.fuse_for(&Device::cpu())?.run(&[("x", &x)])?.take::<f32>("y")?.to_vec()?;
    Ok(start.elapsed())
}

fn fused(text: &str, dims: &str) -> Result<Fused> {
    let mut graph = Graph::new("chain");
    let (x, y) = (graph.input_of("x", DType::F32, dims)?, graph.input_of("y", DType::F32, dims)?);
    let z = graph.add(text, [("x", x), ("y", y)])?;
    graph.output("z", z)?;
    graph.fuse_for(&Device::cpu())
}

/// Prints the times of a function of the macro and of a graph, which must agree bit for bit.
fn compare(
    name: &str,
    shape: &[usize],
    graph: &Fused,
    function: impl Fn(&Tensor<f32>, &Tensor<f32>) -> Result<Tensor<f32>>,
) -> Result<()> {
    let data = |seed: usize| (0..ELEMENTS).map(|i| ((i * seed) % 1000) as f32 * 1e-3 - 0.5).collect();
    let x = Tensor::from_vec(&Device::cpu(), data(7), shape)?;
    let y = Tensor::from_vec(&Device::cpu(), data(11), shape)?;
    let run = || graph.run(&[("x", &x), ("y", &y)])?.take::<f32>("z");
    assert_eq!(run()?.to_vec()?, function(&x, &y)?.to_vec()?, "{name}");
    let (mut of_macro, mut of_graph) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_macro.push(timed(|| function(&x, &y))?);
        of_graph.push(timed(run)?);
    }
    of_macro.sort_by(f64::total_cmp);
    of_graph.sort_by(f64::total_cmp);
    let (a, b) = (of_macro[ROUNDS / 2], of_graph[ROUNDS / 2]);
    println!("| {name} | {a:.1} | {b:.1} | {:.2} |", a / b);
    Ok(())
}

/// Returns the milliseconds of a call.
fn timed(run: impl Fn() -> Result<Tensor<f32>>) -> Result<f64> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
