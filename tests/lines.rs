//! Short innermost dims agree with plain loops on every device. The CPU collapses rows that are too short for
//! a loop each into one vector loop.
//!
//! The extents are those where one schedule ends and the next begins. Some launches cut a line within a row.

mod devices;

use devices::on_devices;
use fusion::f16;
use fusion::prelude::*;

fuse! {
    pub(crate) fn normalised(x: f32[H, W, C], m: f32[C], s: f32[C]) -> f32[H, W, C] { (x - m) * (s + 1.0) }
    pub(crate) fn scaled(x: f32[N, C], s: f32[N], b: f32[C]) -> f32[N, C] { x * s + b }
    /// A costly value is computed once for each row.
    pub(crate) fn softened(x: f32[N, C], s: f32[N]) -> f32[N, C] { x * exp2(s) }
    pub(crate) fn outer(a: f32[N], b: f32[C]) -> f32[N, C] { a * b }
    pub(crate) fn places(_x: f32[N, C]) -> i32[N, C] { index(N) * 1000 + index(C) }
    pub(crate) fn placed(x: f32[H, W, C]) -> f32[H, W, C] {
        x + (index(H) * 10_000 + index(W) * 100 + index(C)) as f32
    }
    pub(crate) fn steps(x: f32[H, W, C]) -> f32[H, V, C] {
        slice(x, W -> V, 1..) - slice(x, W -> V, ..W - 1)
    }
    pub(crate) fn steps_down(x: f32[H, W, C]) -> f32[G, W, C] {
        slice(x, H -> G, 1..) - slice(x, H -> G, ..H - 1)
    }
    pub(crate) fn steps_within(x: f32[H, W, C], m: f32[C]) -> f32[H, W, B] {
        slice(x * m, C -> B, 1..) - slice(x, C -> B, ..C - 1)
    }
    pub(crate) fn neighbours(x: f32[H, W, C]) -> f32[H, W, C] {
        let wide = pad(x, W -> P, 1, 1);
        slice(wide, P -> W, ..P - 2) + 10.0 * x + 100.0 * slice(wide, P -> W, 2..)
    }
    pub(crate) fn mirrored(x: f32[H, W, C]) -> (f32[H, W, C], f32[H, W, C]) { (flip(x, W), flip(x, C)) }
    pub(crate) fn rolled(x: f32[N, C], by: i32) -> f32[N, C] { roll(x, C, by) + roll(x, N, 1) }
    pub(crate) fn channels_last(x: f32[C, H, W]) -> f32[H, W, C] { x }
    pub(crate) fn swapped(x: f32[W, H, C]) -> f32[H, W, C] { x * 2.0 }
    pub(crate) fn gathered(table: f32[V, C], ids: i32[N], w: f32[C]) -> f32[N, C] { take(table, V, ids) + w }
    pub(crate) fn permuted(x: f32[N, C], order: i32[C]) -> f32[N, C] { take(x, C, order) }
    pub(crate) fn several(x: f32[N, C], s: f32[N], b: f32[C]) -> (f32[N, C], bool[N, C], i32[N, C]) {
        (x + s, x > b, x as i32 + index(N))
    }
    pub(crate) fn shifted(x: &mut f32[N, C], b: f32[C]) { x += b; }
    pub(crate) fn narrow(x: u8[C, N], s: f16[C], b: f16[N]) -> (f16[N, C], u8[N, C]) { (x as f32 * s - b, x) }
    /// Fixed dims that are unrolled, read at other places.
    pub(crate) fn blurred(x: f32[H, W], k: f32[K = 5]) -> f32[H, W] {
        sum(take(pad(x, W -> P, 2, 2), P, index(W) + index(K)) * k, K)
    }
    pub(crate) fn depthwise(x: f32[W, C], k: f32[K = 3, C]) -> f32[V, C] {
        let y = slice(x, W -> V, ..W - 2);
        sum(take(x, W, index(V) + index(K)) * k, K) + 0.0 * y
    }
    pub(crate) fn crossed(x: f32[H, W, C = 3], s: f32[W]) -> f32[H, W] { sum(roll(x, C, 1) * x, C) * s }
    pub(crate) fn linear(x: f32[N, K = 4], w: f32[K, C]) -> f32[N, C] { sum(x * w, K) }
    pub(crate) fn bag(table: f32[V, C], ids: i32[N, K = 2]) -> f32[N, C] { sum(take(table, V, ids), K) }
    pub(crate) fn chained(x: f32[V, C], a: i32[W], b: i32[N]) -> f32[N, C] { take(take(x, V, a), W, b) }
    pub(crate) fn wide(x: f64[N, C], s: f64[N], keep: bool[N]) -> f64[N, C] { if keep { x * s } else { 0.0 } }
    pub(crate) fn by_turns(x: f32[N, C], W: dim) -> f32[N, C] { x + (index(N) % W) as f32 }
    pub(crate) fn fixed(x: f32[N, C = 3], m: f32[C], s: f32[N]) -> f32[N, C] { x * s - m }
}

