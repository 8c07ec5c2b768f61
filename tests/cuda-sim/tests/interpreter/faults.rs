//! Violations of each rule of the sanitizer are faults that name the kernel, the line, the block and the
//! thread.

use crate::harness::{Arg, LaunchConfig, blocks, fault_of, kernel, launch, threads, words};
use cuda_sim::exec::{Fault, FaultKind};

const REGISTERS: &str = ".reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .pred %p<10>; .reg .f32 %f<5>;
.shared .align 16 .b8 buffer[256];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1; mov.u32 %r2, buffer; mad.lo.u32 %r3, %r1, 4, %r2;
";

fn text(body: &str) -> String {
    kernel(&["u64 out"], &format!("{REGISTERS}{body}"))
}

/// Returns the fault of a body in which 64 threads have 64 words of global and of shared memory.
fn fault(kind: FaultKind, body: &str) -> Fault {
    fault_of(&text(body), threads(64), &[words(&[0; 64])], kind)
}

/// Asserts that a body has no fault.
fn clean(body: &str) {
    launch(&text(body), threads(64), &[words(&[0; 64])]).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
}

#[test]
fn out_of_bounds() {
    let found = fault(FaultKind::OutOfBounds, "st.global.u32 [%rd2+4], %r1;");
    assert_eq!((found.kernel.as_str(), found.line, found.block, found.thread), ("k", 9, [0; 3], [63, 0, 0]));
    assert_eq!(found.instruction, "st.global.u32 [%rd2+4], %r1;");
    assert!(found.what.contains("no allocation holds these 4 bytes"), "{found}");
    assert!(found.to_string().starts_with("`k`, line 9: "), "{found}");
    fault(FaultKind::OutOfBounds, "mov.u64 %rd3, 0; ld.global.u32 %r4, [%rd3];");
    fault(FaultKind::OutOfBounds, "ld.global.u32 %r4, [%rd1+-4];");
    fault(FaultKind::OutOfBounds, "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1+256];");
    fault(FaultKind::OutOfBounds, "st.shared.u32 [%r3+4], %r1;");
    fault(FaultKind::OutOfBounds, "atom.global.add.u32 %r4, [%rd2+4], 1;");
    fault(FaultKind::OutOfBounds, "cvta.shared.u64 %rd3, 512; ld.u32 %r4, [%rd3];");
    let local = ".local .align 4 .b8 depot[8]; mov.u32 %r4, depot; st.local.u32 [%r4+8], 1;";
    fault(FaultKind::OutOfBounds, local);
    fault(FaultKind::OutOfBounds, "mov.u64 %rd3, 8; ld.param.u64 %rd4, [%rd3];");
}

#[test]
fn misaligned() {
    fault(FaultKind::Misaligned, "ld.global.u32 %r4, [%rd1+2];");
    fault(FaultKind::Misaligned, "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1+8];");
    fault(FaultKind::Misaligned, "st.shared.u16 [%r3+1], %r1;");
    fault(FaultKind::Misaligned, "st.shared.v2.u32 [%r2+4], {%r1, %r1};");
    fault(FaultKind::Misaligned, "cp.async.ca.shared.global [%r2+2], [%rd1], 4;");
    fault(FaultKind::Misaligned, "red.global.add.u64 [%rd1+4], %rd1;");
}

