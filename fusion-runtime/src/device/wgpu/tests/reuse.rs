//! Order, reuse and cost: batches, pools, threads.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::*;

#[test]
fn commands_run_in_order() {
    on_device(PLAIN, |gpu| {
        let len = 1000;
        let memory = upload(gpu, &vec![1.0; len])?;
        let other = gpu.allocate(len * 4)?;
        let mut host = 1.0f32;
        for i in 0..100 {
            run_step(gpu, &step(), view(&memory, 0, len), -1.0, i)?;
            host = -host + i as f32;
        }
        // Writes and copies keep their order among launches.
        gpu.write(&memory, 16, bytemuck::cast_slice(&[10.0f32; 4]))?;
        run_step(gpu, &step(), view(&memory, 0, len), 2.0, 0)?;
        gpu.copy((&memory, 0), (&other, 0), len * 4)?;
        run_step(gpu, &step(), view(&memory, 0, len), 0.0, 5)?;
        let mut expected = vec![host * 2.0; len];
        expected[4..8].fill(20.0);
        assert_same(&download(gpu, &other, 0, len)?, &expected);
        assert_same(&download(gpu, &memory, 0, len)?, &vec![5.0; len]);
        Ok(())
    });
}

#[test]
fn launches_are_batched() {
    on_device(PLAIN, |gpu| {
        let submissions = || gpu.recorder().map(|recorder| recorder.stream.submissions.load(Relaxed));
        let memory = upload(gpu, &[1.0; 64])?;
        gpu.synchronize()?;
        let before = submissions()?;
        for _ in 0..40 {
            run_step(gpu, &step(), view(&memory, 0, 64), 1.0, 1)?;
        }
        assert_eq!(submissions()?, before);
        gpu.synchronize()?;
        assert_eq!(submissions()?, before + 1);
        gpu.synchronize()?;
        assert_eq!(submissions()?, before + 1);
        Ok(())
    });
}

/// Returns the number of objects made so far that cost a driver call: buffers, staging buffers, bind groups.
fn made(gpu: &WgpuBackend) -> [u64; 4] {
    let recorder = gpu.recorder().expect("the test holds none");
    let stream = &recorder.stream;
    let stages = [stream.uploads().made.load(Relaxed), stream.read_backs().made.load(Relaxed)];
    [gpu.pool.made.load(Relaxed), stages[0], stages[1], recorder.groups.made.load(Relaxed)]
}

#[test]
fn a_steady_state_makes_nothing() {
    let call = |gpu: &WgpuBackend| -> Result<()> {
        let (a, b, c) =
            (upload(gpu, &ramp(5000, 1))?, upload(gpu, &ramp(5000, 2))?, upload(gpu, &ramp(5000, 3))?);
        let out = gpu.allocate(20_000)?;
        run(gpu, &relu(), &[5000], &[&a, &b, &c, &out].map(|memory| view(memory, 0, 5000)))?;
        let result = download(gpu, &out, 0, 5000)?;
        assert_same(&result, &expected_relu(&ramp(5000, 1), &ramp(5000, 2), &ramp(5000, 3)));
        Ok(())
    };
    for immediate_bytes_max in [u32::MAX, 0] {
        on_device(Options { immediate_bytes_max, ..PLAIN }, |gpu| {
            // Memory is freed in another order than it was allocated. The orders repeat after a few calls.
            (0..8).try_for_each(|_| call(gpu))?;
            let warm = made(gpu);
            (0..50).try_for_each(|_| call(gpu))?;
            assert_eq!(made(gpu), warm);
            Ok(())
        });
    }
}

#[test]
fn idle_memory_is_bounded() {
    on_device(PLAIN, |gpu| {
        for i in 1..=40 {
            // The sizes, 1.25 to 11 MiB, are in classes that together exceed the bound on idle bytes.
            drop(gpu.allocate((1 << 20) + (i << 18))?);
        }
        let made_before = gpu.pool.made.load(Relaxed);
        drop(gpu.allocate((1 << 20) + (40 << 18))?);
        assert_eq!(gpu.pool.made.load(Relaxed), made_before, "the latest is kept");
        drop(gpu.allocate((1 << 20) + (1 << 18))?);
        assert_eq!(gpu.pool.made.load(Relaxed), made_before + 1, "the oldest is not");
        Ok(())
    });
}

#[test]
fn two_threads() {
    on_device(PLAIN, |gpu| {
        let work = |seed: usize| -> Result<()> {
            for round in 0..30 {
                let len = 1000 * (seed + 1) + round;
                let values = ramp(len, seed);
                let memory = upload(gpu, &values)?;
                for n in 0..5 {
                    run_step(gpu, &step(), view(&memory, 0, len), -1.0, n)?;
                }
                // Five steps: -(-(-(-(-x + 0) + 1) + 2) + 3) + 4.
                let expected: Vec<f32> = values.iter().map(|x| 2.0 - x).collect();
                assert_same(&download(gpu, &memory, 0, len)?, &expected);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|seed| scope.spawn(move || work(seed))).collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    });
}

/// The bound on the cost of a call is loose, since tests may be debug builds under load. The test prints the
/// cost.
#[test]
fn cost_of_a_call() {
    on_device(PLAIN, |gpu| {
        let memories = [(); 4].map(|()| gpu.allocate(1024));
        let memories = memories.into_iter().collect::<Result<Vec<Memory>>>()?;
        let views: Vec<Region<'_>> = memories.iter().map(|memory| view(memory, 0, 64)).collect();
        let launch = relu();
        let mut best = Duration::MAX;
        for _ in 0..20 {
            gpu.synchronize()?;
            let start = Instant::now();
            for _ in 0..60 {
                run(gpu, &launch, &[64], &views)?;
            }
            best = best.min(start.elapsed() / 60);
        }
        let mut whole = Duration::MAX;
        for _ in 0..20 {
            gpu.synchronize()?;
            let start = Instant::now();
            for _ in 0..60 {
                run(gpu, &launch, &[64], &views)?;
            }
            gpu.recorder()?.stream.submit()?;
            whole = whole.min(start.elapsed() / 60);
        }
        eprintln!("a call: recorded in {best:?}; with its share of the submission {whole:?}");
        assert!(best < Duration::from_micros(200), "{best:?}");
        Ok(())
    });
}
