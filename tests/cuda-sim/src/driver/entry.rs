//! The way into every function of the library: one macro gives all of them the same shape.
//!
//! Invariant: whatever happens inside, a caller in C gets a number. A panic is told on stderr and is
//! `CUDA_ERROR_UNKNOWN`. What the environment asks to fail fails here, before anything else happens.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::code::Code;
use super::context::{self, Context};
use super::report;
use super::state::{self, Driver};
use super::stream;

/// What a function answers.
pub(super) type Answer<T = ()> = Result<T, Code>;

/// Functions of the driver: name, arguments, what has to be there first, and what then happens.
///
/// The guards: `always`, nothing; `driver`, `cuInit` was called; `current`, there is a current context; `working`,
/// there is one, and nothing went wrong on its device that ends all work there. All but the first refuse calls from a
/// function of the host that a stream called: the queues are held as long as it runs.
macro_rules! exports {
    ($( $(#[$meta:meta])* $name:ident ( $($arg:ident : $type:ty),* $(,)? ) $guard:ident $body:expr; )*) => {
        /// The functions of this module.
        pub(in crate::driver) const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            $(#[$meta])*
            ///
            /// # Safety
            /// The arguments are as NVIDIA documents them: pointers are null, or lead to what the function is to read
            /// or write, for as long as it says.
            // SAFETY: only a program that asks for a CUDA driver refers to the name.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "names and arguments are NVIDIA's")]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
                $crate::driver::entry::$guard(stringify!($name), $body)
            }
        )*
    };
}
pub(super) use exports;

/// Runs what needs nothing.
pub(super) fn always(name: &'static str, body: impl FnOnce() -> Answer) -> i32 {
    guarded(name, |_| body())
}

/// Runs what needs `cuInit` to have been called.
pub(super) fn driver(name: &'static str, body: impl FnOnce(&'static Driver) -> Answer) -> i32 {
    guarded(name, |driver| {
        stream::not_in_callback()?;
        body(driver.initialized()?)
    })
}

/// Runs what needs a current context, in whatever state.
pub(super) fn current(name: &'static str, body: impl FnOnce(&Arc<Context>) -> Answer) -> i32 {
    driver(name, |driver| body(&context::of_thread(driver)?))
}

/// Runs what needs a current context whose device works.
pub(super) fn working(name: &'static str, body: impl FnOnce(&Arc<Context>) -> Answer) -> i32 {
    current(name, |context| {
        context.device().check()?;
        body(context)
    })
}

fn guarded(name: &'static str, body: impl FnOnce(&'static Driver) -> Answer) -> i32 {
    let run = || {
        let driver = state::driver()?;
        driver.config.failures.strike(name).map_or(Ok(()), |code| Err(context::fail(driver, name, code)))?;
        body(driver)
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
            report::say(&format!("{name} panicked: {text}"));
            Code::UNKNOWN.0
        }
    }
}

/// A place of the caller's for a result: null, or writable, as the function's contract says.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Out<T> {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// No place.
    #[must_use]
    pub const fn null() -> Out<T> {
        Out(std::ptr::null_mut())
    }

    /// This place.
    pub const fn to(place: &mut T) -> Out<T> {
        Out(place)
    }

    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes it; without a place that is an invalid value.
    pub(super) fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller of the function vouches for it. C may not align it.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes it, if there is a place.
    pub(super) fn offer(self, value: T) {
        if !self.is_null() {
            // A place that is there can be written.
            let _ = self.set(value);
        }
    }
}

/// A string of the caller's: null, or ending with a NUL, as the function's contract says.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// A string that lives on.
    #[must_use]
    pub const fn of(text: &'static CStr) -> Text {
        Text(text.as_ptr())
    }

    pub(super) fn read(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller of the function vouches for it.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Memory of the host, as the caller names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Host(pub *mut u8);

// SAFETY: an address; those who follow it have the promise of the copy's caller that it lives until the copy is done.
unsafe impl Send for Host {}
