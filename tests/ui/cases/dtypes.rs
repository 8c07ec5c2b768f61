//! Dtypes that do not match.

use fusion::fuse;

fuse! {
    pub fn mixed(x: f32[N], k: i32[N]) -> f32[N] { x + k }
    pub fn mixed_ints(k: i32[N], u: u32[N]) -> i32[N] { k * u }
    pub fn mixed_expression(x: f32[N], k: i32[N]) -> f32[N] { x * (k + 1) }
    pub fn mixed_suffixes(x: f32[N], k: i32[N]) -> f32[N] { x * 3u32 + (2u32 * k) as f32 }
    pub fn mixed_branches(x: f32[N], k: i32[N]) -> f32[N] { if x > 0.0 { x } else { k } }
    pub fn number_and_bool(x: f32[N], on: bool) -> f32[N] { x * on }
    pub fn literal_and_bool(on: bool, x: f32[N]) -> f32[N] { if on == 1 { x } else { -x } }
    pub fn float_literal(k: i32[N]) -> i32[N] { k + 1.5 }
    pub fn floats_wanted(k: i32[N]) -> f32[N] { exp(k) }
    pub fn floats_wanted_inside(k: i32[N]) -> f32[N] { sigmoid(k) }
    pub fn floats_of_bool(on: bool, x: f32[N]) -> f32[N] { x + sqrt(on) }
    pub fn bits(x: f32[N]) -> f32[N] { x & x }
    pub fn bits_of_half(x: f16[N]) -> u32[N] { to_bits(x) }
    pub fn float_of_int(k: i32[N]) -> f32[N] { from_bits(k) + from_bits(0.5) }
    pub fn bits_of_bool(on: bool, k: u32[N]) -> u32[N] { k + to_bits(on) }
    pub fn shift(x: f32[N]) -> f32[N] { x << 2 }
    pub fn sum_of_bools(x: f32[C = 3]) -> f32[] { sum(x > 0.0, C) }
    pub fn mean_of_ints(x: i32[C = 3]) -> i32[] { mean(x, C) }
    pub fn condition(x: f32[N]) -> f32[N] { if x { 1.0 } else { 2.0 } }
    pub fn condition_of_select(x: f32[N]) -> f32[N] { select(x, x, -x) }
    pub fn and(x: f32[N], y: f32[N]) -> f32[N] { if x && y > 0.0 { x } else { y } }
    pub fn order(on: bool, x: f32[N]) -> f32[N] { if on < on { x } else { -x } }
    pub fn to_bool(x: f32[N]) -> f32[N] { if x as bool { x } else { -x } }
    pub fn minus_bool(on: bool, x: f32[N]) -> f32[N] { if -on { x } else { -x } }
    pub fn torch_ids(k: i64[N]) -> i32[N] { k as long }
    pub fn double(x: f32[N], lr: f64) -> f32[N] { x * lr }
    pub fn half_and_int(x: f16[N], k: i8[N]) -> f16[N] { x * k }
    pub fn byte(x: u8[N]) -> u8[N] { x + 256 }
    pub fn short(x: i16[N]) -> i16[N] { x - 32769 }
    pub fn byte_and_short(x: i8[N], y: i16[N]) -> i16[N] { x + y }
    pub fn too_large(x: f64[N]) -> f64[N] { x * 1e400 }
    pub fn stored_double(x: f64[N]) -> f32[N] { x }
    #[fuse(targets(wgsl))]
    pub fn only_wgsl(x: f64[N]) -> f64[N] { x + 1 }
    pub fn cast_with_dims(x: i32[N]) -> f32[N] { x as f32[N] }
    pub fn number_for_bool(x: f32[N]) -> bool[N] { if x > 0.0 { 1 } else { 0 } }
    pub fn extent_for_bool(x: f32[N]) -> (f32[N], bool[]) { (x, N) }
    pub fn integer_for_bool(k: i32[N]) -> bool[N] { k }
    pub fn cast_to_nothing(x: i32[N]) -> f32[N] { x as (f32) }
}

fn main() {}
