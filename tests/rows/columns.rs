//! Reductions along an outer or middle dim agree with plain loops. Their rows are adjacent in inputs and
//! outputs.

use fusion::prelude::*;

use crate::devices::{devices, exact_devices, on_devices};
use crate::{Host, UNIT, check, normalized, positions};

fuse! {
    pub(crate) fn soft(x: f32[L, C]) -> f32[L, C] { softmax(x, L) }
    pub(crate) fn soft_in_the_middle(x: f32[B, L, C]) -> f32[B, L, C] { softmax(x, L) }
    pub(crate) fn log_soft(x: f32[L, C]) -> f32[L, C] { log_softmax(x, L) }
    pub(crate) fn log_sum(x: f32[L, C]) -> f32[C] { logsumexp(x, L) }

    // Reductions along contiguous rows.
    pub(crate) fn soft_rows(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
    /// Several values of each element are needed again at the same time.
    pub(crate) fn difference(x: f32[N, D], y: f32[N, D]) -> f32[N, D] { softmax(x, D) - softmax(y, D) }
    pub(crate) fn log_sum_rows(x: f32[N, D]) -> f32[N] { logsumexp(x, D) }

    /// Parameters of each row, which are read once, and of each element.
    pub(crate) fn normal(x: f32[B, L, C], gamma: f32[C], beta: f32[L], eps: f32) -> f32[B, L, C] {
        layer_norm(x, L, eps) * exp(gamma) + beta
    }

    /// Statistics of a batch, in place, and running statistics of all batches.
    pub(crate) fn batch(x: &mut f32[N, H, C], running: &mut f32[C], momentum: f32) -> (f32[C], f32[N, H, C]) {
        let old = x;
        let mu = mean(old, (N, H));
        running = lerp(running, mu, momentum);
        x = batch_norm(old, (N, H));
        (mean(square(old - mu), (N, H)), old - max(old, (N, H)))
    }

    /// Places, truth values and integers of rows.
    pub(crate) fn peaks(x: f32[L, C]) -> (f32[L, C], i32[C], i32[L, C]) {
        let (place, low) = (argmax(x, L), min(x, L));
        let above = (if any(x > 1.5, L) { 1.0 } else { -1.0 }) * x;
        (if index(L) == place { above } else { low }, place + index(C), index(L) - place)
    }

    pub(crate) fn whole_numbers(x: i32[L, C]) -> (i32[L, C], i32[C]) { (x - sum(x, L), max(x, L)) }

    /// An operand lacks one of two dims, so vectors cannot run over both at once.
    pub(crate) fn weighted(x: f32[L, H, W], w: f32[W], h: f32[H]) -> f32[L, H, W] { x * w - h * sum(x * w, L) }
}

const COUNTS: [usize; 4] = [1, 4, 26, 4096];
/// A thread has several iterations in the longest length but one. The longest is split into parts.
const LENGTHS: [usize; 7] = [0, 1, 2, 31, 33, 1025, 8195];

/// Largest number of elements, because devices and the unoptimised reference are slow.
const MOST: usize = 160_000;

/// Runs a test on each device with each length of rows. All rows are adjacent, or half of them are.
fn each_size(test: impl Fn(&Device, [usize; 3]) -> Result<()>) {
    for (_, device) in devices() {
        for [count, len] in COUNTS.into_iter().flat_map(|count| LENGTHS.map(|len| [count, len])) {
            if count * len <= MOST {
                let shapes = [[1, len, count], [2, len, count.div_ceil(2)]];
                shapes.into_iter().try_for_each(|shape| test(&device, shape)).unwrap_or_else(|error| {
                    panic!("{device}: {count} rows of {len}: {error}");
                });
            }
        }
    }
}

/// Applies `f` to each row along the middle dim, and returns the results at the rows' places.
fn along_the_middle(host: &Host, f: impl Fn(&[f64]) -> Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let [b, l, c] = host.shape[..] else { panic!("it has three dims") };
    let mut all = vec![(f64::NAN, 0.0); b * l * c];
    for row in positions(&[b, c]) {
        let place = |i: usize| (row[0] * l + i) * c + row[1];
        let elements: Vec<f64> = (0..l).map(|i| f64::from(host.elements[place(i)])).collect();
        f(&elements).into_iter().enumerate().for_each(|(i, element)| all[place(i)] = element);
    }
    all
}

/// Returns the error bound of additions one after another, with a few roundings more.
fn roundings(terms: usize) -> f64 {
    (terms + 40) as f64 * UNIT
}

/// Computes exponentials and their sum in f64, in two passes and for any elements.
fn exponentials(row: &[f64]) -> (Vec<f64>, f64, f64) {
    let nan = row.iter().any(|x| x.is_nan());
    let most = if nan { f64::NAN } else { row.iter().copied().fold(f64::NEG_INFINITY, f64::max) };
    let e: Vec<f64> = row.iter().map(|x| (x - most).exp()).collect();
    let sum = e.iter().sum();
    (e, most, sum)
}

#[test]
fn softmax_over_an_outer_dim() {
    each_size(|device, [b, l, c]| {
        let host = Host::new(3, &[b, l, c]);
        let shares = along_the_middle(&host, |row| {
            let (e, _, sum) = exponentials(row);
            e.into_iter().map(|e| (e / sum, roundings(l) * e / sum)).collect()
        });
        let got = soft_in_the_middle(&host.on(device)?)?;
        check("softmax", &got, &[b, l, c], shares.iter().copied());
        if b == 1 {
            let flat = Host::of(&[l, c], host.elements.clone()).on(device)?;
            check("softmax", &soft(&flat)?, &[l, c], shares);
            let logs = along_the_middle(&host, |row| {
                let (_, most, sum) = exponentials(row);
                row.iter().map(|x| (x - most - sum.ln(), roundings(l) + 1e-6)).collect()
            });
            check("log softmax", &log_soft(&flat)?, &[l, c], logs);
        }
        Ok(())
    });
}

#[test]
fn a_difference_of_shares() {
    on_devices(|device| {
        for [n, d] in [[3, 7], [2, 132], [5, 1025], [1, 2500]] {
            let (x, y) = (Host::new(8, &[n, d]), Host::new(9, &[n, d]));
            let shares = |host: &Host| -> Vec<f64> {
                let share = |row: Vec<f64>| {
                    let (e, _, sum) = exponentials(&row);
                    e.into_iter().map(move |e| e / sum)
                };
                host.rows().flat_map(share).collect()
            };
            let pairs = shares(&x).into_iter().zip(shares(&y));
            let expected = pairs.map(|(x, y)| (x - y, roundings(d) * (x + y)));
            check("difference", &difference(&x.on(device)?, &y.on(device)?)?, &[n, d], expected);
        }
        Ok(())
    });
}

#[test]
fn layer_norm_over_an_outer_dim() {
    each_size(|device, [b, l, c]| {
        let (x, gamma, beta) = (Host::new(5, &[b, l, c]), Host::new(6, &[c]), Host::new(7, &[l]));
        let got = normal(&x.on(device)?, &gamma.on(device)?, &beta.on(device)?, 0.5)?;
        let normal = along_the_middle(&x, |row| normalized(row, 0.5, roundings(l) / UNIT));
        let expected = positions(&[b, l, c]).zip(normal).map(|(at, (z, error))| {
            let (g, b) = (gamma.at(&at[2..]).exp(), beta.at(&at[1..2]));
            (z * g + b, error * g + 8.0 * UNIT * ((z * g).abs() + b.abs()))
        });
        check("layer norm", &got, &[b, l, c], expected);
        Ok(())
    });
}

#[test]
fn statistics_of_a_batch_in_place() {
    each_size(|device, [n, h, c]| {
        let (host, before) = (Host::new(8, &[n, h, c]), Host::new(9, &[c]));
        let (mut x, mut running) = (host.on(device)?, before.on(device)?);
        if n * h == 0 {
            let (variance, below) = batch(&mut x, &mut running, 0.25)?;
            let nothing = variance.to_vec()?.into_iter().chain(running.to_vec()?);
            assert!({ nothing }.all(f32::is_nan) && below.to_vec()?.is_empty(), "{device}: means of nothing");
            return Ok(());
        }
        let (variance, below) = batch(&mut x, &mut running, 0.25)?;
        // The reduced dims of the batch as one middle dim.
        let all = Host::of(&[1, n * h, c], host.elements.clone());
        type OfRow<'a> = &'a dyn Fn(&[f64], f64, f64) -> Vec<(f64, f64)>;
        let of = |f: OfRow<'_>| {
            along_the_middle(&all, |row| {
                let mean = row.iter().sum::<f64>() / row.len() as f64;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
                f(row, mean, variance)
            })
        };
        let rounding = roundings(n * h);
        let normal = of(&|row, mean, variance| {
            let scale = (variance + 1e-5).sqrt().recip();
            let element = |x: &f64| {
                let z = (x - mean) * scale;
                (z, 2.0 * rounding * scale * (1.0 + z.abs()) + rounding * z.abs())
            };
            row.iter().map(element).collect()
        });
        check("normal", &x, &[n, h, c], normal);
        let largest = of(&|row, _, _| {
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.iter().map(|x| (x - most, 4.0 * UNIT)).collect()
        });
        check("below", &below, &[n, h, c], largest);
        let first = |all: Vec<(f64, f64)>| all.into_iter().take(c);
        let moments = first(of(&|row, mean, _| vec![(mean, 2.0 * rounding); row.len()]));
        let moments = moments.enumerate().map(|(i, (mean, error))| {
            let old = before.at(&[i]);
            (old + 0.25 * (mean - old), error + 4.0 * UNIT * 2.0)
        });
        check("running", &running, &[c], moments);
        let spread = first(of(&|row, _, variance| vec![(variance, 16.0 * rounding); row.len()]));
        check("variance", &variance, &[c], spread);
        Ok(())
    });
}

