//! Loops over short fixed dims, and the limits of loops. Innermost dims are unrolled. Other dims are looped
//! where loops save kernels.

use fusion_compiler::ir::plan::{Code, Target};

use crate::{check, check_on, plan};

#[test]
fn what_lies_elsewhere_than_innermost_is_looped() {
    check(
        "pub fn f(x: f32[B, C = 19, H, W]) -> f32[B, C, H, W] { softmax(x, C) }",
        &["[B, H, W, C] x -> result"],
    );
    check("pub fn f(x: f32[B, C = 8, D]) -> f32[B, C, D] { softmax(x, C) }", &["[B, D, C] x -> result"]);
    check("pub fn f(x: f32[C = 3, N]) -> f32[C, N] { x - mean(x, C) }", &["[N, C] x -> result"]);
    check(
        "pub fn f(x: f32[N, A = 4, C = 5, D]) -> f32[N, A, C, D] { softmax(x, (A, C)) }",
        &["[N, D, A, C] x -> result"],
    );
    // A dim of any extent in the same row needs a loop anyway.
    check(
        "pub fn f(x: f32[C = 3, N, D]) -> f32[C, N, D] { x - mean(x, (C, N)) }",
        &["[D, C, N] x -> result"],
    );
}

/// An element at one place of a looped dim is read there, like any other element.
#[test]
fn an_element_of_a_looped_dim_is_read_where_it_is() {
    check("pub fn f(x: f32[N, C = 100]) -> f32[N, C] { x - at(x, C, 0) }", &["[N, C] x -> result"]);
    check(
        "pub fn f(x: f32[B, C = 19, D]) -> f32[B, C, D] { softmax(x - at(x, C, 0), C) * at(x, C, 18) }",
        &["[B, D, C] x -> result"],
    );
}

#[test]
fn what_would_be_written_out_too_far_is_looped() {
    check("pub fn f(x: f32[N, A = 8, C = 9]) -> f32[N] { max(prod(x, C), A) }", &["[N, A] x -> result"]);
    // The rows along `W` are short enough to be unrolled, where unrolling is as fast.
    for (target, first) in [(Target::Ptx, "[H]"), (Target::Wgsl, "[H]"), (Target::Cpu, "[H, W]")] {
        for (inner, values) in [("layer_norm(x, W)", ["sum", "sum"]), ("softmax(x, W)", ["max", "sum"])] {
            let stored = |value| {
                format!(
                    "3:5 {value}: its consumer does not iterate over whole rows along `W`, so it is a separate kernel"
                )
            };
            let [a, b] = values;
            let expect = [
                format!("{first} x -> {a} {b}"),
                format!("[W, H] x {a} {b} -> result"),
                stored(a),
                stored(b),
            ];
            let source = format!(
                "pub fn f(x: f32[H = 32, W = 32]) -> f32[H, W] {{\n    softmax(\n    {inner}, H)\n}}"
            );
            check_on(target, &source, &expect.each_ref().map(String::as_str));
        }
    }
}

/// Each thread iterates over the dim by itself if there is one kernel, or if a loop saves none.
#[test]
fn what_lies_innermost_is_written_out() {
    for (source, kernel) in [
        (
            "pub fn f(x: f32[H, W, C = 3], m: f32[K = 3, C]) -> f32[H, W, K] { sum(m * x, C) }",
            "[H, W, K] x m -> result",
        ),
        ("pub fn f(x: f32[B, C = 3, H], w: f32[C]) -> f32[B, H] { sum(w * x, C) }", "[B, H] x w -> result"),
        ("pub fn f(x: f32[N, C = 8]) -> f32[N, C] { softmax(x, C) }", "[N, C] x -> result"),
        ("pub fn f(x: f32[N, C = 8]) -> f32[N, C] { x - at(x, C, 7) }", "[N, C] x -> result"),
    ] {
        check(source, &[kernel]);
        let plan = plan(source, Target::Cpu);
        assert!(plan.summary.groups.iter().all(|group| group.schedule == "pointwise"), "{source}");
    }
    // A loop would save one kernel, but its rows would be three adjacent elements.
    check(
        "pub fn f(x: f32[N, C = 3]) -> (f32[C, N], f32[N, C]) {\n    let y = x -\n    sum(x, C);\n    (y, y * 2.0)\n}",
        &[
            "[N] x -> sum",
            "[C, N] x sum -> result",
            "[N, C] result -> result",
            "3:5 sum: it needs all of `C`, and the kernel that uses it writes `C` elsewhere than innermost",
            "4:11 result: no result before has these dims in this order",
        ],
    );
}

