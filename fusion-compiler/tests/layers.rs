//! Library functions along dims, run by the reference interpreter, against formulas in f64 from PyTorch's
//! documentation.
#![cfg(feature = "compile")]

use fusion_compiler::check::{Source, front_end};
use fusion_support::reference::{Rounding, interpret};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// Three rows of five elements.
const X: [[f64; 5]; 3] =
    [[1.5, -2.0, 0.25, 3.0, -0.5], [4.0, 4.0, -1.0, 4.0, 0.0], [-30.0, 0.0, 90.0, 1e-3, -2.5]];

/// Returns the results of `body`, with the declared dims, for `x: f32[N, D]` and `t: i32[N]`.
fn results(body: &str, dims: &str, x: &[[f64; 5]], targets: &[f64]) -> Vec<f64> {
    let source = format!("pub fn f(x: f32[N, D], t: i32[N]) -> {dims} {{ let _ = t; {body} }}");
    let functions = match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(functions, _)) => functions,
        other => panic!("{source} is right: {other:?}"),
    };
    let params = [x.concat(), targets.to_vec()];
    interpret(&functions[0].graph, &params, &[x.len() as i64, 5], Rounding::None).remove(0)
}

fn close(got: &[f64], expect: &[f64], what: &str) {
    assert_eq!(got.len(), expect.len(), "{what}");
    for (got, expect) in got.iter().zip(expect) {
        let same = got == expect || got.is_nan() && expect.is_nan();
        assert!(same || (got - expect).abs() <= 1e-14 * (1.0 + expect.abs()), "{what}: {got}, not {expect}");
    }
}

/// Asserts one number for each row.
fn check_rows(body: &str, of_row: impl Fn(&[f64]) -> f64) {
    let expect: Vec<f64> = X.iter().map(|row| of_row(row)).collect();
    close(&results(body, "f32[N]", &X, &[0.0; 3]), &expect, body);
}

/// Asserts one number for each element.
fn check_elements(body: &str, of_row: impl Fn(&[f64]) -> Vec<f64>) {
    let expect: Vec<f64> = X.iter().flat_map(|row| of_row(row)).collect();
    close(&results(body, "f32[N, D]", &X, &[0.0; 3]), &expect, body);
}

/// Asserts a single number.
fn check_all(body: &str, of_all: impl Fn(&[f64]) -> f64) {
    close(&results(body, "f32[]", &X, &[0.0; 3]), &[of_all(&X.concat())], body);
}

fn sum(x: &[f64]) -> f64 {
    x.iter().sum()
}

fn mean(x: &[f64]) -> f64 {
    sum(x) / x.len() as f64
}

fn map(x: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    x.iter().map(|&x| f(x)).collect()
}

/// Returns the sum of squared distances from the mean.
fn squares(x: &[f64]) -> f64 {
    sum(&map(x, |one| (one - mean(x)).powi(2)))
}

fn log_sum_exp(x: &[f64]) -> f64 {
    let most = x.iter().copied().fold(-INF, f64::max);
    most + sum(&map(x, |x| (x - most).exp())).ln()
}

#[test]
fn statistics() {
    check_rows("var(x, D)", |row| squares(row) / 4.0);
    check_rows("std(x, D)", |row| (squares(row) / 4.0).sqrt());
    check_rows("norm(x, D)", |row| sum(&map(row, |x| x * x)).sqrt());
    check_rows("logsumexp(x, D)", log_sum_exp);
    check_all("var(x)", |all| squares(all) / 14.0);
    let by = |divisor: f64| move |row: &[f64]| squares(row) / divisor;
    check_rows("var(x, D, correction = 0)", by(5.0));
    check_rows("var(x, D, 2)", by(3.0));
    check_rows("var(x, D, correction = 1.5)", by(3.5));
    check_rows("var(x, D, correction = 5)", by(0.0));
    check_rows("var(x, D, correction = 7.5)", by(0.0));
    check_rows("std(x, D, correction = 0)", |row| by(5.0)(row).sqrt());
    check_all("var(x, correction = 0)", by(15.0));
    check_all("std(x, correction = 0.5)", |all| by(14.5)(all).sqrt());
    check_all("std(x, (D, N))", |all| (squares(all) / 14.0).sqrt());
    check_all("norm(x)", |all| sum(&map(all, |x| x * x)).sqrt());
    check_all("logsumexp(x)", log_sum_exp);
}

