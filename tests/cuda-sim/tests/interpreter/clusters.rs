//! Blocks of a cluster access each other's shared memory and meet at a barrier. Violations of each rule are
//! faults.

use crate::harness::{LaunchConfig, blocks, fault_of, kernel, launch, words, words_of};
use cuda_sim::exec::{Fault, FaultKind};
use cuda_sim::ptx;

const REGISTERS: &str = ".reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .pred %p<10>;
.shared .align 16 .b8 buffer[256];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, buffer; mad.lo.u32 %r3, %r1, 4, %r2;
mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p1, %r4, 0; mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x;
mad.lo.u32 %r6, %r5, %r6, %r1; mad.wide.u32 %rd2, %r6, 4, %rd1;
";

/// Returns a kernel with clusters of `cluster` blocks. Each thread has its number in `%r1`, its word of
/// `buffer` in `%r3`, its block's rank in `%r4` and its word of the result in `%rd2`. `%p1` is true if the
/// rank is 0.
fn text(cluster: u32, body: &str) -> String {
    let text = kernel(&["u64 out"], &format!("{REGISTERS}{body}"));
    text.replacen(")\n{", &format!(")\n.reqnctapercluster {cluster}\n{{"), 1)
}

/// The aligned barrier of a cluster, with arrival and wait together.
const MEET: &str = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;";

/// Code that computes the address of the thread's word in the next block's buffer, in `%r7`.
const NEXT: &str = "add.u32 %r8, %r4, 1; mov.u32 %r9, %cluster_nctarank; rem.u32 %r8, %r8, %r9; mapa.shared::cluster.u32 %r7, %r3, %r8;";

/// Runs a body without a fault in two clusters of two blocks of 64 threads.
fn clean(body: &str) -> Vec<u32> {
    words_of(&text(2, body), blocks(4, 64), &[words(&[0; 256])])
}

/// Returns the fault of a body in a cluster of two blocks.
fn fault(kind: FaultKind, body: &str) -> Fault {
    fault_of(&text(2, body), blocks(2, 64), &[words(&[0; 128])], kind)
}

#[test]
fn blocks_write_their_sums_into_all_others() {
    // Each block adds its numbers. Its first threads store the sum and the rank into every block, and all
    // threads add them.
    for size in [1, 2, 4, 8] {
        let body = format!(
            ".shared .align 16 .b8 sums[64]; .shared .align 4 .b32 own;
setp.eq.u32 %p2, %r1, 0; @%p2 st.shared.u32 [own], 0; {MEET}
atom.shared.add.u32 %r8, [own], %r6; bar.sync 0;
mov.u32 %r10, sums; mad.lo.u32 %r10, %r4, 8, %r10;
setp.ge.u32 %p3, %r1, {size}; @%p3 bra told;
ld.shared.u32 %r8, [own]; mapa.shared::cluster.u32 %r11, %r10, %r1; st.shared::cluster.v2.u32 [%r11], {{%r8, %r4}};
told: {MEET}
mov.u32 %r12, 0; mov.u32 %r13, 0; mov.u32 %r10, sums;
again: ld.shared.v2.u32 {{%r14, %r15}}, [%r10]; add.u32 %r12, %r12, %r14; add.u32 %r12, %r12, %r15;
add.u32 %r10, %r10, 8; add.u32 %r13, %r13, 1; setp.lt.u32 %p2, %r13, {size}; @%p2 bra again;
st.global.u32 [%rd2], %r12;"
        );
        let found = words_of(&text(size, &body), blocks(16, 64), &[words(&[0; 1024])]);
        let threads = size * 64;
        for (i, &found) in (0..).zip(&found) {
            let first = i / threads * threads;
            let wanted: u32 = (first..first + threads).sum::<u32>() + (0..size).sum::<u32>();
            assert_eq!(found, wanted, "thread {i} of clusters of {size}");
        }
    }
}

