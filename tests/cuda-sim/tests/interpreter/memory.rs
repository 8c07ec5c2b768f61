//! Memory: widths, spaces, atomics, asynchronous copies, and counters are right.

use crate::harness::{
    self, Arg, LaunchConfig, blocks, check, kernel, launch, one, s, threads, three, to_words, words, words_of,
};
use cuda_sim::exec::Counters;

#[test]
fn loads_extend_and_stores_cut() {
    let text = kernel(&["u64 out", "u64 in"], ".reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .b16 %h<9>;
ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
ld.global.u8 %r1, [%rd2+3]; st.global.u32 [%rd1], %r1;
ld.global.s8 %r2, [%rd2+3]; st.global.u32 [%rd1+4], %r2;
ld.global.s16 %r3, [%rd2+2]; st.global.u32 [%rd1+8], %r3;
ld.global.s8 %h1, [%rd2+3]; cvt.s32.s16 %r4, %h1; st.global.u32 [%rd1+12], %r4;
ld.global.s32 %rd3, [%rd2+4]; st.global.u64 [%rd1+16], %rd3;
ld.global.u32 %rd4, [%rd2+4]; st.global.u64 [%rd1+24], %rd4;
mov.u32 %r5, 0x12345678; st.global.u8 [%rd1+32], %r5; st.global.u16 [%rd1+34], %r5;
ld.global.v2.u16 {%h2, %h3}, [%rd2]; mov.b32 %r6, {%h3, %h2}; st.global.u32 [%rd1+36], %r6;
ld.global.nc.L1::no_allocate.L2::128B.v4.u8 {%h4, %h5, %h6, %h7}, [%rd2]; cvt.u32.u16 %r7, %h6; st.global.u32 [%rd1+40], %r7;
ld.volatile.global.u32 %r8, [%rd2+4]; st.relaxed.gpu.global.u32 [%rd1+44], %r8;
ld.u32 %r9, [%rd2+-0]; st.u32 [%rd1+48], %r9;");
    let found = words_of(&text, threads(1), &[words(&[0; 13]), words(&[0x80ff_1234, 0xffff_fffe])]);
    let wanted = [
        0x80,
        0xffff_ff80,
        0xffff_80ff,
        0xffff_ff80,
        0xffff_fffe,
        0xffff_ffff,
        0xffff_fffe,
        0,
        0x5678_0078,
        0x1234_80ff,
        0xff,
        0xffff_fffe,
        0x80ff_1234,
    ];
    assert_eq!(found, wanted);
}

#[test]
fn variables_of_the_module() {
    let text = ".version 8.0
.target sm_80
.address_size 64
.global .attribute(.managed) .align 4 .u32 counter = 5;
.global .align 8 .b8 bytes[8] = {1, 2, 3, 4, 0xff};
.const .align 4 .f32 table[3] = {0f3F800000, 2.0, 0f40400000};
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<5>;
.local .align 16 .b8 depot[32];
.shared .align 4 .b32 fixed;
ld.param.u64 %rd1, [out];
ld.global.u32 %r1, [counter]; st.global.u32 [%rd1], %r1;
mov.u64 %rd2, bytes; ld.global.u8 %r2, [%rd2+4]; st.global.u32 [%rd1+4], %r2;
ld.global.u32 %r3, [bytes]; st.global.u32 [%rd1+8], %r3;
ld.const.f32 %f1, [table+8]; st.global.f32 [%rd1+12], %f1;
mov.u64 %rd3, depot; cvta.local.u64 %rd4, %rd3; st.local.u32 [%rd3+8], 77; ld.u32 %r4, [%rd4+8]; st.global.u32 [%rd1+16], %r4;
mov.u32 %r5, dynamic; st.shared.u32 [%r5+4], 99; mov.u64 %rd5, dynamic; cvta.shared.u64 %rd6, %rd5; ld.u32 %r6, [%rd6+4]; st.global.u32 [%rd1+20], %r6;
st.shared.u32 [fixed], 3; ld.shared.u32 %r7, [fixed]; st.global.u32 [%rd1+24], %r7;
st.shared.v2.u32 [dynamic+8], {%r6, %r7}; ld.shared.v2.u32 {%r8, %r9}, [dynamic+8]; add.u32 %r8, %r8, %r9; st.global.u32 [%rd1+28], %r8;
ret;
}
";
    let config = LaunchConfig { grid: [1; 3], block: [1, 1, 1], dynamic: 32 };
    let found = words_of(text, config, &[words(&[0; 8])]);
    assert_eq!(found, [5, 0xff, 0x0403_0201, 0x4040_0000, 77, 99, 3, 102]);
    let module = cuda_sim::ptx::parse(text).unwrap();
    assert_eq!((module.version, module.target, module.globals.len()), ((8, 0), 80, 3));
    assert_eq!(module.globals[1].init, [1, 2, 3, 4, 0xff, 0, 0, 0]);
    assert_eq!(module.kernels[0].static_shared, 4);
}

