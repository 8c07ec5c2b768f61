//! How many instructions of threads run in a second: `relu(a + b) * c` on a million elements, all checks on.

use std::time::Instant;

use cuda_sim::exec::{self, Launch};
use cuda_sim::memory::Memory;
use cuda_sim::ptx;

const N: u64 = 1 << 20;

fn main() {
    let module = ptx::parse(include_str!("relu.ptx")).expect("it is PTX");
    let memory = Memory::new(1 << 30);
    let mut params: Vec<u8> = Vec::new();
    for _ in 0..4 {
        params.extend(memory.allocate(4 * N).expect("there is room").to_le_bytes());
    }
    params.extend((N as u32).to_le_bytes());
    let launch =
        Launch { grid: [216, 1, 1], block: [256, 1, 1], dynamic_shared: 0, params: &params, globals: &[] };
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
        let mut best = 0.0f64;
        let mut instructions = 0;
        for _ in 0..10 {
            let start = Instant::now();
            let counters =
                pool.install(|| exec::run(&module.kernels[0], &launch, &memory)).expect("no fault");
            instructions = counters.instructions;
            best = best.max(instructions as f64 / start.elapsed().as_secs_f64() / 1e6);
        }
        println!("{threads} threads: {instructions} instructions, {best:.0} million a second");
    }
}
