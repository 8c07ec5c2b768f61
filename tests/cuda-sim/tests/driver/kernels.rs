//! Modules, functions and launches follow the driver's rules.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use cuda_sim::driver::alloc::cuMemAlloc_v2;
use cuda_sim::driver::context::cuCtxSynchronize;
use cuda_sim::driver::copy::cuMemsetD32_v2;
use cuda_sim::driver::entry::{Out, Text};
use cuda_sim::driver::launch::cuLaunchKernel;
use cuda_sim::driver::module::*;
use cuda_sim::driver::occupancy::*;

use super::{Context, call, done, download, free, function, in_child, made, no_extra, upload};

/// A kernel that computes `y[i] = x[i] + k`, for `i` below `n`.
pub(super) const ADD: &str = "\
.version 7.1
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u32 k, .param .u32 n)
.maxntid 256, 1, 1
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [k];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r2;
    @%p1 bra DONE;
    mul.wide.u32 %rd3, %r6, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r7, [%rd4];
    add.u32 %r7, %r7, %r1;
    st.global.u32 [%rd5], %r7;
DONE:
    ret;
}
";

/// Launches `ADD` with a pointer for each parameter.
pub(super) fn add(function: u64, blocks: u32, threads: u32, (x, y, k, n): (u64, u64, u32, u32)) -> i32 {
    let pointers: [*const u8; 4] =
        [(&raw const x).cast(), (&raw const y).cast(), (&raw const k).cast(), (&raw const n).cast()];
    call!(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, 0, pointers.as_ptr(), no_extra()))
}

#[test]
fn a_kernel_runs_and_is_reported() {
    let check = |stderr: &str| {
        let line = stderr.lines().find(|line| line.starts_with("launch ")).unwrap();
        for part in
            ["kernel=add", "grid=2x1x1", "block=64x1x1", "loaded=400", "stored=400", "load_sectors=13"]
        {
            assert!(line.split(' ').any(|word| word == part), "{part}: {line}");
        }
        assert!(stderr.contains("total launches=1 faults=0 "), "{stderr}");
    };
    if in_child("kernels::a_kernel_runs_and_is_reported", &[("CUDA_SIM_REPORT", "-")], check) {
        let _context = Context::new();
        let x: Vec<u32> = (0..100).collect();
        let (x, y, add_k) = (upload(&x), upload(&[0; 100]), function(ADD, c"add"));
        assert_eq!(add(add_k, 2, 64, (x, y, 5, 100)), 0);
        assert_eq!(download(y, 100), (5..105).collect::<Vec<_>>());
        free(x);
        free(y);
    }
}

#[test]
fn loads_of_constants_are_no_loads_of_global_memory() {
    let check = |stderr: &str| {
        let line = stderr.lines().find(|line| line.starts_with("launch ")).unwrap();
        for part in ["loaded=400", "load_sectors=13", "stored=400"] {
            assert!(line.split(' ').any(|word| word == part), "{part}: {line}");
        }
    };
    let test = "kernels::loads_of_constants_are_no_loads_of_global_memory";
    if in_child(test, &[("CUDA_SIM_REPORT", "-")], check) {
        let _context = Context::new();
        let text = ADD.replace(".visible .entry", ".const .align 4 .u32 seven = 7;\n.visible .entry");
        let text = text.replace("ld.param.u32 %r1, [k]", "ld.const.u32 %r1, [seven]");
        let (x, y, add_k) = (upload(&[0; 100]), upload(&[0; 100]), function(&text, c"add"));
        assert_eq!(add(add_k, 2, 64, (x, y, 5, 100)), 0);
        assert_eq!(download(y, 100), [7; 100]);
        free(x);
        free(y);
    }
}

/// Launches one thread with one buffer for all parameters.
fn launch_buffer(function: u64, buffer: *const c_void, size: usize) -> i32 {
    let extra = [
        std::ptr::without_provenance(1),
        buffer,
        std::ptr::without_provenance(2),
        (&raw const size).cast(),
        null(),
    ];
    call!(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, null(), extra.as_ptr()))
}

