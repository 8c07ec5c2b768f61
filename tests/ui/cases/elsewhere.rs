//! Expressions that users of other libraries write.

use fusion::fuse;

fuse! {
    pub fn product(x: f32[N, K], w: f32[K, M]) -> f32[N, M] { x @ w }
    pub fn multiplied(x: f32[N, K], w: f32[K, M]) -> f32[N, M] { mm(x, w) }
    pub fn not(x: f32[N], mask: bool[N]) -> f32[N] { if ~mask { x } else { -x } }
    pub fn both(x: f32[N]) -> f32[N] { if x > 0.0 and x < 1.0 { x } else { 0.0 } }
    pub fn choice(x: f32[N]) -> f32[N] { x if x > 0.0 else 0.0 }
    pub fn text(x: f32[N]) -> f32[N] { gelu(x, approximate = "tanh") }
    pub fn kept(x: f32[N, D]) -> f32[N, D] { x - mean(x, D, keepdim = true) }
    pub fn affine(x: f32[N, D], g: f32[D], b: f32[D]) -> f32[N, D] { layer_norm(x, D, g, b) }
    pub fn delta(x: f32[N], y: f32[N]) -> f32[] { huber(x, y, 0.5) }
    pub fn place(x: f32[N, D]) -> f32[N] { let (v, i) = max(x, D); v * i as f32 }
    pub fn field(x: f32[N, M]) -> f32[M, N] { x.T }
    pub fn running(x: f32[N, D]) -> f32[N, D] { cummax(x, D) }
    pub fn special(x: f32[N]) -> f32[N] { lgamma(x) }
    pub fn list(x: f32[N, H, W]) -> f32[N, H, W] { layer_norm(x, [H, W]) }
    pub fn nothing(x: f32[N]) -> f32[N] { clamp(x, None, 1.0) }
    pub fn selected(x: f32[N, D]) -> f32[N] { select(x, D, 0) }
}

fn main() {}
