//! Devices: tensors live on them, and plans run on them.
//!
//! Invariant: the layers above use a device through `Backend` only, and never ask for its kind. A backend
//! knows the launches of a plan, but neither tensors nor programs.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fusion_compiler::ir::plan::{Limits, Target};

use crate::error::{Error, Result};
use crate::kernel::{Launch, ScalarValue};
pub use crate::launch::DeviceFacts;
use crate::launch::LaunchConfig;

pub(crate) mod cpu;
#[cfg(all(test, feature = "cuda"))]
pub(crate) mod ends;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cust")]
pub(crate) use self::cuda::of_application;

/// A part of a tensor's memory, bound to a launch.
#[derive(Clone, Copy)]
pub(crate) struct Region<'a> {
    /// The allocation.
    pub(crate) memory: &'a Memory,
    /// Offset of the first element, in bytes: a multiple of 16.
    pub(crate) offset: usize,
    /// Number of elements.
    pub(crate) len: usize,
}

/// The arguments of a launch.
pub(crate) struct Call<'a> {
    /// Extents, by symbol.
    pub(crate) symbols: &'a [i64],
    /// Scalars, by position in the plan's parameters; `None` for tensors.
    pub(crate) scalars: &'a [Option<ScalarValue>],
    /// Buffers, in the order of the launch's buffers.
    pub(crate) buffers: &'a [Region<'a>],
    /// Launches of the variant whose kernels compute blocks of a contraction's operands.
    pub(crate) producers: &'a [Producer<'a>],
}

/// A launch that does not run by itself, with its number in the variant.
pub(crate) struct Producer<'a> {
    pub(crate) number: usize,
    pub(crate) launch: &'a Launch,
    /// Buffers, in the order of that launch's buffers.
    pub(crate) buffers: Vec<Region<'a>>,
}

/// A kind of device.
///
/// Calls are ordered: each sees the writes of the calls before it. A call that only writes may return before
/// its work is done. A later failure of that work surfaces at the next call.
pub(crate) trait Backend: Send + Sync + fmt::Debug {
    /// Returns the target whose programs the device runs.
    fn target(&self) -> Target;

    /// Returns the name of the device, for messages.
    fn name(&self) -> &str;

    /// Returns the properties of the device.
    fn facts(&self) -> &DeviceFacts;

    /// Returns true if the GPU is emulated by the processor. `Device::best` skips such a device.
    fn is_software(&self) -> bool {
        false
    }

    /// Allocates at least `bytes` bytes, rounded up to a multiple of 16 (at least 16), with unspecified
    /// contents.
    ///
    /// The first byte is aligned for every binding of the device. A pool keeps freed memory for the next
    /// request.
    fn allocate(&self, bytes: usize) -> Result<Memory>;

    /// Wraps a caller's buffer as memory, without a copy.
    #[cfg(feature = "wgpu")]
    fn adopt(&self, _buffer: ::wgpu::Buffer) -> Result<Memory> {
        Err(Error::Unsupported { device: self.name().into(), what: "a buffer of wgpu".into() })
    }

    /// Takes over an allocation of the CUDA driver as memory, without a copy.
    #[cfg(feature = "cust")]
    fn adopt_cuda(&self, _address: u64, _bytes: usize) -> Result<Memory> {
        Err(Error::Unsupported { device: self.name().into(), what: "a buffer of cust".into() })
    }

