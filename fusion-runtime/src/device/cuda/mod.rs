//! The CUDA device: NVIDIA GPUs through the CUDA driver.
//!
//! Invariant: all work goes to one stream and runs in the order of the calls, so freed memory may be reused
//! at once. Every method first makes the device's context current on the calling thread. After a failure has
//! destroyed the context, every later call reports the failure.

mod driver;
mod memory;
mod module;
mod open;
mod params;
mod pool;
#[cfg(test)]
mod tests;
mod timing;

use std::borrow::Cow;
use std::ffi::c_void;
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fusion_compiler::ir::plan::{Code, Target};
use smallvec::SmallVec;

pub(crate) use self::memory::CudaMemory;
#[cfg(feature = "cust")]
pub(crate) use self::open::of_application;
pub(crate) use self::open::open;

use self::driver::{
    CUevent, CUstream, Current, DriverError, EVENT_DISABLE_TIMING, EventState, Handle, LaunchAttribute,
    LaunchConfigEx, check, cuEventCreate, cuEventDestroy_v2, cuEventRecord, cuEventSynchronize,
    cuLaunchKernel, cuMemFree_v2, cuMemcpyDtoDAsync_v2, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2,
    cuStreamSynchronize, launch_kernel_ex,
};
use self::module::{Kernel, Kernels, LoadError};
use self::open::Owned;
use self::params::ParamValues;
use self::pool::Pool;
use super::{Backend, Call, DeviceFacts, Memory, Region};
use crate::error::{Error, Result};
use crate::kernel::Launch;
use crate::launch::LaunchConfig;

/// The CUDA backend. Memory refers to its device, so the device lives as long as any tensor on it.
#[derive(Debug)]
pub(super) struct Cuda(Arc<Shared>);

/// State that a device and its memory share.
struct Shared {
    name: String,
    facts: DeviceFacts,
    /// The failure that destroyed the context.
    lost: OnceLock<Error>,
    pool: Mutex<Pool<u64>>,
    kernels: Kernels,
    /// Name of the kernel launched last.
    last: Mutex<Option<Cow<'static, str>>>,
    /// Events that no call waits for.
    events: Mutex<Vec<Handle<EventState>>>,
    owned: Owned,
}

impl Shared {
    fn enter(&self) -> Result<Current> {
        match self.lost.get() {
            Some(error) => Err(error.clone()),
            None => self.told("cuCtxSetCurrent", self.owned.enter()),
        }
    }

    fn stream(&self) -> CUstream {
        self.owned.stream.0
    }

    fn told<T>(&self, call: &'static str, answer: Result<T, DriverError>) -> Result<T> {
        answer.map_err(|failure| self.error(call, failure))
    }

    /// Converts a failure of the driver to an error. A failure that destroys the context is recorded.
    fn error(&self, call: &'static str, failure: DriverError) -> Error {
        let (device, why) = (self.name.clone(), failure.to_string());
        if failure.loses_context() {
            let why = format!("{why}, reported by {call}");
            let lost = if failure.is_of_a_kernel() {
                Error::KernelFault { device, why, last: self.last_launched() }
            } else {
                Error::DeviceLost { device, why }
            };
            self.lost.get_or_init(|| lost).clone()
        } else if failure == DriverError::OUT_OF_MEMORY {
            Error::OutOfMemory { bytes: None, device, tensor_bytes_max: None }
        } else {
            Error::Driver { device, call, why }
        }
    }

