//! Kernels on an NVIDIA GPU beside the copy bandwidth of the same run: `cargo bench --features cuda --bench gpu`, or
//! `tests/gpu.sh` for a machine without Rust. Names, or parts of them, limit what is measured.
//!
//! Times are by events of the stream. Each kernel is measured in turns with two copies, the driver's and our own kernel,
//! of as many elements; shares are medians over the turns. What fits in the L2 cache is measured there, copies too.

use std::borrow::Cow;
use std::ffi::c_void;
use std::fmt;
use std::time::{Duration, Instant};

use fusion::prelude::*;

fuse! {
    fn three_of(x, y) { max(x + y, 0.0) * y }
    fn six_of(x, y) { min(abs(three_of(x, y)) - x, 4.0) }

    pub(crate) fn copy(x: f32[N]) -> f32[N] { x }
    pub(crate) fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }
    pub(crate) fn twelve(x: f32[N], y: f32[N]) -> f32[N] { six_of(six_of(x, y), y) }
    #[fuse(off)]
    pub(crate) fn twelve_unfused(x: f32[N], y: f32[N]) -> f32[N] { six_of(six_of(x, y), y) }
    pub(crate) fn swiglu(x: f32[N, D], y: f32[N, D]) -> f32[N, D] { silu(x) * y }
    pub(crate) fn tonemap(photo: f32[H, W, C = 3], gain: f32[C], luma: f32[C], saturation: f32) -> f32[H, W, C] {
        let light = photo * gain;
        let film = clamp(light * (2.51 * light + 0.03) / (light * (2.43 * light + 0.59) + 0.14), 0.0, 1.0);
        let grey = sum(film * luma, C);
        clamp(grey + saturation * (film - grey), 0.0, 1.0)
    }
    pub(crate) fn transposed(x: f32[N, D]) -> f32[D, N] { x }
    pub(crate) fn biased(x: f32[N, D], bias: f32[D]) -> f32[N, D] { x + bias }
    pub(crate) fn softmax_of(x: f32[N, D]) -> f32[N, D] { softmax(x, D) }
    pub(crate) fn layer_norm_of(x: f32[N, D], g: f32[D], b: f32[D]) -> f32[N, D] { layer_norm(x, D) * g + b }
    pub(crate) fn rms_norm_of(x: f32[N, D], g: f32[D]) -> f32[N, D] { rms_norm(x, D) * g }
    pub(crate) fn row_sums(x: f32[N, D]) -> f32[N] { sum(x, D) }
    pub(crate) fn losses_of(x: f32[N, D], class: i32[N]) -> f32[N] { cross_entropy(x, D, class) }
    pub(crate) fn column_sums(x: f32[N, D]) -> f32[D] { sum(x, N) }
    pub(crate) fn sgd(p: &mut f32[N], g: f32[N], lr: f32) { p -= lr * g; }
}

/// A kernel with its arguments.
struct Work {
    name: Cow<'static, str>,
    /// Bytes that it has to read and write.
    bytes: u64,
    out: Tensor<f32>,
    call: Call,
}

/// Writes a result.
type Call = Box<dyn Fn(&mut Tensor<f32>) -> Result<()>>;

impl Work {
    /// Work on a result of this shape.
    fn new(
        name: impl Into<Cow<'static, str>>,
        bytes: Option<u64>,
        device: &Device,
        shape: impl Into<Shape>,
        call: impl Fn(&mut Tensor<f32>) -> Result<()> + 'static,
    ) -> Result<Work> {
        let (name, out) = (name.into(), numbers(device, 7, shape)?);
        let bytes = bytes.unwrap_or_else(|| unreachable!("all extents of `{name}` are bound"));
        Ok(Work { name, bytes, out, call: Box::new(call) })
    }

    fn run(&mut self, times: u32) -> Result<()> {
        (0..times).try_for_each(|_| (self.call)(&mut self.out))
    }
}

/// Makes a kernel's arguments, of about as many elements.
type Make = fn(&Device, usize) -> Result<Work>;