#[test]
fn places_and_truth_values_of_columns() {
    on_devices(|device| {
        for [l, c] in [[1, 1], [2, 5], [33, 4], [31, 700], [1025, 3], [8195, 3]] {
            // A small set of values makes ties likely.
            let elements: Vec<f32> =
                Host::new(23, &[l, c]).elements.into_iter().map(|x| (x * 4.0).round() / 4.0).collect();
            let (marked, places, distances) = peaks(&Tensor::from_slice(device, &elements, [l, c])?)?;
            let column = |j: usize| (0..l).map(move |i| i * c + j);
            let better = |best: usize, i: usize| if elements[i] > elements[best] { i } else { best };
            let place = |j: usize| column(j).reduce(better).expect("it has elements") / c;
            let place: Vec<usize> = (0..c).map(place).collect();
            let expect: Vec<i32> = (0..c).map(|j| (place[j] + j) as i32).collect();
            assert_eq!(places.to_vec()?, expect, "{device}: places of {l}x{c}");
            let expect: Vec<i32> = (0..l * c).map(|at| (at / c) as i32 - place[at % c] as i32).collect();
            assert_eq!(distances.to_vec()?, expect, "{device}: distances of {l}x{c}");
            let least = |j: usize| column(j).map(|i| elements[i]).fold(f32::INFINITY, f32::min);
            let sign = |j: usize| if column(j).any(|i| elements[i] > 1.5) { 1.0 } else { -1.0 };
            let of: Vec<(f32, f32)> = (0..c).map(|j| (least(j), sign(j))).collect();
            let expect = (0..l * c).map(|at| {
                let (least, sign) = of[at % c];
                if place[at % c] == at / c { sign * elements[at] } else { least }
            });
            assert_eq!(marked.to_vec()?, expect.collect::<Vec<f32>>(), "{device}: peaks of {l}x{c}");
        }
        Ok(())
    });
}

