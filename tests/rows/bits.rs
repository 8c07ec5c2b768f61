//! Rows that are split into parts have the same bits for every number of threads and rows.

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

/// Results have the same bits for every number of threads.
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
