//! Operations on `i32` and `u32` wrap and never trap. Casts saturate as Rust's `as` does.

use fusion::prelude::*;
use fusion_compiler::ir::dtype::{DType, wrap};
use fusion_compiler::ir::op::Op;

use super::kernels::Function;
use super::{EDGES, devices, download, kernels, random_bits, report, upload};

/// Edges of both types, and shift amounts around a whole width.
const INTS: [u32; 16] = [
    0,
    1,
    2,
    3,
    7,
    30,
    31,
    32,
    33,
    64,
    0x7fff_fffe,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_fffe,
    0xffff_ffff,
];

/// Returns all triples of edges, and any bits.
fn points() -> Vec<[u32; 3]> {
    let edges = INTS.into_iter().flat_map(|x| INTS.into_iter().flat_map(move |y| INTS.map(|z| [x, y, z])));
    let bits: Vec<u32> = random_bits(0).take(9_000).collect();
    edges.chain(bits.chunks_exact(3).map(|bits| [bits[0], bits[1], bits[2]])).collect()
}

/// Compares with the integer column of the table on every device. `narrow` takes the low bits.
fn failures<T: Element + PartialEq + std::fmt::Debug>(
    dtype: DType,
    function: impl Fn(Op) -> Option<Function<T, T>>,
    narrow: fn(i64) -> T,
) -> Vec<String> {
    let points = points();
    let mut failures = Vec::new();
    for (kind, device) in devices() {
        for &op in Op::ALL {
            let Some(function) = function(op) else { continue };
            let arity = op.info().arity;
            let tensor = |i: usize| -> Tensor<T> {
                upload(&device, &points.iter().map(|point| narrow(point[i].into())).collect::<Vec<T>>())
            };
            let tensors: Vec<_> = (0..arity).map(tensor).collect();
            let results = download(function.call(&tensors));
            assert_eq!(results.len(), points.len());
            for (point, actual) in points.iter().zip(results) {
                let args: Vec<i64> = point[..arity].iter().map(|&x| wrap(dtype, x.into())).collect();
                let expect = narrow((op.info().eval.int)(&args, 32));
                if actual != expect {
                    failures.push(format!("{op:?}{args:?} is {actual:?}, not {expect:?} ({kind:?})"));
                }
            }
        }
    }
    failures
}

#[test]
fn each_operation_on_integers_has_a_function() {
    for &op in Op::ALL {
        let made_by_the_compiler =
            matches!(op, Op::IntDiv | Op::IntRem | Op::MulHigh | Op::ShlRaw | Op::ShrRaw);
        let expect = op.info().typing.accepts(DType::I32) && !made_by_the_compiler;
        assert_eq!(kernels::int(op).is_some(), expect, "{op:?}");
        assert_eq!(kernels::uint(op).is_some(), expect, "{op:?}");
    }
}

#[test]
fn signed_operations_are_exact() {
    report(&failures(DType::I32, kernels::int, |x| x as i32));
}

#[test]
fn unsigned_operations_are_exact() {
    report(&failures(DType::U32, kernels::uint, |x| x as u32));
}

/// Expected results as literals, so that the table does not judge itself where it defines operations that
/// panic in Rust.
#[rustfmt::skip]
const SIGNED: &[(Op, [i32; 2], i32)] = &[
    (Op::Div, [7, 0], 7), (Op::Div, [i32::MIN, -1], i32::MIN), (Op::Div, [-7, 2], -3), (Op::Div, [0, 0], 0),
    (Op::Rem, [7, 0], 0), (Op::Rem, [i32::MIN, -1], 0), (Op::Rem, [-7, 2], -1), (Op::Rem, [7, -2], 1),
    (Op::Remainder, [7, 0], 0), (Op::Remainder, [i32::MIN, -1], 0), (Op::Remainder, [-7, 2], 1), (Op::Remainder, [7, -2], -1),
    (Op::Remainder, [-6, 3], 0), (Op::Remainder, [i32::MIN, i32::MAX], i32::MAX - 1), (Op::FloorDiv, [-7, 2], -4), (Op::FloorDiv, [7, -2], -4),
    (Op::FloorDiv, [7, 0], 7), (Op::FloorDiv, [-7, 0], -7), (Op::FloorDiv, [i32::MIN, -1], i32::MIN), (Op::FloorDiv, [i32::MIN, 2], i32::MIN / 2),
    (Op::Add, [i32::MAX, 1], i32::MIN), (Op::Sub, [i32::MIN, 1], i32::MAX), (Op::Mul, [i32::MIN, -1], i32::MIN),
    (Op::Shl, [1, 31], i32::MIN), (Op::Shl, [1, 32], 1), (Op::Shl, [1, 33], 2), (Op::Shl, [1, -1], i32::MIN),
    (Op::Shr, [-8, 1], -4), (Op::Shr, [-8, 31], -1), (Op::Shr, [-8, 32], -8), (Op::Shr, [-8, 33], -4), (Op::Shr, [-8, -1], -1),
    (Op::Min, [-1, 1], -1), (Op::Max, [-1, 1], 1), (Op::Xor, [-1, 1], -2), (Op::Lt, [i32::MIN, i32::MAX], 1),
];

