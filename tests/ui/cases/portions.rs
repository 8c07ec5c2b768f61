//! Parameters with a portion of a dim.

use fusion::prelude::*;

fuse! {
    pub fn forms(a: f32[B: , K], b: f32[B: L, K], c: f32[B: 0..L, K], d: f32[B: .., K], e: f32[B: ..l, K], f: f32[B: L..M], g: f32[3: ..L]) -> f32[K] { sum(a, B) }
}

fuse! {
    pub fn lowercase(a: f32[B: ..l, K], l: i32) -> f32[B, K] { a * (l as f32) }
    pub fn inner(p: &mut f32[B, K], a: f32[B, K: ..L], L: dim) { p = a; }
    pub fn fixed(p: &mut f32[B = 8], a: f32[B: ..L]) { p = a; }
    pub fn places(p: &mut f32[B], a: f32[B: ..L], b: f32[B: M..], M: dim) { p = a + b; }
    pub fn of_two(p: &mut f32[B], q: &mut f32[T], a: f32[B: ..L], b: f32[T: ..L]) { p = a; q = b; }
    pub fn unknown(p: &mut f32[B], a: f32[B: L..]) { p = a; }
    pub fn whole_unknown(a: f32[B: ..L]) -> f32[B] { 2.0 * a }
    pub fn of_result(a: f32[B, K], L: dim) -> f32[B: ..L, K] { a * L }
    pub fn combined(p: &mut f32[B], a: f32[B: ..L, K]) { p += sum(a, (B, K)); }
    pub fn moved(p: &mut f32[B], a: f32[B: ..L]) { p = flip(2.0 * a, B); }
    pub fn renamed(p: &mut f32[B], a: f32[B: ..L]) -> f32[B, T] { p = a; a * rename(a, B -> T) }
    pub fn renamed_inner(p: &mut f32[B], a: f32[B: ..L, K]) -> f32[B, T] { p = 0.0 * p; rename(a, K -> T) * p }
    pub fn parted(p: &mut f32[B], a: f32[B: ..L], H: dim) { p = merge(2.0 * split(a, B -> (H, D)), (H, D) -> B); }
    pub fn joined(a: f32[B: ..L], b: f32[B: L..], B: dim) -> f32[B] { a + b }
    pub fn called(p: &mut f32[B], a: f32[B], L: dim) { p = joined(a, a, B) * L; }
}

fn inline(x: &Tensor<f32>) -> Result<Tensor<f32>> {
    fuse!(2.0 * x[B: ..L, K])
}

fn main() {}