#[test]
fn the_shared_memory_of_others_is_read_and_changed() {
    let next = |i: u32| i / 128 * 128 + (i + 64) % 128;
    let own = "add.u32 %r6, %r6, 1000; st.shared.u32 [%r3], %r6;";
    for read in [
        "ld.shared::cluster.u32 %r10, [%r7];",
        "cvt.u64.u32 %rd3, %r7; ld.shared::cluster.u32 %r10, [%rd3];",
        // Generic addresses.
        "cvt.u64.u32 %rd3, %r3; cvta.shared.u64 %rd3, %rd3; mapa.u64 %rd3, %rd3, %r8; ld.u32 %r10, [%rd3];",
        "cvt.u64.u32 %rd3, %r7; cvta.shared::cluster.u64 %rd3, %rd3; ld.u32 %r10, [%rd3];",
        // An address within a variable, and an address that is mapped to another block and back.
        "mapa.shared::cluster.u32 %r7, buffer+4, %r8; mad.lo.u32 %r7, %r1, 4, %r7; ld.shared::cluster.u32 %r10, [%r7+-4];",
        "mapa.shared::cluster.u32 %r7, %r7, %r4; mapa.shared::cluster.u32 %r7, %r7, %r8; ld.shared::cluster.u32 %r10, [%r7];",
        "atom.shared::cluster.exch.b32 %r10, [%r7], 5;",
    ] {
        let found = clean(&format!("{own} {NEXT} {MEET} {read} st.global.u32 [%rd2], %r10; {MEET}"));
        (0..).zip(&found).for_each(|(i, &found)| assert_eq!(found, 1000 + next(i), "{i}: {read}"));
    }
    // A block's own memory is part of the cluster's.
    for read in ["ld.shared::cluster.u32 %r10, [%r3];", "ld.shared::cta.u32 %r10, [%r3];"] {
        let found = clean(&format!("{own} {read} st.global.u32 [%rd2], %r10;"));
        assert!((1000..).zip(&found).all(|(wanted, &found)| wanted == found), "{read}");
    }
    let whole = "mapa.shared::cluster.u32 %r7, %r3, %r4; ld.shared::cluster.u32 %r10, [%r7]; st.global.u32 [%rd2], %r10;";
    assert_eq!(clean(&format!("{own} {whole}"))[200], 1200);
    let found = clean(&format!(
        "st.shared.u32 [%r3], 0; {NEXT} {MEET} red.shared::cluster.add.u32 [%r7], %r6; {MEET} ld.shared.u32 %r10, [%r3]; st.global.u32 [%rd2], %r10;"
    ));
    (0..).zip(&found).for_each(|(i, &found)| assert_eq!(found, next(i)));
    // The block of an address.
    let found = clean(&format!(
        "{NEXT} getctarank.shared::cluster.u32 %r10, %r7; cvt.u64.u32 %rd3, %r3; cvta.shared.u64 %rd3, %rd3; getctarank.u64 %r11, %rd3; mad.lo.u32 %r10, %r10, 10, %r11;
isspacep.shared::cta %p2, %rd3; @!%p2 trap; mapa.u64 %rd3, %rd3, %r8; isspacep.shared::cluster %p2, %rd3; @!%p2 trap; isspacep.shared %p2, %rd3; @%p2 trap; isspacep.global %p2, %rd3; @%p2 trap;
st.global.u32 [%rd2], %r10;"
    ));
    (0..).zip(&found).for_each(|(i, &found)| assert_eq!(found, if i / 64 % 2 == 0 { 10 } else { 1 }));
}

#[test]
fn threads_go_on_between_arriving_and_waiting() {
    // Work between arrival and wait is not ordered for others. The thread itself knows of it.
    let between = |work: &str, read: &str| {
        format!(
            "st.shared.u32 [%r3], %r6; {NEXT} barrier.cluster.arrive; {work} barrier.cluster.wait; {read} st.global.u32 [%rd2], %r10; {MEET}"
        )
    };
    let read = "ld.shared::cluster.u32 %r10, [%r7];";
    let found = clean(&between("ld.shared.u32 %r11, [%r3];", read));
    assert_eq!((found[0], found[64], found[255]), (64, 0, 191));
    let found = fault(FaultKind::Race, &between("st.shared.u32 [%r3], 1;", read));
    assert!(found.what.contains("of shared memory of block [1, 0, 0]"), "{found}");
    assert!(found.what.contains("are read that thread [0, 0, 0] of block [1, 0, 0] wrote"), "{found}");
    // Memory that no other block reads is the block's own.
    clean(&between(
        ".shared .align 4 .b32 spare; setp.eq.u32 %p2, %r1, 0; @%p2 st.shared.u32 [spare], 1;",
        read,
    ));
    // Lanes may come one by one to a barrier that is not aligned, and blocks may come any number of times.
    let turns = format!(
        "mov.u32 %r12, 0; again: and.b32 %r11, %r1, 1; setp.eq.u32 %p2, %r11, 1; @%p2 bra odd; barrier.cluster.arrive; bra wait; odd: barrier.cluster.arrive; wait: @%p2 barrier.cluster.wait; @!%p2 barrier.cluster.wait;
add.u32 %r12, %r12, 1; setp.lt.u32 %p3, %r12, 5; @%p3 bra again; {}",
        between("", read)
    );
    assert_eq!(clean(&turns)[0], 64);
}

