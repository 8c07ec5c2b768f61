//! Rows after a global reduction: two kernels do the update and agree with its formula.

use fusion::prelude::*;

use crate::devices::on_devices;
use crate::{Host, UNIT, check};

fuse! {
    // Updates elements, a value of each row and a scalar, by the norm of all elements and the largest of each
    // row.
    fn clipped(p, s, calls, g, most, N: dim, D: dim) {
        let length = norm(g, (N, D));
        let finite = isfinite(length);
        let step = g * min(1.0, most / length);
        let x = p - step * (1.0 + calls);
        let largest = max(abs(x), D);
        (
            if finite { x / (1.0 + largest) } else { p },
            if finite { 0.5 * s + largest } else { s },
            if finite { calls } else { calls + 1.0 },
            length,
        )
    }
    pub(crate) fn update(p: &mut f32[N, D = 256], s: &mut f32[N], calls: &mut f32[], g: f32[N, D], most: f32) -> f32[] {
        let (a, b, c, length) = clipped(p, s, calls, g, most, N, D);
        (p, s, calls) = (a, b, c);
        length
    }
    #[fuse(off)]
    pub(crate) fn update_off(p: &mut f32[N, D = 256], s: &mut f32[N], calls: &mut f32[], g: f32[N, D], most: f32) -> f32[] {
        let (a, b, c, length) = clipped(p, s, calls, g, most, N, D);
        (p, s, calls) = (a, b, c);
        length
    }
    // Rows that clusters would share, but no block has a part of the global reduction.
    pub(crate) fn long(x: f32[N, D = 20_000]) -> f32[N, D] { 2e4 * softmax(x * (1e3 / (1.0 + norm(x))), D) }
    #[fuse(off)]
    pub(crate) fn long_off(x: f32[N, D = 20_000]) -> f32[N, D] { 2e4 * softmax(x * (1e3 / (1.0 + norm(x))), D) }
    // Several global reductions of other types, of coordinates, and of tensors that only they read. Rows have
    // odd lengths.
    pub(crate) fn many(x: f32[N, H, D = 99], w: f32[H, D], k: i32[N, H, D]) -> (f32[N, H, D], f32[], i32[], i32[N, H]) {
        let (all, largest) = (sum(x * w * (index(H) as f32)), max(k));
        let share = softmax(x / (1.0 + abs(all)), D);
        (share * (largest as f32), all, largest, sum(k, D) - largest)
    }
    #[fuse(off)]
    pub(crate) fn many_off(x: f32[N, H, D = 99], w: f32[H, D], k: i32[N, H, D]) -> (f32[N, H, D], f32[], i32[], i32[N, H]) {
        let (all, largest) = (sum(x * w * (index(H) as f32)), max(k));
        let share = softmax(x / (1.0 + abs(all)), D);
        (share * (largest as f32), all, largest, sum(k, D) - largest)
    }
    // Narrow elements, and rows computed from the old values of the in-place parameter.
    pub(crate) fn narrow(x: &mut f16[N, D = 80]) -> (f32[N], f32[]) {
        let all = sum(square(x as f32));
        let mu = mean(x as f32, D);
        x = ((x as f32 - mu) / sqrt(1.0 + all)) as f16;
        (mu, all)
    }
}

/// Numbers of rows: none, few, those around a block's or a thread's share of partials, and more. The last
/// part is short.
const ROWS: [usize; 8] = [0, 1, 2, 127, 130, 1025, 4100, 9001];

#[test]
fn updates_are_those_of_their_formulas() {
    on_devices(|device| {
        for rows in ROWS {
            for (most, is_finite) in [(1.0, true), (f32::MAX, true), (1.0, false)] {
                let (p, mut g) = (Host::new(1, &[rows, 256]), Host::new(2, &[rows, 256]));
                let s = Host::new(3, &[rows]);
                let is_finite = is_finite || rows == 0;
                if !is_finite {
                    g.elements[rows * 256 - 1] = f32::INFINITY;
                }
                let g_there = g.on(device)?;
                let (mut p_there, mut s_there) = (p.on(device)?, s.on(device)?);
                let mut calls = Tensor::full(device, 2.0, [])?;
                let length = update(&mut p_there, &mut s_there, &mut calls, &g_there, most)?;
                let what = format!("{device}: {rows} rows, at most {most}, {is_finite}");
                assert_eq!(calls.item()?, if is_finite { 2.0 } else { 3.0 }, "{what}");
                if !is_finite {
                    assert!(length.item()?.is_infinite(), "{what}");
                    assert_eq!((p_there.to_vec()?, s_there.to_vec()?), (p.elements, s.elements), "{what}");
                    continue;
                }
                let exact = g.elements.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
                check(&what, &length, &[], [(exact, 64.0 * UNIT * exact)]);
                let factor = (f64::from(most) / exact).min(1.0) * 3.0;
                let x = |(p, g): (&f32, &f32)| f64::from(*p) - f64::from(*g) * factor;
                let x: Vec<f64> = p.elements.iter().zip(&g.elements).map(x).collect();
                let largest = |row: &[f64]| row.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                let largest: Vec<f64> = x.chunks(256).map(largest).collect();
                let of_row = largest.iter().zip(&s.elements).map(|(x, &s)| (0.5 * f64::from(s) + x, 1e-5));
                check(&what, &s_there, &[rows], of_row);
                let of_element = x.iter().enumerate().map(|(i, x)| (x / (1.0 + largest[i / 256]), 1e-5));
                check(&what, &p_there, &[rows, 256], of_element);
            }
        }
        Ok(())
    });
}

