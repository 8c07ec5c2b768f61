//! Fusion's side of `run.py`: a workload by Fusion and by handwritten Rust, and the roofline of the same
//! memory traffic.
//!
//! `compare WORKLOAD SIZE DEVICE` prints a line of JSON with the time of the first call for each candidate,
//! and then an empty line. For each name on its input, the program runs that candidate for a while and prints
//! the seconds of a call. `RAYON_NUM_THREADS` sets the number of threads of all candidates.

use std::io::stdin;
use std::time::{Duration, Instant};

use fusion::prelude::{Device, Result};

mod attention;
mod extents;
mod hand;
mod products;
mod roofline;
mod windows;
mod workloads;

/// A candidate: one way to compute a workload.
struct Candidate {
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
    let mut candidates = workloads::candidates(workload, size, &on)?;
    // The other candidates run on the CPU only.
    candidates.retain(|candidate| is_cpu || candidate.name == "fusion");
    // Calls to an NVIDIA GPU are queued without waits, as other libraries do.
    let queue = device == "cuda";
    for candidate in &mut candidates {
        let first = seconds(candidate, 1, queue);
        let check = candidate.check.as_ref().map_or_else(|| "null".into(), |check| format!("{:e}", check()));
        println!(r#"{{"name": "{}", "first": {first:e}, "check": {check}}}"#, candidate.name);
    }
    println!();
    for line in stdin().lines().map_while(|line| line.ok()) {
        let candidate =
            candidates.iter_mut().find(|candidate| candidate.name == line).expect("a name that was said");
        println!("{:e}", burst(candidate, queue));
    }
    Ok(())
}

/// Returns the seconds of a call, averaged over as many calls as fit in `BURST`.
fn burst(candidate: &mut Candidate, queue: bool) -> f64 {
    let once = seconds(candidate, 1, queue).max(1e-9);
    let calls = (BURST.as_secs_f64() / once).clamp(1.0, 1e6) as u32;
    seconds(candidate, calls, queue)
}

/// Returns the seconds of a call. Each call is waited for, or all calls of a queue at once.
fn seconds(candidate: &mut Candidate, calls: u32, queue: bool) -> f64 {
    let start = Instant::now();
    for i in 0..calls {
        (candidate.call)();
        if let Some(wait) = candidate.wait.as_ref().filter(|_| !queue || i + 1 == calls) {
            wait();
        }
    }
    start.elapsed().as_secs_f64() / f64::from(calls)
}
