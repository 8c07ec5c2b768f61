//! How much memory kernels move, as the simulated GPU counts it: what fusion is for.

mod devices;

use std::process::Command;

use devices::Kind;
use fusion::prelude::*;

fuse! {
    /// Three reads, one write.
    pub fn gate(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }

    /// Five reads and three writes.
    #[fuse(off)]
    pub fn gate_unfused(a: f32[N], b: f32[N], c: f32[N]) -> f32[N] { relu(a + b) * c }
}

/// Names the report of the process that runs the kernels.
const CHILD: &str = "FUSION_TRAFFIC";

/// A number of a line of the report.
fn number(line: &str, key: &str) -> u64 {
    let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key} in {line}"))
}

/// Bytes loaded and stored, and sectors of 32 bytes touched, by all launches of `test` in a process of its own; none
/// in that process itself, or where there is no simulated GPU.
fn measured(test: &str, body: impl FnOnce(&Device) -> Result<()>) -> Option<[u64; 4]> {
    let device = Kind::Cuda.open()?;
    if std::env::var_os(CHILD).is_some() {
        body(&device).and_then(|()| device.synchronize()).unwrap_or_else(|error| panic!("{error}"));
        return None;
    }
    if !device.name().starts_with("CUDA simulator") {
        eprintln!("SKIPPED: only the simulated GPU counts what it moves");
        return None;
    }
    let report = std::env::temp_dir().join(format!("fusion-traffic-{test}-{}.txt", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(["--exact", test]).env(CHILD, "1").env("CUDA_SIM_REPORT", &report);
    let child = command.output().expect("it starts");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let text = std::fs::read_to_string(&report).expect("it was written");
    std::fs::remove_file(&report).expect("it was written");
    let total = text.lines().find(|line| line.starts_with("total ")).expect("the process ended");
    Some(["loaded", "stored", "load_sectors", "store_sectors"].map(|key| number(total, key)))
}

fn inputs(device: &Device, n: usize) -> Result<[Tensor<f32>; 3]> {
    let elements: Vec<f32> = (0..n).map(|i| i as f32 * 1e-3 - 400.0).collect();
    let tensor = || Tensor::from_slice(device, &elements, n);
    Ok([tensor()?, tensor()?, tensor()?])
}

const MILLION: usize = 1_000_000;

#[test]
fn a_fused_gate_moves_sixteen_bytes_for_each_element() {
    let moved = measured("a_fused_gate_moves_sixteen_bytes_for_each_element", |device| {
        let [a, b, c] = inputs(device, MILLION)?;
        let result = gate(&a, &b, &c)?.to_vec()?;
        assert_eq!(result[MILLION - 1], 2.0 * (999_999_f32 * 1e-3 - 400.0) * (999_999_f32 * 1e-3 - 400.0));
        Ok(())
    });
    if let Some(moved) = moved {
        let n = MILLION as u64;
        assert_eq!(moved, [12 * n, 4 * n, 12 * n / 32, 4 * n / 32], "full sectors, each once");
    }
}

#[test]
fn an_unfused_gate_moves_twice_as_much() {
    let moved = measured("an_unfused_gate_moves_twice_as_much", |device| {
        let [a, b, c] = inputs(device, 32_000)?;
        gate_unfused(&a, &b, &c).map(|_| ())
    });
    if let Some([loaded, stored, load_sectors, store_sectors]) = moved {
        // Two reads and a write, one and one, two and one.
        assert_eq!((loaded, stored), (5 * 4 * 32_000, 3 * 4 * 32_000));
        assert_eq!((load_sectors, store_sectors), (loaded / 32, stored / 32));
    }
}

/// A view that begins off a sector costs sectors, not correctness: this is what the count is for.
#[test]
fn sectors_are_those_touched() {
    let moved = measured("sectors_are_those_touched", |device| {
        let [a, b, c] = inputs(device, 3)?;
        gate(&a, &b, &c).map(|_| ())
    });
    if let Some(moved) = moved {
        let [loaded, stored, load_sectors, store_sectors] = moved;
        assert_eq!((loaded, stored), (36, 12));
        assert!((3..=9).contains(&load_sectors) && (1..=3).contains(&store_sectors), "{moved:?}");
    }
}