/// Returns whole numbers, so that results are exact.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 37 % 23) as f32 - 11.0).collect()
}

/// Builds a tensor of three dims from the value at each place.
fn cube<T>([h, w, c]: [usize; 3], at: impl Fn(usize, usize, usize) -> T) -> Vec<T> {
    (0..h * w * c).map(|i| at(i / c / w, i / c % w, i % c)).collect()
}

fn grid<T>([n, c]: [usize; 2], at: impl Fn(usize, usize) -> T) -> Vec<T> {
    (0..n * c).map(|i| at(i / c, i % c)).collect()
}

/// Extents of three dims. An item is 512 elements of the last two dims.
const CUBES: [[usize; 3]; 13] = [
    [1, 1, 1],
    [2, 3, 1],
    [2, 1500, 1],
    [3, 5, 2],
    [2, 700, 3],
    [4, 171, 3],
    [3, 41, 31],
    [2, 33, 32],
    [2, 65, 63],
    [2, 17, 64],
    [2, 5, 130],
    [2, 0, 3],
    [2, 3, 0],
];

/// Extents of two dims.
const GRIDS: [[usize; 2]; 12] = [
    [1, 1],
    [3, 1],
    [2000, 1],
    [257, 2],
    [1000, 3],
    [100, 31],
    [33, 32],
    [50, 63],
    [20, 64],
    [3, 600],
    [0, 3],
    [3, 0],
];

#[test]
fn values_of_channels_come_again_with_every_row() {
    on_devices(|device| {
        for shape @ [h, w, c] in CUBES {
            let (x, m, s) = (numbers(h * w * c), numbers(c), numbers(c + 1)[1..].to_vec());
            let [mt, st] = [&m, &s].map(|x| Tensor::from_slice(device, x, [c]));
            let got = normalised(&Tensor::from_slice(device, &x, shape)?, &mt?, &st?)?;
            let expected = cube(shape, |i, j, k| (x[(i * w + j) * c + k] - m[k]) * (s[k] + 1.0));
            assert_eq!(got.to_vec()?, expected, "{shape:?} on {device}");
            let got = placed(&Tensor::from_slice(device, &x, shape)?)?;
            let place = |i: usize, j: usize, k: usize| (i * 10_000 + j * 100 + k) as f32;
            let expected = cube(shape, |i, j, k| x[(i * w + j) * c + k] + place(i, j, k));
            assert_eq!(got.to_vec()?, expected, "places of {shape:?} on {device}");
        }
        Ok(())
    });
}

