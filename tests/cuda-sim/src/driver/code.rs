//! Result codes of the driver, with the numbers, names and descriptions of CUDA 13.
//!
//! Invariant: every number of the table has one name. The functions that explain a code work before `cuInit`.

use std::ffi::{CStr, c_char};
use std::fmt;

use super::entry::{Answer, Out, exports};

/// Result code of a function: a `CUresult` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code(pub i32);

impl Code {
    pub(super) const INVALID_VALUE: Code = Code(1);
    pub(super) const OUT_OF_MEMORY: Code = Code(2);
    pub(super) const NOT_INITIALIZED: Code = Code(3);
    pub(super) const NO_DEVICE: Code = Code(100);
    pub(super) const INVALID_DEVICE: Code = Code(101);
    pub(super) const INVALID_IMAGE: Code = Code(200);
    pub(super) const INVALID_CONTEXT: Code = Code(201);
    pub(super) const NO_BINARY_FOR_GPU: Code = Code(209);
    pub(super) const INVALID_PTX: Code = Code(218);
    pub(super) const UNSUPPORTED_LIMIT: Code = Code(215);
    pub(super) const UNSUPPORTED_PTX_VERSION: Code = Code(222);
    pub(super) const FILE_NOT_FOUND: Code = Code(301);
    pub(super) const INVALID_HANDLE: Code = Code(400);
    pub(super) const NOT_FOUND: Code = Code(500);
    pub(super) const NOT_READY: Code = Code(600);
    pub(super) const ILLEGAL_ADDRESS: Code = Code(700);
    pub(super) const LAUNCH_OUT_OF_RESOURCES: Code = Code(701);
    pub(super) const LAUNCH_TIMEOUT: Code = Code(702);
    pub(super) const CONTEXT_IS_DESTROYED: Code = Code(709);
    pub(super) const ASSERT: Code = Code(710);
    pub(super) const MISALIGNED_ADDRESS: Code = Code(716);
    pub(super) const LAUNCH_FAILED: Code = Code(719);
    pub(super) const NOT_PERMITTED: Code = Code(800);
    pub(super) const NOT_SUPPORTED: Code = Code(801);
    pub(super) const INVALID_CLUSTER_SIZE: Code = Code(912);
    pub(super) const UNKNOWN: Code = Code(999);

    /// Returns true if the process can do nothing more on the device, as NVIDIA documents it for each code.
    pub(super) fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match row(self.0) {
            Some((_, name, _)) => write!(f, "{} ({})", name.to_string_lossy(), self.0),
            None => write!(f, "CUDA error {}", self.0),
        }
    }
}

exports! {
    /// Returns the name of a result code. An unknown code is an invalid value.
    cuGetErrorName(error: i32, text: Out<*const c_char>) always || explain(row(error).map(|row| row.1), text);

    /// Returns the description of a result code. An unknown code is an invalid value.
    cuGetErrorString(error: i32, text: Out<*const c_char>) always || explain(row(error).map(|row| row.2), text);
}

