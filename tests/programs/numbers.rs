//! Integers wrap, casts saturate, and NaN and infinities pass through.

use std::fmt::Debug;

use fusion::prelude::*;

use crate::devices::{exact_devices, on_devices};
use crate::{Host, check};

both! {
    { pub fn signed(x: i32[N], y: i32[N]) -> (i32[N], i32[N], i32[N], i32[N], i32[N], i32[N], i32[N]) {
        (x + y, x - y, x * y, x / y, x % y, x << y, x >> y)
    } }
    { pub fn unsigned(x: u32[N], y: u32[N]) -> (u32[N], u32[N], u32[N], u32[N], u32[N], u32[N], u32[N]) {
        (x + y, x - y, x * y, x / y, x % y, x << y, x >> y)
    } }
    { pub fn signed_bits(x: i32[N], y: i32[N]) -> (i32[N], i32[N], i32[N], i32[N], i32[N], i32[N], i32[N]) {
        (x & y, x | y, x ^ y, !x, -x, abs(x), sign(x))
    } }
    { pub fn unsigned_bits(x: u32[N], y: u32[N]) -> (u32[N], u32[N], u32[N], u32[N], u32[N], u32[N]) {
        (x & y, x | y, x ^ y, !x, min(x, y), max(x, y))
    } }
    { pub fn signed_order(x: i32[N], y: i32[N]) -> (u32[N], i32[N], i32[N], i32[N]) {
        let bits = (x < y) as u32 | ((x <= y) as u32) << 1 | ((x > y) as u32) << 2 | ((x >= y) as u32) << 3
            | ((x == y) as u32) << 4 | ((x != y) as u32) << 5;
        (bits, min(x, y), max(x, y), clamp(x, -5, 7))
    } }
    { pub fn unsigned_order(x: u32[N], y: u32[N]) -> u32[N] {
        (x < y) as u32 | ((x <= y) as u32) << 1 | ((x > y) as u32) << 2 | ((x >= y) as u32) << 3
            | ((x == y) as u32) << 4 | ((x != y) as u32) << 5
    } }
    { pub fn of_host(x: i32[N], by: i32, u: u32, on: bool) -> (i32[N], u32[N], i32[N]) {
        (x / by, x as u32 / u, if on { x % by } else { x >> u as i32 })
    } }
    { pub fn by_literals(x: i32[N], y: u32[N]) -> (i32[N], i32[N], i32[N], u32[N], u32[N]) {
        (x / 0, x % 0, x / -1 - x % 3, y / 0, y % 0 + (y << 33) + y / 7)
    } }
    { pub fn literals(x: f32[N], k: i32[N], u: u32[N]) -> (f32[N], f32[N], i32[N], i32[N], u32[N], u32[N]) {
        (x * 0.1, x + 16777217, k ^ -2147483648, k + 0x7fff_ffff, u ^ 0xffff_ffff, u + 2147483648 - 0b101)
    } }
    { pub fn truths(x: f32[N], y: i32[N]) -> (f32[N], i32[N], u32[N]) {
        let a = x > 0.0 && y != 0 || !(y < 3);
        let b = a ^ (x < 1.0) & true | false;
        (a as f32 + if a == b { 2.0 } else { 0.0 }, (a && b) as i32, b as u32)
    } }
    { pub fn from_floats(x: f32[N]) -> (i32[N], u32[N]) { (x as i32, x as u32) } }
    { pub fn from_ints(x: i32[N], y: u32[N]) -> (f32[N], f32[N], u32[N], i32[N]) {
        (x as f32, y as f32, x as u32, y as i32)
    } }
    { pub fn tests(x: f32[N]) -> u32[N] { isnan(x) as u32 | (isinf(x) as u32) << 1 | (isfinite(x) as u32) << 2 } }
    { pub fn through(x: f32[N]) -> (f32[N], f32[N], f32[N], f32[N], f32[N], f32[N], f32[N], f32[N]) {
        (relu(x), clamp(x, -1.0, 2.0), min(x, 0.5), max(x, 0.5), abs(x), -x, sign(x), floor(x))
    } }
    { pub fn pairs(x: f32[N], y: f32[N]) -> (f32[N], f32[N], u32[N], f32[N], f32[N], f32[N]) {
        let bits = (x < y) as u32 | ((x <= y) as u32) << 1 | ((x > y) as u32) << 2 | ((x >= y) as u32) << 3
            | ((x == y) as u32) << 4 | ((x != y) as u32) << 5;
        (min(x, y), max(x, y), bits, select(x < y, x, y), x % y, if x == x { y } else { 0.0 })
    } }
    { pub fn constants(x: f32[N]) -> (f32[N], f32[N], f32[N], f32[N], f32[N]) {
        (x + INF, x - INF, x * NAN, x + PI - E, x * (1.0 / 0.0) + exp(1000.0))
    } }
    { pub fn extremes(x: f32[N, C = 3]) -> (f32[N], f32[N], f32[N]) { (max(x, C), min(x, C), sum(x, C)) } }
}

