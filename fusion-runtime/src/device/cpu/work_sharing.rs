//! Work that other threads of the pool may help with.
//!
//! A scope of the pool ends when all its jobs have run, also those that wait behind another's long ones, or for ever in a process that
//! was forked. Who begins here waits only for those that have joined, each of which is at work.
//!
//! Invariant: the work is done by none that has not joined, and nobody joins once who began has left.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{hint, mem};

use super::wake_policy::POOL;

type Work<'w> = dyn Fn() + Sync + 'w;

/// How long who began looks whether those who help have ended before it sleeps, which takes about as long.
const SPIN: Duration = Duration::from_micros(20);

/// Jobs that no thread has taken yet: where all have other work for long, they would be ever more.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// As many for each thread of the pool that a call is from, at most.
const WAITING_MAX: usize = 8;

/// What those have in common that are at some work.
struct Shared {
    /// Where it was, for jobs that come when it is over.
    work: *const Work<'static>,
    state: Mutex<State>,
    left: Condvar,
}

// SAFETY: any thread may do the work, and none reads it that has not joined.
unsafe impl Send for Shared {}
// SAFETY: the same.
unsafe impl Sync for Shared {}

#[derive(Default)]
struct State {
    is_over: bool,
    helping: usize,
    /// Of a helper that panicked.
    panic: Option<Box<dyn Any + Send>>,
}

/// Does some work on this thread, and on so many others of the pool as come to help before it is done.
pub(super) fn with_help(helpers: usize, work: &Work<'_>) {
    // SAFETY: the same address; whoever reads it says why it may.
    let work_at = unsafe { mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
    let shared = Arc::new(Shared { work: work_at, state: Mutex::default(), left: Condvar::new() });
    let leave = Leave(&shared);
    for _ in 0..helpers {
        if WAITING.load(Relaxed) >= WAITING_MAX * rayon::current_num_threads() {
            break;
        }
        WAITING.fetch_add(1, Relaxed);
        let shared = Arc::clone(&shared);
        rayon::spawn(move || {
            WAITING.fetch_sub(1, Relaxed);
            shared.help();
            POOL.saw(Instant::now());
        });
    }
    work();
    drop(leave);
    if let Some(panic) = shared.state().panic.take() {
        resume_unwind(panic);
    }
}

/// Ends the work for those who come later, and waits for those who have joined.
struct Leave<'s>(&'s Shared);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_over = true;
        let start = Instant::now();
        while state.helping > 0 {
            if start.elapsed() < SPIN {
                drop(state);
                (0..32).for_each(|_| hint::spin_loop());
                state = self.0.state();
            } else {
                state = self.0.left.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Shared {
    fn help(&self) {
        {
            let mut state = self.state();
            if state.is_over {
                return;
            }
            state.helping += 1;
        }
        // SAFETY: `Leave` is dropped before `with_help` returns, however it does, and waits for those that have joined.
        let work = unsafe { &*self.work };
        let ended = catch_unwind(AssertUnwindSafe(work));
        let mut state = self.state();
        state.helping -= 1;
        state.panic = state.panic.take().or(ended.err());
        self.left.notify_one();
    }

    /// It is valid between any two statements.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// A test that keeps the pool busy leaves the others no helper, for whom they would wait for ever.
    static POOL_IS_FREE: Mutex<()> = Mutex::new(());

    fn one_at_a_time() -> MutexGuard<'static, ()> {
        let pool = POOL_IS_FREE.lock().unwrap_or_else(PoisonError::into_inner);
        // What such a test leaves over is taken soon.
        while WAITING.load(Relaxed) >= WAITING_MAX {
            std::thread::yield_now();
        }
        pool
    }

    #[test]
    fn others_help() {
        let _pool = one_at_a_time();
        let (count, (here, there)) = (AtomicUsize::new(0), mpsc::channel());
        // Each waits for the other.
        with_help(1, &|| {
            here.send(std::thread::current().id()).expect("the test waits");
            count.fetch_add(1, Relaxed);
            while count.load(Relaxed) < 2 {
                std::thread::yield_now();
            }
        });
        drop(here);
        let ids: Vec<_> = there.iter().collect();
        assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");
    }

    #[test]
    fn a_panic_of_a_helper_is_that_of_the_call() {
        let _pool = one_at_a_time();
        let caller = std::thread::current().id();
        let came = AtomicUsize::new(0);
        let call = || {
            with_help(1, &|| {
                came.fetch_add(1, Relaxed);
                assert!(std::thread::current().id() == caller, "help fails");
                while came.load(Relaxed) < 2 {
                    std::thread::yield_now();
                }
            });
        };
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    }

    /// What is left over of it runs later, and does nothing; of many calls not all leave something.
    #[test]
    fn nobody_waits_for_a_pool_that_has_other_work() {
        let _pool = one_at_a_time();
        let (begun, all_begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        for _ in 0..rayon::current_num_threads() {
            let (begun, ended) = (begun.clone(), Arc::clone(&ended));
            rayon::spawn(move || {
                begun.send(()).expect("the test waits");
                drop(ended.lock().map(|ended| ended.recv()));
            });
        }
        (0..rayon::current_num_threads())
            .for_each(|_| all_begun.recv_timeout(Duration::from_secs(60)).expect("the pool is free"));
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let count = AtomicUsize::new(0);
            with_help(3, &|| {
                count.fetch_add(1, Relaxed);
            });
            let (calls, others) = (40 * rayon::current_num_threads(), 64);
            (0..calls).for_each(|_| with_help(3, &|| {}));
            let most = WAITING_MAX * rayon::current_num_threads() + others;
            let is_bounded = WAITING.load(Relaxed) <= most;
            done.send((count.into_inner(), is_bounded)).expect("the test waits");
        });
        let count = is_done.recv_timeout(Duration::from_secs(60));
        drop(end);
        assert_eq!(count, Ok((1, true)));
    }
}
