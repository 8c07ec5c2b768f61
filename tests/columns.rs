//! Long columns, which are adjacent in memory, agree with plain loops in f64 on every device. Schedules cut
//! them into parts.
//!
//! Invariant: sums stay within the bound for their length, whatever the number of columns. The bits depend on
//! extents alone. The functions here are compiled at run time. `tests/rows/columns.rs` has functions that the
//! macro compiles.

mod devices;

use devices::{Kind, devices};
use fusion::kernel::{Plan, interpreted};
use fusion::run::{Arg, run};
use fusion::{Device, Tensor};
use fusion_compiler::check::{Source, front_end};
use fusion_compiler::compile;
use fusion_compiler::ir::plan::Target;

/// Compiles the one function of a text for all targets.
fn plan(text: &str) -> Plan {
    match front_end(text.parse().expect("tokens")) {
        Ok(Source::Items(functions, _)) if functions.len() == 1 => {
            interpreted(compile(functions[0].graph.clone(), &Target::ALL, &|_| (0, 0)))
        }
        other => panic!("one function without mistakes: {other:?}"),
    }
}

/// Returns pseudo-random numbers from 0 to 1, the same for the same seed.
fn numbers(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Runs a function of `f32` tensors and returns its results.
fn call<const K: usize>(plan: &Plan, device: &Device, args: &[(&[usize], &[f32])]) -> [Tensor<f32>; K] {
    let tensors: Vec<Tensor<f32>> =
        args.iter().map(|(shape, x)| Tensor::from_slice(device, x, *shape).expect("it fits")).collect();
    let mut args: Vec<Arg<'_>> = tensors.iter().map(Arg::from).collect();
    let results = run::<K>(plan, &mut args).unwrap_or_else(|error| panic!("{device}: {error}"));
    results.map(|result| Tensor::from_raw(result).expect("it is of f32"))
}

/// Allowed error of a sum of `terms` elements, relative to the sum of their magnitudes. The bound is 1.7e-6
/// for 4 terms and 3.3e-5 for a thousand. Longer rows have the same bound, because each of their parts is as
/// exact.
fn relative(terms: usize) -> f64 {
    if terms <= 4 { 1.7e-6 } else { 3.3e-5 }
}

/// Largest error of one rounding, relative to the rounded value.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// Numbers of `[b, n, c]`, column by column.
#[derive(Clone, Copy)]
struct Columns<'x> {
    shape: [usize; 3],
    x: &'x [f32],
}

impl<'x> Columns<'x> {
    fn each(self) -> impl Iterator<Item = Vec<f64>> + use<'x> {
        let [b, n, c] = self.shape;
        let at = move |i: usize, j: usize, k: usize| f64::from(self.x[(i * n + j) * c + k]);
        (0..b).flat_map(move |i| (0..c).map(move |k| (0..n).map(|j| at(i, j, k)).collect()))
    }
}

/// Asserts that each number is within its own bound.
#[track_caller]
fn check(what: &str, got: &Tensor<f32>, expected: impl IntoIterator<Item = (f64, f64)>) {
    let numbers = got.to_vec().expect("results can be read");
    let expected: Vec<(f64, f64)> = expected.into_iter().collect();
    assert_eq!(numbers.len(), expected.len(), "{what} on {}", got.device());
    for (i, (got_i, (expected, bound))) in numbers.into_iter().zip(expected).enumerate() {
        let error = (f64::from(got_i) - expected).abs();
        let place = got.device();
        assert!(
            error <= bound,
            "{what} on {place}: {i} is {got_i}, not {expected} ± {bound:e} but {error:e}"
        );
    }
}

/// Lengths around the threshold from which rows are cut into parts, and lengths of cut rows.
const LENGTHS: [usize; 7] = [1, 1023, 1025, 4096, 4099, 8195, 65_536];
const WIDTHS: [usize; 4] = [1, 3, 4, 33];

