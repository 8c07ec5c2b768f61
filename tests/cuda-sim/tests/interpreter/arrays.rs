//! Addresses of one array of shared memory stay in it, as far as can be told where they come from; what a kernel divides
//! by hand is left alone.

use crate::harness::{Shape, fault_of, kernel, launch, words};
use cuda_sim::exec::{Fault, FaultKind};

/// A kernel of 32 threads with two arrays of 32 words each, of which both are written, and dynamic memory.
fn text(body: &str) -> String {
    let body = format!(
        ".reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .pred %p<10>;
.shared .align 16 .b8 first[128]; .shared .align 16 .b8 second[128];
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, first; add.u32 %r4, %r3, %r2; mov.u32 %r5, second; add.u32 %r6, %r5, %r2;
st.shared.u32 [%r4], %r1; st.shared.u32 [%r6], %r1; bar.sync 0;
{body}"
    );
    kernel(&["u64 out"], &body).replacen(".visible", ".extern .shared .align 16 .b8 rest[];\n.visible", 1)
}

const SHAPE: Shape = Shape { grid: [1; 3], block: [32, 1, 1], dynamic: 64 };

fn overrun(body: &str) -> Fault {
    fault_of(&text(body), SHAPE, &[words(&[0; 64])], FaultKind::OutOfBounds)
}

fn clean(body: &str) {
    launch(&text(body), SHAPE, &[words(&[0; 64])]).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
}

#[test]
fn one_array_does_not_reach_into_the_next() {
    let found = overrun("ld.shared.u32 %r7, [first+128];");
    assert!(
        found.what.contains(
            "4 bytes at 0x80 of shared memory, by an address of `first`, which is from 0x0 to 0x80"
        ),
        "{found}"
    );
    // The thread that goes too far, and before the start as well.
    assert_eq!(overrun("ld.shared.u32 %r7, [%r4+4];").thread, [31, 0, 0]);
    assert_eq!(overrun("ld.shared.u32 %r7, [%r6+-4];").thread, [0, 0, 0]);
    overrun("ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [second+-16];");
    overrun("mov.u32 %r7, first+128; st.shared.u32 [%r7], %r1;");
    overrun("mad.lo.u32 %r7, %r1, 8, %r3; ld.shared.u32 %r8, [%r7];");
    // From static into dynamic memory, and back.
    overrun("st.shared.u32 [%r6+64], %r1;");
    overrun("mov.u32 %r7, rest; ld.shared.u32 %r8, [%r7+-4];");
    overrun("ld.shared.u32 %r8, [rest+-4];");
    // Every instruction that has an address of shared memory.
    overrun("atom.shared.add.u32 %r7, [%r4+4], 1;");
    overrun("red.shared.add.u32 [first+128], 1;");
    overrun("ld.param.u64 %rd1, [out]; cp.async.ca.shared.global [%r4+16], [%rd1], 4; cp.async.wait_all;");
    overrun("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r7}, [%r3+128];");
}

#[test]
fn lanes_exchange_addresses_from_two_places() {
    // Odd lanes get the second array's address, even ones the first's: at one place of the program or another.
    let body = |from: &str, offset: u32| {
        format!(
            "and.b32 %r7, %r1, 1; setp.eq.u32 %p1, %r7, 1; @%p1 bra odd; shfl.sync.bfly.b32 %r8, %r3, 1, 31, -1; bra end;
odd: shfl.sync.bfly.b32 %r8, {from}, 1, 31, -1; end: ld.shared.u32 %r9, [%r8+{offset}];"
        )
    };
    clean(&body("%r5", 0));
    // Used where it is got.
    clean(&body("%r5", 0).replace("bra end", "ld.shared.u32 %r9, [%r8+124]; bra end"));
    // Where all give one array's, it is known.
    overrun(&body("%r3", 128));
    // An address of 32 bits wraps.
    clean("mov.u32 %r7, -16; ld.shared.u32 %r8, [%r7+16];");
    overrun("mov.u32 %r7, -16; ld.shared.u32 %r8, [%r7+12];");
}

