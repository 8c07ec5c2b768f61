//! Floats: roundings, subnormals and NaN are right, and approximations are within the ISA's bounds.

use crate::harness::{self, Case, check, d, one, s, three, two};

const NAN: u64 = 0x7fff_ffff;
const TINY: u64 = 1;
const NEGATIVE_ZERO: u64 = 0x8000_0000;

#[test]
fn roundings_of_f32() {
    // 1 + 2^-24 is halfway between 1 and the next number.
    let half = f32::powi(2.0, -24);
    let next = f32::from_bits(1f32.to_bits() + 1);
    for (round, plus, minus) in [("rn", 1.0, -1.0), ("rz", 1.0, -1.0), ("rp", next, -1.0), ("rm", 1.0, -next)]
    {
        let cases = two(&[(s(1.0), s(half), s(plus)), (s(-1.0), s(-half), s(minus))]);
        check(&format!("add.{round}.f32 %f0, %f1, %f2;"), "%f0", &cases);
    }
    // 3 · (1/3 rounded down) is just below 1.
    let third = f32::from_bits(0x3eaa_aaaa);
    let below = f32::from_bits(0x3f7f_ffff);
    for (round, wanted) in [("rn", below), ("rz", below), ("rm", below), ("rp", below)] {
        check(&format!("mul.{round}.f32 %f0, %f1, %f2;"), "%f0", &two(&[(s(3.0), s(third), s(wanted))]));
    }
    for (round, wanted) in
        [("rn", 0x3eaa_aaab), ("rz", 0x3eaa_aaaa), ("rm", 0x3eaa_aaaa), ("rp", 0x3eaa_aaab)]
    {
        check(&format!("div.{round}.f32 %f0, %f1, %f2;"), "%f0", &two(&[(s(1.0), s(3.0), wanted)]));
        check(&format!("rcp.{round}.f32 %f0, %f1;"), "%f0", &one(&[(s(3.0), wanted)]));
    }
    // The root of 2 is 0x3fb504f3.33…
    for (round, wanted) in
        [("rn", 0x3fb5_04f3), ("rz", 0x3fb5_04f3), ("rm", 0x3fb5_04f3), ("rp", 0x3fb5_04f4)]
    {
        check(&format!("sqrt.{round}.f32 %f0, %f1;"), "%f0", &one(&[(s(2.0), wanted), (s(9.0), s(3.0))]));
    }
    // x − x is −0 only when rounding down. The largest number overflows by direction.
    check("sub.rm.f32 %f0, %f1, %f2;", "%f0", &two(&[(s(1.5), s(1.5), NEGATIVE_ZERO)]));
    check("sub.rn.f32 %f0, %f1, %f2;", "%f0", &two(&[(s(1.5), s(1.5), 0)]));
    let max = s(f32::MAX);
    check("add.rz.f32 %f0, %f1, %f2;", "%f0", &two(&[(max, max, max)]));
    check("add.rn.f32 %f0, %f1, %f2;", "%f0", &two(&[(max, max, s(f32::INFINITY))]));
}

#[test]
fn roundings_of_f64() {
    let half = f64::powi(2.0, -53);
    let next = f64::from_bits(1f64.to_bits() + 1);
    for (round, wanted) in [("rn", 1.0), ("rz", 1.0), ("rp", next), ("rm", 1.0)] {
        check(&format!("add.{round}.f64 %fd0, %fd1, %fd2;"), "%fd0", &two(&[(d(1.0), d(half), d(wanted))]));
        let cases = three(&[(d(1.0), d(1.0), d(half), d(wanted))]);
        check(&format!("fma.{round}.f64 %fd0, %fd1, %fd2, %fd3;"), "%fd0", &cases);
    }
    check("div.rm.f64 %fd0, %fd1, %fd2;", "%fd0", &two(&[(d(1.0), d(3.0), 0x3fd5_5555_5555_5555)]));
    check("div.rp.f64 %fd0, %fd1, %fd2;", "%fd0", &two(&[(d(1.0), d(3.0), 0x3fd5_5555_5555_5556)]));
    check("sqrt.rn.f64 %fd0, %fd1;", "%fd0", &one(&[(d(2.0), 0x3ff6_a09e_667f_3bcd), (d(4.0), d(2.0))]));
    check(
        "min.f64 %fd0, %fd1, %fd2;",
        "%fd0",
        &two(&[(d(1.0), d(f64::NAN), d(1.0)), (d(2.0), d(1.0), d(1.0))]),
    );
    check("neg.f64 %fd0, %fd1;", "%fd0", &one(&[(d(1.0), d(-1.0))]));
    check("abs.f64 %fd0, %fd1;", "%fd0", &one(&[(d(-1.0), d(1.0))]));
}