#[test]
fn all_wait_for_the_last() {
    // One block or warp has a long way to the barrier, or a way with other barriers.
    let long = "mov.u32 %r10, 0; again: add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, 9000; @%p3 bra again;";
    let some_warp = "shr.u32 %r11, %r6, 5; setp.ne.u32 %p2, %r11, 3;";
    for (who, way) in [
        ("@%p1 bra there;", long),
        ("@!%p1 bra there;", long),
        ("@%p2 bra there;", long),
        ("@%p1 bra there;", "bar.sync 0; bar.sync 0; bar.sync 0;"),
    ] {
        let found = clean(&format!(
            "{NEXT} {some_warp} {who} {way} there: st.shared.u32 [%r3], %r6; {MEET} ld.shared::cluster.u32 %r10, [%r7]; st.global.u32 [%rd2], %r10; {MEET}"
        ));
        assert_eq!((found[0], found[64], found[255]), (64, 0, 191), "{who} {way}");
    }
}

#[test]
fn blocks_know_their_clusters() {
    let registers = [
        ("%cluster_ctarank", [0, 1, 2, 3, 0, 1, 2, 3]),
        ("%cluster_nctarank", [4; 8]),
        ("%clusterid.x", [0, 0, 0, 0, 1, 1, 1, 1]),
        ("%clusterid.y", [0; 8]),
        ("%nclusterid.x", [2; 8]),
        ("%nclusterid.z", [1; 8]),
        ("%cluster_ctaid.x", [0, 1, 2, 3, 0, 1, 2, 3]),
        ("%cluster_ctaid.y", [0; 8]),
        ("%cluster_nctaid.x", [4; 8]),
        ("%cluster_nctaid.y", [1; 8]),
        ("%ctaid.x", [0, 1, 2, 3, 4, 5, 6, 7]),
    ];
    for (register, wanted) in registers {
        let body = format!("mov.u32 %r10, {register}; st.global.u32 [%rd2], %r10;");
        assert_eq!(words_of(&text(4, &body), blocks(8, 1), &[words(&[9; 8])]), wanted, "{register}");
        // A launch without clusters has one cluster for each block.
        let alone = text(4, &body).replace(".reqnctapercluster 4\n", "");
        let wanted = match register {
            "%clusterid.x" | "%ctaid.x" => [0, 1, 2, 3, 4, 5, 6, 7],
            "%nclusterid.x" => [8; 8],
            "%cluster_nctarank" | "%nclusterid.z" | "%cluster_nctaid.x" | "%cluster_nctaid.y" => [1; 8],
            _ => [0; 8],
        };
        assert_eq!(words_of(&alone, blocks(8, 1), &[words(&[9; 8])]), wanted, "{register}");
    }
    let explicit = "mov.pred %p2, %is_explicit_cluster; selp.u32 %r10, 1, 0, %p2; mov.pred %p3, !%is_explicit_cluster; @%p3 add.u32 %r10, %r10, 8; st.global.u32 [%rd2], %r10;";
    let explicit = text(1, explicit);
    assert_eq!(words_of(&explicit, blocks(1, 1), &[words(&[9])]), [1]);
    let not = explicit.replace(".reqnctapercluster 1\n", "");
    assert_eq!(words_of(&not, blocks(1, 1), &[words(&[9])]), [8]);
    // More axes: 2 clusters of 2 by 3 blocks along y.
    let body = "mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.x; mad.lo.u32 %r6, %r5, 2, %r6; mad.wide.u32 %rd2, %r6, 4, %rd1;
mov.u32 %r10, %clusterid.y; mad.lo.u32 %r10, %r10, 10, %r4; mov.u32 %r11, %cluster_ctaid.y; mad.lo.u32 %r10, %r10, 10, %r11; mov.u32 %r11, %nclusterid.y; mad.lo.u32 %r10, %r10, 10, %r11; st.global.u32 [%rd2], %r10;";
    let text = text(2, body).replace(".reqnctapercluster 2", ".reqnctapercluster 2, 3, 1");
    let config = LaunchConfig { grid: [2, 6, 1], block: [1; 3], dynamic: 0 };
    let found = words_of(&text, config, &[words(&[9; 12])]);
    assert_eq!(found, [2, 102, 212, 312, 422, 522, 1002, 1102, 1212, 1312, 1422, 1522]);
}

