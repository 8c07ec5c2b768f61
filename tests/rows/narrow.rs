//! Rows of halves, which GPUs stage as they load them, and short rows, up to eight of which share a warp.
//!
//! The lengths cover every number of threads, with and without whole vectors. The numbers of rows leave some
//! threads of the last warp idle.

use fusion::prelude::*;

use crate::devices::devices;
use crate::unstaged::agree;
use crate::{Host, normalized, roundings};

fuse! {
    pub(crate) fn normal(x: f16[N, D], g: f16[D], b: bf16[D]) -> f16[N, D] { layer_norm(x, D) * g + b }
    pub(crate) fn scaled(x: bf16[N, D], g: bf16[D]) -> bf16[N, D] { rms_norm(x, D) * g }
    pub(crate) fn centre(x: &mut f16[N, D]) -> f32[N] {
        let mu = mean(x, D);
        x = (x - mu) as f16;
        mu
    }
    pub(crate) fn products(x: f16[N, D], y: f16[N, D]) -> f32[N, D] { (x - mean(x, D)) * (y - mean(y, D)) }
    pub(crate) fn mixed(x: f16[N, D], y: bf16[N, D]) -> f32[N, D] { (x - mean(x, D)) * (y - mean(y, D)) }
    pub(crate) fn in_turn(y: f16[N, D], x: f16[N, D]) -> f32[N, D] {
        let a = mean(x, D);
        let v = mean(abs(x - a), D);
        y - mean(abs(y - v), D)
    }
    pub(crate) fn in_turn_beside(x: f16[N, D], y: f16[N, D], z: f16[N, D]) -> f32[N, D] {
        let a = mean(x * z, D);
        let v = mean(abs(x - a), D);
        (y - mean(abs(y - v), D)) * z
    }
    pub(crate) fn widened_elsewhere(x: f16[N, D], class: i32[N]) -> (f32[D, N], f32[N, D], f16[N]) {
        (x as f32, x - mean(x, D), take(x, D, class))
    }
    pub(crate) fn kept(x: f16[N, D]) -> (f16[N, D], f32[N, D]) { (x, x - mean(x, D)) }
    pub(crate) fn along(x: f16[D, N]) -> f32[D, N] { x - mean(x, D) }
    pub(crate) fn at_once(x: f16[N, D]) -> (f32[N], f32[N]) { (mean(x, D), logsumexp(x, D)) }
    pub(crate) fn soft(x: f16[N, D]) -> f32[N, D] { softmax(x, D) }
    pub(crate) fn widened(x: f16[N, D]) -> f32[N, D] { x as f32 }
    pub(crate) fn widened_bf16(x: bf16[N, D]) -> f32[N, D] { x as f32 }
}

/// Lengths of whole vectors, then others.
const LENGTHS: [usize; 27] = [
    8, 16, 32, 64, 96, 128, 192, 256, 384, 392, 512, 768, 1024, 1536, 2048, 7168, 8192, 12_288, 24_576, 1, 7,
    33, 65, 100, 193, 1001, 12_289,
];
/// Number of rows for which clusters share rows of the lengths below.
const MANY: usize = 64;
const LONG: [usize; 2] = [65_544, 40_001];
/// Distances from one half, and from one `bf16`, to the next, for numbers up to 8.
const STEP: f32 = 1.0 / 128.0;
const BF16_STEP: f32 = 1.0 / 16.0;
/// Error of sums and products in f32.
const SLACK: f32 = 1e-5;

fn halves(device: &Device, seed: u32, shape: &[usize]) -> Result<Tensor<f16>> {
    let all = Host::new(seed, shape).elements.iter().map(|&x| f16::from_f32(x)).collect();
    Tensor::from_vec(device, all, shape)
}

fn bf16s(device: &Device, seed: u32, shape: &[usize]) -> Result<Tensor<bf16>> {
    let all = Host::new(seed, shape).elements.iter().map(|&x| bf16::from_f32(x)).collect();
    Tensor::from_vec(device, all, shape)
}

/// Returns pairs of a number of rows and their length, without those of clusters.
fn sizes() -> impl Iterator<Item = [usize; 2]> {
    LENGTHS.iter().map(|&len| [if len > 2048 { 3 } else { 37 }, len])
}

fn each_agrees(what: &str, slack: f32, call: impl Fn(&Device, [usize; 2]) -> Result<Vec<Tensor<f32>>>) {
    for [rows, len] in sizes() {
        agree(what, (&[len], slack), |device, len| call(device, [rows, len]));
    }
}

fn agrees_in_clusters(
    what: &str,
    slack: f32,
    call: impl Fn(&Device, [usize; 2]) -> Result<Vec<Tensor<f32>>>,
) {
    agree(what, (&LONG, slack), |device, len| call(device, [MANY, len]));
}

