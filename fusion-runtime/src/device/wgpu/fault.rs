//! Failures on a wgpu device, converted to errors of this crate.
//!
//! Invariant: every error of wgpu is caught, since an uncaught one is a panic. Every fallible call runs in
//! `Gpu::caught`. A failure that leaves memory with unknown contents poisons the device, and later calls
//! report it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::{Error, Result};

/// A device, its queue, and the first failure on it.
#[derive(Clone, Debug)]
pub(super) struct Gpu {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    /// Name of the device, for people.
    pub(super) name: Arc<str>,
    fault: Arc<OnceLock<Error>>,
}

impl Gpu {
    /// Wraps a device that this crate opened, and sets its callbacks.
    pub(super) fn owned(device: wgpu::Device, queue: wgpu::Queue) -> Gpu {
        let gpu = Gpu::shared(device, queue);
        // The device owns its callbacks, so the callbacks must not own the device.
        let (fault, name) = (Arc::clone(&gpu.fault), Arc::clone(&gpu.name));
        gpu.device.set_device_lost_callback(move |_, why| {
            fault.get_or_init(|| Error::DeviceLost { device: name.to_string(), why });
        });
        let (fault, name) = (Arc::clone(&gpu.fault), Arc::clone(&gpu.name));
        gpu.device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            fault.get_or_init(|| useless(driver(&name, "wgpu", &error)));
        }));
        gpu
    }

    /// Wraps a device of the application, and leaves its callbacks in place.
    pub(super) fn shared(device: wgpu::Device, queue: wgpu::Queue) -> Gpu {
        let info = device.adapter_info();
        let name = format!("wgpu ({}, {})", info.name, info.backend);
        Gpu { device, queue, name: name.into(), fault: Arc::default() }
    }

    /// Returns the failure that made the device unusable, if there is one.
    pub(super) fn check(&self) -> Result<()> {
        match self.fault.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Marks the device as unusable. Later calls return the error of a lost device, which no retry repairs.
    pub(super) fn poison(&self, error: Error) -> Error {
        self.fault.get_or_init(|| useless(error)).clone()
    }

    /// Runs `work` and returns the first error that wgpu reports for it on this thread.
    pub(super) fn caught<T>(&self, work: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let value = work();
        let errors = [validation, internal, memory].map(|scope| pollster::block_on(scope.pop()));
        match errors.into_iter().flatten().next() {
            None => Ok(value),
            Some(error) => Err(error),
        }
    }

    /// Makes a buffer. Lack of memory is an error of the caller and leaves the device intact.
    pub(super) fn make_buffer(&self, descriptor: &wgpu::BufferDescriptor<'_>) -> Result<wgpu::Buffer> {
        self.check()?;
        self.caught(|| self.device.create_buffer(descriptor)).map_err(|error| match error {
            wgpu::Error::OutOfMemory { .. } => self.out_of_memory(descriptor.size as usize, None),
            wgpu::Error::Validation { .. } | wgpu::Error::Internal { .. } => {
                self.failed("create_buffer", &error)
            }
        })
    }

    /// Waits for a submission, or for all. wgpu panics if the device is lost in the meantime, so the call is
    /// guarded.
    pub(super) fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<()> {
        let poll = wgpu::PollType::Wait { submission_index: submission, timeout: None };
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(poll))) {
            Ok(Ok(_)) => self.check(),
            Ok(Err(error)) => Err(self.poison(self.failed("poll", &error))),
            Err(_) => Err(self.poison(self.lost("its driver failed while work was waited for"))),
        }
    }

    pub(super) fn lost(&self, why: &str) -> Error {
        Error::DeviceLost { device: self.name.to_string(), why: why.into() }
    }

    pub(super) fn out_of_memory(&self, bytes: usize, tensor_bytes_max: Option<u64>) -> Error {
        Error::OutOfMemory { bytes: Some(bytes), device: self.name.to_string(), tensor_bytes_max }
    }

    pub(super) fn unsupported(&self, what: String) -> Error {
        Error::Unsupported { device: self.name.to_string(), what }
    }

    /// Returns the error for a failed call of wgpu. On a lost device it is the loss, which caused the
    /// failure.
    pub(super) fn failed(&self, call: &'static str, why: &impl fmt::Display) -> Error {
        if self.is_lost() {
            return self.lost("it was destroyed, or its driver failed");
        }
        driver(&self.name, call, why)
    }

    /// Returns true if the device is lost, even if the application has its own callback. wgpu reports every
    /// failure except this one: a buffer that is missing without an error means a lost device.
    pub(super) fn is_lost(&self) -> bool {
        let probe = wgpu::BufferDescriptor {
            label: Some("fusion probe"),
            size: wgpu::COPY_BUFFER_ALIGNMENT,
            usage: wgpu::BufferUsages::MAP_WRITE,
            mapped_at_creation: true,
        };
        let buffer = self.caught(|| self.device.create_buffer(&probe));
        buffer.is_ok_and(|buffer| buffer.get_mapped_range_mut(..).is_err())
    }
}

fn driver(device: &str, call: &'static str, why: &impl fmt::Display) -> Error {
    Error::Driver { device: device.into(), call, why: why.to_string() }
}

/// Converts the error of a failed call to the error of a lost device.
fn useless(error: Error) -> Error {
    match error {
        Error::Driver { device, call, why } => {
            Error::DeviceLost { device, why: format!("{call} failed: {why}") }
        }
        error => error,
    }
}

/// Locks a mutex, even after a panic of another thread. The guarded values are valid between any two
/// statements.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
