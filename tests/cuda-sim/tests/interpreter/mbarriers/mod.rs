//! Blocks exchange words with mbarriers and the stores that they count. Violations of each rule are faults.

mod faults;

use crate::harness::{blocks, fault_of, kernel, words, words_of};
use cuda_sim::exec::{Fault, FaultKind};

const REGISTERS: &str = ".reg .b32 %r<30>; .reg .b64 %rd<10>; .reg .f32 %f<10>; .reg .pred %p<10>;
.shared .align 16 .b8 buffer[256]; .shared .align 8 .b64 bar;
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, buffer; mov.u32 %r3, bar; mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, %ctaid.x;
mov.u32 %r6, %ntid.x; mad.lo.u32 %r6, %r5, %r6, %r1; mad.wide.u32 %rd2, %r6, 4, %rd1; mov.u32 %r7, %cluster_nctarank;
setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p2, %r1, %r7; setp.eq.u32 %p4, %r4, 0;
";

/// Returns a kernel with clusters of `cluster` blocks. Each thread has its number in `%r1`, its block's rank
/// in `%r4`, the number of blocks in `%r7` and its word of the result in `%rd2`. `%p1` is true for the first
/// thread, `%p2` if a block has the thread's number, and `%p4` if the rank is 0.
fn text(cluster: u32, body: &str) -> String {
    let text = kernel(&["u64 out"], &format!("{REGISTERS}{body}"));
    text.replacen(")\n{", &format!(")\n.reqnctapercluster {cluster}\n{{"), 1)
}

const INIT: &str = "@%p1 mbarrier.init.shared::cta.b64 [bar], 1;";
const FENCE: &str = "@%p1 fence.mbarrier_init.release.cluster;";
const RELAXED: &str = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;";
const MEET: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";
const EXPECT: &str = "shl.b32 %r8, %r7, 2; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r8;";
/// Code that computes the addresses of this block's word and of the mbarrier in the block of the thread's
/// number.
const PLACES: &str = "mad.lo.u32 %r9, %r4, 4, %r2; @%p2 mapa.shared::cluster.u32 %r10, %r9, %r1; @%p2 mapa.shared::cluster.u32 %r11, %r3, %r1;
mad.lo.u32 %r12, %r5, 100, %r1; cvt.rn.f32.u32 %f1, %r12;";
const SEND: &str = "@%p2 st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%r10], %f1, [%r11];";
const WAIT: &str =
    "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], 0; @!%p3 bra again;";
/// Code that adds the words that all blocks have sent.
const SUM: &str = "mov.f32 %f2, 0f00000000; mov.u32 %r13, 0; mov.u32 %r14, %r2;
sum: ld.shared.f32 %f3, [%r14]; add.f32 %f2, %f2, %f3; add.u32 %r14, %r14, 4; add.u32 %r13, %r13, 1; setp.lt.u32 %p5, %r13, %r7; @%p5 bra sum;
cvt.rzi.u32.f32 %r15, %f2; st.global.u32 [%rd2], %r15;";

/// Message of a fault on memory with a store under way.
const UNSEEN: &str = "the thread has not seen the phase complete";

/// Returns the code of an exchange: each block sends a word to all blocks, which add the words.
fn exchange() -> String {
    [INIT, FENCE, RELAXED, EXPECT, PLACES, SEND, WAIT, SUM].join("\n")
}

/// Returns the exchange with a replaced part.
fn with(from: &str, to: &str) -> String {
    let body = exchange();
    assert_eq!(body.matches(from).count(), 1, "{from}");
    body.replace(from, to)
}

/// Returns a thread's result in clusters of `size` blocks of `threads` threads. Every block sends 100 times
/// its number plus the target's rank.
fn wanted(size: u32, threads: u32, thread: u32) -> u32 {
    let block = thread / threads;
    let first = block / size * size;
    (first..first + size).map(|sender| 100 * sender + block % size).sum()
}

/// Runs a body without a fault in two clusters of two blocks of 64 threads.
fn clean(body: &str) -> Vec<u32> {
    words_of(&text(2, body), blocks(4, 64), &[words(&[0; 256])])
}

