//! Floats of 16 bits, alone and in pairs: results worked out by hand from the descriptions of the ISA.

use crate::harness::{check, one, three, two};
use half::{bf16, f16};

/// A NaN as operand, and the NaN that instructions return.
const QUIET: u64 = 0x7e00;
const NAN: u64 = 0x7fff;

fn h(x: f32) -> u64 {
    u64::from(f16::from_f32(x).to_bits())
}

fn b(x: f32) -> u64 {
    u64::from(bf16::from_f32(x).to_bits())
}

fn pair(low: u64, high: u64) -> u64 {
    high << 16 | low
}

#[test]
fn f16_and_pairs() {
    // 2049 is halfway between 2048 and 2050: ties to even.
    check("add.f16 %h0, %h1, %h2;", "%h0", &two(&[(h(2048.0), h(1.0), h(2048.0)), (h(1.5), h(2.0), h(3.5))]));
    check("mul.f16 %h0, %h1, %h2;", "%h0", &two(&[(h(60000.0), h(2.0), 0x7c00), (h(0.5), h(3.0), h(1.5))]));
    check("sub.rn.f16 %h0, %h1, %h2;", "%h0", &two(&[(h(1.0), h(1.0), 0)]));
    check("add.sat.f16 %h0, %h1, %h2;", "%h0", &two(&[(h(1.0), h(1.0), h(1.0)), (h(-1.0), h(0.5), 0)]));
    check("add.ftz.f16 %h0, %h1, %h2;", "%h0", &two(&[(1, 1, 0)]));
    check("add.f16 %h0, %h1, %h2;", "%h0", &two(&[(1, 1, 2)]));
    // A separate rounding of the product would give 1 + 2^-9.
    let x = 1.0 + f32::powi(2.0, -10);
    let wanted = f32::powi(2.0, -20);
    let cases = three(&[(h(x), h(x), h(-(1.0 + f32::powi(2.0, -9))), h(wanted))]);
    check("fma.rn.f16 %h0, %h1, %h2, %h3;", "%h0", &cases);
    check("fma.rn.relu.f16 %h0, %h1, %h2, %h3;", "%h0", &three(&[(h(-1.0), h(1.0), h(0.5), 0)]));
    let pairs = [(pair(h(1.0), h(2.0)), pair(h(3.0), h(-4.0)), pair(h(4.0), h(-2.0)))];
    check("add.f16x2 %r0, %r1, %r2;", "%r0", &two(&pairs));
    let fma = [(pair(h(1.0), h(2.0)), pair(h(3.0), h(-4.0)), pair(h(0.5), h(0.25)), pair(h(3.5), h(-7.75)))];
    check("fma.rn.f16x2 %r0, %r1, %r2, %r3;", "%r0", &three(&fma));
    let fma = [(pair(b(1.0), b(2.0)), pair(b(3.0), b(-4.0)), pair(b(0.5), b(0.25)), pair(b(3.5), b(-7.75)))];
    check("fma.rn.bf16x2 %r0, %r1, %r2, %r3;", "%r0", &three(&fma));
    check("fma.rn.bf16 %h0, %h1, %h2, %h3;", "%h0", &three(&[(b(256.0), b(1.0), b(1.0), b(256.0))]));
    check("max.f16 %h0, %h1, %h2;", "%h0", &two(&[(QUIET, h(1.0), h(1.0)), (h(1.0), h(2.0), h(2.0))]));
    check(
        "max.NaN.f16x2 %r0, %r1, %r2;",
        "%r0",
        &two(&[(pair(QUIET, h(1.0)), pair(h(1.0), h(2.0)), pair(0x7fff, h(2.0)))]),
    );
    check(
        "min.bf16x2 %r0, %r1, %r2;",
        "%r0",
        &two(&[(pair(b(1.0), b(-1.0)), pair(b(2.0), b(-2.0)), pair(b(1.0), b(-2.0)))]),
    );
    check("set.lt.f16.f16 %h0, %h1, %h2;", "%h0", &two(&[(h(1.0), h(2.0), 0x3c00), (h(2.0), h(1.0), 0)]));
    check(
        "set.eq.f16x2.f16x2 %r0, %r1, %r2;",
        "%r0",
        &two(&[
            (pair(h(1.0), h(2.0)), pair(h(1.0), h(3.0)), 0x3c00),
            (pair(h(1.0), h(3.0)), pair(h(2.0), h(3.0)), 0x3c00_0000),
        ]),
    );
    check(
        "set.ne.u32.f16x2 %r0, %r1, %r2;",
        "%r0",
        &two(&[(pair(h(1.0), h(2.0)), pair(h(1.0), h(3.0)), 0xffff_0000)]),
    );
    check("neg.bf16 %h0, %h1;", "%h0", &one(&[(b(1.0), b(-1.0))]));
    check("abs.f16x2 %r0, %r1;", "%r0", &one(&[(pair(h(-1.0), h(2.0)), pair(h(1.0), h(2.0)))]));
    check("ex2.approx.f16 %h0, %h1;", "%h0", &one(&[(h(3.0), h(8.0))]));
    check("tanh.approx.f16 %h0, %h1;", "%h0", &one(&[(h(0.0), 0), (h(20.0), h(1.0))]));
    check("setp.lt.f16 %p0, %h1, %h2;", "%p0", &two(&[(h(1.0), h(2.0), 1), (QUIET, h(2.0), 0)]));
    let both = "setp.lt.f16x2 %p0|%p1, %r1, %r2; selp.u32 %r5, 1, 0, %p0; selp.u32 %r6, 2, 0, %p1; or.b32 %r0, %r5, %r6;";
    check(
        both,
        "%r0",
        &two(&[
            (pair(h(1.0), h(5.0)), pair(h(2.0), h(4.0)), 1),
            (pair(h(3.0), h(3.0)), pair(h(2.0), h(4.0)), 2),
        ]),
    );
}