#[test]
fn blocks_are_reached_only_while_they_are_known_to_live() {
    let store = "st.shared::cluster.u32 [%r7], %r6;";
    clean(&format!("{NEXT} {MEET} {store} {MEET}"));
    // There is no barrier before the access, even if the other block has begun long ago.
    for before in ["", "bar.sync 0;", "barrier.cluster.arrive;"] {
        let found = fault(FaultKind::OutOfBounds, &format!("{NEXT} {before} {store} {MEET}"));
        assert!(found.what.contains("of block [1, 0, 0], which may not have begun"), "{found}");
        assert_eq!((found.block, found.thread, found.instruction.as_str()), ([0; 3], [0; 3], store));
    }
    // One thread waits for all of its block.
    let handed = "barrier.cluster.arrive; setp.lt.u32 %p2, %r1, 32; @%p2 barrier.cluster.wait;";
    clean(&format!("{NEXT} {handed} bar.sync 0; {store} @!%p2 barrier.cluster.wait; {MEET}"));
    fault(FaultKind::OutOfBounds, &format!("{NEXT} {handed} {store} @!%p2 barrier.cluster.wait; {MEET}"));
    // There is no barrier after the access, or one that does not order it.
    for (first, after) in [(true, ""), (false, ""), (true, "bar.sync 0;"), (false, "barrier.cluster.arrive;")]
    {
        let one = if first { "@%p1" } else { "@!%p1" };
        let found = fault(FaultKind::OutOfBounds, &format!("{NEXT} {MEET} {one} {store} {after}"));
        let (block, other) = if first { (0, 1) } else { (1, 0) };
        assert!(found.what.contains(&format!("of block [{other}, 0, 0], which ")), "{found}");
        assert!(found.what.contains("ended"), "{found}");
        assert_eq!((found.block, found.instruction), ([block, 0, 0], format!("{one} {store}")));
    }
    fault(
        FaultKind::OutOfBounds,
        &format!("{NEXT} {MEET} {store} barrier.cluster.arrive.relaxed; barrier.cluster.wait;"),
    );
    fault(
        FaultKind::OutOfBounds,
        &format!("{NEXT} {MEET} barrier.cluster.arrive; {store} barrier.cluster.wait;"),
    );
    // One remaining thread keeps the block's memory alive.
    clean(&format!(
        "{NEXT} {MEET} {store} barrier.cluster.arrive; setp.ne.u32 %p2, %r1, 5; @%p2 exit; barrier.cluster.wait;"
    ));
    // Blocks of one cluster are not part of the next, although each core runs several clusters.
    let body = text(
        2,
        &format!(
            "setp.lt.u32 %p2, %r5, 16; {NEXT} {MEET} @%p2 {store} barrier.cluster.arrive; barrier.cluster.wait;"
        ),
    );
    launch(&body, blocks(4096, 32), &[words(&[0])]).unwrap_or_else(|fault| panic!("{fault}"));
    // An exited block is out of reach.
    let late = format!(
        "{NEXT} {MEET} @!%p1 exit; mov.u32 %r10, 0; again: add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 9000; @%p2 bra again; {store}"
    );
    let found = fault(FaultKind::OutOfBounds, &late);
    assert!(found.what.contains("of block [1, 0, 0], which has ended"), "{found}");
}

