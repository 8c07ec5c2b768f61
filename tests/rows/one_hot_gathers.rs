//! One-hot gathers: a sum with one nonzero term loads that element, and gives 0 where the place is outside
//! the row.

use fusion::prelude::*;

use crate::devices::on_devices;

fuse! {
    pub(crate) fn gathered(x: f32[N, D], k: i32[N]) -> f32[N] { sum(if index(D) == k { x } else { 0.0 }, D) }
    #[fuse(off)]
    pub(crate) fn gathered_by_itself(x: f32[N, D], k: i32[N]) -> f32[N] {
        sum(if index(D) == k { x } else { 0.0 }, D)
    }
    // Gathers next to full reductions, with the place on the left of the comparison, of narrow elements and
    // of integers.
    pub(crate) fn beside(x: bf16[N, D], y: i32[N, D], k: u32[N]) -> (f32[N], f32[N], i32[N]) {
        let k = k as i32 - 1;
        let one = sum(if k == index(D) { x as f32 } else { 0.0 }, D);
        (max(x as f32, D) - one, one, sum(if index(D) == k { y } else { 0 }, D))
    }
    // Gathers at a place that the row itself determines, and of computed elements.
    pub(crate) fn made(x: f32[N, D], k: i32[N]) -> (f32[N], f32[N]) {
        let largest = sum(if index(D) == argmax(x, D) { x } else { 0.0 }, D);
        (largest, sum(if index(D) == k { exp(0.1 * x) } else { 0.0 }, D))
    }
    // Gathers of a value that is constant along the row.
    pub(crate) fn of_row(x: f32[N, D], s: f32[N], k: i32[N]) -> (f32[N], f32[N]) {
        (sum(if index(D) == k { s } else { 0.0 }, D), sum(x, D))
    }
    // Gathers of a parameter that is overwritten.
    pub(crate) fn without(x: &mut f32[N, D], k: i32[N]) { x = x - sum(if index(D) == k { x } else { 0.0 }, D); }
}

/// Pairs of a number of rows and their length: short rows, rows in several parts, and none.
const SIZES: [(usize, usize); 8] =
    [(5, 1), (7, 65), (300, 100), (40, 1000), (9, 40_000), (2, 300_001), (0, 70), (1, 700_000)];

/// A row without elements has no element at any place.
#[test]
fn empty_rows_gather_nothing() {
    on_devices(|device| {
        let x = Tensor::zeros(device, [5, 0])?;
        let s = Tensor::from_slice(device, &[1.0f32, 2.0, 3.0, 4.0, 5.0], [5])?;
        let k = Tensor::from_slice(device, &[-2, -1, 0, 1, 2], [5])?;
        let (one, all) = of_row(&x, &s, &k)?;
        assert_eq!((one.to_vec()?, all.to_vec()?), (vec![0.0; 5], vec![0.0; 5]), "{device}");
        let (one, _) = of_row(&Tensor::zeros(device, [5, 2])?, &s, &k)?;
        assert_eq!(one.to_vec()?, [0.0, 0.0, 3.0, 4.0, 0.0], "{device}");
        assert_eq!(gathered(&x, &k)?.to_vec()?, [0.0; 5], "{device}");
        Ok(())
    });
}

#[test]
fn one_element_is_all_of_such_a_sum() {
    on_devices(|device| {
        for (rows, len) in SIZES {
            // All elements off the place are NaN, so that a kernel that adds them fails.
            let numbers = |i: usize| (i * 7919 % 2003) as f32 / 8.0 - 100.0;
            let place = |row: usize| match row % 7 {
                0 => len as i64 - 1,
                1 => -1,
                2 => len as i64,
                3 => i64::from(i32::MIN),
                4 => i64::from(i32::MAX),
                5 => 0,
                _ => (row * 37 % len) as i64,
            };
            let is_there = |row: usize| (0..len as i64).contains(&place(row));
            let at = |i: usize| (i % len) as i64 == place(i / len);
            let x: Vec<f32> = (0..rows * len).map(|i| if at(i) { numbers(i) } else { f32::NAN }).collect();
            let k: Vec<i32> = (0..rows).map(|row| place(row) as i32).collect();
            let there = Tensor::from_slice(device, &x, [rows, len])?;
            let k_there = Tensor::from_slice(device, &k, [rows])?;
            let what = format!("{device}: {rows} rows of {len}");
            let of_row = |row: usize| {
                if is_there(row) { numbers(row * len + place(row) as usize) } else { 0.0 }
            };
            let expected: Vec<f32> = (0..rows).map(of_row).collect();
            assert_eq!(gathered(&there, &k_there)?.to_vec()?, expected, "{what}");
            assert_eq!(gathered_by_itself(&there, &k_there)?.to_vec()?, expected, "{what}, by itself");
            let (_, made_of) = made(&there, &k_there)?;
            for (row, made) in made_of.to_vec()?.into_iter().enumerate() {
                let exact = if is_there(row) { (0.1 * f64::from(expected[row])).exp() } else { 0.0 };
                assert!(
                    (f64::from(made) - exact).abs() <= 1e-5 * exact + 1e-44,
                    "{what}: {made}, not {exact}"
                );
            }

            let halves: Vec<bf16> = (0..rows * len).map(|i| bf16::from_f32(numbers(i))).collect();
            let whole: Vec<i32> = (0..rows * len).map(|i| i as i32 * 3 - 7).collect();
            let k: Vec<u32> = k.iter().map(|&k| k.wrapping_add(1).cast_unsigned()).collect();
            let (largest, one, number) = beside(
                &Tensor::from_slice(device, &halves, [rows, len])?,
                &Tensor::from_slice(device, &whole, [rows, len])?,
                &Tensor::from_slice(device, &k, [rows])?,
            )?;
            let (largest, one, number) = (largest.to_vec()?, one.to_vec()?, number.to_vec()?);
            let alike = (0..rows * len).map(|i| halves[i].to_f32()).collect::<Vec<_>>();
            let mut alike_there = Tensor::from_slice(device, &alike, [rows, len])?;
            let (first, _) = made(&alike_there, &k_there)?;
            let first = first.to_vec()?;
            without(&mut alike_there, &k_there)?;
            let rest = alike_there.to_vec()?;
            for row in 0..rows {
                let most = alike[row * len..][..len].iter().copied().fold(f32::MIN, f32::max);
                let i = row * len + if is_there(row) { place(row) as usize } else { 0 };
                let expected = if is_there(row) { (alike[i], whole[i]) } else { (0.0, 0) };
                assert_eq!((one[row], number[row]), expected, "{what}: row {row}");
                assert_eq!((largest[row], first[row]), (most - expected.0, most), "{what}: row {row}");
                let of_row = row * len..(row + 1) * len;
                let left = alike[of_row.clone()].iter().map(|x| x - expected.0);
                assert!(left.eq(rest[of_row].iter().copied()), "{what}: row {row} without one");
            }
        }
        Ok(())
    });
}
