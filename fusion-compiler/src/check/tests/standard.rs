//! The standard library and the table: everything DESIGN names can be called.

use super::super::library;
use super::{graphs, text};
use crate::ir::ops::{Op, Typing};

/// The pointwise functions of the language that are no rows of the table.
const NAMES: &str = "relu leaky_relu elu selu gelu gelu_tanh silu mish sigmoid log_sigmoid softplus softsign
    hardswish hardsigmoid hardtanh square recip";

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
fn every_function_of_the_library_is_known_to_the_test() {
    for function in library::functions() {
        let name = &function.name.text;
        let args = ["x", "0.5", "0.75"];
        let needed = function.params.iter().filter(|param| param.default.is_none()).count();
        let source = format!("pub fn f(x: f32[N]) -> f32[N] {{ {name}({}) }}", args[..needed].join(", "));
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
            (Typing::Select, _) => "x > 0, x, 1",
            (_, 1) => "x",
            (_, 2) => "x, 2",
            (_, _) => "x, 2, 3",
        };
        let value = match info.typing {
            Typing::Test | Typing::Compare => format!("if {}({args}) {{ x }} else {{ 0 }}", info.name),
            Typing::Number | Typing::Float | Typing::Int | Typing::Bits | Typing::Select => {
                format!("{}({args})", info.name)
            }
        };
        let source = format!("pub fn f(x: f32[N]) -> f32[N] {{ {value} }}");
        assert!(graphs(&source).is_ok(), "{source}: {:?}", text(&source));
    }
}
