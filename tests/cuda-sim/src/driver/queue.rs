//! The order of work: what was put into streams and is not done.
//!
//! Work runs when something waits for it, or when a stream holds much of it, and no sooner: a program that relies on
//! work being done early meets the latest order that the driver may choose. Invariant: a piece of work has a number
//! that is greater than those of all before it, and waits only for smaller ones; so running ends.

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

/// Pieces of work that a stream holds before the oldest one runs.
const HELD: usize = 256;

/// Something to do on the device.
#[derive(Debug)]
pub(super) enum Work {
    /// A kernel.
    Launch(Box<Grid>),
    /// Bytes of the host that were set aside, since their place may be used again at once.
    Write { to: u64, bytes: Box<[u8]> },
    /// Pinned memory to the device, read when its turn comes.
    In { from: Host, to: u64, bytes: u64 },
    /// Device memory to the host.
    Out { from: u64, to: Host, bytes: u64 },
    /// Within the device.
    Copy { from: u64, to: u64, bytes: u64 },
    /// `count` times the `width` low bytes of a pattern.
    Fill { to: u64, pattern: u32, width: u8, count: u64 },
    /// The end of memory, which was asked for.
    Free(u64),
    /// A function of the host.
    Call(extern "C" fn(*mut c_void), Host),
    /// An event happens.
    Record(Arc<Event>),
    /// Waits for work of another stream.
    Wait(Place),
}

/// A piece of work, done or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) stream: Key,
    pub(super) number: u64,
}

/// Which stream: those that a program makes by their handles, and of each context the one for null, of which each
/// thread may have its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) context: u64,
    pub(super) stream: u64,
    /// Whether it waits for the stream for null, and that one for it.
    pub(super) blocking: bool,
}

impl Key {
    fn is_null(self) -> bool {
        self.stream == 0
    }
}

/// All work of a process that is not done.
#[derive(Debug, Default)]
pub(super) struct Queues {
    given: u64,
    streams: BTreeMap<Key, VecDeque<(u64, Work)>>,
}

impl Queues {
    /// Puts work at the end of a stream.
    pub(super) fn push(&mut self, context: &Context, key: Key, work: Work) -> Place {
        self.given += 1;
        let number = self.given;
        let queue = self.streams.entry(key).or_default();
        queue.push_back((number, work));
        if queue.len() > HELD {
            let oldest = queue.front().map_or(0, |(number, _)| *number);
            self.finish(context.driver, Place { stream: key, number: oldest });
        }
        Place { stream: key, number }
    }

    /// Whether a piece of work is done.
    pub(super) fn is_done(&self, place: Place) -> bool {
        self.front(place.stream).is_none_or(|front| front > place.number)
    }

    fn front(&self, key: Key) -> Option<u64> {
        self.streams.get(&key)?.front().map(|(number, _)| *number)
    }

    /// Runs a stream up to a piece of work, and what that has to come after.
    pub(super) fn finish(&mut self, driver: &'static Driver, until: Place) {
        while let Some(number) = self.front(until.stream).filter(|&number| number <= until.number) {
            self.finish_before(driver, Place { stream: until.stream, number });
            // What came before may have failed, and all else gone with it.
            let work = self.streams.get_mut(&until.stream).and_then(VecDeque::pop_front);
            match work {
                None => return,
                Some((_, Work::Wait(place))) => self.finish(driver, place),
                Some((_, work)) => {
                    if let Err(code) = work.run(driver, until.stream) {
                        self.fail(driver, until.stream.context, code);
                    }
                }
            }
        }
    }

    /// The stream for null comes after everything put into others before, and they after it.
    fn finish_before(&mut self, driver: &'static Driver, place: Place) {
        let key = place.stream;
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
            self.finish(driver, Place { stream: other, number: place.number });
        }
    }

    /// Runs one piece of work of a stream, and says whether there is none left up to a place.
    pub(super) fn advance(&mut self, driver: &'static Driver, until: Place) -> bool {
        if let Some(number) = self.front(until.stream).filter(|&number| number <= until.number) {
            self.finish(driver, Place { stream: until.stream, number });
        }
        self.is_done(until)
    }

    /// Runs everything of a stream.
    pub(super) fn finish_stream(&mut self, driver: &'static Driver, stream: Key) {
        self.finish(driver, Place { stream, number: u64::MAX });
    }

    /// Runs everything of a context.
    pub(super) fn finish_context(&mut self, context: &Context) {
        let keys = self.streams.keys().copied().filter(|key| key.context == context.handle);
        for key in keys.collect::<Vec<_>>() {
            self.finish_stream(context.driver, key);
        }
    }

    /// Forgets the work of a context, and says how much that was.
    pub(super) fn drop_context(&mut self, context: u64) -> usize {
        let left =
            self.streams.iter().filter(|(key, _)| key.context == context).map(|(_, queue)| queue.len()).sum();
        self.streams.retain(|key, _| key.context != context);
        left
    }

    /// Forgets an empty stream.
    pub(super) fn remove(&mut self, stream: Key) {
        self.streams.remove(&stream);
    }

    /// Ends all work of a device.
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

impl Work {
    fn run(self, driver: &'static Driver, stream: Key) -> Answer {
        match self {
            Work::Launch(grid) => grid.run(driver),
            Work::Write { to, bytes } => late(copy::write(driver, to, &bytes)),
            Work::In { from, to, bytes } => late(copy::read_host(driver, from, to, bytes)),
            Work::Out { from, to, bytes } => late(copy::write_host(driver, from, to, bytes)),
            Work::Copy { from, to, bytes } => late(copy::within(driver, from, to, bytes)),
            Work::Fill { to, pattern, width, count } => late(copy::fill(driver, to, pattern, width, count)),
            Work::Free(address) => {
                driver.end(address);
                Ok(())
            }
            Work::Call(function, data) => {
                super::stream::call_host(|| function(data.0.cast()));
                Ok(())
            }
            Work::Record(event) => {
                event.happen();
                Ok(())
            }
            Work::Wait(place) => unreachable!("{stream:?} waits for {place:?} before it runs work"),
        }
    }
}

/// What was right when it was asked for, and no more when its turn came, is an access to freed memory.
fn late(answer: Answer) -> Answer {
    answer.map_err(|_| {
        report::say("what a copy or fill needs was freed before its turn");
        Code::ILLEGAL_ADDRESS
    })
}
