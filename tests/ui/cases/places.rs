//! Index operations at positions that do not exist.

use fusion::fuse;

fuse! {
    pub fn no_range(x: f32[D]) -> f32[D] { slice(x, D -> K) }
    pub fn no_arrow(x: f32[D]) -> f32[D] { slice(x, D, 0..2) }
    pub fn no_dots(x: f32[D]) -> f32[D] { slice(x, D -> K, 2) }
    pub fn outside(x: f32[C = 4]) -> f32[K] { slice(x, C -> K, 2..5) }
    pub fn backwards(x: f32[D]) -> f32[K] { slice(x, D -> K, 3..2) }
    pub fn negative(x: f32[D]) -> f32[K] { slice(x, D -> K, -1..2) }
    pub fn inclusive(x: f32[D]) -> f32[K] { slice(x, D -> K, 0..=3) }
    pub fn in_steps(x: f32[D]) -> f32[K] { slice(x, D -> K, 0..D..2) }
    pub fn of_a_tensor(x: f32[D], n: i32) -> f32[D] { x + sum(slice(x, D -> K, 0..n)) }
    pub fn halves_of_one(x: f32[D]) -> f32[D] { x + sum(slice(x, D -> K, 0.5..1)) }
    pub fn absent(x: f32[N], _y: f32[D]) -> f32[N] { sum(slice(x, D -> K, 0..2), K) }
    pub fn mistyped(x: f32[Depth]) -> f32[K] { slice(x, Dept -> K, 0..2) }
    pub fn the_same(x: f32[D]) -> f32[D] { slice(x, D -> D, 0..2) }
    pub fn there_already(x: f32[N, D]) -> f32[N] { slice(x, D -> N, 0..2) }
    pub fn other_extent(x: f32[D]) -> f32[C = 3] { slice(x, D -> C, 0..2) }
    pub fn lowercase(x: f32[D]) -> f32[D] { x + sum(slice(x, D -> k, 0..2)) }
    pub fn undeclared(x: f32[D]) -> f32[D] { slice(x, D -> K, 1..) }
    pub fn flip_of_two(x: f32[N, D]) -> f32[N, D] { flip(x, (N, D)) }
    pub fn flip_alone(x: f32[N]) -> f32[N] { flip(x) }
    pub fn truths_and_numbers(x: f32[A], y: f32[B]) -> f32[D] { concat((x > 0.0, A), (y, B) -> D) }
    pub fn roll_alone(x: f32[N]) -> f32[N] { roll(x, N) }
    pub fn roll_half(x: f32[N]) -> f32[N] { roll(x, N, 0.5) }
    pub fn pad_alone(x: f32[N]) -> f32[N] { pad(x, N -> P, 1) }
    pub fn pad_other(x: f32[N]) -> f32[P] { pad(x, N -> P, 1, 1, with = 2.0) }
    pub fn pad_less(x: f32[N]) -> f32[P] { pad(x, N -> P, 1, -1) }
    pub fn pad_float(x: i32[N]) -> i32[P] { pad(x, N -> P, 1, 1, value = 0.5) }
    pub fn pad_dim(x: f32[N]) -> f32[N] { pad(x, N -> N, 1, 1) }
    pub fn one_part(x: f32[A]) -> f32[D] { concat((x, A) -> D) }
    pub fn no_name(x: f32[A], y: f32[B]) -> f32[A] { concat((x, A), (y, B)) }
    pub fn without_dims(x: f32[A], y: f32[B]) -> f32[D] { concat(x, y -> D) }
    pub fn of_two_types(x: f32[A], y: i32[B]) -> f32[D] { concat((x, A), (y, B) -> D) }
    pub fn too_few(x: f32[A = 2], y: f32[B = 3]) -> f32[D = 6] { concat((x, A), (y, B) -> D) }
    pub fn into_one(x: f32[A], y: f32[B]) -> f32[A] { concat((x, A), (y, B) -> A) }
    pub fn take_two(x: f32[V], ids: i32[N]) -> f32[N] { take(x, ids) }
    pub fn take_floats(x: f32[V], ids: f32[N]) -> f32[N] { take(x, V, ids) }
    pub fn take_absent(x: f32[V], ids: i32[N]) -> f32[N] { take(x, N, ids) }
}

fn inline(x: fusion::Tensor<f32>) {
    let _ = fuse!(flip(x, D));
}

fn main() {}
