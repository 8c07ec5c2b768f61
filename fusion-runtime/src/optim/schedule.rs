//! Learning rate schedules, as in PyTorch.

use std::f64::consts::PI;

/// A schedule: the learning rate as a function of the step.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Schedule {
    /// A constant rate.
    Constant {
        /// The rate.
        lr: f64,
    },
    /// Linear warm-up from 0 to `lr`, then a constant rate.
    LinearWarmup {
        /// The rate after warm-up.
        lr: f64,
        /// Steps of warm-up.
        warmup: u64,
    },
    /// Linear warm-up from 0 to `lr`, then half a cosine down to `min` at step `total`, then `min`.
    Cosine {
        /// The highest rate.
        lr: f64,
        /// The lowest rate.
        min: f64,
        /// Steps of warm-up.
        warmup: u64,
        /// Step at which the lowest rate is reached.
        total: u64,
    },
    /// `torch.optim.lr_scheduler.OneCycleLR`: half a cosine up from `max / 25` to `max`, then half a cosine
    /// down to `max / 250000`.
    OneCycle {
        /// The highest rate.
        max: f64,
        /// Number of all steps.
        total: u64,
        /// Share of the steps that go up, from 0 to 1.
        pct_start: f64,
    },
}

impl Schedule {
    /// Returns the rate of a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        match *self {
            Schedule::Constant { lr } => lr,
            Schedule::LinearWarmup { lr, warmup } => lr * warm(step, warmup),
            Schedule::Cosine { min, total, .. } if step >= total => min,
            Schedule::Cosine { lr, warmup, .. } if step < warmup => lr * warm(step, warmup),
            Schedule::Cosine { lr, min, warmup, total } => {
                anneal(lr, min, (step - warmup) as f64, total.saturating_sub(warmup).max(1) as f64)
            }
            Schedule::OneCycle { max, total, pct_start } => {
                let peak = pct_start.clamp(0.0, 1.0) * total as f64 - 1.0;
                let (last, step) = (total as f64 - 1.0, step as f64);
                let start = max / 25.0;
                if step <= peak {
                    anneal(start, max, step, peak)
                } else {
                    anneal(max, start / 1e4, step - peak, last - peak)
                }
            }
        }
    }
}

/// Returns the share of the rate during warm-up.
fn warm(step: u64, warmup: u64) -> f64 {
    if step < warmup { step as f64 / warmup as f64 } else { 1.0 }
}

/// Returns the rate between `from` and `to`, along half a cosine.
fn anneal(from: f64, to: f64, step: f64, steps: f64) -> f64 {
    let share = if step < steps { step / steps } else { 1.0 };
    to + (from - to) * (1.0 + (PI * share).cos()) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: Schedule, expect: &[(u64, f64)]) {
        for &(step, lr) in expect {
            assert!((schedule.at(step) - lr).abs() < 1e-9, "{schedule:?} at {step}: {}", schedule.at(step));
        }
    }

    /// Rates of `Cosine` and `OneCycle` from PyTorch 2.15.
    #[test]
    fn rates() {
        check(Schedule::Constant { lr: 0.1 }, &[(0, 0.1), (9, 0.1)]);
        check(Schedule::LinearWarmup { lr: 0.1, warmup: 4 }, &[(0, 0.0), (1, 0.025), (4, 0.1), (9, 0.1)]);
        check(Schedule::LinearWarmup { lr: 0.1, warmup: 0 }, &[(0, 0.1)]);
        let cosine = Schedule::Cosine { lr: 0.1, min: 0.01, warmup: 2, total: 12 };
        check(
            cosine,
            &[(0, 0.0), (1, 0.05), (2, 0.1), (3, 0.09779754323328192), (7, 0.055), (12, 0.01), (99, 0.01)],
        );
        // The rate never rises.
        let falling = Schedule::OneCycle { max: 0.1, total: 10, pct_start: 0.1 };
        check(falling, &[(0, 0.1), (9, 4e-7), (99, 4e-7)]);
        check(Schedule::OneCycle { max: 0.1, total: 4, pct_start: 9.0 }, &[(0, 0.004), (3, 0.1), (99, 4e-7)]);
        let cycle = Schedule::OneCycle { max: 0.1, total: 10, pct_start: 0.4 };
        check(
            cycle,
            &[
                (0, 0.004),
                (1, 0.028),
                (3, 0.1),
                (4, 0.09330129698414119),
                (8, 0.006699103015858823),
                (9, 4e-7),
            ],
        );
    }
}
