//! Kernels on an NVIDIA GPU, compared with the copy bandwidth of the same run.
//!
//! `cargo bench --bench gpu` runs the benchmark, `tests/gpu.sh` does on a machine without
//! Rust. Arguments select kernels whose names contain them.
//!
//! Times come from events of the stream. Each kernel alternates with two copies of as many elements, one by
//! the driver and one by a kernel of Fusion. Shares are medians over the rounds. Tensors that fit in the L2
//! cache are measured there, and so are their copies.

use std::ffi::c_void;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fusion::prelude::*;
use libloading::Library;

fuse! {
    fn three_of(x, y) { max(x + y, 0.0) * y }
    fn six_of(x, y) { min(abs(three_of(x, y)) - x, 4.0) }

    pub(crate) fn numbered(x: &mut f32[N], seed: i32) {
        x = ((index(N) % 16381 * 7919 + seed) % 16381) as f32 / 4096.0 - 2.0;
    }
    pub(crate) fn numbered_halves(x: &mut f16[N], seed: i32) {
        x = ((index(N) % 16381 * 7919 + seed) % 16381) as f32 / 4096.0 - 2.0;
    }
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
    pub(crate) fn masked_softmax_of(x: f32[N, D], mask: f32[N, D]) -> f32[N, D] { softmax(x + mask, D) }
    pub(crate) fn residual_norm_of(x: f32[N, D], r: f32[N, D], g: f32[D], b: f32[D]) -> (f32[N, D], f32[N, D]) {
        let sum = x + r;
        (sum, layer_norm(sum, D) * g + b)
    }
    pub(crate) fn half_softmax_of(x: f16[N, D]) -> f16[N, D] { softmax(x, D) }
    pub(crate) fn half_layer_norm_of(x: f16[N, D], g: f16[D], b: f16[D]) -> f16[N, D] { layer_norm(x, D) * g + b }
    pub(crate) fn row_sums(x: f32[N, D]) -> f32[N] { sum(x, D) }
    pub(crate) fn losses_of(x: f32[N, D], class: i32[N]) -> f32[N] { cross_entropy(x, D, class) }
    pub(crate) fn column_sums(x: f32[N, D]) -> f32[D] { sum(x, N) }
    pub(crate) fn sgd(p: &mut f32[N], g: f32[N], lr: f32) { p -= lr * g; }
}

/// A kernel with its arguments.
struct Workload {
    name: String,
    /// Number of bytes that the kernel must read and write.
    bytes: u64,
    call: Box<dyn Call>,
}

impl Workload {
    /// Makes a workload with a result of this shape.
    fn new<T: Number>(
        name: impl Into<String>,
        bytes: Option<u64>,
        device: &Device,
        shape: impl Into<Shape>,
        call: impl FnMut(&mut Tensor<T>) -> Result<()> + 'static,
    ) -> Result<Workload> {
        let (name, out) = (name.into(), numbers(device, 7, shape)?);
        let bytes = bytes.unwrap_or_else(|| unreachable!("all extents of `{name}` are bound"));
        Ok(Workload { name, bytes, call: Box::new(Written { out, call }) })
    }

    fn run(&mut self, times: u32) -> Result<()> {
        (0..times).try_for_each(|_| self.call.run())
    }
}

/// A function call and its result.
trait Call {
    fn run(&mut self) -> Result<()>;
    fn result(&self) -> Result<Vec<f32>>;
    /// Returns the maximum difference of results, absolute up to 1 and relative above.
    fn tolerance(&self) -> f32;
}

/// A call, and the tensor that it writes.
struct Written<T: Number, F> {
    out: Tensor<T>,
    call: F,
}

impl<T: Number, F: FnMut(&mut Tensor<T>) -> Result<()>> Call for Written<T, F> {
    fn run(&mut self) -> Result<()> {
        (self.call)(&mut self.out)
    }

    fn result(&self) -> Result<Vec<f32>> {
        Ok(self.out.to_vec()?.into_iter().map(T::wide).collect())
    }