#[test]
fn addresses_are_of_blocks_and_variables_that_there_are() {
    let found = fault(FaultKind::OutOfBounds, "mapa.shared::cluster.u32 %r7, %r3, 2;");
    assert!(found.what.contains("there is no block 2 in a cluster of 2"), "{found}");
    fault(FaultKind::OutOfBounds, "mapa.shared::cluster.u32 %r7, %r3, -1;");
    fault(FaultKind::OutOfBounds, "mapa.u64 %rd3, %rd1, 1;");
    fault(FaultKind::OutOfBounds, "getctarank.u64 %r7, %rd1;");
    let load = |at: &str| format!("{NEXT} {MEET} ld.shared::cluster.u32 %r10, [{at}]; {MEET}");
    let found = fault(FaultKind::OutOfBounds, &load("%r7+4"));
    assert!(found.what.contains("4 bytes at 0x100 of shared memory of block [1, 0, 0]"), "{found}");
    assert_eq!(found.thread, [63, 0, 0]);
    // Another variable of the other block, and a block that does not exist.
    let found = fault(FaultKind::OutOfBounds, &format!(".shared .align 4 .b32 spare; {}", load("%r7+4")));
    assert!(found.what.contains("by an address of `buffer`"), "{found}");
    let found = fault(FaultKind::OutOfBounds, &load("%r7+0x2000000"));
    assert!(found.what.contains("of block 3 of a cluster of 2"), "{found}");
    fault(FaultKind::Misaligned, &load("%r7+2"));
    fault(FaultKind::OutOfBounds, &format!("{NEXT} {MEET} st.shared::cluster.u32 [%r7+256], %r1;"));
}

#[test]
fn blocks_of_a_cluster_race() {
    let (own, other) = ("[%r3]", "[%r7]");
    let accesses = [
        ("st.shared.u32", "st.shared::cluster.u32", true),
        ("st.shared.u32", "ld.shared::cluster.u32", true),
        ("ld.shared.u32", "st.shared::cluster.u32", true),
        ("red.shared.add.u32", "st.shared::cluster.u32", true),
        ("ld.shared.u32", "ld.shared::cluster.u32", false),
        ("red.shared.add.u32", "red.shared::cluster.add.u32", false),
    ];
    let instruction = |name: &str, at: &str| {
        if name.starts_with("ld") { format!("{name} %r10, {at};") } else { format!("{name} {at}, %r1;") }
    };
    for (first, second, races) in accesses {
        let (own, other) = (instruction(first, own), instruction(second, other));
        // Both orders, with a barrier of the block, which orders no other block, and with one of the cluster.
        for (body, races) in [
            (format!("@%p1 {own} @!%p1 {other}"), races),
            (format!("@!%p1 {own} @%p1 {other}"), races),
            (format!("@%p1 {own} bar.sync 0; @!%p1 {other}"), races),
            (format!("@%p1 {own} {MEET} @!%p1 {other}"), false),
            (format!("@!%p1 {own} {MEET} @%p1 {other}"), false),
            (
                format!("@%p1 {own} barrier.cluster.arrive.relaxed; barrier.cluster.wait; @!%p1 {other}"),
                races,
            ),
            // The cluster's barrier orders one thread, which orders the others of its block.
            (
                format!(
                    "@%p1 {own} barrier.cluster.arrive; setp.lt.u32 %p2, %r1, 32; @%p2 barrier.cluster.wait; bar.sync 0; @!%p1 {other} @!%p2 barrier.cluster.wait;"
                ),
                false,
            ),
        ] {
            let body = format!("st.shared.u32 [%r3], 0; {NEXT} {MEET} {body} {MEET}");
            if races {
                let found = fault(FaultKind::Race, &body);
                assert!(found.what.contains(" of block ["), "{found}");
            } else {
                clean(&body);
            }
        }
    }
    // Two blocks that access a third.
    let third = "mapa.shared::cluster.u32 %r7, %r3, 2; setp.lt.u32 %p2, %r4, 2;";
    let body = text(4, &format!("{third} {MEET} @%p2 st.shared::cluster.u32 [%r7], %r6; {MEET}"));
    let found = fault_of(&body, blocks(4, 32), &[words(&[0; 128])], FaultKind::Race);
    assert!(found.what.contains("of shared memory of block [2, 0, 0]"), "{found}");
    assert!(found.what.contains("of block [0, 0, 0] wrote"), "{found}");
}

