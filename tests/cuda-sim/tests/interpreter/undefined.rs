//! Undefined values come from unwritten registers, from unwritten shared and local memory, and from shuffles
//! of absent lanes. They are faults only where they determine an address, a branch or a store to global
//! memory.

use crate::harness::{self, fault_of, kernel, launch, threads, words};
use cuda_sim::exec::{Fault, FaultKind};

fn text(body: &str) -> String {
    let body = format!(
        ".reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .pred %p<10>; .reg .b16 %h<10>; .reg .f32 %f<5>;
.shared .align 16 .b8 buffer[512];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1; mov.u32 %r2, buffer; mad.lo.u32 %r3, %r1, 16, %r2;
{body}"
    );
    kernel(&["u64 out"], &body)
}

fn clean(body: &str) {
    launch(&text(body), threads(32), &[words(&[0; 32])]).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
}

fn undefined(body: &str) -> Fault {
    fault_of(&text(body), threads(32), &[words(&[0; 32])], FaultKind::Uninitialized)
}

const STORE: &str = "st.global.u32 [%rd2], %r10;";

#[test]
fn what_is_computed_with_it_is_undefined() {
    for body in [
        "mov.u32 %r10, %r9;",
        "add.u32 %r10, %r9, 1;",
        "fma.rn.f32 %f1, %f2, 0f3f800000, 0f00000000; mov.b32 %r10, %f1;",
        "mov.b32 %r10, {%h1, %h2};",
        "mov.b64 %rd3, {%r1, %r9}; mov.b64 {%r10, %r11}, %rd3;",
        "setp.lt.u32 %p1, %r9, 5; selp.u32 %r10, 1, 2, %p1;",
        "setp.lt.u32 %p1, %r9, 5; and.pred %p2, %p1, 1; not.pred %p3, %p2; selp.u32 %r10, 1, 2, %p3;",
        "@%p4 mov.u32 %r10, 5;",
    ] {
        undefined(&format!("{body} {STORE}"));
        if !body.starts_with('@') {
            clean(body);
        }
    }
    // Only the lanes with the undefined value have a fault.
    let some = "mov.u32 %r9, 5; setp.gt.u32 %p1, %r1, 20; @%p1 mov.u32 %r9, %r8; add.u32 %r10, %r9, 1;";
    assert_eq!(undefined(&format!("{some} {STORE}")).thread, [21, 0, 0]);
    clean(&format!("{some} @!%p1 {STORE}"));
    // A write makes the register defined.
    clean(&format!("add.u32 %r10, %r9, 1; mov.u32 %r10, 5; {STORE}"));
}

#[test]
fn it_decides_nothing() {
    const SUM: &str = "add.u32 %r10, %r9, 1;";
    for use_of_it in [
        "st.shared.u32 [%r10], %r1;",
        "ld.shared.u32 %r11, [%r10];",
        "setp.eq.u32 %p1, %r10, 0; @%p1 bra end; end:",
        "setp.eq.u32 %p1, %r10, 0; @%p1 mov.u32 %r11, 5;",
        "red.global.add.u32 [%rd1], %r10;",
        "vote.sync.ballot.b32 %r11, %p1, -1;",
        "redux.sync.add.u32 %r11, %r10, -1;",
        "shfl.sync.idx.b32 %r11, %r1, %r10, 31, -1;",
        "bar.sync %r10;",
        "add.cc.u32 %r11, %r10, 1;",
    ] {
        let found = undefined(&format!("{SUM} {use_of_it}"));
        assert!(!found.instruction.starts_with("add.u32"), "{found}");
    }
}

#[test]
fn of_a_choice_only_what_is_chosen_matters() {
    let choice =
        |wanted: u32| format!("setp.lt.u32 %p1, %r1, {wanted}; selp.u32 %r10, %r1, %r9, %p1; {STORE}");
    clean(&choice(32));
    assert_eq!(undefined(&choice(31)).thread, [31, 0, 0]);
    let by_sign =
        |wanted: u32| format!("sub.u32 %r8, {wanted}, %r1; slct.u32.s32 %r10, %r1, %r9, %r8; {STORE}");
    clean(&by_sign(31));
    assert_eq!(undefined(&by_sign(30)).thread, [31, 0, 0]);
}

