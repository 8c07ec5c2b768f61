//! Reductions of convolutions and products: kernels of tiles combine parts of rows.

use fusion::prelude::*;

use crate::devices::on_devices;
use crate::reference::{Random, numbers};

fuse! {
    /// The kernels read sums of parts instead of the convolution.
    pub(crate) fn batch_norm(
        x: f32[N, C, H, W], w: f32[O, C, KH = 3, KW = 3], g: f32[O], b: f32[O]
    ) -> f32[N, O, P, Q] {
        let y = conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1);
        let m = mean(y, (N, P, Q));
        let v = mean(y * y, (N, P, Q)) - m * m;
        relu((y - m) * rsqrt(v + 1e-5) * g + b)
    }
    /// The mean and the sum of squares of distances from the mean, which parts combine with their own means.
    pub(crate) fn moments(x: f32[N, C, H, W], w: f32[O, C, KH = 3, KW = 3]) -> (f32[O], f32[O], f32[N, O, P, Q]) {
        let y = conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1);
        let m = mean(y, (N, P, Q));
        (m, sum((y - m) * (y - m), (N, P, Q)), y)
    }
    /// One result for each image, of elements that are computed from the sums.
    pub(crate) fn of_images(
        x: f32[N, C, H, W], w: f32[O, C, KH = 3, KW = 3], r: f32[N, O, P, Q]
    ) -> (f32[N, O], f32[N, O], f32[N, O, P, Q]) {
        let y = tanh(conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1) + r);
        (sum(y, (P, Q)), max(y, (P, Q)), y)
    }
    /// The channels are innermost, so the rows of tiles are reduced.
    pub(crate) fn channels_last(
        x: f32[N, H, W, C], w: f32[KH = 3, KW = 3, C, O], g: f32[O], b: f32[O]
    ) -> f32[N, P, Q, O] {
        let y = conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1);
        let m = mean(y, (N, P, Q));
        let v = mean((y - m) * (y - m), (N, P, Q));
        relu((y - m) * rsqrt(v + 1e-5) * g + b)
    }
    /// Sums along the rows of a product, and along rows and the batch, of elements that another tensor changes.
    pub(crate) fn of_columns(
        a: f32[B, M, K], b: f32[K, N], r: f32[B, M, N]
    ) -> (f32[N], f32[N], f32[B, M, N]) {
        let y = sum(a * b, K) + r;
        (sum(y * r, (B, M)), max(y, (B, M)), y)
    }
    /// One result for each column of each product.
    pub(crate) fn of_batches(a: f32[B, M, K], b: f32[B, K, N]) -> (f32[B, N], f32[B, N], f32[B, M, N]) {
        let y = sum(a * b, K);
        (sum(y, M), sum(y * y, M), y)
    }
    /// Sums along the columns of a product.
    pub(crate) fn of_products(a: f32[B, M, K], b: f32[K, N]) -> (f32[B, M], f32[M], f32[B, M, N]) {
        let y = sum(a * b, K);
        (sum(y, N), max(y, (B, N)), y)
    }
    /// The largest of integers, which no other sum rounds.
    pub(crate) fn of_integers(a: i32[M, K], b: i32[K, N]) -> (i32[M], i32[M], i32[M, N]) {
        let y = sum(a * b, K);
        (sum(y, N), min(y, N), y)
    }
}

/// Extents of images, channels and sides: parts that are whole and others, vectors and others.
const EXTENTS: [[usize; 5]; 4] =
    [[3, 5, 40, 13, 11], [2, 3, 33, 23, 29], [1, 4, 64, 16, 16], [2, 9, 140, 8, 17]];

