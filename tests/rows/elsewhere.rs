//! Elements of normalised rows may be stored in another order than the input's, or read at other places.

use fusion::prelude::*;

use crate::devices::{Kind, devices, on_devices};
use crate::{Host, UNIT, check, normalized, positions};

fuse! {
    // Results in another order: rows in pieces, and transposed.
    pub(crate) fn pieces(x: f32[N, C, H, W]) -> f32[N, C, H, W] { softmax(x, (C, W)) }
    pub(crate) fn outward(x: f32[N, C, H, W], b: f32[C]) -> f32[W, N, C, H] { softmax(x * b, (C, H, W)) }
    pub(crate) fn normal_outward(x: f32[N, C, H, W]) -> f32[W, N, C, H] { layer_norm(x, (C, H, W)) }
    pub(crate) fn across(x: f32[N, D]) -> f32[D, N] { softmax(x, D) }

    // Elements read at other places.
    pub(crate) fn gathered(x: f32[N, D], ids: i32[N]) -> f32[N] { take(softmax(x, D), D, ids) }
    pub(crate) fn last(x: f32[N, D]) -> f32[N] { at(layer_norm(x, D), D, D - 1) }
    pub(crate) fn backwards(x: f32[N, D]) -> f32[N, D] { flip(softmax(x, D), D) }
    pub(crate) fn with_the_one_before(x: f32[N, D]) -> (f32[N, D], f32[N]) {
        let y = layer_norm(x, D);
        (y + 2.0 * roll(y, D, 1), max(y, D))
    }
    pub(crate) fn inner(x: f32[N, D]) -> f32[N, K] { slice(softmax(x, D), D -> K, 1..D - 1) }
    pub(crate) fn joined(x: f32[N, D], y: f32[N, E]) -> f32[N, K] {
        concat((softmax(x, D), D), (y, E) -> K)
    }
    pub(crate) fn backwards_in_place(p: &mut f32[N, D]) { p = flip(softmax(p, D), D); }
}

/// Returns the share of each element in the sum of exponentials, with its bound.
fn shares(row: &[f64]) -> Vec<(f64, f64)> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = row.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.into_iter().map(|e| (e / sum, (row.len() as f64 + 40.0) * UNIT * e / sum)).collect()
}

fn layer(row: &[f64]) -> Vec<(f64, f64)> {
    normalized(row, f64::from(1e-5_f32), row.len() as f64 + 40.0)
}

#[test]
fn in_another_order() {
    on_devices(|device| {
        for shape in [[2, 3, 4, 5], [1, 5, 33, 2], [3, 2, 1, 129], [2, 40, 3, 30], [1, 8, 64, 130]] {
            let [n, c, h, w] = shape;
            let (host, bias) = (Host::new(17, &shape), Host::new(18, &[c]));
            let x = host.on(device)?;
            let mut expected = vec![(f64::NAN, 0.0); n * c * h * w];
            for row in positions(&[n, h]) {
                let place = |at: &[usize]| ((row[0] * c + at[0]) * h + row[1]) * w + at[1];
                let elements: Vec<f64> =
                    positions(&[c, w]).map(|at| f64::from(host.elements[place(&at)])).collect();
                positions(&[c, w])
                    .zip(shares(&elements))
                    .for_each(|(at, share)| expected[place(&at)] = share);
            }
            check("pieces", &pieces(&x)?, &shape, expected);
            let outwards = |all: Vec<(f64, f64)>| {
                let place = move |at: &[usize]| ((at[1] * c + at[2]) * h + at[3]) * w + at[0];
                positions(&[w, n, c, h]).map(move |at| all[place(&at)]).collect::<Vec<_>>()
            };
            let of_rows = |host: &Host, f: fn(&[f64]) -> Vec<(f64, f64)>| {
                let rows = Host::of(&[n, c * h * w], host.elements.clone());
                outwards(rows.rows().flat_map(|row| f(&row)).collect())
            };
            let scaled = positions(&shape).map(|at| (host.at(&at) * bias.at(&at[1..2])) as f32);
            let scaled = Host::of(&shape, scaled.collect::<Vec<_>>());
            let normal = normal_outward(&x)?;
            check("layer norm", &normal, &[w, n, c, h], of_rows(&host, layer));
            // The products are rounded.
            let wider =
                of_rows(&scaled, shares).into_iter().map(|(share, bound)| (share, bound + 1e-6 * share));
            check("softmax", &outward(&x, &bias.on(device)?)?, &[w, n, c, h], wider);
        }
        Ok(())
    });
}