    fn tolerance(&self) -> f32 {
        T::TOLERANCE
    }
}

/// An element type of the benchmark.
trait Number: Element {
    const TOLERANCE: f32;
    /// Writes numbers in -2..2 with a long period.
    fn number(x: &mut Tensor<Self>, seed: i32) -> Result<()>;
    fn wide(self) -> f32;
}

impl Number for f32 {
    const TOLERANCE: f32 = 1e-5;

    fn number(x: &mut Tensor<f32>, seed: i32) -> Result<()> {
        numbered(x, seed)
    }

    fn wide(self) -> f32 {
        self
    }
}

impl Number for f16 {
    // The tolerance covers two roundings to different sides.
    const TOLERANCE: f32 = 1e-3;

    fn number(x: &mut Tensor<f16>, seed: i32) -> Result<()> {
        numbered_halves(x, seed)
    }

    fn wide(self) -> f32 {
        self.to_f32()
    }
}

/// A function that makes a kernel's arguments, with about this many elements.
type Make = fn(&Device, usize) -> Result<Workload>;
/// A function that makes a kernel's arguments, with this number of rows and this row length.
type MakeRows = fn(&Device, [usize; 2]) -> Result<Workload>;
/// Either of the two, for a number of elements.
type MakeAny = Box<dyn Fn(&Device, usize) -> Result<Workload>>;

/// Kernels by name.
const FLAT: [(&str, Make); 10] = [
    ("copy", |device, n| {
        let x = numbers(device, 1, n)?;
        let bytes = copy::report().bind(&[("N", n)])?.bytes();
        Workload::new("copy by a kernel", bytes, device, n, move |out| copy::into(out, &x))
    }),
    ("gate", |device, n| {
        let [a, b, c] = [numbers(device, 1, n)?, numbers(device, 2, n)?, numbers(device, 3, n)?];
        let bytes = gate::report().bind(&[("N", n)])?.bytes();
        Workload::new("relu(a + b) * c", bytes, device, n, move |out| gate::into(out, &a, &b, &c))
    }),
    ("twelve", |device, n| {
        let (x, y) = (numbers(device, 1, n)?, numbers(device, 2, n)?);
        let bytes = twelve::report().bind(&[("N", n)])?.bytes();
        Workload::new("12 operations, fused", bytes, device, n, move |out| twelve::into(out, &x, &y))
    }),
    ("twelve_unfused", |device, n| {
        let (x, y) = (numbers(device, 1, n)?, numbers(device, 2, n)?);
        let bytes = twelve::report().bind(&[("N", n)])?.unfused_bytes();
        Workload::new("12 operations, unfused", bytes, device, n, move |out| {
            twelve_unfused::into(out, &x, &y)
        })
    }),
    ("swiglu", |device, n| {
        let shape = matrix(n);
        let (x, y) = (numbers(device, 1, shape)?, numbers(device, 2, shape)?);
        let bytes = swiglu::report().bind(&[("N", shape[0]), ("D", shape[1])])?.bytes();
        Workload::new("silu(x) * y", bytes, device, shape, move |out| swiglu::into(out, &x, &y))
    }),
    ("tonemap", |device, n| {
        let [height, width] = matrix(n / 3);
        let shape = [height, width, 3];
        let photo = numbers(device, 1, shape)?;
        let gain = Tensor::from_slice(device, &[1.1, 1.0, 0.9], 3)?;
        let luma = Tensor::from_slice(device, &[0.2126, 0.7152, 0.0722], 3)?;
        let bytes = tonemap::report().bind(&[("H", height), ("W", width)])?.bytes();
        Workload::new("tone map of RGB", bytes, device, shape, move |out| {
            tonemap::into(out, &photo, &gain, &luma, 1.2)
        })
    }),
    ("transposed", |device, n| {
        let [rows, columns] = matrix(n);
        let x = numbers(device, 1, [rows, columns])?;
        let bytes = transposed::report().bind(&[("N", rows), ("D", columns)])?.bytes();
        Workload::new("transpose", bytes, device, [columns, rows], move |out| transposed::into(out, &x))
    }),
    ("biased", |device, n| {
        let shape = matrix(n);
        let (x, bias) = (numbers(device, 1, shape)?, numbers(device, 2, shape[1])?);
        let bytes = biased::report().bind(&[("N", shape[0]), ("D", shape[1])])?.bytes();
        Workload::new("bias of columns", bytes, device, shape, move |out| biased::into(out, &x, &bias))
    }),
    ("sgd", |device, n| {
        let g = numbers(device, 1, n)?;
        let bytes = sgd::report().bind(&[("N", n)])?.bytes();
        Workload::new("SGD in place", bytes, device, n, move |p| sgd(p, &g, 1e-3))
    }),
    ("column_sums", |device, n| {
        let shape = matrix(n);
        let x = numbers(device, 1, shape)?;
        let bytes = column_sums::report().bind(&[("N", shape[0]), ("D", shape[1])])?.bytes();
        Workload::new("sums of columns", bytes, device, shape[1], move |out| column_sums::into(out, &x))
    }),
];

