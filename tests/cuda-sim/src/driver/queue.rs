//! Queues of pending work: everything that was put into streams and is not done.
//!
//! Work runs when something waits for it, or when its stream has much pending work, and no sooner. A program
//! that relies on work being done early therefore meets the latest order that the driver may choose.
//!
//! Invariant: each piece of work has a greater number than all work before it, and waits for smaller numbers
//! only. Running therefore ends.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::Arc;

use super::code::Code;
use super::context::Context;
use super::copy;
use super::entry::{Answer, Host};
use super::event::Event;
use super::launch::Grid;
use super::report;
use super::state::Driver;

/// Maximum number of pending pieces of work in a stream. A further one makes the oldest run.
const HELD: usize = 256;

/// Command for the device.
#[derive(Debug)]
pub(super) enum Command {
    /// Launch of a kernel.
    Launch(Box<Grid>),
    /// Write of host bytes that were copied at the call, since the caller may reuse their memory at once.
    Write { to: u64, bytes: Box<[u8]> },
    /// Copy from pinned memory to the device, which reads the memory when it runs.
    In { from: Host, to: u64, bytes: u64 },
    /// Copy from device memory to the host.
    Out { from: u64, to: Host, bytes: u64 },
    /// Copy within the device.
    Copy { from: u64, to: u64, bytes: u64 },
    /// Fill with the `width` low bytes of a pattern, `count` times.
    Fill { to: u64, pattern: u32, width: u8, count: u64 },
    /// Free of memory in stream order.
    Free(u64),
    /// Call of a host function with its argument.
    Call(extern "C" fn(*mut c_void), Host),
    /// Completion of an event.
    Record(Arc<Event>),
    /// Wait for work of another stream.
    Wait(StreamPosition),
}

/// Position of a piece of work in a stream, whether done or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamPosition {
    pub(super) stream: Key,
    pub(super) number: u64,
}

/// Key of a stream.
///
/// `stream` is the handle of a stream that a program created, or zero for the null stream of the context.
/// Each thread also has a per-thread null stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) context: u64,
    pub(super) stream: u64,
    /// True if the stream synchronizes with the null stream.
    pub(super) blocking: bool,
}

impl Key {
    fn is_null(self) -> bool {
        self.stream == 0
    }
}

/// All pending work of a process.
#[derive(Debug, Default)]
pub(super) struct Queues {
    given: u64,
    streams: BTreeMap<Key, VecDeque<(u64, Command)>>,
}

impl Queues {
    /// Appends work to a stream.
    pub(super) fn push(&mut self, context: &Context, key: Key, command: Command) -> StreamPosition {
        self.given += 1;
        let number = self.given;
        let queue = self.streams.entry(key).or_default();
        queue.push_back((number, command));
        if queue.len() > HELD {
            let oldest = queue.front().map_or(0, |(number, _)| *number);
            self.finish(context.driver, StreamPosition { stream: key, number: oldest });
        }
        StreamPosition { stream: key, number }
    }

    /// Returns true if a piece of work is done.
    pub(super) fn is_done(&self, position: StreamPosition) -> bool {
        self.front(position.stream).is_none_or(|front| front > position.number)
    }

    fn front(&self, key: Key) -> Option<u64> {
        self.streams.get(&key)?.front().map(|(number, _)| *number)
    }

    /// Runs a stream up to a piece of work, after the work of other streams that comes before.
    pub(super) fn finish(&mut self, driver: &'static Driver, until: StreamPosition) {
        while let Some(number) = self.front(until.stream).filter(|&number| number <= until.number) {
            self.finish_before(driver, StreamPosition { stream: until.stream, number });
            // The work that ran before may have failed and removed all pending work of the device.
            let command = self.streams.get_mut(&until.stream).and_then(VecDeque::pop_front);
            match command {
                None => return,
                Some((_, Command::Wait(position))) => self.finish(driver, position),
                Some((_, command)) => {
                    if let Err(code) = command.run(driver, until.stream) {
                        self.fail(driver, until.stream.context, code);
                    }
                }
            }
        }
    }

