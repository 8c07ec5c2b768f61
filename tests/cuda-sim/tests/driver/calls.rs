//! The driver answers right and wrong calls with the documented codes.

use std::ffi::{CStr, c_void};

use cuda_sim::driver::alloc::*;
use cuda_sim::driver::code::{cuGetErrorName, cuGetErrorString};
use cuda_sim::driver::context::*;
use cuda_sim::driver::copy::*;
use cuda_sim::driver::device::*;
use cuda_sim::driver::entry::{Host, Out, Text};
use cuda_sim::driver::event::*;
use cuda_sim::driver::module::*;
use cuda_sim::driver::stream::*;
use cuda_sim::driver::unsupported::cuGraphCreate;

use super::{Context, call, done, download, free, in_child, made, upload};

#[test]
fn nothing_works_before_the_start() {
    if in_child("calls::nothing_works_before_the_start", &[], |_| ()) {
        assert_eq!(call!(cuDeviceGetCount(Out::to(&mut 0))), 3);
        assert_eq!(call!(cuMemAlloc_v2(Out::to(&mut 0), 16)), 3);
        assert_eq!(call!(cuInit(1)), 1);
        // The driver's version can be read before `cuInit`.
        let version: i32 = made!(cuDriverGetVersion());
        assert_eq!(version, 13_000);
        done!(cuInit(0));
        let count: i32 = made!(cuDeviceGetCount());
        assert_eq!(count, 1);
    }
}

#[test]
fn without_a_device_there_is_no_start() {
    if in_child("calls::without_a_device_there_is_no_start", &[("CUDA_SIM_DEVICES", "0")], |_| ()) {
        assert_eq!(call!(cuInit(0)), 100);
        assert_eq!(call!(cuDeviceGetCount(Out::to(&mut 0))), 3);
    }
}

#[test]
fn what_the_environment_says_wrong_is_told() {
    let check = |stderr: &str| assert!(stderr.contains("CUDA_SIM_ARCH: \"ninety\" is no number"), "{stderr}");
    if in_child("calls::what_the_environment_says_wrong_is_told", &[("CUDA_SIM_ARCH", "ninety")], check) {
        assert_eq!(call!(cuInit(0)), 999);
        assert_eq!(call!(cuDriverGetVersion(Out::to(&mut 0))), 999);
    }
}

#[test]
fn the_environment_describes_the_devices() {
    let environment = [("CUDA_SIM_DEVICES", "2"), ("CUDA_SIM_ARCH", "75"), ("CUDA_SIM_MEMORY", "65536")];
    if in_child("calls::the_environment_describes_the_devices", &environment, |_| ()) {
        done!(cuInit(0));
        let device: i32 = made!(cuDeviceGet(1));
        assert_eq!(call!(cuDeviceGet(Out::to(&mut 0), 2)), 101);
        let (major, minor): (i32, i32) =
            (made!(cuDeviceGetAttribute(75, device)), made!(cuDeviceGetAttribute(76, device)));
        assert_eq!((major, minor), (7, 5));
        let bytes: usize = made!(cuDeviceTotalMem_v2(device));
        assert_eq!(bytes, 65_536);
        let context: u64 = made!(cuCtxCreate_v2(0, device));
        let first: u64 = made!(cuMemAlloc_v2(40_000));
        assert_eq!(call!(cuMemAlloc_v2(Out::to(&mut 0), 40_000)), 2);
        // Memory of one context is not another's.
        let _other: u64 = made!(cuCtxCreate_v2(0, 0));
        let second: u64 = made!(cuMemAlloc_v2(40_000));
        done!(cuMemcpyDtoD_v2(second, first, 40_000));
        done!(cuCtxDestroy_v2(context));
        assert_eq!(call!(cuMemcpyDtoD_v2(second, first, 40_000)), 1, "the other context's end freed it");
    }
}

#[test]
fn calls_without_a_context_are_refused() {
    std::thread::spawn(|| {
        done!(cuInit(0));
        assert_eq!(call!(cuMemAlloc_v2(Out::to(&mut 0), 16)), 201);
        assert_eq!(call!(cuStreamCreate(Out::to(&mut 0), 0)), 201);
        assert_eq!(call!(cuCtxSynchronize()), 201);
        assert_eq!(call!(cuCtxGetDevice(Out::to(&mut 0))), 201);
        assert_eq!(call!(cuCtxPopCurrent_v2(Out::null())), 201);
        let current: u64 = made!(cuCtxGetCurrent());
        assert_eq!(current, 0);
    })
    .join()
    .unwrap();
}

