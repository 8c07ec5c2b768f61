//! Our side of `run.py`: a workload by Fusion and by hand-written Rust, and the roofline of the same memory traffic.
//!
//! `compare WORKLOAD SIZE DEVICE` says what it has, a line of JSON for each with the time of the first call, then an empty line. For
//! each name that it reads it runs that for a while and prints the seconds of a call. `RAYON_NUM_THREADS` is how many threads
//! all of it uses.

use std::io::stdin;
use std::time::{Duration, Instant};

use fusion::prelude::{Device, Result};

mod hand;
mod roofline;
mod workloads;

/// One way to do a workload.
struct Way {
    name: &'static str,
    call: Box<dyn FnMut()>,
    /// Waits for what calls have started, where they only start it.
    wait: Option<Box<dyn Fn()>>,
    /// The sum of what it has computed, to compare with others', where there is such.
    check: Option<Box<dyn Fn() -> f64>>,
}

/// How long a way runs each time.
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
    // The others are the CPU's.
    ways.retain(|way| is_cpu || way.name == "fusion");
    // Who asks a GPU of NVIDIA's for something goes on at once, as others' libraries do there.
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

/// Seconds of a call, of as many as fit.
fn burst(way: &mut Way, queue: bool) -> f64 {
    let once = seconds(way, 1, queue).max(1e-9);
    let calls = (BURST.as_secs_f64() / once).clamp(1.0, 1e6) as u32;
    seconds(way, calls, queue)
}

/// Each call is waited for, or all of a queue at once.
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
