//! Fences with atomics or flags, barriers of some threads, and exchanges of lanes at different places order
//! accesses of threads. Nothing else does.

use crate::harness::{self, assemble, blocks, fault_of, kernel, run, threads, warp, words, words_of};
use cuda_sim::exec::{Fault, FaultKind};

const REGISTERS: &str = ".reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .pred %p<10>;
.shared .align 16 .b8 buffer[256];
ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [flag]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0;
mad.wide.u32 %rd3, %r1, 4, %rd1; mov.u32 %r3, buffer; mad.lo.u32 %r4, %r1, 4, %r3;
";

fn text(body: &str) -> String {
    kernel(&["u64 out", "u64 flag"], &format!("{REGISTERS}{body}"))
}

const ZEROS: [u32; 64] = [0; 64];

/// Returns two blocks of one thread each. The second waits for the first's flag, with code before and after.
fn handed(first: &str, second: &str) -> String {
    text(&format!("@%p1 bra other; {first} bra end; other: {second} end:"))
}

/// Number of launches of each test, because blocks interleave differently in each.
const TRIES: usize = 4;

fn tries(body: &str, grid: u32, block: u32) -> Vec<Option<Fault>> {
    assemble(body);
    // A block may wait for one that the scheduler has suspended.
    let once = || run(body, blocks(grid, block), &[words(&ZEROS), words(&ZEROS)], 1 << 23).err();
    std::iter::repeat_with(once).take(TRIES).collect()
}

fn clean_in(body: &str, grid: u32, block: u32) {
    for found in tries(body, grid, block) {
        assert!(found.is_none(), "{found:?}\n{body}");
    }
}

fn race_in(body: &str, grid: u32, block: u32) {
    for found in tries(body, grid, block) {
        assert_eq!(found.as_ref().map(|fault| fault.kind), Some(FaultKind::Race), "{found:?}\n{body}");
    }
}

#[test]
fn a_flag_orders_with_a_fence_on_both_sides() {
    const WRITE: &str = "st.global.u32 [%rd1], 7;";
    const SET: &str = "st.relaxed.gpu.global.u32 [%rd2], 1;";
    const WAIT: &str =
        "again: ld.relaxed.gpu.global.u32 %r5, [%rd2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra again;";
    const READ: &str = "ld.global.u32 %r6, [%rd1];";
    const FENCE: &str = "membar.gl;";
    let first = |parts: &[&str]| parts.join(" ");
    clean_in(&handed(&first(&[WRITE, FENCE, SET]), &first(&[WAIT, FENCE, READ])), 2, 1);
    // The first block's read is ordered before the second's write as well.
    clean_in(&handed(&first(&[READ, FENCE, SET]), &first(&[WAIT, FENCE, WRITE])), 2, 1);
    for (releases, acquires) in [
        (&[WRITE, SET][..], &[WAIT, FENCE, READ][..]),
        (&[WRITE, FENCE, SET], &[WAIT, READ]),
        // Both fences, in the wrong places.
        (&[WRITE, SET, FENCE], &[WAIT, FENCE, READ]),
        (&[WRITE, FENCE, SET], &[FENCE, WAIT, READ]),
        (&[FENCE, WRITE, SET], &[WAIT, FENCE, READ]),
        (&[WRITE, FENCE, SET], &[FENCE, READ]),
        // Accesses after the release.
        (&[FENCE, SET, WRITE, FENCE], &[WAIT, FENCE, READ]),
        (&[WRITE, FENCE, SET, WRITE], &[WAIT, FENCE, READ]),
        // Fences of block scope.
        (&[WRITE, "membar.cta;", SET], &[WAIT, FENCE, READ]),
        (&[WRITE, FENCE, SET], &[WAIT, "membar.cta;", READ]),
    ] {
        race_in(&handed(&first(releases), &first(acquires)), 2, 1);
    }
    // Half a fence in the access itself.
    let release = "st.release.gpu.global.u32 [%rd2], 1;";
    let acquire = WAIT.replace("ld.relaxed", "ld.acquire");
    clean_in(&handed(&first(&[WRITE, release]), &first(&[&acquire, READ])), 2, 1);
    clean_in(&handed(&first(&[WRITE, FENCE, SET]), &first(&[&acquire, READ])), 2, 1);
    race_in(&handed(&first(&[WRITE, SET]), &first(&[&acquire, READ])), 2, 1);
    race_in(&handed(&first(&[WRITE, release]), &first(&[WAIT, READ])), 2, 1);
    let of_block = release.replace("gpu", "cta");
    race_in(&handed(&first(&[WRITE, &of_block]), &first(&[&acquire, READ])), 2, 1);
    // Accesses after a release are not released. The warps of one block run one after another.
    let in_turn = |first: &[&str]| {
        let first = first.join(" ");
        text(&format!(
            "setp.eq.u32 %p4, %r1, 32; @%p4 bra other; setp.ne.u32 %p5, %r1, 0; @%p5 bra end; {first} bra end; other: {acquire} {READ} end:"
        ))
    };
    clean_in(&in_turn(&[WRITE, release]), 1, 33);
    race_in(&in_turn(&[release, WRITE]), 1, 33);
    // An old value of the flag orders nothing.
    let look = "ld.relaxed.gpu.global.u32 %r5, [%rd2+4];";
    race_in(&handed(&first(&[WRITE, FENCE, SET]), &first(&[look, FENCE, READ])), 2, 1);
}

