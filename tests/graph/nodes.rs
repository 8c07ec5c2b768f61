//! Results of nodes on every device, against formulas in f64 and against the macro.

use fusion::graph::{
    Argument, Attention, BinaryOp, Conv2d, Graph, MemOp, Node, PrecisionType, ReduceOp, UnaryOp, Value,
};
use fusion::prelude::*;

use crate::devices::devices;

fuse! {
    fn scaled(x, D: dim) { x * rsqrt(mean(square(x), D) + 1e-6) }

    #[fuse(strict)]
    pub(crate) fn strict(x: f16[N], y: f16[N]) -> f16[N] { softplus(exp(x) * y) + y }

    pub(crate) fn relaxed(x: f16[N], y: f16[N]) -> f16[N] { softplus(exp(x) * y) + y }

    pub(crate) fn head(x: f32[N, D], w: f32[D, H], b: f32[H]) -> f32[N, H] {
        gelu(sum(scaled(x, D) * w, D) + b)
    }
}

/// Returns numbers from -1 to 1 that look random.
pub(crate) fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

pub(crate) fn assert_close(got: &[f32], want: &[f64], bound: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        assert!(
            (f64::from(got) - want).abs() <= bound * (1.0 + want.abs()),
            "{what}: element {i}: {got}, not {want}"
        );
    }
}

/// A graph of texts and nodes computes what the macro computes, on every device, in as many kernels.
#[test]
fn as_the_macro_does() -> Result<()> {
    for (_, device) in devices() {
        let tensor =
            |len: usize, seed, shape: [usize; 2]| Tensor::from_slice(&device, &numbers(len, seed), shape);
        let (x, w) = (tensor(5 * 33, 1, [5, 33])?, tensor(33 * 7, 2, [33, 7])?);
        let b = Tensor::from_slice(&device, &numbers(7, 3), [7])?;
        let mut g = Graph::new("head");
        let input = g.input::<f32>("x", ["N", "D"])?;
        let weight = g.param("w", &w, ["D", "H"])?;
        let bias = g.param("b", &b, ["H"])?;
        let scaled = g.add("x * rsqrt(mean(square(x), D) + 1e-6)", [("x", input)])?;
        let product = g.node(&Node::Matmul("D".into()), &[scaled, weight])?;
        let sum = g.binary(BinaryOp::Add, product, bias)?;
        let y = g.unary(UnaryOp::Gelu, sum)?;
        g.output("y", y)?;
        let fused = g.fuse_for(&device)?;
        let got: Tensor<f32> = fused.run(&[("x", &x)])?.take("y")?;
        let want = head(&x, &w, &b)?;
        assert_eq!(got.shape(), want.shape());
        assert_eq!(got.to_vec()?, want.to_vec()?, "{device}");
        assert_eq!(fused.report().kernels(), head::report().on(&device)?.kernels());
    }
    Ok(())
}

