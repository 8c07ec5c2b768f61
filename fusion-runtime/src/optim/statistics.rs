//! Memory and bandwidth of an optimizer, with suggestions.

use std::fmt;
use std::time::Duration;

use super::rule::Precision;
use super::{Arena, Optimizer};
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

/// Statistics of an optimizer: its memory, and the traffic of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Number of tensors in the arena.
    pub tensors: usize,
    /// Size of the parameters in bytes, with padding between tensors.
    pub parameter_bytes: usize,
    /// Size of states, copies and averages in bytes.
    pub state_bytes: usize,
    /// Share of the arena that contains elements, from 0 to 1.
    pub efficiency: f64,
    /// Bytes that a step reads and writes, as its kernels request them.
    pub step_bytes: usize,
    /// Measured times, if `measured_step` made these statistics.
    pub measured: Option<Measured>,
    /// Changes that would save memory or time.
    pub suggestions: Vec<String>,
}

/// The measured time of a step, and the copy bandwidth of the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Time from the first launch of the step to the end of its last.
    pub time: Duration,
    /// Bytes of the step per second of `time`.
    pub bytes_per_second: f64,
    /// Bytes per second of 64 MiB copies on this device: the best of five.
    pub copy_bytes_per_second: f64,
}

impl Measured {
    /// Returns the share of a device's peak bandwidth, in bytes per second, that the step reached.
    pub fn utilization(&self, peak_bytes_per_second: f64) -> f64 {
        self.bytes_per_second / peak_bytes_per_second
    }
}

impl Optimizer {
    /// Returns the statistics of this optimizer for these parameters.
    ///
    /// # Errors
    /// `Error::Parameter` if the parameters belong to another optimizer.
    pub fn statistics(&self, params: &Arena) -> Result<Statistics> {
        self.check_params(params)?;
        let (parameter_bytes, state_bytes) = (params.bytes(), self.bytes());
        let elements = (params.elements() * size_of::<f32>()) as f64;
        let efficiency = if parameter_bytes == 0 { 1.0 } else { elements / parameter_bytes as f64 };
        // A step reads and writes parameters and states, and reads gradients. The norm reads gradients once
        // more.
        let gradients = parameter_bytes * if self.takes_norm() { 2 } else { 1 };
        // Each shadow copy but the first has a launch of its own.
        let alone = self.shadow_copies.len().saturating_sub(1) * parameter_bytes;
        Ok(Statistics {
            tensors: params.len(),
            parameter_bytes,
            state_bytes,
            efficiency,
            step_bytes: 2 * (parameter_bytes + state_bytes) + gradients + alone,
            measured: None,
            suggestions: self.suggestions(params, efficiency),
        })
    }

    /// Runs a step like `step` and measures it. The call waits for the device before and after the step.
    ///
    /// The first step may include the compilation of kernels: measure a later one.
    ///
    /// # Errors
    /// The errors of `step`.
    pub fn measured_step(&mut self, params: &mut Arena, grads: &Arena) -> Result<Statistics> {
        let device = params.device().clone();
        let copy_bytes_per_second = copy_bandwidth(&device)?;
        let time = device.time(|| self.step(params, grads))?;
        let mut statistics = self.statistics(params)?;
        let bytes_per_second = statistics.step_bytes as f64 / time.as_secs_f64().max(1e-9);
        let measured = Measured { time, bytes_per_second, copy_bytes_per_second };
        let is_small = (1..SMALL_STEP).contains(&statistics.step_bytes);
        if measured.bytes_per_second < 0.5 * copy_bytes_per_second && is_small {
            statistics.suggestions.push(format!(
                "a step moves {} bytes, for which a launch costs more than its memory: put more parameters into one arena",
                statistics.step_bytes
            ));
        }
        statistics.measured = Some(measured);
        Ok(statistics)
    }

    fn suggestions(&self, params: &Arena, efficiency: f64) -> Vec<String> {
        let mut suggestions = vec![];
        let tiny = params.iter().filter(|(_, tensor)| tensor.len() < TINY).count();
        if efficiency < 0.9 && tiny > 0 {
            suggestions.push(format!(
                "{tiny} of {} tensors have fewer than {TINY} elements, and {:.0} % of the arena lies between tensors: store them as one",
                params.len(),
                100.0 * (1.0 - efficiency)
            ));
        }
        let uneven = params.iter().filter(|(_, tensor)| tensor.len() % TINY != 0).count();
        if efficiency < 0.9 && tiny == 0 && uneven > 0 {
            suggestions.push(format!(
                "{uneven} of {} tensors have a number of elements that is no multiple of {TINY}, and {:.0} % of the arena lies between tensors: \
                 pad them, or store several as one",
                params.len(),
                100.0 * (1.0 - efficiency)
            ));
        }
        let amsgrad = self.states.len() > 2;
        if self.rule.adam().is_some() && self.rule.precision() == Precision::F32 && !amsgrad {
            // Two moments have 8 bytes. A 2-byte code and a unit per block remain.
            let saved = params.large() * 6 - params.large() / 64;
            if params.large() >= LARGE_MODEL {
                suggestions.push(format!(
                    "`state: Precision::Bits8` would hold {saved} bytes fewer, and move twice that fewer in a step"
                ));
            }
        }
        suggestions
    }
}

/// Number of elements below which a tensor is smaller than its alignment.
const TINY: usize = 64;

/// Minimum number of elements of a model for suggestions about memory.
const LARGE_MODEL: usize = 1 << 20;

/// Number of bytes of a step below which the cost of a launch dominates.
const SMALL_STEP: usize = 1 << 20;

/// Returns the bytes per second that copies read and write.
fn copy_bandwidth(device: &Device) -> Result<f64> {
    const ELEMENTS: usize = 16 << 20;
    let from = Tensor::<f32>::full(device, 1.0, [ELEMENTS])?;
    let mut to = Tensor::<f32>::full(device, 0.0, [ELEMENTS])?;
    let times = (0..5).map(|_| device.time(|| to.copy_into(0, &from)));
    let times = times.collect::<Result<Vec<Duration>>>()?;
    let best = times.into_iter().min().unwrap_or_default();
    Ok(2.0 * (ELEMENTS * size_of::<f32>()) as f64 / best.as_secs_f64().max(1e-9))
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebi = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        writeln!(
            f,
            "{} tensors, {:.2} MiB, {:.1} % of which are elements; {:.2} MiB of state; {:.2} MiB moved in a step",
            self.tensors,
            mebi(self.parameter_bytes),
            100.0 * self.efficiency,
            mebi(self.state_bytes),
            mebi(self.step_bytes)
        )?;
        if let Some(Measured { time, bytes_per_second, copy_bytes_per_second }) = self.measured {
            writeln!(
                f,
                "a step in {time:.2?}: {:.1} GB/s, {:.0} % of what copies reach",
                bytes_per_second / 1e9,
                100.0 * bytes_per_second / copy_bytes_per_second
            )?;
        }
        self.suggestions.iter().try_for_each(|suggestion| writeln!(f, "suggestion: {suggestion}"))
    }
}
