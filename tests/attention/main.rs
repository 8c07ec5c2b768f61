//! Attention with any score function, against f64.

#[path = "../devices/mod.rs"]
mod devices;

use devices::on_devices;
use fusion::prelude::*;

fuse! {
    fn attend(scores, v, S: dim) { matmul(softmax(scores, S), v, S) }

    pub(crate) fn plain(q: f32[B, H, T, C], k: f32[B, H, S, C], v: f32[B, H, S, D]) -> f32[B, H, T, D] {
        attend(matmul(q, k, C) * rsqrt(C), v, S)
    }
    /// The logarithms of the sums are a second result. Heads are between queries and channels.
    pub(crate) fn causal(
        q: f32[B, T, H, C], k: f32[B, S, H, C], v: f32[B, S, H, D], ahead: i32
    ) -> (f32[B, T, H, D], f32[B, T, H]) {
        let s = if index(S) <= index(T) + ahead { matmul(q, k, C) } else { -INF };
        (attend(s, v, S), logsumexp(s, S))
    }
    /// Keys and values without heads, scores with a table, and a residual.
    pub(crate) fn biased(
        q: f32[H, T, C], k: f32[S, C], v: f32[S, D], bias: f32[T, S], r: f32[H, T, D]
    ) -> f32[H, T, D] {
        relu(attend(30.0 * tanh((matmul(q, k, C) + bias) / 30.0), v, S)) + r
    }
    /// Weights that are almost too small for floats, far from the query.
    pub(crate) fn sloped(q: f32[T, C], k: f32[S, C], v: f32[S, D]) -> f32[T, D] {
        let s = matmul(q, k, C) - 0.7 * abs(index(S) - index(T)) as f32;
        attend(s, v, S)
    }
    /// The dim of products of queries and keys is also the one of the results.
    pub(crate) fn of_one_dim(q: f32[H, T, D], k: f32[H, S, D], v: f32[H, S, D], g: f32[D]) -> f32[H, T, D] {
        attend(matmul(q * g, k, D), v, S) * g
    }
    /// Keys within a window and a length of each batch, shared by groups of queries.
    pub(crate) fn windowed(
        q: f32[B, G, T, C], k: f32[B, S, C], v: f32[B, S, D], len: i32[B], width: i32
    ) -> f32[B, G, T, D] {
        let ahead = index(S) - index(T);
        let is_seen = ahead <= 0 && ahead >= -width && index(S) < len;
        attend(if is_seen { matmul(q, k, C) } else { -INF }, v, S)
    }
    /// Rows that see no key are 0.
    pub(crate) fn masked(q: f32[T, C], k: f32[S, C], v: f32[S, D], len: i32) -> f32[T, D] {
        let is_seen = index(S) < len - index(T);
        matmul(masked_softmax(matmul(q, k, C), is_seen, S), v, S)
    }
    /// One query of each head.
    pub(crate) fn decoded(q: f32[H, C], k: f32[H, S, C], v: f32[H, S, D], len: i32) -> f32[H, D] {
        attend(if index(S) < len { matmul(q, k, C) } else { -INF }, v, S)
    }
    /// Weights that are no exponentials.
    pub(crate) fn gated(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]) -> f32[H, T, D] {
        matmul(sigmoid(matmul(q, k, C)), v, S)
    }
    /// Factors that are computed, one of them with transcendental operations.
    pub(crate) fn prepared(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D], a: f32[C]) -> f32[H, T, D] {
        attend(matmul(q * a + 0.5, tanh(k), C), v * 2.0 - 1.0, S)
    }
}

/// Extents: rows, keys, channels and columns of values.
const EXTENTS: [[usize; 4]; 7] = [
    [5, 7, 9, 3],
    [50, 256, 16, 40],
    [97, 300, 65, 64],
    [1, 600, 32, 1],
    [3, 1300, 24, 10],
    [130, 513, 8, 33],
    [12, 1, 300, 20],
];

