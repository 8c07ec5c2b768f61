//! Nests of index operations, whose kernels grow no faster than the source, however values are renamed.

use std::collections::BTreeSet;

use fusion_compiler::KernelCode;
use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::plan::{Code, Footprint, Launch, Plan, Target};

use crate::plan;

/// Stages of nests, one for each index operation, with the largest number of kernels per stage.
const STAGES: [(&str, f64); 18] = [
    ("fn stage(x, D: dim) { x + 0.5 * take(x, D, clamp(index(D) + 1, 0, D - 1)) }", 0.5),
    ("fn stage(x, D: dim) { x + 0.5 * take(x, D, (index(D) + 1) % D) }", 0.5),
    ("fn stage(x, D: dim) { x + 0.5 * take(x, D, index(D) - 1) }", 0.5),
    ("fn stage(x, D: dim) { x - at(x, D, 0) }", 0.5),
    ("fn stage(x, D: dim) { x - roll(x, D, 1) }", 0.5),
    ("fn stage(x, D: dim) { x - 0.5 * flip(x, D) }", 0.5),
    ("fn stage(x, D: dim) { x - pad(slice(x, D -> S, 1..), S -> D, 0, 1) }", 0.5),
    ("fn stage(x, D: dim) { x - concat((slice(x, D -> S, 1..), S), (slice(x, D -> R, ..1), R) -> D) }", 0.75),
    ("fn stage(x, D: dim) { x - merge(flip(split(x, D -> (P, Q = 2)), P), (P, Q = 2) -> D) }", 0.5),
    ("fn stage(x, D: dim) { x - take(rename(x, D -> S), S, clamp(index(D) + 1, 0, D - 1)) }", 0.5),
    ("fn stage(x, D: dim) { x - take(2.0 * rename(x, D -> S), S, clamp(index(D) + 1, 0, D - 1)) }", 0.5),
    ("fn stage(x, D: dim) { x - flip(rename(flip(rename(x, D -> S), S), S -> D), D) }", 0.5),
    ("fn stage(x, D: dim) { x - rename(2.0 + rename(x, D -> S), S -> D) }", 0.25),
    (
        "fn edge(x, D: dim, k) { take(rename(x, D -> S), S, clamp(index(D) + k, 0, D - 1)) }
         fn stage(x, D: dim) { 0.25 * edge(x, D, -1) + 0.5 * x + 0.25 * edge(x, D, 1) }",
        0.5,
    ),
    (
        "fn edge(x, D: dim, k) { take(rename(2.0 * x, D -> S) - 1.0, S, clamp(index(D) + k, 0, D - 1)) }
         fn stage(x, D: dim) { 0.25 * edge(x, D, -1) + 0.5 * x + 0.25 * edge(x, D, 1) }",
        0.5,
    ),
    ("fn stage(x, D: dim) { x + sum(abs(x - rename(x, D -> S)), S) }", 1.0),
    ("fn stage(x, D: dim) { sum(softmax(x * rename(x, D -> S), S) * rename(x, D -> S), S) }", 1.0),
    ("fn stage(x, D: dim) { x - flip(softmax(x, D), D) }", 1.25),
];

/// Builds a nest of `count` stages, along alternating dims.
fn nest(stage: &str, count: usize) -> String {
    let value = (0..count).fold(String::from("x"), |x, i| format!("stage({x}, {})", ["H", "W"][i % 2]));
    format!("{stage} pub fn f(x: f32[H, W]) -> f32[H, W] {{ {value} }}")
}

/// Returns the number of nodes of a function after it is checked.
fn nodes(source: &str) -> usize {
    match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(functions, _)) => functions[0].graph.nodes.len(),
        other => panic!("{source} is right: {other:?}"),
    }
}

fn launches(plan: &Plan<KernelCode>) -> impl Iterator<Item = &Launch<KernelCode>> {
    let steps = plan.programs.iter().flat_map(|program| program.steps.iter());
    steps.flat_map(|step| step.variants.iter()).flat_map(|variant| variant.launches.iter())
}

fn text(launch: &Launch<KernelCode>) -> &str {
    match &launch.code {
        Code::Ptx(text) | Code::Wgsl(text) => text,
        Code::Cpu(cpu) => &cpu.rust,
    }
}

