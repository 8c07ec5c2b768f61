//! `cvt` is right for every rounding, saturation and width.

use crate::harness::{check, d, one, s, two};

const ALL: u64 = 0xffff_ffff;
const NAN: u64 = 0x7fc0_0000;

fn i(x: i32) -> u64 {
    u64::from(x as u32)
}

#[test]
fn floats_to_whole_numbers() {
    let inputs = [2.5f32, -2.5, 3.5, 2.7, -2.7, 0.4];
    for (round, wanted) in [
        ("rni", [2, -2, 4, 3, -3, 0]),
        ("rzi", [2, -2, 3, 2, -2, 0]),
        ("rmi", [2, -3, 3, 2, -3, 0]),
        ("rpi", [3, -2, 4, 3, -2, 1]),
    ] {
        let cases: Vec<_> = inputs.iter().zip(wanted).map(|(&x, wanted)| (s(x), i(wanted))).collect();
        check(&format!("cvt.{round}.s32.f32 %r0, %f1;"), "%r0", &one(&cases));
        let cases: Vec<_> =
            inputs.iter().zip(wanted).map(|(&x, wanted)| (s(x), s((wanted as f32).copysign(x)))).collect();
        check(&format!("cvt.{round}.f32.f32 %f0, %f1;"), "%f0", &one(&cases));
        let cases: Vec<_> =
            inputs.iter().zip(wanted).map(|(&x, wanted)| (d(x.into()), i64::from(wanted) as u64)).collect();
        check(&format!("cvt.{round}.s64.f64 %rd0, %fd1;"), "%rd0", &one(&cases));
    }
}

#[test]
fn what_does_not_fit_is_clamped() {
    let top = 0x7fff_ffff;
    check("cvt.rzi.s32.f32 %r0, %f1;", "%r0", &one(&[(s(1e10), top), (s(-1e10), 0x8000_0000), (NAN, 0)]));
    check("cvt.rzi.u32.f32 %r0, %f1;", "%r0", &one(&[(s(1e10), ALL), (s(-1.0), 0), (s(3e9), 3_000_000_000)]));
    check("cvt.rni.u8.f32 %r0, %f1;", "%r0", &one(&[(s(300.0), 255), (s(-5.0), 0), (s(7.5), 8)]));
    check("cvt.rni.s8.f32 %r0, %f1;", "%r0", &one(&[(s(300.0), 127), (s(-300.0), i(-128))]));
    check("cvt.rzi.s64.f32 %rd0, %f1;", "%rd0", &one(&[(s(1e30), i64::MAX as u64), (NAN, 1 << 63)]));
    check("cvt.rzi.u64.f64 %rd0, %fd1;", "%rd0", &one(&[(d(1e30), u64::MAX), (d(-1.0), 0)]));
    check("cvt.rzi.s32.f64 %r0, %fd1;", "%r0", &one(&[(d(f64::NAN), 0x8000_0000), (d(-3.7), i(-3))]));
    check("cvt.sat.u8.s32 %r0, %r1;", "%r0", &one(&[(i(-5), 0), (300, 255), (7, 7)]));
    check("cvt.sat.s16.s32 %h0, %r1;", "%h0", &one(&[(i(-40000), 0x8000), (40000, 0x7fff)]));
    check(
        "cvt.sat.f32.f32 %f0, %f1;",
        "%f0",
        &one(&[(s(1.5), s(1.0)), (s(-1.5), 0), (s(0.5), s(0.5)), (NAN, 0)]),
    );
    check("cvt.sat.u32.s64 %r0, %rd1;", "%r0", &one(&[(u64::MAX, 0), (1 << 40, ALL)]));
}

#[test]
fn whole_numbers() {
    check("cvt.s32.s8 %r0, %r1;", "%r0", &one(&[(0x80, i(-128)), (0x17f, 127)]));
    check("cvt.u32.u8 %r0, %r1;", "%r0", &one(&[(0x180, 0x80)]));
    check("cvt.s64.s32 %rd0, %r1;", "%rd0", &one(&[(ALL, u64::MAX)]));
    check("cvt.u64.u32 %rd0, %r1;", "%rd0", &one(&[(ALL, ALL)]));
    check("cvt.u64.s32 %rd0, %r1;", "%rd0", &one(&[(ALL, u64::MAX)]));
    check("cvt.u32.u64 %r0, %rd1;", "%r0", &one(&[(0x1_2345_6789, 0x2345_6789)]));
    check("cvt.u16.u32 %h0, %r1;", "%h0", &one(&[(0x12345, 0x2345)]));
    check("cvt.s32.s16 %r0, %h1;", "%r0", &one(&[(0x8000, i(-32768))]));
    check("cvt.u8.u32 %r0, %r1;", "%r0", &one(&[(0x1ff, 0xff)]));
    check("cvt.s8.s32 %r0, %r1;", "%r0", &one(&[(0xff, ALL)]));
}

