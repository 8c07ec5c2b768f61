//! Whether the pool's threads are awake, and so what a call must have left to do before it pays to ask them.
//!
//! A thread of the pool that finds no work looks for some a little while before it sleeps. So calls that come close behind each other
//! are helped by threads that have not slept since the last, and what these take to wake, longer than a small call, is paid once.
//!
//! Invariant: only times depend on it, and no result.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What must be left for one thread to do before waking the others pays, which takes 10 to 20 µs, …
const WAKING_PAYS: Duration = Duration::from_micros(50);
/// … and before asking those pays that are awake.
const ASKING_PAYS: Duration = Duration::from_micros(8);
/// How long a thread looks for work before it sleeps, at least: longer after one call the next is not close behind it.
const CLOSE: Duration = Duration::from_micros(10);
/// After so many calls close behind each other, each with work for threads that are awake, the next wakes them.
const CALLS: u32 = 16;

/// What is known of the threads of the pool; where an application has several, of all.
pub(super) static POOL: Awake = Awake::new();

/// When threads were last seen at work, and what would have been theirs.
pub(super) struct Awake {
    seen: Moment,
    /// When a call ended last that nobody helped with, but threads that are awake could have.
    alone: Moment,
    /// How many such calls have come close behind each other.
    calls: AtomicU32,
}

impl Awake {
    const fn new() -> Awake {
        Awake { seen: Moment::new(), alone: Moment::new(), calls: AtomicU32::new(0) }
    }

    /// A thread of the pool has just looked for work.
    pub(super) fn saw(&self, now: Instant) {
        self.seen.set(now);
    }

    /// What a call that starts now must have left for one thread to do before it asks others.
    pub(super) fn help_pays(&self, now: Instant) -> Duration {
        let wakes = || self.calls.load(Relaxed) >= CALLS && self.alone.is_close(now);
        if self.seen.is_close(now) {
            return ASKING_PAYS;
        }
        if !wakes() {
            return WAKING_PAYS;
        }
        // Where nobody comes all the same, not every call tries again.
        self.calls.store(0, Relaxed);
        ASKING_PAYS
    }

    /// A call was done by one thread, from then to now.
    pub(super) fn done_alone(&self, start: Instant, end: Instant) {
        if end.saturating_duration_since(start) >= ASKING_PAYS {
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
        nanos(now).saturating_sub(self.0.load(Relaxed)) <= CLOSE.as_nanos() as u64
    }
}

/// Nanoseconds since long before the first time that was asked for; none yet is 0.
fn nanos(time: Instant) -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let long = Duration::from_secs(1);
    // Other threads may ask for earlier ones.
    let first = *FIRST.get_or_init(|| time.checked_sub(long).unwrap_or(time));
    (long + time.saturating_duration_since(first)).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Duration = Duration::from_micros(20);

    /// Calls by one thread, the first then and each so long after the last, and when the last ended.
    fn calls(pool: &Awake, start: Instant, count: u32, gap: Duration) -> Instant {
        (0..count).fold(start, |start, _| {
            assert_eq!(pool.help_pays(start), WAKING_PAYS);
            pool.done_alone(start, start + CALL);
            start + CALL + gap
        })
    }

    #[test]
    fn threads_that_are_awake_are_asked_for_less() {
        let (pool, start) = (Awake::new(), Instant::now());
        assert_eq!(pool.help_pays(start), WAKING_PAYS);
        pool.saw(start);
        assert_eq!(pool.help_pays(start + CLOSE), ASKING_PAYS);
        assert_eq!(pool.help_pays(start + 2 * CLOSE), WAKING_PAYS);
    }

    #[test]
    fn calls_close_behind_each_other_wake_threads_once_in_a_while() {
        let (pool, gap) = (Awake::new(), CLOSE / 2);
        let next = calls(&pool, Instant::now(), CALLS, gap);
        assert_eq!(pool.help_pays(next), ASKING_PAYS);
        // Nobody came.
        let next = calls(&pool, next, CALLS, gap);
        assert_eq!(pool.help_pays(next), ASKING_PAYS);
    }

    #[test]
    fn calls_that_are_apart_or_short_wake_nobody() {
        let pool = Awake::new();
        let next = calls(&pool, Instant::now(), 3 * CALLS, 2 * CLOSE);
        let next = calls(&pool, next + CLOSE, CALLS, CLOSE / 2);
        assert_eq!(pool.help_pays(next + CLOSE), WAKING_PAYS, "the last is not close");
        let short = ASKING_PAYS / 2;
        let last = (0..3 * CALLS).fold(next + CLOSE, |start, _| {
            pool.done_alone(start, start + short);
            start + short
        });
        assert_eq!(pool.help_pays(last), WAKING_PAYS);
    }
}