/// Largest number of elements, so that a simulated GPU and the kernel interpreter stay fast over all lengths.
const MOST: usize = 1 << 16;

/// Runs a test on each device with columns of each length and width, as one matrix or several.
fn each_size(test: impl Fn(&Device, [usize; 3])) {
    for (kind, device) in devices() {
        let most = if kind == Kind::Cpu { 3 * MOST } else { MOST };
        for [n, c] in LENGTHS.into_iter().flat_map(|n| WIDTHS.map(|c| [n, c])) {
            if n * c <= most {
                test(&device, [1, n, c]);
            }
            if 3 * n * c <= MOST / 2 {
                test(&device, [3, n, c]);
            }
        }
    }
}

fn sums(column: &[f64]) -> (f64, f64) {
    (column.iter().sum(), relative(column.len()) * column.iter().map(|x| x.abs()).sum::<f64>())
}

fn mean(column: &[f64]) -> f64 {
    column.iter().sum::<f64>() / column.len() as f64
}

fn variance(column: &[f64]) -> f64 {
    let mean = mean(column);
    column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / column.len() as f64
}

#[test]
fn sums_means_and_ends() {
    let plan = plan(
        "pub fn f(x: f32[B, N, C]) -> (f32[B, C], f32[B, C], f32[B, C]) { (sum(x, N), mean(x, N), max(x, N)) }",
    );
    let tenths = self::plan("pub fn f(x: f32[B, N, C]) -> f32[B, C] { sum(x * 0.1, N) }");
    each_size(|device, shape| {
        let [b, n, c] = shape;
        let x: Vec<f32> = numbers(n as u32, b * n * c).iter().map(|x| x - 0.25).collect();
        let columns = || Columns { shape, x: &x }.each();
        let [sum, means, most] = call(&plan, device, &[(&shape, &x)]);
        let what = |what: &str| format!("{what} of {shape:?}");
        check(&what("sum"), &sum, columns().map(|column| sums(&column)));
        let bound = |column: &[f64]| sums(column).1 / n as f64;
        check(&what("mean"), &means, columns().map(|column| (mean(&column), bound(&column))));
        let largest = |column: Vec<f64>| (column.into_iter().fold(f64::NEG_INFINITY, f64::max), 0.0);
        check(&what("max"), &most, columns().map(largest));
        // Every rounding of a sum of equal numbers may have the same sign.
        let ones = vec![1.0; b * n * c];
        let [sum] = call(&tenths, device, &[(&shape, &ones)]);
        let whole = n as f64 * f64::from(0.1_f32);
        check(&what("tenths"), &sum, vec![(whole, relative(n) * whole); b * c]);
    });
}

#[test]
fn spread() {
    let plan = plan(
        "pub fn f(x: f32[B, N, C]) -> (f32[B, C], f32[B, C]) { (mean(x, N), mean(square(x - mean(x, N)), N)) }",
    );
    each_size(|device, shape| {
        let [b, n, c] = shape;
        // Elements far from zero, where squares without a subtracted mean would lose all digits.
        let x: Vec<f32> = numbers(n as u32, b * n * c).iter().map(|x| x + 1000.0).collect();
        let columns = || Columns { shape, x: &x }.each();
        let [means, spread] = call(&plan, device, &[(&shape, &x)]);
        check("mean", &means, columns().map(|column| (mean(&column), relative(n) * mean(&column))));
        let bound = |column: &[f64]| (variance(column), 1e-4 * variance(column) + 1e-6);
        check(&format!("variance of {shape:?}"), &spread, columns().map(|column| bound(&column)));
    });
}