#[test]
fn uninitialized() {
    let found = fault(
        FaultKind::Uninitialized,
        "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [%r2], 1; bar.sync 0;\nld.shared.u32 %r4, [%r3];\nadd.u32 %r5, %r4, 1; st.global.u32 [%rd2], %r5;",
    );
    assert_eq!(found.thread, [1, 0, 0], "{found}");
    assert!(found.instruction.starts_with("st.global.u32"), "{found}");
    assert!(
        found
            .what
            .ends_with("in line 10 it read 4 bytes at 0x4 of shared memory, not all of which were written"),
        "{found}"
    );
    fault(FaultKind::Uninitialized, "add.u32 %r4, %r5, 1; st.global.u32 [%rd2], %r4;");
    // Only the lanes that did not write have an undefined value.
    let found = fault(
        FaultKind::Uninitialized,
        "setp.lt.u32 %p1, %r1, 40; @%p1 mov.u32 %r4, 1; add.u32 %r4, %r4, 1; st.global.u32 [%rd2], %r4;",
    );
    assert_eq!(found.thread, [40, 0, 0]);
    fault(FaultKind::Uninitialized, "@%p3 bra L; L:");
    fault(
        FaultKind::Uninitialized,
        "st.shared.u8 [%r3], %r1; ld.shared.u32 %r4, [%r3]; add.u32 %r4, %r4, 1; st.global.u32 [%rd2], %r4;",
    );
    fault(
        FaultKind::Uninitialized,
        ".local .align 4 .b8 depot[8]; ld.local.u32 %r4, [depot]; st.global.u32 [%rd2], %r4;",
    );
    // A block's shared memory is not defined for the next block.
    let body = "setp.ne.u32 %p1, %r1, 0; mov.u32 %r5, %ctaid.x; setp.eq.u32 %p2, %r5, 0; @%p2 st.shared.u32 [%r3], 1; ld.shared.u32 %r4, [%r3]; setp.eq.u32 %p3, %r4, 0; @%p3 bra end; end:";
    let found = fault_of(&text(body), blocks(2, 32), &[words(&[0])], FaultKind::Uninitialized);
    assert_eq!(found.block, [1, 0, 0]);
}

#[test]
fn races_in_shared_memory() {
    let exchange = "st.shared.u32 [%r3], %r1; BARRIER sub.u32 %r4, 63, %r1; mad.lo.u32 %r4, %r4, 4, %r2; ld.shared.u32 %r5, [%r4];";
    clean(&exchange.replace("BARRIER", "bar.sync 0;"));
    // Reads within the first warp are of undefined memory, and reads of the first warp's words by the second
    // race.
    let missing =
        launch(&text(&exchange.replace("BARRIER", "")), threads(64), &[words(&[0; 64])]).unwrap_err();
    assert!(matches!(missing.kind, FaultKind::Race | FaultKind::Uninitialized), "{missing}");
    let twice = "st.shared.u32 [%r3], 0; bar.sync 0; st.shared.u32 [%r3], %r1; xor.b32 %r4, %r3, 4; ld.shared.u32 %r5, [%r4];";
    let found = fault(FaultKind::Race, twice);
    assert!(found.what.contains("thread [1, 0, 0] of the same block wrote"), "{found}");
    // A barrier of the warp orders its lanes, but not other warps.
    clean(&twice.replace("xor.b32", "bar.warp.sync -1; xor.b32"));
    fault(FaultKind::Race, &twice.replace("xor.b32 %r4, %r3, 4", "bar.warp.sync -1; xor.b32 %r4, %r3, 128"));
    // A write after others have read.
    fault(
        FaultKind::Race,
        "st.shared.u32 [%r3], 0; bar.sync 0; xor.b32 %r4, %r3, 128; ld.shared.u32 %r5, [%r4]; st.shared.u32 [%r3], 1;",
    );
    // All threads write the same value to one place.
    fault(FaultKind::Race, "st.shared.u32 [%r2], 7;");
    fault(FaultKind::Race, "st.shared.u8 [%r2], %r1;");
    clean("add.u32 %r4, %r2, %r1; st.shared.u8 [%r4], %r1;");
    // Atomics are ordered among themselves, not with plain accesses.
    clean("setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [%r2], 0; bar.sync 0; red.shared.add.u32 [%r2], 1;");
    fault(
        FaultKind::Race,
        "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [%r2], 0; bar.sync 0; red.shared.add.u32 [%r2], 1; ld.shared.u32 %r4, [%r2];",
    );
}

