//! `i8`, `u8`, `i16` and `u16` agree with the table on every device. Every operation covers all pairs of
//! bytes, and pairs of 16-bit numbers of every size. Further tests cover reductions, elements that share a
//! word with others, and one function on every way to compile it.

use fusion::kernel::interpreted;
use fusion::run::{Arg, run};
use fusion::{Device, Element, Result, Tensor};
use fusion_compiler::check::{Source, front_end};
use fusion_compiler::ir::dtype::Class;
use fusion_compiler::ir::graph::Graph;
use fusion_compiler::ir::op::Op;
use fusion_compiler::ir::plan::Target;
use fusion_support::reference::{Rounding, interpret};

use crate::devices::{Kind, devices, on_devices};

/// An integer of fewer than 32 bits.
trait Integer: Element + Ord + Into<i32> + Into<Arg<'static>> {
    /// Returns the number with these low bits.
    fn of(x: i64) -> Self;

    /// Returns the number as `i64`.
    fn number(self) -> i64 {
        i64::from(Into::<i32>::into(self))
    }
}

/// Defines the function that is compiled in every way, with a name and attributes.
macro_rules! mixed {
    ($give:ident, $element:ident, $name:ident, $($attributes:tt)*) => {
        $give! {
            $($attributes)* pub(super) fn $name(x: $element[N, D], y: $element[D], s: $element) -> ($element[N, D], i32[N]) {
                let z = (x * y - max(x, D)) / (y | 1) ^ s;
                (z, sum(z, D))
            }
        }
    };
}

