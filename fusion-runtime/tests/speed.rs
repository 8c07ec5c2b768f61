//! Times of the CPU device, run by hand: `cargo test --release -p fusion-runtime --test speed -- --ignored --nocapture`.

mod plans;

use std::hint::black_box;
use std::time::{Duration, Instant};

use fusion_runtime::__private::{Arg, run_into, run_one};
use fusion_runtime::{Device, Tensor};
use plans::RELU;
use rayon::prelude::*;

fn best(runs: usize, mut f: impl FnMut()) -> Duration {
    f();
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed()
        })
        .min()
        .unwrap_or_default()
}

#[test]
#[ignore = "a measurement, not a check"]
fn relu_against_a_hand_loop_and_a_copy() {
    for log in [16usize, 18, 20, 21, 22, 23, 24] {
        let n = 1usize << log;
        let runs = (1usize << 28 >> log).clamp(10, 400);
        let host = vec![0.5f32; n];
        let x: Vec<Tensor<f32>> =
            (0..3).map(|_| Tensor::from_slice(&Device::cpu(), &host, n).expect("memory")).collect();
        let mut out = Tensor::<f32>::zeros(&Device::cpu(), n).expect("memory");
        let args = || [Arg::from(&x[0]), Arg::from(&x[1]), Arg::from(&x[2])].into_iter().collect::<Vec<_>>();
        let fused = best(runs, || run_into(&RELU, &mut args(), &mut [Arg::from(&mut out)]).expect("runs"));
        let fresh = best(runs, || drop(black_box(run_one::<f32>(&RELU, &mut args()).expect("runs"))));
        let (a, b, c) = (host.clone(), host.clone(), host.clone());
        let mut z = host.clone();
        let hand = best(runs, || {
            black_box(&mut z);
            z.par_chunks_mut(1 << 14).enumerate().for_each(|(chunk, z)| {
                let from = chunk << 14;
                let (a, b, c) = (&a[from..][..z.len()], &b[from..][..z.len()], &c[from..][..z.len()]);
                for i in 0..z.len() {
                    z[i] = (a[i] + b[i]).max(0.0) * c[i];
                }
            });
            black_box(&mut z);
        });
        let copy = best(runs, || {
            z.par_chunks_mut(n / 2).zip(a.par_chunks(n / 2)).for_each(|(z, a)| z.copy_from_slice(a));
            black_box(&mut z);
        });
        let rate = |time: Duration, bytes: usize| bytes as f64 * n as f64 / time.as_nanos() as f64;
        println!(
            "2^{log}: fused into {fused:?} ({:.1} GB/s), fused {fresh:?}, hand {hand:?} ({:.1} GB/s), memcpy {copy:?} ({:.1} GB/s)",
            rate(fused, 16),
            rate(hand, 16),
            rate(copy, 8)
        );
    }
}

#[test]
#[ignore = "a measurement, not a check"]
fn a_call_on_1k_elements() {
    let x = Tensor::from_slice(&Device::cpu(), &vec![0.5f32; 1024], 1024).expect("memory");
    let mut out = x.clone();
    let calls = 100_000;
    let one = best(5, || {
        for _ in 0..calls {
            black_box(
                run_one::<f32>(&RELU, &mut [Arg::from(&x), Arg::from(&x), Arg::from(&x)]).expect("runs"),
            );
        }
    });
    let into = best(5, || {
        for _ in 0..calls {
            let out = &mut [Arg::from(&mut out)];
            run_into(&RELU, &mut [Arg::from(&x), Arg::from(&x), Arg::from(&x)], out).expect("runs");
        }
    });
    println!("a call: {:?}, into: {:?}", one / calls, into / calls);
}
