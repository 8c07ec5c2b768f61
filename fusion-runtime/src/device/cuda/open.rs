//! Opening of a CUDA device: a GPU of the machine, or the GPU of an application's context.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock};

use super::driver::{
    self, CUdevice, ContextState, Current, DriverError, Handle, StreamState, attribute, check, cuDeviceGet,
    cuDeviceGetAttribute, cuDeviceGetCount, cuDeviceGetName, cuDevicePrimaryCtxRelease_v2,
    cuDevicePrimaryCtxRetain, cuDeviceTotalMem_v2, cuInit, cuStreamCreateWithPriority, cuStreamDestroy_v2,
    launch_kernel_ex,
};
use super::module::{Kernels, driver_number};
use super::pool::Pool;
use super::{Cuda, Shared};
use crate::device::{Device, DeviceFacts};
use crate::error::{Error, Result};

/// Opens the GPU of this ordinal, counted after `CUDA_VISIBLE_DEVICES`.
///
/// The device uses the primary context of the GPU, like the CUDA runtime API and libraries on it.
pub(crate) fn open(ordinal: usize) -> Result<Device> {
    open_as(ordinal, |facts| facts)
}

/// Opens a GPU and changes its facts.
pub(super) fn open_as(ordinal: usize, facts: impl FnOnce(DeviceFacts) -> DeviceFacts) -> Result<Device> {
    driver::load()?;
    let device = find(ordinal)?;
    wrap(device, Owned::primary(device)?, facts)
}

/// Returns the driver's handle of a GPU.
fn find(ordinal: usize) -> Result<CUdevice> {
    let (mut count, mut device) = (0, 0);
    // SAFETY: the pointer refers to a local variable.
    let answer = unsafe { check(cuInit(0)).and_then(|()| check(cuDeviceGetCount(&raw mut count))) };
    answer.map_err(|failure| no_device(why_none(failure)))?;
    let number = i32::try_from(ordinal).ok().filter(|&number| number < count);
    let number = number.ok_or_else(|| no_device(format!("there is no number {ordinal} among {count}")))?;
    // SAFETY: the pointer refers to a local variable.
    let answer = check(unsafe { cuDeviceGet(&raw mut device, number) });
    answer.map(|()| device).map_err(|failure| no_device(failure.to_string()))
}

fn why_none(failure: DriverError) -> String {
    match failure {
        DriverError::NO_DEVICE => format!("this machine has no NVIDIA GPU that its driver knows ({failure})"),
        DriverError(_) => format!("the NVIDIA driver does not start: {failure}"),
    }
}

fn no_device(why: String) -> Error {
    Error::NoDevice { kind: "CUDA", why }
}

/// A context and the stream of it that all work goes to.
pub(super) struct Owned {
    pub(super) context: Handle<ContextState>,
    pub(super) stream: Handle<StreamState>,
    owner: Owner,
}

/// Owner of a context and its stream.
enum Owner {
    /// This struct, of a stream and one use of the primary context.
    Primary(CUdevice),
    /// The application, whose context and stream live as long as this value.
    #[cfg(feature = "cust")]
    Application(
        #[expect(dead_code, reason = "kept alive")] cust::context::Context,
        #[expect(dead_code, reason = "kept alive")] Arc<cust::stream::Stream>,
    ),
}

impl Owned {
    /// Retains the primary context of a GPU and makes a stream of it.
    ///
    /// The stream and the default stream of the context wait for each other.
    fn primary(device: CUdevice) -> Result<Owned> {
        let (mut context, mut stream) = (null_mut(), null_mut());
        // SAFETY: the pointer refers to a local variable.
        let answer = check(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, device) });
        answer.map_err(|failure| no_device(format!("its context cannot be made: {failure}")))?;
        let made = Current::enter(context).and_then(|_current| {
            // SAFETY: the pointer refers to a local variable.
            check(unsafe { cuStreamCreateWithPriority(&raw mut stream, 0, 0) })
        });
        if let Err(failure) = made {
            // SAFETY: the context was retained above.
            unsafe { cuDevicePrimaryCtxRelease_v2(device) };
            return Err(no_device(failure.to_string()));
        }
        Ok(Owned { context: Handle(context), stream: Handle(stream), owner: Owner::Primary(device) })
    }

    /// Makes the context current on the thread, until the guard is dropped.
    ///
    /// A primary context stays current where none was, like that of the CUDA runtime API. The context of an
    /// application does not.
    pub(super) fn enter(&self) -> Result<Current, DriverError> {
        let current = Current::enter(self.context.0)?;
        Ok(match self.owner {
            Owner::Primary(_) => current.unless_none(),
            #[cfg(feature = "cust")]
            Owner::Application(..) => current,
        })
    }

    /// Keeps the context and the stream of an application.
    #[cfg(feature = "cust")]
    fn of_application(context: cust::context::Context, stream: Arc<cust::stream::Stream>) -> Owned {
        use cust::context::ContextHandle as _;
        let (raw, queue) = (context.get_inner().cast(), stream.as_inner().cast());
        Owned { context: Handle(raw), stream: Handle(queue), owner: Owner::Application(context, stream) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: both were made by `primary`, and no work uses them any more. No caller is left to receive
            // a failure.
            Owner::Primary(device) => unsafe {
                cuStreamDestroy_v2(self.stream.0);
                cuDevicePrimaryCtxRelease_v2(device);
            },
            #[cfg(feature = "cust")]
            Owner::Application(..) => {}
        }
    }
}