#[test]
fn integers_of_columns() {
    on_devices(|device| {
        for [l, c] in [[1, 1], [2, 5], [33, 4], [31, 700], [1025, 3], [8195, 3]] {
            let elements: Vec<i32> =
                (0..l * c).map(|i| (i as i32).wrapping_mul(0x9e37_79b1_u32 as i32)).collect();
            let (rest, most) = whole_numbers(&Tensor::from_slice(device, &elements, [l, c])?)?;
            let column = |j: usize| (0..l).map(move |i| i * c + j).map(|at| elements[at]);
            let sums: Vec<i32> = (0..c).map(|j| column(j).fold(0, i32::wrapping_add)).collect();
            let expect: Vec<i32> = (0..l * c).map(|at| elements[at].wrapping_sub(sums[at % c])).collect();
            assert_eq!(rest.to_vec()?, expect, "{device}: {l}x{c}");
            let expect: Vec<i32> = (0..c).map(|j| column(j).max().expect("it has elements")).collect();
            assert_eq!(most.to_vec()?, expect, "{device}: largest of {l}x{c}");
        }
        Ok(())
    });
}

#[test]
fn operands_that_lack_a_dim_of_the_rows() {
    on_devices(|device| {
        for [l, h, w] in [[1, 1, 1], [5, 3, 4], [33, 2, 700], [7, 600, 3]] {
            let (x, by, per) = (Host::new(1, &[l, h, w]), Host::new(2, &[w]), Host::new(3, &[h]));
            let got = weighted(&x.on(device)?, &by.on(device)?, &per.on(device)?)?;
            let sums = crate::sums(&[l, h, w], &[0], |at| x.at(at) * by.at(&at[2..]));
            let expected = positions(&[l, h, w]).map(|at| {
                let (sum, term) = (sums[at[1] * w + at[2]], x.at(&at) * by.at(&at[2..]));
                let error = 2.0 * roundings(l) * sum.magnitude + 8.0 * UNIT * (4.0 + 2.0 * sum.magnitude);
                (term - per.at(&at[1..2]) * sum.value, error)
            });
            check("weighted", &got, &[l, h, w], expected);
        }
        Ok(())
    });
}