/// Returns pseudo-random numbers from -1 to 1, the same for the same seed.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let number = |i: usize| {
        let bits = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed as u64 * 0x51ed_270b);
        ((bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(number).collect()
}

/// Returns results and logarithms of sums of one head in f64, with the score of each product.
fn expected(
    [rows, keys, depth, cols]: [usize; 4],
    [q, k, v]: [&dyn Fn(usize, usize) -> f64; 3],
    score: &dyn Fn(usize, usize, f64) -> f64,
) -> (Vec<f64>, Vec<f64>) {
    let (mut results, mut sums) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let product = |key: usize| (0..depth).map(|c| q(row, c) * k(key, c)).sum::<f64>();
        let scores: Vec<f64> = (0..keys).map(|key| score(row, key, product(key))).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let value = |col: usize| (0..keys).map(|key| weights[key] * v(key, col)).sum::<f64>() / sum;
        results.extend((0..cols).map(value));
        let is_masked = largest == f64::NEG_INFINITY;
        sums.push(if is_masked { largest } else { sum.ln() + largest });
    }
    (results, sums)
}

/// Compares numbers, where NaN is NaN.
fn close(device: &Device, what: &str, made: &[f32], expected: &[f64]) {
    assert_eq!(made.len(), expected.len(), "{device} {what}");
    for (i, (&made, &expected)) in made.iter().zip(expected).enumerate() {
        let made = f64::from(made);
        let is_same = made == expected || made.is_nan() && expected.is_nan();
        let is_close = (made - expected).abs() <= 3e-5 * (1.0 + expected.abs());
        assert!(is_same || is_close, "{device} {what}: element {i}: {made}, {expected}");
    }
}

/// Returns numbers as a tensor.
fn tensor(device: &Device, of: &[f32], shape: &[usize]) -> Result<Tensor<f32>> {
    Tensor::from_slice(device, of, shape)
}

#[test]
fn softmax_of_products() {
    on_devices(|device| {
        for (seed, [rows, keys, depth, cols]) in EXTENTS.into_iter().enumerate() {
            let heads = 3;
            let lens = [rows * depth, keys * depth, keys * cols].map(|len| 2 * heads * len);
            let [q, k, v] = [0, 1, 2].map(|i| numbers(10 * seed + i, lens[i]));
            let made = plain(
                &tensor(device, &q, &[2, heads, rows, depth])?,
                &tensor(device, &k, &[2, heads, keys, depth])?,
                &tensor(device, &v, &[2, heads, keys, cols])?,
            )?;
            let mut all = Vec::new();
            for head in 0..2 * heads {
                let at = |of: &[f32], row: usize, len: usize, col: usize, rows: usize| {
                    f64::from(of[(head * rows + row) * len + col])
                };
                let q = |row, c| at(&q, row, depth, c, rows);
                let k = |key, c| at(&k, key, depth, c, keys);
                let v = |key, col| at(&v, key, cols, col, keys);
                let scale = 1.0 / (depth as f64).sqrt();
                all.extend(expected([rows, keys, depth, cols], [&q, &k, &v], &|_, _, x| x * scale).0);
            }
            close(device, &format!("{rows} {keys} {depth} {cols}"), &made.to_vec()?, &all);
        }
        Ok(())
    });
}

