//! Runs `relu(a + b) * c` over 16M elements, fused and unfused, on the best device.
//!
//! The command is `cargo run --release --example quickstart`. `-- 1000000` sets the number of elements.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use fusion::prelude::*;

fuse! {
    /// One kernel: three reads, one write.
    pub fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] {
        relu(a + b) * c
    }

    /// The same function, with a kernel per operation.
    #[fuse(off)]
    pub fn gate_unfused(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] {
        relu(a + b) * c
    }
}

fn main() -> Result<ExitCode> {
    let n = std::env::args().nth(1).map_or(16 << 20, |n| n.parse().expect("a number of elements"));
    let device = Device::best();
    let [a, b, c] = [3, 5, 7].map(|step| wave(n, step));
    let [x, y, z] = [
        Tensor::from_slice(&device, &a, [n])?,
        Tensor::from_slice(&device, &b, [n])?,
        Tensor::from_slice(&device, &c, [n])?,
    ];
    println!("device: {}", device.name());
    println!("{}", gate::report().bind(&[("N", n)])?);

    let mut out = Tensor::zeros(&device, [n])?;
    let fused = median(&device, || gate::into(&mut out, &x, &y, &z))?;
    let mut other = Tensor::zeros(&device, [n])?;
    let unfused = median(&device, || gate_unfused::into(&mut other, &x, &y, &z))?;
    let ratio = unfused.as_secs_f64() / fused.as_secs_f64();
    println!("fused {fused:.2?}, unfused {unfused:.2?}: {ratio:.1} times as fast");

    let wrong = |out: &[f32]| (0..n).find(|&i| out[i] != expected(a[i], b[i], c[i]));
    match wrong(&out.to_vec()?).or(wrong(&other.to_vec()?)) {
        None => {
            println!("{n} results are right");
            Ok(ExitCode::SUCCESS)
        }
        Some(i) => {
            eprintln!("result {i} is wrong: it should be {}", expected(a[i], b[i], c[i]));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Returns the median time of a call, after one call to warm up.
fn median(device: &Device, mut call: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..8 {
        let start = Instant::now();
        call()?;
        device.synchronize()?;
        times.push(start.elapsed());
    }
    times.remove(0);
    times.sort();
    Ok(times[times.len() / 2])
}

/// Returns quarters of both signs, whose sums and products are exact in `f32`.
fn wave(n: usize, step: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * step) % 401) as f32 / 4.0 - 50.0).collect()
}

fn expected(a: f32, b: f32, c: f32) -> f32 {
    ((f64::from(a) + f64::from(b)).max(0.0) * f64::from(c)) as f32
}
