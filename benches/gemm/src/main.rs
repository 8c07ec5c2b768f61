//! Contractions on the CPU beside the crate gemm, in one interleaved run.
//!
//! `RAYON_NUM_THREADS=1 cargo run --release --manifest-path benches/gemm/Cargo.toml` prints a table in
//! GFLOP/s, the best of several rounds. With a workload and a size, the program is a part of
//! `benches/compare/run.py`: the crates gemm and candle.

#[path = "../../compare/extents.rs"]
mod extents;
mod peers;

use std::time::Instant;

use fusion::prelude::*;

fuse! {
    pub fn nn(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { sum(x * w, K) }
    pub fn nt(x: f32[M, K], w: f32[N, K]) -> f32[M, N] { sum(x * w, K) }
    pub fn tn(x: f32[K, M], w: f32[K, N]) -> f32[M, N] { sum(x * w, K) }
    pub fn tt(x: f32[K, M], w: f32[N, K]) -> f32[M, N] { sum(x * w, K) }
    pub fn biased_gelu(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { gelu(sum(x * w, K) + b) }
    #[fuse(off)]
    pub fn unfused(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { gelu(sum(x * w, K) + b) }
}

/// Extents of rows, depth and columns.
const SIZES: [(usize, usize, usize); 11] = [
    (1, 768, 3072),
    (3072, 768, 1),
    (8, 768, 3072),
    (16, 768, 3072),
    (64, 64, 64),
    (256, 256, 256),
    (512, 512, 512),
    (512, 768, 3072),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 64, 64),
];

/// Names of the columns, in the order of `calls`.
const COLUMNS: [&str; 7] = ["NN", "NT", "TN", "TT", "NT + bias + gelu", "the same, `off`", "gemm, NN"];

/// Rounds of each size. The candidates of a round run one after another.
const ROUNDS: usize = 15;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [workload, size] = args.as_slice() {
        peers::run(workload, size);
        return Ok(());
    }
    let device = Device::cpu();
    let threads = std::env::var("RAYON_NUM_THREADS").unwrap_or_else(|_| "all".into());
    println!("{device}, {threads} threads, GFLOP/s\n");
    println!("| M | K | N | {} |", COLUMNS.join(" | "));
    println!("|---|---|---|{}", "---:|".repeat(COLUMNS.len()));
    for (m, k, n) in SIZES {
        let speeds = speeds(&device, (m, k, n))?.map(|speed| format!("{speed:.0}"));
        println!("| {m} | {k} | {n} | {} |", speeds.join(" | "));
    }
    Ok(())
}

/// Measures all candidates for one size.
fn speeds(device: &Device, (m, k, n): (usize, usize, usize)) -> Result<[f64; COLUMNS.len()]> {
    let numbers = |seed: u32, count: usize| -> Vec<f32> {
        (0..count as u32).map(|i| (i.wrapping_mul(seed) % 1024) as f32 / 512.0 - 1.0).collect()
    };
    let (x, w, b) = (numbers(7919, m * k), numbers(104_729, k * n), numbers(31, n));
    let tensor = |of: &[f32], shape: [usize; 2]| Tensor::from_slice(device, of, shape);
    let (xn, xt, wn, wt) = (tensor(&x, [m, k])?, tensor(&x, [k, m])?, tensor(&w, [k, n])?, tensor(&w, [n, k])?);
    let (bias, mut out) = (Tensor::from_slice(device, &b, [n])?, Tensor::<f32>::zeros(device, [m, n])?);
    let mut plain = vec![0.0_f32; m * n];
    let work = 2.0 * (m * k * n) as f64;
    let calls = (2e7 / work).clamp(1.0, 500.0) as usize;
    let mut best = [f64::INFINITY; COLUMNS.len()];
    for _ in 0..ROUNDS {
        let mut time = |column: usize, call: &mut dyn FnMut() -> Result<()>| -> Result<()> {
            let start = Instant::now();
            (0..calls).try_for_each(|_| call())?;
            best[column] = best[column].min(start.elapsed().as_secs_f64() / calls as f64);
            Ok(())
        };
        time(0, &mut || nn::into(&mut out, &xn, &wn))?;
        time(1, &mut || nt::into(&mut out, &xn, &wt))?;
        time(2, &mut || tn::into(&mut out, &xt, &wn))?;
        time(3, &mut || tt::into(&mut out, &xt, &wt))?;
        time(4, &mut || biased_gelu::into(&mut out, &xn, &wt, &bias))?;
        time(5, &mut || unfused::into(&mut out, &xn, &wt, &bias))?;
        time(6, &mut || {
            multiply(&mut plain, (&x, &w), (m, k, n));
            Ok(())
        })?;
    }
    Ok(best.map(|seconds| work / seconds / 1e9))
}

/// Multiplies row-major matrices by the crate gemm.
fn multiply(out: &mut [f32], (x, w): (&[f32], &[f32]), (m, k, n): (usize, usize, usize)) {
    let threads = parallelism();
    let [rows_k, rows_n] = [k, n].map(|len| len as isize);
    // SAFETY: the slices have `m * k`, `k * n` and `m * n` elements.
    unsafe {
        gemm::gemm(
            m, n, k,
            out.as_mut_ptr(), 1, rows_n, false,
            x.as_ptr(), 1, rows_k, w.as_ptr(), 1, rows_n,
            0.0, 1.0, false, false, false, threads,
        );
    }
}

/// Returns the threads of the crate gemm: one, or all of rayon's.
fn parallelism() -> gemm::Parallelism {
    match std::env::var("RAYON_NUM_THREADS").as_deref() {
        Ok("1") => gemm::Parallelism::None,
        _ => gemm::Parallelism::Rayon(0),
    }
}