/// Rows that see no key are NaN, and the logarithm of their sum is -INF.
#[test]
fn masks_and_logarithms_of_sums() {
    on_devices(|device| {
        for (seed, [rows, keys, depth, cols]) in EXTENTS.into_iter().enumerate() {
            for ahead in [0, -3, 250] {
                let lens = [rows * depth, keys * depth, keys * cols].map(|len| 2 * len);
                let [q, k, v] = [0, 1, 2].map(|i| numbers(10 * seed + i, lens[i]));
                let (made, sums) = causal(
                    &tensor(device, &q, &[1, rows, 2, depth])?,
                    &tensor(device, &k, &[1, keys, 2, depth])?,
                    &tensor(device, &v, &[1, keys, 2, cols])?,
                    ahead,
                )?;
                let (made, sums) = (made.to_vec()?, sums.to_vec()?);
                for head in 0..2 {
                    let at = |of: &[f32], row: usize, len: usize, col: usize| {
                        f64::from(of[(row * 2 + head) * len + col])
                    };
                    let q = |row, c| at(&q, row, depth, c);
                    let k = |key, c| at(&k, key, depth, c);
                    let v = |key, col| at(&v, key, cols, col);
                    let score = |row: usize, key: usize, x: f64| {
                        let is_seen = key as i64 <= row as i64 + i64::from(ahead);
                        if is_seen { x } else { f64::NEG_INFINITY }
                    };
                    let (results, logarithms) = expected([rows, keys, depth, cols], [&q, &k, &v], &score);
                    let own: Vec<f32> =
                        (0..rows * cols).map(|i| made[(i / cols * 2 + head) * cols + i % cols]).collect();
                    close(device, "results", &own, &results);
                    let own: Vec<f32> = (0..rows).map(|row| sums[row * 2 + head]).collect();
                    close(device, "logarithms", &own, &logarithms);
                }
            }
        }
        Ok(())
    });
}

#[test]
fn tables_and_residuals() {
    on_devices(|device| {
        for (seed, [rows, keys, depth, cols]) in EXTENTS.into_iter().enumerate() {
            let heads = 2;
            let lens = [heads * rows * depth, keys * depth, keys * cols, rows * keys, heads * rows * cols];
            let [q, k, v, bias, r] = [0, 1, 2, 3, 4].map(|i| numbers(10 * seed + i, lens[i]));
            let made = biased(
                &tensor(device, &q, &[heads, rows, depth])?,
                &tensor(device, &k, &[keys, depth])?,
                &tensor(device, &v, &[keys, cols])?,
                &tensor(device, &bias, &[rows, keys])?,
                &tensor(device, &r, &[heads, rows, cols])?,
            )?;
            let mut all = Vec::new();
            for head in 0..heads {
                let q = |row, c| f64::from(q[(head * rows + row) * depth + c]);
                let k = |key, c| f64::from(k[key * depth + c]);
                let v = |key, col| f64::from(v[key * cols + col]);
                let score = |row: usize, key: usize, x: f64| {
                    30.0 * ((x + f64::from(bias[row * keys + key])) / 30.0).tanh()
                };
                all.extend(expected([rows, keys, depth, cols], [&q, &k, &v], &score).0);
            }
            let all: Vec<f64> = all.iter().zip(&r).map(|(x, r)| x.max(0.0) + f64::from(*r)).collect();
            close(device, "results", &made.to_vec()?, &all);
        }
        Ok(())
    });
}

#[test]
fn rows_without_keys_are_zero() {
    on_devices(|device| {
        for (seed, [rows, keys, depth, cols]) in EXTENTS.into_iter().enumerate() {
            for len in [0, 5, 90, 900] {
                let [q, k, v] = [rows * depth, keys * depth, keys * cols].map(|len| numbers(seed + len, len));
                let made = masked(
                    &tensor(device, &q, &[rows, depth])?,
                    &tensor(device, &k, &[keys, depth])?,
                    &tensor(device, &v, &[keys, cols])?,
                    len,
                )?;
                let q = |row, c| f64::from(q[row * depth + c]);
                let k = |key, c| f64::from(k[key * depth + c]);
                let v = |key, col| f64::from(v[key * cols + col]);
                let score = |row: usize, key: usize, x: f64| {
                    if (key as i64) < i64::from(len) - row as i64 { x } else { f64::NEG_INFINITY }
                };
                let all = expected([rows, keys, depth, cols], [&q, &k, &v], &score).0;
                let all: Vec<f64> = all.into_iter().map(|x| if x.is_nan() { 0.0 } else { x }).collect();
                close(device, "results", &made.to_vec()?, &all);
            }
        }
        Ok(())
    });
}

