//! `f64` agrees with plain loops on the CPU and on NVIDIA's GPUs. WGSL has no `f64`, and a launch there says
//! so.

use fusion::{Device, Result, Tensor, bf16, f16};

use crate::devices::{Kind, devices};
use crate::{nearest_bf16, nearest_f16};

fusion::fuse! {
    pub fn polynomial(x: f64[N], y: f64[N], s: f64) -> f64[N] {
        let t = x * y + s;
        clamp(t / 3.0 - sqrt(abs(x)), -2.5, 2.5) + floor(y) * rsqrt(1.0 + square(x))
    }

    pub fn normal(x: f64[N, D], gain: f64[D]) -> f64[N, D] { layer_norm(x, D) * gain }

    pub fn moments(x: f64[N, D]) -> (f64[N], f64[N], f64[D], f64[D], f64[]) {
        (mean(x, D), var(x, D), mean(x, N), std(x, N), sum(x))
    }

    pub fn extremes(x: f64[N, D]) -> (f64[N], i32[N], f64[D]) { (max(x, D), argmax(x, D), min(x, N)) }

    /// Sums of `f32` elements in f64.
    pub fn exact_sum(x: f32[N, D]) -> f32[N] { sum(x as f64, D) as f32 }

    pub fn casts(x: f64[N]) -> (f32[N], f16[N], bf16[N], i32[N], u32[N], i8[N], u8[N]) {
        (x as f32, x as f16, x as bf16, x as i32, x as u32, x as i8, x as u8)
    }

    pub fn casts_to_16(x: f64[N]) -> (i16[N], u16[N]) { (x as i16, x as u16) }

    pub fn of_16(x: i16[N], y: u16[N]) -> f64[N] { x as f64 * y as f64 }

    pub fn to_double(a: f16[N], b: i32[N], c: u8[N]) -> f64[N] { a as f64 + b as f64 * c as f64 }

    pub fn momentum(p: &mut f64[N], g: f32[N], rate: f64) { p = lerp(p, g as f64, rate); }

    pub fn gathered(x: f64[V, D], ids: i32[N]) -> f64[N, D] { take(x, V, ids) }

    pub fn transposed(x: f64[N, D], y: f64[D, N]) -> f64[D, N] { x + y }

    pub fn transcendental(x: f64[N]) -> f64[N] { exp(-abs(x)) + log1p(square(x)) * tanh(x) + exp2(x) }

    pub fn erf_of(x: f64[N]) -> f64[N] { erf(x) }

    pub fn circular(x: f64[N], y: f64[N]) -> f64[N] {
        sin(x) * cos(y) + tan(x) * atan2(y, x) + asin(sin(y)) * acos(cos(x)) - atan(y)
    }

    pub fn powers(x: f64[N], y: f64[N]) -> f64[N] { pow(abs(x), y) + cbrt(x) * fmod(x, y) }

    pub fn shares(x: f64[N, D]) -> f64[N, D] { softmax(x, D) }
}

/// Runs a test on the devices that have f64.
fn each(test: impl Fn(&Device) -> Result<()>) {
    for (kind, device) in devices() {
        if kind != Kind::Wgpu {
            test(&device).unwrap_or_else(|error| panic!("{device}: {error}"));
        }
    }
}

fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 % 1013) as f64 * 0.7306 - 370.0) / 61.0).collect()
}

fn near(device: &Device, got: &[f64], expected: &[f64], bound: f64) {
    assert_eq!(got.len(), expected.len());
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= bound * b.abs().max(1.0), "{device}: {i}: {a}, not {b}");
    }
}

#[test]
fn arithmetic() {
    each(|device| {
        for n in [0, 1, 3, 4, 5, 1023, 4099] {
            let (x, y) = (numbers(n), numbers(n + 1)[1..].to_vec());
            let tensor = |x: &[f64]| Tensor::from_slice(device, x, [x.len()]);
            let got = polynomial(&tensor(&x)?, &tensor(&y)?, 0.3)?.to_vec()?;
            let expected = x.iter().zip(&y).map(|(&x, &y)| {
                let t = x.mul_add(y, 0.3);
                (t / 3.0 - x.abs().sqrt()).clamp(-2.5, 2.5) + y.floor() / (1.0 + x * x).sqrt()
            });
            near(device, &got, &expected.collect::<Vec<_>>(), 1e-15);
        }
        Ok(())
    });
}

