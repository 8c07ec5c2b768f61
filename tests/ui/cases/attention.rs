//! Attention: products, masks and caches.

use fusion::fuse;

fuse! {
    pub fn softmax_of_depth(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, C]) -> f32[H, T, C] {
        matmul(softmax(matmul(q, k, C), C), v, S)
    }
    pub fn values_of_queries(q: f32[T, C], k: f32[S, C], v: f32[T, C]) -> f32[T, C] {
        matmul(softmax(matmul(q, k, C), S), v, S)
    }
    pub fn float_mask(q: f32[T, C], k: f32[S, C], v: f32[S, D], m: f32[T, S]) -> f32[T, D] {
        matmul(masked_softmax(matmul(q, k, C), m, S), v, S)
    }
    pub fn infinity(q: f32[T, C], k: f32[S, C], v: f32[S, D]) -> f32[T, D] {
        matmul(softmax(if index(S) <= index(T) { matmul(q, k, C) } else { INFINITY }, S), v, S)
    }
    pub fn later_keys(q: f32[T, C], k: f32[L, C], v: f32[L, C]) -> f32[T, C] {
        let past = slice(k, L -> S, ..S);
        matmul(softmax(matmul(q, past, C), S), v, S)
    }
    pub fn heads(q: f32[H, T, C], k: f32[G, S, C], v: f32[G, S, C]) -> f32[H, T, C] {
        matmul(softmax(matmul(q, k, C), S), v, S)
    }
}

fn main() {}
