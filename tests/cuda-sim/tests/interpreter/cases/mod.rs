//! Launches with known results. Each case has a kernel, arguments, and a reference that is independent of
//! PTX.
//!
//! nvcc compiled `data/*.ptx` from the `.cu` files next to them, whose first lines give the command. NVIDIA's
//! wheels contain the compiler: `pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-cuda-runtime
//! nvidia-cuda-cccl nvidia-nvvm`, all of 13.5.

use half::{bf16, f16};

use crate::harness::{Arg, LaunchConfig, blocks, floats, launch_limited, to_words, words};

/// The verdict on a result: an error says what is wrong.
pub(crate) type Verdict = Result<(), String>;

/// Function that checks the buffers after a launch.
type Check = Box<dyn Fn(&[Vec<u8>]) -> Verdict>;

/// A launch with the check of its buffers.
pub(crate) struct Case {
    pub(crate) text: String,
    config: LaunchConfig,
    args: Vec<Arg>,
    check: Check,
}

/// A failed launch: a fault, or a wrong result.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    Fault(cuda_sim::exec::Fault),
    Wrong(String),
}

impl Case {
    /// Runs a text with the case's arguments.
    pub(crate) fn run(&self, text: &str) -> Result<(), Trouble> {
        let outcome = launch_limited(text, self.config, &self.args, 1 << 22).map_err(Trouble::Fault);
        (self.check)(&outcome?.1).map_err(Trouble::Wrong)
    }

    /// Returns the counters of a launch of the case's own text.
    pub(crate) fn counters(&self) -> cuda_sim::exec::Counters {
        let outcome = launch_limited(&self.text, self.config, &self.args, 1 << 22);
        outcome.unwrap_or_else(|fault| panic!("{fault}")).0
    }

    /// Asserts that the case's own text gives the right result.
    pub(crate) fn passes(&self) {
        match self.run(&self.text) {
            Ok(()) => {}
            Err(Trouble::Fault(fault)) => panic!("{fault}"),
            Err(Trouble::Wrong(what)) => panic!("{what}\n{}", self.text),
        }
    }
}

/// Returns the case of `a * x + y` for a = 1.75, by 288 threads.
pub(crate) fn saxpy(n: usize) -> Case {
    let (x, y) = (inputs(1, n), inputs(2, n));
    let args = vec![Arg::Word(n as u32), Arg::Word(1.75f32.to_bits()), floats(&x), floats(&y)];
    let check = move |buffers: &[Vec<u8>]| {
        let wanted = x.iter().zip(&y).map(|(&x, &y)| 1.75 * f64::from(x) + f64::from(y));
        close(&buffers[1], wanted, half_ulp)
    };
    Case {
        text: include_str!("../data/saxpy.ptx").into(),
        config: blocks(3, 96),
        args,
        check: Box::new(check),
    }
}

/// Returns the case of a sum of each block's share.
pub(crate) fn block_sum(n: usize, grid: usize) -> Case {
    let x = inputs(3, n);
    let args = vec![floats(&x), floats(&vec![f32::NAN; grid]), Arg::Word(n as u32)];
    let check = move |buffers: &[Vec<u8>]| {
        let of_block = |block: usize| {
            x.chunks(256).skip(block).step_by(grid).flatten().map(|&x| f64::from(x)).sum::<f64>()
        };
        // At most this many additions follow one another. Their partial sums are at most the sum of absolute
        // values.
        let depth = (n.div_ceil(256 * grid) + 8) as f64;
        let bound = depth * half_ulp(x.iter().map(|&x| f64::from(x.abs())).sum());
        close(&buffers[1], (0..grid).map(of_block), |_| bound)
    };
    let text = include_str!("../data/block_sum.ptx").into();
    Case { text, config: blocks(grid as u32, 256), args, check: Box::new(check) }
}

