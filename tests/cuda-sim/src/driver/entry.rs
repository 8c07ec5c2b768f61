//! Entry to every function of the library: one macro gives all of them the same shape.
//!
//! Invariant: a caller in C always gets a number. A panic is reported on stderr and becomes
//! `CUDA_ERROR_UNKNOWN`. A call that the environment makes fail does so here, before anything else happens.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::code::Code;
use super::context::{self, Context};
use super::report;
use super::state::{self, Driver};
use super::stream;

/// Result of a function of the driver.
pub(super) type Answer<T = ()> = Result<T, Code>;

/// Defines functions of the driver by name, arguments, guard and body.
///
/// The guard is the condition for the body to run:
/// - `always` has no condition.
/// - `driver` requires that `cuInit` was called.
/// - `current` requires a current context.
/// - `working` requires a current context whose device has no sticky error.
///
/// All guards but `always` refuse calls from a host function that a stream runs, because the queues are
/// locked meanwhile.
macro_rules! exports {
    ($( $(#[$meta:meta])* $name:ident ( $($arg:ident : $type:ty),* $(,)? ) $guard:ident $body:expr; )*) => {
        /// Names of the functions of this module.
        pub(in crate::driver) const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            $(#[$meta])*
            ///
            /// # Safety
            /// The arguments are as NVIDIA documents them. A pointer is null, or valid for the accesses of
            /// the function and for the time that the documentation names.
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

/// Runs a body that has no condition.
pub(super) fn always(name: &'static str, body: impl FnOnce() -> Answer) -> i32 {
    guarded(name, |_| body())
}

/// Runs a body that requires `cuInit` to have been called.
pub(super) fn driver(name: &'static str, body: impl FnOnce(&'static Driver) -> Answer) -> i32 {
    guarded(name, |driver| {
        stream::not_in_callback()?;
        body(driver.initialized()?)
    })
}

/// Runs a body that requires a current context, in any state.
pub(super) fn current(name: &'static str, body: impl FnOnce(&Arc<Context>) -> Answer) -> i32 {
    driver(name, |driver| body(&context::of_thread(driver)?))
}

/// Runs a body that requires a current context whose device has no error.
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

/// Place of the caller for a result. By the function's contract it is null or writable.
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
    /// Returns the null pointer.
    #[must_use]
    pub const fn null() -> Out<T> {
        Out(std::ptr::null_mut())
    }

    /// Returns a pointer to a place.
    pub const fn to(place: &mut T) -> Out<T> {
        Out(place)
    }

    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes the value. Null is an invalid value.
    pub(super) fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the pointer is not null, so the caller of the function vouches for it. C may leave it
        // unaligned.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the value if the pointer is not null.
    pub(super) fn offer(self, value: T) {
        if !self.is_null() {
            // Writing cannot fail, because the pointer is not null.
            let _ = self.set(value);
        }
    }
}

/// String of the caller. By the function's contract it is null or ends with a NUL.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// Returns a pointer to a static string.
    #[must_use]
    pub const fn of(text: &'static CStr) -> Text {
        Text(text.as_ptr())
    }

    pub(super) fn read(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the pointer is not null, so the caller of the function vouches for it.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Address of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Host(pub *mut u8);

// SAFETY: the type is an address. The caller of a copy promises that the memory lives until the copy is done.
unsafe impl Send for Host {}
