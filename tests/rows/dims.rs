//! Reductions agree with plain loops for any dims: outer, middle, several, all, fixed ones. Operands may lack
//! dims or have them in another order.

use fusion::prelude::*;

use crate::devices::on_devices;
use crate::{Host, ReferenceSum, UNIT, check, check_sums, normalized, positions, roundings, sums};

fuse! {
    pub(crate) fn over_outer(x: f32[N, D]) -> f32[D] { sum(x, N) }
    pub(crate) fn over_middle(x: f32[N, C, H]) -> f32[N, H] { sum(x, C) }
    pub(crate) fn over_ends(x: f32[N, C, H]) -> f32[C] { sum(x, (N, H)) }
    pub(crate) fn all_but_channels(x: f32[N, C, H, W]) -> f32[C] { sum(x, (N, H, W)) }
    pub(crate) fn all_but_the_middle(x: f32[N, C, H, W]) -> f32[H, C] { sum(x, (N, W)) }
    pub(crate) fn everything(x: f32[N, C, H, W]) -> f32[] { sum(x) }
    pub(crate) fn turned(x: f32[N, C, H]) -> f32[C, N] { sum(x, H) }

    // Operands of a sum that lack some of its dims, or have them in another order.
    pub(crate) fn weighted(x: f32[N, D], w: f32[D], s: f32[N], u: f32[], k: f32) -> f32[N] {
        sum(x * w + s * u - k, D)
    }
    pub(crate) fn crossed(x: f32[N, H, W], y: f32[W, N, H]) -> f32[N] { sum(x * y, (H, W)) }
    pub(crate) fn of_columns(x: f32[N, D], y: f32[D, N]) -> f32[N] { sum(x * y, D) }
    pub(crate) fn gram(x: f32[N, K], w: f32[M, K]) -> f32[N, M] { sum(x * w, K) }
    pub(crate) fn rows_in_other_order(x: f32[D, N]) -> f32[N, D] { x - sum(x, D) }

    // Fixed extents: a loop, unrolled statements, and both.
    pub(crate) fn hundred(x: f32[N, C = 100]) -> f32[N, C] { x - sum(x, C) * 0.01 }
    pub(crate) fn sixty_five(x: f32[C = 65]) -> f32[] { sum(x, C) }
    pub(crate) fn pixels(x: f32[N, P, C = 3], w: f32[C]) -> f32[N] { sum(sum(x * w, C), P) }
    pub(crate) fn pixels_at_once(x: f32[N, P, C = 3], w: f32[C]) -> f32[N] { sum(x * w, (P, C)) }
    pub(crate) fn channel_of_rows(x: f32[N, P, C = 3]) -> f32[N] { sum(at(x, C, 1) * at(x, C, 2), P) }
    pub(crate) fn channels(x: f32[N, P, C = 3]) -> f32[N, C] { sum(x, P) }

    // Rows of several dims that are not one dim in all operands and results.
    pub(crate) fn channels_last(x: f32[N, C, H, W]) -> f32[N, H, W, C] { layer_norm(x, (C, H, W)) }
    pub(crate) fn affine(x: f32[N, H, W], g: f32[H], b: f32[H]) -> f32[N, H, W] {
        layer_norm(x, (H, W), 0.5) * g + b
    }
    pub(crate) fn grouped(x: f32[N, C, H], g: f32[C]) -> f32[N, C, H] { group_norm(x, C, 2, H) * g }
    pub(crate) fn of_outer_rows(x: f32[N, C, L]) -> f32[C] { sum(x, (N, L)) }
    pub(crate) fn of_products(p: f32[N, L], y: f32[N, L, K]) -> f32[] { sum(p * y) }
    pub(crate) fn of_outer_products(a: f32[N], b: f32[L], c: f32[K]) -> f32[] { sum(a * b * c) }
    pub(crate) fn roughness(x: f32[N, L, K]) -> f32[] {
        sum(square(slice(x, L -> S, 1..) - slice(x, L -> S, ..L - 1)))
    }

    // A reduction of another reduction.
    pub(crate) fn softmax_totals(x: f32[N, D]) -> f32[D] {
        let e = exp(x);
        sum(e / sum(e, D), N)
    }
    pub(crate) fn mean_of_sums(x: f32[N, D]) -> f32[] { mean(sum(x, D), N) }
    pub(crate) fn spread(x: f32[N, D]) -> f32[] { max(sum(x, D), N) - min(sum(x, D), N) }

    // Coordinates and extents as numbers.
    pub(crate) fn ramp(x: f32[N, D]) -> f32[N] { sum(x * index(D) as f32 + index(N) as f32, D) * rsqrt(D) + N }
    pub(crate) fn below(x: f32[T, S]) -> f32[T] { sum(if index(S) <= index(T) { x } else { 0.0 }, S) }
    pub(crate) fn pictures(x: f32[N, H, W]) -> f32[N] {
        sum(x * (index(H) * 3 - index(W)) as f32, (H, W)) / (H * W)
    }
}

