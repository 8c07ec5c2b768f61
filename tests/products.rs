//! Products of matrices at the edges: extents of 0 and 1, values that are no numbers, operands that are views,
//! and integers of 8 bits.

mod devices;

use devices::on_devices;
use fusion::prelude::*;
use fusion::{bf16, f16};

fuse! {
    pub(crate) fn product(x: f32[M, K], w: f32[N, K]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn summed(x: f32[M, K], w: f32[N, K]) -> f32[M, N] { sum(x * w, K) }
    pub(crate) fn halves(x: f16[M, K], w: bf16[N, K]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn bytes(x: i8[M, K], w: u8[N, K]) -> i32[M, N] { matmul(x, w, K) }
}

/// Returns pseudo-random numbers from -1 to 1, the same for the same seed.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = seed as u32 ^ 0x9e37_79b9;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[test]
fn matmul_is_the_sum_of_products() {
    let bits = |of: Vec<f32>| of.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    on_devices(|device| {
        for (m, k, n) in [(1, 1, 1), (7, 300, 33), (40, 9, 20)] {
            let (x, w) = (numbers(m, m * k), numbers(n, n * k));
            let tensors = (Tensor::from_slice(device, &x, [m, k])?, Tensor::from_slice(device, &w, [n, k])?);
            let [made, expected] = [product, summed].map(|function| function(&tensors.0, &tensors.1));
            assert!(bits(made?.to_vec()?) == bits(expected?.to_vec()?), "{device} {m} {k} {n}");
            let x: Vec<f16> = x.into_iter().map(f16::from_f32).collect();
            let w: Vec<bf16> = w.into_iter().map(bf16::from_f32).collect();
            let made =
                halves(&Tensor::from_slice(device, &x, [m, k])?, &Tensor::from_slice(device, &w, [n, k])?)?;
            for (i, made) in made.to_vec()?.into_iter().enumerate() {
                let terms = (0..k).map(|l| x[i / n * k + l].to_f64() * w[i % n * k + l].to_f64());
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                assert!((f64::from(made) - sum).abs() <= 3e-6 * (size + 1.0), "{device} {m} {k} {n}: {made}");
            }
        }
        Ok(())
    });
}

/// The largest products of 8 bits, whose sums need more than 16.
#[test]
fn products_of_8_bits_are_exact() {
    on_devices(|device| {
        for (m, k, n) in [(1, 1, 1), (3, 700, 65), (16, 33, 5)] {
            let x: Vec<i8> = (0..m * k).map(|i| [-128, 127, 3, -1][i * 7 % 5 % 4]).collect();
            let w: Vec<u8> = (0..n * k).map(|i| [255, 254, 0, 1][i * 11 % 7 % 4]).collect();
            let made =
                bytes(&Tensor::from_slice(device, &x, [m, k])?, &Tensor::from_slice(device, &w, [n, k])?)?;
            let term = |i: usize, l: usize| i32::from(x[i / n * k + l]) * i32::from(w[i % n * k + l]);
            let expected: Vec<i32> = (0..m * n).map(|i| (0..k).map(|l| term(i, l)).sum()).collect();
            assert_eq!(made.to_vec()?, expected, "{device} {m} {k} {n}");
        }
        Ok(())
    });
}
