//! Rows are right at the edges: infinities and NaN, rows without elements, and the same bits in every run.

use fusion::prelude::*;

use crate::Host;
use crate::devices::{Kind, exact_devices, on_devices};

fuse! {
    pub(crate) fn total(x: f32[N, D]) -> f32[N] { sum(x, D) }
    pub(crate) fn average(x: f32[N, D]) -> f32[N] { mean(x, D) }
    pub(crate) fn product(x: f32[N, D]) -> f32[N] { prod(x, D) }
    pub(crate) fn most(x: f32[N, D]) -> f32[N] { max(x, D) }
    pub(crate) fn least(x: f32[N, D]) -> f32[N] { min(x, D) }
    pub(crate) fn soft(x: f32[N, D]) -> f32[N, D] {
        let e = exp(x - max(x, D));
        e / sum(e, D)
    }
    pub(crate) fn everything(x: f32[N, D]) -> f32[] { sum(x) }
    /// No tensor has all elements of a row.
    pub(crate) fn of_outer_products(p: f32[N, K], q: f32[M]) -> f32[N] { sum(p * q, (K, M)) }
    pub(crate) fn columns(x: f32[N, D]) -> f32[D] { sum(x, N) }
    pub(crate) fn spread(x: f32[N, D]) -> f32[N] { var(x, D) }
    pub(crate) fn spread_of_columns(x: f32[N, D]) -> f32[D] { var(x, N) }
    pub(crate) fn counts(x: i32[N, D]) -> (i32[N], i32[N]) { (sum(x, D), prod(x, D)) }
    /// Sums of two types and a place, which one loop combines.
    pub(crate) fn mixed(x: f32[N, D], k: i32[N, D]) -> (f32[N], i32[N], i32[N]) {
        (sum(x, D), sum(k, D), argmax(x, D))
    }
    pub(crate) fn mixed_of_8(x: f32[N, 8], k: i32[N, 8]) -> (f32[N], i32[N], i32[N]) {
        (sum(x, 8), sum(k, 8), argmax(x, 8))
    }
    pub(crate) fn mixed_of_80(x: f32[N, 80], k: i32[N, 80]) -> (f32[N], i32[N], i32[N]) {
        (sum(x, 80), sum(k, 80), argmax(x, 80))
    }
    pub(crate) fn unsigned(x: u32[N, D]) -> (u32[N], u32[N], u32[N]) { (sum(x, D), max(x, D), min(x, D)) }
    pub(crate) fn positive(x: f32[N, D]) -> (i32[N], u32[N]) { (sum((x > 0.0) as i32, D), max((x > 0.0) as u32, D)) }
}

/// Lengths below a vector, around a warp, and of several iterations.
const LENGTHS: [usize; 7] = [1, 2, 31, 33, 130, 1025, 2500];

/// Returns two rows, the second with `special` first, last or in between.
fn with(special: f32, len: usize) -> Vec<Vec<f32>> {
    let ones = vec![1.0; 2 * len];
    let placed = |place: usize| {
        let mut row = ones.clone();
        row[len + place] = special;
        row
    };
    [0, len / 2, len - 1].map(placed).into()
}

type Of = fn(&Tensor<f32>) -> Result<Tensor<f32>>;

/// Asserts the result of a row of ones with one special element, and that the element does not affect other
/// rows.
fn check_special(device: &Device, special: f32, of: Of, expect: f32) -> Result<()> {
    for len in LENGTHS {
        let alone = of(&Tensor::full(device, 1.0, [1, len])?)?.to_vec()?;
        for elements in with(special, len) {
            let got = of(&Tensor::from_slice(device, &elements, [2, len])?)?.to_vec()?;
            assert_eq!(got[0].to_bits(), alone[0].to_bits(), "{device}: the row beside {special} of {len}");
            // The result is that of ones and the special element, or of the element alone in a row of one.
            let same = got[1] == expect || expect.is_nan() && got[1].is_nan();
            assert!(same, "{device}: {} of {len} with {special}, not {expect}", got[1]);
        }
    }
    Ok(())
}

