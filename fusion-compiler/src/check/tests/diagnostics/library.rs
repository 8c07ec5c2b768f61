//! Messages about arguments of library functions.

use super::super::text;
use super::refused;

#[test]
fn losses_compare_elements() {
    for loss in ["mse", "l1", "huber", "bce_with_logits", "kl_div"] {
        let source = |call: &str| format!("pub fn f(x: f32[N, D], y: f32[N, E]) -> f32[] {{ {call} }}");
        let wrong = |values: &str, first: &str, second: &str, dim: &str| {
            refused(
                &source(&format!("{loss}({values}) + 0.0 * sum(x) + 0.0 * sum(y)")),
                &[
                    &format!(
                        "`{loss}` compares two values element by element, and these have {first} and {second}: the dim \
                         `{dim}` is not one of both (`rename(y, E -> D)` takes one dim for another)"
                    ),
                    &format!("note: in this call of `{loss}`"),
                ],
            );
        };
        wrong("x, y", "[N, D]", "[N, E]", "D");
        wrong("x, mean(x, N)", "[N, D]", "[D]", "N");
        wrong("mean(x, D), x, N", "[N]", "[N, D]", "D");
        assert!(text(&source(&format!("{loss}(x, 0.5) + 0.0 * sum(y)"))).is_ok(), "{loss} of a number");
        assert!(text(&source(&format!("{loss}(mean(x), y) + 0.0"))).is_ok(), "{loss} of one value");
    }
}

#[test]
fn arguments_of_the_library() {
    refused(
        "pub fn f(x: f32[N, V], k: f32[N]) -> f32[N] { cross_entropy(x, V, k) }",
        &[
            "`cross_entropy` takes classes as `i32` or `u32`, this is f32: write `… as i32`",
            "note: in this call of `cross_entropy`",
        ],
    );
    refused(
        "pub fn f(x: f32[N, C], Groups: dim) -> f32[N, C] { group_norm(x, C, Group, N) * Groups }",
        &["there is no dim `Group` here: did you mean `Groups`?"],
    );
    refused(
        "pub fn f(x: f32[N, C], g: i32) -> f32[N, C] { group_norm(x, C, g, N) }",
        &[GROUPS, "note: in this call of `group_norm`"],
    );
    for given in ["0", "-2", "4.0", "C / 2"] {
        refused(
            &format!("pub fn f(x: f32[N, C]) -> f32[N, C] {{ group_norm(x, C, {given}, N) }}"),
            &[GROUPS, "note: in this call of `group_norm`"],
        );
    }
    refused(
        "pub fn f(x: f32[N, C]) -> f32[N, C] { group_norm(x, C, 4) + group_norm(x, C, 2) }",
        &[
            "`group_norm` splits `C`, which stands for other dims already: a dim is split one way in a function, \
             so rename it for another way, as in `group_norm(rename(x, C -> Other), Other, 2)`",
            "note: in this call of `group_norm`",
        ],
    );
    let other = "pub fn f(x: f32[N, C]) -> f32[N, C] { \
                 group_norm(x, C, 4) + rename(group_norm(rename(x, C -> Other), Other, 2), Other -> C) }";
    assert!(text(other).is_ok(), "{:?}", text(other));
    for (call, function) in [("layer_norm(x, C)", "layer_norm"), ("group_norm(x, C, 2)", "group_norm")] {
        refused(
            &format!("pub fn f(x: i32[N, C]) -> f32[N, C] {{ {call} }}"),
            &[
                &format!("`{function}` takes floats, this is i32: write `… as f32`"),
                &format!("note: in this call of `{function}`"),
            ],
        );
    }
}

/// Parts of a dim have elements.
#[test]
fn parts_of_no_elements() {
    let empty = "`split` makes dims of 1 element or more, and this one has 0: write a number from 1";
    refused("pub fn f(x: f32[N, C]) -> f32[N, G] { sum(split(x, C -> (0, G)), G) }", &[empty]);
    let template = "fn parts(x, C: dim, K) { sum(split(x, C -> (K, R)), R) }";
    refused(
        &format!("{template} pub fn f(x: f32[N, C]) -> f32[N] {{ parts(x, C, 0) }}"),
        &[empty, "note: at `K` in `parts`, as it is called here"],
    );
    let merged = empty.replace("split", "merge");
    refused("pub fn f(x: f32[N, C]) -> f32[M] { merge(x, (N, 0) -> M) }", &[&merged]);
}