/// Kernels on rows, with row lengths: first multiples of the vector length, then others.
const ROWS: [(&str, MakeRows, &[usize]); 9] = [
    ("softmax", softmax_rows, &LENGTHS),
    ("layer_norm", layer_norm_rows, &LENGTHS),
    ("rms_norm", rms_norm_rows, &LENGTHS),
    ("masked_softmax", masked_softmax_rows, &FEWER),
    ("residual_norm", residual_norm_rows, &FEWER),
    ("half_softmax", half_softmax_rows, &HALVES),
    ("half_layer_norm", half_layer_norm_rows, &HALVES),
    ("losses", losses_of_rows, &[64, 128, 512, 1001, 1024, 2047, 4096, 4097, 16_384, 32_000, 50_257]),
    ("sum", sum_of_rows, &[32, 64, 256, 1001, 1024, 4096, 8191, 16_384, 16_385]),
];
const LENGTHS: [usize; 28] = [
    32, 64, 128, 512, 768, 1024, 2048, 4096, 5120, 6144, 8192, 12_288, 16_384, 20_000, 32_768, 49_152,
    65_536, 131_072, 301, 1001, 1501, 2047, 3001, 4097, 6001, 8191, 33_333, 50_257,
];
const HALVES: [usize; 21] = [
    32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 6144, 8192, 12_288, 16_384, 24_576,
    32_768, 65_536, 1001, 8191,
];
const FEWER: [usize; 11] = [128, 512, 768, 1024, 1536, 2048, 4096, 8192, 16_384, 32_768, 65_536];

/// Returns all kernels, the copy first.
fn workloads() -> Vec<(String, MakeAny)> {
    let flat = FLAT.into_iter().map(|(name, make)| (name.to_string(), Box::new(make) as MakeAny));
    let of_rows = |make: MakeRows, len: usize| -> MakeAny {
        Box::new(move |device, n| make(device, [(n / len).max(1), len]))
    };
    let rows = ROWS.into_iter().flat_map(|(name, make, lengths)| {
        lengths.iter().map(move |&len| (format!("{name}_{len}"), of_rows(make, len)))
    });
    flat.chain(rows).collect()
}

fn softmax_rows(device: &Device, [rows, len]: [usize; 2]) -> Result<Workload> {
    let x = numbers(device, 1, [rows, len])?;
    let bytes = softmax_of::report().on(device)?.bind(&[("N", rows), ("D", len)])?.bytes();
    Workload::new(format!("softmax of {len}"), bytes, device, [rows, len], move |out| {
        softmax_of::into(out, &x)
    })
}