#[test]
fn nests_grow_no_faster_than_their_source() {
    const COUNTS: [usize; 3] = [6, 12, 24];
    for (stage, kernels_max) in STAGES {
        let sources = COUNTS.map(|count| nest(stage, count));
        let is_linear = |[few, some, many]: [usize; 3]| many - some <= (some - few) * 2 + (some - few) / 4;
        let nodes = sources.each_ref().map(|source| nodes(source));
        assert!(is_linear(nodes), "{nodes:?} nodes of {COUNTS:?} stages `{stage}`");
        for target in Target::ALL {
            let plans = sources.each_ref().map(|source| plan(source, target));
            let kernels = plans.each_ref().map(|plan| plan.programs[0].steps.len());
            for (kernels, count) in kernels.into_iter().zip(COUNTS) {
                let most = kernels_max * count as f64;
                assert!(kernels as f64 <= most, "{target:?}: {kernels} kernels of {count} stages `{stage}`");
            }
            let lengths = plans.each_ref().map(|plan| launches(plan).map(|launch| text(launch).len()).sum());
            assert!(is_linear(lengths), "{target:?}: {lengths:?} bytes of {COUNTS:?} stages `{stage}`");
        }
    }
}

/// Stages that combine a window of fixed extent, with the largest number of kernels per stage.
const WINDOWS: [(&str, f64); 5] = [
    ("fn stage(x, w, D: dim, R: dim) { sum(w * near(x, D, R), R) }", 1.0),
    ("fn stage(x, w, D: dim, R: dim) { max(w + near(x, D, R), R) }", 1.0),
    ("fn stage(x, w, D: dim, R: dim) { mean(exp(w - near(x, D, R)), R) - x }", 1.0),
    ("fn stage(x, w, D: dim, R: dim) { relu(sum(w * near(relu(x + 1.0), D, R), R)) }", 1.0),
    ("fn stage(x, w, D: dim, R: dim) { at(w * near(x, D, R), R, 0) + at(near(x, D, R), R, 2) }", 0.5),
];

/// A window is computed again for each element that needs it only if all its elements together are cheap.
#[test]
fn nests_of_windows_grow_no_faster_than_their_source() {
    const COUNTS: [usize; 3] = [6, 12, 24];
    const NEAR: &str = "fn near(x, D: dim, R: dim) {
        take(rename(x, D -> E), E, clamp(index(D) + index(R) - 1, 0, D - 1))
    }";
    for (stage, kernels_max) in WINDOWS {
        for (dims, extents) in [("H, W", "H, W"), ("H, W", "H = 56, W = 48")] {
            let source = |count: usize| {
                let names: Vec<&str> = dims.split(", ").collect();
                let value =
                    (0..count).fold(String::from("x"), |x, i| format!("stage({x}, w, {}, R)", names[i % 2]));
                format!(
                    "{NEAR} {stage} pub fn f(x: f32[{extents}], w: f32[R = 3]) -> f32[H, W] {{ {value} }}"
                )
            };
            for target in Target::ALL {
                let plans = COUNTS.map(|count| plan(&source(count), target));
                for (plan, count) in plans.iter().zip(COUNTS) {
                    let (kernels, most) = (plan.programs[0].steps.len(), kernels_max * count as f64);
                    assert!(
                        kernels as f64 <= most,
                        "{target:?}: {kernels} kernels of {count} stages `{stage}`"
                    );
                }
                let [few, some, many] = plans
                    .each_ref()
                    .map(|plan| launches(plan).map(|launch| text(launch).len()).sum::<usize>());
                let is_linear = many - some <= (some - few) * 2 + (some - few) / 4;
                assert!(is_linear, "{target:?}: {few}, {some}, {many} bytes of {COUNTS:?} stages `{stage}`");
            }
        }
    }
}

/// A value along an empty dim of fixed extent is computed again as if the dim had an element.
#[test]
fn windows_of_empty_dims() {
    for reduction in [
        "sum(take(exp(slice(x, N -> S, 2..2)), S, index(R)) * w, R)",
        "sum(exp(slice(x, N -> S, 2..2)), S) + w",
    ] {
        let result = if reduction.ends_with("+ w") { "f32[R]" } else { "f32[]" };
        let source = format!("pub fn f(x: f32[N = 4], w: f32[R = 3]) -> {result} {{ {reduction} }}");
        for target in Target::ALL {
            assert!(!plan(&source, target).programs[0].steps.is_empty(), "{target:?}: {source}");
        }
    }
}

