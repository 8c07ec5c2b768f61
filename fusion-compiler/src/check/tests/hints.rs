//! Hints for users of other libraries: tests that each hint appears where intended, and that its suggestion
//! compiles.

use super::diagnostics::refused;
use super::{graphs, text};
use crate::diag::hints::{ARGUMENTS, FIELDS, FUNCTIONS, LATER, MORE, SEVERAL, WORDS};
use crate::diag::{self};

/// Returns all hints.
fn all() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    let arguments = ARGUMENTS.iter().map(|(_, names, how)| (*names, *how));
    [FUNCTIONS, SEVERAL, MORE, FIELDS, LATER, WORDS].into_iter().flatten().copied().chain(arguments)
}

/// Returns the text between backquotes.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Parts of signatures, each with a function that contains it.
const SIGNATURES: [(&str, &str); 7] = [
    (
        "correction = 0",
        "fn spread(x, D: dim, correction = 1) { sum(square(x - mean(x, D)), D) / max(D - correction, 0) } \
         pub fn f(x: f32[N, D]) -> f32[N] { spread(x, D, correction = 0) }",
    ),
    ("-> f32[M, N]", "pub fn f(x: f32[N, M]) -> f32[M, N] { x }"),
    ("x: f32[N, M]", "pub fn f(x: f32[N, M]) -> f32[M, N] { x }"),
    ("S = 2", "pub fn f(x: f32[N], y: f32[N]) -> f32[S = 2, N] { if index(S) == 0 { x } else { y } }"),
    (
        "if index(S) == 0 { x } else { y }",
        "pub fn f(x: f32[N], y: f32[N]) -> f32[S = 2, N] { if index(S) == 0 { x } else { y } }",
    ),
    ("&mut", "pub fn f(p: &mut f32[N]) { p = relu(p); }"),
    ("p = relu(p);", "pub fn f(p: &mut f32[N]) { p = relu(p); }"),
];

/// Parameter lists in which a suggested value may compile. `sources` adds uses of those that are values.
const VALUES: [&str; 5] = [
    "x: f32[N, D], y: f32[N, D], w: f32[N, D], g: f32[D], b: f32[D], gamma: f32[D], beta: f32[D]",
    "x: f32[N, C], y: f32[N, C], H: dim",
    "x: f32[T, S], y: f32[N, H, D], value: f32, low: f32, high: f32, slope: f32, chance: f32[T, S], keep: f32",
    "x: f32[N, M], w: f32[N, M], ids: i32[N], V: dim, K: dim",
    "x: f32[A], y: f32[B], a: f32[A], b: f32[A], value: f32",
];
const OTHERS: [&str; 23] = [
    "x: f32[N, C, H, W], w: f32[O, C, KH, KW]",
    "x: f32[N, C, H, W], w: f32[C, O, KH, KW]",
    "x: f32[N, C, T], w: f32[O, C, K]",
    "x: f32[N, H, W], P: dim, Q: dim",
    "x: f32[N, H, W]",
    "q: f32[T, K], k: f32[S, K], v: f32[S, D]",
    "x: f32[N, D], y: f32[N, D], d: f32",
    "x: f32[N, T]",
    "x: f32[N, H, D]",
    "x: f32[N, V], t: i32[N]",
    "x: f32[N, K], w: f32[K, M], b: f32[M]",
    "mask: bool[N], x: f32[N], value: f32",
    "a: bool[N], b: bool[N]",
    "x: f32[N, D], ids: i32[M]",
    "x: f32[N, H, W], g: f32[C], b: f32[C], mean: f32[N], var: f32[N]",
    "x: f32[N, C], g: f32[C], b: f32[C], mean: f32[C], var: f32[C]",
    "x: f32[N, T], S: dim",
    "x: f32[N, P], w: f32[K], T: dim",
    "x: f32[N, W]",
    "x: u32[N], y: u32[N]",
    "x: f32[N, D], ids: i32[N], V: dim",
    "x: f32[V, D], ids: i32[N]",
    "a: f32[T, H], b: f32[T, H], cos: f32[T, H], sin: f32[T, H], t: f32",
];

