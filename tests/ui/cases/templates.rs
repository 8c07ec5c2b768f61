//! Mistakes in templates are reported at the call, and those in typed functions once.

use fusion::fuse;

fuse! {
    fn log_of(a) { log(a) }
    pub fn dtype(k: i32[N]) -> f32[N] { log_of(k) }
    fn softened(a) { sigmoid(a) * missing }
    pub fn twice(x: f32[N]) -> f32[N] { softened(x) + softened(x) }
    pub fn typed(x: f32[N]) -> f32[N] { x + absent }
    pub fn caller(x: f32[N]) -> f32[N] { typed(x) * typed(x) }
    fn plus_bias(x, y) { x + y }
    fn doubled(x: f32[N]) -> f32[N] { x * 2.0 }
    #[allow(dead_code)]
    fn kept(x: f32[N]) -> f32[N] { x * 2.0 }
    fn two() { 2.0 }
    pub fn no_parameters(x: f32[N]) -> f32[N] { x * two(y = 1) }
    pub fn softmax(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
    pub fn template_result(x: f32[N], y: f32[M]) -> f32[N] { plus_bias(x, y) }
}

fuse! {
    fn halved(x) { x / 2.0 }
    fn quartered(x) { halved(halved(x)) }
}

fn main() {}
