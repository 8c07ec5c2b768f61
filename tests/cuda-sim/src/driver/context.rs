//! Contexts: the primary context of each device, and the contexts that a program creates.
//!
//! Invariant: destroying a context destroys all objects created in it. A report names the memory that it
//! still had.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::code::Code;
use super::entry::{Answer, Out, exports};
use super::report;
use super::state::{self, Device, Driver, Kind, Object};

/// A context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) handle: u64,
    pub(super) number: usize,
    pub(super) driver: &'static Driver,
    flags: AtomicU32,
    is_primary: bool,
    /// Values that the program set, by `CUlimit`.
    limits: Mutex<[Option<usize>; LIMITS.len()]>,
}

/// Default of each `CUlimit`.
///
/// In order: bytes of stack, of the `printf` buffer and of the heap, synchronization depth, pending launches,
/// fetch granularity and persisting cache.
const LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

/// Mask of the `CUctx_flags` that a context may have.
const FLAGS: u32 = 0x1ff;

impl Context {
    fn new(driver: &'static Driver, number: usize, flags: u32, is_primary: bool) -> Arc<Context> {
        let mut made = None;
        driver.insert(|handle| {
            let flags = AtomicU32::new(flags);
            let context = Context { handle, number, driver, flags, is_primary, limits: Mutex::default() };
            Object::Context(Arc::clone(made.insert(Arc::new(context))))
        });
        made.unwrap_or_else(|| unreachable!("an object is made of its handle"))
    }

    pub(super) fn device(&self) -> &'static Device {
        &self.driver.devices[self.number]
    }

    /// Runs all work of the context, and returns the error of the device, if any.
    pub(super) fn synchronize(&self) -> Answer {
        self.driver.queues().finish_context(self);
        self.device().check()
    }

    /// Destroys the context with all objects in it.
    fn destroy(&self) {
        let pending = self.driver.queues().drop_context(self.handle);
        if pending > 0 && self.device().check().is_ok() {
            report::say(&format!("a context was destroyed with {pending} pieces of work still to do"));
        }
        let mine = self.driver.allocations(|allocation| allocation.context == self.handle);
        report::leaks(self.driver, &mine, "a context was destroyed");
        for (address, _) in mine {
            self.driver.end(address);
        }
        let handle = self.handle;
        self.driver.remove_if(|object| match object {
            Object::Context(context) => context.handle == handle,
            Object::Stream(stream) => stream.context == handle,
            Object::Event(event) => event.context == handle,
            Object::Module(module) => module.context == handle,
            Object::Function(function) => function.module.context == handle,
        });
    }
}

/// Primary context of a device, with the number of times it was retained.
#[derive(Debug, Default)]
pub(super) struct Primary {
    retained: u32,
    flags: u32,
    context: Option<Arc<Context>>,
}

thread_local! {
    /// Handles of the thread's contexts. The last one is current. The stack is empty where a program set
    /// none.
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn current_handle() -> u64 {
    STACK.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

/// Returns the current context of the thread.
pub(super) fn of_thread(driver: &Driver) -> Answer<Arc<Context>> {
    match current_handle() {
        0 => Err(Code::INVALID_CONTEXT),
        handle => driver.context(handle).map_err(|_| Code::CONTEXT_IS_DESTROYED),
    }
}

/// Returns the code with which a call fails because `CUDA_SIM_FAIL` names the call. A sticky code also ends
/// all work on the device.
pub(super) fn fail(driver: &Driver, name: &str, code: Code) -> Code {
    report::say(&format!("{name} fails with {code}, as CUDA_SIM_FAIL says"));
    if code.is_sticky()
        && let Ok(context) = of_thread(driver)
    {
        context.device().fail(code);
    }
    code
}

fn set_top(handle: u64) {
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    });
}

/// Returns the context of a handle, or the current context for null.
fn named(driver: &Driver, handle: u64) -> Answer<Arc<Context>> {
    if handle == 0 { of_thread(driver) } else { driver.context(handle) }
}