/// Questions about truth values name the function that the user calls.
#[test]
fn truths_are_bool() {
    for function in ["any", "all"] {
        for dtype in ["f32", "f16", "i32", "u8"] {
            refused(
                &format!("pub fn f(x: {dtype}[N, D]) -> bool[N] {{ {function}(x, D) }}"),
                &[
                    &format!(
                        "`{function}` takes `bool`, this is {dtype}: compare it, as in `{function}(x != 0)`"
                    ),
                    &format!("note: in this call of `{function}`"),
                ],
            );
            let mended = format!("pub fn f(x: {dtype}[N, D]) -> bool[] {{ {function}(x != 0) }}");
            assert!(text(&mended).is_ok(), "{mended}: {:?}", text(&mended));
        }
    }
    let select = "`select` takes a `bool` first, this is f32: compare it, like `x != 0`; \
                  the elements at one position along a dim are `at(x, C, 0)`";
    for call in ["select(x, D, 0)", "select(x, 1, 0)"] {
        refused(&format!("pub fn f(x: f32[N, D]) -> f32[N] {{ {call} }}"), &[select]);
    }
}

/// A dim that is left out is suggested by the name that the value has last.
#[test]
fn dims_that_are_left_out() {
    for (call, function) in [("layer_norm(x)", "layer_norm"), ("x.softmax()", "softmax")] {
        refused(
            &format!("pub fn f(x: f32[N, Width]) -> f32[N, Width] {{ {call} }}"),
            &[&format!("the parameter `D` of `{function}` is a dim: pass the name of a dim, like `Width`")],
        );
    }
    refused(
        "pub fn f(x: f32[Rows, D]) -> f32[Rows, D] { softmax(2.0 * x) }",
        &["the parameter `D` of `softmax` is a dim: pass the name of a dim, like `N`"],
    );
}

const GROUPS: &str = "`group_norm` takes how many groups of `C` there are as a whole number from 1 \
                      that is written in the source, or as a dim, like `G: dim`";

#[test]
fn arguments_of_the_library_that_are_no_number() {
    let scale = "the scale is written out, as in `rms_norm(x, D) * g`";
    refused(
        "pub fn f(x: f32[N, D], g: f32[D]) -> f32[N, D] { rms_norm(x, D, g) }",
        &[
            &format!("`eps` of `rms_norm` is one number, and this has [D]: {scale}"),
            "note: in this call of `rms_norm`",
        ],
    );
    let weights = |call: &str, weight: &str, expect: &str| {
        let function = call.split('(').next().unwrap();
        let dims = if function == "cross_entropy" { "N" } else { "" };
        refused(
            &format!(
                "pub fn f(x: f32[N, V], t: i32[N], w: {weight}) -> f32[{dims}] {{ {call} + 0 * sum(w) as f32 }}"
            ),
            &[expect, &format!("note: in this call of `{function}`")],
        );
    };
    let dtype = |is: &str| {
        format!("the parameter `weight` of `cross_entropy` is f32, this is {is}: write `… as f32`")
    };
    weights("cross_entropy(x, V, t, weight = w)", "i32[V]", &dtype("i32"));
    weights("cross_entropy(x, V, t, weight = w)", "f64[V]", &dtype("f64"));
    let dims = |function: &str, has: &str| {
        format!(
            "`weight` of `{function}` is one number for each class, with the dim `V` alone, and this has {has}"
        )
    };
    weights("cross_entropy(x, V, t, weight = w)", "f32[W]", &dims("cross_entropy", "[W]"));
    weights("cross_entropy(x, V, t, weight = 2.0)", "f32[W]", &dims("cross_entropy", "no dims"));
    weights("cross_entropy_mean(x, V, t, 0.1, -100, w)", "f32[V]", &dims("cross_entropy_mean", "no dims"));
    let cast = "pub fn f(x: f32[N, V], t: i32[N], w: f64[V]) -> f32[N] { cross_entropy(x, V, t, weight = w as f32) }";
    assert!(text(cast).is_ok(), "{:?}", text(cast));
}
