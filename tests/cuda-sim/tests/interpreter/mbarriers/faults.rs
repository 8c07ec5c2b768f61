//! Misuse of mbarriers, and of stores that they count, is a fault.

use super::*;
use crate::harness::{LaunchConfig, launch, launch_limited};

#[test]
fn mbarriers_live_from_init_to_inval() {
    let there = "there is no mbarrier at 0x100 of shared memory";
    let uses = [
        "@%p1 mbarrier.arrive.shared::cta.b64 _, [bar];",
        "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4;",
        "mbarrier.try_wait.parity.shared::cta.b64 %p3, [bar], 0;",
        "@%p1 mbarrier.inval.shared::cta.b64 [bar];",
        "@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [buffer], %r1, [bar];",
    ];
    for one in uses {
        alone_says(FaultKind::Uninitialized, one, there);
        alone_says(
            FaultKind::Uninitialized,
            &format!("@%p1 mbarrier.init.shared.b64 [buffer], 1; bar.sync 0; {one}"),
            there,
        );
        alone_says(
            FaultKind::Uninitialized,
            &format!("{INIT} @%p1 mbarrier.inval.shared.b64 [bar]; bar.sync 0; {one}"),
            there,
        );
        alone_says(
            FaultKind::OutOfBounds,
            &one.replace("[bar]", "[bar+8]"),
            "8 bytes at 0x108 of shared memory",
        );
        alone_says(FaultKind::Misaligned, &one.replace("[bar]", "[buffer+4]"), "no multiple of the 8 bytes");
    }
    says(FaultKind::Uninitialized, &with(INIT, ""), "there is no mbarrier at 0x100 of shared memory");
    fault(
        FaultKind::Uninitialized,
        &with(INIT, &format!("@%p4 {}", &INIT[5..]).replace("@%p4", "and.pred %p6, %p1, %p4; @%p6")),
    );
    alone_says(
        FaultKind::Misaligned,
        "mbarrier.init.shared.b64 [buffer+4], 1;",
        "no multiple of the 8 bytes",
    );
    alone_says(
        FaultKind::OutOfBounds,
        "@%p1 mbarrier.init.shared.b64 [bar+8], 1;",
        "8 bytes at 0x108 of shared memory",
    );
    for one in ["mbarrier.init.shared.b64 [%r2+256], 1;", "mbarrier.inval.shared.b64 [%r2+256];"] {
        alone_says(FaultKind::OutOfBounds, &format!("@%p1 {one}"), "by an address of `buffer`");
    }
    // A second initialisation is one too many, by any thread.
    alone_says(FaultKind::Barrier, &format!("{INIT} {INIT}"), "the mbarrier at 0x100 lives");
    alone_says(FaultKind::Barrier, "mbarrier.init.shared.b64 [bar], 1;", "the mbarrier at 0x100 lives");
    alone(&format!("{INIT} @%p1 mbarrier.inval.shared.b64 [bar]; {INIT}"));
    // Counts within and beyond the valid range.
    for count in [0, 1 << 20, u32::MAX] {
        let body = format!("mov.u32 %r20, {count}; @%p1 mbarrier.init.shared.b64 [bar], %r20;");
        alone_says(FaultKind::Barrier, &body, &format!("is for 1 to 1048575 arrivals, not for {count}"));
    }
    alone("mov.u32 %r20, 1048575; @%p1 mbarrier.init.shared.b64 [bar], %r20;");
}