#[test]
fn one_dim_of_queries_and_values() {
    on_devices(|device| {
        for (seed, [rows, keys, depth, heads]) in EXTENTS.into_iter().enumerate() {
            let heads = heads % 3 + 1;
            let sizes = [heads * rows * depth, heads * keys * depth, heads * keys * depth, depth];
            let [q, k, v, g] = [0, 1, 2, 3].map(|i| numbers(10 * seed + i, sizes[i]));
            let made = of_one_dim(
                &tensor(device, &q, &[heads, rows, depth])?,
                &tensor(device, &k, &[heads, keys, depth])?,
                &tensor(device, &v, &[heads, keys, depth])?,
                &tensor(device, &g, &[depth])?,
            )?;
            let mut all = Vec::new();
            for head in 0..heads {
                let q = |row, c: usize| f64::from(q[(head * rows + row) * depth + c]) * f64::from(g[c]);
                let k = |key, c| f64::from(k[(head * keys + key) * depth + c]);
                let v = |key, col: usize| f64::from(v[(head * keys + key) * depth + col]) * f64::from(g[col]);
                all.extend(expected([rows, keys, depth, depth], [&q, &k, &v], &|_, _, x| x).0);
            }
            close(device, &format!("{rows} {keys} {depth}"), &made.to_vec()?, &all);
        }
        Ok(())
    });
}

#[test]
fn windows_and_lengths() {
    on_devices(|device| {
        for (seed, [rows, keys, depth, cols]) in EXTENTS.into_iter().enumerate() {
            let groups = 3;
            let sizes = [2 * groups * rows * depth, 2 * keys * depth, 2 * keys * cols];
            let [q, k, v] = [0, 1, 2].map(|i| numbers(10 * seed + i, sizes[i]));
            let lens = [keys as i32 / 2, keys as i32 + 7];
            // A width that large makes sums of integers wrap.
            for width in [0, 40, 1 << 30] {
                let made = windowed(
                    &tensor(device, &q, &[2, groups, rows, depth])?,
                    &tensor(device, &k, &[2, keys, depth])?,
                    &tensor(device, &v, &[2, keys, cols])?,
                    &Tensor::from_slice(device, &lens, [2])?,
                    width,
                )?;
                let mut all = Vec::new();
                for product in 0..2 * groups {
                    let batch = product / groups;
                    let q = |row, c| f64::from(q[(product * rows + row) * depth + c]);
                    let k = |key, c| f64::from(k[(batch * keys + key) * depth + c]);
                    let v = |key, col| f64::from(v[(batch * keys + key) * cols + col]);
                    let score = |row: usize, key: usize, x: f64| {
                        let ahead = key as i32 - row as i32;
                        let is_seen = ahead <= 0 && ahead >= -width && (key as i32) < lens[batch];
                        if is_seen { x } else { f64::NEG_INFINITY }
                    };
                    all.extend(expected([rows, keys, depth, cols], [&q, &k, &v], &score).0);
                }
                close(device, &format!("{rows} {keys} {width}"), &made.to_vec()?, &all);
            }
        }
        Ok(())
    });
}

#[test]
fn small_weights() {
    on_devices(|device| {
        for (seed, [rows, keys, depth, cols]) in EXTENTS.into_iter().enumerate() {
            let [q, k, v] = [rows * depth, keys * depth, keys * cols].map(|len| numbers(seed + len, len));
            let made = sloped(
                &tensor(device, &q, &[rows, depth])?,
                &tensor(device, &k, &[keys, depth])?,
                &tensor(device, &v, &[keys, cols])?,
            )?;
            let q = |row, c| f64::from(q[row * depth + c]);
            let k = |key, c| f64::from(k[key * depth + c]);
            let v = |key, col| f64::from(v[key * cols + col]);
            let score = |row: usize, key: usize, x: f64| x - 0.7 * row.abs_diff(key) as f64;
            let all = expected([rows, keys, depth, cols], [&q, &k, &v], &score).0;
            close(device, "results", &made.to_vec()?, &all);
        }
        Ok(())
    });
}