#[test]
fn many_blocks_may_read_a_place_that_is_written_then() {
    // The readers are more warps than one block has, in more clusters than one.
    let body = "setp.eq.u32 %p2, %r6, 0; st.shared.u32 [%r2], 7; MEET mapa.shared::cluster.u32 %r7, %r2, 0; ld.shared::cluster.u32 %r10, [%r7]; WRITE @%p3 st.shared.u32 [%r2], 8; MEET";
    let body =
        body.replace("st.shared.u32 [%r2], 7;", "setp.eq.u32 %p3, %r1, 0; @%p3 st.shared.u32 [%r2], 7;");
    let text = |between: &str| text(8, &body.replace("MEET", MEET).replace("WRITE", between));
    let out = [words(&[0])];
    launch(&text(MEET), blocks(16, 1024), &out).unwrap_or_else(|fault| panic!("{fault}"));
    fault_of(&text(""), blocks(16, 1024), &out, FaultKind::Race);
}

#[test]
fn what_nobody_wrote_is_undefined_in_other_blocks_too() {
    let read = "ld.shared::cluster.u32 %r10, [%r7]; st.global.u32 [%rd2], %r10;";
    let found = fault(FaultKind::Uninitialized, &format!("{NEXT} {MEET} {read} {MEET}"));
    assert!(found.what.contains("4 bytes at 0x0 of shared memory of block [1, 0, 0], not all"), "{found}");
    fault(
        FaultKind::Uninitialized,
        &format!("setp.ne.u32 %p2, %r1, 9; @%p2 st.shared.u32 [%r3], 1; {NEXT} {MEET} {read} {MEET}"),
    );
    fault(
        FaultKind::Uninitialized,
        &format!("{NEXT} {MEET} atom.shared::cluster.add.u32 %r10, [%r7], 1; {MEET}"),
    );
    // The block's own word is written, the other's is not.
    fault(
        FaultKind::Uninitialized,
        &format!(
            "@%p1 st.shared.u32 [%r3], 1; {NEXT} {MEET} @%p1 atom.shared::cluster.add.u32 %r10, [%r7], 1; {MEET}"
        ),
    );
    // Words that another block wrote are defined. A stored undefined value stays undefined.
    let own = "ld.shared.u32 %r10, [%r3]; st.global.u32 [%rd2], %r10;";
    assert_eq!(clean(&format!("{NEXT} {MEET} st.shared::cluster.u32 [%r7], %r6; {MEET} {own}"))[3], 67);
    fault(
        FaultKind::Uninitialized,
        &format!("{NEXT} {MEET} st.shared::cluster.u32 [%r7], %r19; {MEET} {own}"),
    );
    // A cluster leaves no defined memory to the next.
    let body = text(
        2,
        &format!("setp.lt.u32 %p2, %r5, 2; @%p2 st.shared.u32 [%r3], 1; {NEXT} {MEET} {read} {MEET}"),
    );
    let found = fault_of(&body, blocks(4, 32), &[words(&[0; 128])], FaultKind::Uninitialized);
    assert_eq!(found.block, [2, 0, 0]);
}

