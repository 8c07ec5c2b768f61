//! A CUDA driver for machines without one: programs built with the feature `cuda` link and start, and are told
//! that there is no device.
//!
//! Invariant: it exports what `cust` and the runtime's CUDA device refer to, and nothing succeeds but the
//! explanation of errors. It must never stand before a real driver in the loader's path.

use std::ffi::{CStr, c_char};

/// `CUDA_SUCCESS`.
const SUCCESS: i32 = 0;
/// `CUDA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: i32 = 1;
/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: i32 = 100;

/// Functions that have no device to work on. Whatever the arguments, they are the caller's to clean up in the C
/// calling conventions of every system that CUDA runs on, so none need be declared.
macro_rules! no_device {
    ($($name:ident)*) => {$(
        /// Answers `CUDA_ERROR_NO_DEVICE`.
        // SAFETY: only a program that asks for a CUDA driver refers to the name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> i32 {
            NO_DEVICE
        }
    )*};
}

no_device! {
    cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayDestroy
    cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxGetApiVersion cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetDevice
    cuCtxGetFlags cuCtxGetLimit cuCtxGetSharedMemConfig cuCtxGetStreamPriorityRange cuCtxPopCurrent_v2
    cuCtxPushCurrent_v2 cuCtxSetCacheConfig cuCtxSetCurrent cuCtxSetLimit cuCtxSetSharedMemConfig
    cuCtxSynchronize
    cuDestroyExternalMemory cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount cuDeviceGetName
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxSetFlags_v2 cuDeviceTotalMem_v2 cuDriverGetVersion
    cuEventCreate cuEventDestroy_v2 cuEventElapsedTime cuEventQuery cuEventRecord cuEventSynchronize
    cuExternalMemoryGetMappedBuffer
    cuFuncGetAttribute cuFuncSetCacheConfig cuFuncSetSharedMemConfig
    cuGraphAddKernelNode cuGraphCreate cuGraphDebugDotPrint cuGraphDestroy cuGraphGetEdges cuGraphGetNodes
    cuGraphKernelNodeGetParams cuGraphNodeGetType
    cuImportExternalMemory cuInit cuLaunchHostFunc cuLaunchKernel
    cuLinkAddData_v2 cuLinkComplete cuLinkCreate_v2 cuLinkDestroy
    cuMemAdvise cuMemAllocAsync cuMemAllocHost_v2 cuMemAllocManaged cuMemAlloc_v2 cuMemFreeAsync
    cuMemFreeHost cuMemFree_v2 cuMemGetInfo_v2 cuMemPrefetchAsync
    cuMemcpy2D_v2 cuMemcpyAtoH_v2 cuMemcpyDtoDAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoH_v2
    cuMemcpyHtoA_v2 cuMemcpyHtoDAsync_v2 cuMemcpyHtoD_v2
    cuMemsetD16Async cuMemsetD16_v2 cuMemsetD32Async cuMemsetD32_v2 cuMemsetD8Async cuMemsetD8_v2
    cuModuleGetFunction cuModuleGetGlobal_v2 cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleUnload
    cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxPotentialBlockSize
    cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamGetFlags cuStreamGetPriority cuStreamSynchronize
    cuStreamWaitEvent
    cuSurfObjectCreate cuSurfObjectDestroy cuSurfObjectGetResourceDesc
    cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc
}

/// The name of an error, as the driver gives it.
///
/// # Safety
/// `text` is null or can be written.
// SAFETY: only a program that asks for a CUDA driver refers to the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: i32, text: *mut *const c_char) -> i32 {
    // SAFETY: passed on from the caller.
    unsafe { explain(known(error).map(|(name, _)| name), text) }
}

/// What an error means, as the driver gives it.
///
/// # Safety
/// `text` is null or can be written.
// SAFETY: only a program that asks for a CUDA driver refers to the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: i32, text: *mut *const c_char) -> i32 {
    // SAFETY: passed on from the caller.
    unsafe { explain(known(error).map(|(_, meaning)| meaning), text) }
}

/// Name and meaning of the errors that this library gives.
fn known(error: i32) -> Option<(&'static CStr, &'static CStr)> {
    match error {
        SUCCESS => Some((c"CUDA_SUCCESS", c"no error")),
        INVALID_VALUE => Some((c"CUDA_ERROR_INVALID_VALUE", c"invalid argument")),
        NO_DEVICE => Some((c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected")),
        _ => None,
    }
}

/// # Safety
/// `place` is null or can be written.
unsafe fn explain(text: Option<&'static CStr>, place: *mut *const c_char) -> i32 {
    if place.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: not null, so the caller vouches for it.
    unsafe { place.write(text.map_or(std::ptr::null(), CStr::as_ptr)) };
    if text.is_some() { SUCCESS } else { INVALID_VALUE }
}