/// Returns the fault of a body in a cluster of two blocks.
fn fault(kind: FaultKind, body: &str) -> Fault {
    fault_of(&text(2, body), blocks(2, 64), &[words(&[0; 128])], kind)
}

/// Returns the fault of a body, whose message must contain `wanted`.
fn says(kind: FaultKind, body: &str, wanted: &str) -> Fault {
    let found = fault(kind, body);
    assert!(found.what.contains(wanted), "{found}\n{body}");
    found
}

/// Runs a body without a fault in a single block.
fn alone(body: &str) -> Vec<u32> {
    words_of(&text(1, body), blocks(1, 64), &[words(&[0; 64])])
}

/// Returns the fault of a body in a single block, whose message must contain `wanted`.
fn alone_says(kind: FaultKind, body: &str, wanted: &str) -> Fault {
    let found = fault_of(&text(1, body), blocks(1, 64), &[words(&[0; 64])], kind);
    assert!(found.what.contains(wanted), "{found}\n{body}");
    found
}

#[test]
fn blocks_send_words_to_all_others() {
    for size in [1, 2, 8] {
        for threads in [32, 64] {
            let found = words_of(
                &text(size, &exchange()),
                blocks(16, threads),
                &[words(&vec![0; 16 * threads as usize])],
            );
            for (thread, &found) in (0..).zip(&found) {
                assert_eq!(found, wanted(size, threads, thread), "{thread} of {size} by {threads}");
            }
        }
    }
}

#[test]
fn an_exchange_after_another_has_its_mbarrier_anew() {
    // The form that compilers write: the first thread in a branch of its own, and work between arrival and
    // wait.
    let body = format!(
        "mov.u32 %r20, 0; mov.u32 %r21, 0;
turn: @!%p1 bra ready; setp.eq.u32 %p6, %r20, 0; @%p6 bra fresh; mbarrier.inval.shared::cta.b64 [bar];
fresh: mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
ready: barrier.cluster.arrive.relaxed.aligned; {PLACES} barrier.cluster.wait.acquire.aligned;
{EXPECT} {SEND} {WAIT} {SUM} add.u32 %r21, %r21, %r15;
add.u32 %r20, %r20, 1; setp.eq.u32 %p6, %r20, TURNS; @%p6 bra done; LAST bra turn; done: st.global.u32 [%rd2], %r21;"
    );
    let body = |turns: &str, last: &str| body.replace("TURNS", turns).replace("LAST", last);
    for size in [1, 2, 8] {
        let found = words_of(&text(size, &body("3", MEET)), blocks(8, 64), &[words(&[0; 512])]);
        (0..).zip(&found).for_each(|(i, &found)| assert_eq!(found, 3 * wanted(size, 64, i), "{i} of {size}"));
    }
    // The two exchanges are not ordered.
    for last in ["", "bar.sync 0;"] {
        let found = fault(FaultKind::Race, &body("2", last));
        assert!(found.what.contains("nothing orders") || found.what.contains("has not seen"), "{found}");
    }
    fault(FaultKind::Race, &body("2", RELAXED));
}

#[test]
fn phases_follow_one_another() {
    // Phases of one mbarrier. The cluster's barrier orders the next phase for all, and the words alternate
    // between two places.
    let body = format!(
        "{INIT} {FENCE} {RELAXED} {PLACES} mov.u32 %r20, 0; mov.u32 %r21, 0;
turn: {EXPECT} {SEND} and.b32 %r22, %r20, 1;
again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], %r22; @!%p3 bra again;
{SUM} add.u32 %r21, %r21, %r15; NEXT
add.u32 %r20, %r20, 1; setp.lt.u32 %p6, %r20, 5; @%p6 bra turn; st.global.u32 [%rd2], %r21;"
    );
    let found = clean(&body.replace("NEXT", MEET));
    (0..).zip(&found).for_each(|(i, &found)| assert_eq!(found, 5 * wanted(2, 64, i), "{i}"));
    let other = "xor.b32 %r2, %r2, 64; xor.b32 %r10, %r10, 64;";
    // Each phase sends to another place, so that no place gets two words. The end of the earlier phase is
    // still unknown.
    says(FaultKind::Barrier, &body.replace("NEXT", other), "nothing tells the thread that a phase");
    // The first thread arrives for a phase without a wait for the one before.
    let twice = "@%p1 mbarrier.arrive.shared.b64 _, [bar];";
    alone_says(
        FaultKind::Barrier,
        &format!("{INIT} bar.sync 0; {twice} {twice}"),
        "nothing tells the thread that a phase of the mbarrier at 0x100",
    );
    alone(&format!("{INIT} bar.sync 0; {twice} {WAIT} bar.sync 0; {twice}"));
}

