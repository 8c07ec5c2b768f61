//! Every operation of the table on all floats of 16 bits, and on floats of 64 bits, on every device that has
//! them.
//!
//! For 16 bits the exact result is rounded to `f32` and then to 16 bits, as the docs say. The last rounding
//! may go either way where the operation has an error in `f32`. The functions are compiled at run time.
//! `tests/corpus` checks that generated code agrees with them.

use fusion::kernel::interpreted;
use fusion::run::{Arg, run};
use fusion::{DType, Device, Element, Tensor, bf16, f16};
use fusion_compiler::check::{Source, front_end};
use fusion_compiler::compile;
use fusion_compiler::ir::dtype::round;
use fusion_compiler::ir::op::{Op, Typing};
use fusion_compiler::ir::plan::Target;
use fusion_compiler::ops::{Dialect, Lower, OpInfo};

use crate::devices::{Kind, devices};

/// A float type, with the conversions between its numbers and bits.
struct Floats<T> {
    dtype: DType,
    of: fn(f64) -> T,
    to: fn(T) -> f64,
    /// Function to bits as an integer, in the order of the numbers.
    bits: fn(T) -> i64,
}

/// Maps bits to integers so that neighbouring numbers are one apart. −0 is next to 0.
fn ordered(bits: i64, sign: i64) -> i64 {
    if bits & sign == 0 { bits } else { -(bits & !sign) - 1 }
}

const HALF: Floats<f16> = Floats {
    dtype: DType::F16,
    of: f16::from_f64,
    to: f16::to_f64,
    bits: |x| ordered(x.to_bits().into(), 0x8000),
};
const BRAIN: Floats<bf16> = Floats {
    dtype: DType::BF16,
    of: bf16::from_f64,
    to: bf16::to_f64,
    bits: |x| ordered(x.to_bits().into(), 0x8000),
};
const DOUBLE: Floats<f64> = Floats {
    dtype: DType::F64,
    of: |x| x,
    to: |x| x,
    bits: |x| ordered(x.to_bits().cast_signed(), i64::MIN),
};

/// Returns the source of the operation as a function of tensors, if it is an operation on floats that users
/// can name.
fn source(op: Op, dtype: DType) -> Option<(String, bool)> {
    let OpInfo { name, arity, typing, .. } = *op.info();
    if name.is_empty() || typing == Typing::ToBits {
        return None;
    }
    // The CPU and PTX have every nameable float operation in `f64`, except access to the bits of `f32`.
    let has = |dialect: Dialect| !matches!(dialect.lower(op, DType::F64), Lower::Never);
    assert!(!typing.accepts(DType::F32) || has(Dialect::Cpu) && has(Dialect::Ptx), "{op:?}");
    let (call, truth) = match typing {
        Typing::Number | Typing::Float => (format!("{name}({})", ["x", "x, y", "x, y, z"][arity - 1]), false),
        Typing::Compare | Typing::Test => (format!("{name}({})", ["x", "x, y"][arity - 1]), true),
        Typing::Select => (String::from("if x > 0 { y } else { z }"), false),
        Typing::Int | Typing::Bits | Typing::ToBits => return None,
        Typing::Encode | Typing::Decode | Typing::Double => return None,
    };
    let params: Vec<String> = ["x", "y", "z"][..arity].iter().map(|x| format!("{x}: {dtype}[N]")).collect();
    let result = if truth { DType::Bool } else { dtype };
    Some((format!("pub fn f({}) -> {result}[N] {{ {call} }}", params.join(", ")), truth))
}

