//! Faults of kernels have the driver's error codes at the right calls, and the right messages.

use cuda_sim::driver::alloc::{cuMemAlloc_v2, cuMemFree_v2};
use cuda_sim::driver::context::{cuCtxCreate_v2, cuCtxSynchronize, cuDevicePrimaryCtxRetain};
use cuda_sim::driver::device::{cuDeviceGetCount, cuInit};
use cuda_sim::driver::entry::Out;
use cuda_sim::driver::launch::cuLaunchKernel;
use cuda_sim::driver::stream::cuStreamCreate;

use super::kernels::{ADD, add};
use super::{call, done, function, in_child, made, no_extra, upload};

/// Creates a context without an end. A context with a fault cannot be destroyed in order.
pub(super) fn begin() {
    done!(cuInit(0));
    let _context: u64 = made!(cuCtxCreate_v2(0, 0));
}

fn check_lost(code: i32) {
    assert_eq!(call!(cuCtxSynchronize()), code, "the call that waits");
    assert_eq!(call!(cuMemAlloc_v2(Out::to(&mut 0), 4)), code, "later calls");
    assert_eq!(call!(cuStreamCreate(Out::to(&mut 0), 0)), code);
    assert_eq!(call!(cuDevicePrimaryCtxRetain(Out::to(&mut 0), 0)), code, "other contexts");
    let count: i32 = made!(cuDeviceGetCount());
    assert_eq!(count, 1);
}

#[test]
fn beyond_the_end() {
    let check = |stderr: &str| {
        assert!(stderr.contains("cuda-sim: `add`, line 23: "), "{stderr}");
        assert!(
            stderr.contains("ld.global.u32") && stderr.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
            "{stderr}"
        );
        assert!(
            stderr.contains("fault kernel=add line=23 block=0x0x0 thread=3x0x0 code=700 text="),
            "{stderr}"
        );
    };
    if in_child("faults::beyond_the_end", &[("CUDA_SIM_REPORT", "-")], check) {
        begin();
        let (x, y) = (upload(&[1, 2, 3]), upload(&[0; 4]));
        assert_eq!(add(function(ADD, c"add"), 1, 32, (x, y, 1, 4)), 0, "the launch itself succeeds");
        check_lost(700);
    }
}

#[test]
fn freed_memory() {
    let check = |stderr: &str| assert!(stderr.contains("freed"), "{stderr}");
    if in_child("faults::freed_memory", &[], check) {
        begin();
        let (x, y) = (upload(&[1, 2, 3]), upload(&[0; 4]));
        done!(cuMemFree_v2(x));
        assert_eq!(add(function(ADD, c"add"), 1, 32, (x, y, 1, 3)), 0);
        check_lost(700);
    }
}

#[test]
fn misaligned() {
    if in_child("faults::misaligned", &[], |_| ()) {
        begin();
        let (x, y) = (upload(&[1, 2, 3]), upload(&[0; 4]));
        assert_eq!(add(function(ADD, c"add"), 1, 32, (x + 2, y, 1, 2)), 0);
        check_lost(716);
    }
}

#[test]
fn a_trap() {
    if in_child("faults::a_trap", &[], |_| ()) {
        begin();
        let text = ".version 7.1\n.target sm_80\n.address_size 64\n.visible .entry stop() { trap; }\n";
        let pointers = std::ptr::null();
        done!(cuLaunchKernel(function(text, c"stop"), 1, 1, 1, 1, 1, 1, 0, 0, pointers, no_extra()));
        check_lost(719);
    }
}

#[test]
fn a_race() {
    if in_child("faults::a_race", &[], |_| ()) {
        begin();
        let (x, y) = (upload(&[1]), upload(&[0]));
        // All threads write the one element, with different values.
        let text = ADD.replace("add.s64 %rd5, %rd2, %rd3;", "mov.u64 %rd5, %rd2;");
        let text = text.replace("add.s64 %rd4, %rd1, %rd3;", "mov.u64 %rd4, %rd1;");
        let text = text.replace("add.u32 %r7, %r7, %r1;", "add.u32 %r7, %r7, %r6;");
        assert_eq!(add(function(&text, c"add"), 1, 32, (x, y, 1, 32)), 0);
        check_lost(719);
    }
}
