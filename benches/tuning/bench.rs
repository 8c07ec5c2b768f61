//! The bench that `measure.rs` builds with the kernels of every choice. It prints a line for each time: constant,
//! choice, workload, microseconds.

use std::time::{Duration, Instant};

use fusion::{Device, Result, Tensor};

mod kernels;

/// A function, the extents of its arguments and those of its result.
pub struct Workload {
    pub name: &'static str,
    pub inputs: &'static [&'static [usize]],
    pub output: &'static [usize],
    pub call: fn(&mut Tensor<f32>, &[Tensor<f32>]) -> Result<()>,
}

/// Choices of a constant, each with the workloads as that choice compiles them.
pub struct Choices {
    pub constant: &'static str,
    pub choices: &'static [(&'static str, &'static [Workload])],
}

/// Number of rounds that each choice gets. The fastest counts, because other load only adds time.
const ROUNDS: usize = 200;

/// Duration of a round.
const ROUND: Duration = Duration::from_millis(2);

fn main() -> Result<()> {
    for Choices { constant, choices } in kernels::CHOICES {
        for number in 0..choices[0].1.len() {
            let workloads: Vec<&Workload> = choices.iter().map(|(_, workloads)| &workloads[number]).collect();
            let times = measure(&workloads)?;
            for ((choice, _), time) in choices.iter().zip(times) {
                println!("cpu::{constant}\t{choice}\t{}\t{:.2}", workloads[0].name, time * 1e6);
            }
        }
    }
    Ok(())
}

/// Returns the seconds of a call for each choice, whose rounds alternate.
fn measure(workloads: &[&Workload]) -> Result<Vec<f64>> {
    let device = Device::cpu();
    let tensor = |(salt, shape): (usize, &&[usize])| {
        let values = (0..shape.iter().product::<usize>())
            .map(|i| ((i * 7919 + salt * 104_729) % 65_536) as f32 / 16_384.0 - 2.0);
        Tensor::from_vec(&device, values.collect(), *shape)
    };
    let inputs: Vec<Tensor<f32>> =
        workloads[0].inputs.iter().enumerate().map(tensor).collect::<Result<_>>()?;
    let mut out = Tensor::zeros(&device, workloads[0].output)?;
    let mut calls = 1;
    for workload in workloads {
        (workload.call)(&mut out, &inputs)?;
        let start = Instant::now();
        (workload.call)(&mut out, &inputs)?;
        calls = calls.max((ROUND.as_secs_f64() / start.elapsed().as_secs_f64()) as usize);
    }
    let mut times = vec![f64::INFINITY; workloads.len()];
    for round in 0..ROUNDS {
        for i in 0..workloads.len() {
            let choice = (round + i) % workloads.len();
            let start = Instant::now();
            for _ in 0..calls {
                (workloads[choice].call)(&mut out, &inputs)?;
            }
            times[choice] = times[choice].min(start.elapsed().as_secs_f64() / calls as f64);
        }
    }
    Ok(times)
}
