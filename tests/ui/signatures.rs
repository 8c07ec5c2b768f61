//! Heads of functions that cannot be read.

use fusion::fuse;

fuse! {
    pub fn untyped(x) -> f32[N] { x }
    pub fn reference(x: &f32[N]) -> f32[N] { x }
    pub fn mutable(mut x: f32[N]) -> f32[N] { x }
    pub fn scalar_in_place(loss: &mut f32) { loss = 1.0; }
    pub fn default(x: f32[N], eps: f32 = 1e-5) -> f32[N] { x + eps }
    fn default_order(x, eps = 1e-5, y) { x + eps + y }
    pub fn documented(/// The input.
        x: f32[N]) -> f32[N] { x }
    pub fn receiver(self, x: f32[N]) -> f32[N] { x }
    pub fn no_type(x: ) -> f32[N] { x }
    pub fn parenthesised(x: (f32[N])) -> f32[N] { x }
    pub fn no_result(x: f32[N]) -> { x }
    pub fn no_body(x: f32[N]) -> f32[N];
    pub fn no_params -> f32[N] { 1.0 }
    pub fn semicolons(x: f32[N]; y: f32[N]) -> f32[N] { x + y }
    pub(super) fn visibility(x: f32[N]) -> f32[N] { x }
    pub struct Layer;
    let x = 1.0;
    pub fn match(x: f32[N]) -> f32[N] { x }
    pub fn good(x: f32[N]) -> f32[N] { x }
}

fn main() {
    let _ = good;
}
