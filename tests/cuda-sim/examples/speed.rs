//! Measures how many thread instructions run in a second with all checks on. The kernels are `relu(a + b) *
//! c` on a million elements, and chains of the instructions on halves and matrices.

use std::time::Instant;

use cuda_sim::exec::{self, Launch};
use cuda_sim::memory::Memory;
use cuda_sim::ptx;

mod chains;
use chains::{CHAINS, chain};

const N: u64 = 1 << 20;

fn main() {
    let relu = include_str!("relu.ptx");
    let memory = Memory::new(1 << 30);
    let mut params: Vec<u8> = Vec::new();
    for _ in 0..4 {
        params.extend(memory.allocate(4 * N).expect("there is room").to_le_bytes());
    }
    params.extend((N as u32).to_le_bytes());
    for threads in [1, 2] {
        measure("relu(a + b) * c", relu, (&params, &memory), threads);
    }
    for (name, instruction) in CHAINS {
        measure(name, &chain(instruction), (&[], &memory), 1);
    }
}

/// Prints the best of ten launches.
fn measure(name: &str, text: &str, (params, memory): (&[u8], &Memory), threads: usize) {
    let module = ptx::parse(text).expect("it is PTX");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
    let (mut best, mut instructions) = (0.0f64, 0);
    let grid = if params.is_empty() { 4 } else { 216 };
    for _ in 0..10 {
        let launch = Launch {
            grid: [grid, 1, 1],
            block: [256, 1, 1],
            cluster: None,
            dynamic_shared: 0,
            params,
            globals: &[],
        };
        let start = Instant::now();
        let counters = pool.install(|| exec::run(&module.kernels[0], &launch, memory)).expect("no fault");
        instructions = counters.instructions;
        best = best.max(instructions as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    println!("{name}, {threads} threads: {instructions} instructions, {best:.0} million a second");
}