fn layer_norm_rows(device: &Device, [rows, len]: [usize; 2]) -> Result<Workload> {
    let [x, g, b] = [numbers(device, 1, [rows, len])?, numbers(device, 2, len)?, numbers(device, 3, len)?];
    let bytes = layer_norm_of::report().on(device)?.bind(&[("N", rows), ("D", len)])?.bytes();
    Workload::new(format!("layer norm of {len}"), bytes, device, [rows, len], move |out| {
        layer_norm_of::into(out, &x, &g, &b)
    })
}

fn rms_norm_rows(device: &Device, [rows, len]: [usize; 2]) -> Result<Workload> {
    let (x, g) = (numbers(device, 1, [rows, len])?, numbers(device, 2, len)?);
    let bytes = rms_norm_of::report().on(device)?.bind(&[("N", rows), ("D", len)])?.bytes();
    Workload::new(format!("RMS norm of {len}"), bytes, device, [rows, len], move |out| {
        rms_norm_of::into(out, &x, &g)
    })
}

fn masked_softmax_rows(device: &Device, [rows, len]: [usize; 2]) -> Result<Workload> {
    let [x, mask] = [numbers(device, 1, [rows, len])?, numbers(device, 2, [rows, len])?];
    let bytes = masked_softmax_of::report().on(device)?.bind(&[("N", rows), ("D", len)])?.bytes();
    Workload::new(format!("masked softmax of {len}"), bytes, device, [rows, len], move |out| {
        masked_softmax_of::into(out, &x, &mask)
    })
}

fn residual_norm_rows(device: &Device, [rows, len]: [usize; 2]) -> Result<Workload> {
    let [x, r] = [numbers(device, 1, [rows, len])?, numbers(device, 2, [rows, len])?];
    let [g, b] = [numbers(device, 3, len)?, numbers(device, 4, len)?];
    let mut sum = numbers(device, 5, [rows, len])?;
    let bytes = residual_norm_of::report().on(device)?.bind(&[("N", rows), ("D", len)])?.bytes();
    Workload::new(format!("residual norm of {len}"), bytes, device, [rows, len], move |out| {
        residual_norm_of::into(&mut sum, out, &x, &r, &g, &b)
    })
}

fn half_softmax_rows(device: &Device, [rows, len]: [usize; 2]) -> Result<Workload> {
    let x = numbers::<f16>(device, 1, [rows, len])?;
    let bytes = half_softmax_of::report().on(device)?.bind(&[("N", rows), ("D", len)])?.bytes();
    Workload::new(format!("f16 softmax of {len}"), bytes, device, [rows, len], move |out| {
        half_softmax_of::into(out, &x)
    })
}

fn half_layer_norm_rows(device: &Device, [rows, len]: [usize; 2]) -> Result<Workload> {
    let x = numbers::<f16>(device, 1, [rows, len])?;
    let [g, b] = [numbers::<f16>(device, 2, len)?, numbers(device, 3, len)?];
    let bytes = half_layer_norm_of::report().on(device)?.bind(&[("N", rows), ("D", len)])?.bytes();
    Workload::new(format!("f16 layer norm of {len}"), bytes, device, [rows, len], move |out| {
        half_layer_norm_of::into(out, &x, &g, &b)
    })
}

fn losses_of_rows(device: &Device, [rows, len]: [usize; 2]) -> Result<Workload> {
    let x = numbers(device, 1, [rows, len])?;
    let class = Tensor::from_vec(device, (0..rows).map(|i| (i * 7919 % len) as i32).collect(), rows)?;
    let bytes = losses_of::report().on(device)?.bind(&[("N", rows), ("D", len)])?.bytes();
    Workload::new(format!("cross-entropy of {len}"), bytes, device, rows, move |out| {
        losses_of::into(out, &x, &class)
    })
}

fn sum_of_rows(device: &Device, [rows, len]: [usize; 2]) -> Result<Workload> {
    let x = numbers(device, 1, [rows, len])?;
    let bytes = row_sums::report().on(device)?.bind(&[("N", rows), ("D", len)])?.bytes();
    Workload::new(format!("sums of {len}"), bytes, device, rows, move |out| row_sums::into(out, &x))
}