/// CPU vectors consist of adjacent elements. Lines longer than one vector are looped on the CPU, unless loops
/// take more kernels.
#[test]
fn lines_of_several_vectors_are_looped_on_the_cpu() {
    for (source, on_cpu) in [
        ("pub fn f(x: f32[N, C = 8]) -> f32[N] { sum(x, C) }", &["pointwise"][..]),
        ("pub fn f(x: f32[N, C = 9]) -> f32[N] { sum(x, C) }", &["row"]),
        ("pub fn f(x: f32[N, C = 64]) -> f32[N, C] { softmax(x, C) }", &["row"]),
        ("pub fn f(x: f32[N, A = 2, C = 5]) -> f32[N] { sum(x, (A, C)) }", &["row"]),
        // Columns.
        ("pub fn f(x: f32[C = 16, N]) -> f32[N] { sum(x, C) }", &["pointwise"]),
        // Unrolling gives one kernel, where loops give two.
        (
            "pub fn f(x: f32[N, A = 16, C = 2]) -> f32[N] { max(sum(x, C), A) - sum(max(x, A), C) }",
            &["pointwise"],
        ),
    ] {
        for (target, expect) in
            [(Target::Cpu, on_cpu), (Target::Ptx, &["pointwise"]), (Target::Wgsl, &["pointwise"])]
        {
            let plan = plan(source, target);
            let schedules: Vec<&str> = plan.summary.groups.iter().map(|group| &*group.schedule).collect();
            assert_eq!(schedules, expect, "{source} on {target:?}");
        }
    }
}

/// Loops that do little with each element wait for memory, whatever the width of their vectors.
#[test]
fn loops_wait_for_memory_where_they_do_little() {
    for (source, waits) in [
        ("pub fn f(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }", true),
        ("pub fn f(x: f32[N]) -> f32[] { sum(x * x) }", true),
        ("pub fn f(x: f32[N, D], g: f32[D]) -> f32[N, D] { layer_norm(x, D) * g }", true),
        (
            "pub fn f(p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], g: f32[N], c: f32) {
                m = m + 0.1 * (g - m);
                v = v + 0.001 * (g * g - v);
                p = p - 0.001 * m / (sqrt(v * c) + 1e-8) - 0.00001 * p;
            }",
            true,
        ),
        // An exponential in one of the loops, halves that take many instructions, or strided elements.
        ("pub fn f(x: f32[N]) -> f32[N] { exp(x) }", false),
        ("pub fn f(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }", false),
        ("pub fn f(x: f16[N]) -> f16[N] { x + 1.0 }", false),
        ("pub fn f(x: f32[N, C = 8]) -> f32[N] { sum(x, C) }", false),
        ("pub fn f(x: f32[N], i: i32[M]) -> f32[M] { take(x, N, i) }", false),
    ] {
        let plan = plan(source, Target::Cpu);
        let steps = plan.programs.iter().flat_map(|program| &*program.steps);
        let variants = steps.flat_map(|step| &*step.variants);
        for launch in
            variants.filter_map(|variant| variant.launches.first().filter(|_| variant.launches.len() == 1))
        {
            let Code::Cpu(code) = &launch.code else { unreachable!("of the CPU alone") };
            assert_eq!(code.is_memory_bound, waits, "{}: {source}", launch.kernel);
        }
    }
}

/// Results are stored by lines where the lanes of a line form vectors, by tiles where LLVM would form none,
/// else normally.
#[test]
fn what_is_only_written_is_stored_by_lines_or_tiles() {
    const LINES: &str = "in (0..64).step_by(16)";
    const BYTES: &str = "in (0..64).step_by(64)";
    for (source, part) in [
        ("pub fn f(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }", Some(LINES)),
        ("pub fn f(x: f32[N], y: f32[N]) -> f32[N] { silu(x) * y }", Some(LINES)),
        ("pub fn f(x: f32[N]) -> (f32[N], f16[N]) { (x, (x + 1.0) as f16) }", Some("in (0..64).step_by(32)")),
        ("pub fn f(x: f32[N]) -> bool[N] { x > 0.0 }", Some(BYTES)),
        ("pub fn f(x: f32[N]) -> f32[P] { pad(x, N -> P, 3, 2) * 2.0 }", Some(BYTES)),
        ("pub fn f(x: f32[N], i: i32[M]) -> f32[M] { take(x, N, i) }", Some(BYTES)),
        ("pub fn f(x: f32[N, K = 2]) -> f32[N] { at(x, K, 0) - at(x, K, 1) }", Some(BYTES)),
        // Arithmetic that gives the caches time for stores, and results that are also read.
        ("pub fn f(x: f32[N], y: f32[N]) -> f32[N] { tanh(exp(-sqrt(tanh(x) * y + 2.0)) * y) }", None),
        ("pub fn f(x: f32[N], i: i32[M]) -> f32[M] { exp(take(x, N, i)) }", None),
        ("pub fn f(x: &mut f32[N]) { x = 2.0 * x; }", None),
    ] {
        let plan = plan(source, Target::Cpu);
        let Code::Cpu(code) = &plan.programs[0].steps[0].variants[0].launches[0].code else {
            unreachable!("of the CPU alone")
        };
        let found: Vec<&str> = code.rust.lines().filter(|line| line.contains("in (0..64)")).collect();
        match part {
            Some(part) => assert!(found.len() == 1 && found[0].contains(part), "{source}: {found:?}"),
            None => assert!(found.is_empty(), "{source}: {found:?}"),
        }
    }
}