#[test]
fn atomics_hide_no_plain_access() {
    // The barrier after the initial store is missing.
    let init = "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [%r2], 0;";
    fault(FaultKind::Race, &format!("{init} red.shared.add.u32 [%r2], 1;"));
    let one = "setp.eq.u32 %p2, %r1, 32; @%p1 red.shared.add.u32 [%r2], 1; @%p2 red.shared.add.u32 [%r2], 1;";
    fault(FaultKind::Race, &format!("{init} {one}"));
    clean(&format!("{init} bar.sync 0; {one}"));
    // Every one of many atomics counts, not only the last.
    let last = "setp.eq.u32 %p2, %r1, 63; @%p2 st.shared.u32 [%r2], 1;";
    fault(FaultKind::Race, &format!("{init} bar.sync 0; red.shared.add.u32 [%r2], 1; {last}"));
    clean(&format!("{init} bar.sync 0; red.shared.add.u32 [%r2], 1; bar.sync 0; {last}"));
    // Strong reads and plain writes, in both orders.
    let read = "setp.eq.u32 %p2, %r1, 32; @%p2 ld.volatile.shared.u32 %r5, [%r2];";
    fault(FaultKind::Race, &format!("{init} bar.sync 0; @%p1 st.shared.u32 [%r2], 1; {read}"));
    let read = "@%p1 ld.volatile.shared.u32 %r5, [%r2]; setp.eq.u32 %p2, %r1, 32;";
    fault(FaultKind::Race, &format!("{init} bar.sync 0; {read} @%p2 st.shared.u32 [%r2], 1;"));
    clean(&format!("{init} bar.sync 0; {read} @%p2 st.volatile.shared.u32 [%r2], 1;"));
}

#[test]
fn copies_under_way() {
    let body = |rest: &str| {
        format!("st.shared.u32 [%r3], 0; bar.sync 0; cp.async.ca.shared.global [%r3], [%rd2], 4; {rest}")
    };
    let neighbour = "xor.b32 %r4, %r1, 32; mad.lo.u32 %r4, %r4, 4, %r2; ld.shared.u32 %r5, [%r4];";
    let wait = "cp.async.wait_all;";
    clean(&body(&format!("{wait} bar.sync 0; {neighbour}")));
    fault(FaultKind::Race, &body(&format!("{wait} {neighbour}")));
    // Accesses before the wait, by the thread itself and by others.
    let found = fault(FaultKind::Race, &body(&format!("st.shared.u32 [%r3], 1; {wait}")));
    assert!(found.what.contains("thread [0, 0, 0] that it has not waited for"), "{found}");
    fault(FaultKind::Race, &body(&format!("ld.shared.u32 %r5, [%r3]; {wait}")));
    fault(FaultKind::Race, &body(&format!("bar.sync 0; {neighbour} bar.sync 0; {wait}")));
    fault(FaultKind::Race, &body(&format!("cp.async.ca.shared.global [%r3], [%rd2], 4; {wait}")));
    // Other threads' reads before the copy, with no barrier in between.
    let before = "st.shared.u32 [%r3], 0; bar.sync 0;";
    let copy = "cp.async.ca.shared.global [%r3], [%rd2], 4; bar.sync 0; cp.async.wait_all;";
    fault(FaultKind::Race, &format!("{before} {neighbour} {copy}"));
    clean(&format!("{before} {neighbour} bar.sync 0; {copy}"));
}

#[test]
fn counts_of_barriers_may_start_again() {
    for (barrier, other) in [("bar.sync 0", 32), ("bar.warp.sync -1", 1)] {
        for turns in [16383, 16384, 32767, 32768] {
            let body = text(&format!(
                "st.shared.u32 [%r3], 0; st.global.u32 [%rd2], 0; mov.u32 %r5, 0; again: {barrier}; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, {turns}; @%p1 bra again;
xor.b32 %r4, %r1, {other}; mad.lo.u32 %r6, %r4, 4, %r2; ld.shared.u32 %r7, [%r6]; mad.wide.u32 %rd3, %r4, 4, %rd1; ld.global.u32 %r7, [%rd3];"
            ));
            launch(&body, threads(64), &[words(&[0; 64])]).unwrap_or_else(|fault| panic!("{turns}: {fault}"));
        }
    }
}

