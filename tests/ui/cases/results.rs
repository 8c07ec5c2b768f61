//! Bodies that do not return the declared results.

use fusion::fuse;

fuse! {
    pub fn extra(x: f32[N, D], y: f32[N]) -> f32[N] { x * y }
    pub fn constant() -> f32[N] { 0.5 }
    pub fn of_no_extent(b: f32[C]) -> (f32[N, C], i32[C]) { (b, 2) }
    pub fn outer(x: f32[N], y: f32[M]) -> f32[N] { x * y }
    pub fn mistyped(x: f32[N, D], bias: f32[B]) -> f32[N, D] { x + bias }
    pub fn second(x: f32[N], y: f32[M]) -> (f32[N], f32[M]) { (x, x) }
    pub fn dtype(x: f32[N]) -> i32[N] { round(x) }
    pub fn truth(x: f32[N]) -> f32[N] { x > 0.0 }
    pub fn literal(x: i32[N]) -> i32[] { 0.5 }
    pub fn too_many(x: f32[N]) -> f32[N] { (x, x) }
    pub fn too_few(x: f32[N]) -> (f32[N], f32[N]) { x }
    pub fn no_tail(x: f32[N]) -> f32[N] { let _y = x; }
    pub fn semicolon(x: f32[N]) -> f32[N] { x + 1.0; }
    pub fn undeclared(x: f32[N]) { x + 1.0 }
    pub fn unexpected(p: &mut f32[N]) { p = 1.0; p }
    pub fn scalar(x: f32[C = 3]) -> f32 { sum(x, C) }
    pub fn one_of_a_tuple(x: f32[N]) -> f32[N] { (x,) }
    pub fn tuple_of_one(x: f32[N]) -> (f32[N],) { x }
    pub fn truth(x: f32[N]) -> f32[N] { x > 0.0 }
}

fn main() {}
