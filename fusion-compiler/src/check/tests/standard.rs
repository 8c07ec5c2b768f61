//! Tests that every documented function of the standard library and the op table can be called.

use super::super::library;
use super::diagnostics::refused;
use super::{graphs, text};
use crate::ir::op::{Op, Typing};
use crate::parse::ast::{Param, ParamKind};

/// Pointwise functions of the language that are not in the op table.
const NAMES: &str = "relu leaky_relu elu selu gelu gelu_tanh silu mish sigmoid log_sigmoid softplus softsign
    hardswish hardsigmoid hardtanh square recip";

/// Functions along a dim.
const ALONG: &str =
    "sum mean prod max min var std logsumexp norm softmax log_softmax layer_norm rms_norm batch_norm";

#[test]
fn every_function_checks_on_a_tensor() {
    for name in NAMES.split_whitespace().chain(["tanh", "isnan", "pow", "clamp", "lerp"]) {
        let args = match name {
            "clamp" | "lerp" => "x, 0.25, 0.5",
            "pow" => "x, 2",
            _ => "x",
        };
        let value =
            if name == "isnan" { "if isnan(x) { 1.0 } else { x }".into() } else { format!("{name}({args})") };
        let source = format!("pub fn f(x: f32[N]) -> f32[N] {{ {value} }}");
        assert_eq!(graphs(&source).map(|graphs| graphs.len()), Ok(1), "{source}");
    }
}

#[test]
fn every_function_checks_along_dims() {
    for name in ALONG.split_whitespace() {
        for dims in ["D", "(D, N)"] {
            let source = format!("pub fn f(x: f32[N, D]) -> f32[N, D] {{ x - {name}(x, {dims}) }}");
            assert_eq!(graphs(&source).map(|graphs| graphs.len()), Ok(1), "{source}");
        }
    }
}

#[test]
fn every_function_of_the_library_is_known_to_the_test() {
    for function in library::functions() {
        let name = &function.name.text;
        let arg = |(i, param): (usize, &Param)| match (&param.kind, param.name.text.as_str()) {
            (ParamKind::Dim, "G" | "P") => "G",
            (ParamKind::Dim, "D") if name == "group_norm" => "N",
            (ParamKind::Dim, _) => "D",
            (_, "G") => "4",
            (_, "targets") => "k",
            (_, "mask") => "x < 1.0",
            _ if i == 0 && matches!(name.as_str(), "any" | "all") => "x > 0",
            _ if i == 0 => "x",
            _ if name == "matmul" => "at(x, N, 0)",
            _ => "0.5",
        };
        let needed = function.params.iter().filter(|param| param.default.is_none());
        let args: Vec<&str> = needed.enumerate().map(arg).collect();
        let value = format!("{{ let _ = {name}({}); x * k as f32 }}", args.join(", "));
        let source = format!("pub fn f(x: f32[N, D], k: i32[N], _g: f32[G]) -> f32[N, D] {value}");
        assert!(graphs(&source).is_ok(), "{name}: {:?}", text(&source));
    }
}

#[test]
fn every_named_operation_can_be_called() {
    for op in Op::ALL {
        let info = op.info();
        if info.name.is_empty() {
            continue;
        }
        let args = match (info.typing, info.arity) {
            (Typing::Decode, _) => "x as u32",
            (Typing::Select, _) => "x > 0, x, 1",
            (_, 1) => "x",
            (_, 2) => "x, 2",
            (_, _) => "x, 2, 3",
        };
        let value = match info.typing {
            Typing::Test | Typing::Compare => format!("if {}({args}) {{ x }} else {{ 0 }}", info.name),
            Typing::ToBits => format!("{}({args}) as f32", info.name),
            Typing::Number | Typing::Float | Typing::Int | Typing::Bits | Typing::Select | Typing::Decode => {
                format!("{}({args})", info.name)
            }
            Typing::Encode | Typing::Double => unreachable!("these have no names"),
        };
        let source = format!("pub fn f(x: f32[N]) -> f32[N] {{ {value} }}");
        assert!(graphs(&source).is_ok(), "{source}: {:?}", text(&source));
    }
}

#[test]
fn groups_go_by_a_number_inline() {
    let source = "group_norm(x[N, C, H], C, 2, H) + argmax(x[N, C, H]) as f32";
    assert_eq!(graphs(source).map(|graphs| graphs[0].splits.len()), Ok(1), "{:?}", text(source));
}

#[test]
fn products_of_8_bit_integers_are_wide() {
    for (left, right, sum) in [
        ("i8", "u8", "i32"),
        ("u8", "i32", "i32"),
        ("i16", "u16", "i32"),
        ("u16", "u16", "u32"),
        ("f16", "bf16", "f32"),
        ("f64", "f64", "f64"),
    ] {
        let source =
            |body: &str| format!("pub fn f(x: {left}[M, K], w: {right}[K, N]) -> {sum}[M, N] {{ {body} }}");
        let wide = |of: &str, dtype: &str| {
            let is_int = dtype.starts_with(['i', 'u']) && !dtype.ends_with("32");
            if is_int { format!("{of} as {sum}") } else { String::from(of) }
        };
        let graph = |source: String| graphs(&source).map(|graphs| graphs[0].to_string());
        let product = graph(source(&format!("sum({} * {}, K)", wide("x", left), wide("w", right))));
        assert_eq!(graph(source("matmul(x, w, K)")), product, "{left} {right}");
    }
    let source = |params: &str, args: &str| format!("pub fn f({params}) -> f32[M, N] {{ matmul({args}) }}");
    let note = "note: in this call of `matmul`";
    for (params, message) in [
        ("x: u8[M, K], w: u32[K, N]", "the arguments mix u8 and u32: cast one of them, like `… as u8`"),
        ("x: f32[M, K], w: i8[K, N]", "the arguments mix f32 and i8: cast one of them, like `… as f32`"),
    ] {
        refused(&source(params, "x, w, K"), &[message, note]);
    }
}

/// A mistake in a library call is reported once, in terms of the caller's names.
#[test]
fn groups_have_equally_many_elements() {
    let source = |params: &str, args: &str| {
        format!("pub fn f(x: f32[N, C = 6], {params}) -> f32[N, C] {{ group_norm(x, {args}) }}")
    };
    let uneven = |groups: &str| {
        format!(
            "`group_norm` makes {groups} groups of `C`, which has 6 elements: groups have equally many, \
             so take 1, 2, 3 or 6 of them"
        )
    };
    let note = "note: in this call of `group_norm`";
    for (params, args, groups) in [
        ("", "C, 4", "4"),
        ("", "C, 4, N", "4"),
        ("", "C, 0", "0"),
        ("_w: f32[Four = 4]", "C, Four", "4"),
        ("_w: f32[4]", "C, 4, N", "4"),
    ] {
        refused(&source(params, args), &[&uneven(groups), note]);
    }
    let twice = "`group_norm` is given the dim `C` twice";
    for args in ["C, C", "C, 2, C", "C, 2, (N, C)"] {
        refused(&source("", args), &[twice]);
    }
    let one = "`group_norm` goes along one dim, and this stands for [N, C]: name one dim";
    refused(&source("", "(N, C), 2"), &[one, note]);
    // A user may also use the name that the library has for the elements of a group.
    let own = "pub fn f(x: f32[N, InGroup = 6]) -> f32[N, InGroup] { group_norm(x, InGroup, 2) }";
    assert!(graphs(own).is_ok(), "{:?}", text(own));
}