#[test]
fn parameters_have_offsets() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64
.visible .entry k(.param .u8 a, .param .u64 out, .param .align 16 .b8 s[20], .param .u16 b)
.maxntid 128, 2, 1
.minnctapersm 2
{ .reg .b32 %r<5>; .reg .b64 %rd<5>; ld.param.u8 %r1, [a]; ld.param.u64 %rd1, [out]; mov.b64 %rd2, s; ld.param.u32 %r2, [s+16]; add.u32 %r1, %r1, %r2; st.global.u32 [%rd1], %r1; ret; }
";
    harness::assemble(text);
    let module = cuda_sim::ptx::parse(text).unwrap();
    let kernel = &module.kernels[0];
    let places: Vec<_> = kernel.params.iter().map(|param| (param.offset, param.bytes)).collect();
    assert_eq!(places, [(0, 1), (8, 8), (16, 20), (36, 2)]);
    assert_eq!(
        (kernel.params_bytes, kernel.limits.max_threads, kernel.limits.required_block),
        (38, Some(256), None)
    );
}

/// Returns a kernel in which 64 threads of 2 blocks do an atomic on the first word, and one writes the
/// results.
fn atomically(text: &str, space: &str) -> String {
    kernel(
        &["u64 out"],
        &format!(
            ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<4>; .reg .pred %p<4>;
.shared .align 8 .b8 buffer[16];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u64 %rd2, %rd1; mov.u64 %rd3, buffer;
setp.eq.u32 %p1, %r1, 0;
@%p1 st.shared.u64 [buffer], 0;
bar.sync 0;
{text}
bar.sync 0;
@%p1 ld.shared.u32 %r7, [buffer];
@%p1 {space} [%rd1+8], %r7;"
        ),
    )
}

#[test]
fn atomics_of_global_memory() {
    let sum = |text: &str, first: u32| {
        let text = atomically(text, "red.global.add.u32");
        words_of(&text, blocks(2, 64), &[words(&[first, 0, 0, 0])])[0]
    };
    assert_eq!(sum("atom.global.add.u32 %r2, [%rd2], %r1;", 5), 5 + 2 * 2016);
    assert_eq!(sum("red.global.add.s32 [%rd2], %r1;", 5), 5 + 2 * 2016);
    assert_eq!(sum("red.add.u32 [%rd2], 1;", 5), 5 + 128);
    assert_eq!(sum("red.global.max.s32 [%rd2], %r1;", 0xffff_fff0), 63);
    assert_eq!(sum("red.global.max.u32 [%rd2], %r1;", 0xffff_fff0), 0xffff_fff0);
    assert_eq!(sum("red.relaxed.gpu.global.min.u32 [%rd2], %r1;", 7), 0);
    assert_eq!(sum("red.global.and.b32 [%rd2], 0xf0;", 0xffff), 0xf0);
    assert_eq!(sum("red.global.or.b32 [%rd2], %r1;", 0x100), 0x13f);
    assert_eq!(sum("red.global.xor.b32 [%rd2], %r1;", 9), 9);
    // The counter wraps after 9: 128 increments from 0 give 8 more than a multiple of 10.
    assert_eq!(sum("red.global.inc.u32 [%rd2], 9;", 0), 8);
    // The first decrement goes from 0 to 9.
    assert_eq!(sum("red.global.dec.u32 [%rd2], 9;", 0), 2);
    assert_eq!(sum("cvt.rn.f32.u32 %f1, %r1; red.global.add.f32 [%rd2], %f1;", 0), s(4032.0) as u32);
    assert_eq!(sum("atom.global.exch.b32 %r2, [%rd2], 77;", 1), 77);
    assert_eq!(sum("add.u32 %r3, %r1, 1; atom.global.cas.b32 %r2, [%rd2], %r1, %r3; ", 1000), 1000);
}

