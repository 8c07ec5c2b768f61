//! Float operations as each target computes them, against their `f64` references and values computed by hand.
//!
//! Unary operations are swept over all `f32` at a prime stride. `FUSION_EXHAUSTIVE=1` visits every `f32`, and
//! `FUSION_EXHAUSTIVE=N` every N-th. Run exhaustive sweeps in release mode, because they take long.

use fusion_compiler::ir::dtype::{Const, DType};
use fusion_compiler::ir::op::{Op, Typing};
use fusion_compiler::ops::Dialect;
use fusion_compiler::ops::scalar::{ExpandedOp, Scalar, eval_op};
use fusion_support::ulp::{NEAR_QUARTER_TURNS, distance};

/// Returns a dialect's error bound for an operation, in units in the last place.
fn bound(op: Op, dialect: Dialect) -> u32 {
    let ulp = op.info().ulp;
    match dialect {
        Dialect::Cpu | Dialect::Ptx => ulp.native,
        Dialect::Wgsl => ulp.wgsl,
    }
}

fn float_ops(arity: usize) -> impl Iterator<Item = Op> {
    let on_floats = |op: Op| {
        // Bit patterns have no distance.
        let typing = op.info().typing;
        typing.accepts(DType::F32) && !matches!(typing, Typing::Encode | Typing::ToBits)
    };
    Op::ALL.iter().copied().filter(move |&op| op.info().arity == arity && on_floats(op))
}

fn stride() -> usize {
    match std::env::var_os("FUSION_EXHAUSTIVE") {
        Some(stride) => stride.to_str().and_then(|stride| stride.parse().ok()).unwrap_or(1),
        None => 100_003,
    }
}

/// Returns the largest distance of a dialect from the reference, and the arguments that cause it.
fn worst<'a>(op: Op, dialect: Dialect, points: impl Iterator<Item = Vec<f32>> + 'a) -> (u64, Vec<f32>) {
    let program = ExpandedOp::new(op, &vec![DType::F32; op.info().arity], dialect);
    let mut worst = (0, vec![]);
    for point in points {
        let args: Vec<Scalar> = point.iter().map(|&x| Scalar::F32(x)).collect();
        let wide: Vec<f64> = point.iter().map(|&x| f64::from(x)).collect();
        let expect = (op.info().eval.float)(&wide) as f32;
        let actual = program.run(&args).to_f64() as f32;
        let distance = distance(actual, expect);
        if distance > worst.0 {
            worst = (distance, point);
        }
    }
    worst
}

/// Checks every dialect of an operation. Returns a line for each dialect that is out of bounds.
fn failures<'a>(op: Op, points: impl Iterator<Item = Vec<f32>> + Clone + 'a) -> Vec<String> {
    let mut failures = vec![];
    for dialect in Dialect::ALL {
        let (distance, point) = worst(op, dialect, points.clone());
        println!("{op:?} {dialect:?}: {distance} ulp at {point:?}");
        if distance > u64::from(bound(op, dialect)) {
            failures.push(format!("{op:?} {dialect:?}: {distance} ulp at {point:?}"));
        }
    }
    failures
}