#[test]
fn values_of_rows_are_those_of_each_element() {
    on_devices(|device| {
        for shape @ [n, c] in GRIDS {
            let (x, s, b) = (numbers(n * c), numbers(n + 3)[3..].to_vec(), numbers(c));
            let xt = Tensor::from_slice(device, &x, shape)?;
            let (st, bt) = (Tensor::from_slice(device, &s, [n])?, Tensor::from_slice(device, &b, [c])?);
            let what = format!("{shape:?} on {device}");
            let at = |i: usize, j: usize| x[i * c + j];
            assert_eq!(
                scaled(&xt, &st, &bt)?.to_vec()?,
                grid(shape, |i, j| at(i, j) * s[i] + b[j]),
                "{what}"
            );
            assert_eq!(softened(&xt, &st)?.to_vec()?, grid(shape, |i, j| at(i, j) * s[i].exp2()), "{what}");
            assert_eq!(outer(&st, &bt)?.to_vec()?, grid(shape, |i, j| s[i] * b[j]), "{what}");
            let (sums, larger, integers) = several(&xt, &st, &bt)?;
            assert_eq!(sums.to_vec()?, grid(shape, |i, j| at(i, j) + s[i]), "{what}");
            assert_eq!(larger.to_vec()?, grid(shape, |i, j| at(i, j) > b[j]), "{what}");
            assert_eq!(integers.to_vec()?, grid(shape, |i, j| at(i, j) as i32 + i as i32), "{what}");
            let mut xt = xt;
            shifted(&mut xt, &bt)?;
            assert_eq!(xt.to_vec()?, grid(shape, |i, j| at(i, j) + b[j]), "{what}");
            let got = places(&xt)?.to_vec()?;
            assert_eq!(got, grid(shape, |i, j| (i * 1000 + j) as i32), "{what}");
        }
        Ok(())
    });
}

#[test]
fn neighbours_lie_on_the_line() {
    on_devices(|device| {
        for shape @ [h, w, c] in CUBES {
            let (x, m) = (numbers(h * w * c), numbers(c));
            let (xt, mt) = (Tensor::from_slice(device, &x, shape)?, Tensor::from_slice(device, &m, [c])?);
            let at = |i: usize, j: usize, k: usize| x[(i * w + j) * c + k];
            let what = format!("{shape:?} on {device}");
            if w > 0 {
                let expected = cube([h, w - 1, c], |i, j, k| at(i, j + 1, k) - at(i, j, k));
                assert_eq!(steps(&xt)?.to_vec()?, expected, "{what}");
            }
            let expected = cube([h - 1, w, c], |i, j, k| at(i + 1, j, k) - at(i, j, k));
            assert_eq!(steps_down(&xt)?.to_vec()?, expected, "{what}");
            if c > 0 {
                let expected = cube([h, w, c - 1], |i, j, k| at(i, j, k + 1) * m[k + 1] - at(i, j, k));
                assert_eq!(steps_within(&xt, &mt)?.to_vec()?, expected, "{what}");
            }
            let or_zero = |i, j: Option<usize>, k| j.filter(|&j| j < w).map_or(0.0, |j| at(i, j, k));
            let expected = cube(shape, |i, j, k| {
                or_zero(i, j.checked_sub(1), k) + 10.0 * at(i, j, k) + 100.0 * or_zero(i, Some(j + 1), k)
            });
            assert_eq!(neighbours(&xt)?.to_vec()?, expected, "{what}");
            let (rows, channels) = mirrored(&xt)?;
            assert_eq!(rows.to_vec()?, cube(shape, |i, j, k| at(i, w - 1 - j, k)), "{what}");
            assert_eq!(channels.to_vec()?, cube(shape, |i, j, k| at(i, j, c - 1 - k)), "{what}");
        }
        Ok(())
    });
}