/// Returns the case of a softmax of each row, by `threads` threads.
pub(crate) fn softmax_row(rows: usize, columns: usize, threads: u32) -> Case {
    let x = inputs(4, rows * columns);
    let args = vec![floats(&x), floats(&vec![f32::NAN; x.len()]), Arg::Word(columns as u32)];
    let config = LaunchConfig { dynamic: threads / 32 * 4, ..blocks(rows as u32, threads) };
    let softmax = |row: &[f32]| {
        let exp: Vec<f64> = row.iter().map(|&x| f64::from(x).exp()).collect();
        let sum: f64 = exp.iter().sum();
        exp.into_iter().map(move |exp| exp / sum).collect::<Vec<f64>>()
    };
    let wanted: Vec<f64> = x.chunks(columns).flat_map(softmax).collect();
    // CUDA documents expf within 2 ulp. Its argument, the sum and the quotient are rounded too.
    let check = move |buffers: &[Vec<u8>]| {
        close(&buffers[1], wanted.iter().copied(), |wanted| 40.0 * half_ulp(wanted))
    };
    Case { text: include_str!("../data/softmax_row.ptx").into(), config, args, check: Box::new(check) }
}

/// Returns the case of a transposed matrix, by tiles in shared memory.
pub(crate) fn transpose(rows: usize, columns: usize) -> Case {
    let x = numbers(5, rows * columns);
    let none = words(&vec![u32::MAX; x.len()]);
    let args = vec![words(&x), none, Arg::Word(rows as u32), Arg::Word(columns as u32)];
    let grid = [columns.div_ceil(32) as u32, rows.div_ceil(32) as u32, 1];
    let config = LaunchConfig { grid, block: [32, 8, 1], dynamic: 0 };
    let check = move |buffers: &[Vec<u8>]| {
        same(&to_words(&buffers[1]), (0..x.len()).map(|i| x[i % rows * columns + i / rows]))
    };
    Case { text: include_str!("../data/transpose.ptx").into(), config, args, check: Box::new(check) }
}

/// Returns the case of `max(a * b + c, 0)` on halves, with a second result in bfloat16.
pub(crate) fn half_gate(n: usize) -> Case {
    let [a, b, c] =
        [6, 7, 8].map(|seed| inputs(seed, n).into_iter().map(f16::from_f32).collect::<Vec<f16>>());
    let halves = |x: &[f16]| Arg::Buffer(x.iter().flat_map(|x| x.to_le_bytes()).collect());
    let nothing = || Arg::Buffer(vec![0xff; 2 * n]);
    let args = vec![halves(&a), halves(&b), halves(&c), nothing(), nothing(), Arg::Word(n as u32)];
    let check = move |buffers: &[Vec<u8>]| {
        // The sum is exact in f64, so it is rounded once.
        let sum = |i: usize| a[i].to_f64() * b[i].to_f64() + c[i].to_f64();
        let y: Vec<f16> = (0..n).map(|i| f16::from_f64(sum(i).max(0.0))).collect();
        same(&to_halves(&buffers[3]), y.iter().map(|y| y.to_bits()))?;
        same(&to_halves(&buffers[4]), y.iter().map(|y| bf16::from_f64(y.to_f64()).to_bits()))
    };
    let (text, config) = (include_str!("../data/half_gate.ptx").into(), blocks(n.div_ceil(128) as u32, 64));
    Case { text, config, args, check: Box::new(check) }
}

/// Returns the case of a histogram, and of all odd values in any order.
pub(crate) fn histogram(n: usize) -> Case {
    let x = numbers(9, n);
    let args = vec![words(&x), words(&[0; 64]), words(&vec![u32::MAX; n]), words(&[0]), Arg::Word(n as u32)];
    let check = move |buffers: &[Vec<u8>]| {
        let mut counts = [0; 64];
        x.iter().for_each(|x| counts[(x % 64) as usize] += 1);
        same(&to_words(&buffers[1]), counts.into_iter())?;
        let mut odd: Vec<u32> = x.iter().map(|x| x % 64).filter(|value| value % 2 == 1).collect();
        same(&to_words(&buffers[3]), [odd.len() as u32].into_iter())?;
        // The remaining words are unchanged.
        odd.resize(n, u32::MAX);
        odd.sort_unstable();
        let mut found = to_words(&buffers[2]);
        found.sort_unstable();
        same(&found, odd.into_iter())
    };
    Case {
        text: include_str!("../data/histogram.ptx").into(),
        config: blocks(3, 160),
        args,
        check: Box::new(check),
    }
}

