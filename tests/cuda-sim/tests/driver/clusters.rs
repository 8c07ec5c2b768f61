//! Launches with clusters follow the driver's rules.

use std::ffi::c_void;
use std::ptr::null;

use cuda_sim::driver::context::cuCtxSynchronize;
use cuda_sim::driver::device::cuDeviceGetAttribute;
use cuda_sim::driver::entry::Out;
use cuda_sim::driver::launch::*;
use cuda_sim::driver::module::cuFuncGetAttribute;

use super::faults::begin;
use super::{Context, call, done, download, free, function, in_child, made, no_extra, upload};

/// A kernel in which each block writes its rank into a word of all blocks of its cluster. The cluster's first
/// block writes the sum of these words, and whether the launch states its clusters.
const RANKS: &str = "\
.version 7.8
.target sm_90
.address_size 64
.visible .entry ranks(.param .u64 y) DIRECTIVES
{
    .reg .pred %p<3>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<4>;
    .shared .align 4 .b32 words[8];
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %cluster_nctarank;
    mov.u32 %r3, words;
    mad.lo.u32 %r4, %r1, 4, %r3;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.u32 %r5, 0;
TELL:
    mapa.shared::cluster.u32 %r6, %r4, %r5;
    add.u32 %r7, %r1, 1;
    st.shared::cluster.u32 [%r6], %r7;
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p1, %r5, %r2;
    @%p1 bra TELL;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.u32 %r8, 0;
ADD:
    add.u32 %r5, %r5, -1;
    mad.lo.u32 %r6, %r5, 4, %r3;
    ld.shared.u32 %r7, [%r6];
    add.u32 %r8, %r8, %r7;
    setp.ne.u32 %p1, %r5, 0;
    @%p1 bra ADD;
    mov.pred %p2, %is_explicit_cluster;
    @%p2 add.u32 %r8, %r8, 100;
    mov.u32 %r9, %ctaid.x;
    mul.wide.u32 %rd2, %r9, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r8;
    ret;
}
";

/// Loads the kernel with the given directives.
fn ranks(directives: &str) -> u64 {
    function(&RANKS.replace("DIRECTIVES", directives), c"ranks")
}

/// Loads a kernel that does nothing, with the given directives.
fn nothing(directives: &str) -> u64 {
    let header = RANKS.split_inclusive("DIRECTIVES").next().unwrap_or_default();
    function(&format!("{} {{ ret; }}\n", header.replace("DIRECTIVES", directives)), c"ranks")
}

fn attribute(id: u32, value: [u32; 3]) -> Attribute {
    let [x, y, z] = value;
    let mut all = [9; 16];
    all[..3].copy_from_slice(&[x, y, z]);
    Attribute { id, pad: 7, value: all }
}

/// Launches blocks of one thread with attributes.
fn launch(function: u64, grid: [u32; 3], attributes: &[Attribute], y: u64) -> i32 {
    let (stream, attributes, count) = (0, attributes.as_ptr(), attributes.len() as u32);
    let config = Config { grid, block: [1; 3], dynamic_shared: 0, stream, attributes, count };
    let pointers: [*const u8; 1] = [(&raw const y).cast()];
    call!(cuLaunchKernelEx(&raw const config, function, pointers.as_ptr(), no_extra()))
}

/// Launches blocks of one thread in clusters with these numbers of blocks along each axis.
fn launch_clusters(function: u64, grid: [u32; 3], cluster: [u32; 3], y: u64) -> i32 {
    launch(function, grid, &[attribute(4, cluster)], y)
}

#[test]
fn structs_are_laid_out_as_in_c() {
    use std::mem::offset_of;
    assert_eq!((size_of::<Config>(), align_of::<Config>()), (56, 8));
    assert_eq!((offset_of!(Config, block), offset_of!(Config, dynamic_shared)), (12, 24));
    assert_eq!(
        (offset_of!(Config, stream), offset_of!(Config, attributes), offset_of!(Config, count)),
        (32, 40, 48)
    );
    assert_eq!((size_of::<Attribute>(), align_of::<Attribute>(), offset_of!(Attribute, value)), (72, 8, 8));
}

#[test]
fn a_launch_says_which_blocks_are_a_cluster() {
    let _context = Context::new();
    let (kernel, y) = (ranks(""), upload(&[0; 8]));
    let check = |code: i32, wanted: u32| {
        assert_eq!(code, 0);
        assert_eq!(download(y, 8), [wanted; 8]);
    };
    let grid = [8, 1, 1];
    check(launch_clusters(kernel, grid, [4, 1, 1], y), 110);
    check(launch_clusters(kernel, grid, [8, 1, 1], y), 136);
    check(launch_clusters(kernel, grid, [1, 1, 1], y), 101);
    // A launch without the attribute has a cluster for each block. The last of two attributes counts.
    check(launch(kernel, grid, &[], y), 1);
    check(launch(kernel, grid, &[attribute(0, [4, 1, 1])], y), 1);
    let two = [attribute(4, [8, 1, 1]), attribute(0, [0; 3]), attribute(4, [2, 1, 1])];
    check(launch(kernel, grid, &two, y), 103);
    // The kernel may require a cluster size, which then applies to every launch.
    let pointers: [*const u8; 1] = [(&raw const y).cast()];
    let plain =
        |kernel: u64| call!(cuLaunchKernel(kernel, 8, 1, 1, 1, 1, 1, 0, 0, pointers.as_ptr(), no_extra()));
    for directives in [".reqnctapercluster 2", ".explicitcluster .reqnctapercluster 2, 1, 1"] {
        let required = ranks(directives);
        check(plain(required), 103);
        check(launch(required, grid, &[], y), 103);
        check(launch_clusters(required, grid, [2, 1, 1], y), 103);
    }
    check(launch_clusters(ranks(".explicitcluster .maxclusterrank 4"), grid, [4, 1, 1], y), 110);
    free(y);
}

