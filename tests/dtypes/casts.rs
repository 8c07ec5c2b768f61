//! Conversions between stored types agree with Rust, for every value of narrow types and for floats where
//! rounding changes.

use fusion::{Device, Element, Result, Tensor, bf16, f16};

use crate::devices::on_devices;
use crate::{nearest_bf16, nearest_f16};

fusion::fuse! {
    pub fn f16_to_f32(x: f16[N]) -> f32[N] { x as f32 }
    pub fn bf16_to_f32(x: bf16[N]) -> f32[N] { x as f32 }
    pub fn i8_to_f32(x: i8[N]) -> f32[N] { x as f32 }
    pub fn u8_to_f32(x: u8[N]) -> f32[N] { x as f32 }
    pub fn f16_to_i8(x: f16[N]) -> i8[N] { x as i8 }
    pub fn f16_to_u8(x: f16[N]) -> u8[N] { x as u8 }
    pub fn f16_to_i32(x: f16[N]) -> i32[N] { x as i32 }
    pub fn f16_to_u32(x: f16[N]) -> u32[N] { x as u32 }
    pub fn f16_to_bf16(x: f16[N]) -> bf16[N] { x as bf16 }
    pub fn bf16_to_f16(x: bf16[N]) -> f16[N] { x as f16 }
    pub fn f32_to_f16(x: f32[N]) -> f16[N] { x as f16 }
    pub fn f32_to_bf16(x: f32[N]) -> bf16[N] { x as bf16 }
    pub fn f32_to_i8(x: f32[N]) -> i8[N] { x as i8 }
    pub fn f32_to_u8(x: f32[N]) -> u8[N] { x as u8 }
    pub fn f32_rounded(x: f32[N]) -> f32[N] { x as f16 as f32 }
    pub fn i32_to_i8(x: i32[N]) -> i8[N] { x as i8 }
    pub fn i32_to_u8(x: i32[N]) -> u8[N] { x as u8 }
    pub fn i32_to_f16(x: i32[N]) -> f16[N] { x as f16 }
    pub fn i32_to_bf16(x: i32[N]) -> bf16[N] { x as bf16 }
    pub fn u32_to_bf16(x: u32[N]) -> bf16[N] { x as bf16 }
    pub fn i8_to_u8(x: i8[N]) -> u8[N] { x as u8 }
    pub fn u8_to_i8(x: u8[N]) -> i8[N] { x as i8 }
    pub fn i8_to_u32(x: i8[N]) -> u32[N] { x as u32 }
    pub fn u8_to_i32(x: u8[N]) -> i32[N] { x as i32 }
    pub fn u8_to_bf16(x: u8[N]) -> bf16[N] { x as bf16 }
    pub fn i16_to_f32(x: i16[N]) -> f32[N] { x as f32 }
    pub fn u16_to_f32(x: u16[N]) -> f32[N] { x as f32 }
    pub fn i16_to_f16(x: i16[N]) -> f16[N] { x as f16 }
    pub fn u16_to_f16(x: u16[N]) -> f16[N] { x as f16 }
    pub fn i16_to_bf16(x: i16[N]) -> bf16[N] { x as bf16 }
    pub fn u16_to_bf16(x: u16[N]) -> bf16[N] { x as bf16 }
    pub fn i16_to_wide(x: i16[N]) -> (i32[N], u32[N]) { (x as i32, x as u32) }
    pub fn u16_to_wide(x: u16[N]) -> (i32[N], u32[N]) { (x as i32, x as u32) }
    pub fn i16_to_narrow(x: i16[N]) -> (u16[N], i8[N], u8[N]) { (x as u16, x as i8, x as u8) }
    pub fn u16_to_narrow(x: u16[N]) -> (i16[N], i8[N], u8[N]) { (x as i16, x as i8, x as u8) }
    pub fn i8_to_16(x: i8[N]) -> (i16[N], u16[N]) { (x as i16, x as u16) }
    pub fn u8_to_16(x: u8[N]) -> (i16[N], u16[N]) { (x as i16, x as u16) }
    pub fn i32_to_16(x: i32[N]) -> (i16[N], u16[N]) { (x as i16, x as u16) }
    pub fn u32_to_16(x: u32[N]) -> (i16[N], u16[N]) { (x as i16, x as u16) }
    pub fn f32_to_16(x: f32[N]) -> (i16[N], u16[N]) { (x as i16, x as u16) }
    pub fn f16_to_16(x: f16[N]) -> (i16[N], u16[N]) { (x as i16, x as u16) }
    pub fn bf16_to_16(x: bf16[N]) -> (i16[N], u16[N]) { (x as i16, x as u16) }
    pub fn bool_to_16(x: bool[N]) -> (i16[N], u16[N]) { (x as i16, x as u16) }
    pub fn truth_of_16(x: i16[N]) -> (bool[N], bool[N]) { (x != 0, x as u16 > 300) }
    pub fn constants_of_16(x: i16[N]) -> (i16[N], u16[N], i16[N], u16[N]) {
        (x + 32767, x as u16 + 65535, x ^ (70000 as i16), x as u16 | (-2.5e4 as u16) | (7e4 as u16 >> 3))
    }
    pub fn bool_to_i8(x: bool[N]) -> i8[N] { x as i8 }
    pub fn bool_to_f16(x: bool[N]) -> f16[N] { x as f16 }
    pub fn u8_to_bool(x: u8[N]) -> bool[N] { x != 0 }
    pub fn bool_to_bool(x: bool[N]) -> bool[N] { !x }
    pub fn all_of(a: i8[N], b: i8[N], c: i8[N], d: i8[N], e: i8[N], f: i8[N], g: i8[N], h: i8[N], i: i8[N]) -> bool[N] {
        a > 0 && b > 0 && c > 0 && d > 0 && e > 0 && f > 0 && g > 0 && h > 0 && i > 0
    }
    pub fn renamed(x: f32[A, B]) -> f32[R] {
        if rename(merge(x > 0.0, (A, B) -> M), M -> R) { 1.0 } else { 0.0 }
    }
    pub fn where_last(x: f32[C = 6], H: dim) -> f32[H, D] {
        if at(x > 0.0, C, C - 1) { split(x, C -> (H, D)) } else { 0.0 }
    }
    pub fn moved(x: bool[N, T], ids: i32[M]) -> (bool[N, S], bool[N, T], bool[N, P], bool[N, Q], bool[M, T]) {
        (
            slice(x, T -> S, 1..),
            flip(x, T),
            pad(x, T -> P, 1, 2, value = true),
            concat((x, T), (!x, T) -> Q),
            take(x, N, ids),
        )
    }
}

