//! Accepted inline forms, with their captures.

use std::str::FromStr;

use super::super::super::{Source, front_end};
use super::check;

/// Returns the captures of an inline source, its `any_shape` flag and its graph.
fn inline(source: &str) -> (Vec<String>, bool, String) {
    let tokens = proc_macro2::TokenStream::from_str(source).unwrap();
    match front_end(tokens) {
        Ok(Source::Inline(inline)) => {
            let captures = inline.captures.iter().map(ToString::to_string).collect();
            (captures, inline.graph.any_shape, inline.graph.to_string())
        }
        Ok(Source::Items(_, _)) => panic!("{source}: items"),
        Err(failure) => panic!("{source}: {}", failure.errors.messages().collect::<Vec<_>>().join("\n")),
    }
}

#[test]
fn inline_without_dims() {
    let (captures, any_shape, text) = inline("relu(a + self.b.0) * a + {make(1)} * scalar(1.0 / t)");
    assert_eq!(captures, ["a", "self . b . 0", "make (1)", "1.0 / t"]);
    assert!(any_shape);
    let source = "relu(a + b) * c";
    check(
        source,
        &[
            "fn inline(a: f32[elements], b: f32[elements], c: f32[elements])",
            "%0: f32[elements] = a",
            "%1: f32[elements] = b",
            "%2: f32[elements] = add %0, %1",
            "%3: f32 = 0.0",
            "%4: bool[elements] = lt %2, %3",
            "%5: f32 = 0.0",
            "%6: f32[elements] = select %4, %5, %2",
            "%7: f32[elements] = c",
            "%8: f32[elements] = mul %6, %7",
            "return[elements] = %8",
        ],
    );
    assert!(text.contains("self.b.0: f32[elements]"), "{text}");
}

#[test]
fn captured_blocks_and_a_trailing_comma() {
    let (captures, _, _) = inline("a * {let b = make(); b},");
    assert_eq!(captures, ["a", "{ let b = make () ; b }"]);
}

#[test]
fn inline_with_dims() {
    let (captures, any_shape, text) = inline("f32: gelu(x[N, D] + self.bias[D]) * x[N, D] * rsqrt(D)");
    assert_eq!(captures, ["x", "self . bias"]);
    assert!(!any_shape && text.contains("return[N, D]"), "{text}");
    let (_, _, text) = inline("bias[D] + x[N, D]");
    assert!(text.contains("return[N, D]"), "{text}");
    let (_, _, text) = inline("u[N] * v[M] => [M, N]");
    assert!(text.contains("return[M, N]"), "{text}");
    let (captures, _, text) = inline("sum({frame.pixels()}[H, W, 3] * w[3], 3)");
    assert_eq!(captures, ["frame . pixels ()", "w"]);
    assert!(text.contains("return[H, W]"), "{text}");
    let (_, _, text) = inline("if m[N] > 0 { x[N] } else { 0.0 }");
    assert!(text.contains("select"), "{text}");
}

#[test]
fn expressions_passed_on_by_a_macro_are_captured_with_their_dims() {
    let tokens = proc_macro2::TokenStream::from_str("self.bias").unwrap();
    let passed = proc_macro2::Group::new(proc_macro2::Delimiter::None, tokens);
    let Ok(Source::Inline(inline)) = front_end(quote::quote!(x[N, D] + #passed[D] * self.bias[D])) else {
        panic!("refused")
    };
    let captures: Vec<String> = inline.captures.iter().map(ToString::to_string).collect();
    assert_eq!(captures, ["x", "self . bias"]);
}