/// Runs a node on every device, and compares its result with `want`, which gets the operands.
fn check(
    node: &Node,
    operands: &[(&'static str, &[&str], &[usize])],
    dims: &[&str],
    want: impl Fn(&[Vec<f64>]) -> Vec<f64>,
) -> Result<()> {
    let data: Vec<Vec<f32>> = operands
        .iter()
        .enumerate()
        .map(|(i, (.., shape))| numbers(shape.iter().product(), i as u64 + 3))
        .collect();
    let doubles: Vec<Vec<f64>> =
        data.iter().map(|data| data.iter().map(|&x| f64::from(x)).collect()).collect();
    for (_, device) in devices() {
        let mut graph = Graph::new("node");
        let values = operands.iter().map(|(name, dims, _)| graph.input::<f32>(name, dims));
        let values = values.collect::<Result<Vec<Value>>>()?;
        let y = graph.node(node, &values)?;
        graph.output_as("y", y, dims)?;
        let tensors =
            operands.iter().zip(&data).map(|((.., shape), data)| Tensor::from_slice(&device, data, *shape));
        let tensors = tensors.collect::<Result<Vec<Tensor<f32>>>>()?;
        let args: Vec<(&str, &dyn Argument)> = operands
            .iter()
            .zip(&tensors)
            .map(|((name, ..), tensor)| (*name, tensor as &dyn Argument))
            .collect();
        let got = graph.fuse_for(&device)?.run(&args)?.take::<f32>("y")?.to_vec()?;
        assert_close(&got, &want(&doubles), 2e-5, &format!("{node:?} on {device}"));
    }
    Ok(())
}

const ROWS: (&str, &[&str], &[usize]) = ("x", &["N", "D"], &[3, 20]);

/// Every operation on one value gives what the language gives for its text.
#[test]
fn every_unary_operation_is_in_the_language() -> Result<()> {
    let x = Tensor::from_slice(&Device::cpu(), &numbers(40, 8), [40])?;
    for &op in UnaryOp::ALL {
        let mut graph = Graph::new("unary");
        let input = graph.input::<f32>("x", ["N"])?;
        let operand = if op == UnaryOp::Not { graph.add("x > 0.0", [("x", input)])? } else { input };
        let node = graph.unary(op, operand)?;
        let y = graph.cast(node, DType::F32)?;
        let text = format!("{}({}) as f32", op.name(), if op == UnaryOp::Not { "x > 0.0" } else { "x" });
        let want = graph.add(&text, [("x", input)])?;
        graph.output("y", y)?;
        graph.output("want", want)?;
        let mut results = graph.fuse_for(&Device::cpu())?.run(&[("x", &x)])?;
        let bits =
            |y: Tensor<f32>| Ok::<_, Error>(y.to_vec()?.into_iter().map(f32::to_bits).collect::<Vec<_>>());
        assert_eq!(bits(results.take("y")?)?, bits(results.take("want")?)?, "{op:?}");
    }
    Ok(())
}

#[test]
fn every_binary_operation_and_reduction_is_in_the_language() -> Result<()> {
    for &op in BinaryOp::ALL {
        use BinaryOp::{And, BitAnd, BitOr, BitXor, Or, Shl, Shr};
        let mut graph = Graph::new("binary");
        let dtype = match op {
            And | Or => DType::Bool,
            BitAnd | BitOr | BitXor | Shl | Shr => DType::I32,
            _ => DType::F32,
        };
        let (a, b) = (graph.input_of("a", dtype, "N")?, graph.input_of("b", dtype, "N")?);
        let y = graph.binary(op, a, b)?;
        graph.output("y", y)?;
        graph.fuse_for(&Device::cpu())?;
    }
    for &op in ReduceOp::ALL {
        let mut graph = Graph::new("reduce");
        let dtype = if matches!(op, ReduceOp::Any | ReduceOp::All) { DType::Bool } else { DType::F32 };
        let x = graph.input_of("x", dtype, "N, D")?;
        let (rows, all) = (graph.reduce(op, x, ["D"])?, graph.reduce(op, x, [])?);
        assert!(graph.type_of(rows)?.ends_with("[N]") && graph.type_of(all)?.ends_with("[]"));
        graph.output("rows", rows)?;
        graph.output("all", all)?;
        graph.fuse_for(&Device::cpu())?;
    }
    Ok(())
}

#[test]
fn casts_copies_and_constants() -> Result<()> {
    let copy = Node::Memory(MemOp::Copy);
    check(&copy, &[ROWS], &["D", "N"], |x| (0..60).map(|i| x[0][i % 3 * 20 + i / 3]).collect())?;
    let cast = Node::Unary(UnaryOp::Cast(PrecisionType::Fp32, PrecisionType::Fp32));
    check(&cast, &[ROWS], &["N", "D"], |x| x[0].clone())?;
    let fill = Node::Fill(-1.5, DType::F32, vec!["A = 2".into(), "3".into()]);
    check(&fill, &[], &["A", "3"], |_| vec![-1.5; 6])?;
    for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let mut graph = Graph::new("fill");
        let y = graph.node(&Node::Fill(value, DType::F32, vec!["2".into()]), &[])?;
        graph.output("y", y)?;
        let got = graph.fuse_for(&Device::cpu())?.run(&[])?.take::<f32>("y")?.to_vec()?;
        assert!(
            got.iter().all(|&x| f64::from(x).to_bits() == value.to_bits() || x.is_nan() && value.is_nan())
        );
    }
    Ok(())
}

/// Returns the rows of 20 numbers, each changed by a function of the row.
fn rows(x: &[f64], change: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    x.chunks(20).flat_map(change).collect()
}

#[test]
fn normalisations_and_softmax() -> Result<()> {
    let moments = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        (mean, row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64)
    };
    let normal = |row: &[f64], eps: f64| {
        let (mean, var) = moments(row);
        row.iter().map(|x| (x - mean) / (var + eps).sqrt()).collect::<Vec<_>>()
    };
    let sum = |row: &[f64]| row.iter().map(|x| x.exp()).sum::<f64>();
    let to = ["N", "D"];
    check(&Node::Softmax("D".into()), &[ROWS], &to, |x| {
        rows(&x[0], |row| row.iter().map(|x| x.exp() / sum(row)).collect())
    })?;
    check(&Node::LogSoftmax("D".into()), &[ROWS], &to, |x| {
        rows(&x[0], |row| row.iter().map(|x| x - sum(row).ln()).collect())
    })?;
    check(&Node::LayerNorm(vec!["D".into()], 0.1), &[ROWS], &to, |x| rows(&x[0], |row| normal(row, 0.1)))?;
    check(&Node::LayerNorm(vec!["N".into(), "D".into()], 1e-5), &[ROWS], &to, |x| normal(&x[0], 1e-5))?;
    check(&Node::RmsNorm(vec!["D".into()], 0.1), &[ROWS], &to, |x| {
        let square = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>() / 20.0;
        rows(&x[0], |row| row.iter().map(|x| x / (square(row) + 0.1).sqrt()).collect())
    })?;
    let group = Node::GroupNorm { channels: "D".into(), groups: 4, dims: vec!["H".into()], eps: 0.1 };
    check(&group, &[("x", &["N", "D", "H"], &[3, 20, 2])], &["N", "D", "H"], |x| {
        x[0].chunks(10).flat_map(|group| normal(group, 0.1)).collect()
    })?;
    let mean = ("m", &["D"][..], &[20][..]);
    check(&Node::BatchNorm(2.0), &[ROWS, mean, ("v", &["D"], &[20])], &to, |x| {
        (0..60).map(|i| (x[0][i] - x[1][i % 20]) / (x[2][i % 20] + 2.0).sqrt()).collect()
    })?;
    Ok(())
}

