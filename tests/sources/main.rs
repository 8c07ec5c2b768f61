//! Functions compiled from their source at run time agree with the `f64` interpreter of the graph, on every
//! device. These tests need many functions, or large ones, but no generated Rust.

#[path = "../devices/mod.rs"]
mod devices;
mod in_place;

use devices::{Kind, devices};
use fusion::kernel::{Plan, interpreted};
use fusion::run::{Arg, run};
use fusion::{Device, Tensor};
use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::graph::{Access, Dest, Graph, ParamKind};
use fusion_compiler::ir::plan::Target;
use fusion_support::reference::{Rounding, interpret};

fn graph(source: &str) -> Graph {
    match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(mut functions, _)) => functions.remove(0).graph,
        other => panic!("{source} is right: {other:?}"),
    }
}

/// Creates elements for each parameter: numbers from −2 to 2 (Knuth's generator, as in Numerical Recipes).
fn inputs(graph: &Graph, symbols: &[i64]) -> Vec<(Vec<f32>, Vec<usize>)> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    let extent = |extent: Option<i64>| extent.and_then(|one| usize::try_from(one).ok()).expect("an extent");
    // Views of other parameters come last, and have no tensor of their own.
    let given = graph.params.iter().filter(|param| !matches!(param.kind, ParamKind::View { .. }));
    let tensors = given.map(|param| {
        let axes = param.kind.axes().expect("all parameters are tensors").iter();
        let shape: Vec<usize> = axes.map(|&axis| extent(graph.axis(axis).extent.eval(symbols))).collect();
        ((0..shape.iter().product()).map(|_| next()).collect(), shape)
    });
    tensors.collect()
}

/// Returns the results of a call: the in-place ones, then the returned ones.
fn call(plan: &Plan, graph: &Graph, inputs: &[(Vec<f32>, Vec<usize>)], device: &Device) -> Vec<Vec<f32>> {
    let tensor = |(elements, shape): &(Vec<f32>, Vec<usize>)| {
        Tensor::from_slice(device, elements, shape.as_slice()).expect("the device has room")
    };
    let mut tensors: Vec<Tensor<f32>> = inputs.iter().map(tensor).collect();
    let kinds = graph.params.iter().map(|param| &param.kind);
    let mut args: Vec<Arg<'_>> = tensors
        .iter_mut()
        .zip(kinds)
        .map(|(tensor, kind)| match kind {
            ParamKind::Tensor { access: Access::ReadWrite, .. } => Arg::from(tensor),
            ParamKind::Tensor { access: Access::Read | Access::Write, .. }
            | ParamKind::View { .. }
            | ParamKind::Scalar
            | ParamKind::Dim(_) => Arg::from(&*tensor),
        })
        .collect();
    let returned = match graph.outputs.iter().filter(|output| output.dest == Dest::Fresh).count() {
        0 => run::<0>(plan, &mut args).map(Vec::from),
        1 => run::<1>(plan, &mut args).map(Vec::from),
        _ => run::<2>(plan, &mut args).map(Vec::from),
    };
    let returned = returned.unwrap_or_else(|error| panic!("{device}: {error}")).into_iter();
    let returned = returned.map(|raw| Tensor::from_raw(raw).expect("results are f32"));
    let in_place = graph.outputs.iter().filter_map(|output| match output.dest {
        Dest::InPlace(param) => Some(tensors[usize::from(param.0)].clone()),
        Dest::Fresh => None,
    });
    in_place
        .chain(returned)
        .map(|tensor: Tensor<f32>| tensor.to_vec().expect("results can be read"))
        .collect()
}

/// Checks that each result is off by at most `bound` times its largest magnitude, for all extents.
fn check(source: &str, extents: &[&[i64]], bound: f64) {
    check_graph(&graph(source), source, extents, bound);
}

