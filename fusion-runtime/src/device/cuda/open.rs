//! Opening of a CUDA device: a GPU of the machine, or the GPU of an application's context.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock};

use cust::context::Context;
use cust::stream::{Stream, StreamFlags};

use super::driver::{
    CUdevice, Current, Failure, attribute, check, cuCtxGetDevice, cuDeviceGet, cuDeviceGetAttribute,
    cuDeviceGetCount, cuDeviceGetName, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain,
    cuDeviceTotalMem_v2, cuInit, launch_kernel_ex,
};
use super::module::{Kernels, driver_number};
use super::pool::Pool;
use super::{Cuda, Shared};
use crate::device::{Device, DeviceFacts};
use crate::error::{Error, Result};

impl Device {
    /// Wraps the device of an application that uses `cust` itself. Work goes to `stream`, so it is ordered
    /// with the application's work there.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if the driver refuses a query about the context.
    pub fn from_cust(context: Context, stream: Arc<Stream>) -> Result<Device> {
        let device = device_of(&context).map_err(|failure| no_device(failure.to_string()))?;
        wrap(device, context, stream, |facts| facts)
    }
}

/// Opens the GPU of this ordinal, counted after `CUDA_VISIBLE_DEVICES`.
///
/// The device uses the primary context of the GPU, like the CUDA runtime API and libraries on it.
pub(crate) fn open(ordinal: usize) -> Result<Device> {
    open_as(ordinal, |facts| facts)
}

/// Opens a GPU and changes its facts.
pub(super) fn open_as(ordinal: usize, facts: impl FnOnce(DeviceFacts) -> DeviceFacts) -> Result<Device> {
    let device = find(ordinal)?;
    retained(ordinal, device).and_then(|(context, stream)| wrap(device, context, Arc::new(stream), facts))
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

fn why_none(failure: Failure) -> String {
    match failure {
        Failure::NO_DEVICE => format!("this machine has no NVIDIA GPU that its driver knows ({failure})"),
        Failure(_) => format!("the NVIDIA driver does not start: {failure}"),
    }
}

fn no_device(why: String) -> Error {
    Error::NoDevice { kind: "CUDA", why }
}

/// Returns the primary context and a stream of it.
///
/// `cust` reads results as an enum of CUDA 11.4, for which a newer code is undefined behaviour. The context
/// is therefore first retained without `cust`. If that succeeds, retaining it again succeeds too, since it
/// only counts.
fn retained(ordinal: usize, device: CUdevice) -> Result<(Context, Stream)> {
    let mut context = null_mut();
    // SAFETY: the pointer refers to a local variable.
    let answer = check(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, device) });
    answer.map_err(|failure| no_device(format!("its context cannot be made: {failure}")))?;
    let opened =
        Current::enter(context).map_err(|failure| no_device(failure.to_string())).and_then(|_current| {
            let number = u32::try_from(ordinal).unwrap_or(u32::MAX);
            let context = cust::device::Device::get_device(number).and_then(Context::new);
            // cust makes blocking streams only: the stream and the default stream wait for each other.
            let stream = Stream::new(StreamFlags::DEFAULT, None);
            context.and_then(|context| Ok((context, stream?))).map_err(|error| no_device(error.to_string()))
        });
    // SAFETY: the context was retained above. If opening succeeded, cust has retained it too.
    unsafe { cuDevicePrimaryCtxRelease_v2(device) };
    opened
}

fn device_of(context: &Context) -> Result<CUdevice, Failure> {
    let _current = Current::enter(context.as_raw())?;
    let mut device = 0;
    // SAFETY: the pointer refers to a local variable.
    check(unsafe { cuCtxGetDevice(&raw mut device) }).map(|()| device)
}

fn wrap(
    device: CUdevice,
    context: Context,
    stream: Arc<Stream>,
    known: impl FnOnce(DeviceFacts) -> DeviceFacts,
) -> Result<Device> {
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
        stream,
        context,
    };
    Ok(Device(Arc::new(Cuda(Arc::new(shared)))))
}

fn facts(device: CUdevice) -> Result<DeviceFacts, Failure> {
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

fn fact(device: CUdevice, attribute: i32) -> Result<u32, Failure> {
    let mut value = 0;
    // SAFETY: the pointer refers to a local variable.
    check(unsafe { cuDeviceGetAttribute(&raw mut value, attribute, device) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Returns the name that `nvidia-smi` shows, with the compute capability.
fn name(device: CUdevice) -> Result<String, Failure> {
    let mut name = [0 as c_char; 256];
    // SAFETY: the driver writes a string with its NUL, truncated to the given length minus one.
    let text = unsafe {
        check(cuDeviceGetName(name.as_mut_ptr(), name.len() as i32 - 1, device))?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy()
    };
    let major = fact(device, attribute::CAPABILITY_MAJOR)?;
    let minor = fact(device, attribute::CAPABILITY_MINOR)?;
    Ok(format!("{text} (CUDA, sm_{major}{minor})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_beyond_the_last_is_an_error() {
        let error = open(usize::MAX).unwrap_err();
        assert!(matches!(error, Error::NoDevice { kind: "CUDA", .. }), "{error}");
    }

    #[test]
    fn a_missing_gpu_is_told_apart_from_a_broken_driver() {
        assert!(why_none(Failure::NO_DEVICE).contains("no NVIDIA GPU"));
        assert!(why_none(Failure(803)).contains("does not start"));
    }
}
