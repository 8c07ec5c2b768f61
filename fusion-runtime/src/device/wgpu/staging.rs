//! Staging buffers: host-visible memory for uploads and read-backs.
//!
//! Invariant: buffers in `idle` are mapped if they are for uploads, and unmapped if they are for read-backs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::error::Result;

use super::fault::{Gpu, lock};

/// Maximum bytes of one staging buffer. Larger transfers use several.
pub(super) const STAGE_BYTES_MAX: usize = 16 << 20;
/// Minimum bytes of one staging buffer.
const STAGE_BYTES_MIN: u64 = 4 << 10;
/// Maximum bytes of all staging buffers of one direction.
const STAGED_BYTES_MAX: u64 = 4 * STAGE_BYTES_MAX as u64;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// From the host to the device.
    Upload,
    /// From the device to the host.
    ReadBack,
}

/// The staging buffers of one direction.
#[derive(Debug)]
pub(super) struct Stages {
    gpu: Gpu,
    direction: Transfer,
    idle: Arc<Mutex<Vec<wgpu::Buffer>>>,
    /// Bytes of all buffers made, without freed upload buffers.
    bytes: u64,
    /// Number of buffers made so far.
    pub(super) made: AtomicU64,
}

impl Stages {
    pub(super) fn new(gpu: Gpu, direction: Transfer) -> Stages {
        Stages { gpu, direction, idle: Arc::default(), bytes: 0, made: AtomicU64::new(0) }
    }

    /// Returns a buffer of at least `bytes` bytes (at most `STAGE_BYTES_MAX`), or `None` if the caller must
    /// wait for an upload.
    ///
    /// Read-backs never wait: the thread that uses the other buffers may be waiting for this one.
    pub(super) fn take(&mut self, bytes: usize) -> Result<Option<wgpu::Buffer>> {
        let size = (bytes as u64).next_power_of_two().max(STAGE_BYTES_MIN);
        {
            let mut idle = lock(&self.idle);
            if let Some(i) = idle.iter().rposition(|buffer| buffer.size() == size) {
                return Ok(Some(idle.swap_remove(i)));
            }
            while self.direction == Transfer::Upload && self.bytes + size > STAGED_BYTES_MAX {
                let Some(other) = idle.pop() else { return Ok(None) };
                self.bytes -= other.size();
            }
        }
        self.make(size).map(Some)
    }

    fn make(&mut self, size: u64) -> Result<wgpu::Buffer> {
        let (usage, mapped_at_creation) = match self.direction {
            Transfer::Upload => (wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC, true),
            Transfer::ReadBack => (wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST, false),
        };
        let label = Some("fusion staging");
        let buffer =
            self.gpu.make_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation })?;
        self.bytes += size;
        self.made.fetch_add(1, Relaxed);
        Ok(buffer)
    }

    /// Returns the list that receives a buffer when the device and the host no longer use it.
    pub(super) fn idle(&self) -> Idle {
        Idle(Arc::clone(&self.idle))
    }
}

/// The idle buffers of one direction.
#[derive(Clone, Debug)]
pub(super) struct Idle(Arc<Mutex<Vec<wgpu::Buffer>>>);

impl Idle {
    /// Keeps the buffer for reuse, unless too many are idle already.
    pub(super) fn give_back(&self, stage: wgpu::Buffer) {
        let mut idle = lock(&self.0);
        if idle.iter().map(wgpu::Buffer::size).sum::<u64>() + stage.size() <= STAGED_BYTES_MAX {
            idle.push(stage);
        }
    }
}

/// Copies host bytes into a mapped buffer and unmaps it.
pub(super) fn fill(gpu: &Gpu, stage: &wgpu::Buffer, bytes: &[u8]) -> Result<()> {
    let padded = bytes.len().next_multiple_of(4);
    {
        let mapped = stage.slice(..padded as u64).get_mapped_range_mut();
        let mut view = mapped.map_err(|error| gpu.poison(gpu.failed("get_mapped_range", &error)))?;
        view.slice(..bytes.len()).copy_from_slice(bytes);
        view.slice(bytes.len()..).copy_from_slice(&[0; 4][..padded - bytes.len()]);
    }
    stage.unmap();
    Ok(())
}

/// Copies the bytes of a mapped buffer from `start` on to the host and unmaps it.
pub(super) fn drain(gpu: &Gpu, stage: &wgpu::Buffer, start: usize, bytes: &mut [u8]) -> Result<()> {
    {
        let end = (start + bytes.len()).next_multiple_of(4);
        let mapped = stage.slice(..end as u64).get_mapped_range();
        let view = mapped.map_err(|error| gpu.poison(gpu.failed("get_mapped_range", &error)))?;
        bytes.copy_from_slice(&view[start..][..bytes.len()]);
    }
    stage.unmap();
    Ok(())
}
