//! Arguments that a function does not take.

use fusion::fuse;

fuse! {
    pub fn too_many(x: f32[N]) -> f32[N] { exp(x, x) }
    pub fn none(x: f32[N]) -> f32[N] { x + exp() }
    pub fn too_few(x: f32[N]) -> f32[N] { clamp(x, 0.0) }
    pub fn with_defaults(x: f32[N]) -> f32[N] { softplus(x, 1.0, 2.0, 3.0) }
    pub fn unknown_argument(x: f32[N]) -> f32[N] { leaky_relu(x, slop = 0.2) }
    pub fn another_argument(x: f32[N, D]) -> f32[N, D] { layer_norm(x, D, epsilon = 1e-5) }
    pub fn transposed(x: f32[N, M]) -> f32[M, N] { transpose(x) }
    pub fn viewed(x: f32[N, M]) -> f32[N] { sum(x.view(), M) }
    pub fn twice(x: f32[N]) -> f32[N] { leaky_relu(x, 0.1, slope = 0.2) }
    pub fn order(x: f32[N]) -> f32[N] { leaky_relu(slope = 0.2, x) }
    pub fn unnamed(x: f32[N]) -> f32[N] { exp(x = x) }
    pub fn lacks(x: f32[N]) -> f32[N] { clamp(x, high = 1.0) }
    fn per(x, D: dim) { x / D }
    pub fn a_number_for_a_dim(x: f32[N]) -> f32[N] { per(x, 2.0) }
    pub fn other(y: f32[M], k: i32[M]) -> f32[M] { y * k as f32 }
    pub fn other_dims(x: f32[N, M], k: i32[M]) -> f32[N, M] { other(x, k) }
    pub fn other_dtype(x: f32[M]) -> f32[M] { other(x, x) }
    pub fn other_names(x: f32[N], k: i32[N]) -> f32[N] { other(x, k) }
    pub fn rgb(c: f32[C = 3]) -> f32[] { sum(c, C) }
    pub fn rgba(c: f32[C = 4]) -> f32[] { rgb(c) }
    pub fn any_length(c: f32[C]) -> f32[C] { c + rgb(c) }
    pub fn tuple_argument(x: f32[N]) -> f32[N] { exp((x, x)) }
    pub fn dims_for_a_number(x: f32[N, C]) -> f32[N, C] { leaky_relu(x, (N, C)) }
    pub fn a_number_before_a_dim(x: f32[N, C]) -> f32[N, C] { group_norm(x, 4, C) }
    pub fn of_the_other_form(x: f32[N, C]) -> f32[N, C] { batch_norm(x, N, momentum = 0.1) }
    pub fn natural(x: f32[N]) -> f32[N] { x.ln() }
    pub fn inverse(x: f32[N]) -> f32[N] { x.asinh() }
    pub fn arrow(x: f32[N]) -> f32[N] { exp(N -> M) + x }
    pub fn range(x: f32[N]) -> f32[N] { exp(0..N) + x }
    pub fn affine(x: f32[N, C], g: f32[C], b: f32[C]) -> f32[N, C] { batch_norm(x, N, g, b) }
    pub fn biased(x: f32[N, C]) -> f32[N] { std(x, C, false) }
    pub fn last(x: f32[N, C]) -> f32[N] { at(x, C, -1) }
}

fn main() {}