#[test]
fn unary_operations_are_within_their_bounds_on_all_f32() {
    let failures: Vec<String> = float_ops(1)
        .flat_map(|op| {
            let points = (0..=u32::MAX).step_by(stride()).map(f32::from_bits);
            let has = move |x: &f32| op != Op::ExpOfNonpositive || *x <= 0.0 || x.is_nan();
            failures(op, points.filter(has).map(|x| vec![x]))
        })
        .collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Argument reduction loses most accuracy at the numbers next to multiples of a quarter turn.
#[test]
fn circular_functions_are_within_their_bounds_next_to_quarter_turns() {
    let small = (1..=65_535u32).map(|n| (f64::from(n) * std::f64::consts::FRAC_PI_2) as f32);
    let neighbours = NEAR_QUARTER_TURNS.into_iter().flat_map(|bits| bits - 2..=bits + 2).map(f32::from_bits);
    let points = small.chain(neighbours).flat_map(|x| [vec![x], vec![-x]]);
    let failures: Vec<String> =
        [Op::Sin, Op::Cos, Op::Tan].into_iter().flat_map(|op| failures(op, points.clone())).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The sine or the cosine of each angle in the table is small.
#[test]
fn the_angles_next_to_quarter_turns_are_so() {
    for (exponent, bits) in NEAR_QUARTER_TURNS.into_iter().enumerate() {
        let x = f64::from(f32::from_bits(bits));
        assert_eq!(x.log2().floor(), exponent as f64);
        assert!(x.sin().abs().min(x.cos().abs()) < 4e-6, "{x}");
    }
    let nearest = NEAR_QUARTER_TURNS.map(|bits| f64::from(f32::from_bits(bits)).sin_cos());
    let nearest = nearest.into_iter().map(|(sin, cos)| sin.abs().min(cos.abs())).fold(1.0, f64::min);
    assert!((nearest.log2() - std::f64::consts::FRAC_PI_2.log2() + 29.858).abs() < 1e-3, "{nearest}");
}

const EDGES: [f32; 24] = [
    0.0,
    -0.0,
    1e-45,
    -1e-45,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    0.5,
    -0.5,
    1.0 - f32::EPSILON / 2.0,
    1.0,
    -1.0,
    1.0 + f32::EPSILON,
    1.5,
    -2.0,
    3.0,
    -7.0,
    8_388_609.0,
    16_777_216.0,
    -16_777_218.0,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// Returns pseudo-random bits (Marsaglia 2003, xorshift).
fn random_bits() -> impl Iterator<Item = u32> + Clone {
    std::iter::successors(Some(0x9e37_79b9_u32), |&x| {
        let x = x ^ x << 13;
        let x = x ^ x >> 17;
        Some(x ^ x << 5)
    })
}

/// Returns a number of either sign with an exponent from −20 to 19.
fn moderate(bits: u32) -> f32 {
    let exponent = 107 + (bits >> 9) % 40;
    f32::from_bits(bits & 0x807f_ffff & !(0xff << 23) | exponent << 23)
}

/// Returns pairs of edges, of any bits, of moderate numbers, and pairs with a power of about 2⁻¹²⁸ to 2¹²⁸.
fn pairs() -> impl Iterator<Item = Vec<f32>> + Clone {
    let edges = EDGES.into_iter().flat_map(|x| EDGES.map(|y| vec![x, y]));
    let count = 20_000_000 / stride();
    let drawn = random_bits().zip(random_bits().skip(1)).step_by(2).take(count * 100);
    let any = drawn.clone().map(|(x, y)| vec![f32::from_bits(x), f32::from_bits(y)]);
    let moderates = drawn.clone().map(|(x, y)| vec![moderate(x), moderate(y)]);
    let powers = drawn.map(|(x, y)| {
        let base = f32::from_bits(x & 0x7fff_ffff);
        vec![base, (y as f32 / u32::MAX as f32 * 256.0 - 128.0) / base.log2()]
    });
    edges.chain(any).chain(moderates).chain(powers)
}

#[test]
fn binary_operations_are_within_their_bounds() {
    // `DivNearOne` divides by numbers from 1 to 2, so any divisor is replaced by one with the same fraction
    // bits.
    let near_one = |y: f32| f32::from_bits(y.to_bits() & 0x007f_ffff | 0x3f80_0000);
    // Infinities are covered by the test below.
    let ordered = |point: &[f32]| {
        let [x, y] = [point[0], point[1]].map(|x| x.clamp(f32::MIN, f32::MAX));
        if x > y { vec![y, x] } else { vec![x, if y.is_nan() { f32::MAX } else { y }] }
    };
    let taken = |op: Op, point: Vec<f32>| match op {
        Op::DivNearOne => vec![point[0], near_one(point[1])],
        Op::ExpBelow | Op::ApproxExpBelow => ordered(&point),
        _ => point,
    };
    let of = |op: Op| failures(op, pairs().map(move |point| taken(op, point)));
    let failures: Vec<String> = float_ops(2).flat_map(of).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Infinite maxima, which occur in rows, give any nonnegative exponential. The result is NaN only for a NaN
/// operand.
#[test]
fn exponentials_of_what_the_largest_exceeds_take_infinities() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for (op, dialect) in
        [Op::ExpBelow, Op::ApproxExpBelow].into_iter().flat_map(|op| Dialect::ALL.map(|of| (op, of)))
    {
        let program = ExpandedOp::new(op, &[DType::F32; 2], dialect);
        let of = |x: f32, y: f32| program.run(&[Scalar::F32(x), Scalar::F32(y)]).to_f64();
        for (x, y) in [(-inf, 1.0), (-inf, f32::MIN), (f32::MIN, f32::MAX)] {
            assert_eq!(of(x, y), 0.0, "{op:?} {dialect:?} of {x} and {y}");
        }
        for (x, y) in [(-inf, -inf), (-inf, inf), (1.0, inf), (f32::MAX, inf), (inf, inf)] {
            assert!(of(x, y) >= 0.0, "{op:?} {dialect:?} of {x} and {y}");
        }
        assert!(
            of(nan, 1.0).is_nan() && of(nan, inf).is_nan() && of(nan, -inf).is_nan(),
            "{op:?} {dialect:?}"
        );
        assert_eq!(
            [of(3.5, 3.5), of(f32::MIN, f32::MIN), of(f32::MAX, f32::MAX)],
            [1.0; 3],
            "{op:?} {dialect:?}"
        );
    }
}

/// Checks an operation on `f64` as PTX computes it. Returns the number of failures and the first failing
/// point. A point fails if the result has another sign than that of Rust's standard library, or is farther
/// from it than documented.
fn failures_of_doubles(op: Op, points: impl Iterator<Item = Vec<f64>>) -> Option<String> {
    let program = ExpandedOp::new(op, &vec![DType::F64; op.info().arity], Dialect::Ptx);
    let bound = match op.info().ulp.native {
        0 => 0,
        // The reference in the op table is no more accurate.
        1.. if matches!(op, Op::Erf | Op::Erfc) => 16,
        1.. => 4,
    };
    let near = |actual: f64, expect: f64| {
        let distance = actual.abs().to_bits().abs_diff(expect.abs().to_bits());
        let one_sign = actual.is_sign_negative() == expect.is_sign_negative();
        actual.is_nan() && expect.is_nan() || one_sign && distance <= bound
    };
    let failures = points.filter_map(|point| {
        let args: Vec<Scalar> = point.iter().map(|&x| Scalar::F64(x)).collect();
        let (actual, expect) = (program.run(&args).to_f64(), (op.info().eval.float)(&point));
        (!near(actual, expect)).then(|| format!("{op:?}{point:?} is {actual:e}, not {expect:e}"))
    });
    let failures: Vec<String> = failures.collect();
    failures.first().map(|first| format!("{} of {op:?}, {first}", failures.len()))
}

/// Returns numbers of any bits, alternating with numbers of either sign with an exponent from −20 to 19.
fn random_doubles() -> impl Iterator<Item = f64> + Clone {
    let halves = random_bits().zip(random_bits().skip(3)).step_by(2);
    halves.take(400_000_000 / stride()).flat_map(|(high, low)| {
        let bits = u64::from(high) << 32 | u64::from(low);
        let moderate = bits & !(0x7ff << 52) | (1003 + (bits >> 52) % 40) << 52;
        [bits, moderate].map(f64::from_bits)
    })
}

#[test]
fn functions_of_doubles_in_ptx_are_near_those_of_the_standard_library() {
    let edges = [f64::MAX, 5e-324, f64::MIN_POSITIVE, 2.0f64.powi(53)];
    let edges: Vec<f64> = EDGES.map(f64::from).into_iter().chain(edges).flat_map(|x| [x, -x]).collect();
    let turns = (1..1000).map(|n| f64::from(n) * std::f64::consts::FRAC_PI_4);
    // Angles with a tiny remainder after argument reduction.
    let turns = turns.chain((1..9).map(|n| f64::from(n) * 5_319_372_648_326_541_416_707_072.0));
    let singles: Vec<f64> = edges.iter().copied().chain(turns).chain(random_doubles()).collect();
    let any = random_doubles().zip(random_doubles().skip(2)).step_by(3).map(|(x, y)| vec![x, y]);
    // Pairs with a power whose logarithm is from −1080 to 1025.
    let powers = random_doubles().zip(random_doubles().skip(1)).map(|(base, y)| {
        let log = (y.to_bits() >> 20 & 0xff_ffff) as f64 / 7970.0 - 1080.0;
        vec![base.abs(), log / base.abs().log2()]
    });
    let pairs = edges.iter().flat_map(|&x| edges.iter().map(move |&y| vec![x, y])).chain(any).chain(powers);
    let failures: Vec<String> = float_ops(1)
        .chain(float_ops(2))
        .filter(|op| !op.info().name.is_empty())
        .filter_map(|op| match op.info().arity {
            1 => failures_of_doubles(op, singles.iter().map(|&x| vec![x])),
            _ => failures_of_doubles(op, pairs.clone()),
        })
        .collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The expected values were computed to 40 digits by mpmath and rounded. The first angle is the `f64` nearest
/// to a multiple of a quarter turn, where the GNU library is 8 units off.
#[test]
fn circular_functions_of_doubles_are_right_at_the_nearest_to_a_quarter_turn() {
    let x = 6_381_956_970_095_103.0 * 2.0f64.powi(797);
    let cases = [
        (Op::Sin, x, 1.0),
        (Op::Cos, x, -4.687_165_924_254_628e-19),
        (Op::Tan, x, -2.133_485_385_753_704e18),
        (Op::Sin, f64::MAX, 0.004_961_954_789_184_062),
        (Op::Cos, f64::MAX, -0.999_987_689_426_559_9),
        (Op::Tan, f64::MAX, -0.004_962_015_874_444_895),
    ];
    for (op, x, expect) in cases {
        let actual = eval_op(op, &[Scalar::F64(x)], Dialect::Ptx).to_f64();
        assert!((actual / expect - 1.0).abs() <= f64::EPSILON, "{op:?}({x:e}) is {actual:e}, not {expect:e}");
    }
}

/// Values of erfc, computed to 40 digits by mpmath and rounded to `f64`. The tail has as many correct digits
/// as the rest.
#[rustfmt::skip]
const ERFC: &[(f64, f64)] = &[
    (-6.0, 2.0), (-3.0, 1.999_977_909_503_001_5), (-1.0, 1.842_700_792_949_714_8), (-0.468_75, 1.492_613_473_217_938),
    (-0.25, 1.276_326_390_168_237), (0.007_812_5, 0.991_184_717_104_820_8), (0.25, 0.723_673_609_831_763_1),
    (0.464_843_75, 0.510_931_249_829_918_1), (0.468_75, 0.507_386_526_782_062), (0.5, 0.479_500_122_186_953_5),
    (0.75, 0.288_844_366_346_484_86), (1.0, 0.157_299_207_050_285_13), (1.5, 0.033_894_853_524_689_274),
    (2.0, 0.004_677_734_981_047_266), (2.75, 0.000_100_621_922_119_636_83), (3.5, 7.430_983_723_414_128e-7),
    (4.0, 1.541_725_790_028_002e-8), (5.0, 1.537_459_794_428_035e-12), (6.25, 9.672_204_131_876_253e-19),
    (7.0, 4.183_825_607_779_414e-23), (8.0, 1.122_429_717_298_292_6e-29), (9.0, 4.137_031_746_513_81e-37),
    (9.1875, 1.339_143_561_733_014_2e-38),
];

#[test]
fn one_minus_the_error_function_is_right_in_its_tail() {
    for &(x, expect) in ERFC {
        let exact = (Op::Erfc.info().eval.float)(&[x]);
        assert!((exact / expect - 1.0).abs() < 4e-15, "erfc({x}) is {exact:e} by the table, not {expect:e}");
        for dialect in Dialect::ALL {
            let single = eval_op(Op::Erfc, &[Scalar::F32(x as f32)], dialect).to_f64() as f32;
            let apart = distance(single, expect as f32);
            assert!(
                apart <= bound(Op::Erfc, dialect).into(),
                "erfc({x}) is {single:e}, not {expect:e} ({dialect:?})"
            );
        }
        for dialect in [Dialect::Cpu, Dialect::Ptx] {
            let double = eval_op(Op::Erfc, &[Scalar::F64(x)], dialect).to_f64();
            let apart = double.to_bits().abs_diff(expect.to_bits());
            assert!(apart <= 4, "erfc({x}) is {double:e}, {apart} from {expect:e} ({dialect:?})");
        }
    }
}

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;
const PI: f32 = std::f32::consts::PI;
const TINY: f32 = 1e-45;

/// Results of C, IEEE and PyTorch at the edges, compared to the bit. Any NaN matches NaN.
#[rustfmt::skip]
const SPECIAL: &[(Op, &[f32], f32)] = &[
    (Op::Exp, &[-INF], 0.0), (Op::Exp, &[INF], INF), (Op::Exp, &[NAN], NAN), (Op::Exp, &[-0.0], 1.0),
    (Op::Exp, &[88.72284], INF), (Op::Exp, &[-103.97], TINY),
    (Op::Exp, &[-103.98], 0.0), (Op::Exp, &[f32::MAX], INF), (Op::Exp, &[f32::MIN], 0.0), (Op::Exp, &[TINY], 1.0),
    (Op::Exp2, &[-INF], 0.0), (Op::Exp2, &[INF], INF), (Op::Exp2, &[NAN], NAN), (Op::Exp2, &[128.0], INF),
    (Op::Exp2, &[127.0], 1.701_411_8e38), (Op::Exp2, &[-149.0], TINY), (Op::Exp2, &[-150.0], 0.0), (Op::Exp2, &[3.0], 8.0),
    (Op::Expm1, &[-0.0], -0.0), (Op::Expm1, &[0.0], 0.0), (Op::Expm1, &[-INF], -1.0), (Op::Expm1, &[INF], INF),
    (Op::Expm1, &[NAN], NAN), (Op::Expm1, &[-1e-45], -TINY), (Op::Expm1, &[88.73], INF), (Op::Expm1, &[f32::MIN], -1.0),
    (Op::Log, &[0.0], -INF), (Op::Log, &[-0.0], -INF), (Op::Log, &[-1.0], NAN), (Op::Log, &[-TINY], NAN),
    (Op::Log, &[INF], INF), (Op::Log, &[-INF], NAN), (Op::Log, &[NAN], NAN), (Op::Log, &[-NAN], NAN),
    (Op::Log, &[1.0], 0.0), (Op::Log, &[TINY], -103.278_93),
    (Op::Log2, &[0.0], -INF), (Op::Log2, &[-0.0], -INF), (Op::Log2, &[-1.0], NAN), (Op::Log2, &[INF], INF),
    (Op::Log2, &[NAN], NAN), (Op::Log2, &[8.0], 3.0), (Op::Log2, &[TINY], -149.0), (Op::Log2, &[1.0], 0.0),
    (Op::Log1p, &[-1.0], -INF), (Op::Log1p, &[-1.5], NAN), (Op::Log1p, &[-0.0], -0.0), (Op::Log1p, &[0.0], 0.0),
    (Op::Log1p, &[INF], INF), (Op::Log1p, &[-INF], NAN), (Op::Log1p, &[NAN], NAN), (Op::Log1p, &[TINY], TINY),
    (Op::Log1p, &[f32::MAX], 88.722_84),
    (Op::Sqrt, &[-0.0], -0.0), (Op::Sqrt, &[-1.0], NAN), (Op::Sqrt, &[INF], INF),
    (Op::Rsqrt, &[0.0], INF), (Op::Rsqrt, &[-0.0], -INF), (Op::Rsqrt, &[INF], 0.0), (Op::Rsqrt, &[-1.0], NAN),
    (Op::Rsqrt, &[NAN], NAN), (Op::Rsqrt, &[4.0], 0.5),
    (Op::Cbrt, &[-0.0], -0.0), (Op::Cbrt, &[0.0], 0.0), (Op::Cbrt, &[-27.0], -3.0), (Op::Cbrt, &[INF], INF),
    (Op::Cbrt, &[-INF], -INF), (Op::Cbrt, &[NAN], NAN),
    (Op::Sin, &[-0.0], -0.0), (Op::Sin, &[0.0], 0.0), (Op::Sin, &[INF], NAN), (Op::Sin, &[-INF], NAN),
    (Op::Sin, &[NAN], NAN), (Op::Sin, &[TINY], TINY), (Op::Sin, &[PI], -8.742_278e-8),
    (Op::Cos, &[-0.0], 1.0), (Op::Cos, &[INF], NAN), (Op::Cos, &[NAN], NAN), (Op::Cos, &[PI], -1.0),
    (Op::Tan, &[-0.0], -0.0), (Op::Tan, &[-TINY], -TINY), (Op::Tan, &[INF], NAN), (Op::Tan, &[-INF], NAN), (Op::Tan, &[NAN], NAN),
    (Op::Asin, &[-0.0], -0.0), (Op::Asin, &[1.0], PI / 2.0), (Op::Asin, &[-1.0], -PI / 2.0),
    (Op::Asin, &[1.000_000_1], NAN), (Op::Asin, &[-INF], NAN), (Op::Asin, &[NAN], NAN),
    (Op::Acos, &[1.0], 0.0), (Op::Acos, &[-1.0], PI), (Op::Acos, &[0.0], PI / 2.0), (Op::Acos, &[-1.000_000_1], NAN),
    (Op::Acos, &[INF], NAN), (Op::Acos, &[NAN], NAN),
    (Op::Atan, &[-0.0], -0.0), (Op::Atan, &[INF], PI / 2.0), (Op::Atan, &[-INF], -PI / 2.0), (Op::Atan, &[NAN], NAN),
    (Op::Sinh, &[-0.0], -0.0), (Op::Sinh, &[INF], INF), (Op::Sinh, &[-INF], -INF), (Op::Sinh, &[NAN], NAN),
    (Op::Sinh, &[-90.0], -INF), (Op::Cosh, &[-INF], INF), (Op::Cosh, &[0.0], 1.0), (Op::Cosh, &[NAN], NAN),
    (Op::Cosh, &[90.0], INF),
    (Op::Tanh, &[-0.0], -0.0), (Op::Tanh, &[0.0], 0.0), (Op::Tanh, &[INF], 1.0), (Op::Tanh, &[-INF], -1.0), (Op::Tanh, &[NAN], NAN),
    (Op::Erf, &[-0.0], -0.0), (Op::Erf, &[INF], 1.0), (Op::Erf, &[-INF], -1.0), (Op::Erf, &[NAN], NAN), (Op::Erf, &[5.0], 1.0),
    (Op::Erfc, &[-0.0], 1.0), (Op::Erfc, &[0.0], 1.0), (Op::Erfc, &[INF], 0.0), (Op::Erfc, &[-INF], 2.0), (Op::Erfc, &[NAN], NAN),
    (Op::Erfc, &[-NAN], NAN), (Op::Erfc, &[TINY], 1.0), (Op::Erfc, &[f32::MAX], 0.0), (Op::Erfc, &[f32::MIN], 2.0), (Op::Erfc, &[-4.5], 2.0),
    (Op::Erfc, &[10.1], 0.0),
    (Op::Copysign, &[3.0, -0.0], -3.0), (Op::Copysign, &[-3.0, 0.0], 3.0), (Op::Copysign, &[0.0, -1.0], -0.0), (Op::Copysign, &[-0.0, TINY], 0.0),
    (Op::Copysign, &[INF, -INF], -INF), (Op::Copysign, &[TINY, -INF], -TINY), (Op::Copysign, &[2.0, NAN], 2.0), (Op::Copysign, &[NAN, -1.0], NAN),
    (Op::Copysign, &[-f32::MAX, 1.0], f32::MAX),
    (Op::Floor, &[-0.0], -0.0), (Op::Floor, &[-0.3], -1.0), (Op::Floor, &[0.7], 0.0), (Op::Floor, &[-INF], -INF),
    (Op::Ceil, &[-0.0], -0.0), (Op::Ceil, &[-0.7], -0.0), (Op::Ceil, &[0.3], 1.0), (Op::Ceil, &[8_388_609.0], 8_388_609.0),
    (Op::Round, &[-0.5], -0.0), (Op::Round, &[1.5], 2.0), (Op::Round, &[2.5], 2.0), (Op::Round, &[-2.5], -2.0),
    (Op::Trunc, &[-0.7], -0.0), (Op::Trunc, &[-1.7], -1.0), (Op::Trunc, &[NAN], NAN), (Op::Trunc, &[8_388_607.5], 8_388_607.0),
    (Op::Sign, &[-0.0], -0.0), (Op::Sign, &[0.0], 0.0), (Op::Sign, &[-TINY], -1.0), (Op::Sign, &[NAN], NAN), (Op::Sign, &[INF], 1.0),
    (Op::Min, &[NAN, 1.0], NAN), (Op::Min, &[1.0, NAN], NAN), (Op::Min, &[-INF, 1.0], -INF), (Op::Min, &[2.0, 1.0], 1.0),
    (Op::Max, &[NAN, 1.0], NAN), (Op::Max, &[1.0, NAN], NAN), (Op::Max, &[INF, 1.0], INF), (Op::Max, &[2.0, 1.0], 2.0),
    (Op::Rem, &[-6.0, 3.0], -0.0), (Op::Rem, &[5.5, -2.0], 1.5), (Op::Rem, &[-5.5, 2.0], -1.5), (Op::Rem, &[-0.0, 3.0], -0.0),
    (Op::Rem, &[1.0, 0.0], NAN), (Op::Rem, &[INF, 3.0], NAN), (Op::Rem, &[-3.0, INF], -3.0), (Op::Rem, &[3.0, -INF], 3.0),
    (Op::Rem, &[NAN, 3.0], NAN), (Op::Rem, &[3.0, NAN], NAN), (Op::Rem, &[f32::MAX, TINY], 0.0), (Op::Rem, &[TINY, 1.0], TINY),
    (Op::Rem, &[f32::MAX, 3.0], 0.0), (Op::Rem, &[1e10, 7.0], 4.0), (Op::Rem, &[0.0, INF], 0.0),
    // A zero remainder has the sign of the first operand. Python's has the sign of the second.
    (Op::Remainder, &[-6.0, 3.0], -0.0), (Op::Remainder, &[6.0, -3.0], 0.0), (Op::Remainder, &[-0.0, 3.0], -0.0), (Op::Remainder, &[0.0, -3.0], 0.0),
    (Op::Remainder, &[5.5, -2.0], -0.5), (Op::Remainder, &[-5.5, 2.0], 0.5), (Op::Remainder, &[5.5, 2.0], 1.5), (Op::Remainder, &[-5.5, -2.0], -1.5),
    (Op::Remainder, &[1.0, 0.0], NAN), (Op::Remainder, &[INF, 3.0], NAN), (Op::Remainder, &[-INF, 3.0], NAN), (Op::Remainder, &[NAN, 3.0], NAN),
    (Op::Remainder, &[3.0, NAN], NAN), (Op::Remainder, &[-3.0, INF], INF), (Op::Remainder, &[3.0, INF], 3.0), (Op::Remainder, &[3.0, -INF], -INF),
    (Op::Remainder, &[0.0, INF], 0.0), (Op::Remainder, &[-TINY, 3.0], 3.0), (Op::Remainder, &[1e10, -7.0], -3.0), (Op::Remainder, &[f32::MAX, -TINY], 0.0),
    (Op::FloorDiv, &[7.0, 2.0], 3.0), (Op::FloorDiv, &[-7.0, 2.0], -4.0), (Op::FloorDiv, &[7.0, -2.0], -4.0), (Op::FloorDiv, &[-7.0, -2.0], 3.0),
    (Op::FloorDiv, &[6.0, 3.0], 2.0), (Op::FloorDiv, &[-6.0, 3.0], -2.0), (Op::FloorDiv, &[1.0, 0.1], 9.0), (Op::FloorDiv, &[-1.0, 0.1], -10.0),
    (Op::FloorDiv, &[0.0, 3.0], 0.0), (Op::FloorDiv, &[-0.0, 3.0], -0.0), (Op::FloorDiv, &[0.0, -3.0], -0.0), (Op::FloorDiv, &[-1.0, -3.0], 0.0),
    (Op::FloorDiv, &[1.0, 0.0], INF), (Op::FloorDiv, &[1.0, -0.0], -INF), (Op::FloorDiv, &[-1.0, 0.0], -INF), (Op::FloorDiv, &[0.0, 0.0], NAN),
    (Op::FloorDiv, &[INF, 2.0], NAN), (Op::FloorDiv, &[INF, 0.0], INF), (Op::FloorDiv, &[3.0, INF], 0.0), (Op::FloorDiv, &[-3.0, INF], -1.0),
    (Op::FloorDiv, &[3.0, -INF], -1.0), (Op::FloorDiv, &[-3.0, -INF], 0.0), (Op::FloorDiv, &[0.0, -INF], -0.0), (Op::FloorDiv, &[INF, INF], NAN),
    (Op::FloorDiv, &[NAN, 2.0], NAN), (Op::FloorDiv, &[2.0, NAN], NAN), (Op::FloorDiv, &[-TINY, f32::MAX], -1.0), (Op::FloorDiv, &[f32::MAX, TINY], INF),
    (Op::FloorDiv, &[16_777_222.0, 3.0], 5_592_407.0), (Op::FloorDiv, &[NAN, 0.0], NAN),
    (Op::Pow, &[0.0, 0.0], 1.0), (Op::Pow, &[NAN, 0.0], 1.0), (Op::Pow, &[NAN, -0.0], 1.0), (Op::Pow, &[1.0, NAN], 1.0),
    (Op::Pow, &[1.0, INF], 1.0), (Op::Pow, &[-1.0, INF], 1.0), (Op::Pow, &[-1.0, -INF], 1.0), (Op::Pow, &[NAN, 1.0], NAN),
    (Op::Pow, &[2.0, NAN], NAN), (Op::Pow, &[0.0, -3.0], INF), (Op::Pow, &[-0.0, -3.0], -INF), (Op::Pow, &[-0.0, -2.0], INF),
    (Op::Pow, &[-0.0, 3.0], -0.0), (Op::Pow, &[-0.0, 2.5], 0.0), (Op::Pow, &[0.0, -INF], INF), (Op::Pow, &[-0.0, INF], 0.0),
    (Op::Pow, &[0.5, INF], 0.0), (Op::Pow, &[0.5, -INF], INF), (Op::Pow, &[2.0, INF], INF), (Op::Pow, &[2.0, -INF], 0.0),
    (Op::Pow, &[-2.0, INF], INF), (Op::Pow, &[INF, 0.5], INF), (Op::Pow, &[INF, -TINY], 0.0), (Op::Pow, &[-INF, 3.0], -INF),
    (Op::Pow, &[-INF, 2.0], INF), (Op::Pow, &[-INF, -3.0], -0.0), (Op::Pow, &[-INF, 0.5], INF), (Op::Pow, &[-INF, -0.5], 0.0),
    (Op::Pow, &[-INF, INF], INF), (Op::Pow, &[-8.0, 1.0 / 3.0], NAN), (Op::Pow, &[-2.0, 3.0], -8.0), (Op::Pow, &[-2.0, 4.0], 16.0),
    (Op::Pow, &[-1.0, 16_777_215.0], -1.0), (Op::Pow, &[-1.0, 16_777_216.0], 1.0), (Op::Pow, &[10.0, 39.0], INF),
    (Op::Pow, &[-10.0, 39.0], -INF), (Op::Pow, &[2.0, -149.0], TINY), (Op::Pow, &[2.0, -151.0], 0.0), (Op::Pow, &[3.0, 1.0], 3.0),
    (Op::Pow, &[1.000_000_1, f32::MAX], INF), (Op::Pow, &[TINY, 2.0], 0.0), (Op::Pow, &[f32::MAX, -1.0], 2.938_736e-39),
    (Op::Pow, &[7.0, TINY], 1.0), (Op::Pow, &[-3.0, 0.0], 1.0), (Op::Pow, &[NAN, NAN], NAN), (Op::Pow, &[-TINY, TINY], NAN),
    (Op::Atan2, &[0.0, 0.0], 0.0), (Op::Atan2, &[-0.0, 0.0], -0.0), (Op::Atan2, &[0.0, -0.0], PI), (Op::Atan2, &[-0.0, -0.0], -PI),
    (Op::Atan2, &[0.0, 1.0], 0.0), (Op::Atan2, &[-0.0, -1.0], -PI), (Op::Atan2, &[1.0, 0.0], PI / 2.0), (Op::Atan2, &[-1.0, -0.0], -PI / 2.0),
    (Op::Atan2, &[INF, INF], PI / 4.0), (Op::Atan2, &[-INF, -INF], -2.356_194_5), (Op::Atan2, &[INF, -1.0], PI / 2.0),
    (Op::Atan2, &[1.0, INF], 0.0), (Op::Atan2, &[-1.0, -INF], -PI), (Op::Atan2, &[NAN, 1.0], NAN), (Op::Atan2, &[1.0, NAN], NAN),
    (Op::Atan2, &[INF, NAN], NAN), (Op::Atan2, &[NAN, INF], NAN), (Op::Atan2, &[TINY, TINY], PI / 4.0), (Op::Atan2, &[f32::MAX, f32::MIN], 2.356_194_5),
    (Op::Fma, &[INF, 0.0, 1.0], NAN), (Op::Fma, &[2.0, 3.0, -INF], -INF),
];

#[test]
fn edges_are_right_to_the_bit() {
    let mut failures = vec![];
    for &(op, args, expect) in SPECIAL {
        let scalars: Vec<Scalar> = args.iter().map(|&x| Scalar::F32(x)).collect();
        for dialect in Dialect::ALL {
            let actual = eval_op(op, &scalars, dialect).to_f64() as f32;
            if actual.to_bits() != expect.to_bits() && !(actual.is_nan() && expect.is_nan()) {
                failures.push(format!("{op:?}{args:?} is {actual:?}, not {expect:?} ({dialect:?})"));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Integer operations at the edges of their types, where they wrap and never trap.
#[rustfmt::skip]
const INTEGER: &[(Op, DType, &[i64], i64)] = &[
    (Op::Div, DType::I32, &[7, 0], 7), (Op::Div, DType::I32, &[-0x8000_0000, -1], -0x8000_0000), (Op::Div, DType::I32, &[-7, 2], -3),
    (Op::Div, DType::I8, &[-128, -1], -128), (Op::Div, DType::U32, &[7, 0], 7), (Op::Div, DType::U32, &[0xffff_ffff, 2], 0x7fff_ffff),
    (Op::Div, DType::Index, &[7, 2], 3), (Op::Div, DType::I16, &[-0x8000, -1], -0x8000), (Op::Div, DType::U16, &[0xffff, 0], 0xffff),
    (Op::Rem, DType::I16, &[-0x8000, -1], 0), (Op::Mul, DType::I16, &[0x100, 0x80], -0x8000), (Op::Mul, DType::U16, &[0xffff, 0xffff], 1),
    (Op::Shl, DType::U16, &[0x8001, 17], 2), (Op::Shr, DType::I16, &[-0x8000, 15], -1), (Op::Shr, DType::U16, &[0x8000, 31], 1),
    (Op::Not, DType::U16, &[0], 0xffff), (Op::Abs, DType::I16, &[-0x8000], -0x8000),
    (Op::Rem, DType::I32, &[7, 0], 0), (Op::Rem, DType::I32, &[-0x8000_0000, -1], 0), (Op::Rem, DType::I32, &[-7, 2], -1),
    (Op::Rem, DType::U32, &[7, 0], 0), (Op::Rem, DType::U8, &[200, 7], 4), (Op::Rem, DType::Index, &[7, 2], 1),
    (Op::FloorDiv, DType::I32, &[7, 0], 7), (Op::FloorDiv, DType::I32, &[-7, 0], -7), (Op::FloorDiv, DType::I32, &[-0x8000_0000, -1], -0x8000_0000),
    (Op::FloorDiv, DType::I32, &[-7, 2], -4), (Op::FloorDiv, DType::I32, &[7, -2], -4), (Op::FloorDiv, DType::I32, &[-7, -2], 3),
    (Op::FloorDiv, DType::I32, &[-6, 2], -3), (Op::FloorDiv, DType::I32, &[-0x8000_0000, 0x7fff_ffff], -2), (Op::FloorDiv, DType::I32, &[0x7fff_ffff, -0x8000_0000], -1),
    (Op::FloorDiv, DType::I8, &[-128, -1], -128), (Op::FloorDiv, DType::I16, &[-0x8000, 3], -10923), (Op::FloorDiv, DType::U8, &[200, 7], 28),
    (Op::FloorDiv, DType::U32, &[0xffff_ffff, 2], 0x7fff_ffff), (Op::FloorDiv, DType::U32, &[7, 0], 7), (Op::FloorDiv, DType::Index, &[7, 2], 3),
    (Op::Remainder, DType::I32, &[7, 0], 0), (Op::Remainder, DType::I32, &[-7, 0], 0), (Op::Remainder, DType::I32, &[-0x8000_0000, -1], 0),
    (Op::Remainder, DType::I32, &[-7, 2], 1), (Op::Remainder, DType::I32, &[7, -2], -1), (Op::Remainder, DType::I32, &[-7, -2], -1),
    (Op::Remainder, DType::I32, &[-6, 2], 0), (Op::Remainder, DType::I32, &[-1, 0x7fff_ffff], 0x7fff_fffe), (Op::Remainder, DType::I32, &[1, -0x8000_0000], -0x7fff_ffff),
    (Op::Remainder, DType::I16, &[-0x8000, -1], 0), (Op::Remainder, DType::I8, &[-128, 127], 126), (Op::Remainder, DType::U8, &[200, 7], 4),
    (Op::Remainder, DType::U32, &[0xffff_ffff, 0x8000_0000], 0x7fff_ffff), (Op::Remainder, DType::Index, &[7, 2], 1),
    (Op::Shl, DType::I32, &[1, 33], 2), (Op::Shl, DType::I32, &[1, -1], -0x8000_0000), (Op::Shl, DType::U8, &[0x81, 1], 2),
    (Op::Shr, DType::I32, &[-8, 1], -4), (Op::Shr, DType::I32, &[-8, 33], -4), (Op::Shr, DType::U32, &[0x8000_0000, 31], 1),
    (Op::Sign, DType::I32, &[-5], -1), (Op::Sign, DType::I32, &[0], 0), (Op::Sign, DType::U32, &[0xffff_ffff], 1), (Op::Sign, DType::U8, &[0], 0),
    (Op::Neg, DType::I32, &[-0x8000_0000], -0x8000_0000), (Op::Abs, DType::I32, &[-0x8000_0000], -0x8000_0000),
    (Op::Add, DType::I32, &[0x7fff_ffff, 1], -0x8000_0000), (Op::Sub, DType::U32, &[0, 1], 0xffff_ffff), (Op::Mul, DType::U32, &[0x1_0000, 0x1_0000], 0),
    (Op::Min, DType::I32, &[-1, 1], -1), (Op::Max, DType::U32, &[0xffff_ffff, 1], 0xffff_ffff), (Op::Not, DType::U32, &[0], 0xffff_ffff),
    (Op::MulHigh, DType::U32, &[0xffff_ffff, 0xffff_ffff], 0xffff_fffe), (Op::MulHigh, DType::U32, &[0x1_0000, 0xffff], 0),
    (Op::MulHigh, DType::U32, &[0x0123_4567, 0x89ab_cdef], 0x009c_a39d), (Op::MulHigh, DType::U32, &[0xffff, 0xffff_ffff], 0xfffe),
];

#[test]
fn integers_wrap_and_never_trap() {
    for &(op, dtype, args, expect) in INTEGER {
        let args: Vec<Scalar> = args.iter().map(|&x| Scalar::Int(dtype, x)).collect();
        for dialect in Dialect::ALL {
            let actual = eval_op(op, &args, dialect).to_const();
            assert_eq!(actual, Const::Int(expect), "{op:?}{args:?} ({dialect:?})");
        }
    }
}

#[test]
fn truth_tables_hold() {
    for bits in 0..8u8 {
        let [c, x, y] = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0];
        let cases = [
            (Op::Select, vec![c, x, y], if c { x } else { y }),
            (Op::Eq, vec![x, y], x == y),
            (Op::Ne, vec![x, y], x != y),
            (Op::And, vec![x, y], x && y),
            (Op::Or, vec![x, y], x || y),
            (Op::Xor, vec![x, y], x != y),
            (Op::Not, vec![x], !x),
        ];
        for (op, args, expect) in cases {
            let args: Vec<Scalar> = args.into_iter().map(Scalar::Bool).collect();
            for dialect in Dialect::ALL {
                assert_eq!(
                    eval_op(op, &args, dialect).to_const(),
                    Const::Bool(expect),
                    "{op:?}{args:?} ({dialect:?})"
                );
            }
        }
    }
}
