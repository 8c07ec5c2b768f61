//! A soak test: many launches, threads and random frees, and devices dropped with pending work. Nothing is
//! lost or leaked.

use std::process::Command;

use super::{SCALE, gpu, launch, scale};
use crate::device::cuda::open;
use crate::device::{Call, Device, Memory, Region};
use crate::kernel::ScalarValue;

/// Environment variable that marks the child process, which does the work.
const REPORT: &str = "FUSION_CUDA_SOAK";

/// Returns the next number of a pseudorandom sequence (Marsaglia 2003, xorshift).
fn random(state: &mut u32) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    *state
}

#[test]
fn nothing_leaks() {
    if std::env::var_os(REPORT).is_some() {
        return work();
    }
    if gpu().is_none() {
        return;
    }
    let report = std::env::temp_dir().join(format!("fusion-cuda-soak-{}.txt", std::process::id()));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "device::cuda::tests::soak::nothing_leaks"]);
    let child = command.env(REPORT, "1").env("CUDA_SIM_REPORT", &report).output().unwrap();
    let output = [child.stdout, child.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
    if gpu().is_some_and(|device| device.name().starts_with("CUDA simulator")) {
        let text = std::fs::read_to_string(&report).unwrap();
        std::fs::remove_file(&report).unwrap();
        let total = text.lines().find(|line| line.starts_with("total ")).unwrap_or_else(|| panic!("{text}"));
        assert!(total.contains(" faults=0 ") && total.contains(" leaks=0 "), "{total}");
        assert_eq!(
            text.lines().filter(|line| line.starts_with("launch ")).count(),
            3 * (4 * 60 + 20),
            "{total}"
        );
    }
}

/// Works in a context that ends before the process, so that the report lists leaks of the context.
fn work() {
    for round in 0..3 {
        // Not `Device::cuda`, which keeps the device.
        let device = open(0).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..5 {
                let device = &device;
                scope.spawn(move || worker(device, 17 * round + thread));
            }
        });
        // No call waits for this work, and its memory is freed before it runs.
        for _ in 0..20 {
            pending(&device);
        }
    }
}

/// Allocates tensors of many sizes that live for a while.
fn worker(device: &Device, seed: u32) {
    let mut state = seed;
    let mut held: Vec<Memory> = Vec::new();
    for _ in 0..60 {
        let bits = random(&mut state);
        held.push(device.0.allocate((bits % 100_000) as usize).unwrap());
        if held.len() > 8 {
            held.swap_remove(bits as usize % 8);
        }
        let elements = 1 + (bits >> 8) as usize % 3000;
        assert_eq!(scale(device, elements).last(), Some(&(0.5 * (elements - 1) as f32)));
    }
}

fn pending(device: &Device) {
    let memory = device.0.allocate(4000).unwrap();
    device.0.write(&memory, 0, &[0; 4000]).unwrap();
    let buffer = Region { memory: &memory, offset: 0, len: 1000 };
    let scalars = [None, Some(ScalarValue::F32(0.5))];
    let call = Call { symbols: &[], scalars: &scalars, buffers: &[buffer, buffer], producers: &[] };
    device.0.launch(&launch(SCALE, 1000), &call).unwrap();
}
