//! `#[fuse(strict)]`: a fused function gives the bits of its operations called one by one, each with a result
//! in memory.

use fusion::{Device, Result, Tensor, bf16, f16};

use crate::devices::on_devices;

fusion::fuse! {
    #[fuse(strict)]
    pub fn gate(x: f16[N, D], y: f16[N, D]) -> f16[N, D] {
        let a = x * y;
        let e = exp(a);
        let b = e + x;
        b / (1.0 + abs(b))
    }

    pub fn gate_once(x: f16[N, D], y: f16[N, D]) -> f16[N, D] {
        let a = x * y;
        let e = exp(a);
        let b = e + x;
        b / (1.0 + abs(b))
    }

    #[fuse(strict)]
    pub fn weights(x: f16[N, D], y: f16[N, D]) -> f16[N, D] { softmax(x * y, D) }

    /// A function of the library counts as one operation, and so does a mean.
    #[fuse(strict)]
    pub fn centered(x: f16[N, D]) -> (f16[N, D], f16[N], f16[N, D]) {
        let m = mean(x, D);
        (sigmoid(x - m), std(x, D), layer_norm(x, D))
    }

    /// A value that is already in `f32` keeps its precision.
    #[fuse(strict)]
    pub fn stepped(m: &mut f32[N], g: f16[N]) { m = lerp(m, g, 0.5); }

    pub fn softmax_of(x: f16[N, D]) -> f16[N, D] { softmax(x, D) }
    pub fn mean_of(x: f16[N, D]) -> f16[N] { mean(x, D) }
    pub fn sigmoid_of(x: f16[N, D]) -> f16[N, D] { sigmoid(x) }
    pub fn std_of(x: f16[N, D]) -> f16[N] { std(x, D) }
    pub fn normal_of(x: f16[N, D]) -> f16[N, D] { layer_norm(x, D) }

    #[fuse(strict)]
    pub fn brain(x: bf16[N, D], y: bf16[N, D]) -> bf16[N, D] { if x * y > x { sqrt(abs(x * y + y)) } else { x - y } }

    /// The product and the sum are two roundings.
    #[fuse(strict)]
    pub fn apart(x: f32[N], y: f32[N]) -> f32[N] { x * y + y }

    pub fn mul(x: f16[N, D], y: f16[N, D]) -> f16[N, D] { x * y }
    pub fn add(x: f16[N, D], y: f16[N, D]) -> f16[N, D] { x + y }
    pub fn div(x: f16[N, D], y: f16[N, D]) -> f16[N, D] { x / y }
    pub fn sub_row(x: f16[N, D], y: f16[N]) -> f16[N, D] { x - y }
    pub fn plus_one(x: f16[N, D]) -> f16[N, D] { 1.0 + x }
    pub fn exp_of(x: f16[N, D]) -> f16[N, D] { exp(x) }
    pub fn abs_of(x: f16[N, D]) -> f16[N, D] { abs(x) }

    pub fn brain_mul(x: bf16[N, D], y: bf16[N, D]) -> bf16[N, D] { x * y }
    pub fn brain_add(x: bf16[N, D], y: bf16[N, D]) -> bf16[N, D] { x + y }
    pub fn brain_sub(x: bf16[N, D], y: bf16[N, D]) -> bf16[N, D] { x - y }
    pub fn brain_root(x: bf16[N, D]) -> bf16[N, D] { sqrt(abs(x)) }
    pub fn brain_pick(a: bf16[N, D], x: bf16[N, D], y: bf16[N, D], z: bf16[N, D]) -> bf16[N, D] { if a > x { y } else { z } }
}

fn tensor(device: &Device, [n, d]: [usize; 2], step: f32) -> Result<Tensor<f16>> {
    let x: Vec<f16> = (0..n * d).map(|i| f16::from_f32((i as f32 * step).sin() * 3.0)).collect();
    Tensor::from_vec(device, x, [n, d])
}

#[test]
fn as_one_by_one() {
    on_devices(|device| {
        for shape in [[1, 1], [7, 33], [64, 128], [3, 2049], [1, 70_001]] {
            let (x, y) = (tensor(device, shape, 1.7)?, tensor(device, shape, 0.3)?);
            let b = add(&exp_of(&mul(&x, &y)?)?, &x)?;
            let expected = div(&b, &plus_one(&abs_of(&b)?)?)?.to_vec()?;
            assert_eq!(gate(&x, &y)?.to_vec()?, expected, "{device}: {shape:?}");
            let differ = gate_once(&x, &y)?.to_vec()?.iter().zip(&expected).filter(|(a, b)| a != b).count();
            assert!(shape == [1, 1] || differ > 0, "{device}: without `strict` only the result is rounded");
            let expected = softmax_of(&mul(&x, &y)?)?.to_vec()?;
            assert_eq!(weights(&x, &y)?.to_vec()?, expected, "{device}: {shape:?}");
            let (gates, deviations, normal) = centered(&x)?;
            let expected = sigmoid_of(&sub_row(&x, &mean_of(&x)?)?)?.to_vec()?;
            assert_eq!(gates.to_vec()?, expected, "{device}: {shape:?}");
            let bits = |x: Vec<f16>| {
                x.into_iter().map(|x| if x.is_nan() { 0x7e00 } else { x.to_bits() }).collect::<Vec<_>>()
            };
            assert_eq!(bits(deviations.to_vec()?), bits(std_of(&x)?.to_vec()?), "{device}: {shape:?}");
            assert_eq!(normal.to_vec()?, normal_of(&x)?.to_vec()?, "{device}: {shape:?}");
        }
        Ok(())
    });
}

#[test]
fn comparisons_and_brain_floats() {
    on_devices(|device| {
        let cast = |x: Tensor<f16>| {
            let x: Vec<bf16> = x.to_vec()?.into_iter().map(|x| bf16::from_f32(x.to_f32())).collect();
            Tensor::from_vec(device, x, [7, 33])
        };
        let x = cast(tensor(device, [7, 33], 1.7)?)?;
        let y = cast(tensor(device, [7, 33], 0.3)?)?;
        let a = brain_mul(&x, &y)?;
        let root = brain_root(&brain_add(&a, &y)?)?;
        let expected = brain_pick(&a, &x, &root, &brain_sub(&x, &y)?)?.to_vec()?;
        assert_eq!(brain(&x, &y)?.to_vec()?, expected, "{device}");
        Ok(())
    });
}

#[test]
fn nothing_becomes_fma() {
    // WGSL lets a driver fuse them.
    for device in crate::devices::exact_devices() {
        let x: Vec<f32> = (0..1000).map(|i| 1.0 + i as f32 / 977.0).collect();
        let t = Tensor::from_slice(&device, &x, [1000]).unwrap();
        let expected: Vec<f32> = x.iter().map(|x| x * x + x).collect();
        assert_eq!(apart(&t, &t).unwrap().to_vec().unwrap(), expected, "{device}");
    }
    assert!(gate::report().to_string().contains("; strict"), "{}", gate::report());
}

#[test]
fn singles_are_not_rounded_to_halves() {
    on_devices(|device| {
        let mut m = Tensor::from_slice(device, &[1e6_f32, 1.0002, 0.0], [3])?;
        let g = Tensor::from_slice(device, &[0.0, 1.0, 3.0].map(f16::from_f32), [3])?;
        stepped(&mut m, &g)?;
        for (m, expected) in m.to_vec()?.into_iter().zip([5e5, 1.0001, 1.5]) {
            assert!((m - expected).abs() <= 1e-6 * expected, "{device}: {m}, not {expected}");
        }
        Ok(())
    });
}