#[test]
fn parameters_may_come_in_one_buffer() {
    #[repr(C)]
    struct Params {
        x: u64,
        y: u64,
        k: u32,
        n: u32,
    }
    let _context = Context::new();
    let (x, y, add) = (upload(&[1, 2, 3]), upload(&[0; 3]), function(ADD, c"add"));
    let params = Params { x, y, k: 10, n: 3 };
    let answers = [4, 23, 24, 25, 32].map(|size| launch_buffer(add, (&raw const params).cast(), size));
    assert_eq!(answers, [1, 1, 0, 1, 1]);
    assert_eq!(download(y, 3), [11, 12, 13]);
    free(x);
    free(y);
}

#[test]
fn a_buffer_of_parameters_may_end_with_padding() {
    #[repr(C)]
    struct Params {
        x: u64,
        y: u64,
        k: u32,
    }
    let _context = Context::new();
    let text = ADD.replace(", .param .u32 n", "").replace("ld.param.u32 %r2, [n]", "mov.u32 %r2, 3");
    let (x, y, add) = (upload(&[1, 2, 3]), upload(&[0; 3]), function(&text, c"add"));
    let params = Params { x, y, k: 10 };
    assert_eq!(size_of::<Params>(), 24, "of which the parameters are 20");
    for (size, expect) in [(16, 1), (20, 0), (24, 0), (28, 1), (32, 1)] {
        done!(cuMemsetD32_v2(y, 0, 3));
        assert_eq!(launch_buffer(add, (&raw const params).cast(), size), expect, "{size}");
        let sums = if expect == 0 { [11, 12, 13] } else { [0; 3] };
        assert_eq!(download(y, 3), sums, "{size}");
    }
    free(x);
    free(y);
}

/// A grid, a block, and bytes of dynamic shared memory.
type LaunchConfig = ([u32; 3], [u32; 3], u32);

/// Queues a launch of `ADD` for no element in a stream, with a pointer for each parameter.
fn add_nothing(function: u64, ([x, y, z], [a, b, c], shared): LaunchConfig, stream: u64) -> i32 {
    let (address, number) = (0_u64, 0_u32);
    let (address, number) = ((&raw const address).cast(), (&raw const number).cast());
    let pointers = [address, address, number, number];
    call!(cuLaunchKernel(function, x, y, z, a, b, c, shared, stream, pointers.as_ptr(), no_extra()))
}

#[test]
fn wrong_launches_are_refused() {
    let _context = Context::new();
    let add = function(ADD, c"add");
    // The first two launches are valid, and each of the others has one invalid number.
    for (grid, block, shared, expect) in [
        ([1, 1, 1], [256, 1, 1], 48 << 10, 0),
        ([2, 3, 4], [1, 1, 64], 0, 0),
        ([0, 1, 1], [32, 1, 1], 0, 1),
        ([1, 1, 0], [32, 1, 1], 0, 1),
        ([1 << 31, 1, 1], [32, 1, 1], 0, 1),
        ([1, 65_536, 1], [32, 1, 1], 0, 1),
        ([1, 1, 65_536], [32, 1, 1], 0, 1),
        ([1, 1, 1], [32, 0, 1], 0, 1),
        ([1, 1, 1], [1025, 1, 1], 0, 1),
        ([1, 1, 1], [32, 32, 2], 0, 1),
        ([1, 1, 1], [1, 1, 65], 0, 1),
        // The kernel declares `.maxntid 256, 1, 1`.
        ([1, 1, 1], [257, 1, 1], 0, 701),
        ([1, 1, 1], [32, 1, 1], (48 << 10) + 1, 1),
    ] {
        let code = add_nothing(add, (grid, block, shared), 0);
        assert_eq!(code, expect, "{grid:?} {block:?} {shared}");
    }
    let required = function(&ADD.replace(".maxntid 256, 1, 1", ".reqntid 64, 1, 1"), c"add");
    assert_eq!(add_nothing(required, ([1; 3], [64, 1, 1], 0), 0), 0);
    assert_eq!(add_nothing(required, ([1; 3], [32, 2, 1], 0), 0), 1, "as many threads, not in that shape");
    done!(cuCtxSynchronize());
}