macro_rules! integers {
    ($($element:ident: $name:ident,)*) => {
        $( mod $name {
            use fusion::{Device, Result, fuse};
            use fusion_compiler::ir::op::Op;

            use super::{Binary, Integer};

            fuse! {
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
                pub(super) fn remainder_of(x: $element[N], y: $element[N]) -> $element[N] { remainder(x, y) }
                pub(super) fn floor_of(x: $element[N], y: $element[N]) -> $element[N] { floor_div(x, y) }
                pub(super) fn neg(x: $element[N], _y: $element[N]) -> $element[N] { -x }
                pub(super) fn not(x: $element[N], _y: $element[N]) -> $element[N] { !x }
                pub(super) fn abs_of(x: $element[N], _y: $element[N]) -> $element[N] { abs(x) }
                pub(super) fn sign_of(x: $element[N], _y: $element[N]) -> $element[N] { sign(x) }
                /// The wrapped intermediate value changes the result.
                pub(super) fn chain(x: $element[N], y: $element[N]) -> $element[N] { (x * y + x) / 3 }
                pub(super) fn sums(x: $element[N, D]) -> (i32[N], i32[N], $element[N], $element[D], i32[]) {
                    (sum(x, D), prod(x, D), max(x, D), min(x, N), argmax(x))
                }
                pub(super) fn beside(x: $element[N, D]) -> ($element[N, D], $element[D, N]) {
                    let y = x - max(x, D);
                    (y, y)
                }
                pub(super) fn in_place(p: &mut $element[M], x: $element[N], ids: i32[M], s: $element) {
                    p = take(x, N, ids) * s + p + N;
                }
            }

            mixed!(fuse, $element, mixed_fused,);
            mixed!(fuse, $element, mixed_unfused, #[fuse(off)]);

            impl Integer for $element {
                fn of(x: i64) -> $element {
                    x as $element
                }
            }

            const OPERATIONS: &[(Op, Binary<$element>)] = &[
                (Op::Add, add), (Op::Sub, sub), (Op::Mul, mul), (Op::Div, div), (Op::Rem, rem), (Op::Min, min_of),
                (Op::Max, max_of), (Op::And, and), (Op::Or, or), (Op::Xor, xor), (Op::Shl, shl), (Op::Shr, shr),
                (Op::Lt, lt), (Op::Eq, eq), (Op::Neg, neg), (Op::Not, not), (Op::Abs, abs_of), (Op::Sign, sign_of),
                (Op::Remainder, remainder_of), (Op::FloorDiv, floor_of),
            ];

            pub(super) fn operations(device: &Device) -> Result<()> {
                for &(op, function) in OPERATIONS {
                    let expect = |x, y| super::expected::<$element>(op, x, y);
                    super::of_pairs(device, &format!("{op:?}"), function, expect)?;
                }
                let expect = |x: i64, y: i64| {
                    let (x, y) = (x as $element, y as $element);
                    (x.wrapping_mul(y).wrapping_add(x) / 3).number()
                };
                super::of_pairs(device, "chain", chain, expect)
            }
        } )*

        /// Tests for each type, in the same order.
        const OPERATIONS: &[fn(&Device) -> Result<()>] = &[$($name::operations),*];
        const TENSORS: &[fn(&Device) -> Result<()>] = &[$(tensors::<$element>),*];
        const REDUCTIONS: &[fn(&Device) -> Result<()>] = &[$(|device| reductions(device, $name::sums)),*];
        const NEIGHBOURS: &[fn(&Device) -> Result<()>] =
            &[$(|device| neighbours(device, $name::beside, $name::in_place)),*];
        const MIXES: &[fn(Kind, &Device) -> Result<()>] = &[$(|kind, device| {
            let source = mixed!(stringify, $element, f,).replace("pub(super)", "pub");
            mixes(kind, device, &source, [$name::mixed_fused, $name::mixed_unfused])
        }),*];
    };
}

integers! {
    i8: signed_8,
    u8: unsigned_8,
    i16: signed_16,
    u16: unsigned_16,
}

fusion::fuse! {
    pub(crate) fn averages(x: u8[N, D]) -> f32[N] { mean(x as f32, D) }
}

type Binary<T> = fn(&Tensor<T>, &Tensor<T>) -> Result<Tensor<T>>;
type Sums<T> = fn(&Tensor<T>) -> Result<(Tensor<i32>, Tensor<i32>, Tensor<T>, Tensor<T>, Tensor<i32>)>;
type RowsAndColumns<T> = fn(&Tensor<T>) -> Result<(Tensor<T>, Tensor<T>)>;
type InPlace<T> = fn(&mut Tensor<T>, &Tensor<T>, &Tensor<i32>, T) -> Result<()>;
type Mixed<T> = fn(&Tensor<T>, &Tensor<T>, T) -> Result<(Tensor<T>, Tensor<i32>)>;

/// Lengths at which the last word and the last vector are whole, and others.
const LENGTHS: [usize; 10] = [0, 1, 2, 3, 4, 5, 7, 31, 1023, 4099];

/// Returns numbers of a type that cover all of its bits.
fn some<T: Integer>(count: usize) -> Vec<T> {
    (0..count).map(|i| T::of((i * 7919 % 65_521) as i64)).collect()
}

/// Returns all bytes, or a selection of 16-bit numbers: the neighbours of each power of two, both limits, and
/// some between.
fn numbers<T: Integer>() -> Vec<i64> {
    let (low, high) = T::DTYPE.range();
    if T::DTYPE.bits() == 8 {
        return (low..=high).collect();
    }
    let powers = (0..T::DTYPE.bits()).flat_map(|bit| [-1, 0, 1].map(|step| (1_i64 << bit) + step));
    let near = powers.flat_map(|x| [x, -x]).filter(|x| (low..=high).contains(x));
    near.chain((low..high).step_by(331)).chain([low, low + 1, high - 1, high]).collect()
}

/// Returns the result of an operation before it wraps.
fn expected<T: Integer>(op: Op, x: i64, y: i64) -> i64 {
    match op {
        Op::Not => !x,
        Op::Abs if T::DTYPE.class() == Class::Uint => x,
        _ => (op.info().eval.int)(&[x, y], T::DTYPE.bits()),
    }
}

fn of_pairs<T: Integer>(
    device: &Device,
    op: &str,
    function: Binary<T>,
    expect: impl Fn(i64, i64) -> i64,
) -> Result<()> {
    let all = numbers::<T>();
    let (x, y): (Vec<i64>, Vec<i64>) = all.iter().flat_map(|&x| all.iter().map(move |&y| (x, y))).unzip();
    let tensor = |x: &[i64]| Tensor::from_vec(device, x.iter().map(|&x| T::of(x)).collect(), [x.len()]);
    let got = function(&tensor(&x)?, &tensor(&y)?)?.to_vec()?;
    for ((&x, &y), got) in x.iter().zip(&y).zip(got) {
        assert!(got == T::of(expect(x, y)), "{device}: {op} of {x} and {y} in {} is {got:?}", T::DTYPE);
    }
    Ok(())
}

#[test]
fn every_operation_on_pairs() {
    on_devices(|device| OPERATIONS.iter().try_for_each(|check| check(device)));
}

fn tensors<T: Integer>(device: &Device) -> Result<()> {
    for len in LENGTHS {
        let x: Vec<T> = some(len);
        let tensor = Tensor::from_slice(device, &x, [len])?;
        let mut copy = vec![T::of(1); len];
        tensor.copy_to_slice(&mut copy)?;
        assert_eq!((tensor.to_vec()?, &copy), (x.clone(), &x), "{device}");
        assert_eq!(tensor.to(&Device::cpu())?.to(device)?.to_vec()?, x, "{device}");
        assert_eq!(Tensor::full(device, T::of(-2), [len])?.to_vec()?, vec![T::of(-2); len], "{device}");
        assert_eq!(Tensor::<T>::zeros(device, [len])?.to_vec()?, vec![T::of(0); len], "{device}");
    }
    assert_eq!(Tensor::from_vec(device, vec![T::of(-2)], [1, 1])?.item()?, T::of(-2), "{device}");
    Ok(())
}

#[test]
fn tensors_hold_what_they_are_given() {
    on_devices(|device| TENSORS.iter().try_for_each(|check| check(device)));
}

fn reductions<T: Integer>(device: &Device, sums: Sums<T>) -> Result<()> {
    for [n, d] in [[1, 1], [3, 5], [7, 1029], [2, 70_001], [300, 33]] {
        let x: Vec<T> = some(n * d);
        let (sums, products, most, least, place) = sums(&Tensor::from_slice(device, &x, [n, d])?)?;
        let rows: Vec<&[T]> = x.chunks(d).collect();
        let of_rows = |first: i32, combine: fn(i32, i32) -> i32| -> Vec<i32> {
            let row = |row: &&[T]| row.iter().fold(first, |so_far, &x| combine(so_far, x.into()));
            rows.iter().map(row).collect()
        };
        assert_eq!(sums.to_vec()?, of_rows(0, i32::wrapping_add), "{device}: {}", T::DTYPE);
        assert_eq!(products.to_vec()?, of_rows(1, i32::wrapping_mul), "{device}: {}", T::DTYPE);
        let largest: Vec<T> = rows.iter().map(|row| row.iter().copied().max().unwrap()).collect();
        assert_eq!(most.to_vec()?, largest, "{device}");
        let column = |c: usize| rows.iter().map(|row| row[c]).min().unwrap();
        assert_eq!(least.to_vec()?, (0..d).map(column).collect::<Vec<_>>(), "{device}");
        let greatest = x.iter().max().unwrap();
        let first = x.iter().position(|x| x == greatest).unwrap();
        assert_eq!(place.item()?, first as i32, "{device}");
    }
    Ok(())
}

#[test]
fn reductions_of_few_bits() {
    on_devices(|device| {
        REDUCTIONS.iter().try_for_each(|check| check(device))?;
        for [n, d] in [[1, 1], [3, 5], [7, 1029], [2, 70_001], [300, 33]] {
            let bytes: Vec<u8> = some(n * d);
            let means = averages(&Tensor::from_slice(device, &bytes, [n, d])?)?.to_vec()?;
            for (mean, row) in means.into_iter().zip(bytes.chunks(d)) {
                let exact = row.iter().copied().map(f64::from).sum::<f64>() / d as f64;
                assert!((f64::from(mean) - exact).abs() <= exact * 1e-5, "{device}: {mean}, not {exact}");
            }
        }
        Ok(())
    });
}

/// Checks elements that share a word with others: rows that begin within a word, and elements written one by
/// one.
fn neighbours<T: Integer>(device: &Device, beside: RowsAndColumns<T>, in_place: InPlace<T>) -> Result<()> {
    for [n, d] in [[1, 1], [5, 1], [2, 2], [7, 3], [33, 5], [3, 31], [2, 1027], [130, 67]] {
        let x: Vec<T> = some(n * d);
        let (rows, columns) = beside(&Tensor::from_slice(device, &x, [n, d])?)?;
        let expected: Vec<T> = x
            .chunks(d)
            .flat_map(|row| {
                let most = row.iter().copied().max().unwrap();
                row.iter().map(move |x| T::of(x.number() - most.number()))
            })
            .collect();
        assert_eq!(rows.to_vec()?, expected, "{device}: {} of {n} by {d}", T::DTYPE);
        let turned: Vec<T> = (0..n * d).map(|i| expected[i % n * d + i / n]).collect();
        assert_eq!(columns.to_vec()?, turned, "{device}: {} of {d} by {n}", T::DTYPE);
    }
    for len in LENGTHS {
        let (x, s): (Vec<T>, T) = (some(70_001), T::of(-77));
        // Every third id reads nothing.
        let id = |i: usize| if i.is_multiple_of(3) { -1 } else { (i * 17 % x.len()) as i32 };
        let ids: Vec<i32> = (0..len).map(id).collect();
        let mut p = Tensor::from_slice(device, &x[5..][..len], [len])?;
        let tensors = (Tensor::from_slice(device, &x, [x.len()])?, Tensor::from_slice(device, &ids, [len])?);
        in_place(&mut p, &tensors.0, &tensors.1, s)?;
        let expected = ids.iter().zip(&x[5..]).map(|(&id, p)| {
            let taken = usize::try_from(id).map_or(0, |id| x[id].number());
            T::of(taken * s.number() + p.number() + x.len() as i64)
        });
        assert_eq!(p.to_vec()?, expected.collect::<Vec<_>>(), "{device}: {len} of {}", T::DTYPE);
    }
    Ok(())
}

#[test]
fn what_shares_a_word_is_written_alone() {
    on_devices(|device| NEIGHBOURS.iter().try_for_each(|check| check(device)));
}

fn graph(source: &str) -> Graph {
    match front_end(source.parse().expect("tokens")) {
        Ok(Source::Items(mut functions, _)) => functions.remove(0).graph,
        other => panic!("{source} is right: {other:?}"),
    }
}

/// Checks the function compiled by the macro, fused and unfused, and compiled from its source. The CPU runs
/// the latter through the kernel interpreter. All results agree with the interpreter of graphs.
fn mixes<T: Integer>(kind: Kind, device: &Device, source: &str, made: [Mixed<T>; 2]) -> Result<()> {
    let graph = graph(source);
    let target = match kind {
        Kind::Cpu => Target::Cpu,
        Kind::Wgpu => Target::Wgsl,
        Kind::Cuda => Target::Ptx,
    };
    let plan = interpreted(fusion_compiler::compile(graph.clone(), &[target], &|_| (0, 0)));
    for [n, d] in [[1, 1], [2, 3], [5, 7], [3, 1029], [65, 33]] {
        let (x, y, s): (Vec<T>, Vec<T>, T) = (some(n * d), some(d + 9)[9..].to_vec(), T::of(-77));
        let values = [&x, &y, &vec![s]].map(|x| x.iter().map(|x| x.number() as f64).collect::<Vec<_>>());
        let expected = interpret(&graph, &values, &[n as i64, d as i64], Rounding::None);
        let (x, y) = (Tensor::from_slice(device, &x, [n, d])?, Tensor::from_slice(device, &y, [d])?);
        let [z, sums] = run(&plan, &mut [Arg::from(&x), Arg::from(&y), s.into()])?;
        let from_source = (Tensor::from_raw(z)?, Tensor::from_raw(sums)?);
        for (way, (z, sums)) in
            [made[0](&x, &y, s)?, made[1](&x, &y, s)?, from_source].into_iter().enumerate()
        {
            let z: Vec<f64> = z.to_vec()?.into_iter().map(|z| z.number() as f64).collect();
            assert_eq!(z, expected[0], "{device}: {} of {n} by {d}, way {way}", T::DTYPE);
            let sums: Vec<f64> = sums.to_vec()?.into_iter().map(f64::from).collect();
            assert_eq!(sums, expected[1], "{device}: sums of {} of {n} by {d}, way {way}", T::DTYPE);
        }
    }
    Ok(())
}

#[test]
fn all_ways_give_the_same() {
    for (kind, device) in devices() {
        for mixes in MIXES {
            mixes(kind, &device).unwrap_or_else(|error| panic!("{device}: {error}"));
        }
    }
}

fusion::fuse! {
    /// The least number of each type, written as a literal whose positive part the type cannot represent.
    pub fn least(x: i8[N]) -> (i8[N], i16[], i32[]) { (x + -128i8, -32768i16, -2147483648i32) }
}

#[test]
fn the_least_of_a_type_can_be_written() {
    on_devices(|device| {
        let (bytes, short, long) = least(&Tensor::from_slice(device, &[0_i8, 127], [2])?)?;
        assert_eq!(bytes.to_vec()?, [-128, -1], "{device}");
        assert_eq!((short.item()?, long.item()?), (i16::MIN, i32::MIN), "{device}");
        Ok(())
    });
}
