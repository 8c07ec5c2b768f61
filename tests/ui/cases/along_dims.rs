//! Reductions, coordinates and positions.

use fusion::fuse;

fuse! {
    pub fn at_a_value(x: f32[N, D], i: i32) -> f32[N] { at(x, D, i) }
    pub fn absent(x: f32[N], _y: f32[C = 3]) -> f32[N] { sum(x, C) }
    pub fn absent_at(x: f32[N], _y: f32[C = 3]) -> f32[N] { at(x, C, 1) }
    pub fn absent_of_two(x: f32[N, D], _y: f32[C]) -> f32[] { mean(x, (N, C)) }
    pub fn unknown_of_two(x: f32[N, Depth]) -> f32[] { mean(x, (N, Dept)) }
    pub fn of_none(x: f32[N]) -> f32[] { mean(x, ()) }
    pub fn twice(x: f32[N, C = 3]) -> f32[N] { sum(x, (C, C)) }
    pub fn kept(x: f32[N, D]) -> f32[N] { x - max(x, D) }
    pub fn truth(x: f32[N, D]) -> f32[N] { sum(x > 0.0, D) }
    pub fn mean_of_integers(k: i32[N, D]) -> i32[N] { mean(k, D) }
    pub fn value(x: f32[N, C = 3]) -> f32[N] { sum(x, x) }
    pub fn three(x: f32[N, C = 3, D = 2]) -> f32[N] { sum(x, C, D) }
    pub fn nothing(x: f32[]) -> f32[] { sum(x) }
    pub fn of_no_elements(x: f32[N, C = 3]) -> f32[N] { max(slice(x, C -> K, 3..), K) }
    pub fn ambiguous(x: f32[N, 3]) -> f32[N] { max(x, 3) }
    pub fn named(x: f32[N, C = 3]) -> f32[N] { sum(x, dim = C) }
    pub fn outside(x: f32[N, C = 3]) -> f32[N] { at(x, C, 3) }
    pub fn position(x: f32[N, C = 3]) -> f32[N] { at(x, C, C + 1) }
    pub fn too_few(x: f32[N, C = 3]) -> f32[N] { at(x, C) }
    pub fn picked_of_two(x: f32[N, C = 3, D = 3]) -> f32[N] { at(x, (C, D), 0) }
    pub fn coordinate_of_value(x: f32[N]) -> f32[N] { x * index(x + 1.0) as f32 }
}

fn main() {}
