//! Functions that clash, call themselves or cannot be called, and unused parameters.

use fusion::fuse;

fuse! {
    pub fn twice(x: f32[N]) -> f32[N] { x }
    pub fn twice(x: f32[N]) -> f32[N] { x + 1.0 }
    pub fn params(x: f32[N], x: f32[N]) -> f32[N] { x }
    pub fn unused(x: f32[N], scale: f32) -> f32[N] { x }
    pub fn unused_but_dim(x: f32[N], like: f32[N, D]) -> f32[N, D] { x + index(D) as f32 }
    pub fn unused_but_extents(x: f32[N], like: f32[D, E]) -> f32[N] { x / (D * E) }
    pub fn r#unused_dim(x: f32[N], H: dim) -> f32[N] { x }
    pub fn direct(x: f32[N]) -> f32[N] { direct(x) }
    pub fn indirect(x: f32[N]) -> f32[N] { there(x) }
    fn there(x) { back(x) }
    fn back(x) { there(x) }
    fn nothing(x) { let _y = x; }
    pub fn in_place(p: &mut f32[N], x: f32[N]) { p += x; }
    pub fn calls_in_place(p: &mut f32[N], x: f32[N]) { p = in_place(p, x); }
    fn template_in_place(p: &mut f32[N]) { p = 0.0; }
    pub fn unused_generic<E>(x: f32[N]) -> f32[N] { x }
    pub fn two_generics<E, F>(x: E[N], y: F[N]) -> E[N] { x + y }
    pub fn named_like_a_dtype<f32>(x: f32[N]) -> f32[N] { x }
    pub fn mixes<E>(x: E[N], k: i32[N]) -> E[N] { x + k }
    pub fn bounds<E: Float>(x: E[N]) -> E[N] { x }
    pub fn generic_and_dim<N>(x: f32[N]) -> f32[N] { x }
    #[cfg(any())]
    pub fn either(x: f32[N]) -> f32[N] { x }
    #[cfg(not(any()))]
    pub fn either(x: f32[N]) -> f32[N] { x + 1.0 }
    pub fn calls_either(x: f32[N]) -> f32[N] { either(x) }
    pub fn generic_and_param<x>(x: f32[N]) -> f32[N] { x }
}

fn main() {}
