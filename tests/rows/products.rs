//! Sums of products round with `fma`, and products of distances from a mean survive the split of rows into
//! parts.

use fusion::prelude::*;

use crate::devices::on_devices;

fuse! {
    pub(crate) fn fused(x: f32[N], y: f32[N], z: f32[N]) -> f32[N] { fma(x, y, z) }
    pub(crate) fn along(x: f32[N, D], y: f32[N, D]) -> f32[N] { sum(x * y, D) }
    pub(crate) fn across(x: f32[D, N], y: f32[D, N]) -> f32[N] { sum(x * y, D) }

    // Sums of squared distances from the mean, and of products with the same distances.
    pub(crate) fn products(x: f32[N, D], y: f32[N, D]) -> (f32[N], f32[N]) {
        let d = x - mean(x, D);
        (sum(d * y, D), sum(d * d, D))
    }
    pub(crate) fn covariance(x: f32[N, D], y: f32[N, D]) -> f32[N] {
        sum((x - mean(x, D)) * (y - mean(y, D)), D)
    }
    pub(crate) fn column_covariance(x: f32[D, N], y: f32[D, N]) -> f32[N] {
        sum((x - mean(x, D)) * (y - mean(y, D)), D)
    }
}

/// A sum of products adds each product with `fma`. The rounding error of a square remains when the rounded
/// square is subtracted.
#[test]
fn products_are_rounded_with_their_sums() {
    let (x, square) = (1.0 + (-13_f32).exp2(), 1.0 + (-12_f32).exp2());
    // Distances of the two products: in the same lane of the CPU's sum along rows, and in adjacent rows along
    // columns. The CPU rounds that sum once. GPUs keep the rounding error of a sum at any distance.
    let (n, d, [of_row, of_column]) = (8, 512, [64, 1]);
    on_devices(|device| {
        let one = |x: f32| Tensor::from_slice(device, &[x], [1]);
        let left = fused(&one(x)?, &one(x)?, &one(-square)?)?.to_vec()?[0];
        // WGSL may round a product of `fma`.
        assert!(left != 0.0 || device.to_string().contains("wgpu"), "{device}");
        let mut elements = [vec![0.0; n * d], vec![0.0; n * d]];
        let mut beside = elements.clone();
        for i in 0..n {
            for (times, factors) in [(0, [-square, 1.0]), (1, [x, x])] {
                let [at, across] = [i * d + times * of_row, times * of_column * n + i];
                for (operand, factor) in factors.into_iter().enumerate() {
                    (elements[operand][at], beside[operand][across]) = (factor, factor);
                }
            }
        }
        let tensor = |of: &[f32], shape| Tensor::from_slice(device, of, shape);
        let [a, b] = [&elements[0], &elements[1]].map(|of| tensor(of, [n, d]));
        assert_eq!(along(&a?, &b?)?.to_vec()?, vec![left; n], "{device}: rows");
        let [a, b] = [&beside[0], &beside[1]].map(|of| tensor(of, [d, n]));
        assert_eq!(across(&a?, &b?)?.to_vec()?, vec![left; n], "{device}: columns");
        Ok(())
    });
}

/// The second half of each row is larger than the first, so that parts and rows have different means. All
/// sums are exact.
#[test]
fn products_of_distances_from_a_mean() {
    on_devices(|device| {
        for (n, d) in [(1, 40_000), (3, 100_000), (1, 1 << 20)] {
            let step = |row: usize, i: usize| if i < d / 2 { 0.0 } else { (row + 1) as f32 };
            let of_rows: Vec<f32> = (0..n * d).map(|i| step(i / d, i % d)).collect();
            let of_columns: Vec<f32> = (0..n * d).map(|i| step(i % n, i / n)).collect();
            let expected: Vec<f32> = (1..=n).map(|row| (row * row * d / 4) as f32).collect();
            let near = |got: Vec<f32>, what: &str| {
                let is_near = |(got, expected): (&f32, &f32)| (got - expected).abs() <= 1e-5 * expected;
                let all = got.iter().zip(&expected).all(is_near);
                assert!(all, "{device}: {what} of {n} rows of {d}: {got:?}, not {expected:?}");
            };
            let x = Tensor::from_slice(device, &of_rows, [n, d])?;
            let (products, squares) = products(&x, &x)?;
            near(products.to_vec()?, "products");
            near(squares.to_vec()?, "squares");
            near(covariance(&x, &x.clone())?.to_vec()?, "covariance");
            let x = Tensor::from_slice(device, &of_columns, [d, n])?;
            near(column_covariance(&x, &x)?.to_vec()?, "covariance of columns");
        }
        Ok(())
    });
}
