//! Sources without mistakes, and their graphs.

mod inline;

use std::str::FromStr;

use proc_macro2::{Ident, Span};

use super::super::{ElementType, ParamType, Source, front_end};
use super::{check, graphs, text};
use crate::ir::dtype::DType;
use crate::ir::graph::Access;
use crate::ir::plan::Target;

#[test]
fn operands_meet_by_name() {
    check(
        "pub fn f(x: f32[N, D], mu: f32[N], gamma: f32[D]) -> f32[N, D] { (x - mu) * gamma }",
        &[
            "fn f(x: f32[N, D], mu: f32[N], gamma: f32[D])",
            "%0: f32[N, D] = x",
            "%1: f32[N] = mu",
            "%2: f32[D] = gamma",
            "%3: f32[N, D] = sub %0, %1",
            "%4: f32[N, D] = mul %3, %2",
            "return[N, D] = %4",
        ],
    );
}

#[test]
fn names_in_any_script() {
    check(
        "pub fn t(été: f32[尺, Ñ]) -> f32[Ñ, 尺] { été }",
        &["fn t(été: f32[尺, Ñ])", "%0: f32[尺, Ñ] = été", "return[Ñ, 尺] = %0"],
    );
}

#[test]
fn a_transpose_is_an_order() {
    check(
        "pub fn t(x: f32[N, D]) -> f32[D, N] { x }",
        &["fn t(x: f32[N, D])", "%0: f32[N, D] = x", "return[D, N] = %0"],
    );
}

#[test]
fn weak_numbers_take_the_dtype_they_meet() {
    check(
        "pub fn f(x: f32[N], k: i32[N]) -> (f32[N], i32[N]) { let half = 1 / 2; (x * half + N, k + 3 - N) }",
        &[
            "fn f(x: f32[N], k: i32[N])",
            "%0: f32[N] = x",
            "%1: i32[N] = k",
            "%2: f32 = 1.0",
            "%3: f32 = 2.0",
            "%4: f32 = div %2, %3",
            "%5: f32[N] = mul %0, %4",
            "%6: f32 = extent N",
            "%7: f32[N] = add %5, %6",
            "%8: i32 = 3",
            "%9: i32[N] = add %1, %8",
            "%10: i32 = extent N",
            "%11: i32[N] = sub %9, %10",
            "return[N] = %7",
            "return[N] = %11",
        ],
    );
}

#[test]
fn results_are_the_same_along_dims_that_a_value_lacks() {
    check(
        "pub fn f(b: f32[C], a: f32, N: dim) -> (f32[N, C], f32[C, N], i32[N], f16[N], bool[C]) { (b, a, N, INF, true) }",
        &[
            "fn f(b: f32[C], a: f32, N: dim)",
            "%0: f32[C] = b",
            "%1: f32 = a",
            "%2: bool = true",
            "%3: f32[C, N] = broadcast %0",
            "%4: f32[C, N] = broadcast %1",
            "%5: i32 = extent N",
            "%6: i32[N] = broadcast %5",
            "%7: f16 = inf",
            "%8: f16[N] = broadcast %7",
            "%9: bool[C] = broadcast %2",
            "return[N, C] = %3",
            "return[C, N] = %4",
            "return[N] = %6",
            "return[N] = %8",
            "return[C] = %9",
        ],
    );
    check(
        "sum(x[N, C], C) => [C, N]",
        &[
            "fn inline(x: f32[N, C])",
            "%0: f32[N, C] = x",
            "%1: f32[N] = sum %0 over [C]",
            "%2: f32[N, C] = broadcast %1",
            "return[C, N] = %2",
        ],
    );
}

#[test]
fn in_place_parameters_are_written_once() {
    check(
        "pub fn step(p: &mut f32[N], m: &mut f32[N], g: f32[N], lr: f32) { m = m + g; p -= lr * m; }",
        &[
            "fn step(p: &mut f32[N], m: &mut f32[N], g: f32[N], lr: f32)",
            "%0: f32[N] = p",
            "%1: f32[N] = m",
            "%2: f32[N] = g",
            "%3: f32 = lr",
            "%4: f32[N] = add %1, %2",
            "%5: f32[N] = mul %3, %4",
            "%6: f32[N] = sub %0, %5",
            "p[N] = %6",
            "m[N] = %4",
        ],
    );
}

