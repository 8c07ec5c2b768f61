//! Rust expressions that the language does not have.

use fusion::fuse;

fuse! {
    pub fn chained(x: f32[N]) -> f32[N] { if 0.0 < x < 1.0 { x } else { -x } }
    pub fn no_else(x: f32[N]) -> f32[N] { if x < 0.0 { -x } }
    pub fn no_else_after_else(x: f32[N]) -> f32[N] { if x < 0.0 { 1.0 } else if x > 0.0 { 2.0 } }
    pub fn empty_branch(x: f32[N]) -> f32[N] { if x < 0.0 { } else { x } }
    pub fn branch_with_semicolon(x: f32[N]) -> f32[N] { if x < 0.0 { x; } else { x } }
    pub fn path(x: f32[N]) -> f32[N] { x * std::f32::consts::PI }
    pub fn reference(x: f32[N]) -> f32[N] { exp(&x) }
    pub fn dereference(x: f32[N]) -> f32[N] { 1.0 + *x }
    pub fn positive(x: f32[N]) -> f32[N] { +x }
    pub fn field(x: f32[N]) -> f32[N] { x.len }
    pub fn field_of_ours(x: f32[N]) -> f32[N] { x.gain }
    pub fn transposed(x: f32[N, M]) -> f32[M, N] { x.T }
    pub fn chosen(x: f32[N]) -> f32[N] { where(x > 0.0, x, 0.0) }
    pub fn element(x: f32[N]) -> f32[N] { x[0] }
    pub fn dims(x: f32[N, D], y: f32[D]) -> f32[N, D] { x[N, D] * y }
    pub fn list(x: f32[N]) -> f32[N] { x * [1.0, 2.0] }
    pub fn question(x: f32[N]) -> f32[N] { exp(x)? }
    pub fn matched(x: f32[N]) -> f32[N] { match x { _ => x } }
    pub fn returned(x: f32[N]) -> f32[N] { return x; }
    pub fn closure(x: f32[N]) -> f32[N] { |y| x + y }
    pub fn half_written(x: f32[N]) -> f32[N] { x + }
    pub fn two_operands(x: f32[N]) -> f32[N] { x x }
    pub fn power(x: f32[N]) -> f32[N] { x ** 2 }
    pub fn empty_parentheses(x: f32[N]) -> f32[N] { x + () }
    pub fn macro_call(x: f32[N]) -> f32[N] { x + vec![1.0] }
    pub fn macro_statement(x: f32[N]) -> f32[N] { println!("x"); x }
    pub fn tuple_field(x: f32[N]) -> f32[N] { (x, x).0 }
    pub fn block(x: f32[N]) -> f32[N] { x + { x } }
    pub fn called_value(x: f32[N]) -> f32[N] { (x + 1.0)(x) }
    pub fn crate_path(x: f32[N]) -> f32[N] { x + crate::BIAS }
    pub fn let_inside(x: f32[N]) -> f32[N] { if let y = x { y } else { x } }
    pub fn prefix(x: f32[N]) -> f32[N] { torch.relu(x) }
    pub fn bits(x: f32[N]) -> f32[N] { x ^ 2.0 }
    pub fn dim_first(x: f32[N, D]) -> f32[D] { mean(N, x) }
    pub fn comma(x: f32[N]) -> f32[N] { max(x 1.0) }
}

fn main() {}