exports! {
    /// Retains the primary context of a device. The first call creates the context.
    cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) driver |driver| {
        let number = driver.device(device).map(|_| device as usize)?;
        driver.devices[number].check()?;
        let mut primary = driver.devices[number].primary.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = primary.flags;
        let made = primary.context.get_or_insert_with(|| Context::new(driver, number, flags, true)).handle;
        context.set(made)?;
        primary.retained += 1;
        Ok(())
    };

    /// Releases the primary context of a device. The last release destroys the context.
    cuDevicePrimaryCtxRelease_v2(device: i32) driver |driver| {
        let mut primary = driver.device(device)?.primary.lock().unwrap_or_else(PoisonError::into_inner);
        primary.retained = primary.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        if primary.retained == 0 && let Some(context) = primary.context.take() {
            context.destroy();
        }
        Ok(())
    };

    /// Destroys the primary context of a device, whatever its number of owners.
    cuDevicePrimaryCtxReset_v2(device: i32) driver |driver| {
        let device = driver.device(device)?;
        let mut primary = device.primary.lock().unwrap_or_else(PoisonError::into_inner);
        primary.retained = 0;
        if let Some(context) = primary.context.take() {
            context.destroy();
        }
        device.check()
    };

    /// Sets the flags of a device's primary context.
    cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) driver |driver| {
        let mut primary = driver.device(device)?.primary.lock().unwrap_or_else(PoisonError::into_inner);
        if flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        primary.flags = flags;
        if let Some(context) = &primary.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
        Ok(())
    };

    /// Returns the flags of a device's primary context, and 1 if the context is active.
    cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) driver |driver| {
        let primary = driver.device(device)?.primary.lock().unwrap_or_else(PoisonError::into_inner);
        flags.set(primary.flags)?;
        active.set(i32::from(primary.context.is_some()))
    };

    /// Creates a context and makes the context current on this thread.
    cuCtxCreate_v2(context: Out<u64>, flags: u32, device: i32) driver |driver| {
        let number = driver.device(device).map(|_| device as usize)?;
        driver.devices[number].check()?;
        if context.is_null() || flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let made = Context::new(driver, number, flags, false).handle;
        STACK.with_borrow_mut(|stack| stack.push(made));
        context.set(made)
    };

    /// Destroys a context that `cuCtxCreate_v2` created. A context that is current on this thread is popped.
    cuCtxDestroy_v2(context: u64) driver |driver| {
        let context = driver.context(context)?;
        if context.is_primary {
            return Err(Code::INVALID_CONTEXT);
        }
        if current_handle() == context.handle {
            STACK.with_borrow_mut(|stack| stack.pop());
        }
        context.destroy();
        Ok(())
    };

    /// Returns the current context of the thread, or null.
    cuCtxGetCurrent(context: Out<u64>) driver |_driver| context.set(current_handle());

    /// Replaces the current context of the thread. Null removes the current context.
    cuCtxSetCurrent(context: u64) driver |driver| {
        if context != 0 {
            driver.context(context)?;
        }
        set_top(context);
        Ok(())
    };

    /// Pushes a context, which becomes current.
    cuCtxPushCurrent_v2(context: u64) driver |driver| {
        driver.context(context)?;
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    };

    /// Pops the current context.
    cuCtxPopCurrent_v2(context: Out<u64>) driver |driver| {
        let popped = of_thread(driver)?.handle;
        STACK.with_borrow_mut(|stack| stack.pop());
        context.offer(popped);
        Ok(())
    };

    /// Returns the device of the current context.
    cuCtxGetDevice(device: Out<i32>) current |context| device.set(context.number as i32);

    /// Returns the flags of the current context.
    cuCtxGetFlags(flags: Out<u32>) current |context| flags.set(context.flags.load(Ordering::Relaxed));

    /// Returns the API version of a context, or of the current context for null.
    cuCtxGetApiVersion(context: u64, version: Out<u32>) driver |driver| {
        named(driver, context)?;
        version.set(3020)
    };

    /// Waits for all work of the current context.
    cuCtxSynchronize() working |context| context.synchronize();

    /// Returns the value of a limit.
    cuCtxGetLimit(value: Out<usize>, limit: i32) current |context| {
        let limit = usize::try_from(limit).ok().filter(|&limit| limit < LIMITS.len()).ok_or(Code::UNSUPPORTED_LIMIT)?;
        let set = context.limits.lock().unwrap_or_else(PoisonError::into_inner)[limit];
        value.set(set.unwrap_or(LIMITS[limit]))
    };

    /// Sets a limit, which changes nothing here.
    cuCtxSetLimit(limit: i32, value: usize) current |context| {
        let limit = usize::try_from(limit).ok().filter(|&limit| limit < LIMITS.len()).ok_or(Code::UNSUPPORTED_LIMIT)?;
        context.limits.lock().unwrap_or_else(PoisonError::into_inner)[limit] = Some(value);
        Ok(())
    };

    /// Returns that there is no preference between cache and shared memory.
    cuCtxGetCacheConfig(config: Out<i32>) current |_context| config.set(0);

    /// Sets a preference that changes nothing here.
    cuCtxSetCacheConfig(config: i32) current |_context| one_of(config, 0..=3);

    /// Returns that banks of shared memory are four bytes wide.
    cuCtxGetSharedMemConfig(config: Out<i32>) current |_context| config.set(1);

    /// Sets a preference that changes nothing here.
    cuCtxSetSharedMemConfig(config: i32) current |_context| one_of(config, 0..=2);

    /// Returns the least and the greatest priority of a stream.
    cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) current |_context| {
        least.offer(0);
        greatest.offer(super::stream::GREATEST_PRIORITY);
        Ok(())
    };
}

pub(super) fn one_of(value: i32, range: std::ops::RangeInclusive<i32>) -> Answer {
    if range.contains(&value) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Reports the allocations that live when the process ends.
pub(super) fn living_at_exit() {
    if let Ok(driver) = state::driver() {
        let living = driver.allocations(|allocation| allocation.kind != Kind::Global);
        report::leaks(driver, &living, "the process ended");
    }
}
