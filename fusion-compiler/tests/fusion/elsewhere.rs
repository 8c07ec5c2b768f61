//! Elements of normalized rows, in another order than the tensor that is read, or at other places.

use fusion_compiler::ir::plan::Target;

use super::{check, decisions, plan};

/// The reductions of rows are one kernel, which reads rows in memory order. The elements are a second kernel.
#[test]
fn elements_of_rows_in_another_order_are_a_kernel_more() {
    let kernels = |source: &str| decisions(&plan(source, Target::Ptx).summary)[..2].to_vec();
    for (source, expect) in [
        (
            "x: f32[N, C, H, W]) -> f32[N, C, H, W] { softmax(x, (C, W))",
            ["[N, H, C, W] x -> max sum", "[N, C, H, W] x max sum -> result"],
        ),
        (
            "x: f32[N, C, H, W]) -> f32[W, N, C, H] { softmax(x, (C, H, W))",
            ["[N, C, H, W] x -> max sum", "[W, N, C, H] x max sum -> result"],
        ),
        (
            "x: f32[N, C, H, W]) -> f32[W, N, C, H] { layer_norm(x, (C, H, W))",
            ["[N, C, H, W] x -> sum sum", "[W, N, C, H] x sum sum -> result"],
        ),
        (
            "x: f32[A, B, C]) -> f32[C, A, B] { softmax(x, (B, C))",
            ["[A, B, C] x -> max sum", "[C, A, B] x max sum -> result"],
        ),
        (
            "x: f32[N, D]) -> f32[N, K] { slice(softmax(x, D), D -> K, 1..)",
            ["[N, D] x -> max sum", "[N, K] x max sum -> result"],
        ),
        (
            "x: f32[N, D], y: f32[N, E]) -> f32[N, K] { concat((softmax(x, D), D), (y, E) -> K)",
            ["[N, D] x -> max sum", "[N, K] x y max sum -> result"],
        ),
    ] {
        assert_eq!(kernels(&format!("pub fn f({source} }}")), expect, "{source}");
    }
}

/// Elements that an index operation gathers from rows are computed at their places.
#[test]
fn a_gather_of_normalised_rows_is_one_kernel() {
    for norm in ["softmax", "log_softmax", "layer_norm", "rms_norm"] {
        let gathered = format!("pub fn f(x: f32[N, D], t: i32[N]) -> f32[N] {{ take({norm}(x, D), D, t) }}");
        check(&gathered, &["[N, D] x t -> result"]);
        let one = format!("pub fn f(x: f32[N, D]) -> f32[N] {{ at({norm}(x, D), D, 3) }}");
        check(&one, &["[N, D] x -> result"]);
        for moved in ["flip({}, D)", "roll({}, D, 3)", "{} + roll({}, D, D / 2)"] {
            let moved = moved.replace("{}", &format!("{norm}(x, D)"));
            check(&format!("pub fn f(x: f32[N, D]) -> f32[N, D] {{ {moved} }}"), &["[N, D] x -> result"]);
        }
    }
}
