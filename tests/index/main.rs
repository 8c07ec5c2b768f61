//! `slice`, `flip`, `roll`, `pad`, `concat` and `take` agree with plain loops on every device, and copy no
//! elements.

#[path = "../devices/mod.rs"]
mod devices;
mod errors;
mod lanes;
mod parts;
mod renamed;

use devices::on_devices;
use fusion::prelude::*;

fuse! {
    pub(crate) fn middle(x: f32[N, D], _k: f32[K]) -> f32[N, K] { slice(x, D -> K, 1..D - 1) }
    pub(crate) fn halves(x: f32[N, D]) -> (f32[N, A], f32[B, D]) {
        let half = D / 2;
        (slice(x, D -> A, half..), x.slice(N -> B, ..N / 2))
    }
    /// Both names change at once.
    pub(crate) fn halves_of_two(x: f32[N, D]) -> (f32[N, A], f32[N, B]) {
        let (less, more) = (D / 2, D - D / 2);
        let (more, less) = (less, more);
        (slice(x, D -> A, ..less), slice(x, D -> B, more..))
    }
    pub(crate) fn differences(x: f32[T]) -> f32[S] { slice(x, T -> S, 1..) - slice(x, T -> S, ..T - 1) }
    /// The slice applies to a computed value, and the coordinate counts in the sliced dim.
    pub(crate) fn of_values(x: f32[N, D], b: f32[D]) -> f32[N, K] {
        exp(slice(x * 2.0 + b, D -> K, 2..)) + index(K) as f32
    }
    pub(crate) fn fixed(x: f32[N, C = 5]) -> f32[N, K = 3] { slice(x, C -> K, 1..4) * 2.0 }
    /// Sums of three elements out of five.
    pub(crate) fn fixed_sums(x: f32[N, C = 5]) -> (f32[N], f32[N]) {
        let part = slice(x, C -> K, 1..4);
        (sum(part, K), at(flip(part, K), K, 0))
    }
    pub(crate) fn along_slices(x: f32[N, T]) -> (f32[N], f32[N]) {
        (sum(slice(x, T -> S, 1..), S), max(slice(x, T -> S, 1..) - slice(x, T -> S, ..T - 1), S))
    }
    pub(crate) fn along_parts(x: f32[N, A], y: f32[N, B]) -> f32[N] { sum(concat((x, A), (y, B) -> D), D) }
    pub(crate) fn of_rows(x: f32[N, D]) -> f32[M] { slice(sum(x, D), N -> M, 1..) }
    pub(crate) fn of_integers(x: i32[N]) -> i32[M] { slice(x, N -> M, N / 3..N - N / 4) }
}

fuse! {
    pub(crate) fn reversed(x: f32[N, D]) -> (f32[N, D], f32[D, N]) { (flip(x, D), flip(x, N)) }
    pub(crate) fn twice(x: f32[N]) -> f32[N] { x.flip(N).flip(N) }
    pub(crate) fn palindrome(x: f32[N]) -> f32[N] { x - flip(x, N) }
    pub(crate) fn rolled(x: f32[N, D], by: i32) -> f32[N, D] { roll(x, D, by) }
    pub(crate) fn rolled_rows(x: f32[N, D]) -> f32[N, D] { roll(x, N, 2) + roll(x, N, -1) }
    /// Rolls each row by its own distance.
    pub(crate) fn skewed(x: f32[N, D]) -> f32[N, D] { roll(x, D, index(N) - D / 2) }
    pub(crate) fn roll_in_place(p: &mut f32[N, D]) { p = roll(p, D, 1) + 10.0; }
    pub(crate) fn flip_in_place(p: &mut f32[N], q: &mut f32[N]) {
        let old = p;
        p = flip(q, N);
        q = 2.0 * old;
    }
    pub(crate) fn softmax_backwards(x: f32[N, D]) -> f32[N, D] { flip(softmax(x, D), D) }
    pub(crate) fn softmax_of_backwards(x: f32[N, D]) -> f32[N, D] { softmax(flip(x, D), D) }
    /// Combines each row's mean with that of another row.
    pub(crate) fn next_mean(x: f32[N, D]) -> f32[N] { mean(x, D) - roll(mean(x, D), N, 1) }
}