/// Rows combine groups of lanes of every length that a loop takes at once, for floats and integers, and every
/// remainder.
#[test]
fn rows_of_any_length_are_combined_whole() {
    type Mixed = fn(&Tensor<f32>, &Tensor<i32>) -> Result<(Tensor<f32>, Tensor<i32>, Tensor<i32>)>;
    let any = [1, 8, 15, 16, 17, 63, 64, 65, 79, 80, 95, 127, 128, 8191, 8192, 8257]
        .map(|len| (len, mixed as Mixed));
    let all: Vec<(usize, Mixed)> =
        any.into_iter().chain([(8, mixed_of_8 as Mixed), (80, mixed_of_80)]).collect();
    on_devices(|device| {
        for &(len, of) in &all {
            // Whole numbers have exact sums in any order. One of them is the largest.
            let number = |i: usize| (i * 37 % 8317) as i32 - 4000;
            let numbers: Vec<i32> = (0..3 * len).map(number).collect();
            let floats: Vec<f32> =
                numbers.iter().map(|&k| (k % 64) as f32 + if k % 61 == 0 { 0.5 } else { 0.0 }).collect();
            let x = Tensor::from_slice(device, &floats, [3, len])?;
            let (sums, counts, places) = of(&x, &Tensor::from_slice(device, &numbers, [3, len])?)?;
            let (sums, counts, places) = (sums.to_vec()?, counts.to_vec()?, places.to_vec()?);
            for (n, (row, whole)) in floats.chunks(len).zip(numbers.chunks(len)).enumerate() {
                let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let place = row.iter().position(|&x| x == most).unwrap_or(len);
                let expect = (row.iter().sum::<f32>(), whole.iter().sum::<i32>(), place as i32);
                assert_eq!((sums[n], counts[n], places[n]), expect, "{device}: row {n} of {len}");
            }
        }
        Ok(())
    });
}

/// Finite elements are so far apart that squares of their distances overflow. The cases cover parts whose
/// means are that far apart, too.
#[test]
fn squares_that_overflow_are_infinite() {
    on_devices(|device| {
        for (len, far) in [(1000, vec![500]), (2000, vec![1500]), (2000, vec![7, 20]), (100_000, vec![7, 20])]
        {
            for rest in [0.0, 1.0] {
                let mut row = vec![rest; len];
                far.iter().for_each(|&i| row[i] = 3.4e38);
                let of_row = spread(&Tensor::from_slice(device, &row, [1, len])?)?.to_vec()?;
                let beside: Vec<f32> = row.iter().flat_map(|&x| [x; 3]).collect();
                let of_columns =
                    spread_of_columns(&Tensor::from_slice(device, &beside, [len, 3])?)?.to_vec()?;
                let of_one = spread_of_columns(&Tensor::from_slice(device, &row, [len, 1])?)?.to_vec()?;
                let all = [of_row, of_columns, of_one].concat();
                assert_eq!(all, [f32::INFINITY; 5], "{device}: {len} of {rest} but {far:?}");
            }
        }
        Ok(())
    });
}

/// A software device may end long loops early. Results must be right, or the call refused.
#[test]
fn long_loops_are_not_ended_early() {
    let Some(device) = Kind::Wgpu.open() else { return };
    let (n, k) = (513, 35_000);
    let p = Tensor::full(&device, 1.0, [n, k]).expect("the device has room");
    let q = Tensor::full(&device, 2.0, [1]).expect("the device has room");
    match of_outer_products(&p, &q).and_then(|sums| sums.to_vec()) {
        Ok(sums) => assert_eq!(sums, vec![2.0 * k as f32; n]),
        Err(error) => assert!(error.to_string().contains("call it on `Device::cpu()`"), "{error}"),
    }
}

#[test]
fn nan_passes_through_reductions() {
    on_devices(|device| {
        let all: [Of; 5] = [total, average, product, most, least];
        all.into_iter().try_for_each(|of| check_special(device, f32::NAN, of, f32::NAN))
    });
}

#[test]
fn infinities_pass_through_reductions() {
    for device in exact_devices() {
        let cases: [(f32, Of, f32); 8] = [
            (f32::INFINITY, total, f32::INFINITY),
            (f32::NEG_INFINITY, total, f32::NEG_INFINITY),
            (f32::INFINITY, average, f32::INFINITY),
            (f32::NEG_INFINITY, product, f32::NEG_INFINITY),
            (f32::INFINITY, most, f32::INFINITY),
            (f32::NEG_INFINITY, least, f32::NEG_INFINITY),
            (f32::MAX, most, f32::MAX),
            (f32::MIN, least, f32::MIN),
        ];
        for (special, of, expect) in cases {
            check_special(&device, special, of, expect).unwrap_or_else(|error| panic!("{device}: {error}"));
        }
    }
}