#[test]
fn what_a_barrier_gathers_is_released_and_handed_on() {
    // All threads store, and the first releases after a barrier. The other block's first thread acquires
    // before one.
    let body = |fence: &str| {
        handed(
            &format!("st.global.u32 [%rd3], %r1; bar.sync 0; setp.eq.u32 %p2, %r1, 0; @%p2 {fence} @%p2 st.volatile.global.u32 [%rd2], 1;"),
            &format!("setp.ne.u32 %p2, %r1, 0; @%p2 bra meet; again: ld.volatile.global.u32 %r5, [%rd2]; setp.eq.u32 %p3, %r5, 0; @%p3 bra again; {fence}
meet: bar.sync 0; xor.b32 %r6, %r1, 37; mad.wide.u32 %rd4, %r6, 4, %rd1; ld.global.u32 %r7, [%rd4];"),
        )
    };
    clean_in(&body("membar.gl;"), 2, 64);
    race_in(&body("membar.cta;"), 2, 64);
    // The order passes from the first block to the third through the second, which accesses nothing else.
    let chain = text(
        "setp.eq.u32 %p2, %r2, 0; @%p2 st.global.u32 [%rd1], 5; @%p2 bra set;
again: ld.volatile.global.u32 %r5, [%rd2]; setp.ne.u32 %p3, %r5, %r2; @%p3 bra again; FENCE
setp.eq.u32 %p2, %r2, 2; @%p2 ld.global.u32 %r6, [%rd1];
set: membar.gl; add.u32 %r7, %r2, 1; st.volatile.global.u32 [%rd2], %r7;",
    );
    clean_in(&chain.replace("FENCE", "membar.gl;"), 3, 1);
    race_in(&chain.replace("FENCE", ""), 3, 1);
}

#[test]
fn atomics_hand_on_what_those_before_released() {
    // Every block stores its part, and the last one reads all.
    let last = text("mad.wide.u32 %rd4, %r2, 4, %rd1; st.global.u32 [%rd4], %r2; RELEASE atom.global.add.u32 %r5, [%rd2], 1;
setp.ne.u32 %p2, %r5, 7; @%p2 ret; ACQUIRE mov.u32 %r6, 0;
again: ld.global.u32 %r7, [%rd1]; add.u64 %rd1, %rd1, 4; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 8; @%p3 bra again;");
    let with = |release: &str, acquire: &str| last.replace("RELEASE", release).replace("ACQUIRE", acquire);
    clean_in(&with("membar.gl;", "membar.gl;"), 8, 1);
    race_in(&with("", "membar.gl;"), 8, 1);
    race_in(&with("membar.gl;", ""), 8, 1);
    // `red` returns no value, so it acquires nothing.
    let red = handed(
        "st.global.u32 [%rd1], 1; membar.gl; st.volatile.global.u32 [%rd2], 1;",
        "again: ld.volatile.global.u32 %r5, [%rd2+4]; red.global.add.u32 [%rd2], 1; membar.gl; ld.global.u32 %r6, [%rd1];",
    );
    race_in(&red, 2, 1);
}

#[test]
fn locks_of_fences_and_exchanges_order() {
    // Every thread of every block adds one to a plain word, one at a time.
    let lock = |take: &str, give: &str| {
        text(&format!(
            "again: atom.{take} %r5, [PLACE], 0, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra again; FENCE
ld.global.u32 %r6, [%rd1]; add.u32 %r6, %r6, 1; st.global.u32 [%rd1], %r6;
FENCE {give}"
        ))
    };
    let exchanged = lock("global.cas.b32", "atom.global.exch.b32 %r7, [%rd2], 0;").replace("PLACE", "%rd2");
    let swapped = lock("global.cas.b32", "atom.global.cas.b32 %r7, [%rd2], 1, 0;").replace("PLACE", "%rd2");
    let stored = lock("global.cas.b32", "st.volatile.global.u32 [%rd2], 0;").replace("PLACE", "%rd2");
    for text in [&exchanged, &swapped, &stored] {
        for (grid, block) in [(1, 3), (3, 1), (2, 2)] {
            let text = text.replace("FENCE", "membar.gl;");
            let found = words_of(&text, blocks(grid, block), &[words(&ZEROS), words(&ZEROS)]);
            assert_eq!(found[0], grid * block);
            race_in(&text.replacen("membar.gl;", "", 1), grid, block);
        }
    }
    // A lock in shared memory, with fences of block scope, for a thread of each of three warps.
    let shared = "setp.eq.u32 %p3, %r1, 0; @%p3 st.shared.u32 [%r3], 0; @%p3 st.shared.u32 [%r3+4], 0; bar.sync 0; and.b32 %r8, %r1, 31; setp.ne.u32 %p4, %r8, 0; @%p4 bra done;
again: atom.shared.cas.b32 %r5, [%r3], 0, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra again; membar.cta;
ld.shared.u32 %r6, [%r3+4]; add.u32 %r6, %r6, 1; st.shared.u32 [%r3+4], %r6;
membar.cta; atom.shared.exch.b32 %r7, [%r3], 0; done: bar.sync 0; @%p3 ld.shared.u32 %r6, [%r3+4]; @%p3 st.global.u32 [%rd1], %r6;";
    let shared = text(shared).replace("mad.lo.u32 %r4, %r1, 4, %r3;", "");
    let found = words_of(&shared, threads(96), &[words(&ZEROS), words(&ZEROS)]);
    assert_eq!(found[0], 3);
    race_in(&shared.replacen("membar.cta;", "", 1), 1, 96);
    // A failed lock hands nothing on.
    let failed = handed(
        "st.global.u32 [%rd1], 1; membar.gl; atom.global.cas.b32 %r5, [%rd2], 9, 1; st.volatile.global.u32 [%rd2+4], 1;",
        "again: ld.volatile.global.u32 %r6, [%rd2+8]; atom.global.cas.b32 %r5, [%rd2], 9, 1; membar.gl; ld.global.u32 %r6, [%rd1];",
    );
    race_in(&failed, 2, 1);
}

#[test]
fn a_grid_may_meet_at_a_counter() {
    // One thread writes a word that all blocks have read, after all have met.
    let body = "ld.global.u32 %r5, [%rd1]; bar.sync 0; setp.ne.u32 %p2, %r1, 0; @%p2 bra meet;
membar.gl; atom.global.add.u32 %r6, [%rd2], 1; again: ld.volatile.global.u32 %r7, [%rd2]; setp.lt.u32 %p3, %r7, 2; @%p3 bra again; membar.gl;
meet: bar.sync 0; @!%p1 setp.eq.u32 %p4, %r1, 5; @!%p1 bra write; bra end; write: @%p4 st.global.u32 [%rd1], 1; end:";
    clean_in(&text(body), 2, 32);
    race_in(&text(&body.replace("again: ld", "ld").replace("@%p3 bra again; membar.gl;", "")), 2, 32);
}

#[test]
fn some_lanes_of_a_warp_order_no_others() {
    // Lanes of a group exchange words through shared memory, and each reads its neighbour's.
    let body = |mask: &str, neighbour: u32| {
        format!(
            "st.shared.u32 [%r4], 0; bar.sync 0; st.shared.u32 [%r4], %r1; {mask} xor.b32 %r5, %r1, {neighbour}; mad.lo.u32 %r5, %r5, 4, %r3; ld.shared.u32 %r6, [%r5];"
        )
    };
    let eights = "and.b32 %r7, %r1, 24; shl.b32 %r8, 255, %r7; bar.warp.sync %r8;";
    for neighbour in [1, 3, 7] {
        clean_in(&text(&body(eights, neighbour)), 1, 32);
    }
    for neighbour in [8, 9, 16] {
        race_in(&text(&body(eights, neighbour)), 1, 32);
    }
    let odd = "and.b32 %r7, %r1, 1; shl.b32 %r8, 0x55555555, %r7; bar.warp.sync %r8;";
    clean_in(&text(&body(odd, 2)), 1, 32);
    race_in(&text(&body(odd, 1)), 1, 32);
    // Overlapping groups hand on their order.
    let twice = "and.b32 %r7, %r1, 24; shl.b32 %r8, 255, %r7; bar.warp.sync %r8; and.b32 %r7, %r1, 16; shl.b32 %r8, 65535, %r7; bar.warp.sync %r8;";
    clean_in(&text(&body(twice, 12)), 1, 32);
    race_in(&text(&body(twice, 16)), 1, 32);
    clean_in(&text(&body(&format!("{eights} bar.warp.sync -1;"), 31)), 1, 32);
    // A group's readers, then a writer of the same group, and of another.
    let reads = |writer: u32| {
        format!(
            "st.shared.u32 [%r4], 0; bar.sync 0; and.b32 %r7, %r1, 24; mad.lo.u32 %r5, %r7, 4, %r3; ld.shared.u32 %r6, [%r5]; shl.b32 %r8, 255, %r7; bar.warp.sync %r8; setp.eq.u32 %p2, %r1, {writer}; @%p2 st.shared.u32 [%r3+32], 1;"
        )
    };
    clean_in(&text(&reads(13)), 1, 32);
    race_in(&text(&reads(16)), 1, 32);
    // A shuffle orders no memory.
    race_in(&text(&body("shfl.sync.bfly.b32 %r7, %r1, 1, 31, -1;", 1)), 1, 32);
}

#[test]
fn a_barrier_of_some_warps_orders_no_others() {
    let body = |other: u32| {
        text(&format!(
            "st.shared.u32 [%r4], 0; bar.sync 0; st.shared.u32 [%r4], %r1; shr.u32 %r5, %r1, 6; add.u32 %r5, %r5, 1; bar.sync %r5, 64;
xor.b32 %r6, %r1, {other}; mad.lo.u32 %r6, %r6, 4, %r3; ld.shared.u32 %r7, [%r6];"
        ))
        .replace("buffer[256]", "buffer[512]")
        .replace("mad.wide.u32 %rd3, %r1, 4, %rd1;", "mov.u64 %rd3, %rd1;")
    };
    clean_in(&body(32), 1, 128);
    race_in(&body(64), 1, 128);
    // Threads that only arrive are not ordered after those that wait.
    let arrive = |rest: &str| {
        text(&format!(
            "st.shared.u32 [%r4], 0; bar.sync 0; setp.lt.u32 %p2, %r1, 32; xor.b32 %r6, %r1, 32; mad.lo.u32 %r6, %r6, 4, %r3; @%p2 bra wait; st.shared.u32 [%r4], 1; bar.arrive 1, 64; {rest} bra end; wait: bar.sync 1, 64; ld.shared.u32 %r7, [%r6]; end:"
        ))
    };
    clean_in(&arrive(""), 1, 64);
    race_in(&arrive("st.shared.u32 [%r4], 2;"), 1, 64);
}

#[test]
fn a_thread_that_has_ended_takes_part_in_no_barrier() {
    // The second warp, or a lane, stores and ends. The others meet and read the stored words.
    let warp = "setp.lt.u32 %p2, %r1, 32; xor.b32 %r5, %r1, 32; mad.lo.u32 %r5, %r5, 4, %r3; mad.wide.u32 %rd4, %r5, 1, %rd1; @%p2 bra meet;";
    let ended = |store: &str, load: &str| text(&format!("{warp} {store} exit; meet: bar.sync 0; {load}"));
    const LOAD: &str = "ld.shared.u32 %r6, [%r5];";
    race_in(&ended("st.shared.u32 [%r4], %r1;", LOAD), 1, 64);
    race_in(
        &ended("red.shared.add.u32 [%r4], 1;", LOAD).replacen(
            "setp.lt",
            "st.shared.u32 [%r4], 0; setp.lt",
            1,
        ),
        1,
        64,
    );
    race_in(&ended("ld.global.u32 %r6, [%rd1];", "st.global.u32 [%rd3], 1;"), 1, 33);
    race_in(&ended("st.global.u32 [%rd1], 1;", "ld.global.u32 %r6, [%rd1];"), 1, 33);
    clean_in(
        &ended("ld.global.u32 %r6, [%rd1];", "ld.global.u32 %r6, [%rd1]; st.global.u32 [%rd3+4], 1;"),
        1,
        33,
    );
    // A barrier orders the accesses before it, even of a thread that ends later.
    clean_in(&text(&format!("st.shared.u32 [%r4], %r1; bar.sync 0; {warp} exit; meet: {LOAD}")), 1, 64);
    let lane = |before: &str, own: &str| {
        text(&format!(
            "{before} setp.ne.u32 %p2, %r1, 5; @%p2 bra meet; {own} exit; meet: bar.warp.sync -1; ld.shared.u32 %r6, [%r3+20];"
        ))
    };
    race_in(&lane("", "st.shared.u32 [%r4], %r1;"), 1, 32);
    clean_in(&lane("st.shared.u32 [%r4], %r1; bar.warp.sync -1;", ""), 1, 32);
    // The warp's barrier orders the lane's accesses for the rest of the warp, which hands the order on.
    let handed_on = "st.shared.u32 [%r4], %r1; bar.warp.sync -1; setp.eq.u32 %p2, %r1, 5; @%p2 exit; bar.sync 0; ld.shared.u32 %r6, [%r3+20];";
    clean_in(&text(handed_on), 1, 64);
}

#[test]
fn strong_accesses_of_other_lengths_are_not_alike() {
    let both = |first: &str, between: &str, second: &str| {
        text(&format!(
            "mov.u64 %rd4, 1; setp.eq.u32 %p2, %r1, 0; setp.eq.u32 %p3, %r1, 32; @%p2 {first}; {between} @%p3 {second};"
        ))
    };
    const LONG: &str = "red.global.add.u64 [%rd1], %rd4";
    for (first, second) in [
        (LONG, "red.global.add.u32 [%rd1+4], 1"),
        ("red.global.add.u32 [%rd1], 1", LONG),
        (LONG, "ld.relaxed.gpu.global.u32 %r5, [%rd1]"),
        ("ld.relaxed.gpu.global.u8 %r5, [%rd1+3]", "red.global.add.u32 [%rd1], 1"),
        ("st.volatile.global.u16 [%rd1+2], %r1", "ld.volatile.global.u8 %r5, [%rd1+2]"),
        ("st.volatile.global.v2.u64 [%rd1], {%rd4, %rd4}", "red.global.add.u32 [%rd1+8], 1"),
        ("red.global.add.noftz.f16x2 [%rd1], %r1", "red.global.add.u32 [%rd1], 1"),
    ] {
        race_in(&both(first, "", second), 1, 64);
        clean_in(&both(first, "bar.sync 0;", second), 1, 64);
    }
    for (first, second) in [
        (LONG, "red.global.add.u64 [%rd1], %rd4"),
        (LONG, "red.global.add.u32 [%rd1+8], 1"),
        ("ld.relaxed.gpu.global.u64 %rd5, [%rd1]", "ld.relaxed.gpu.global.u32 %r5, [%rd1]"),
        // Elements of a vector are separate accesses.
        ("st.volatile.global.v4.u32 [%rd1], {%r1, %r1, %r1, %r1}", "red.global.add.u32 [%rd1+8], 1"),
        (
            "st.volatile.global.v4.u32 [%rd1], {%r1, %r1, %r1, %r1}",
            "ld.volatile.global.v2.u32 {%r5, %r6}, [%rd1+8]",
        ),
        ("red.global.add.noftz.f16x2 [%rd1], %r1", "ld.relaxed.gpu.global.u16 %r5, [%rd1+2]"),
    ] {
        clean_in(&both(first, "", second), 1, 64);
    }
}

#[test]
fn lanes_exchange_from_both_arms_of_a_branch() {
    let arms = |first: &str, second: &str| {
        warp(&format!(
            "mov.u32 %r9, 7; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra odd; {first} bra end; odd: {second} end:"
        ))
    };
    let each = |f: fn(u32) -> u32| (0..32).map(f).collect::<Vec<u32>>();
    // Shuffles among a part of the warp, and among all lanes from different registers.
    let own = arms(
        "shfl.sync.bfly.b32 %r0, %r1, 2, 31, 0x55555555;",
        "add.u32 %r3, %r1, 100; shfl.sync.bfly.b32 %r0, %r3, 4, 31, 0xaaaaaaaa;",
    );
    assert_eq!(own, each(|lane| if lane % 2 == 0 { lane ^ 2 } else { 100 + (lane ^ 4) }));
    let all = arms(
        "mov.u32 %r5, 1; shfl.sync.bfly.b32 %r0, %r1, %r5, 31, -1;",
        "add.u32 %r3, %r1, 100; mov.u32 %r4, 31; shfl.sync.bfly.b32 %r0, %r3, 1, %r4, -1;",
    );
    assert_eq!(all, each(|lane| if lane % 2 == 0 { 100 + (lane ^ 1) } else { lane ^ 1 }));
    let votes = arms(
        "setp.lt.u32 %p2, %r1, 8; vote.sync.ballot.b32 %r0, %p2, -1;",
        "setp.lt.u32 %p3, %r1, 8; vote.sync.ballot.b32 %r3, !%p3, -1; mov.u32 %r0, %r3;",
    );
    assert_eq!(votes, each(|_| 0x55 | 0xaaaa_aa00));
    let matches =
        arms("match.any.sync.b32 %r0, %r9, -1;", "shr.u32 %r3, %r1, 2; match.any.sync.b32 %r0, %r3, -1;");
    assert_eq!(
        matches,
        each(|lane| match (lane % 2, lane / 4) {
            (0, _) | (_, 7) => 0x5555_5555 | 0xa000_0000,
            (_, four) => 0xa << (4 * four),
        })
    );
    let sums = arms("redux.sync.add.u32 %r0, %r1, -1;", "redux.sync.add.u32 %r0, %r9, -1;");
    assert_eq!(sums, each(|_| (0..32).step_by(2).sum::<u32>() + 16 * 7));
    // The two arms meet, so stores of one arm are ordered before reads of the other.
    let meet = "st.shared.u32 [%r4], 0; bar.sync 0; and.b32 %r5, %r1, 1; setp.eq.u32 %p2, %r5, 1; xor.b32 %r6, %r1, 1; mad.lo.u32 %r6, %r6, 4, %r3; st.shared.u32 [%r4], %r1;
@%p2 bra odd; bar.warp.sync -1; ld.shared.u32 %r7, [%r6]; bra end; odd: bar.warp.sync MASK; ld.shared.u32 %r7, [%r6]; end:";
    clean_in(&text(&meet.replace("MASK", "-1")), 1, 32);
    // Different instructions do not meet.
    for (a, b) in [
        ("shfl.sync.bfly.b32 %r0, %r1, 1, 31, -1;", "shfl.sync.down.b32 %r0, %r1, 1, 31, -1;"),
        ("vote.sync.any.pred %p2, %p1, -1;", "vote.sync.all.pred %p2, %p1, -1;"),
        ("redux.sync.add.u32 %r0, %r1, -1;", "redux.sync.add.s32 %r0, %r1, -1;"),
        ("bar.warp.sync -1;", "bar.warp.sync 0x7fffffff;"),
    ] {
        let body = format!(
            "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra odd; {a} bra end; odd: {b} end: mov.u32 %r0, 1;"
        );
        fault_of(&harness::warp_text(&body), threads(32), &[words(&[0; 32])], FaultKind::Mask);
    }
}

#[test]
fn votes_do_without_those_that_have_exited() {
    let exit =
        "setp.eq.u32 %p1, %r1, 5; mov.u32 %r0, 9; @%p1 exit; and.b32 %r2, %r1, 1; setp.eq.u32 %p2, %r2, 1;";
    let found = |rest: &str| {
        let mut found = warp(&format!("{exit} {rest}"));
        assert_eq!(found.remove(5), 0xdead_beef, "it stored nothing");
        found
    };
    let odd = 0xaaaa_aaaa_u32 & !(1 << 5);
    assert_eq!(found("vote.sync.ballot.b32 %r0, %p2, -1;"), [odd; 31]);
    assert_eq!(found("vote.sync.all.pred %p3, !%p1, -1; selp.u32 %r0, 1, 0, %p3;"), [1; 31]);
    assert_eq!(found("redux.sync.add.u32 %r0, %r2, -1;"), [15; 31]);
    assert_eq!(found("mov.u32 %r2, 3; match.any.sync.b32 %r0, %r2, -1;"), [!(1 << 5); 31]);
    // A shuffle cannot read exited lanes, and a lane that never existed is no exited one.
    let shuffle = format!("{exit} shfl.sync.idx.b32 %r0, %r1, 0, 31, -1;");
    fault_of(&harness::warp_text(&shuffle), threads(32), &[words(&[0; 32])], FaultKind::Mask);
    let vote = "setp.eq.u32 %p1, %r1, 5; vote.sync.any.pred %p2, %p1, -1; mov.u32 %r0, 1;";
    fault_of(&harness::warp_text(vote), threads(31), &[words(&[0; 32])], FaultKind::Mask);
}

#[test]
fn each_of_several_readers_may_be_ordered_before_a_writer() {
    // Two warps read a word and arrive, and the third writes it afterwards. A reader that does not arrive
    // races.
    let arrive = |other: &str, count: u32| {
        text(&format!(
            "setp.eq.u32 %p9, %r1, 0; @%p9 st.shared.u32 [%r3], 0; bar.sync 0; shr.u32 %r5, %r1, 5; setp.eq.u32 %p2, %r5, 0; setp.eq.u32 %p3, %r5, 1; setp.eq.u32 %p4, %r5, 2; setp.eq.u32 %p5, %r5, 3;
@%p2 bra first; @%p3 bra second; @%p4 bra third; {other} bra end;
first: ld.shared.u32 %r6, [%r3]; bar.arrive 1, {count}; bra end;
second: ld.shared.u32 %r6, [%r3]; bar.arrive 1, {count}; bra end;
third: bar.sync 1, {count}; setp.eq.u32 %p6, %r1, 64; @%p6 st.shared.u32 [%r3], 1; end:"
        ))
        .replace("mad.lo.u32 %r4, %r1, 4, %r3;", "")
        .replace("mad.wide.u32 %rd3, %r1, 4, %rd1;", "")
    };
    clean_in(&arrive("", 96), 1, 128);
    clean_in(&arrive("ld.shared.u32 %r6, [%r3]; bar.arrive 1, 128;", 128), 1, 128);
    race_in(&arrive("ld.shared.u32 %r6, [%r3];", 96), 1, 128);
    // The same applies to atomics before a plain write.
    clean_in(
        &arrive("", 96).replace("ld.shared.u32 %r6, [%r3]", "atom.shared.add.u32 %r6, [%r3], 1"),
        1,
        128,
    );
    // Lanes far apart in a warp read, and meet the writing lane. Lanes in between do not.
    let lanes = |mask: &str| {
        text(&format!(
            "setp.eq.u32 %p9, %r1, 0; @%p9 st.shared.u32 [%r3], 0; bar.sync 0; and.b32 %r5, %r1, 7; setp.ne.u32 %p2, %r5, 2; @%p2 bra end; ld.shared.u32 %r6, [%r3];
bar.warp.sync {mask}; setp.eq.u32 %p3, %r1, 18; @%p3 st.shared.u32 [%r3], 1; end:"
        ))
    };
    clean_in(&lanes("0x04040404"), 1, 32);
    let others = "setp.gt.u32 %p4, %r1, 15; selp.u32 %r7, 0x04040000, 0x00000404, %p4; bar.warp.sync %r7;";
    race_in(&lanes("0").replace("bar.warp.sync 0;", others), 1, 32);
}

#[test]
fn each_of_several_blocks_that_read_may_be_ordered_before_a_writer() {
    // Two of many blocks read and count, and a third waits for both and writes. The others begin and do
    // nothing.
    let body = |fence: &str, wanted: u32| {
        text(&format!(
            "setp.lt.u32 %p2, %r2, 2; @%p2 bra read; setp.ne.u32 %p3, %r2, 5; @%p3 bra end;
again: ld.relaxed.gpu.global.u32 %r5, [%rd2]; setp.lt.u32 %p4, %r5, {wanted}; @%p4 bra again; membar.gl; setp.eq.u32 %p5, %r1, 0; @%p5 st.global.u32 [%rd1], 1; bra end;
read: ld.global.u32 %r6, [%rd1]; bar.sync 0; setp.ne.u32 %p6, %r1, 0; @%p6 bra end; {fence} red.relaxed.gpu.global.add.u32 [%rd2], 1; end:"
        ))
    };
    for block in [1, 33, 64] {
        clean_in(&body("membar.gl;", 2), 6, block);
        race_in(&body("", 2), 6, block);
    }
}

#[test]
fn a_writer_knows_of_every_block_that_read() {
    // More blocks read than the simulator records one by one. The last block writes after all have counted.
    let body = |fence: &str| {
        text(&format!(
            "setp.eq.u32 %p2, %r2, 79; @%p2 bra last; ld.global.u32 %r6, [%rd1]; setp.eq.u32 %p3, %r2, 0; {fence} red.relaxed.gpu.global.add.u32 [%rd2], 1; bra end;
last: ld.relaxed.gpu.global.u32 %r5, [%rd2]; setp.lt.u32 %p4, %r5, 79; @%p4 bra last; membar.gl; st.global.u32 [%rd1], 1; end:"
        ))
    };
    clean_in(&body("membar.gl;"), 80, 1);
    // The writer is ordered after the first reader alone.
    race_in(&body("@%p3 membar.gl;"), 80, 1);
}

#[test]
fn an_acquiring_read_is_no_fence_for_other_places() {
    // The flag is read relaxed, and then a word is acquired. Only an acquire of the flag itself orders.
    const WRITE: &str = "st.global.u32 [%rd1], 7; membar.gl; st.relaxed.gpu.global.u32 [%rd2], 1;";
    let wait = |place: u32| {
        format!(
            "again: ld.relaxed.gpu.global.u32 %r5, [%rd2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra again; ld.acquire.gpu.global.u32 %r7, [%rd2+{place}]; ld.global.u32 %r6, [%rd1];"
        )
    };
    clean_in(&handed(WRITE, &wait(0)), 2, 1);
    race_in(&handed(WRITE, &wait(4)), 2, 1);
    clean_in(&handed(WRITE, &wait(4).replace("ld.global.u32 %r6", "membar.gl; ld.global.u32 %r6")), 2, 1);
    // The same applies to releases: a flag that is set after the release of another word orders nothing.
    let set = |place: u32| {
        format!(
            "st.global.u32 [%rd1], 7; st.release.gpu.global.u32 [%rd2+{place}], 1; st.relaxed.gpu.global.u32 [%rd2], 1;"
        )
    };
    const READ: &str = "again: ld.acquire.gpu.global.u32 %r5, [%rd2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra again; ld.global.u32 %r6, [%rd1];";
    clean_in(&handed(&set(0), READ), 2, 1);
    race_in(&handed(&set(4), READ), 2, 1);
    // Atomics that acquire and release.
    let lock = |take: &str| {
        text(&format!(
            "again: {take} %r5, [%rd2], 0, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra again;
ld.global.u32 %r6, [%rd1]; add.u32 %r6, %r6, 1; st.global.u32 [%rd1], %r6; atom.release.gpu.global.exch.b32 %r7, [%rd2], 0;"
        ))
    };
    clean_in(&lock("atom.acquire.gpu.global.cas.b32"), 3, 1);
    race_in(&lock("atom.relaxed.gpu.global.cas.b32"), 3, 1);
}