const SHAPES: [[usize; 4]; 5] = [[2, 3, 4, 5], [1, 5, 33, 2], [65, 1, 3, 7], [3, 2, 1, 129], [2, 2, 0, 3]];

#[test]
fn any_dims_of_one_tensor() {
    on_devices(|device| {
        for shape in SHAPES {
            let [n, c, h, w] = shape;
            let host = Host::new(17, &shape);
            let x = host.on(device)?;
            let over = |dims: &[usize]| sums(&shape, dims, |at| host.at(at));
            check_sums("N, H, W", &all_but_channels(&x)?, &[c], &over(&[0, 2, 3]));
            check_sums("all", &everything(&x)?, &[], &over(&[0, 1, 2, 3]));
            let of_middle = over(&[0, 3]);
            let turned: Vec<ReferenceSum> =
                positions(&[h, c]).map(|at| of_middle[at[1] * h + at[0]]).collect();
            check_sums("N, W", &all_but_the_middle(&x)?, &[h, c], &turned);
            let flat = Host::of(&[n * c, h * w], host.elements.clone());
            let expected = sums(&flat.shape, &[0], |at| flat.at(at));
            check_sums("N", &over_outer(&flat.on(device)?)?, &[h * w], &expected);
        }
        Ok(())
    });
}

#[test]
fn of_three_dims() {
    on_devices(|device| {
        for shape in [[2, 3, 4], [3, 70, 5], [2, 1025, 3], [1, 4, 260], [33, 2, 1]] {
            let host = Host::new(19, &shape);
            let (x, [n, c, h]) = (host.on(device)?, shape);
            let over = |dims: &[usize]| sums(&shape, dims, |at| host.at(at));
            check_sums("C", &over_middle(&x)?, &[n, h], &over(&[1]));
            check_sums("N, H", &over_ends(&x)?, &[c], &over(&[0, 2]));
            let of_rows = over(&[2]);
            let expected: Vec<ReferenceSum> =
                positions(&[c, n]).map(|at| of_rows[at[1] * c + at[0]]).collect();
            check_sums("H", &turned(&x)?, &[c, n], &expected);
        }
        Ok(())
    });
}

#[test]
fn operands_that_lack_dims_or_have_another_order() {
    on_devices(|device| {
        for [n, d] in [[1, 1], [3, 4], [5, 33], [2, 1028]] {
            let (x, w, s) = (Host::new(1, &[n, d]), Host::new(2, &[d]), Host::new(3, &[n]));
            let u = Host::new(4, &[]);
            let got = weighted(&x.on(device)?, &w.on(device)?, &s.on(device)?, &u.on(device)?, 0.5)?;
            let term = |at: &[usize]| x.at(at) * w.at(&at[1..]) + s.at(&at[..1]) * u.at(&[]) - 0.5;
            // Each term has three roundings of at most 8.5.
            let expected = sums(&[n, d], &[1], term).into_iter();
            let expected = expected.map(|sum| (sum.value, sum.bound() + d as f64 * 26.0 * UNIT));
            check("weighted", &got, &[n], expected);
            let y = Host::new(5, &[d, n]);
            let products = sums(&[n, d], &[1], |at| x.at(at) * y.at(&[at[1], at[0]]));
            check_sums("columns", &of_columns(&x.on(device)?, &y.on(device)?)?, &[n], &products);
            let whole = sums(&[d, n], &[0], |at| y.at(at));
            let expected = positions(&[n, d]).map(|at| {
                let sum = whole[at[0]];
                (y.at(&[at[1], at[0]]) - sum.value, sum.bound() + 2.0 * UNIT * (2.0 + sum.magnitude))
            });
            check("turned", &rows_in_other_order(&y.on(device)?)?, &[n, d], expected);
        }
        let (x, y) = (Host::new(6, &[5, 7, 9]), Host::new(7, &[9, 5, 7]));
        let expected = sums(&[5, 7, 9], &[1, 2], |at| x.at(at) * y.at(&[at[2], at[0], at[1]]));
        check_sums("crossed", &crossed(&x.on(device)?, &y.on(device)?)?, &[5], &expected);
        let (x, w) = (Host::new(8, &[5, 70]), Host::new(9, &[6, 70]));
        let expected = sums(&[5, 6, 70], &[2], |at| x.at(&[at[0], at[2]]) * w.at(&[at[1], at[2]]));
        check_sums("gram", &gram(&x.on(device)?, &w.on(device)?)?, &[5, 6], &expected);
        Ok(())
    });
}

