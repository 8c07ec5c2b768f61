//! Names that are undefined, or mean something else.

use fusion::fuse;

fuse! {
    pub fn value(bias: f32[N]) -> f32[N] { bais + 1.0 }
    pub fn far_value(x: f32[N]) -> f32[N] { x + momentum }
    pub fn constant_of_rust(x: f32[N]) -> f32[N] { x + EPSILON }
    pub fn constant(x: f32[N]) -> f32[N] { x * pi }
    pub fn function(x: f32[N]) -> f32[N] { sigmiod(x) }
    pub fn far_function(x: f32[N]) -> f32[N] { frobnicate(x) }
    pub fn method(x: f32[N]) -> f32[N] { x.rleu() }
    pub fn uncalled(x: f32[N]) -> f32[N] { x + relu }
    pub fn dtype_called(x: f32[N]) -> i32[N] { i32(x) }
    pub fn called(x: f32[N]) -> f32[N] { x(1.0) }
    pub fn later(x: f32[N, T]) -> f32[N, T] { cumsum(x, T) }
    pub fn dim(x: f32[Rows, C = 3]) -> f32[Rows] { sum(x, D) }
    pub fn near_dim(x: f32[Rows]) -> i32[Rows] { index(Row) }
    pub fn dtype(x: f31[N]) -> f32[N] { x }
    pub fn type_of_rust(x: Tensor[N]) -> f32[N] { x }
    pub fn cast(x: f32[N]) -> i32[N] { x as int }
    pub fn host(x: f32[N]) -> f32[N] { x * scalar(2.0) }
}

fn main() {}
