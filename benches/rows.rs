//! Times of reductions and norms of short rows, in nanoseconds per row.
//!
//! `cargo bench --bench rows` takes rows that stay in the CPU's caches, `-- memory` more rows than the caches have
//! room for, and `-- wgpu` rows on a GPU. To compare two versions of the library, run both programs alternately.

use std::time::{Duration, Instant};

use fusion::prelude::*;

fuse! {
    pub(crate) fn sums(x: f32[N, D]) -> f32[N] { sum(x, D) }
    pub(crate) fn means(x: f32[N, D]) -> f32[N] { mean(x, D) }
    pub(crate) fn variances(x: f32[N, D]) -> f32[N] { var(x, D) }
    pub(crate) fn norms(x: f32[N, D], g: f32[D], b: f32[D]) -> f32[N, D] { layer_norm(x, D) * g + b }
    pub(crate) fn softmaxes(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
}

/// Lengths of the rows.
const LENGTHS: [usize; 12] = [16, 17, 24, 32, 48, 64, 100, 128, 256, 512, 768, 2048];

/// Time for which a function is called over and over. The shortest of its calls counts.
const DURATION: Duration = Duration::from_millis(40);

fn main() -> Result<()> {
    let is_given = |name: &str| std::env::args().any(|argument| argument == name);
    let device = if is_given("wgpu") { Device::wgpu()? } else { Device::cpu() };
    let elements = 1_usize << if is_given("memory") { 25 } else { 15 };
    println!("| elements of a row | sum | mean | var | layer norm | softmax |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for length in LENGTHS {
        let rows = elements / length;
        let values = (0..rows * length).map(|i| ((i % 1009) as f32 * 0.37).sin());
        let x = Tensor::from_vec(&device, values.collect(), [rows, length])?;
        let g = Tensor::full(&device, 0.5_f32, [length])?;
        let (mut y, mut z) = (Tensor::zeros(&device, [rows, length])?, Tensor::zeros(&device, [rows])?);
        let times = [
            shortest(&device, || sums::into(&mut z, &x))?,
            shortest(&device, || means::into(&mut z, &x))?,
            shortest(&device, || variances::into(&mut z, &x))?,
            shortest(&device, || norms::into(&mut y, &x, &g, &g))?,
            shortest(&device, || softmaxes::into(&mut y, &x))?,
        ];
        let times = times.map(|time| format!("{:.1}", time.as_secs_f64() * 1e9 / rows as f64));
        println!("| {length} | {} |", times.join(" | "));
    }
    Ok(())
}

/// Returns the shortest time of a call.
fn shortest(device: &Device, mut call: impl FnMut() -> Result<()>) -> Result<Duration> {
    let (start, mut shortest) = (Instant::now(), Duration::MAX);
    while start.elapsed() < DURATION {
        let started = Instant::now();
        call()?;
        device.synchronize()?;
        shortest = shortest.min(started.elapsed());
    }
    Ok(shortest)
}