#[test]
fn whole_numbers_to_floats() {
    // 2^24 + 1 is halfway. 2^24 + 3 is as well, but its lower neighbour is odd.
    let (a, b) = ((1 << 24) + 1, (1 << 24) + 3);
    let [low, middle, high] = [1 << 24, (1 << 24) + 2, (1 << 24) + 4].map(|x: i32| x as f32);
    for (round, wanted) in
        [("rn", [low, high]), ("rz", [low, middle]), ("rm", [low, middle]), ("rp", [middle, high])]
    {
        check(
            &format!("cvt.{round}.f32.u32 %f0, %r1;"),
            "%f0",
            &one(&[(a, s(wanted[0])), (b, s(wanted[1]))]),
        );
        check(
            &format!("cvt.{round}.f32.s64 %f0, %rd1;"),
            "%f0",
            &one(&[(a, s(wanted[0])), (b, s(wanted[1]))]),
        );
    }
    check("cvt.rz.f32.s32 %f0, %r1;", "%f0", &one(&[(i(-(1 << 24) - 1), s(-low))]));
    check("cvt.rm.f32.s32 %f0, %r1;", "%f0", &one(&[(i(-(1 << 24) - 1), s(-middle))]));
    check("cvt.rn.f64.u64 %fd0, %rd1;", "%fd0", &one(&[(u64::MAX, d(18_446_744_073_709_551_616.0)), (0, 0)]));
    check("cvt.rn.f16.s32 %h0, %r1;", "%h0", &one(&[(i(-3), 0xc200), (100_000, 0x7c00)]));
    check("cvt.rn.f32.u8 %f0, %r1;", "%f0", &one(&[(0x1ff, s(255.0))]));
}

#[test]
fn floats_to_floats() {
    let x = 1.0 + f64::powi(2.0, -24);
    let next = f32::from_bits(1f32.to_bits() + 1);
    for (round, wanted) in [("rn", 1.0), ("rz", 1.0), ("rm", 1.0), ("rp", next)] {
        check(
            &format!("cvt.{round}.f32.f64 %f0, %fd1;"),
            "%f0",
            &one(&[
                (d(x), s(wanted)),
                (d(1e300), if round == "rn" || round == "rp" { s(f32::INFINITY) } else { s(f32::MAX) }),
            ]),
        );
    }
    check("cvt.f64.f32 %fd0, %f1;", "%fd0", &one(&[(s(1.5), d(1.5)), (1, d(f64::powi(2.0, -149)))]));
    check("cvt.ftz.f64.f32 %fd0, %f1;", "%fd0", &one(&[(1, 0)]));
    // 1 + 2^-11 is halfway for f16. 65520 is the first number that rounds to infinity.
    let half = 1.0 + f32::powi(2.0, -11);
    check(
        "cvt.rn.f16.f32 %h0, %f1;",
        "%h0",
        &one(&[
            (s(half), 0x3c00),
            (s(65519.0), 0x7bff),
            (s(65520.0), 0x7c00),
            (NAN, 0x7fff),
            (s(-6e-8), 0x8001),
        ]),
    );
    check("cvt.rz.f16.f32 %h0, %f1;", "%h0", &one(&[(s(65520.0), 0x7bff), (s(-1e9), 0xfbff)]));
    check(
        "cvt.rn.bf16.f32 %h0, %f1;",
        "%h0",
        &one(&[
            (s(1.0 + f32::powi(2.0, -8)), 0x3f80),
            (s(1.0 + 3.0 * f32::powi(2.0, -8)), 0x3f82),
            (NAN, 0x7fff),
        ]),
    );
    check("cvt.rn.relu.bf16.f32 %h0, %f1;", "%h0", &one(&[(s(-1.0), 0), (s(1.0), 0x3f80)]));
    check(
        "cvt.f32.f16 %f0, %h1;",
        "%f0",
        &one(&[(0x3c00, s(1.0)), (0x0001, s(f32::powi(2.0, -24))), (0xfc00, s(f32::NEG_INFINITY))]),
    );
    check("cvt.rn.f16x2.f32 %r0, %f1, %f2;", "%r0", &two(&[(s(1.0), s(2.0), 0x3c00_4000)]));
    check("cvt.rn.bf16x2.f32 %r0, %f1, %f2;", "%r0", &two(&[(s(1.0), s(-2.0), 0x3f80_c000)]));
    check("cvt.rz.bf16x2.f32 %r0, %f1, %f2;", "%r0", &two(&[(0x3f80_ffff, 0xbf80_ffff, 0x3f80_bf80)]));
    check("cvt.rn.relu.f16x2.f32 %r0, %f1, %f2;", "%r0", &two(&[(s(-1.0), s(2.0), 0x0000_4000)]));
    // TF32 keeps 10 bits, and ties round away from zero.
    check(
        "cvt.rna.tf32.f32 %r0, %f1;",
        "%r0",
        &one(&[(0x3f80_1000, 0x3f80_2000), (0x3f80_0fff, 0x3f80_0000), (s(-3.0), s(-3.0))]),
    );
    check(
        "cvt.rn.f16.f64 %h0, %fd1;",
        "%h0",
        &one(&[(d(1.0 + f64::powi(2.0, -11) + f64::powi(2.0, -40)), 0x3c01)]),
    );
    check("cvt.rn.f32.s32 %f1, -7; cvt.ftz.f32.f32 %f0, %f1;", "%f0", &one(&[(0, s(-7.0))]));
}

