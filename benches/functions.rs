//! Functions approximated by polynomials, on elements that stay in the cache, in `f32` and in 16 bits.
//!
//! `benches/functions.py` runs this benchmark in alternation with the same functions by `torch.compile`.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use fusion::prelude::*;

fuse! {
    pub(crate) fn exp_of<T>(x: T[N]) -> T[N] { exp(x) }
    pub(crate) fn tanh_of<T>(x: T[N]) -> T[N] { tanh(x) }
    pub(crate) fn gelu_of<T>(x: T[N]) -> T[N] { gelu(x) }
    pub(crate) fn erf_of<T>(x: T[N]) -> T[N] { erf(x) }
    pub(crate) fn copied<T>(x: T[N]) -> T[N] { x }
}

/// Number of elements: a quarter of a megabyte in `f32`.
const ELEMENTS: usize = 1 << 16;

/// A function that writes into an existing tensor.
type Into<T> = fn(&mut Tensor<T>, &Tensor<T>) -> Result<()>;

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .without_plots()
        .configure_from_args();
    of(&mut criterion, |x| x)?;
    of(&mut criterion, f16::from_f32)?;
    of(&mut criterion, bf16::from_f32)?;
    criterion.final_summary();
    Ok(())
}

/// Measures every function for this element type.
fn of<T: Float>(criterion: &mut Criterion, convert: impl Fn(f32) -> T) -> Result<()> {
    let functions: [(&str, Into<T>); 5] = [
        ("exp", exp_of::into),
        ("tanh", tanh_of::into),
        ("gelu", gelu_of::into),
        ("erf", erf_of::into),
        ("copy", copied::into),
    ];
    // The elements are from −4 to 4.
    let x = (0..ELEMENTS).map(|i| convert((i * 7919 % ELEMENTS) as f32 / ELEMENTS as f32 * 8.0 - 4.0));
    let x = Tensor::from_vec(&Device::cpu(), x.collect(), [ELEMENTS])?;
    let mut out = x.reshape([ELEMENTS])?;
    let mut group = criterion.benchmark_group(T::DTYPE.name());
    group.throughput(Throughput::Elements(ELEMENTS as u64));
    let mut failed = Ok(());
    for (name, function) in functions {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| {
                if let Err(error) = function(&mut out, &x) {
                    failed = Err(error);
                }
            });
        });
    }
    group.finish();
    failed
}