#[test]
fn shares_of_a_row() {
    check_elements("softmax(x, D)", |row| map(row, |x| (x - log_sum_exp(row)).exp()));
    check_elements("masked_softmax(x, x < 1.0, D)", |row| {
        let seen: Vec<f64> = row.iter().copied().filter(|x| *x < 1.0).collect();
        map(row, |x| if x < 1.0 { (x - log_sum_exp(&seen)).exp() } else { 0.0 })
    });
    check_elements("masked_softmax(x, x > 1e9, D)", |row| map(row, |_| 0.0));
    check_elements("log_softmax(x, D)", |row| map(row, |x| x - log_sum_exp(row)));
    let all = X.concat();
    check_elements("softmax(x, (N, D))", |row| map(row, |x| (x - log_sum_exp(&all)).exp()));
}

#[test]
fn normalisations() {
    let scale = |row: &[f64], eps: f64| 1.0 / (squares(row) / row.len() as f64 + eps).sqrt();
    check_elements("layer_norm(x, D)", |row| map(row, |x| (x - mean(row)) * scale(row, 1e-5)));
    check_elements("layer_norm(x, D, 0.5)", |row| map(row, |x| (x - mean(row)) * scale(row, 0.5)));
    check_elements("batch_norm(x, D)", |row| map(row, |x| (x - mean(row)) * scale(row, 1e-5)));
    check_elements("batch_norm(x, (D), eps = 2.0)", |row| map(row, |x| (x - mean(row)) * scale(row, 2.0)));
    let all = X.concat();
    check_elements("batch_norm(x, (N, D))", |row| map(row, |x| (x - mean(&all)) * scale(&all, 1e-5)));
    check_elements("batch_norm(x, 0.5, sum(x, D) * 0.0 + 3.0, 1.0)", |row| map(row, |x| (x - 0.5) / 2.0));
    let squared = |row: &[f64]| mean(&map(row, |x| x * x));
    check_elements("rms_norm(x, D)", |row| map(row, |x| x / (squared(row) + 1e-6).sqrt()));
    check_elements("x.rms_norm(D, eps = 0.25)", |row| map(row, |x| x / (squared(row) + 0.25).sqrt()));
}

#[test]
fn losses() {
    let huber = |x: f64, delta: f64| {
        let d = (x - 1.0).abs();
        if d < delta { 0.5 * d * d } else { delta * (d - 0.5 * delta) }
    };
    check_all("mse(x, 1.0)", |all| mean(&map(all, |x| (x - 1.0).powi(2))));
    check_rows("mse(1.0, x, D)", |row| mean(&map(row, |x| (x - 1.0).powi(2))));
    check_all("l1(x, 1.0)", |all| mean(&map(all, |x| (x - 1.0).abs())));
    check_all("huber(x, 1.0)", |all| mean(&map(all, |x| huber(x, 1.0))));
    check_rows("huber(x, 1.0, D, 3.0)", |row| mean(&map(row, |x| huber(x, 3.0))));
    let binary = |x: f64, y: f64| x.max(0.0) - x * y + (-x.abs()).exp().ln_1p();
    check_all("bce_with_logits(x, 0.25)", |all| mean(&map(all, |x| binary(x, 0.25))));
    check_rows("bce_with_logits(x, 1.0, D)", |row| mean(&map(row, |x| binary(x, 1.0))));
    check_all("huber(x, 1.0, delta = 0.25)", |all| mean(&map(all, |x| huber(x, 0.25))));
    let point = |x: f64| {
        let p = x.abs();
        if p == 0.0 { 0.0 } else { p * (p.ln() - 0.75 * x) }
    };
    check_all("kl_div(0.75 * x, abs(x))", |all| mean(&map(all, point)));
    check_rows("kl_div(0.75 * x, abs(x), D)", |row| mean(&map(row, point)));
    // An element with probability 0 contributes nothing, however unlikely its prediction.
    let of_zero = results("kl_div(x * 0.0 - 1e30, x * 0.0)", "f32[]", &X, &[0.0; 3]);
    assert_eq!(of_zero, [0.0]);
}

/// Returns the loss of a row, by PyTorch's definition.
fn cross_entropy(row: &[f64], class: usize, smoothing: f64) -> f64 {
    let log_q = map(row, |x| x - log_sum_exp(row));
    -(1.0 - smoothing) * log_q[class] - smoothing * mean(&log_q)
}