#[test]
fn races_in_global_memory() {
    fault(FaultKind::Race, "st.global.u32 [%rd1], %r1;");
    fault(
        FaultKind::Race,
        "xor.b32 %r4, %r1, 32; mad.wide.u32 %rd3, %r4, 4, %rd1; st.global.u32 [%rd2], %r1; ld.global.u32 %r5, [%rd3];",
    );
    clean(
        "xor.b32 %r4, %r1, 32; mad.wide.u32 %rd3, %r4, 4, %rd1; st.global.u32 [%rd2], %r1; bar.sync 0; ld.global.u32 %r5, [%rd3];",
    );
    clean("red.global.add.u32 [%rd1], 1;");
    // A barrier orders nothing between two blocks.
    let body = text("bar.sync 0; st.global.u32 [%rd2], %r1;");
    for _ in 0..20 {
        let found = fault_of(&body, blocks(2, 32), &[words(&[0; 32])], FaultKind::Race);
        assert!(found.what.contains("of block"), "{found}");
        let reads = text(
            "mov.u32 %r5, %ctaid.x; setp.eq.u32 %p1, %r5, 0; @%p1 st.global.u32 [%rd2], %r1; @!%p1 ld.global.u32 %r4, [%rd2];",
        );
        fault_of(&reads, blocks(2, 32), &[words(&[0; 32])], FaultKind::Race);
        // A wide access and a narrow one overlap.
        let mixed = text(
            "mov.u32 %r5, %ctaid.x; setp.eq.u32 %p1, %r5, 0; setp.eq.u32 %p2, %r1, 0; @!%p1 bra second; @%p2 st.global.v4.u32 [%rd1], {%r1, %r1, %r1, %r1}; bra end; second: @%p2 ld.global.u8 %r4, [%rd1+5]; end:",
        );
        fault_of(&mixed, blocks(2, 32), &[words(&[0; 32])], FaultKind::Race);
    }
}

#[test]
fn barriers() {
    let found = fault(
        FaultKind::Barrier,
        "setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 0; add.u32 %r1, %r1, 1; @!%p1 bar.sync 1;",
    );
    assert!(found.what.contains("32 threads wait"), "{found}");
    fault(FaultKind::Barrier, "setp.lt.u32 %p1, %r1, 16; @%p1 bar.sync 0; @!%p1 bar.sync 0;");
    fault(FaultKind::Barrier, "bar.sync 0, 96;");
    fault(FaultKind::Barrier, "mov.u32 %r4, 16; barrier.sync %r4;");
    // Exited threads need not come.
    clean("setp.lt.u32 %p1, %r1, 32; @%p1 exit; bar.sync 0;");
    clean("setp.lt.u32 %p1, %r1, 32; @%p1 bra end; bar.sync 0; bar.sync 0; end:");
    clean("setp.lt.u32 %p1, %r1, 7; @%p1 exit; bar.sync 0;");
}

#[test]
fn barriers_that_those_miss_who_end_first() {
    // Lanes of one warp.
    let found =
        fault(FaultKind::Barrier, "setp.eq.u32 %p1, %r1, 0; @%p1 bar.sync 0; st.global.u32 [%rd2], %r1;");
    assert!(found.what.contains("keeps some lanes"), "{found}");
    assert_eq!(found.instruction, "@%p1 bar.sync 0;");
    fault(FaultKind::Barrier, "setp.lt.u32 %p1, %r1, 40; @%p1 bar.sync 0;");
    let found = fault(FaultKind::Barrier, "setp.lt.u32 %p1, %r1, 40; @!%p1 bra end; bar.sync 0; end: ret;");
    assert!(found.what.contains("thread [40, 0, 0] of the same warp has ended"), "{found}");
    assert_eq!((found.thread, found.instruction.as_str()), ([32, 0, 0], "bar.sync 0;"));
    // Whole warps.
    for first in ["lt", "ge"] {
        let found = fault(FaultKind::Barrier, &format!("setp.{first}.u32 %p1, %r1, 32; @%p1 bar.sync 0;"));
        assert!(found.what.contains("32 threads wait at this barrier, but thread"), "{found}");
    }
    // Different numbers of iterations for each thread, and for each warp.
    for turns in ["mov.u32 %r4, %r1;", "shr.u32 %r4, %r1, 5;"] {
        fault(
            FaultKind::Barrier,
            &format!(
                "{turns} mov.u32 %r5, 0; again: bar.sync 0; add.u32 %r5, %r5, 1; setp.le.u32 %p1, %r5, %r4; @%p1 bra again;"
            ),
        );
    }
    // The lanes of a warp meet at one barrier, not in both arms of a branch. Without `.aligned` they may come
    // separately.
    let arms = "setp.lt.u32 %p1, %r1, 16; @%p1 bra a; bar.sync 0; bra end; a: bar.sync 0; end:";
    let found = fault(FaultKind::Barrier, arms);
    assert!(found.what.contains("the lanes of a warp are not all at this barrier"), "{found}");
    fault(
        FaultKind::Barrier,
        &arms.replace("%r1, 16", "%r1, 40").replace("bar.sync 0", "bar.red.popc.u32 %r5, 0, %p1"),
    );
    clean("setp.lt.u32 %p1, %r1, 16; @%p1 bra a; barrier.sync 0; bra end; a: barrier.sync 0; end:");
}