/// Returns the convolution in f64.
fn convolution([n, c, o, h, w]: [usize; 5], x: &[f32], k: &[f32]) -> Vec<f64> {
    let mut y = vec![0.0; n * o * h * w];
    for (i, y) in y.iter_mut().enumerate() {
        let [image, out, row, col] = crate::coordinates(i, [n, o, h, w]);
        for tap in 0..c * 9 {
            let [channel, kh, kw] = crate::coordinates(tap, [c, 3, 3]);
            if let (Some(above), Some(left)) = ((row + kh).checked_sub(1), (col + kw).checked_sub(1))
                && above < h
                && left < w
            {
                let at = ((image * c + channel) * h + above) * w + left;
                *y += f64::from(x[at]) * f64::from(k[out * c * 9 + tap]);
            }
        }
    }
    y
}

/// Compares numbers with these in f64, relative to a size of their terms.
fn close(device: &Device, what: &str, made: &[f32], expected: &[f64], size: f64) {
    assert_eq!(made.len(), expected.len());
    for (i, (&made, &expected)) in made.iter().zip(expected).enumerate() {
        let distance = (f64::from(made) - expected).abs();
        assert!(
            distance <= 2e-5 * (size + expected.abs()),
            "{device} {what}: element {i}: {made}, {expected}"
        );
    }
}

#[test]
fn statistics_of_batches() {
    on_devices(|device| {
        for (seed, extents) in EXTENTS.into_iter().enumerate() {
            let [n, c, o, h, w] = extents;
            let (x, k) = (numbers(seed, n * c * h * w), numbers(seed + 9, o * c * 9));
            let (scale, shift) = (numbers(seed + 1, o), numbers(seed + 2, o));
            let y = convolution(extents, &x, &k);
            let of = |channel: usize| {
                let y = &y;
                (0..n).flat_map(move |image| y[(image * o + channel) * h * w..][..h * w].iter().copied())
            };
            let count = (n * h * w) as f64;
            let means: Vec<f64> = (0..o).map(|channel| of(channel).sum::<f64>() / count).collect();
            let squares: Vec<f64> =
                (0..o).map(|i| of(i).map(|y| (y - means[i]) * (y - means[i])).sum::<f64>()).collect();
            let x = Tensor::from_slice(device, &x, [n, c, h, w])?;
            let k = Tensor::from_slice(device, &k, [o, c, 3, 3])?;
            let normalized: Vec<f64> = (0..y.len())
                .map(|i| {
                    let channel = i / (h * w) % o;
                    let unit = (y[i] - means[channel]) / (squares[channel] / count + 1e-5).sqrt();
                    (unit * f64::from(scale[channel]) + f64::from(shift[channel])).max(0.0)
                })
                .collect();
            let scale = Tensor::from_slice(device, &scale, [o])?;
            let shift = Tensor::from_slice(device, &shift, [o])?;
            let made = batch_norm(&x, &k, &scale, &shift)?;
            close(device, "normalized", &made.to_vec()?, &normalized, 1.0);
            let (mean, square, made) = moments(&x, &k)?;
            close(device, "convolution", &made.to_vec()?, &y, 1.0);
            close(device, "means", &mean.to_vec()?, &means, 1.0);
            close(device, "squares", &square.to_vec()?, &squares, 1.0);
            // The order of a sum is the same in each call.
            let again = batch_norm(&x, &k, &scale, &shift)?.to_vec()?;
            assert_eq!(again, batch_norm(&x, &k, &scale, &shift)?.to_vec()?);
        }
        Ok(())
    });
}

#[test]
fn reductions_of_images() {
    on_devices(|device| {
        for (seed, extents) in EXTENTS.into_iter().enumerate() {
            let [n, c, o, h, w] = extents;
            let (x, k) = (numbers(seed, n * c * h * w), numbers(seed + 9, o * c * 9));
            let r = numbers(seed + 5, n * o * h * w);
            let y = convolution(extents, &x, &k);
            let y: Vec<f64> = y.iter().zip(&r).map(|(y, r)| (y + f64::from(*r)).tanh()).collect();
            let rows = || y.chunks(h * w);
            let x = Tensor::from_slice(device, &x, [n, c, h, w])?;
            let k = Tensor::from_slice(device, &k, [o, c, 3, 3])?;
            let (sums, most, made) = of_images(&x, &k, &Tensor::from_slice(device, &r, [n, o, h, w])?)?;
            close(device, "elements", &made.to_vec()?, &y, 1.0);
            close(
                device,
                "sums",
                &sums.to_vec()?,
                &rows().map(|row| row.iter().sum()).collect::<Vec<f64>>(),
                1.0,
            );
            let expected: Vec<f64> = rows().map(|row| row.iter().copied().fold(f64::MIN, f64::max)).collect();
            close(device, "largest", &most.to_vec()?, &expected, 1.0);
        }
        Ok(())
    });
}

