//! Values that are stored because recomputing them costs more.

use crate::check;

#[test]
fn what_rows_have_in_common_is_made_once() {
    let reason = |at: &str| {
        format!("{at}: the kernel that uses it would make it again for each `M`, and reading it costs less")
    };
    check(
        "pub fn f(x: f32[N, K], w: f32[M, K]) -> f32[N, M] { sum(exp(x) * w, K) }",
        &["[N, K] x -> exp", "[N, M, K] w exp -> result", &reason("1:57 exp")],
    );
    // The complete value is stored, not one of its operands.
    check(
        "pub fn f(x: f32[N, K], b: f32[K], w: f32[M, K]) -> f32[N, M] { sum(gelu(x + b) * w, K) }",
        &["[N, K] x b -> fma", "[N, M, K] w fma -> result", &reason("1:68 fma")],
    );
    // A cheap value is recomputed.
    check(
        "pub fn f(x: f32[N, K], w: f32[M, K]) -> f32[N, M] { sum(relu(x) * w, K) }",
        &["[N, M, K] x w -> result"],
    );
    // Reading an element of `w` for each term takes as long as recomputing the value.
    check(
        "pub fn f(x: f32[N, K], w: f32[N, M, K]) -> f32[N, M] { sum(exp(x) * w, K) }",
        &["[N, M, K] x w -> result"],
    );
}

#[test]
fn costly_values_are_stored_once() {
    check(
        "pub fn f(x: f32[N, D]) -> (f32[N, D], f32[D, N]) {\n    let e = exp(sin(tanh(x)));\n    (e + 1.0, e - 1.0)\n}",
        &[
            "[N, D] x -> exp result",
            "[D, N] exp -> result",
            "2:13 exp: several kernels need it, and reading it costs less than computing it again",
            "3:17 result: no result before has these dims in this order",
        ],
    );
    // Writing and reading one exponential costs more than computing it again.
    check(
        "pub fn f(x: f32[N, D]) -> (f32[N, D], f32[D, N]) { let e = exp(x); (e + 1.0, e - 1.0) }",
        &[
            "[N, D] x -> result",
            "[D, N] x -> result",
            "1:80 result: no result before has these dims in this order",
        ],
    );
    // The value is not transcendental, but needs more than four loads.
    check(
        "pub fn f(a: f32[N, D], b: f32[N, D], c: f32[N, D], d: f32[N, D], e: f32[N, D]) -> (f32[N, D], f32[D, N]) {
            let v = a + b + c + d + e;
            (v * 2.0, v * 3.0)
        }",
        &["[N, D] a b c d e -> add result", "[D, N] add -> result", "2:35 add: several kernels need it, and reading it costs less than computing it again", "3:25 result: no result before has these dims in this order"],
    );
    // The value needs one load, but more than thirty operations.
    let steps = "let v = v * v + x;\n".repeat(31);
    let reason = "32:15 fma: several kernels need it, and reading it costs less than computing it again";
    check(
        &format!(
            "pub fn f(x: f32[N, D]) -> (f32[N, D], f32[D, N]) {{ let v = x;\n{steps}(v * 2.0, v * 3.0) }}"
        ),
        &[
            "[N, D] x -> fma result",
            "[D, N] fma -> result",
            reason,
            "33:13 result: no result before has these dims in this order",
        ],
    );
}
