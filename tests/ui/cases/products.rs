//! Products of matrices.

use fusion::fuse;

fuse! {
    pub fn no_dim(x: f32[N, K], w: f32[K, M]) -> f32[N, M] { matmul(x, w) }
    pub fn rows_of_weights(x: f32[N, K], w: f32[Out, In]) -> f32[N, Out] { matmul(x, w, K) }
    pub fn dim_of_the_second(x: f32[N, D], w: f32[K, M]) -> f32[N, M] { matmul(x, w, K) }
    pub fn number(x: f32[N, K]) -> f32[N] { matmul(x, 2.0, K) }
    pub fn square(x: f32[N, D], w: f32[D, D]) -> f32[N, D] { matmul(x, w, D) }
    pub fn square_result(x: f32[N, D], w: f32[D, E]) -> f32[N, D] { matmul(x, w, D) }
    pub fn residual(x: f32[N, D], w: f32[D, E]) -> f32[N, D] { x + relu(matmul(x, w, D)) }
    pub fn in_place(x: &mut f32[N, D], w: f32[D, E]) { x += matmul(x, w, D); }
    pub fn scores(q: f32[H, T, C], k: f32[H, T, C]) -> f32[H, T, T] { matmul(q, k, C) }
    pub fn weights(q: f32[H, T, C], k: f32[H, T, C], v: f32[H, S, C]) -> f32[H, T, C] {
        matmul(softmax(matmul(q, k, C), S), v, S)
    }
    pub fn gram(x: f32[N, D]) -> f32[N, M] { matmul(x, x, D) }
    pub fn masks(x: bool[N, K], w: f32[K, M]) -> f32[N, M] { matmul(x, w, K) }
    pub fn bytes(x: f32[N, K], w: i8[K, M]) -> f32[N, M] { matmul(x, w, K) }
    pub fn biased(x: f32[N, K], w: f32[K, M], b: f32[M]) -> f32[N, M] { matmul(x, w, K, b) }
    pub fn subscripts(x: f32[N, K], w: f32[K, M]) -> f32[N, M] { einsum("nk,km->nm", x, w) }
    pub fn layer(x: f32[N, K], w: f32[M, K], b: f32[M]) -> f32[N, M] { linear(x, w, b) }
}

fn main() {}
