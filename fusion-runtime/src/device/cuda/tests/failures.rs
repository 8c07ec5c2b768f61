//! Failures of the driver, and the messages to the user. The simulated GPU fails on request.
//!
//! Each case runs in a process of its own, since the environment is read once and a lost device stays lost.

use std::process::Command;

use super::{SCALE, gpu, launch, scale};
use crate::device::{Call, Device, Region};
use crate::error::{Error, Result};
use crate::kernel::ScalarValue;

/// Environment variable that marks a child process.
const CHILD: &str = "FUSION_CUDA_CASE";

/// Returns true in the child process of the case. Otherwise runs the child with `environment` and requires
/// its success.
///
/// A real GPU cannot fail on request, so the case is skipped there.
fn in_child(case: &str, environment: &[(&str, &str)]) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let simulated = gpu().is_some_and(|device| device.name().starts_with("CUDA simulator"));
    if !simulated {
        println!("skipped: only the simulated GPU fails when asked to");
        return false;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("device::cuda::tests::failures::{case}")]);
    let child = command.env(CHILD, "1").envs(environment.iter().copied()).output().unwrap();
    let output = [child.stdout, child.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
    false
}

fn device() -> Device {
    Device::cuda(0).unwrap_or_else(|error| panic!("{error}"))
}

/// Launches `SCALE` with `elements` elements on buffers of 128.
fn scale_128(device: &Device, text: &'static str, elements: i64) -> Result<()> {
    let memory = device.0.allocate(512)?;
    let buffer = Region { memory: &memory, offset: 0, len: 128 };
    let scalars = [None, Some(ScalarValue::F32(0.5))];
    let call = Call { symbols: &[], scalars: &scalars, buffers: &[buffer, buffer], producers: &[] };
    device.0.launch(&launch(text, elements), &call)
}