#[test]
fn several_values_count_for_one_mbarrier() {
    let second = "add.u32 %r16, %r10, 64; add.f32 %f4, %f1, %f1;";
    let async_to = "st.async.shared::cluster.mbarrier::complete_tx::bytes";
    let more = "cvt.rzi.u32.f32 %r15, %f2; shl.b32 %r16, %r4, 2; ld.shared.f32 %f4, [buffer+64]; add.f32 %f2, %f2, %f4; ld.shared.f32 %f4, [buffer+68]; add.f32 %f2, %f2, %f4;";
    let body = |expected: u32| {
        with(SEND, &format!("{second} {SEND} @%p2 {async_to}.f32 [%r16], %f4, [%r11];"))
            .replace("shl.b32 %r8, %r7, 2;", &format!("mul.lo.u32 %r8, %r7, {expected};"))
            .replacen("cvt.rzi.u32.f32 %r15, %f2;", &format!("{more} cvt.rzi.u32.f32 %r15, %f2;"), 1)
    };
    let found = clean(&body(8));
    (0..).zip(&found).for_each(|(i, &found)| assert_eq!(found, 3 * wanted(2, 64, i), "{i}"));
    says(FaultKind::Barrier, &body(12), "lacks 0 arrivals and 8 bytes, and nobody goes on");
    // Elements of other types, in neighbouring places, by one thread of a single block.
    let of = |send: &str, bytes: u32, load: &str| {
        let found = alone(&format!(
            ".reg .f64 %fd<4>; {INIT} {FENCE} {RELAXED} mapa.shared::cluster.u32 %r11, bar, 0; mov.u32 %r16, 7; mov.b64 %rd3, {{%r16, %r1}}; mov.b64 %fd1, %rd3; mov.f32 %f1, 0f40E00000; mov.b32 %r17, %f1;
@%p1 mbarrier.arrive.expect_tx.release.cluster.shared::cta.b64 _, [bar], {bytes}; @%p1 {async_to}.{send}, [%r11]; {WAIT} {load} st.global.u32 [%rd2], %r18;"
        ));
        assert_eq!(found, [7; 64], "{send}");
    };
    for ty in ["b32", "u32", "s32"] {
        of(&format!("{ty} [buffer], %r16"), 4, "ld.shared.u32 %r18, [buffer];");
        of(&format!("v2.{ty} [buffer+8], {{%r16, %r1}}"), 8, "ld.shared.u32 %r18, [buffer+8];");
        of(&format!("v4.{ty} [buffer+16], {{%r1, %r1, %r16, %r1}}"), 16, "ld.shared.u32 %r18, [buffer+24];");
    }
    for ty in ["b64", "u64", "s64"] {
        of(&format!("{ty} [%r2], %rd3"), 8, "ld.shared.u32 %r18, [buffer];");
        of(&format!("v2.{ty} [%r2], {{%rd3, %rd3}}"), 16, "ld.shared.u32 %r18, [buffer+8];");
    }
    of("f64 [buffer+24], %fd1", 8, "ld.shared.u32 %r18, [buffer+24];");
    of("v2.f64 [buffer], {%fd1, %fd1}", 16, "ld.shared.u32 %r18, [buffer+8];");
    of("v2.f32 [buffer], {%f1, %f1}", 8, "ld.shared.f32 %f2, [buffer+4]; cvt.rzi.u32.f32 %r18, %f2;");
    of("b32 [buffer+4], 7", 4, "ld.shared.u32 %r18, [buffer+4];");
    // Bytes may come before they are expected.
    clean(&[INIT, FENCE, RELAXED, PLACES, SEND, EXPECT, WAIT, SUM].join("\n"));
}