/// Live values may exceed the registers of each thread of a large block. A kernel that declares its block is
/// compiled with spills, so that it fits.
#[test]
fn a_declared_block_has_the_registers_that_it_needs() {
    let _context = Context::new();
    let declared = ".reg .b32 %r<8>;";
    let all = |each: fn(u32) -> String| (8..88).map(each).collect::<String>();
    let many = ADD
        .replace(declared, ".reg .b32 %r<88>;")
        .replace("ld.global.u32 %r7, [%rd4];", &all(|i| format!("ld.global.u32 %r{i}, [%rd4];\n")))
        .replace("add.u32 %r7, %r7, %r1;", &all(|i| format!("add.u32 %r7, %r{i}, %r1;\n")));
    for (limit, threads, expect) in [
        (".maxntid 1024, 1, 1", 1024, 0),
        (".maxntid 512, 1, 1", 512, 0),
        (".maxntid 512, 1, 1", 513, 701),
        ("", 512, 0),
        ("", 1024, 701),
    ] {
        let kernel = function(&many.replace(".maxntid 256, 1, 1", limit), c"add");
        assert_eq!(add_nothing(kernel, ([1; 3], [threads, 1, 1], 0), 0), expect, "{limit:?} {threads}");
    }
    done!(cuCtxSynchronize());
}

#[test]
fn launches_of_what_is_not_there_are_refused() {
    let _context = Context::new();
    let (add, right) = (function(ADD, c"add"), ([1; 3], [32, 1, 1], 0));
    assert_eq!(add_nothing(add, right, 0), 0);
    assert_eq!(add_nothing(0, right, 0), 400);
    assert_eq!(add_nothing(add, right, add), 400, "a function is no stream");
    let value = 0_u64;
    let value = (&raw const value).cast();
    let launch = |pointers: *const *const u8, extra: *const *const c_void| {
        call!(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, 0, pointers, extra))
    };
    assert_eq!(launch([value; 4].as_ptr(), null()), 0);
    assert_eq!(launch([value, value, value, null()].as_ptr(), null()), 1, "one is missing");
    assert_eq!(launch(null(), null()), 1, "all are");
    assert_eq!(launch([value; 4].as_ptr(), [null()].as_ptr()), 1, "there are two lists");
    let other = Context::new();
    assert_eq!(add_nothing(add, right, 0), 201, "it is another context's");
    drop(other);
    done!(cuCtxSynchronize());
}

#[test]
fn functions_describe_themselves() {
    let _context = Context::new();
    let add = function(ADD, c"add");
    let attribute = |attribute| -> i32 { made!(cuFuncGetAttribute(attribute, add)) };
    assert_eq!((attribute(0), attribute(1), attribute(5), attribute(6)), (256, 0, 71, 90));
    assert!((1..=32).contains(&attribute(4)), "{} registers", attribute(4));
    assert_eq!(attribute(8), 48 << 10);
    done!(cuFuncSetAttribute(add, 8, 227 << 10));
    assert_eq!(attribute(8), 227 << 10);
    assert_eq!(call!(cuFuncSetAttribute(add, 8, (227 << 10) + 1)), 1);
    let resident =
        |threads, shared| -> i32 { made!(cuOccupancyMaxActiveBlocksPerMultiprocessor(add, threads, shared)) };
    assert_eq!((resident(256, 0), resident(256, 100 << 10), resident(512, 0)), (8, 2, 0));
    let (mut grid, mut block) = (0, 0);
    done!(cuOccupancyMaxPotentialBlockSize(Out::to(&mut grid), Out::to(&mut block), add, None, 0, 0));
    assert_eq!((grid, block), (32, 256));
    let bytes: usize = made!(cuOccupancyAvailableDynamicSMemPerBlock(add, 2, 128));
    assert_eq!(bytes, 113 << 10);
}

#[test]
fn variables_of_a_module_have_addresses() {
    let text =
        c".version 7.1\n.target sm_80\n.address_size 64\n.visible .global .align 4 .u32 table[2] = {7, 8};\n";
    let _context = Context::new();
    let module: u64 = made!(cuModuleLoadData(text.as_ptr().cast()));
    let (mut address, mut bytes) = (0, 0);
    done!(cuModuleGetGlobal_v2(Out::to(&mut address), Out::to(&mut bytes), module, Text::of(c"table")));
    assert_eq!((bytes, download(address, 2)), (8, vec![7, 8]));
    assert_eq!(call!(cuModuleGetGlobal_v2(Out::null(), Out::null(), module, Text::of(c"tables"))), 500);
    assert_eq!(call!(cuModuleGetFunction(Out::to(&mut 0), module, Text::of(c"table"))), 500);
    done!(cuModuleUnload(module));
    assert_eq!(call!(cuModuleUnload(module)), 400);
}