/// Runs the operation on columns of operands and returns numbers, or truth values as 1 and 0.
fn results<T: Element>(
    floats: &Floats<T>,
    (text, truth): &(String, bool),
    columns: &[Vec<T>],
    device: &Device,
) -> Vec<T> {
    let graph = match front_end(text.parse().expect("tokens")) {
        Ok(Source::Items(mut functions, _)) => functions.remove(0).graph,
        mistaken => panic!("{text}: {mistaken:?}"),
    };
    let plan = interpreted(compile(graph, &Target::ALL, &|_| (0, 0)));
    let tensors: Vec<Tensor<T>> = columns
        .iter()
        .map(|column| Tensor::from_slice(device, column, [column.len()]).expect("memory"))
        .collect();
    let mut args: Vec<Arg<'_>> = tensors.iter().map(Arg::from).collect();
    let [result] = run::<1>(&plan, &mut args).unwrap_or_else(|error| panic!("{device}: {text}: {error}"));
    if *truth {
        let truths = Tensor::<bool>::from_raw(result).and_then(|t| t.to_vec()).expect("truth values");
        truths.into_iter().map(|truth| (floats.of)(f64::from(u8::from(truth)))).collect()
    } else {
        Tensor::<T>::from_raw(result).and_then(|t| t.to_vec()).expect("numbers")
    }
}

/// Returns the expected result of the operation.
fn expected(op: Op, args: &[f64], dtype: DType) -> f64 {
    if op == Op::Select {
        return if args[0] > 0.0 { args[1] } else { args[2] };
    }
    if op == Op::Fma && dtype != DType::F64 {
        return f64::from((args[0] as f32).mul_add(args[1] as f32, args[2] as f32));
    }
    (op.info().eval.float)(args)
}

fn check<T: Element>(floats: &Floats<T>, columns_of: impl Fn(usize) -> Vec<Vec<T>>) {
    let narrow = floats.dtype.is_narrow();
    for (kind, device) in devices() {
        // WGSL has no `f64`, and a launch there says so (`double.rs`).
        if !narrow && kind == Kind::Wgpu {
            continue;
        }
        let mut failures = Vec::new();
        for &op in Op::ALL {
            let Some(function) = source(op, floats.dtype) else { continue };
            let columns = columns_of(op.info().arity);
            let results = results(floats, &function, &columns, &device);
            let bound = match (op.info().ulp.native, kind) {
                // The bound is as near as Rust's standard library, or twice that.
                (1.., _) if !narrow => {
                    // The table's own reference value is no nearer.
                    if matches!(op, Op::Erf | Op::Erfc) { 16 } else { 4 }
                }
                (0, Kind::Cpu | Kind::Cuda) => 0,
                (0, Kind::Wgpu) => i64::from(op.info().ulp.wgsl > 0),
                (1.., _) => 1,
            };
            for (i, &got) in results.iter().enumerate() {
                let args: Vec<f64> = columns.iter().map(|column| (floats.to)(column[i])).collect();
                let exact = expected(op, &args, floats.dtype);
                let expect =
                    (floats.of)(if narrow { round(floats.dtype, f64::from(exact as f32)) } else { exact });
                let tiny = |x: f64| x.abs() < f64::from(f32::MIN_POSITIVE);
                // WGSL lets drivers flush subnormal numbers to zeros of any sign.
                if kind == Kind::Wgpu && (args.iter().any(|&x| tiny(x)) || tiny(exact)) {
                    continue;
                }
                let (a, b) = ((floats.to)(got), (floats.to)(expect));
                // PTX's conversion to 16 bits gives one NaN, without a sign.
                let b = if op == Op::Copysign && narrow && args[1].is_nan() { b.copysign(a) } else { b };
                let expect = (floats.of)(b);
                // WGSL lets a driver round the product, too.
                let twice = |x: &[f64]| f64::from(x[0] as f32 * x[1] as f32 + x[2] as f32);
                let apart = op == Op::Fma && kind == Kind::Wgpu;
                let near = apart && (floats.bits)((floats.of)(twice(&args))) == (floats.bits)(got)
                    || a.is_nan() && b.is_nan()
                    || a.is_nan() == b.is_nan()
                        && (narrow || a.is_sign_negative() == b.is_sign_negative())
                        && (floats.bits)(got).abs_diff((floats.bits)(expect)) <= bound as u64;
                if !near {
                    failures.push(format!("{op:?}{args:?} is {a:?}, not {b:?}"));
                }
            }
        }
        let shown: Vec<_> = failures.iter().step_by(failures.len() / 20 + 1).collect();
        assert!(failures.is_empty(), "{device}: {} of {} fail: {shown:#?}", failures.len(), floats.dtype);
    }
}