#[test]
fn what_is_sent_is_known_to_those_who_have_waited() {
    // No thread may access the words before the wait, or after a wait that is not of the cluster.
    let early = [
        with(WAIT, ""),
        with(WAIT, &WAIT.replace(".acquire.cluster", "")),
        with(WAIT, &WAIT.replace(".acquire.cluster", ".acquire.cta")),
        // A single test is not enough, because it may fail.
        with(WAIT, "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], 0;"),
    ];
    for body in early {
        // The slower block's words are not yet sent when the first block reads.
        let found = fault_of(&text(2, &body), blocks(2, 64), &[words(&[0; 128])], FaultKind::Race);
        assert!(found.what.contains(UNSEEN) || found.what.contains("nothing orders"), "{found}\n{body}");
    }
    // Every access is a fault, of any length, and in the sending block too.
    let late = format!("{MEET} TOUCH {WAIT} {MEET}");
    for touch in [
        "ld.shared.f32 %f4, [%r9];",
        "ld.shared.u8 %r20, [%r9+3];",
        "ld.shared.v4.f32 {%f4, %f5, %f6, %f7}, [%r2];",
        "ld.u32 %r20, [%rd3];",
        "@%p1 st.shared.f32 [%r9], %f1;",
        "@%p1 st.shared.u8 [%r9], %r1;",
        "@%p1 atom.shared.add.u32 %r20, [%r9], 1;",
        "@%p1 cp.async.ca.shared.global [%r9], [%rd1], 4;",
        "@%p2 ld.shared::cluster.f32 %f4, [%r10];",
        "@%p2 st.shared::cluster.f32 [%r10], %f1;",
    ] {
        let generic = "cvt.u64.u32 %rd3, %r9; cvta.shared.u64 %rd3, %rd3;";
        let found = says(
            FaultKind::Race,
            &with(WAIT, &late.replace("TOUCH", &format!("{generic} {touch}"))),
            &format!("{UNSEEN}, of the mbarrier at 0x100, that it is of"),
        );
        assert!(found.what.contains("are the target of an `st.async` of thread "), "{found}");
    }
    // A second store to the place is a fault, even in the same phase.
    says(FaultKind::Race, &with(SEND, &format!("{SEND} {SEND}")), UNSEEN);
    // One thread may wait, and order the others by a barrier.
    let one = "@!%p1 bra told; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], 0; @!%p3 bra again; told: bar.sync 0;";
    clean(&with(WAIT, one));
    fault(FaultKind::Race, &with(WAIT, &one.replace("bar.sync 0;", "")));
    // The word then belongs to the block, and after a cluster barrier to another one.
    clean(&with(
        SUM,
        &format!("{SUM} bar.sync 0; @%p1 st.shared.f32 [%r9], %f1; bar.sync 0; ld.shared.f32 %f4, [%r9];"),
    ));
    fault(
        FaultKind::Race,
        &with(SUM, &format!("{SUM} bar.sync 0; @%p1 st.shared.f32 [%r9], %f1; ld.shared.f32 %f4, [%r9];")),
    );
    clean(&with(
        SUM,
        &format!("{SUM} {MEET} @%p2 st.shared::cluster.f32 [%r10], %f1; {MEET} ld.shared.f32 %f4, [%r9];"),
    ));
    // A block's own store is visible after a wait of block scope.
    let own = with(WAIT, &WAIT.replace(".acquire.cluster", ".acquire.cta"));
    words_of(&text(1, &own), blocks(1, 64), &[words(&[0; 64])]);
    fault_of(&text(1, &with(WAIT, "")), blocks(1, 64), &[words(&[0; 64])], FaultKind::Race);
    // Earlier accesses to the place have to be ordered before the store.
    let before = format!("ld.shared.f32 %f4, [%r2]; {RELAXED}");
    says(FaultKind::Race, &with(RELAXED, &before), "that thread");
    clean(&with(RELAXED, &before.replace(RELAXED, MEET)));
    // Two lanes send to one place.
    alone_says(
        FaultKind::Race,
        &format!(
            "{INIT} bar.sync 0; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256; st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [buffer], %r1, [bar]; {WAIT}"
        ),
        "thread [0, 0, 0] of the same block",
    );
}