/// Infinities of both signs in one row have no sum, wherever they meet. No row is larger than its maximum,
/// even if all of it is −∞.
#[test]
fn opposite_infinities_have_no_sum() {
    for device in exact_devices() {
        for len in [2, 33, 1025] {
            let mut elements = vec![0.0; len];
            (elements[0], elements[len - 1]) = (f32::INFINITY, f32::NEG_INFINITY);
            let x = Tensor::from_slice(&device, &elements, [1, len]).expect("it fits");
            assert!(total(&x).and_then(|sum| sum.to_vec()).expect("it runs")[0].is_nan(), "{device}: {len}");
            let low = Tensor::full(&device, f32::NEG_INFINITY, [1, len]).expect("it fits");
            assert_eq!(most(&low).and_then(|most| most.to_vec()).expect("it runs"), [f32::NEG_INFINITY]);
            assert_eq!(total(&low).and_then(|sum| sum.to_vec()).expect("it runs"), [f32::NEG_INFINITY]);
        }
    }
}

#[test]
fn zeros_of_both_signs() {
    for device in exact_devices() {
        for len in LENGTHS {
            let zeros = Tensor::full(&device, -0.0_f32, [1, len]).expect("it fits");
            for of in [most as Of, least] {
                let got = of(&zeros).and_then(|got| got.to_vec()).expect("it runs")[0];
                assert_eq!(got.to_bits(), (-0.0_f32).to_bits(), "{device}: extreme of {len} times -0");
            }
            // Sums begin at 0, as PyTorch's do.
            let sum = total(&zeros).and_then(|got| got.to_vec()).expect("it runs")[0];
            assert_eq!(sum.to_bits(), 0, "{device}: sum of {len} times -0");
        }
    }
}

/// Softmax agrees with PyTorch at the edges. A row with a NaN is NaN, and so is one that is −∞ throughout,
/// but not one with some −∞.
#[test]
fn softmax_at_the_edges() {
    for device in exact_devices() {
        for len in [2, 33, 130, 1025] {
            let mut elements = vec![0.0; 4 * len];
            elements[len / 2] = f32::NAN;
            elements[len..2 * len].fill(f32::NEG_INFINITY);
            elements[2 * len] = f32::NEG_INFINITY;
            elements[3 * len] = 1e30;
            let x = Tensor::from_slice(&device, &elements, [4, len]).expect("it fits");
            let got = soft(&x).and_then(|got| got.to_vec()).expect("it runs");
            assert!(got[..2 * len].iter().all(|p| p.is_nan()), "{device}: rows of {len}");
            assert_eq!(got[2 * len], 0.0, "{device}: exp(-INF) of {len}");
            let even = 1.0 / (len - 1) as f32;
            let near = |p: &f32| (p - even).abs() <= 1e-6 * even;
            assert!(got[2 * len + 1..3 * len].iter().all(near), "{device}: the rest of a row of {len}");
            assert_eq!(got[3 * len], 1.0, "{device}: a large element of {len}");
            assert!(
                got[3 * len + 1..].iter().all(|&p| p == 0.0),
                "{device}: beside a large element of {len}"
            );
        }
    }
}

#[test]
fn rows_without_elements_and_no_rows() {
    on_devices(|device| {
        for n in [1, 5, 300] {
            let x: Tensor<f32> = Tensor::zeros(device, [n, 0])?;
            assert_eq!(total(&x)?.to_vec()?, vec![0.0; n], "{device}");
            assert_eq!(product(&x)?.to_vec()?, vec![1.0; n], "{device}");
            assert!(average(&x)?.to_vec()?.iter().all(|mean| mean.is_nan()), "{device}");
            assert_eq!(soft(&x)?.shape().dims(), [n, 0]);
            assert_eq!(everything(&x)?.item()?, 0.0, "{device}");
            assert_eq!(columns(&x)?.len(), 0);
            let empty: Tensor<f32> = Tensor::zeros(device, [0, n])?;
            assert_eq!(total(&empty)?.len(), 0);
            assert_eq!(soft(&empty)?.shape().dims(), [0, n]);
            assert_eq!(columns(&empty)?.to_vec()?, vec![0.0; n], "{device}");
            assert_eq!(everything(&empty)?.item()?, 0.0, "{device}");
            let counted = counts(&Tensor::zeros(device, [n, 0])?)?;
            assert_eq!((counted.0.to_vec()?, counted.1.to_vec()?), (vec![0; n], vec![1; n]), "{device}");
        }
        Ok(())
    });
}

