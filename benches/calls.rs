//! What a call costs beside the work: small tensors, into a tensor that is there.

use std::time::{Duration, Instant};

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
    calls(&mut criterion, "call, CPU", &Device::cpu())?;
    match Device::wgpu() {
        Ok(device) => calls(&mut criterion, "call, wgpu", &device)?,
        Err(error) => eprintln!("SKIPPED on wgpu: {error}"),
    }
    criterion.final_summary();
    Ok(())
}

/// The time until a call returns; on a GPU that is before its work is done, which is waited for after all of them.
fn calls(criterion: &mut Criterion, name: &str, device: &Device) -> Result<()> {
    let mut group = criterion.benchmark_group(name);
    let mut failed = Ok(());
    for elements in ELEMENTS {
        let x = Tensor::full(device, 0.5, [elements])?;
        let mut out = x.clone();
        group.bench_function(BenchmarkId::from_parameter(elements), |bencher| {
            bencher.iter_custom(|calls| {
                let start = Instant::now();
                let called = (0..calls).try_for_each(|_| gate::into(&mut out, &x, &x, &x));
                let time = start.elapsed();
                failed = failed.clone().and(called).and(device.synchronize());
                time
            });
        });
    }
    group.finish();
    failed
}
