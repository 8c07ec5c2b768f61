//! A step of AdamW on a model with GPT-2's proportions: 148 tensors with 25 million parameters.
//!
//! The variants are one launch, state in fewer bits, a copy in 16 bits, a launch per operation, and a
//! handwritten loop with `rayon`. Another variant has the same memory traffic without computation.
//! `benches/optimizers.py` runs this benchmark in alternation with steps of `torch.optim.AdamW`.

use std::time::Duration;

use criterion::{Criterion, Throughput};
use fusion::optim::{AdamW, Arena, Optimizer, Precision};
use fusion::prelude::*;
use rayon::prelude::*;

fuse! {
    #[fuse(off)]
    pub(crate) fn unfused(p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], g: f32[N], lr: f32, c1: f32, c2: f32) {
        let m1 = 0.9 * m + 0.1 * g;
        let v1 = 0.999 * v + 0.001 * g * g;
        m = m1;
        v = v1;
        p = p - lr * 0.01 * p - lr * (m1 / c1) / (sqrt(v1 / c2) + 1e-8);
    }
}

fuse! {
    /// Has the memory traffic of a step.
    pub(crate) fn same_traffic(p: &mut f32[N], m: &mut f32[N], v: &mut f32[N], g: f32[N]) {
        p += g;
        m += g;
        v += g;
    }
}

/// Returns the shapes of GPT-2 with a width of 272.
fn shapes() -> Vec<Shape> {
    let (width, layers) = (272, 12);
    let [matrix, vector] = [|n: usize, m: usize| Shape::from([n, m]), |n: usize, _| Shape::from([n])];
    let norm = || [vector(width, 0), vector(width, 0)];
    let linear = |n, m| [matrix(n, m), vector(m, 0)];
    let layer = || {
        let attention = [norm(), linear(width, 3 * width), linear(width, width)];
        attention.into_iter().chain([norm(), linear(width, 4 * width), linear(4 * width, width)]).flatten()
    };
    let embeddings = [matrix(50_257, width), matrix(1024, width)];
    embeddings.into_iter().chain((0..layers).flat_map(|_| layer())).chain(norm()).collect()
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots()
        .configure_from_args();
    let device = Device::cpu();
    let tensors: Vec<Tensor<f32>> =
        shapes().into_iter().map(|shape| Tensor::full(&device, 0.1, shape)).collect::<Result<_>>()?;
    let named = tensors.iter().enumerate().map(|(i, tensor)| (format!("p{i}"), tensor));
    let mut params = Arena::new(&device, named)?;
    let mut grads = params.zeros_like()?;
    for (i, tensor) in tensors.iter().enumerate() {
        grads.set(&format!("p{i}"), tensor)?;
    }
    drop(tensors);
    let mut group = criterion.benchmark_group("adamw");
    group.throughput(Throughput::Elements(params.elements() as u64));
    let mut failed = Ok(());
    let mut note = |result: Result<()>| {
        if result.is_err() {
            failed = result;
        }
    };

    let of = |state| AdamW { state, ..AdamW::default() };
    let cases = [
        ("one launch", of(Precision::F32), None),
        ("clipped", of(Precision::F32), Some(1.0)),
        ("state of bf16", of(Precision::Bf16), None),
        ("state of 8 bits", of(Precision::Bits8), None),
        ("8 bits, clipped", of(Precision::Bits8), Some(1.0)),
    ];
    for (name, rule, max_norm) in cases {
        let mut optimizer = Optimizer::new(rule, &params)?;
        if let Some(max_norm) = max_norm {
            optimizer = optimizer.with_max_norm(max_norm);
        }
        group.bench_function(name, |bencher| bencher.iter(|| note(optimizer.step(&mut params, &grads))));
    }

    let mut optimizer = Optimizer::new(of(Precision::F32), &params)?.with_copy::<bf16>(&params)?;
    group.bench_function("with a copy", |bencher| {
        bencher.iter(|| note(optimizer.step(&mut params, &grads)));
    });
    drop(optimizer);

    let len = params.bytes() / size_of::<f32>();
    let flat = |value| Tensor::full(&device, value, [len]);
    let (mut p, mut m, mut v, g) = (flat(0.1)?, flat(0.0)?, flat(0.0)?, flat(0.1)?);
    group.bench_function("unfused", |bencher| {
        bencher.iter(|| note(unfused(&mut p, &mut m, &mut v, &g, 1e-3, 0.1, 0.001)));
    });
    group.bench_function("same traffic", |bencher| {
        bencher.iter(|| note(same_traffic(&mut p, &mut m, &mut v, &g)));
    });
    drop((p, m, v, g));

    let (mut p, mut m, mut v, g) = (vec![0.1f32; len], vec![0f32; len], vec![0f32; len], vec![0.1f32; len]);
    group.bench_function("rayon", |bencher| bencher.iter(|| by_hand(&mut p, &mut m, &mut v, &g)));
    group.finish();
    criterion.final_summary();
    failed
}

/// A step as written without Fusion: a pass over chunks, which the compiler vectorises.
fn by_hand(p: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) {
    const CHUNK: usize = 1 << 16;
    let (lr, c1, c2) = (1e-3f32, 0.1f32, 0.001f32);
    let chunks = p.par_chunks_mut(CHUNK).zip(m.par_chunks_mut(CHUNK)).zip(v.par_chunks_mut(CHUNK));
    chunks.zip(g.par_chunks(CHUNK)).for_each(|(((p, m), v), g)| {
        for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g) {
            *m += 0.1 * (g - *m);
            *v += 0.001 * (g * g - *v);
            *p -= lr * 0.01 * *p + lr / c1 * *m / ((*v / c2).sqrt() + 1e-8);
        }
    });
}
