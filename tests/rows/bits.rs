//! Rows that are cut into parts have the same bits however many threads or rows there are.

use fusion::prelude::*;

use crate::Host;
use crate::devices::{Kind, on_devices};
use crate::split::{row_logs, row_spread, row_sums, shares};

#[test]
fn the_same_bits() {
    on_devices(|device| {
        for d in [65_537, 300_001] {
            let row = Host::new(43, &[d]).elements;
            let bits = |n: usize| -> Result<Vec<u32>> {
                let x = Tensor::from_slice(device, &row.repeat(n), [n, d])?;
                let (sum, mean, norm) = row_sums(&x)?;
                let (var, std) = row_spread(&x)?;
                let mut all = Vec::new();
                for tensor in [sum, mean, norm, var, std, row_logs(&x)?] {
                    let got: Vec<u32> = tensor.to_vec()?.into_iter().map(f32::to_bits).collect();
                    assert!(got.iter().all(|bits| *bits == got[0]), "{device}: equal rows of {d}");
                    all.push(got[0]);
                }
                Ok(all)
            };
            let first = bits(1)?;
            assert_eq!(first, bits(1)?, "{device}: again");
            assert_eq!(first, bits(3)?, "{device}: beside others");
        }
        Ok(())
    });
}

/// However many threads there are, to the bit.
#[test]
fn threads_do_not_change_the_bits() {
    let Some(device) = Kind::Cpu.open() else { return };
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
    let pools: Vec<rayon::ThreadPool> = [1, 3].into_iter().map(pool).collect();
    for [n, d] in [[3, 300_001], [1, (1 << 22) + 5]] {
        let x = Host::new(47, &[n, d]).on(&device).expect("it fits");
        let run = || -> Vec<u32> {
            let (sum, mean, norm) = row_sums(&x).expect("it runs");
            let (var, std) = row_spread(&x).expect("it runs");
            let all =
                [sum, mean, norm, var, std, row_logs(&x).expect("it runs"), shares(&x).expect("it runs")];
            all.iter().flat_map(|one| one.to_vec().expect("it runs")).map(f32::to_bits).collect()
        };
        let all: Vec<Vec<u32>> = pools.iter().map(|pool| pool.install(run)).collect();
        assert!(all.iter().all(|bits| *bits == all[0]), "{n} rows of {d}");
    }
}

fuse! {
    pub(self) fn fused(x: f32[N], y: f32[N], z: f32[N]) -> f32[N] { fma(x, y, z) }
    pub(self) fn along(x: f32[N, D], y: f32[N, D]) -> f32[N] { sum(x * y, D) }
    pub(self) fn across(x: f32[D, N], y: f32[D, N]) -> f32[N] { sum(x * y, D) }
}

/// A sum of products takes each as `fma` does: of a square that is not an `f32`, what was rounded off is left when it is taken away.
#[test]
fn products_are_rounded_with_their_sums() {
    let (x, square) = (1.0 + (-13_f32).exp2(), 1.0 + (-12_f32).exp2());
    // As far apart as what a thread of any device has in one sum of its own, of rows and of columns.
    let (n, d, [of_row, of_column]) = (8, 512, [256, 64]);
    on_devices(|device| {
        let one = |x: f32| Tensor::from_slice(device, &[x], [1]);
        let left = fused(&one(x)?, &one(-x)?, &one(square)?)?.to_vec()?[0];
        let mut elements = [vec![0.0; n * d], vec![0.0; n * d]];
        let mut beside = elements.clone();
        for i in 0..n {
            for (times, signed) in [(0, x), (1, -x)] {
                let [at, across] = [i * d + times * of_row, times * of_column * n + i];
                (elements[0][at], elements[1][at]) = (x, signed);
                (beside[0][across], beside[1][across]) = (x, signed);
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