/// One block combines the partials of eight parts here, and the last block has fewer columns than the others.
#[test]
fn many_columns() {
    let plan =
        plan("pub fn f(x: f32[N, C]) -> (f32[C], f32[C], f32[C]) { (sum(x, N), min(x, N), var(x, N)) }");
    let [n, c] = [1026, 2051];
    let x = numbers(3, n * c);
    let columns: Vec<Vec<f64>> = Columns { shape: [1, n, c], x: &x }.each().collect();
    for (_, device) in devices() {
        let [sum, least, spread] = call(&plan, &device, &[(&[n, c], &x)]);
        check("sum", &sum, columns.iter().map(|column| sums(column)));
        check("min", &least, columns.iter().map(|column| (column.iter().copied().fold(2.0, f64::min), 0.0)));
        let unbiased = |column: &[f64]| variance(column) * n as f64 / (n - 1) as f64;
        let bound = |column: &Vec<f64>| (unbiased(column), 1e-4 * unbiased(column));
        check("variance", &spread, columns.iter().map(bound));
    }
}

#[test]
fn exponentials() {
    let plan =
        plan("pub fn f(x: f32[B, N, C]) -> (f32[B, N, C], f32[B, C]) { (softmax(x, N), logsumexp(x, N)) }");
    each_size(|device, shape| {
        let [b, n, c] = shape;
        // Parts whose largest element is far from that of the column.
        let grow = |(i, x): (usize, f32)| (x - 0.5) * (1.0 + (i / 7000 % 7) as f32 * 8.0);
        let x: Vec<f32> = numbers(n as u32, b * n * c).into_iter().enumerate().map(grow).collect();
        let columns: Vec<Vec<f64>> = Columns { shape, x: &x }.each().collect();
        let of = |column: &[f64]| {
            let most = column.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (most, column.iter().map(|x| (x - most).exp()).sum::<f64>())
        };
        let [shares, logs] = call(&plan, device, &[(&shape, &x)]);
        let bound = if n < 8192 { n as f64 * UNIT } else { relative(n) };
        let log = |(most, sum): (f64, f64)| (most + sum.ln(), bound + 1e-6 * (1.0 + most.abs()));
        check(&format!("logsumexp of {shape:?}"), &logs, columns.iter().map(|column| log(of(column))));
        let of: Vec<(f64, f64)> = columns.iter().map(|column| of(column)).collect();
        let share = |at: usize| {
            let (most, sum) = of[at / (n * c) * c + at % c];
            let shift = f64::from(x[at]) - most;
            let share = shift.exp() / sum;
            (share, share * (bound + (32.0 + shift.abs()) * UNIT) + 1e-37)
        };
        check(&format!("softmax of {shape:?}"), &shares, (0..b * n * c).map(share));
    });
}

#[test]
fn normalised_columns_with_parameters() {
    let plan = plan(
        "pub fn f(x: f32[B, N, C], scale: f32[C], shift: f32[N]) -> (f32[B, N, C], f32[B, C]) {
            (layer_norm(x, N) * scale + shift, 2.0 * mean(x, N))
        }",
    );
    each_size(|device, shape| {
        let [b, n, c] = shape;
        let [x, scale, shift] = [b * n * c, c, n].map(|count| numbers(count as u32, count));
        let x: Vec<f32> = x.iter().map(|x| x + 3.0).collect();
        let columns: Vec<Vec<f64>> = Columns { shape, x: &x }.each().collect();
        let [normal, twice] = call(&plan, device, &[(&shape, &x), (&[c], &scale), (&[n], &shift)]);
        let of: Vec<(f64, f64)> = columns.iter().map(|column| (mean(column), variance(column))).collect();
        let relative = if n < 8192 { n as f64 * UNIT } else { relative(n) };
        check("twice the mean", &twice, of.iter().map(|(mean, _)| (2.0 * mean, 2.0 * relative * mean)));
        let element = |at: usize| {
            let (mean, variance) = of[at / (n * c) * c + at % c];
            let scaled = (variance + f64::from(1e-5_f32)).sqrt().recip();
            let z = (f64::from(x[at]) - mean) * scaled;
            let (g, s) = (f64::from(scale[at % c]), f64::from(shift[at / c % n]));
            (z * g + s, (4.0 * relative + 8.0 * UNIT) * (scaled + z.abs()) + 4.0 * UNIT)
        };
        check(&format!("layer norm of {shape:?}"), &normal, (0..b * n * c).map(element));
    });
}