/// Makes a device of the context and a stream of an application.
#[cfg(feature = "cust")]
pub(crate) fn of_application(
    context: cust::context::Context,
    stream: Arc<cust::stream::Stream>,
) -> Result<Device> {
    driver::load()?;
    let owned = Owned::of_application(context, stream);
    let device = device_of(&owned).map_err(|failure| no_device(failure.to_string()))?;
    wrap(device, owned, |facts| facts)
}

#[cfg(feature = "cust")]
fn device_of(owned: &Owned) -> Result<CUdevice, DriverError> {
    let _current = owned.enter()?;
    let mut device = 0;
    // SAFETY: the pointer refers to a local variable.
    check(unsafe { driver::cuCtxGetDevice(&raw mut device) }).map(|()| device)
}

/// Makes a device of a context.
fn wrap(device: CUdevice, owned: Owned, known: impl FnOnce(DeviceFacts) -> DeviceFacts) -> Result<Device> {
    let described = facts(device).and_then(|facts| Ok((known(facts), name(device)?)));
    let (facts, name) = described.map_err(|failure| no_device(failure.to_string()))?;
    let shared = Shared {
        name,
        facts,
        lost: OnceLock::new(),
        pool: Mutex::new(Pool::new()),
        kernels: Kernels::default(),
        last: Mutex::default(),
        events: Mutex::new(Vec::new()),
        owned,
    };
    Ok(Device(Arc::new(Cuda(Arc::new(shared)))))
}

fn facts(device: CUdevice) -> Result<DeviceFacts, DriverError> {
    let mut bytes = 0;
    // SAFETY: the pointer refers to a local variable.
    check(unsafe { cuDeviceTotalMem_v2(&raw mut bytes, device) })?;
    Ok(DeviceFacts {
        warp_size: fact(device, attribute::WARP_SIZE)?.max(1),
        block_threads_max: fact(device, attribute::BLOCK_THREADS_MAX)?.max(1),
        multiprocessor_threads_max: fact(device, attribute::MULTIPROCESSOR_THREADS_MAX)?.max(1),
        multiprocessors: fact(device, attribute::MULTIPROCESSORS)?.max(1),
        grid_max: fact(device, attribute::GRID_MAX)?.max(1),
        buffers_max: u32::MAX,
        binding_bytes_max: bytes as u64,
        buffer_bytes_max: bytes as u64,
        block_shared_bytes_max: fact(device, attribute::BLOCK_SHARED_BYTES_MAX)?,
        subgroup_size: fact(device, attribute::WARP_SIZE)?,
        cluster_blocks_max: if has_clusters(device) { CLUSTER_BLOCKS } else { 1 },
        compute_capability: compute_capability(device)?,
    })
}

/// Maximum blocks of a cluster on every device with clusters.
const CLUSTER_BLOCKS: u32 = 8;

/// Version of the first driver that accepts PTX 8.1, which kernels with clusters use: CUDA 12.1.
const CLUSTER_DRIVER: i32 = 12_010;

/// Returns true if the device and its driver support clusters. Older drivers do not know the attribute.
fn has_clusters(device: CUdevice) -> bool {
    let has = fact(device, attribute::CLUSTER_LAUNCH).is_ok_and(|has| has > 0);
    has && driver_number() >= Some(CLUSTER_DRIVER) && launch_kernel_ex().is_some()
}

fn fact(device: CUdevice, attribute: i32) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: the pointer refers to a local variable.
    check(unsafe { cuDeviceGetAttribute(&raw mut value, attribute, device) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Returns the name that `nvidia-smi` shows, with the compute capability.
fn name(device: CUdevice) -> Result<String, DriverError> {
    let mut name = [0 as c_char; 256];
    // SAFETY: the driver writes a string with its NUL, truncated to the given length minus one.
    let text = unsafe {
        check(cuDeviceGetName(name.as_mut_ptr(), name.len() as i32 - 1, device))?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy()
    };
    Ok(format!("{text} (CUDA, sm_{})", compute_capability(device)?))
}

/// Returns the compute capability, where 80 is 8.0.
fn compute_capability(device: CUdevice) -> Result<u32, DriverError> {
    Ok(10 * fact(device, attribute::CAPABILITY_MAJOR)? + fact(device, attribute::CAPABILITY_MINOR)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_beyond_the_last_is_an_error() {
        let error = open(usize::MAX).unwrap_err();
        assert!(matches!(error, Error::NoDevice { kind: "CUDA", .. } | Error::NoDriver { .. }), "{error}");
    }

    #[test]
    fn a_missing_gpu_is_told_apart_from_a_broken_driver() {
        if driver::load().is_err() {
            return;
        }
        assert!(why_none(DriverError::NO_DEVICE).contains("no NVIDIA GPU"));
        assert!(why_none(DriverError(803)).contains("does not start"));
    }
}
