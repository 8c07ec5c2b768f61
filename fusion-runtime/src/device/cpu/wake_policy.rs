//! The wake policy: the work that a call must have left before it asks threads of the pool.
//!
//! A thread of the pool that finds no work searches for some time before it sleeps. Calls in close succession
//! therefore find threads that have not slept since the last call. Waking takes longer than a small call, and
//! such calls pay for it once.
//!
//! Invariant: only times depend on the policy, and no result.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fusion_compiler::target::tuning_table::runtime;
/// The policy for the threads of the pool. An application with several pools has one policy for all.
pub(super) static POOL: Awake = Awake::new();

/// Times at which threads were last seen at work, and at which they could have helped.
pub(super) struct Awake {
    seen: Moment,
    /// End of the last call that no thread helped with, although awake threads could have.
    alone: Moment,
    /// Number of such calls in close succession.
    calls: AtomicU32,
}

impl Awake {
    const fn new() -> Awake {
        Awake { seen: Moment::new(), alone: Moment::new(), calls: AtomicU32::new(0) }
    }

    /// Records that a thread of the pool has just searched for work.
    pub(super) fn saw(&self, now: Instant) {
        self.seen.set(now);
    }

    /// Returns the work that a call starting now must have left, in time of one thread, before it asks
    /// others.
    pub(super) fn help_pays(&self, now: Instant) -> Duration {
        let wakes = || self.calls.load(Relaxed) >= runtime::CLOSE_CALLS_MIN && self.alone.is_close(now);
        if self.seen.is_close(now) {
            return runtime::ASK_WORK_MIN;
        }
        if !wakes() {
            return runtime::WAKE_WORK_MIN;
        }
        // If no thread joins after all, later calls do not retry at once.
        self.calls.store(0, Relaxed);
        runtime::ASK_WORK_MIN
    }

    /// Records a call that one thread ran alone from `start` to `end`.
    pub(super) fn done_alone(&self, start: Instant, end: Instant) {
        if end.saturating_duration_since(start) >= runtime::ASK_WORK_MIN {
            let calls =
                if self.alone.is_close(start) { self.calls.load(Relaxed).saturating_add(1) } else { 1 };
            self.calls.store(calls, Relaxed);
            self.alone.set(end);
        }
    }
}

/// A point in time, or none yet.
struct Moment(AtomicU64);

impl Moment {
    const fn new() -> Moment {
        Moment(AtomicU64::new(0))
    }

    fn set(&self, time: Instant) {
        self.0.store(nanos(time), Relaxed);
    }

    fn is_close(&self, now: Instant) -> bool {
        nanos(now).saturating_sub(self.0.load(Relaxed)) <= runtime::CLOSE_GAP_MAX.as_nanos() as u64
    }
}

/// Returns nanoseconds since long before the first time passed to the function. 0 stands for no time yet.
fn nanos(time: Instant) -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let long = Duration::from_secs(1);
    // Other threads may pass earlier times.
    let first = *FIRST.get_or_init(|| time.checked_sub(long).unwrap_or(time));
    (long + time.saturating_duration_since(first)).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Duration = Duration::from_micros(20);

    /// Runs `count` calls on one thread, with `gap` between them, and returns the time of the next call.
    fn calls(pool: &Awake, start: Instant, count: u32, gap: Duration) -> Instant {
        (0..count).fold(start, |start, _| {
            assert_eq!(pool.help_pays(start), runtime::WAKE_WORK_MIN);
            pool.done_alone(start, start + CALL);
            start + CALL + gap
        })
    }

    #[test]
    fn threads_that_are_awake_are_asked_for_less() {
        let (pool, start) = (Awake::new(), Instant::now());
        assert_eq!(pool.help_pays(start), runtime::WAKE_WORK_MIN);
        pool.saw(start);
        assert_eq!(pool.help_pays(start + runtime::CLOSE_GAP_MAX), runtime::ASK_WORK_MIN);
        assert_eq!(pool.help_pays(start + 2 * runtime::CLOSE_GAP_MAX), runtime::WAKE_WORK_MIN);
    }

    #[test]
    fn calls_close_behind_each_other_wake_threads_once_in_a_while() {
        let (pool, gap) = (Awake::new(), runtime::CLOSE_GAP_MAX / 2);
        let next = calls(&pool, Instant::now(), runtime::CLOSE_CALLS_MIN, gap);
        assert_eq!(pool.help_pays(next), runtime::ASK_WORK_MIN);
        // No thread joined.
        let next = calls(&pool, next, runtime::CLOSE_CALLS_MIN, gap);
        assert_eq!(pool.help_pays(next), runtime::ASK_WORK_MIN);
    }

    #[test]
    fn calls_that_are_apart_or_short_wake_nobody() {
        let pool = Awake::new();
        let next = calls(&pool, Instant::now(), 3 * runtime::CLOSE_CALLS_MIN, 2 * runtime::CLOSE_GAP_MAX);
        let next =
            calls(&pool, next + runtime::CLOSE_GAP_MAX, runtime::CLOSE_CALLS_MIN, runtime::CLOSE_GAP_MAX / 2);
        assert_eq!(
            pool.help_pays(next + runtime::CLOSE_GAP_MAX),
            runtime::WAKE_WORK_MIN,
            "the last is not close"
        );
        let short = runtime::ASK_WORK_MIN / 2;
        let last = (0..3 * runtime::CLOSE_CALLS_MIN).fold(next + runtime::CLOSE_GAP_MAX, |start, _| {
            pool.done_alone(start, start + short);
            start + short
        });
        assert_eq!(pool.help_pays(last), runtime::WAKE_WORK_MIN);
    }
}