#[test]
fn integers_of_both_signs_and_of_none() {
    on_devices(|device| {
        for len in LENGTHS {
            let ends = [u32::MAX, 1 << 31, (1 << 31) - 1, 5];
            let elements: Vec<u32> = (0..len).map(|i| ends[i % 4] - (i / 4) as u32 % 3).collect();
            let (sum, most, least) = unsigned(&Tensor::from_slice(device, &elements, [1, len])?)?;
            assert_eq!(
                sum.to_vec()?,
                [elements.iter().copied().fold(0, u32::wrapping_add)],
                "{device}: {len}"
            );
            assert_eq!(most.to_vec()?, [*elements.iter().max().expect("there are some")], "{device}: {len}");
            assert_eq!(least.to_vec()?, [*elements.iter().min().expect("there are some")], "{device}: {len}");
            let signs: Vec<f32> =
                (0..2 * len).map(|i| if i % 3 == 1 && i < len { 1.5 } else { -1.5 }).collect();
            let (count, any) = positive(&Tensor::from_slice(device, &signs, [2, len])?)?;
            let expected = (0..len).filter(|i| i % 3 == 1).count();
            assert_eq!(count.to_vec()?, [expected as i32, 0], "{device}: {len}");
            assert_eq!(any.to_vec()?, [u32::from(expected > 0), 0], "{device}: {len}");
        }
        Ok(())
    });
}

/// A single long row and thousands of short ones give the same bits in every run.
#[test]
fn every_run_gives_the_same_bits() {
    on_devices(|device| {
        for shape in [[1, 50_257], [300, 65], [3000, 5]] {
            let x = Host::new(41, &shape).on(device)?;
            let bits = |of: Of| -> Result<Vec<u32>> {
                Ok(of(&x)?.to_vec()?.into_iter().map(f32::to_bits).collect())
            };
            for of in [total as Of, everything, columns, soft] {
                let first = bits(of)?;
                for _ in 0..3 {
                    assert_eq!(bits(of)?, first, "{device}: {shape:?}");
                }
            }
        }
        Ok(())
    });
}

/// The place of a row in memory does not change its sum.
#[test]
fn equal_rows_give_equal_bits() {
    on_devices(|device| {
        for len in [31, 32, 100, 1025] {
            let row = Host::new(43, &[len]).elements;
            let x = Tensor::from_slice(device, &row.repeat(200), [200, len])?;
            let alone = total(&Tensor::from_slice(device, &row, [1, len])?)?.to_vec()?[0].to_bits();
            assert!(total(&x)?.to_vec()?.iter().all(|sum| sum.to_bits() == alone), "{device}: {len}");
        }
        Ok(())
    });
}

/// Results have the same bits for every number of threads that share the rows.
#[test]
fn threads_do_not_change_the_bits() {
    let Some(device) = Kind::Cpu.open() else { return };
    let shapes = [[3, 100_003], [5000, 65], [65, 5000]];
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
    let pools: Vec<rayon::ThreadPool> = [1, 3].into_iter().map(pool).collect();
    for shape in shapes {
        let x = Host::new(45, &shape).on(&device).expect("it fits");
        for of in [total as Of, everything, columns, soft] {
            let run = || -> Vec<u32> {
                let got = of(&x).and_then(|got| got.to_vec()).expect("it runs");
                got.into_iter().map(f32::to_bits).collect()
            };
            let all: Vec<Vec<u32>> = pools.iter().map(|pool| pool.install(run)).collect();
            assert!(all.iter().all(|bits| *bits == all[0]), "{shape:?}");
        }
    }
}
