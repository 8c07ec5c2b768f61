//! Means stay near the exact value however far from 0 the elements are, and so do distances from a mean. The
//! tests run on every device, for rows in any layout.

mod devices;

use devices::on_devices;
use fusion::prelude::*;

fuse! {
    pub(crate) fn of_all(x: f32[N]) -> f32[] { mean(x) }
    pub(crate) fn of_rows(x: f32[N, D]) -> f32[N] { mean(x, D) }
    pub(crate) fn of_columns(x: f32[N, D]) -> f32[D] { mean(x, N) }
    pub(crate) fn of_planes(x: f32[N, C, H, W]) -> f32[C] { mean(x, (N, H, W)) }
    pub(crate) fn of_outer_and_inner(x: f32[N, C, H]) -> f32[C] { mean(x, (N, H)) }
    pub(crate) fn of_lines(x: f32[N, L, D = 6]) -> f32[N, D] { mean(x, L) }
    pub(crate) fn of_short_rows(x: f32[N, D = 7]) -> f32[N] { mean(x, D) }
    pub(crate) fn of_five(x: f32[N, D = 5]) -> f32[N] { mean(x, D) }
    pub(crate) fn of_eight(x: f32[N, D = 8]) -> f32[N] { mean(x, D) }
    pub(crate) fn of_twelve(x: f32[N, D = 12]) -> f32[N] { mean(x, D) }
    pub(crate) fn of_products(x: f32[N, D], w: f32[D]) -> f32[N] { mean(x * w, D) }
    pub(crate) fn of_products_in_columns(x: f32[N, D], w: f32[N]) -> f32[D] { mean(x * w, N) }
    pub(crate) fn of_halves(x: bf16[N, D]) -> f32[N] { mean(x, D) }
    pub(crate) fn with_largest(x: f32[N, D]) -> (f32[N], f32[N]) { (mean(x, D), max(x, D)) }
    pub(crate) fn of_wide_rows(x: f64[N, D]) -> f64[N] { mean(x, D) }
    pub(crate) fn of_wide_columns(x: f64[N, D]) -> f64[D] { mean(x, N) }

    pub(crate) fn normed_rows(x: f32[N, D]) -> f32[N, D] { layer_norm(x, D) }
    pub(crate) fn normed_columns(x: f32[N, D]) -> f32[N, D] { layer_norm(x, N) }
    pub(crate) fn normed_planes(x: f32[N, C, H, W]) -> f32[N, C, H, W] { layer_norm(x, (N, H, W)) }
    pub(crate) fn variances(x: f32[N, D]) -> f32[N] { var(x, D) }
}

/// Allowed error of a mean, in units in the last place of its exact value.
const UNITS: f64 = 2.0;

/// Allowed error of the mean of a row shorter than a vector, whatever its elements. A plain loop over them
/// errs as much.
const UNITS_OF_SHORT_ROWS: f64 = 3.0;

/// Function from the place in a row and the number of the row to an element.
type Element = fn(usize, usize) -> f64;

/// Allowed error of the mean of a long row that is cut into parts: the part, the sum of parts and the quotient are
/// rounded.
const UNITS_OF_PARTS: f64 = 3.0;

const KINDS: [(&str, Element); 7] = [
    ("far from 0", |i, row| 1e4 + ((i + row) % 16) as f64 * 1e-3),
    ("equal", |_, row| 0.1 + row as f64),
    ("of one sign", |i, row| ((i * 7919 + row * 13) % 1000) as f64 * 1e-3 + 0.0137),
    ("one large", |i, row| if i == row { 3e4 } else { 1.0 / 3.0 }),
    ("falling", |i, row| 1e6 / (1 + i + row) as f64),
    ("rising", |i, row| 1.0 + ((i + row) as f64) * 1.7),
    ("by turns", |i, row| if (i + row) % 2 == 0 { 1e5 + 0.3 } else { 7.7 }),
];

/// Pairs of a number of rows and their length.
const ROWS: [(usize, usize); 14] = [
    (5, 1),
    (9, 2),
    (40, 7),
    (33, 16),
    (70, 48),
    (17, 64),
    (12, 100),
    (9, 257),
    (6, 1000),
    (4, 4096),
    (3, 5003),
    (2, 30_000),
    (1, 100_000),
    (1, 300_007),
];