/// Returns functions that contain a piece of code.
fn sources(code: &str) -> impl Iterator<Item = String> {
    let known = SIGNATURES.iter().filter(move |(of, _)| *of == code).map(|(_, source)| String::from(*source));
    let binding = if code.starts_with("let ") { String::from(code) } else { format!("let _ = {code};") };
    let around = VALUES.iter().chain(&OTHERS).map(move |params| {
        let names = params.split(", ").filter_map(|param| param.split_once(": "));
        let values = names.filter(|(name, _)| !name.ends_with([']', '[']));
        let used: Vec<String> = values
            .map(|(name, ty)| match ty {
                "dim" => format!("let _ = 1.0 * {name};"),
                ty if ty.starts_with("bool") => format!("let _ = !{name};"),
                _ => format!("let _ = 1 * {name};"),
            })
            .collect();
        format!(
            "pub fn f({params}, result: f32[R]) -> f32[R] {{ {} {binding} result * 2.0 }}",
            used.join(" ")
        )
    });
    known.chain(around)
}

#[test]
fn what_hints_suggest_compiles() {
    let mut wrong = Vec::new();
    for (names, how) in all() {
        for code in code(how) {
            // A lone name is not code that compiles.
            if code.chars().all(char::is_alphanumeric) {
                continue;
            }
            let tried: Vec<String> = sources(code).collect();
            if !tried.iter().any(|source| graphs(source).is_ok()) {
                let errors: Vec<_> = tried.iter().map(|source| text(source).err()).collect();
                wrong.push(format!("{names:?}: `{code}`\n{errors:#?}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// The hints in messages of the catalogue compile.
#[test]
fn what_operators_suggest_compiles() {
    let hole = "…";
    for message in [
        diag::no_product_operator(),
        diag::choice_first(),
        diag::no_power(),
        diag::no_index(),
        diag::no_tilde(),
        diag::no_range_step(),
        diag::no_let_list(),
        diag::split_twice("C"),
        diag::groups_twice("group_norm", "C"),
    ] {
        let message = message.to_string();
        let all = code(&message).filter(|code| code.contains([' ', '(', '!']) && !code.contains(hole));
        for code in all {
            let compiles = |source: String| graphs(&source).is_ok();
            let extra = "pub fn f(x: f32[N, C], y: f32[N, C], mask: bool[N, C], result: f32[R]) -> f32[R]";
            let extra = format!("{extra} {{ let _ = x * y; let _ = !mask; let _ = {code}; result * 2.0 }}");
            assert!(compiles(extra) || sources(code).any(compiles), "`{code}` of {message}");
        }
    }
}

#[test]
fn names_have_one_hint_and_are_no_functions() {
    let mut wrong = Vec::new();
    for table in [FUNCTIONS, SEVERAL, MORE, FIELDS, LATER, WORDS] {
        let names: Vec<&str> = table.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{name} is there twice");
        }
    }
    for (name, how) in FUNCTIONS.iter().flat_map(|(names, how)| names.iter().map(move |name| (name, how))) {
        for call in [format!("{name}(x)"), format!("torch.{name}(x, x)"), format!("x.{name}()")] {
            let message = text(&format!("pub fn f(x: f32[N]) -> f32[N] {{ {call} }}")).err();
            if message != Some(format!("there is no function `{name}`: {how}")) {
                wrong.push((call, message));
            }
        }
    }
    assert_eq!(wrong, []);
}

fn refused_with(body: &str, expect: &str) {
    let params = "x: f32[N, D], y: f32[N, D], d: f32, t: i32[N]";
    let source = format!("pub fn f({params}) -> f32[N, D] {{ let _ = y * d * t as f32; {body} }}");
    refused(&source, &[expect]);
}

#[test]
fn arguments_of_other_libraries() {
    let named = |call: &str, function: &str, name: &str, how: &str| {
        refused_with(call, &format!("`{function}` has no argument `{name}`: {how}"));
    };
    let dim = "a dim is passed by its name alone, like `D`";
    named("x - mean(x, dim = 1)", "mean", "dim", dim);
    named("x - x.max(axis = 0)", "max", "axis", dim);
    named("softmax(x, dim = -1)", "softmax", "dim", dim);
    let keep = "values meet by the names of their dims, as in `x - mean(x, D)`: leave it out";
    named("x - mean(x, D, keepdim = true)", "mean", "keepdim", keep);
    named("x - var(x, D, keepdims = true)", "var", "keepdims", keep);
    let all = "leave it out for the unbiased estimate, and write `correction = 0` for a whole population";
    named("x - std(x, D, unbiased = false)", "std", "unbiased", all);
    named("x - std(x, D, unbiased = true)", "std", "unbiased", all);
    let all = "it is `correction` here: 1 unless given, and `correction = 0` for a whole population";
    named("x - var(x, D, ddof = 0)", "var", "ddof", all);
    let dims = "dims are passed by name, as in `layer_norm(x, D)`";
    named("layer_norm(x, normalized_shape = D)", "layer_norm", "normalized_shape", dims);
    let written = "scale and shift are written out, as in `layer_norm(x, D) * g + b`";
    named("layer_norm(x, D, elementwise_affine = d)", "layer_norm", "elementwise_affine", written);
    named(
        "div(x, y, rounding_mode = d)",
        "div",
        "rounding_mode",
        "`floor_div(x, y)` rounds down, and `trunc(x / y)` towards 0",
    );
    let affine = "scale and shift are written out, as in `layer_norm(x, D) * g + b`";
    named("layer_norm(x, D, weight = y)", "layer_norm", "weight", affine);
    named(
        "rms_norm(x, D, weight = y)",
        "rms_norm",
        "weight",
        "the scale is written out, as in `rms_norm(x, D) * g`",
    );
    let delta = "it is `delta` here: `huber(x, y, delta = d) / d` is the smooth L1 loss with a `beta` of `d`";
    named("x - huber(x, y, beta = 0.5)", "huber", "beta", delta);
    let groups = "it is `G` here, as in `group_norm(x, C, G = 2)`";
    named("group_norm(x, D, num_groups = 4)", "group_norm", "num_groups", groups);
    let batch = "statistics of the batch are `batch_norm(x, D)`, and given ones `batch_norm(x, mean, var)`";
    named("batch_norm(x, N, training = true)", "batch_norm", "training", batch);
    refused_with(
        "batch_norm(x, N, train = true)",
        "`batch_norm` has no parameter `train`: it has `x`, `D`, `eps`, `mean` and `var`",
    );
    named("exp(x, out = y)", "exp", "out", "a `&mut` parameter is assigned to, as in `p = relu(p);`");
    named("clamp(x, min = 0.0)", "clamp", "min", "bounds are `clamp(x, low, high)`");
    refused_with(
        "gelu(x, approximate = \"tanh\")",
        "an argument is no text: the one by tanh is `gelu_tanh(x)`",
    );
    refused_with(
        "x - mse(x, y, reduction = \"none\")",
        "an argument is no text: it is the mean of all elements, or along the dims that come after both values",
    );
    let rows =
        "`cross_entropy(x, V, t)` is the loss of each row, and `cross_entropy_mean(x, V, t)` the mean of all";
    named("cross_entropy(x, D, t, reduction = t)", "cross_entropy", "reduction", rows);
    refused_with("cross_entropy(x, D, t, reduction = \"mean\")", &format!("an argument is no text: {rows}"));
    let all = "`correction` of `std` is a number, and this is bool: it is 1 unless given, \
               and `correction = 0` for a whole population";
    for call in ["std(x, D, false)", "std(x, D, correction = false)"] {
        let source = format!("pub fn f(x: f32[N, D]) -> f32[N] {{ {call} }}");
        refused(&source, &[all, "note: in this call of `std`"]);
    }
    let whole = "pub fn f(x: f32[N, D], c: i32) -> f32[N] { std(x, D, correction = c) }";
    assert!(graphs(whole).is_ok(), "{:?}", text(whole));
    // A user's function may have arguments of any name.
    let own = "fn per(x, dim) { x / dim } pub fn f(x: f32[N]) -> f32[N] { per(x, dim = 2.0) }";
    assert!(graphs(own).is_ok(), "{:?}", text(own));
}

#[test]
fn numbers_where_dims_may_be_left_out() {
    let number = |given: &str| {
        format!(
            "`D` of `huber` is the name of a dim, or left out for all: \
             if the number is meant for `delta`, write `delta = {given}`"
        )
    };
    for given in ["0.5", "1", "d"] {
        refused_with(&format!("x - huber(x, y, {given})"), &number(given));
    }
    for given in ["-0.5", "2.0 * d", "1 as f32"] {
        refused_with(&format!("x - huber(x, y, {given})"), &number("…"));
    }
    for call in ["huber(x, y, delta = 0.5)", "huber(x, y, D, 0.5)", "huber(x, y, delta = d)"] {
        let source =
            format!("pub fn f(x: f32[N, D], y: f32[N, D], d: f32) -> f32[N, D] {{ x * d - {call} }}");
        assert!(graphs(&source).is_ok(), "{source}: {:?}", text(&source));
    }
    let by_number = "pub fn f(x: f32[N, 3], y: f32[N, 3]) -> f32[N] { huber(x, y, 3) }";
    assert!(graphs(by_number).is_ok(), "{:?}", text(by_number));
}

#[test]
fn more_arguments_than_there_are() {
    refused_with(
        "layer_norm(x, D, y, y)",
        "`layer_norm(x, D, eps = …)` takes no more arguments: scale and shift are written out, \
         as in `layer_norm(x, D) * g + b`",
    );
    refused_with(
        "rms_norm(x, D, y, 1e-6)",
        "`rms_norm(x, D, eps = …)` takes no more arguments: the scale is written out, \
         as in `rms_norm(x, D) * g`",
    );
    let forms = "`batch_norm(x, D, eps = …)` or `batch_norm(x, mean, var, eps = …)`";
    let how = "scale and shift are written out, as in `batch_norm(x, D) * g + b`";
    refused_with("batch_norm(x, N, y, y)", &format!("`batch_norm` takes other arguments, {forms}: {how}"));
    refused_with("batch_norm(x, N, y, y, y, y)", &format!("{forms} takes no more arguments: {how}"));
    let named = "`batch_norm` has no argument `bias`: \
                 scale and shift are written out, as in `batch_norm(x, D) * g + b`";
    refused_with("batch_norm(x, N, bias = y)", named);
    refused_with(
        "norm(x, 2, D)",
        "`norm(x, D = …)` takes no more arguments: `norm(x, D)` is the Euclidean one; \
         others are `sum(abs(x), D)` and `max(abs(x), D)`",
    );
    refused_with(
        "layer_norm(x, y, y)",
        "`layer_norm` takes other arguments, `layer_norm(x, D, eps = …)`: scale and shift are written out, \
         as in `layer_norm(x, D) * g + b`",
    );
}

#[test]
fn one_value_for_several() {
    let both =
        "this is one value: `max` gives the largest alone: write `let (v, i) = (max(x, D), argmax(x, D));`";
    refused_with("let (v, i) = max(x, D); v * i", both);
    refused_with("let (v, i) = x.max(D); v * i", both);
    let fields = both.replace("this is one value", "values have no fields");
    refused_with("x - max(x, D).0", &fields);
    refused_with("x - max(x, D)[0]", &fields);
    let tuple = "pub fn f(x: f32[N, D]) -> (f32[N], i32[N]) { max(x, D) }";
    refused(tuple, &[both]);
    refused_with(
        "let (a, b) = exp(x); a * b",
        "this is one value, no tuple of 2: a pattern that is one name, like `let y = …`, takes it",
    );
    let own = "fn max(x) { (x, -x) } pub fn f(x: f32[N]) -> f32[N] { let (a, b) = max(x); a * b }";
    assert!(graphs(own).is_ok(), "{:?}", text(own));
}

#[test]
fn syntax_of_other_languages() {
    let choice = "a value for each element is chosen by `if mask { a } else { b }`";
    for (body, expect) in [
        (
            "x @ y",
            "`@` is no operator: a product is summed along the dim that both have, as in `matmul(x, w, K)`",
        ),
        ("if ~(x > 0) { x } else { y }", "`~` is no operator: the negation is `!mask`"),
        ("if x > 0 and y > 0 { x } else { y }", "`and` is no operator: write `&&`"),
        ("if x > 0 or y > 0 { x } else { y }", "`or` is no operator: write `||`"),
        ("if not x > 0 { x } else { y }", "`not` is no operator: write `!`"),
        ("x if x > 0 else y", "the condition of a choice comes first: write `if mask { x } else { y }`"),
        (
            "stack([x, y])",
            "there are no lists: a dim of its own chooses, \
             as in `if index(S) == 0 { x } else { y }` with `S = 2` in the result",
        ),
        ("lambda v: v", "there are no closures: write a private `fn`, or its body in place"),
        ("torch.where(x > 0, x, y)", choice),
        ("where(x > 0, x, y)", choice),
        ("x ** 2", "a power is a function: write `pow(x, y)`"),
        ("x[0]", "values are not indexed with `[…]`: the elements along a dim are `at(x, C, 0)`"),
        ("if True { x } else { y }", "there is no value `True` here: did you mean `true`?"),
        (
            "nn.functional.relu(x)",
            "values have no fields like `functional`: functions have no prefix: write `relu(x)`",
        ),
        ("x * math.pi", "values have no fields like `pi`: the constant is `PI`, as in `x * PI`"),
        (
            "x + x.shape[0]",
            "values have no fields like `shape`: write the name of a dim, which is its extent, as in `x / N`",
        ),
    ] {
        refused_with(body, expect);
    }
    let negative = "pub fn f(x: f32[N]) -> f32[N] { x + -x.sum() }";
    assert!(graphs(negative).is_ok(), "{:?}", text(negative));
}

#[test]
fn places_and_text_of_other_languages() {
    for (body, expect) in [
        (
            "x - at(x, D, -1)",
            "positions count from 0, and -1 comes before the first: from the end it is `D - 1`",
        ),
        (
            "x - sum(slice(x, D -> K, ..-1), K)",
            "positions count from 0, and -1 comes before the first: from the end it is `D - 1`",
        ),
        (
            "x - sum(slice(x, D -> K, -2..), K)",
            "positions count from 0, and -2 comes before the first: from the end it is `D - 2`",
        ),
        (
            "slice(x, D -> K, ..=3)",
            "a range ends before its second bound: write `..4` for the elements up to 3",
        ),
        (
            "slice(x, D -> K, 0..7:2)",
            "a range has no step: the first of every two elements is `at(split(x, D -> (K, P = 2)), P, 0)`",
        ),
        (
            "slice(x, D -> K, 0..D..2)",
            "a range has no step: the first of every two elements is `at(split(x, D -> (K, P = 2)), P, 0)`",
        ),
        (
            "group_norm(x, 4, D)",
            "`group_norm` takes other arguments, `group_norm(x, C, G, D, eps = …)` or \
             `group_norm(x, C, G, eps = …)`: did you mean `group_norm(x, D, 4)`?",
        ),
        (
            "group_norm(2.0 * x, 4, D)",
            "`group_norm` takes other arguments, `group_norm(x, C, G, D, eps = …)` or \
             `group_norm(x, C, G, eps = …)`: did you mean `group_norm(…, D, 4)`?",
        ),
        ("softmax(x, -1)", "the parameter `D` of `softmax` is a dim: pass the name of a dim, like `D`"),
        ("softmax(x, -2)", "the parameter `D` of `softmax` is a dim: pass the name of a dim, like `N`"),
        (
            "let v, i = max(x, D); v",
            "the names of several values stand in parentheses: write `let (a, b) = …;`",
        ),
        (
            "einsum(\"nd,de->ne\", x, y)",
            "`\"nd,de->ne\"` is text, which no function takes: \
             a product is summed along the dims that are named, as in `matmul(x, w, K)`",
        ),
        (
            "rearrange(x, \"a b -> b a\")",
            "`\"a b -> b a\"` is text, which no function takes: \
             the dims of a result are in the order in which it declares them, as in `-> f32[M, N]`",
        ),
        (
            "min(x, float(\"inf\"))",
            "`\"inf\"` is text, which no function takes: the constant is `INF`, as in `min(x, INF)`",
        ),
        (
            "x - kl_div(x, y, \"mean\")",
            "`\"mean\"` is text, which no function takes: \
             choices are functions of their own, and numbers have no quotes",
        ),
        (
            "pad(x, D -> P, 1, 1, mode = \"reflect\")",
            "an argument is no text: one value is added, as in `pad(x, D -> P, 1, 1, value = 0.5)`",
        ),
    ] {
        refused_with(body, expect);
    }
}

#[test]
fn lists_of_dims() {
    for (call, write) in [
        ("layer_norm(x, [D])", "D"),
        ("layer_norm(x, [N, D])", "(N, D)"),
        ("layer_norm(x, [D], y, y)", "D"),
        ("softmax(x, [D,])", "D"),
        ("x - sum(x, [N, D])", "(N, D)"),
        ("x - max(x, [D])", "D"),
    ] {
        refused_with(call, &format!("dims are named without brackets here: write `{write}`"));
        let mended =
            call.replace("[D,]", "[D]").replace(&format!("[{}]", write.trim_matches(['(', ')'])), write);
        let source =
            format!("pub fn f(x: f32[N, D], y: f32[D]) -> f32[N, D] {{ let _ = y * 2.0; {mended} }}");
        assert!(mended.contains("y, y") || graphs(&source).is_ok(), "{source}: {:?}", text(&source));
    }
    let list = "there are no lists: pass numbers as a tensor, and write several values as a tuple, `(a, b)`";
    for call in ["sum(x, [0, 1])", "x + [1.0, 2.0]", "sum(x, [N, x])", "sum(x, [])", "sum(x, [None])"] {
        refused_with(call, list);
    }
}

#[test]
fn words_for_nothing() {
    let out = "an argument that has a default is left out, \
               and one bound alone is `max(x, low)` or `min(x, high)`";
    for (body, kind) in [
        ("clamp(x, None, 1.0)", "value"),
        ("x - sum(x, None)", "dim"),
        ("softmax(x, None)", "dim"),
        ("x - var(x, correction = None)", "value"),
    ] {
        refused_with(body, &format!("there is no {kind} `None` here: {out}"));
    }
    refused_with("max(x, null)", &format!("there is no value `null` here: {out}"));
    refused_with(
        "x[None, :]",
        "values are not indexed with `[…]`: the elements along a dim are `at(x, C, 0)`",
    );
    // A dim may have this name.
    let own = "pub fn f(x: f32[None]) -> f32[] { sum(x, None) / None }";
    assert!(graphs(own).is_ok(), "{:?}", text(own));
}

/// Names that users of other libraries try have an answer, and a similar name is not the answer to them.
#[test]
fn names_of_other_libraries() {
    let names = "logcumsumexp logaddexp2 erfinv lgamma cummax interpolate im2col svd lu map cov swiglu geglu mix isin \
                 abs2 sinc erfcx nanargmax max_pool3d rotl xlog1py inv fft searchsorted bincount grad print vmap";
    for name in names.split_whitespace() {
        let message = text(&format!("pub fn f(x: f32[N]) -> f32[N] {{ {name}(x) }}")).expect_err(name);
        assert!(
            message.starts_with(&format!("there is no function `{name}`: "))
                && !message.contains("did you mean"),
            "{message}"
        );
    }
}

/// In the inline form, methods of Rust tensors are suggested in braces, and other methods get their usual
/// hint.
#[test]
fn inline() {
    refused(
        "a.reshape(2)",
        &["there is no function `reshape`: a method of Rust is called in braces, `{a.reshape(…)}`"],
    );
    refused(
        "a.unsqueeze(0)",
        &["there is no function `unsqueeze`: values meet by the names of their dims, \
              and one that lacks a dim has the same along it"],
    );
}
