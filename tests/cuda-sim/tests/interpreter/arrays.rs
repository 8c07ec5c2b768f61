//! Accesses by the address of a variable of shared, local or parameter memory stay within it, where the
//! variable is known. Memory that a kernel divides by hand is not checked.

use crate::harness::{Arg, LaunchConfig, blocks, fault_of, kernel, launch, words};
use cuda_sim::exec::{Fault, FaultKind};

/// Returns a kernel of 32 threads with two initialised arrays of 32 words, and dynamic memory.
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

const CONFIG: LaunchConfig = LaunchConfig { grid: [1; 3], block: [32, 1, 1], dynamic: 64 };

fn overrun(body: &str) -> Fault {
    fault_of(&text(body), CONFIG, &[words(&[0; 64])], FaultKind::OutOfBounds)
}

fn clean(body: &str) {
    launch(&text(body), CONFIG, &[words(&[0; 64])]).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
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
    // The fault names the thread that leaves the array, at its end and before its start.
    assert_eq!(overrun("ld.shared.u32 %r7, [%r4+4];").thread, [31, 0, 0]);
    assert_eq!(overrun("ld.shared.u32 %r7, [%r6+-4];").thread, [0, 0, 0]);
    overrun("ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [second+-16];");
    overrun("mov.u32 %r7, first+128; st.shared.u32 [%r7], %r1;");
    overrun("mad.lo.u32 %r7, %r1, 8, %r3; ld.shared.u32 %r8, [%r7];");
    // Accesses from static into dynamic memory, and back.
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
    // Odd lanes get the second array's address and even ones the first's, by one shuffle or by two.
    let body = |from: &str, offset: u32| {
        format!(
            "and.b32 %r7, %r1, 1; setp.eq.u32 %p1, %r7, 1; @%p1 bra odd; shfl.sync.bfly.b32 %r8, %r3, 1, 31, -1; bra end;
odd: shfl.sync.bfly.b32 %r8, {from}, 1, 31, -1; end: ld.shared.u32 %r9, [%r8+{offset}];"
        )
    };
    clean(&body("%r5", 0));
    // The address is used right after the shuffle.
    clean(&body("%r5", 0).replace("bra end", "ld.shared.u32 %r9, [%r8+124]; bra end"));
    // The array is known if all lanes give an address of the same one.
    overrun(&body("%r3", 128));
    // An address of 32 bits wraps.
    clean("mov.u32 %r7, -16; ld.shared.u32 %r8, [%r7+16];");
    overrun("mov.u32 %r7, -16; ld.shared.u32 %r8, [%r7+12];");
}

#[test]
fn addresses_are_followed_through_arithmetic() {
    // A pointer in a loop, which ends one iteration too late.
    let steps = |least: &str| {
        format!(
            "mov.u32 %r7, %r3; mov.u32 %r8, 0; again: ld.shared.u32 %r9, [%r7]; add.u32 %r7, %r7, 4; add.u32 %r8, %r8, 1; setp.{least}.u32 %p1, %r8, 32; @%p1 bra again;"
        )
    };
    clean(&steps("lt"));
    overrun(&steps("le"));
    // The same as a generic address.
    let generic = "cvt.u64.u32 %rd1, %r4; cvta.shared.u64 %rd2, %rd1;";
    clean(&format!("{generic} ld.u32 %r7, [%rd2];"));
    overrun(&format!("{generic} ld.u32 %r7, [%rd2+4];"));
    overrun(
        "mov.u64 %rd1, first; cvta.shared.u64 %rd2, %rd1; mad.wide.u32 %rd3, %r1, 8, %rd2; st.u32 [%rd3], %r1;",
    );
    // An address from the difference of two addresses of one array.
    overrun("sub.u32 %r7, %r4, %r3; add.u32 %r8, %r7, %r5; ld.shared.u32 %r9, [%r8+4];");
    // Both ways give the same array, with a guard as well.
    let ways =
        "setp.lt.u32 %p1, %r1, 16; mov.u32 %r7, %r4; @%p1 add.u32 %r7, %r3, 4; selp.u32 %r8, %r7, %r4, %p1;";
    clean(&format!("{ways} ld.shared.u32 %r9, [%r8];"));
    overrun(&format!("{ways} ld.shared.u32 %r9, [%r8+4];"));
    overrun("shfl.sync.idx.b32 %r7, %r4, 31, 31, -1; ld.shared.u32 %r8, [%r7+4];");
    // A register that contained a number before.
    overrun("mov.u32 %r7, %tid.x; mov.u32 %r7, first; ld.shared.u32 %r8, [%r7+128];");
}

#[test]
fn what_cannot_be_told_is_let_pass() {
    // An address in either array, and one from the other by their difference.
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
    // Addresses that are constants, or results of bit operations.
    clean("mov.u32 %r7, 128; ld.shared.u32 %r8, [%r7];");
    clean("xor.b32 %r7, %r4, 128; ld.shared.u32 %r8, [%r7]; or.b32 %r7, %r4, 128; ld.shared.u32 %r8, [%r7];");
    // Memory that is divided by hand.
    clean(
        "mov.u32 %r7, rest; and.b32 %r8, %r2, 31; add.u32 %r7, %r7, %r8; setp.lt.u32 %p1, %r1, 8; @%p1 st.shared.u32 [%r7], 1; @%p1 st.shared.u32 [%r7+32], 2; bar.sync 0; @%p1 ld.shared.u32 %r9, [%r7+32];",
    );
}

