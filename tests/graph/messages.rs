//! Every message about a graph.

use std::fmt::Debug;

use fusion::graph::{Argument, Attention, BinaryOp, Graph, IoFusionGate, Node, UnaryOp};
use fusion::prelude::*;

use crate::devices::{Kind, devices, gpus};

/// Checks the message of an error.
fn refused<T: Debug>(result: Result<T>, message: &str) {
    assert_eq!(result.expect_err("a mistake is refused").to_string(), message);
}

#[test]
fn of_parts() -> Result<()> {
    let mut g = Graph::new("g");
    let x = g.input::<f32>("x", ["N", "D"])?;
    refused(g.input::<f32>("x", ["N"]), "`g`, part 2, `x: f32[N]`: there is a parameter `x`");
    refused(
        g.input::<f32>("z", ["n"]),
        "`g`, part 2, `z: f32[n]`: the name of a dim starts with an uppercase letter: write `N` for `n`",
    );
    refused(
        g.input::<f32>("z", ["C = 3", "C = 4"]),
        "`g`, part 2, `z: f32[C = 3, C = 4]`: column 8: the dim `C` has extent 3 and extent 4: a dim has one extent in a function",
    );
    refused(
        g.input::<f32>("z", ["N = 3"]),
        "`g`, part 2, `z: f32[N = 3]`: the dim `N` has extent of each call (`N`) and extent 3: a dim has one extent in a function",
    );
    refused(
        g.dim("n"),
        "`g`, part 2, `n: dim`: the name of a dim starts with an uppercase letter: write `N` for `n`",
    );
    refused(
        g.add("softmax(x, E)", [("x", x)]),
        "`g`, part 2, `softmax(x, E)`: column 12: there is no dim `E` here",
    );
    refused(g.add("x + y", [("x", x)]), "`g`, part 2, `x + y`: column 5: there is no value `y` here");
    refused(g.add("x", [("x", x), ("y", x)]), "`g`, part 2, `x`: `y` is given, and the text does not use it");
    refused(
        g.add("(x", [("x", x)]),
        "`g`, part 2, `(x`: this is no text of the language: a bracket is not closed, or a letter is none of Rust's",
    );
    refused(g.add("", []), "`g`, part 2: this block has no value: end it with an expression, without `;`");
    // A line break is one column.
    refused(
        g.add("let y =\nx;\ny + q", [("x", x)]),
        "`g`, part 2, `let y = x; y + q`: column 16: there is no value `q` here",
    );
    refused(
        g.add("(x, x)", [("x", x)]),
        "`g`, part 2, `(x, x)`: the text has 2 values: `add_all` returns them",
    );
    refused(
        g.node(&Node::Softmax("D".into()), &[]),
        "`g`, part 2, `softmax(a, D)`: the node takes 1 operand, and 0 are given",
    );
    refused(
        g.node(&Node::Matmul("D".into()), &[x]),
        "`g`, part 2, `sum(a * b, D)`: the node takes 2 operands, and 1 are given",
    );
    refused(g.unary(UnaryOp::Not, x), "`g`, part 2, `!(a)`: `!` takes integers or `bool`, this is f32");
    let mut fixed = Graph::new("fixed");
    fixed.input::<f32>("x", ["C = 3"])?;
    refused(
        fixed.dim("C"),
        "`fixed`, part 2, `C: dim`: `C` is given by the caller and a dim of fixed extent: give one of them its own name",
    );
    let other = Graph::new("other").input::<f32>("x", ["N"])?;
    refused(g.binary(BinaryOp::Add, x, other), "`g`, part 2: a value of another graph is given");
    assert_eq!(g.to_string(), "g\n   1  x: f32[N, D]\n      outputs: \n");
    Ok(())
}