fn rows_of(element: Element, (rows, len): (usize, usize)) -> Vec<Vec<f32>> {
    (0..rows).map(|row| (0..len).map(|i| element(i, row) as f32).collect()).collect()
}

/// Lays rows side by side, one element of each row after another.
fn transposed(rows: &[Vec<f32>]) -> Vec<f32> {
    (0..rows[0].len()).flat_map(|i| rows.iter().map(move |row| row[i])).collect()
}

/// Computes the mean, exact except for two roundings to `f64`.
fn mean_of(terms: impl ExactSizeIterator<Item = f64>) -> f64 {
    let (len, mut sum, mut error) = (terms.len(), 0.0_f64, 0.0_f64);
    for x in terms {
        let all = sum + x;
        error += if sum.abs() >= x.abs() { (sum - all) + x } else { (x - all) + sum };
        sum = all;
    }
    (sum + error) / len as f64
}

/// Returns the distance from an `f32` to the next one of the same magnitude.
fn unit(of: f64) -> f64 {
    let of = (of as f32).abs();
    f64::from(of.next_up()) - f64::from(of)
}

#[track_caller]
fn check(what: &str, means: &[f32], exact: impl IntoIterator<Item = f64>) {
    check_within(UNITS, what, means, exact);
}

#[track_caller]
fn check_within(most: f64, what: &str, means: &[f32], exact: impl IntoIterator<Item = f64>) {
    let exact: Vec<f64> = exact.into_iter().collect();
    assert_eq!(means.len(), exact.len(), "{what}");
    for (i, (&mean, exact)) in means.iter().zip(exact).enumerate() {
        let off = (f64::from(mean) - exact).abs() / unit(exact);
        assert!(off <= most, "{what}: {mean} of row {i} is {off:.2} units from {exact}");
    }
}

/// Returns a positive `f32` for a number, across many magnitudes.
fn random(number: usize) -> f32 {
    let bits =
        (number as u32).wrapping_mul(0x9e37_79b1) ^ (number as u32).rotate_left(13).wrapping_mul(0x85eb_ca6b);
    ((bits >> 8) as f32 / (1 << 24) as f32 * 6.0 - 3.0).exp()
}

#[test]
fn means_of_short_rows_of_any_elements_are_near() {
    on_devices(|device| {
        for len in (1..=33).chain([48, 63]) {
            let rows: Vec<f32> = (0..20_000 * len).map(|i| random(i + len)).collect();
            let means = of_rows(&Tensor::from_slice(device, &rows, [20_000, len])?)?.to_vec()?;
            let fixed = match len {
                5 => Some(of_five(&Tensor::from_slice(device, &rows, [20_000, 5])?)?.to_vec()?),
                8 => Some(of_eight(&Tensor::from_slice(device, &rows, [20_000, 8])?)?.to_vec()?),
                12 => Some(of_twelve(&Tensor::from_slice(device, &rows, [20_000, 12])?)?.to_vec()?),
                _ => None,
            };
            for means in [Some(means), fixed].into_iter().flatten() {
                for (row, &mean) in rows.chunks(len).zip(&means) {
                    let exact = mean_of(row.iter().map(|&x| f64::from(x)));
                    let off = (f64::from(mean) - exact).abs() / unit(exact);
                    assert!(
                        off <= UNITS_OF_SHORT_ROWS,
                        "{device}: {mean} of {row:?} is {off:.2} units from {exact}"
                    );
                }
            }
        }
        Ok(())
    });
}

/// Calls `test` with rows of each kind and length on each device.
fn for_each_kind(
    lengths: &[(usize, usize)],
    test: impl Fn(&Device, &str, &[Vec<f32>], Vec<f64>) -> Result<()>,
) {
    on_devices(|device| {
        for (kind, element) in KINDS {
            for &shape in lengths {
                let rows = rows_of(element, shape);
                let exact = rows.iter().map(|row| mean_of(row.iter().map(|&x| f64::from(x)))).collect();
                test(device, &format!("{device}: {kind}, {shape:?}"), &rows, exact)?;
            }
        }
        Ok(())
    });
}