#[test]
fn long_rows_are_as_without_fusion() {
    on_devices(|device| {
        for rows in [1, 64, 70] {
            let x = Host::new(1, &[rows, 20_000]).on(device)?;
            alike(&format!("{device}: {rows} rows"), &long(&x)?, &long_off(&x)?)?;
        }
        Ok(())
    });
}

/// The reference is a launch for each operation.
#[test]
fn dims_are_as_without_fusion() {
    on_devices(|device| {
        for (n, h) in [(1, 1), (7, 5), (300, 4), (77, 131)] {
            let x = Host::new(1, &[n, h, 99]).on(device)?;
            let w = Host::new(2, &[h, 99]).on(device)?;
            let k: Vec<i32> = (0..n * h * 99).map(|i| (i * 7919 % 2003) as i32 - 1000).collect();
            let k = Tensor::from_slice(device, &k, [n, h, 99])?;
            let (fused, apart) = (many(&x, &w, &k)?, many_off(&x, &w, &k)?);
            let what = format!("{device}: {n} times {h} rows");
            let (a, b) = (fused.1.item()?, apart.1.item()?);
            assert!((a - b).abs() <= 2e-4 * (1.0 + (n * h * h) as f32).sqrt() * 6.0, "{what}: {a}, not {b}");
            assert_eq!(fused.2.item()?, apart.2.item()?, "{what}");
            assert_eq!(fused.3.to_vec()?, apart.3.to_vec()?, "{what}");
            for (i, (a, b)) in fused.0.to_vec()?.into_iter().zip(apart.0.to_vec()?).enumerate() {
                assert!((a - b).abs() <= 2e-4 * b.abs(), "{what}: element {i} is {a}, not {b}");
            }
        }
        Ok(())
    });
}

fn alike(what: &str, found: &Tensor<f32>, expected: &Tensor<f32>) -> Result<()> {
    for (i, (found, expected)) in found.to_vec()?.into_iter().zip(expected.to_vec()?).enumerate() {
        let is_near = (found - expected).abs() <= 1e-5 * (1.0 + expected.abs());
        assert!(is_near || found.is_nan() && expected.is_nan(), "{what}: {i} is {found}, not {expected}");
    }
    Ok(())
}

#[test]
fn narrow_rows_are_read_before_they_are_written() {
    on_devices(|device| {
        for rows in ROWS {
            let x: Vec<f16> = Host::new(9, &[rows, 80]).elements.iter().map(|&x| f16::from_f32(x)).collect();
            let mut there = Tensor::from_slice(device, &x, [rows, 80])?;
            let (mu, all) = narrow(&mut there)?;
            let x: Vec<f64> = x.into_iter().map(f64::from).collect();
            let exact = x.iter().map(|x| x * x).sum::<f64>();
            let what = format!("{device}: {rows} rows");
            check(&what, &all, &[], [(exact, 64.0 * UNIT * exact)]);
            let means: Vec<f64> = x.chunks(80).map(|row| row.iter().sum::<f64>() / 80.0).collect();
            check(&what, &mu, &[rows], means.iter().map(|&mean| (mean, 1e-6)));
            for (i, (found, x)) in there.to_vec()?.into_iter().zip(&x).enumerate() {
                let expected = (x - means[i / 80]) / (1.0 + exact).sqrt();
                let is_near = (f64::from(found) - expected).abs() <= 1e-3 * expected.abs() + 1e-7;
                assert!(is_near, "{what}: element {i} is {found}, not {expected}");
            }
        }
        Ok(())
    });
}
