//! Index operations along dims that are merged, split, or channels in groups.

use fusion::prelude::*;

use crate::devices::on_devices;
use crate::{close, grid, numbers, same};

fuse! {
    // Index operations along merged dims.
    pub(crate) fn rolled_parts(x: f32[N, C], by: i32, H: dim) -> (f32[N, C], f32[N, C]) {
        let y = merge(2.0 * split(x, C -> (H, D)), (H, D) -> C);
        (roll(y, C, by), flip(y, C))
    }
    pub(crate) fn three_parts(x: f32[A, B, C]) -> (f32[D], f32[]) {
        let y = merge(x, (A, B, C) -> D);
        (roll(y, D, 2), at(y, D, D / 2))
    }
    pub(crate) fn of_parts(x: f32[N, C], ids: i32[T], e: f32[N, E], H: dim) -> (f32[N, K], f32[N, P], f32[N, T], f32[N, J]) {
        let y = merge(2.0 * split(x, C -> (H, D)), (H, D) -> C);
        (slice(y, C -> K, 1..), pad(y, C -> P, 1, 2), take(y, C, ids), concat((y, C), (e, E) -> J))
    }
    /// A dim named by its extent, which no parameter has.
    pub(crate) fn merged_to_a_number(x: f32[N, H = 2, D = 3]) -> f32[N] { sum(merge(x, (H, D) -> 6), 6) }
    /// A name is local to its block.
    pub(crate) fn sliced_by_a_name(x: f32[D], on: bool) -> f32[K] {
        let h = 1;
        let y = if on { let h = 2; x * h } else { let h = x * 2.0; h + 1.0 };
        slice(y, D -> K, h..)
    }
    /// Sums, products and means of no elements.
    pub(crate) fn of_nothing(x: f32[N, C = 4, D]) -> (f32[N, D], f32[N, D], f32[N]) {
        (sum(slice(x, C -> K, 4..), K), prod(slice(x, C -> K, 4..), K), mean(slice(x, D -> E, 3..3), (C, E)))
    }
    /// Negative numbers divide the same way in bounds, positions and expressions: towards zero.
    pub(crate) fn towards_zero(x: f32[N, D]) -> (f32[N], f32[N, K], i32[]) {
        (at(x, D, (D - 5) / 2 + 3), slice(x, D -> K, (D - 7) / 2 + 2..), (D - 5) / 2 + 3)
    }
    // Positions that depend on the parts of the merged dim, or come from a tensor that has the dim.
    pub(crate) fn by_parts(x: f32[N, C], ids: i32[H], each: i32[C]) -> (f32[N, H], f32[N, C], f32[N, C]) {
        let y = merge(2.0 * split(x, C -> (H, D)), (H, D) -> C);
        (take(y, C, ids), take(y, C, each), roll(y, C, index(C) % 3))
    }
    pub(crate) fn sliced_to_a_part(x: f32[N, C], H: dim) -> (f32[N, H], f32[N, E, H]) {
        let y = merge(2.0 * split(x, C -> (H, D)), (H, D) -> C);
        (slice(y, C -> H, ..H), split(slice(y, C -> K, ..C), K -> (E, H)))
    }
    pub(crate) fn channels_of_groups(x: f32[N, C, L], ids: i32[C]) -> f32[N, C, L] {
        take(group_norm(x, C, 2, L), C, ids)
    }
    /// Two merged dims that share a part.
    pub(crate) fn renamed_first(a: f32[A, B], b: f32[A, D]) -> f32[P, R] {
        let z = merge(b, (A, D) -> Q);
        flip(merge(a, (A, B) -> P), P) * rename(z, Q -> R)
    }
    pub(crate) fn channels_against_others(x: f32[N, C]) -> f32[N, C, D] {
        let y = group_norm(x, C, 2);
        y - 2.0 * rename(y, C -> D)
    }
    pub(crate) fn groups_backwards(x: f32[N, C, L]) -> f32[N, C, L] { flip(group_norm(x, C, 2, L), C) }
    pub(crate) fn groups_of_rows(x: f32[N, C]) -> f32[N, C] { group_norm(x, C, 2) }
}