/// Converts on every device and compares each element with Rust's conversion.
fn check<T: Element, U: Element>(
    convert: impl Fn(&Tensor<T>) -> Result<Tensor<U>>,
    elements: &[T],
    expect: impl Fn(T) -> U,
    same: impl Fn(U, U) -> bool,
) {
    let run = |device: &Device| {
        // The second length fills neither a word nor a vector.
        for elements in [elements, &elements[1..]] {
            let x = Tensor::from_slice(device, elements, [elements.len()])?;
            let y = convert(&x)?.to_vec()?;
            for (&x, y) in elements.iter().zip(y) {
                assert!(same(y, expect(x)), "{device}: {x:?} as {} is {y:?}, not {:?}", U::DTYPE, expect(x));
            }
        }
        Ok(())
    };
    on_devices(run);
}

fn halves() -> Vec<f16> {
    (0..=u16::MAX).map(f16::from_bits).collect()
}

fn brain_floats() -> Vec<bf16> {
    (0..=u16::MAX).map(bf16::from_bits).collect()
}

/// Returns floats around every tie between two neighbours of 16 bits, and floats of all other kinds.
fn singles() -> Vec<f32> {
    let near = |bits: u32| [-1, 0, 1].map(|step| f32::from_bits(bits.wrapping_add_signed(step)));
    let ties16 = (0..=u16::MAX).step_by(7).map(|bits| {
        let (a, b) = (f16::from_bits(bits).to_f32(), f16::from_bits(bits.wrapping_add(1)).to_f32());
        a + (b - a) / 2.0
    });
    let ties_brain = (0..=u16::MAX).step_by(11).map(|bits| f32::from_bits(u32::from(bits) << 16 | 0x8000));
    let edges = [
        0.0,
        -0.0,
        65504.0,
        65519.99,
        65520.0,
        1e38,
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
        5.9e-8,
        2.9e-8,
        2.99e-8,
    ];
    let edges = edges.into_iter().chain([127.5, 128.0, -128.9, -129.0, 255.9, 256.0, -0.9, -1.0, 3e9, -3e9]);
    let edges = edges.chain([32767.5, 32768.0, -32768.9, -32769.0, 65535.9, 65536.0]);
    let all = ties16.chain(ties_brain).chain(edges.clone()).chain(edges.map(|x| -x));
    let payload = f32::from_bits(0x7f80_0001);
    all.flat_map(|x| near(x.to_bits())).chain([payload, -payload]).collect()
}