/// Stages whose results have other extents than what they are computed from: operation, dim before, dim after.
const GROWING: [fn(&str, &str, &str) -> String; 3] = [
    |x, from, to| format!("concat(({x}, {from}), ({x}, {from}) -> {to})"),
    |x, from, to| format!("slice({x}, {from} -> {to}, {from} / 2..)"),
    |x, from, to| format!("pad({x}, {from} -> {to}, {from} / 3, 0)"),
];

/// The formula of an extent holds each of its parts once, so it does not double with each stage.
#[test]
fn extents_grow_no_faster_than_their_source() {
    const COUNTS: [usize; 3] = [12, 24, 48];
    for stage in GROWING {
        let source = |count: usize| {
            let steps = (0..count).map(|i| {
                let value = stage(&format!("y{i}"), &format!("D{i}"), &format!("D{}", i + 1));
                format!("let y{} = 0.5 * {value};\n", i + 1)
            });
            let steps: String = steps.collect();
            format!("pub fn f(x: f32[D0]) -> f32[D{count}] {{ let y0 = x;\n{steps} y{count} }}")
        };
        // Bytes of text for each stage: PTX has four variants, WGSL two, the CPU one.
        for (target, most) in [(Target::Ptx, 13_000), (Target::Wgsl, 3_600), (Target::Cpu, 2_200)] {
            let plans = COUNTS.map(|count| plan(&source(count), target));
            for (plan, count) in plans.iter().zip(COUNTS) {
                let bytes: usize = launches(plan).map(|launch| text(launch).len()).sum();
                assert!(bytes <= most * count, "{target:?}: {bytes} bytes of {count} stages {}", source(1));
            }
            // Every stage has formulas with a step or two more than those of the stage before.
            let [few, some, many] = plans.map(|plan| plan.map_code(|_, _| 0).to_bytes().len());
            assert!(many - some <= (some - few) * 4, "{target:?}: plans of {few}, {some}, {many} bytes");
        }
    }
}

/// Renaming a value on the way does not change its kernels.
#[test]
fn a_renamed_value_is_the_value() {
    let stage = |of: &str, along: &str| {
        format!(
            "fn edge(x, D: dim, k) {{ take({of}, {along}, clamp(index(D) + k, 0, D - 1)) }}
             fn stage(x, D: dim) {{ 0.25 * edge(x, D, -1) + 0.5 * x + 0.25 * edge(x, D, 1) }}"
        )
    };
    let (plain, renamed) = (stage("x", "D"), stage("rename(x, D -> S)", "S"));
    let there_and_back = stage("rename(rename(rename(x, D -> S), S -> R), R -> D)", "D");
    for target in Target::ALL {
        for count in [1, 2, 3, 6, 12] {
            let kernels = |stage: &str| -> Vec<String> {
                launches(&plan(&nest(stage, count), target)).map(|launch| text(launch).into()).collect()
            };
            let expect = kernels(&plain);
            assert!(kernels(&renamed) == expect, "{target:?}: {count} stages `{renamed}`");
            assert!(kernels(&there_and_back) == expect, "{target:?}: {count} stages `{there_and_back}`");
        }
    }
}

/// A reduction along a renamed dim takes the kernels of one along the original dim.
#[test]
fn sums_of_renamed_values_are_sums_of_values() {
    for (renamed, plain) in [
        ("x / sum(rename(x, W -> S), S)", "x / sum(x, W)"),
        ("x - mean(2.0 * rename(x, W -> S) + rename(x, W -> S), S)", "x - mean(2.0 * x + x, W)"),
        ("x - (sum(x, W) + sum(rename(x, W -> S), S))", "x - (sum(x, W) + sum(x, W))"),
        ("x + sum(exp(x), W) + max(rename(exp(x), W -> S), S)", "x + sum(exp(x), W) + max(exp(x), W)"),
        ("x - sum(rename(rename(x, W -> S), H -> R), (R, S))", "x - sum(x, (H, W))"),
    ] {
        let texts = |value: &str| -> Vec<String> {
            let plan = plan(&format!("pub fn f(x: f32[H, W]) -> f32[H, W] {{ {value} }}"), Target::Wgsl);
            launches(&plan).map(|launch| text(launch).to_owned()).collect()
        };
        assert_eq!(texts(renamed), texts(plain), "{renamed}");
    }
}