/// Returns every pair of values.
fn pairs_of<T: Copy>(values: &[T]) -> (Vec<T>, Vec<T>) {
    values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y))).unzip()
}

/// Asserts the elements of a tensor, given each result by its two operands.
#[track_caller]
fn check_pairs<T: Element, A: Copy + Debug>(
    name: &str,
    got: &Tensor<T>,
    (xs, ys): &(Vec<A>, Vec<A>),
    expected: impl Fn(A, A) -> T,
) -> Result<()> {
    let device = got.device().name();
    for ((got, &x), &y) in got.to_vec()?.into_iter().zip(xs).zip(ys) {
        let expected = expected(x, y);
        assert_eq!(got, expected, "{name} of {x:?} and {y:?} on {device}");
    }
    Ok(())
}

const SIGNED: [i32; 20] = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    7,
    -7,
    31,
    32,
    33,
    -31,
    64,
    65_537,
    -65_537,
    0x7fff_ffff,
    -0x7fff_ffff,
    i32::MIN,
    123_456_789,
    -987_654_321,
];

#[test]
fn signed_integers() {
    on_devices(|device| {
        let pairs = pairs_of(&SIGNED);
        let n = pairs.0.len();
        let (x, y) = (Tensor::from_slice(device, &pairs.0, [n])?, Tensor::from_slice(device, &pairs.1, [n])?);
        for signed in [fused::signed, unfused::signed] {
            let (add, sub, mul, div, rem, shl, shr) = signed(&x, &y)?;
            check_pairs("+", &add, &pairs, i32::wrapping_add)?;
            check_pairs("-", &sub, &pairs, i32::wrapping_sub)?;
            check_pairs("*", &mul, &pairs, i32::wrapping_mul)?;
            check_pairs("/", &div, &pairs, |x, y| if y == 0 { x } else { x.wrapping_div(y) })?;
            check_pairs("%", &rem, &pairs, |x, y| if y == 0 { 0 } else { x.wrapping_rem(y) })?;
            check_pairs("<<", &shl, &pairs, |x, y| x << (y & 31))?;
            check_pairs(">>", &shr, &pairs, |x, y| x >> (y & 31))?;
        }
        for signed_bits in [fused::signed_bits, unfused::signed_bits] {
            let (and, or, xor, not, neg, abs, sign) = signed_bits(&x, &y)?;
            check_pairs("&", &and, &pairs, |x, y| x & y)?;
            check_pairs("|", &or, &pairs, |x, y| x | y)?;
            check_pairs("^", &xor, &pairs, |x, y| x ^ y)?;
            check_pairs("!", &not, &pairs, |x, _| !x)?;
            check_pairs("neg", &neg, &pairs, |x, _| x.wrapping_neg())?;
            check_pairs("abs", &abs, &pairs, |x, _| x.wrapping_abs())?;
            check_pairs("sign", &sign, &pairs, |x, _| x.signum())?;
        }
        for order in [fused::signed_order, unfused::signed_order] {
            let (bits, min, max, clamp) = order(&x, &y)?;
            check_pairs("order", &bits, &pairs, |x, y| order_bits(x.partial_cmp(&y)))?;
            check_pairs("min", &min, &pairs, i32::min)?;
            check_pairs("max", &max, &pairs, i32::max)?;
            check_pairs("clamp", &clamp, &pairs, |x, _| x.clamp(-5, 7))?;
        }
        Ok(())
    });
}