#[test]
fn every_operator_assigns() {
    let source = "pub fn f(p: &mut i32[N], k: i32) {
        p += k; p -= k; p *= k; p /= k; p %= k; p &= k; p |= k; p ^= k; p <<= k; p >>= k;
    }";
    let text = text(source).unwrap();
    for op in ["add", "sub", "mul", "div", "rem", "and", "or", "xor", "shl", "shr"] {
        assert!(text.contains(&format!("= {op} ")), "{op}: {text}");
    }
}

#[test]
fn parts_of_a_tuple_are_assigned_after_all_of_it_is_computed() {
    check(
        "pub fn exchange(p: &mut f32[N], q: &mut f32[N]) { (p, q, _) = (q, p, p); q += 1; }",
        &[
            "fn exchange(p: &mut f32[N], q: &mut f32[N])",
            "%0: f32[N] = p",
            "%1: f32[N] = q",
            "%2: f32 = 1.0",
            "%3: f32[N] = add %0, %2",
            "p[N] = %1",
            "q[N] = %3",
        ],
    );
    check(
        "fn both(p, b) { (p + b, p * b) }
        pub fn step(p: &mut f32[N], b: &mut f32[N], held: bool) {
            (p, b) = if held { (p, b) } else { both(p, b) };
        }",
        &[
            "fn step(p: &mut f32[N], b: &mut f32[N], held: bool)",
            "%0: f32[N] = p",
            "%1: f32[N] = b",
            "%2: bool = held",
            "%3: f32[N] = add %0, %1",
            "%4: f32[N] = mul %0, %1",
            "%5: f32[N] = select %2, %0, %3",
            "%6: f32[N] = select %2, %1, %4",
            "p[N] = %5",
            "b[N] = %6",
        ],
    );
}

#[test]
fn a_smaller_value_fills_an_in_place_parameter() {
    check(
        "pub fn fill(p: &mut f32[N, D], x: f32[D]) { p = x; }",
        &[
            "fn fill(p: &mut f32[N, D], x: f32[D])",
            "%0: f32[N, D] = p",
            "%1: f32[D] = x",
            "%2: f32[N, D] = broadcast %1",
            "p[N, D] = %2",
        ],
    );
}

#[test]
fn a_renamed_tensor_is_read_once_more() {
    check(
        "pub fn f(x: f32[N, T]) -> f32[N, T, S] { let y = exp(x); y - rename(y, T -> S) + y.rename(T -> S) }",
        &[
            "fn f(x: f32[N, T], x as [N, S = T])",
            "%0: f32[N, T] = x",
            "%1: f32[N, T] = exp %0",
            "%2: i32[S] = index S",
            "%3: f32[N, S] = x as [N, S = T]",
            "%4: f32[N, S] = exp %3",
            "%5: f32[N, T, S] = sub %1, %4",
            "%6: i32[S] = index S",
            "%7: f32[N, T, S] = add %5, %4",
            "return[N, T, S = T] = %7",
        ],
    );
}

/// An index operation on a renamed value reads the original value, and a costly value is stored once.
#[test]
fn a_renamed_value_is_one_at_another_place() {
    check(
        "pub fn f(x: f32[T], t: i32[N]) -> f32[N] { take(rename(exp(x), T -> S), S, t) }",
        &[
            "fn f(x: f32[T], t: i32[N])",
            "S within i32",
            "%0: f32[T] = x",
            "%1: i32[N] = t",
            "%2: f32[T] = exp %0",
            "%3: i32 = 0",
            "%4: i32 = extent T",
            "%5: bool[N] = ge %1, %3",
            "%6: bool[N] = lt %1, %4",
            "%7: bool[N] = and %5, %6",
            "%8: f32[N] = at %2, T = %1 where %7",
            "%9: f32 = NaN",
            "%10: f32[N] = select %7, %8, %9",
            "return[N] = %10",
        ],
    );
    check(
        "pub fn f(x: f32[N, K]) -> f32[N, M] { let y = sum(x, K); y - rename(y, N -> M) }",
        &[
            "fn f(x: f32[N, K])",
            "N within i32",
            "%0: f32[N, K] = x",
            "%1: f32[N] = sum %0 over [K]",
            "%2: i32[M] = index M",
            "%3: f32[M] = at %1, N = %2",
            "%4: f32[N, M] = sub %1, %3",
            "return[N, M = N] = %4",
        ],
    );
    // A renaming back to the original dim is a no-op.
    check(
        "pub fn f(x: f32[T]) -> f32[T] { x.rename(T -> S).rename(S -> R).rename(R -> T) }",
        &["fn f(x: f32[T])", "%0: f32[T] = x", "return[T] = %0"],
    );
}

