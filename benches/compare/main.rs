//! Fusion's side of `run.py`: a workload by Fusion and by handwritten Rust, and the roofline of the same
//! memory traffic.
//!
//! `compare WORKLOAD SIZE DEVICE` prints a line of JSON with the time of the first call for each candidate,
//! and then an empty line. For each name on its input, the program runs that candidate for a while and prints
//! the seconds of a call. `RAYON_NUM_THREADS` sets the number of threads of all candidates.

use std::io::stdin;
use std::time::{Duration, Instant};

use fusion::prelude::{Device, Result};

mod hand;
mod roofline;
mod workloads;

/// A candidate: one way to compute a workload.
struct Way {
    name: &'static str,
    call: Box<dyn FnMut()>,
    /// Waits for the work of calls that only start it.
    wait: Option<Box<dyn Fn()>>,
    /// Returns the sum of the result, to compare it with other candidates, if there is a result.
    check: Option<Box<dyn Fn() -> f64>>,
}

/// Duration of one measurement.
const BURST: Duration = Duration::from_millis(60);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let [workload, size, device] = args.as_slice() else {
        println!("run by benches/compare/run.py");
        return Ok(());
    };
    let (on, is_cpu) = match device.as_str() {
        "wgpu" => (Device::wgpu()?, false),
        "cuda" => (Device::cuda(0)?, false),
        _ => (Device::cpu(), true),
    };
    let mut ways = workloads::ways(workload, size, &on)?;
    // The other candidates run on the CPU only.
    ways.retain(|way| is_cpu || way.name == "fusion");
    // Calls to an NVIDIA GPU are queued without waits, as other libraries do.
    let queue = device == "cuda";
    for way in &mut ways {
        let first = seconds(way, 1, queue);
        let check = way.check.as_ref().map_or_else(|| "null".into(), |check| format!("{:e}", check()));
        println!(r#"{{"name": "{}", "first": {first:e}, "check": {check}}}"#, way.name);
    }
    println!();
    for line in stdin().lines().map_while(|line| line.ok()) {
        let way = ways.iter_mut().find(|way| way.name == line).expect("a name that was said");
        println!("{:e}", burst(way, queue));
    }
    Ok(())
}

/// Returns the seconds of a call, averaged over as many calls as fit in `BURST`.
fn burst(way: &mut Way, queue: bool) -> f64 {
    let once = seconds(way, 1, queue).max(1e-9);
    let calls = (BURST.as_secs_f64() / once).clamp(1.0, 1e6) as u32;
    seconds(way, calls, queue)
}

/// Returns the seconds of a call. Each call is waited for, or all calls of a queue at once.
fn seconds(way: &mut Way, calls: u32, queue: bool) -> f64 {
    let start = Instant::now();
    for i in 0..calls {
        (way.call)();
        if let Some(wait) = way.wait.as_ref().filter(|_| !queue || i + 1 == calls) {
            wait();
        }
    }
    start.elapsed().as_secs_f64() / f64::from(calls)
}
