//! Warps: divergence, shuffles, votes, and special registers are right.

use crate::harness::{self, blocks, kernel, threads, warp, words, words_of};

const FULL: u32 = u32::MAX;

/// Returns each lane's expected word, as a function of its number.
fn each(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn shuffles_of_the_whole_warp() {
    let shuffled = |text: &str| warp(&format!("shfl.sync.{text}, -1; "));
    assert_eq!(shuffled("up.b32 %r0, %r1, 1, 0"), each(|lane| lane.saturating_sub(1)));
    assert_eq!(
        shuffled("down.b32 %r0, %r1, 3, 31"),
        each(|lane| if lane + 3 < 32 { lane + 3 } else { lane })
    );
    assert_eq!(shuffled("bfly.b32 %r0, %r1, 5, 31"), each(|lane| lane ^ 5));
    assert_eq!(shuffled("idx.b32 %r0, %r1, 7, 31"), each(|_| 7));
    assert_eq!(shuffled("idx.b32 %r0, %r1, 39, 31"), each(|_| 7));
}

#[test]
fn shuffles_in_segments_and_with_odd_clamps() {
    // c: bits 0 to 4 clamp, bits 8 to 12 are the mask of segments: 0x1800 makes segments of 8 lanes.
    let shuffled = |text: &str| warp(&format!("shfl.sync.{text}, 0xffffffff;"));
    assert_eq!(
        shuffled("up.b32 %r0, %r1, 2, 0x1800"),
        each(|lane| if lane % 8 >= 2 { lane - 2 } else { lane })
    );
    assert_eq!(
        shuffled("down.b32 %r0, %r1, 2, 0x181f"),
        each(|lane| if lane % 8 < 6 { lane + 2 } else { lane })
    );
    assert_eq!(shuffled("idx.b32 %r0, %r1, 11, 0x181f"), each(|lane| lane / 8 * 8 + 3));
    assert_eq!(
        shuffled("bfly.b32 %r0, %r1, 12, 0x181f"),
        each(|lane| if lane ^ 12 <= (lane | 7) { lane ^ 12 } else { lane })
    );
    // A clamp of 20: up reads lanes from 20 on, down and idx those up to it.
    assert_eq!(shuffled("up.b32 %r0, %r1, 3, 20"), each(|lane| if lane >= 23 { lane - 3 } else { lane }));
    assert_eq!(shuffled("down.b32 %r0, %r1, 3, 20"), each(|lane| if lane <= 17 { lane + 3 } else { lane }));
    assert_eq!(shuffled("idx.b32 %r0, %r1, 25, 20"), each(|lane| lane));
    assert_eq!(
        shuffled("bfly.b32 %r0, %r1, 16, 20"),
        each(|lane| if lane ^ 16 <= 20 { lane ^ 16 } else { lane })
    );
    // A clamp that is not a multiple of the segment: (lane & 24) | (5 & 7).
    assert_eq!(
        shuffled("down.b32 %r0, %r1, 1, 0x1805"),
        each(|lane| if lane % 8 < 5 { lane + 1 } else { lane })
    );
}

#[test]
fn the_predicate_of_a_shuffle() {
    let found = warp("shfl.sync.down.b32 %r2|%p1, %r1, 4, 31, -1; selp.u32 %r0, 1, 0, %p1;");
    assert_eq!(found, each(|lane| u32::from(lane < 28)));
    let found = warp("shfl.sync.up.b32 %r2|%p1, %r1, %r1, 0, -1; selp.u32 %r0, %r2, 99, %p1;");
    assert_eq!(found, each(|_| 0));
}

#[test]
fn shuffles_of_halves_of_the_warp_at_one_place() {
    // The mask of each half contains that half only.
    let body = "setp.lt.u32 %p1, %r1, 16; selp.b32 %r2, 0xffff, 0xffff0000, %p1;
shfl.sync.bfly.b32 %r0, %r1, 1, 31, %r2;";
    assert_eq!(warp(body), each(|lane| lane ^ 1));
    // The halves come one after the other, and only the guarded one executes.
    let body =
        "setp.lt.u32 %p1, %r1, 16; mov.u32 %r0, 77; @%p1 shfl.sync.down.b32 %r0, %r1, 1, 31, 0x0000ffff;";
    let found = std::panic::catch_unwind(|| warp(body));
    assert!(found.is_err(), "lane 15 reads lane 16, which does not take part");
    let body =
        "setp.lt.u32 %p1, %r1, 16; mov.u32 %r0, 77; @%p1 shfl.sync.down.b32 %r0, %r1, 1, 0x100f, 0x0000ffff;";
    assert_eq!(
        warp(body),
        each(|lane| if lane < 15 {
            lane + 1
        } else if lane == 15 {
            15
        } else {
            77
        })
    );
}

#[test]
fn votes() {
    let small = "setp.lt.u32 %p1, %r1, 5;";
    assert_eq!(warp(&format!("{small} vote.sync.ballot.b32 %r0, %p1, -1;")), each(|_| 31));
    assert_eq!(warp(&format!("{small} vote.sync.ballot.b32 %r0, !%p1, -1;")), each(|_| !31));
    for (vote, wanted) in [("all", 0), ("any", 1), ("uni", 0)] {
        let found = warp(&format!("{small} vote.sync.{vote}.pred %p2, %p1, -1; selp.u32 %r0, 1, 0, %p2;"));
        assert_eq!(found, each(|_| wanted), "{vote}");
    }
    // The vote is among the lanes of the mask only: lanes 0 to 3 all agree.
    let body = format!(
        "{small} setp.lt.u32 %p3, %r1, 4; mov.u32 %r0, 9; @%p3 vote.sync.uni.pred %p2, %p1, 15; @%p3 selp.u32 %r0, 1, 0, %p2;"
    );
    assert_eq!(warp(&body), each(|lane| if lane < 4 { 1 } else { 9 }));
    assert_eq!(
        warp("setp.ge.u32 %p1, %r1, 30; mov.u32 %r0, 0; @%p1 activemask.b32 %r0;"),
        each(|lane| if lane >= 30 { 3 << 30 } else { 0 })
    );
}

#[test]
fn matches_and_reductions() {
    let parity = "and.b32 %r2, %r1, 1;";
    let found = warp(&format!("{parity} match.any.sync.b32 %r0, %r2, -1;"));
    assert_eq!(found, each(|lane| if lane % 2 == 0 { 0x5555_5555 } else { 0xaaaa_aaaa }));
    let found = warp(&format!("{parity} match.all.sync.b32 %r0|%p1, %r2, -1;"));
    assert_eq!(found, each(|_| 0));
    assert_eq!(
        warp("mov.u32 %r2, 5; match.all.sync.b32 %r3|%p1, %r2, -1; selp.u32 %r0, %r3, 1, %p1;"),
        each(|_| FULL)
    );
    assert_eq!(
        warp("cvt.u64.u32 %rd3, %r1; shr.u64 %rd3, %rd3, 4; match.any.sync.b64 %r0, %rd3, -1;"),
        each(|lane| if lane < 16 { 0xffff } else { 0xffff_0000 })
    );
    let shifted = "sub.s32 %r2, %r1, 3;";
    for (op, wanted) in [
        ("add.s32", 496 - 96),
        ("min.s32", -3i32 as u32),
        ("max.s32", 28),
        ("min.u32", 0),
        ("max.u32", FULL),
        ("and.b32", 0),
        ("or.b32", FULL),
        ("xor.b32", (0..32u32).fold(0, |x, lane| x ^ lane.wrapping_sub(3))),
    ] {
        assert_eq!(warp(&format!("{shifted} redux.sync.{op} %r0, %r2, -1;")), each(|_| wanted), "{op}");
    }
}

#[test]
fn one_lane_is_elected() {
    // Lanes 8 to 15 alone execute the election, and all of them learn the elected lane.
    let body = "and.b32 %r2, %r1, 24; setp.eq.u32 %p1, %r2, 8; setp.ne.u32 %p2, %r1, %r1; mov.u32 %r3, 99;
@%p1 elect.sync %r3|%p2, 0xff00; selp.u32 %r4, 1000, 0, %p2; add.u32 %r0, %r3, %r4;";
    let text = harness::warp_text(body);
    let found = words_of(&text, threads(32), &[words(&[0; 32])]);
    let leader = found.iter().position(|&word| word >= 1000).expect("one is elected") as u32;
    assert!((8..16).contains(&leader), "{leader}");
    let wanted = |lane| match lane {
        8..16 if lane == leader => 1000 + leader,
        8..16 => leader,
        _ => 99,
    };
    assert_eq!(found, each(wanted));
}

#[test]
fn loops_of_different_lengths_meet_again() {
    // Each lane counts to its number, with a branch inside. Then all lanes shuffle.
    let body = "mov.u32 %r2, 0; mov.u32 %r3, 0;
again:
setp.ge.u32 %p1, %r2, %r1;
@%p1 bra done;
and.b32 %r4, %r2, 1;
setp.eq.u32 %p2, %r4, 0;
@%p2 bra even;
add.u32 %r3, %r3, 100;
bra next;
even:
add.u32 %r3, %r3, 1;
next:
add.u32 %r2, %r2, 1;
bra again;
done:
shfl.sync.bfly.b32 %r0, %r3, 1, 31, -1;";
    let sum = |lane: u32| lane.div_ceil(2) + lane / 2 * 100;
    assert_eq!(warp(body), each(|lane| sum(lane ^ 1)));
}

#[test]
fn a_shuffle_that_lanes_reach_by_different_ways() {
    // Odd lanes take a detour behind the shuffle and come back to it.
    let body = "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; mov.u32 %r3, %r1; @%p1 bra detour;
meet:
shfl.sync.idx.b32 %r0, %r3, 1, 31, -1;
bra end;
detour:
add.u32 %r3, %r3, 1000;
bra meet;
end:";
    assert_eq!(warp(body), each(|_| 1001));
}

#[test]
fn branches_by_table() {
    let body = "and.b32 %r2, %r1, 3;
targets: .branchtargets zero, one, two, zero;
brx.idx %r2, targets;
zero: mov.u32 %r0, 10; bra end;
one: mov.u32 %r0, 11; bra end;
two: mov.u32 %r0, 12;
end:";
    assert_eq!(warp(body), each(|lane| [10, 11, 12, 10][lane as usize % 4]));
}

#[test]
fn scopes_hide_names() {
    let body =
        "mov.u32 %r0, 1; { .reg .u32 %r0; mov.u32 %r0, 2; { add.u32 %r0, %r0, 1; } } bra L; mov.u32 %r0, 5;
L: { bra L; mov.u32 %r0, 6; L: }";
    assert_eq!(warp(body), each(|_| 1));
}

#[test]
fn special_registers() {
    let masks = [
        ("%lanemask_eq", (|lane| 1 << lane) as fn(u32) -> u32),
        ("%lanemask_lt", |lane| (1 << lane) - 1),
        ("%lanemask_le", |lane| (2u64.pow(lane + 1) - 1) as u32),
        ("%lanemask_gt", |lane| !((2u64.pow(lane + 1) - 1) as u32)),
        ("%lanemask_ge", |lane| !((1 << lane) - 1)),
    ];
    for (name, wanted) in masks {
        assert_eq!(warp(&format!("mov.u32 %r0, {name};")), each(wanted), "{name}");
    }
    // A grid of 2 × 3 blocks of 4 × 2 × 2 threads: each writes its own number.
    let text = kernel(&["u64 out"], ".reg .b32 %r<20>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r6, %ntid.z;
mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y; mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y;
mad.lo.u32 %r11, %r3, %r5, %r2; mad.lo.u32 %r11, %r11, %r4, %r1;
mad.lo.u32 %r12, %r8, %r9, %r7;
mul.lo.u32 %r13, %r4, %r5; mul.lo.u32 %r13, %r13, %r6;
mad.lo.u32 %r12, %r12, %r13, %r11;
mad.wide.u32 %rd2, %r12, 4, %rd1;
mad.lo.u32 %r14, %r10, 1000, %r12;
st.global.u32 [%rd2], %r14;");
    let config = harness::LaunchConfig { grid: [2, 3, 1], block: [4, 2, 2], dynamic: 0 };
    let found = words_of(&text, config, &[words(&[0; 96])]);
    assert_eq!(found, (0..96).map(|i| 3000 + i).collect::<Vec<_>>());
}

#[test]
fn early_exits_leave_the_others_alone() {
    let text = kernel(
        &["u64 out", "u32 n"],
        ".reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<2>;
ld.param.u64 %rd1, [out]; ld.param.u32 %r5, [n];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
setp.ge.u32 %p1, %r4, %r5; @%p1 exit;
mad.wide.u32 %rd2, %r4, 4, %rd1; st.global.u32 [%rd2], %r4;",
    );
    let found = words_of(&text, blocks(3, 40), &[words(&[7; 120]), harness::Arg::Word(99)]);
    assert_eq!(found, (0..120).map(|i| if i < 99 { i } else { 7 }).collect::<Vec<_>>());
}

#[test]
fn barriers_order_and_reduce() {
    // Rotates 128 values through shared memory, twice through the same place.
    let text = kernel(
        &["u64 out"],
        ".reg .b32 %r<12>; .reg .b64 %rd<4>; .reg .pred %p<4>;
.shared .align 4 .b8 buffer[512];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, buffer;
mad.lo.u32 %r3, %r1, 4, %r2; st.shared.u32 [%r3], %r1;
bar.sync 0;
add.u32 %r4, %r1, 37; and.b32 %r4, %r4, 127; mad.lo.u32 %r4, %r4, 4, %r2; ld.shared.u32 %r5, [%r4];
barrier.sync 1, 128;
st.shared.u32 [%r3], %r5;
bar.sync 0, 128;
ld.shared.u32 %r6, [%r4];
setp.lt.u32 %p1, %r6, 10;
bar.red.popc.u32 %r7, 0, %p1;
bar.red.or.pred %p2, 0, %p1; bar.red.and.pred %p3, 0, 128, %p1;
selp.u32 %r8, 1000, 0, %p2; selp.u32 %r9, 5000, 0, %p3;
add.u32 %r10, %r7, %r8; add.u32 %r10, %r10, %r9; mad.lo.u32 %r10, %r10, 1000, %r6;
mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.u32 [%rd2], %r10;",
    );
    let found = words_of(&text, threads(128), &[words(&[0; 128])]);
    assert_eq!(found, (0..128).map(|i| 1_010_000 + (i + 74) % 128).collect::<Vec<_>>());
}

#[test]
fn a_warp_may_arrive_and_go_on() {
    // Warp 1 produces and only arrives, and warp 0 waits for it.
    let text = kernel(&["u64 out"], ".reg .b32 %r<12>; .reg .b64 %rd<4>; .reg .pred %p<4>;
.shared .align 4 .b8 buffer[128];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; mul.lo.u32 %r3, %r2, 4; mov.u32 %r4, buffer; add.u32 %r3, %r3, %r4;
setp.lt.u32 %p1, %r1, 32;
@%p1 bra consumer;
st.shared.u32 [%r3], %r1; bar.arrive 1, 64; bra end;
consumer:
bar.sync 1, 64; ld.shared.u32 %r5, [%r3]; mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.u32 [%rd2], %r5;
end:");
    assert_eq!(words_of(&text, threads(64), &[words(&[0; 32])]), (32..64).collect::<Vec<_>>());
}

#[test]
fn lanes_between_others_that_wait_have_their_turn() {
    // Each lane waits in a loop of its own. Lanes in between wait for the one before, and the first and the
    // last lane wait for the last of those.
    let lane = |lane: u32, wanted: u32| {
        format!(
            "lane{lane}: ld.volatile.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r2, {wanted}; @%p1 bra lane{lane}; @%p2 st.volatile.global.u32 [%rd1], %r1; bra end;\n"
        )
    };
    let lanes: String = (0..6).map(|i| lane(i, if i % 5 == 0 { 4 } else { i - 1 })).collect();
    let text = kernel(
        &["u64 out"],
        &format!(
            ".reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .pred %p<4>;
ld.param.u64 %rd1, [out]; mov.u32 %r1, %laneid; setp.ne.u32 %p2, %r1, 0; setp.ne.and.u32 %p2, %r1, 5, %p2;
targets: .branchtargets lane0, lane1, lane2, lane3, lane4, lane5;
brx.idx %r1, targets;
{lanes}end:"
        ),
    );
    let (_, buffers) = harness::launch_limited(&text, threads(6), &[words(&[0])], 1 << 23).unwrap();
    assert_eq!(harness::to_words(&buffers[0]), [4]);
}

#[test]
fn lanes_may_wait_for_each_other_in_a_loop() {
    // A lock that the lanes of one warp take one after another.
    let text = kernel(
        &["u64 out"],
        ".reg .b32 %r<9>; .reg .b64 %rd<3>; .reg .pred %p<2>;
ld.param.u64 %rd1, [out];
again: atom.global.cas.b32 %r1, [%rd1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra again;
ld.relaxed.gpu.global.u32 %r2, [%rd1+4]; add.u32 %r2, %r2, 1; st.relaxed.gpu.global.u32 [%rd1+4], %r2;
membar.gl; atom.global.exch.b32 %r3, [%rd1], 0;",
    );
    assert_eq!(words_of(&text, threads(32), &[words(&[0, 0])]), [0, 32]);
}