#[test]
fn one_query_of_each_head() {
    on_devices(|device| {
        for (seed, [heads, keys, depth, cols]) in EXTENTS.into_iter().enumerate() {
            let sizes = [heads * depth, heads * keys * depth, heads * keys * cols];
            let [q, k, v] = [0, 1, 2].map(|i| numbers(10 * seed + i, sizes[i]));
            let len = keys * 3 / 4 + 1;
            let made = decoded(
                &tensor(device, &q, &[heads, depth])?,
                &tensor(device, &k, &[heads, keys, depth])?,
                &tensor(device, &v, &[heads, keys, cols])?,
                len as i32,
            )?;
            let of_head = |head: usize| {
                let q = |_, c| f64::from(q[head * depth + c]);
                let k = |key, c| f64::from(k[(head * keys + key) * depth + c]);
                let v = |key, col| f64::from(v[(head * keys + key) * cols + col]);
                let score = |_, key: usize, x: f64| if key < len { x } else { f64::NEG_INFINITY };
                expected([1, keys, depth, cols], [&q, &k, &v], &score).0
            };
            let all: Vec<f64> = (0..heads).flat_map(of_head).collect();
            close(device, &format!("{heads} {keys} {depth} {cols}"), &made.to_vec()?, &all);
        }
        Ok(())
    });
}

#[test]
fn weights_without_softmax_and_computed_factors() {
    on_devices(|device| {
        for (seed, [rows, keys, depth, cols]) in EXTENTS.into_iter().enumerate() {
            let heads = 2;
            let lens = [heads * rows * depth, heads * keys * depth, heads * keys * cols, depth];
            let [q, k, v, a] = [0, 1, 2, 3].map(|i| numbers(10 * seed + i, lens[i]));
            let tensors = (
                tensor(device, &q, &[heads, rows, depth])?,
                tensor(device, &k, &[heads, keys, depth])?,
                tensor(device, &v, &[heads, keys, cols])?,
            );
            let made = gated(&tensors.0, &tensors.1, &tensors.2)?.to_vec()?;
            let other = prepared(&tensors.0, &tensors.1, &tensors.2, &tensor(device, &a, &[depth])?)?;
            let (mut all, mut others) = (Vec::new(), Vec::new());
            for head in 0..heads {
                let q = |row: usize, c: usize| f64::from(q[(head * rows + row) * depth + c]);
                let k = |key: usize, c: usize| f64::from(k[(head * keys + key) * depth + c]);
                let v = |key: usize, col: usize| f64::from(v[(head * keys + key) * cols + col]);
                for (row, col) in (0..rows * cols).map(|i| (i / cols, i % cols)) {
                    let product = |key| (0..depth).map(|c| q(row, c) * k(key, c)).sum::<f64>();
                    all.push((0..keys).map(|key| v(key, col) / (1.0 + (-product(key)).exp())).sum::<f64>());
                }
                let q = |row, c: usize| q(row, c) * f64::from(a[c]) + 0.5;
                let (k, v) = (|key, c| k(key, c).tanh(), |key, col| v(key, col) * 2.0 - 1.0);
                others.extend(expected([rows, keys, depth, cols], [&q, &k, &v], &|_, _, x| x).0);
            }
            let size = (keys as f64).sqrt();
            let made: Vec<f32> = made.iter().map(|x| (f64::from(*x) / size) as f32).collect();
            let all: Vec<f64> = all.iter().map(|x| x / size).collect();
            close(device, "gated", &made, &all);
            close(device, "prepared", &other.to_vec()?, &others);
        }
        Ok(())
    });
}