#[test]
fn who_ends_an_mbarrier_knows_that_nobody_uses_it() {
    let last = |between: &str| {
        format!(
            "{INIT} bar.sync 0; @%p1 mbarrier.arrive.shared.b64 _, [bar]; {WAIT} {between} @%p1 mbarrier.inval.shared.b64 [bar];"
        )
    };
    alone(&last("bar.sync 0;"));
    alone_says(FaultKind::Race, &last(""), "nothing orders the two");
    let arrived = "@%p1 mbarrier.init.shared.b64 [bar], 2; bar.sync 0; setp.eq.u32 %p5, %r1, 40; @%p1 mbarrier.arrive.shared.b64 _, [bar]; NEXT @%p5 mbarrier.inval.shared.b64 [bar];";
    alone(&arrived.replace("NEXT", "bar.sync 0;"));
    alone_says(FaultKind::Race, &arrived.replace("NEXT", ""), "nothing orders the two");
    let sent = |wait: &str| with(WAIT, &format!("{wait} @%p1 mbarrier.inval.shared.b64 [bar];"));
    let narrow = format!("{} {MEET}", WAIT.replace(".acquire.cluster", ".acquire.cta"));
    for wait in [MEET, &narrow] {
        says(FaultKind::Race, &sent(wait), "the mbarrier at 0x100 counts an `st.async` of thread");
    }
    // The mbarrier is the second block's, and the last store is the block's own.
    let second = sent(&narrow)
        .replace(
            "@%p1 mbarrier.inval",
            "setp.ne.u32 %p6, %r4, 0; and.pred %p6, %p6, %p1; @%p6 mbarrier.inval",
        )
        .replace(SUM, "");
    says(FaultKind::Race, &second, "counts an `st.async` of thread [1, 0, 0] of block [0, 0, 0]");
    clean(&sent(&format!("{WAIT} {MEET}")));
}

#[test]
fn an_mbarrier_is_touched_by_its_own_instructions_alone() {
    for touch in [
        "ld.shared.u64 %rd3, [bar];",
        "ld.shared.u8 %r20, [bar+7];",
        "st.shared.u32 [bar+4], %r1;",
        "atom.shared.add.u32 %r20, [bar], 1;",
        "cp.async.ca.shared.global [bar], [%rd1], 4;",
        "ld.shared::cluster.u64 %rd3, [%r20];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r20], %r1, [%r20];",
    ] {
        let body = format!(
            ".shared .align 8 .b64 spare; {INIT} {FENCE} {MEET} mapa.shared::cluster.u32 %r20, bar, 1; @%p1 {touch}"
        );
        let found = says(FaultKind::Barrier, &body, "are of the mbarrier at 0x100, which lives");
        assert!(found.instruction.ends_with(touch), "{found}");
    }
    let whole = "@%p1 mbarrier.init.shared.b64 [buffer+8], 1; ld.shared.v2.u64 {%rd3, %rd4}, [buffer];";
    alone_says(FaultKind::Barrier, whole, "16 bytes at 0x0 of shared memory are of the mbarrier at 0x8");
    // Initialisation and invalidation count as writes, so no other thread may read there at the same time.
    let reader =
        "setp.eq.u32 %p5, %r1, 40; @%p1 ld.shared.u32 %r20, [bar]; @%p5 mbarrier.init.shared.b64 [bar], 1;";
    alone_says(FaultKind::Race, reader, "nothing orders the two");
    alone_says(
        FaultKind::Race,
        &format!(
            "{INIT} @%p1 mbarrier.inval.shared.b64 [bar]; setp.eq.u32 %p5, %r1, 40; @%p5 ld.shared.u32 %r20, [bar];"
        ),
        "nothing orders the two",
    );
    // Memory next to the mbarrier is not part of it, and invalidation leaves undefined memory.
    alone(&format!("{INIT} st.shared.u32 [buffer+252], 1;").replace("st.", "@%p1 st."));
    let after = |what: &str| format!("{INIT} @%p1 mbarrier.inval.shared.b64 [bar]; bar.sync 0; {what}");
    alone(&after(
        "@%p1 st.shared.u64 [bar], %rd1; bar.sync 0; ld.shared.u64 %rd3, [bar]; st.global.u32 [%rd2], %r1;",
    ));
    alone_says(
        FaultKind::Uninitialized,
        &after("ld.shared.u32 %r20, [bar]; st.global.u32 [%rd2], %r20;"),
        "not all of which were written",
    );
    // Earlier writes have to be ordered before the initialisation, as before any write.
    alone_says(
        FaultKind::Race,
        "setp.eq.u32 %p5, %r1, 40; @%p1 st.shared.u32 [bar], 1; @%p5 mbarrier.init.shared.b64 [bar], 1;",
        "nothing orders the two",
    );
    alone_says(
        FaultKind::Uninitialized,
        &format!(
            "@%p1 st.shared.u64 [bar], %rd1; {INIT} @%p1 mbarrier.inval.shared.b64 [bar]; @%p1 ld.shared.u32 %r20, [bar]; @%p1 st.global.u32 [%rd2], %r20;"
        ),
        "not all of which were written",
    );
}