/// A merged dim numbers its elements one by one, whatever its parts are.
#[test]
fn along_dims_that_stand_for_several() {
    on_devices(|device| {
        for (n, h, d) in [(1, 1, 2), (2, 3, 4), (3, 5, 7), (2, 1, 33), (2, 40, 3), (1, 4, 300)] {
            let c = h * d;
            let (a, what) = (numbers(n * c), format!("{device}: {n}x({h}x{d})"));
            let x = Tensor::from_slice(device, &a, [n, c])?;
            for by in [0usize, 1, d, d + 1, c - 1] {
                let (rolled, flipped) = rolled_parts(&x, by as i32, h)?;
                let expected = grid(n, c, |i, j| 2.0 * a[i * c + (j + c - by % c) % c]);
                same(&rolled.to_vec()?, &expected, &format!("{what} by {by}"));
                let expected = grid(n, c, |i, j| 2.0 * a[i * c + c - 1 - j]);
                same(&flipped.to_vec()?, &expected, &what);
            }
            let (rolled, middle) = three_parts(&x.reshape([n, h, d])?)?;
            let all = n * c;
            let expected: Vec<f32> = (0..all).map(|i| a[(i + all - 2 % all) % all]).collect();
            same(&rolled.to_vec()?, &expected, &what);
            same(&middle.to_vec()?, &[a[all / 2]], &what);
            // The second id is out of range.
            let ids = [c as i32 - 1, c as i32, 0];
            let others = numbers(n * 5);
            let e = Tensor::from_slice(device, &others, [n, 5])?;
            let (inner, padded, taken, joined) =
                of_parts(&x, &Tensor::from_slice(device, &ids, [3])?, &e, h)?;
            let twice = |i: usize, j: usize| 2.0 * a[i * c + j];
            same(&inner.to_vec()?, &grid(n, c - 1, |i, j| twice(i, j + 1)), &what);
            let zeros = |i: usize, j: usize| if (1..=c).contains(&j) { twice(i, j - 1) } else { 0.0 };
            same(&padded.to_vec()?, &grid(n, c + 3, zeros), &what);
            let gathered = |i: usize, j: usize| if j == 1 { f32::NAN } else { twice(i, ids[j] as usize) };
            same(&taken.to_vec()?, &grid(n, 3, gathered), &what);
            let both = |i: usize, j: usize| if j < c { twice(i, j) } else { others[i * 5 + j - c] };
            same(&joined.to_vec()?, &grid(n, c + 5, both), &what);
        }
        Ok(())
    });
}

/// Positions may depend on dims that are parts of the indexed dim.
#[test]
fn along_dims_by_their_parts() {
    on_devices(|device| {
        for (n, h, d) in [(1, 2, 3), (3, 4, 4), (2, 5, 7)] {
            let c = h * d;
            let (a, what) = (numbers(n * c), format!("{device}: by parts of {n}x({h}x{d})"));
            let x = Tensor::from_slice(device, &a, [n, c])?;
            let twice = |i: usize, j: usize| 2.0 * a[i * c + j];
            let ids: Vec<i32> = (0..h).map(|i| ((i * 5 + d + 1) % c) as i32).collect();
            let each: Vec<i32> = (0..c).map(|i| ((i * i + 3) % c) as i32).collect();
            let (taken, permuted, skewed) = by_parts(
                &x,
                &Tensor::from_slice(device, &ids, [h])?,
                &Tensor::from_slice(device, &each, [c])?,
            )?;
            same(&taken.to_vec()?, &grid(n, h, |i, j| twice(i, ids[j] as usize)), &what);
            same(&permuted.to_vec()?, &grid(n, c, |i, j| twice(i, each[j] as usize)), &what);
            same(&skewed.to_vec()?, &grid(n, c, |i, j| twice(i, (j + c - j % 3) % c)), &what);
            let other = numbers(h * 3);
            let z = Tensor::from_slice(device, &other, [h, 3])?;
            let row = Tensor::from_slice(device, &a[..c], [h, d])?;
            let outer = grid(c, h * 3, |i, j| a[c - 1 - i] * other[j]);
            same(&renamed_first(&row, &z)?.to_vec()?, &outer, &what);
            let (first, other) = sliced_to_a_part(&x, h)?;
            same(&first.to_vec()?, &grid(n, h, twice), &what);
            same(&other.to_vec()?, &grid(n, c, twice), &what);
        }
        Ok(())
    });
}