/// Parts of the keys are combined in order, so the number of threads changes no bit.
#[test]
fn threads_do_not_change_a_bit() {
    let device = Device::cpu();
    let run = |threads: usize, rows: usize, keys: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
        pool.install(|| {
            let numbers = |seed, rows| numbers(seed, 3 * rows * 40);
            let [q, k, v] = [numbers(0, rows), numbers(1, keys), numbers(2, keys)];
            let [q, k, v] =
                [(q, rows), (k, keys), (v, keys)].map(|(of, rows)| tensor(&device, &of, &[1, 3, rows, 40]));
            plain(&q?, &k?, &v?)?.to_vec()
        })
    };
    // Threads share heads, boxes of rows, or groups of keys.
    for (rows, keys) in [(700, 700), (60, 3000), (2, 5000)] {
        let [one, two, seven] = [1, 2, 7].map(|threads| run(threads, rows, keys).expect("it runs"));
        assert!(one == two && one == seven, "{rows} {keys}");
    }
}

/// NaN of a query makes its row NaN, and NaN of a value its column of all rows.
#[test]
fn nan_is_not_lost() {
    on_devices(|device| {
        let [mut q, k, mut v] = [0, 1, 2].map(|seed| numbers(seed, 300 * 8));
        (q[17 * 8 + 2], v[290 * 8 + 5]) = (f32::NAN, f32::NAN);
        let [q, k, v] = [&q, &k, &v].map(|of| tensor(device, of, &[1, 1, 300, 8]));
        let made = plain(&q?, &k?, &v?)?.to_vec()?;
        for (i, x) in made.iter().enumerate() {
            assert_eq!(x.is_nan(), i / 8 == 17 || i % 8 == 5, "{device}: element {i}: {x}");
        }
        Ok(())
    });
}

/// No columns leave the results of rows, no channels give equal scores, and no keys sums of nothing.
#[test]
fn empty_dims() {
    on_devices(|device| {
        let sizes = |rows: usize, keys: usize, depth: usize, cols: usize| -> Result<[Vec<f32>; 2]> {
            let (made, sums) = causal(
                &tensor(device, &numbers(1, rows * depth), &[1, rows, 1, depth])?,
                &tensor(device, &numbers(2, keys * depth), &[1, keys, 1, depth])?,
                &tensor(device, &numbers(3, keys * cols), &[1, keys, 1, cols])?,
                1000,
            )?;
            Ok([made.to_vec()?, sums.to_vec()?])
        };
        let lens = |[made, sums]: [Vec<f32>; 2]| (made.len(), sums.len());
        assert_eq!(lens(sizes(0, 9, 4, 3)?), (0, 0), "{device}");
        let [none, sums] = sizes(5, 9, 4, 0)?;
        let [_, others] = sizes(5, 9, 4, 2)?;
        assert_eq!((none.len(), sums), (0, others), "{device}");
        let [_, sums] = sizes(5, 9, 0, 2)?;
        assert!(sums.iter().all(|sum| (sum - 9_f32.ln()).abs() < 1e-6), "{device}: {sums:?}");
        let [q, k, v] =
            [(5, 4), (0, 4), (0, 2)].map(|(rows, cols)| (numbers(1, rows * cols), [1, rows, cols]));
        let made =
            gated(&tensor(device, &q.0, &q.1)?, &tensor(device, &k.0, &k.1)?, &tensor(device, &v.0, &v.1)?)?;
        assert_eq!(made.to_vec()?, [0.0; 10], "{device}");
        let shapes = [[1, 1, 5, 4], [1, 1, 0, 4], [1, 1, 0, 2]];
        let made = plain(
            &tensor(device, &q.0, &shapes[0])?,
            &tensor(device, &k.0, &shapes[1])?,
            &tensor(device, &v.0, &shapes[2])?,
        )?;
        assert_eq!(made.to_vec()?, [0.0; 10], "{device}");
        Ok(())
    });
}