#[test]
fn cross_entropies() {
    let targets = [3.0, 0.0, 4.0];
    let each = |smoothing: f64| {
        let rows = X.iter().zip(targets);
        rows.map(|(row, class)| cross_entropy(row, class as usize, smoothing)).collect::<Vec<f64>>()
    };
    let check = |body: &str, targets: &[f64], expect: &[f64]| {
        let dims = if expect.len() == 1 { "f32[]" } else { "f32[N]" };
        close(&results(body, dims, &X, targets), expect, body);
    };
    check("cross_entropy(x, D, t)", &targets, &each(0.0));
    check("cross_entropy(x, D, t, 0.1)", &targets, &each(0.1));
    check("cross_entropy_mean(x, D, t, label_smoothing = 0.25)", &targets, &[mean(&each(0.25))]);
    let [first, _, last] = each(0.0)[..] else { panic!("three rows") };
    check("cross_entropy(x, D, t)", &[3.0, -100.0, 4.0], &[first, 0.0, last]);
    check("cross_entropy_mean(x, D, t)", &[3.0, -100.0, 4.0], &[(first + last) / 2.0]);
    check("cross_entropy_mean(x, D, t, ignore_index = 3)", &[3.0, 3.0, 4.0], &[last]);
    check("cross_entropy_mean(x, D, t)", &[-100.0; 3], &[NAN]);
    // Classes out of range.
    check("cross_entropy(x, D, t)", &[5.0, -1.0, 4.0], &[NAN, NAN, last]);
}

/// Cross-entropies with a weight for each class, by PyTorch's definition. The smoothed part weights the
/// logarithms of all classes. The mean is relative to the weights of the classes that count.
#[test]
fn weighted_cross_entropies() {
    let weight = [0.5, 2.0, 0.0, 1.25, 3.0];
    let loss = |row: &[f64], class: usize, smoothing: f64| {
        let log_q = map(row, |x| x - log_sum_exp(row));
        let smooth: f64 = log_q.iter().zip(weight).map(|(x, w)| w * x).sum::<f64>() / 5.0;
        -(1.0 - smoothing) * weight[class] * log_q[class] - smoothing * smooth
    };
    let check = |body: &str, targets: [f64; 3], ignored: f64, smoothing: f64| {
        let counts = |class: &&f64| **class != ignored;
        let one = |(row, class): (&[f64; 5], f64)| match class {
            class if class == ignored => 0.0,
            class if !(0.0..5.0).contains(&class) => NAN,
            class => loss(row, class as usize, smoothing),
        };
        let each: Vec<f64> = X.iter().zip(targets).map(one).collect();
        let signature = "(x: f32[N, V], t: i32[N], w: f32[V])";
        let params: &[&[f64]] = &[&X.concat(), &targets, &weight];
        let rows =
            result(&format!("{signature} -> f32[N]"), &format!("cross_entropy({body})"), params, &[3, 5]);
        close(&rows, &each, body);
        let mean = format!("cross_entropy_mean({body})");
        let mean = result(&format!("{signature} -> f32[]"), &mean, params, &[3, 5]);
        let weights: f64 =
            targets.iter().filter(counts).map(|class| weight.get(*class as usize).unwrap_or(&NAN)).sum();
        close(&mean, &[each.iter().sum::<f64>() / weights], body);
    };
    check("x, V, t, weight = w", [3.0, 0.0, 4.0], -100.0, 0.0);
    check("x, V, t, weight = w, label_smoothing = 0.1", [3.0, 0.0, 4.0], -100.0, 0.1);
    check("x, V, t, label_smoothing = 0.25, weight = w", [1.0, -100.0, 2.0], -100.0, 0.25);
    check("x, V, t, weight = w, ignore_index = 3, label_smoothing = 1.0", [3.0, 0.0, 4.0], 3.0, 1.0);
    check("x, V, t, weight = w", [-100.0; 3], -100.0, 0.0);
    check("x, V, t, weight = w", [2.0; 3], -100.0, 0.0);
    check("x, V, t, weight = w", [5.0, -1.0, 4.0], -100.0, 0.0);
}