const WORKS: [(&str, Make); 50] = [
    ("copy", |device, n| {
        let x = numbers(device, 1, n)?;
        let bytes = copy::report().bind(&[("N", n)])?.bytes();
        Work::new("copy by a kernel", bytes, device, n, move |out| copy::into(out, &x))
    }),
    ("gate", |device, n| {
        let [a, b, c] = [numbers(device, 1, n)?, numbers(device, 2, n)?, numbers(device, 3, n)?];
        let bytes = gate::report().bind(&[("N", n)])?.bytes();
        Work::new("relu(a + b) * c", bytes, device, n, move |out| gate::into(out, &a, &b, &c))
    }),
    ("twelve", |device, n| {
        let (x, y) = (numbers(device, 1, n)?, numbers(device, 2, n)?);
        let bytes = twelve::report().bind(&[("N", n)])?.bytes();
        Work::new("12 operations, fused", bytes, device, n, move |out| twelve::into(out, &x, &y))
    }),
    ("twelve_unfused", |device, n| {
        let (x, y) = (numbers(device, 1, n)?, numbers(device, 2, n)?);
        let bytes = twelve::report().bind(&[("N", n)])?.unfused_bytes();
        Work::new("12 operations, unfused", bytes, device, n, move |out| twelve_unfused::into(out, &x, &y))
    }),
    ("swiglu", |device, n| {
        let shape = matrix(n);
        let (x, y) = (numbers(device, 1, shape)?, numbers(device, 2, shape)?);
        let bytes = swiglu::report().bind(&[("N", shape[0]), ("D", shape[1])])?.bytes();
        Work::new("silu(x) * y", bytes, device, shape, move |out| swiglu::into(out, &x, &y))
    }),
    ("tonemap", |device, n| {
        let [height, width] = matrix(n / 3);
        let shape = [height, width, 3];
        let photo = numbers(device, 1, shape)?;
        let gain = Tensor::from_slice(device, &[1.1, 1.0, 0.9], 3)?;
        let luma = Tensor::from_slice(device, &[0.2126, 0.7152, 0.0722], 3)?;
        let bytes = tonemap::report().bind(&[("H", height), ("W", width)])?.bytes();
        Work::new("tone map of RGB", bytes, device, shape, move |out| {
            tonemap::into(out, &photo, &gain, &luma, 1.2)
        })
    }),
    ("transposed", |device, n| {
        let [rows, columns] = matrix(n);
        let x = numbers(device, 1, [rows, columns])?;
        let bytes = transposed::report().bind(&[("N", rows), ("D", columns)])?.bytes();
        Work::new("transpose", bytes, device, [columns, rows], move |out| transposed::into(out, &x))
    }),
    ("biased", |device, n| {
        let shape = matrix(n);
        let (x, bias) = (numbers(device, 1, shape)?, numbers(device, 2, shape[1])?);
        let bytes = biased::report().bind(&[("N", shape[0]), ("D", shape[1])])?.bytes();
        Work::new("bias of columns", bytes, device, shape, move |out| biased::into(out, &x, &bias))
    }),
    ("sgd", |device, n| {
        let g = numbers(device, 1, n)?;
        let bytes = sgd::report().bind(&[("N", n)])?.bytes();
        Work::new("SGD in place", bytes, device, n, move |p| sgd(p, &g, 1e-3))
    }),
    ("softmax_128", softmax_rows::<128>),
    ("softmax_512", softmax_rows::<512>),
    ("softmax_1024", softmax_rows::<1024>),
    ("softmax_4096", softmax_rows::<4096>),
    ("softmax_8192", softmax_rows::<8192>),
    ("softmax_16384", softmax_rows::<16_384>),
    ("softmax_32768", softmax_rows::<32_768>),
    ("softmax_65536", softmax_rows::<65_536>),
    ("layer_norm_128", layer_norm_rows::<128>),
    ("layer_norm_512", layer_norm_rows::<512>),
    ("layer_norm_1024", layer_norm_rows::<1024>),
    ("layer_norm_4096", layer_norm_rows::<4096>),
    ("layer_norm_8192", layer_norm_rows::<8192>),
    ("layer_norm_12288", layer_norm_rows::<12_288>),
    ("layer_norm_16384", layer_norm_rows::<16_384>),
    ("layer_norm_32768", layer_norm_rows::<32_768>),
    ("layer_norm_65536", layer_norm_rows::<65_536>),
    ("rms_norm_128", rms_norm_rows::<128>),
    ("rms_norm_512", rms_norm_rows::<512>),
    ("rms_norm_1024", rms_norm_rows::<1024>),
    ("rms_norm_4096", rms_norm_rows::<4096>),
    ("rms_norm_8192", rms_norm_rows::<8192>),
    ("rms_norm_16384", rms_norm_rows::<16_384>),
    ("rms_norm_32768", rms_norm_rows::<32_768>),
    ("rms_norm_65536", rms_norm_rows::<65_536>),
    ("softmax_1001", softmax_rows::<1001>),
    ("softmax_4097", softmax_rows::<4097>),
    ("softmax_12289", softmax_rows::<12_289>),
    ("softmax_50257", softmax_rows::<50_257>),
    ("layer_norm_1001", layer_norm_rows::<1001>),
    ("losses_1001", losses_of_rows::<1001>),
    ("losses_1024", losses_of_rows::<1024>),
    ("losses_4096", losses_of_rows::<4096>),
    ("losses_32000", losses_of_rows::<32_000>),
    ("losses_50257", losses_of_rows::<50_257>),
    ("sum_64", sum_of_rows::<64>),
    ("sum_1001", sum_of_rows::<1001>),
    ("sum_1024", sum_of_rows::<1024>),
    ("sum_4096", sum_of_rows::<4096>),
    ("sum_16384", sum_of_rows::<16_384>),
    ("column_sums", |device, n| {
        let shape = matrix(n);
        let x = numbers(device, 1, shape)?;
        let bytes = column_sums::report().bind(&[("N", shape[0]), ("D", shape[1])])?.bytes();
        Work::new("sums of columns", bytes, device, shape[1], move |out| column_sums::into(out, &x))
    }),
];