    fn last_launched(&self) -> Option<String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_deref().map(String::from)
    }

    /// Queues a copy to or from host memory, and waits for it and for all earlier work.
    ///
    /// The function does not wait for work that other threads add in the meantime. Even after a failure the
    /// host memory is no longer in use.
    fn copy_and_wait(&self, call: &'static str, copy: impl FnOnce() -> i32) -> Result<()> {
        // The event may fail to be made, so it is made before the copy is queued.
        let event = self.event()?;
        let queued = check(copy());
        // SAFETY: the event and the stream are alive and belong to the current context.
        let waited = queued.and_then(|()| unsafe {
            check(cuEventRecord(event.0, self.stream())).and_then(|()| check(cuEventSynchronize(event.0)))
        });
        if queued.is_ok() && waited.is_err() {
            // SAFETY: the stream is alive. If this call fails too, the device is lost and copies nothing any
            // more.
            unsafe { cuStreamSynchronize(self.stream()) };
        }
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.told(if queued.is_err() { call } else { "cuEventSynchronize" }, waited)
    }

    fn event(&self) -> Result<Handle<EventState>> {
        if let Some(event) = self.events.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(event);
        }
        let fresh = || {
            let mut event: CUevent = null_mut();
            // SAFETY: the pointer refers to a local variable.
            check(unsafe { cuEventCreate(&raw mut event, EVENT_DISABLE_TIMING) }).map(|()| Handle(event))
        };
        self.told("cuEventCreate", memory::with_room(self, fresh))
    }

    /// Returns the error for a kernel that could not be loaded. The error has the compiler's log if the
    /// kernel is at fault.
    fn load_error(&self, kernel: &str, text: &str, error: LoadError) -> Error {
        match error.failure {
            Some(DriverError::UNSUPPORTED_PTX_VERSION) => Error::DriverTooOld {
                kernel: kernel.to_owned(),
                ptx: module::declared(text, ".version").to_owned(),
                driver: module::driver_version(),
            },
            Some(failure) if failure.loses_context() || failure == DriverError::OUT_OF_MEMORY => {
                self.error("cuModuleLoadDataEx", failure)
            }
            Some(_) | None => Error::Jit { kernel: kernel.to_owned(), log: error.log },
        }
    }

    fn run(&self, kernel: Kernel, launch: &Launch, call: &Call<'_>) -> Result<()> {
        let elements = params::elements(launch, call.symbols)?;
        let addresses: SmallVec<[u64; 8]> = call.buffers.iter().map(address).collect();
        let values =
            ParamValues { addresses: &addresses, symbols: call.symbols, scalars: call.scalars, elements };
        let mut slots = params::pack(launch, &values)?;
        let pointers = params::pointers(&mut slots);
        let each = params::each(launch, call.symbols)?;
        let cluster = params::cluster(launch, call.symbols)?;
        let config = self.config(kernel, launch, (elements, each, cluster));
        let shared_bytes = params::shared_bytes(launch, call.symbols, config.block)?;
        let config = LaunchConfig { shared_bytes, ..config };
        let queue = || {
            let pointers = pointers.as_ptr().cast_mut();
            // SAFETY: the kernel is loaded and gets a slot for each declared parameter. The buffers have the
            // sizes of the plan. The slots outlive the call, which copies them.
            unsafe { self.queue(kernel, config, cluster, pointers) }
        };
        let answer = memory::with_room(self, queue);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(launch.kernel.clone());
        self.told(if cluster > 1 { "cuLaunchKernelEx" } else { "cuLaunchKernel" }, answer)
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// `pointers` has a pointer to each parameter of the kernel, and the buffers are as large as the kernel
    /// assumes.
    unsafe fn queue(
        &self,
        kernel: Kernel,
        LaunchConfig { grid, block, shared_bytes }: LaunchConfig,
        cluster: u32,
        pointers: *mut *mut c_void,
    ) -> Result<(), DriverError> {
        let (function, stream, none) = (kernel.function(), self.stream(), null_mut());
        if cluster == 1 {
            // SAFETY: the caller guarantees the parameters.
            return check(unsafe {
                cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared_bytes, stream, pointers, none)
            });
        }
        let Some(launch_kernel_ex) = launch_kernel_ex() else {
            unreachable!("devices whose driver lacks it have no clusters")
        };
        let clusters = LaunchAttribute::clusters(cluster);
        let (attributes, attributes_len) = (&raw const clusters, 1);
        let (grid, block) = ([grid, 1, 1], [block, 1, 1]);
        let config = LaunchConfigEx { grid, block, shared_bytes, stream, attributes, attributes_len };
        // SAFETY: the caller guarantees the parameters, and the attribute outlives the call.
        check(unsafe { launch_kernel_ex(&raw const config, function, pointers, none) })
    }

    /// Returns the launch configuration. A kernel with many registers may allow fewer threads per block than
    /// the device.
    fn config(
        &self,
        kernel: Kernel,
        launch: &Launch,
        (elements, each, cluster): (u64, u64, u32),
    ) -> LaunchConfig {
        let grain = launch.space.grain.max(1);
        let config = if launch.team > 1 {
            let each = each.saturating_mul(grain.into());
            let (rows, blocks) = (elements.div_ceil(grain.into()), (launch.team, cluster));
            LaunchConfig::clusters(&self.facts, rows, each, blocks)
        } else {
            let block_threads_max = self.facts.block_threads_max.min(kernel.block_threads_max);
            let facts = DeviceFacts { block_threads_max, ..self.facts.clone() };
            LaunchConfig::new(&facts, elements, grain)
        };
        if launch.prologue { config.resident(&self.facts, cluster) } else { config }
    }
}