#[test]
fn fma_rounds_once() {
    let x = 1.0 + f32::powi(2.0, -12);
    // x² = 1 + 2^-11 + 2^-24. A separate rounding of the product loses the last term.
    let cases = three(&[(s(x), s(x), s(-(1.0 + f32::powi(2.0, -11))), s(f32::powi(2.0, -24)))]);
    check("fma.rn.f32 %f0, %f1, %f2, %f3;", "%f0", &cases);
    check("mad.rn.f32 %f0, %f1, %f2, %f3;", "%f0", &cases);
    // The sum is 1 + 2^-23 ± 2^-60. A rounding to the nearest f64 first loses the last term, and so the
    // direction.
    let (a, b) = (f32::powi(2.0, -30), f32::powi(2.0, -30));
    let halfway = 1.0 + f32::powi(2.0, -23);
    let c = three(&[(s(a), s(b), s(halfway), s(halfway))]);
    check("fma.rn.f32 %f0, %f1, %f2, %f3;", "%f0", &c);
    let next = f32::from_bits(halfway.to_bits() + 1);
    check("fma.rp.f32 %f0, %f1, %f2, %f3;", "%f0", &three(&[(s(a), s(b), s(halfway), s(next))]));
    check("fma.rm.f32 %f0, %f1, %f2, %f3;", "%f0", &three(&[(s(a), s(-b), s(halfway), s(1.0))]));
}

#[test]
fn subnormals_with_and_without_ftz() {
    check("add.f32 %f0, %f1, %f2;", "%f0", &two(&[(TINY, TINY, 2)]));
    check(
        "add.ftz.f32 %f0, %f1, %f2;",
        "%f0",
        &two(&[(TINY, TINY, 0), (0x8000_0001, 0x8000_0001, NEGATIVE_ZERO)]),
    );
    let smallest = s(f32::MIN_POSITIVE);
    check("mul.f32 %f0, %f1, %f2;", "%f0", &two(&[(smallest, s(0.5), 0x0040_0000)]));
    check(
        "mul.ftz.f32 %f0, %f1, %f2;",
        "%f0",
        &two(&[(smallest, s(0.5), 0), (smallest, s(-0.5), NEGATIVE_ZERO)]),
    );
    check("fma.rn.ftz.f32 %f0, %f1, %f2, %f3;", "%f0", &three(&[(TINY, s(1e30), s(1.0), s(1.0))]));
    check("setp.gt.ftz.f32 %p0, %f1, %f2;", "%p0", &two(&[(TINY, 0, 0)]));
    check("setp.gt.f32 %p0, %f1, %f2;", "%p0", &two(&[(TINY, 0, 1)]));
    check("neg.ftz.f32 %f0, %f1;", "%f0", &one(&[(TINY, NEGATIVE_ZERO)]));
    check("abs.f32 %f0, %f1;", "%f0", &one(&[(0x8000_0001, 1)]));
    check("sqrt.rn.ftz.f32 %f0, %f1;", "%f0", &one(&[(TINY, 0)]));
    check("rcp.approx.ftz.f32 %f0, %f1;", "%f0", &one(&[(TINY, s(f32::INFINITY)), (s(4.0), s(0.25))]));
    check("max.ftz.f32 %f0, %f1, %f2;", "%f0", &two(&[(TINY, s(-1.0), 0)]));
    check("add.rz.ftz.f32 %f0, %f1, %f2;", "%f0", &two(&[(TINY, TINY, 0)]));
}