    /// Copies host bytes into memory. Up to three bytes after them may change.
    fn write(&self, memory: &Memory, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Waits for all work and copies memory to the host.
    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Allocates `bytes` bytes and copies another allocation into them.
    fn duplicate(&self, (memory, offset): (&Memory, usize), bytes: usize) -> Result<Memory> {
        let fresh = self.allocate(bytes)?;
        if bytes > 0 {
            self.copy((memory, offset), (&fresh, 0), bytes)?;
        }
        Ok(fresh)
    }

    /// Copies between two different allocations of the device.
    fn copy(&self, from: (&Memory, usize), to: (&Memory, usize), bytes: usize) -> Result<()>;

    /// Runs one kernel. The launch space is not empty.
    fn launch(&self, launch: &Launch, call: &Call<'_>) -> Result<()>;

    /// Waits for all work.
    fn synchronize(&self) -> Result<()>;

    /// Calls `work` once and returns the time that the device takes for the work it starts.
    fn time(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
        self.synchronize()?;
        let start = Instant::now();
        work()?;
        self.synchronize()?;
        Ok(start.elapsed())
    }
}

/// An allocation. Dropping it returns the memory to the pool of its device.
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
    /// Returns true if both are one allocation, or one buffer of the caller that was wrapped twice.
    pub(crate) fn is_same(&self, other: &Memory) -> bool {
        match (self, other) {
            #[cfg(feature = "wgpu")]
            (Memory::Wgpu(a), Memory::Wgpu(b)) => a.is_same(b),
            (a, b) => std::ptr::eq(a, b),
        }
    }

    /// Returns true if the memory belongs to the caller, who observes every write to it.
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

impl LaunchConfig {
    /// Returns the configuration of `new` for the facts that a device reports.
    pub fn detect(device: &Device, elements: u64, grain: u32) -> LaunchConfig {
        LaunchConfig::new(device.facts(), elements, grain)
    }
}

/// A device that tensors live on. A clone is cheap and refers to the same device.
///
/// A process has one device per kind (per ordinal, for CUDA). Opening it again returns the same device.
#[derive(Clone)]
pub struct Device(pub(crate) Arc<dyn Backend>);

impl Device {
    /// Returns the fastest device: CUDA, else a hardware `wgpu` adapter, else the CPU.
    pub fn best() -> Device {
        static BEST: OnceLock<Device> = OnceLock::new();
        let hardware = |device: &Device| !device.0.is_software();
        let open = || {
            Device::cuda(0).ok().or_else(|| Device::wgpu().ok().filter(hardware)).unwrap_or_else(Device::cpu)
        };
        BEST.get_or_init(open).clone()
    }

    /// Returns the CPU, which is always available.
    ///
    /// A large kernel runs on the calling thread and on idle threads of `rayon`'s global pool. A call neither
    /// waits for other work of the pool nor runs it.
    pub fn cpu() -> Device {
        static CPU: OnceLock<Device> = OnceLock::new();
        CPU.get_or_init(cpu::open).clone()
    }

    /// Returns the GPU through Vulkan, Metal or DirectX 12, or a software renderer if there is no GPU.
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

    /// Wraps the device of an application that uses `wgpu` itself. Error callbacks of the application stay in
    /// place.
    ///
    /// # Errors
    /// `Error::DeviceLost`; `Error::OutOfMemory` if the device has no memory for the buffers that every
    /// device keeps.
    #[cfg(feature = "wgpu")]
    pub fn from_wgpu(device: ::wgpu::Device, queue: ::wgpu::Queue) -> Result<Device> {
        wgpu::from_wgpu(device, queue)
    }

    /// Returns the NVIDIA GPU of this ordinal, through CUDA.
    ///
    /// The first call looks for the driver: the library that the environment variable `FUSION_CUDA_DRIVER` names, else
    /// `libcuda.so.1` (`nvcuda.dll` on Windows). A program with the feature `cuda` needs no driver to be built or to
    /// start.
    ///
    /// # Errors
    /// `Error::NoDriver` if the driver is missing or too old; `Error::NoDevice` if there is no such GPU, the driver
    /// does not start, or the feature `cuda` is off.
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

    /// Returns the name of the device with its vendor, for people.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the properties of the device.
    pub fn facts(&self) -> &DeviceFacts {
        self.0.facts()
    }

    /// Returns the limits that select variants of kernels.
    pub(crate) fn limits(&self) -> Limits {
        let facts = self.facts();
        Limits {
            binding_bytes: facts.binding_bytes_max,
            shared_bytes: facts.block_shared_bytes_max.into(),
            subgroup: facts.subgroup_size,
            cluster: facts.cluster_blocks_max,
            arch: facts.compute_capability,
        }
    }

    /// Waits until all work on the device is done.
    ///
    /// # Errors
    /// Any failure on the device since the last wait.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Runs `work`, waits for the work it starts on the device, and returns the time that the work took.
    ///
    /// CUDA measures by events of the GPU, other devices by the host's clock. Work that other threads start
    /// on the device in the meantime counts too.
    ///
    /// # Errors
    /// The errors of `work`, and any failure on the device.
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

/// Returns the error for a kind of device that this build leaves out.
#[cfg_attr(
    all(feature = "wgpu", feature = "cuda"),
    expect(dead_code, reason = "every kind is in this build")
)]
fn no_feature(kind: &'static str, feature: &str) -> Error {
    Error::NoDevice { kind, why: format!("the feature `{feature}` of the crate is off") }
}