#[test]
fn f32_of_bf16_on_later_targets() {
    // Before sm_90 a shift is the only way to do this conversion.
    check(
        "cvt.f32.bf16 %f0, %h1;",
        "%f0",
        &one(&[(0x3f80, s(1.0)), (0x0001, 0x0001_0000), (0x7fc0, 0x7fff_ffff)]),
    );
}

#[test]
fn directions_of_halves() {
    // Numbers between 1 and the next f16, 1 + 2^-10, and between 1 and the next bf16, 1 + 2^-7.
    for (round, plus, minus) in
        [("rn", 0x3c00, 0xbc00), ("rz", 0x3c00, 0xbc00), ("rm", 0x3c00, 0xbc01), ("rp", 0x3c01, 0xbc00)]
    {
        let x = 1.0 + f32::powi(2.0, -13);
        check(&format!("cvt.{round}.f16.f32 %h0, %f1;"), "%h0", &one(&[(s(x), plus), (s(-x), minus)]));
        let x = f64::from(x);
        check(&format!("cvt.{round}.f16.f64 %h0, %fd1;"), "%h0", &one(&[(d(x), plus), (d(-x), minus)]));
    }
    let x = 1.0 + f32::powi(2.0, -9);
    check("cvt.rz.bf16.f32 %h0, %f1;", "%h0", &one(&[(0x3f80_ffff, 0x3f80), (s(-1e39f64 as f32), 0xff80)]));
    check("cvt.rn.bf16.f64 %h0, %fd1;", "%h0", &one(&[(d(f64::from(x)), 0x3f80), (d(-1e300), 0xff80)]));
    check("cvt.rn.relu.f16.f32 %h0, %f1;", "%h0", &one(&[(s(-2.0), 0), (s(2.0), 0x4000), (NAN, 0x7fff)]));
    check("cvt.rz.relu.bf16x2.f32 %r0, %f1, %f2;", "%r0", &two(&[(0x3f80_ffff, s(-1.0), 0x3f80_0000)]));
    check("cvt.rn.sat.f16.f32 %h0, %f1;", "%h0", &one(&[(s(2.0), 0x3c00), (s(-2.0), 0), (NAN, 0)]));
    check("cvt.rz.f16x2.f32 %r0, %f1, %f2;", "%r0", &two(&[(s(65519.0), s(-65520.0), 0x7bff_fbff)]));
}

#[test]
fn halves_and_whole_numbers() {
    // The operands are 2.5 and −3.5, then infinity.
    check("cvt.rni.s32.f16 %r0, %h1;", "%r0", &one(&[(0x4100, 2), (0xc300, i(-4)), (0x7c00, 0x7fff_ffff)]));
    check("cvt.rzi.u16.f16 %h0, %h1;", "%h0", &one(&[(0x4300, 3), (0xc300, 0), (0x7bff, 65504)]));
    check("cvt.rmi.s64.f16 %rd0, %h1;", "%rd0", &one(&[(0xb800, u64::MAX)])); // −0.5
    check("cvt.rpi.f16.f16 %h0, %h1;", "%h0", &one(&[(0x4100, 0x4200), (0xb800, 0x8000)]));
    check("cvt.rz.f16.u32 %h0, %r1;", "%h0", &one(&[(2049, 0x6800), (2051, 0x6801), (100_000, 0x7bff)]));
    check("cvt.rp.f16.s64 %h0, %rd1;", "%h0", &one(&[(2049, 0x6801), (0u64.wrapping_sub(2049), 0xe800)]));
    check("cvt.rn.bf16.s32 %h0, %r1;", "%h0", &one(&[(257, 0x4380), (i(-3), 0xc040)]));
    check("cvt.rzi.s32.bf16 %r0, %h1;", "%r0", &one(&[(0x4049, 3), (0xc049, i(-3))]));
    check("cvt.f64.f16 %fd0, %h1;", "%fd0", &one(&[(1, d(f64::powi(2.0, -24))), (0xbc00, d(-1.0))]));
}