/// Reductions of terms that depend on coordinates, and of operands that lack some of the axes.
#[test]
fn coordinates_and_operands_that_lack_axes() {
    let plan = plan(
        "pub fn f(x: f32[B, N, C], v: f32[N], w: f32[C]) -> (f32[B, C], f32[B, C], f32[B, C]) {
            let at = index(N) as f32;
            (sum(x * at, N), sum(x * v - w, N), sum(x * at + index(C) as f32, N))
        }",
    );
    each_size(|device, shape| {
        let [b, n, c] = shape;
        let [x, v, w] = [b * n * c, n, c].map(|count| numbers(count as u32, count));
        let columns: Vec<Vec<f64>> = Columns { shape, x: &x }.each().collect();
        let [by_place, weighted, both] = call(&plan, device, &[(&shape, &x), (&[n], &v), (&[c], &w)]);
        let of = |term: &dyn Fn(f64, usize, usize) -> f64| -> Vec<(f64, f64)> {
            let column = |(k, column): (usize, &Vec<f64>)| {
                let terms: Vec<f64> = column.iter().enumerate().map(|(j, &x)| term(x, j, k % c)).collect();
                sums(&terms)
            };
            columns.iter().enumerate().map(column).collect()
        };
        let what = |what: &str| format!("{what} of {shape:?}");
        check(&what("sum by place"), &by_place, of(&|x, j, _| x * j as f64));
        // The terms are rounded, and they are larger than their sum.
        let weighted_of = of(&|x, j, k| x * f64::from(v[j]) - f64::from(w[k]));
        check(
            &what("weighted"),
            &weighted,
            weighted_of.iter().map(|(sum, bound)| (*sum, bound + 4.0 * UNIT * n as f64)),
        );
        check(&what("sum by both"), &both, of(&|x, j, k| x * j as f64 + k as f64));
    });
}

/// Schedules cut the innermost of several dims, several dims as one, or the outermost dim where the innermost
/// is short. The rows are in any order.
#[test]
fn several_dims() {
    let plan = plan(
        "pub fn f(x: f32[B, N, H, C], w: f32[H, C]) -> (f32[C, B], f32[B, C], f32[C], f32[B, N, H, C]) {
            (sum(x, (N, H)), sum(x * w, (N, H)), mean(x, (B, N, H)), batch_norm(x, (B, N, H)))
        }",
    );
    for (_, device) in devices() {
        for [b, n, h, c] in [[2, 3, 1500, 3], [2, 40, 60, 3], [1, 3000, 3, 5], [7, 1, 1200, 1]] {
            let (count, shape) = (b * n * h * c, [b, n, h, c]);
            let [x, w] = [count, h * c].map(|count| numbers(count as u32, count));
            let [turned, weighted, means, normal] = call(&plan, &device, &[(&shape, &x), (&[h, c], &w)]);
            let columns: Vec<Vec<f64>> = Columns { shape: [b, n * h, c], x: &x }.each().collect();
            let what = |what: &str| format!("{what} of {shape:?}");
            let turn = (0..b * c).map(|at| sums(&columns[at % b * c + at / b]));
            check(&what("transposed sums"), &turned, turn);
            let times = |(k, column): (usize, &Vec<f64>)| {
                let weight = |j: usize| f64::from(w[j % h * c + k % c]);
                let terms: Vec<f64> = column.iter().enumerate().map(|(j, x)| x * weight(j)).collect();
                let (sum, bound) = sums(&terms);
                (sum, bound + 4.0 * UNIT * sum)
            };
            check(&what("weighted sums"), &weighted, columns.iter().enumerate().map(times));
            let all: Vec<Vec<f64>> = Columns { shape: [1, b * n * h, c], x: &x }.each().collect();
            let of = |column: &Vec<f64>| (mean(column), relative(column.len()) * mean(column));
            check(&what("means"), &means, all.iter().map(of));
            let moments: Vec<(f64, f64)> = all.iter().map(|all| (mean(all), variance(all))).collect();
            let element = |at: usize| {
                let (mean, variance) = moments[at % c];
                let z = (f64::from(x[at]) - mean) / (variance + f64::from(1e-5_f32)).sqrt();
                (z, 4.0 * relative(b * n * h) * (1.0 + z.abs()) / variance.sqrt().min(1.0))
            };
            check(&what("batch norm"), &normal, (0..count).map(element));
        }
    }
}