#[test]
fn fixed_extents() {
    on_devices(|device| {
        for n in [1, 5, 130] {
            let host = Host::new(21, &[n, 100]);
            let whole = sums(&[n, 100], &[1], |at| host.at(at));
            let expected = positions(&[n, 100]).map(|at| {
                let sum = whole[at[0]];
                (
                    host.at(&at) - sum.value * 0.01,
                    0.01 * sum.bound() + 4.0 * UNIT * (2.0 + 0.01 * sum.magnitude),
                )
            });
            check("hundred", &hundred(&host.on(device)?)?, &[n, 100], expected);
        }
        let host = Host::new(22, &[65]);
        check_sums("65", &sixty_five(&host.on(device)?)?, &[], &sums(&[65], &[0], |at| host.at(at)));
        Ok(())
    });
}

#[test]
fn unrolled_dims_within_rows() {
    on_devices(|device| {
        for [n, p] in [[1, 1], [4, 33], [3, 700]] {
            let (host, w) = (Host::new(23, &[n, p, 3]), Host::new(24, &[3]));
            let (x, weight) = (host.on(device)?, w.on(device)?);
            let term = |at: &[usize]| host.at(at) * w.at(&at[2..]);
            let expected = sums(&[n, p, 3], &[1, 2], term);
            check_sums("pixels", &pixels(&x, &weight)?, &[n], &expected);
            check_sums("pixels at once", &pixels_at_once(&x, &weight)?, &[n], &expected);
            let pair = |at: &[usize]| host.at(&[at[0], at[1], 1]) * host.at(&[at[0], at[1], 2]);
            check_sums("channel", &channel_of_rows(&x)?, &[n], &sums(&[n, p], &[1], pair));
            check_sums("channels", &channels(&x)?, &[n, 3], &sums(&[n, p, 3], &[1], |at| host.at(at)));
        }
        Ok(())
    });
}

/// Short and long dims inside or outside. The longest case once took a thread more iterations than some
/// devices allow.
const OF_SEVERAL: [[usize; 4]; 5] =
    [[2, 3, 5, 7], [2, 3, 96, 96], [1, 3, 128, 130], [3, 70, 1, 4], [600, 2, 1, 3]];

#[test]
fn rows_of_several_dims() {
    on_devices(|device| {
        for shape in OF_SEVERAL {
            let ([n, c, h, w], host) = (shape, Host::new(29, &shape));
            let x = host.on(device)?;
            let rows = Host::of(&[n, c * h * w], host.elements.clone());
            let normal: Vec<(f64, f64)> =
                rows.rows().flat_map(|row| normalized(&row, 1e-5, roundings(row.len()))).collect();
            let place = |at: &[usize]| ((at[0] * c + at[3]) * h + at[1]) * w + at[2];
            let turned = positions(&[n, h, w, c]).map(|at| normal[place(&at)]);
            check("channels last", &channels_last(&x)?, &[n, h, w, c], turned);
        }
        for [n, h, w] in [[2, 9000, 2], [3, 40, 70], [2, 1, 5], [520, 7, 12], [1, 300, 256]] {
            let (host, g, b) = (Host::new(30, &[n, h, w]), Host::new(31, &[h]), Host::new(32, &[h]));
            let rows = Host::of(&[n, h * w], host.elements.clone());
            let normal = rows.rows().flat_map(|row| normalized(&row, 0.5, roundings(row.len())));
            let expected = positions(&[n, h, w]).zip(normal.collect::<Vec<_>>()).map(|(at, (z, error))| {
                let (g, b) = (g.at(&at[1..2]), b.at(&at[1..2]));
                (z * g + b, error * g.abs() + 4.0 * UNIT * ((z * g).abs() + b.abs()))
            });
            let (x, g, b) = (host.on(device)?, g.on(device)?, b.on(device)?);
            check("affine", &affine(&x, &g, &b)?, &[n, h, w], expected);
        }
        for [n, c, h] in [[2, 6, 7], [3, 2, 9000], [1, 9000, 2]] {
            let (host, g) = (Host::new(33, &[n, c, h]), Host::new(34, &[c]));
            let groups = Host::of(&[2 * n, c / 2 * h], host.elements.clone());
            let normal = groups.rows().flat_map(|row| normalized(&row, 1e-5, roundings(row.len())));
            let expected = positions(&[n, c, h]).zip(normal.collect::<Vec<_>>()).map(|(at, (z, error))| {
                let g = g.at(&at[1..2]);
                (z * g, error * g.abs() + 2.0 * UNIT * (z * g).abs())
            });
            check("grouped", &grouped(&host.on(device)?, &g.on(device)?)?, &[n, c, h], expected);
        }
        for shape in [[40_000, 3, 1], [5, 7, 33]] {
            let host = Host::new(35, &shape);
            let expected = sums(&shape, &[0, 2], |at| host.at(at));
            check_sums("outer", &of_outer_rows(&host.on(device)?)?, &shape[1..2], &expected);
        }
        for [n, l, k] in [[1, 40_000, 2], [3, 5, 7], [2, 33_000, 1]] {
            let (p, y) = (Host::new(36, &[n, l]), Host::new(37, &[n, l, k]));
            let expected = sums(&[n, l, k], &[0, 1, 2], |at| p.at(&at[..2]) * y.at(at));
            check_sums("products", &of_products(&p.on(device)?, &y.on(device)?)?, &[], &expected);
            let step = |at: &[usize]| (y.at(&[at[0], at[1] + 1, at[2]]) - y.at(at)).powi(2);
            let expected = sums(&[n, l - 1, k], &[0, 1, 2], step);
            let rounded = expected.iter().map(|sum| (sum.value, sum.bound() + 4.0 * UNIT * sum.magnitude));
            check("roughness", &roughness(&y.on(device)?)?, &[], rounded);
            let [a, b, c] = [(38, n), (39, l), (40, k)].map(|(seed, len)| Host::new(seed, &[len]));
            let product = |at: &[usize]| a.at(&at[..1]) * b.at(&at[1..2]) * c.at(&at[2..]);
            let expected = sums(&[n, l, k], &[0, 1, 2], product);
            let rounded = expected.iter().map(|sum| (sum.value, sum.bound() + 4.0 * UNIT * sum.magnitude));
            let got = of_outer_products(&a.on(device)?, &b.on(device)?, &c.on(device)?)?;
            check("outer products", &got, &[], rounded);
        }
        Ok(())
    });
}

