//! Five score functions of attention on one input: the report of each, and its time beside that of one kernel for
//! each operation.
//!
//! `cargo run --release --example attention -- 512` uses so many queries and keys, 1024 without a number.

use std::time::{Duration, Instant};

use fusion::prelude::*;

/// Heads, and channels of each.
const HEADS: usize = 4;
const CHANNELS: usize = 32;

/// Defines a function for each score function, in the modules `fused` and `unfused`.
macro_rules! attention {
    ($($name:ident { $($scores:tt)* })*) => {
        mod fused {
            fusion::fuse! {
                $(pub(crate) fn $name(
                    q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]
                ) -> f32[H, T, D] {
                    let s = matmul(q, k, C) * rsqrt(C);
                    matmul(softmax($($scores)*, S), v, S)
                })*
            }
        }
        mod unfused {
            fusion::fuse! {
                $(#[fuse(off)]
                pub(crate) fn $name(
                    q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]
                ) -> f32[H, T, D] {
                    let s = matmul(q, k, C) * rsqrt(C);
                    matmul(softmax($($scores)*, S), v, S)
                })*
            }
        }
        /// Runs all functions.
        fn run_all(device: &Device, len: usize) -> Result<()> {
            $({
                let input = Input::new(device, len)?;
                let Input { q, k, v } = &input;
                let report = fused::$name::report().on(device)?;
                let report = report.bind(&[("H", HEADS), ("T", len), ("S", len), ("C", CHANNELS), ("D", CHANNELS)])?;
                println!("{report}");
                let (fused, time) = timed(|| fused::$name(q, k, v))?;
                let (unfused, other) = timed(|| unfused::$name(q, k, v))?;
                let distance = fused.iter().zip(&unfused).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
                println!("{}: {time:.2?}, unfused {other:.2?}, results differ by {distance:.1e} at most\n", stringify!($name));
            })*
            Ok(())
        }
    };
}

attention! {
    plain { s }
    causal { if index(S) <= index(T) { s } else { -INF } }
    // No key is farther than 64 from its query.
    window { if index(S) <= index(T) && index(T) - index(S) < 64 { s } else { -INF } }
    // Each head has a slope of its own (Press et al. 2022).
    alibi {
        if index(S) <= index(T) { s + exp2(-2.0 * (index(H) + 1) as f32) * (index(S) - index(T)) as f32 } else { -INF }
    }
    soft_cap { 20.0 * tanh(s / 20.0) }
}

/// Queries, keys and values.
struct Input {
    q: Tensor<f32>,
    k: Tensor<f32>,
    v: Tensor<f32>,
}

impl Input {
    fn new(device: &Device, len: usize) -> Result<Input> {
        let tensor = |seed: usize| {
            let number = |i: usize| (i * 7919 + seed * 104_729) % 2003;
            let all: Vec<f32> =
                (0..HEADS * len * CHANNELS).map(|i| number(i) as f32 / 1001.0 - 1.0).collect();
            Tensor::from_slice(device, &all, [HEADS, len, CHANNELS])
        };
        Ok(Input { q: tensor(1)?, k: tensor(2)?, v: tensor(3)? })
    }
}

/// Returns the elements of a result, and the time of the second call.
fn timed(run: impl Fn() -> Result<Tensor<f32>>) -> Result<(Vec<f32>, Duration)> {
    run()?.to_vec()?;
    let start = Instant::now();
    let result = run()?.to_vec()?;
    Ok((result, start.elapsed()))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let len = std::env::args().nth(1).map_or(Ok(1024), |len| len.parse())?;
    run_all(&Device::cpu(), len)?;
    Ok(())
}