/// A sum keeps the small elements that follow a large one. Each of them would round a plain running total.
#[test]
fn one_large_element_first() {
    let sums_and_rest =
        plan("pub fn f(x: f32[B, N, C]) -> (f32[B, C], f32[B, N, C]) { (sum(x, N), x - sum(x, N)) }");
    let sums_alone = plan("pub fn f(x: f32[B, N, C]) -> f32[B, C] { sum(x, N) }");
    for (_, device) in devices() {
        for (n, c) in [(1000, 3), (1024, 4), (4096, 4), (8191, 3)] {
            let shape = [1, n, c];
            let mut x = vec![0.1; n * c];
            x[..c].fill(16.0 * n as f32);
            let columns = || Columns { shape, x: &x }.each();
            let [beside, _] = call(&sums_and_rest, &device, &[(&shape, &x)]);
            check(
                &format!("sums beside elements of {shape:?}"),
                &beside,
                columns().map(|column| sums(&column)),
            );
            let [alone] = call(&sums_alone, &device, &[(&shape, &x)]);
            check(&format!("sums of {shape:?}"), &alone, columns().map(|column| sums(&column)));
        }
    }
}

/// Dims apart in memory become nested loops, and the innermost loop may be short.
#[test]
fn dims_apart() {
    let plan = plan("pub fn f(x: f32[N, C, H]) -> (f32[C], f32[C]) { (mean(x, (N, H)), var(x, (N, H))) }");
    for (kind, device) in devices() {
        let most = if kind == Kind::Cpu { 60_000 } else { 7000 };
        for [n, c, h] in [[most, 2, 2], [most / 2, 1, 5], [300, 3, 40]] {
            // Elements far from zero: adding each of them rounds a far larger total.
            let x: Vec<f32> =
                (0..n * c * h).map(|i| 1e4 + if (i / h / c + i) % 2 == 0 { 2.0 } else { -2.0 }).collect();
            let [means, spread] = call(&plan, &device, &[(&[n, c, h], &x)]);
            let of = |k: usize| -> Vec<f64> {
                let at = |i: usize, j: usize| f64::from(x[(i * c + k) * h + j]);
                (0..n).flat_map(|i| (0..h).map(move |j| at(i, j))).collect()
            };
            let what = |what: &str| format!("{what} of {:?}", [n, c, h]);
            let columns: Vec<Vec<f64>> = (0..c).map(of).collect();
            check(&what("means"), &means, columns.iter().map(|all| (mean(all), relative(n * h) * mean(all))));
            let unbiased = |all: &Vec<f64>| variance(all) * (n * h) as f64 / (n * h - 1) as f64;
            // The bound is the squared error of the mean plus the error of the sum of squares.
            let bound = |all: &Vec<f64>| {
                (unbiased(all), relative(n * h) * unbiased(all) + (relative(n * h) * mean(all)).powi(2))
            };
            check(&what("variances"), &spread, columns.iter().map(bound));
        }
    }
}

/// A running total of twenty million ones stops at 2²⁴, so the mean must not be computed from one.
#[test]
fn the_mean_of_millions() {
    let plan = plan("pub fn f(x: f32[N, C]) -> f32[C] { mean(x, N) }");
    let n = 20_000_000;
    let [mean] = call(&plan, &Device::cpu(), &[(&[n, 1], &vec![1.0; n])]);
    assert_eq!(mean.to_vec().expect("results can be read"), [1.0]);
}