/// Returns the case of rows normalised to mean 0 and deviation 1, scaled and shifted. Each row has a warp,
/// and a block has four.
pub(crate) fn layer_norm(rows: usize, vectors: usize) -> Case {
    let columns = 4 * vectors;
    let (x, gamma, beta) = (inputs(14, rows * columns), inputs(15, columns), inputs(16, columns));
    let none = floats(&vec![f32::NAN; x.len()]);
    let sizes = [Arg::Word(rows as u32), Arg::Word(vectors as u32)];
    let args = [vec![floats(&x), floats(&gamma), floats(&beta), none], sizes.to_vec()].concat();
    let check = move |buffers: &[Vec<u8>]| {
        let wanted = x.chunks(columns).flat_map(|row| {
            let mean_of =
                |f: fn(f64) -> f64| row.iter().map(|&x| f(f64::from(x))).sum::<f64>() / columns as f64;
            let mean = mean_of(|x| x);
            let deviation = (mean_of(|x| x * x) - mean * mean + 1e-5).sqrt();
            let normal = row.iter().map(move |&x| (f64::from(x) - mean) / deviation);
            normal
                .zip(&gamma)
                .zip(&beta)
                .map(|((x, &g), &b)| x * f64::from(g) + f64::from(b))
                .collect::<Vec<_>>()
        });
        // The variance is a difference of numbers of at most 64, and is more than 5 for so few random
        // elements.
        close(&buffers[3], wanted.collect::<Vec<_>>().into_iter(), |wanted| 2e-5 * (1.0 + wanted.abs()))
    };
    let text = include_str!("../data/layer_norm.ptx").into();
    Case { text, config: blocks(rows.div_ceil(4) as u32, 128), args, check: Box::new(check) }
}

/// Returns the case of a matrix product of halves, by tiles of 64 × 64.
pub(crate) fn matmul_tiles(m: usize, n: usize, k: usize) -> Case {
    // Quarters up to 2, so that every sum of their products is exact.
    let quarters = |seed, count| -> Vec<f16> {
        numbers(seed, count).into_iter().map(|x| f16::from_f32((x % 17) as f32 / 4.0 - 2.0)).collect()
    };
    let (a, b) = (quarters(17, m * k), quarters(18, k * n));
    let halves = |x: &[f16]| Arg::Buffer(x.iter().flat_map(|x| x.to_le_bytes()).collect());
    let sizes = [m, n, k].map(|size| Arg::Word(size as u32));
    let args = [vec![halves(&a), halves(&b), floats(&vec![f32::NAN; m * n])], sizes.to_vec()].concat();
    let grid = [n.div_ceil(64) as u32, m.div_ceil(64) as u32, 1];
    let check = move |buffers: &[Vec<u8>]| {
        let sum = |i: usize| {
            (0..k).map(|j| a[i / n * k + j].to_f32() * b[j * n + i % n].to_f32()).sum::<f32>().to_bits()
        };
        same(&to_words(&buffers[2]), (0..m * n).map(sum))
    };
    let config = LaunchConfig { grid, block: [128, 1, 1], dynamic: 0 };
    Case { text: include_str!("../data/matmul_tiles.ptx").into(), config, args, check: Box::new(check) }
}

/// Returns the case of reductions and scans over groups of threads: tiles of 8, warps, and threads that took
/// a branch.
pub(crate) fn group_reduce(n: usize) -> Case {
    const BLOCK: usize = 96;
    let grid = n.div_ceil(BLOCK);
    let x: Vec<i32> = numbers(19, n).into_iter().map(|x| (x % 2001) as i32 - 1000).collect();
    let as_words = |x: &[i32]| words(&x.iter().map(|&x| x as u32).collect::<Vec<_>>());
    let none = |count: usize| words(&vec![u32::MAX; count]);
    let padded: Vec<i32> = (0..grid * BLOCK).map(|i| x.get(i).copied().unwrap_or(0)).collect();
    let args = vec![
        as_words(&x),
        none(padded.len() / 8),
        none(padded.len()),
        as_words(&[i32::MIN]),
        floats(&[0.0]),
        Arg::Word(n as u32),
    ];
    let check = move |buffers: &[Vec<u8>]| {
        let sums = padded.chunks(8).map(|tile| tile.iter().sum::<i32>() as u32);
        same(&to_words(&buffers[1]), sums)?;
        let scan = |warp: &[i32]| {
            let mut sum = 0;
            warp.iter()
                .map(|x| {
                    sum += x;
                    sum as u32
                })
                .collect::<Vec<_>>()
        };
        same(&to_words(&buffers[2]), padded.chunks(32).flat_map(scan).collect::<Vec<_>>().into_iter())?;
        let largest = x.iter().copied().filter(|x| x % 2 != 0).max().unwrap_or(i32::MIN);
        same(&to_words(&buffers[3]), [largest as u32].into_iter())?;
        // The elements are whole numbers, with sums far below 2^24, so any order is exact.
        same(&to_words(&buffers[4]), [(x.iter().sum::<i32>() as f32).to_bits()].into_iter())
    };
    let (text, config) = (include_str!("../data/group_reduce.ptx").into(), blocks(grid as u32, BLOCK as u32));
    Case { text, config, args, check: Box::new(check) }
}