#[test]
fn contexts_stack_and_end() {
    let outer = Context::new();
    let inner: u64 = made!(cuCtxCreate_v2(0, 0));
    let current: u64 = made!(cuCtxGetCurrent());
    assert_eq!(current, inner);
    done!(cuCtxPushCurrent_v2(outer.0));
    let popped: u64 = made!(cuCtxPopCurrent_v2());
    assert_eq!(popped, outer.0);
    let stream: u64 = made!(cuStreamCreate(0));
    std::thread::spawn(move || done!(cuCtxDestroy_v2(inner))).join().unwrap();
    assert_eq!(call!(cuMemAlloc_v2(Out::to(&mut 0), 16)), 709, "it is current and no more");
    done!(cuCtxSetCurrent(outer.0));
    assert_eq!(call!(cuStreamSynchronize(stream)), 400, "its streams went with it");
    assert_eq!(call!(cuCtxSetCurrent(inner)), 201);
    assert_eq!(call!(cuCtxDestroy_v2(inner)), 201);
    let version: u32 = {
        let mut version = 0;
        done!(cuCtxGetApiVersion(outer.0, Out::to(&mut version)));
        version
    };
    assert!(version > 3000);
}

#[test]
fn the_primary_context_lives_while_it_is_retained() {
    done!(cuInit(0));
    let (first, second): (u64, u64) =
        (made!(cuDevicePrimaryCtxRetain(0)), made!(cuDevicePrimaryCtxRetain(0)));
    assert_eq!(first, second);
    assert_eq!(call!(cuCtxDestroy_v2(first)), 201, "it is not the program's to end");
    done!(cuDevicePrimaryCtxRelease_v2(0));
    done!(cuCtxSetCurrent(first));
    free(upload(&[1]));
    done!(cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(call!(cuMemAlloc_v2(Out::to(&mut 0), 16)), 709);
    assert_eq!(call!(cuDevicePrimaryCtxRelease_v2(0)), 201);
    assert_eq!(call!(cuDevicePrimaryCtxRetain(Out::to(&mut 0), 1)), 101);
    done!(cuCtxSetCurrent(0));
}

#[test]
fn handles_that_are_none_are_refused() {
    let _context = Context::new();
    for handle in [3, 0xdead_beef, u64::MAX] {
        assert_eq!(call!(cuStreamSynchronize(handle)), 400);
        assert_eq!(call!(cuEventSynchronize(handle)), 400);
        assert_eq!(call!(cuModuleUnload(handle)), 400);
        assert_eq!(call!(cuModuleGetFunction(Out::to(&mut 0), handle, Text::of(c"f"))), 400);
        assert_eq!(call!(cuFuncGetAttribute(Out::to(&mut 0), 0, handle)), 400);
        assert_eq!(call!(cuCtxSetCurrent(handle)), 201);
    }
    let (event, stream): (u64, u64) = (made!(cuEventCreate(0)), made!(cuStreamCreate(0)));
    assert_eq!(call!(cuStreamSynchronize(event)), 400, "an event is no stream");
    done!(cuEventDestroy_v2(event));
    assert_eq!(call!(cuEventRecord(event, stream)), 400);
    assert_eq!(call!(cuEventDestroy_v2(event)), 400);
    done!(cuStreamDestroy_v2(stream));
    assert_eq!(call!(cuStreamDestroy_v2(stream)), 400);
}

#[test]
fn copies_and_fills_do_what_they_say() {
    let _context = Context::new();
    let a = upload(&[1, 2, 3, 4]);
    let b = upload(&[0; 4]);
    done!(cuMemcpyDtoD_v2(b + 4, a, 8));
    assert_eq!(download(b, 4), [0, 1, 2, 0]);
    done!(cuMemsetD8_v2(b, 0xab, 3));
    done!(cuMemsetD16_v2(b + 6, 0x1234, 1));
    done!(cuMemsetD32_v2(b + 8, 7, 2));
    assert_eq!(download(b, 4), [0x00ab_abab, 0x1234_0001, 7, 7]);
    let mut host = [9_u32; 2];
    done!(cuMemcpy(b, host.as_ptr() as u64, 8));
    done!(cuMemcpy(host.as_mut_ptr() as u64, a + 8, 8));
    assert_eq!((host, download(b, 4)), ([3, 4], vec![9, 9, 7, 7]));
    free(a);
    free(b);
}

#[test]
fn rows_are_copied_a_pitch_apart() {
    let _context = Context::new();
    let (from, to) = (upload(&[1, 2, 3, 4, 5, 6]), upload(&[0; 4]));
    let rows = |kind, device, x, pitch| Rows { kind, device, x, pitch, ..Rows::default() };
    let copy = |from, to| Copy2D { from, to, width: 8, height: 2 };
    // The last two columns of two rows of three.
    done!(cuMemcpy2D_v2(&copy(rows(2, from, 4, 12), rows(2, to, 0, 8))));
    assert_eq!(download(to, 4), [2, 3, 5, 6]);
    let host = [7_u32, 8, 9, 10];
    let side = Rows { kind: 1, host: host.as_ptr() as u64, pitch: 8, ..Rows::default() };
    done!(cuMemcpy2D_v2(&copy(side, rows(2, to, 0, 8))));
    assert_eq!(download(to, 4), host);
    assert_eq!(call!(cuMemcpy2D_v2(&copy(rows(2, from, 8, 12), rows(2, to, 0, 8)))), 1, "beyond the pitch");
    assert_eq!(call!(cuMemcpy2D_v2(&copy(rows(3, from, 0, 12), rows(2, to, 0, 8)))), 801);
    assert_eq!(call!(cuMemcpy2D_v2(std::ptr::null())), 1);
    free(from);
    free(to);
}

#[test]
fn wrong_memory_is_refused() {
    let _context = Context::new();
    let a = upload(&[1, 2, 3, 4]);
    let host = Host([0_u32; 8].as_mut_ptr().cast());
    assert_eq!(call!(cuMemAlloc_v2(Out::to(&mut 0), 0)), 1);
    assert_eq!(call!(cuMemAlloc_v2(Out::null(), 16)), 1);
    assert_eq!(call!(cuMemAlloc_v2(Out::to(&mut 0), 1 << 40)), 2);
    assert_eq!(call!(cuMemcpyHtoD_v2(a, host, 17)), 1, "beyond the end");
    assert_eq!(call!(cuMemcpyDtoH_v2(host, a + 8, 12)), 1);
    assert_eq!(call!(cuMemcpyDtoD_v2(a, a + 16, 4)), 1);
    assert_eq!(call!(cuMemsetD32_v2(a, 0, 5)), 1);
    assert_eq!(call!(cuMemsetD32_v2(a + 2, 0, 1)), 1, "not aligned");
    assert_eq!(call!(cuMemsetD32_v2(a, 0, usize::MAX)), 1);
    assert_eq!(call!(cuMemFree_v2(a + 4)), 1, "not a start");
    assert_eq!(call!(cuMemFreeHost(Host(a as *mut u8))), 1, "not the host's");
    done!(cuMemFree_v2(0));
    free(a);
    assert_eq!(call!(cuMemFree_v2(a)), 1, "twice");
    assert_eq!(call!(cuMemcpyDtoH_v2(host, a, 4)), 1, "freed");
}

#[test]
fn memory_of_both_is_reached_from_both() {
    let _context = Context::new();
    let managed: u64 = made!(cuMemAllocManaged(16, 1));
    let mut place = Host(std::ptr::null_mut());
    done!(cuMemAllocHost_v2(Out::to(&mut place), 16));
    for address in [managed, place.0 as u64] {
        done!(cuMemsetD32_v2(address, 5, 4));
        // SAFETY: the driver gave this memory to the host, with this length and a greater alignment.
        let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u32, 4) };
        assert_eq!(bytes, [5; 4]);
        bytes[1] = 6;
        assert_eq!(download(address, 2), [5, 6]);
    }
    assert_eq!(call!(cuMemFree_v2(place.0 as u64)), 1, "not the device's");
    done!(cuMemFreeHost(place));
    free(managed);
}