/// Returns bits for `<`, `<=`, `>`, `>=`, `==` and `!=`, from the lowest bit.
fn order_bits(order: Option<std::cmp::Ordering>) -> u32 {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match order {
        Some(Less) => 0b10_0011,
        Some(Greater) => 0b10_1100,
        Some(Equal) => 0b01_1010,
        None => 0b10_0000,
    }
}

#[test]
fn unsigned_integers() {
    on_devices(|device| {
        let pairs = pairs_of(&SIGNED.map(i32::cast_unsigned));
        let n = pairs.0.len();
        let (x, y) = (Tensor::from_slice(device, &pairs.0, [n])?, Tensor::from_slice(device, &pairs.1, [n])?);
        for unsigned in [fused::unsigned, unfused::unsigned] {
            let (add, sub, mul, div, rem, shl, shr) = unsigned(&x, &y)?;
            check_pairs("+", &add, &pairs, u32::wrapping_add)?;
            check_pairs("-", &sub, &pairs, u32::wrapping_sub)?;
            check_pairs("*", &mul, &pairs, u32::wrapping_mul)?;
            check_pairs("/", &div, &pairs, |x, y| x.checked_div(y).unwrap_or(x))?;
            check_pairs("%", &rem, &pairs, |x, y| x.checked_rem(y).unwrap_or(0))?;
            check_pairs("<<", &shl, &pairs, |x, y| x << (y & 31))?;
            check_pairs(">>", &shr, &pairs, |x, y| x >> (y & 31))?;
        }
        for unsigned_bits in [fused::unsigned_bits, unfused::unsigned_bits] {
            let (and, or, xor, not, min, max) = unsigned_bits(&x, &y)?;
            check_pairs("&", &and, &pairs, |x, y| x & y)?;
            check_pairs("|", &or, &pairs, |x, y| x | y)?;
            check_pairs("^", &xor, &pairs, |x, y| x ^ y)?;
            check_pairs("!", &not, &pairs, |x, _| !x)?;
            check_pairs("min", &min, &pairs, u32::min)?;
            check_pairs("max", &max, &pairs, u32::max)?;
        }
        for order in [fused::unsigned_order, unfused::unsigned_order] {
            check_pairs("order", &order(&x, &y)?, &pairs, |x, y| order_bits(x.partial_cmp(&y)))?;
        }
        Ok(())
    });
}

#[test]
fn integers_of_the_host_and_of_the_text() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &SIGNED, [20])?;
        let y = Tensor::from_slice(device, &SIGNED.map(i32::cast_unsigned), [20])?;
        let once = (SIGNED.to_vec(), SIGNED.to_vec());
        for of_host in [fused::of_host, unfused::of_host] {
            for (by, u, on) in [(0, 0, true), (-1, 1, true), (7, 33, false), (i32::MIN, 7, true)] {
                let (div, unsigned, rem) = of_host(&x, by, u, on)?;
                check_pairs("/", &div, &once, |x, _| if by == 0 { x } else { x.wrapping_div(by) })?;
                check_pairs("u32 /", &unsigned, &once, |x, _| (x as u32).checked_div(u).unwrap_or(x as u32))?;
                check_pairs("% or >>", &rem, &once, |x, _| match (on, by) {
                    (false, _) => x >> (u & 31),
                    (true, 0) => 0,
                    (true, by) => x.wrapping_rem(by),
                })?;
            }
        }
        for by_literals in [fused::by_literals, unfused::by_literals] {
            let (div, rem, mixed, unsigned, sum) = by_literals(&x, &y)?;
            check_pairs("/ 0", &div, &once, |x, _| x)?;
            check_pairs("% 0", &rem, &once, |_, _| 0)?;
            check_pairs("/ -1", &mixed, &once, |x, _| x.wrapping_neg().wrapping_sub(x % 3))?;
            check_pairs("u32 / 0", &unsigned, &once, |x, _| x as u32)?;
            check_pairs("u32 % 0", &sum, &once, |x, _| {
                let x = x as u32;
                (x << 1).wrapping_add(x / 7)
            })?;
        }
        Ok(())
    });
}

