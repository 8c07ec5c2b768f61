//! `rename`, `split` and `merge` give the same tensor other dims on every device, and copy nothing.

mod devices;

use devices::on_devices;
use fusion::prelude::*;

fuse! {
    pub(crate) fn distances(x: f32[T]) -> f32[T, S] { abs(x - rename(x, T -> S)) }
    pub(crate) fn squared_distances(x: f32[N, D]) -> f32[N, M] {
        let other = x.rename(N -> M);
        sum(square(x - other), D)
    }
    /// Products and softmax values are as equal at two places as loaded elements are.
    pub(crate) fn products_apart(x: f32[N], g: f32[N, D]) -> (f32[N, M], f32[N, M]) {
        let (y, z) = (x * x, softmax(g, D) * 3.3);
        (y - rename(y, N -> M), sum(abs(z - rename(z, N -> M)), D))
    }
    /// The matrix is square, and the renamed value has its dims in the other order.
    pub(crate) fn symmetric(x: f32[N, M], y: f32[N]) -> f32[N, M] {
        let swapped = rename(x + y, N -> K);
        x + sum(if index(K) == index(M) { swapped } else { 0.0 }, K)
    }
    /// Coordinates keep their dim when the value is renamed.
    pub(crate) fn later(x: f32[T]) -> f32[T, S] {
        let dated = x * 10.0 + index(T) as f32;
        if index(S) > index(T) { rename(dated, T -> S) } else { dated }
    }
    /// Renames a reduced value to a dim that nothing else has.
    pub(crate) fn from_means(x: f32[N, D]) -> (f32[N], f32[N]) {
        let mu = mean(x, D);
        (sum(abs(mu - rename(mu, N -> Other)), Other), mu)
    }
    /// The old value is read at other places than the new one is written to.
    pub(crate) fn spread(p: &mut f32[N]) { p = p + 0.5 * sum(rename(p, N -> M), M); }
    pub(crate) fn twice(x: f32[N, C = 3]) -> f32[N, M, C] {
        let y = rename(x, N -> M);
        y.rename(M -> N) * 100.0 + y
    }
}

fuse! {
    /// Splits each row into heads.
    pub(crate) fn heads(x: f32[N, C], H: dim) -> f32[N, H, D] { split(x, C -> (H, D)) }
    pub(crate) fn head_sums(x: f32[N, C], w: f32[H]) -> f32[H, N] { sum(split(x, C -> (H, D)), D) * w }
    pub(crate) fn together(x: f32[N, H, D], bias: f32[C]) -> f32[N, C] {
        x.merge((H, D) -> C) * 2.0 + bias + index(C) as f32
    }
    /// The outer of the two merged dims is the inner one in memory.
    pub(crate) fn across(x: f32[D, N, H]) -> f32[N, C] { merge(x, (H, D) -> C) }
    /// Splits and merges in place, with a reduction in between.
    pub(crate) fn centred(p: &mut f32[N, C], G: dim) {
        let y = split(p, C -> (G, K));
        p -= merge(mean(y, K) + y * 0.0, (G, K) -> C);
    }
    /// Splits a renamed dim.
    pub(crate) fn renamed_pairs(x: f32[N]) -> f32[X, Y] { split(rename(x, N -> M), M -> (X, Y = 2)) + sum(x, N) }
    pub(crate) fn groups(x: f32[N, C, L]) -> f32[N, C, L] { group_norm(x, C, 2, L) }
    pub(crate) fn renamed_groups(x: f32[N, C, L]) -> f32[N, E, L] { group_norm(rename(x, C -> E), E, 2, L) }
    /// The first two group counts equal the number of a dim, and the function after each has no dim of that
    /// number.
    pub(crate) fn groups_by_number(x: f32[N, C, 2]) -> f32[N, C, 2] { group_norm(x, C, 2) }
    pub(crate) fn groups_by_name(x: f32[N, C, L]) -> f32[N, C, L] { group_norm(x, C, 2) }
    pub(crate) fn instances_by_number(x: f32[N, 3, L]) -> f32[N, 3, L] { group_norm(x, 3, 3, L) }
    pub(crate) fn instances_by_name(x: f32[N, C, L]) -> f32[N, C, L] { group_norm(x, C, 3, L) }
    pub(crate) fn weighed_groups(x: f32[N, C], w: f32[2]) -> f32[N, C, 2] { group_norm(x, C, 2) * w }
    pub(crate) fn patches(x: f32[H = 4, W = 6], y: f32[A = 2, B = 3]) -> f32[P, Q] {
        sum(x.split(H -> (P, A)).split(W -> (Q, B)) * y, (A, B))
    }
}