fn explain(text: Option<&'static CStr>, place: Out<*const c_char>) -> Answer {
    place.set(text.map_or(std::ptr::null(), CStr::as_ptr))?;
    if text.is_some() { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Returns true if CUDA 13 has this result code.
pub(super) fn is_known(number: i32) -> bool {
    row(number).is_some()
}

type Row = (i32, &'static CStr, &'static CStr);

fn row(number: i32) -> Option<&'static Row> {
    CODES.binary_search_by_key(&number, |row| row.0).ok().map(|i| &CODES[i])
}

/// Table of number, name and description, sorted by number.
const CODES: &[Row] = &[
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
    (5, c"CUDA_ERROR_PROFILER_DISABLED", c"profiler disabled while using external profiling tool"),
    (6, c"CUDA_ERROR_PROFILER_NOT_INITIALIZED", c"profiler not initialized: call cudaProfilerInitialize()"),
    (7, c"CUDA_ERROR_PROFILER_ALREADY_STARTED", c"profiler already started"),
    (8, c"CUDA_ERROR_PROFILER_ALREADY_STOPPED", c"profiler already stopped"),
    (34, c"CUDA_ERROR_STUB_LIBRARY", c"CUDA driver is a stub library"),
    (36, c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", c"requires newer CUDA driver"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
    (47, c"CUDA_ERROR_MULTICAST_RESOURCE_FULL", c"multicast resources exhausted"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (102, c"CUDA_ERROR_DEVICE_NOT_LICENSED", c"device doesn't have valid Grid license"),
    (200, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (202, c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT", c"context already current"),
    (205, c"CUDA_ERROR_MAP_FAILED", c"mapping of buffer object failed"),
    (206, c"CUDA_ERROR_UNMAP_FAILED", c"unmapping of buffer object failed"),
    (207, c"CUDA_ERROR_ARRAY_IS_MAPPED", c"array is mapped"),
    (208, c"CUDA_ERROR_ALREADY_MAPPED", c"resource already mapped"),
    (209, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device"),
    (210, c"CUDA_ERROR_ALREADY_ACQUIRED", c"resource already acquired"),
    (211, c"CUDA_ERROR_NOT_MAPPED", c"resource not mapped"),
    (212, c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY", c"resource not mapped as array"),
    (213, c"CUDA_ERROR_NOT_MAPPED_AS_POINTER", c"resource not mapped as pointer"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered"),
    (215, c"CUDA_ERROR_UNSUPPORTED_LIMIT", c"limit is not supported on this architecture"),
    (216, c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", c"exclusive-thread device already in use by a different thread"),
    (217, c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", c"peer access is not supported between these two devices"),
    (218, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
    (219, c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", c"invalid OpenGL or DirectX context"),
    (220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", c"uncorrectable NVLink error detected during the execution"),
    (221, c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", c"PTX JIT compiler library not found"),
    (222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", c"the provided PTX was compiled with an unsupported toolchain."),
    (223, c"CUDA_ERROR_JIT_COMPILATION_DISABLED", c"PTX JIT compilation was disabled"),
    (224, c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", c"the provided execution affinity is not supported"),
    (225, c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", c"the provided PTX contains unsupported call to cudaDeviceSynchronize"),
    (226, c"CUDA_ERROR_CONTAINED", c"invalid memory access contained to this process"),
    (227, c"CUDA_ERROR_INSUFFICIENT_LOADER_VERSION", c"the driver loader is too old"),
    (300, c"CUDA_ERROR_INVALID_SOURCE", c"device kernel image is invalid"),
    (301, c"CUDA_ERROR_FILE_NOT_FOUND", c"file not found"),
    (302, c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", c"shared object symbol not found"),
    (303, c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", c"shared object initialization failed"),
    (304, c"CUDA_ERROR_OPERATING_SYSTEM", c"OS call failed or operation not supported on this OS"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (401, c"CUDA_ERROR_ILLEGAL_STATE", c"the operation cannot be performed in the present state"),
    (402, c"CUDA_ERROR_LOSSY_QUERY", c"attempted introspection would be semantically lossy"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (600, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated"),
    (703, c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", c"launch uses incompatible texturing mode"),
    (704, c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", c"peer access is already enabled"),
    (705, c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", c"peer access has not been enabled"),
    (708, c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", c"cannot set while device is active in this process"),
    (709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
    (710, c"CUDA_ERROR_ASSERT", c"device-side assert triggered"),
    (711, c"CUDA_ERROR_TOO_MANY_PEERS", c"peer mapping resources exhausted"),
    (712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"part or all of the requested memory range is already mapped"),
    (713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"pointer does not correspond to a registered memory region"),
    (714, c"CUDA_ERROR_HARDWARE_STACK_ERROR", c"hardware stack error"),
    (715, c"CUDA_ERROR_ILLEGAL_INSTRUCTION", c"an illegal instruction was encountered"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
    (717, c"CUDA_ERROR_INVALID_ADDRESS_SPACE", c"operation not supported on global/shared address space"),
    (718, c"CUDA_ERROR_INVALID_PC", c"invalid program counter"),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (720, c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", c"too many blocks in cooperative launch"),
    (721, c"CUDA_ERROR_TENSOR_MEMORY_LEAK", c"a kernel ended without freeing its tensor memory"),
    (800, c"CUDA_ERROR_NOT_PERMITTED", c"operation not permitted"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"system not yet initialized"),
    (803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"system has unsupported display driver / cuda driver combination"),
    (804, c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", c"forward compatibility was attempted on non supported HW"),
    (805, c"CUDA_ERROR_MPS_CONNECTION_FAILED", c"MPS client failed to connect to the MPS control daemon or the MPS server"),
    (806, c"CUDA_ERROR_MPS_RPC_FAILURE", c"MPS server encountered an unexpected RPC failure"),
    (807, c"CUDA_ERROR_MPS_SERVER_NOT_READY", c"MPS server is not ready to accept new MPS client requests"),
    (808, c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", c"the hardware resources required to create MPS client have been exhausted"),
    (809, c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", c"the hardware resources required to support device connections have been exhausted"),
    (810, c"CUDA_ERROR_MPS_CLIENT_TERMINATED", c"the MPS client has been terminated by the server"),
    (811, c"CUDA_ERROR_CDP_NOT_SUPPORTED", c"the program uses CUDA dynamic parallelism, which this configuration does not support"),
    (812, c"CUDA_ERROR_CDP_VERSION_MISMATCH", c"the program uses an unsupported version of CUDA dynamic parallelism"),
    (900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing"),
    (901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"operation failed due to a previous error during capture"),
    (902, c"CUDA_ERROR_STREAM_CAPTURE_MERGE", c"operation would result in a merge of separate capture sequences"),
    (903, c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", c"capture was not ended in the same stream as it began"),
    (904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"capturing stream has unjoined work"),
    (905, c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", c"dependency created on uncaptured work in another stream"),
    (906, c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", c"operation would make the legacy stream depend on a capturing blocking stream"),
    (907, c"CUDA_ERROR_CAPTURED_EVENT", c"operation not permitted on an event last recorded in a capturing stream"),
    (908, c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", c"attempt to terminate a thread-local capture sequence from another thread"),
    (909, c"CUDA_ERROR_TIMEOUT", c"wait operation timed out"),
    (910, c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"),
    (911, c"CUDA_ERROR_EXTERNAL_DEVICE", c"an async error has occurred in external entity outside of CUDA"),
    (912, c"CUDA_ERROR_INVALID_CLUSTER_SIZE", c"a kernel launch error has occurred due to cluster misconfiguration"),
    (913, c"CUDA_ERROR_FUNCTION_NOT_LOADED", c"the function is not loaded"),
    (914, c"CUDA_ERROR_INVALID_RESOURCE_TYPE", c"one or more resources passed in are not valid resource types for the operation"),
    (915, c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", c"one or more resources are insufficient or non-applicable for the operation"),
    (916, c"CUDA_ERROR_KEY_ROTATION", c"an error happened during the key rotation"),
    (917, c"CUDA_ERROR_STREAM_DETACHED", c"the stream is detached"),
    (918, c"CUDA_ERROR_GRAPH_RECAPTURE_FAILURE", c"the graph could not be captured again"),
    (919, c"CUDA_ERROR_FABRIC_NOT_READY", c"the fabric is not ready"),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_names_are_unique() {
        assert!(CODES.is_sorted_by(|a, b| a.0 < b.0));
        let names: std::collections::BTreeSet<_> = CODES.iter().map(|row| row.1).collect();
        assert_eq!(names.len(), CODES.len());
    }

    #[test]
    fn answers_explain_themselves() {
        for (number, expect) in
            [(0, Some(c"CUDA_SUCCESS")), (700, Some(c"CUDA_ERROR_ILLEGAL_ADDRESS")), (7000, None)]
        {
            let mut text = std::ptr::null();
            // SAFETY: the place is a local variable.
            let code = unsafe { cuGetErrorName(number, Out::to(&mut text)) };
            assert_eq!(code, i32::from(expect.is_none()));
            // SAFETY: a pointer that is not null points to a string of the table.
            assert_eq!((!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }), expect);
        }
        // SAFETY: the function accepts null.
        assert_eq!(unsafe { cuGetErrorString(0, Out::null()) }, 1);
    }
}
