//! Functions of the library along dims.

use fusion::fuse;

fuse! {
    pub fn no_dim(x: f32[N, D]) -> f32[N, D] { softmax(x) }
    pub fn number(x: f32[N, D]) -> f32[N, D] { layer_norm(x, 1e-5) }
    pub fn value(x: f32[N, D], y: f32[N]) -> f32[N] { logsumexp(x, y) }
    pub fn absent(x: f32[N, D], _y: f32[C]) -> f32[N, D] { softmax(x, C) }
    pub fn absent_of_two(x: f32[N, D], _y: f32[C]) -> f32[] { var(x, (N, C)) }
    pub fn unknown(x: f32[N, Depth]) -> f32[N, Depth] { rms_norm(x, Dept) }
    pub fn twice(x: f32[N, D]) -> f32[N, D] { softmax(x, (D, D)) }
    pub fn nothing(x: f32[]) -> f32[] { var(x) }
    pub fn place_twice(x: f32[N, H, W]) -> i32[N] { argmax(x, (H, H)) }
    pub fn place_is_whole(x: f32[N, D]) -> f32[N] { argmin(x, D) }
    pub fn any_number(x: f32[N, D]) -> i32[N] { any(x, D) as i32 }
    pub fn truth(x: f32[N, D]) -> f32[N] { all(x > 0.0, D) }
    pub fn of_integers(k: i32[N, D]) -> i32[N, D] { softmax(k, D) }
    pub fn float_classes(x: f32[N, V], k: f32[N]) -> f32[N] { cross_entropy(x, V, k) }
    pub fn classes_first(x: f32[N, V], k: i32[N]) -> f32[N] { cross_entropy(x, k, V) }
    pub fn one_statistic(x: f32[N, C], m: f32[C]) -> f32[N, C] { batch_norm(x, m) }
    pub fn label(x: f32[N, D]) -> f32[N, D] { layer_norm(x, D, epsilon = 1e-6) }
    pub fn groups(x: f32[N, C]) -> f32[N, C] { group_norm(x, C) }
    pub fn part_of_a_group(x: f32[N, C, H]) -> f32[N, C, H] { group_norm(x, C, 1.5, H) }
    pub fn other_dims(x: f32[N, D], y: f32[N, E]) -> f32[N, E] { y * mse(x, y) }
    pub fn rows_without_classes(x: f32[B, N, V], t: i32[N]) -> f32[] { cross_entropy_mean(x, V, t) }
    pub fn fewer_dims(x: f32[N, D], y: f32[N]) -> f32[N] { huber(x, y, D) }
    pub fn gain(x: f32[N, D], g: f32[D]) -> f32[N, D] { layer_norm(x, D, g) }
    pub fn gain_of_groups(x: f32[N, C], g: f32[C]) -> f32[N, C] { group_norm(x, C, 2, g) }
    pub fn weights(x: f32[N, V], k: i32[N], w: f32[V]) -> f32[N] { cross_entropy(x, V, k, w) }
    pub fn mean_weights(x: f32[N, V], k: i32[N], w: f32[V]) -> f32[] { cross_entropy_mean(x, V, k, w) }
    pub fn weights_of_others(x: f32[N, V], k: i32[N], w: f32[W]) -> f32[N] { cross_entropy(x, V, k, weight = w) }
    pub fn whole_weights(x: f32[N, V], k: i32[N], w: i32[V]) -> f32[N] { cross_entropy(x, V, k, weight = w) }
    pub fn no_groups(x: f32[N, C]) -> f32[N, C] { group_norm(x, C, 0) }
    pub fn divergence(x: f32[N, D], y: f32[D, N, K]) -> f32[] { kl_div(log_softmax(x, D), y) }
}

fn main() {}