/// Returns the extents of a matrix that is nearly square and has about this many elements.
fn matrix(elements: usize) -> [usize; 2] {
    let rows = 1 << (elements.ilog2() / 2);
    [rows, elements / rows]
}

/// Returns numbers in -2..2 with a long period, computed on the device.
fn numbers<T: Number>(device: &Device, seed: i32, shape: impl Into<Shape>) -> Result<Tensor<T>> {
    let shape = shape.into();
    let elements = shape.count().unwrap_or_else(|| unreachable!("benches have sizes that fit"));
    let mut line = Tensor::zeros(device, elements)?;
    T::number(&mut line, 6409 * seed)?;
    line.reshape(shape)
}

/// Returns the driver's library, which the device has loaded already.
fn driver() -> &'static Library {
    static DRIVER: OnceLock<Library> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let name = std::env::var_os("FUSION_CUDA_DRIVER").unwrap_or_else(|| "libcuda.so.1".into());
        // SAFETY: the library is loaded, so no initialiser runs.
        unsafe { Library::new(name) }.expect("the driver of the device")
    })
}

macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $ty:ty),*);)*) => { $(
        #[allow(non_snake_case, reason = "the driver's own name")]
        unsafe fn $name($($arg: $ty),*) -> i32 {
            type Function = unsafe extern "C" fn($($ty),*) -> i32;
            // SAFETY: the driver's function of this name has this type.
            let function = unsafe { driver().get::<Function>(concat!(stringify!($name), "\0").as_bytes()) };
            // SAFETY: the caller keeps the conditions that NVIDIA documents.
            unsafe { function.expect("a function of every driver")($($arg),*) }
        }
    )* };
}

functions! {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize);
    fn cuMemFree_v2(address: u64);
    fn cuMemsetD32_v2(address: u64, word: u32, words: usize);
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void);
}

/// A copy by the driver, without Fusion.
struct DriverCopy {
    device: Device,
    from: u64,
    to: u64,
    elements: usize,
}