#[test]
fn of_outputs() -> Result<()> {
    let mut g = Graph::new("g");
    let x = g.input::<f32>("x", ["N", "D"])?;
    refused(g.fuse_for(&Device::cpu()), "`g`: the graph has no output: add one with `output`");
    refused(
        g.output_as("y", x, ["N"]),
        "`g`, output `y`: this value has the dim `D`, which the result [N] lacks: declare `[N, D]`, or reduce over `D`, \
         as in `mean(x, D)`",
    );
    refused(g.output_as("y", x, ["N", "D", "Q"]), "`g`, output `y`: column 7: there is no dim `Q` here");
    g.output("y", x)?;
    refused(g.output("y", x), "`g`, output `y`: there is an output of this name");
    Ok(())
}

#[test]
fn of_fusion() -> Result<()> {
    let mut g = Graph::new("g");
    let x = g.input::<f32>("x", ["N", "D"])?;
    let y = g.add("softmax(x, D)", [("x", x)])?;
    let z = g.add("sum(y, N)", [("y", y)])?;
    g.can_fuse(&[y])?;
    g.can_fuse(&[z])?;
    refused(
        g.can_fuse(&[y, z]),
        "`g`: these values take 2 kernels, since one ends with `max` of part 2: its consumer does not iterate over whole rows along `D`, so it is a separate kernel",
    );
    g.output("z", z)?;
    let fused = g.fuse_for(&Device::cpu())?;
    assert!(fused.to_string().contains("\n  2:1  `max` is stored: "), "{fused}");
    assert_eq!(
        g.to_string(),
        "g\n   1  x: f32[N, D]\n   2  softmax(x, D)  where x = 1  -> f32[N, D]\n   3  sum(y, N)  where y = 2  -> f32[D]\n      outputs: z = 3\n",
    );
    Ok(())
}

#[test]
fn of_calls() -> Result<()> {
    let device = Device::cpu();
    let mut g = Graph::new("g");
    let x = g.input::<f32>("x", ["N", "D"])?;
    let scale = g.scalar::<f32>("scale")?;
    g.dim("M")?;
    let y = g.add("x * scale", [("x", x), ("scale", scale)])?;
    g.output_as("y", y, ["M", "N", "D"])?;
    let fused = g.fuse_for(&device)?;
    let t = Tensor::full(&device, 1.0f32, [2, 3])?;
    let inputs = "the inputs are x: f32[N, D], scale: f32, M: dim";
    refused(fused.run(&[]), &format!("`g`: the input `x` is missing; {inputs}"));
    refused(
        fused.run(&[("x", &t), ("scale", &2.0f32), ("M", &4usize), ("z", &t)]),
        &format!("`g`: `z` is no input, or is given twice; {inputs}"),
    );
    refused(
        fused.run(&[("x", &t), ("scale", &2.0f32), ("M", &4usize), ("x", &t)]),
        &format!("`g`: `x` is no input, or is given twice; {inputs}"),
    );
    let given = |x: &Tensor<f32>| fused.run(&[("M", &4usize), ("scale", &2.0f32), ("x", x)]);
    refused(
        given(&Tensor::zeros(&device, [3])?),
        "`g`: `x` has dims [N, D], but its argument has shape [3]; reshape it, or change the signature",
    );
    refused(
        fused.run(&[("x", &t), ("scale", &2i32), ("M", &4usize)]),
        "`g`: the input `scale` is a number of f32, not a number of i32",
    );
    let number = fused.run(&[("x", &1.0f32), ("scale", &2.0f32), ("M", &4usize)]);
    refused(number, "`g`: the input `x` is a tensor of f32, not a number of f32");
    let halves = Tensor::full(&device, f16::ONE, [2, 3])?;
    let dtype = fused.run(&[("x", &halves), ("scale", &2.0f32), ("M", &4usize)]);
    refused(dtype, "`g`: the input `x` is a tensor of f32, not a tensor of f16");
    let extent = fused.run(&[("x", &t), ("scale", &2.0f32), ("M", &t)]);
    refused(extent, "`g`: the input `M` is an extent, a `usize`, not a tensor of f32");
    let mut results = given(&t)?;
    assert_eq!(results.names().collect::<Vec<_>>(), ["y"]);
    refused(results.take::<f32>("z"), "`g` has no output `z` to take; there are [y]");
    let y = results.take::<f32>("y")?;
    assert_eq!((y.shape().to_vec(), y.to_vec()?), (vec![4, 2, 3], vec![2.0; 24]));
    refused(results.take::<f32>("y"), "`g` has no output `y` to take; there are []");
    refused(given(&t)?.take::<i32>("y"), "the output `y` of `g` is of f32, and is taken as i32");
    Ok(())
}