fuse! {
    pub(crate) fn padded(x: f32[N, D]) -> f32[N, P] { pad(x, D -> P, 2, 3) }
    pub(crate) fn padded_rows(x: f32[N, D], fill: f32) -> f32[P, D] { pad(x * 2.0, N -> P, 1, D, value = fill) }
    pub(crate) fn padded_sum(x: f32[N, D]) -> f32[N] { sum(exp(pad(x, D -> P, 1, 2, value = -INF)), P) }
    pub(crate) fn padded_twice(x: f32[N]) -> f32[Q] { pad(pad(x, N -> P, 1, 1, 5.0), P -> Q, 2, 0) }
    pub(crate) fn padded_ones(x: i32[N]) -> i32[P] { pad(x, N -> P, 1, 1, value = 7) }
    /// Sums of each element and its neighbours.
    pub(crate) fn neighbours(x: f32[N]) -> f32[N] {
        let wide = pad(x, N -> P, 1, 1);
        slice(wide, P -> N, ..P - 2) + x + slice(wide, P -> N, 2..)
    }
    pub(crate) fn joined(x: f32[N, A], y: f32[N, B]) -> f32[N, D] { concat((x, A), (y, B) -> D) }
    pub(crate) fn three(x: f32[A], y: f32[B], z: f32[C = 3]) -> f32[D] { concat((x, A), (y * 2.0, B), (z, C) -> D) }
    /// `y` lacks a dim of `x` and is repeated along it.
    pub(crate) fn rows_joined(x: f32[A, D], y: f32[B]) -> f32[S, D] { concat((x, A), (y, B) -> S) }
    pub(crate) fn joined_integers(x: i32[A], y: i32[B]) -> i32[D] { concat((x, A), (y, B) -> D) }
    pub(crate) fn joined_softmax(x: f32[N, A], y: f32[N, B]) -> f32[N, D] { softmax(concat((x, A), (y, B) -> D), D) }
    /// Rotary embedding (Su et al. 2021), with the two elements of a pair half a row apart.
    pub(crate) fn rope(x: f32[T, D], cosine: f32[T, H], sine: f32[T, H]) -> f32[T, D] {
        let (a, b) = (slice(x, D -> H, ..D / 2), slice(x, D -> H, D / 2..));
        concat((a * cosine - b * sine, H), (a * sine + b * cosine, H) -> D)
    }
}

fuse! {
    pub(crate) fn embedding(table: f32[V, D], ids: i32[N]) -> f32[N, D] { take(table, V, ids) }
    pub(crate) fn embedding_norm(table: f32[V, D], ids: i32[N, T], w: f32[D]) -> f32[N, T, D] {
        rms_norm(take(table, V, ids), D) * w
    }
    pub(crate) fn gathered_in_column(x: f32[N, V], ids: i32[N]) -> f32[N] { x.take(V, ids) }
    pub(crate) fn along_rows(x: f32[N, V], ids: u32[N, K]) -> f32[N, K] { take(x * 2.0, V, ids) }
    pub(crate) fn permuted(x: f32[V], ids: i32[V]) -> f32[V] { take(x, V, ids) + x }
    pub(crate) fn chained(x: f32[V], a: i32[W], b: i32[N]) -> f32[N] { take(take(x, V, a), W, b) }
    pub(crate) fn taken_backwards(x: f32[V], ids: i32[N]) -> f32[N] { take(flip(x, V), V, ids) }
    pub(crate) fn taken_integers(x: i32[V], ids: i32[N]) -> i32[N] { take(x, V, ids) }
    /// The rows of the softmax contain gathered elements.
    pub(crate) fn attention_bias(s: f32[T, S], bias: f32[B], ids: i32[T, S]) -> f32[T, S] {
        softmax(s + take(bias, B, ids), S)
    }
    pub(crate) fn likelihood(x: f32[N, V], targets: i32[N]) -> f32[N] {
        -take(log_softmax(x, V), V, targets)
    }
    pub(crate) fn of_one(table: f32[V, D], id: i32) -> f32[D] { take(table, V, id) * 2.0 }
}