/// Returns the case of called functions: the deviation of the numbers before the first below −6 in each
/// piece.
pub(crate) fn device_functions(n: usize, each: usize) -> Case {
    const NONE: f64 = -1.0;
    let (x, pieces) = (inputs(20, n), n.div_ceil(each));
    let none = Arg::Buffer(vec![NONE; pieces].into_iter().flat_map(f64::to_le_bytes).collect());
    let sizes = [Arg::Word(n as u32), Arg::Word(each as u32)];
    let args = [vec![floats(&x), none, words(&vec![u32::MAX; pieces])], sizes.to_vec()].concat();
    let check = move |buffers: &[Vec<u8>]| {
        let lens: Vec<usize> =
            x.chunks(each).map(|piece| piece.iter().position(|&x| x < -6.0).unwrap_or(piece.len())).collect();
        same(&to_words(&buffers[2]), (0..pieces).map(|i| (i * each + lens[i]) as u32))?;
        let deviations = buffers[1].as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
        for (i, found) in deviations.enumerate() {
            let kept = &x[i * each..i * each + lens[i]];
            let mean_of =
                |f: fn(f64) -> f64| kept.iter().map(|&x| f(f64::from(x))).sum::<f64>() / lens[i] as f64;
            let (mean, squares) = (mean_of(|x| x), mean_of(|x| x * x));
            let wanted = if lens[i] == 0 { NONE } else { (squares - mean * mean).max(0.0).sqrt() };
            // Half of the digits are lost where the variance consists of rounding errors.
            let is_close = (found - wanted).abs() <= 1e-6;
            if !is_close {
                return Err(format!("piece {i}: {found}, not {wanted}"));
            }
        }
        Ok(())
    };
    let text = include_str!("../data/device_functions.ptx").into();
    Case { text, config: blocks(pieces.div_ceil(64) as u32, 64), args, check: Box::new(check) }
}

/// Returns the case of `relu(a + b) * c` as Fusion emits it, by one block of 128 threads.
pub(crate) fn gate(n: usize) -> Case {
    let [a, b, c] = [11, 12, 13].map(|seed| inputs(seed, n));
    let out = floats(&vec![f32::NAN; n]);
    let args = vec![floats(&a), floats(&b), floats(&c), out, Arg::Word(0), Arg::Word(n as u32)];
    let check = move |buffers: &[Vec<u8>]| {
        // Sum and product of two floats are exact in f64, or rounded where a rounding to f32 cannot differ.
        let sum = |i: usize| (f64::from(a[i]) + f64::from(b[i])) as f32;
        let gate = |i: usize| (f64::from(sum(i).max(0.0)) * f64::from(c[i])) as f32;
        same(&to_words(&buffers[3]), (0..n).map(|i| gate(i).to_bits()))
    };
    let text = emitted(include_str!("../../../../kernels/gate.snap"));
    Case { text, config: blocks(1, 128), args, check: Box::new(check) }
}