fn address(region: &Region<'_>) -> u64 {
    cuda(region.memory).address(region.offset)
}

/// Returns the CUDA memory of a tensor. The executor passes only memory of this device.
fn cuda(memory: &Memory) -> &CudaMemory {
    let Memory::Cuda(memory) = memory else {
        unreachable!("the arguments of a call were found to be on one device")
    };
    memory
}

impl Backend for Cuda {
    fn target(&self) -> Target {
        Target::Ptx
    }

    fn name(&self) -> &str {
        &self.0.name
    }

    fn facts(&self) -> &DeviceFacts {
        &self.0.facts
    }

    fn allocate(&self, bytes: usize) -> Result<Memory> {
        memory::allocate(&self.0, bytes).map(Memory::Cuda)
    }

    #[cfg(feature = "cust")]
    fn adopt_cuda(&self, address: u64, bytes: usize) -> Result<Memory> {
        Ok(Memory::Cuda(CudaMemory::adopted(&self.0, address, bytes)))
    }

    fn write(&self, memory: &Memory, offset: usize, bytes: &[u8]) -> Result<()> {
        let _current = self.0.enter()?;
        let to = cuda(memory).range(offset, bytes.len());
        // SAFETY: both ranges are alive and have `bytes.len()` bytes until the wait is over. The driver reads
        // pinned or managed host memory only when the stream reaches the copy.
        self.0.copy_and_wait("cuMemcpyHtoDAsync", || unsafe {
            cuMemcpyHtoDAsync_v2(to, bytes.as_ptr().cast(), bytes.len(), self.0.stream())
        })
    }

    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let _current = self.0.enter()?;
        let from = cuda(memory).range(offset, bytes.len());
        let place: *mut c_void = bytes.as_mut_ptr().cast();
        // SAFETY: both ranges are alive and have `bytes.len()` bytes until the wait is over.
        self.0.copy_and_wait("cuMemcpyDtoHAsync", || unsafe {
            cuMemcpyDtoHAsync_v2(place, from, bytes.len(), self.0.stream())
        })
    }

    fn copy(&self, from: (&Memory, usize), to: (&Memory, usize), bytes: usize) -> Result<()> {
        let _current = self.0.enter()?;
        let (from, to) = (cuda(from.0).range(from.1, bytes), cuda(to.0).range(to.1, bytes));
        // SAFETY: both ranges have `bytes` bytes. Memory freed in the meantime is reused only by later work
        // of the stream.
        let answer = check(unsafe { cuMemcpyDtoDAsync_v2(to, from, bytes, self.0.stream()) });
        self.0.told("cuMemcpyDtoDAsync", answer)
    }

    fn launch(&self, launch: &Launch, call: &Call<'_>) -> Result<()> {
        let text = match &launch.code {
            Code::Ptx(text) => text,
            Code::Wgsl(_) | Code::Cpu(_) => {
                let what = format!("`{}` is not for {}", launch.kernel, self.0.name);
                return Err(Error::Argument { function: launch.kernel.clone().into_owned(), what });
            }
        };
        let _current = self.0.enter()?;
        let load = || module::load(text, &launch.kernel, self.0.facts.block_shared_bytes_max);
        let kernel = self.0.kernels.get(text, || memory::with_room(&self.0, load));
        let kernel = kernel.map_err(|error| self.0.load_error(&launch.kernel, text, error))?;
        self.0.run(kernel, launch, call)
    }

    fn synchronize(&self) -> Result<()> {
        let _current = self.0.enter()?;
        // SAFETY: the stream is alive.
        let answer = check(unsafe { cuStreamSynchronize(self.0.stream()) });
        self.0.told("cuStreamSynchronize", answer)
    }

    fn time(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
        timing::time(&self.0, work)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda").field("name", &self.name).field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Ok(_current) = self.owned.enter() else { return };
        // SAFETY: no tensor and no call uses the device any more, nor does the GPU after the wait. No caller
        // is left to receive failures.
        unsafe {
            cuStreamSynchronize(self.stream());
            for block in self.pool.get_mut().unwrap_or_else(PoisonError::into_inner).drain() {
                cuMemFree_v2(block);
            }
            for event in self.events.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
                cuEventDestroy_v2(event.0);
            }
        }
        self.kernels.clear();
    }
}