#[test]
fn a_wait_tells_of_what_was_sent_and_of_nothing_else() {
    // Other stores of the sender.
    let flag = "@%p2 add.u32 %r16, %r10, 128; @%p2 st.shared::cluster.f32 [%r16], %f1;";
    let read = "ld.shared.f32 %f4, [%r9+128];";
    let told = |between: &str| {
        with(SEND, &format!("{flag} {SEND}")).replace(SUM, &format!("{between} {read} {SUM} {MEET}"))
    };
    clean(&told(MEET));
    says(FaultKind::Race, &told(""), "nothing orders the two");
    // The wait of a block orders its own words only, not another block's.
    let other =
        |before: &str| with(SUM, &format!("{before} @%p2 ld.shared::cluster.f32 %f4, [%r10]; {MEET}"));
    clean(&other(MEET));
    says(FaultKind::Race, &other(""), UNSEEN);
    says(FaultKind::Race, &other(RELAXED), UNSEEN);
    // An undefined value cannot be sent.
    fault(FaultKind::Uninitialized, &with(SEND, &SEND.replace("%f1", "%f9")));
}

#[test]
fn who_sends_knows_that_the_mbarrier_is_there() {
    let unknown = "was initialised by thread [0, 0, 0] of ";
    // With the fence a relaxed barrier is enough. Without it, with another thread's fence, or with an early
    // fence it is not.
    for broken in [
        with(FENCE, ""),
        with(FENCE, "@!%p1 fence.mbarrier_init.release.cluster;"),
        with(&format!("{INIT}\n{FENCE}"), &format!("{FENCE} {INIT}")),
        with(
            &format!("{FENCE}\n{RELAXED}"),
            &format!("barrier.cluster.arrive.relaxed; {FENCE} barrier.cluster.wait;"),
        ),
    ] {
        let found = says(FaultKind::Race, &broken, unknown);
        assert!(found.what.contains("and nothing orders that before"), "{found}");
    }
    clean(&with(&format!("{FENCE}\n{RELAXED}"), MEET));
    // A general fence does not order this barrier, which is relaxed.
    fault(FaultKind::Race, &with(FENCE, "fence.acq_rel.cluster;"));
    // The target block has to be known to have begun.
    says(FaultKind::OutOfBounds, &with(RELAXED, "bar.sync 0;"), "which may not have begun");
    // The fence orders nothing but the initialisation.
    let told = format!("@%p1 st.shared.f32 [buffer+128], 0f3F800000; {FENCE}");
    clean(&with(FENCE, &told));
    let read = format!("@!%p1 ld.shared.f32 %f4, [buffer+128]; {EXPECT}");
    fault(FaultKind::Race, &with(FENCE, &told).replace(EXPECT, &read));
    clean(&with(FENCE, &told).replace(EXPECT, &format!("bar.sync 0; {read}")));
    // The rule applies within the block as well.
    alone_says(
        FaultKind::Race,
        &format!("{INIT} {WAIT}"),
        "was initialised by thread [0, 0, 0] of the same block",
    );
    alone_says(
        FaultKind::Race,
        &format!("{INIT} setp.eq.u32 %p5, %r1, 40; @%p5 mbarrier.arrive.shared.b64 _, [bar];"),
        "nothing orders",
    );
    alone(&format!("{INIT} bar.sync 0; @%p1 mbarrier.arrive.shared.b64 _, [bar]; {WAIT}"));
    // An mbarrier that is initialised again is a new one.
    let again = format!(
        "{SUM} {MEET} @%p1 mbarrier.inval.shared.b64 [bar]; {INIT} NEXT {EXPECT} {SEND} {}",
        WAIT.replace("again", "more")
    );
    clean(&with(SUM, &again.replace("NEXT", &format!("{FENCE} {RELAXED}"))));
    says(FaultKind::Race, &with(SUM, &again.replace("NEXT", RELAXED)), unknown);
    says(FaultKind::Race, &with(SUM, &again.replace("NEXT", &format!("{FENCE} bar.sync 0;"))), unknown);
}