#[test]
fn wrong_clusters_are_refused() {
    let _context = Context::new();
    let (kernel, y) = (nothing(""), upload(&[0; 64]));
    let grid = [8, 4, 2];
    for (cluster, expect) in [
        ([2, 2, 2], 0),
        ([3, 1, 1], 912),
        ([1, 3, 1], 912),
        ([1, 1, 4], 912),
        ([16, 1, 1], 912),
        ([8, 2, 1], 912),
        ([0, 1, 1], 912),
        ([1 << 16, 1 << 16, 1], 912),
    ] {
        let code = launch_clusters(kernel, grid, cluster, y);
        assert_eq!(code, expect, "{cluster:?}");
    }
    for (directives, cluster, expect) in [
        (".reqnctapercluster 2", [4, 1, 1], 912),
        (".reqnctapercluster 2", [1, 2, 1], 912),
        (".maxclusterrank 4", [8, 1, 1], 912),
        (".maxclusterrank 4", [2, 2, 1], 0),
        (".maxclusterrank 16", [8, 2, 1], 912),
    ] {
        assert_eq!(
            launch_clusters(nothing(directives), grid, cluster, y),
            expect,
            "{directives} {cluster:?}"
        );
    }
    let (explicit, odd) = (nothing(".explicitcluster"), nothing(".reqnctapercluster 3"));
    assert_eq!((launch(explicit, grid, &[], y), launch(odd, grid, &[], y)), (912, 912));
    let pointers: [*const u8; 1] = [(&raw const y).cast()];
    let plain =
        |kernel: u64| call!(cuLaunchKernel(kernel, 8, 1, 1, 1, 1, 1, 0, 0, pointers.as_ptr(), no_extra()));
    assert_eq!((plain(explicit), plain(odd), plain(nothing(".reqnctapercluster 16"))), (912, 912, 912));
    // Other mistakes have the same codes as without clusters.
    assert_eq!(launch_clusters(kernel, [0, 1, 1], [1; 3], y), 1);
    assert_eq!(launch_clusters(0, grid, [1; 3], y), 400);
    assert_eq!(call!(cuLaunchKernelEx(null(), kernel, pointers.as_ptr(), no_extra())), 1);
    let config =
        |attributes, count| Config { grid, block: [1; 3], dynamic_shared: 0, stream: 0, attributes, count };
    let launch = |config: Config, pointers: *const *const u8| {
        call!(cuLaunchKernelEx(&raw const config, kernel, pointers, null::<*const c_void>()))
    };
    assert_eq!(launch(config(null(), 1), pointers.as_ptr()), 1, "there are no attributes");
    assert_eq!(launch(config(null(), 0), null()), 1, "there are no parameters");
    assert_eq!(launch(Config { stream: kernel, ..config(null(), 0) }, pointers.as_ptr()), 400);
    done!(cuCtxSynchronize());
    free(y);
}

#[test]
fn attributes_that_are_not_simulated_are_told() {
    let check = |stderr: &str| {
        assert!(
            stderr.contains("cuLaunchKernelEx: the attribute 6 of a launch is not simulated"),
            "{stderr}"
        );
    };
    if in_child("clusters::attributes_that_are_not_simulated_are_told", &[], check) {
        let _context = Context::new();
        let attributes = [attribute(4, [1; 3]), attribute(6, [1; 3])];
        assert_eq!(launch(ranks(""), [1; 3], &attributes, 0), 801);
    }
}

#[test]
fn devices_and_functions_tell_of_clusters() {
    let _context = Context::new();
    let able: i32 = made!(cuDeviceGetAttribute(120, 0));
    assert_eq!(able, 1);
    let of = |directives: &str| {
        let kernel = ranks(directives);
        [10, 11, 12, 13].map(|attribute| -> i32 { made!(cuFuncGetAttribute(attribute, kernel)) })
    };
    assert_eq!(of(""), [0; 4]);
    assert_eq!(of(".explicitcluster .reqnctapercluster 4, 2"), [1, 4, 2, 1]);
}

#[test]
fn devices_before_hopper_have_no_clusters() {
    let check = |stderr: &str| {
        assert!(stderr.contains("clusters, which devices of 8.9 have not"), "{stderr}");
    };
    let test = "clusters::devices_before_hopper_have_no_clusters";
    if in_child(test, &[("CUDA_SIM_ARCH", "89")], check) {
        let _context = Context::new();
        let able: i32 = made!(cuDeviceGetAttribute(120, 0));
        assert_eq!(able, 0);
        let text =
            ".version 7.1\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 y) { ret; }\n";
        let kernel = function(text, c"k");
        assert_eq!(launch_clusters(kernel, [4, 1, 1], [2, 1, 1], 0), 801);
        assert_eq!(launch(kernel, [4, 1, 1], &[], 0), 0);
        done!(cuCtxSynchronize());
    }
}

#[test]
fn faults_in_clusters_end_the_work() {
    let check = |stderr: &str| {
        assert!(stderr.contains("which may not have begun"), "{stderr}");
    };
    if in_child("clusters::faults_in_clusters_end_the_work", &[], check) {
        begin();
        let text = RANKS.replace("DIRECTIVES", "");
        let text = text.replacen("barrier.cluster.arrive.aligned;\n    barrier.cluster.wait.aligned;", "", 1);
        let kernel = function(&text, c"ranks");
        assert_eq!(launch_clusters(kernel, [4, 1, 1], [2, 1, 1], 0), 0);
        assert_eq!(call!(cuCtxSynchronize()), 700);
    }
}