fuse! {
    /// Parts of known extents, with and without names.
    pub(crate) fn pooled(x: f32[B, H, W]) -> f32[B, PH, PW] {
        max(split(split(x, H -> (PH, R = 2)), W -> (PW, S = 3)), (R, S))
    }
    pub(crate) fn interleaved(x: f32[N, C]) -> f32[N, C] {
        let pairs = x.split(C -> (K, P = 2));
        merge(pairs + if index(P) == 0 { 0.0 } else { 100.0 }, (K, P = 2) -> C)
    }
    fn least(x, C: dim) { min(rename(split(x, C -> (G, 2)), 2 -> R), R) }
    /// Compares with the number 3, which names no dim of the template.
    fn at_most_three(x) { min(x, 3) }
    /// A comparison in a template stays one even if the caller has a dim of that extent.
    pub(crate) fn capped(x: f32[N, 3]) -> f32[N, 3] { at_most_three(x) }
    fn sums_of_parts(x, C: dim, count) { sum(split(x, C -> (count, K)), K) }
    /// A dim that a template splits off by number is known by that number outside.
    pub(crate) fn parts_by_number(x: f32[C], w: f32[2]) -> f32[2] { sums_of_parts(x, C, 2) * w }
    fn of_halves(x, C: dim) { mean(split(x, C -> (G, P = 2)), P) }
    /// Two values are split alike, and a part has an extent that the result also gives.
    pub(crate) fn product_of_halves(x: f32[C], y: f32[C]) -> f32[] { sum(of_halves(x, C) * of_halves(y, C)) }
    fn differences(x, T: dim) { slice(x, T -> S, 1..) - slice(x, T -> S, ..T - 1) }
    fn unit(v: f32[S]) -> f32[S] { v / sum(abs(v), S) }
    /// Two calls that derive the same extent share one dim of the caller.
    pub(crate) fn product_of_differences(x: f32[T], y: f32[T]) -> (f32[], f32[], f32[]) {
        let d = differences(x, T);
        let units = sum(unit(d) * unit(differences(y, T)));
        (sum(d * differences(y, T)), max(differences(x, T), S), units)
    }
    pub(crate) fn squares_of_both(x: f32[T], y: f32[U]) -> f32[] {
        sum(square(differences(x, T))) + sum(square(differences(y, U)))
    }
    pub(crate) fn told_twice(x: f32[C]) -> f32[G, P = 2] { x.split(C -> (G, P = 2)) }
    pub(crate) fn told_by_the_result(x: f32[C]) -> f32[P = 2, G] { split(x, C -> (G, P)) }
    pub(crate) fn least_of_pairs(x: f32[C]) -> f32[] { sum(least(x, C)) }
    /// A number that names no dim is an operand of the comparison.
    pub(crate) fn most_of_pairs(x: f32[C]) -> (f32[], f32[]) {
        (sum(max(split(x, C -> (G, P = 2)), P)), sum(max(x, 2)))
    }
}

/// Returns whole numbers, so that sums are exact.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 37 % 23) as f32 - 11.0).collect()
}

fn grid(rows: usize, cols: usize, at: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    (0..rows * cols).map(|i| at(i / cols, i % cols)).collect()
}

