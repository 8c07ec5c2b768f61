//! Barriers of some of a block's warps count whole warps, and order only the threads that take part.

use crate::harness::{self, fault_of, kernel, launch, threads, words};
use cuda_sim::exec::FaultKind;

const REGISTERS: &str = ".reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .pred %p<10>;
.shared .align 16 .b8 buffer[512];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, buffer; mad.lo.u32 %r3, %r1, 4, %r2; shr.u32 %r4, %r1, 5;
";

fn text(body: &str) -> String {
    kernel(&["u64 out"], &format!("{REGISTERS}{body}"))
}

fn clean(body: &str, count: u32) {
    launch(&text(body), threads(count), &[words(&[0; 128])])
        .unwrap_or_else(|fault| panic!("{fault}\n{body}"));
}

fn fault(kind: FaultKind, body: &str, count: u32) -> String {
    fault_of(&text(body), threads(count), &[words(&[0; 128])], kind).to_string()
}

/// Returns code in which all threads store words and read others' after a barrier.
fn exchange(barrier: &str, from: u32) -> String {
    format!(
        "st.shared.u32 [%r3], %r1; {barrier} xor.b32 %r5, %r1, {from}; mad.lo.u32 %r5, %r5, 4, %r2; ld.shared.u32 %r6, [%r5];"
    )
}

#[test]
fn a_warp_counts_for_all_its_lanes() {
    // 48 threads are two warps. Two warps with exited lanes count as two, too.
    clean(&exchange("bar.sync 1, 64;", 8), 48);
    clean(&exchange("bar.sync 1, 64;", 16).replace("xor.b32 %r5, %r1, 16", "sub.u32 %r5, 47, %r1"), 48);
    clean("setp.eq.u32 %p1, %r1, 40; @%p1 exit; bar.sync 1, 64; bar.sync 1, 64;", 64);
    clean("setp.gt.u32 %p1, %r1, 40; @%p1 exit; bar.red.popc.u32 %r5, 1, 64, 1; bar.sync 0;", 64);
    // A warp that arrives and ends counts like others.
    clean("setp.lt.u32 %p1, %r1, 32; @%p1 bra wait; bar.arrive 1, 64; exit; wait: bar.sync 1, 64;", 48);
    // A warp whose lanes come one by one counts once all have come.
    let lanes = "and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 1; @%p1 bra odd; barrier.sync 1, 64; bra end; odd: barrier.sync 1, 64; end:";
    clean(lanes, 48);
    let found = fault(FaultKind::Barrier, "bar.sync 1, 96;", 48);
    assert!(found.contains("48 threads wait"), "{found}");
    fault(FaultKind::Barrier, &lanes.replace("odd: barrier.sync 1, 64;", "odd: barrier.sync 2, 64;"), 48);
}

#[test]
fn those_beyond_the_count_are_of_the_next_turn() {
    // Four warps at a barrier of two: the first two meet, then the other two.
    clean(&exchange("bar.sync 1, 64;", 32), 128);
    let found = fault(FaultKind::Race, &exchange("bar.sync 1, 64;", 64), 128);
    assert!(found.contains("nothing orders"), "{found}");
    // Three warps are one too many.
    fault(FaultKind::Barrier, "bar.sync 1, 64;", 96);
    // Reductions combine the warps that meet.
    let votes = "setp.ge.u32 %p1, %r1, 64; bar.red.popc.u32 %r5, 1, 64, %p1; mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.u32 [%rd2], %r5;";
    let found = harness::words_of(&text(votes), threads(128), &[words(&[9; 128])]);
    assert_eq!((found[0], found[63], found[64], found[127]), (0, 0, 64, 64));
    // A warp that goes on and arrives again completes the barrier without the others.
    let twice = "setp.lt.u32 %p1, %r1, 32; @%p1 bra wait; bar.arrive 1, 64; bar.arrive 1, 64; bra end; wait: bar.sync 0, 32; bar.sync 1, 64; end:";
    fault(FaultKind::Barrier, twice, 64);
    // Waits of different counts at one barrier.
    let found = fault(
        FaultKind::Barrier,
        "setp.lt.u32 %p1, %r1, 32; @%p1 bra two; bar.sync 1, 96; bra end; two: bar.sync 1, 64; end:",
        96,
    );
    assert!(found.contains("others have come to this barrier for"), "{found}");
}
