//! Chains of operations, fused and unfused, compared with the copy bandwidth of the same device:
//! `cargo bench`.
//!
//! All candidates are measured in alternation, so that other load on the machine affects all alike. The table
//! at the end has medians over the rounds, after criterion's own results. A second table has layers: products
//! with bias and activation.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use fusion::prelude::*;
use rayon::prelude::*;

fuse! {
    fn three_of(x, y) { max(x + y, 0.0) * y }
    fn six_of(x, y) { min(abs(three_of(x, y)) - x, 4.0) }

    pub(crate) fn copy(x: f32[N], _y: f32[N]) -> f32[N] { x }
    pub(crate) fn three(x: f32[N], y: f32[N]) -> f32[N] { three_of(x, y) }
    pub(crate) fn six(x: f32[N], y: f32[N]) -> f32[N] { six_of(x, y) }
    pub(crate) fn twelve(x: f32[N], y: f32[N]) -> f32[N] { six_of(six_of(x, y), y) }
    #[fuse(off)]
    pub(crate) fn three_unfused(x: f32[N], y: f32[N]) -> f32[N] { three_of(x, y) }
    #[fuse(off)]
    pub(crate) fn six_unfused(x: f32[N], y: f32[N]) -> f32[N] { six_of(x, y) }
    #[fuse(off)]
    pub(crate) fn twelve_unfused(x: f32[N], y: f32[N]) -> f32[N] { six_of(six_of(x, y), y) }
}