#[test]
fn a_dim_that_is_split_is_its_parts_everywhere() {
    check(
        "pub fn f(x: f32[N, C], b: f32[C], H: dim) -> f32[C] {
             merge(sum(split(x, C -> (H, D)), N), (H, D) -> C) + b * index(C) as f32
         }",
        &[
            "fn f(x: f32[N, C], b: f32[C], H: dim, x as [N, H, D = C/H], b as [H, D = C/H])",
            "C is [H, D = C/H]",
            "C within i32",
            "%0: f32[N, H, D] = x as [N, H, D = C/H]",
            "%1: f32[H, D] = b as [H, D = C/H]",
            "%2: f32[H, D] = sum %0 over [N]",
            "%3: i32[H] = index H",
            "%4: i32 = extent C/H",
            "%5: i32[H] = mul %3, %4",
            "%6: i32[D] = index D",
            "%7: i32[H, D] = add %5, %6",
            "%8: f32[H, D] = cast %7",
            "%9: f32[H, D] = mul %1, %8",
            "%10: f32[H, D] = add %2, %9",
            "return[C] = %10",
        ],
    );
}

#[test]
fn fixed_axes_reduce() {
    check(
        "pub fn luma(x: f32[H, W, 3], w: f32[3]) -> f32[H, W] { sum(x * w, 3) }",
        &[
            "fn luma(x: f32[H, W, 3], w: f32[3])",
            "%0: f32[H, W, 3] = x",
            "%1: f32[3] = w",
            "%2: f32[H, W, 3] = mul %0, %1",
            "%3: f32[H, W] = sum %2 over [3]",
            "return[H, W] = %3",
        ],
    );
    check(
        "pub fn f(x: f32[N, C = 4]) -> f32[N] { mean(x, C) + max(x, C) + at(x, C, 3) * rsqrt(C) }",
        &[
            "fn f(x: f32[N, C = 4])",
            "%0: f32[N, C] = x",
            "%1: f32[N] = sum %0 over [C]",
            "%2: f32 = 4.0",
            "%3: f32[N] = div %1, %2",
            "%4: f32[N] = max %0 over [C]",
            "%5: f32[N] = add %3, %4",
            "%6: i32 = 3",
            "%7: f32[N] = at %0, C = %6",
            "%8: f32 = 4.0",
            "%9: f32 = rsqrt %8",
            "%10: f32[N] = mul %7, %9",
            "%11: f32[N] = add %5, %10",
            "return[N] = %11",
        ],
    );
}

#[test]
fn masks_come_from_coordinates() {
    check(
        "pub fn causal(s: f32[T, S]) -> f32[T, S] { if index(S) <= index(T) { s } else { -INF } }",
        &[
            "fn causal(s: f32[T, S])",
            "S within i32",
            "T within i32",
            "%0: f32[T, S] = s",
            "%1: i32[S] = index S",
            "%2: i32[T] = index T",
            "%3: bool[T, S] = le %1, %2",
            "%4: f32 = -inf",
            "%5: f32[T, S] = select %3, %0, %4",
            "return[T, S] = %5",
        ],
    );
}

#[test]
fn templates_are_typed_at_each_call() {
    check(
        "fn axpb(x, a = 2, b = 0.5) { let (p, q) = twice(x); p * a + b * q }
         fn twice(x) { (x, x + x) }
         pub fn f(x: f32[N]) -> f32[N] { x.axpb(b = 0.25) }",
        &[
            "fn f(x: f32[N])",
            "%0: f32[N] = x",
            "%1: f32[N] = add %0, %0",
            "%2: f32 = 2.0",
            "%3: f32[N] = mul %0, %2",
            "%4: f32 = 0.25",
            "%5: f32[N] = mul %4, %1",
            "%6: f32[N] = add %3, %5",
            "return[N] = %6",
        ],
    );
}

