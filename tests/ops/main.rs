//! Every operation of the table and every function of the standard library is right, through `fuse!` and on
//! devices.
//!
//! References are the `f64` column of the table, integer arithmetic of Rust, and formulas written from
//! PyTorch's documentation. The bounds are those of the table, or stand next to the formula. The CPU and CUDA
//! have to match every bit of IEEE. For WGSL see `Case::allows`.

mod bits;
#[path = "../devices/mod.rs"]
mod devices;
mod fast;
mod float;
mod int;
mod kernels;
mod lanes;
mod library;
mod modes;
mod numerics;
mod sign_analysis;
mod tables;

use std::process::Command;

use devices::{Kind, devices};
use fusion::prelude::*;

/// Returns true if this process runs the CPU without fused multiply-add.
fn is_base() -> bool {
    std::env::var_os("FUSION_CPU_ISA").is_some_and(|isa| isa == "base")
}

/// Returns true if a CUDA device is not simulated.
fn is_hardware(device: &Device) -> bool {
    !device.name().starts_with("CUDA simulator")
}

/// A process chooses its instruction set once, so the other tests run again in processes of their own.
#[test]
fn every_instruction_set_passes() {
    for isa in ["base", "avx2"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output =
            command.args(["float::", "int::", "library::"]).env("FUSION_CPU_ISA", isa).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && !text.contains(" 0 passed"), "{isa}: {text}");
    }
}

/// Panics if there are failures, and prints a sample of them.
fn report(failures: &[String]) {
    let shown: Vec<_> = failures.iter().step_by(failures.len() / 40 + 1).collect();
    assert!(failures.is_empty(), "{} failures, of which {shown:#?}", failures.len());
}

fn upload<T: Element>(device: &Device, elements: &[T]) -> Tensor<T> {
    Tensor::from_slice(device, elements, elements.len()).expect("there is memory")
}

fn download<T: Element>(result: Result<Tensor<T>>) -> Vec<T> {
    result.and_then(|tensor| tensor.to_vec()).expect("a launch on a working device")
}

/// Zeros of both signs, subnormals, ones and their neighbours, ties, the limits, infinities and NaN.
const EDGES: [f32; 28] = [
    0.0,
    -0.0,
    1e-45,
    -1e-45,
    1e-39,
    -1e-39,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    0.5,
    -0.5,
    1.0 - f32::EPSILON / 2.0,
    1.0,
    -1.0,
    1.0 + f32::EPSILON,
    1.5,
    2.5,
    -2.0,
    3.0,
    -7.0,
    88.8,
    8_388_609.0,
    16_777_216.0,
    -16_777_218.0,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// Returns a pseudo-random sequence of bits for a seed (Marsaglia 2003, xorshift).
fn random_bits(seed: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some((0x9e37_79b9 ^ seed.wrapping_mul(0x85eb_ca6b)).max(1)), |&x| {
        let x = x ^ x << 13;
        let x = x ^ x >> 17;
        Some(x ^ x << 5)
    })
}