fn check_graph(graph: &Graph, source: &str, extents: &[&[i64]], bound: f64) {
    for (kind, device) in devices() {
        let target = match kind {
            Kind::Cpu => Target::Cpu,
            Kind::Wgpu => Target::Wgsl,
            Kind::Cuda => Target::Ptx,
        };
        let plan = interpreted(fusion_compiler::compile(graph.clone(), &[target], &|_| (0, 0)));
        for &symbols in extents {
            let inputs = inputs(graph, symbols);
            let values: Vec<Vec<f64>> = inputs
                .iter()
                .map(|(elements, _)| elements.iter().copied().map(f64::from).collect())
                .collect();
            let expected = interpret(graph, &values, symbols, Rounding::None);
            let got = call(&plan, graph, &inputs, &device);
            assert_eq!(got.len(), expected.len(), "{source}");
            for (got, expected) in got.iter().zip(&expected) {
                assert_eq!(got.len(), expected.len(), "elements of a result\n{source}");
                let allowed = bound * expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
                    let error = (f64::from(got) - expected).abs();
                    assert!(
                        error <= allowed,
                        "{device}: [{i}] of {symbols:?} is {got}, not {expected}\n{source}"
                    );
                }
            }
        }
    }
}

/// Bound relative to the largest element, for reductions of few elements.
const UNIFORM_LEN: f64 = 4e-6;

#[test]
fn short_fixed_dims_in_loops() {
    // Symbols are numbered in the order of the signature.
    let planes: &[&[i64]] = &[&[2, 3, 5], &[1, 16, 16], &[3, 1, 1], &[0, 2, 2]];
    check("pub fn f(x: f32[B, C = 19, H, W]) -> f32[B, C, H, W] { softmax(x, C) }", planes, UNIFORM_LEN);
    let rows: &[&[i64]] = &[&[2, 5], &[1, 1], &[3, 64], &[4, 1025]];
    check("pub fn f(x: f32[B, C = 8, D]) -> f32[B, C, D] { log_softmax(x, C) }", rows, UNIFORM_LEN);
    check(
        "pub fn f(x: f32[N, A = 4, C = 5, D]) -> f32[N, A, C, D] { layer_norm(x, (A, C)) }",
        rows,
        4.0 * UNIFORM_LEN,
    );
    check(
        "pub fn f(p: &mut f32[C = 3, N], g: f32[C]) { p = (p - mean(p, C)) * g; }",
        &[&[7], &[640]],
        UNIFORM_LEN,
    );
    check(
        "pub fn f(x: f32[B, C = 19, D]) -> (f32[B, D], f32[B, C, D]) { (max(x, C), x / sum(abs(x), C)) }",
        rows,
        UNIFORM_LEN,
    );
    // Reductions over a dim of any extent and a fixed one, together and one after the other.
    check("pub fn f(x: f32[C = 3, N, D]) -> f32[C, N, D] { x - mean(x, (C, N)) }", rows, 8.0 * UNIFORM_LEN);
    check(
        "pub fn f(x: f32[C = 3, N, D]) -> f32[C, N, D] { x - mean(max(x, C), N) }",
        rows,
        8.0 * UNIFORM_LEN,
    );
}

#[test]
fn elements_of_a_looped_dim_are_gathered() {
    let rows: &[&[i64]] = &[&[2, 5], &[1, 1], &[3, 64]];
    check(
        "pub fn f(x: f32[B, C = 19, D]) -> f32[B, C, D] { softmax(x - at(x, C, 0), C) * at(x, C, 18) }",
        rows,
        UNIFORM_LEN,
    );
    check(
        "pub fn f(x: f32[B, C = 19, D]) -> (f32[B, C, D], f32[B, D]) { let y = softmax(x, C); (y, at(y, C, 7)) }",
        rows,
        UNIFORM_LEN,
    );
    check("pub fn f(x: f32[N, C = 100]) -> f32[N, C] { x - at(x, C, 99) }", &[&[1], &[33]], 0.0);
}