#[test]
fn reductions_of_products() {
    on_devices(|device| {
        let mut random = Random(3);
        for seed in 0..4 {
            let [b, m, k, n] = [2, 60, 50, 400].map(|most| most / 2 + random.below(most));
            let (x, y) = (numbers(seed, b * m * k), numbers(seed + 7, k * n));
            let product: Vec<f64> = (0..b * m * n)
                .map(|i| (0..k).map(|j| f64::from(x[i / n * k + j]) * f64::from(y[j * n + i % n])).sum())
                .collect();
            let tensors =
                (Tensor::from_slice(device, &x, [b, m, k])?, Tensor::from_slice(device, &y, [k, n])?);
            let (sums, most, made) = of_products(&tensors.0, &tensors.1)?;
            close(device, "product", &made.to_vec()?, &product, 1.0);
            let of_rows: Vec<f64> = product.chunks(n).map(|row| row.iter().sum()).collect();
            close(device, "sums", &sums.to_vec()?, &of_rows, 4.0);
            let largest = |row: usize| (0..b).flat_map(move |i| (0..n).map(move |j| (i * m + row) * n + j));
            let expected: Vec<f64> =
                (0..m).map(|row| largest(row).map(|i| product[i]).fold(f64::MIN, f64::max)).collect();
            close(device, "largest", &most.to_vec()?, &expected, 1.0);
            let whole = |of: &[f32]| of.iter().map(|x| (x * 1000.0) as i32).collect::<Vec<i32>>();
            let (x, y) = (whole(&x[..m * k]), whole(&y));
            let tensors = (Tensor::from_slice(device, &x, [m, k])?, Tensor::from_slice(device, &y, [k, n])?);
            let (sums, least, made) = of_integers(&tensors.0, &tensors.1)?;
            let made = made.to_vec()?;
            let of_rows: Vec<i32> =
                made.chunks(n).map(|row| row.iter().fold(0_i32, |sum, x| sum.wrapping_add(*x))).collect();
            assert_eq!(sums.to_vec()?, of_rows, "{device}");
            let expected: Vec<i32> = made.chunks(n).filter_map(|row| row.iter().copied().min()).collect();
            assert_eq!(least.to_vec()?, expected, "{device}");
        }
        Ok(())
    });
}

/// Returns a tensor with its second axis last.
fn channels_last_of(x: &[f32], [n, c, positions]: [usize; 3]) -> Vec<f32> {
    let at = |i: usize| (i / (positions * c) * c + i % c) * positions + i / c % positions;
    (0..n * c * positions).map(|i| x[at(i)]).collect()
}