#[test]
fn groups_are_no_dim_of_their_number() {
    on_devices(|device| {
        for (n, c) in [(1, 2), (3, 4), (2, 10)] {
            let x = Tensor::from_slice(device, &numbers(n * c * 2), [n, c, 2])?;
            assert_eq!(groups_by_number(&x)?.to_vec()?, groups_by_name(&x)?.to_vec()?, "{device}: {n}, {c}");
            let x = Tensor::from_slice(device, &numbers(n * 3 * c), [n, 3, c])?;
            let expected = instances_by_name(&x)?.to_vec()?;
            assert_eq!(instances_by_number(&x)?.to_vec()?, expected, "{device}: {n}, {c}");
            let x = Tensor::from_slice(device, &numbers(n * c), [n, c])?;
            let w = Tensor::from_slice(device, &[1.0, -2.0], [2])?;
            let split = parts_by_number(&x.reshape([n * c])?, &w)?;
            let sums = numbers(n * c).chunks(n * c / 2).map(|part| part.iter().sum()).collect::<Vec<f32>>();
            assert_eq!(split.to_vec()?, [sums[0], -2.0 * sums[1]], "{device}: {n}, {c}");
            let plain = groups_by_name(&x.reshape([n, c, 1])?)?.to_vec()?;
            let expected = grid(n * c, 2, |i, j| plain[i] * [1.0, -2.0][j]);
            for (got, expected) in weighed_groups(&x, &w)?.to_vec()?.into_iter().zip(expected) {
                // The reference adds in another order.
                assert!((got - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{device}: {n}, {c}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_value_is_no_distance_from_itself() {
    on_devices(|device| {
        let x: Vec<f32> = (0..29).map(|i| (i * 37 % 101) as f32 / 30.1 - 1.3).collect();
        let g: Vec<f32> = (0..29 * 7).map(|i| (i * 53 % 89) as f32 / 17.3).collect();
        let (x, g) = (Tensor::from_slice(device, &x, [29])?, Tensor::from_slice(device, &g, [29, 7])?);
        let (apart, distances) = products_apart(&x, &g)?;
        for (sign, values) in [(-1.0, apart.to_vec()?), (1.0, distances.to_vec()?)] {
            for (n, m) in (0..29).flat_map(|n| (0..=n).map(move |m| (n, m))) {
                let [there, back] = [values[29 * n + m], values[29 * m + n]];
                assert!(there == sign * back, "{device}: {there} and {back} at {n}, {m}");
            }
            assert!((0..29).all(|n| values[30 * n] == 0.0), "{device}");
        }
        Ok(())
    });
}

#[test]
fn one_tensor_at_two_places() {
    on_devices(|device| {
        for n in [0usize, 1, 2, 33, 130] {
            let a = numbers(n);
            let x = Tensor::from_slice(device, &a, [n])?;
            let y = distances(&x)?;
            assert_eq!(y.shape().dims(), [n, n]);
            assert_eq!(y.to_vec()?, grid(n, n, |t, s| (a[t] - a[s]).abs()), "{device}: {n} distances");
            let expected = grid(n, n, |t, s| a[t.max(s)] * 10.0 + t.max(s) as f32);
            assert_eq!(later(&x)?.to_vec()?, expected, "{device}: {n} later ones");
            let inline = fuse!(x[T] * rename(x[T], T -> S) => [S, T])?;
            assert_eq!(inline.to_vec()?, grid(n, n, |s, t| a[s] * a[t]), "{device}: {n} products");
        }
        Ok(())
    });
}

/// A renamed parameter is split by its new name.
#[test]
fn renamed_dims_are_split() {
    on_devices(|device| {
        let x = Tensor::from_slice(device, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [6])?;
        let pairs = renamed_pairs(&x)?;
        assert_eq!(pairs.shape().dims(), [3, 2]);
        assert_eq!(pairs.to_vec()?, [22.0, 23.0, 24.0, 25.0, 26.0, 27.0], "{device}");
        let x = Tensor::from_slice(device, &numbers(3 * 4 * 5), [3, 4, 5])?;
        let expected = groups(&x)?;
        assert_eq!(renamed_groups(&x)?.to_vec()?, expected.to_vec()?, "{device}");
        Ok(())
    });
}

#[test]
fn reductions_of_pairs() {
    on_devices(|device| {
        for (n, d) in [(1, 1), (5, 33), (12, 4), (3, 1030)] {
            let a = numbers(n * d);
            let x = Tensor::from_slice(device, &a, [n, d])?;
            let pair =
                |i: usize, j: usize| (0..d).map(|k| (a[i * d + k] - a[j * d + k]).powi(2)).sum::<f32>();
            assert_eq!(squared_distances(&x)?.to_vec()?, grid(n, n, pair), "{device}: {n}x{d}");
            let (spread, mu) = from_means(&x)?;
            let mu = mu.to_vec()?;
            let spread = spread.to_vec()?;
            for (i, got) in spread.into_iter().enumerate() {
                let expected: f32 = mu.iter().map(|other| (mu[i] - other).abs()).sum();
                assert!((got - expected).abs() <= 1e-5, "{device}: {n}x{d}: {got}, not {expected}");
            }
        }
        Ok(())
    });
}

#[test]
fn other_orders_and_places_in_memory() {
    on_devices(|device| {
        let n = 7;
        let (a, b) = (numbers(n * n), numbers(n));
        let (x, y) = (Tensor::from_slice(device, &a, [n, n])?, Tensor::from_slice(device, &b, [n])?);
        let expected = grid(n, n, |i, j| a[i * n + j] + a[j * n + j] + b[j]);
        assert_eq!(symmetric(&x, &y)?.to_vec()?, expected, "{device}");
        let mut p = y.clone();
        spread(&mut p)?;
        let half = 0.5 * b.iter().sum::<f32>();
        assert_eq!(p.to_vec()?, b.iter().map(|p| p + half).collect::<Vec<f32>>(), "{device}");
        assert_eq!(y.to_vec()?, b, "{device}");
        let x = Tensor::from_slice(device, &a[..6], [2, 3])?;
        let expected: Vec<f32> = (0..12)
            .map(|i| (i / 6, i / 3 % 2, i % 3))
            .map(|(n, m, c)| a[n * 3 + c] * 100.0 + a[m * 3 + c])
            .collect();
        assert_eq!(twice(&x)?.to_vec()?, expected, "{device}");
        Ok(())
    });
}

#[test]
fn several_dims_for_one() {
    on_devices(|device| {
        for (n, h, d) in [(3, 2, 5), (1, 1, 1), (2, 4, 33), (0, 2, 3), (5, 8, 4)] {
            let c = h * d;
            let (a, w) = (numbers(n * c), numbers(h));
            let x = Tensor::from_slice(device, &a, [n, c])?;
            let y = heads(&x, h)?;
            assert_eq!(y.shape().dims(), [n, h, d]);
            assert_eq!(y.to_vec()?, a, "{device}");
            let sums = head_sums(&x, &Tensor::from_slice(device, &w, [h])?)?;
            let sum = |i: usize, j: usize| a[j * c + i * d..][..d].iter().sum::<f32>() * w[i];
            assert_eq!(sums.to_vec()?, grid(h, n, sum), "{device}: sums of {n}x{h}x{d}");
            let bias = Tensor::from_slice(device, &numbers(c), [c])?;
            let merged = together(&y, &bias)?;
            assert_eq!(merged.shape().dims(), [n, c]);
            let expected = grid(n, c, |i, j| a[i * c + j] * 2.0 + numbers(c)[j] + j as f32);
            assert_eq!(merged.to_vec()?, expected, "{device}: merged {n}x{h}x{d}");
            let x = Tensor::from_slice(device, &a, [d, n, h])?;
            let expected = grid(n, c, |i, j| a[(j % d * n + i) * h + j / d]);
            assert_eq!(across(&x)?.to_vec()?, expected, "{device}: across {n}x{h}x{d}");
            let mut p = Tensor::from_slice(device, &a, [n, c])?;
            centred(&mut p, h)?;
            let mean = |i: usize, j: usize| a[i * c + j / d * d..][..d].iter().sum::<f32>() / d as f32;
            let expected = grid(n, c, |i, j| a[i * c + j] - mean(i, j));
            for (got, expected) in p.to_vec()?.into_iter().zip(expected) {
                assert!((got - expected).abs() < 1e-5, "{device}: {got}, not {expected}");
            }
        }
        Ok(())
    });
}

#[test]
fn sums_of_patches() {
    on_devices(|device| {
        let (a, b) = (numbers(24), numbers(6));
        let (x, y) = (Tensor::from_slice(device, &a, [4, 6])?, Tensor::from_slice(device, &b, [2, 3])?);
        let patch = |p: usize, q: usize| -> f32 {
            (0..6).map(|i| a[(p * 2 + i / 3) * 6 + q * 3 + i % 3] * b[i]).sum()
        };
        assert_eq!(patches(&x, &y)?.to_vec()?, grid(2, 2, patch), "{device}");
        Ok(())
    });
}

#[test]
fn parts_of_known_extents() {
    on_devices(|device| {
        let (b, h, w) = (2, 4, 9);
        let a = numbers(b * h * w);
        let x = Tensor::from_slice(device, &a, [b, h, w])?;
        let most = |i: usize, j: usize| {
            let (batch, row) = (i / (h / 2), i % (h / 2));
            let at = |k: usize| a[(batch * h + 2 * row + k / 3) * w + 3 * j + k % 3];
            (0..6).map(at).fold(f32::NEG_INFINITY, f32::max)
        };
        assert_eq!(pooled(&x)?.to_vec()?, grid(b * h / 2, w / 3, most), "{device}");
        let x = Tensor::from_slice(device, &a, [9, 8])?;
        let expected = grid(9, 8, |i, j| a[8 * i + j] + if j % 2 == 0 { 0.0 } else { 100.0 });
        assert_eq!(interleaved(&x)?.to_vec()?, expected, "{device}");
        let pairs = Tensor::from_slice(device, &[1.0, 20.0, 30.0, 0.5], [4])?;
        let (most, compared) = most_of_pairs(&pairs)?;
        assert_eq!([most.item()?, compared.item()?], [50.0, 54.0], "{device}");
        assert_eq!(least_of_pairs(&pairs)?.item()?, 1.5, "{device}");
        assert_eq!(product_of_halves(&pairs, &pairs)?.item()?, 10.5 * 10.5 + 15.25 * 15.25, "{device}");
        let [x, y] = [[0.0, 1.0, 3.0], [0.0, 1.0, 2.0]].map(|x| Tensor::from_slice(device, &x, [3]));
        let (x, y) = (x?, y?);
        let (dot, most, units) = product_of_differences(&x, &y)?;
        assert_eq!([dot.item()?, most.item()?, units.item()?], [3.0, 2.0, 0.5], "{device}");
        let more = Tensor::from_slice(device, &[1.0, 2.0, 4.0, 4.0], [4])?;
        assert_eq!(squares_of_both(&x, &more)?.item()?, 10.0, "{device}");
        assert_eq!(told_twice(&pairs)?.to_vec()?, pairs.to_vec()?, "{device}");
        assert_eq!(told_by_the_result(&pairs)?.to_vec()?, [1.0, 30.0, 20.0, 0.5], "{device}");
        let three = Tensor::from_slice(device, &[1.0, 4.0, 3.5], [1, 3])?;
        assert_eq!(capped(&three)?.to_vec()?, [1.0, 3.0, 3.0], "{device}");
        let odd = Tensor::zeros(device, [1, 3, 3])?;
        let error = pooled(&odd).map(drop).expect_err("3 rows are no pairs").to_string();
        assert_eq!(
            error,
            "`pooled`: dim `H` is 3, but it is [PH, R] together, which come to 1 × 2: their product must be 3; \
             `H` of 2 or 4 would fit"
        );
        Ok(())
    });
}

#[test]
fn extents_that_do_not_divide() {
    on_devices(|device| {
        let x = Tensor::zeros(device, [2, 7])?;
        let error = heads(&x, 2).map(drop).expect_err("7 elements are no 2 heads").to_string();
        assert_eq!(
            error,
            "`heads`: dim `C` is 7, but it is [H, D] together, which come to 2 × 3: their product must be 7; \
             `C` of 6 or 8 would fit"
        );
        let error = heads(&x, 0).map(drop).expect_err("7 elements are no 0 heads").to_string();
        assert_eq!(
            error,
            "`heads`: dim `C` is 7, but it is [H, D] together, which come to 0 × ?: their product must be 7"
        );
        let bias = Tensor::zeros(device, [5])?;
        let error = together(&heads(&x, 7)?, &bias).map(drop).expect_err("7 elements are no 5").to_string();
        assert_eq!(
            error,
            "`together`: dim `C` is 5, but it is [H, D] together, which come to 7 × 1: their product must be 5; \
             `C` of 7 would fit"
        );
        Ok(())
    });
}

#[test]
fn nothing_is_copied() {
    assert_eq!((heads::report().kernels(), together::report().kernels()), (1, 1));
    assert_eq!(head_sums::report().kernels(), 1);
    assert_eq!((distances::report().kernels(), later::report().kernels()), (1, 1));
    assert_eq!(squared_distances::report().kernels(), 1);
}