#[test]
fn what_would_be_written_out_too_far() {
    let once: &[&[i64]] = &[&[]];
    check("pub fn f(x: f32[H = 32, W = 32]) -> f32[H, W] { softmax(softmax(x, W), H) }", once, UNIFORM_LEN);
    check(
        "pub fn f(x: f32[H = 32, W = 32]) -> f32[H, W] { layer_norm(softmax(x, H), W) }",
        once,
        8.0 * UNIFORM_LEN,
    );
    check("pub fn f(x: f32[N, A = 8, C = 9]) -> f32[N] { max(sum(x, C), A) }", &[&[1], &[40]], UNIFORM_LEN);
    check("pub fn f(p: &mut f32[C = 9, D = 9]) { p -= sum(at(p, C, 0) + p, D); }", once, UNIFORM_LEN);
    check(
        "pub fn f(x: f32[A = 8, B = 8, C = 8, D = 8]) -> f32[] { sum(max(sum(max(x, D), C), B), A) }",
        once,
        UNIFORM_LEN,
    );
}

/// Bound relative to the largest sum, for reductions of many elements of one sign.
const MANY: f64 = 3.3e-5;

#[test]
fn parts_of_what_is_read_at_other_places() {
    let rows: &[&[i64]] = &[&[1, 70_001], &[2, 33_000], &[3, 5]];
    check(
        "pub fn f(x: f32[N, D]) -> (f32[N], f32[N]) { (sum(abs(x - roll(x, D, 1)), D), var(flip(x, D), D)) }",
        rows,
        MANY,
    );
    check(
        "pub fn f(x: f32[N, D]) -> f32[] { mean(square(slice(x, D -> K, 1..) - slice(x, D -> K, ..D - 1))) }",
        rows,
        MANY,
    );
    let columns: &[&[i64]] = &[&[9001, 3], &[1100, 33], &[5, 4]];
    check(
        "pub fn f(x: f32[N, C]) -> (f32[C], f32[C]) { (sum(abs(roll(x, N, 3)), N), max(flip(x, C), N)) }",
        columns,
        MANY,
    );
    check("pub fn f(x: f32[N, C]) -> f32[N, C] { softmax(flip(x, C) + roll(x, N, 1), N) }", columns, MANY);
    check(
        "pub fn f(k: f32[N], x: f32[V, C]) -> f32[C] { sum(abs(take(x, V, (abs(k) * 2.0) as i32)), N) }",
        &[&[9001, 4, 3], &[1100, 5, 33]],
        MANY,
    );
}

#[test]
fn parts_of_what_is_computed_at_other_places() {
    let columns: &[&[i64]] = &[&[1500, 3], &[1025, 1], &[20, 3]];
    for at in ["flip(index(N) as f32, N)", "at(index(N) as f32, N, 3)", "roll(index(N) as f32, N, -5)"] {
        let source = format!("pub fn f(x: f32[N, D]) -> f32[D] {{ sum(abs(x) * {at}, N) }}");
        check(&source, columns, MANY);
    }
    check(
        "pub fn f(x: f32[N, D], y: f32[D]) -> f32[N, D] { x + sum(flip(abs(y) * (index(N) as f32), N), N) }",
        &[&[9001, 3]],
        4.0 * MANY,
    );
}

/// A row's kernel stages its operands, or a value computed from them.
#[test]
fn elements_made_of_several_inputs() {
    let rows: &[&[i64]] = &[&[2, 5], &[3, 1024], &[2, 3001]];
    for results in [
        "let h = x + r; (h, rms_norm(h, D))",
        "(layer_norm(x + r, D), max(x * r, D) + x)",
        "(softmax(x * r - 1.0, D), x * r)",
        "(x + r - mean(x, D), (x + r) * sum(abs(x + r), D))",
        "let h = relu(x) - r; (h / sum(square(h), D), r - max(r, D) + h)",
    ] {
        let source =
            format!("pub fn f(x: f32[N, D], r: f32[N, D]) -> (f32[N, D], f32[N, D]) {{ {results} }}");
        check(&source, rows, MANY);
    }
    check(
        "pub fn f(x: f32[N, D], b: f32[D], w: f32[D]) -> f32[N, D] { layer_norm(x + b, D) * w + b }",
        rows,
        MANY,
    );
}