#[test]
fn nan_and_zeros() {
    let quiet = 0x7fc0_0000;
    check(
        "add.f32 %f0, %f1, %f2;",
        "%f0",
        &two(&[(quiet, s(1.0), NAN), (s(f32::INFINITY), s(f32::NEG_INFINITY), NAN)]),
    );
    check(
        "min.f32 %f0, %f1, %f2;",
        "%f0",
        &two(&[
            (quiet, s(1.0), s(1.0)),
            (s(1.0), quiet, s(1.0)),
            (quiet, quiet, NAN),
            (0, NEGATIVE_ZERO, NEGATIVE_ZERO),
        ]),
    );
    check(
        "max.f32 %f0, %f1, %f2;",
        "%f0",
        &two(&[(quiet, s(1.0), s(1.0)), (NEGATIVE_ZERO, 0, 0), (s(2.0), s(3.0), s(3.0))]),
    );
    check("max.NaN.f32 %f0, %f1, %f2;", "%f0", &two(&[(quiet, s(1.0), NAN), (s(1.0), s(2.0), s(2.0))]));
    check("min.NaN.f32 %f0, %f1, %f2;", "%f0", &two(&[(s(1.0), quiet, NAN)]));
    check(
        "copysign.f32 %f0, %f1, %f2;",
        "%f0",
        &two(&[(s(-1.0), s(3.0), s(-3.0)), (s(1.0), s(-3.0), s(3.0))]),
    );
    let comparisons: [(&str, [u64; 4]); 14] = [
        // Operands: 1 and 2, 2 and 2, 2 and 1, NaN and 1.
        ("eq", [0, 1, 0, 0]),
        ("ne", [1, 0, 1, 0]),
        ("lt", [1, 0, 0, 0]),
        ("le", [1, 1, 0, 0]),
        ("gt", [0, 0, 1, 0]),
        ("ge", [0, 1, 1, 0]),
        ("equ", [0, 1, 0, 1]),
        ("neu", [1, 0, 1, 1]),
        ("ltu", [1, 0, 0, 1]),
        ("leu", [1, 1, 0, 1]),
        ("gtu", [0, 0, 1, 1]),
        ("geu", [0, 1, 1, 1]),
        ("num", [1, 1, 1, 0]),
        ("nan", [0, 0, 0, 1]),
    ];
    for (name, [less, equal, more, unordered]) in comparisons {
        let (x, y) = (s(1.0), s(2.0));
        let cases = two(&[(x, y, less), (y, y, equal), (y, x, more), (quiet, x, unordered)]);
        check(&format!("setp.{name}.f32 %p0, %f1, %f2;"), "%p0", &cases);
    }
    let tests = [
        ("finite", [1, 0, 0, 1, 1]),
        ("infinite", [0, 1, 0, 0, 0]),
        ("number", [1, 1, 0, 1, 1]),
        ("notanumber", [0, 0, 1, 0, 0]),
        ("normal", [1, 0, 0, 0, 0]),
        ("subnormal", [0, 0, 0, 1, 0]),
    ];
    for (name, wanted) in tests {
        let values = [s(1.0), s(f32::NEG_INFINITY), quiet, TINY, 0];
        let cases: Vec<Case> =
            values.into_iter().zip(wanted).map(|(x, wanted)| ([x, 0, 0, 0], wanted)).collect();
        check(&format!("testp.{name}.f32 %p0, %f1;"), "%p0", &cases);
    }
}

#[test]
fn magnitudes_with_the_sign_of_the_product() {
    let quiet = 0x7fc0_0000;
    // A NaN result has no sign of the product.
    check(
        "max.xorsign.abs.f32 %f0, %f1, %f2;",
        "%f0",
        &two(&[
            (s(-3.0), s(2.0), s(-3.0)),
            (s(1.0), s(-2.0), s(-2.0)),
            (s(-1.0), s(-2.0), s(2.0)),
            (s(1.0), s(2.0), s(2.0)),
            (quiet, s(-2.0), s(-2.0)),
            (0xffc0_0000, s(2.0), s(-2.0)),
            (0xffc0_0000, quiet, NAN),
        ]),
    );
    check(
        "min.xorsign.abs.f32 %f0, %f1, %f2;",
        "%f0",
        &two(&[(s(-3.0), s(2.0), s(-2.0)), (0, s(-2.0), NEGATIVE_ZERO)]),
    );
    check("max.NaN.xorsign.abs.f32 %f0, %f1, %f2;", "%f0", &two(&[(0xffc0_0000, s(2.0), NAN)]));
    // Operands: (1, −2) and (−3, 1).
    check("max.xorsign.abs.f16x2 %r0, %r1, %r2;", "%r0", &two(&[(0x3c00_c000, 0xc200_3c00, 0xc200_c000)]));
    check("min.xorsign.abs.bf16 %h0, %h1, %h2;", "%h0", &two(&[(0xbf80, 0x4000, 0xbf80)]));
}

#[test]
fn saturation() {
    let quiet = 0x7fc0_0000;
    let cases =
        [(s(0.25), s(0.5), s(0.75)), (s(1.0), s(1.0), s(1.0)), (s(-1.0), s(0.5), 0), (quiet, s(1.0), 0)];
    check("add.sat.f32 %f0, %f1, %f2;", "%f0", &two(&cases));
    check("fma.rn.ftz.sat.f32 %f0, %f1, %f2, %f3;", "%f0", &three(&[(s(2.0), s(2.0), s(0.0), s(1.0))]));
}

