use std::str::FromStr;

use proc_macro2::{Span, TokenStream};
use syn::buffer::TokenBuffer;

use crate::parse::ast::{Block, Expr, ExprKind, Unary};
use crate::parse::tokens::{Parsed, Parser, Sink};

/// Parses an expression that fills its group.
fn whole(parser: &mut Parser<'_, '_>) -> Parsed<Expr> {
    let value = super::expr(parser)?;
    if parser.at_end() { Ok(value) } else { Err(parser.error_expected("an operator or `)`")) }
}

/// Returns the tree in prefix form.
fn tree(expr: &Expr) -> String {
    let list = |head: &str, parts: &[&Expr]| {
        let parts: Vec<String> = parts.iter().map(|part| tree(part)).collect();
        format!("({head} {})", parts.join(" "))
    };
    match &expr.kind {
        ExprKind::Int(value, suffix) => format!("{value}{}", suffix.as_deref().unwrap_or("")),
        ExprKind::Float(value, suffix) => format!("{value:?}{}", suffix.as_deref().unwrap_or("")),
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Name(name) => name.clone(),
        ExprKind::Unary(Unary::Neg, x) => list("neg", &[x]),
        ExprKind::Unary(Unary::Not, x) => list("not", &[x]),
        ExprKind::Chain(first, links) => links
            .iter()
            .fold(tree(first), |left, link| format!("({} {left} {})", link.op.symbol(), tree(&link.operand))),
        ExprKind::Cast(x, dtype) => list(&format!("as-{}", dtype.text), &[x]),
        ExprKind::If(c, x, y) => format!("(if {} {} {})", tree(c), tail(x), tail(y)),
        ExprKind::Call(name, args) | ExprKind::Method(name, args) => {
            list(name, &args.iter().map(|arg| &arg.value).collect::<Vec<_>>())
        }
        ExprKind::Tuple(parts) => list("tuple", &parts.iter().collect::<Vec<_>>()),
        ExprKind::Sized(dim, extent) => format!("{dim}={extent}"),
        ExprKind::Arrow(x, y) => list("->", &[x, y]),
        ExprKind::Range(x, y) => {
            let bounds: Vec<&Expr> = [x, y].into_iter().flatten().map(|bound| &**bound).collect();
            list(&format!("{}..", if x.is_none() { "to" } else { "" }), &bounds)
        }
        ExprKind::Capture(i) => format!("capture{i}"),
        ExprKind::Host(i) => format!("host{i}"),
    }
}

fn tail(block: &Block) -> String {
    block.tail.as_ref().map_or_else(String::new, tree)
}

fn check(source: &str, expect: &str) {
    let buffer = TokenBuffer::new2(TokenStream::from_str(source).unwrap());
    let mut sink = Sink::default();
    let parsed = whole(&mut Parser::new(buffer.begin(), Span::call_site(), &mut sink));
    let text =
        parsed.map_or_else(|_| sink.errors.messages().collect::<Vec<_>>().join("\n"), |expr| tree(&expr));
    assert_eq!(text, expect, "{source}");
}

#[test]
fn precedence_is_that_of_rust() {
    check("a + b * c - d", "(- (+ a (* b c)) d)");
    check("a - b - c", "(- (- a b) c)");
    check("a / b % c * d", "(* (% (/ a b) c) d)");
    check("-a * b", "(* (neg a) b)");
    check("-a as i32", "(as-i32 (neg a))");
    check("-x.abs()", "(neg (abs x))");
    check("!a && b || c", "(|| (&& (not a) b) c)");
    check("a || b && c", "(|| a (&& b c))");
    check("a & b == c", "(== (& a b) c)");
    check("a | b ^ c & d << e + f", "(| a (^ b (& c (<< d (+ e f)))))");
    check("a < b && c >= d", "(&& (< a b) (>= c d))");
    check("x as f32 < y", "(< (as-f32 x) y)");
    check("a * b as f32", "(* a (as-f32 b))");
    check("a as i32 as f32", "(as-f32 (as-i32 a))");
    check("- - !a", "(neg (neg (not a)))");
    check("a-1.0", "(- a 1.0)");
    check("a*-1", "(* a (neg 1))");
}

#[test]
fn operands() {
    check("if a < b { 1 } else { 2 } * c", "(* (if (< a b) 1 2) c)");
    check("if a { 1 } else if b { 2 } else { 3 }", "(if a 1 (if b 2 3))");
    check("x.clamp(0, 1).exp()", "(exp (clamp x 0 1))");
    check("f(a, eps = 1e-5,)", "(f a 1e-5)");
    check("(a, b)", "(tuple a b)");
    check("(a + b) * c", "(* (+ a b) c)");
    check("1f32 + 0xff_u32 + 1_000", "(+ (+ 1.0f32 255u32) 1000)");
    check("slice(x, D -> K, 0..D / 2)", "(slice x (-> D K) (.. 0 (/ D 2)))");
    check("slice(x, D -> K, 1..)", "(slice x (-> D K) (.. 1))");
    check("slice(x, D -> K, ..D - 1,)", "(slice x (-> D K) (to.. (- D 1)))");
    check("true != false", "(!= true false)");
}

#[test]
fn invisible_groups_are_parentheses() {
    let sum = proc_macro2::Group::new(proc_macro2::Delimiter::None, TokenStream::from_str("a + b").unwrap());
    let tokens = quote::quote!(#sum * c);
    let buffer = TokenBuffer::new2(tokens);
    let mut sink = Sink::default();
    let parsed = whole(&mut Parser::new(buffer.begin(), Span::call_site(), &mut sink));
    assert_eq!(tree(&parsed.unwrap()), "(* (+ a b) c)");
}

#[test]
fn deep_expressions_are_errors_not_overflows() {
    let message = "this expression is nested too deeply: give parts of it a name with `let`";
    check(&format!("{}x{}", "(".repeat(500), ")".repeat(500)), message);
    check(&format!("{}x", "-".repeat(5000)), message);
    check(&format!("x{}", " as f32".repeat(5000)), message);
    check(&format!("x{}", ".f()".repeat(5000)), message);
}

#[test]
fn long_chains_are_not_deep() {
    let source = vec!["x * y"; 20000].join(" + ");
    let buffer = TokenBuffer::new2(TokenStream::from_str(&source).unwrap());
    let mut sink = Sink::default();
    let parsed = whole(&mut Parser::new(buffer.begin(), Span::call_site(), &mut sink)).unwrap();
    assert_eq!(parsed.depth, 3);
}