/// Loads a text, and returns the code and the log of errors, cut to `room` bytes.
fn load(text: &str, room: usize) -> (i32, String) {
    let text = CString::new(text).unwrap();
    let mut log = vec![0xff_u8; 1024];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(room)];
    let mut module = 0;
    let code = call!(cuModuleLoadDataEx(
        Out::to(&mut module),
        text.as_ptr().cast(),
        2,
        [5, 6].as_ptr(),
        values.as_mut_ptr()
    ));
    let len = values[1].addr();
    assert!(len < room && log[len] == 0 && log[room] == 0xff);
    log.truncate(len);
    (code, String::from_utf8(log).unwrap())
}

#[test]
fn refused_texts_have_a_log() {
    let _context = Context::new();
    for (from, to, code, expect) in [
        (
            ".version 7.1",
            ".version 9.1",
            222,
            "line 1; fatal   : Unsupported .version 9.1; current version is '9.0'",
        ),
        ("sm_80", "sm_100", 218, "line 2; fatal   : SM version specified by .target is higher"),
        ("add.u32 %r7", "no.such %r7", 218, "line 24; error   : "),
        (
            "add.u32 %r7, %r7, %r1",
            "elect.sync %r7|%p1, -1",
            218,
            "line 24; error   : `elect.sync`: it requires `.target` sm_90 or higher, not sm_80, and PTX ISA `.version` 8.0",
        ),
    ] {
        let (answer, log) = load(&ADD.replace(from, to), 1000);
        assert!(
            answer == code && log.starts_with("ptxas application ptx input, ") && log.contains(expect),
            "{answer} {log}"
        );
    }
    assert_eq!(load(ADD, 1000), (0, String::new()));
    assert_eq!(load(&ADD.replace("7.1", "9.9"), 6), (222, "ptxas".into()));
    let elf = c"\x7fELF and so on";
    assert_eq!(call!(cuModuleLoadData(Out::to(&mut 0), elf.as_ptr().cast())), 209);
    assert_eq!(call!(cuModuleLoadData(Out::to(&mut 0), null())), 1);
    assert_eq!(call!(cuModuleLoad(Out::to(&mut 0), Text::of(c"/nowhere/at/all"))), 301);
    assert_eq!(
        call!(cuModuleLoadDataEx(Out::to(&mut 0), null(), 1, [99].as_ptr(), [null_mut()].as_mut_ptr())),
        1
    );
}

#[test]
fn the_driver_bounds_the_ptx_it_reads() {
    if in_child("kernels::the_driver_bounds_the_ptx_it_reads", &[("CUDA_SIM_DRIVER", "11000")], |_| ()) {
        let _context = Context::new();
        let (answer, log) = load(ADD, 1000);
        assert!(answer == 222 && log.contains("current version is '7.0'"), "{answer} {log}");
        assert_eq!(load(&ADD.replace("7.1", "7.0"), 1000).0, 0);
    }
}

#[test]
fn many_threads_launch_at_once() {
    let _context = Context::new();
    let mut context = 0;
    done!(get_current(Out::to(&mut context)));
    let add_k = function(ADD, c"add");
    std::thread::scope(|scope| {
        for k in 0..4 {
            scope.spawn(move || {
                done!(set_current(context));
                let (x, y) = (upload(&[k; 300]), made!(cuMemAlloc_v2(1200)));
                for i in 0..50 {
                    assert_eq!(add(add_k, 2, 256, (x, y, i, 300)), 0);
                }
                assert_eq!(download(y, 300), [k + 49; 300]);
                free(x);
                free(y);
            });
        }
    });
}

use cuda_sim::driver::context::{cuCtxGetCurrent as get_current, cuCtxSetCurrent as set_current};