#[test]
fn impossible_classes() {
    let x = [[-INF, 1.0, -INF, 2.0, -INF], [-INF; 5]];
    let bodies = ["cross_entropy(x, D, t)", "cross_entropy(x, D, t, 0.0, -100)"];
    for body in bodies {
        let expect = [(1.0 + (-1f64).exp()).ln(), NAN];
        close(&results(body, "f32[N]", &x, &[3.0, 0.0]), &expect, body);
        close(&results(body, "f32[N]", &x, &[0.0, 0.0]), &[INF, NAN], body);
    }
    let shares = results("softmax(x, D)", "f32[N, D]", &x, &[0.0; 2]);
    let second = 1.0 / (1.0 + (-1f64).exp());
    close(&shares, &[&[0.0, 1.0 - second, 0.0, second, 0.0], [NAN; 5].as_slice()].concat(), "softmax");
    let sums = results("logsumexp(x, D)", "f32[N]", &x, &[0.0; 2]);
    close(&sums, &[2.0 + (1.0 + (-1f64).exp()).ln(), -INF], "logsumexp");
    close(&results("logsumexp(-x, D)", "f32[N]", &x, &[0.0; 2]), &[INF, INF], "logsumexp");
}

#[test]
fn places_and_whether() {
    let x = [[1.0, 7.0, 7.0, -2.0, -2.0], [0.0, -0.0, 0.0, -0.0, 0.0], [3.0, NAN, 9.0, NAN, -INF]];
    let check = |body: &str, expect: &[f64]| {
        let dims = if expect.len() == 1 { "i32[]" } else { "i32[N]" };
        close(&results(body, dims, &x, &[0.0; 3]), expect, body);
    };
    check("argmax(x, D)", &[1.0, 0.0, 1.0]);
    check("argmin(x, D)", &[3.0, 0.0, 1.0]);
    check("any(x > 6, D) as i32", &[1.0, 0.0, 1.0]);
    check("all(x > -3, D) as i32", &[1.0, 1.0, 0.0]);
    check("any(x > 6) as i32", &[1.0]);
    check("all(x > 6) as i32", &[0.0]);
    let by_column = results("argmax(x, N)", "i32[D]", &x, &[0.0; 3]);
    assert_eq!(by_column, [2.0, 2.0, 2.0, 2.0, 1.0]);
}

/// Returns the result of a function with this signature. The extents are in the order in which the dims
/// appear.
fn result(signature: &str, body: &str, params: &[&[f64]], extents: &[i64]) -> Vec<f64> {
    let source = format!("pub fn f{signature} {{ {body} }}");
    let functions = match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(functions, _)) => functions,
        other => panic!("{source} is right: {other:?}"),
    };
    let params: Vec<Vec<f64>> = params.iter().map(|param| param.to_vec()).collect();
    interpret(&functions[0].graph, &params, extents, Rounding::None).remove(0)
}

