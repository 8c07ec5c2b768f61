//! How many instructions of threads run in a second, all checks on: `relu(a + b) * c` on a million elements, and chains of
//! the instructions on halves and matrices.

use std::time::Instant;

use cuda_sim::exec::{self, Launch};
use cuda_sim::memory::Memory;
use cuda_sim::ptx;

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

/// Instructions that use what they gave before.
const CHAINS: [(&str, &str); 7] = [
    ("fma.rn.f16x2", "fma.rn.f16x2 %r0, %r0, %r1, %r2;"),
    ("fma.rn.bf16x2", "fma.rn.bf16x2 %r0, %r0, %r1, %r2;"),
    ("add.f16x2", "add.f16x2 %r0, %r0, %r1;"),
    ("fma.rn.f16", "fma.rn.f16 %h0, %h0, %h1, %h2;"),
    (
        "mma.m16n8k16.f16",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r1}, {%r2, %r1}, {%f0, %f1, %f2, %f3};",
    ),
    (
        "mma.m16n8k8.f16",
        "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r3, %r4}, {%r0, %r1}, {%r2}, {%r3, %r4};",
    ),
    (
        "mma.m16n8k8.tf32",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r1}, {%r2, %r1}, {%f0, %f1, %f2, %f3};",
    ),
];

/// A kernel that runs an instruction sixteen times in each turn of a loop.
fn chain(instruction: &str) -> String {
    let body = instruction.repeat(16);
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {{
.reg .b32 %r<9>; .reg .b32 %i; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .pred %p;
mov.u32 %r0, 0x3c013c02; mov.u32 %r1, 0x38013402; mov.u32 %r2, 0x30013102; mov.u32 %r3, 0; mov.u32 %r4, 0;
mov.u16 %h0, 0x3c01; mov.u16 %h1, 0x3801; mov.u16 %h2, 0x3001;
mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
mov.u32 %i, 0;
again:
{body}
add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 100; @%p bra again;
ret;
}}
"
    )
}

/// Prints the best of ten launches.
fn measure(name: &str, text: &str, (params, memory): (&[u8], &Memory), threads: usize) {
    let module = ptx::parse(text).expect("it is PTX");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
    let (mut best, mut instructions) = (0.0f64, 0);
    let grid = if params.is_empty() { 4 } else { 216 };
    for _ in 0..10 {
        let launch =
            Launch { grid: [grid, 1, 1], block: [256, 1, 1], dynamic_shared: 0, params, globals: &[] };
        let start = Instant::now();
        let counters = pool.install(|| exec::run(&module.kernels[0], &launch, memory)).expect("no fault");
        instructions = counters.instructions;
        best = best.max(instructions as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    println!("{name}, {threads} threads: {instructions} instructions, {best:.0} million a second");
}
