//! Coordinates are right in loops that interleave several vectors, as unroll and jam does for long chains of
//! operations.

use fusion::prelude::*;

use super::devices::on_devices;

fuse! {
    pub(crate) fn numbered(x: f32[N]) -> (f32[N], u32[N], u8[N], i32[N]) {
        let i = index(N);
        (tanh(tanh(x)) + (i as u32 & 4095) as f32, i as u32 * 2654435761, (i / 3) as u8, if x > 0.0 { i } else { -i })
    }
    pub(crate) fn numbered_rows(x: f32[N, D]) -> f32[N, D] {
        tanh(tanh(x - max(x, D))) + (index(D) + 8192 * (index(N) % 16)) as f32
    }
}

fn element(i: usize) -> f32 {
    (i * 7919 % 2001) as f32 / 250.0 - 4.0
}

fn check(got: &[f32], expected: impl Fn(usize) -> f64) {
    for (i, got) in got.iter().enumerate() {
        let expected = expected(i);
        assert!((f64::from(*got) - expected).abs() <= 1e-2, "element {i}: {got}, not {expected}");
    }
}

#[test]
fn elements_have_their_numbers_in_vectors_side_by_side() {
    on_devices(|device| {
        for n in [1, 16, 63, 64, 65, 127, 128, 129, 257, 4097, 8200] {
            let x: Vec<f32> = (0..n).map(element).collect();
            let (numbers, hashes, bytes, signed) = numbered(&Tensor::from_slice(device, &x, [n])?)?;
            check(&numbers.to_vec()?, |i| f64::from(x[i]).tanh().tanh() + (i % 4096) as f64);
            let hash = |i: usize| (i as u32).wrapping_mul(2_654_435_761);
            assert_eq!(hashes.to_vec()?, (0..n).map(hash).collect::<Vec<_>>(), "{n}");
            assert_eq!(bytes.to_vec()?, (0..n).map(|i| (i / 3) as u8).collect::<Vec<_>>(), "{n}");
            let sign = |i: usize| if x[i] > 0.0 { i as i32 } else { -(i as i32) };
            assert_eq!(signed.to_vec()?, (0..n).map(sign).collect::<Vec<_>>(), "{n}");
        }
        for (n, d) in [(3, 64), (2, 65), (17, 129), (2, 4200)] {
            let x: Vec<f32> = (0..n * d).map(element).collect();
            let most = |row: usize| x[row * d..][..d].iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let numbers = numbered_rows(&Tensor::from_slice(device, &x, [n, d])?)?;
            check(&numbers.to_vec()?, |i| {
                let of_row = f64::from(x[i] - most(i / d)).tanh().tanh();
                of_row + (i % d + 8192 * (i / d % 16)) as f64
            });
        }
        Ok(())
    });
}
