//! The functions of the CUDA driver that this device calls, and the meaning of their results.
//!
//! Invariant: results are plain numbers. `cust::sys` declares results as a closed Rust enum of CUDA 11.4, so
//! a result of a newer driver would be undefined behaviour there. The types of handles come from `cust::sys`.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::sync::OnceLock;

pub(super) use cust::sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};

// cust links the library.
#[allow(missing_docs, reason = "the driver's own functions, documented by NVIDIA")]
unsafe extern "C" {
    pub(super) fn cuInit(flags: u32) -> i32;
    pub(super) fn cuDriverGetVersion(version: *mut i32) -> i32;
    pub(super) fn cuDeviceGetCount(count: *mut i32) -> i32;
    pub(super) fn cuDeviceGet(device: *mut CUdevice, ordinal: i32) -> i32;
    pub(super) fn cuDeviceGetName(name: *mut c_char, len: i32, device: CUdevice) -> i32;
    pub(super) fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: CUdevice) -> i32;
    pub(super) fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> i32;
    pub(super) fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> i32;
    pub(super) fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> i32;
    pub(super) fn cuCtxGetCurrent(context: *mut CUcontext) -> i32;
    pub(super) fn cuCtxSetCurrent(context: CUcontext) -> i32;
    pub(super) fn cuCtxGetDevice(device: *mut CUdevice) -> i32;
    pub(super) fn cuStreamSynchronize(stream: CUstream) -> i32;
    pub(super) fn cuEventCreate(event: *mut CUevent, flags: u32) -> i32;
    pub(super) fn cuEventRecord(event: CUevent, stream: CUstream) -> i32;
    pub(super) fn cuEventSynchronize(event: CUevent) -> i32;
    pub(super) fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> i32;
    pub(super) fn cuEventDestroy_v2(event: CUevent) -> i32;
    pub(super) fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> i32;
    pub(super) fn cuMemFree_v2(address: CUdeviceptr) -> i32;
    pub(super) fn cuMemcpyHtoDAsync_v2(
        to: CUdeviceptr,
        from: *const c_void,
        bytes: usize,
        stream: CUstream,
    ) -> i32;
    pub(super) fn cuMemcpyDtoHAsync_v2(
        to: *mut c_void,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> i32;
    pub(super) fn cuMemcpyDtoDAsync_v2(
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> i32;
    pub(super) fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        options_len: u32,
        options: *mut u32,
        values: *mut *mut c_void,
    ) -> i32;
    pub(super) fn cuModuleGetFunction(
        function: *mut CUfunction,
        module: CUmodule,
        name: *const c_char,
    ) -> i32;
    pub(super) fn cuModuleUnload(module: CUmodule) -> i32;
    pub(super) fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: CUfunction) -> i32;
    pub(super) fn cuFuncSetAttribute(function: CUfunction, attribute: i32, value: i32) -> i32;
    pub(super) fn cuLaunchKernel(
        function: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> i32;
    fn cuGetErrorName(code: i32, text: *mut *const c_char) -> i32;
    fn cuGetErrorString(code: i32, text: *mut *const c_char) -> i32;
}

/// Attributes of a device, by their numbers in the driver's API.
pub(super) mod attribute {
    /// `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK`.
    pub(in super::super) const BLOCK_THREADS_MAX: i32 = 1;
    /// `CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X`.
    pub(in super::super) const GRID_MAX: i32 = 5;
    /// `CU_DEVICE_ATTRIBUTE_WARP_SIZE`.
    pub(in super::super) const WARP_SIZE: i32 = 10;
    /// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
    pub(in super::super) const MULTIPROCESSORS: i32 = 16;
    /// `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR`.
    pub(in super::super) const MULTIPROCESSOR_THREADS_MAX: i32 = 39;
    /// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`.
    pub(in super::super) const BLOCK_SHARED_BYTES_MAX: i32 = 97;
    /// `CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH`.
    pub(in super::super) const CLUSTER_LAUNCH: i32 = 120;
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
    pub(in super::super) const CAPABILITY_MAJOR: i32 = 75;
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
    pub(in super::super) const CAPABILITY_MINOR: i32 = 76;
}

/// The driver's `CUlaunchConfig`.
#[repr(C)]
pub(super) struct LaunchConfigEx {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared_bytes: u32,
    pub(super) stream: CUstream,
    pub(super) attributes: *const LaunchAttribute,
    pub(super) attributes_len: u32,
}

/// The driver's `CUlaunchAttribute` for the dimensions of a cluster.
#[repr(C)]
pub(super) struct LaunchAttribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
    const CLUSTER_DIMENSION: u32 = 4;

    /// Makes the attribute for one-dimensional clusters of `blocks` blocks.
    pub(super) fn clusters(blocks: u32) -> LaunchAttribute {
        let mut value = [0; 16];
        value[..3].copy_from_slice(&[blocks, 1, 1]);
        LaunchAttribute { id: LaunchAttribute::CLUSTER_DIMENSION, padding: 0, value }
    }
}