#[test]
fn a_phase_counts_what_it_is_for() {
    let expect = |bytes: &str| format!("@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {bytes};");
    let send = "@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [buffer], %r1, [bar];";
    // More arrivals than expected.
    alone_says(
        FaultKind::Barrier,
        &format!("{INIT} {} {}", expect("4"), expect("4")),
        "1 threads have arrived in this phase of the mbarrier at 0x100, which is for no more, and 4 bytes are missing",
    );
    // More bytes than expected, in either order.
    for body in [
        format!("{INIT} {send} @%p1 mbarrier.arrive.shared.b64 _, [bar];"),
        format!("{INIT} {send} {}", expect("0")),
    ] {
        alone_says(
            FaultKind::Barrier,
            &body,
            "4 bytes more have come than the phase of this mbarrier is for",
        );
    }
    let wide = send.replace(".u32 [buffer], %r1", ".v2.u32 [buffer], {%r1, %r1}");
    alone_says(FaultKind::Barrier, &format!("{INIT} {} {wide}", expect("4")), "4 bytes more have come");
    alone(&format!("{INIT} {} {wide} bar.sync 0; {WAIT}", expect("8")));
    // Byte counts beyond the range, on both sides.
    alone_says(
        FaultKind::Barrier,
        &format!("{INIT} {}", expect("1048576")),
        "counts 1048576 bytes, of at most 1048575",
    );
    alone_says(FaultKind::Barrier, &format!("{INIT} {}", expect("-1")), "counts 4294967295 bytes");
    let many = "@%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0; mov.u32 %r20, dynamic; mad.lo.u32 %r20, %r1, 1040, %r20; mov.u32 %r21, 0;
again: st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%r20], {%r1, %r1, %r1, %r1}, [%r3]; add.u32 %r20, %r20, 16; add.u32 %r21, %r21, 1; setp.lt.u32 %p5, %r21, 65; @%p5 bra again;";
    let many = text(1, many).replace(".visible", ".extern .shared .align 16 .b8 dynamic[];\n.visible");
    let config = LaunchConfig { dynamic: 1 << 21, ..blocks(1, 1024) };
    let found = launch_limited(&many, config, &[words(&[0; 1024])], 1 << 20);
    let found = found.expect_err("a fault");
    assert!(found.what.contains("counts -1048576 bytes, of at most 1048575"), "{found}");
    // Invalid parities.
    alone_says(
        FaultKind::Barrier,
        &format!("{INIT} bar.sync 0; mov.u32 %r20, 2; mbarrier.try_wait.parity.shared.b64 %p3, [bar], %r20;"),
        "a parity is 0 or 1, not 2",
    );
}

#[test]
fn waits_for_what_does_not_come_are_told() {
    let found = says(
        FaultKind::Barrier,
        &with(EXPECT, ""),
        "it waits for a phase of the mbarrier at 0x100 that lacks 1 arrivals and 8 bytes have come that nobody expects",
    );
    assert!(found.instruction.contains("mbarrier.try_wait"), "{found}");
    says(
        FaultKind::Barrier,
        &with(SEND, &format!("@!%p4 bra none; {SEND} none:")),
        "lacks 0 arrivals and 4 bytes, and nobody goes on",
    );
    alone_says(FaultKind::Barrier, &format!("{INIT} bar.sync 0; {WAIT}"), "lacks 1 arrivals and 0 bytes");
    // The thread that would arrive waits for the threads that wait.
    alone_says(
        FaultKind::Barrier,
        &format!("{INIT} bar.sync 0; @%p1 bra last; {WAIT} last: bar.sync 0; @%p1 mbarrier.arrive.shared.b64 _, [bar];").replace("bar.sync 0; @%p1 mbarrier", "barrier.sync 0; @%p1 mbarrier"),
        "lacks 1 arrivals",
    );
    says(FaultKind::Barrier, &with(EXPECT, &format!("@%p4 bra skip; {EXPECT} skip:")), "nobody goes on");
    // A wait for the next phase.
    alone_says(
        FaultKind::Barrier,
        &format!(
            "{INIT} bar.sync 0; @%p1 mbarrier.arrive.shared.b64 _, [bar]; {WAIT} {}",
            WAIT.replace("again", "more").replace(", 0;", ", 1;")
        ),
        "lacks 1 arrivals",
    );
}