#[test]
fn a_shuffle_may_read_a_lane_that_takes_no_part() {
    // The sum of eight lanes. The upper lanes read lanes that do not take part.
    let sum = |store: &str| {
        let step = |distance: u32| {
            format!("shfl.sync.down.b32 %r11, %r10, {distance}, 31, 0xff; add.u32 %r10, %r10, %r11;")
        };
        let steps = [4, 2, 1].map(step).concat();
        format!("setp.gt.u32 %p1, %r1, 7; @%p1 bra end; mov.u32 %r10, %r1; {steps} {store} end:")
    };
    let found = harness::words_of(
        &text(&sum(&format!("setp.eq.u32 %p2, %r1, 0; @%p2 {STORE}"))),
        threads(32),
        &[words(&[9; 32])],
    );
    assert_eq!((found[0], found[1]), (28, 9));
    assert_eq!(undefined(&sum(STORE)).thread, [1, 0, 0]);
    // An undefined value stays undefined through a shuffle.
    let given = "setp.eq.u32 %p1, %r1, 3; @!%p1 mov.u32 %r9, 5; shfl.sync.up.b32 %r10, %r9, 1, 0, -1;";
    clean(given);
    assert_eq!(undefined(&format!("{given} {STORE}")).thread, [4, 0, 0]);
    clean(&format!("{given} setp.eq.u32 %p2, %r1, 4; @!%p2 {STORE}").replace("@!%p1 ", ""));
}

#[test]
fn only_the_lanes_of_its_rows_give_ldmatrix_addresses() {
    let load = |count: usize, lanes: u32| {
        let d = ["%r12", "%r13", "%r14", "%r15"][..count].join(", ");
        format!(
            "st.shared.v4.u32 [%r3], {{%r1, %r1, %r1, %r1}}; bar.sync 0; setp.lt.u32 %p1, %r1, {lanes}; @%p1 mov.u32 %r10, %r3;
ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{d}}}, [%r10];"
        )
    };
    for (count, lanes) in [(1, 8), (2, 16), (4, 32)] {
        clean(&load(count, lanes));
        assert_eq!(undefined(&load(count, lanes - 1)).thread, [lanes - 1, 0, 0]);
    }
}

/// Loads an unwritten word of shared memory into `%r9`.
const UNSET: &str = "ld.shared.u32 %r9, [%r3];";

#[test]
fn memory_that_nothing_wrote_is_undefined_where_it_is_used() {
    clean(UNSET);
    for used in [
        "add.u32 %r10, %r9, 1; st.global.u32 [%rd2], %r10;",
        "st.global.u32 [%rd2], %r9;",
        "st.u32 [%rd2], %r9;",
        "red.global.add.u32 [%rd1], %r9;",
        "ld.shared.u32 %r10, [%r9];",
        "setp.eq.u32 %p1, %r9, 0; @%p1 bra end; end:",
        "shfl.sync.bfly.b32 %r10, %r9, 1, 31, -1; st.global.u32 [%rd2], %r10;",
        "vote.sync.ballot.b32 %r11, %p1, -1;",
        // The value passes through the thread's own memory, and through other threads.
        ".local .align 4 .b32 own; st.local.u32 [own], %r9; ld.local.u32 %r10, [own]; st.global.u32 [%rd2], %r10;",
        "st.shared.u32 [%r3+4], %r9; bar.sync 0; xor.b32 %r8, %r3, 16; ld.shared.u32 %r10, [%r8+4]; st.global.u32 [%rd2], %r10;",
    ] {
        let found = undefined(&format!("{UNSET} {used}"));
        assert!(!found.instruction.starts_with("ld.shared.u32 %r9"), "{found}");
    }
    let found = undefined(&format!("{UNSET} st.global.u32 [%rd2], %r9;"));
    assert!(found.what.contains("in line 9 it read 4 bytes at 0x0 of shared memory"), "{found}");
    // An atomic uses the old value at once.
    undefined("red.shared.add.u32 [%r3], 1;");
    // A store of an undefined value makes the word undefined again.
    let again = "st.shared.u32 [%r3], 5; st.shared.u32 [%r3], %r19; ld.shared.u32 %r10, [%r3]; st.global.u32 [%rd2], %r10;";
    undefined(again);
    clean(&again.replace("%r19", "%r1"));
    // `ldmatrix` with an undefined row: lane 9 reads from the third row, or from the second if transposed.
    let row = |lanes: &str, trans: &str| {
        format!(
            "setp.ne.u32 %p1, %r1, 2; @%p1 st.shared.v4.u32 [%r3], {{%r1, %r1, %r1, %r1}}; bar.sync 0; and.b32 %r4, %r1, 7; mad.lo.u32 %r4, %r4, 16, %r2;
ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 {{%r10}}, [%r4]; setp.{lanes}; @%p2 st.global.u32 [%rd2], %r10;"
        )
    };
    assert_eq!(undefined(&row("ge.u32 %p2, %r1, 0", "")).thread, [8, 0, 0]);
    clean(&row("gt.u32 %p2, %r1, 11", ""));
    assert_eq!(undefined(&row("ge.u32 %p2, %r1, 0", ".trans")).thread, [1, 0, 0]);
    clean(&row("eq.u32 %p2, %r1, 0", ".trans"));
}