/// The type of the driver's `cuLaunchKernelEx`.
pub(super) type LaunchKernelEx = unsafe extern "C" fn(
    config: *const LaunchConfigEx,
    function: CUfunction,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> i32;

/// Returns the driver's function that launches clusters, if the driver has it.
///
/// Drivers before CUDA 11.8 lack the function. A program linked with it would not start on such a driver.
pub(super) fn launch_kernel_ex() -> Option<LaunchKernelEx> {
    static FOUND: OnceLock<Option<LaunchKernelEx>> = OnceLock::new();
    #[cfg(unix)]
    let loaded = || Some(libloading::os::unix::Library::this());
    #[cfg(windows)]
    let loaded = || libloading::os::windows::Library::open_already_loaded("nvcuda.dll").ok();
    *FOUND.get_or_init(|| {
        // SAFETY: the driver's function of this name has this type. The program links the driver, so it stays
        // loaded.
        loaded().and_then(|library| unsafe { library.get(b"cuLaunchKernelEx\0") }.ok().map(|symbol| *symbol))
    })
}

/// `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES`.
pub(super) const FUNCTION_SHARED_BYTES: i32 = 1;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub(super) const FUNCTION_LAUNCH_SHARED_BYTES_MAX: i32 = 8;
/// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`.
pub(super) const FUNCTION_SHARED_PERCENT: i32 = 9;
/// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`.
pub(super) const FUNCTION_BLOCK_THREADS_MAX: i32 = 0;
/// `CU_EVENT_DISABLE_TIMING`.
pub(super) const EVENT_DISABLE_TIMING: u32 = 2;

/// A result of the driver other than `CUDA_SUCCESS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) i32);

impl Failure {
    pub(super) const OUT_OF_MEMORY: Failure = Failure(2);
    pub(super) const NO_DEVICE: Failure = Failure(100);
    pub(super) const NO_BINARY_FOR_GPU: Failure = Failure(209);
    pub(super) const INVALID_PTX: Failure = Failure(218);
    pub(super) const JIT_COMPILER_NOT_FOUND: Failure = Failure(221);
    pub(super) const UNSUPPORTED_PTX_VERSION: Failure = Failure(222);

    /// Returns true if the failure makes the context unusable, by NVIDIA's documentation of each code.
    ///
    /// The causes are a driver shutdown, an uncorrectable memory or link error, a destroyed context, and a
    /// failed kernel.
    pub(super) fn loses_context(self) -> bool {
        matches!(self.0, 4 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
    }

    /// Returns true if a kernel caused the failure: an illegal address or instruction, a time-out, a failed
    /// assertion or launch.
    pub(super) fn is_of_a_kernel(self) -> bool {
        matches!(self.0, 700 | 702 | 710 | 714..=719)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (text(cuGetErrorName, self.0), text(cuGetErrorString, self.0)) {
            (Some(name), Some(meaning)) => write!(f, "{name} ({}): {meaning}", self.0),
            (Some(name), None) => write!(f, "{name} ({})", self.0),
            (None, Some(_) | None) => write!(f, "CUDA error {}", self.0),
        }
    }
}

/// Converts a result of the driver.
pub(super) fn check(code: i32) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure(code)) }
}

fn text(describe: unsafe extern "C" fn(i32, *mut *const c_char) -> i32, code: i32) -> Option<String> {
    let mut text = std::ptr::null();
    // SAFETY: the driver writes null, or a pointer to a static string that it never frees.
    unsafe {
        check(describe(code, &raw mut text)).ok()?;
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

/// A handle that any thread may use, since the driver's functions are thread-safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle<T>(pub(super) *mut T);

// SAFETY: the driver documents its handles as usable from every thread whose current context is theirs.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: the reason for `Send` applies.
unsafe impl<T> Sync for Handle<T> {}

/// A guard that makes a context current on the thread.
///
/// Dropping the guard restores the previous context: the thread may belong to an application with contexts of
/// its own.
pub(super) struct Current {
    previous: CUcontext,
}

impl Current {
    pub(super) fn enter(context: CUcontext) -> Result<Current, Failure> {
        let mut previous = std::ptr::null_mut();
        // SAFETY: the pointer refers to a local variable. The caller owns the context, which is alive.
        unsafe {
            check(cuCtxGetCurrent(&raw mut previous))?;
            if previous == context {
                return Ok(Current { previous: std::ptr::null_mut() });
            }
            check(cuCtxSetCurrent(context))?;
        }
        Ok(Current { previous })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if !self.previous.is_null() {
            // SAFETY: the previous context was current on this thread, since the guard is not `Send`. If the
            // context no longer exists, the driver refuses the call, and no caller is left to receive the
            // failure.
            unsafe { cuCtxSetCurrent(self.previous) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_themselves() {
        // The real driver and the simulated one know this code.
        assert!(Failure::NO_DEVICE.to_string().starts_with("CUDA_ERROR_NO_DEVICE (100): "));
        // No driver knows this code.
        assert_eq!(Failure(123_456).to_string(), "CUDA error 123456");
    }

    #[test]
    fn kernel_faults_lose_the_context() {
        for code in [700, 702, 715, 716, 719, 721] {
            assert!(Failure(code).loses_context(), "{code}");
        }
        for code in [1, 2, 100, 218, 222, 701] {
            assert!(!Failure(code).loses_context(), "{code}");
        }
    }
}