#[test]
fn reductions() {
    each(|device| {
        for (n, d) in [(1, 1), (3, 5), (65, 33), (7, 1024), (300, 64), (4, 5000), (1, 70_001), (70_001, 2)] {
            let x = numbers(n * d);
            let t = Tensor::from_slice(device, &x, [n, d])?;
            let rows: Vec<&[f64]> = x.chunks(d).collect();
            let columns: Vec<Vec<f64>> = (0..d).map(|c| rows.iter().map(|row| row[c]).collect()).collect();
            let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
            let var = |x: &[f64]| {
                let m = mean(x);
                x.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / (x.len() - 1) as f64
            };
            let [of_rows, of_columns] = [n, d].map(|_| 1e-12);
            let (means, vars, column_means, column_stds, total) = moments(&t)?;
            near(device, &means.to_vec()?, &rows.iter().map(|row| mean(row)).collect::<Vec<_>>(), of_rows);
            let expected: Vec<f64> = columns.iter().map(|column| mean(column)).collect();
            near(device, &column_means.to_vec()?, &expected, of_columns);
            near(device, &[total.item()? / (n * d) as f64], &[mean(&x)], 1e-12);
            if d > 1 {
                near(device, &vars.to_vec()?, &rows.iter().map(|row| var(row)).collect::<Vec<_>>(), 1e-12);
            }
            if n > 1 {
                let expected: Vec<f64> = columns.iter().map(|column| var(column).sqrt()).collect();
                near(device, &column_stds.to_vec()?, &expected, 1e-12);
            }
            let (most, places, least) = extremes(&t)?;
            let largest = |row: &[f64]| row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let expected: Vec<f64> = rows.iter().map(|row| largest(row)).collect();
            assert_eq!(most.to_vec()?, expected, "{device}");
            let first = |row: &&[f64]| row.iter().position(|&x| x == largest(row)).unwrap() as i32;
            assert_eq!(places.to_vec()?, rows.iter().map(first).collect::<Vec<_>>(), "{device}");
            let smallest = |column: &Vec<f64>| column.iter().copied().fold(f64::INFINITY, f64::min);
            assert_eq!(least.to_vec()?, columns.iter().map(smallest).collect::<Vec<_>>(), "{device}");
            let gain = numbers(d);
            let got = normal(&t, &Tensor::from_slice(device, &gain, [d])?)?.to_vec()?;
            let expected = rows.iter().flat_map(|row| {
                let m = mean(row);
                let v = row.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / d as f64;
                let gain = &gain;
                row.iter().zip(gain).map(move |(x, g)| (x - m) / (v + 1e-5).sqrt() * g)
            });
            near(device, &got, &expected.collect::<Vec<_>>(), 1e-10);
        }
        Ok(())
    });
}

#[test]
fn sums_of_singles_are_exact() {
    each(|device| {
        let x: Vec<f32> = (0..3 * 1000).map(|i| if i % 2 == 0 { 1e8 } else { 1.0 }).collect();
        let got = exact_sum(&Tensor::from_slice(device, &x, [3, 1000])?)?.to_vec()?;
        assert_eq!(got, [(500.0 * (1e8 + 1.0f64)) as f32; 3], "{device}");
        Ok(())
    });
}