/// Returns all 16-bit numbers for one operand, and a sample of pairs or triples for more.
fn of_16_bits<T: Copy>(arity: usize, of_bits: fn(u16) -> T) -> Vec<Vec<T>> {
    if arity == 1 {
        return vec![(0..=u16::MAX).map(of_bits).collect()];
    }
    let edges = [
        0, 1, 0x8000, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e01, 0x7f80, 0xff80, 0x7fc1,
        0x7f7f, 0x3f80, 0x3c00,
    ];
    let all: Vec<u16> = edges.into_iter().chain((0..=u16::MAX).step_by(997)).collect();
    let pairs: Vec<(u16, u16)> = all.iter().flat_map(|&x| all.iter().map(move |&y| (x, y))).collect();
    let column = |i: usize| pairs.iter().enumerate().map(move |(j, &(x, y))| [x, y, (j * 40_503) as u16][i]);
    (0..arity).map(|i| column(i).map(of_bits).collect()).collect()
}

#[test]
fn halves() {
    check(&HALF, |arity| of_16_bits(arity, f16::from_bits));
}

#[test]
fn brain_floats() {
    check(&BRAIN, |arity| of_16_bits(arity, bf16::from_bits));
}

/// Returns pseudo-random numbers, half of them with any bits and half with sizes from 2⁻¹⁰ to 2¹⁰.
fn random_doubles() -> impl Iterator<Item = f64> {
    let mut state = 1u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = state ^ state >> 29;
        if bits & 1 == 0 {
            f64::from_bits(bits)
        } else {
            f64::from_bits(bits & !(0x7ff << 52) | (1013 + (bits >> 3) % 20) << 52)
        }
    })
}

const EDGES: [f64; 19] = [
    0.0,
    5e-324,
    1e-310,
    f64::MIN_POSITIVE,
    0.5,
    1.0 - f64::EPSILON / 2.0,
    1.0,
    1.0 + f64::EPSILON,
    1.5,
    2.5,
    3.0,
    709.0,
    9_007_199_254_740_991.0,
    9_007_199_254_740_994.0,
    1e300,
    f64::MAX / 2.0,
    f64::MAX,
    f64::INFINITY,
    f64::NAN,
];

/// Returns edges, angles next to quarter turns, and random numbers.
fn of_64_bits() -> Vec<f64> {
    let small = (1..=300).map(|n| f64::from(n) * std::f64::consts::FRAC_PI_2);
    let large = (1..=8).map(|n| f64::from(n) * 5_319_372_648_326_541_416_707_072.0);
    let chosen = EDGES.into_iter().chain(small).chain(large);
    chosen.flat_map(|x| [x, -x]).chain(random_doubles().take(4000)).collect()
}

/// Returns all pairs of edges, powers next to the largest and smallest numbers with bases near 1 among them,
/// and random pairs.
fn pairs_of_64_bits() -> Vec<(f64, f64)> {
    let edges: Vec<f64> = EDGES.into_iter().flat_map(|x| [x, -x]).collect();
    let edges = edges.iter().flat_map(|&x| edges.iter().map(move |&y| (x, y))).collect::<Vec<_>>();
    let bases =
        [2.0, 10.0, 0.3, 1e-300, std::f64::consts::SQRT_2, 1.0 + 1e-9, 1.0 - 1e-13, 1.0 + f64::EPSILON];
    let logs = [1023.9999, 1024.0, 1024.0001, -1021.9, -1022.1, -1060.3, -1074.4, -1075.1, 0.5, 1e-17];
    let powers = bases.into_iter().flat_map(|base: f64| logs.map(|log| (base, log / base.log2())));
    let any: Vec<f64> = random_doubles().take(6000).collect();
    let any = any.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    edges.into_iter().chain(powers).chain(any).collect()
}

#[test]
fn doubles() {
    let (all, pairs) = (of_64_bits(), pairs_of_64_bits());
    check(&DOUBLE, |arity| {
        if arity == 1 {
            return vec![all.clone()];
        }
        let column = |i: usize| {
            pairs.iter().enumerate().map(|(j, &(x, y))| [x, y, all[j * 7 % all.len()]][i]).collect()
        };
        (0..arity).map(column).collect()
    });
}