#[test]
fn integers_wrap_and_never_trap() {
    for (_, device) in devices() {
        for &(op, [x, y], expect) in SIGNED {
            let function = kernels::int(op).expect("an operation on integers");
            let results = download(function.call(&[upload(&device, &[x]), upload(&device, &[y])]));
            assert_eq!(results, [expect], "{op:?}({x}, {y}) on {}", device.name());
        }
    }
}

fuse! {
    pub(crate) fn float_to_int(x: f32[N]) -> i32[N] { x as i32 }
    pub(crate) fn float_to_uint(x: f32[N]) -> u32[N] { x as u32 }
    pub(crate) fn int_to_float(x: i32[N]) -> f32[N] { x as f32 }
    pub(crate) fn uint_to_float(x: u32[N]) -> f32[N] { x as f32 }
    pub(crate) fn int_to_uint(x: i32[N]) -> u32[N] { x as u32 }
    pub(crate) fn uint_to_int(x: u32[N]) -> i32[N] { x as i32 }
    pub(crate) fn bitwise(x: i32[N], y: i32[N]) -> (i32[N], i32[N], i32[N], i32[N]) {
        let a = x != 0;
        let b = y != 0;
        ((a & b) as i32, (a | b) as i32, (a ^ b) as i32, (!a) as i32)
    }
    pub(crate) fn logical(x: i32[N], y: i32[N], z: i32[N]) -> (i32[N], i32[N], i32[N], i32[N]) {
        let a = x != 0;
        let b = y != 0;
        let c = z != 0;
        ((a && b || c) as i32, (a == b) as i32, (a != b) as i32, (if a { b } else { c }) as i32)
    }
}

/// Returns floats around the limits of the integers, and all edges.
fn floats() -> Vec<f32> {
    let limits = [2_147_483_520.0, 2_147_483_648.0, 4_294_967_040.0, 4_294_967_296.0, 1e10, 0.99, 1.99];
    let signed = limits.into_iter().flat_map(|x: f32| [x, -x]);
    EDGES.into_iter().chain(signed).chain(random_bits(0).take(5_000).map(f32::from_bits)).collect()
}

#[test]
fn casts_saturate_and_nan_is_zero() {
    let floats = floats();
    let bits: Vec<u32> = INTS.into_iter().chain(random_bits(0).take(5_000)).collect();
    let ints: Vec<i32> = bits.iter().map(|&x| x as i32).collect();
    for (_, device) in devices() {
        let name = device.name();
        let (x, i, u) = (upload(&device, &floats), upload(&device, &ints), upload(&device, &bits));
        for (&x, y) in floats.iter().zip(download(float_to_int(&x))) {
            assert_eq!(y, x as i32, "{x} as i32 on {name}");
        }
        for (&x, y) in floats.iter().zip(download(float_to_uint(&x))) {
            assert_eq!(y, x as u32, "{x} as u32 on {name}");
        }
        assert_eq!(download(int_to_float(&i)), ints.iter().map(|&x| x as f32).collect::<Vec<_>>(), "{name}");
        assert_eq!(download(uint_to_float(&u)), bits.iter().map(|&x| x as f32).collect::<Vec<_>>(), "{name}");
        assert_eq!(download(int_to_uint(&i)), bits, "{name}");
        assert_eq!(download(uint_to_int(&u)), ints, "{name}");
    }
}

#[test]
fn truth_tables_hold() {
    let columns = [0, 1, 2].map(|bit| (0..8).map(|row| row >> bit & 1).collect::<Vec<i32>>());
    for (_, device) in devices() {
        let [x, y, z] = columns.each_ref().map(|column| upload(&device, column));
        let (and, or, xor, not) = bitwise(&x, &y).expect("a launch on a working device");
        let (either, eq, ne, pick) = logical(&x, &y, &z).expect("a launch on a working device");
        let results = [and, or, xor, not, either, eq, ne, pick].map(|result| download(Ok(result)));
        for row in 0..8 {
            let [a, b, c] = columns.each_ref().map(|column| column[row] != 0);
            let expect = [a & b, a | b, a ^ b, !a, a && b || c, a == b, a != b, if a { b } else { c }];
            let actual = results.each_ref().map(|result| result[row] != 0);
            assert_eq!(actual, expect, "{a} {b} {c} on {}", device.name());
        }
    }
}
