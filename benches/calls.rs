//! The overhead of a call: small tensors, with the result in an existing tensor.
//!
//! On GPUs, the benchmark also measures the CPU time of the calling thread, which is the cost of encoding. A
//! software adapter and a simulated GPU compute at the same time, on the same cores.

use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use criterion::{BenchmarkId, Criterion};
use fusion::prelude::*;

fuse! {
    pub(crate) fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }
}

const ELEMENTS: [usize; 5] = [1, 1 << 10, 1 << 14, 1 << 15, 1 << 17];

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .without_plots()
        .configure_from_args();
    let begun = Instant::now();
    let wall = || begun.elapsed();
    calls(&mut criterion, "call, CPU", &Device::cpu(), wall)?;
    for (name, device) in [("wgpu", Device::wgpu()), ("CUDA", Device::cuda(0))] {
        match device {
            Ok(device) => {
                calls(&mut criterion, &format!("call, {name}"), &device, wall)?;
                let encoding = format!("encoding, {name}");
                calls(&mut criterion, &encoding, &device, || ThreadTime::now().as_duration())?;
            }
            Err(error) => eprintln!("SKIPPED on {name}: {error}"),
        }
    }
    criterion.final_summary();
    Ok(())
}

/// Measures the time until a call returns, by this clock. On a GPU the work ends later, and the wait for it
/// is not measured.
fn calls(criterion: &mut Criterion, name: &str, device: &Device, clock: impl Fn() -> Duration) -> Result<()> {
    let mut group = criterion.benchmark_group(name);
    let mut failed = Ok(());
    for elements in ELEMENTS {
        let x = Tensor::full(device, 0.5, [elements])?;
        let mut out = x.clone();
        group.bench_function(BenchmarkId::from_parameter(elements), |bencher| {
            bencher.iter_custom(|calls| {
                let start = clock();
                let called = (0..calls).try_for_each(|_| gate::into(&mut out, &x, &x, &x));
                let time = clock() - start;
                failed = failed.clone().and(called).and(device.synchronize());
                time
            });
        });
    }
    group.finish();
    failed
}