#[test]
fn what_is_not_wanted_of_a_tuple_is_not_named() {
    check(
        "fn three(x) { (x, x + x, x * x) } pub fn f(x: f32[N]) -> f32[N] { let (_, y, _) = three(x); let _ = y; y }",
        &[
            "fn f(x: f32[N])",
            "%0: f32[N] = x",
            "%1: f32[N] = add %0, %0",
            "%2: f32[N] = mul %0, %0",
            "return[N] = %1",
        ],
    );
}

#[test]
fn dims_go_into_templates_and_typed_functions_bind_by_name() {
    let both = "fn scaled(x, D: dim) { x * rsqrt(D) + index(D) as f32 }
        pub fn g(x: f32[N, D]) -> f32[N, D] { scaled(x, D) }
        pub fn f(y: f32[D, N], H: dim) -> f32[D, N] { g(y) * H }";
    let text = text(both).unwrap();
    assert!(text.contains("fn f(y: f32[D, N], H: dim)"), "{text}");
    assert!(text.contains("index D") && text.contains("extent H"), "{text}");
    assert_eq!(graphs(both).unwrap()[1].symbols, ["D", "N", "H"]);
}

#[test]
fn templates_with_some_types_bind_by_name() {
    check(
        "fn g(x: f32[N], k, eps: f32 = 0.5) { x * k + eps } pub fn f(x: f32[N]) -> f32[N] { g(x, 2) }",
        &[
            "fn f(x: f32[N])",
            "%0: f32[N] = x",
            "%1: f32 = 2.0",
            "%2: f32[N] = mul %0, %1",
            "%3: f32 = 0.5",
            "%4: f32[N] = add %2, %3",
            "return[N] = %4",
        ],
    );
}

/// Dims of one name meet as one, and each call checks their extents, as if one function had made both.
#[test]
fn dims_of_templates_meet_dims_of_the_same_name() {
    let halves =
        "fn h(x, D: dim) { slice(x, D -> Half, ..D / 2) } fn g(x, D: dim) { slice(x, D -> Half, D / 2..) }";
    let sums = |rest: &str| {
        let text = text(&format!("{halves} {rest}")).unwrap_or_else(|errors| panic!("{rest}\n{errors}"));
        let sums = text.lines().map(str::trim).filter(|line| line.starts_with("D ") && line.contains("Half"));
        sums.map(String::from).collect::<Vec<_>>()
    };
    let one = sums(
        "pub fn f(x: f32[N, D]) -> f32[N, Half] { slice(x, D -> Half, ..D / 2) * slice(x, D -> Half, D / 2..) }",
    );
    let two = sums("pub fn f(x: f32[N, D]) -> f32[N, Half] { h(x, D) * g(x, D) }");
    assert!(one.iter().all(|sum| two.contains(sum)), "{one:?} {two:?}");
    let one = sums("pub fn f(x: f32[N, D], Half: dim) -> f32[N, Half] { slice(x, D -> Half, ..D / 2) }");
    let two = sums("pub fn f(x: f32[N, D], Half: dim) -> f32[N, Half] { h(x, D) }");
    assert!(one.iter().all(|sum| two.contains(sum)), "{one:?} {two:?}");
    for rest in [
        "pub fn f(x: f32[N, D]) -> f32[N, D] { concat((-g(x, D), Half), (h(x, D), Half) -> D) }",
        "pub fn f(x: f32[N, D]) -> f32[N, Half = 3] { h(x, D) }",
        "pub fn f(x: f32[N, D], w: f32[Half]) -> f32[N] { sum(h(x, D) * w, Half) }",
        "pub fn f(x: f32[N, D], Half: dim) -> f32[N] { sum(softmax(h(x, D), Half), Half) }",
        "pub fn f(x: f32[N, D], p: &mut f32[Half]) { p = sum(h(x, D), N); }",
    ] {
        assert!(!sums(rest).is_empty(), "{rest}");
    }
    // Dims that never meet stay two.
    let apart = sums("pub fn f(x: f32[D], y: f32[E]) -> f32[] { sum(h(x, D)) * sum(h(y, E)) }");
    assert_eq!(apart.len(), 1, "{apart:?}");
}