#[test]
fn reductions_of_reductions() {
    on_devices(|device| {
        for [n, d] in [[1, 1], [4, 3], [33, 65], [3, 1025]] {
            let host = Host::new(25, &[n, d]);
            let x = host.on(device)?;
            let whole = sums(&[n, d], &[1], |at| host.at(at).exp());
            let parts = sums(&[n, d], &[0], |at| host.at(at).exp() / whole[at[0]].value);
            let bound =
                |sum: &ReferenceSum| (sum.value, sum.bound() + whole[0].bound() / whole[0].value * sum.value);
            let within = parts.iter().map(bound).map(|(value, bound)| (value, bound + 16.0 * UNIT * value));
            check("softmax totals", &softmax_totals(&x)?, &[d], within);
            let rows = sums(&[n, d], &[1], |at| host.at(at));
            let all = ReferenceSum::of(host.elements.iter().map(|&x| f64::from(x)));
            let bound = 2.0 * (all.bound() + rows.iter().map(ReferenceSum::bound).sum::<f64>()) / n as f64;
            check("mean of sums", &mean_of_sums(&x)?, &[], [(all.value / n as f64, bound)]);
            let largest = rows.iter().map(|row| row.value).fold(f64::NEG_INFINITY, f64::max);
            let least = rows.iter().map(|row| row.value).fold(f64::INFINITY, f64::min);
            let bound = 3.0 * rows.iter().map(ReferenceSum::bound).fold(0.0, f64::max);
            check("spread", &spread(&x)?, &[], [(largest - least, bound)]);
        }
        Ok(())
    });
}

#[test]
fn positions_and_extents_within_rows() {
    on_devices(|device| {
        for [n, d] in [[1, 1], [3, 4], [5, 33], [2, 1028]] {
            let host = Host::new(26, &[n, d]);
            let x = host.on(device)?;
            let term = |at: &[usize]| host.at(at) * at[1] as f64 + at[0] as f64;
            let scale = (d as f64).sqrt().recip();
            let expected = sums(&[n, d], &[1], term).into_iter().map(|sum| {
                let magnitude = sum.magnitude + (2 * d * d) as f64;
                (
                    sum.value * scale + n as f64,
                    sum.bound() * scale + 8.0 * UNIT * (magnitude * scale + n as f64),
                )
            });
            check("ramp", &ramp(&x)?, &[n], expected);
            let masked = |at: &[usize]| if at[1] <= at[0] { host.at(at) } else { 0.0 };
            check_sums("below", &below(&x)?, &[n], &sums(&[n, d], &[1], masked));
        }
        let host = Host::new(27, &[3, 7, 40]);
        let term = |at: &[usize]| host.at(at) * (3.0 * at[1] as f64 - at[2] as f64) / 280.0;
        check_sums("pictures", &pictures(&host.on(device)?)?, &[3], &sums(&[3, 7, 40], &[1, 2], term));
        Ok(())
    });
}
