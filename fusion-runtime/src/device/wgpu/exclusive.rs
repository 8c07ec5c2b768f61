//! A lock that detects a second acquisition by the same thread.
//!
//! wgpu may run callbacks of the application while this crate submits and waits with the recorder locked. A
//! callback that calls this crate would otherwise deadlock.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use super::fault::lock;

/// A value behind a lock that refuses the thread that has it locked.
#[derive(Debug)]
pub(super) struct Exclusive<T> {
    value: Mutex<T>,
    /// Number of the thread that has the lock, or 0.
    holder: AtomicUsize,
}

impl<T> Exclusive<T> {
    pub(super) fn new(value: T) -> Exclusive<T> {
        Exclusive { value: Mutex::new(value), holder: AtomicUsize::new(0) }
    }

    /// Waits for the lock. Returns `None` if this thread has the lock already.
    pub(super) fn hold(&self) -> Option<Held<'_, T>> {
        // No other thread writes the number of this thread.
        if self.holder.load(Relaxed) == this_thread() {
            return None;
        }
        let guard = lock(&self.value);
        self.holder.store(this_thread(), Relaxed);
        Some(Held { guard, holder: &self.holder })
    }
}

/// A guard that releases the lock when it is dropped.
pub(super) struct Held<'e, T> {
    guard: MutexGuard<'e, T>,
    holder: &'e AtomicUsize,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // The number is cleared before the guard releases the lock.
        self.holder.store(0, Relaxed);
    }
}

/// Returns a number that is unique among live threads.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