#[test]
fn parts_around_fixed_dims() {
    let planes: &[&[i64]] = &[&[2, 190, 190], &[1, 40_000, 1], &[3, 5, 7]];
    check("pub fn f(x: f32[B, C = 3, H, W]) -> f32[] { mean(max(x, C)) }", planes, MANY);
    check(
        "pub fn f(x: f32[B, C = 5, H, W]) -> (f32[], f32[B]) { (mean(logsumexp(x, C)), max(sum(x, C), (H, W))) }",
        planes,
        MANY,
    );
    let lines: &[&[i64]] = &[&[70_001], &[66], &[2]];
    check(
        "pub fn f(x: f32[N, C = 3]) -> (f32[], f32[]) { (sum(norm(x, C), N), var(at(x, C, 1) - at(x, C, 2))) }",
        lines,
        MANY,
    );
    check("pub fn f(x: f32[N, C = 3]) -> f32[N, C] { max(x, C) * x / sum(norm(x, C), N) }", lines, MANY);
    check("pub fn f(x: f32[N, C = 3], y: f32[C, N]) -> f32[N] { softmax(sum(x * y, C), N) }", lines, MANY);
    let columns: &[&[i64]] = &[&[1100, 3], &[9001, 4], &[20, 3]];
    check("pub fn f(x: f32[N, C = 3, D]) -> f32[D] { sum(max(x, C), N) }", columns, MANY);
    check("pub fn f(x: f32[N, D, C = 3]) -> f32[N, D] { softmax(norm(x, C), N) }", columns, MANY);
}

/// Parts without elements of the last interleaved run do not affect a variance. The square of their mean's
/// distance is infinite.
#[test]
fn parts_without_elements_are_no_part_of_a_variance() {
    let columns: &[&[i64]] = &[&[22_021, 3], &[22_533, 3], &[16_650, 1]];
    check("pub fn f(x: f32[N, D]) -> f32[D] { var(x * 1e16 + 3e19, N) }", columns, 1e-3);
}

/// The dims of a row belong to different operands, and vectors run along rows.
#[test]
fn parts_of_operands_that_lack_dims() {
    check(
        "pub fn f(a: f32[N, C], b: f32[H]) -> (f32[C], f32[C]) { (sum(abs(a * b), (N, H)), var(a + b, (N, H))) }",
        &[&[5000, 3, 2], &[40, 33, 70], &[1100, 1, 3]],
        MANY,
    );
}

/// Operands beyond a kernel's bindings, and reductions beyond a thread's, take several kernels.
#[test]
fn many_sums_and_conditions() {
    let list = |count: usize, one: &dyn Fn(usize) -> String, between: &str| {
        (0..count).map(one).collect::<Vec<_>>().join(between)
    };
    let (params, all) =
        (list(10, &|i| format!("t{i}: f32[]"), ", "), list(10, &|i| format!("x > t{i} - 3.5"), " && "));
    check(
        &format!("pub fn f(x: f32[N], {params}) -> f32[N] {{ if {all} {{ x }} else {{ 0.0 }} }}"),
        &[&[7], &[400]],
        0.0,
    );
    check(
        &format!("pub fn f(x: f32[N, D], {params}) -> f32[N] {{ sum(if {all} {{ x }} else {{ 0.0 }}, D) }}"),
        &[&[2, 300]],
        4.0 * UNIFORM_LEN,
    );
    check(
        &format!(
            "pub fn f(x: f32[N, D]) -> f32[N] {{ {} }}",
            list(5, &|i| format!("sum(x * x + {i}.5, D)"), " + ")
        ),
        &[&[3, 5], &[1, 2000]],
        4.0 * UNIFORM_LEN,
    );
    let (params, sums) =
        (list(9, &|i| format!("x{i}: f32[N, D]"), ", "), list(9, &|i| format!("sum(x{i}, N)"), " - "));
    check(&format!("pub fn f({params}) -> f32[D] {{ {sums} }}"), &[&[3, 5]], 8.0 * UNIFORM_LEN);
}
