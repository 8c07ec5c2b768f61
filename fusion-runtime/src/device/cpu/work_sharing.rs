//! Work sharing: threads of the pool join the work of a call.
//!
//! A scope of the pool ends after all its jobs have run, even jobs that wait behind long jobs of others. In a
//! forked process such jobs wait for ever. The caller here waits only for threads that have joined, each of
//! which is at work.
//!
//! Invariant: only threads that have joined run the work, and no thread joins after the caller has left.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use std::{hint, mem};

use super::wake_policy::POOL;
use fusion_compiler::target::tuning_table::runtime;

/// The work of a call that threads share.
type Task<'t> = dyn Fn() + Sync + 't;

/// Number of jobs that no thread has taken yet. The number would grow without bound if all threads had long
/// work.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Maximum of `WAITING`, per thread of the pool that the call runs in.
const WAITING_MAX: usize = 8;

/// State that the threads at work on one call share.
struct Shared {
    /// Address of the task. The task may be gone when a late job runs.
    task: *const Task<'static>,
    state: Mutex<SharingState>,
    left: Condvar,
}

// SAFETY: any thread may run the task, and only threads that have joined read it.
unsafe impl Send for Shared {}
// SAFETY: the reason for `Send` applies.
unsafe impl Sync for Shared {}

#[derive(Default)]
struct SharingState {
    is_over: bool,
    sharing: usize,
    /// Payload of a helper's panic.
    panic: Option<Box<dyn Any + Send>>,
}

/// Runs `task` on this thread, and on up to `others` threads of the pool that join before it is done.
pub(super) fn with_sharing(others: usize, task: &Task<'_>) {
    // SAFETY: the address is the same. Each reader of the address states why it may read it.
    let task_at = unsafe { mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
    let shared = Arc::new(Shared { task: task_at, state: Mutex::default(), left: Condvar::new() });
    let leave = Leave(&shared);
    for _ in 0..others {
        if WAITING.load(Relaxed) >= WAITING_MAX * rayon::current_num_threads() {
            break;
        }
        WAITING.fetch_add(1, Relaxed);
        let shared = Arc::clone(&shared);
        rayon::spawn(move || {
            WAITING.fetch_sub(1, Relaxed);
            shared.share();
            POOL.saw(Instant::now());
        });
    }
    task();
    drop(leave);
    if let Some(panic) = shared.state().panic.take() {
        resume_unwind(panic);
    }
}

/// Closes the task to later threads, and waits for the threads that have joined.
struct Leave<'s>(&'s Shared);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_over = true;
        let start = Instant::now();
        while state.sharing > 0 {
            if start.elapsed() < runtime::SPIN {
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
    fn share(&self) {
        {
            let mut state = self.state();
            if state.is_over {
                return;
            }
            state.sharing += 1;
        }
        // SAFETY: `Leave` is dropped before `with_sharing` returns, even by a panic, and waits for all
        // threads that have joined.
        let task = unsafe { &*self.task };
        let ended = catch_unwind(AssertUnwindSafe(task));
        let mut state = self.state();
        state.sharing -= 1;
        state.panic = state.panic.take().or(ended.err());
        self.left.notify_one();
    }

    /// Locks the state, which is valid between any two statements.
    fn state(&self) -> MutexGuard<'_, SharingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Lock of tests that keep the pool busy, without which other tests would wait for helpers for ever.
    static POOL_IS_FREE: Mutex<()> = Mutex::new(());

    fn one_at_a_time() -> MutexGuard<'static, ()> {
        let pool = POOL_IS_FREE.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread takes the jobs left over from such a test soon.
        while WAITING.load(Relaxed) >= WAITING_MAX {
            std::thread::yield_now();
        }
        pool
    }

    #[test]
    fn others_help() {
        let _pool = one_at_a_time();
        let (count, (here, there)) = (AtomicUsize::new(0), mpsc::channel());
        // Each thread waits for the other.
        with_sharing(1, &|| {
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
            with_sharing(1, &|| {
                came.fetch_add(1, Relaxed);
                assert!(std::thread::current().id() == caller, "help fails");
                while came.load(Relaxed) < 2 {
                    std::thread::yield_now();
                }
            });
        };
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    }

    /// Jobs left over run later and do nothing. The number of jobs left over by many calls is limited.
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
            with_sharing(3, &|| {
                count.fetch_add(1, Relaxed);
            });
            let (calls, others) = (40 * rayon::current_num_threads(), 64);
            (0..calls).for_each(|_| with_sharing(3, &|| {}));
            let most = WAITING_MAX * rayon::current_num_threads() + others;
            let is_bounded = WAITING.load(Relaxed) <= most;
            done.send((count.into_inner(), is_bounded)).expect("the test waits");
        });
        let count = is_done.recv_timeout(Duration::from_secs(60));
        drop(end);
        assert_eq!(count, Ok((1, true)));
    }
}
