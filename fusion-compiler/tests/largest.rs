//! Maxima of rows that may ignore NaN, because the stored results show NaN anyway, and proof that they do.
#![cfg(feature = "compile")]

use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::graph::{Graph, NodeKind, Reduce};
use fusion_compiler::optimize;
use fusion_support::reference::{Rounding, interpret};

/// Builds the graph of a function with those of `x`, `y` and `t` as parameters that the body names.
fn graph(body: &str) -> Graph {
    let params = [("x", "f32[N, D]"), ("y", "f32[N, D]"), ("t", "i32[N]")].into_iter();
    let params = params.filter(|(name, _)| names(body, name)).map(|(name, ty)| format!("{name}: {ty}"));
    let source = format!("pub fn f({}) -> {body}", params.collect::<Vec<_>>().join(", "));
    match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(functions, _)) => functions[0].graph.clone(),
        other => panic!("{source} is right: {other:?}"),
    }
}

fn names(body: &str, name: &str) -> bool {
    body.split(|c: char| !c.is_alphanumeric()).any(|word| word == name)
}

/// Returns the number of maxima that propagate NaN, and of those that ignore it.
fn largest(graph: &Graph) -> [usize; 2] {
    [Reduce::Max, Reduce::MaxNum].map(|wanted| {
        let is_wanted = |kind: &NodeKind| matches!(kind, NodeKind::Reduce(reduce, _) if *reduce == wanted);
        graph.nodes.iter().filter(|node| is_wanted(&node.kind)).count()
    })
}

/// Asserts that the stored results are the same before and after, for rows with any special values.
fn check(body: &str, expect: [usize; 2]) {
    let graph = graph(body);
    let optimized = optimize(graph.clone());
    assert_eq!(largest(&optimized), expect, "{body}");
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let specials = [1.5, -2.0, nan, inf, -inf];
    let (n, d) = (125_usize, 3);
    let x: Vec<f64> = (0..n).flat_map(|i| [i % 5, i / 5 % 5, i / 25].map(|j| specials[j])).collect();
    let y: Vec<f64> = (0..n * d).map(|i| [0.5, -1.0, 3.0, nan, 2.0, -0.25, inf][i * i % 7]).collect();
    let t = (0..n).map(|i| (i % 3) as f64).collect();
    let params = [("x", x), ("y", y), ("t", t)].into_iter().filter(|(name, _)| names(body, name));
    let params: Vec<Vec<f64>> = params.map(|(_, elements)| elements).collect();
    let [before, after] = [&graph, &optimized]
        .map(|graph| interpret(graph, &params, &[n as i64, d as i64], Rounding::None).concat());
    for (i, (before, after)) in before.iter().zip(&after).enumerate() {
        // A fused multiply-add is rounded once.
        let near = (before - after).abs() <= 1e-6 * before.abs();
        let same = before == after || before.is_nan() && after.is_nan() || near;
        assert!(same, "{body}: element {i} is {after}, and was {before}");
    }
}

#[test]
fn a_sum_along_the_row_shows_it() {
    for body in [
        "f32[N, D] { softmax(x, D) }",
        "f32[N, D] { log_softmax(x, D) }",
        "f32[N] { logsumexp(x, D) }",
        "f32[N] { cross_entropy(x, D, t) }",
        "f32[] { mean(cross_entropy(x, D, t)) }",
        "f32[N, D] { softmax(x * 2.0 + y, D) * y }",
        // Sums over all rows, results with more dims than the row, and forms without exponentials.
        "f32[] { sum(exp(x - max(x, D)), (N, D)) }",
        "f32[N] { sum(max(x, D) - x, D) }",
        "f32[N] { max(x, D) + min(x, D) }",
        "(f32[N], f32[N, D]) { (logsumexp(x, D), softmax(x, D)) }",
        "f32[N] { sum(exp(x - max(x, D)) / (1.0 + exp(-abs(y))), D) }",
        "f32[N, D] { let e = exp(x - max(x, D)); if index(D) > 1 { e / sum(e, D) } else { y } }",
    ] {
        check(body, [0, 1]);
    }
}

#[test]
fn where_nothing_shows_it_nan_is_the_largest() {
    for body in [
        "f32[N] { max(x, D) }",
        "f32[N, D] { exp(x - max(x, D)) }",
        "(f32[N, D], f32[N]) { (softmax(x, D), max(x, D)) }",
        "i32[N] { argmax(x, D) }",
        "f32[N] { let m = max(x, D); if m > 1.0 { sum(x, D) } else { 0.0 } }",
        // Sums without that element, sums of other rows, and sums in which a condition hides the element.
        "f32[N] { max(x, D) + sum(y, D) }",
        "f32[N, D] { let e = exp(x - max(x, D)); e / sum(if y > 0.0 { e } else { 0.0 }, D) }",
        "f32[N, D] { let m = max(x, D); (x - m) + sum(x - m, N) }",
        "f32[N] { max(x, D) + at(sum(x, D), N, 0) }",
        // Maxima of other rows, next to a sum that shows only the NaN of its own row.
        "f32[N] { logsumexp(x, D) + sum(max(x, D), N) }",
        "f32[N] { logsumexp(x, D) + at(max(x, D), N, 2) }",
    ] {
        check(body, [1, 0]);
    }
}

#[test]
fn each_row_is_looked_at_by_itself() {
    check("(f32[N, D], f32[N]) { (softmax(x, D), max(y, D)) }", [1, 1]);
    check("f32[N, D] { softmax(softmax(x, D) + max(y, D), D) }", [1, 2]);
}