fuse! {
    pub(crate) fn product(x: f32[M, K], w: f32[N, K], _b: f32[N]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn relu_layer(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { relu(matmul(x, w, K) + b) }
    pub(crate) fn gelu_layer(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { gelu(matmul(x, w, K) + b) }
    #[fuse(off)]
    pub(crate) fn relu_unfused(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { relu(matmul(x, w, K) + b) }
    #[fuse(off)]
    pub(crate) fn gelu_unfused(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { gelu(matmul(x, w, K) + b) }
}

/// The variant of a function that writes into an existing tensor.
type Into = fn(&mut Tensor<f32>, &Tensor<f32>, &Tensor<f32>) -> Result<()>;

/// A chain in both forms.
struct Chain {
    ops: usize,
    fused: Into,
    unfused: Into,
    /// Number of tensors that all unfused kernels read and write. The fused kernel reads two and writes one.
    moved_unfused: usize,
    report: fn() -> Report,
}

const MOVED_FUSED: usize = 3;
const MOVED_COPY: usize = 2;

const CHAINS: [Chain; 3] = [
    Chain {
        ops: 3,
        fused: three::into,
        unfused: three_unfused::into,
        moved_unfused: 8,
        report: three::report,
    },
    Chain { ops: 6, fused: six::into, unfused: six_unfused::into, moved_unfused: 15, report: six::report },
    Chain {
        ops: 12,
        fused: twelve::into,
        unfused: twelve_unfused::into,
        moved_unfused: 30,
        report: twelve::report,
    },
];

/// A device with tensors far larger than its caches.
struct Bench {
    device: Device,
    kind: &'static str,
    elements: usize,
    x: Tensor<f32>,
    y: Tensor<f32>,
    out: Tensor<f32>,
}

impl Bench {
    fn new(device: Device, kind: &'static str, elements: usize) -> Result<Bench> {
        let x: Vec<f32> = (0..elements).map(|i| (i % 1021) as f32 / 256.0 - 2.0).collect();
        let y: Vec<f32> = (0..elements).map(|i| (i % 509) as f32 / 128.0 - 2.0).collect();
        let (x, y) = (Tensor::from_vec(&device, x, [elements])?, Tensor::from_vec(&device, y, [elements])?);
        let out = Tensor::zeros(&device, [elements])?;
        Ok(Bench { device, kind, elements, x, y, out })
    }

    fn bytes(&self, tensors: usize) -> u64 {
        (tensors * self.elements * size_of::<f32>()) as u64
    }

    /// Measures the time until the work of a call is done.
    fn time(&mut self, call: Into) -> Result<Duration> {
        self.device.synchronize()?;
        let start = Instant::now();
        call(&mut self.out, &self.x, &self.y)?;
        self.device.synchronize()?;
        Ok(start.elapsed())
    }
}

/// A plain copy by all threads, without Fusion.
struct Memcpy {
    from: Vec<f32>,
    to: Vec<f32>,
}

impl Memcpy {
    fn new(elements: usize) -> Memcpy {
        Memcpy { from: vec![1.5; elements], to: vec![0.5; elements] }
    }

    fn time(&mut self) -> Duration {
        let part = self.from.len().div_ceil(rayon::current_num_threads());
        let start = Instant::now();
        let parts = self.to.par_chunks_mut(part).zip(self.from.par_chunks(part));
        parts.for_each(|(to, from)| to.copy_from_slice(from));
        black_box(&mut self.to);
        start.elapsed()
    }
}

fn main() -> Result<()> {
    // `cargo test --benches` only tests that everything runs.
    let measuring = std::env::args().any(|arg| arg == "--bench");
    let size = |elements: usize| if measuring { elements } else { 1 << 12 };
    let mut benches = vec![Bench::new(Device::cpu(), "CPU", size(1 << 24))?];
    match Device::wgpu() {
        Ok(device) => benches.push(Bench::new(device, "wgpu", size(1 << 22))?),
        Err(error) => eprintln!("SKIPPED on wgpu: {error}"),
    }
    agree(&mut benches)?;
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1500))
        .without_plots()
        .configure_from_args();
    benches.iter_mut().try_for_each(|bench| measure(&mut criterion, bench))?;
    criterion.final_summary();
    if measuring {
        benches.iter_mut().try_for_each(|bench| table(bench, 25))?;
    }
    let rounds = if measuring { 15 } else { 1 };
    layers(rounds, measuring)?;
    convolutions(rounds, measuring)?;
    attentions(rounds, measuring)?;
    logarithms(rounds, measuring)
}

/// Checks that fused, unfused and plain Rust agree, and that the chains have the stated number of operations.
fn agree(benches: &mut [Bench]) -> Result<()> {
    for bench in benches {
        let (x, y) = (bench.x.to_vec()?, bench.y.to_vec()?);
        let three = |x: f32, y: f32| (x + y).max(0.0) * y;
        let six = |x: f32, y: f32| (three(x, y).abs() - x).min(4.0);
        let references: [&dyn Fn(f32, f32) -> f32; 3] = [&three, &six, &|x, y| six(six(x, y), y)];
        for (chain, reference) in CHAINS.iter().zip(references) {
            let report = (chain.report)().bind(&[("N", bench.elements)])?;
            assert_eq!((report.ops(), report.kernels()), (chain.ops, 1));
            let moved = (report.unfused_bytes(), report.bytes());
            assert_eq!(moved, (Some(bench.bytes(chain.moved_unfused)), Some(bench.bytes(MOVED_FUSED))));
            for call in [chain.fused, chain.unfused] {
                call(&mut bench.out, &bench.x, &bench.y)?;
                for ((got, x), y) in bench.out.to_vec()?.into_iter().zip(&x).zip(&y) {
                    let expected = reference(*x, *y);
                    assert!(
                        (got - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                        "{got}, not {expected}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Runs criterion's measurements, one function after the other.
fn measure(criterion: &mut Criterion, bench: &mut Bench) -> Result<()> {
    let mut failed = Ok(());
    let mut group = criterion.benchmark_group(bench.kind);
    let forms = CHAINS.iter().flat_map(|chain| {
        let fused = ("fused", chain.ops, MOVED_FUSED, chain.fused);
        [fused, ("unfused", chain.ops, chain.moved_unfused, chain.unfused)]
    });
    for (form, ops, moved, call) in [("copy", 0, MOVED_COPY, copy::into as Into)].into_iter().chain(forms) {
        group.throughput(Throughput::Bytes(bench.bytes(moved)));
        group.bench_function(BenchmarkId::new(form, ops), |bencher| {
            bencher.iter_custom(|calls| {
                let times = (0..calls).map(|_| bench.time(call));
                times.sum::<Result<Duration>>().unwrap_or_else(|error| {
                    failed = Err(error);
                    Duration::from_nanos(1)
                })
            });
        });
    }
    group.finish();
    failed
}

/// Times of one round.
struct Round {
    copy: Duration,
    /// Time of a plain copy, on the CPU only.
    memcpy: Option<Duration>,
    /// Times of the fused and the unfused form, by chain.
    chains: Vec<(Duration, Duration)>,
}

/// Measures all candidates in alternation and prints the ratios.
fn table(bench: &mut Bench, rounds: usize) -> Result<()> {
    let mut memcpy = (bench.kind == "CPU").then(|| Memcpy::new(bench.elements));
    let mut round = || -> Result<Round> {
        let copy = bench.time(copy::into)?;
        let memcpy = memcpy.as_mut().map(Memcpy::time);
        let both = |chain: &Chain| Ok((bench.time(chain.fused)?, bench.time(chain.unfused)?));
        Ok(Round { copy, memcpy, chains: CHAINS.iter().map(both).collect::<Result<_>>()? })
    };
    // The first round warms caches and the pool.
    round()?;
    let rounds: Vec<Round> = (0..rounds).map(|_| round()).collect::<Result<_>>()?;
    let rate = |moved: usize, time: Duration| bench.bytes(moved) as f64 / time.as_nanos() as f64;

    println!("\n{}, {} elements, medians of {} rounds", bench.device.name(), bench.elements, rounds.len());
    println!(
        "  copy by a kernel: {:6.2} GB/s",
        median(rounds.iter().map(|round| rate(MOVED_COPY, round.copy)))
    );
    if let Some(memcpy) = median_of(rounds.iter().map(|round| Some(rate(MOVED_COPY, round.memcpy?)))) {
        println!("  copy by memcpy:   {memcpy:6.2} GB/s");
    }
    println!("  ops  fused GB/s  of kernel copy  of memcpy  unfused/fused  predicted  of that");
    for (i, chain) in CHAINS.iter().enumerate() {
        let fused = |round: &Round| rate(MOVED_FUSED, round.chains[i].0);
        let gain = |round: &Round| round.chains[i].1.as_secs_f64() / round.chains[i].0.as_secs_f64();
        let of_copy = median(rounds.iter().map(|round| fused(round) / rate(MOVED_COPY, round.copy)));
        let of_memcpy = rounds.iter().map(|round| Some(fused(round) / rate(MOVED_COPY, round.memcpy?)));
        let of_memcpy =
            median_of(of_memcpy).map_or_else(|| "-".into(), |share| format!("{:.0}%", 100.0 * share));
        let (speed, gained) = (median(rounds.iter().map(fused)), median(rounds.iter().map(gain)));
        let predicted = chain.moved_unfused as f64 / MOVED_FUSED as f64;
        println!(
            "  {:3}  {speed:10.2}  {:13.0}%  {of_memcpy:>9}  {gained:13.2}  {predicted:9.2}  {:6.0}%",
            chain.ops,
            100.0 * of_copy,
            100.0 * gained / predicted,
        );
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the median if all values exist.
fn median_of(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    Some(median(values.collect::<Option<Vec<f64>>>()?.into_iter()))
}

/// A layer in a form that writes into an existing tensor.
type Layer = fn(&mut Tensor<f32>, &Tensor<f32>, &Tensor<f32>, &Tensor<f32>) -> Result<()>;

/// The plain product, and both layers fused and unfused.
const LAYERS: [Layer; 5] =
    [product::into, relu_layer::into, relu_unfused::into, gelu_layer::into, gelu_unfused::into];

/// Measures layers on the CPU, a product with bias and activation, and prints their ratios to the product
/// alone and to their unfused forms.
fn layers(rounds: usize, measuring: bool) -> Result<()> {
    let device = Device::cpu();
    println!("\n{}, layers, medians of {rounds} rounds", device.name());
    println!("     M     K     N  product GFLOP/s  relu of it  unfused/fused  gelu of it  unfused/fused");
    let sizes = [(16, 768, 3072), (256, 256, 256), (512, 768, 3072), (1024, 1024, 1024), (4096, 64, 64)];
    for (m, k, n) in sizes.map(|sizes| if measuring { sizes } else { (5, 9, 7) }) {
        let numbers = |count: usize| (0..count).map(|i| (i * 7919 % 1024) as f32 / 512.0 - 1.0).collect();
        let x = Tensor::from_vec(&device, numbers(m * k), [m, k])?;
        let w = Tensor::from_vec(&device, numbers(n * k), [n, k])?;
        let (b, mut out) = (Tensor::from_vec(&device, numbers(n), [n])?, Tensor::zeros(&device, [m, n])?);
        let calls = (2e7 / (m * k * n) as f64).clamp(1.0, 500.0) as u32;
        let mut round = || -> Result<Vec<f64>> {
            let mut time = |layer: &Layer| {
                let start = Instant::now();
                (0..calls).try_for_each(|_| layer(&mut out, &x, &w, &b))?;
                Ok(start.elapsed().as_secs_f64() / f64::from(calls))
            };
            LAYERS.iter().map(&mut time).collect()
        };
        // The first round warms caches and the pool.
        round()?;
        let rounds = (0..rounds).map(|_| round()).collect::<Result<Vec<_>>>()?;
        let of = |a: usize, b: usize| median(rounds.iter().map(|round| round[a] / round[b]));
        let speed = median(rounds.iter().map(|round| 2e-9 * (m * k * n) as f64 / round[0]));
        println!(
            "  {m:4}  {k:4}  {n:4}  {speed:15.1}  {:9.0}%  {:13.2}  {:9.0}%  {:13.2}",
            100.0 * of(0, 1),
            of(2, 1),
            100.0 * of(0, 3),
            of(4, 3),
        );
    }
    Ok(())
}

fuse! {
    pub(crate) fn convolution(
        x: f32[N, C, H, W], w: f32[O, C, KH = 3, KW = 3], _s: f32[O], _b: f32[O]
    ) -> f32[N, O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1)
    }
    pub(crate) fn conv_bn_relu(
        x: f32[N, C, H, W], w: f32[O, C, KH = 3, KW = 3], s: f32[O], b: f32[O]
    ) -> f32[N, O, P, Q] {
        relu(conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1) * s + b)
    }
    #[fuse(off)]
    pub(crate) fn conv_bn_relu_unfused(
        x: f32[N, C, H, W], w: f32[O, C, KH = 3, KW = 3], s: f32[O], b: f32[O]
    ) -> f32[N, O, P, Q] {
        relu(conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1) * s + b)
    }
}

/// A convolution of values and weights, with a scale and a bias.
type Convolution = fn(&mut Tensor<f32>, &Tensor<f32>, &Tensor<f32>, &Tensor<f32>, &Tensor<f32>) -> Result<()>;

/// The plain convolution, and the one with batch norm and `relu`, fused and unfused.
const CONVOLUTIONS: [Convolution; 3] = [convolution::into, conv_bn_relu::into, conv_bn_relu_unfused::into];

/// Measures 3 × 3 convolutions of an image on the CPU, and prints their ratios.
///
/// The layer has running statistics of batch norm as a scale and a bias. The ratios are to the plain convolution and to
/// the unfused form.
fn convolutions(rounds: usize, measuring: bool) -> Result<()> {
    let device = Device::cpu();
    println!("\n{}, convolutions, medians of {rounds} rounds", device.name());
    println!("  channels  side  convolution GFLOP/s  bn + relu of it  unfused/fused");
    for (channels, side) in [(64, 56), (128, 28), (256, 14), (512, 7)] {
        let (channels, side) = if measuring { (channels, side) } else { (channels / 16, side / 7 + 2) };
        let numbers = |count: usize| (0..count).map(|i| (i * 7919 % 1024) as f32 / 512.0 - 1.0).collect();
        let shape = [1, channels, side, side];
        let x = Tensor::from_vec(&device, numbers(channels * side * side), shape)?;
        let w = Tensor::from_vec(&device, numbers(channels * channels * 9), [channels, channels, 3, 3])?;
        let [s, b] = [(); 2].map(|()| Tensor::from_vec(&device, numbers(channels), [channels]));
        let (s, b, mut out) = (s?, b?, Tensor::zeros(&device, shape)?);
        let mut round = || -> Result<Vec<f64>> {
            let mut time = |layer: &Convolution| {
                let start = Instant::now();
                (0..4).try_for_each(|_| layer(&mut out, &x, &w, &s, &b))?;
                Ok(start.elapsed().as_secs_f64() / 4.0)
            };
            CONVOLUTIONS.iter().map(&mut time).collect()
        };
        round()?;
        let rounds = (0..rounds).map(|_| round()).collect::<Result<Vec<_>>>()?;
        let of = |a: usize, b: usize| median(rounds.iter().map(|round| round[a] / round[b]));
        let flop = 18.0 * (channels * channels * side * side) as f64;
        let speed = median(rounds.iter().map(|round| 1e-9 * flop / round[0]));
        println!("  {channels:8}  {side:4}  {speed:19.1}  {:14.0}%  {:13.2}", 100.0 * of(0, 1), of(2, 1));
    }
    Ok(())
}

fuse! {
    pub(crate) fn attention(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]) -> f32[H, T, D] {
        matmul(softmax(matmul(q, k, C) * rsqrt(C), S), v, S)
    }
    #[fuse(off)]
    pub(crate) fn attention_unfused(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]) -> f32[H, T, D] {
        matmul(softmax(matmul(q, k, C) * rsqrt(C), S), v, S)
    }
    pub(crate) fn causal(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]) -> f32[H, T, D] {
        let s = if index(S) <= index(T) { matmul(q, k, C) * rsqrt(C) } else { -INF };
        matmul(softmax(s, S), v, S)
    }
    #[fuse(off)]
    pub(crate) fn causal_unfused(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]) -> f32[H, T, D] {
        let s = if index(S) <= index(T) { matmul(q, k, C) * rsqrt(C) } else { -INF };
        matmul(softmax(s, S), v, S)
    }
}

/// A function of queries, keys and values.
type Attention = fn(&mut Tensor<f32>, &Tensor<f32>, &Tensor<f32>, &Tensor<f32>) -> Result<()>;

/// Attention and causal attention, fused and unfused.
const ATTENTIONS: [Attention; 4] =
    [attention::into, attention_unfused::into, causal::into, causal_unfused::into];

/// Measures attention of four heads on the CPU, and prints the ratios of times to those of the unfused forms.
fn attentions(rounds: usize, measuring: bool) -> Result<()> {
    let device = Device::cpu();
    println!("\n{}, attention of 4 heads, medians of {rounds} rounds", device.name());
    println!("  queries  channels  attention GFLOP/s  unfused/fused  causal/full  unfused/fused");
    for (len, channels) in [(512, 64), (1024, 64), (1024, 128), (2048, 64)] {
        let len = if measuring { len } else { len / 16 };
        let shape = [4, len, channels];
        let numbers =
            |by: usize| (0..4 * len * channels).map(|i| (i * by % 1024) as f32 / 512.0 - 1.0).collect();
        let [q, k, v] = [7919, 6869, 5413].map(|by| Tensor::from_vec(&device, numbers(by), shape));
        let (q, k, v, mut out) = (q?, k?, v?, Tensor::zeros(&device, shape)?);
        let mut round = || -> Result<Vec<f64>> {
            let mut time = |layer: &Attention| {
                let start = Instant::now();
                layer(&mut out, &q, &k, &v)?;
                Ok(start.elapsed().as_secs_f64())
            };
            ATTENTIONS.iter().map(&mut time).collect()
        };
        round()?;
        let rounds = (0..rounds).map(|_| round()).collect::<Result<Vec<_>>>()?;
        let of = |a: usize, b: usize| median(rounds.iter().map(|round| round[a] / round[b]));
        let flop = 16.0 * (len * len * channels) as f64;
        let speed = median(rounds.iter().map(|round| 1e-9 * flop / round[0]));
        println!(
            "  {len:7}  {channels:8}  {speed:17.1}  {:13.2}  {:11.2}  {:13.2}",
            of(1, 0),
            of(2, 0),
            of(3, 2)
        );
    }
    Ok(())
}

fuse! {
    pub(crate) fn of_logits(x: f32[N, D], w: f32[V, D]) -> f32[N] { logsumexp(matmul(x, w, D), V) }
    #[fuse(off)]
    pub(crate) fn of_logits_unfused(x: f32[N, D], w: f32[V, D]) -> f32[N] { logsumexp(matmul(x, w, D), V) }
    pub(crate) fn logits(x: f32[N, D], w: f32[V, D]) -> f32[N, V] { matmul(x, w, D) }
}

/// Measures reductions of logits on the CPU, and prints the ratios of their time to those of the unfused form and of the
/// product alone.
fn logarithms(rounds: usize, measuring: bool) -> Result<()> {
    let device = Device::cpu();
    println!("\n{}, logsumexp of logits, medians of {rounds} rounds", device.name());
    println!("  rows  depth  classes  GFLOP/s  unfused/fused  product/fused");
    for (count, depth, classes) in [(64, 256, 8192), (256, 256, 8192), (512, 512, 16_384)] {
        let classes = if measuring { classes } else { classes / 64 };
        let numbers =
            |rows: usize| (0..rows * depth).map(|i| (i * 7919 % 1024) as f32 / 512.0 - 1.0).collect();
        let x = Tensor::from_vec(&device, numbers(count), [count, depth])?;
        let w = Tensor::from_vec(&device, numbers(classes), [classes, depth])?;
        let (mut out, mut all) =
            (Tensor::zeros(&device, [count])?, Tensor::zeros(&device, [count, classes])?);
        let mut round = || -> Result<[f64; 3]> {
            let mut times = [0.0; 3];
            for (kind, time) in times.iter_mut().enumerate() {
                let start = Instant::now();
                match kind {
                    0 => of_logits::into(&mut out, &x, &w)?,
                    1 => of_logits_unfused::into(&mut out, &x, &w)?,
                    _ => logits::into(&mut all, &x, &w)?,
                }
                *time = start.elapsed().as_secs_f64();
            }
            Ok(times)
        };
        round()?;
        let rounds = (0..rounds).map(|_| round()).collect::<Result<Vec<_>>>()?;
        let of = |a: usize, b: usize| median(rounds.iter().map(|round| round[a] / round[b]));
        let flop = 2.0 * (count * depth * classes) as f64;
        let speed = median(rounds.iter().map(|round| 1e-9 * flop / round[0]));
        println!("  {count:4}  {depth:5}  {classes:7}  {speed:7.1}  {:13.2}  {:13.2}", of(1, 0), of(2, 0));
    }
    Ok(())
}