#[test]
fn who_comes_to_the_barrier_of_the_cluster() {
    let found = fault(FaultKind::Barrier, "barrier.cluster.arrive; barrier.cluster.arrive;");
    assert!(found.what.contains("it has arrived at the barrier of the cluster before"), "{found}");
    // A second arrival is a fault even after all others have arrived.
    fault(
        FaultKind::Barrier,
        "barrier.cluster.arrive; mov.u32 %r10, 0; again: add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 9000; @%p2 bra again; barrier.cluster.arrive;",
    );
    let found = fault(FaultKind::Barrier, "barrier.cluster.wait;");
    assert!(found.what.contains("but has not arrived there"), "{found}");
    fault(FaultKind::Barrier, &format!("{MEET} barrier.cluster.wait.aligned;"));
    let found = fault(
        FaultKind::Barrier,
        "setp.ne.u32 %p2, %r1, 5; @%p2 barrier.cluster.arrive; barrier.cluster.wait;",
    );
    assert_eq!(found.thread, [5, 0, 0]);
    // Exited threads need not come.
    clean(&format!("@%p1 exit; {MEET}"));
    clean(&format!("setp.lt.u32 %p2, %r1, 7; @%p2 exit; {MEET}"));
    clean("barrier.cluster.arrive; @%p1 exit; barrier.cluster.wait;");
    // Lanes that ended during the wait are not expected at later barriers of the block.
    clean(
        "and.b32 %r11, %r1, 31; setp.lt.u32 %p2, %r11, 16; barrier.cluster.arrive; @!%p2 bra gone; barrier.cluster.wait; bar.sync 0; bar.sync 0; gone:",
    );
    // A thread that waits at another barrier does not come.
    let found = fault(
        FaultKind::Barrier,
        "setp.lt.u32 %p2, %r1, 32; @%p2 bra wait; bar.sync 1; bra end; wait: barrier.cluster.arrive; barrier.cluster.wait; end: bar.sync 1;",
    );
    assert!(found.what.contains("wait at this barrier"), "{found}");
    let found = fault(
        FaultKind::Barrier,
        "barrier.cluster.arrive; @%p1 barrier.cluster.wait; @%p1 barrier.cluster.arrive; barrier.cluster.wait; @%p1 barrier.cluster.arrive; @%p1 barrier.cluster.wait; @!%p1 bar.sync 1, 96;",
    );
    assert!(found.to_string().contains("barrier"), "{found}");
}

#[test]
fn the_lanes_of_a_warp_come_together_where_they_must() {
    for step in ["arrive", "wait"] {
        let before = if step == "wait" { "barrier.cluster.arrive;" } else { "" };
        let here = format!("barrier.cluster.{step}.aligned;");
        let found = fault(FaultKind::Barrier, &format!("{before} setp.eq.u32 %p2, %r1, 5; @%p2 {here}"));
        assert!(found.what.contains("its guard keeps some lanes of a warp from this barrier"), "{found}");
        let arms = format!("{before} setp.lt.u32 %p2, %r1, 40; @%p2 bra a; {here} bra end; a: {here} end:");
        let found = fault(FaultKind::Barrier, &arms);
        assert!(found.what.contains("the lanes of a warp are not all at this barrier"), "{found}");
        let rest = if step == "wait" { "" } else { "barrier.cluster.wait;" };
        clean(&format!("{} {rest}", arms.replace(".aligned", "")));
        let missed = format!("{before} setp.lt.u32 %p2, %r1, 40; @!%p2 bra end; {here} end: ret;");
        let found = fault(FaultKind::Barrier, &missed);
        assert!(
            found.what.contains("thread [40, 0, 0] of the same warp has ended without this barrier"),
            "{found}"
        );
        // Lanes that ended before are no longer part of the warp, and whole warps may skip the barrier.
        clean(&format!("{before} setp.ge.u32 %p2, %r1, 40; @%p2 exit; {here} {rest}"));
    }
    // Lanes that come one after the other meet once all have come. The whole cluster may have arrived while
    // some lanes waited for the rest of their warp.
    let long = |name: &str, turns: u32| {
        format!(
            "mov.u32 %r12, 0; {name}: add.u32 %r12, %r12, 1; setp.lt.u32 %p3, %r12, {turns}; @%p3 bra {name};"
        )
    };
    let (late, later) = (long("late", 20_000), long("later", 60_000));
    clean(&format!(
        "and.b32 %r11, %r1, 31; setp.lt.u32 %p2, %r11, 16; @%p1 bra here; {late} here: barrier.cluster.arrive; @!%p2 bra there; {later} there: barrier.cluster.wait.aligned; {MEET}"
    ));
}

#[test]
fn directives_of_clusters_are_read() {
    let limits = |directives: &str| {
        let text = text(2, "").replace(".reqnctapercluster 2", directives);
        ptx::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).kernels[0].limits
    };
    let found = limits(".explicitcluster .reqnctapercluster 4, 2");
    assert_eq!(
        (found.required_cluster, found.max_cluster, found.explicit_cluster),
        (Some([4, 2, 1]), None, true)
    );
    let found = limits(".maxntid 64 .maxclusterrank 8");
    assert_eq!((found.required_cluster, found.max_cluster, found.explicit_cluster), (None, Some(8), false));
    assert_eq!(limits("").required_cluster, None);
}