#[test]
fn atomics_of_shared_memory() {
    let sum = |text: &str| {
        let text = atomically(text, "st.global.u32");
        words_of(&text, threads(64), &[words(&[0; 4])])[2]
    };
    assert_eq!(sum("atom.shared.add.u32 %r2, [%rd3], %r1;"), 2016);
    assert_eq!(sum("red.shared.add.u32 [buffer], 2;"), 128);
    assert_eq!(sum("cvta.shared.u64 %rd4, %rd3; red.add.u32 [%rd4], 3;"), 192);
    assert_eq!(sum("mov.b32 %r2, 0x3c003c00; red.shared.add.noftz.f16x2 [%rd3], %r2;"), 0x5400_5400);
    assert_eq!(sum("mov.u64 %rd5, 1; red.shared.add.u64 [%rd3], %rd5;"), 64);
}

#[test]
fn halves_are_compared_by_their_own_bits() {
    // The register contains a sign-extended byte, 0xfffe, which equals the memory.
    let text = kernel(
        &["u64 out"],
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %h<9>;
ld.param.u64 %rd1, [out]; ld.global.s8 %h1, [%rd1]; mov.b16 %h2, 5; atom.global.cas.b16 %h3, [%rd1], %h1, %h2;",
    );
    assert_eq!(words_of(&text, threads(1), &[words(&[0x1234_fffe])]), [0x1234_0005]);
}

#[test]
fn what_atomics_return() {
    let text = kernel(
        &["u64 out"],
        ".reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [out];
atom.global.add.u32 %r1, [%rd1], 3; st.global.u32 [%rd1+8], %r1;
atom.global.cas.b32 %r2, [%rd1], 8, 9; st.global.u32 [%rd1+12], %r2;
atom.global.cas.b32 %r3, [%rd1], 8, 10; st.global.u32 [%rd1+16], %r3;
atom.global.exch.b32 %r4, [%rd1], 11; st.global.u32 [%rd1+20], %r4;
atom.acq_rel.gpu.global.add.u32 %r5, [%rd1], -1; st.global.u32 [%rd1+24], %r5;",
    );
    assert_eq!(words_of(&text, threads(1), &[words(&[5, 0, 0, 0, 0, 0, 0])]), [10, 0, 5, 8, 9, 9, 11]);
}

const COPY: &str = ".reg .b32 %r<9>; .reg .b64 %rd<9>;
.shared .align 16 .b8 buffer[1024];
ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; mov.u32 %r1, %tid.x;
mad.wide.u32 %rd3, %r1, 16, %rd2; mad.wide.u32 %rd4, %r1, 16, %rd1; mov.u32 %r2, buffer; mad.lo.u32 %r3, %r1, 16, %r2;
";