fn softmax_rows<const WIDTH: usize>(device: &Device, n: usize) -> Result<Work> {
    let shape = rows::<WIDTH>(n);
    let x = numbers(device, 1, shape)?;
    let report = softmax_of::report().on(device)?.bind(&[("N", shape[0]), ("D", WIDTH)])?;
    let name = format!("softmax of {WIDTH}");
    Work::new(name, report.bytes(), device, shape, move |out| softmax_of::into(out, &x))
}

fn layer_norm_rows<const WIDTH: usize>(device: &Device, n: usize) -> Result<Work> {
    let shape = rows::<WIDTH>(n);
    let [x, g, b] = [numbers(device, 1, shape)?, numbers(device, 2, WIDTH)?, numbers(device, 3, WIDTH)?];
    let report = layer_norm_of::report().on(device)?.bind(&[("N", shape[0]), ("D", WIDTH)])?;
    let name = format!("layer norm of {WIDTH}");
    Work::new(name, report.bytes(), device, shape, move |out| layer_norm_of::into(out, &x, &g, &b))
}

fn rms_norm_rows<const WIDTH: usize>(device: &Device, n: usize) -> Result<Work> {
    let shape = rows::<WIDTH>(n);
    let (x, g) = (numbers(device, 1, shape)?, numbers(device, 2, WIDTH)?);
    let report = rms_norm_of::report().on(device)?.bind(&[("N", shape[0]), ("D", WIDTH)])?;
    let name = format!("RMS norm of {WIDTH}");
    Work::new(name, report.bytes(), device, shape, move |out| rms_norm_of::into(out, &x, &g))
}

fn losses_of_rows<const WIDTH: usize>(device: &Device, n: usize) -> Result<Work> {
    let shape = rows::<WIDTH>(n);
    let x = numbers(device, 1, shape)?;
    let class =
        Tensor::from_vec(device, (0..shape[0]).map(|i| (i * 7919 % WIDTH) as i32).collect(), shape[0])?;
    let report = losses_of::report().on(device)?.bind(&[("N", shape[0]), ("D", WIDTH)])?;
    let name = format!("cross-entropy of {WIDTH}");
    Work::new(name, report.bytes(), device, shape[0], move |out| losses_of::into(out, &x, &class))
}

fn sum_of_rows<const WIDTH: usize>(device: &Device, n: usize) -> Result<Work> {
    let shape = rows::<WIDTH>(n);
    let x = numbers(device, 1, shape)?;
    let report = row_sums::report().on(device)?.bind(&[("N", shape[0]), ("D", WIDTH)])?;
    let name = format!("sums of {WIDTH}");
    Work::new(name, report.bytes(), device, shape[0], move |out| row_sums::into(out, &x))
}

/// Rows of this width, of about as many elements.
fn rows<const WIDTH: usize>(elements: usize) -> [usize; 2] {
    [(elements / WIDTH).max(1), WIDTH]
}

/// About as many elements in rows, near to a square.
fn matrix(elements: usize) -> [usize; 2] {
    let rows = 1 << (elements.ilog2() / 2);
    [rows, elements / rows]
}

