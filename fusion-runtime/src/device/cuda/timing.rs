//! Timing by events of the device's stream: the time of the GPU, independent of the host.

use std::ptr::null_mut;
use std::time::Duration;

use super::Shared;
use super::driver::{
    CUevent, DriverError, check, cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime, cuEventRecord,
    cuEventSynchronize,
};
use crate::error::Result;

/// An event that records the time.
struct Timer(CUevent);

impl Timer {
    fn new() -> Result<Timer, DriverError> {
        let mut event: CUevent = null_mut();
        // SAFETY: the pointer refers to a local variable.
        check(unsafe { cuEventCreate(&raw mut event, 0) }).map(|()| Timer(event))
    }

    fn record(&self, shared: &Shared) -> Result<(), DriverError> {
        // SAFETY: the event and the stream are alive and belong to the current context.
        check(unsafe { cuEventRecord(self.0, shared.stream()) })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the event is alive and has no other owner. The driver keeps it until the stream has passed
        // it.
        unsafe { cuEventDestroy_v2(self.0) };
    }
}

/// Measures the time from the start of `work` on the stream until its end.
pub(super) fn time(shared: &Shared, work: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
    let _current = shared.enter()?;
    let timer = || shared.told("cuEventCreate", Timer::new());
    let (start, end) = (timer()?, timer()?);
    shared.told("cuEventRecord", start.record(shared))?;
    work()?;
    shared.told("cuEventRecord", end.record(shared))?;
    // SAFETY: the event is alive and belongs to the current context.
    shared.told("cuEventSynchronize", check(unsafe { cuEventSynchronize(end.0) }))?;
    let mut milliseconds = 0.0;
    // SAFETY: the pointer refers to a local variable, and both events have completed.
    let answer = check(unsafe { cuEventElapsedTime(&raw mut milliseconds, start.0, end.0) });
    shared.told("cuEventElapsedTime", answer)?;
    Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
}