/// Every kind of input refuses every other kind of argument.
#[test]
fn of_kinds_of_inputs() -> Result<()> {
    let device = Device::cpu();
    let mut g = Graph::new("g");
    let x = g.input::<f32>("x", ["N"])?;
    let scale = g.scalar::<i32>("scale")?;
    g.dim("M")?;
    let y = g.add("x * scale as f32", [("x", x), ("scale", scale)])?;
    g.output_as("y", y, ["M", "N"])?;
    let fused = g.fuse_for(&device)?;
    let x = Tensor::full(&device, 1.0f32, [3])?;
    let truths = Tensor::full(&device, true, [3])?;
    let right: [(&str, &dyn Argument); 3] = [("x", &x), ("scale", &2i32), ("M", &4usize)];
    fused.run(&right)?;
    let others: [(&dyn Argument, &str); 6] = [
        (&x, "a tensor of f32"),
        (&truths, "a tensor of bool"),
        (&1.0f32, "a number of f32"),
        (&2i32, "a number of i32"),
        (&bf16::ONE, "a number of bf16"),
        (&4usize, "an extent"),
    ];
    let takes = [("a tensor of f32", 0), ("a number of i32", 3), ("an extent, a `usize`", 5)];
    for (i, (wants, own)) in takes.into_iter().enumerate() {
        for (_, (other, is)) in others.iter().enumerate().filter(|(j, _)| *j != own) {
            let mut given = right;
            given[i].1 = *other;
            refused(fused.run(&given), &format!("`g`: the input `{}` is {wants}, not {is}", right[i].0));
        }
    }
    Ok(())
}

/// An input is on the device of the graph, and a parameter moves there.
#[test]
fn of_other_devices() -> Result<()> {
    let cpu = Device::cpu();
    let mut g = Graph::new("g");
    let weights = Tensor::full(&cpu, 2.0f32, [2])?;
    let (x, w) = (g.input::<f32>("x", ["N"])?, g.param("w", &weights, ["N"])?);
    let y = g.binary(BinaryOp::Mul, x, w)?;
    g.output("y", y)?;
    for gpu in gpus() {
        for (device, other) in [(&gpu, &cpu), (&cpu, &gpu)] {
            let fused = g.fuse_for(device)?;
            let elsewhere = Tensor::full(other, 1.0f32, [2])?;
            refused(
                fused.run(&[("x", &elsewhere)]),
                &format!(
                    "`g`: the input `x` is a tensor on {device}, not on {other}: \
                     move it with `.to(&device)`, or compile the graph for that device"
                ),
            );
            let moved = elsewhere.to(device)?;
            assert_eq!(fused.run(&[("x", &moved)])?.take::<f32>("y")?.to_vec()?, [2.0, 2.0], "{device}");
        }
    }
    Ok(())
}

/// Results that no kernel computes together have a reason, and so have values that no function can have.
#[test]
fn of_values_apart() -> Result<()> {
    let mut g = Graph::new("g");
    let (x, y) = (g.input::<f32>("x", ["N"])?, g.input::<f32>("y", ["M"])?);
    let (a, b) = (g.unary(UnaryOp::Exp, x)?, g.unary(UnaryOp::Exp, y)?);
    refused(
        g.can_fuse(&[a, b]),
        "`g`: these values take 2 kernels, since one ends with `exp` of part 4: no result before has these dims in this order",
    );
    let z = g.input::<f32>("z", ["C = 6"])?;
    let both = g.add("z + sum(split(z, C -> (H, P)), P)", [("z", z)]).expect_err("two new dims");
    assert!(both.to_string().contains("`H` and `P` are both new"), "{both}");
    let both = g.add("z + split(z, C -> (H, 2))", [("z", z)])?;
    let overlap = "this value has `C` and `H`, a part of it: split all of its operands, or merge them";
    refused(g.can_fuse(&[both]), &format!("`g`: {overlap}"));
    refused(g.output("both", both), &format!("`g`, output `both`: {overlap}"));
    Ok(())
}

