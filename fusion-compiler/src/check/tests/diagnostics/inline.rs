//! Messages of the inline form.

use super::refused;

#[test]
fn inline() {
    refused(
        "a[N] * b[M]",
        &["no tensor here has all dims of the result: \
              if all of [N, M] are meant, say so by ending with `=> [N, M]`"],
    );
    refused("a[N] * b", &["other tensors here have dims, `b` has none: write `b[N]`"]);
    refused(
        "a[N] * a[M]",
        &["`a` has dims [N] and dims [M]: one name is one tensor with its dims in one order, \
              and `{&a}[M]` is the same tensor once more"],
    );
    refused("sum(a, D)", &["`sum` needs dims, and the tensors here have none: name them, like `a[N, D]`"]);
    refused(
        "let x = 3; x",
        &["the inline form is one expression: write a `fn` in `fuse! { … }` to use statements"],
    );
    refused("(a, b)", &["the inline form has one result: write a `fn` in `fuse! { … }` to have several"]);
    refused(
        "scalar(3.0)",
        &["no tensor is named here: write an expression over tensors, like `fuse!(relu(a + b) * c)`"],
    );
    refused("a as i32", &["the result of the inline form is `f32`, this is i32: write `… as f32`"]);
    refused("i32: a as f32", &["the result of the inline form is `i32`, this is f32: write `… as i32`"]);
    refused("u32: a > 1", &["the result of the inline form is `u32`, this is bool: write `… as u32`"]);
    refused("i8: a as f16", &["the result of the inline form is `i8`, this is f16: write `… as i8`"]);
}

#[test]
fn rust_in_the_inline_form_stands_in_braces() {
    let list = |rust: &str| {
        format!(
            "brackets hold dims, like `[N, D]`: an element of a list is Rust, which stands in braces, `{rust}`"
        )
    };
    for (source, rust) in [
        ("xs[0] + y", "{xs[0]}"),
        ("s.v[0]", "{s.v[0]}"),
        ("xs[i + 1][N]", "{xs[…]}"),
        ("xs[1 + i]", "{xs[…]}"),
        ("xs[&key]", "{xs[…]}"),
        ("xs[..2]", "{xs[…]}"),
    ] {
        refused(source, &[&list(rust)]);
    }
    refused(
        "xs[i]",
        &["the name of a dim starts with an uppercase letter: write `I` for `i`, \
              or `{xs[i]}` for an element of a list"],
    );
    refused("xs[n, d]", &["the name of a dim starts with an uppercase letter: write `N` for `n`"]);
    refused(
        "xs[1] + y",
        &[
            "`xs[1]` is a tensor with one dim, and `y` has none: write `y[1]`, or `{xs[1]}` for an element of a list",
        ],
    );
    let method = |name: &str, rust: &str| {
        format!("there is no function `{name}`: a method of Rust is called in braces, `{rust}`")
    };
    refused("x.clone() + y", &[&method("clone", "{x.clone()}")]);
    refused("self.bias() * x", &[&method("bias", "{self.bias()}")]);
    refused("a[N, D].to(device)", &[&method("to", "{a.to(…)}[N, D]")]);
    refused("relu(a).to(device)", &[&method("to", "{….to(…)}")]);
    refused("a.rleu()", &["there is no function `rleu`: did you mean `relu`?"]);
    refused(
        "relu(load(a))",
        &["there is no function `load`: one of Rust is called in braces, `{load(…)}`, \
              or in `scalar(…)` for a number"],
    );
    refused(
        "a.layers[2].bias[N] + b",
        &["values have no fields: an expression of Rust stands in braces, `{….bias}`"],
    );
}