fn same_float<T: Element + Into<f32>>(a: T, b: T) -> bool {
    let (a, b): (f32, f32) = (a.into(), b.into());
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// Compares like `same_float`, but lets a subnormal `f32` be 0, as WGSL allows.
fn nearly(a: f32, b: f32) -> bool {
    same_float(a, b) || b.is_subnormal() && a == 0.0
}

#[test]
fn all_halves() {
    check(f16_to_f32, &halves(), f16::to_f32, same_float);
    check(f16_to_i8, &halves(), |x| x.to_f32() as i8, |a, b| a == b);
    check(f16_to_u8, &halves(), |x| x.to_f32() as u8, |a, b| a == b);
    check(f16_to_i32, &halves(), |x| x.to_f32() as i32, |a, b| a == b);
    check(f16_to_u32, &halves(), |x| x.to_f32() as u32, |a, b| a == b);
    check(f16_to_bf16, &halves(), |x| bf16::from_f32(x.to_f32()), same_float);
    check(bf16_to_f32, &brain_floats(), bf16::to_f32, nearly);
    check(bf16_to_f16, &brain_floats(), |x| f16::from_f32(x.to_f32()), same_float);
}

#[test]
fn singles_round_to_even() {
    check(f32_to_f16, &singles(), f16::from_f32, same_float);
    check(f32_to_bf16, &singles(), bf16::from_f32, same_float);
    check(f32_rounded, &singles(), |x| f16::from_f32(x).to_f32(), same_float);
}

#[test]
fn floats_saturate_and_nan_is_0() {
    check(f32_to_i8, &singles(), |x| x as i8, |a, b| a == b);
    check(f32_to_u8, &singles(), |x| x as u8, |a, b| a == b);
}

#[test]
fn integers_wrap() {
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let signed: Vec<i8> = (i8::MIN..=i8::MAX).collect();
    let words: Vec<i32> = (-70_000..70_000)
        .step_by(13)
        .chain([
            i32::MIN,
            i32::MAX,
            16_777_217,
            16_842_753,
            -16_842_753,
            16_842_752,
            0x7f80_0001,
            0x7f7f_ffff,
        ])
        .collect();
    let unsigned: Vec<u32> = words.iter().map(|x| x.cast_unsigned()).collect();
    check(i32_to_i8, &words, |x| x as i8, |a, b| a == b);
    check(i32_to_u8, &words, |x| x as u8, |a, b| a == b);
    check(i32_to_f16, &words, |x| nearest_f16(x.into()), same_float);
    check(u32_to_bf16, &unsigned, |x| nearest_bf16(x.into()), same_float);
    check(i32_to_bf16, &words, |x| nearest_bf16(x.into()), same_float);
    check(i8_to_u8, &signed, |x| x as u8, |a, b| a == b);
    check(i8_to_u32, &signed, |x| x as u32, |a, b| a == b);
    check(i8_to_f32, &signed, f32::from, same_float);
    check(u8_to_i8, &bytes, |x| x as i8, |a, b| a == b);
    check(u8_to_i32, &bytes, i32::from, |a, b| a == b);
    check(u8_to_f32, &bytes, f32::from, same_float);
    check(u8_to_bf16, &bytes, |x| bf16::from_f32(x.into()), same_float);
}

/// Checks both results of a conversion like `check`.
fn check_both<T: Element, U: Element, V: Element>(
    convert: impl Fn(&Tensor<T>) -> Result<(Tensor<U>, Tensor<V>)>,
    elements: &[T],
    expect: impl Fn(T) -> (U, V),
) {
    check(|x| Ok(convert(x)?.0), elements, |x| expect(x).0, |a, b| a == b);
    check(|x| Ok(convert(x)?.1), elements, |x| expect(x).1, |a, b| a == b);
}

#[test]
fn integers_of_16_bits() {
    let unsigned: Vec<u16> = (0..=u16::MAX).collect();
    let signed: Vec<i16> = (i16::MIN..=i16::MAX).collect();
    check(i16_to_f32, &signed, f32::from, same_float);
    check(u16_to_f32, &unsigned, f32::from, same_float);
    check(i16_to_f16, &signed, |x| nearest_f16(x.into()), same_float);
    check(u16_to_f16, &unsigned, |x| nearest_f16(x.into()), same_float);
    check(i16_to_bf16, &signed, |x| nearest_bf16(x.into()), same_float);
    check(u16_to_bf16, &unsigned, |x| nearest_bf16(x.into()), same_float);
    check_both(i16_to_wide, &signed, |x| (x.into(), x as u32));
    check_both(u16_to_wide, &unsigned, |x| (x.into(), x.into()));
    check_both(|x| i16_to_narrow(x).map(|(x, y, _)| (x, y)), &signed, |x| (x as u16, x as i8));
    check_both(|x| i16_to_narrow(x).map(|(x, _, y)| (x, y)), &signed, |x| (x as u16, x as u8));
    check_both(|x| u16_to_narrow(x).map(|(x, y, _)| (x, y)), &unsigned, |x| (x as i16, x as i8));
    check_both(|x| u16_to_narrow(x).map(|(x, _, y)| (x, y)), &unsigned, |x| (x as i16, x as u8));
    check_both(truth_of_16, &signed, |x| (x != 0, x as u16 > 300));
    let words: Vec<i32> = (-70_000..70_000).step_by(13).chain([i32::MIN, i32::MAX, 0x7fff_8000]).collect();
    let unsigned: Vec<u32> = words.iter().map(|x| x.cast_unsigned()).collect();
    check_both(i32_to_16, &words, |x| (x as i16, x as u16));
    check_both(u32_to_16, &unsigned, |x| (x as i16, x as u16));
    check_both(i8_to_16, &(i8::MIN..=i8::MAX).collect::<Vec<_>>(), |x| (x.into(), x as u16));
    check_both(u8_to_16, &(0..=u8::MAX).collect::<Vec<_>>(), |x| (x.into(), x.into()));
    check_both(bool_to_16, &[true, false, false, true, true], |x| (x.into(), x.into()));
    check_both(f32_to_16, &singles(), |x| (x as i16, x as u16));
    check_both(f16_to_16, &halves(), |x| (x.to_f32() as i16, x.to_f32() as u16));
    check_both(bf16_to_16, &brain_floats(), |x| (x.to_f32() as i16, x.to_f32() as u16));
    check_both(
        |x| constants_of_16(x).map(|(x, y, ..)| (x, y)),
        &signed,
        |x| (x.wrapping_add(32767), (x as u16).wrapping_add(65535)),
    );
    check_both(|x| constants_of_16(x).map(|(.., x, y)| (x, y)), &signed, |x| (x ^ 4464, x as u16 | 8191));
}

#[test]
fn truth_values() {
    let truths: Vec<bool> = (0..1001).map(|i| i % 3 == 0).collect();
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    check(bool_to_i8, &truths, i8::from, |a, b| a == b);
    check(bool_to_f16, &truths, |x| f16::from_f32(f32::from(u8::from(x))), same_float);
    check(bool_to_bool, &truths, |x| !x, |a, b| a == b);
    check(u8_to_bool, &bytes, |x| x != 0, |a, b| a == b);
}

#[test]
fn truth_values_at_other_places() {
    on_devices(|device| {
        let rows = [[true, false, false], [true, true, false]];
        let x = Tensor::from_slice(device, rows.as_flattened(), [2, 3])?;
        let (rest, flipped, longer, both, taken) = moved(&x, &Tensor::from_slice(device, &[1, 7], [2])?)?;
        assert_eq!(rest.to_vec()?, [false, false, true, false], "{device}");
        assert_eq!(flipped.to_vec()?, [false, false, true, false, true, true], "{device}");
        let padded = rows.map(|[a, b, c]| [true, a, b, c, true, true]);
        assert_eq!(longer.to_vec()?, padded.as_flattened(), "{device}");
        let joined = rows.map(|[a, b, c]| [a, b, c, !a, !b, !c]);
        assert_eq!(both.to_vec()?, joined.as_flattened(), "{device}");
        assert_eq!(taken.to_vec()?, [true, true, false, false, false, false], "{device}");
        Ok(())
    });
}

#[test]
fn truth_values_along_parts() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &[1.0, -2.0, 3.0, -4.0, 5.0, 6.0], [2, 3])?;
        assert_eq!(renamed(&x)?.to_vec()?, [1.0, 0.0, 1.0, 0.0, 1.0, 1.0], "{device}");
        assert_eq!(where_last(&x.reshape([6])?, 2)?.to_vec()?, [1.0, -2.0, 3.0, -4.0, 5.0, 6.0], "{device}");
        Ok(())
    });
}

/// Truth values are stored between two kernels where one kernel cannot bind enough buffers.
#[test]
fn truth_values_between_kernels() {
    on_devices(|device| {
        let column =
            |i: i8| Tensor::from_vec(device, (0..1001).map(|x| (x % 11) as i8 - i).collect(), [1001]);
        let columns = (0..9).map(column).collect::<Result<Vec<_>>>()?;
        let [a, b, c, d, e, f, g, h, i] = &columns[..] else { unreachable!("nine columns") };
        let all: Vec<bool> = (0..1001).map(|x| x % 11 > 8).collect();
        assert_eq!(all_of(a, b, c, d, e, f, g, h, i)?.to_vec()?, all, "{device}");
        Ok(())
    });
}
