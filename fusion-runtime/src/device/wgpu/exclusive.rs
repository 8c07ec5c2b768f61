//! What one thread has at a time, and knows when it asks for it again.
//!
//! wgpu calls back the application where we submit and wait, with our recorder in hand: a callback that calls us would wait for itself.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use super::fault::lock;

/// A value of which a thread that has it is refused it.
#[derive(Debug)]
pub(super) struct Exclusive<T> {
    value: Mutex<T>,
    /// The thread that has it, or 0.
    holder: AtomicUsize,
}

impl<T> Exclusive<T> {
    pub(super) fn new(value: T) -> Exclusive<T> {
        Exclusive { value: Mutex::new(value), holder: AtomicUsize::new(0) }
    }

    /// The value, once no other thread has it; nothing if this one has.
    pub(super) fn hold(&self) -> Option<Held<'_, T>> {
        // No other thread writes the number of this one.
        if self.holder.load(Relaxed) == this_thread() {
            return None;
        }
        let guard = lock(&self.value);
        self.holder.store(this_thread(), Relaxed);
        Some(Held { guard, holder: &self.holder })
    }
}

/// The value, until it is dropped.
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
        // Before the guard lets others have it.
        self.holder.store(0, Relaxed);
    }
}

/// A number that no other thread has as long as this one lives.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
