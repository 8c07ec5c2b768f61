//! Tensors store every dtype on every device, and results agree with Rust and `half` on the same elements.

#[path = "../devices/mod.rs"]
mod devices;

use fusion::{bf16, f16};

mod between;
mod casts;
mod double;
mod generic;
mod ints;
mod ops;
mod strict;

/// Returns the bits of the nearest 16-bit float, with ties to even, from the neighbours of a near one.
fn nearest(x: f64, near: u16, of_bits: impl Fn(u16) -> f64) -> u16 {
    if x.is_nan() || x.is_infinite() || x == 0.0 {
        return near;
    }
    // An infinity counts as the number that would follow the largest.
    let value = |bits: u16| {
        let y = of_bits(bits);
        if y.is_infinite() { 2.0 * of_bits(bits - 1) - of_bits(bits - 2) } else { y }
    };
    let candidates = [near.wrapping_sub(1), near, near.wrapping_add(1)].into_iter();
    let same_sign = candidates.filter(|bits| bits & 0x8000 == near & 0x8000 && !of_bits(*bits).is_nan());
    let distance = |bits: u16| (value(bits) - x).abs();
    same_sign.min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1)))).unwrap_or(near)
}

/// Rounds a number to the nearest `f16`.
fn nearest_f16(x: f64) -> f16 {
    f16::from_bits(nearest(x, f16::from_f32(x as f32).to_bits(), |bits| f16::from_bits(bits).to_f64()))
}

/// Rounds a number to the nearest `bf16`.
fn nearest_bf16(x: f64) -> bf16 {
    bf16::from_bits(nearest(x, bf16::from_f32(x as f32).to_bits(), |bits| bf16::from_bits(bits).to_f64()))
}
