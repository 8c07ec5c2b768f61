//! Events: positions in streams, with the time at which the streams reached them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::code::Code;
use super::context::Context;
use super::entry::{Answer, Out, exports};
use super::queue::{Command, StreamPosition};
use super::state::Object;
use super::stream;

/// Mask of `CU_EVENT_BLOCKING_SYNC`, `CU_EVENT_DISABLE_TIMING` and `CU_EVENT_INTERPROCESS`.
const FLAGS: u32 = 7;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

/// An event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) context: u64,
    is_timed: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Place of the last record.
    position: Option<StreamPosition>,
    /// Time of the last completion.
    time: Option<Instant>,
}

impl Event {
    /// Returns the position of the last record.
    pub(super) fn position(&self) -> Option<StreamPosition> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).position
    }

    /// Completes the event at the current time.
    pub(super) fn happen(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).time = Some(Instant::now());
    }

    fn time(&self) -> Option<Instant> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).time
    }
}

/// Returns true if an event has completed. An event that was never recorded counts as completed.
fn is_over(context: &Context, event: &Event) -> bool {
    event.position().is_none_or(|position| context.driver.queues().is_done(position))
}

fn elapsed(context: &Context, milliseconds: Out<f32>, start: u64, end: u64) -> Answer {
    let (start, end) = (context.driver.event(start)?, context.driver.event(end)?);
    if !start.is_timed || !end.is_timed || start.position().is_none() || end.position().is_none() {
        return Err(Code::INVALID_HANDLE);
    }
    if !is_over(context, &start) || !is_over(context, &end) {
        return Err(Code::NOT_READY);
    }
    let (Some(start), Some(end)) = (start.time(), end.time()) else { return Err(Code::NOT_READY) };
    let forth = end.saturating_duration_since(start).as_secs_f64();
    let back = start.saturating_duration_since(end).as_secs_f64();
    milliseconds.set(((forth - back) * 1e3) as f32)
}

exports! {
    /// Creates an event.
    cuEventCreate(event: Out<u64>, flags: u32) working |context| {
        if event.is_null() || flags & !FLAGS != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
            return Err(Code::INVALID_VALUE);
        }
        let handle = context.driver.insert(|_| {
            let is_timed = flags & DISABLE_TIMING == 0;
            Object::Event(Arc::new(Event { context: context.handle, is_timed, state: Mutex::default() }))
        });
        event.set(handle)
    };

    /// Destroys an event.
    cuEventDestroy_v2(event: u64) driver |driver| {
        driver.event(event)?;
        driver.remove(event);
        Ok(())
    };

    /// Records an event, which completes after all earlier work of a stream.
    cuEventRecord(event: u64, stream: u64) working |context| {
        let event = context.driver.event(event)?;
        if event.context != context.handle {
            return Err(Code::INVALID_HANDLE);
        }
        let position = stream::put(context, stream, Command::Record(Arc::clone(&event)))?;
        event.state.lock().unwrap_or_else(PoisonError::into_inner).position = Some(position);
        Ok(())
    };

    /// Queries an event. Each call runs some of the work before the event.
    cuEventQuery(event: u64) working |context| {
        let position = context.driver.event(event)?.position();
        let done = position.is_none_or(|position| context.driver.queues().advance(context.driver, position));
        context.device().check()?;
        if done { Ok(()) } else { Err(Code::NOT_READY) }
    };

    /// Waits for an event.
    cuEventSynchronize(event: u64) working |context| {
        if let Some(position) = context.driver.event(event)?.position() {
            context.driver.queues().finish(context.driver, position);
        }
        context.device().check()
    };

    /// Returns the time between two events, in milliseconds.
    cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) working |context| {
        elapsed(context, milliseconds, start, end)
    };

    /// Returns the time between two events, under the name of CUDA 13.
    cuEventElapsedTime_v2(milliseconds: Out<f32>, start: u64, end: u64) working |context| {
        elapsed(context, milliseconds, start, end)
    };
}
