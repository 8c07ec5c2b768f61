//! The interpreter is fast enough. The floor is far below its usual speed, so that a slow change shows and a
//! busy machine does not.

use std::time::Duration;

use cuda_sim::exec::{self, Launch};
use cuda_sim::memory::Memory;
use cuda_sim::ptx;

#[path = "../examples/chains/mod.rs"]
mod chains;

/// Returns the time that this thread has run. Without Linux's scheduler statistics, it is all time that has
/// passed.
fn time(start: std::time::Instant) -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let spent = stat.and_then(|stat| stat.split(' ').next()?.parse().ok()).map(Duration::from_nanos);
    spent.unwrap_or_else(|| start.elapsed())
}

/// The clock of a thread may advance in ticks of milliseconds, and this is many of them.
const LONG: Duration = Duration::from_millis(40);

/// Required speed in millions of instructions per second of one core.
const FLOOR: f64 = 20.0;

/// Numbers of measurements: a few first, and more if a busy machine leaves none of them fast enough.
const TRIES: [usize; 2] = [5, 100];

/// Returns the best speed of several measurements, in millions of instructions per second of one core.
fn speed(text: &str, grid: u32, (params, memory): (&[u8], &Memory)) -> f64 {
    let module = ptx::parse(text).unwrap();
    let launch = Launch {
        grid: [grid, 1, 1],
        block: [256, 1, 1],
        cluster: None,
        dynamic_shared: 0,
        params,
        globals: &[],
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| {
        let origin = std::time::Instant::now();
        let once = || {
            let (start, mut instructions) = (time(origin), 0);
            loop {
                instructions += exec::run(&module.kernels[0], &launch, memory).unwrap().instructions;
                let spent = time(origin) - start;
                if spent >= LONG {
                    return instructions as f64 / spent.as_secs_f64() / 1e6;
                }
            }
        };
        let mut best = 0.0_f64;
        for tries in 1..=TRIES[1] {
            best = best.max(once());
            if tries >= TRIES[0] && best >= FLOOR {
                break;
            }
        }
        best
    })
}

#[test]
fn twenty_million_instructions_a_second() {
    const N: u64 = 1 << 20;
    let memory = Memory::new(1 << 30);
    let mut params: Vec<u8> = (0..4).flat_map(|_| memory.allocate(4 * N).unwrap().to_le_bytes()).collect();
    params.extend((N as u32).to_le_bytes());
    let found = speed(include_str!("../examples/relu.ptx"), 216, (&params, &memory));
    println!("{found:.0} million instructions a second on one core");
    assert!(found >= FLOOR, "{found}");
}

#[test]
fn twenty_million_of_those_that_are_computed_in_software() {
    for (name, instruction) in chains::CHAINS {
        let found = speed(&chains::chain(instruction), 2, (&[], &Memory::new(1 << 20)));
        println!("{name}: {found:.0} million instructions a second on one core");
        assert!(found >= FLOOR, "{name}: {found}");
    }
}