fuse! {
    /// Elements at either end of dims of any extent.
    pub(crate) fn ends(x: f32[N, T]) -> (f32[N], f32[T]) { (at(x, T, T - 1) - at(x, T, 0), at(x * 2.0, N, 1)) }
    /// Reverses the order of heads, and rolls each of them by one.
    pub(crate) fn regrouped(x: f32[N, C], H: dim) -> f32[N, C] {
        let y = flip(split(x, C -> (H, D)), H);
        merge(roll(y, D, 1), (H, D) -> C)
    }
    pub(crate) fn against_others(x: f32[T]) -> f32[T, S] { flip(x, T) - rename(flip(x, T), T -> S) * 2.0 }
    /// Combines neighbouring rows along the outer dim.
    pub(crate) fn correlation(x: f32[N, D]) -> f32[D] { sum(x * roll(x, N, 1), N) }
    /// Gathers at a place that the row itself determines: the number of its positive elements.
    pub(crate) fn by_count(x: f32[N, D], table: f32[V]) -> f32[N, D] {
        let count = sum(if x > 0.0 { 1.0 } else { 0.0 }, D) as i32;
        x + take(table, V, count)
    }
    /// Chains index operations: roll by 3, pad by 5, flip, concatenate, and take the first half.
    pub(crate) fn many_steps(x: f32[N]) -> f32[M] {
        let y = flip(pad(roll(x, N, 3), N -> P, 5, 0, value = 1.0), P);
        slice(concat((y, P), (x, N) -> Q), Q -> M, ..Q / 2) + 0.5
    }
    /// Index operations along fixed dims that one thread loops over.
    pub(crate) fn channels(x: f32[N, C = 3], w: f32[C]) -> (f32[N], f32[N, C]) {
        let y = roll(x, C, 1) * w;
        (sum(y, C) + at(flip(x, C), C, 0), x - max(flip(y, C), C))
    }
    fn steps_of(x, T: dim, S: dim) { slice(x, T -> S, 1..) - slice(x, T -> S, ..T - 1) }
    pub(crate) fn of_a_template(x: f32[N, T], S: dim) -> f32[N, S] { steps_of(x, T, S) }
    pub(crate) fn long(x: f32[N, T]) -> f32[T, N] { flip(x, N) }
}

/// Returns whole numbers, so that sums are exact.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 37 % 23) as f32 - 11.0).collect()
}

fn grid(rows: usize, cols: usize, at: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    (0..rows * cols).map(|i| at(i / cols, i % cols)).collect()
}

/// Asserts equality, with all NaN equal.
#[track_caller]
fn same(got: &[f32], expected: &[f32], what: &str) {
    let is = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
    assert!(
        got.len() == expected.len() && got.iter().zip(expected).all(is),
        "{what}: {got:?}, not {expected:?}"
    );
}

#[track_caller]
fn close(got: &[f32], expected: &[f32], what: &str) {
    let is = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * (1.0 + b.abs()) || a.is_nan() && b.is_nan();
    assert!(
        got.len() == expected.len() && got.iter().zip(expected).all(is),
        "{what}: {got:?}, not {expected:?}"
    );
}

const EXTENTS: [(usize, usize); 8] = [(1, 2), (3, 5), (2, 8), (5, 33), (4, 128), (1, 1030), (0, 4), (7, 2)];

#[test]
fn slices() {
    on_devices(|device| {
        for (n, d) in EXTENTS {
            let (a, what) = (numbers(n * d), format!("{device}: {n}x{d}"));
            let x = Tensor::from_slice(device, &a, [n, d])?;
            let (right, upper) = halves(&x)?;
            let half = d / 2;
            same(&right.to_vec()?, &grid(n, d - half, |i, j| a[i * d + half + j]), &what);
            same(&upper.to_vec()?, &a[..n / 2 * d], &what);
            let (left, right) = halves_of_two(&x)?;
            same(&left.to_vec()?, &grid(n, d - half, |i, j| a[i * d + j]), &what);
            same(&right.to_vec()?, &grid(n, d - half, |i, j| a[i * d + half + j]), &what);
            let k = Tensor::from_slice(device, &numbers(d - 2), [d - 2])?;
            same(&middle(&x, &k)?.to_vec()?, &grid(n, d - 2, |i, j| a[i * d + j + 1]), &what);
            let b = Tensor::from_slice(device, &numbers(d), [d])?;
            let expected =
                grid(n, d - 2, |i, j| (a[i * d + j + 2] * 2.0 + numbers(d)[j + 2]).exp() + j as f32);
            close(&of_values(&x, &b)?.to_vec()?, &expected, &what);
            if n > 0 {
                let expected: Vec<f32> = (1..n).map(|i| a[i * d..][..d].iter().sum()).collect();
                same(&of_rows(&x)?.to_vec()?, &expected, &what);
            }
        }
        for n in [1usize, 2, 3, 9, 130, 4099] {
            let a = numbers(n);
            let x = Tensor::from_slice(device, &a, [n])?;
            let expected: Vec<f32> = a.windows(2).map(|pair| pair[1] - pair[0]).collect();
            same(&differences(&x)?.to_vec()?, &expected, &format!("{device}: {n} differences"));
            let inline = fuse!(slice(x[N], N -> M, 1..) * 2.0 => [M])?;
            same(&inline.to_vec()?, &a[1..].iter().map(|x| x * 2.0).collect::<Vec<_>>(), "inline");
            let ints: Vec<i32> = a.iter().map(|&x| x as i32).collect();
            let y = of_integers(&Tensor::from_slice(device, &ints, [n])?)?;
            assert_eq!(y.to_vec()?, &ints[n / 3..n - n / 4], "{device}: {n} integers");
        }
        Ok(())
    });
}