/// Asserts that an approximation is within the ISA's bounds.
fn near(text: &str, inputs: &[f32], exact: fn(f64) -> f64, relative: f64, absolute: f64) {
    let body: String = inputs
        .iter()
        .enumerate()
        .map(|(i, x)| {
            format!("mov.f32 %f1, 0f{:08X}; {text} st.global.f32 [%rd1+{}], %f0;\n", x.to_bits(), 4 * i)
        })
        .collect();
    let body = format!(".reg .f32 %f<2>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [out];\n{body}");
    let out = vec![0u32; inputs.len()];
    let found = harness::words_of(
        &harness::kernel(&["u64 out"], &body),
        harness::threads(1),
        &[harness::words(&out)],
    );
    for (x, bits) in inputs.iter().zip(found) {
        let (found, wanted) = (f64::from(f32::from_bits(bits)), exact(f64::from(*x)));
        assert!(
            (found - wanted).abs() <= absolute + relative * wanted.abs(),
            "{text} of {x}: {found}, not {wanted}"
        );
    }
}

#[test]
fn approximations() {
    let ulp = f64::powi(2.0, -23);
    near("ex2.approx.ftz.f32 %f0, %f1;", &[0.0, 1.0, -3.5, 10.3, 0.1], f64::exp2, 2.0 * ulp, 0.0);
    near("lg2.approx.ftz.f32 %f0, %f1;", &[1.0, 8.0, 0.3, 1e10], f64::log2, ulp, f64::powi(2.0, -22));
    near("sin.approx.f32 %f0, %f1;", &[0.0, 1.0, -2.0, 3.0], f64::sin, 0.0, f64::powi(2.0, -20));
    near("cos.approx.f32 %f0, %f1;", &[0.0, 1.0, -2.0, 3.0], f64::cos, 0.0, f64::powi(2.0, -20));
    near("tanh.approx.f32 %f0, %f1;", &[0.0, 1.0, -2.0, 30.0], f64::tanh, f64::powi(2.0, -11), 0.0);
    near("rsqrt.approx.f32 %f0, %f1;", &[1.0, 2.0, 1e-20, 1e20], |x| 1.0 / x.sqrt(), 2.0 * ulp, 0.0);
    near("sqrt.approx.ftz.f32 %f0, %f1;", &[1.0, 2.0, 1e20], f64::sqrt, 2.0 * ulp, 0.0);
    near("rcp.approx.f32 %f0, %f1;", &[1.0, 3.0, -1e20], |x| 1.0 / x, ulp, 0.0);
    // Only the upper half of an f64 counts, in the operand and the result.
    let coarse =
        [(d(4.0), d(0.25)), (d(3.0), 0x3fd5_5555_0000_0000), (1, d(f64::INFINITY)), (d(-0.0), d(-1.0 / 0.0))];
    check("rcp.approx.ftz.f64 %fd0, %fd1;", "%fd0", &one(&coarse));
    let roots = [(d(4.0), d(0.5)), (d(2.0), 0x3fe6_a09e_0000_0000), (0, d(f64::INFINITY))];
    check("rsqrt.approx.ftz.f64 %fd0, %fd1;", "%fd0", &one(&roots));
    near("div.approx.f32 %f0, 0f3F800000, %f1;", &[1.0, 3.0, -1e20], |x| 1.0 / x, 2.0 * ulp, 0.0);
    near("div.full.f32 %f0, 0f3F800000, %f1;", &[1.0, 3.0, -1e20], |x| 1.0 / x, 2.0 * ulp, 0.0);
    let ends = [(s(f32::NEG_INFINITY), 0), (s(f32::INFINITY), s(f32::INFINITY)), (0x7fc0_0000, NAN)];
    check("ex2.approx.f32 %f0, %f1;", "%f0", &one(&ends));
    check("lg2.approx.f32 %f0, %f1;", "%f0", &one(&[(0, s(f32::NEG_INFINITY)), (s(-1.0), NAN)]));
    check(
        "rsqrt.approx.f32 %f0, %f1;",
        "%f0",
        &one(&[(0, s(f32::INFINITY)), (s(-1.0), NAN), (s(f32::INFINITY), 0)]),
    );
    check("sqrt.rn.f32 %f0, %f1;", "%f0", &one(&[(s(-1.0), NAN), (NEGATIVE_ZERO, NEGATIVE_ZERO)]));
    check("div.rn.f32 %f0, %f1, %f2;", "%f0", &two(&[(s(1.0), 0, s(f32::INFINITY)), (0, 0, NAN)]));
    // The approximate division by more than 2^126 gives 0, or NaN for an infinite numerator.
    let huge = s(f32::powi(2.0, 127));
    check("div.approx.f32 %f0, %f1, %f2;", "%f0", &two(&[(s(1e38), huge, 0), (s(f32::INFINITY), huge, NAN)]));
}
