//! `#[fuse(fast_math)]`: devices' approximations, within what `docs/NUMERICS.md` says of them; the CPU has none.

use fusion::prelude::*;

use super::{Kind, devices, download, kernels, report, upload};

fuse! {
    #[fuse(fast_math)]
    pub(crate) fn q_div(x: f32[N], y: f32[N]) -> f32[N] { x / y }
    #[fuse(fast_math)]
    pub(crate) fn q_sqrt(x: f32[N]) -> f32[N] { sqrt(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_rsqrt(x: f32[N]) -> f32[N] { rsqrt(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_exp(x: f32[N]) -> f32[N] { exp(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_exp2(x: f32[N]) -> f32[N] { exp2(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_log(x: f32[N]) -> f32[N] { log(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_log2(x: f32[N]) -> f32[N] { log2(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_sin(x: f32[N]) -> f32[N] { sin(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_cos(x: f32[N]) -> f32[N] { cos(x) }
    #[fuse(fast_math)]
    pub(crate) fn q_softmax(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
    pub(crate) fn softmax_of_rows(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
}

type Unary = fn(&Tensor<f32>) -> Result<Tensor<f32>>;

/// A function, where its bound holds, and the bound: relative in units of 2⁻²³, and absolute.
struct Row {
    name: &'static str,
    fast: Unary,
    accurate: Unary,
    of: fn(f64) -> f64,
    domain: [f32; 2],
    /// Of an argument and what it should give.
    ptx: fn(f64, f64) -> f64,
    wgsl: fn(f64, f64) -> f64,
}

const UNIT: f64 = f32::EPSILON as f64;
const HALF_TURN: f32 = std::f32::consts::PI;

/// What is expected of PTX's approximations, and the sum where one is made of two; for WGSL of its own functions.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "sqrt", fast: q_sqrt, accurate: kernels::f_sqrt, of: f64::sqrt, domain: [0.0, 1e30], ptx: |_, y| 1.5 * UNIT * y, wgsl: |_, y| 4.0 * UNIT * y },
    Row { name: "rsqrt", fast: q_rsqrt, accurate: kernels::f_rsqrt, of: |x| x.sqrt().recip(), domain: [1e-30, 1e30], ptx: |_, y| 2.0 * UNIT * y, wgsl: |_, y| 2.0 * UNIT * y },
    Row { name: "exp", fast: q_exp, accurate: kernels::f_exp, of: f64::exp, domain: [-80.0, 80.0], ptx: |x, y| (2.0 + 1.2 * x.abs()) * UNIT * y, wgsl: |x, y| (3.0 + 2.0 * x.abs()) * UNIT * y },
    Row { name: "exp2", fast: q_exp2, accurate: kernels::f_exp2, of: f64::exp2, domain: [-120.0, 120.0], ptx: |_, y| 2.0 * UNIT * y, wgsl: |x, y| (3.0 + 2.0 * x.abs()) * UNIT * y },
    Row { name: "log", fast: q_log, accurate: kernels::f_log, of: f64::ln, domain: [1e-30, 1e30], ptx: |_, y| 3.0 * UNIT * (y.abs() + 1.0), wgsl: |_, y| 3.0 * UNIT * y.abs() + 4.0 * UNIT },
    Row { name: "log2", fast: q_log2, accurate: kernels::f_log2, of: f64::log2, domain: [1e-30, 1e30], ptx: |_, y| 2.0 * UNIT * (y.abs() + 1.0), wgsl: |_, y| 3.0 * UNIT * y.abs() + 4.0 * UNIT },
    Row { name: "sin", fast: q_sin, accurate: kernels::f_sin, of: f64::sin, domain: [-HALF_TURN, HALF_TURN], ptx: |_, _| 5e-7, wgsl: |_, _| 4.9e-4 },
    Row { name: "cos", fast: q_cos, accurate: kernels::f_cos, of: f64::cos, domain: [-HALF_TURN, HALF_TURN], ptx: |_, _| 5e-7, wgsl: |_, _| 4.9e-4 },
];

/// Numbers of every size in the domain, small ones too.
fn arguments(domain: [f32; 2]) -> Vec<f32> {
    let [low, high] = domain;
    let even = (0..=20_000).map(|i| low + (high - low) * (i as f32 / 20_000.0));
    let sizes = (-99..=99).map(|i| 2f32.powi(i)).flat_map(|x| [x, -x, 1.37 * x]);
    even.chain(sizes).filter(|x| (low..=high).contains(x)).collect()
}

#[test]
fn approximations_are_within_their_bounds() {
    let mut failures = vec![];
    for row in ROWS {
        let x = arguments(row.domain);
        for (kind, device) in devices() {
            let of = |f: Unary| download(f(&upload(&device, &x)));
            let (fast, accurate) = (of(row.fast), of(row.accurate));
            if kind == Kind::Cpu && fast.iter().zip(&accurate).any(|(a, b)| a.to_bits() != b.to_bits()) {
                failures.push(format!("{} on the CPU is not as it is without", row.name));
            }
            let bound = if kind == Kind::Wgpu { row.wgsl } else { row.ptx };
            for (&x, got) in x.iter().zip(fast) {
                let (x, got, expect) = (f64::from(x), f64::from(got), (row.of)(x.into()));
                if (got - expect).abs() > bound(x, expect) || got.is_nan() {
                    failures.push(format!("{}({x}) on {kind:?} is {got}, not {expect}", row.name));
                }
            }
        }
    }
    report(&failures);
}

#[test]
fn quotients_are_within_their_bound() {
    let numbers = arguments([1e-15, 1e15]);
    let (x, y): (Vec<f32>, Vec<f32>) =
        numbers.iter().enumerate().map(|(i, &x)| (x, -numbers[i * 7919 % numbers.len()])).unzip();
    for (kind, device) in devices() {
        let got = download(q_div(&upload(&device, &x), &upload(&device, &y)));
        for ((x, y), got) in x.iter().zip(&y).zip(got) {
            let expect = f64::from(*x) / f64::from(*y);
            let error = (f64::from(got) - expect).abs();
            assert!(error <= 2.5 * UNIT * expect.abs(), "{x} / {y} on {kind:?} is {got}");
        }
    }
}

/// What fuses is the same, and the texts say what is approximated.
#[test]
fn rows_take_approximations_too() {
    let [fast, accurate] = [q_softmax::PTX, softmax_of_rows::PTX];
    assert!(fast.contains("ex2.approx.f32") && fast.contains("div.full.f32"));
    assert!(!accurate.contains("approx") && !accurate.contains(".full"));
    assert!(q_softmax::WGSL.contains("exp(v") && !softmax_of_rows::WGSL.contains("exp(v"));
    let (fast, accurate) = (q_softmax::report(), softmax_of_rows::report());
    assert_eq!(fast.kernels(), accurate.kernels());
    assert!(fast.to_string().contains("; fast math") && !accurate.to_string().contains("fast math"));
    for (_, device) in devices() {
        let x: Vec<f32> = (0..3 * 1000).map(|i| (i * 37 % 101) as f32 * 0.2 - 10.0).collect();
        let x = Tensor::from_slice(&device, &x, [3, 1000]).expect("there is memory");
        let pairs = download(q_softmax(&x)).into_iter().zip(download(softmax_of_rows(&x)));
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-5 * b), "{device}");
    }
}
