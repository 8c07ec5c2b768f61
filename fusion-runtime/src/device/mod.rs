//! Devices: where tensors live and plans run.
//!
//! Invariant: everything above this module speaks to a device through `Backend`; nothing above it knows
//! which one it is. A backend knows plans' launches, but neither tensors nor programs.

use std::fmt;
use std::sync::Arc;

use fusion_compiler::ir::plan::Target;

use crate::error::Result;
use crate::kernel::{Launch, ScalarValue};

/// What a device can do, as far as launches and the choice of variants ask.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    /// Threads that run in lockstep; 1 on the CPU.
    pub warp_size: u32,
    /// Most threads of a block.
    pub block_threads_max: u32,
    /// Threads that one multiprocessor keeps resident.
    pub multiprocessor_threads_max: u32,
    /// Multiprocessors, or cores.
    pub multiprocessors: u32,
    /// Most blocks of a launch, along one dimension.
    pub grid_max: u32,
    /// Most bytes that a kernel can see of one buffer.
    pub binding_bytes_max: u64,
    /// Most bytes of one buffer.
    pub buffer_bytes_max: u64,
}

/// Part of the memory of a tensor, given to a launch.
#[derive(Clone, Copy)]
pub(crate) struct Region<'a> {
    /// The allocation.
    pub(crate) memory: &'a Memory,
    /// First byte; a multiple of 16.
    pub(crate) offset: usize,
    /// Elements.
    pub(crate) len: usize,
}

/// The arguments of a launch.
pub(crate) struct Call<'a> {
    /// Extents, by symbol.
    pub(crate) symbols: &'a [i64],
    /// By position in the plan's parameters; nothing for tensors.
    pub(crate) scalars: &'a [Option<ScalarValue>],
    /// In the order of the launch's buffers.
    pub(crate) buffers: &'a [Region<'a>],
}

/// A kind of device.
///
/// Calls are ordered: each sees what those before it wrote. Those that only write may return before the work
/// is done; an error that comes later surfaces at the next call.
pub(crate) trait Backend: Send + Sync + fmt::Debug {
    /// The programs it runs.
    fn target(&self) -> Target;

    /// For people.
    fn name(&self) -> &str;

    /// What it can do.
    fn facts(&self) -> &DeviceFacts;

    /// Memory of at least `bytes`, rounded up to a multiple of 16 (at least 16), with unspecified contents. The first byte is aligned
    /// as every binding of the device wants. Freed memory is kept warm for the next request.
    fn allocate(&self, bytes: usize) -> Result<Memory>;

    /// Copies host bytes into memory.
    fn write(&self, memory: &Memory, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Waits for all work and copies memory to the host.
    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Copies within the device, between different allocations.
    fn copy(&self, from: (&Memory, usize), to: (&Memory, usize), bytes: usize) -> Result<()>;

    /// Runs one kernel. Empty spaces never get here.
    fn launch(&self, launch: &Launch, call: &Call<'_>) -> Result<()>;

    /// Waits for all work.
    fn synchronize(&self) -> Result<()>;
}

/// An allocation; dropping it gives it back to its device's pool.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Host memory.
    Cpu(cpu::CpuMemory),
    /// A `wgpu` buffer.
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::WgpuMemory),
    /// CUDA device memory.
    #[cfg(feature = "cuda")]
    Cuda(cuda::CudaMemory),
}

/// A device that tensors live on. Cloning is cheap and gives the same device.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Arc<dyn Backend>);