/// Returns rows with infinities and NaN in all places.
fn special_rows() -> [[f32; 4]; 12] {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    [
        [-inf, -inf, -inf, -inf],
        [-inf, -inf, 1.0, -inf],
        [1.0, -inf, 2.0, 0.5],
        [-inf, 3.0, 3.0, 3.0],
        [inf, 1.0, 2.0, 3.0],
        [1.0, 2.0, 3.0, inf],
        [-inf, inf, -inf, inf],
        [nan, 1.0, 2.0, 3.0],
        [1.0, 2.0, 3.0, nan],
        [-inf, nan, inf, 1.0],
        [3e38, -3e38, 3e38, 0.0],
        [0.0, -0.0, 100.0, -100.0],
    ]
}

/// Asserts that a softmax and a logsumexp are as if the maximum were known before any addition.
#[track_caller]
fn check_exponentials(device: &Device, row: &[f32], shares: impl Iterator<Item = f32>, log: f32) {
    let elements: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
    let (e, most, sum) = exponentials(&elements);
    let close = |got: f32, expect: f64| {
        let error = (f64::from(got) - expect).abs();
        f64::from(got) == expect || got.is_nan() && expect.is_nan() || error <= 4e-6 * expect.abs() + 1e-36
    };
    let first = &row[..4];
    for (i, (got, e)) in shares.zip(e).enumerate() {
        assert!(close(got, e / sum), "{device}: share {i} of {first:?}… is {got}, not {}", e / sum);
    }
    let expect = if most.is_infinite() { most } else { most + sum.ln() };
    assert!(close(log, expect), "{device}: {log} of {first:?}…, not {expect}");
}

#[test]
fn infinities_in_columns() {
    let columns = special_rows();
    let c = columns.len();
    let elements: Vec<f32> = (0..4 * c).map(|i| columns[i % c][i / c]).collect();
    for device in exact_devices() {
        let of = || -> Result<()> {
            let x = Tensor::from_slice(&device, &elements, [4, c])?;
            let (shares, logs) = (soft(&x)?.to_vec()?, log_sum(&x)?.to_vec()?);
            for (j, column) in columns.iter().enumerate() {
                check_exponentials(&device, column, shares.iter().skip(j).step_by(c).copied(), logs[j]);
            }
            Ok(())
        };
        of().unwrap_or_else(|error| panic!("{device}: {error}"));
    }
}

/// Rows too long for a block to stage. The last elements are as special as the first.
#[test]
fn infinities_in_long_rows() {
    let row = |len: usize, special: [f32; 4]| {
        let between = std::iter::repeat_n(special[0].min(-5.0), len - 6);
        special[..2].iter().copied().chain(between).chain(special).collect::<Vec<f32>>()
    };
    for (device, len) in exact_devices().iter().flat_map(|device| [(device, 60_000), (device, 60_001)]) {
        let rows = special_rows().map(|special| row(len, special));
        let of = || -> Result<()> {
            let x = Tensor::from_slice(device, &rows.concat(), [rows.len(), len])?;
            let (shares, logs) = (soft_rows(&x)?.to_vec()?, log_sum_rows(&x)?.to_vec()?);
            for ((row, shares), log) in rows.iter().zip(shares.chunks_exact(len)).zip(logs) {
                check_exponentials(device, row, shares.iter().copied(), log);
            }
            Ok(())
        };
        of().unwrap_or_else(|error| panic!("{device}: {error}"));
    }
}

#[test]
fn each_is_one_kernel() {
    let kernels = [
        soft::report().kernels(),
        soft_in_the_middle::report().kernels(),
        log_soft::report().kernels(),
        log_sum::report().kernels(),
        normal::report().kernels(),
        batch::report().kernels(),
        peaks::report().kernels(),
        whole_numbers::report().kernels(),
        weighted::report().kernels(),
    ];
    assert_eq!(kernels, [1; 9]);
}