#[test]
fn norms() {
    let layer_norm = |device: &Device, [rows, len]: [usize; 2]| {
        let x = halves(device, 3, &[rows, len])?;
        Ok(vec![widened(&normal(&x, &halves(device, 4, &[len])?, &bf16s(device, 5, &[len])?)?)?])
    };
    each_agrees("layer norm", STEP, layer_norm);
    agrees_in_clusters("layer norm", STEP, layer_norm);
    each_agrees("RMS norm", BF16_STEP, |device, size| {
        let x = bf16s(device, 3, &size)?;
        Ok(vec![widened_bf16(&scaled(&x, &bf16s(device, 4, &size[1..])?)?)?])
    });
}

/// Norms agree with plain loops to the rounding of a half.
#[test]
fn norms_are_right() {
    for (_, device) in devices() {
        for [rows, len] in sizes() {
            let (x, g) = (halves(&device, 3, &[rows, len]), Tensor::full(&device, f16::ONE, len));
            let (x, g, b) = (x.expect("it fits"), g.expect("it fits"), Tensor::zeros(&device, len));
            let got = normal(&x, &g, &b.expect("it fits")).and_then(|y| y.to_vec()).expect("it runs");
            let host: Vec<f64> = x.to_vec().expect("it can be read").into_iter().map(f64::from).collect();
            for (row, got) in host.chunks(len).zip(got.chunks(len)) {
                for (got, (expected, bound)) in got.iter().zip(normalized(row, 1e-5, roundings(len))) {
                    let nearest = expected.abs().max(2f64.powi(-14)) * 2f64.powi(-11);
                    let error = (f64::from(*got) - expected).abs();
                    assert!(error <= bound + nearest, "{device}, {len}: {got}, not {expected}");
                }
            }
        }
    }
}

#[test]
fn operands_staged_in_another_precision() {
    let two = |device: &Device, size: [usize; 2]| {
        Ok(vec![products(&halves(device, 3, &size)?, &halves(device, 4, &size)?)?])
    };
    each_agrees("two", SLACK, two);
    agrees_in_clusters("two", SLACK, two);
    each_agrees("two kinds", SLACK, |device, size| {
        Ok(vec![mixed(&halves(device, 3, &size)?, &bf16s(device, 4, &size)?)?])
    });
    each_agrees("in turn", SLACK, |device, size| {
        Ok(vec![in_turn(&halves(device, 3, &size)?, &halves(device, 4, &size)?)?])
    });
    each_agrees("in turn, beside others", SLACK, |device, size| {
        let [x, y, z] = [3, 4, 5].map(|seed| halves(device, seed, &size));
        Ok(vec![in_turn_beside(&x?, &y?, &z?)?])
    });
    each_agrees("converted elsewhere", SLACK, |device, [rows, len]| {
        let class = Tensor::from_vec(device, (0..rows).map(|i| (i % len) as i32).collect(), rows)?;
        let (across, left, gathered) = widened_elsewhere(&halves(device, 3, &[rows, len])?, &class)?;
        Ok(vec![across, left, widened(&gathered.reshape([rows, 1])?)?])
    });
    each_agrees("exponentials", SLACK, |device, size| Ok(vec![soft(&halves(device, 3, &size)?)?]));
    each_agrees("nothing", SLACK, |device, size| {
        let (means, logs) = at_once(&halves(device, 3, &size)?)?;
        Ok(vec![means, logs])
    });
}

/// A row in place keeps its loaded elements until the kernel writes the results.
#[test]
fn in_place() {
    each_agrees("in place", STEP, |device, size| {
        let mut x = halves(device, 3, &size)?;
        let means = centre(&mut x)?;
        Ok(vec![widened(&x)?, means])
    });
}

/// Columns, which are adjacent in memory.
#[test]
fn side_by_side() {
    for [len, rows] in [[300, 24], [4096, 24], [5000, 3], [33, 5000]] {
        agree("side by side", (&[rows], SLACK), |device, rows| {
            Ok(vec![along(&halves(device, 3, &[len, rows])?)?])
        });
    }
}

/// Bits of all halves survive unchanged, NaN included.
#[test]
fn bits() {
    for (_, device) in devices() {
        for len in [64, 67, 512, 8192] {
            let bits: Vec<f16> =
                (0..len * MANY).map(|i| f16::from_bits((i * 40_503 % 65_536) as u16)).collect();
            let x = Tensor::from_slice(&device, &bits, [MANY, len]).expect("it fits");
            let (same, _) = kept(&x).expect("it runs");
            for (i, (got, bits)) in same.to_vec().expect("it can be read").iter().zip(&bits).enumerate() {
                let is_same = got.to_bits() == bits.to_bits() || got.is_nan() && bits.is_nan();
                assert!(
                    is_same,
                    "{device}, {len}, element {i}: {:x}, not {:x}",
                    got.to_bits(),
                    bits.to_bits()
                );
            }
        }
    }
}
