//! Short fixed dims: written out where they lie innermost, in loops where that saves kernels.

use fusion_compiler::ir::plan::Target;

use crate::{check, plan};

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
    // Beside a dim of any extent there is a loop anyway.
    check(
        "pub fn f(x: f32[C = 3, N, D]) -> f32[C, N, D] { x - mean(x, (C, N)) }",
        &["[D, C, N] x -> result"],
    );
}

/// One place of a dim that is not written out is read there, like any other element.
#[test]
fn what_is_picked_of_a_looped_dim_is_read_where_it_is() {
    check("pub fn f(x: f32[N, C = 100]) -> f32[N, C] { x - at(x, C, 0) }", &["[N, C] x -> result"]);
    check(
        "pub fn f(x: f32[B, C = 19, D]) -> f32[B, C, D] { softmax(x - at(x, C, 0), C) * at(x, C, 18) }",
        &["[B, D, C] x -> result"],
    );
}

#[test]
fn what_would_be_written_out_too_far_is_looped() {
    check("pub fn f(x: f32[N, A = 8, C = 9]) -> f32[N] { max(prod(x, C), A) }", &["[N, A] x -> result"]);
    check(
        "pub fn f(x: f32[H = 32, W = 32]) -> f32[H, W] {\n    softmax(\n    layer_norm(x, W), H)\n}",
        &[
            "[H] x -> sum sum",
            "[W, H] x sum sum -> result",
            "3:5 sum: what uses it is not made of whole rows along `W`, one after another or side by side in what is read and written",
            "3:5 sum: what uses it is not made of whole rows along `W`, one after another or side by side in what is read and written",
        ],
    );
    check(
        "pub fn f(x: f32[H = 32, W = 32]) -> f32[H, W] {\n    softmax(\n    softmax(x, W), H)\n}",
        &[
            "[H] x -> max sum",
            "[W, H] x max sum -> result",
            "3:5 max: what uses it is not made of whole rows along `W`, one after another or side by side in what is read and written",
            "3:5 sum: what uses it is not made of whole rows along `W`, one after another or side by side in what is read and written",
        ],
    );
}

/// Where it is one kernel, or a loop makes no fewer, each thread goes through the dim by itself.
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
    // A loop would make one kernel less, of rows of three elements in a line.
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