#[test]
fn modifiers_of_f16() {
    // 3 is clamped to 1, −1 to 0, NaN to 0.
    let cases =
        [(h(1.0), h(2.0), h(1.0)), (h(0.5), h(-1.5), 0), (QUIET, h(1.0), 0), (h(0.25), h(0.5), h(0.75))];
    check("add.rn.sat.f16 %h0, %h1, %h2;", "%h0", &two(&cases));
    check("sub.sat.f16 %h0, %h1, %h2;", "%h0", &two(&[(h(3.0), h(1.0), h(1.0)), (h(1.0), h(0.5), h(0.5))]));
    check(
        "mul.sat.f16x2 %r0, %r1, %r2;",
        "%r0",
        &two(&[(pair(h(2.0), h(-2.0)), pair(h(2.0), h(2.0)), h(1.0))]),
    );
    check("fma.rn.sat.f16 %h0, %h1, %h2, %h3;", "%h0", &three(&[(h(2.0), h(2.0), h(1.0), h(1.0))]));
    // 2^-14 is the smallest normal number. Half of it is flushed, with its sign.
    check("mul.ftz.f16 %h0, %h1, %h2;", "%h0", &two(&[(0x0400, h(0.5), 0), (0x0400, h(-0.5), 0x8000)]));
    check("sub.ftz.f16x2 %r0, %r1, %r2;", "%r0", &two(&[(pair(2, h(1.0)), pair(1, 1), pair(0, h(1.0)))]));
    check("fma.rn.ftz.f16x2 %r0, %r1, %r2, %r3;", "%r0", &three(&[(pair(1, 1), pair(h(4.0), h(4.0)), 0, 0)]));
    // Negative results become 0, and NaN stays.
    let relu = [
        (pair(h(-1.0), h(2.0)), pair(h(3.0), h(3.0)), pair(h(1.0), h(1.0)), pair(0, h(7.0))),
        (pair(QUIET, h(1.0)), pair(h(1.0), h(1.0)), pair(h(1.0), h(-1.0)), pair(NAN, 0)),
    ];
    check("fma.rn.relu.f16x2 %r0, %r1, %r2, %r3;", "%r0", &three(&relu));
    check(
        "fma.rn.ftz.relu.f16 %h0, %h1, %h2, %h3;",
        "%h0",
        &three(&[(1, h(1.0), h(-1.0), 0), (1, h(1.0), 1, 0)]),
    );
    check("max.ftz.f16 %h0, %h1, %h2;", "%h0", &two(&[(1, h(-1.0), 0)]));
    check("min.NaN.f16 %h0, %h1, %h2;", "%h0", &two(&[(QUIET, h(1.0), NAN), (h(2.0), h(1.0), h(1.0))]));
    check(
        "min.f16x2 %r0, %r1, %r2;",
        "%r0",
        &two(&[(pair(h(0.0), QUIET), pair(h(-0.0), h(1.0)), pair(0x8000, h(1.0)))]),
    );
    check("neg.f16x2 %r0, %r1;", "%r0", &one(&[(pair(h(-1.0), 0), pair(h(1.0), 0x8000))]));
    check("neg.ftz.f16 %h0, %h1;", "%h0", &one(&[(1, 0x8000)]));
    check("abs.f16 %h0, %h1;", "%h0", &one(&[(h(-3.0), h(3.0))]));
}

