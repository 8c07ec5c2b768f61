//! Learning rates by step, as PyTorch's schedulers give them.

use std::f64::consts::PI;

/// How a learning rate changes with the number of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Schedule {
    /// The same at all steps.
    Constant {
        /// The rate.
        lr: f64,
    },
    /// From 0 to `lr` in a line, then the same.
    LinearWarmup {
        /// The rate.
        lr: f64,
        /// Steps until it is reached.
        warmup: u64,
    },
    /// From 0 to `lr` in a line, then along half a cosine to `min` at `total`, where it stays.
    Cosine {
        /// The highest rate.
        lr: f64,
        /// The lowest rate.
        min: f64,
        /// Steps until the highest.
        warmup: u64,
        /// Steps until the lowest.
        total: u64,
    },
    /// `torch.optim.lr_scheduler.OneCycleLR`: up from `max / 25` along half a cosine, then down to a 10,000th of that.
    OneCycle {
        /// The highest rate.
        max: f64,
        /// All steps.
        total: u64,
        /// The share of them that goes up.
        pct_start: f64,
    },
}

impl Schedule {
    /// The rate of a step, counted from 0.
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

/// The share of the rate while it warms up.
fn warm(step: u64, warmup: u64) -> f64 {
    if step < warmup { step as f64 / warmup as f64 } else { 1.0 }
}

/// From one rate to another along half a cosine.
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

    /// `Cosine` and `OneCycle` as PyTorch 2.15 gives them.
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
        // No step goes up.
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