/// Reductions along index operations agree with plain loops. Some rows are long enough to be split into
/// parts.
#[test]
fn what_is_combined_along_slices() {
    on_devices(|device| {
        for (n, d) in EXTENTS.into_iter().chain([(1, 70_001), (2, 300_001), (1025, 65)]) {
            let (a, what) = (numbers(n * d), format!("{device}: {n}x{d}"));
            let x = Tensor::from_slice(device, &a, [n, d])?;
            let (total, step) = along_slices(&x)?;
            same(&total.to_vec()?, &grid(n, 1, |i, _| a[i * d + 1..][..d - 1].iter().sum()), &what);
            let most =
                |row: &[f32]| row.windows(2).map(|two| two[1] - two[0]).fold(f32::NEG_INFINITY, f32::max);
            same(&step.to_vec()?, &grid(n, 1, |i, _| most(&a[i * d..][..d])), &what);
            let y = Tensor::full(device, 1.0, [n, 5])?;
            let expected = grid(n, 1, |i, _| a[i * d..][..d].iter().sum::<f32>() + 5.0);
            same(&along_parts(&x, &y)?.to_vec()?, &expected, &what);
        }
        Ok(())
    });
}

#[test]
fn slices_of_fixed_dims() {
    on_devices(|device| {
        for n in [0usize, 1, 6, 65] {
            let a = numbers(n * 5);
            let x = Tensor::from_slice(device, &a, [n, 5])?;
            same(&fixed(&x)?.to_vec()?, &grid(n, 3, |i, j| a[i * 5 + j + 1] * 2.0), "fixed");
            let (sums, last) = fixed_sums(&x)?;
            same(&sums.to_vec()?, &grid(n, 1, |i, _| a[i * 5 + 1..][..3].iter().sum()), "sums");
            same(&last.to_vec()?, &grid(n, 1, |i, _| a[i * 5 + 3]), "last");
        }
        Ok(())
    });
}

#[test]
fn other_orders() {
    on_devices(|device| {
        for (n, d) in EXTENTS {
            let (a, what) = (numbers(n * d), format!("{device}: {n}x{d}"));
            let x = Tensor::from_slice(device, &a, [n, d])?;
            let (along, across) = reversed(&x)?;
            same(&along.to_vec()?, &grid(n, d, |i, j| a[i * d + d - 1 - j]), &what);
            same(&across.to_vec()?, &grid(d, n, |j, i| a[(n - 1 - i) * d + j]), &what);
            for by in [0, 1, -1, 3, d as i32, -2 * d as i32 - 1, i32::MAX, i32::MIN] {
                let from = |j: usize| (j as i64 - i64::from(by)).rem_euclid(d as i64) as usize;
                let expected = grid(n, d, |i, j| a[i * d + from(j)]);
                same(&rolled(&x, by)?.to_vec()?, &expected, &format!("{what} by {by}"));
            }
            let expected = grid(n, d, |i, j| a[(i + 2 * n - 2) % n * d + j] + a[(i + 1) % n * d + j]);
            same(&rolled_rows(&x)?.to_vec()?, &expected, &what);
            let expected = grid(n, d, |i, j| a[i * d + (j + d * n + d / 2 - i) % d]);
            same(&skewed(&x)?.to_vec()?, &expected, &what);
            let mean = |i: usize| a[i * d..][..d].iter().sum::<f32>() / d as f32;
            let expected: Vec<f32> = (0..n).map(|i| mean(i) - mean((i + n - 1) % n)).collect();
            close(&next_mean(&x)?.to_vec()?, &expected, &what);
            let e: Vec<f32> = a.iter().map(|x| (x - 11.0).exp()).collect();
            let of = |i: usize, j: usize| e[i * d + j] / e[i * d..][..d].iter().sum::<f32>();
            let expected = grid(n, d, |i, j| of(i, d - 1 - j));
            close(&softmax_backwards(&x)?.to_vec()?, &expected, &what);
            close(&softmax_of_backwards(&x)?.to_vec()?, &expected, &what);
        }
        for n in [0usize, 1, 7, 260] {
            let a = numbers(n);
            let x = Tensor::from_slice(device, &a, [n])?;
            same(&twice(&x)?.to_vec()?, &a, "twice");
            let expected: Vec<f32> = (0..n).map(|i| a[i] - a[n - 1 - i]).collect();
            same(&palindrome(&x)?.to_vec()?, &expected, "palindrome");
        }
        Ok(())
    });
}