#[test]
fn arrivals_tell_what_was_done_before() {
    // All threads arrive, and read words that others have written.
    let body = |before: &str, after: &str, wait: &str| {
        format!(
            "@%p1 mbarrier.init.shared.b64 [bar], 64; bar.sync 0; mad.lo.u32 %r9, %r1, 4, %r2; xor.b32 %r10, %r1, 33; mad.lo.u32 %r10, %r10, 4, %r2;
st.shared.u32 [%r9], 0; bar.sync 0; {before} mbarrier.arrive.shared.b64 _, [bar]; {after} {wait} ld.shared.u32 %r20, [%r10]; st.global.u32 [%rd2], %r20;"
        )
    };
    let write = "st.shared.u32 [%r9], %r1;";
    let found = alone(&body(write, "", WAIT));
    (0..).zip(&found).for_each(|(i, &found)| assert_eq!(found, i ^ 33));
    let default = WAIT.replace(".acquire.cluster", "");
    assert_eq!(alone(&body(write, "", &default))[0], 33);
    fault_of(&text(1, &body(write, "", "")), blocks(1, 64), &[words(&[0; 64])], FaultKind::Race);
    alone_says(FaultKind::Race, &body("", write, WAIT), "nothing orders the two");
    // Readers arrive, and a waiting thread writes the place afterwards.
    let read = "setp.eq.u32 %p5, %r1, 5; ld.shared.u32 %r21, [%r2];";
    let rewrite = "@%p5 st.shared.u32 [%r2], 1;";
    let readers = |wait: &str| body(read, "", &format!("{wait} {rewrite} bar.sync 0;"));
    alone(&readers(WAIT));
    alone_says(FaultKind::Race, &readers(""), "nothing orders the two");
    // The phase before the first counts as complete, and orders nothing.
    let before = WAIT.replace(", 0;", ", 1;");
    alone_says(FaultKind::Race, &body(write, "", &before), "nothing orders the two");
}

#[test]
fn the_first_wait_for_a_phase_says_no() {
    // The rule applies to every new mbarrier, even in the place of an old one.
    let look = "mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @%p3 trap;";
    let init = "mbarrier.init.shared.b64 [bar], 1;";
    alone(&format!("@!%p1 exit; {init} {look} mbarrier.inval.shared.b64 [bar]; {init} {look}"));
    // The rule applies to every block, even after another one on its core. The last blocks do not ask again.
    let some = format!("{} on:", WAIT.replace("@!%p3", "@%p3 bra on; setp.lt.u32 %p6, %r5, 448; @%p6"));
    fault_of(&text(2, &with(WAIT, &some)), blocks(512, 32), &[words(&vec![0; 512 * 32])], FaultKind::Race);
}

#[test]
fn each_mbarrier_tells_of_its_own() {
    // Two words, two mbarriers, and a wait for one of them.
    let send = |to: u32, bar: &str| {
        format!(
            "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [{bar}], 4; @%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [buffer+{to}], %r1, [{bar}];"
        )
    };
    let body = |from: u32| {
        format!(
            ".shared .align 8 .b64 other; {INIT} @%p1 mbarrier.init.shared.b64 [other], 1; bar.sync 0; {} {} {WAIT} ld.shared.u32 %r20, [buffer+{from}]; {} st.global.u32 [%rd2], %r20;",
            send(0, "bar"),
            send(4, "other"),
            WAIT.replace("again", "more").replace("[bar]", "[other]")
        )
    };
    assert_eq!(alone(&body(0)), [0; 64]);
    alone_says(FaultKind::Race, &body(4), "of the mbarrier at 0x108, that it is of");
}