    /// Runs the work of other streams that the legacy null stream orders before this work.
    ///
    /// The null stream runs after all earlier work of blocking streams, and their later work runs after the
    /// null stream's.
    fn finish_before(&mut self, driver: &'static Driver, position: StreamPosition) {
        let key = position.stream;
        if !key.blocking {
            return;
        }
        let others = self.streams.keys().copied().filter(|other| {
            other.context == key.context
                && other.blocking
                && (key.is_null() || other.is_null())
                && *other != key
        });
        for other in others.collect::<Vec<_>>() {
            self.finish(driver, StreamPosition { stream: other, number: position.number });
        }
    }

    /// Runs one piece of work of a stream, and returns true if none is left up to a position.
    pub(super) fn advance(&mut self, driver: &'static Driver, until: StreamPosition) -> bool {
        if let Some(number) = self.front(until.stream).filter(|&number| number <= until.number) {
            self.finish(driver, StreamPosition { stream: until.stream, number });
        }
        self.is_done(until)
    }

    /// Runs all work of a stream.
    pub(super) fn finish_stream(&mut self, driver: &'static Driver, stream: Key) {
        self.finish(driver, StreamPosition { stream, number: u64::MAX });
    }

    /// Runs all work of a context.
    pub(super) fn finish_context(&mut self, context: &Context) {
        let keys = self.streams.keys().copied().filter(|key| key.context == context.handle);
        for key in keys.collect::<Vec<_>>() {
            self.finish_stream(context.driver, key);
        }
    }

    /// Drops the work of a context, and returns the number of pieces dropped.
    pub(super) fn drop_context(&mut self, context: u64) -> usize {
        let left =
            self.streams.iter().filter(|(key, _)| key.context == context).map(|(_, queue)| queue.len()).sum();
        self.streams.retain(|key, _| key.context != context);
        left
    }

    /// Removes an empty stream.
    pub(super) fn remove(&mut self, stream: Key) {
        self.streams.remove(&stream);
    }

    /// Marks a device as failed, and drops all its pending work.
    fn fail(&mut self, driver: &'static Driver, context: u64, code: Code) {
        if let Ok(context) = driver.context(context) {
            context.device().fail(code);
            let number = context.number;
            let on_device =
                |key: &Key| driver.context(key.context).is_ok_and(|context| context.number == number);
            self.streams.retain(|key, _| !on_device(key));
        }
    }
}

impl Command {
    fn run(self, driver: &'static Driver, stream: Key) -> Answer {
        match self {
            Command::Launch(grid) => grid.run(driver),
            Command::Write { to, bytes } => late(copy::write(driver, to, &bytes)),
            Command::In { from, to, bytes } => late(copy::read_host(driver, from, to, bytes)),
            Command::Out { from, to, bytes } => late(copy::write_host(driver, from, to, bytes)),
            Command::Copy { from, to, bytes } => late(copy::within(driver, from, to, bytes)),
            Command::Fill { to, pattern, width, count } => {
                late(copy::fill(driver, to, pattern, width, count))
            }
            Command::Free(address) => {
                driver.end(address);
                Ok(())
            }
            Command::Call(function, data) => {
                super::stream::call_host(|| function(data.0.cast()));
                Ok(())
            }
            Command::Record(event) => {
                event.happen();
                Ok(())
            }
            Command::Wait(position) => unreachable!("{stream:?} waits for {position:?} before it runs work"),
        }
    }
}

/// Reports work that was valid at the call and no longer is when it runs: an access to freed memory.
fn late(answer: Answer) -> Answer {
    answer.map_err(|_| {
        report::say("what a copy or fill needs was freed before its turn");
        Code::ILLEGAL_ADDRESS
    })
}
