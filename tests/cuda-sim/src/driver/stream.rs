//! Streams: queues of work in the order of the calls.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::code::Code;
use super::context::Context;
use super::entry::{Answer, Host, Out, exports};
use super::queue::{Command, Key, StreamPosition};
use super::state::Object;

/// Greatest priority of a stream. Smaller numbers are greater priorities.
pub(super) const GREATEST_PRIORITY: i32 = -5;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`, which are special handles.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// Stream that a program created.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) context: u64,
    flags: u32,
    priority: i32,
    key: Key,
}

/// Returns the key of a stream's queue.
pub(super) fn key(context: &Context, stream: u64) -> Answer<Key> {
    let made = |stream| Key { context: context.handle, stream, blocking: true };
    match stream {
        0 | LEGACY => Ok(made(0)),
        // The odd number differs from all handles, which are even.
        PER_THREAD => Ok(made(2 * thread_number() + 1)),
        handle => {
            let stream = context.driver.stream(handle)?;
            if stream.context == context.handle { Ok(stream.key) } else { Err(Code::INVALID_HANDLE) }
        }
    }
}

fn thread_number() -> u64 {
    static GIVEN: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = GIVEN.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|&number| number)
}

/// Puts work into a stream.
pub(super) fn put(context: &Context, stream: u64, command: Command) -> Answer<StreamPosition> {
    let key = key(context, stream)?;
    Ok(context.driver.queues().push(context, key, command))
}

/// Puts work into a stream and waits for it.
pub(super) fn put_and_wait(context: &Context, stream: u64, command: Command) -> Answer {
    let position = put(context, stream, command)?;
    context.driver.queues().finish(context.driver, position);
    context.device().check()
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Calls a host function, which must not call the driver.
pub(super) fn call_host(function: impl FnOnce()) {
    IN_CALLBACK.set(true);
    function();
    IN_CALLBACK.set(false);
}

/// Returns an error if a host function that a stream runs makes the call.
pub(super) fn not_in_callback() -> Answer {
    if IN_CALLBACK.get() { Err(Code::NOT_PERMITTED) } else { Ok(()) }
}

fn create(context: &Arc<Context>, stream: Out<u64>, flags: u32, priority: i32) -> Answer {
    if stream.is_null() || flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let handle = context.driver.insert(|handle| {
        let key = Key { context: context.handle, stream: handle, blocking: flags & NON_BLOCKING == 0 };
        let priority = priority.clamp(GREATEST_PRIORITY, 0);
        Object::Stream(Arc::new(Stream { context: context.handle, flags, priority, key }))
    });
    stream.set(handle)
}

/// Returns flags and priority. The null streams have zero for both.
fn described(context: &Context, stream: u64) -> Answer<(u32, i32)> {
    match stream {
        0 | LEGACY | PER_THREAD => Ok((0, 0)),
        handle => context.driver.stream(handle).map(|stream| (stream.flags, stream.priority)),
    }
}

exports! {
    /// Creates a stream.
    cuStreamCreate(stream: Out<u64>, flags: u32) working |context| create(context, stream, flags, 0);

    /// Creates a stream with a priority, which is clamped and changes nothing here.
    cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) working |context| {
        create(context, stream, flags, priority)
    };

    /// Destroys a stream after running its work.
    cuStreamDestroy_v2(stream: u64) driver |driver| {
        let made = driver.stream(stream)?;
        let mut queues = driver.queues();
        queues.finish_stream(driver, made.key);
        queues.remove(made.key);
        drop(queues);
        driver.remove(stream);
        Ok(())
    };

    /// Waits for the work of a stream.
    cuStreamSynchronize(stream: u64) working |context| {
        let key = key(context, stream)?;
        context.driver.queues().finish_stream(context.driver, key);
        context.device().check()
    };

    /// Queries a stream. Each call runs some of its work.
    cuStreamQuery(stream: u64) working |context| {
        let key = key(context, stream)?;
        let all = StreamPosition { stream: key, number: u64::MAX };
        let done = context.driver.queues().advance(context.driver, all);
        context.device().check()?;
        if done { Ok(()) } else { Err(Code::NOT_READY) }
    };

    /// Returns the flags of a stream.
    cuStreamGetFlags(stream: u64, flags: Out<u32>) working |context| flags.set(described(context, stream)?.0);

    /// Returns the priority of a stream.
    cuStreamGetPriority(stream: u64, priority: Out<i32>) working |context| {
        priority.set(described(context, stream)?.1)
    };

    /// Makes later work of a stream wait for the last record of an event.
    cuStreamWaitEvent(stream: u64, event: u64, flags: u32) working |context| {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        match context.driver.event(event)?.position() {
            Some(position) => put(context, stream, Command::Wait(position)).map(|_| ()),
            None => Ok(()),
        }
    };

    /// Calls a host function in stream order. The function must not call the driver.
    cuLaunchHostFunc(stream: u64, function: Option<extern "C" fn(*mut c_void)>, data: Host) working |context| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        put(context, stream, Command::Call(function, data)).map(|_| ())
    };
}