#[test]
fn literals_at_their_limits() {
    on_devices(|device| {
        let x = Host::new(1, &[20]);
        let (k, u) = (SIGNED, SIGNED.map(i32::cast_unsigned));
        let (kt, ut) = (Tensor::from_slice(device, &k, [20])?, Tensor::from_slice(device, &u, [20])?);
        for literals in [fused::literals, unfused::literals] {
            let (tenth, large, min, max, not, half) = literals(&x.on(device)?, &kt, &ut)?;
            check(&tenth, &[20], |at| f64::from(x.elements[at[0]] * 0.1))?;
            // 2²⁴ + 1 is no f32.
            check(&large, &[20], |at| f64::from(x.elements[at[0]] + 16_777_216.0))?;
            assert_eq!(min.to_vec()?, k.map(|k| k ^ i32::MIN));
            assert_eq!(max.to_vec()?, k.map(|k| k.wrapping_add(i32::MAX)));
            assert_eq!(not.to_vec()?, u.map(|u| !u));
            assert_eq!(half.to_vec()?, u.map(|u| u.wrapping_add(0x8000_0000).wrapping_sub(5)));
        }
        Ok(())
    });
}

#[test]
fn truth_values() {
    on_devices(|device| {
        let x = [-1.0, 0.0, 0.5, 2.0].repeat(5);
        let y: Vec<i32> = (0..20).map(|i| i / 4).collect();
        let (xt, yt) = (Tensor::from_slice(device, &x, [20])?, Tensor::from_slice(device, &y, [20])?);
        for truths in [fused::truths, unfused::truths] {
            let (float, both, second) = truths(&xt, &yt)?;
            let (float, both, second) = (float.to_vec()?, both.to_vec()?, second.to_vec()?);
            for (i, (&x, &y)) in x.iter().zip(&y).enumerate() {
                let a = x > 0.0 && y != 0 || y >= 3;
                let b = a ^ (x < 1.0);
                assert_eq!(float[i], f32::from(a) + if a == b { 2.0 } else { 0.0 }, "{x} {y}");
                assert_eq!((both[i], second[i]), (i32::from(a && b), u32::from(b)), "{x} {y}");
            }
        }
        Ok(())
    });
}

/// Finite values around every limit of the integer types.
const LIMITS: [f32; 25] = [
    0.0,
    -0.0,
    0.4,
    0.5,
    -0.5,
    0.999_999_94,
    1.0,
    -1.0,
    1.5,
    -1.5,
    2.5,
    16_777_217.0,
    2_147_483_520.0,
    2_147_483_648.0,
    -2_147_483_648.0,
    -2_147_483_904.0,
    4_294_967_040.0,
    4_294_967_296.0,
    -4_294_967_296.0,
    1e20,
    -1e20,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    1e-40,
];

/// NaN, infinities, zeros, and a few finite values.
const SPECIAL: [f32; 9] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.5, -1.5, 3.0, f32::MAX];

#[test]
fn casts_saturate() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &LIMITS, [25])?;
        for from_floats in [fused::from_floats, unfused::from_floats] {
            let (signed, unsigned) = from_floats(&x)?;
            assert_eq!(signed.to_vec()?, LIMITS.map(|x| x as i32), "{}", device.name());
            assert_eq!(unsigned.to_vec()?, LIMITS.map(|x| x as u32), "{}", device.name());
        }
        let (x, y) = (SIGNED, SIGNED.map(i32::cast_unsigned));
        let (xt, yt) = (Tensor::from_slice(device, &x, [20])?, Tensor::from_slice(device, &y, [20])?);
        for from_ints in [fused::from_ints, unfused::from_ints] {
            let (signed, unsigned, to_unsigned, to_signed) = from_ints(&xt, &yt)?;
            assert_eq!(signed.to_vec()?, x.map(|x| x as f32), "{}", device.name());
            assert_eq!(unsigned.to_vec()?, y.map(|y| y as f32), "{}", device.name());
            assert_eq!((to_unsigned.to_vec()?, to_signed.to_vec()?), (y.to_vec(), x.to_vec()));
        }
        Ok(())
    });
}

