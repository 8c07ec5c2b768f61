//! Random graphs through the interface, against the same operations in f64, on every device.

use fusion::graph::{Argument, BinaryOp, Graph, Node, ReduceOp, UnaryOp, Value};
use fusion::prelude::*;

use crate::devices::devices;
use crate::nodes::numbers;

const N: usize = 5;
const D: usize = 37;

/// A value of the graph, in f64, with a bound of its error.
#[derive(Clone)]
struct Known {
    value: Value,
    /// True if the value has the dim.
    has: [bool; 2],
    /// Elements along `[N, D]`.
    elements: Vec<f64>,
    error: f64,
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

type Unary = fn(f64) -> f64;
type Binary = fn(f64, f64) -> f64;

/// Functions with small derivatives, so that errors grow slowly.
const UNARY: [(UnaryOp, Unary); 6] = [
    (UnaryOp::Relu, |x| x.max(0.0)),
    (UnaryOp::Tanh, f64::tanh),
    (UnaryOp::Neg, |x| -x),
    (UnaryOp::Abs, f64::abs),
    (UnaryOp::Sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
    (UnaryOp::Sin, f64::sin),
];
const BINARY: [(BinaryOp, Binary); 4] = [
    (BinaryOp::Add, |x, y| x + y),
    (BinaryOp::Sub, |x, y| x - y),
    (BinaryOp::Max, f64::max),
    (BinaryOp::Min, f64::min),
];
const REDUCE: [ReduceOp; 3] = [ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min];

fn step(graph: &mut Graph, known: &[Known], random: &mut Random) -> Result<Known> {
    let a = known[random.below(known.len())].clone();
    Ok(match random.below(5) {
        0 => {
            let (op, of) = UNARY[random.below(UNARY.len())];
            let value = graph.unary(op, a.value)?;
            let elements = a.elements.iter().map(|&x| of(x)).collect();
            Known { value, elements, error: a.error + 1e-6, ..a }
        }
        1 => {
            let along = if random.below(2) == 0 && a.has[1] { 1 } else { 0 };
            if !a.has[along] {
                return Ok(a);
            }
            let op = REDUCE[random.below(REDUCE.len())];
            let value = graph.reduce(op, a.value, [["N", "D"][along]])?;
            let row = |i: usize| {
                let line: Vec<f64> = match along {
                    1 => a.elements[i / D * D..][..D].to_vec(),
                    _ => (0..N).map(|n| a.elements[n * D + i % D]).collect(),
                };
                match op {
                    ReduceOp::Mean => line.iter().sum::<f64>() / line.len() as f64,
                    ReduceOp::Max => line.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    _ => line.iter().copied().fold(f64::INFINITY, f64::min),
                }
            };
            let mut has = a.has;
            has[along] = false;
            Known { value, has, elements: (0..N * D).map(row).collect(), error: a.error + 2e-6 }
        }
        2 => {
            let value = graph.node(&Node::Fill(0.5, DType::F32, vec!["D".into()]), &[])?;
            Known { value, has: [false, true], elements: vec![0.5; N * D], error: 0.0 }
        }
        _ => {
            let b = &known[random.below(known.len())];
            let (op, of) = BINARY[random.below(BINARY.len())];
            let value = graph.binary(op, a.value, b.value)?;
            let elements = a.elements.iter().zip(&b.elements).map(|(&x, &y)| of(x, y)).collect();
            let has = [0, 1].map(|dim| a.has[dim] || b.has[dim]);
            Known { value, has, elements, error: a.error + b.error + 1e-6 }
        }
    })
}

#[test]
fn random_graphs() -> Result<()> {
    let cases = std::env::var("FUSION_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(12);
    let seed = if std::env::var_os("FUSION_CASES").is_some() { std::process::id().into() } else { 1 };
    for case in 0..cases {
        let mut random = Random(seed * 1_000_003 + case);
        let mut graph = Graph::new("random");
        let (x, b) = (numbers(N * D, case + 1), numbers(D, case + 2));
        let wide = |x: &[f32]| (0..N * D).map(|i| f64::from(x[i % x.len()])).collect();
        let mut known = vec![
            Known {
                value: graph.input::<f32>("x", ["N", "D"])?,
                has: [true, true],
                elements: wide(&x),
                error: 0.0,
            },
            Known {
                value: graph.input::<f32>("b", ["D"])?,
                has: [false, true],
                elements: wide(&b),
                error: 0.0,
            },
        ];
        for _ in 0..8 + random.below(24) {
            let next = step(&mut graph, &known, &mut random)?;
            known.push(next);
        }
        // Any two values share a kernel, or there is a reason why they do not.
        for _ in 0..8 {
            let pair = [0, 1].map(|_| known[random.below(known.len())].value);
            match graph.can_fuse(&pair) {
                Ok(()) => {}
                Err(Error::NotFused { kernels, reason, .. }) => assert!(kernels > 1 && !reason.is_empty()),
                Err(error) => panic!("case {case}: {error}\n{graph}"),
            }
        }
        let outputs: Vec<Known> = known[known.len() - 3..].to_vec();
        // Both inputs are always read, and so is every dim.
        let whole = graph.add("x + b", [("x", known[0].value), ("b", known[1].value)])?;
        graph.output("whole", whole)?;
        for (i, output) in outputs.iter().enumerate() {
            graph.output(&format!("out_{i}"), output.value)?;
        }
        for (_, device) in devices() {
            let x = Tensor::from_slice(&device, &x, [N, D])?;
            let b = Tensor::from_slice(&device, &b, [D])?;
            let args: [(&str, &dyn Argument); 2] = [("b", &b), ("x", &x)];
            for fused in [graph.fuse_for(&device)?, graph.clone().unfused().fuse_for(&device)?] {
                let mut results = fused.run(&args)?;
                for (i, output) in outputs.iter().enumerate() {
                    let got = results.take::<f32>(&format!("out_{i}"))?.to_vec()?;
                    let every = |at: usize| match output.has {
                        [true, true] => at,
                        [true, false] => at * D,
                        [false, _] => at,
                    };
                    for (at, &got) in got.iter().enumerate() {
                        let want = output.elements[every(at)];
                        let close = (f64::from(got) - want).abs() <= output.error * (1.0 + want.abs()) * 4.0;
                        assert!(close, "case {case} on {device}: {got}, not {want}\n{graph}");
                    }
                }
            }
        }
    }
    Ok(())
}