#[test]
fn numbers_and_names_as_dims() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &numbers(12), [2, 2, 3])?;
        let sums: Vec<f32> = numbers(12).chunks(6).map(|row| row.iter().sum()).collect();
        close(&merged_to_a_number(&x)?.to_vec()?, &sums, &format!("{device}: merged"));
        let x = Tensor::from_slice(device, &[1.0, 2.0, 3.0], [3])?;
        assert_eq!(sliced_by_a_name(&x, true)?.to_vec()?, [4.0, 6.0], "{device}");
        assert_eq!(sliced_by_a_name(&x, false)?.to_vec()?, [5.0, 7.0], "{device}");
        for d in [4, 5, 7, 8] {
            let x = Tensor::from_slice(device, &(0..d).map(|i| i as f32).collect::<Vec<_>>(), [1, d])?;
            let (one, rest, place) = towards_zero(&x)?;
            let (expected, start) = ((d as i32 - 5) / 2 + 3, (d as i32 - 7) / 2 + 2);
            assert_eq!((place.item()?, one.item()?), (expected, expected as f32), "{device}: {d}");
            assert_eq!(rest.shape().dims(), [1, d - start as usize], "{device}: {d}");
            assert_eq!(rest.to_vec()?.first(), Some(&(start as f32)), "{device}: {d}");
        }
        Ok(())
    });
}

#[test]
fn nothing_of_a_known_extent() {
    on_devices(|device| {
        for (n, d) in [(1, 3), (3, 5), (300, 4)] {
            let (sums, products, means) = of_nothing(&Tensor::full(device, 2.0, [n, 4, d])?)?;
            same(&sums.to_vec()?, &vec![0.0; n * d], &format!("{device}: sums"));
            same(&products.to_vec()?, &vec![1.0; n * d], &format!("{device}: products"));
            assert!(means.to_vec()?.iter().all(|mean| mean.is_nan()), "{device}: means");
        }
        Ok(())
    });
}

#[test]
fn along_groups_of_channels() {
    on_devices(|device| {
        for (n, c, l) in [(1, 2, 3), (3, 8, 5), (2, 6, 70)] {
            let (a, what) = (numbers(n * c * l), format!("{device}: groups of {n}x{c}x{l}"));
            let each = c / 2 * l;
            let normal = |group: usize, at: usize| {
                let group: Vec<f64> = a[group * each..][..each].iter().map(|&x| f64::from(x)).collect();
                let mean = group.iter().sum::<f64>() / each as f64;
                let variance = group.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / each as f64;
                ((group[at] - mean) / (variance + 1e-5).sqrt()) as f32
            };
            let x = Tensor::from_slice(device, &a, [n, c, l])?;
            let backwards: Vec<f32> = (0..n * c * l)
                .map(|at| {
                    let (of, channel, i) = (at / (c * l), c - 1 - at / l % c, at % l);
                    let at = (of * c + channel) * l + i;
                    normal(at / each, at % each)
                })
                .collect();
            close(&groups_backwards(&x)?.to_vec()?, &backwards, &what);
            let ids: Vec<i32> = (0..c).rev().map(|i| i as i32).collect();
            let gathered = channels_of_groups(&x, &Tensor::from_slice(device, &ids, [c])?)?;
            close(&gathered.to_vec()?, &backwards, &what);
            let expected: Vec<f32> = (0..n * c * l).map(|at| normal(at / each, at % each)).collect();
            let x = x.reshape([n, c * l])?;
            close(&groups_of_rows(&x)?.to_vec()?, &expected, &what);
            let cl = c * l;
            let pair = |at: usize| {
                let (row, i, j) = (at / cl / cl, at / cl % cl, at % cl);
                expected[row * cl + i] - 2.0 * expected[row * cl + j]
            };
            let pairs: Vec<f32> = (0..n * cl * cl).map(pair).collect();
            close(&channels_against_others(&x)?.to_vec()?, &pairs, &what);
        }
        Ok(())
    });
}
