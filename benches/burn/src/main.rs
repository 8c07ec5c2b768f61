//! Burn's side of `benches/compare/run.py --device wgpu`: its wgpu backend, with fusion and autotuning.
//!
//! `fusion-burn WORKLOAD SIZE` prints a line of JSON with the time of the first call, and then an empty line.
//! For each name on its input, the program runs the workload for a while and prints the seconds of a call. A
//! call ends when the device has finished.

#[path = "../../compare/extents.rs"]
mod extents;

use std::io::stdin;
use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use burn::tensor::{Device, DeviceKind, Int, Tensor, TensorData, activation, module};

/// Duration of one measurement.
const BURST: Duration = Duration::from_millis(60);

/// The result of a call, which is read once.
type Elements = Tensor<1>;

type Call = Box<dyn FnMut() -> Elements>;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [workload, size] = args.as_slice() else { panic!("run by benches/compare/run.py") };
    let device = Device::wgpu(DeviceKind::DefaultDevice);
    // Burn panics if a tensor does not fit in a binding.
    let Ok((mut call, first, check)) = catch_unwind(|| started(workload, size, &device)) else {
        println!("{{\"missing\": [\"burn\"]}}\n");
        return;
    };
    println!("{{\"name\": \"burn\", \"first\": {first:e}, \"check\": {check:e}}}\n");
    let mut once = || timed(&mut call, &device).0;
    for _ in stdin().lines().map_while(|line| line.ok()) {
        let calls = (BURST.as_secs_f64() / once()).clamp(1.0, 1e6) as u32;
        println!("{:e}", (0..calls).map(|_| once()).sum::<f64>() / f64::from(calls));
    }
}

/// Returns a workload, the seconds of its first call, and the sum of the result.
fn started(workload: &str, size: &str, device: &Device) -> (Call, f64, f64) {
    let mut call = workload_of(workload, size, device);
    device.sync().expect("the inputs are there");
    let (first, elements) = timed(&mut call, device);
    let values = elements.into_data().try_to_vec::<f32>().expect("numbers");
    (call, first, values.into_iter().map(f64::from).sum())
}

fn timed(call: &mut Call, device: &Device) -> (f64, Elements) {
    let start = Instant::now();
    let elements = call();
    device.sync().expect("the device works");
    (start.elapsed().as_secs_f64(), elements)
}

/// Returns multiples of 2⁻¹⁴ from −2 to 2, which are the same in any language.
fn input<const D: usize>(shape: [usize; D], salt: usize, device: &Device) -> Tensor<D> {
    let len = shape.iter().product();
    let values: Vec<f32> =
        (0..len).map(|i: usize| ((i * 7919 + salt * 104_729) % 65_536) as f32 / 16_384.0 - 2.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Returns a product of matrices, if the workload is one. `products.rs` has the same operands.
fn product_of(workload: &str, size: &str, device: &Device) -> Option<Call> {
    let [b, m, k, n] = extents::extents(workload, size);
    let pair = |left, right| (input::<2>(left, 1, device), input::<2>(right, 2, device));
    Some(match workload {
        "matmul_nn" | "matmul_row" => {
            let (x, w) = pair([m, k], [k, n]);
            Box::new(move || flat(x.clone().matmul(w.clone())))
        }
        "matmul_nt" => {
            let (x, w) = pair([m, k], [n, k]);
            Box::new(move || flat(x.clone().matmul(w.clone().transpose())))
        }
        "matmul_tn" => {
            let (x, w) = pair([k, m], [k, n]);
            Box::new(move || flat(x.clone().transpose().matmul(w.clone())))
        }
        "matmul_tt" => {
            let (x, w) = pair([k, m], [n, k]);
            Box::new(move || flat(x.clone().transpose().matmul(w.clone().transpose())))
        }
        "matmul_batched" => {
            let (x, w) = (input([b, m, k], 1, device), input([b, k, n], 2, device));
            Box::new(move || flat::<3>(Tensor::matmul(x.clone(), w.clone())))
        }
        "linear_gelu" => {
            let ((x, w), bias) = (pair([m, k], [n, k]), input::<1>([n], 3, device));
            Box::new(move || {
                flat(activation::gelu(x.clone().matmul(w.clone().transpose()) + bias.clone().unsqueeze()))
            })
        }
        _ => return None,
    })
}

fn flat<const D: usize>(elements: Tensor<D>) -> Elements {
    elements.flatten(0, D - 1)
}

fn workload_of(workload: &str, size: &str, device: &Device) -> Call {
    if let Some(product) = product_of(workload, size, device) {
        return product;
    }
    let large = size == "large";
    let len = [if large { 1 << 24 } else { 1 << 16 }];
    let shape = |large_shape, small_shape| if large { large_shape } else { small_shape };
    match workload {
        "gate" => {
            let [a, b, c] = [1, 2, 3].map(|salt| input(len, salt, device));
            Box::new(move || activation::relu(a.clone() + b.clone()) * c.clone())
        }
        "chain" => {
            let [x, y] = [1, 2].map(|salt| input(len, salt, device));
            Box::new(move || {
                let t = (x.clone() * 0.5 + y.clone()).tanh();
                let s = (t.clone() * t + 1.0).sqrt();
                (s.clone().neg().exp() * y.clone() + x.clone()).tanh() * s
            })
        }
        "gelu" => {
            let x = input(len, 1, device);
            Box::new(move || activation::gelu_approximate(x.clone()))
        }
        "swiglu" => {
            let [x, y] = [1, 2].map(|salt| input(len, salt, device));
            Box::new(move || activation::silu(x.clone()) * y.clone())
        }
        "softmax_1024" | "softmax_50257" => {
            let rows = if workload == "softmax_1024" {
                shape([4096, 1024], [64, 1024])
            } else {
                shape([32, 50_257], [1, 50_257])
            };
            let x = input(rows, 1, device);
            Box::new(move || flat(activation::softmax(x.clone(), 1)))
        }
        "layer_norm_768" => {
            let x = input(shape([8192, 768], [85, 768]), 1, device);
            let [g, b] = [2, 3].map(|salt| input([768], salt, device));
            Box::new(move || flat(module::layer_norm(x.clone(), g.clone(), Some(b.clone()), 1e-5)))
        }
        "rms_norm_768" => {
            let x = input(shape([8192, 768], [85, 768]), 1, device);
            let g = input([768], 2, device);
            Box::new(move || {
                let size = ((x.clone() * x.clone()).mean_dim(1) + 1e-5).sqrt();
                flat(x.clone() / size * g.clone().unsqueeze())
            })
        }
        "cross_entropy" => {
            let [rows, width] = shape([2048, 50_257], [8, 8192]);
            let x = input([rows, width], 1, device);
            let classes: Vec<i32> = (0..rows).map(|i| (i * 31 % width) as i32).collect();
            let t = Tensor::<2, Int>::from_data(TensorData::new(classes, [rows, 1]), device);
            Box::new(move || activation::log_softmax(x.clone(), 1).gather(1, t.clone()).mean().neg())
        }
        "sum_of_squares" => {
            let x = input(len, 1, device);
            Box::new(move || (x.clone() * x.clone()).sum())
        }
        other => panic!("no workload is called {other}"),
    }
}
