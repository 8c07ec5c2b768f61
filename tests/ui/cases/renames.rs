//! Dims with another name.

use fusion::fuse;

fuse! {
    pub fn no_arrow(x: f32[T]) -> f32[T] { rename(x, T) }
    pub fn no_dim(x: f32[T]) -> f32[T] { rename(x, x -> T) }
    pub fn number(x: f32[T]) -> f32[T] { rename(x, T -> 3) }
    pub fn unknown(x: f32[Time]) -> f32[S] { rename(x, Tim -> S) }
    pub fn absent(x: f32[T], _y: f32[N]) -> f32[T] { rename(x, N -> S) }
    pub fn lowercase(x: f32[T]) -> f32[T] { x + sum(rename(x, T -> s)) }
    pub fn value(x: f32[T], Y: f32) -> f32[T] { x + rename(x, T -> Y) }
    pub fn there_already(x: f32[T, S]) -> f32[S] { rename(x, T -> S) }
    pub fn the_same(x: f32[T]) -> f32[T] { rename(x, T -> T) }
    pub fn fixed(x: f32[T = 4]) -> f32[S = 3] { rename(x, T -> S) }
    pub fn kept(x: f32[T]) -> f32[T] { x + rename(x, T -> S) }
    fn pairs(x, T: dim) { x - rename(x, T -> S) }
    pub fn of_two(x: f32[T, H]) -> f32[T] { sum(pairs(x, (T, H))) }
}

fn inline(x: fusion::Tensor<f32>) {
    let _ = fuse!(x - rename(x, T -> S));
}

fn main() {}