/// Runs a test with rows of a warp, rows of a block, and rows that are split into parts.
fn each_length(test: impl Fn(&Device, [usize; 2]) -> Result<()>) {
    for (kind, device) in devices() {
        let long = if kind == Kind::Cpu { 300_000 } else { 66_001 };
        for [n, d] in [[3, 2], [4, 33], [2, 260], [3, 1025], [600, 12], [1, 20_000], [1, long]] {
            test(&device, [n, d]).unwrap_or_else(|error| panic!("{device}: {n} rows of {d}: {error}"));
        }
    }
}

#[test]
fn at_other_places() {
    each_length(|device, [n, d]| {
        let host = Host::new(5, &[n, d]);
        let x = host.on(device)?;
        let of = |f: fn(&[f64]) -> Vec<(f64, f64)>| host.rows().map(move |row| f(&row));
        // One id out of range reads nothing.
        let ids: Vec<i32> =
            (0..n).map(|i| if i == 1 { d as i32 } else { ((i * 7 + 1) % d) as i32 }).collect();
        let got = gathered(&x, &Tensor::from_slice(device, &ids, [n])?)?.to_vec()?;
        for ((got, id), row) in got.into_iter().zip(ids).zip(of(shares)) {
            match row.get(id as usize) {
                None => assert!(got.is_nan(), "{device}: {got} of {d}"),
                Some((share, bound)) => {
                    assert!((f64::from(got) - share).abs() <= *bound, "{device}: {got} of {d}")
                }
            }
        }
        check("last", &last(&x)?, &[n], of(layer).map(|row| row[d - 1]));
        let reversed = || of(shares).flat_map(|row| row.into_iter().rev());
        check("backwards", &backwards(&x)?, &[n, d], reversed());
        let mut p = x.clone();
        backwards_in_place(&mut p)?;
        check("backwards in place", &p, &[n, d], reversed());
        let (twice, most) = with_the_one_before(&x)?;
        let before = |row: &[(f64, f64)]| {
            let pair = |i: usize| (row[i], row[(i + d - 1) % d]);
            let sum = |((a, e), (b, f)): ((f64, f64), (f64, f64))| {
                (a + 2.0 * b, e + 2.0 * f + 2.0 * UNIT * (a.abs() + 2.0 * b.abs()))
            };
            (0..d).map(|i| sum(pair(i))).collect::<Vec<_>>()
        };
        check("with the one before", &twice, &[n, d], of(layer).flat_map(|row| before(&row)));
        let largest = |row: Vec<(f64, f64)>| row.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a });
        check("largest", &most, &[n], of(layer).map(|row| largest(row).expect("rows have elements")));
        check("inner", &inner(&x)?, &[n, d - 2], of(shares).flat_map(|row| row[1..row.len() - 1].to_vec()));
        let other = Host::new(6, &[n, 5]);
        let with = |(row, other): (Vec<(f64, f64)>, Vec<f64>)| {
            row.into_iter().chain(other.into_iter().map(|y| (y, 0.0))).collect::<Vec<_>>()
        };
        let expected = of(shares).zip(other.rows()).flat_map(with);
        check("joined", &joined(&x, &other.on(device)?)?, &[n, d + 5], expected);
        Ok(())
    });
}
