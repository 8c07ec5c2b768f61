//! Functions of the standard library agree with formulas in `f64` written from PyTorch's documentation.
//!
//! Invariant: each line states its bound, `relative · |expected| + absolute`. A function whose formula
//! subtracts near values has an absolute one.

use fusion::prelude::*;

use super::{Kind, devices, download, report, upload};

fuse! {
    pub(crate) fn k_relu(x: f32[N]) -> f32[N] { relu(x) }
    pub(crate) fn k_leaky_relu(x: f32[N]) -> f32[N] { leaky_relu(x) }
    pub(crate) fn k_elu(x: f32[N]) -> f32[N] { elu(x) }
    pub(crate) fn k_selu(x: f32[N]) -> f32[N] { selu(x) }
    pub(crate) fn k_gelu(x: f32[N]) -> f32[N] { gelu(x) }
    pub(crate) fn k_gelu_tanh(x: f32[N]) -> f32[N] { gelu_tanh(x) }
    pub(crate) fn k_sigmoid(x: f32[N]) -> f32[N] { sigmoid(x) }
    pub(crate) fn k_log_sigmoid(x: f32[N]) -> f32[N] { log_sigmoid(x) }
    pub(crate) fn k_silu(x: f32[N]) -> f32[N] { silu(x) }
    pub(crate) fn k_softplus(x: f32[N]) -> f32[N] { softplus(x) }
    pub(crate) fn k_softplus_beta(x: f32[N]) -> f32[N] { softplus(x, 2.0, 10.0) }
    pub(crate) fn k_mish(x: f32[N]) -> f32[N] { mish(x) }
    pub(crate) fn k_softsign(x: f32[N]) -> f32[N] { softsign(x) }
    pub(crate) fn k_hardtanh(x: f32[N]) -> f32[N] { hardtanh(x) }
    pub(crate) fn k_relu6(x: f32[N]) -> f32[N] { relu6(x) }
    pub(crate) fn k_hardsigmoid(x: f32[N]) -> f32[N] { hardsigmoid(x) }
    pub(crate) fn k_hardswish(x: f32[N]) -> f32[N] { hardswish(x) }
    pub(crate) fn k_clamp(x: f32[N]) -> f32[N] { clamp(x, -2.5, 0.75) }
    pub(crate) fn k_lerp_near(x: f32[N]) -> f32[N] { lerp(x, 3.0, 0.25) }
    pub(crate) fn k_lerp_far(x: f32[N]) -> f32[N] { lerp(x, 3.0, 0.75) }
    pub(crate) fn k_square(x: f32[N]) -> f32[N] { square(x) }
    pub(crate) fn k_recip(x: f32[N]) -> f32[N] { recip(x) }
}

fuse! {
    pub(crate) fn k_logaddexp(x: f32[N], y: f32[N]) -> f32[N] { logaddexp(x, y) }
}