#[test]
fn blocks_do_not_end_before_what_is_sent_to_them_is_there() {
    let found = says(
        FaultKind::OutOfBounds,
        &[INIT, FENCE, RELAXED, EXPECT, PLACES, SEND].join("\n"),
        "it is to shared memory of block [0, 0, 0], which may have ended before: no thread of it has seen the phase complete",
    );
    assert!(found.instruction.ends_with(SEND), "{found}");
    alone_says(FaultKind::OutOfBounds, &with(&format!("{WAIT}\n{SUM}"), ""), "which may have ended before");
    // A single failed test is not enough. One thread that has seen the phase complete is.
    says(
        FaultKind::OutOfBounds,
        &with(
            &format!("{WAIT}\n{SUM}"),
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], 1;",
        ),
        "which may have ended before",
    );
    clean(&with(&format!("{WAIT}\n{SUM}"), &format!("setp.ne.u32 %p5, %r1, 50; @%p5 exit; {WAIT}")));
    // The wait counts even if the mbarrier is initialised again afterwards.
    clean(&with(SUM, &format!("{SUM} {MEET} @%p1 mbarrier.inval.shared.b64 [bar]; {INIT}")));
    // The barrier of the cluster does not imply a wait for the store.
    says(FaultKind::OutOfBounds, &with(&format!("{WAIT}\n{SUM}"), MEET), "which may have ended before");
    // A sender may end at once: the first block sends one word to the second.
    let one = format!(
        "{INIT} {FENCE} {RELAXED} {PLACES} setp.eq.u32 %p5, %r1, 1; and.pred %p5, %p5, %p4; {} @%p4 exit;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 4; {WAIT} ld.shared.f32 %f2, [%r2]; cvt.rzi.u32.f32 %r15, %f2; st.global.u32 [%rd2], %r15;",
        SEND.replace("@%p2", "@%p5")
    );
    let found = clean(&one);
    assert_eq!((found[0], found[64], found[127], found[192]), (0, 1, 1, 201));
    // A block that has ended receives nothing.
    let late = format!(
        "@!%p4 exit; mov.u32 %r20, 0; long: add.u32 %r20, %r20, 1; setp.lt.u32 %p5, %r20, 9000; @%p5 bra long; {SEND}"
    );
    says(FaultKind::OutOfBounds, &with(SEND, &late), "of block [1, 0, 0], which has ended");
    // A cluster leaves no mbarrier to the next one on its core.
    launch(&text(2, &exchange()), blocks(512, 32), &[words(&vec![0; 512 * 32])])
        .unwrap_or_else(|fault| panic!("{fault}"));
}

#[test]
fn a_store_and_its_mbarrier_are_of_one_block() {
    let found = says(
        FaultKind::Barrier,
        &with(SEND, &SEND.replace("[%r11]", "[%r3]")),
        "it is to shared memory of block [1, 0, 0], and its mbarrier is in shared memory",
    );
    assert_eq!((found.block, found.thread), ([0; 3], [1, 0, 0]));
    says(
        FaultKind::Barrier,
        &with(SEND, &SEND.replace("[%r10]", "[%r9]")),
        "and its mbarrier is in shared memory of block [1, 0, 0]",
    );
    // The target must be an existing block and place.
    says(
        FaultKind::OutOfBounds,
        &with(SEND, &SEND.replace("[%r10]", "[%r10+0x2000000]")),
        "of a cluster of 2",
    );
    says(
        FaultKind::OutOfBounds,
        &with(SEND, &SEND.replace("[%r11]", "[%r11+0x2000000]")),
        "of a cluster of 2",
    );
    says(
        FaultKind::OutOfBounds,
        &with(SEND, &SEND.replace("[%r10]", "[%r10+256]")),
        "by an address of `buffer`",
    );
    says(
        FaultKind::Misaligned,
        &with(SEND, &SEND.replace("[%r10]", "[%r10+2]")),
        "no multiple of the 4 bytes",
    );
    says(
        FaultKind::Misaligned,
        &with(SEND, &SEND.replace("[%r11]", "[%r11+4]")),
        "no multiple of the 8 bytes",
    );
}