#[test]
fn used_memory_is_counted() {
    let test = "calls::used_memory_is_counted";
    if in_child(test, &[("CUDA_SIM_MEMORY", "1048576")], |_| ()) {
        let _context = Context::new();
        let (mut left, mut all) = (0, 0);
        let a: u64 = made!(cuMemAlloc_v2(1 << 19));
        done!(cuMemGetInfo_v2(Out::to(&mut left), Out::to(&mut all)));
        assert_eq!((left, all), (1 << 19, 1 << 20));
        free(a);
        done!(cuMemGetInfo_v2(Out::to(&mut left), Out::null()));
        assert_eq!(left, 1 << 20);
    }
}

#[test]
fn what_is_not_simulated_says_so() {
    let check = |stderr: &str| assert!(stderr.contains("cuGraphCreate is not simulated"), "{stderr}");
    if in_child("calls::what_is_not_simulated_says_so", &[], check) {
        assert_eq!(cuGraphCreate(), 801);
    }
}

#[test]
fn errors_have_names_and_meanings() {
    for (code, name, meaning) in [
        (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        (
            222,
            c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            c"the provided PTX was compiled with an unsupported toolchain.",
        ),
        (919, c"CUDA_ERROR_FABRIC_NOT_READY", c"the fabric is not ready"),
    ] {
        let (mut text, mut other) = (std::ptr::null(), std::ptr::null());
        done!(cuGetErrorName(code, Out::to(&mut text)));
        done!(cuGetErrorString(code, Out::to(&mut other)));
        // SAFETY: both are strings of the driver.
        assert_eq!(unsafe { (CStr::from_ptr(text), CStr::from_ptr(other)) }, (name, meaning));
    }
}

#[test]
fn functions_of_the_host_run_in_order_and_call_nothing() {
    extern "C" fn note(data: *mut c_void) {
        let answer = call!(cuCtxSynchronize());
        // SAFETY: `data` is the place that the test passes.
        unsafe { data.cast::<i32>().write(answer) };
    }
    let _context = Context::new();
    let stream: u64 = made!(cuStreamCreate(1));
    let mut answer = -1;
    done!(cuLaunchHostFunc(stream, Some(note), Host((&raw mut answer).cast())));
    done!(cuStreamSynchronize(stream));
    assert_eq!(answer, 800, "it must not call the driver");
    assert_eq!(call!(cuLaunchHostFunc(stream, None, Host(std::ptr::null_mut()))), 1);
}

/// Objects that a host function may not destroy, and the driver's answers.
struct Ends {
    context: u64,
    event: u64,
    stream: u64,
    answers: Vec<i32>,
}

extern "C" fn end_all(data: *mut c_void) {
    // SAFETY: the test passes this value, and reads it only after this function has returned.
    let ends = unsafe { &mut *data.cast::<Ends>() };
    ends.answers = vec![call!(cuEventDestroy_v2(ends.event))];
    // The other calls would wait for the queue that waits for this function.
    if ends.answers == [800] {
        ends.answers.extend([
            call!(cuStreamDestroy_v2(ends.stream)),
            call!(cuCtxDestroy_v2(ends.context)),
            call!(cuDevicePrimaryCtxRelease_v2(0)),
            call!(cuDevicePrimaryCtxReset_v2(0)),
        ]);
    }
}

#[test]
fn functions_of_the_host_end_nothing() {
    let context = Context::new();
    let (event, stream) = (made!(cuEventCreate(0)), made!(cuStreamCreate(0)));
    let mut ends = Ends { context: context.0, event, stream, answers: Vec::new() };
    done!(cuLaunchHostFunc(stream, Some(end_all), Host((&raw mut ends).cast())));
    done!(cuStreamSynchronize(stream));
    assert_eq!(ends.answers, [800; 5]);
    // The calls are allowed afterwards.
    done!(cuEventDestroy_v2(event));
    done!(cuStreamDestroy_v2(stream));
}

#[test]
fn the_calls_that_the_environment_names_fail() {
    let environment = [("CUDA_SIM_FAIL", "cuMemAlloc_v2:2=2,cuCtxSynchronize:1=719")];
    let check = |stderr: &str| {
        assert!(stderr.contains("cuMemAlloc_v2 fails with CUDA_ERROR_OUT_OF_MEMORY (2)"), "{stderr}")
    };
    if in_child("calls::the_calls_that_the_environment_names_fail", &environment, check) {
        done!(cuInit(0));
        let _context: u64 = made!(cuCtxCreate_v2(0, 0));
        let a = upload(&[1]);
        assert_eq!(call!(cuMemAlloc_v2(Out::to(&mut 0), 4)), 2);
        free(upload(&[1]));
        assert_eq!(call!(cuCtxSynchronize()), 719);
        assert_eq!(call!(cuMemFree_v2(a)), 719, "this one ends all work");
    }
}

#[test]
fn what_is_never_freed_is_told() {
    let check = |stderr: &str| {
        assert!(
            stderr.contains(
                "a context was destroyed with 2 allocations, 20 bytes, that were never freed: 4 at 0x"
            ),
            "{stderr}"
        );
        assert!(stderr.contains("the process ended with 1 allocations, 8 bytes"), "{stderr}");
        assert!(
            stderr.contains("total launches=0 faults=0") && stderr.contains("leaks=3 leaked_bytes=28"),
            "{stderr}"
        );
    };
    if in_child("calls::what_is_never_freed_is_told", &[("CUDA_SIM_REPORT", "-")], check) {
        let context = Context::new();
        upload(&[1]);
        upload(&[1, 2, 3, 4]);
        drop(context);
        std::mem::forget(Context::new());
        upload(&[1, 2]);
    }
}