/// Numbers in -2..2 that repeat late.
fn numbers(device: &Device, seed: usize, shape: impl Into<Shape>) -> Result<Tensor<f32>> {
    let shape = shape.into();
    let elements = shape.count().unwrap_or_else(|| unreachable!("benches have sizes that fit"));
    let element = |i: usize| ((i * 7919 + seed * 104_729) % 16_381) as f32 / 4096.0 - 2.0;
    Tensor::from_vec(device, (0..elements).map(element).collect(), shape)
}

// The driver is linked by the runtime.
unsafe extern "C" {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> i32;
    fn cuMemFree_v2(address: u64) -> i32;
    fn cuMemsetD32_v2(address: u64, word: u32, words: usize) -> i32;
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) -> i32;
}

/// Memory that the driver copies, nothing of ours in it.
struct DriverCopy {
    device: Device,
    from: u64,
    to: u64,
    elements: usize,
}

impl DriverCopy {
    fn new(device: &Device, elements: usize) -> Result<DriverCopy> {
        let mut copy = DriverCopy { device: device.clone(), from: 0, to: 0, elements };
        // The device's context is current while it measures.
        device.time(|| {
            let bytes = elements * size_of::<f32>();
            for place in [&mut copy.from, &mut copy.to] {
                // SAFETY: the place is ours, and the memory as long as is written.
                let code = unsafe {
                    match cuMemAlloc_v2(place, bytes) {
                        0 => cuMemsetD32_v2(*place, 1.5f32.to_bits(), elements),
                        code => code,
                    }
                };
                match code {
                    2 => {
                        let device = device.to_string();
                        return Err(Error::OutOfMemory {
                            bytes: Some(bytes),
                            device,
                            tensor_bytes_max: None,
                        });
                    }
                    code => told(device, "cuMemAlloc", code)?,
                }
            }
            Ok(())
        })?;
        Ok(copy)
    }

    fn bytes(&self) -> u64 {
        (2 * self.elements * size_of::<f32>()) as u64
    }

    /// On the default stream, which waits for the device's, as that waits for it.
    fn run(&self, times: u32) -> Result<()> {
        (0..times).try_for_each(|_| {
            let bytes = self.elements * size_of::<f32>();
            // SAFETY: both are alive and so long; the context is current, as this runs while the device measures.
            let code = unsafe { cuMemcpyDtoDAsync_v2(self.to, self.from, bytes, std::ptr::null_mut()) };
            told(&self.device, "cuMemcpyDtoDAsync", code)
        })
    }
}

impl Drop for DriverCopy {
    fn drop(&mut self) {
        let freed = self.device.time(|| {
            [self.from, self.to].into_iter().filter(|&address| address != 0).try_for_each(|address| {
                // SAFETY: allocated by `new`, and no copy is under way after a measurement.
                told(&self.device, "cuMemFree", unsafe { cuMemFree_v2(address) })
            })
        });
        if let Err(error) = freed {
            eprintln!("{error}");
        }
    }
}

fn told(device: &Device, call: &'static str, code: i32) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::Driver { device: device.to_string(), call, why: format!("CUDA error {code}") }),
    }
}

