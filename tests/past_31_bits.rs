//! Products on the CPU with tensors of more than 2³¹ elements.

use fusion::prelude::*;

fuse! {
    #[fuse(targets(cpu))]
    pub(crate) fn numbered(x: &mut i8[M, K]) { x = (index(M) * 7 + index(K) * 3) as i8; }
    #[fuse(targets(cpu))]
    pub(crate) fn product(x: i8[M, K], w: i8[K, N]) -> i32[M, N] { matmul(x, w, K) }
    #[fuse(targets(cpu))]
    pub(crate) fn bytes(x: i8[M, K], w: i8[K, N]) -> u8[M, N] { matmul(x, w, K) as u8 }
}

fn number(row: usize, step: usize) -> i8 {
    (row * 7 + step * 3) as i8
}

/// The tensors of each half have some gigabytes, so one runs after the other.
#[test]
fn factors_and_results_are_large() -> Result<()> {
    a_factor_is_large()?;
    a_result_is_large()
}

/// The last rows of a factor lie after 2³¹ elements.
fn a_factor_is_large() -> Result<()> {
    let (m, k, n) = ((1 << 19) + 40, 4099, 4);
    let device = Device::cpu();
    let mut x = Tensor::<i8>::zeros(&device, [m, k])?;
    numbered(&mut x)?;
    let w: Vec<i8> = (0..k * n).map(|i| (i % 251) as i8).collect();
    let made = product(&x, &Tensor::from_slice(&device, &w, [k, n])?)?.to_vec()?;
    for row in [0, 1, (1 << 19) - 70, (1 << 19) + 3, m - 1] {
        for col in 0..n {
            let term = |step: usize| i32::from(number(row, step)) * i32::from(w[step * n + col]);
            assert_eq!(made[row * n + col], (0..k).map(term).sum::<i32>(), "row {row}");
        }
    }
    Ok(())
}

/// The last rows of a result lie after 2³¹ elements.
fn a_result_is_large() -> Result<()> {
    let (m, k, n) = (65_600, 8, 32_771);
    let device = Device::cpu();
    let mut x = Tensor::<i8>::zeros(&device, [m, k])?;
    numbered(&mut x)?;
    let w: Vec<i8> = (0..k * n).map(|i| (i % 251) as i8).collect();
    let made = bytes(&x, &Tensor::from_slice(&device, &w, [k, n])?)?.to_vec()?;
    for row in [0, 32_768, 65_529, m - 1] {
        for col in [0, 511, 512, 20_000, n - 1] {
            let term = |step: usize| i32::from(number(row, step)) * i32::from(w[step * n + col]);
            assert_eq!(made[row * n + col], (0..k).map(term).sum::<i32>() as u8, "{row}, {col}");
        }
    }
    Ok(())
}