pub(super) struct Row {
    /// Name of the function, or the call of `x`.
    pub(super) name: &'static str,
    pub(super) function: fn(&Tensor<f32>) -> Result<Tensor<f32>>,
    pub(super) expect: fn(f64) -> f64,
    /// Relative error in units of 2⁻²³.
    relative: f64,
    pub(super) absolute: f64,
    /// Values at −∞ and +∞.
    infinite: [f64; 2],
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Rows with their values at infinities. PyTorch's are the limits of the formula in floating point:
/// `gelu(-∞)` and `silu(-∞)` are `-∞ · 0`. `leaky_relu` has slope 0.01, `elu` alpha 1, `softplus` beta 1 and
/// threshold 20 unless given.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    Row { name: "relu", function: k_relu, expect: |x| if x < 0.0 { 0.0 } else { x }, relative: 0.0, absolute: 0.0, infinite: [0.0, INF] },
    Row { name: "leaky_relu", function: k_leaky_relu, expect: |x| if x >= 0.0 { x } else { 0.01 * x }, relative: 1.0, absolute: 0.0, infinite: [-INF, INF] },
    Row { name: "elu", function: k_elu, expect: |x| if x > 0.0 { x } else { x.exp_m1() }, relative: 4.0, absolute: 0.0, infinite: [-1.0, INF] },
    Row { name: "selu", function: k_selu, expect: selu, relative: 5.0, absolute: 0.0, infinite: [-1.758_099_340_847_376_6, INF] },
    Row { name: "gelu", function: k_gelu, expect: |x| x * normal(x), relative: 4.0, absolute: 1e-6, infinite: [NAN, INF] },
    Row { name: "gelu_tanh", function: k_gelu_tanh, expect: gelu_tanh, relative: 6.0, absolute: 1e-6, infinite: [NAN, INF] },
    Row { name: "sigmoid", function: k_sigmoid, expect: sigmoid, relative: 6.0, absolute: 0.0, infinite: [0.0, 1.0] },
    Row { name: "log_sigmoid", function: k_log_sigmoid, expect: |x| -log_one_plus_exp(-x), relative: 6.0, absolute: 0.0, infinite: [-INF, 0.0] },
    Row { name: "silu", function: k_silu, expect: |x| x * sigmoid(x), relative: 6.0, absolute: 0.0, infinite: [NAN, INF] },
    Row { name: "softplus", function: k_softplus, expect: |x| if x > 20.0 { x } else { log_one_plus_exp(x) }, relative: 6.0, absolute: 0.0, infinite: [0.0, INF] },
    Row { name: "softplus(x, 2.0, 10.0)", function: k_softplus_beta, expect: |x| if 2.0 * x > 10.0 { x } else { log_one_plus_exp(2.0 * x) / 2.0 }, relative: 6.0, absolute: 0.0, infinite: [0.0, INF] },
    Row { name: "mish", function: k_mish, expect: |x| x * log_one_plus_exp(x).tanh(), relative: 10.0, absolute: 0.0, infinite: [NAN, INF] },
    Row { name: "softsign", function: k_softsign, expect: |x| x / (1.0 + x.abs()), relative: 4.0, absolute: 0.0, infinite: [NAN, NAN] },
    Row { name: "hardtanh", function: k_hardtanh, expect: |x| x.clamp(-1.0, 1.0), relative: 0.0, absolute: 0.0, infinite: [-1.0, 1.0] },
    Row { name: "relu6", function: k_relu6, expect: |x| x.clamp(0.0, 6.0), relative: 0.0, absolute: 0.0, infinite: [0.0, 6.0] },
    Row { name: "hardsigmoid", function: k_hardsigmoid, expect: hardsigmoid, relative: 4.0, absolute: 5e-8, infinite: [0.0, 1.0] },
    Row { name: "hardswish", function: k_hardswish, expect: |x| x * hardsigmoid(x), relative: 5.0, absolute: 4e-7, infinite: [NAN, INF] },
    Row { name: "clamp(x, -2.5, 0.75)", function: k_clamp, expect: |x| x.clamp(-2.5, 0.75), relative: 0.0, absolute: 0.0, infinite: [-2.5, 0.75] },
    Row { name: "lerp(x, 3.0, 0.25)", function: k_lerp_near, expect: |x| x + 0.25 * (3.0 - x), relative: 2.0, absolute: 2e-6, infinite: [NAN, NAN] },
    Row { name: "lerp(x, 3.0, 0.75)", function: k_lerp_far, expect: |x| x + 0.75 * (3.0 - x), relative: 2.0, absolute: 2e-6, infinite: [-INF, INF] },
    Row { name: "square", function: k_square, expect: |x| x * x, relative: 1.0, absolute: 0.0, infinite: [INF, INF] },
    Row { name: "recip", function: k_recip, expect: |x| 1.0 / x, relative: 3.0, absolute: 0.0, infinite: [-0.0, 0.0] },
];