#[test]
fn in_place() {
    on_devices(|device| {
        for (n, d) in EXTENTS {
            let a = numbers(n * d);
            let mut p = Tensor::from_slice(device, &a, [n, d])?;
            let old = p.clone();
            roll_in_place(&mut p)?;
            let expected = grid(n, d, |i, j| a[i * d + (j + d - 1) % d] + 10.0);
            same(&p.to_vec()?, &expected, &format!("{device}: {n}x{d}"));
            same(&old.to_vec()?, &a, "the old one");
            let (mut p, mut q) =
                (old.reshape([n * d])?, Tensor::from_slice(device, &numbers(n * d), [n * d])?);
            flip_in_place(&mut p, &mut q)?;
            same(&p.to_vec()?, &numbers(n * d).into_iter().rev().collect::<Vec<_>>(), "p");
            same(&q.to_vec()?, &a.iter().map(|x| x * 2.0).collect::<Vec<_>>(), "q");
        }
        Ok(())
    });
}

#[test]
fn pads() {
    on_devices(|device| {
        for (n, d) in [(3, 5), (2, 8), (5, 33), (1, 1030), (0, 4), (3, 0), (0, 0), (7, 1)] {
            let (a, what) = (numbers(n * d), format!("{device}: {n}x{d}"));
            let x = Tensor::from_slice(device, &a, [n, d])?;
            let at = |i: usize, j: usize, before: usize, fill: f32| {
                if (before..before + d).contains(&j) { a[i * d + j - before] } else { fill }
            };
            same(&padded(&x)?.to_vec()?, &grid(n, d + 5, |i, j| at(i, j, 2, 0.0)), &what);
            let expected =
                grid(n + 1 + d, d, |i, j| if (1..=n).contains(&i) { a[(i - 1) * d + j] * 2.0 } else { 0.25 });
            same(&padded_rows(&x, 0.25)?.to_vec()?, &expected, &what);
            let expected: Vec<f32> = (0..n).map(|i| a[i * d..][..d].iter().map(|x| x.exp()).sum()).collect();
            close(&padded_sum(&x)?.to_vec()?, &expected, &what);
        }
        for n in [0usize, 1, 2, 31, 260] {
            let a = numbers(n);
            let x = Tensor::from_slice(device, &a, [n])?;
            let expected = [&[0.0, 0.0, 5.0], &*a, &[5.0]].concat();
            same(&padded_twice(&x)?.to_vec()?, &expected, &format!("{device}: {n} padded twice"));
            let at = |i: usize| a.get(i).copied().unwrap_or(0.0);
            let expected: Vec<f32> = (0..n).map(|i| at(i.wrapping_sub(1)) + a[i] + at(i + 1)).collect();
            same(&neighbours(&x)?.to_vec()?, &expected, &format!("{device}: {n} neighbours"));
            let ints: Vec<i32> = a.iter().map(|&x| x as i32).collect();
            let y = padded_ones(&Tensor::from_slice(device, &ints, [n])?)?;
            assert_eq!(y.to_vec()?, [&[7], &*ints, &[7]].concat());
        }
        Ok(())
    });
}

#[test]
fn joins() {
    on_devices(|device| {
        for (n, a, b) in
            [(3, 2, 5), (1, 1, 1), (4, 8, 24), (2, 0, 3), (2, 3, 0), (0, 3, 4), (5, 33, 130), (2, 0, 0)]
        {
            let (left, right) = (numbers(n * a), numbers(n * b + 1)[1..].to_vec());
            let (x, y) =
                (Tensor::from_slice(device, &left, [n, a])?, Tensor::from_slice(device, &right, [n, b])?);
            let what = format!("{device}: {n}x({a} + {b})");
            let at = |i: usize, j: usize| if j < a { left[i * a + j] } else { right[i * b + j - a] };
            same(&joined(&x, &y)?.to_vec()?, &grid(n, a + b, at), &what);
            if a + b > 0 {
                let all = |i: usize| (0..a + b).map(|j| (at(i, j) - 11.0).exp()).sum::<f32>();
                let expected = grid(n, a + b, |i, j| (at(i, j) - 11.0).exp() / all(i));
                close(&joined_softmax(&x, &y)?.to_vec()?, &expected, &what);
            }
            let z = Tensor::from_slice(device, &[1.0, 2.0, 3.0], [3])?;
            let (x, y) = (x.reshape([n * a])?, y.reshape([n * b])?);
            let doubled: Vec<f32> = right.iter().map(|y| y * 2.0).collect();
            same(&three(&x, &y, &z)?.to_vec()?, &[&*left, &*doubled, &[1.0, 2.0, 3.0]].concat(), &what);
            let rows = rows_joined(&x.reshape([n, a])?, &y)?;
            let expected = grid(n + n * b, a, |i, j| if i < n { left[i * a + j] } else { right[i - n] });
            same(&rows.to_vec()?, &expected, &what);
        }
        let (x, y) =
            (Tensor::from_slice(device, &[1, i32::MIN], [2])?, Tensor::from_slice(device, &[-7], [1])?);
        assert_eq!(joined_integers(&x, &y)?.to_vec()?, [1, i32::MIN, -7]);
        Ok(())
    });
}