#[test]
fn asynchronous_copies_land_where_they_are_waited_for() {
    let run = |body: &str| {
        let text = kernel(
            &["u64 out", "u64 in"],
            &format!(
                "{COPY}{body}\nld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r3]; st.global.v4.u32 [%rd4], {{%r4, %r5, %r6, %r7}};"
            ),
        );
        let input: Vec<u32> = (1..=256).collect();
        launch(&text, threads(32), &[words(&[0; 128]), words(&input)])
            .map(|(counters, buffers)| (counters, to_words(&buffers[0])))
    };
    let all: Vec<u32> = (1..=128).collect();
    let (counters, found) =
        run("cp.async.cg.shared.global [%r3], [%rd3], 16; cp.async.commit_group; cp.async.wait_group 0;")
            .unwrap();
    assert_eq!(found, all);
    assert_eq!((counters.loaded, counters.load_sectors), (512, 16));
    assert_eq!(run("cp.async.ca.shared.global [%r3], [%rd3], 16; cp.async.wait_all;").unwrap().1, all);
    // The second group may still be under way when the first has landed.
    let two = "cp.async.cg.shared.global [%r3], [%rd3], 16; cp.async.commit_group; cp.async.cg.shared.global [%r3+512], [%rd3+512], 16; cp.async.commit_group; cp.async.wait_group 1;";
    assert_eq!(run(two).unwrap().1, all);
    // 6 bytes of 16 are read, and the others are zeros.
    let filled = "mov.u32 %r8, 6; cp.async.cg.shared.global [%r3], [%rd3], 16, %r8; cp.async.wait_all;";
    let found = run(filled).unwrap().1;
    assert_eq!(found[4..8], [5, 6, 0, 0]);
    // Without a wait the words are undefined.
    let fault = run("cp.async.cg.shared.global [%r3], [%rd3], 16; cp.async.commit_group;").unwrap_err();
    assert_eq!(fault.kind, cuda_sim::exec::FaultKind::Uninitialized);
    let fault =
        run("cp.async.cg.shared.global [%r3], [%rd3], 16; cp.async.commit_group; cp.async.wait_group 1;")
            .unwrap_err();
    assert_eq!(fault.kind, cuda_sim::exec::FaultKind::Uninitialized);
}