fn main() -> Result<()> {
    let device = Device::cuda(0)?;
    // `cargo test --benches` only asks whether everything runs, and simulated times say nothing.
    let is_real = !device.name().starts_with("CUDA simulator");
    let measuring = is_real && std::env::args().any(|arg| arg == "--bench");
    let (sizes, turns) = if measuring { (vec![20, 23, 26], 25) } else { (vec![12], 3) };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted));
    println!("{}: medians of {turns} turns, by events", device.name());
    if measuring {
        // While nothing is compiled yet.
        calls(&device)?;
    }
    WORKS.iter().try_for_each(|(_, make)| agree(*make, &device))?;
    println!("{HEADER}");
    for elements in sizes.into_iter().map(|bits| 1 << bits) {
        for (name, make) in WORKS.into_iter().filter(|(name, _)| is_wanted(name)) {
            match measure(make, &device, elements, turns) {
                Ok(rows) => rows.iter().skip(usize::from(name != "copy")).for_each(|row| println!("{row}")),
                Err(error @ Error::OutOfMemory { .. }) => println!("{elements:>10}  {name}: {error}"),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// The GPU computes what the CPU does.
fn agree(make: Make, device: &Device) -> Result<()> {
    let [gpu, cpu] = [device, &Device::cpu()].map(|device| {
        let mut work = make(device, 3000)?;
        work.run(1)?;
        Ok((work.name, work.out.to_vec()?))
    });
    let ((name, gpu), (_, cpu)) = (gpu?, cpu?);
    for (i, (gpu, cpu)) in gpu.into_iter().zip(cpu).enumerate() {
        assert!((gpu - cpu).abs() <= 1e-5 * cpu.abs().max(1.0), "{name}, element {i}: {gpu}, not {cpu}");
    }
    Ok(())
}

const HEADER: &str =
    "  elements  kernel                        bytes         µs     GB/s  of driver's copy  of kernel's copy";

/// A line of the table.
struct Row {
    elements: usize,
    name: Cow<'static, str>,
    bytes: u64,
    time: Duration,
    of_driver: f64,
    of_kernel: f64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { elements, name, bytes, time, of_driver, of_kernel } = self;
        let (micros, rate) = (time.as_secs_f64() * 1e6, *bytes as f64 / time.as_secs_f64() / 1e9);
        let (of_driver, of_kernel) = (100.0 * of_driver, 100.0 * of_kernel);
        write!(
            f,
            "{elements:>10}  {name:<22}  {bytes:>11}  {micros:>9.1}  {rate:>7.1}  {of_driver:>15.1}%  {of_kernel:>15.1}%"
        )
    }
}

/// What calls cost on the host: the first, with the driver's compiler in it, those of a queue, and one that is waited for.
fn calls(device: &Device) -> Result<()> {
    const QUEUE: u32 = 1000;
    let [a, b, c] = [numbers(device, 1, 1024)?, numbers(device, 2, 1024)?, numbers(device, 3, 1024)?];
    let mut out = numbers(device, 4, 1024)?;
    let mut took = |times: u32, each: bool| -> Result<[Duration; 2]> {
        let start = Instant::now();
        for _ in 0..times {
            gate::into(&mut out, &a, &b, &c)?;
            if each {
                device.synchronize()?;
            }
        }
        let queued = start.elapsed();
        device.synchronize()?;
        Ok([queued / times, start.elapsed() / times])
    };
    let [_, first] = took(1, true)?;
    took(QUEUE, false)?;
    let [queued, done] = took(QUEUE, false)?;
    let [waited, _] = took(QUEUE, true)?;
    println!(
        "a call of 1024 elements: {queued:.2?} to queue, {done:.2?} in a queue of {QUEUE}, {waited:.2?} waited for; the first {first:.2?}"
    );
    Ok(())
}

/// What a call took, in the mean of a few at once, so that starting them hides behind running them.
fn timed(device: &Device, bytes: u64, run: impl FnOnce(u32) -> Result<()>) -> Result<Duration> {
    let times = ((1 << 28) / bytes.max(1)).clamp(4, 20) as u32;
    device.time(|| run(times)).map(|time| time / times)
}

/// The rows of the driver's copy and of a kernel.
fn measure(make: Make, device: &Device, elements: usize, turns: usize) -> Result<[Row; 2]> {
    let driver = DriverCopy::new(device, elements)?;
    let (_, copy) = WORKS[0];
    let (mut kernel, mut work) = (copy(device, elements)?, make(device, elements)?);
    // Seconds for a byte: of the driver's copy, our copy and the work itself.
    let mut turn = || -> Result<[f64; 3]> {
        let of = |bytes: u64, time: Duration| time.as_secs_f64() / bytes as f64;
        Ok([
            of(driver.bytes(), timed(device, driver.bytes(), |times| driver.run(times))?),
            of(kernel.bytes, timed(device, kernel.bytes, |times| kernel.run(times))?),
            of(work.bytes, timed(device, work.bytes, |times| work.run(times))?),
        ])
    };
    // The first turn loads modules and fills the pool.
    turn()?;
    let turns: Vec<[f64; 3]> = (0..turns).map(|_| turn()).collect::<Result<_>>()?;
    let row = |name, bytes: u64, which: usize| Row {
        elements,
        name,
        bytes,
        time: Duration::from_secs_f64(bytes as f64 * median(turns.iter().map(|turn| turn[which]))),
        of_driver: median(turns.iter().map(|turn| turn[0] / turn[which])),
        of_kernel: median(turns.iter().map(|turn| turn[1] / turn[which])),
    };
    Ok([row("copy by the driver".into(), driver.bytes(), 0), row(work.name.clone(), work.bytes, 2)])
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
