//! PTX that Fusion did not emit: what nvcc makes of small CUDA C++ kernels runs without a fault and computes what
//! the same sums in f64 say, at sizes that are multiples of nothing.
//!
//! `data/*.ptx` are made of the `.cu` beside them, whose first lines say how. NVIDIA's wheels hold all that it takes:
//! `pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl nvidia-nvvm`, all of 13.5.

mod harness;

use half::{bf16, f16};
use harness::{Arg, Shape, blocks, floats, launch, to_words, words};

/// Numbers that repeat late, from a linear congruential generator (Knuth's MMIX), by their upper bits.
fn numbers(seed: u64, count: usize) -> Vec<u32> {
    let next =
        |x: &u64| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    std::iter::successors(Some(seed), next).skip(1).take(count).map(|x| (x >> 32) as u32).collect()
}

/// Floats in -8..8.
fn inputs(seed: u64, count: usize) -> Vec<f32> {
    numbers(seed, count).into_iter().map(|x| (x >> 8) as f32 / (1 << 20) as f32 - 8.0).collect()
}

/// The buffers after a launch without a fault.
fn run(text: &str, shape: Shape, args: &[Arg]) -> Vec<Vec<u8>> {
    launch(text, shape, args).unwrap_or_else(|fault| panic!("{fault}")).1
}

fn to_floats(bytes: &[u8]) -> Vec<f32> {
    to_words(bytes).into_iter().map(f32::from_bits).collect()
}

/// Each is within `bound` of its reference.
fn close(found: &[f32], wanted: impl ExactSizeIterator<Item = f64>, bound: impl Fn(f64) -> f64) {
    assert_eq!(found.len(), wanted.len());
    for (i, (&found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((f64::from(found) - wanted).abs() <= bound(wanted), "element {i}: {found}, not {wanted}");
    }
}

/// What one rounding to nearest may add to a float of this size.
fn half_ulp(wanted: f64) -> f64 {
    wanted.abs() * f64::from(f32::EPSILON) / 2.0 + f64::from(f32::MIN_POSITIVE)
}

#[test]
fn saxpy() {
    for n in [1, 31, 1000, 4099] {
        let (x, y) = (inputs(1, n), inputs(2, n));
        let args = [Arg::Word(n as u32), Arg::Word(1.75f32.to_bits()), floats(&x), floats(&y)];
        // More threads than elements at first, and several elements for a thread at last.
        let buffers = run(include_str!("data/saxpy.ptx"), blocks(3, 96), &args);
        let wanted = x.iter().zip(&y).map(|(&x, &y)| 1.75 * f64::from(x) + f64::from(y));
        close(&to_floats(&buffers[1]), wanted, half_ulp);
    }
}

#[test]
fn block_sum() {
    for (n, grid) in [(1, 1), (255, 2), (1000, 1), (10_007, 5)] {
        let x = inputs(3, n);
        let args = [floats(&x), floats(&vec![f32::NAN; grid as usize]), Arg::Word(n as u32)];
        let buffers = run(include_str!("data/block_sum.ptx"), blocks(grid, 256), &args);
        let of_block = |block: usize| {
            let mine = x.chunks(256).skip(block).step_by(grid as usize).flatten();
            mine.map(|&x| f64::from(x)).sum::<f64>()
        };
        // At most this many additions follow one another, on partial sums of no more than the absolute values'.
        let depth = (n.div_ceil(256 * grid as usize) + 8) as f64;
        let bound = depth * half_ulp(x.iter().map(|&x| f64::from(x.abs())).sum());
        close(&to_floats(&buffers[1]), (0..grid as usize).map(of_block), |_| bound);
    }
}

#[test]
fn softmax_row() {
    for (rows, columns, threads) in [(1, 1, 32), (3, 7, 64), (5, 97, 96), (2, 1001, 224)] {
        let x = inputs(4, rows * columns);
        let args = [floats(&x), floats(&vec![f32::NAN; x.len()]), Arg::Word(columns as u32)];
        let shape = Shape { dynamic: threads / 32 * 4, ..blocks(rows as u32, threads) };
        let buffers = run(include_str!("data/softmax_row.ptx"), shape, &args);
        let softmax = |row: &[f32]| {
            let exp: Vec<f64> = row.iter().map(|&x| f64::from(x).exp()).collect();
            let sum: f64 = exp.iter().sum();
            exp.into_iter().map(move |exp| exp / sum).collect::<Vec<f64>>()
        };
        let wanted: Vec<f64> = x.chunks(columns).flat_map(softmax).collect();
        // CUDA documents expf within 2 ulp; the difference it is taken of, sum and quotient round too.
        let bound = |wanted: f64| 40.0 * half_ulp(wanted);
        close(&to_floats(&buffers[1]), wanted.into_iter(), bound);
    }
}

#[test]
fn transpose() {
    for (rows, columns) in [(1, 1), (1, 65), (33, 31), (97, 70)] {
        let x = numbers(5, rows * columns);
        let args = [words(&x), words(&vec![0; x.len()]), Arg::Word(rows as u32), Arg::Word(columns as u32)];
        let grid = [columns.div_ceil(32) as u32, rows.div_ceil(32) as u32, 1];
        let shape = Shape { grid, block: [32, 8, 1], dynamic: 0 };
        let found = to_words(&run(include_str!("data/transpose.ptx"), shape, &args)[1]);
        for (i, found) in found.into_iter().enumerate() {
            assert_eq!(found, x[i % rows * columns + i / rows], "element {i} of {columns} by {rows}");
        }
    }
}

#[test]
fn half_gate() {
    for n in [1, 2, 67, 1001] {
        let [a, b, c] =
            [6, 7, 8].map(|seed| inputs(seed, n).into_iter().map(f16::from_f32).collect::<Vec<f16>>());
        let halves = |x: &[f16]| Arg::Buffer(x.iter().flat_map(|x| x.to_le_bytes()).collect());
        let nothing = || Arg::Buffer(vec![0xff; 2 * n]);
        let args = [halves(&a), halves(&b), halves(&c), nothing(), nothing(), Arg::Word(n as u32)];
        let buffers = run(include_str!("data/half_gate.ptx"), blocks(n.div_ceil(128) as u32, 64), &args);
        for i in 0..n {
            // Exact in f64, so rounded once.
            let sum = a[i].to_f64() * b[i].to_f64() + c[i].to_f64();
            let y = f16::from_f64(sum.max(0.0));
            let found =
                [3, 4].map(|at: usize| u16::from_le_bytes([buffers[at][2 * i], buffers[at][2 * i + 1]]));
            assert_eq!(found, [y.to_bits(), bf16::from_f64(y.to_f64()).to_bits()], "element {i} of {n}");
        }
    }
}

#[test]
fn histogram() {
    for n in [1, 45, 5003] {
        let x = numbers(9, n);
        let args = [words(&x), words(&[0; 64]), words(&vec![u32::MAX; n]), words(&[0]), Arg::Word(n as u32)];
        let buffers = run(include_str!("data/histogram.ptx"), blocks(3, 160), &args);
        let mut counts = [0; 64];
        x.iter().for_each(|x| counts[(x % 64) as usize] += 1);
        assert_eq!(to_words(&buffers[1]), counts);
        let mut odd: Vec<u32> = x.iter().map(|x| x % 64).filter(|value| value % 2 == 1).collect();
        let mut found = to_words(&buffers[2]);
        assert_eq!(to_words(&buffers[3]), [odd.len() as u32]);
        assert!(found.drain(odd.len()..).all(|rest| rest == u32::MAX), "nothing else is written");
        odd.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, odd);
    }
}
