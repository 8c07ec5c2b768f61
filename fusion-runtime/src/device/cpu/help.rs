//! Work that other threads of the pool may help with.
//!
//! A scope of the pool ends when all its jobs have run, also those that wait behind another's long ones, or for ever in a process that
//! was forked. Who begins here waits only for those that have joined, each of which is at work.
//!
//! Invariant: the work is done by none that has not joined, and nobody joins once who began has left.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Work<'w> = dyn Fn() + Sync + 'w;

/// What those have in common that are at some work.
struct Shared {
    work: &'static Work<'static>,
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    helping: usize,
    /// Of a helper that panicked.
    panic: Option<Box<dyn Any + Send>>,
}

/// Does some work on this thread, and on so many others of the pool as come to help before it is done.
pub(super) fn with_help(helpers: usize, work: &Work<'_>) {
    // SAFETY: `Leave` is dropped before this returns, however it does; from then on nobody calls the work.
    let work: &'static Work<'static> = unsafe { mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
    let shared = Arc::new(Shared { work, state: Mutex::default(), left: Condvar::new() });
    let leave = Leave(&shared);
    for _ in 0..helpers {
        let shared = Arc::clone(&shared);
        rayon::spawn(move || shared.help());
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
        while state.helping > 0 {
            state = self.0.left.wait(state).unwrap_or_else(PoisonError::into_inner);
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
        let ended = catch_unwind(AssertUnwindSafe(self.work));
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn others_help() {
        let (count, (here, there)) = (AtomicUsize::new(0), mpsc::channel());
        // Each waits for the other.
        with_help(1, &|| {
            here.send(std::thread::current().id()).expect("the test waits");
            count.fetch_add(1, Ordering::Relaxed);
            while count.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
        });
        drop(here);
        let ids: Vec<_> = there.iter().collect();
        assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");
    }

    #[test]
    fn a_panic_of_a_helper_is_that_of_the_call() {
        let caller = std::thread::current().id();
        let came = AtomicUsize::new(0);
        let call = || {
            with_help(1, &|| {
                came.fetch_add(1, Ordering::Relaxed);
                assert!(std::thread::current().id() == caller, "help fails");
                while came.load(Ordering::Relaxed) < 2 {
                    std::thread::yield_now();
                }
            });
        };
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    }

    /// What is left over of it runs later, and does nothing.
    #[test]
    fn nobody_waits_for_a_pool_that_has_other_work() {
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
                count.fetch_add(1, Ordering::Relaxed);
            });
            done.send(count.into_inner()).expect("the test waits");
        });
        let count = is_done.recv_timeout(Duration::from_secs(60));
        drop(end);
        assert_eq!(count, Ok(1));
    }
}
