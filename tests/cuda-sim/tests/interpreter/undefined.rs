//! Values that are not defined: of registers that nothing wrote, and of shuffles from lanes that take no part. They are
//! faults where they decide an address, a way or what is stored, and nothing before.

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
    // Only in the lanes where it is.
    let some = "mov.u32 %r9, 5; setp.gt.u32 %p1, %r1, 20; @%p1 mov.u32 %r9, %r8; add.u32 %r10, %r9, 1;";
    assert_eq!(undefined(&format!("{some} {STORE}")).thread, [21, 0, 0]);
    clean(&format!("{some} @!%p1 {STORE}"));
    // It is gone once something is written.
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
    // The sum of eight lanes, of which the upper get what none gives.
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
    // What a lane gives that has nothing is nothing.
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
