//! Messages about dtypes that do not meet, and about generics.

use super::diagnostics::refused;
use super::text;

#[test]
fn dtypes() {
    refused(
        "pub fn f(x: f32[N], k: i32[N]) -> f32[N] { x + k }",
        &["`+` mixes f32 and i32: write `k as f32`"],
    );
    refused(
        "fn g(a) { exp(a) } pub fn f(k: i32[N]) -> f32[N] { g(k) }",
        &["`exp` takes floats, this is i32: write `… as f32`", "note: at `exp` in `g`, as it is called here"],
    );
    refused(
        "pub fn f(k: i32[N]) -> f32[N] { sigmoid(k) }",
        &["`sigmoid` takes floats, this is i32: write `… as f32`", "note: in this call of `sigmoid`"],
    );
    refused(
        "pub fn f(x: i32[N]) -> i32[N] { x + 1.5 }",
        &["a number with a point meets `i32`: write a whole number, or cast the other side `as f32`"],
    );
    refused(
        "pub fn f(x: i32[N]) -> i32[N] { x + 3000000000 }",
        &["`3000000000` does not fit in `i32`: it holds -2147483648 to 2147483647"],
    );
    refused(
        "pub fn f(x: u32[N]) -> u32[N] { x + -1 }",
        &["`-1` does not fit in `u32`: it holds 0 to 4294967295"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { x * (x as bool) }",
        &["a number does not cast to `bool`: write `x != 0`"],
    );
    refused(
        "pub fn f(x: f32[N]) -> f32[N] { if x { 1 } else { 2 } }",
        &["`if` takes `bool`, this is f32: compare it, like `x != 0`"],
    );
    refused(
        "pub fn f(x: f16[N]) -> u32[N] { to_bits(x) }",
        &["`to_bits` takes `f32`, this is f16: write `… as f32`"],
    );
    refused(
        "pub fn f(x: i32[N]) -> f32[N] { from_bits(x) + from_bits(0.5) }",
        &[
            "`from_bits` takes `u32`, this is i32: write `… as u32`",
            "`from_bits` takes `u32`, this is f32: write `… as u32`",
        ],
    );
    refused("pub fn f(x: f32[N]) -> f32[N] { x & x }", &["`&` takes integers or `bool`, this is f32"]);
    refused(
        "pub fn f(x: f32[N], c: bool) -> f32[N] { if c < c { x } else { x } }",
        &["`bool` values have no order: only `==` and `!=` compare them"],
    );
    refused(
        "pub fn g(x: f31[N]) -> f32[N] { x }",
        &["there is no dtype `f31`: did you mean `f32`? \
            (there are `f32`, `f16`, `bf16`, `f64`, `i32`, `u32`, `i16`, `u16`, `i8`, `u8` and `bool`)"],
    );
    refused(
        "#[fuse(targets(wgsl))] pub fn f(x: f64[N]) -> f64[N] { x + 1 }",
        &["`f` can run on none of its targets: wgsl has no f64; add `cpu` to them"],
    );
    refused("pub fn f(x: u8[N]) -> u8[N] { x + 256 }", &["`256` does not fit in `u8`: it holds 0 to 255"]);
    refused(
        "pub fn f(x: f64[N], y: f32[N]) -> f64[N] { x + y }",
        &["`+` mixes f64 and f32: write `y as f64`"],
    );
    refused("pub fn f(x: f16[N], k: i8[N]) -> f16[N] { x * k }", &["`*` mixes f16 and i8: write `k as f16`"]);
}

#[test]
fn generics_and_literals() {
    refused(
        "pub fn f(x: f64[N]) -> f64[N] { x * 1e400 }",
        &["no type holds as large a number: `INF` is the infinity"],
    );
    refused(
        "pub fn f<f32>(x: f32[N]) -> f32[N] { x }",
        &["`f32` is a dtype: give the generic another name, like `T`"],
    );
    refused(
        "pub fn f(x: u16[N]) -> u16[N] { x + 65536 }",
        &["`65536` does not fit in `u16`: it holds 0 to 65535"],
    );
    refused("pub fn f(x: i8[N], y: i16[N]) -> i16[N] { x + y }", &["`+` mixes i8 and i16: write `x as i16`"]);
    refused("pub fn f(x: i16[N], y: u8[N]) -> i16[N] { x + y }", &["`+` mixes i16 and u8: write `y as i16`"]);
    refused(
        "pub fn f(x: i16[N], y: u16[N]) -> i16[N] { x + y }",
        &["`+` mixes i16 and u16: write `y as i16`"],
    );
    refused("pub fn f(x: i8[N], y: i32[N]) -> i32[N] { x + y }", &["`+` mixes i8 and i32: write `x as i32`"]);
    refused(
        "pub fn f(x: bool[A], y: i32[B]) -> bool[D] { concat((x, A), (y, B) -> D) }",
        &["`concat` mixes a number and a `bool`: compare the number (`x != 0`), or pick one with `if`"],
    );
}

#[test]
fn generics() {
    refused(
        "pub fn f<E>(x: f32[N]) -> f32[N] { x }",
        &["no parameter and no result is of `E`: use it, like `x: E[N]`, or leave it out"],
    );
    refused(
        "pub fn f<E, F>(x: E[N], y: F[N]) -> E[N] { x + y }",
        &["a function is generic over one type of elements: write the dtype of the others"],
    );
    // Three instances of the generic function give only one message.
    refused(
        "pub fn f<E>(x: E[N]) -> E[N] { rleu(x) }",
        &["there is no function `rleu`: did you mean `relu`?"],
    );
    refused(
        "pub fn f<E>(x: E[N], k: i32[N]) -> E[N] { x + k }",
        &["`+` mixes f32 and i32: write `k as f32`"],
    );
    refused(
        "fn g<E>(x: E[N]) -> E[N] { x } pub fn f(k: i32[N]) -> i32[N] { g(k) }",
        &["the parameter `x` of `g` is f32, this is i32: write `… as f32`"],
    );
}

/// Casts convert weak integers directly, because an intermediate dtype might overflow.
#[test]
fn whole_numbers_become_u32_at_once() {
    let graph = text("pub fn f(x: u32[N]) -> u32[N] { x + 3000000000 as u32 + N as u32 }").unwrap();
    assert!(graph.contains("3000000000") && !graph.contains("cast"), "{graph}");
    let graph = text("pub fn f(x: u32[N]) -> u32[N] { x + -1 as u32 + (N - 1) as u32 }").unwrap();
    assert_eq!(graph.matches("cast").count(), 2, "{graph}");
    refused(
        "pub fn f(x: u32[N]) -> u32[N] { x + 5000000000 as u32 }",
        &["`5000000000` does not fit in `u32`: it holds 0 to 4294967295"],
    );
}