/// Two arrays of eight words for each thread, both initialised.
const LOCAL: &str = ".local .align 16 .b8 mine[32]; .local .align 16 .b8 other[32];
mov.u64 %rd1, mine; mov.u64 %rd2, other; cvta.local.u64 %rd3, %rd1; and.b32 %r7, %r1, 7; mul.wide.u32 %rd4, %r7, 4; add.u64 %rd5, %rd1, %rd4;
mov.u32 %r8, 0; st.local.v4.u32 [mine], {%r8, %r8, %r8, %r8}; st.local.v4.u32 [mine+16], {%r8, %r8, %r8, %r8};
st.local.v4.u32 [other], {%r8, %r8, %r8, %r8}; st.local.v4.u32 [other+16], {%r8, %r8, %r8, %r8};
";

#[test]
fn a_local_array_does_not_reach_into_the_next() {
    let body = |access: &str| format!("{LOCAL}{access}");
    clean(&body("ld.local.u32 %r9, [%rd5]; st.local.u32 [other+28], %r9; ld.u32 %r9, [%rd3+28];"));
    let found = overrun(&body("ld.local.u32 %r9, [%rd5+4];"));
    assert_eq!(found.thread, [7, 0, 0]);
    assert!(
        found
            .what
            .contains("4 bytes at 0x20 of local memory, by an address of `mine`, which is from 0x0 to 0x20"),
        "{found}"
    );
    overrun(&body("ld.local.u32 %r9, [mine+32];"));
    overrun(&body("st.local.u32 [other+-4], %r8;"));
    overrun(&body("ld.u32 %r9, [%rd3+32];"));
    overrun(&body("add.u64 %rd6, %rd3, %rd4; st.u32 [%rd6+4], %r8;"));
    // An access beyond the last variable.
    let found = overrun(&body("ld.local.u32 %r9, [%rd2+32];"));
    assert!(found.what.contains("4 bytes at 0x40 of local memory, which is 64 bytes long"), "{found}");
    // An address of either variable, and a constant.
    clean(&body("setp.lt.u32 %p1, %r1, 16; selp.b64 %rd6, %rd1, %rd2, %p1; ld.local.u32 %r9, [%rd6];"));
    clean(&body("mov.u64 %rd6, 32; ld.local.u32 %r9, [%rd6]; ld.local.u32 %r9, [32];"));
    // An address of one space is none of another.
    clean(&body("cvta.shared.u64 %rd6, %rd2; ld.u32 %r9, [%rd6];"));
    // The address is so far beyond the variable that it belongs to another space, which has no such place.
    let far = ".reg .b64 %rd<9>; .reg .b32 %r<9>; .local .align 4 .b8 mine[32]; mov.u64 %rd1, mine; cvta.local.u64 %rd2, %rd1; mov.u64 %rd3, 0x10000000000; sub.u64 %rd4, %rd2, %rd3; ld.u32 %r1, [%rd4+16];";
    let found = fault_of(&kernel(&[], far), blocks(1, 32), &[], FaultKind::OutOfBounds);
    assert!(found.what.contains("4 bytes at 0x10 of shared memory, which is 0 bytes long"), "{found}");
}

#[test]
fn a_parameter_does_not_reach_into_the_next() {
    let text = |body: &str| {
        let text = kernel(&["u64 out"], &format!(".reg .b32 %r<9>; .reg .b64 %rd<9>;\n{body}"));
        text.replacen("out)", "out, .param .align 4 .b8 pair[8], .param .u32 last)", 1)
    };
    let args = [words(&[0; 8]), Arg::Word(5), Arg::Word(7)];
    let run = |body: &str| launch(&text(body), CONFIG, &args);
    let overrun = |body: &str| fault_of(&text(body), CONFIG, &args, FaultKind::OutOfBounds);
    let read = "ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [pair+4]; mov.b64 %rd2, pair; mov.u32 %r2, %tid.x; and.b32 %r2, %r2, 1; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd2, %rd2, %rd3; ld.param.u32 %r3, [%rd2]; add.u32 %r1, %r1, %r3; ld.param.u32 %r4, [last];";
    run(read).unwrap_or_else(|fault| panic!("{fault}"));
    let found = overrun("ld.param.u32 %r1, [pair+8];");
    assert!(
        found.what.contains(
            "4 bytes at 0x10 of parameter memory, by an address of `pair`, which is from 0x8 to 0x10"
        ),
        "{found}"
    );
    overrun("ld.param.u32 %r1, [last+-8];");
    assert_eq!(overrun(&format!("{read} ld.param.u32 %r3, [%rd2+4];")).thread, [1, 0, 0]);
    let found = overrun("ld.param.u32 %r1, [last+4];");
    assert!(found.what.contains("4 bytes at 0x14 of parameter memory, which is 20 bytes long"), "{found}");
}

#[test]
fn an_argument_does_not_reach_into_the_next() {
    let text = |access: &str| {
        let body = ".reg .b32 %r<9>; .reg .b64 %rd<9>; mov.u32 %r1, 3;
{ .param .b32 one; .param .b32 two; .param .b32 back; st.param.b32 [one], %r1; st.param.b32 [two], %r1; call (back), f, (one, two); ld.param.b32 %r2, [back]; }";
        let function = format!(
            ".func (.param .b32 sum) f(.param .b32 a, .param .b32 b) {{ .reg .b32 %r<9>; ld.param.b32 %r1, [{access}]; st.param.b32 [sum], %r1; ret; }}\n.visible"
        );
        kernel(&["u64 out"], body).replacen(".visible", &function, 1)
    };
    let args = [words(&[0; 8])];
    launch(&text("b"), CONFIG, &args).unwrap_or_else(|fault| panic!("{fault}"));
    let found = fault_of(&text("a+4"), CONFIG, &args, FaultKind::OutOfBounds);
    assert!(found.what.contains("by an address of `one`"), "{found}");
}