#[test]
fn conversions() {
    let edges = [0.0, -0.0, 0.5, -0.5, 1e300, -1e300, 1e-300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let edges =
        edges.into_iter().chain([65519.9, 65520.0, 2147483647.5, -2147483649.0, 4294967295.9, 127.9, -129.0]);
    let edges = edges.chain([32767.9, 32768.0, -32768.9, -32769.0, 65535.9, 65536.0]);
    // Numbers that a first rounding to `f32` would turn into a tie, or away from one.
    let (half, brain, tiny) = (2.0_f64.powi(-11), 2.0_f64.powi(-8), 2.0_f64.powi(-40));
    let ties = [1.0 + half, 1.0 + 3.0 * half, 1.0 + brain, 1.0 + 3.0 * brain, 65520.0, 2.0_f64.powi(-25)];
    let ties = ties.into_iter().flat_map(|x| [x, x + x * tiny, x - x * tiny]).flat_map(|x| [x, -x]);
    let edges = edges.into_iter().chain(ties);
    let x: Vec<f64> = edges.chain(numbers(1001)).collect();
    each(|device| {
        let (a, b, c, d, e, f, g) = casts(&Tensor::from_slice(device, &x, [x.len()])?)?;
        let same = |got: Vec<f32>, expected: Vec<f32>| {
            for ((got, expected), x) in got.into_iter().zip(expected).zip(&x) {
                let equal = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
                assert!(equal, "{device}: {x} is {got}, not {expected}");
            }
        };
        same(a.to_vec()?, x.iter().map(|&x| x as f32).collect());
        let half = |x: f64| nearest_f16(x).to_f32();
        same(b.to_vec()?.into_iter().map(f16::to_f32).collect(), x.iter().map(|&x| half(x)).collect());
        let brain = |x: f64| nearest_bf16(x).to_f32();
        same(c.to_vec()?.into_iter().map(bf16::to_f32).collect(), x.iter().map(|&x| brain(x)).collect());
        assert_eq!(d.to_vec()?, x.iter().map(|&x| x as i32).collect::<Vec<_>>(), "{device}");
        assert_eq!(e.to_vec()?, x.iter().map(|&x| x as u32).collect::<Vec<_>>(), "{device}");
        assert_eq!(f.to_vec()?, x.iter().map(|&x| x as i8).collect::<Vec<_>>(), "{device}");
        assert_eq!(g.to_vec()?, x.iter().map(|&x| x as u8).collect::<Vec<_>>(), "{device}");
        let (h, i) = casts_to_16(&Tensor::from_slice(device, &x, [x.len()])?)?;
        let (h, i) = (h.to_vec()?, i.to_vec()?);
        assert_eq!(h, x.iter().map(|&x| x as i16).collect::<Vec<_>>(), "{device}");
        assert_eq!(i, x.iter().map(|&x| x as u16).collect::<Vec<_>>(), "{device}");
        let got =
            of_16(&Tensor::from_slice(device, &h, [h.len()])?, &Tensor::from_slice(device, &i, [i.len()])?)?;
        let expected = h.iter().zip(&i).map(|(&h, &i)| f64::from(h) * f64::from(i));
        assert_eq!(got.to_vec()?, expected.collect::<Vec<_>>(), "{device}");
        let halves: Vec<f16> = (0..7u8).map(|i| f16::from_f32(f32::from(i) / 3.0)).collect();
        let (ints, bytes) = ([1, -2, i32::MAX, i32::MIN, 0, 7, 9], [255u8, 2, 255, 1, 9, 3, 0]);
        let tensors = (
            Tensor::from_slice(device, &halves, [7])?,
            Tensor::from_slice(device, &ints, [7])?,
            Tensor::from_slice(device, &bytes, [7])?,
        );
        let got = to_double(&tensors.0, &tensors.1, &tensors.2)?.to_vec()?;
        let expected = (0..7).map(|i| f64::from(ints[i]).mul_add(f64::from(bytes[i]), halves[i].to_f64()));
        assert_eq!(got, expected.collect::<Vec<_>>(), "{device}");
        Ok(())
    });
}

#[test]
fn in_place_gathered_and_transposed() {
    each(|device| {
        let x = numbers(6 * 5);
        let mut p = Tensor::from_slice(device, &x, [30])?;
        momentum(&mut p, &Tensor::full(device, 2.0, [30])?, 0.25)?;
        near(device, &p.to_vec()?, &x.iter().map(|x| x + 0.25 * (2.0 - x)).collect::<Vec<_>>(), 1e-15);
        let t = Tensor::from_slice(device, &x, [6, 5])?;
        let rows = gathered(&t, &Tensor::from_slice(device, &[5, 0, 9], [3])?)?.to_vec()?;
        assert_eq!((&rows[..5], &rows[5..10]), (&x[25..], &x[..5]), "{device}");
        assert!(rows[10..].iter().all(|x| x.is_nan()), "{device}");
        let got = transposed(&t, &Tensor::zeros(device, [5, 6])?)?.to_vec()?;
        assert_eq!(got, (0..30).map(|i| x[i % 6 * 5 + i / 6]).collect::<Vec<_>>(), "{device}");
        Ok(())
    });
}

#[test]
fn functions_of_the_standard_library() {
    let x = numbers(1003);
    each(|device| {
        let t = Tensor::from_slice(device, &x, [x.len()])?;
        let expected = x.iter().map(|&x| (-x.abs()).exp() + (x * x).ln_1p() * x.tanh() + x.exp2());
        near(device, &transcendental(&t)?.to_vec()?, &expected.collect::<Vec<_>>(), 1e-14);
        let rows = shares(&t.reshape([17, 59])?)?.to_vec()?;
        let expected = x.chunks(59).flat_map(|row| {
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
            row.iter().map(move |x| (x - most).exp() / sum)
        });
        near(device, &rows, &expected.collect::<Vec<_>>(), 1e-14);
        Ok(())
    });
    // Values computed to 30 digits by mpmath, and rounded.
    let x = [0.0, 0.1, 0.25, 0.999, 1.0, 1.001, 1.5, 2.0, 2.5, -3.0, 4.5, 5.9, 7.0];
    let expected = [
        0.0,
        0.1124629160182849,
        0.27632639016823696,
        0.8422852702064969,
        0.8427007929497149,
        0.8431154854780762,
        0.9661051464753108,
        0.9953222650189527,
        0.999593047982555,
        -0.9999779095030014,
        0.9999999998033839,
        0.9999999999999999,
        1.0,
    ];
    each(|device| {
        near(device, &erf_of(&Tensor::from_slice(device, &x, [13])?)?.to_vec()?, &expected, 3e-16);
        Ok(())
    });
}

#[test]
fn circular_functions_and_powers() {
    let (x, y) = (numbers(1003), numbers(1004)[1..].to_vec());
    let pairs = || x.iter().copied().zip(y.iter().copied());
    each(|device| {
        let tensors = [&x, &y].map(|x| Tensor::from_slice(device, x, [x.len()]));
        let [s, t] = [tensors[0].as_ref(), tensors[1].as_ref()].map(|x| x.expect("memory"));
        let expected = pairs().map(|(x, y)| {
            x.sin() * y.cos() + x.tan() * y.atan2(x) + y.sin().asin() * x.cos().acos() - y.atan()
        });
        near(device, &circular(s, t)?.to_vec()?, &expected.collect::<Vec<_>>(), 1e-12);
        let expected = pairs().map(|(x, y)| x.abs().powf(y) + x.cbrt() * (x % y));
        near(device, &powers(s, t)?.to_vec()?, &expected.collect::<Vec<_>>(), 1e-14);
        Ok(())
    });
}

#[test]
fn a_device_without_it_says_so() {
    let Some(device) = Kind::Wgpu.open() else { return };
    let x = Tensor::<f64>::zeros(&device, [2, 3]).expect("memory holds any bytes");
    assert_eq!(x.to_vec().expect("they come back"), [0.0; 6]);
    let error = shares(&x).expect_err("WGSL has no f64").to_string();
    assert!(error.starts_with(device.name()), "{error}");
    assert!(
        error.ends_with("does not support `shares`: it computes with f64, which wgsl has not"),
        "{error}"
    );
    let error = exact_sum(&Tensor::zeros(&device, [2, 3]).unwrap()).expect_err("nor inside").to_string();
    assert!(error.contains("f64"), "{error}");
}