#[test]
fn sectors_are_counted_once_for_each_instruction_of_a_warp() {
    let counted = |stride: u32, offset: u32, access: &str| -> Counters {
        let text = kernel(&["u64 in"], &format!(".reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [in]; mov.u32 %r1, %laneid; mad.lo.u32 %r2, %r1, {stride}, {offset}; cvt.u64.u32 %rd2, %r2; add.u64 %rd1, %rd1, %rd2;
{access}"));
        launch(&text, threads(32), &[words(&[0; 1100])]).unwrap().0
    };
    let load = "ld.global.u32 %r3, [%rd1];";
    let found: Vec<u64> = [(4, 0), (4, 4), (8, 0), (32, 0), (128, 0), (0, 0)]
        .map(|(stride, offset)| counted(stride, offset, load).load_sectors)
        .to_vec();
    assert_eq!(found, [4, 5, 8, 32, 32, 1]);
    let wide = counted(16, 0, "st.global.v4.u32 [%rd1], {%r1, %r1, %r1, %r1};");
    assert_eq!((wide.stored, wide.store_sectors, wide.loaded), (512, 16, 0));
    // Addresses descend from byte 248 to byte 124.
    assert_eq!(counted(4, 0, "sub.u32 %r3, 31, %r1; mul.wide.u32 %rd3, %r3, 8; add.u64 %rd1, %rd1, %rd3; ld.global.u32 %r4, [%rd1];").load_sectors, 5);
}

#[test]
fn rounds_of_shared_memory_are_those_of_its_busiest_bank() {
    let counted = |stride: u32, access: &str| -> [u64; 2] {
        let text = kernel(
            &[],
            &format!(
                ".reg .pred %p<2>; .reg .b32 %r<9>; .shared .align 16 .b8 s[4096];
mov.u32 %r1, %laneid; mov.u32 %r2, s; mad.lo.u32 %r2, %r1, {stride}, %r2; {access}"
            ),
        );
        let counters = launch(&text, threads(32), &[]).unwrap().0;
        [counters.shared, counters.shared_rounds]
    };
    let (one, four) = ("st.shared.u32 [%r2], %r1;", "st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1};");
    for (stride, access, expected) in [
        (4, one, [128, 1]),
        (8, one, [128, 2]),
        (128, one, [128, 32]),
        (132, one, [128, 1]),
        // A bank broadcasts a word to all lanes that read it, in the second of these rounds.
        (
            0,
            "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [%r2], %r1; bar.warp.sync 0xffffffff; ld.shared.u32 %r3, [%r2];",
            [132, 2],
        ),
        // Each quarter of a warp takes a round of its own: contiguous, and with gaps of the same size, which
        // use half of the banks.
        (16, four, [512, 4]),
        (32, four, [512, 8]),
        (48, four, [512, 4]),
        (8, "st.shared.v2.u32 [%r2], {%r1, %r1};", [256, 2]),
        (1, "st.shared.u8 [%r2], %r1;", [32, 1]),
        // Lanes in descending order, and fewer lanes.
        (0, "sub.u32 %r3, 31, %r1; mad.lo.u32 %r2, %r3, 4, %r2; st.shared.u32 [%r2], %r1;", [128, 1]),
        (16, "setp.lt.u32 %p1, %r1, 9; @%p1 st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1};", [144, 2]),
    ] {
        assert_eq!(counted(stride, access), expected, "{stride}: {access}");
    }
}

#[test]
fn hints_change_nothing() {
    let text = "prefetch.global.L2 [%rd1]; griddepcontrol.wait; ";
    let text = kernel(
        &["u64 out"],
        &format!(".reg .b64 %rd<2>; ld.param.u64 %rd1, [out]; {text} st.global.wb.u32 [%rd1], 5;"),
    );
    assert_eq!(words_of(&text, threads(1), &[words(&[0])]), [5]);
    check(
        ".pragma \"nounroll\"; { membar.gl; fence.acq_rel.gpu; } mov.u32 %r0, %r1;",
        "%r0",
        &one(&[(7, 7)]),
    );
    check(
        "cvta.to.global.u64 %rd5, %rd1; isspacep.global %p0, %rd1;",
        "%p0",
        &three(&[(0x7f00_0000_0000, 0, 0, 1)]),
    );
}

#[test]
fn a_block_may_use_what_others_left_behind_a_fence() {
    // The last block to count adds the words that all have stored.
    let text = kernel(&["u64 out", "u64 parts"], ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [parts]; mov.u32 %r1, %ctaid.x; mad.wide.u32 %rd3, %r1, 4, %rd2;
st.global.u32 [%rd3], %r1; membar.gl; atom.global.inc.u32 %r2, [%rd1], 0xffffffff; setp.ne.u32 %p1, %r2, 7; @%p1 ret;
membar.gl; mov.u32 %r3, 0; mov.u32 %r4, 0;
again: ld.global.u32 %r5, [%rd2]; add.u32 %r3, %r3, %r5; add.u64 %rd2, %rd2, 4; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 8; @%p2 bra again;
st.global.u32 [%rd1+4], %r3;");
    let args = [words(&[0, 0]), words(&[0; 8])];
    assert_eq!(words_of(&text, blocks(8, 1), &args), [8, 28]);
    let text = text.replace("membar.gl;", "");
    let fault = launch(&text, blocks(8, 1), &args).unwrap_err();
    assert_eq!(fault.kind, cuda_sim::exec::FaultKind::Race, "{fault}");
}

#[test]
fn a_block_may_wait_for_one_before_it() {
    let text = kernel(
        &["u64 out"],
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x;
again: ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r2, %r1; @%p1 bra again;
add.u32 %r3, %r1, 1; st.release.gpu.global.u32 [%rd1], %r3;",
    );
    let args = [Arg::Buffer(vec![0; 4])];
    assert_eq!(words_of(&text, blocks(20, 1), &args), [20]);
}

#[test]
fn what_is_read_as_constant_is_not_written() {
    let run = |body: &str| {
        let body = format!(
            ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 40; {body}"
        );
        launch(&kernel(&["u64 out"], &body), threads(64), &[words(&[0; 64])])
    };
    let fault = |body: &str| {
        let found = run(body).expect_err(body);
        assert_eq!(found.kind, cuda_sim::exec::FaultKind::Constant, "{found}");
        found
    };
    run("ld.global.nc.u32 %r2, [%rd2]; ld.global.u32 %r3, [%rd2]; ld.global.nc.u32 %r4, [%rd1];").unwrap();
    // A write is a fault in any order: by the thread itself before and after, by another thread, or by an
    // atomic.
    let found = fault("st.global.u32 [%rd2], %r1; ld.global.nc.u32 %r2, [%rd2];");
    assert!(found.what.contains("read by `.nc`, which thread [0, 0, 0]"), "{found}");
    let found = fault("ld.global.nc.u32 %r2, [%rd2]; st.global.u32 [%rd2], %r1;");
    assert!(found.what.contains("written that the launch reads by `.nc`"), "{found}");
    fault("@%p1 st.global.u32 [%rd1], %r1; bar.sync 0; @%p2 ld.global.nc.u32 %r2, [%rd1];");
    fault(
        "@%p1 ld.global.nc.u32 %r2, [%rd1]; @%p1 ld.global.u32 %r3, [%rd1]; bar.sync 0; @%p2 red.global.add.u32 [%rd1], 1;",
    );
    fault(
        "@%p2 red.global.add.u32 [%rd1], 1; bar.sync 0; @%p1 ld.global.nc.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1];",
    );
    // Readers that the simulator records one by one.
    fault(
        "bar.sync 1, 64; ld.global.u32 %r2, [%rd1]; ld.global.nc.u32 %r2, [%rd1]; bar.sync 0; @%p1 st.global.u32 [%rd1], 1;",
    );
}

#[test]
fn constant_memory_is_that_of_its_variables() {
    let run = |body: &str| {
        let body = format!(".reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.u64 %rd1, [out]; {body}");
        let text = kernel(&["u64 out"], &body).replacen(
            ".visible",
            ".const .align 4 .u32 table[3] = {7, 8, 9};\n.global .align 4 .u32 other[3];\n.visible",
            1,
        );
        launch(&text, threads(1), &[words(&[0; 4])])
    };
    run("mov.u64 %rd2, table; ld.const.u32 %r1, [%rd2+8]; st.global.u32 [%rd1], %r1;").unwrap();
    run("cvta.const.u64 %rd2, table; ld.u32 %r1, [%rd2+8];").unwrap();
    // Constant memory cannot be written, by any address.
    let table = "mov.u64 %rd2, table; cvta.const.u64 %rd3, %rd2;";
    for write in [
        "st.u32 [%rd3+8], 5;",
        "st.global.u32 [%rd3], 5;",
        "atom.global.add.u32 %r1, [%rd3], 5;",
        "st.v2.u16 [%rd3+4], {%r1, %r1};",
    ] {
        let write = write.replace("{%r1, %r1}", "{%h1, %h1}");
        let found = run(&format!("{table} .reg .b16 %h<2>; mov.b16 %h1, 1; {write}")).expect_err(&write);
        assert_eq!(found.kind, cuda_sim::exec::FaultKind::Constant, "{found}");
        assert!(found.what.contains("of a variable of `.const`"), "{found}");
    }
    run("mov.u64 %rd2, other; st.global.u32 [%rd2], 5;").unwrap();
    for wrong in [
        "ld.const.u32 %r1, [%rd1];",
        "mov.u64 %rd2, other; ld.const.u32 %r1, [%rd2];",
        "mov.u64 %rd2, table; ld.const.u32 %r1, [%rd2+12];",
    ] {
        let found = run(wrong).expect_err(wrong);
        assert_eq!(found.kind, cuda_sim::exec::FaultKind::OutOfBounds, "{found}");
        assert!(found.what.contains("no variable of `.const`"), "{found}");
    }
}