#[test]
fn tf32_keeps_ten_bits() {
    // Halfway between 1 and 1 + 2^-10, and the next halfway point.
    let (low, high) = (0x3f80_1000, 0x3f80_3000);
    for (round, wanted) in [
        ("rna", [0x3f80_2000, 0x3f80_4000]),
        ("rn", [0x3f80_0000, 0x3f80_4000]),
        ("rz", [0x3f80_0000, 0x3f80_2000]),
    ] {
        check(
            &format!("cvt.{round}.tf32.f32 %r0, %f1;"),
            "%r0",
            &one(&[(low, wanted[0]), (high, wanted[1])]),
        );
    }
    check("cvt.rn.relu.tf32.f32 %r0, %f1;", "%r0", &one(&[(s(-1.0), 0), (s(1.0), s(1.0))]));
}

/// Registers may be wider than the type. The source's lower bits count, and integers are extended.
#[test]
fn registers_wider_than_the_type() {
    const HIGH: u64 = 0xdead_beef_0000_0000;
    check("cvt.rn.f32.s32 %f0, %rd1;", "%f0", &one(&[(HIGH | 7, s(7.0)), (ALL, s(-1.0)), (1 << 32, 0)]));
    check("cvt.rn.f32.u32 %f0, %rd1;", "%f0", &one(&[(HIGH | 7, s(7.0)), (1 << 32, 0)]));
    check("cvt.rzi.s32.f32 %rd0, %f1;", "%rd0", &one(&[(s(-5.5), -5i64 as u64), (s(5.5), 5)]));
    check("cvt.rzi.u32.f32 %rd0, %f1;", "%rd0", &one(&[(s(3e9), 3_000_000_000), (s(-5.5), 0)]));
    check("cvt.u64.u32 %rd0, %rd1;", "%rd0", &one(&[(HIGH | ALL, ALL)]));
    check("cvt.s64.s32 %rd0, %rd1;", "%rd0", &one(&[(HIGH | ALL, u64::MAX)]));
    check("cvt.s32.s64 %rd0, %rd1;", "%rd0", &one(&[(HIGH | ALL, u64::MAX), (HIGH | 3, 3)]));
    check("cvt.s16.s32 %r0, %r1;", "%r0", &one(&[(i(-5), i(-5)), (0x1_8000, i(-32768)), (0x1_0003, 3)]));
    check("cvt.u16.s32 %r0, %r1;", "%r0", &one(&[(i(-5), 0xfffb)]));
    check("cvt.s8.s32 %r0, %r1;", "%r0", &one(&[(0x180, i(-128)), (0x17f, 127)]));
    check("cvt.s16.s32 %rd0, %r1;", "%rd0", &one(&[(i(-5), -5i64 as u64)]));
    check("cvt.rzi.s16.f32 %r0, %f1;", "%r0", &one(&[(s(-5.5), i(-5)), (s(1e9), 32767)]));
    // The ISA: NaN converts to 1 in the highest bit of the type, if one of the two types has 64 bits.
    let nan = d(f64::NAN);
    check("cvt.rzi.u8.f64 %r0, %fd1;", "%r0", &one(&[(nan, 0x80), (d(300.0), 255)]));
    check("cvt.rzi.s8.f64 %r0, %fd1;", "%r0", &one(&[(nan, i(-128))]));
    check("cvt.rzi.u16.f64 %r0, %fd1;", "%r0", &one(&[(nan, 0x8000)]));
    check("cvt.rzi.s16.f64 %r0, %fd1;", "%r0", &one(&[(nan, i(-32768))]));
    check("cvt.rzi.u32.f64 %rd0, %fd1;", "%rd0", &one(&[(nan, 0x8000_0000)]));
    check("cvt.rzi.u64.f32 %rd0, %f1;", "%rd0", &one(&[(NAN, 1 << 63)]));
}
