//! Devices: where tensors live and plans run.
//!
//! Invariant: everything above this module speaks to a device through `Backend`; nothing above it knows
//! which one it is. A backend knows plans' launches, but neither tensors nor programs.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fusion_compiler::ir::plan::{Limits, Target};

use crate::error::{Error, Result};
use crate::kernel::{Launch, ScalarValue};

pub(crate) mod cpu;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
mod cuda;

/// What a device can do, as far as launches and the choice of variants ask.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Most buffers that a kernel can bind.
    pub buffers_max: u32,
    /// Most bytes that a kernel can see of one buffer.
    pub binding_bytes_max: u64,
    /// Most bytes of one buffer.
    pub buffer_bytes_max: u64,
    /// Most bytes of memory that the threads of a block share.
    pub block_shared_bytes_max: u32,
    /// Threads of each subgroup, if kernels can use those and all are of one size; else 0.
    pub subgroup_size: u32,
    /// Most blocks of a cluster, which reach each other's shared memory; 1 where there are no clusters.
    pub cluster_blocks_max: u32,
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

    /// Whether it is a GPU emulated by the processor, which `Device::best` passes over.
    fn is_software(&self) -> bool {
        false
    }

    /// Memory of at least `bytes`, rounded up to a multiple of 16 (at least 16), with unspecified contents. The first byte is aligned
    /// as every binding of the device wants. Freed memory is kept warm for the next request.
    fn allocate(&self, bytes: usize) -> Result<Memory>;

    /// A buffer of the caller's as memory, without a copy.
    #[cfg(feature = "wgpu")]
    fn adopt(&self, _buffer: ::wgpu::Buffer) -> Result<Memory> {
        Err(Error::Unsupported { device: self.name().into(), what: "a buffer of wgpu".into() })
    }

    /// Copies host bytes into memory, up to three bytes behind which may change.
    fn write(&self, memory: &Memory, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Waits for all work and copies memory to the host.
    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Memory of its own with as many bytes, the first of which are those of another.
    fn duplicate(&self, (memory, offset): (&Memory, usize), bytes: usize) -> Result<Memory> {
        let fresh = self.allocate(bytes)?;
        if bytes > 0 {
            self.copy((memory, offset), (&fresh, 0), bytes)?;
        }
        Ok(fresh)
    }

    /// Copies within the device, between different allocations.
    fn copy(&self, from: (&Memory, usize), to: (&Memory, usize), bytes: usize) -> Result<()>;

    /// Runs one kernel. Empty spaces never get here.
    fn launch(&self, launch: &Launch, call: &Call<'_>) -> Result<()>;

    /// Waits for all work.
    fn synchronize(&self) -> Result<()>;

    /// How long the device takes for what `work`, called once, starts on it.
    fn time(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
        self.synchronize()?;
        let start = Instant::now();
        work()?;
        self.synchronize()?;
        Ok(start.elapsed())
    }
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

impl Memory {
    /// Whether these are one allocation, or one buffer of the caller's that was given twice.
    pub(crate) fn is_same(&self, other: &Memory) -> bool {
        match (self, other) {
            #[cfg(feature = "wgpu")]
            (Memory::Wgpu(a), Memory::Wgpu(b)) => a.is_same(b),
            (a, b) => std::ptr::eq(a, b),
        }
    }

    /// Whether it is the caller's, who sees what is written to it, and what is not.
    pub(crate) fn is_external(&self) -> bool {
        match self {
            Memory::Cpu(_) => false,
            #[cfg(feature = "wgpu")]
            Memory::Wgpu(memory) => memory.is_external(),
            #[cfg(feature = "cuda")]
            Memory::Cuda(_) => false,
        }
    }
}

/// A device that tensors live on. Cloning is cheap and gives the same device.
///
/// A process has one device of each kind (of each ordinal, for CUDA): opening it again gives the same one.
#[derive(Clone)]
pub struct Device(pub(crate) Arc<dyn Backend>);

impl Device {
    /// The fastest device there is: CUDA, else a hardware `wgpu` adapter, else the CPU.
    pub fn best() -> Device {
        static BEST: OnceLock<Device> = OnceLock::new();
        let hardware = |device: &Device| !device.0.is_software();
        let open = || {
            Device::cuda(0).ok().or_else(|| Device::wgpu().ok().filter(hardware)).unwrap_or_else(Device::cpu)
        };
        BEST.get_or_init(open).clone()
    }

    /// The processor. Always there.
    ///
    /// Kernels of many elements run on the thread that calls them and on those of `rayon`'s global pool that have nothing else to
    /// do: a call waits for no other work of the pool, and does none.
    pub fn cpu() -> Device {
        static CPU: OnceLock<Device> = OnceLock::new();
        CPU.get_or_init(cpu::open).clone()
    }

    /// The GPU through Vulkan, Metal or DirectX 12; a software renderer if there is no other.
    ///
    /// # Errors
    /// `Error::NoDevice` if there is no adapter, or the feature `wgpu` is off.
    pub fn wgpu() -> Result<Device> {
        #[cfg(feature = "wgpu")]
        {
            static WGPU: OnceLock<Result<Device>> = OnceLock::new();
            WGPU.get_or_init(wgpu::open).clone()
        }
        #[cfg(not(feature = "wgpu"))]
        Err(no_feature("wgpu", "wgpu"))
    }

    /// The device of an application that uses `wgpu` itself. Its error callbacks stay the application's.
    ///
    /// # Errors
    /// If the device is lost, or has no memory for what every device keeps.
    #[cfg(feature = "wgpu")]
    pub fn from_wgpu(device: ::wgpu::Device, queue: ::wgpu::Queue) -> Result<Device> {
        wgpu::from_wgpu(device, queue)
    }

    /// The NVIDIA GPU of this number, through CUDA.
    ///
    /// # Errors
    /// `Error::NoDevice` if there is no such GPU, the driver does not start, or the feature `cuda` is off. Where no
    /// `libcuda.so.1` of a driver is installed there is no error either: a program built with the feature is linked to
    /// it, and the loader does not start it without. The README says what to do then.
    pub fn cuda(ordinal: usize) -> Result<Device> {
        #[cfg(feature = "cuda")]
        {
            use std::collections::BTreeMap;
            use std::sync::{Mutex, PoisonError};

            static CUDA: Mutex<BTreeMap<usize, Device>> = Mutex::new(BTreeMap::new());
            let mut opened = CUDA.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(device) = opened.get(&ordinal) {
                return Ok(device.clone());
            }
            let device = cuda::open(ordinal)?;
            opened.insert(ordinal, device.clone());
            Ok(device)
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = ordinal;
            Err(no_feature("CUDA", "cuda"))
        }
    }

    /// For people: what it is, and by which maker.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// What it can do.
    pub fn facts(&self) -> &DeviceFacts {
        self.0.facts()
    }

    /// What variants of kernels ask of it.
    pub(crate) fn limits(&self) -> Limits {
        let facts = self.facts();
        Limits {
            buffers: facts.buffers_max,
            binding_bytes: facts.binding_bytes_max,
            shared_bytes: facts.block_shared_bytes_max.into(),
            subgroup: facts.subgroup_size,
            cluster: facts.cluster_blocks_max,
        }
    }

    /// Waits until everything started on it is done.
    ///
    /// # Errors
    /// Whatever went wrong there since the last wait.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Waits for what `work` starts on the device, and says how long that took: on CUDA by the GPU's own events, else by
    /// the clock of the host. What other threads start on the device meanwhile counts too.
    ///
    /// # Errors
    /// Those of `work`, and whatever went wrong on the device.
    pub fn time(&self, work: impl FnOnce() -> Result<()>) -> Result<Duration> {
        let mut work = Some(work);
        self.0.time(&mut || work.take().map_or(Ok(()), |work| work()))
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl Hash for Device {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of a device kind that this build leaves out.
#[cfg_attr(
    all(feature = "wgpu", feature = "cuda"),
    expect(dead_code, reason = "every kind is in this build")
)]
fn no_feature(kind: &'static str, feature: &str) -> Error {
    Error::NoDevice { kind, why: format!("the feature `{feature}` of the crate is off") }
}
