//! Numbers that are invalid, or in the wrong place.

use fusion::fuse;

fuse! {
    pub fn too_large(x: i32[N]) -> i32[N] { x + 3000000000 }
    pub fn negative(x: u32[N]) -> u32[N] { x + -1 }
    pub fn huge(x: i32[N]) -> i32[N] { x + 99999999999999999999 }
    pub fn huge_int(x: i32[N]) -> i32[N] { x + 9999999999999999999 }
    pub fn huge_float(x: f32[N]) -> f32[N] { x * 1e39 }
    pub fn suffix(x: f32[N]) -> f32[N] { x * 2.0f64 }
    pub fn int_suffix(x: i32[N]) -> i32[N] { x * 2usize }
    pub fn text(x: f32[N]) -> f32[N] { x + "1" }
    pub fn infinity(x: f32[N]) -> f32[N] { max(x, float("-inf")) + min(x, float("inf")) }
    pub fn letter(x: f32[N]) -> f32[N] { x + '1' }
}

fn main() {}
