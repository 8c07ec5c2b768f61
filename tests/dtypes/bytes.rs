//! `i8` and `u8`: every operation on all 65,536 pairs of operands, on every device, and what reductions make of bytes.

use fusion::{Device, Element, Result, Tensor};
use fusion_compiler::ir::ops::Op;

use crate::devices::on_devices;

macro_rules! bytes {
    ($($element:ident: $name:ident,)*) => { $(
        mod $name {
            use fusion::{Result, Tensor};
            use fusion_compiler::ir::ops::Op;

            fusion::fuse! {
                pub(super) fn add(x: $element[N], y: $element[N]) -> $element[N] { x + y }
                pub(super) fn sub(x: $element[N], y: $element[N]) -> $element[N] { x - y }
                pub(super) fn mul(x: $element[N], y: $element[N]) -> $element[N] { x * y }
                pub(super) fn div(x: $element[N], y: $element[N]) -> $element[N] { x / y }
                pub(super) fn rem(x: $element[N], y: $element[N]) -> $element[N] { x % y }
                pub(super) fn min_of(x: $element[N], y: $element[N]) -> $element[N] { min(x, y) }
                pub(super) fn max_of(x: $element[N], y: $element[N]) -> $element[N] { max(x, y) }
                pub(super) fn and(x: $element[N], y: $element[N]) -> $element[N] { x & y }
                pub(super) fn or(x: $element[N], y: $element[N]) -> $element[N] { x | y }
                pub(super) fn xor(x: $element[N], y: $element[N]) -> $element[N] { x ^ y }
                pub(super) fn shl(x: $element[N], y: $element[N]) -> $element[N] { x << y }
                pub(super) fn shr(x: $element[N], y: $element[N]) -> $element[N] { x >> y }
                pub(super) fn lt(x: $element[N], y: $element[N]) -> $element[N] { (x < y) as $element }
                pub(super) fn eq(x: $element[N], y: $element[N]) -> $element[N] { (x == y) as $element }
                pub(super) fn neg(x: $element[N], _y: $element[N]) -> $element[N] { -x }
                pub(super) fn not(x: $element[N], _y: $element[N]) -> $element[N] { !x }
                pub(super) fn abs_of(x: $element[N], _y: $element[N]) -> $element[N] { abs(x) }
                pub(super) fn sign_of(x: $element[N], _y: $element[N]) -> $element[N] { sign(x) }
                /// What wraps in between matters.
                pub(super) fn chain(x: $element[N], y: $element[N]) -> $element[N] { (x * y + x) / 3 }
                pub(super) fn sums(x: $element[N, D]) -> (i32[N], $element[N], $element[D], i32[]) {
                    (sum(x, D), max(x, D), min(x, N), argmax(x))
                }
            }

            /// A function of two tensors.
            pub(crate) type Binary = fn(&Tensor<$element>, &Tensor<$element>) -> Result<Tensor<$element>>;

            pub(crate) const ALL: &[(Op, Binary)] = &[
                (Op::Add, add), (Op::Sub, sub), (Op::Mul, mul), (Op::Div, div), (Op::Rem, rem), (Op::Min, min_of),
                (Op::Max, max_of), (Op::And, and), (Op::Or, or), (Op::Xor, xor), (Op::Shl, shl), (Op::Shr, shr),
                (Op::Lt, lt), (Op::Eq, eq), (Op::Neg, neg), (Op::Not, not), (Op::Abs, abs_of), (Op::Sign, sign_of),
            ];
        }
    )* };
}

bytes! {
    i8: signed,
    u8: unsigned,
}

fusion::fuse! {
    pub(crate) fn averages(x: u8[N, D]) -> f32[N] { mean(x as f32, D) }
}

/// All pairs of a type's numbers.
fn pairs(first: i64) -> (Vec<i64>, Vec<i64>) {
    let all = || first..first + 256;
    all().flat_map(|x| all().map(move |y| (x, y))).unzip()
}

