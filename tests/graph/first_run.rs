//! The time from an empty graph to its first result on the CPU.

use std::time::{Duration, Instant};

use fusion::graph::Graph;
use fusion::prelude::*;

/// Number of nodes of a graph.
const NODES: usize = 20;
/// Number of graphs that are tried. One fast run suffices, since other work of the machine slows runs down.
const GRAPHS: usize = 60;
/// Largest time of a fast run.
const MOST: Duration = Duration::from_millis(20);

/// Builds a graph whose constants no other has, compiles it, and runs it. Returns the time.
fn first_run(number: usize) -> Result<Duration> {
    let x = Tensor::full(&Device::cpu(), 0.5f32, [64])?;
    let start = Instant::now();
    let mut graph = Graph::new("first");
    let mut value = graph.input::<f32>("x", ["N"])?;
    for i in 0..NODES {
        value = graph.add(&format!("tanh(x * 0.{number}25 + {i}.0)"), [("x", value)])?;
    }
    graph.output("y", value)?;
    let y: Tensor<f32> = graph.fuse_for(&Device::cpu())?.run(&[("x", &x)])?.take("y")?;
    let time = start.elapsed();
    assert!(y.to_vec()?.iter().all(|y| y.abs() <= 1.0));
    Ok(time)
}

#[test]
fn first_runs_are_fast() -> Result<()> {
    let mut times = Vec::new();
    for number in 1..=GRAPHS {
        let time = first_run(number)?;
        if time <= MOST {
            return Ok(());
        }
        times.push(time);
    }
    panic!("no first run of {NODES} nodes took {MOST:?} or less: {times:?}");
}
