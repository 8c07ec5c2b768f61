//! The crates' side of `benches/compare/run.py`, with the protocol of `benches/compare/main.rs`.

use std::io::stdin;
use std::time::{Duration, Instant};

use candle_core::{Device, Result, Tensor};

use crate::extents::extents;

/// Duration of one measurement.
const BURST: Duration = Duration::from_millis(60);

/// One way to compute a workload. A call returns the sum of the result if it is asked for.
type Call = Box<dyn FnMut(bool) -> f64>;

/// Matrices of a workload: batch, rows, depth, columns, and the dims that are exchanged in memory.
#[derive(Clone, Copy)]
struct Product {
    extents: [usize; 4],
    is_left_exchanged: bool,
    is_right_exchanged: bool,
}

/// Measures the crates on request.
pub(crate) fn run(workload: &str, size: &str) {
    let mut calls = calls(workload, size);
    for (name, call) in &mut calls {
        let start = Instant::now();
        let sum = call(true);
        let first = start.elapsed().as_secs_f64();
        println!("{{\"name\": \"{name}\", \"first\": {first:e}, \"check\": {sum:e}}}");
    }
    println!();
    for line in stdin().lines().map_while(|line| line.ok()) {
        let (_, call) = calls.iter_mut().find(|(name, _)| *name == line).expect("a name that was said");
        let mut seconds = |count: u32| {
            let start = Instant::now();
            (0..count).for_each(|_| _ = call(false));
            start.elapsed().as_secs_f64() / f64::from(count)
        };
        let count = (BURST.as_secs_f64() / seconds(1).max(1e-9)).clamp(1.0, 1e6) as u32;
        println!("{:e}", seconds(count));
    }
}

fn calls(workload: &str, size: &str) -> Vec<(&'static str, Call)> {
    let extents = extents(workload, size);
    let is_left_exchanged = matches!(workload, "matmul_tn" | "matmul_tt");
    let is_right_exchanged = matches!(workload, "matmul_nt" | "matmul_tt" | "linear_gelu");
    let product = Product { extents, is_left_exchanged, is_right_exchanged };
    let is_layer = workload == "linear_gelu";
    let candle = candle(product, is_layer).expect("the tensors fit");
    let gemm = (!is_layer).then(|| ("gemm", gemm(product)));
    gemm.into_iter().chain([("candle", candle)]).collect()
}

/// Returns multiples of 2⁻¹⁴ from −2 to 2, which are the same in any language.
fn input(len: usize, salt: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + salt * 104_729) % 65_536) as f32 / 16_384.0 - 2.0).collect()
}

fn sum(values: &[f32]) -> f64 {
    values.iter().copied().map(f64::from).sum()
}

fn gemm(of: Product) -> Call {
    let [b, m, k, n] = of.extents;
    let (x, w, mut out) = (input(b * m * k, 1), input(b * k * n, 2), vec![0.0_f32; b * m * n]);
    // Strides of a column and of a row.
    let strides = |cols: usize, rows: usize, is_exchanged| match is_exchanged {
        false => (1, cols as isize),
        true => (rows as isize, 1),
    };
    let left = strides(k, m, of.is_left_exchanged);
    let right = strides(n, k, of.is_right_exchanged);
    Box::new(move |sums| {
        for i in 0..b {
            // SAFETY: the slices have `m * k`, `k * n` and `m * n` elements of each batch.
            unsafe {
                gemm::gemm(
                    m, n, k,
                    out.as_mut_ptr().add(i * m * n), 1, n as isize, false,
                    x.as_ptr().add(i * m * k), left.0, left.1, w.as_ptr().add(i * k * n), right.0, right.1,
                    0.0, 1.0, false, false, false, super::parallelism(),
                );
            }
        }
        if sums { sum(&out) } else { 0.0 }
    })
}

/// Returns a product of tensors of candle, and the gelu of its sum with a bias if it is of a layer.
fn candle(of: Product, is_layer: bool) -> Result<Call> {
    let [b, m, k, n] = of.extents;
    let matrix = |salt, [rows, cols]: [usize; 2], is_exchanged: bool| match is_exchanged {
        false => Tensor::from_vec(input(b * rows * cols, salt), (b, rows, cols), &Device::Cpu),
        true => Tensor::from_vec(input(b * rows * cols, salt), (b, cols, rows), &Device::Cpu)?.t(),
    };
    let (x, w) = (matrix(1, [m, k], of.is_left_exchanged)?, matrix(2, [k, n], of.is_right_exchanged)?);
    let bias = Tensor::from_vec(input(n, 3), n, &Device::Cpu)?;
    let compute = move || -> Result<Tensor> {
        let product = x.matmul(&w)?;
        if is_layer { product.broadcast_add(&bias)?.gelu_erf() } else { Ok(product) }
    };
    Ok(Box::new(move |sums| {
        let made = compute().expect("the shapes fit");
        if sums { sum(&made.flatten_all().and_then(|all| all.to_vec1()).expect("numbers")) } else { 0.0 }
    }))
}