/// A call of a typed function makes the dims that its body makes.
#[test]
fn typed_functions_give_the_dims_of_their_results() {
    for visibility in ["", "pub "] {
        let half =
            format!("{visibility}fn h(x: f32[N, D]) -> f32[N, Half] {{ slice(x, D -> Half, ..D / 2) }}");
        for rest in [
            "pub fn f(x: f32[N, D]) -> f32[N, Half] { h(x) * h(-x) }",
            "pub fn f(x: f32[N, D]) -> f32[N] { sum(h(x), Half) }",
            "fn t(x) { h(x) } pub fn f(x: f32[N, D]) -> f32[N, Half] { t(x) }",
        ] {
            let source = format!("{half} {rest}");
            assert!(graphs(&source).is_ok(), "{source}: {:?}", text(&source));
        }
    }
}

#[test]
fn integers_and_bits() {
    check(
        "pub fn f(x: u32[N], on: bool) -> i32[N] { if on && !(x & 1 == 0) { (x >> 2) as i32 } else { -1 } }",
        &[
            "fn f(x: u32[N], on: bool)",
            "%0: u32[N] = x",
            "%1: bool = on",
            "%2: u32 = 1",
            "%3: u32[N] = and %0, %2",
            "%4: u32 = 0",
            "%5: bool[N] = eq %3, %4",
            "%6: bool[N] = not %5",
            "%7: bool[N] = and %1, %6",
            "%8: u32 = 2",
            "%9: u32[N] = shr %0, %8",
            "%10: i32[N] = cast %9",
            "%11: i32 = -1",
            "%12: i32[N] = select %7, %10, %11",
            "return[N] = %12",
        ],
    );
}

#[test]
fn scalars_and_names_of_the_user_shadow() {
    let source = "#[fuse(off)] /// doc
        #[must_use]
        pub(crate) fn f(x: f32[], _unused: f32) -> f32[] { relu(x) }
        fn relu(x) { x + 1 }";
    let tokens = proc_macro2::TokenStream::from_str(source).unwrap();
    let Ok(Source::Items(functions, _)) = front_end(tokens) else { panic!("refused") };
    let [function] = functions.as_slice() else { panic!("{} functions", functions.len()) };
    assert!(function.graph.to_string().starts_with("#[fuse(off)]\nfn f(x: f32[], _unused: f32)"));
    assert!(function.graph.to_string().contains("add"));
    let signature = &function.signature;
    assert_eq!(signature.attributes.to_string(), "# [doc = \" doc\"] # [must_use]");
    assert_eq!(signature.visibility.to_string(), "pub (crate)");
    assert_eq!(signature.params.iter().map(ToString::to_string).collect::<Vec<_>>(), ["x", "_unused"]);
    assert_eq!(function.options.targets.len(), 3);
}

#[test]
fn a_number_compares_where_the_value_has_no_such_dim() {
    check(
        "pub fn f(y: f32[N], _x: f32[N, 3]) -> f32[N] { max(y, 3) }",
        &[
            "fn f(y: f32[N], _x: f32[N, 3])",
            "%0: f32[N] = y",
            "%1: f32[N, 3] = _x",
            "%2: f32 = 3.0",
            "%3: f32[N] = max %0, %2",
            "return[N] = %3",
        ],
    );
}

#[test]
fn functions_with_mistakes_leave_stubs() {
    let source = "pub fn f(x: f32[N], p: &mut i32[N], lr: f32, H: dim) -> (f32[N], u32[]) { nothing }
        pub fn f() -> f32[] { 1.0 } fn template(x) { x }";
    let failure = front_end(proc_macro2::TokenStream::from_str(source).unwrap()).unwrap_err();
    let [stub] = failure.stubs.as_slice() else { panic!("{} stubs", failure.stubs.len()) };
    let params = [
        ParamType::Tensor(ElementType::Is(DType::F32), Access::Read),
        ParamType::Tensor(ElementType::Is(DType::I32), Access::ReadWrite),
        ParamType::Scalar(ElementType::Is(DType::F32)),
        ParamType::Dim,
    ];
    assert_eq!(
        (stub.types.as_slice(), stub.results.as_slice()),
        (&params[..], &[DType::F32, DType::U32].map(ElementType::Is)[..])
    );
    assert_eq!(stub.name, "f");
}