#[test]
fn rotary_embedding() {
    on_devices(|device| {
        for (t, h) in [(1, 1), (3, 4), (5, 32), (2, 65), (0, 4)] {
            let d = 2 * h;
            let a = numbers(t * d);
            let angle = |i: usize, j: usize| i as f32 * 10_000_f32.powf(-(j as f32) / h as f32);
            let (cosine, sine) = (grid(t, h, |i, j| angle(i, j).cos()), grid(t, h, |i, j| angle(i, j).sin()));
            let on = |values: &[f32], cols| Tensor::from_slice(device, values, [t, cols]);
            let y = rope(&on(&a, d)?, &on(&cosine, h)?, &on(&sine, h)?)?;
            let expected = grid(t, d, |i, j| {
                let (k, x) = (j % h, &a[i * d..][..d]);
                let (c, s) = (cosine[i * h + k], sine[i * h + k]);
                if j < h { x[k] * c - x[k + h] * s } else { x[k] * s + x[k + h] * c }
            });
            close(&y.to_vec()?, &expected, &format!("{device}: {t}x{d}"));
        }
        Ok(())
    });
}

const IDS: [i32; 9] = [2, 0, -1, 7, i32::MAX, i32::MIN, 1, 2, 3];

#[test]
fn taken() {
    on_devices(|device| {
        for (v, d) in [(8, 4), (3, 5), (1, 33), (0, 4), (4, 0), (0, 0), (5, 1030)] {
            let (a, what) = (numbers(v * d), format!("{device}: {v}x{d}"));
            let table = Tensor::from_slice(device, &a, [v, d])?;
            let ids = Tensor::from_slice(device, &IDS, [IDS.len()])?;
            let of = |id: i32, j: usize| match usize::try_from(id) {
                Ok(id) if id < v => a[id * d + j],
                _ => f32::NAN,
            };
            same(&embedding(&table, &ids)?.to_vec()?, &grid(IDS.len(), d, |i, j| of(IDS[i], j)), &what);
            for id in IDS {
                let expected: Vec<f32> = (0..d).map(|j| of(id, j) * 2.0).collect();
                same(&of_one(&table, id)?.to_vec()?, &expected, &what);
            }
            let w = Tensor::from_slice(device, &numbers(d), [d])?;
            let squares = |i: usize| (0..d).map(|j| of(IDS[i], j).powi(2)).sum::<f32>() / d as f32;
            let norm = |i: usize, j: usize| of(IDS[i], j) / (squares(i) + 1e-6).sqrt() * numbers(d)[j];
            let normed = embedding_norm(&table, &ids.reshape([3, 3])?, &w)?;
            close(&normed.to_vec()?, &grid(IDS.len(), d, norm), &what);
            let few = Tensor::from_slice(device, &vec![2; v], [v])?;
            let expected: Vec<f32> = (0..v).map(|i| if d > 2 { a[i * d + 2] } else { f32::NAN }).collect();
            same(&gathered_in_column(&table, &few)?.to_vec()?, &expected, &what);
            let ids: Vec<u32> = (0..v * 3).map(|i| [0, d as u32, u32::MAX, 1][i % 4]).collect();
            let at = |i: usize, k: usize| match usize::try_from(ids[i * 3 + k]) {
                Ok(id) if id < d => a[i * d + id] * 2.0,
                _ => f32::NAN,
            };
            let got = along_rows(&table, &Tensor::from_slice(device, &ids, [v, 3])?)?;
            same(&got.to_vec()?, &grid(v, 3, at), &what);
        }
        Ok(())
    });
}

