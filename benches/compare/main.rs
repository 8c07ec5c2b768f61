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
    let on_gpu = device == "wgpu";
    let device = if on_gpu { Device::wgpu()? } else { Device::cpu() };
    let mut ways = workloads::ways(workload, size == "large", &device)?;
    // The others are the CPU's.
    ways.retain(|way| !on_gpu || way.name == "fusion");
    for way in &mut ways {
        let first = seconds(&mut way.call, 1);
        let check = way.check.as_ref().map_or_else(|| "null".into(), |check| format!("{:e}", check()));
        println!(r#"{{"name": "{}", "first": {first:e}, "check": {check}}}"#, way.name);
    }
    println!();
    for line in stdin().lines().map_while(|line| line.ok()) {
        let way = ways.iter_mut().find(|way| way.name == line).expect("a name that was said");
        println!("{:e}", burst(&mut way.call));
    }
    Ok(())
}

/// Seconds of a call, of as many as fit.
fn burst(call: &mut dyn FnMut()) -> f64 {
    let once = seconds(call, 1).max(1e-9);
    let calls = (BURST.as_secs_f64() / once).clamp(1.0, 1e6) as u32;
    seconds(call, calls)
}

fn seconds(call: &mut dyn FnMut(), calls: u32) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(|_| call());
    start.elapsed().as_secs_f64() / f64::from(calls)
}
