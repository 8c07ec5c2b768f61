//! Conversions between floats and their bits.

use fusion::prelude::*;

use super::{EDGES, devices, download, random_bits, upload};

fuse! {
    pub(crate) fn bits_of(x: f32[N]) -> u32[N] { to_bits(x) }
    pub(crate) fn of_bits(x: u32[N]) -> f32[N] { from_bits(x) }
    pub(crate) fn known(x: u32[N]) -> (u32[N], f32[N]) { (x + to_bits(1.0), from_bits(0x40490fdb) + x as f32) }
    /// Typical uses of bits: the next number away from 0, and the largest power of two below a number.
    pub(crate) fn next(x: f32[N]) -> f32[N] { from_bits(to_bits(x) + 1) }
    pub(crate) fn power_below(x: f16[N]) -> f32[N] { from_bits(to_bits(x as f32) & 0x7f800000) }
}

fn all() -> Vec<f32> {
    EDGES.into_iter().chain((0..=u32::MAX).step_by(1_000_003).map(f32::from_bits)).collect()
}

#[test]
fn bits_are_those_of_rust() {
    let x = all();
    for (kind, device) in devices() {
        let bits = bits_of(&upload(&device, &x)).and_then(|bits| bits.to_vec()).expect("runs");
        let back =
            download(of_bits(&Tensor::from_slice(&device, &bits, [x.len()]).expect("there is memory")));
        for ((x, bits), back) in x.iter().zip(bits).zip(back) {
            let is_nan = f32::from_bits(bits).is_nan() && back.is_nan();
            let same = bits == x.to_bits() && back.to_bits() == bits;
            assert!(if x.is_nan() { is_nan } else { same }, "{kind:?}: {x:e}: {bits:#x}, {back:e}");
        }
    }
}

#[test]
fn constants_have_bits_too() {
    for (kind, device) in devices() {
        let x = Tensor::from_slice(&device, &[0u32, 1], [2]).expect("there is memory");
        let (bits, floats) = known(&x).expect("runs");
        assert_eq!(bits.to_vec().expect("runs"), [0x3f80_0000, 0x3f80_0001], "{kind:?}");
        assert_eq!(download(Ok(floats)), [std::f32::consts::PI, std::f32::consts::PI + 1.0], "{kind:?}");
    }
}

#[test]
fn arithmetic_on_bits() {
    let x: Vec<f32> = random_bits(5).take(4000).map(f32::from_bits).filter(|x| x.is_normal()).collect();
    for (kind, device) in devices() {
        for (x, next) in x.iter().zip(download(next(&upload(&device, &x)))) {
            assert_eq!(next.to_bits(), x.to_bits() + 1, "{kind:?}: {x:e}");
        }
        let halves = [1.0, 1.999, -3.0, 0.1, 60_000.0].map(f16::from_f32);
        let halves = Tensor::from_slice(&device, &halves, [5]).expect("there is memory");
        assert_eq!(download(power_below(&halves)), [1.0, 1.0, 2.0, 0.0625, 32_768.0], "{kind:?}");
    }
}