fn selu(x: f64) -> f64 {
    let (scale, alpha) = (1.050_700_987_355_480_5, 1.673_263_242_354_377_2);
    if x > 0.0 { scale * x } else { scale * alpha * x.exp_m1() }
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Computes `ln(1 + eˣ)`.
fn log_one_plus_exp(x: f64) -> f64 {
    if x > 40.0 { x } else { x.exp().ln_1p() }
}

fn hardsigmoid(x: f64) -> f64 {
    if x <= -3.0 {
        0.0
    } else if x >= 3.0 {
        1.0
    } else {
        x / 6.0 + 0.5
    }
}

/// Computes the standard normal distribution function by the series of `erf` whose terms all have one sign
/// (Abramowitz and Stegun 7.1.6). From 8 on it is 0 or 1 within an absolute bound of 1e-6.
fn normal(x: f64) -> f64 {
    let t = x / std::f64::consts::SQRT_2;
    if t.abs() > 6.0 {
        return if t > 0.0 { 1.0 } else { 0.0 };
    }
    let terms = (1..200).scan(t, |term, n| {
        *term *= 2.0 * t * t / f64::from(2 * n + 1);
        Some(*term)
    });
    let erf = 2.0 / std::f64::consts::PI.sqrt() * (-t * t).exp() * (t + terms.sum::<f64>());
    0.5 * (1.0 + erf)
}

/// Returns a grid over [−20, 20], numbers near 0, and large ones whose squares are finite, but none that WGSL
/// may flush.
fn arguments() -> Vec<f32> {
    let grid = (-20_000..=20_000).map(|i| i as f32 / 1_000.0).filter(|&x| x != 0.0);
    let sizes = [
        1e-18f32,
        1e-10,
        1e-6,
        1e-3,
        2.999_999_8,
        3.000_000_2,
        5.000_001,
        20.000_002,
        50.0,
        80.0,
        100.0,
        1e4,
        1e9,
    ];
    grid.chain(sizes.into_iter().flat_map(|x| [x, -x])).collect()
}

/// Returns true if a result is within its bound. A result below the normal numbers may be flushed on WGSL,
/// and loses its low bits everywhere.
fn is_close(row: &Row, x: f32, actual: f32) -> bool {
    let expect = (row.expect)(f64::from(x));
    let bound = row.relative * f64::from(f32::EPSILON) * expect.abs() + row.absolute;
    let smallest = f64::from(f32::MIN_POSITIVE);
    let bound = if expect.abs() < smallest { bound.max(smallest) } else { bound };
    let rounded = f64::from(expect as f32);
    (f64::from(actual) - expect).abs() <= bound || f64::from(actual) == rounded
}

/// Returns a line for each result out of bounds.
fn failures(row: &Row) -> Vec<String> {
    let arguments = arguments();
    let mut failures = Vec::new();
    for (kind, device) in devices() {
        let results = download((row.function)(&upload(&device, &arguments)));
        assert_eq!(results.len(), arguments.len());
        for (&x, actual) in arguments.iter().zip(results) {
            if !is_close(row, x, actual) {
                failures.push(format!(
                    "{}({x}) is {actual}, not {} ({kind:?})",
                    row.name,
                    (row.expect)(x.into())
                ));
            }
        }
    }
    failures
}

#[test]
fn functions_are_what_pytorch_documents() {
    report(&ROWS.iter().flat_map(failures).collect::<Vec<_>>());
}

/// WGSL promises finite values only, but the software Vulkan passes this test, too.
#[test]
fn infinities_have_their_limits_and_nan_passes_through() {
    let mut failures = Vec::new();
    for (kind, device) in devices() {
        let x = upload(&device, &[f32::NEG_INFINITY, f32::INFINITY, f32::NAN]);
        for row in ROWS {
            let actual = download((row.function)(&x));
            let expect = [row.infinite[0] as f32, row.infinite[1] as f32, f32::NAN];
            for (actual, expect) in actual.into_iter().zip(expect) {
                let same = match kind {
                    Kind::Cpu | Kind::Cuda => actual.to_bits() == expect.to_bits(),
                    Kind::Wgpu => actual == expect,
                };
                if !(same || actual.is_nan() && expect.is_nan()) {
                    failures.push(format!("{}: {actual}, not {expect} ({kind:?})", row.name));
                }
            }
        }
    }
    report(&failures);
}

/// Computes `ln(eˣ + eʸ)` from the larger argument, exact in `f64` to far more digits than `f32` has.
fn logaddexp(x: f64, y: f64) -> f64 {
    match (x.max(y), (x - y).abs()) {
        _ if x.is_nan() || y.is_nan() => NAN,
        (most, _) if most.is_infinite() => most,
        (most, apart) => most + (-apart).exp().ln_1p(),
    }
}

/// The bound is relative to the larger argument where both terms cancel and the result is near 0. Results at
/// infinities are exact.
#[test]
fn sums_of_exponentials_are_logarithms() {
    let grid = (-60..=60).map(|i| i as f32 * 1.75);
    let ends =
        [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, 0.0, -0.0, 1e-30, 88.8, -104.5];
    let all: Vec<f32> = grid.chain(ends).collect();
    let pairs = all.iter().flat_map(|&x| all.iter().map(move |&y| (x, y)));
    let (x, y): (Vec<f32>, Vec<f32>) = pairs.unzip();
    let mut failures = Vec::new();
    for (kind, device) in devices() {
        let results = download(k_logaddexp(&upload(&device, &x), &upload(&device, &y)));
        for ((&x, &y), actual) in x.iter().zip(&y).zip(results) {
            let expect = logaddexp(x.into(), y.into());
            let size = f64::from(x).max(y.into()).abs().max(expect.abs());
            let bound = 2.0 * f64::from(f32::EPSILON) * size + f64::from(f32::EPSILON) / 2.0;
            let same = f64::from(actual) == expect || actual.is_nan() && expect.is_nan();
            let near = expect.is_finite() && (f64::from(actual) - expect).abs() <= bound;
            if !same && !near {
                failures.push(format!("logaddexp({x}, {y}) is {actual}, not {expect} ({kind:?})"));
            }
        }
    }
    report(&failures);
}