#[test]
fn taken_of_what_is_taken() {
    on_devices(|device| {
        for v in [0usize, 1, 3, 8, 130] {
            let a = numbers(v);
            let x = Tensor::from_slice(device, &a, [v])?;
            let ids = Tensor::from_slice(device, &IDS, [IDS.len()])?;
            let of = |id: i32| usize::try_from(id).ok().and_then(|id| a.get(id).copied()).unwrap_or(f32::NAN);
            let inner = |id: i32| usize::try_from(id).ok().and_then(|id| IDS.get(id).copied());
            let expected: Vec<f32> = IDS.iter().map(|&id| of(inner(id).unwrap_or(i32::MIN))).collect();
            same(&chained(&x, &ids, &ids)?.to_vec()?, &expected, &format!("{device}: {v}"));
            let backwards: Vec<f32> = IDS
                .iter()
                .map(|&id| if of(id).is_nan() { f32::NAN } else { a[v - 1 - id as usize] })
                .collect();
            same(&taken_backwards(&x, &ids)?.to_vec()?, &backwards, &format!("{device}: {v}"));
            let order: Vec<i32> = (0..v as i32).map(|i| (i * 7 + 2) % v.max(1) as i32).collect();
            let got = permuted(&x, &Tensor::from_slice(device, &order, [v])?)?;
            let expected: Vec<f32> = order.iter().zip(&a).map(|(&id, x)| of(id) + x).collect();
            same(&got.to_vec()?, &expected, &format!("{device}: {v}"));
            let whole: Vec<i32> = a.iter().map(|&x| x as i32 + 100).collect();
            let got = taken_integers(&Tensor::from_slice(device, &whole, [v])?, &ids)?;
            let at = |&id: &i32| usize::try_from(id).ok().and_then(|id| whole.get(id).copied()).unwrap_or(0);
            assert_eq!(got.to_vec()?, IDS.iter().map(at).collect::<Vec<_>>(), "{device}: {v}");
        }
        Ok(())
    });
}

#[test]
fn taken_within_rows() {
    on_devices(|device| {
        for (t, s) in [(3, 4), (2, 33), (1, 1030), (5, 1), (0, 3)] {
            let (a, bias) = (numbers(t * s), [0.5, -1.0, 2.0]);
            let ids: Vec<i32> = (0..t * s).map(|i| (i % 3) as i32).collect();
            let x = Tensor::from_slice(device, &a, [t, s])?;
            let biased = attention_bias(
                &x,
                &Tensor::from_slice(device, &bias, [3])?,
                &Tensor::from_slice(device, &ids, [t, s])?,
            )?;
            let e = |i: usize, j: usize| (a[i * s + j] + bias[(i * s + j) % 3] - 11.0).exp();
            let expected = grid(t, s, |i, j| e(i, j) / (0..s).map(|k| e(i, k)).sum::<f32>());
            close(&biased.to_vec()?, &expected, &format!("{device}: {t}x{s}"));
            let targets: Vec<i32> = (0..t).map(|i| if i == 1 { -100 } else { (i % s) as i32 }).collect();
            let got = likelihood(&x, &Tensor::from_slice(device, &targets, [t])?)?;
            let total = |i: usize| (0..s).map(|j| (a[i * s + j] - 11.0).exp()).sum::<f32>().ln() + 11.0;
            let of = |i: usize| if i == 1 { f32::NAN } else { total(i) - a[i * s + i % s] };
            close(&got.to_vec()?, &(0..t).map(of).collect::<Vec<_>>(), &format!("{device}: {t}x{s}"));
        }
        Ok(())
    });
}

#[test]
fn compositions() {
    on_devices(|device| {
        for (n, d) in [(2, 4), (3, 6), (5, 34), (4, 128), (2, 1030)] {
            let (a, what) = (numbers(n * d), format!("{device}: {n}x{d}"));
            let x = Tensor::from_slice(device, &a, [n, d])?;
            let (along, second) = ends(&x)?;
            same(&along.to_vec()?, &grid(n, 1, |i, _| a[i * d + d - 1] - a[i * d]), &what);
            same(&second.to_vec()?, &grid(d, 1, |j, _| a[d + j] * 2.0), &what);
            for h in [1, 2, d] {
                let k = d / h;
                let from = |j: usize| (h - 1 - j / k) * k + (j % k + k - 1) % k;
                let expected = grid(n, d, |i, j| a[i * d + from(j)]);
                same(&regrouped(&x, h)?.to_vec()?, &expected, &format!("{what} in {h}"));
            }
            let expected = grid(d, 1, |j, _| (0..n).map(|i| a[i * d + j] * a[(i + n - 1) % n * d + j]).sum());
            same(&correlation(&x)?.to_vec()?, &expected, &what);
            let table = numbers(d / 2 + 1);
            let count = |i: usize| a[i * d..][..d].iter().filter(|x| **x > 0.0).count();
            let of = |i: usize| table.get(count(i)).copied().unwrap_or(f32::NAN);
            let got = by_count(&x, &Tensor::from_slice(device, &table, [d / 2 + 1])?)?;
            same(&got.to_vec()?, &grid(n, d, |i, j| a[i * d + j] + of(i)), &what);
            let expected = grid(n, d - 1, |i, j| a[i * d + j + 1] - a[i * d + j]);
            same(&of_a_template(&x, d - 1)?.to_vec()?, &expected, &what);
        }
        for n in [1usize, 4, 33, 260] {
            let (a, what) = (numbers(n), format!("{device}: {n}"));
            let x = Tensor::from_slice(device, &a, [n])?;
            let expected = grid(n, n, |t, s| a[n - 1 - t] - a[n - 1 - s] * 2.0);
            same(&against_others(&x)?.to_vec()?, &expected, &what);
            let rolled: Vec<f32> = (0..n).map(|i| a[(i + 3 * n - 3) % n]).collect();
            let mut all: Vec<f32> = [&[1.0; 5], &*rolled].concat();
            all.reverse();
            all.extend(&a);
            let expected: Vec<f32> = all[..all.len() / 2].iter().map(|x| x + 0.5).collect();
            same(&many_steps(&x)?.to_vec()?, &expected, &what);
            let c = numbers(3 * n);
            let w = [2.0, -1.0, 3.0];
            let y = |i: usize, j: usize| c[i * 3 + (j + 2) % 3] * w[j];
            let x = Tensor::from_slice(device, &c, [n, 3])?;
            let (sums, rest) = channels(&x, &Tensor::from_slice(device, &w, [3])?)?;
            let expected = grid(n, 1, |i, _| y(i, 0) + y(i, 1) + y(i, 2) + c[i * 3 + 2]);
            same(&sums.to_vec()?, &expected, &what);
            let expected = grid(n, 3, |i, j| c[i * 3 + j] - y(i, 0).max(y(i, 1)).max(y(i, 2)));
            same(&rest.to_vec()?, &expected, &what);
        }
        Ok(())
    });
}