#[test]
fn addresses_are_followed_through_arithmetic() {
    // A pointer in a loop, which ends one step too late.
    let steps = |least: &str| {
        format!(
            "mov.u32 %r7, %r3; mov.u32 %r8, 0; again: ld.shared.u32 %r9, [%r7]; add.u32 %r7, %r7, 4; add.u32 %r8, %r8, 1; setp.{least}.u32 %p1, %r8, 32; @%p1 bra again;"
        )
    };
    clean(&steps("lt"));
    overrun(&steps("le"));
    // As a generic address.
    let generic = "cvt.u64.u32 %rd1, %r4; cvta.shared.u64 %rd2, %rd1;";
    clean(&format!("{generic} ld.u32 %r7, [%rd2];"));
    overrun(&format!("{generic} ld.u32 %r7, [%rd2+4];"));
    overrun(
        "mov.u64 %rd1, first; cvta.shared.u64 %rd2, %rd1; mad.wide.u32 %rd3, %r1, 8, %rd2; st.u32 [%rd3], %r1;",
    );
    // By a difference of addresses of one array.
    overrun("sub.u32 %r7, %r4, %r3; add.u32 %r8, %r7, %r5; ld.shared.u32 %r9, [%r8+4];");
    // On both ways the same, with a guard as well.
    let ways =
        "setp.lt.u32 %p1, %r1, 16; mov.u32 %r7, %r4; @%p1 add.u32 %r7, %r3, 4; selp.u32 %r8, %r7, %r4, %p1;";
    clean(&format!("{ways} ld.shared.u32 %r9, [%r8];"));
    overrun(&format!("{ways} ld.shared.u32 %r9, [%r8+4];"));
    overrun("shfl.sync.idx.b32 %r7, %r4, 31, 31, -1; ld.shared.u32 %r8, [%r7+4];");
    // A register that held a number before.
    overrun("mov.u32 %r7, %tid.x; mov.u32 %r7, first; ld.shared.u32 %r8, [%r7+128];");
}

#[test]
fn what_cannot_be_told_is_let_pass() {
    // Either array, and one from the other by their difference.
    clean("setp.lt.u32 %p1, %r1, 16; selp.u32 %r7, %r4, %r6, %p1; ld.shared.u32 %r8, [%r7];");
    clean(
        "setp.lt.u32 %p1, %r1, 16; mov.u32 %r7, %r4; @%p1 mov.u32 %r7, %r6; xor.b32 %r8, %r1, 1; ld.shared.u32 %r8, [%r7];",
    );
    clean("sub.u32 %r7, %r5, %r3; add.u32 %r8, %r4, %r7; ld.shared.u32 %r9, [%r8];");
    clean(
        "setp.lt.u32 %p1, %r1, 16; @%p1 bra a; mov.u32 %r7, %r6; bra b; a: mov.u32 %r7, %r4; b: ld.shared.u32 %r8, [%r7];",
    );
    clean(
        "setp.lt.u32 %p1, %r1, 16; selp.u32 %r7, %r4, %r6, %p1; add.u32 %r8, %r7, 0; ld.shared.u32 %r9, [%r8];",
    );
    // Addresses that are numbers, and mixed by bits.
    clean("mov.u32 %r7, 128; ld.shared.u32 %r8, [%r7];");
    clean("xor.b32 %r7, %r4, 128; ld.shared.u32 %r8, [%r7]; or.b32 %r7, %r4, 128; ld.shared.u32 %r8, [%r7];");
    // Memory that is divided by hand.
    clean(
        "mov.u32 %r7, rest; and.b32 %r8, %r2, 31; add.u32 %r7, %r7, %r8; setp.lt.u32 %p1, %r1, 8; @%p1 st.shared.u32 [%r7], 1; @%p1 st.shared.u32 [%r7+32], 2; bar.sync 0; @%p1 ld.shared.u32 %r9, [%r7+32];",
    );
}