/// Results have the same bits for every number of threads, and in every run.
#[test]
fn the_same_bits() {
    let plan = plan(
        "pub fn f(x: f32[N, C]) -> (f32[C], f32[C], f32[N, C]) { (sum(x, N), var(x, N), softmax(x, N)) }",
    );
    for [n, c] in [[20_003, 3], [1100, 65]] {
        let x = numbers(7, n * c);
        let bits = |device: &Device| -> Vec<u32> {
            let results: [Tensor<f32>; 3] = call(&plan, device, &[(&[n, c], &x)]);
            results.iter().flat_map(|one| one.to_vec().expect("it runs")).map(f32::to_bits).collect()
        };
        for (kind, device) in devices() {
            let first = bits(&device);
            assert_eq!(first, bits(&device), "{device}: again");
            let pools = if kind == Kind::Cpu { &[1, 3, 8][..] } else { &[] };
            for &threads in pools {
                let pool =
                    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
                assert_eq!(first, pool.install(|| bits(&device)), "{threads} threads");
            }
        }
    }
}

/// The minimum of distances to a mean, where another operand is largest. No part of a column or row knows
/// that mean.
#[test]
fn least_of_what_follows_from_others() {
    let body = "{ let m = mean(y, D); min(if x == max(x, D) { y - m } else { INF }, D) }";
    for (dims, d, n) in [("D, N", 2000, 4), ("N, D", 1 << 18, 1)] {
        let plan = plan(&format!("pub fn f(x: f32[{dims}], y: f32[{dims}]) -> f32[N] {body}"));
        let (x, y) = (numbers(1, d * n), numbers(2, d * n));
        let shape = if n == 1 { [n, d] } else { [d, n] };
        let [x_columns, y_columns] = [&x, &y].map(|x| Columns { shape: [1, d, n], x }.each());
        let expected: Vec<(f64, f64)> = x_columns
            .zip(y_columns)
            .map(|(x, y)| {
                let most = x.iter().fold(f64::NEG_INFINITY, |most, &x| most.max(x));
                let mean = y.iter().sum::<f64>() / d as f64;
                let found = x.iter().zip(&y).filter(|(x, _)| **x == most);
                (found.fold(f64::INFINITY, |least, (_, y)| least.min(y - mean)), 1e-5)
            })
            .collect();
        for (_, device) in devices() {
            let [got] = call::<1>(&plan, &device, &[(&shape, &x), (&shape, &y)]);
            check("least", &got, expected.clone());
        }
    }
}

/// Lengths that nearly fill the shared memory of a block. Combined values of eight bytes each take part of
/// it.
#[test]
fn doubles_that_nearly_fill_the_memory_of_blocks() {
    let plan = plan(
        "pub fn f(x: f32[D, N]) -> f32[D, N] {
            let y = x as f64;
            (y - (sum(y, D) + max(y, D) + min(y, D) + sum(y * y, D))) as f32
        }",
    );
    let n = 8;
    for d in [7000, 7100, 7200] {
        let x = numbers(3, d * n);
        let taken = |x: Vec<f64>| {
            let of = |fold: fn(f64, f64) -> f64| x.iter().copied().reduce(fold).expect("there are some");
            of(|a, b| a + b) + of(f64::max) + of(f64::min) + x.iter().map(|x| x * x).sum::<f64>()
        };
        let taken: Vec<f64> = Columns { shape: [1, d, n], x: &x }.each().map(taken).collect();
        let expected: Vec<(f64, f64)> = x
            .iter()
            .enumerate()
            .map(|(i, x)| f64::from(*x) - taken[i % n])
            .map(|x| (x, 1e-6 * x.abs()))
            .collect();
        for (_, device) in devices().into_iter().filter(|(kind, _)| *kind != Kind::Wgpu) {
            let [got] = call::<1>(&plan, &device, &[(&[d, n], &x)]);
            check("doubles", &got, expected.clone());
        }
    }
}
