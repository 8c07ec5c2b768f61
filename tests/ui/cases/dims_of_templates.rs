//! Dims of templates, which may be several.

use fusion::fuse;

fuse! {
    fn differences(x, T: dim) { slice(x, T -> S, 1..) - slice(x, T -> S, ..T - 1) }
    pub fn weighted(x: f32[T = 4], w: f32[S = 4]) -> f32[] { sum(differences(x, T) * w) }
    pub fn of_both(x: f32[T = 3], y: f32[U = 4]) -> f32[] { sum(differences(x, T) * differences(y, U)) }
    pub fn of_itself(x: f32[T]) -> f32[] { sum(differences(differences(x, T), S), S) }

    fn turned(x, D: dim) { flip(x, D) }
    pub fn turned_twice(x: f32[N, H, W]) -> f32[N, H, W] { turned(x, (H, W)) }
    fn first(x, D: dim = all) { at(x, D, 0) }
    pub fn first_of_all(x: f32[N, C = 3]) -> f32[N] { first(x) }
    pub fn total(x: f32[N, D]) -> f32[N] { sum(x, D) }
    fn totals(x, D: dim) { total(x) / D }
    pub fn two_totals(x: f32[N, H, W]) -> f32[N] { totals(x, (H, W)) }
    fn sized(x: f32[N], D: dim) -> f32[N] { x * D }
    pub fn two_sizes(x: f32[N], y: f32[H, W]) -> f32[N] { sized(x, (H, W)) + 0.0 * sum(y) }
    fn five(x, D: dim = 5) { sum(x, D) }
    fn other(x, D: dim = N) { sum(x, D) }
    pub fn exported(x: f32[N], D: dim = all) -> f32[N] { x * D }
    fn per(x, D: dim) { x / D }
    pub fn a_list_of_values(x: f32[N]) -> f32[N] { per(x, (N, x)) }
    fn mean_of(x, D: dim = all) { mean(x, D) }
    pub fn of_no_dims(x: f32[]) -> f32[] { mean_of(x) }
    pub fn in_an_argument(x: f32[N, D]) -> f32[] { mean_of(softmax(x, Q)) }
}

fn main() {}