#[test]
fn casts_of_what_is_no_number() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &SPECIAL, [9])?;
        for from_floats in [fused::from_floats, unfused::from_floats] {
            let (signed, unsigned) = from_floats(&x)?;
            assert_eq!(signed.to_vec()?, SPECIAL.map(|x| x as i32), "{}", device.name());
            assert_eq!(unsigned.to_vec()?, SPECIAL.map(|x| x as u32), "{}", device.name());
        }
        Ok(())
    });
}

#[test]
fn tests_for_what_is_no_number_hold_everywhere() {
    on_devices(|device| {
        let all: Vec<f32> = SPECIAL.into_iter().chain(LIMITS).collect();
        let x = Tensor::from_slice(device, &all, [all.len()])?;
        for tests in [fused::tests, unfused::tests] {
            let expected = all.iter().map(|x| {
                u32::from(x.is_nan()) | u32::from(x.is_infinite()) << 1 | u32::from(x.is_finite()) << 2
            });
            assert_eq!(tests(&x)?.to_vec()?, expected.collect::<Vec<_>>(), "{}", device.name());
        }
        Ok(())
    });
}

/// Asserts the same bits, with all NaN equal.
#[track_caller]
fn same(name: &str, got: &Tensor<f32>, expected: impl IntoIterator<Item = f32>) -> Result<()> {
    for (i, (got, expected)) in got.to_vec()?.into_iter().zip(expected).enumerate() {
        let same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
        assert!(same, "{name}: {got:?}, not {expected:?}, at {i}");
    }
    Ok(())
}

/// Returns `x` if it is NaN or `first` is true, else `y`.
fn chosen(x: f32, y: f32, first: bool) -> f32 {
    if x.is_nan() || first { x } else { y }
}

// WGSL lets drivers assume that floats are finite, so only the CPU and CUDA promise the bits that this test
// checks.
#[test]
fn what_is_no_number_goes_through() -> Result<()> {
    exact_devices().iter().try_for_each(what_is_no_number_goes_through_on)
}

fn what_is_no_number_goes_through_on(device: &Device) -> Result<()> {
    let x = Tensor::from_slice(device, &SPECIAL, [9])?;
    for through in [fused::through, unfused::through] {
        let (relu, clamp, min, max, abs, neg, sign, floor) = through(&x)?;
        let of = |f: fn(f32) -> f32| SPECIAL.into_iter().map(move |x| if x.is_nan() { x } else { f(x) });
        same("relu", &relu, of(|x| if x < 0.0 { 0.0 } else { x }))?;
        same("clamp", &clamp, of(|x| x.clamp(-1.0, 2.0)))?;
        same("min", &min, of(|x| x.min(0.5)))?;
        same("max", &max, of(|x| x.max(0.5)))?;
        same("abs", &abs, of(f32::abs))?;
        same("neg", &neg, of(|x| -x))?;
        same("sign", &sign, of(|x| if x == 0.0 { x } else { x.signum() }))?;
        same("floor", &floor, of(f32::floor))?;
    }
    let pairs = pairs_of(&SPECIAL);
    let each = || pairs.0.iter().copied().zip(pairs.1.iter().copied());
    let (x, y) = (Tensor::from_slice(device, &pairs.0, [81])?, Tensor::from_slice(device, &pairs.1, [81])?);
    for of_pairs in [fused::pairs, unfused::pairs] {
        let (min, max, order, select, rem, known) = of_pairs(&x, &y)?;
        // Zeros of both signs are equal, so `min` and `max` may return either.
        let plus = |x: f32| x + 0.0;
        let [min, max] =
            [min, max].map(|tensor| tensor.to_vec().map(|v| v.into_iter().map(plus).collect::<Vec<_>>()));
        let (min, max) = (min?, max?);
        same(
            "min",
            &Tensor::from_slice(device, &min, [81])?,
            each().map(|(x, y)| plus(chosen(x, y, x < y))),
        )?;
        same(
            "max",
            &Tensor::from_slice(device, &max, [81])?,
            each().map(|(x, y)| plus(chosen(x, y, x > y))),
        )?;
        check_pairs("order", &order, &pairs, |x, y| order_bits(x.partial_cmp(&y)))?;
        same("select", &select, each().map(|(x, y)| if x < y { x } else { y }))?;
        same("%", &rem, each().map(|(x, y)| x % y))?;
        same("x == x", &known, each().map(|(x, y)| if x.is_nan() { 0.0 } else { y }))?;
    }
    Ok(())
}

