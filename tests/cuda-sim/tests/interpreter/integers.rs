//! Integers and bits: results worked out by hand from the descriptions of the ISA.

use crate::harness::{check, one, three, two};

const MIN: u64 = 0x8000_0000;
const MAX: u64 = 0x7fff_ffff;
const ALL: u64 = 0xffff_ffff;

#[test]
fn sums_and_differences() {
    check("add.s32 %r0, %r1, %r2;", "%r0", &two(&[(1, 2, 3), (MAX, 1, MIN), (ALL, 1, 0)]));
    check("add.sat.s32 %r0, %r1, %r2;", "%r0", &two(&[(MAX, 1, MAX), (MIN, ALL, MIN), (5, ALL, 4)]));
    check("sub.u32 %r0, %r1, %r2;", "%r0", &two(&[(1, 2, ALL), (7, 3, 4)]));
    check("sub.sat.s32 %r0, %r1, %r2;", "%r0", &two(&[(MIN, 1, MIN), (MAX, ALL, MAX)]));
    check("add.u16 %h0, %h1, %h2;", "%h0", &two(&[(0xffff, 2, 1), (3, 4, 7)]));
    check("add.s64 %rd0, %rd1, %rd2;", "%rd0", &two(&[(u64::MAX, 1, 0), (ALL, 1, 1 << 32)]));
    check("add.u32 %r0, %r1, -1;", "%r0", &one(&[(5, 4), (0, ALL)]));
    check("sad.u32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(3, 10, 100, 107), (10, 3, 100, 107)]));
    check("sad.s32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(ALL, 1, 0, 2)]));
}

#[test]
fn products() {
    check("mul.lo.s32 %r0, %r1, %r2;", "%r0", &two(&[(ALL, 3, 0xffff_fffd), (0x1_0001, 0x1_0001, 0x2_0001)]));
    check("mul.hi.u32 %r0, %r1, %r2;", "%r0", &two(&[(ALL, ALL, 0xffff_fffe), (2, MIN, 1)]));
    check("mul.hi.s32 %r0, %r1, %r2;", "%r0", &two(&[(ALL, ALL, 0), (ALL, 1, ALL), (MIN, MIN, 0x4000_0000)]));
    check(
        "mul.hi.u64 %rd0, %rd1, %rd2;",
        "%rd0",
        &two(&[(u64::MAX, u64::MAX, u64::MAX - 1), (1 << 63, 6, 3)]),
    );
    check("mul.hi.s64 %rd0, %rd1, %rd2;", "%rd0", &two(&[(u64::MAX, u64::MAX, 0), (u64::MAX, 5, u64::MAX)]));
    check("mul.hi.u16 %h0, %h1, %h2;", "%h0", &two(&[(0xffff, 0xffff, 0xfffe), (0x100, 0x100, 1)]));
    check("mul.hi.s16 %h0, %h1, %h2;", "%h0", &two(&[(0xffff, 2, 0xffff), (0x8000, 0x8000, 0x4000)]));
    check("mul.wide.u16 %r0, %h1, %h2;", "%r0", &two(&[(0xffff, 0xffff, 0xfffe_0001)]));
    check("mul.wide.s16 %r0, %h1, %h2;", "%r0", &two(&[(0xffff, 3, 0xffff_fffd)]));
    check("mul.wide.u32 %rd0, %r1, %r2;", "%rd0", &two(&[(ALL, ALL, 0xffff_fffe_0000_0001)]));
    check(
        "mul.wide.s32 %rd0, %r1, %r2;",
        "%rd0",
        &two(&[(ALL, 3, (-3i64) as u64), (MIN, 2, (-(1i64 << 32)) as u64)]),
    );
    check("mad.lo.s32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(ALL, 3, 5, 2), (1 << 16, 1 << 16, 9, 9)]));
    check("mad.hi.u32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(ALL, ALL, 3, 1)]));
    check("mad.hi.sat.s32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(MAX, MAX, MAX, MAX), (MIN, MAX, MIN, MIN)]));
    check("mad.wide.u32 %rd0, %r1, %r2, %rd3;", "%rd0", &three(&[(ALL, 4, 0x10, 0x4_0000_000c)]));
    check("mad.wide.s32 %rd0, %r1, %r2, %rd3;", "%rd0", &three(&[(ALL, 4, 16, 12)]));
    check("mad.wide.s16 %r0, %h1, %h2, %r3;", "%r0", &three(&[(0xffff, 4, 16, 12)]));
}

#[test]
fn quotients() {
    // Division by zero has no specified result, but must not stop the grid.
    let cases = [
        (7, 2, 3),
        ((-7i32) as u32 as u64, 2, (-3i32) as u32 as u64),
        (7, (-2i32) as u32 as u64, (-3i32) as u32 as u64),
    ];
    check("div.s32 %r0, %r1, %r2;", "%r0", &two(&cases));
    check("div.u32 %r0, %r1, %r2;", "%r0", &two(&[(ALL, 2, MAX), (7, 8, 0), (7, 0, ALL)]));
    check(
        "rem.s32 %r0, %r1, %r2;",
        "%r0",
        &two(&[((-7i32) as u32 as u64, 2, ALL), (7, (-2i32) as u32 as u64, 1)]),
    );
    check("rem.u64 %rd0, %rd1, %rd2;", "%rd0", &two(&[(u64::MAX, 10, 5)]));
    check("div.s64 %rd0, %rd1, %rd2;", "%rd0", &two(&[((-9i64) as u64, 2, (-4i64) as u64)]));
    check("div.s16 %h0, %h1, %h2;", "%h0", &two(&[(0xfff7, 2, 0xfffc)]));
}

#[test]
fn carries() {
    let add = "add.cc.u32 %r5, %r1, %r3; addc.u32 %r6, %r2, %r4; mov.b64 %rd0, {%r5, %r6};";
    check(add, "%rd0", &[([ALL, 0, 1, 0], 1 << 32), ([ALL, ALL, 1, 0], 0), ([1, 2, 3, 4], 6 << 32 | 4)]);
    let sub = "sub.cc.u32 %r5, %r1, %r3; subc.u32 %r6, %r2, %r4; mov.b64 %rd0, {%r5, %r6};";
    check(sub, "%rd0", &[([0, 1, 1, 0], ALL), ([5, 7, 2, 3], 4 << 32 | 3), ([0, 0, 1, 0], u64::MAX)]);
    // A chain of three words, whose carry propagates through all.
    let chain = "add.cc.u32 %r5, %r1, 1; addc.cc.u32 %r6, %r2, 0; addc.u32 %r0, 0, 0;";
    check(chain, "%r0", &two(&[(ALL, ALL, 1), (ALL, 5, 0), (5, ALL, 0)]));
    let mad = "mad.lo.cc.u32 %r5, %r1, %r2, %r3; madc.hi.u32 %r6, %r1, %r2, 0; mov.b64 %rd0, {%r5, %r6};";
    check(mad, "%rd0", &three(&[(ALL, ALL, ALL, 0xffff_ffff_0000_0000), (3, 4, 5, 17)]));
    check("add.cc.u64 %rd5, %rd1, %rd2; addc.u64 %rd0, 0, 0;", "%rd0", &two(&[(u64::MAX, 1, 1), (1, 1, 0)]));
}

#[test]
fn extremes_and_signs() {
    check("min.s32 %r0, %r1, %r2;", "%r0", &two(&[(ALL, 1, ALL), (3, 2, 2)]));
    check("min.u32 %r0, %r1, %r2;", "%r0", &two(&[(ALL, 1, 1)]));
    check("max.s32 %r0, %r1, %r2;", "%r0", &two(&[(ALL, 1, 1)]));
    check("max.u64 %rd0, %rd1, %rd2;", "%rd0", &two(&[(u64::MAX, 1, u64::MAX)]));
    check("max.s16 %h0, %h1, %h2;", "%h0", &two(&[(0xffff, 1, 1)]));
    check("neg.s32 %r0, %r1;", "%r0", &one(&[(1, ALL), (MIN, MIN)]));
    check("abs.s32 %r0, %r1;", "%r0", &one(&[(ALL, 1), (MIN, MIN), (5, 5)]));
    check("abs.s64 %rd0, %rd1;", "%rd0", &one(&[(u64::MAX, 1)]));
    check("neg.s16 %h0, %h1;", "%h0", &one(&[(1, 0xffff)]));
}

#[test]
fn shifts_beyond_the_width() {
    check("shl.b32 %r0, %r1, %r2;", "%r0", &two(&[(1, 31, MIN), (1, 32, 0), (ALL, 1000, 0), (5, 0, 5)]));
    check("shr.u32 %r0, %r1, %r2;", "%r0", &two(&[(MIN, 31, 1), (ALL, 32, 0), (ALL, ALL, 0)]));
    check(
        "shr.s32 %r0, %r1, %r2;",
        "%r0",
        &two(&[(MIN, 31, ALL), (MIN, 40, ALL), (MAX, 40, 0), (0x40, 4, 4)]),
    );
    check("shr.b32 %r0, %r1, %r2;", "%r0", &two(&[(MIN, 31, 1)]));
    check("shl.b64 %rd0, %rd1, %r2;", "%rd0", &two(&[(1, 63, 1 << 63), (1, 64, 0)]));
    check("shr.s64 %rd0, %rd1, %r2;", "%rd0", &two(&[(1 << 63, 99, u64::MAX)]));
    check("shl.b16 %h0, %h1, %r2;", "%h0", &two(&[(0xffff, 8, 0xff00), (1, 16, 0)]));
    check("shr.s16 %h0, %h1, %r2;", "%h0", &two(&[(0x8000, 15, 0xffff), (0x8000, 20, 0xffff)]));
    let cases = [(0x1234_5678, 0x9abc_def0, 8, 0xbcde_f012), (1, 2, 32 + 8, 0x200)];
    check("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", "%r0", &three(&cases));
    check("shf.l.clamp.b32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(7, 9, 40, 7), (7, 9, 0, 9)]));
    check("shf.r.wrap.b32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(0x1234_5678, 0x9abc_def0, 8, 0xf012_3456)]));
    check(
        "shf.r.clamp.b32 %r0, %r1, %r2, %r3;",
        "%r0",
        &three(&[(7, 9, 32, 9), (7, 9, 99, 9), (7, 9, 0, 7)]),
    );
}

#[test]
fn logic() {
    check("and.b32 %r0, %r1, %r2;", "%r0", &two(&[(0xff0, 0x0ff, 0x0f0)]));
    check("or.b64 %rd0, %rd1, %rd2;", "%rd0", &two(&[(1 << 40, 1, 1 << 40 | 1)]));
    check("xor.b16 %h0, %h1, %h2;", "%h0", &two(&[(0xffff, 0x0f0f, 0xf0f0)]));
    check("not.b32 %r0, %r1;", "%r0", &one(&[(0, ALL), (0xff, 0xffff_ff00)]));
    check("not.b16 %h0, %h1;", "%h0", &one(&[(0xff, 0xff00)]));
    check("cnot.b32 %r0, %r1;", "%r0", &one(&[(0, 1), (7, 0)]));
    let three_ways = |table: u64, f: fn(u64, u64, u64) -> u64| {
        let (a, b, c) = (0xf0f0_1234, 0xcccc_5678, 0xaaaa_9abc);
        check(
            &format!("lop3.b32 %r0, %r1, %r2, %r3, {table:#x};"),
            "%r0",
            &three(&[(a, b, c, f(a, b, c) & ALL)]),
        );
    };
    // The ISA: the table is the function of 0xF0, 0xCC and 0xAA.
    three_ways(0x80, |a, b, c| a & b & c);
    three_ways(0xfe, |a, b, c| a | b | c);
    three_ways(0x96, |a, b, c| a ^ b ^ c);
    three_ways(0x1a, |a, b, c| (a & b | c) ^ a);
    three_ways(0xca, |a, b, c| (a & b) | (!a & c));
}

#[test]
fn counting_bits() {
    check("popc.b32 %r0, %r1;", "%r0", &one(&[(0, 0), (ALL, 32), (0x8001, 2)]));
    check("popc.b64 %r0, %rd1;", "%r0", &one(&[(u64::MAX, 64)]));
    check("clz.b32 %r0, %r1;", "%r0", &one(&[(0, 32), (1, 31), (MIN, 0)]));
    check("clz.b64 %r0, %rd1;", "%r0", &one(&[(0, 64), (1, 63)]));
    check("brev.b32 %r0, %r1;", "%r0", &one(&[(1, MIN), (0x8000_0001, 0x8000_0001), (0xf, 0xf000_0000)]));
    check("brev.b64 %rd0, %rd1;", "%rd0", &one(&[(1, 1 << 63)]));
    check("bfind.u32 %r0, %r1;", "%r0", &one(&[(0, ALL), (1, 0), (MIN, 31)]));
    check("bfind.s32 %r0, %r1;", "%r0", &one(&[(ALL, ALL), (0, ALL), (MIN, 30), (0x10, 4)]));
    check("bfind.shiftamt.u32 %r0, %r1;", "%r0", &one(&[(0, ALL), (1, 31), (MIN, 0)]));
    check("bfind.u64 %r0, %rd1;", "%r0", &one(&[(1 << 40, 40)]));
}

#[test]
fn fields() {
    let unsigned =
        [(0x1234_5678, 8, 8, 0x56), (ALL, 28, 8, 0xf), (ALL, 0, 0, 0), (ALL, 0, 32, ALL), (ALL, 40, 4, 0)];
    check("bfe.u32 %r0, %r1, %r2, %r3;", "%r0", &three(&unsigned));
    // The sign beyond the word is that of the word.
    let signed = [
        (0x0000_8000, 8, 8, 0xffff_ff80),
        (0x7f00, 8, 8, 0x7f),
        (MIN, 28, 8, 0xffff_fff8),
        (ALL, 3, 0, 0),
        (MIN, 40, 4, ALL),
    ];
    check("bfe.s32 %r0, %r1, %r2, %r3;", "%r0", &three(&signed));
    check("bfe.u64 %rd0, %rd1, %r2, %r3;", "%rd0", &three(&[(0x1234_5678_9abc_def0, 32, 16, 0x5678)]));
    let insert = [
        ([0xab, ALL, 8, 8], 0xffff_abff),
        ([0xab, 0x1111_1111, 28, 8], 0xb111_1111),
        ([1, 7, 0, 0], 7),
        ([1, 7, 33, 4], 7),
        ([5, 7, 0, 32], 5),
    ];
    check("bfi.b32 %r0, %r1, %r2, %r3, %r4;", "%r0", &insert);
    check("bfi.b64 %rd0, %rd1, %rd2, %r3, %r4;", "%rd0", &[([0xff, 0, 40, 8], 0xff << 40)]);
}

#[test]
fn permutations_of_bytes() {
    let (a, b) = (0x3322_1100, 0x7766_5588);
    let index =
        [(a, b, 0x3210, a), (a, b, 0x7654, b), (a, b, 0x0123, 0x0011_2233), (a, b, 0x8cd4, 0x00ff_0088)];
    check("prmt.b32 %r0, %r1, %r2, %r3;", "%r0", &three(&index));
    let modes = [
        ("f4e", [0x3322_1100, 0x8833_2211, 0x5588_3322, 0x6655_8833]),
        ("b4e", [0x5566_7700, 0x6677_0011, 0x7700_1122, 0x0011_2233]),
        ("rc8", [0x0000_0000, 0x1111_1111, 0x2222_2222, 0x3333_3333]),
        ("ecl", [0x3322_1100, 0x3322_1111, 0x3322_2222, 0x3333_3333]),
        ("ecr", [0x0000_0000, 0x1111_1100, 0x2222_1100, 0x3322_1100]),
        ("rc16", [0x1100_1100, 0x3322_3322, 0x1100_1100, 0x3322_3322]),
    ];
    for (mode, wanted) in modes {
        let cases: Vec<_> = wanted.iter().enumerate().map(|(i, &wanted)| (a, b, i as u64, wanted)).collect();
        check(&format!("prmt.b32.{mode} %r0, %r1, %r2, %r3;"), "%r0", &three(&cases));
    }
}

#[test]
fn products_of_bytes() {
    check(
        "dp4a.u32.u32 %r0, %r1, %r2, %r3;",
        "%r0",
        &three(&[(0x0102_0304, 0x0506_0708, 10, 80), (0xff00_0000, 0xff00_0000, 0, 65025)]),
    );
    check("dp4a.s32.s32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(0xff, 0x02, 10, 8), (0x80, 0x80, 0, 16384)]));
    check("dp4a.s32.u32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(0xff, 0xff, 0, (-255i32) as u32 as u64)]));
    // The halves 3 and 2 with the bytes 8 and 7, or with 6 and 5.
    let (a, b) = (0x0002_0003, 0x0506_0708);
    check("dp2a.lo.u32.u32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(a, b, 10, 48), (a, b, ALL, 37)]));
    check("dp2a.hi.u32.u32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(a, b, 10, 38)]));
    // −1 · −128 and −32768 · 127. With unsigned bytes: −1 · 128.
    check(
        "dp2a.lo.s32.s32 %r0, %r1, %r2, %r3;",
        "%r0",
        &three(&[(0xffff, 0x80, 0, 128), (0x8000_0000, 0x7f00, 0, (-4_161_536i32) as u32 as u64)]),
    );
    check("dp2a.hi.s32.u32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(0xffff, 0x80_0000, 0, 0xffff_ff80)]));
    check("dp2a.lo.u32.s32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(0xffff, 0xff, 0, 0xffff_0001)]));
}

#[test]
fn distances_of_bytes() {
    let cases = [(0x0102_ff80, 0x0301_0180, 0x0201_fe00), (0, ALL, ALL), (ALL, 0, ALL)];
    check("mov.u32 %r3, 9; vabsdiff4.u32.u32.u32 %r0, %r1, %r2, %r3;", "%r0", &two(&cases));
    let sums = [(0x0102_ff80, 0x0301_0180, 10, 2 + 1 + 254 + 10), (0, ALL, 0xffff_ffff, 4 * 255 - 1)];
    check("vabsdiff4.u32.u32.u32.add %r0, %r1, %r2, %r3;", "%r0", &three(&sums));
}

#[test]
fn products_of_24_bits() {
    // Bits above the lower 24 do not count: 0xffffff², 2^48 − 2^25 + 1.
    let top = 0xabff_ffff;
    check("mul24.lo.u32 %r0, %r1, %r2;", "%r0", &two(&[(top, top, 0xfe00_0001), (0x0100_0003, 5, 15)]));
    check(
        "mul24.hi.u32 %r0, %r1, %r2;",
        "%r0",
        &two(&[(top, top, 0xffff_fe00), (0x10_0000, 0x10_0000, 1 << 24)]),
    );
    // With signs, 0xffffff is −1 and 0x800000 is −2^23.
    check("mul24.lo.s32 %r0, %r1, %r2;", "%r0", &two(&[(top, 3, 0xffff_fffd), (0x80_0000, 2, 0xff00_0000)]));
    check("mul24.hi.s32 %r0, %r1, %r2;", "%r0", &two(&[(top, 3, ALL), (0x80_0000, 0x80_0000, 0x4000_0000)]));
    check("mad24.lo.s32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(top, 3, 5, 2)]));
    check("mad24.hi.u32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(0x10_0000, 0x10_0000, 7, (1 << 24) + 7)]));
    check(
        "mad24.hi.sat.s32 %r0, %r1, %r2, %r3;",
        "%r0",
        &three(&[(0x80_0000, 0x80_0000, 0x4000_0000, MAX), (0x80_0000, 0x7f_ffff, MIN, MIN)]),
    );
}

#[test]
fn comparisons_and_choices() {
    check("setp.lt.s32 %p0, %r1, %r2;", "%p0", &two(&[(ALL, 1, 1), (1, ALL, 0), (1, 1, 0)]));
    check("setp.lt.u32 %p0, %r1, %r2;", "%p0", &two(&[(ALL, 1, 0), (1, ALL, 1)]));
    check("setp.hs.u32 %p0, %r1, %r2;", "%p0", &two(&[(ALL, 1, 1), (1, 1, 1), (0, 1, 0)]));
    check("setp.ne.b64 %p0, %rd1, %rd2;", "%p0", &two(&[(1 << 40, 0, 1), (3, 3, 0)]));
    check("setp.gt.s16 %p0, %h1, %h2;", "%p0", &two(&[(0xffff, 0, 0), (1, 0, 1)]));
    // p = (a < b) and c; q = not (a < b) and c.
    let both = "setp.ne.u32 %p1, %r3, 0; setp.lt.and.s32 %p0|%p2, %r1, %r2, %p1; selp.u32 %r5, 2, 0, %p2; selp.u32 %r6, 1, 0, %p0; or.b32 %r0, %r5, %r6;";
    check(both, "%r0", &three(&[(1, 2, 1, 1), (2, 1, 1, 2), (1, 2, 0, 0), (2, 1, 0, 0)]));
    let not = "setp.ne.u32 %p1, %r3, 0; setp.lt.or.s32 %p0, %r1, %r2, !%p1;";
    check(not, "%p0", &three(&[(2, 1, 0, 1), (2, 1, 1, 0), (1, 2, 1, 1)]));
    let xor = "setp.ne.u32 %p1, %r3, 0; setp.eq.xor.s32 %p0, %r1, %r2, %p1;";
    check(xor, "%p0", &three(&[(1, 1, 0, 1), (1, 1, 1, 0), (1, 2, 1, 1)]));
    check("set.lt.u32.s32 %r0, %r1, %r2;", "%r0", &two(&[(ALL, 1, ALL), (1, 1, 0)]));
    check("set.ge.f32.u32 %f0, %r1, %r2;", "%f0", &two(&[(ALL, 1, 0x3f80_0000), (0, 1, 0)]));
    check(
        "setp.ne.s32 %p1, %r3, 0; selp.b64 %rd0, %rd1, %rd2, %p1;",
        "%rd0",
        &three(&[(5, 6, 1, 5), (5, 6, 0, 6)]),
    );
    check("slct.u32.s32 %r0, %r1, %r2, %r3;", "%r0", &three(&[(5, 6, 0, 5), (5, 6, MIN, 6)]));
    // The ISA: −0 counts as not negative, NaN as negative.
    check(
        "slct.b32.f32 %r0, %r1, %r2, %f3;",
        "%r0",
        &three(&[(5, 6, MIN, 5), (5, 6, 0x7fc0_0000, 6), (5, 6, 0xbf80_0000, 6)]),
    );
    let predicates = "setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r2, 0; and.pred %p3, %p1, !%p2; not.pred %p3, %p3; xor.pred %p0, %p3, %p1;";
    check(predicates, "%p0", &two(&[(0, 0, 1), (1, 0, 1), (1, 1, 0), (0, 1, 1)]));
}

#[test]
fn packing() {
    check("mov.b64 %rd0, {%r1, %r2};", "%rd0", &two(&[(1, 2, 2 << 32 | 1)]));
    check("mov.b64 {%r5, %r0}, %rd1;", "%r0", &one(&[(2 << 32 | 1, 2)]));
    check("mov.b64 {%r0, _}, %rd1;", "%r0", &one(&[(2 << 32 | 1, 1)]));
    check("mov.b32 %r0, {%h1, %h2};", "%r0", &two(&[(0x1234, 0x5678, 0x5678_1234)]));
    check("mov.b32 {%h5, %h0}, %r1;", "%h0", &one(&[(0x5678_1234, 0x5678)]));
    check("mov.b64 %rd0, {%h1, %h2, %h3, %h4};", "%rd0", &[([1, 2, 3, 4], 0x0004_0003_0002_0001)]);
    check("mov.b64 {%h5, %h6, %h0, %h7}, %rd1;", "%h0", &one(&[(0x0004_0003_0002_0001, 3)]));
    check("mov.pred %p0, -1;", "%p0", &one(&[(0, 1)]));
    check("mov.pred %p0, 0;", "%p0", &one(&[(0, 0)]));
    check("mov.f32 %f0, 0f40490FDB;", "%f0", &one(&[(0, 0x4049_0fdb)]));
    check("mov.f64 %fd0, 1.5;", "%fd0", &one(&[(0, 0x3ff8_0000_0000_0000)]));
    check("mov.u32 %r0, (1 << 4) | 3;", "%r0", &one(&[(0, 19)]));
}

#[test]
fn pairs_of_16_bits() {
    let (a, b) = (0x7fff_ffff, 0x0001_0002);
    check("add.s16x2 %r0, %r1, %r2;", "%r0", &two(&[(a, b, 0x8000_0001)]));
    check("add.u16x2 %r0, %r1, %r2;", "%r0", &two(&[(a, b, 0x8000_0001)]));
    // 32767 and −1 with 1 and 2, then −32768 and 5 with −3 and −4.
    let (c, d) = (0x8000_0005, 0xfffd_fffc);
    check("min.s16x2 %r0, %r1, %r2;", "%r0", &two(&[(a, b, 0x0001_ffff), (c, d, 0x8000_fffc)]));
    check("max.s16x2 %r0, %r1, %r2;", "%r0", &two(&[(a, b, 0x7fff_0002), (c, d, 0xfffd_0005)]));
    check("min.u16x2 %r0, %r1, %r2;", "%r0", &two(&[(a, b, 0x0001_0002), (c, d, 0x8000_0005)]));
    check("max.u16x2 %r0, %r1, %r2;", "%r0", &two(&[(a, b, 0x7fff_ffff), (c, d, 0xfffd_fffc)]));
    check("min.relu.s16x2 %r0, %r1, %r2;", "%r0", &two(&[(a, b, 0x0001_0000), (c, d, 0)]));
    check("max.s16x2.relu %r0, %r1, %r2;", "%r0", &two(&[(a, b, 0x7fff_0002), (c, d, 5)]));
    check("min.relu.s32 %r0, %r1, %r2;", "%r0", &two(&[(7, 5, 5), (ALL, 5, 0), (MIN, MAX, 0)]));
    check("max.relu.s32 %r0, %r1, %r2;", "%r0", &two(&[(7, 5, 7), (ALL, MIN, 0), (MIN, 3, 3)]));
}

#[test]
fn masks_and_short_numbers() {
    let cases =
        [(4, 8, 0xff0), (0, 0, 0), (0, 31, MAX), (28, 8, 0xf000_0000), (31, 31, MIN), (16, 16, 0xffff_0000)];
    for mode in ["clamp", "wrap"] {
        check(&format!("bmsk.{mode}.b32 %r0, %r1, %r2;"), "%r0", &two(&cases));
    }
    check(
        "bmsk.clamp.b32 %r0, %r1, %r2;",
        "%r0",
        &two(&[(0, 32, ALL), (8, 99, 0xffff_ff00), (32, 4, 0), (ALL, ALL, 0)]),
    );
    check("bmsk.wrap.b32 %r0, %r1, %r2;", "%r0", &two(&[(0, 32, 0), (36, 40, 0xff0), (ALL, 1, MIN)]));
    // The sign is that of the highest kept bit.
    let signed = [(0x1280, 8, 0xffff_ff80), (0x127f, 8, 0x7f), (3, 1, ALL), (3, 0, 0), (MIN, 31, 0)];
    let unsigned = [(0x1280, 8, 0x80), (ALL, 1, 1), (ALL, 0, 0), (ALL, 31, MAX)];
    for mode in ["clamp", "wrap"] {
        check(&format!("szext.{mode}.s32 %r0, %r1, %r2;"), "%r0", &two(&signed));
        check(&format!("szext.{mode}.u32 %r0, %r1, %r2;"), "%r0", &two(&unsigned));
    }
    check("szext.clamp.s32 %r0, %r1, %r2;", "%r0", &two(&[(MIN, 32, MIN), (7, ALL, 7)]));
    check("szext.wrap.s32 %r0, %r1, %r2;", "%r0", &two(&[(MIN, 32, 0), (7, 33, ALL), (7, ALL, 7)]));
    check("szext.clamp.u32 %r0, %r1, %r2;", "%r0", &two(&[(ALL, 32, ALL)]));
    check("szext.wrap.u32 %r0, %r1, %r2;", "%r0", &two(&[(ALL, 32, 0), (ALL, 35, 7)]));
}

#[test]
fn the_nth_bit_that_is_set() {
    // Bits 1, 4, 5 and 31.
    let mask = 0x8000_0032;
    let minus = |n: u64| (1 << 32) - n;
    let cases = [
        (mask, 0, 1, 1),
        (mask, 1, 1, 1),
        (mask, 2, 1, 4),
        (mask, 0, 4, 31),
        (mask, 0, 5, ALL),
        (mask, 31, minus(1), 31),
        (mask, 30, minus(2), 4),
        (mask, 3, minus(2), ALL),
        (mask, 4, 0, 4),
        (mask, 3, 0, ALL),
        (mask, 0, MIN, ALL),
        (0, 0, 1, ALL),
    ];
    check("fns.b32 %r0, %r1, %r2, %r3;", "%r0", &three(&cases));
}

#[test]
fn logic_of_three_that_makes_a_predicate() {
    let with =
        |op: &str| format!("setp.ne.u32 %p1, %r4, 0; lop3.{op}.b32 %r5|%p0, %r1, %r2, %r3, 0x80, %p1;");
    let some = [([6, 3, 2, 0], 0), ([6, 3, 2, 1], 1), ([6, 3, 4, 0], 0), ([6, 3, 4, 1], 0)];
    check(&with("and"), "%p0", &some);
    let any = [([6, 3, 2, 0], 1), ([6, 3, 2, 1], 1), ([6, 3, 4, 0], 0), ([6, 3, 4, 1], 1)];
    check(&with("or"), "%p0", &any);
    let result = "lop3.or.b32 %r0|%p1, %r1, %r2, %r3, 0x96, 0;";
    check(result, "%r0", &three(&[(6, 3, 2, 7)]));
    // Neither the result nor the input predicate is needed.
    let itself = "setp.eq.u32 %p0, %r4, 0; lop3.and.b32 _|%p0, %r1, %r2, %r3, 0xfe, !%p0;";
    check(itself, "%p0", &[([1, 0, 0, 0], 0), ([1, 0, 0, 1], 1), ([0, 0, 0, 1], 0)]);
}