#[test]
fn masks() {
    let found = fault(FaultKind::Mask, "shfl.sync.bfly.b32 %r4, %r1, 1, 31, 0x0000ffff;");
    assert!(found.what.contains("does not name lane 16"), "{found}");
    fault(FaultKind::Mask, "setp.lt.u32 %p1, %r1, 16; @%p1 shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1;");
    let found =
        fault(FaultKind::Mask, "setp.eq.u32 %p1, %r1, 5; @%p1 exit; shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1;");
    assert!(found.what.contains("names lane 5, which has exited"), "{found}");
    fault(
        FaultKind::Mask,
        "setp.lt.u32 %p1, %r1, 16; @!%p1 bra other; vote.sync.any.pred %p2, %p1, -1; bra end; other: bar.sync 0; end:",
    );
    // A warp of 8 threads has no lanes 8 to 31.
    fault_of(
        &text("shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1;"),
        threads(8),
        &[words(&[0; 8])],
        FaultKind::Mask,
    );
    launch(
        &text("shfl.sync.bfly.b32 %r4, %r1, 1, 31, 0xff; bar.warp.sync -1;"),
        threads(8),
        &[words(&[0; 8])],
    )
    .unwrap();
}

#[test]
fn traps_and_endless_loops() {
    let found = fault(FaultKind::Trap, "setp.eq.u32 %p1, %r1, 40; @%p1 trap;");
    assert_eq!(found.thread, [40, 0, 0]);
    let assert = text(
        "setp.lt.u32 %p1, %r1, 7; @%p1 bra end; { .param .b64 param0; st.param.b64 [param0+0], %rd1; call.uni __assertfail, (param0); } end:",
    );
    let assert = assert.replacen(".visible", ".extern .func __assertfail (.param .b64 a);\n.visible", 1);
    assert_eq!(fault_of(&assert, threads(64), &[words(&[0; 64])], FaultKind::Trap).thread, [7, 0, 0]);
    fault(FaultKind::Endless, "again: bra again;");
    fault(FaultKind::Endless, "setp.eq.u32 %p1, %r1, 40; again: @%p1 bra again;");
}

#[test]
fn the_lowest_block_is_told() {
    let body = "mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ctaid.y; setp.lt.u32 %p1, %r5, 3; setp.eq.u32 %p2, %r6, 0; or.pred %p1, %p1, %p2; @!%p1 trap;";
    for _ in 0..10 {
        let config = LaunchConfig { grid: [7, 9, 1], block: [32, 2, 1], dynamic: 0 };
        let found = fault_of(&text(body), config, &[Arg::Buffer(vec![0; 4])], FaultKind::Trap);
        assert_eq!((found.block, found.thread), ([3, 1, 0], [0, 0, 0]));
    }
}

#[test]
fn instructions_of_the_text_are_counted() {
    // An instruction that names a special register reads it at no further cost.
    let body = ".reg .pred %p<2>; .reg .b32 %r<9>; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1; setp.lt.u32 %p1, %r4, 8; @%p1 mov.u32 %r5, %laneid;";
    let (counters, _) = launch(&kernel(&[], body), blocks(2, 64), &[]).unwrap();
    // The count includes `ret`.
    assert_eq!(counters.instructions, 128 * 6 + 8);
}