impl DriverCopy {
    fn new(device: &Device, elements: usize) -> Result<DriverCopy> {
        let mut copy = DriverCopy { device: device.clone(), from: 0, to: 0, elements };
        // The device's context is current during a measurement.
        device.time(|| {
            let bytes = elements * size_of::<f32>();
            for place in [&mut copy.from, &mut copy.to] {
                // SAFETY: the pointer refers to a field of `copy`, and the memory has `elements` elements.
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

    /// Copies on the default stream. The default stream and the device's stream wait for each other.
    fn run(&self, times: u32) -> Result<()> {
        (0..times).try_for_each(|_| {
            let bytes = self.elements * size_of::<f32>();
            // SAFETY: both allocations are alive and have `bytes` bytes. The context is current during a
            // measurement.
            let code = unsafe { cuMemcpyDtoDAsync_v2(self.to, self.from, bytes, std::ptr::null_mut()) };
            told(&self.device, "cuMemcpyDtoDAsync", code)
        })
    }
}

impl Drop for DriverCopy {
    fn drop(&mut self) {
        let freed = self.device.time(|| {
            [self.from, self.to].into_iter().filter(|&address| address != 0).try_for_each(|address| {
                // SAFETY: `new` allocated the memory, and no copy is in progress after a measurement.
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
    // `cargo test --benches` only tests that everything runs. Times of the simulator mean nothing.
    let is_real = !device.name().starts_with("CUDA simulator");
    let measuring = is_real && std::env::args().any(|arg| arg == "--bench");
    let (sizes, rounds, calls_max) = if measuring { (vec![20, 23, 26], 25, 20) } else { (vec![12], 1, 1) };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted));
    println!("{}: medians of {rounds} rounds, by events", device.name());
    if measuring {
        // No kernel is compiled yet.
        calls(&device)?;
    }
    let workloads = workloads();
    workloads.iter().try_for_each(|(_, make)| agree(make, &device))?;
    println!("{HEADER}");
    for elements in sizes.into_iter().map(|bits| 1 << bits) {
        let driver = DriverCopy::new(&device, elements)?;
        let (_, copy) = FLAT[0];
        let mut copies = (driver, copy(&device, elements)?);
        for (name, make) in workloads.iter().filter(|(name, _)| is_wanted(name)) {
            match measure(&mut copies, make(&device, elements), (rounds, calls_max)) {
                Ok(rows) => rows.iter().skip(usize::from(name != "copy")).for_each(|row| println!("{row}")),
                Err(error @ Error::OutOfMemory { .. }) => println!("{elements:>10}  {name}: {error}"),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Checks that the GPU and the CPU compute the same.
fn agree(make: &MakeAny, device: &Device) -> Result<()> {
    let [gpu, cpu] = [device, &Device::cpu()].map(|device| {
        let mut workload = make(device, 3000)?;
        workload.run(1)?;
        Ok((workload.call.result()?, workload))
    });
    let ((gpu, _), (cpu, Workload { name, call, .. })) = (gpu?, cpu?);
    for (i, (gpu, cpu)) in gpu.into_iter().zip(cpu).enumerate() {
        let apart = call.tolerance() * cpu.abs().max(1.0);
        assert!((gpu - cpu).abs() <= apart, "{name}, element {i}: {gpu}, not {cpu}");
    }
    Ok(())
}

const HEADER: &str =
    "  elements  kernel                        bytes         µs     GB/s  of driver's copy  of kernel's copy";

/// A line of the table.
struct Row {
    elements: usize,
    name: String,
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

/// Measures the host cost of calls: of the first, which compiles, of a queue of calls, and of calls with a
/// wait.
fn calls(device: &Device) -> Result<()> {
    const QUEUE: u32 = 1000;
    let of = |x| Tensor::from_slice(device, &[x; 1024], 1024);
    let (a, b, c, mut out) = (of(0.5)?, of(-1.0)?, of(2.0)?, of(0.0)?);
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

/// Returns the time of a call, averaged over several, so that running hides the cost of launching.
fn timed(
    device: &Device,
    (bytes, calls_max): (u64, u32),
    run: impl FnOnce(u32) -> Result<()>,
) -> Result<Duration> {
    let times = (((1 << 28) / bytes.max(1)).clamp(4, 20) as u32).min(calls_max);
    device.time(|| run(times)).map(|time| time / times)
}

/// Measures a kernel in alternation with both copies, in at most `calls_max` calls each. Returns the rows of
/// the table.
fn measure(
    (driver, kernel): &mut (DriverCopy, Workload),
    workload: Result<Workload>,
    (rounds, calls_max): (usize, u32),
) -> Result<[Row; 2]> {
    let (mut workload, device, elements) = (workload?, &driver.device, driver.elements);
    // Seconds per byte of the driver's copy, of the kernel's copy, and of the work.
    let mut round = || -> Result<[f64; 3]> {
        let of = |bytes: u64, time: Duration| time.as_secs_f64() / bytes as f64;
        Ok([
            of(driver.bytes(), timed(device, (driver.bytes(), calls_max), |times| driver.run(times))?),
            of(kernel.bytes, timed(device, (kernel.bytes, calls_max), |times| kernel.run(times))?),
            of(workload.bytes, timed(device, (workload.bytes, calls_max), |times| workload.run(times))?),
        ])
    };
    // The first round loads modules and fills the pool.
    round()?;
    let rounds: Vec<[f64; 3]> = (0..rounds).map(|_| round()).collect::<Result<_>>()?;
    let row = |name, bytes: u64, which: usize| Row {
        elements,
        name,
        bytes,
        time: Duration::from_secs_f64(bytes as f64 * median(rounds.iter().map(|round| round[which]))),
        of_driver: median(rounds.iter().map(|round| round[0] / round[which])),
        of_kernel: median(rounds.iter().map(|round| round[1] / round[which])),
    };
    Ok([row("copy by the driver".into(), driver.bytes(), 0), row(workload.name.clone(), workload.bytes, 2)])
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