/// Returns the case of a transposed `relu(x + b)` with a bias of columns, as Fusion emits it, with vectors of
/// four rows.
pub(crate) fn transposed(rows: usize, columns: usize) -> Case {
    let (x, bias) = (inputs(14, rows * columns), inputs(15, columns));
    let len = x.len();
    let extents = [0, len, rows, columns].map(|number| Arg::Word(number as u32));
    let args = [vec![floats(&x), floats(&bias), floats(&vec![f32::NAN; len])], extents.to_vec()].concat();
    let check = move |buffers: &[Vec<u8>]| {
        let sum = |i: usize| f64::from(x[i % rows * columns + i / rows]) + f64::from(bias[i / rows]);
        same(&to_words(&buffers[2]), (0..len).map(|i| (sum(i).max(0.0) as f32).to_bits()))
    };
    let text = emitted(include_str!("../../../../kernels/transposed.snap"));
    Case { text, config: blocks(2, 64), args, check: Box::new(check) }
}

/// Returns the case of the maximum and the sum of each row, as Fusion emits it. One block has 256 threads,
/// with vectors of four columns.
pub(crate) fn largest_and_sum(rows: usize, columns: usize) -> Case {
    let x = inputs(21, rows * columns);
    let none = || floats(&vec![f32::NAN; rows]);
    let numbers = [0, rows, columns].map(|number| Arg::Word(number as u32));
    let args = [vec![floats(&x), none(), none()], numbers.to_vec()].concat();
    let check = move |buffers: &[Vec<u8>]| {
        let all = || x.chunks(columns).map(|row| row.iter().map(|&x| f64::from(x)));
        close(&buffers[1], all().map(|row| row.fold(f64::NEG_INFINITY, f64::max)), |_| 0.0)?;
        // A thread adds a number in each iteration, and halving adds the partial sums.
        let depth = (columns.div_ceil(1024) + 12) as f64;
        let bound = 8.0 * columns as f64 * depth * half_ulp(1.0);
        close(&buffers[2], all().map(Iterator::sum), |_| bound)
    };
    let text = emitted(include_str!("../../../../kernels/row_of_a_block.snap"));
    Case { text, config: blocks(1, 256), args, check: Box::new(check) }
}

/// Returns the case of a product of two matrices of halves by one block of four warps, as Fusion emits it.
pub(crate) fn product_of_halves(rows: usize, depth: usize, cols: usize) -> Case {
    let snapshot = include_str!("../../../../kernels/tiles_of_halves.snap");
    let halves = |of: &[i32]| {
        Arg::Buffer(of.iter().flat_map(|&x| f16::from_f32(x as f32).to_bits().to_le_bytes()).collect())
    };
    product((snapshot, MATRICES), halves, [(depth, 1), (cols, 1)], [rows, depth, cols])
}

/// Returns the case of a product of two transposed matrices of floats that are rounded, by one block of four warps.
pub(crate) fn product_of_rounded(rows: usize, depth: usize, cols: usize) -> Case {
    let snapshot = include_str!("../../../../kernels/tiles_of_rounded_floats.snap");
    product((snapshot, MATRICES), whole_floats, [(1, rows), (1, depth)], [rows, depth, cols])
}

/// Returns the case of a product of two matrices of floats by one block of 256 threads, as Fusion emits it.
pub(crate) fn product_of_floats(rows: usize, depth: usize, cols: usize) -> Case {
    let snapshot = include_str!("../../../../kernels/tiles_of_floats.snap");
    product((snapshot, blocks(1, 256)), whole_floats, [(depth, 1), (cols, 1)], [rows, depth, cols])
}

/// Returns the case of the same product with panels that asynchronous copies fill.
pub(crate) fn product_of_copied(rows: usize, depth: usize, cols: usize) -> Case {
    let snapshot = include_str!("../../../../kernels/tiles_of_copied_floats.snap");
    let strides = [(depth, 1), (cols, 1)];
    product((snapshot, COPIED), whole_floats, strides, [rows, depth, cols])
}

/// The block of a tile with copied panels: three stages of 16 steps of 64 rows and 64 columns, with 4 elements between them.
const COPIED: LaunchConfig = LaunchConfig { grid: [1; 3], block: [256, 1, 1], dynamic: 3 * 16 * 2 * 68 * 4 };

/// The block of a tile of matrices: three stages of 64 rows and 64 columns, 80 bytes a line.
const MATRICES: LaunchConfig = LaunchConfig { grid: [1; 3], block: [128, 1, 1], dynamic: 3 * 128 * 80 };

fn whole_floats(of: &[i32]) -> Arg {
    floats(&of.iter().map(|&x| x as f32).collect::<Vec<_>>())
}