/// Several dims are flattened in the order in which they are named, else in the order of the tensor.
#[test]
fn places_along_several_dims() {
    let x = [1.0, 7.0, 2.0, 7.0, 0.0, 7.0];
    let of = |body: &str| result("(x: f32[N, D]) -> i32[]", body, &[&x], &[2, 3])[0];
    assert_eq!((of("argmax(x)"), of("argmax(x, (N, D))"), of("argmax(x, (D, N))")), (1.0, 1.0, 1.0));
    assert_eq!((of("argmin(x)"), of("argmin(x, (N, D))"), of("argmin(x, (D, N))")), (4.0, 4.0, 3.0));
    // In the order (D, N), the first 7 of `x` is in the second row, and the first 7 of `one_seven` is in the
    // first row.
    let one_seven = [1.0, 7.0, 2.0, 0.0, 0.0, 7.0];
    let of = |body: &str| result("(x: f32[N, D]) -> i32[]", body, &[&one_seven], &[2, 3])[0];
    assert_eq!((of("argmax(x)"), of("argmax(x, (D, N))")), (1.0, 2.0));
    let nans = [1.0, -INF, 2.0, NAN, 9.0, NAN];
    let of = |body: &str| result("(x: f32[N, D]) -> i32[]", body, &[&nans], &[2, 3])[0];
    assert_eq!((of("argmax(x)"), of("argmin(x)"), of("argmax(x, (D, N))")), (3.0, 3.0, 1.0));
    // One place for each row, and the number of each element.
    let planes = [0.0, 1.0, 2.0, 3.0, 9.0, 8.0, 7.0, 9.0];
    let places = result("(x: f32[N, H, W]) -> i32[N]", "argmax(x, (W, H))", &[&planes], &[2, 2, 2]);
    assert_eq!(places, [3.0, 0.0]);
    let numbers = result("(x: f32[N, D]) -> f32[N, D]", "x * 0.0 + index((D, N)) as f32", &[&x], &[2, 3]);
    assert_eq!(numbers, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
}

/// Omitted dims have the order of the tensor, independent of other tensors and of index operations on it.
#[test]
fn places_in_tensors() {
    let (w, x) = ([0.0; 6], [1.0, 2.0, 7.0, 3.0, 4.0, 5.0]);
    let of = |body: &str| result("(_w: f32[D, N], x: f32[N, D]) -> i32[]", body, &[&w, &x], &[3, 2])[0];
    assert_eq!((of("argmax(x)"), of("argmax(x + _w)"), of("argmax(_w + x)")), (2.0, 2.0, 4.0));
    assert_eq!(of("argmax(x + mean(x, D))"), 2.0, "the mean has not all dims");
    assert_eq!(of("argmax(rename(rename(x, N -> M), D -> E) + 0.0 * mean(_w))"), 2.0);
    let of = |body: &str| result("(x: f32[N, D], N2: dim) -> i32[]", body, &[&x, &[1.0]], &[2, 3, 1])[0];
    assert_eq!(of("argmin(slice(x, D -> K, 1..)) + 0 * N2"), 0.0);
    assert_eq!(of("argmin(slice(x, N -> K, 1..)) + 0 * N2"), 0.0);
    assert_eq!(of("argmax(slice(x, N -> K, ..1)) + 0 * N2"), 2.0);
    assert_eq!(of("argmax(flip(slice(x, N -> K, 0..2), K)) + 0 * N2"), 5.0, "two rows, the last first");
    assert_eq!(of("argmax(split(x, N -> (N2, M)))"), 2.0);
    assert_eq!(of("argmax(merge(x, (N, D) -> M)) + 0 * N2"), 2.0);
}

#[test]
fn dims_of_templates() {
    let of = |template: &str, call: &str, dims: &str| {
        let source = format!("{template} pub fn f(x: f32[N, D]) -> f32[{dims}] {{ {call} }}");
        let functions = match front_end(source.parse().expect("tokens")) {
            Ok(Source::Items(functions, _)) => functions,
            other => panic!("{source} is right: {other:?}"),
        };
        let exported = functions.last().expect("a function");
        interpret(&exported.graph, &[X.concat()], &[3, 5], Rounding::None).remove(0)
    };
    let count = "fn count(x, A: dim = all) { sum(x * 0.0 + 1.0, A) + 100.0 * A }";
    assert_eq!(of(count, "count(x, D)", "N"), [505.0; 3]);
    assert_eq!(of(count, "count(x, (N, D))", ""), [1515.0]);
    assert_eq!(of(count, "count(x)", ""), [1515.0]);
    assert_eq!(of(count, "x.count(A = N)", "D"), [303.0; 5]);
    let nested =
        "fn outer(x, A: dim) { inner(x, (A)) + inner(x) } fn inner(x, B: dim = all) { sum(x * 0.0, B) + B }";
    assert_eq!(of(nested, "outer(x, (D, N))", ""), [30.0]);
    assert_eq!(of(nested, "outer(x, D)", "N"), [20.0; 3]);
    // The default stands for all dims of the arguments before it, including those of a condition.
    let both = "fn both(x, y, A: dim = all) { sum(x, A) * 0.0 + A + 0.0 * sum(y, A) }";
    let masked = "both(x + 1.0, if x > 0.0 { 1.0 } else { 0.0 })";
    assert_eq!(of(both, masked, ""), [15.0]);
    let position = "fn places(x, A: dim = all) { index(A) as f32 + 0.0 * x }";
    assert_eq!(
        of(position, "places(x, N)", "N, D"),
        [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    );
}

#[test]
fn renamed_dims() {
    let of = |body: &str, dims: &str| results(body, dims, &X, &[0.0; 3]);
    let cell = |i: usize, j: usize| X[i][j];
    let pairs: Vec<f64> =
        (0..9).map(|i| (0..5).map(|k| cell(i / 3, k) * cell(i % 3, k)).sum::<f64>()).collect();
    close(&of("sum(x * rename(x, N -> M), D)", "f32[N, M]"), &pairs, "the products of rows");
    let gathered: Vec<f64> = (0..3).map(|i| cell(i, (i + 1) % 5)).collect();
    let body = "sum(if index(K) == index(N) + 1 { x.rename(D -> K) } else { 0.0 }, K)";
    close(&of(body, "f32[N]"), &gathered, "a place along a renamed dim");
    close(
        &of("rename(x * index(D) as f32, D -> K)", "f32[N, K]"),
        &of("x * index(D) as f32", "f32[N, D]"),
        "a name",
    );
    close(&of("rename(rename(x, D -> K), K -> D)", "f32[N, D]"), &X.concat(), "there and back");
    close(
        &of("x - rename(max(x, D), N -> M)", "f32[N, M, D]").as_slice()[..5],
        &[-1.5, -5.0, -2.75, 0.0, -3.5],
        "maxima",
    );
}

#[test]
fn dims_that_are_several() {
    let of = |body: &str, dims: &str| results(body, dims, &X, &[0.0; 3]);
    let mean = |i: usize| mean(&X[i]);
    let centred: Vec<f64> = (0..15).map(|i| X[i / 5][i % 5] - mean(i / 5)).collect();
    let merged = "x - mean(x, D)";
    close(&of(&format!("let y = {merged}; merge(y, (N, D) -> C)"), "f32[C]"), &centred, "merged");
    let all = "let y = merge(x, (N, D) -> C); y.split(C -> (N, D)) + 0.0 * sum(y, C) - mean(x, D)";
    close(&of(all, "f32[N, D]"), &centred, "there and back");
    let places: Vec<f64> = (0..15).map(f64::from).collect();
    close(&of("merge(x, (N, D) -> C) * 0.0 + index(C) as f32", "f32[C]"), &places, "coordinates");
}

#[test]
fn groups_of_channels() {
    let group = |x: &[f64]| map(x, |one| (one - mean(x)) / (squares(x) / x.len() as f64 + 1e-5).sqrt());
    let source = "pub fn f(x: f32[C], G: dim, D: dim) -> f32[C, D] { \
                  let y = x + 0.0 * index(D) as f32; 2.0 * group_norm(group_norm(y, C, G, D), C, G, D) }";
    let functions = match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(functions, _)) => functions,
        other => panic!("{source} is right: {other:?}"),
    };
    let x = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0];
    let got = interpret(&functions[0].graph, &[x.to_vec(), vec![2.0], vec![1.0]], &[6, 2, 1], Rounding::None);
    let expect: Vec<f64> = x.chunks(3).flat_map(|x| map(&group(&group(x)), |x| 2.0 * x)).collect();
    close(&got[0], &expect, "twice");
    // Groups are given by their number, which is also the extent of the dim of that name.
    let body = "group_norm(x, C, 2, D)";
    let normal = result("(x: f32[C, D]) -> f32[C, D]", body, &[&x], &[6, 1]);
    close(&normal, &x.chunks(3).flat_map(group).collect::<Vec<f64>>(), body);
    let body = "let y = group_norm(x, C, 3, D); group_norm(y, C, G = 3, D = D) * 2.0";
    let normal = result("(x: f32[C, D]) -> f32[C, D]", body, &[&x], &[6, 1]);
    let expect: Vec<f64> = x.chunks(2).flat_map(|x| map(&group(&group(x)), |x| 2.0 * x)).collect();
    close(&normal, &expect, body);
    assert_eq!(result("(x: f32[C]) -> f32[2, K]", "split(x, C -> (2, K))", &[&x], &[6]), x);
    assert_eq!(
        result("(x: f32[C]) -> f32[K]", "sum(split(x, C -> (2, K)), 2)", &[&x], &[6]),
        [4.0, -6.0, 13.0]
    );
    assert_eq!(result("(x: f32[2, K]) -> f32[C]", "merge(x, (2, K) -> C)", &[&x], &[3]), x);
}

/// Classes of other integer types give the same results as `i32`.
#[test]
fn types_of_classes() {
    let of = |dtype: &str, targets: &[f64; 3]| {
        let signature = format!("(x: f32[N, V], t: {dtype}[N]) -> f32[N]");
        result(&signature, "cross_entropy(x, V, t, ignore_index = 3)", &[&X.concat(), targets], &[3, 5])
    };
    let expect = of("i32", &[4.0, 3.0, 0.0]);
    assert!(expect[1] == 0.0 && expect[0] > 0.0);
    close(&of("u32", &[4.0, 3.0, 0.0]), &expect, "u32");
    close(&of("u32", &[5.0, 3e9, 3.0]), &[NAN, NAN, 0.0], "none of the classes");
    let mean = "cross_entropy_mean(x, V, t)";
    let of = |dtype: &str| {
        let signature = format!("(x: f32[N, V], t: {dtype}[N]) -> f32[]");
        result(&signature, mean, &[&X.concat(), &[4.0, 3.0, 0.0]], &[3, 5])
    };
    close(&of("u32"), &of("i32"), mean);
}