#[test]
fn convolutions_with_stride_padding_and_dilation() -> Result<()> {
    let names = |names: [&str; 2]| names.map(String::from);
    for (stride, padding, dilation) in
        [([1, 1], [1, 1], [1, 1]), ([2, 3], [2, 0], [1, 2]), ([1, 2], [3, 3], [2, 1])]
    {
        let conv = Conv2d {
            channels: "C".into(),
            dims: [names(["H", "W"]), names(["Y", "X"]), names(["P", "Q"])],
            stride,
            padding,
            dilation,
        };
        let (extents, kernel) = ([7, 9], [3, 2]);
        let out =
            [0, 1].map(|i| (extents[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1);
        let operands = [
            ("x", &["N", "C", "H", "W"][..], &[2, 3, 7, 9][..]),
            ("w", &["O", "C", "Y", "X"], &[4, 3, 3, 2]),
        ];
        check(&Node::Conv2d(conv), &operands, &["N", "O", "P", "Q"], |x| {
            let mut all = Vec::new();
            for i in 0..2 * 4 * out[0] * out[1] {
                let (n, o) = (i / (4 * out[0] * out[1]), i / (out[0] * out[1]) % 4);
                let at = [i / out[1] % out[0], i % out[1]];
                let mut sum = 0.0;
                for (c, k) in (0..3 * 6).map(|j| (j / 6, [j / 2 % 3, j % 2])) {
                    let place =
                        [0, 1].map(|d| (at[d] * stride[d] + k[d] * dilation[d]).wrapping_sub(padding[d]));
                    if place[0] < 7 && place[1] < 9 {
                        sum += x[0][((n * 3 + c) * 7 + place[0]) * 9 + place[1]]
                            * x[1][((o * 3 + c) * 3 + k[0]) * 2 + k[1]];
                    }
                }
                all.push(sum);
            }
            all
        })?;
    }
    Ok(())
}

#[test]
fn attention_with_a_causal_mask() -> Result<()> {
    let attention = Attention {
        queries: "T".into(),
        keys: "S".into(),
        features: "E".into(),
        scale: Some(0.7),
        causal: true,
    };
    let operands =
        [("q", &["T", "E"][..], &[6, 4][..]), ("k", &["S", "E"], &[6, 4]), ("v", &["S", "F"], &[6, 3])];
    check(&Node::Attention(attention), &operands, &["T", "F"], |x| {
        let mut all = Vec::new();
        for t in 0..6 {
            let score = |s: usize| (0..4).map(|e| x[0][t * 4 + e] * x[1][s * 4 + e]).sum::<f64>() * 0.7;
            let weights: Vec<f64> = (0..=t).map(|s| score(s).exp()).collect();
            let sum: f64 = weights.iter().sum();
            all.extend((0..3).map(|f| (0..=t).map(|s| weights[s] * x[2][s * 3 + f]).sum::<f64>() / sum));
        }
        all
    })
}

/// Two graphs of one structure share a plan, whatever their names, and a graph of another does not.
#[test]
fn plans_are_shared() -> Result<()> {
    let device = Device::cpu();
    let x = Tensor::from_slice(&device, &numbers(64, 1), [64])?;
    let graph = |name: &str, factor: f64| {
        let mut g = Graph::new(name);
        let mut value = g.input::<f32>("x", ["N"])?;
        for i in 0..20 {
            value = g.add(&format!("abs(x * {factor:?} + {i}.0)"), [("x", value)])?;
        }
        g.output("y", value)?;
        Ok::<_, Error>(g)
    };
    let run = |g: &Graph| g.fuse_for(&device)?.run(&[("x", &x)])?.take::<f32>("y")?.to_vec();
    let a = run(&graph("a", 0.5)?)?;
    let b = run(&graph("b", 0.5)?)?;
    let c = run(&graph("c", 0.25)?)?;
    assert_eq!(a, b);
    assert_ne!(a, c);
    let error = graph("b", 0.5)?.fuse_for(&device)?.run(&[]).expect_err("no input").to_string();
    assert!(error.starts_with("`b`: "), "{error}");
    Ok(())
}

/// Strict graphs round as strict functions do, and others as other functions.
#[test]
fn strict_graphs_round_each_operation() -> Result<()> {
    for (_, device) in devices() {
        let halves =
            |seed| numbers(500, seed).into_iter().map(|x| f16::from_f32(x * 4.0)).collect::<Vec<_>>();
        let (x, y) =
            (Tensor::from_vec(&device, halves(1), [500])?, Tensor::from_vec(&device, halves(2), [500])?);
        let run = |is_strict: bool| {
            let mut g = Graph::new("g");
            if is_strict {
                g.strict();
            }
            let (a, b) = (g.input::<f16>("x", ["N"])?, g.input::<f16>("y", ["N"])?);
            let product = g.add("exp(x) * y", [("x", a), ("y", b)])?;
            let z = g.add("softplus(p) + y", [("p", product), ("y", b)])?;
            g.output("z", z)?;
            g.fuse_for(&device)?.run(&[("x", &x), ("y", &y)])?.take::<f16>("z")?.to_vec()
        };
        assert_eq!(run(true)?, strict(&x, &y)?.to_vec()?, "{device}");
        assert_eq!(run(false)?, relaxed(&x, &y)?.to_vec()?, "{device}");
        assert_ne!(run(true)?, run(false)?);
    }
    Ok(())
}