#[test]
fn parts_that_do_not_fit_are_errors() {
    let device = Device::cpu();
    let on = |shape: &[usize]| Tensor::<f32>::zeros(&device, shape.to_vec());
    let errors = [
        (
            middle(&on(&[2, 1]).unwrap(), &on(&[0]).unwrap()).err(),
            "`middle`: `1..D - 1` = 1..0 is no part of `D`, which is 0..1; `D` of 2 would fit",
        ),
        (
            middle(&on(&[2, 5]).unwrap(), &on(&[4]).unwrap()).err(),
            "`middle`: `slice` makes `K` of extent 3, which is `1..D - 1` = 1..4 of `D`, but it has 4 here: give what it makes a name of its own, or pass tensors that agree; `D` of 6 would fit",
        ),
        (
            rope(&on(&[2, 5]).unwrap(), &on(&[2, 2]).unwrap(), &on(&[2, 2]).unwrap()).err(),
            "`rope`: `slice` makes `H` of extent 3, which is `D/2..D` = 2..5 of `D`, but it has 2 here: give what it makes a name of its own, or pass tensors that agree; `D` of 4 would fit",
        ),
        (
            ends(&on(&[2, 0]).unwrap()).err(),
            "`ends`: the position `T - 1` = -1 is outside of `T`, which has 0 elements, from 0; `T` of 1 would fit",
        ),
        (
            ends(&on(&[1, 3]).unwrap()).err(),
            "`ends`: the position 1 is outside of `N`, which has 1 element, from 0; `N` of 2 would fit",
        ),
        (
            of_a_template(&on(&[2, 3]).unwrap(), 3).err(),
            "`of_a_template`: `slice` makes `S` of extent 2, which is `1..T` = 1..3 of `T`, but it has 3 here: give what it makes a name of its own, or pass tensors that agree; `T` of 4 would fit",
        ),
        (
            long(&on(&[1 << 31, 0]).unwrap()).err(),
            "`long`: `flip` along `N`, which has 2147483648 elements, computes with their places in `i32`: a dim that it goes along has at most 2147483647",
        ),
        (neighbours(&on(&[3]).unwrap()).err(), ""),
    ];
    for (error, expected) in errors {
        assert_eq!(error.map(|error| error.to_string()).unwrap_or_default(), expected);
    }
}

#[test]
fn one_kernel_each() {
    let kernels = [
        ("rope", rope::report().kernels()),
        ("embedding_norm", embedding_norm::report().kernels()),
        ("differences", differences::report().kernels()),
        ("attention_bias", attention_bias::report().kernels()),
        ("softmax_of_backwards", softmax_of_backwards::report().kernels()),
        ("joined_softmax", joined_softmax::report().kernels()),
        ("padded_sum", padded_sum::report().kernels()),
        ("chained", chained::report().kernels()),
        ("of_values", of_values::report().kernels()),
        ("twice", twice::report().kernels()),
        ("neighbours", neighbours::report().kernels()),
        ("roll_in_place", roll_in_place::report().kernels()),
    ];
    for (name, count) in kernels {
        assert_eq!(count, 1, "{name}");
    }
    // A kernel of its own computes a sum that other rows need.
    assert_eq!(next_mean::report().kernels(), 2);
}