#[test]
fn other_orders_are_read_across() {
    on_devices(|device| {
        for shape @ [h, w, c] in CUBES {
            let x = numbers(h * w * c);
            let what = format!("{shape:?} on {device}");
            let got = channels_last(&Tensor::from_slice(device, &x, [c, h, w])?)?;
            assert_eq!(got.to_vec()?, cube(shape, |i, j, k| x[(k * h + i) * w + j]), "{what}");
            let got = swapped(&Tensor::from_slice(device, &x, [w, h, c])?)?;
            assert_eq!(got.to_vec()?, cube(shape, |i, j, k| x[(j * h + i) * c + k] * 2.0), "{what}");
        }
        for shape @ [n, c] in GRIDS {
            let what = format!("{shape:?} on {device}");
            let x: Vec<u8> = (0..n * c).map(|i| (i * 29 % 200) as u8).collect();
            let halves = |x: Vec<f32>| x.into_iter().map(f16::from_f32).collect::<Vec<_>>();
            let (s, b) = (halves(numbers(c)), halves(numbers(n)));
            let (st, bt) = (Tensor::from_slice(device, &s, [c])?, Tensor::from_slice(device, &b, [n])?);
            let (scaled, same) = narrow(&Tensor::from_slice(device, &x, [c, n])?, &st, &bt)?;
            let number = |i: usize, j: usize| f32::from(x[j * n + i]) * f32::from(s[j]) - f32::from(b[i]);
            assert_eq!(scaled.to_vec()?, grid(shape, |i, j| f16::from_f32(number(i, j))), "{what}");
            assert_eq!(same.to_vec()?, grid(shape, |i, j| x[j * n + i]), "{what}");
        }
        Ok(())
    });
}

#[test]
fn what_says_where_varies_along_rows_or_within_them() {
    on_devices(|device| {
        for shape @ [n, c] in GRIDS {
            let what = format!("{shape:?} on {device}");
            let (x, w) = (numbers(n * c), numbers(c));
            let at = |i: usize, j: usize| x[i * c + j];
            let (xt, wt) = (Tensor::from_slice(device, &x, shape)?, Tensor::from_slice(device, &w, [c])?);
            let got = rolled(&xt, 2)?.to_vec()?;
            let before = |i: usize, by: usize, len: usize| (i + len * by - by) % len;
            let expected = grid(shape, |i, j| at(i, before(j, 2, c)) + at(before(i, 1, n), j));
            assert_eq!(got, expected, "{what}");
            let order: Vec<i32> = (0..c as i32).rev().collect();
            let got = permuted(&xt, &Tensor::from_slice(device, &order, [c])?)?;
            assert_eq!(got.to_vec()?, grid(shape, |i, j| at(i, c - 1 - j)), "{what}");
            if n > 0 {
                let ids: Vec<i32> = (0..n + 5).map(|i| (i * 7 % n) as i32).collect();
                let got = gathered(&xt, &Tensor::from_slice(device, &ids, [n + 5])?, &wt)?;
                assert_eq!(got.to_vec()?, grid([n + 5, c], |i, j| at(ids[i] as usize, j) + w[j]), "{what}");
            }
        }
        for n in [0, 1, 100, 171, 1000] {
            let (x, m, s) = (numbers(n * 3), numbers(3), numbers(n));
            let (xt, mt) = (Tensor::from_slice(device, &x, [n, 3])?, Tensor::from_slice(device, &m, [3])?);
            let got = fixed(&xt, &mt, &Tensor::from_slice(device, &s, [n])?)?;
            assert_eq!(got.to_vec()?, grid([n, 3], |i, j| x[i * 3 + j] * s[i] - m[j]), "{n} on {device}");
        }
        Ok(())
    });
}