#[test]
fn bf16_and_pairs() {
    // 257 is halfway between 256 and 258, and 259 between 258 and 260: ties to even.
    check(
        "add.bf16 %h0, %h1, %h2;",
        "%h0",
        &two(&[(b(256.0), b(1.0), b(256.0)), (b(258.0), b(1.0), b(260.0))]),
    );
    check("sub.rn.bf16 %h0, %h1, %h2;", "%h0", &two(&[(b(1.0), b(3.0), b(-2.0)), (b(2.0), b(2.0), 0)]));
    check("mul.bf16 %h0, %h1, %h2;", "%h0", &two(&[(b(1e30), b(-1e30), 0xff80), (b(1.5), b(1.5), b(2.25))]));
    let (x, y) = (pair(b(1.0), b(2.0)), pair(b(0.5), b(-4.0)));
    check("add.rn.bf16x2 %r0, %r1, %r2;", "%r0", &two(&[(x, y, pair(b(1.5), b(-2.0)))]));
    check("sub.bf16x2 %r0, %r1, %r2;", "%r0", &two(&[(x, y, pair(b(0.5), b(6.0)))]));
    check("mul.bf16x2 %r0, %r1, %r2;", "%r0", &two(&[(x, y, pair(b(0.5), b(-8.0)))]));
    check("fma.rn.relu.bf16x2 %r0, %r1, %r2, %r3;", "%r0", &three(&[(x, y, pair(b(1.0), b(1.0)), b(1.5))]));
    check("fma.rn.relu.bf16 %h0, %h1, %h2, %h3;", "%h0", &three(&[(b(1.0), b(1.0), b(-2.0), 0)]));
    check("max.NaN.bf16x2 %r0, %r1, %r2;", "%r0", &two(&[(pair(0x7fc0, b(2.0)), y, pair(NAN, b(2.0)))]));
    check("max.bf16 %h0, %h1, %h2;", "%h0", &two(&[(0x7fc0, b(2.0), b(2.0)), (b(-1.0), b(-2.0), b(-1.0))]));
    check("min.NaN.bf16 %h0, %h1, %h2;", "%h0", &two(&[(b(2.0), 0x7fc0, NAN), (b(-1.0), b(-2.0), b(-2.0))]));
    check("neg.bf16x2 %r0, %r1;", "%r0", &one(&[(x, pair(b(-1.0), b(-2.0)))]));
    check("abs.bf16x2 %r0, %r1;", "%r0", &one(&[(y, pair(b(0.5), b(4.0)))]));
    check("abs.bf16 %h0, %h1;", "%h0", &one(&[(b(-4.0), b(4.0))]));
    check(
        "setp.lt.bf16 %p0, %h1, %h2;",
        "%p0",
        &two(&[(b(1.0), b(2.0), 1), (b(2.0), b(1.0), 0), (0x7fc0, 0, 0)]),
    );
    check("setp.geu.bf16 %p0, %h1, %h2;", "%p0", &two(&[(b(1.0), b(2.0), 0), (0x7fc0, 0, 1)]));
    check("set.ge.bf16.bf16 %h0, %h1, %h2;", "%h0", &two(&[(b(2.0), b(2.0), b(1.0)), (b(1.0), b(2.0), 0)]));
    check("set.gt.bf16x2.bf16x2 %r0, %r1, %r2;", "%r0", &two(&[(x, y, pair(b(1.0), b(1.0))), (y, x, 0)]));
    let both = "setp.gt.bf16x2 %p0|%p1, %r1, %r2; selp.u32 %r5, 1, 0, %p0; selp.u32 %r6, 2, 0, %p1; or.b32 %r0, %r5, %r6;";
    check(both, "%r0", &two(&[(x, y, 3), (y, x, 0), (pair(b(1.0), b(-5.0)), y, 1)]));
}

#[test]
fn approximations_of_powers_of_two() {
    check("ex2.approx.f16x2 %r0, %r1;", "%r0", &one(&[(pair(h(-1.0), h(4.0)), pair(h(0.5), h(16.0)))]));
    check("tanh.approx.f16x2 %r0, %r1;", "%r0", &one(&[(pair(0, h(-20.0)), pair(0, h(-1.0)))]));
    check("ex2.approx.ftz.bf16 %h0, %h1;", "%h0", &one(&[(b(-2.0), b(0.25)), (0x7f80, 0x7f80), (0xff80, 0)]));
    check("ex2.approx.ftz.bf16x2 %r0, %r1;", "%r0", &one(&[(pair(b(3.0), b(-1.0)), pair(b(8.0), b(0.5)))]));
    check("tanh.approx.bf16 %h0, %h1;", "%h0", &one(&[(b(-30.0), b(-1.0)), (0, 0)]));
    check("tanh.approx.bf16x2 %r0, %r1;", "%r0", &one(&[(pair(b(30.0), 0x8000), pair(b(1.0), 0x8000))]));
}