/// The verdict of a gate stands in the report and in its pictures.
#[test]
fn of_verdicts() -> Result<()> {
    let device = Device::cpu();
    let mut g = Graph::new("g");
    let x = g.input::<f32>("x", ["N"])?;
    let y = g.add("exp(x) * 2.0", [("x", x)])?;
    g.output("y", y)?;
    let gate = IoFusionGate {
        dispatch_ns: 1000.0,
        roundtrip_ns: 0.0,
        memory_bw: 8.0,
        host_readback_bw: 8.0,
        unified_memory: true,
        host_thunk_penalty_ns: 0.0,
        min_gain_ns: 0.0,
    };
    let gain = "fusion gains 2000 ns: 4000 ns with 2 launches, 2000 ns with 1 launches fused";
    for (min_gain_ns, verdict) in [(2000.0, "fused"), (2001.0, "not fused")] {
        let gate = IoFusionGate { min_gain_ns, ..gate };
        let fused = g.fuse_gated(&device, &gate, &[("N", 1000)])?;
        let line = format!("Gate: {verdict}; {gain}");
        assert_eq!(fused.verdict().map(ToString::to_string), Some(line.clone()));
        let report = fused.report();
        assert!(report.to_string().ends_with(&format!("\n{line}")), "{report}");
        assert!(report.to_svg().contains(&format!("{line}</text>")), "{}", report.to_svg());
        assert!(report.to_dot().contains(&format!("\\n{line}\";")), "{}", report.to_dot());
    }
    let plain = g.fuse_for(&device)?.report();
    assert!(![plain.to_string(), plain.to_svg(), plain.to_dot()].iter().any(|text| text.contains("Gate: ")));
    Ok(())
}

#[test]
fn of_values_that_a_device_lacks() -> Result<()> {
    let mut g = Graph::new("g");
    let x = g.input::<f64>("x", ["N"])?;
    g.output("x", x)?;
    for (_, wgpu) in devices().into_iter().filter(|(kind, _)| *kind == Kind::Wgpu) {
        let message = format!("{wgpu} does not support `g`: it computes with f64, which wgsl has not");
        refused(g.fuse_for(&wgpu), &message);
    }
    Ok(())
}

#[test]
fn of_attention() -> Result<()> {
    let mut g = Graph::new("g");
    let q = g.input::<f32>("q", ["T", "E"])?;
    let k = g.input::<f32>("k", ["S", "E"])?;
    let attention =
        Attention { queries: "T".into(), keys: "S".into(), features: "F".into(), scale: None, causal: true };
    let message = g.node(&Node::Attention(attention), &[q, k, k]).expect_err("there is no F").to_string();
    assert!(message.contains("there is no dim `F` here"), "{message}");
    Ok(())
}

/// A clone grows apart: values from before the clone belong to both, later ones to one of them.
#[test]
fn of_clones() -> Result<()> {
    let mut g = Graph::new("g");
    let x = g.input::<f32>("x", ["N"])?;
    let mut clone = g.clone();
    let y = g.unary(UnaryOp::Exp, x)?;
    let z = clone.unary(UnaryOp::Neg, x)?;
    let foreign = |result: Result<()>| refused(result, "`g`, part 3: a value of another graph is given");
    foreign(g.output("z", z));
    foreign(clone.output("y", y));
    g.output("y", y)?;
    clone.clone().output("z", z)?;
    clone.output("x", x)
}

/// Parameters take no kernel.
#[test]
fn of_fusion_without_nodes() -> Result<()> {
    let mut g = Graph::new("g");
    let x = g.input::<f32>("x", ["N"])?;
    let y = g.unary(UnaryOp::Exp, x)?;
    let z = g.add("x + y", [("x", x), ("y", y)])?;
    g.can_fuse(&[])?;
    g.can_fuse(&[x])?;
    g.can_fuse(&[x, y, z])
}