/// Dims that a template creates for itself are reused after its call. Functions have 256 dims at most.
#[test]
fn names_within_calls_are_no_dims_of_the_function() {
    let stage = "fn edge(x, D: dim, k) { take(rename(x, D -> S), S, clamp(index(D) + k, 0, D - 1)) }
        fn cross(x, H: dim, W: dim) { edge(x, H, -1) + edge(x, H, 1) + edge(x, W, -1) + edge(x, W, 1) - 4.0 * x }";
    let steps: String = (0..80).map(|i| format!("let y{} = cross(y{i}, H, W);\n", i + 1)).collect();
    let source = format!("{stage} pub fn f(x: f32[H, W]) -> f32[H, W] {{ let y0 = x;\n{steps} y80 }}");
    match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(functions, _)) => assert_eq!(functions[0].graph.axes.len(), 4),
        other => panic!("{source} is right: {other:?}"),
    }
}

/// Views of a tensor are bound together, except where large tensors are read through windows or in halves.
#[test]
fn views_of_one_tensor_are_one_buffer() {
    let of = |result: &str, body: &str| format!("pub fn f(x: f32[N, D]) -> f32{result} {{ {body} }}");
    let sources = [
        of("[N, M, D]", "x - rename(x, N -> M)"),
        of("[N, M]", "sum(square(x - rename(x, N -> M)), D)"),
        of("[N, M, K, D]", "x * rename(x, N -> M) - rename(x, N -> K)"),
        of("[N, M]", "let s = softmax(sum(x * rename(x, N -> M), D), M); s * s"),
        of("[N, E]", "sum(x * rename(rename(x, N -> M), D -> E), (M, D))"),
        of("[D]", "sum(x, N) * max(rename(x, N -> M), M)"),
        "pub fn f(x: f32[N, M]) -> f32[N, M] { x + sum(rename(rename(x, N -> K), M -> L), (K, L)) }".into(),
        "pub fn f(p: &mut f32[N]) { p = p + 0.5 * sum(rename(p, N -> M), M); }".into(),
        "pub fn f(p: &mut f32[N, D]) { p = p - softmax(rename(p, N -> M), M).rename(M -> N); }".into(),
    ];
    for source in sources {
        for target in Target::ALL {
            for launch in launches(&plan(&source, target)) {
                let views = launch.buffers.iter().filter(|buffer| {
                    let apart = matches!(buffer.footprint, Footprint::Windows(_) | Footprint::UpperHalf);
                    buffer.access == Access::Read && !apart
                });
                let slots: Vec<String> = views.map(|buffer| format!("{:?}", buffer.slot)).collect();
                let each: BTreeSet<&String> = slots.iter().collect();
                assert_eq!(each.len(), slots.len(), "{target:?}: {source} binds {slots:?}");
            }
        }
    }
}

/// Bindings are counted by tensor, so views take no additional kernels.
#[test]
fn views_take_no_bindings() {
    let names: Vec<String> = (0..12).map(|i| format!("rename(x, N -> M{i})")).collect();
    let dims: Vec<String> = (0..12).map(|i| format!("M{i} = 2")).collect();
    let source = format!("pub fn f(x: f32[N = 2]) -> f32[{}] {{ {} }}", dims.join(", "), names.join(" + "));
    for target in Target::ALL {
        let plan = plan(&source, target);
        let kernels: Vec<usize> = plan.programs.iter().map(|program| program.steps.len()).collect();
        assert_eq!(kernels, [1], "{target:?}");
    }
}

/// Short fixed dims are unrolled or looped, and a nest takes no more kernels for it.
#[test]
fn nests_along_fixed_dims_take_as_few_kernels() {
    const SUM: &str = "fn stage(x, D: dim) { sum(abs(x - rename(x, D -> E)), E) }";
    const MEAN: &str =
        "fn stage(x, D: dim) { x - mean(rename(x, D -> E) * sigmoid(rename(x, D -> E) - x), E) }";
    for stage in [SUM, MEAN] {
        for extent in [3, 16, 24, 64] {
            for count in [2, 4, 8] {
                let value = (0..count).fold(String::from("x"), |x, _| format!("stage({x}, N)"));
                let source = format!("{stage} pub fn f(x: f32[N = {extent}]) -> f32[N] {{ {value} }}");
                for target in Target::ALL {
                    let plan = plan(&source, target);
                    let kernels = plan.programs[0].steps.len();
                    let bytes: usize = launches(&plan).map(|launch| text(launch).len()).sum();
                    assert!(kernels <= count, "{target:?}: {kernels} of {source}");
                    assert!(bytes <= 50_000 * count, "{target:?}: {bytes} bytes of {source}");
                }
            }
        }
    }
}