#[test]
fn fixed_dims_are_written_out() {
    on_devices(|device| {
        for shape @ [h, w] in GRIDS {
            let what = format!("{shape:?} on {device}");
            let (x, k, s) = (numbers(h * w), numbers(5), numbers(w));
            let (xt, kt) = (Tensor::from_slice(device, &x, shape)?, Tensor::from_slice(device, &k, [5])?);
            let at = |i: usize, j: usize| {
                if (2..w + 2).contains(&j) { x[i * w + j - 2] } else { 0.0 }
            };
            let expected = grid(shape, |i, j| (0..5).map(|d| at(i, j + d) * k[d]).sum::<f32>());
            assert_eq!(blurred(&xt, &kt)?.to_vec()?, expected, "{what}");
            if h >= 2 {
                let k = numbers(3 * w);
                let got = depthwise(&xt, &Tensor::from_slice(device, &k, [3, w])?)?;
                let at = |i: usize, j: usize, d: usize| x[(i + d) * w + j] * k[d * w + j];
                let expected = grid([h - 2, w], |i, j| (0..3).map(|d| at(i, j, d)).sum::<f32>());
                assert_eq!(got.to_vec()?, expected, "{what}");
            }
            let colours = numbers(h * w * 3);
            let st = Tensor::from_slice(device, &s, [w])?;
            let got = crossed(&Tensor::from_slice(device, &colours, [h, w, 3])?, &st)?;
            let at = |i: usize, j: usize, c: usize| colours[(i * w + j) * 3 + c % 3];
            let expected = |i, j| (0..3).map(|c| at(i, j, c + 2) * at(i, j, c)).sum::<f32>() * s[j];
            assert_eq!(got.to_vec()?, grid(shape, expected), "{what}");
        }
        for shape @ [n, c] in GRIDS {
            let what = format!("{shape:?} on {device}");
            let (x, w) = (numbers(n * 4), numbers(4 * c));
            let got =
                linear(&Tensor::from_slice(device, &x, [n, 4])?, &Tensor::from_slice(device, &w, [4, c])?)?;
            let expected = grid(shape, |i, j| (0..4).map(|k| x[i * 4 + k] * w[k * c + j]).sum::<f32>());
            assert_eq!(got.to_vec()?, expected, "{what}");
            let table = Tensor::from_slice(device, &numbers(7 * c), [7, c])?;
            let of = |id: i32, j: usize| numbers(7 * c)[id as usize * c + j];
            let ids: Vec<i32> = (0..n as i32 * 2).map(|i| i * 5 % 7).collect();
            let got = bag(&table, &Tensor::from_slice(device, &ids, [n, 2])?)?;
            assert_eq!(
                got.to_vec()?,
                grid(shape, |i, j| of(ids[2 * i], j) + of(ids[2 * i + 1], j)),
                "{what}"
            );
            let a = [6, 0, 3];
            let b: Vec<i32> = (0..n as i32).map(|i| i % 3).collect();
            let got = chained(
                &table,
                &Tensor::from_slice(device, &a, [3])?,
                &Tensor::from_slice(device, &b, [n])?,
            )?;
            assert_eq!(got.to_vec()?, grid(shape, |i, j| of(a[b[i] as usize], j)), "{what}");
            let x = Tensor::from_slice(device, &numbers(n * c), shape)?;
            let expected = grid(shape, |i, j| numbers(n * c)[i * c + j] + (i % 7) as f32);
            assert_eq!(by_turns(&x, 7)?.to_vec()?, expected, "{what}");
        }
        Ok(())
    });
}

#[test]
fn wide_and_narrow_values_of_rows() {
    for (_, device) in devices::devices() {
        for shape @ [n, c] in GRIDS {
            let doubles = |count| numbers(count).into_iter().map(f64::from).collect::<Vec<_>>();
            let (x, s, keep) = (doubles(n * c), doubles(n), (0..n).map(|i| i % 3 > 0).collect::<Vec<_>>());
            let of = || -> Result<Vec<f64>> {
                let (x, s) = (Tensor::from_slice(&device, &x, shape)?, Tensor::from_slice(&device, &s, [n])?);
                wide(&x, &s, &Tensor::from_slice(&device, &keep, [n])?)?.to_vec()
            };
            match of() {
                Err(Error::Unsupported { .. }) => {}
                got => {
                    let expected = grid(shape, |i, j| if keep[i] { x[i * c + j] * s[i] } else { 0.0 });
                    assert_eq!(got.expect("it runs"), expected, "{shape:?} on {device}");
                }
            }
        }
    }
}