#[test]
fn means_of_rows_are_near() {
    for_each_kind(&ROWS, |device, what, rows, exact| {
        let [n, d] = [rows.len(), rows[0].len()];
        let x = Tensor::from_vec(device, rows.concat(), [n, d])?;
        check(what, &of_rows(&x)?.to_vec()?, exact.clone());
        let (means, largest) = with_largest(&x)?;
        check(&format!("{what}, with the largest"), &means.to_vec()?, exact.clone());
        let most = rows.iter().map(|row| row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        assert_eq!(largest.to_vec()?, most.collect::<Vec<_>>(), "{what}");
        let first = Tensor::from_slice(device, &rows[0], [d])?;
        check(&format!("{what}, all"), &of_all(&first)?.to_vec()?, [exact[0]]);
        if d == 7 {
            let x = Tensor::from_vec(device, rows.concat(), [n, 7])?;
            check(&format!("{what}, short"), &of_short_rows(&x)?.to_vec()?, exact);
        }
        Ok(())
    });
}

#[test]
fn means_of_columns_are_near() {
    for_each_kind(&ROWS, |device, what, rows, exact| {
        let x = Tensor::from_vec(device, transposed(rows), [rows[0].len(), rows.len()])?;
        check(what, &of_columns(&x)?.to_vec()?, exact);
        Ok(())
    });
}

/// Column counts above a thread's share, and those that leave a part of a vector.
#[test]
fn means_of_many_columns_are_near() {
    for_each_kind(&[(1030, 5), (611, 300), (520, 1001), (64, 20_000)], |device, what, rows, exact| {
        let x = Tensor::from_vec(device, transposed(rows), [rows[0].len(), rows.len()])?;
        check(what, &of_columns(&x)?.to_vec()?, exact);
        Ok(())
    });
}

#[test]
fn means_of_several_dims_are_near() {
    for_each_kind(&[(3, 64), (5, 2 * 9 * 11), (4, 8 * 64 * 33), (6, 2 * 7)], |device, what, rows, exact| {
        // A row consists of one plane from each of two, or eight, images.
        let (c, len) = (rows.len(), rows[0].len());
        let n = if len > 10_000 { 8 } else { 2 };
        let [h, w] = if len / n % 11 == 0 { [len / n / 11, 11] } else { [1, len / n] };
        let images = (0..n).flat_map(|image| {
            rows.iter().flat_map(move |row| row[image * h * w..(image + 1) * h * w].iter().copied())
        });
        let x = Tensor::from_vec(device, images.collect::<Vec<f32>>(), [n, c, h, w])?;
        check(what, &of_planes(&x)?.to_vec()?, exact.clone());
        let normed = normed_planes(&x)?.to_vec()?;
        let of_plane = |row: usize| {
            let at = move |image: usize| (image * c + row) * h * w;
            (0..n).flat_map(move |image| at(image)..at(image) + h * w)
        };
        for (row, (elements, mean)) in rows.iter().zip(exact).enumerate() {
            let normed: Vec<f32> = of_plane(row).map(|at| normed[at]).collect();
            check_normed(what, (elements, mean), &normed);
        }
        Ok(())
    });
}

#[test]
fn means_of_lines_of_short_rows_are_near() {
    for_each_kind(&[(12, 5), (6, 100), (18, 1000), (6, 20_000)], |device, what, rows, exact| {
        let (n, l) = (rows.len() / 6, rows[0].len());
        let x: Vec<f32> = rows.chunks(6).flat_map(transposed).collect();
        let x = Tensor::from_vec(device, x, [n, l, 6])?;
        check(what, &of_lines(&x)?.to_vec()?, exact);
        Ok(())
    });
}

#[test]
fn means_of_products_are_near() {
    for_each_kind(&ROWS, |device, what, rows, _| {
        let (n, d) = (rows.len(), rows[0].len());
        let weights: Vec<f32> = (0..d).map(|i| 0.5 + (i % 29) as f32 / 31.0).collect();
        let products =
            |row: &Vec<f32>| mean_of(row.iter().zip(&weights).map(|(&x, &w)| f64::from(x) * f64::from(w)));
        let w = Tensor::from_slice(device, &weights, [d])?;
        let x = Tensor::from_vec(device, rows.concat(), [n, d])?;
        check(what, &of_products(&x, &w)?.to_vec()?, rows.iter().map(products));
        let x = Tensor::from_vec(device, transposed(rows), [d, n])?;
        check(
            &format!("{what}, columns"),
            &of_products_in_columns(&x, &w)?.to_vec()?,
            rows.iter().map(products),
        );
        Ok(())
    });
}

#[test]
fn means_of_halves_are_near() {
    for_each_kind(&ROWS, |device, what, rows, _| {
        let halves: Vec<bf16> = rows.iter().flatten().map(|&x| bf16::from_f32(x)).collect();
        let d = rows[0].len();
        let exact = halves.chunks(d).map(|row| mean_of(row.iter().map(|x| x.to_f64()))).collect::<Vec<_>>();
        let x = Tensor::from_vec(device, halves, [rows.len(), d])?;
        check(what, &of_halves(&x)?.to_vec()?, exact);
        Ok(())
    });
}

/// The units are those of `f64`. The reference has an exact sum of small integers.
#[test]
fn means_of_f64_are_near() {
    on_devices(|device| {
        for (n, len) in [(3, 1), (7, 100), (3, 5003), (1, 100_000)] {
            // Elements are multiples of 2⁻⁵², so that a sum of integers is exact.
            let number = |i: usize, row: usize| {
                (1_u64 << 52)
                    + (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(row as u64) % (1 << 50)
            };
            let scale = (0.5_f64).powi(52);
            let element = |i: usize, row: usize| number(i, row) as f64 * scale;
            let check = |what: &str, means: Vec<f64>| {
                for (row, mean) in means.into_iter().enumerate() {
                    let sum: u128 = (0..len).map(|i| u128::from(number(i, row))).sum();
                    // The sum is an integer of up to 70 bits: compare its first 53 bits and the rest.
                    let (count, scaled) = (len as u128, (mean / scale) as u128);
                    let off = (scaled * count).abs_diff(sum) as f64 / count as f64;
                    assert!(
                        off <= UNITS,
                        "{device}, {what}: {off} units from the mean of row {row} of {len}"
                    );
                }
            };
            let rows = (0..n).flat_map(|row| (0..len).map(move |i| element(i, row))).collect::<Vec<f64>>();
            match Tensor::from_vec(device, rows, [n, len]).and_then(|x| of_wide_rows(&x)) {
                Ok(means) => check("rows", means.to_vec()?),
                // WGSL has no `f64`.
                Err(error) => {
                    assert!(format!("{device}").contains("wgpu"), "{error}");
                    continue;
                }
            }
            let columns = (0..len).flat_map(|i| (0..n).map(move |row| element(i, row))).collect::<Vec<f64>>();
            check("columns", of_wide_columns(&Tensor::from_vec(device, columns, [len, n])?)?.to_vec()?);
        }
        Ok(())
    });
}

/// Checks a normalised row, whose error comes from a mean within `UNITS` and from its own rounding.
#[track_caller]
fn check_normed(what: &str, (elements, mean): (&[f32], f64), normed: &[f32]) {
    let variance = mean_of(elements.iter().map(|&x| (f64::from(x) - mean).powi(2)));
    let off = UNITS * unit(mean);
    // An error of the mean adds its square to the variance.
    let [least, most] = [variance, variance + off * off].map(|variance| (variance + 1e-5).sqrt());
    for (i, (&x, &got)) in elements.iter().zip(normed).enumerate() {
        let distance = f64::from(x) - mean;
        let ends = [distance - off, distance + off].map(|distance| [distance / least, distance / most]);
        let [low, high] =
            [f64::min, f64::max].map(|end| ends.as_flattened().iter().copied().reduce(end).unwrap_or(0.0));
        let rounding = 1e-5 * (1.0 + low.abs().max(high.abs()));
        let is_near = (low - rounding..=high + rounding).contains(&f64::from(got));
        assert!(is_near, "{what}: element {i} is {got}, not within {low} and {high}");
    }
}

#[test]
fn normalised_rows_and_columns_are_as_near_as_means() {
    for_each_kind(&ROWS, |device, what, rows, exact| {
        let (n, d) = (rows.len(), rows[0].len());
        let normed = normed_rows(&Tensor::from_vec(device, rows.concat(), [n, d])?)?.to_vec()?;
        for ((row, normed), &mean) in rows.iter().zip(normed.chunks(d)).zip(&exact) {
            check_normed(what, (row, mean), normed);
        }
        let normed = normed_columns(&Tensor::from_vec(device, transposed(rows), [d, n])?)?.to_vec()?;
        for (number, (row, mean)) in rows.iter().zip(exact).enumerate() {
            let normed: Vec<f32> = normed.iter().skip(number).step_by(n).copied().collect();
            check_normed(&format!("{what}, columns"), (row, mean), &normed);
        }
        Ok(())
    });
}

/// A row of 4,096 elements with variance 2.1e-5, whose layer norm once erred by 0.73.
#[test]
fn a_row_far_from_0_is_normalised_as_by_torch() {
    let row: Vec<f32> = (0..4096).map(|i| 1e4 + (i % 16) as f32 * 1e-3).collect();
    let mean = mean_of(row.iter().map(|&x| f64::from(x)));
    let variance = mean_of(row.iter().map(|&x| (f64::from(x) - mean).powi(2)));
    on_devices(|device| {
        let x = Tensor::from_slice(device, &row, [1, row.len()])?;
        let normed = normed_rows(&x)?.to_vec()?;
        let exact = |x: f32| (f64::from(x) - mean) / (variance + 1e-5).sqrt();
        let worst = row.iter().zip(&normed).map(|(&x, &y)| (exact(x) - f64::from(y)).abs());
        let worst = worst.fold(0.0, f64::max);
        // PyTorch 2.15 errs by 0.098.
        assert!(worst <= 0.098, "{device}: {worst}");
        let var = f64::from(variances(&x)?.to_vec()?[0]);
        let unbiased = variance * 4096.0 / 4095.0;
        assert!((var - unbiased).abs() <= 1e-6 * unbiased, "{device}: {var}, not {unbiased}");
        Ok(())
    });
}

/// An infinity or NaN in a row reaches its mean, and a sum that overflows is infinite.
#[test]
fn means_of_what_is_not_finite() {
    on_devices(|device| {
        let is_exact = !format!("{device}").contains("wgpu");
        for len in [1, 3, 70, 1000, 70_000] {
            for (value, at) in [(f32::INFINITY, 0), (f32::NEG_INFINITY, len - 1), (f32::NAN, len / 2)] {
                let mut row = vec![1.5; len];
                row[at] = value;
                let [rows, columns] =
                    [[1, len], [len, 1]].map(|shape| Tensor::from_slice(device, &row, shape));
                for mean in [of_rows(&rows?)?.to_vec()?[0], of_columns(&columns?)?.to_vec()?[0]] {
                    let same = mean == value || mean.is_nan() && value.is_nan();
                    // WGSL promises nothing about infinities and NaN.
                    assert!(same || !is_exact, "{device}: {mean} of {len} with {value} at {at}");
                }
            }
            if len > 1 && is_exact {
                let large = vec![f32::MAX; len];
                let x = Tensor::from_slice(device, &large, [1, len])?;
                let mean = of_rows(&x)?.to_vec()?[0];
                assert!(
                    mean == f32::INFINITY || mean == f32::MAX,
                    "{device}: {mean} of {len} of the largest"
                );
            }
        }
        Ok(())
    });
}

/// Rows of an outer and an inner dim, from one vector loop for each outer index to long columns in parts. Equal elements
/// round the same way each time, so an error that is not carried exactly adds up.
#[test]
fn means_of_rows_of_two_dims_are_near() {
    let equal: [f32; 6] = [7648.8833, 7344.102, 13.611255, 3933.8015, 14861.107, 0.1];
    on_devices(|device| {
        for shape in [
            [241_135, 2, 1],
            [108_050, 1, 3],
            [65_537, 2, 2],
            [40_726, 2, 1],
            [2386, 1, 5],
            [700, 3, 40],
            [3, 5, 3000],
        ] {
            let [n, c, h] = shape;
            for (kind, value) in equal.into_iter().enumerate() {
                let element = |i: usize| match kind % 2 {
                    0 => value,
                    _ => value + (i % 7) as f32 * value * 1e-3,
                };
                let x: Vec<f32> = (0..n * c * h).map(element).collect();
                let means = of_outer_and_inner(&Tensor::from_slice(device, &x, shape)?)?.to_vec()?;
                let row = |channel: usize| -> Vec<f64> {
                    let places = (0..n * h).map(|i| (i / h * c + channel) * h + i % h);
                    places.map(|place| f64::from(x[place])).collect()
                };
                let exact = (0..c).map(|channel| mean_of(row(channel).into_iter()));
                let most = if n * h > 1024 { UNITS_OF_PARTS } else { UNITS };
                check_within(most, &format!("{device}: {shape:?} of {value}"), &means, exact);
            }
        }
        Ok(())
    });
}