#[test]
fn raw_names_are_the_same_names() {
    check(
        "pub fn r#match(r#type: f32[N], r#x: f32[N]) -> f32[N] { r#type + x }",
        &[
            "fn match(type: f32[N], x: f32[N])",
            "%0: f32[N] = type",
            "%1: f32[N] = x",
            "%2: f32[N] = add %0, %1",
            "return[N] = %2",
        ],
    );
}

#[test]
fn a_tuple_of_one_is_a_tuple() {
    check(
        "pub fn f(x: f32[N]) -> (f32[N],) { let (y,) = g(x); (y + 1,) } fn g(x: f32[N]) -> (f32[N],) { (x,) }",
        &["fn f(x: f32[N])", "%0: f32[N] = x", "%1: f32 = 1.0", "%2: f32[N] = add %0, %1", "return[N] = %2"],
    );
    check(
        "pub fn f(x: f32[N]) -> (f32[N]) { x + eps() } fn eps() { 1e-5 }",
        &["fn f(x: f32[N])", "%0: f32[N] = x", "%1: f32 = 1e-5", "%2: f32[N] = add %0, %1", "return[N] = %2"],
    );
}

#[test]
fn numbers_and_dims_have_methods() {
    for body in ["PI.max(x)", "E.pow(x)", "INF.min(x)", "N.max(x)", "2.0.max(x)", "half().max(x)"] {
        let source =
            format!("fn half() {{ 0.5 * E.pow(1.0) }} pub fn f(x: f32[N]) -> f32[N] {{ {body} + half() }}");
        assert_eq!(graphs(&source).unwrap().len(), 1, "{source}");
    }
}

#[test]
fn every_visibility_of_rust_exports() {
    for visibility in ["pub", "pub(crate)", "pub(super)", "pub(self)", "pub(in crate::kernels)"] {
        let source = format!("{visibility} fn f(x: f32[N]) -> f32[N] {{ x }}");
        assert_eq!(graphs(&source).unwrap().len(), 1, "{source}");
    }
}

/// Sums are longer than the stack is deep, so traversals must not recurse.
#[test]
fn long_sums_compile() {
    let terms: Vec<&str> = (0..5000).map(|i| ["a", "b * b", "c"][i % 3]).collect();
    let source = format!("pub fn f(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] {{ {} }}", terms.join(" + "));
    assert_eq!(graphs(&source).unwrap()[0].nodes.len(), 3 + 1667 + 4999);
    let runtime = Ident::new("fusion", Span::call_site());
    let text = crate::expand(&runtime, source.parse().unwrap(), &Target::ALL).tokens.to_string();
    assert!(text.contains("pub fn f"), "{}", &text[..200]);
    let lets: String = (1..5000).map(|i| format!("let x{i} = x{} + a;", i - 1)).collect();
    let source = format!("pub fn f(a: f32[N]) -> f32[N] {{ let x0 = a; {lets} x4999 }}");
    let text = crate::expand(&runtime, source.parse().unwrap(), &Target::ALL).tokens.to_string();
    assert!(text.contains("pub fn f"), "{}", &text[..200]);
}

/// The emitted kernels are for the build's targets, or for the requested ones if the function could not run
/// otherwise.
#[test]
fn kernels_are_of_targets_that_are_built_for() {
    let made = |source: &str, built: &[Target]| {
        let runtime = Ident::new("fusion", Span::call_site());
        let dumps = crate::expand(&runtime, source.parse().unwrap(), built).dumps();
        ["ptx", "wgsl", "rs"].map(|end| dumps.iter().any(|(name, _)| name.ends_with(&format!(".{end}"))))
    };
    let any = "pub fn f(x: f32[N]) -> f32[N] { x + 1.0 }";
    assert_eq!(made(any, &Target::ALL), [true, true, true]);
    assert_eq!(made(any, &[Target::Wgsl, Target::Cpu]), [false, true, true]);
    assert_eq!(made(any, &[Target::Cpu]), [false, false, true]);
    let some = format!("#[fuse(targets(ptx, wgsl))] {any}");
    assert_eq!(made(&some, &[Target::Wgsl, Target::Cpu]), [false, true, false]);
    assert_eq!(made(&some, &[Target::Cpu]), [true, true, false]);
    // WGSL has no f64.
    let wide = some.replace("f32", "f64");
    assert_eq!(made(&wide, &[Target::Wgsl, Target::Cpu]), [true, false, false]);
}
