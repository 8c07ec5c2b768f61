//! Tests that a plausible source triggers each message of the catalogue.

mod inline;
mod library;

use super::text;

/// Asserts all messages of a source, in order.
pub(super) fn refused(source: &str, expect: &[&str]) {
    let errors = match text(source) {
        Ok(graph) => panic!("{source}\nis accepted:\n{graph}"),
        Err(errors) => errors,
    };
    assert_eq!(errors.split('\n').collect::<Vec<_>>(), expect, "{source}");
}

#[test]
fn names() {
    refused(
        "pub fn f(bias: f32[N]) -> f32[N] { bais + 1 }",
        &["there is no value `bais` here: did you mean `bias`?"],
    );
    refused("pub fn f(x: f32[N]) -> f32[N] { x + z }", &["there is no value `z` here"]);
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { rleu(x) }",
        &["there is no function `rleu`: did you mean `relu`?"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { cumsum(x, N) }",
        &["`cumsum` is not available yet: a sum up to each element is \
           `sum(if index(S) <= index(T) { rename(x, T -> S) } else { 0.0 }, S)`, \
           whose work grows with the square of `T`"],
    );
    refused("pub fn f(x: f32[N]) -> f32[N] { x + relu }", &["`relu` is a function: call it, `relu(…)`"]);
    refused(
        "pub fn f(x: f32[N], y: f32[N]) -> f32[N] { x }",
        &["the parameter `y` is never used: use it, remove it, or call it `_y`"],
    );
    refused(
        "pub fn f(x: f32[N], x: f32[N]) -> f32[N] { x } pub fn f(x: f32[N]) -> f32[N] { x }",
        &[
            "there are two functions `f` in this block: rename one",
            "there are two parameters `x`: rename one",
        ],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { g(x) } fn g(x) { h(x) } fn h(x) { g(x) }",
        &["`g` calls itself: functions are expanded at each call, so none can"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { f(x) }",
        &["`f` calls itself: functions are expanded at each call, so none can"],
    );
}

#[test]
fn dims() {
    refused(
        "pub fn f(x: f32[N, N]) -> f32[N] { x }",
        &["the dim `N` is named twice in one tensor: give one of the two its own name, like `Other`; \
           `rename(y, Other -> N)` takes it for `N` again"],
    );
    refused(
        "pub fn f(x: f32[n]) -> f32[n] { x }",
        &["the name of a dim starts with an uppercase letter: write `N` for `n`"],
    );
    refused(
        "pub fn f(x: f32[N, C = 3], y: f32[C = 4]) -> f32[N] { sum(x * y, C) }",
        &["the dim `C` has extent 3 and extent 4: a dim has one extent in a function"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N, M] { x }",
        &["the extent of `M` is not known: no parameter has it (`M: dim` takes it from the caller)"],
    );
    // A mistake in a body hides unmade dims of the result.
    refused(
        "pub fn f(x: f32[N]) -> f32[K] { rleu(x) }",
        &["there is no function `rleu`: did you mean `relu`?"],
    );
    // The call that would create the dim is itself the mistake.
    refused(
        "pub fn f(x: f32[N], y: f32[M]) -> f32[S] { concat((x, N), (y, P) -> S) }",
        &["there is no dim `P` here"],
    );
    refused(
        "pub fn f(x: f32[C = 4]) -> f32[A, B] { split(x, C -> (A, B)) }",
        &["`A` and `B` are both new: give the extent of one, like `A: dim`"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { let N = 3; x * N }",
        &["`N` is a dim and a value: give one of them its own name"],
    );
    refused(
        "pub fn f(x: f32[N], N: f32) -> f32[N] { x * N }",
        &["`N` is a parameter and a dim: give one of them its own name"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { sum(x, D) + index(Q) as f32 }",
        &["there is no dim `D` here", "there is no dim `Q` here"],
    );
    let copied = |count: usize| {
        let dims: Vec<String> = (0..count).map(|i| format!("A{i}")).collect();
        format!("pub fn f(x: f32[{0}]) -> f32[{0}] {{ x }}", dims.join(", "))
    };
    text(&copied(256)).expect("256 dims are allowed");
    refused(&copied(257), &["this function has more than 256 dims"]);
}

#[test]
fn results() {
    let message = "this value has the dim `D`, which the result [N] lacks: \
                   declare `[N, D]`, or reduce over `D`, as in `mean(x, D)`";
    refused("pub fn f(x: f32[N, D], y: f32[N]) -> f32[N] { x * y }", &[message]);
    refused(
        "pub fn f(x: f32[C]) -> (f32[N, C], i32[M]) { (x, 3) }",
        &[
            "the extent of `N` is not known: no parameter has it (`N: dim` takes it from the caller)",
            "the extent of `M` is not known: no parameter has it (`M: dim` takes it from the caller)",
        ],
    );
    refused(
        "pub fn f(x: f32[N]) -> i32[N] { x }",
        &["the result is declared i32, this is f32: write `… as i32`, or declare f32"],
    );
    refused("pub fn f(x: f32[N]) -> f32[N] { (x, x) }", &["`f` returns 1 value, this is 2 values"]);
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { let _y = x; }",
        &["`f` returns `f32[N]`, but its body ends without a value: end it with an expression, without `;`"],
    );
    refused(
        "pub fn f(x: f32[N]) { x }",
        &["`f` computes nothing: give it a result, `-> f32[N]`, or a `&mut` parameter"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32 { x }",
        &["a result is a tensor: write `f32[N, D]`, or `f32[]` for a single value"],
    );
    refused(
        "pub fn f(p: &mut f32[N]) { }",
        &["the `&mut` parameter `p` is never assigned: assign to it, or drop the `&mut`"],
    );
    refused(
        "pub fn f(p: &mut f32[N], x: f32[N, D]) { p = x; }",
        &["this value has the dim `D`, which `p` lacks: `p` has [N]"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { x = x + 1; x }",
        &["`x` cannot be assigned to: declare it with `&mut`, as in `x: &mut f32[N]`, or use `let`"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { let y = x; y += 1; y }",
        &["`y` cannot be assigned to: only `&mut` parameters can, give the new value its own `let`"],
    );
    refused(
        "pub fn f(p: &mut f32[N], q: &mut f32[N]) { (p, q) = p; }",
        &["this is one value, no tuple of 2: a pattern that is one name, like `let y = …`, takes it"],
    );
    refused("pub fn f(p: &mut f32[N]) { (p, p) = (p, p); }", &["`p` is named twice in one pattern"]);
    refused(
        "pub fn f(p: &mut f32[N], x: f32[N]) { (p, x) = (x, p); }",
        &["`x` cannot be assigned to: declare it with `&mut`, as in `x: &mut f32[N]`, or use `let`"],
    );
    refused(
        "pub fn f(p: &mut f32[N]) { (p, p * 2) = (p, p); }",
        &["only a `&mut` parameter, by its name, can be assigned to"],
    );
    refused(
        "pub fn f(p: &mut f32[N]) { (p, _) = (p, p, p); }",
        &["this is 3 values, and the pattern names 2"],
    );
    refused(
        "pub fn f(p: &mut f32[N]) { (p,) += (p,); }",
        &["only a `&mut` parameter, by its name, can be assigned to"],
    );
    refused(
        "pub fn f(p: &mut f32[N]) { p = (p, p); }",
        &["this is several values: take them apart with `let (a, b) = …;`"],
    );
}

#[test]
fn calls() {
    refused("pub fn f(x: f32[N]) -> f32[N] { exp(x, x) }", &["`exp` takes 1 value, but 2 are given"]);
    refused("pub fn f(x: f32[N]) -> f32[N] { clamp(x) }", &["`clamp` takes 3 arguments, but 1 is given"]);
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { leaky_relu(x, slop = 2) }",
        &["`leaky_relu` has no parameter `slop`: did you mean `slope`?"],
    );
    refused(
        "pub fn f(x: f32[N, C = 3]) -> f32[N] { at(x, C, 3) + sum(x, (C, C)) }",
        &[
            "the position 3 is outside of `C`, which has 3 elements, from 0",
            "`sum` is given the dim `C` twice",
        ],
    );
    refused(
        "pub fn f(x: f32[N, 3]) -> f32[N] { max(x, 3) }",
        &["`max(x, 3)` could reduce over the dim `3` or compare with the number: \
              name the dim, like `C = 3`, or write `3.0`"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { g(x, Q) } fn g(x, D: dim) { x * D }",
        &["there is no dim `Q` here"],
    );
    refused(
        "pub fn f(x: f32[N, M]) -> f32[N, M] { g(x) } pub fn g(y: f32[M]) -> f32[M] { y }",
        &["the parameter `y` of `g` has dims [M], this has [N, M]: \
              a private function whose parameters have no types takes any dims"],
    );
    refused(
        "fn g(x) { let _y = x; } pub fn f(x: f32[N]) -> f32[N] { g(x) }",
        &["`g` gives no value: end its body with an expression, without `;`"],
    );
}

#[test]
fn slips_of_other_languages() {
    let slip = |body: &str, expect: &str| {
        refused(&format!("pub fn f(x: f32[N]) -> f32[N] {{ {body} }}"), &[expect]);
    };
    slip(
        "x > 0 ? x : -x",
        "no `?` in here: it stands after `fuse!(…)` and after calls of its functions, \
            and a choice is `if … { … } else { … }`",
    );
    slip("x ** 2", "a power is a function: write `pow(x, y)`");
    slip("f32(x)", "`f32` is a dtype: a cast is written `x as f32`");
    slip("2 * x(1)", "`x` is a value and cannot be called: a product is written `x * (…)`");
    slip("x * pi", "there is no value `pi` here: did you mean `PI`?");
    slip("torch.relu(x)", "there is no value `torch` here, and functions have no prefix: write `relu(…)`");
    slip(
        "torch.conv2d(x, x)",
        "there is no function `conv2d`: it is `conv(x, w, C, (H, KH) -> P, (W, KW) -> Q)`",
    );
    slip("if let y = x { y } else { x }", "a `let` is a statement of its own: write it before this one");
    slip("if x = 0 { 1 } else { x }", "expected `{` (`==` compares), found `=`");
    slip(
        "let y = { let z = x; z }; y",
        "a block belongs to an `if` or an `else`: write its `let`s before this expression",
    );
    slip("y = x; y", "there is no `&mut` parameter `y` (a new value is `let y = …;`)");
    slip("relu(x); x", "nothing uses this value: give it a name with `let`, assign it, or drop it");
    slip("x * index(x)", "`index` takes a dim: write `index(T)` for the coordinate along `T`");
    slip("sum(x, 1)", "there is no dim `1` here: a dim goes by its name");
    let brackets = "the dims of a tensor stand in one pair of brackets: write `f32[N, D]`";
    for ty in ["f32<N>", "f32(N)", "f32[N][M]"] {
        refused(&format!("pub fn f(x: {ty}) -> f32[N] {{ x }}"), &[brackets]);
    }
    refused(
        "pub fn f(x: f32[N + 1]) -> f32[N] { x }",
        &["a dim is a name, without arithmetic: give another extent a name of its own"],
    );
    slip("let gen = x; x", "expected a name after `let`, found the keyword `gen`");
    let start = |found: &str| {
        format!("expected a function, `fn name(…)` or `pub fn name(…) -> f32[N]`, found {found}")
    };
    refused("Pub fn f(x: f32[N]) -> f32[N] { x }", &[&start("`Pub`")]);
    refused("use std::f32; pub fn f(x: f32[N]) -> f32[N] { x }", &[&start("the keyword `use`")]);
}

#[test]
fn extents_beyond_all_memory() {
    let too_many = "no tensor has as many elements as these extents come to";
    let huge = "A = 2147483647, B = 2147483647, C = 2147483647";
    refused(&format!("pub fn f(x: f32[N, {huge}]) -> f32[N, A, B, C] {{ x + 1 }}"), &[too_many]);
    refused(&format!("at(at(at(x[N, {huge}], A, 5), B, 7), C, 0)"), &[too_many]);
}

#[test]
fn mistakes_of_a_template_are_said_where_they_stand() {
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { g(x) + g(-x) } fn g(x) { x * nothing + rleu(x) }",
        &["there is no value `nothing` here", "there is no function `rleu`: did you mean `relu`?"],
    );
}

#[test]
fn callees_say_their_dims() {
    refused(
        "pub fn f(c: f32[C = 4]) -> f32[C] { g(c) } pub fn g(c: f32[C = 3]) -> f32[C] { c }",
        &["the dim `C` of `g` has extent 3, here it has 4: declare `C = 3`"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { g(x, 2) } fn g(x: f32[M], k) { x * k }",
        &[
            "`g` has the dim `M`, which this function lacks: a call binds dims by name, so give one that name, \
              as in `rename(x, N -> M)`, or take its extent from the caller, `M: dim`",
        ],
    );
}

/// Where unrolling would produce too many terms, the last operation is looped.
#[test]
fn what_is_too_long_to_write_out_is_looped() {
    let looped = |source: &str| {
        let text = text(source).unwrap_or_else(|errors| panic!("{source}: {errors:?}"));
        let line = text.lines().find_map(|line| line.trim().strip_suffix(" in loops").map(String::from));
        line.unwrap_or_default()
    };
    for (source, dims) in [
        ("pub fn f(x: f32[N, H = 8, W = 9]) -> f32[N] { max(prod(x, W), H) }", "[H]"),
        (
            "fn most(x, B: dim, C: dim) { max(sum(x, C), B) } \
             pub fn f(x: f32[N, B = 30, C = 3]) -> f32[N] { most(x, B, C) }",
            "[B]",
        ),
        ("pub fn f(x: f32[N, C = 100]) -> f32[N, C] { x - at(x, C, 0) }", "[C]"),
        ("pub fn f(p: &mut f32[C = 9, D = 9]) { p -= sum(at(p, C, 0) + p, D); }", "[D]"),
        ("pub fn f(x: f32[H = 32, W = 32]) -> f32[H, W] { softmax(softmax(x, W), H) }", "[H]"),
        (
            "pub fn f(x: f32[A = 8, B = 8, C = 8, D = 8]) -> f32[] { sum(max(sum(max(x, D), C), B), A) }",
            "[A, B]",
        ),
        ("pub fn f(x: f32[N, C = 64]) -> f32[C, N] { x - sum(x, C) }", ""),
        ("pub fn f(x: f32[N, H = 8, W = 8]) -> f32[N] { sum(sum(x, H), W) }", ""),
        ("pub fn f(x: f32[N, C = 1000]) -> f32[N] { at(x, C, 999) - at(x, C, 0) }", ""),
        ("pub fn f(x: f32[N, C = 33, D = 33]) -> (f32[N, C], f32[N, D]) { (sum(x, D), sum(x, C)) }", ""),
        ("pub fn f(x: f32[N, C = 33], y: f32[N, D = 33]) -> f32[N] { sum(x, C) + sum(y, D) }", ""),
    ] {
        assert_eq!(looped(source), dims, "{source}");
    }
}

#[test]
fn a_mistake_in_a_signature_hides_none_in_the_body() {
    refused(
        "pub fn f(x: f17[N], y: f31[N]) -> f32[N, M] { rleu(x) + y }",
        &[
            "there is no dtype `f17`: did you mean `f16`? \
            (there are `f32`, `f16`, `bf16`, `f64`, `i32`, `u32`, `i16`, `u16`, `i8`, `u8` and `bool`)",
            "there is no dtype `f31`: did you mean `f32`? \
            (there are `f32`, `f16`, `bf16`, `f64`, `i32`, `u32`, `i16`, `u16`, `i8`, `u8` and `bool`)",
            "there is no function `rleu`: did you mean `relu`?",
        ],
    );
}

#[test]
fn a_mistake_in_a_typed_function_is_said_once() {
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { g(x) + g(x) } pub fn g(x: f32[N]) -> f32[N] { x + nothing }",
        &["there is no value `nothing` here"],
    );
}

#[test]
fn syntax() {
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { x < x < x }",
        &["comparisons do not chain: `a < b < c` is written `a < b && b < c`"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { x + } pub fn g(x: f32[N]) -> f32[N] { let y x; z x; x }",
        &[
            "expected an expression, found the end",
            "expected `=`, found `x`",
            "expected an operator, `;` or the end of the expression, found `x`",
        ],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { if x < 0 { 1 } }",
        &["`if` is an expression and needs its `else`: write `if … { … } else { … }`"],
    );
    refused(
        "pub fn f(x) -> f32[N] { x }",
        &["an exported function says the type of each parameter: write `x: f32[N]`, `x: f32` or `x: dim`"],
    );
    refused("#[fuse(grad)] pub fn f(x: f32[N]) -> f32[N] { x }", &["`#[fuse(grad)]` is not available yet"]);
    refused(
        "#[fuse(strict, fast_math)] pub fn f(x: f32[N]) -> f32[N] { x }",
        &["`fast_math` approximates and `strict` rounds as if nothing was fused: leave one of them out"],
    );
    refused(
        "#[fuse(of)] pub fn f(x: f32[N]) -> f32[N] { x }",
        &[
            "there is no `#[fuse(of)]`: did you mean `off`? (there are `off`, `fast_math`, `strict` and `targets(…)`)",
        ],
    );
    refused(
        "pub struct Foo;",
        &["expected a function, `fn name(…)` or `pub fn name(…) -> f32[N]`, found the keyword `struct`"],
    );
}

#[test]
fn a_head_with_a_mistake_is_one_mistake() {
    let tensor = |write: &str| format!("a tensor is declared by its dtype and its dims: write `{write}`");
    refused(
        "pub fn f(x: Tensor<f32>, y: &[i32]) -> Result<Tensor<u32>> { x + y } \
         pub fn g(x: f32[N]) -> f32[N] { f(x, 1) }",
        &[&tensor("x: f32[N, D]"), &tensor("y: i32[N, D]"), &tensor("-> u32[N, D]")],
    );
    refused(
        "pub fn f(x: &'a mut fusion::Tensor<f32>, y: Tensor, z: [f32; 3]) -> (f32[N], Vec<f32>) { x }",
        &[
            &tensor("x: &mut f32[N, D]"),
            &tensor("y: f32[N, D]"),
            &tensor("z: f32[N, D]"),
            &tensor("-> f32[N, D]"),
        ],
    );
    let constant = "a parameter has no `const`: leave it out, or write the number where it is used";
    refused("fn f(x, const X: f32) { x * X } pub fn g(x: f32[N]) -> f32[N] { f(x, 2.0) }", &[constant]);
    refused(
        "const EPS: f32 = 1e-5; pub fn g(x: f32[N]) -> f32[N] { x + EPS }",
        &["there are no constants among the functions: write a private function, `fn eps() { … }`, \
              and `eps()` for `EPS`"],
    );
    refused(
        "fn f<const X: f32>(x) { x * X } pub fn g(x: f32[N]) -> f32[N] { f(x) }",
        &["a generic is the type of the elements, without bounds: write `fn f<E>(x: E[N])`, \
              and dims without a declaration"],
    );
    refused(
        "fn f(x: f32[N]) -> f32[N]; pub fn g(x: f32[N]) -> f32[N] { f(x) }",
        &["expected the body of the function, `{ … }`, found `;`"],
    );
    let unit = "a result is a tensor: write `-> f32[N]`, \
                or leave out `-> ()` where the function changes its `&mut` parameters alone";
    refused("pub fn f(x: f32[N]) -> () { x }", &[unit]);
    refused("pub fn f(p: &mut f32[N]) -> () { p = 1.0; p }", &[unit]);
    refused(
        "pub const fn f(x: f32[N]) -> f32[N] { x } pub unsafe extern \"C\" fn g(x: f32[N]) -> f32[N] { f(x) }",
        &["functions have no `const`: leave it out", "functions have no `unsafe`: leave it out"],
    );
    refused(
        "pub(crat) fn f(x: f32[N]) -> f32[N] { rleu(x) }",
        &[
            "expected `pub`, `pub(crate)`, `pub(super)`, `pub(self)` or `pub(in path)`, found `pub(crat)`",
            "there is no function `rleu`: did you mean `relu`?",
        ],
    );
    refused(
        "fn f(x: str) { x } pub fn g(x: f32[N]) -> f32[N] { f(x) }",
        &[
            "there is no dtype `str` (there are `f32`, `f16`, `bf16`, `f64`, `i32`, `u32`, `i16`, `u16`, `i8`, `u8` and `bool`)",
        ],
    );
}

#[test]
fn parameters_there_for_their_dims() {
    let only = |name: &str, dims: &str, params: &str| {
        format!(
            "only {dims} of the parameter `{name}` is used: call it `_{name}`, \
             or write `{params}` to take extents from the caller"
        )
    };
    refused(
        "pub fn f(x: f32[N], like: f32[N, D, E]) -> f32[N, D] { x + index(D) as f32 * E }",
        &[&only("like", "[D, E]", "D: dim, E: dim")],
    );
    refused("pub fn f(x: f32[N], like: f32[D]) -> f32[N] { x / D }", &[&only("like", "[D]", "D: dim")]);
    refused(
        "pub fn f(x: f32[N], like: f32[N]) -> f32[N] { x / N }",
        &["the parameter `like` is never used: use it, remove it, or call it `_like`"],
    );
}

#[test]
fn tuples_of_one() {
    refused(
        "pub fn f(x: f32[N]) -> (f32[N],) { x }",
        &["`f` returns a tuple of one value: write `(x,)`, or declare `-> f32[N]`"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { (x,) }",
        &["this is a tuple of one value, and one value is declared: leave out the comma, \
              or declare `-> (f32[N],)`"],
    );
}

#[test]
fn numbers_alone_are_counted() {
    let sum = vec!["1"; 2000].join(" + ");
    refused(
        &format!("pub fn f(x: f32[N]) -> f32[N] {{ {sum} + x }}"),
        &["too many operations on numbers alone: write their result, or a tensor before them"],
    );
    assert!(text(&format!("pub fn f(x: f32[N]) -> f32[N] {{ x + {sum} }}")).is_ok());
}

#[test]
fn nothing() {
    refused(
        "",
        &["there is nothing in this `fuse!`: write functions, like \
              `pub fn double(x: f32[N]) -> f32[N] { 2.0 * x }`, or an expression over tensors, like `relu(a + b) * c`"],
    );
}

/// Templates of the tests on dims that templates make.
const HALVES: &str =
    "fn h(x, D: dim) { slice(x, D -> Half, ..D / 2) } fn g(x, D: dim) { slice(x, D -> Half, D / 2..) }";

#[test]
fn dims_of_one_name_that_cannot_be_one() {
    let meet = |rest: &str, first: &str, second: &str| {
        refused(
            &format!("{HALVES} {rest}"),
            &[&format!(
                "two dims `Half` meet here, of {first} and {second} elements: a function that makes a dim gives it \
                 to its caller by its name, so have one of them made by another name"
            )],
        );
    };
    meet("pub fn f(x: f32[N, D]) -> f32[N] { sum(h(h(x, D), Half), Half) }", "D/2", "D/2/2");
    meet("pub fn f(x: f32[N, D]) -> f32[N, Half] { h(h(x, D), Half) }", "D/2", "D/2/2");
    meet("pub fn f(x: f32[N, E = 8]) -> f32[N, Half = 3] { h(x, E) + g(x, E) }", "3", "4");
    meet("pub fn f(x: f32[N, D = 6], p: &mut f32[Half = 4]) { p = sum(h(x, D), N); }", "4", "3");
    meet("pub fn f(x: f32[N, D = 6], y: f32[Half = 4]) -> f32[N] { sum(h(x, D) * y, Half) }", "4", "3");
}
