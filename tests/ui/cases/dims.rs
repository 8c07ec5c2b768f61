//! Dims of a signature.

use fusion::fuse;

fuse! {
    pub fn twice(x: f32[N, N]) -> f32[N] { sum(x, N) }
    pub fn twice_fixed(x: f32[3, 3]) -> f32[3] { x }
    pub fn lowercase(x: f32[n]) -> f32[n] { x }
    pub fn lowercase_param(x: f32[N], heads: dim) -> f32[N] { x * heads }
    pub fn two_extents(x: f32[N, C = 3], y: f32[C = 4]) -> f32[N] { sum(x * y, C) }
    pub fn unknown_extent(x: f32[N]) -> f32[N, M] { x }
    pub fn value_and_dim(x: f32[N]) -> f32[N] { let N = 3; x * N }
    pub fn param_and_dim(x: f32[N], N: f32) -> f32[N] { x * N }
    pub fn given_and_fixed(x: f32[C = 3], C: dim) -> f32[C] { x }
    pub fn no_name(x: f32[+]) -> f32[] { 1.0 }
    pub fn no_elements(x: f32[C = 0]) -> f32[C] { x }
    pub fn too_long(x: f32[C = 3000000000]) -> f32[C] { x }
    pub fn by_name(x: f32[C = D]) -> f32[C] { x }
    pub fn arithmetic(x: f32[N + 1]) -> f32[N] { x }
    pub fn too_many(x: f32[A = 2147483647, B = 2147483647]) -> f32[A, B] { x + 1.0 }
    pub fn angle_brackets(x: f32<N>) -> f32[N] { x }
    pub fn twice_brackets(x: f32[N][D]) -> f32[N, D] { x }
    pub fn half(x: f32[2.5]) -> f32[] { 1.0 }
}

fn main() {}