#[test]
fn constants_that_are_no_numbers() -> Result<()> {
    exact_devices().iter().try_for_each(constants_that_are_no_numbers_on)
}

fn constants_that_are_no_numbers_on(device: &Device) -> Result<()> {
    let x = Tensor::from_slice(device, &SPECIAL, [9])?;
    for constants in [fused::constants, unfused::constants] {
        let (plus, minus, nan, number, folded) = constants(&x)?;
        same("+ INF", &plus, SPECIAL.map(|x| x + f32::INFINITY))?;
        same("- INF", &minus, SPECIAL.map(|x| x - f32::INFINITY))?;
        same("* NAN", &nan, [f32::NAN; 9])?;
        let (pi, e) = (std::f32::consts::PI, std::f32::consts::E);
        same("+ PI - E", &number, SPECIAL.map(|x| x + pi - e))?;
        same("1 / 0", &folded, SPECIAL.map(|x| x * f32::INFINITY + f32::INFINITY))?;
    }
    let triples: Vec<f32> =
        SPECIAL.iter().flat_map(|&x| [[x, 1.0, 2.0], [1.0, x, 2.0], [1.0, 2.0, x]]).flatten().collect();
    let x = Tensor::from_slice(device, &triples, [27, 3])?;
    for extremes in [fused::extremes, unfused::extremes] {
        let (max, min, sum) = extremes(&x)?;
        let of = |f: fn(f32, f32) -> f32| {
            triples
                .chunks(3)
                .map(move |t| if t.iter().any(|x| x.is_nan()) { f32::NAN } else { f(f(t[0], t[1]), t[2]) })
        };
        same("max", &max, of(f32::max))?;
        same("min", &min, of(f32::min))?;
        same("sum", &sum, of(|x, y| x + y))?;
    }
    Ok(())
}

#[test]
fn finite_values_are_the_same_everywhere() {
    on_devices(|device| {
        let x = Host::new(1, &[1000]);
        let y = Host::new(2, &[1000]);
        for through in [fused::through, unfused::through] {
            let (relu, clamp, min, max, abs, neg, sign, floor) = through(&x.on(device)?)?;
            check(&relu, &[1000], |at| x.at(at).max(0.0))?;
            check(&clamp, &[1000], |at| x.at(at).clamp(-1.0, 2.0))?;
            check(&min, &[1000], |at| x.at(at).min(0.5))?;
            check(&max, &[1000], |at| x.at(at).max(0.5))?;
            check(&abs, &[1000], |at| x.at(at).abs())?;
            check(&neg, &[1000], |at| -x.at(at))?;
            check(&sign, &[1000], |at| if x.at(at) == 0.0 { 0.0 } else { x.at(at).signum() })?;
            check(&floor, &[1000], |at| x.at(at).floor())?;
        }
        for of_pairs in [fused::pairs, unfused::pairs] {
            let (min, max, order, select, rem, known) = of_pairs(&x.on(device)?, &y.on(device)?)?;
            check(&min, &[1000], |at| x.at(at).min(y.at(at)))?;
            check(&max, &[1000], |at| x.at(at).max(y.at(at)))?;
            check(&select, &[1000], |at| x.at(at).min(y.at(at)))?;
            check(&known, &[1000], |at| y.at(at))?;
            let expected = x.elements.iter().zip(&y.elements).map(|(x, y)| order_bits(x.partial_cmp(y)));
            assert_eq!(order.to_vec()?, expected.collect::<Vec<_>>());
            // A remainder by zero is NaN, which WGSL does not promise.
            for ((got, x), y) in rem.to_vec()?.into_iter().zip(&x.elements).zip(&y.elements) {
                assert!(*y == 0.0 || got == x % y, "{got} is not {x} % {y} on {}", device.name());
            }
        }
        Ok(())
    });
}