#[test]
fn a_copy_of_a_struct_may_have_padding() {
    let words = |body: &str| harness::words_of(&text(body), threads(1), &[words(&[7; 8])]);
    let poison = u32::MAX;
    // Three floats out of four, and an `int` with a `bool`, as compilers copy them.
    let three = "st.shared.v2.u32 [%r3], {1, 2}; st.shared.u32 [%r3+8], 3; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3]; st.global.v4.u32 [%rd1], {%r4, %r5, %r6, %r7};";
    assert_eq!(words(three)[..4], [1, 2, 3, poison]);
    let pair = "st.shared.u32 [%r3], 1; st.shared.u8 [%r3+4], %r2; ld.shared.v4.u8 {%h1, %h2, %h3, %h4}, [%r3+4]; st.global.v4.u8 [%rd1], {%h1, %h2, %h3, %h4};";
    assert_eq!(words(pair)[0], poison << 8);
    // The padding passes as one word through the thread's own memory, and is read in parts.
    let own = ".local .align 8 .b8 own[8]; st.local.u8 [own], 5; st.local.u32 [own+4], 6; ld.local.b64 %rd4, [own]; mov.b64 %rd5, %rd4; st.shared.b64 [%r3], %rd5;";
    let part = |load: &str| words(&format!("{own} {load} st.global.u32 [%rd1], %r10;"))[0];
    assert_eq!(part("ld.shared.u8 %r10, [%r3];"), 5);
    assert_eq!(part("ld.shared.u32 %r10, [%r3+4];"), 6);
    assert_eq!(
        words(&format!("{own} ld.shared.b64 %rd6, [%r3]; st.global.b64 [%rd1], %rd6;"))[..2],
        [5 | poison << 8, 6]
    );
    // A word assembled from bytes, one of which is defined.
    let bytes = format!(
        "{own} ld.local.v4.b8 {{%h1, %h2, %h3, %h4}}, [own]; and.b16 %h5, %h1, 255; cvt.u32.u16 %r4, %h2; cvt.u32.u16 %r5, %h5; prmt.b32 %r6, %r4, %r5, 30212; cvt.u16.u32 %h6, %r6;"
    );
    assert_eq!(
        words(&format!(
            "{bytes} st.shared.u16 [%r3+8], %h6; ld.shared.u8 %r10, [%r3+8]; st.global.u32 [%rd1], %r10;"
        ))[0],
        5
    );
    assert_eq!(words(&format!("{bytes} and.b32 %r10, %r6, 255; st.global.u32 [%rd1], %r10;"))[0], 5);
    assert_eq!(
        words(&format!("{bytes} shl.b32 %r7, %r6, 24; shr.u32 %r10, %r7, 24; st.global.u32 [%rd1], %r10;"))
            [0],
        5
    );
    // A value computed from padding is not padding, and neither is a part of a computed value.
    for used in [
        "add.u32 %r10, %r6, 1; st.global.u32 [%rd1], %r10;",
        "shr.u32 %r7, %r6, 4; st.global.u32 [%rd1], %r7;",
        "and.b32 %r10, %r6, 0x1ff; setp.eq.u32 %p1, %r10, 0; @%p1 bra end; end:",
        "add.u32 %r6, %r6, 1; and.b32 %r10, %r6, 0xffff; st.global.u32 [%rd1], %r10;",
    ] {
        undefined(&format!("setp.ne.u32 %p9, %r1, 0; @%p9 exit; {bytes} {used}"));
    }
    // Padding from unwritten registers, through the thread's own memory.
    let passed = ".local .align 4 .b8 p[4]; mov.b16 %h7, 3; st.local.v4.b8 [p], {%h7, %h8, %h8, %h8}; ld.local.v4.b8 {%h1, %h2, %h3, %h4}, [p]; st.global.v4.u8 [%rd1], {%h1, %h2, %h3, %h4};";
    assert_eq!(words(passed)[0], 3 | poison << 8);
}