/// Returns the case of a product of integers, whose sums are exact in any order, by one block.
///
/// The factors have strides: the left one of rows and steps, the right one of steps and columns.
fn product(
    (snapshot, config): (&str, LaunchConfig),
    encode: fn(&[i32]) -> Arg,
    [left, right]: [(usize, usize); 2],
    [rows, depth, cols]: [usize; 3],
) -> Case {
    let of =
        |seed, len| -> Vec<i32> { numbers(seed, len).into_iter().map(|x| (x >> 29) as i32 - 4).collect() };
    let (x, w) = (of(22, rows * depth), of(23, depth * cols));
    let across = cols.div_ceil(64);
    let tiles = rows.div_ceil(64) * across;
    // The text names the extents.
    let text = emitted(snapshot);
    let extents = text.lines().filter_map(|line| line.split_once(".param .u32 ")).map(|(_, name)| {
        let extent = match name.trim_end_matches(',').split_once('_').map(|(_, name)| name) {
            Some("start") => 0,
            Some("end") => tiles,
            Some("M") => rows,
            Some("N") => cols,
            Some("K") => depth,
            _ => across,
        };
        Arg::Word(extent as u32)
    });
    let buffers = [encode(&x), encode(&w), floats(&vec![f32::NAN; rows * cols])];
    let args = buffers.into_iter().chain(extents).collect();
    let check = move |buffers: &[Vec<u8>]| {
        let sum = |row: usize, col: usize| -> i32 {
            let term = |step| x[row * left.0 + step * left.1] * w[step * right.0 + col * right.1];
            (0..depth).map(term).sum()
        };
        same(&to_words(&buffers[2]), (0..rows * cols).map(|i| (sum(i / cols, i % cols) as f32).to_bits()))
    };
    Case { text, config, args, check: Box::new(check) }
}

/// Returns the first PTX kernel in a snapshot of Fusion's texts.
fn emitted(snapshot: &str) -> String {
    let start = snapshot.find("\n.version ").expect("the snapshot holds PTX") + 1;
    let end = snapshot[start..].find("\n}\n").expect("a kernel ends") + 3;
    snapshot[start..start + end].into()
}

/// Returns pseudo-random numbers: the upper bits of a linear congruential generator (Knuth's MMIX).
fn numbers(seed: u64, count: usize) -> Vec<u32> {
    let next =
        |x: &u64| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    std::iter::successors(Some(seed), next).skip(2).take(count).map(|x| (x >> 32) as u32).collect()
}

/// Returns floats in -8..8 that use all bits of their mantissas.
fn inputs(seed: u64, count: usize) -> Vec<f32> {
    numbers(seed, count).into_iter().map(|x| (f64::from(x) / f64::from(1 << 28) - 8.0) as f32).collect()
}

fn to_halves(bytes: &[u8]) -> Vec<u16> {
    bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect()
}

/// Checks that each element equals its reference, to the bit.
fn same<T: PartialEq + std::fmt::LowerHex>(found: &[T], wanted: impl ExactSizeIterator<Item = T>) -> Verdict {
    assert_eq!(found.len(), wanted.len());
    match found.iter().zip(wanted).enumerate().find(|(_, (found, wanted))| *found != wanted) {
        Some((i, (found, wanted))) => Err(format!("element {i}: {found:#x}, not {wanted:#x}")),
        None => Ok(()),
    }
}

/// Checks that each element is within `bound` of its reference.
fn close(bytes: &[u8], wanted: impl ExactSizeIterator<Item = f64>, bound: impl Fn(f64) -> f64) -> Verdict {
    let found = to_words(bytes).into_iter().map(|bits| f64::from(f32::from_bits(bits)));
    assert_eq!(found.len(), wanted.len());
    for (i, (found, wanted)) in found.zip(wanted).enumerate() {
        let is_close = (found - wanted).abs() <= bound(wanted);
        if !is_close {
            return Err(format!("element {i}: {found}, not {wanted}"));
        }
    }
    Ok(())
}

/// Returns the largest error of one rounding to nearest for a float of this size.
fn half_ulp(wanted: f64) -> f64 {
    wanted.abs() * f64::from(f32::EPSILON) / 2.0 + f64::from(f32::MIN_POSITIVE)
}