#[test]
fn statistics_of_last_channels() {
    on_devices(|device| {
        for (seed, extents) in EXTENTS.into_iter().enumerate() {
            let [n, c, o, h, w] = extents;
            let (x, k) = (numbers(seed, n * c * h * w), numbers(seed + 9, o * c * 9));
            let (scale, shift) = (numbers(seed + 1, o), numbers(seed + 2, o));
            let y = convolution(extents, &x, &k);
            let count = (n * h * w) as f64;
            let of = |channel: usize| {
                let y = &y;
                (0..n).flat_map(move |image| y[(image * o + channel) * h * w..][..h * w].iter().copied())
            };
            let means: Vec<f64> = (0..o).map(|channel| of(channel).sum::<f64>() / count).collect();
            let variances: Vec<f64> =
                (0..o).map(|i| of(i).map(|y| (y - means[i]) * (y - means[i])).sum::<f64>() / count).collect();
            let expected: Vec<f64> = (0..y.len())
                .map(|i| {
                    let (channel, position) = (i % o, i / o);
                    let y = y[(position / (h * w) * o + channel) * h * w + position % (h * w)];
                    let unit = (y - means[channel]) / (variances[channel] + 1e-5).sqrt();
                    (unit * f64::from(scale[channel]) + f64::from(shift[channel])).max(0.0)
                })
                .collect();
            let x = Tensor::from_slice(device, &channels_last_of(&x, [n, c, h * w]), [n, h, w, c])?;
            let k: Vec<f32> = (0..k.len()).map(|i| k[i % o * c * 9 + i / o % c * 9 + i / (o * c)]).collect();
            let k = Tensor::from_slice(device, &k, [3, 3, c, o])?;
            let scale = Tensor::from_slice(device, &scale, [o])?;
            let shift = Tensor::from_slice(device, &shift, [o])?;
            let made = channels_last(&x, &k, &scale, &shift)?.to_vec()?;
            close(device, "normalized", &made, &expected, 1.0);
            // The order of a sum is the same in each call.
            assert_eq!(made, channels_last(&x, &k, &scale, &shift)?.to_vec()?);
        }
        Ok(())
    });
}

#[test]
fn reductions_of_columns() {
    on_devices(|device| {
        let mut random = Random(5);
        // Columns of one strip and of several, parts that are whole and others.
        for (seed, [b, m, n]) in
            [[1, 300, 40], [2, 97, 150], [3, 192, 64], [1, 200, 600]].into_iter().enumerate()
        {
            let k = 20 + random.below(60);
            let (x, y, r) =
                (numbers(seed, b * m * k), numbers(seed + 7, b * k * n), numbers(seed + 8, b * m * n));
            let product = |y: &[f32], own: usize| -> Vec<f64> {
                let term = |i: usize, j: usize| {
                    f64::from(x[i / n * k + j]) * f64::from(y[own * (i / (m * n)) + j * n + i % n])
                };
                (0..b * m * n).map(|i| (0..k).map(|j| term(i, j)).sum()).collect()
            };
            let a = Tensor::from_slice(device, &x, [b, m, k])?;
            let shared = Tensor::from_slice(device, &y[..k * n], [k, n])?;
            let (sums, most, made) = of_columns(&a, &shared, &Tensor::from_slice(device, &r, [b, m, n])?)?;
            let expected: Vec<f64> = product(&y, 0).iter().zip(&r).map(|(y, r)| y + f64::from(*r)).collect();
            close(device, "product", &made.to_vec()?, &expected, 1.0);
            let column = |col: usize| (0..b * m).map(move |row| row * n + col);
            let of: Vec<f64> =
                (0..n).map(|j| column(j).map(|i| expected[i] * f64::from(r[i])).sum()).collect();
            close(device, "sums", &sums.to_vec()?, &of, 8.0);
            let of: Vec<f64> =
                (0..n).map(|j| column(j).map(|i| expected[i]).fold(f64::MIN, f64::max)).collect();
            close(device, "largest", &most.to_vec()?, &of, 1.0);
            let (sums, squares, made) = of_batches(&a, &Tensor::from_slice(device, &y, [b, k, n])?)?;
            let expected = product(&y, k * n);
            close(device, "products", &made.to_vec()?, &expected, 1.0);
            let column = |i: usize| (0..m).map(move |row| (i / n * m + row) * n + i % n);
            let of: Vec<f64> = (0..b * n).map(|i| column(i).map(|at| expected[at]).sum()).collect();
            close(device, "sums of batches", &sums.to_vec()?, &of, 8.0);
            let of: Vec<f64> =
                (0..b * n).map(|i| column(i).map(|at| expected[at] * expected[at]).sum()).collect();
            close(device, "squares", &squares.to_vec()?, &of, 1.0);
        }
        Ok(())
    });
}
