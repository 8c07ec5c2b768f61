//! Mistakes in convolutions and pools.

use fusion::prelude::*;

fuse! {
    pub fn without_windows(x: f32[N, C, T], w: f32[O, C, K]) -> f32[N, O, T] { conv(x, w, C) }
    pub fn without_taps(x: f32[N, C, T], w: f32[O, C, K]) -> f32[N, O, P] { conv(x, w, C, T -> P) }
    pub fn other_channels(x: f32[N, C, T], w: f32[O, E, K]) -> f32[N, O, P] { conv(x, w, C, (T, K) -> P) }
    pub fn too_long(x: f32[N, C, T = 4], w: f32[O, C, K = 7]) -> f32[N, O, P] { conv(x, w, C, (T, K) -> P, padding = 1) }
    pub fn entries(x: f32[N, H, W]) -> f32[N, P, Q] { max_pool(x, (H, 2) -> P, (W, 2) -> Q, stride = (1, 2, 3)) }
    pub fn sides(x: f32[N, T]) -> f32[N, P] { max_pool(x, (T, 3) -> P, padding = ((1, 2, 3),)) }
    pub fn no_steps(x: f32[N, T]) -> f32[N, P] { avg_pool(x, (T, 3) -> P, stride = 0) }
    pub fn other_option(x: f32[N, T]) -> f32[N, P] { max_pool(x, (T, 3) -> P, groups = 2) }
    pub fn by_value(x: f32[N, T], s: f32) -> f32[N, P] { max_pool(x, (T, 3) -> P, stride = s) }
    pub fn taken(x: f32[N, T]) -> f32[N, T] { max_pool(x, (T, 3) -> N) }
    pub fn of_torch(x: f32[N, C, T], w: f32[O, C, K]) -> f32[N, O, P] { conv1d(x, w) }
    pub fn extent(x: f32[N, C, T = 10], w: f32[O, C, K = 3], r: f32[N, O, P = 10]) -> f32[N, O, P] {
        conv(x, w, C, (T, K) -> P) + r
    }
    pub fn of_bytes(x: u8[N, T]) -> u8[N, P] { avg_pool(x, (T, 3) -> P) }
    pub fn two_extents(x: f32[N, T, S]) -> f32[N, P, Q] { sum(unfold(unfold(x, (T, K = 3) -> P), (S, K = 5) -> Q), K) }
    pub fn of_its_own(x: f32[N, T]) -> f32[N, P, Q] { max_pool(x, (T, K = 2) -> P, (K, J = 2) -> Q) }
    pub fn positions(x: f32[N, C, T], w: f32[O, C, K]) -> f32[N, O, K] { conv(x, w, C, (T, K) -> K) }
    pub fn same_transposed(x: f32[N, C, T], w: f32[C, O, K]) -> f32[N, O, P] {
        conv_transpose(x, w, C, (T, K) -> P, padding = same)
    }
    pub fn to_two(x: f32[N, H], P: dim, Q: dim) -> f32[N, P, Q] { resize_nearest(x, H -> (P, Q)) }
    pub fn no_tap(x: f32[N, T]) -> f32[N, P] { unfold(x, T -> P) }
    pub fn no_window(x: f32[N, C, T], w: f32[C, O, K]) -> f32[N, O, T] { conv_transpose(x, w, C) }
    pub fn resized(x: f32[N, H]) -> f32[N, P] { resize_nearest(x, H -> P) }
    pub fn padded_twice(x: f32[N, C, T], w: f32[O, C, K]) -> f32[N, O, P] {
        conv(x, w, C, (T, K) -> P, padding = 1, padding = 2)
    }
}

fn main() {}