type Binary<'f, T> = &'f dyn Fn(&Tensor<T>, &Tensor<T>) -> Result<Tensor<T>>;

fn check<T: Element>(
    device: &Device,
    first: i64,
    op: &str,
    function: Binary<'_, T>,
    of: fn(i64) -> T,
    expect: impl Fn(i64, i64) -> i64,
) -> Result<()> {
    let (x, y) = pairs(first);
    let tensor = |x: &[i64]| Tensor::from_vec(device, x.iter().map(|&x| of(x)).collect(), [x.len()]);
    let got = function(&tensor(&x)?, &tensor(&y)?)?.to_vec()?;
    for ((&x, &y), got) in x.iter().zip(&y).zip(got) {
        assert!(got == of(expect(x, y)), "{device}: {op} of {x} and {y} in {} is {got:?}", T::DTYPE);
    }
    Ok(())
}

#[test]
fn all_pairs() {
    on_devices(|device| {
        for &(op, function) in signed::ALL {
            let eval = op.info().eval.int;
            let expect = |x: i64, y: i64| if op == Op::Not { !x } else { eval(&[x, y], 8) };
            check(device, -128, &format!("{op:?}"), &function, |x| x as i8, expect)?;
        }
        for &(op, function) in unsigned::ALL {
            let eval = op.info().eval.int;
            let expect = |x: i64, y: i64| match op {
                Op::Not => !x,
                Op::Abs => x,
                _ => eval(&[x, y], 8),
            };
            check(device, 0, &format!("{op:?}"), &function, |x| x as u8, expect)?;
        }
        let of_signed = |x, y| i64::from((x as i8).wrapping_mul(y as i8).wrapping_add(x as i8) / 3);
        check(device, -128, "chain", &signed::chain, |x| x as i8, of_signed)?;
        let of_unsigned = |x, y| i64::from((x as u8).wrapping_mul(y as u8).wrapping_add(x as u8) / 3);
        check(device, 0, "chain", &unsigned::chain, |x| x as u8, of_unsigned)
    });
}

#[test]
fn reductions_of_bytes() {
    on_devices(|device| {
        for [n, d] in [[1, 1], [3, 5], [7, 1029], [2, 70_001], [300, 33]] {
            let x: Vec<i8> = (0..n * d).map(|i| (i * 7919 % 251) as i8).collect();
            let (sums, most, least, place) = signed::sums(&Tensor::from_slice(device, &x, [n, d])?)?;
            let rows: Vec<&[i8]> = x.chunks(d).collect();
            let sum = |row: &&[i8]| row.iter().map(|&x| i32::from(x)).sum::<i32>();
            assert_eq!(sums.to_vec()?, rows.iter().map(sum).collect::<Vec<_>>(), "{device}");
            let largest: Vec<i8> = rows.iter().map(|row| row.iter().copied().max().unwrap()).collect();
            assert_eq!(most.to_vec()?, largest, "{device}");
            let column = |c: usize| rows.iter().map(|row| row[c]).min().unwrap();
            assert_eq!(least.to_vec()?, (0..d).map(column).collect::<Vec<_>>(), "{device}");
            let first = x.iter().position(|&y| y == *x.iter().max().unwrap()).unwrap();
            assert_eq!(place.item()?, first as i32, "{device}");
            let bytes: Vec<u8> = x.iter().map(|&x| x as u8).collect();
            let t = Tensor::from_slice(device, &bytes, [n, d])?;
            let (sums, ..) = unsigned::sums(&t)?;
            let sum = |row: &[u8]| row.iter().map(|&x| i32::from(x)).sum::<i32>();
            let expected: Vec<i32> = bytes.chunks(d).map(sum).collect();
            assert_eq!(sums.to_vec()?, expected, "{device}");
            for (mean, sum) in averages(&t)?.to_vec()?.into_iter().zip(expected) {
                let exact = f64::from(sum) / d as f64;
                assert!((f64::from(mean) - exact).abs() <= exact * 1e-5, "{device}: {mean}, not {exact}");
            }
        }
        Ok(())
    });
}
