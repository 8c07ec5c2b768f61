//! The functions of the CUDA driver that this device calls, and the meaning of their results.
//!
//! The driver's library is found when the first device is opened, so a program starts without it.
//!
//! Invariant: results are plain numbers, since a newer driver may return numbers that no enum lists.

use std::ffi::{CStr, OsString, c_char, c_void};
use std::fmt;
use std::sync::OnceLock;

use libloading::Library;

use crate::error::Error;

macro_rules! handles {
    ($($handle:ident = $opaque:ident;)*) => { $(
        /// State behind the handle, which only the driver knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C)]
        pub(super) struct $opaque([u8; 0]);

        pub(super) type $handle = *mut $opaque;
    )* };
}

handles! {
    CUcontext = ContextState;
    CUevent = EventState;
    CUfunction = FunctionState;
    CUmodule = ModuleState;
    CUstream = StreamState;
}

pub(super) type CUdevice = i32;
pub(super) type CUdeviceptr = u64;

/// Declares functions of the driver: a table of their addresses, and a function for each that calls it.
macro_rules! functions {
    ($($(#[$when:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        /// Addresses of the functions, by name.
        #[allow(non_snake_case, reason = "the driver's own names")]
        struct Functions {
            $($(#[$when])* $name: unsafe extern "C" fn($($ty),*) -> i32,)*
            launch_kernel_ex: Option<LaunchKernelEx>,
        }

        impl Functions {
            /// Finds all functions in the driver's library, or returns the name of the first that it lacks.
            fn of(library: &Library) -> Result<Functions, &'static str> {
                Ok(Functions {
                    $($(#[$when])* $name: {
                        // SAFETY: the driver's function of this name has this type.
                        let found = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *found.map_err(|_| stringify!($name))?
                    },)*
                    // SAFETY: the driver's function of this name has this type.
                    launch_kernel_ex: unsafe { library.get(b"cuLaunchKernelEx\0") }.ok().map(|found| *found),
                })
            }
        }

        $(
            $(#[$when])*
            /// Calls the driver's function of this name, which NVIDIA documents.
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's own signature")]
            pub(super) unsafe fn $name($($arg: $ty),*) -> i32 {
                // SAFETY: the caller keeps the conditions that NVIDIA documents.
                unsafe { (functions().$name)($($arg),*) }
            }
        )*
    };
}

functions! {
    fn cuInit(flags: u32);
    fn cuDriverGetVersion(version: *mut i32);
    fn cuDeviceGetCount(count: *mut i32);
    fn cuDeviceGet(device: *mut CUdevice, ordinal: i32);
    fn cuDeviceGetName(name: *mut c_char, len: i32, device: CUdevice);
    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    fn cuCtxGetCurrent(context: *mut CUcontext);
    fn cuCtxSetCurrent(context: CUcontext);
    #[cfg(feature = "cust")]
    fn cuCtxGetDevice(device: *mut CUdevice);
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuEventCreate(event: *mut CUevent, flags: u32);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventSynchronize(event: CUevent);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    fn cuMemFree_v2(address: CUdeviceptr);
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        options_len: u32,
        options: *mut u32,
        values: *mut *mut c_void,
    );
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    fn cuModuleUnload(module: CUmodule);
    fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: CUfunction);
    fn cuFuncSetAttribute(function: CUfunction, attribute: i32, value: i32);
    fn cuLaunchKernel(
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
    );
    fn cuGetErrorName(code: i32, text: *mut *const c_char);
    fn cuGetErrorString(code: i32, text: *mut *const c_char);
}

/// Environment variable with the path of the driver's library, for drivers where the loader does not look.
const DRIVER_PATH: &str = "FUSION_CUDA_DRIVER";

/// Names under which the loader finds the driver's library.
#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"];

static FUNCTIONS: OnceLock<Result<Functions, Error>> = OnceLock::new();

/// Finds the driver's library and its functions, once for the process.
///
/// # Errors
/// `Error::NoDriver` if the library or one of its functions is missing.
pub(super) fn load() -> Result<(), Error> {
    let loaded = FUNCTIONS.get_or_init(|| {
        // A program with `cust` shares handles with the driver that it links.
        let asked =
            std::env::var_os(DRIVER_PATH).filter(|path| !path.is_empty() && cfg!(not(feature = "cust")));
        let names: Vec<OsString> =
            asked.map_or_else(|| NAMES.iter().map(OsString::from).collect(), |path| vec![path]);
        find(&names)
    });
    loaded.as_ref().map(|_| ()).map_err(Clone::clone)
}

fn find(names: &[OsString]) -> Result<Functions, Error> {
    let mut why = None;
    for name in names {
        let library = name.to_string_lossy().into_owned();
        // SAFETY: the driver's library may be loaded at any time, and its initialisers have no conditions.
        match unsafe { Library::new(name) } {
            Ok(found) => {
                let functions = Functions::of(&found).map_err(|lacks| Error::NoDriver {
                    why: format!("`{library}` lacks {lacks}: install a newer NVIDIA driver"),
                });
                // The functions are valid as long as the library is loaded: until the process ends.
                std::mem::forget(found);
                return functions;
            }
            Err(error) => {
                // The first name is the usual one, so its error says most.
                why.get_or_insert_with(|| format!("`{library}` cannot be loaded ({error})"));
            }
        }
    }
    let why = why.unwrap_or_default();
    Err(Error::NoDriver {
        why: format!(
            "{why}: install the driver of the GPU, or name its library in the environment variable {DRIVER_PATH}"
        ),
    })
}

fn functions() -> &'static Functions {
    match FUNCTIONS.get() {
        Some(Ok(functions)) => functions,
        Some(Err(_)) | None => unreachable!("a device is opened only with the driver's functions"),
    }
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

/// Returns the driver's function that launches clusters. Drivers before CUDA 11.8 lack the function.
pub(super) fn launch_kernel_ex() -> Option<LaunchKernelEx> {
    functions().launch_kernel_ex
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
pub(super) struct DriverError(pub(super) i32);

impl DriverError {
    pub(super) const OUT_OF_MEMORY: DriverError = DriverError(2);
    pub(super) const NO_DEVICE: DriverError = DriverError(100);
    pub(super) const NO_BINARY_FOR_GPU: DriverError = DriverError(209);
    pub(super) const INVALID_PTX: DriverError = DriverError(218);
    pub(super) const JIT_COMPILER_NOT_FOUND: DriverError = DriverError(221);
    pub(super) const UNSUPPORTED_PTX_VERSION: DriverError = DriverError(222);

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

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (text(cuGetErrorName, self.0), text(cuGetErrorString, self.0)) {
            (Some(name), Some(meaning)) => write!(f, "{name} ({}): {meaning}", self.0),
            (Some(name), None) => write!(f, "{name} ({})", self.0),
            (None, Some(_) | None) => write!(f, "CUDA error {}", self.0),
        }
    }
}

/// Converts a result of the driver.
pub(super) fn check(code: i32) -> Result<(), DriverError> {
    if code == 0 { Ok(()) } else { Err(DriverError(code)) }
}

/// Returns the driver's text for a result, if the driver is loaded and has one.
fn text(describe: unsafe fn(i32, *mut *const c_char) -> i32, code: i32) -> Option<String> {
    load().ok()?;
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
/// Dropping the guard restores the previous context, or that there was none: the thread may belong to an application
/// with contexts of its own.
pub(super) struct Current {
    /// Context to restore: null if none was current. None if the context was current before.
    previous: Option<CUcontext>,
}

impl Current {
    pub(super) fn enter(context: CUcontext) -> Result<Current, DriverError> {
        let mut previous = std::ptr::null_mut();
        // SAFETY: the pointer refers to a local variable. The caller owns the context, which is alive.
        unsafe {
            check(cuCtxGetCurrent(&raw mut previous))?;
            if previous == context {
                return Ok(Current { previous: None });
            }
            check(cuCtxSetCurrent(context))?;
        }
        Ok(Current { previous: Some(previous) })
    }

    /// Leaves the context current where none was before.
    pub(super) fn unless_none(mut self) -> Current {
        self.previous = self.previous.filter(|previous| !previous.is_null());
        self
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            // SAFETY: the previous context was current on this thread, since the guard is not `Send`. If the
            // context no longer exists, the driver refuses the call, and no caller is left to receive the
            // failure.
            unsafe { cuCtxSetCurrent(previous) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_says_how_to_get_it() {
        let error = find(&["libcuda-of-nobody.so.1".into()]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("`libcuda-of-nobody.so.1` cannot be loaded"), "{error}");
        assert!(error.contains("install the driver"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_without_the_functions_is_an_error_that_names_the_first() {
        let error = find(&["libm.so.6".into()]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("`libm.so.6` lacks cuInit: install a newer NVIDIA driver"), "{error}");
    }

    #[test]
    fn failures_name_themselves() {
        if load().is_err() {
            return;
        }
        // The real driver and the simulated one know this code.
        assert!(DriverError::NO_DEVICE.to_string().starts_with("CUDA_ERROR_NO_DEVICE (100): "));
        // No driver knows this code.
        assert_eq!(DriverError(123_456).to_string(), "CUDA error 123456");
    }

    #[test]
    fn kernel_faults_lose_the_context() {
        for code in [700, 702, 715, 716, 719, 721] {
            assert!(DriverError(code).loses_context(), "{code}");
        }
        for code in [1, 2, 100, 218, 222, 701] {
            assert!(!DriverError(code).loses_context(), "{code}");
        }
    }
}