#[test]
fn lanes_that_end_while_others_wait_are_not_missed_elsewhere() {
    // The ended lanes were at no barrier of the block, to which the other lanes come next.
    let warp = |body: &str| {
        let found = words_of(&text(1, body), blocks(1, 32), &[words(&[9; 32])]);
        assert!((0..).zip(&found).all(|(i, &found)| found == if i == 31 { 9 } else { i }), "{found:?}");
    };
    let start = format!("{INIT} bar.warp.sync -1; setp.eq.u32 %p5, %r1, 31; setp.ge.u32 %p6, %r1, 8;");
    warp(&format!(
        "{start} @%p5 bra gone; @%p6 bra wait; bra arrive; wait: {WAIT} bra end; gone: exit; arrive: @%p1 mbarrier.arrive.shared.b64 _, [bar]; end: bar.sync 0; st.global.u32 [%rd2], %r1;"
    ));
    // The same is true after a wait at the cluster's barrier.
    warp(&format!(
        "{start} @%p5 bra gone; barrier.cluster.arrive; @%p6 bra wait; barrier.cluster.wait; @%p1 mbarrier.arrive.shared.b64 _, [bar]; bra end; wait: {WAIT} barrier.cluster.wait; end: bar.sync 0; st.global.u32 [%rd2], %r1; bra done; gone: exit; done:"
    ));
}

#[test]
fn lanes_wait_by_themselves() {
    // Odd lanes wait for even lanes of their warp, which arrive later or in the other arm. Some lanes end
    // meanwhile.
    let odd = "and.b32 %r20, %r1, 1; setp.eq.u32 %p5, %r20, 1;";
    let arms = format!(
        "{INIT} bar.sync 0; {odd} @!%p5 bra even; {WAIT} bra end; even: @%p1 mbarrier.arrive.shared.b64 _, [bar]; end: bar.sync 0; st.global.u32 [%rd2], %r1;"
    );
    assert_eq!(alone(&arms)[63], 63);
    let ending = "@%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0; and.b32 %r20, %r1, 3; setp.eq.u32 %p5, %r20, 3; setp.eq.u32 %p6, %r20, 2;
@%p5 bra wait; @%p6 exit; @%p1 mbarrier.arrive.shared.b64 _, [bar]; bra end; wait: WAIT end: barrier.sync 1; st.global.u32 [%rd2], %r1;".replace("WAIT", WAIT);
    alone_says(FaultKind::Barrier, &ending, "has ended without it");
    let later = format!(
        "{INIT} bar.sync 0; setp.eq.u32 %p5, %r1, 7; @%p5 bra wait; setp.eq.u32 %p6, %r1, 9; @%p6 exit; @%p1 mbarrier.arrive.shared.b64 _, [bar]; bra end; wait: {WAIT} end: bar.warp.sync 0xfffffdff; st.global.u32 [%rd2], %r1;"
    );
    assert_eq!(alone(&later.replace("bar.warp.sync 0xfffffdff;", ""))[7], 7);
    // A predicated test, where the other lanes keep their predicate.
    let guarded = format!(
        "{INIT} bar.sync 0; {odd} setp.eq.u32 %p3, %r1, %r1; @%p1 mbarrier.arrive.shared.b64 _, [bar]; again: @%p5 mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra again; st.global.u32 [%rd2], %r1;"
    );
    assert_eq!(alone(&guarded)[63], 63);
    // Two mbarriers, each completed in its own iteration.
    let two = format!(
        ".shared .align 8 .b64 other; {INIT} @%p1 mbarrier.init.shared.b64 [other], 1; bar.sync 0; @!%p1 bra wait; mbarrier.arrive.shared.b64 _, [other]; mbarrier.arrive.shared.b64 _, [bar];
wait: mov.u32 %r20, other; selp.b32 %r20, %r20, %r3, %p1; {} st.global.u32 [%rd2], %r1;",
        WAIT.replace("[bar]", "[%r20]")
    );
    assert_eq!(alone(&two)[63], 63);
}