fn check_lost(device: &Device, error: &Error, code: &str) {
    for part in ["CUDA simulator", code, "are gone", "in a new process"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(device.0.allocate(16).unwrap_err(), *error, "every later call says the same");
    assert_eq!(device.synchronize().unwrap_err(), *error);
}

#[test]
fn no_device() {
    if in_child("no_device", &[("CUDA_SIM_DEVICES", "0")]) {
        let error = Device::cuda(0).unwrap_err();
        assert!(matches!(error, Error::NoDevice { kind: "CUDA", .. }), "{error:?}");
        for part in ["no NVIDIA GPU", "CUDA_ERROR_NO_DEVICE (100)", "`Device::cpu()` always works"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(!Device::best().name().contains("CUDA"));
    }
}

#[test]
fn a_number_beyond_the_last_device() {
    if in_child("a_number_beyond_the_last_device", &[("CUDA_SIM_DEVICES", "2")]) {
        assert_ne!(device(), Device::cuda(1).unwrap());
        let error = Device::cuda(2).unwrap_err().to_string();
        assert!(error.contains("there is no number 2 among 2"), "{error}");
    }
}

#[test]
fn a_driver_that_does_not_start() {
    if in_child("a_driver_that_does_not_start", &[("CUDA_SIM_FAIL", "cuInit:1=803")]) {
        let error = Device::cuda(0).unwrap_err();
        assert!(matches!(error, Error::NoDevice { .. }), "{error:?}");
        assert!(error.to_string().contains("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"), "{error}");
        // The driver is initialised again.
        assert_eq!(scale(&device(), 3), [0.0, 0.5, 1.0]);
    }
}

/// A device that failed to open leaves nothing behind, and a later attempt succeeds.
#[test]
fn a_device_that_cannot_be_opened() {
    let failing = "cuDevicePrimaryCtxRetain:1=2,cuDevicePrimaryCtxRetain:3=2,cuStreamCreateWithPriority:2=2,\
                   cuDeviceGetName:1=999,cuDeviceGetAttribute:2=1,cuDeviceTotalMem_v2:1=1";
    if in_child("a_device_that_cannot_be_opened", &[("CUDA_SIM_FAIL", failing)]) {
        for call in 1..7 {
            let opened = Device::cuda(0);
            let error = opened.err().unwrap_or_else(|| panic!("{call}"));
            assert!(matches!(error, Error::NoDevice { .. }), "{error:?}");
        }
        assert_eq!(scale(&device(), 3), [0.0, 0.5, 1.0]);
    }
}

#[test]
fn a_driver_older_than_the_ptx() {
    if in_child("a_driver_older_than_the_ptx", &[("CUDA_SIM_DRIVER", "9020")]) {
        let device = device();
        let error = scale_128(&device, SCALE, 128).unwrap_err();
        let (ptx, driver) = ("6.3".to_owned(), "CUDA 9.2".to_owned());
        assert_eq!(error, Error::DriverTooOld { kernel: "scale".to_owned(), ptx, driver });
        for part in ["PTX 6.3", "CUDA 9.2", "update the driver"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        device.synchronize().unwrap();
        const OLD: &str = ".version 6.2\n.target sm_50\n.address_size 64\n.visible .entry scale(\n\
            .param .u64 x, .param .u64 y, .param .f32 a, .param .u32 start, .param .u32 end) { ret; }\n";
        scale_128(&device, OLD, 128).unwrap();
    }
}

#[test]
fn a_gpu_older_than_the_ptx() {
    if in_child("a_gpu_older_than_the_ptx", &[("CUDA_SIM_ARCH", "75")]) {
        let device = device();
        const NEW: &str = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry scale() { ret; }\n";
        let error = scale_128(&device, NEW, 128).unwrap_err();
        assert!(matches!(error, Error::Jit { .. }), "{error:?}");
        assert!(error.to_string().contains("sm_80 and later, and this GPU is older"), "{error}");
        assert_eq!(scale(&device, 3), [0.0, 0.5, 1.0]);
    }
}

#[test]
fn memory_that_is_used_up() {
    if in_child("memory_that_is_used_up", &[("CUDA_SIM_MEMORY", "1048576")]) {
        let device = device();
        let half = device.0.allocate(1 << 19).unwrap();
        let error = device.0.allocate(1 << 20).unwrap_err();
        assert!(matches!(&error, Error::OutOfMemory { bytes: Some(0x10_0000), .. }), "{error:?}");
        for part in ["CUDA simulator", "1048576 bytes", "drop tensors"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        // The pool frees its blocks for the allocation.
        drop(half);
        drop(device.0.allocate(1 << 20).unwrap());
        assert_eq!(scale(&device, 3), [0.0, 0.5, 1.0]);
    }
}

#[test]
fn an_allocation_that_fails() {
    // The first failure trims the pool and retries. The second and third exhaust the retry.
    let failing = "cuMemAlloc_v2:1=2,cuMemAlloc_v2:3=2,cuMemAlloc_v2:4=2,cuMemAlloc_v2:6=304";
    if in_child("an_allocation_that_fails", &[("CUDA_SIM_FAIL", failing)]) {
        let device = device();
        let first = device.0.allocate(16).unwrap();
        let error = device.0.allocate(16).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { bytes: Some(16), .. }), "{error:?}");
        let _third = device.0.allocate(16).unwrap();
        let error = device.0.allocate(16).unwrap_err();
        assert!(matches!(error, Error::Driver { call: "cuMemAlloc", .. }), "{error:?}");
        drop(first);
        assert_eq!(scale(&device, 3), [0.0, 0.5, 1.0], "the device goes on");
    }
}

#[test]
fn a_launch_that_fails() {
    if in_child("a_launch_that_fails", &[("CUDA_SIM_FAIL", "cuLaunchKernel:2=701,cuLaunchKernel:4=719")]) {
        let device = device();
        scale_128(&device, SCALE, 128).unwrap();
        let error = scale_128(&device, SCALE, 128).unwrap_err();
        assert!(matches!(error, Error::Driver { call: "cuLaunchKernel", .. }), "{error:?}");
        for part in ["CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)", "try again", "nvidia-smi"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(scale(&device, 3), [0.0, 0.5, 1.0], "the device goes on");
        let error = scale_128(&device, SCALE, 128).unwrap_err();
        assert!(matches!(error, Error::KernelFault { .. }), "{error:?}");
        check_lost(&device, &error, "CUDA_ERROR_LAUNCH_FAILED (719)");
    }
}

#[test]
fn memory_that_breaks() {
    if in_child("memory_that_breaks", &[("CUDA_SIM_FAIL", "cuStreamSynchronize:1=214")]) {
        let device = device();
        scale_128(&device, SCALE, 128).unwrap();
        let error = device.synchronize().unwrap_err();
        assert!(matches!(error, Error::DeviceLost { .. }), "{error:?}");
        check_lost(&device, &error, "CUDA_ERROR_ECC_UNCORRECTABLE (214)");
        assert!(!error.to_string().contains("compute-sanitizer"), "no kernel did it: {error}");
    }
}

#[test]
fn an_illegal_address() {
    if in_child("an_illegal_address", &[]) {
        let device = device();
        scale_128(&device, SCALE, 129).unwrap();
        let error = device.synchronize().unwrap_err();
        assert!(matches!(error, Error::KernelFault { .. }), "{error:?}");
        check_lost(&device, &error, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
        for part in
            ["the last launched was `scale`", "CUDA_LAUNCH_BLOCKING=1", "compute-sanitizer", "cuda-sim"]
        {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}

#[test]
fn loading_that_fails() {
    // Loads that run out of memory are retried once.
    let failing = "cuModuleLoadDataEx:1=2,cuModuleLoadDataEx:2=2,cuModuleGetFunction:1=500,\
                   cuFuncGetAttribute:1=1,cuModuleLoadDataEx:5=221";
    if in_child("loading_that_fails", &[("CUDA_SIM_FAIL", failing)]) {
        let device = device();
        for (call, expect) in [
            (1, "out of memory on CUDA simulator"),
            (2, "CUDA_ERROR_NOT_FOUND (500)"),
            (3, "looking for the entry `scale`"),
            (4, "libnvidia-ptxjitcompiler"),
        ] {
            let error = scale_128(&device, SCALE, 128).unwrap_err();
            assert!(error.to_string().contains(expect), "{call}: {error}");
            assert_eq!(
                matches!(error, Error::OutOfMemory { bytes: None, .. }),
                call == 1,
                "{call}: {error:?}"
            );
            assert_eq!(error.to_string().contains("`FUSION_DUMP=dir`"), call != 1, "{call}: {error}");
        }
        assert_eq!(scale(&device, 3), [0.0, 0.5, 1.0], "the device goes on");
    }
}

/// The pool frees its blocks if the driver runs out of memory for itself.
#[test]
fn what_is_kept_makes_room_for_the_driver() {
    let failing = "cuModuleLoadDataEx:1=2,cuLaunchKernel:1=2,cuEventCreate:1=2";
    if in_child("what_is_kept_makes_room_for_the_driver", &[("CUDA_SIM_FAIL", failing)]) {
        assert_eq!(scale(&device(), 3), [0.0, 0.5, 1.0]);
    }
}

/// A failed copy no longer uses host memory, even pinned memory, which the driver reads late.
#[test]
#[cfg(feature = "cust")]
fn copies_that_fail_leave_memory_alone() {
    let failing = "cuEventCreate:1=2,cuEventCreate:2=2,cuEventRecord:1=2,cuEventSynchronize:2=1,cuMemcpyHtoDAsync_v2:4=1";
    if in_child("copies_that_fail_leave_memory_alone", &[("CUDA_SIM_FAIL", failing)]) {
        let device = device();
        let memory = device.0.allocate(16).unwrap();
        let mut host = cust::memory::LockedBuffer::new(&0_u8, 16).unwrap();
        let error = device.0.write(&memory, 0, &[9; 16]).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { bytes: None, .. }), "{error:?}");
        assert!(error.to_string().contains("for its own needs; drop tensors"), "{error}");
        for (round, fails) in [(1, true), (2, true), (3, false), (4, true), (5, false)] {
            host.fill(round);
            let answer = device.0.write(&memory, 0, &host);
            assert_eq!(answer.is_err(), fails, "{round}: {answer:?}");
            host.fill(0);
            if round != 4 {
                let mut back = [0; 16];
                device.0.read(&memory, 0, &mut back).unwrap();
                assert_eq!(back, [round; 16], "what was queued was copied before the failure was told");
            }
        }
    }
}
