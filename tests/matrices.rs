//! Products of 16-bit floats, and of `f32` with `fast_math`, which NVIDIA GPUs multiply as matrices: sums of small
//! integers, exact in any order.

mod devices;

use devices::{devices, exact_devices};
use fusion::prelude::*;
use fusion::{bf16, f16};

fuse! {
    pub(crate) fn nt(x: f16[M, K], w: f16[N, K], b: f32[N]) -> f16[M, N] { (matmul(x, w, K) + b) as f16 }
    pub(crate) fn nn(x: bf16[M, K], w: bf16[K, N]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn tn(x: f16[K, M], w: f16[K, N], r: f32[N, M]) -> (f32[M, N], f32[M, N]) {
        let y = matmul(x, w, K);
        (y, tanh(y) + r * y)
    }
    pub(crate) fn tt(x: bf16[B, K, M], w: bf16[B, N, K]) -> f32[M, B, N] { max(matmul(x, w, K), 0.0) }
    pub(crate) fn rounded(x: bf16[M, K], w: bf16[K, N], r: f32[M, N]) -> bf16[M, N] { (matmul(x, w, K) + r) as bf16 }
    fn each_x(x: f16[M, K], _z: f32[B]) -> f16[B, M, K] { x }
    fn each_w(w: f16[N, K], _z: f32[B]) -> f16[B, N, K] { w }
    pub(crate) fn broadcast(x: f16[M, K], w: f16[N, K], z: f32[B]) -> f32[B, M, N] {
        matmul(each_x(x, z), each_w(w, z), K) * z
    }
    #[fuse(fast_math)]
    pub(crate) fn fast_nt(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { max(matmul(x, w, K) + b, 0.0) }
    #[fuse(fast_math)]
    pub(crate) fn fast_nn(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { matmul(x, w, K) }
    #[fuse(fast_math)]
    pub(crate) fn fast_tn(x: f32[K, M], w: f32[K, N], r: f32[N, M]) -> f32[M, N] { matmul(x, w, K) + r }
    #[fuse(fast_math)]
    pub(crate) fn fast_tt(x: f32[B, K, M], w: f32[B, N, K]) -> f32[B, M, N] { matmul(x, w, K) }
    pub(crate) fn two_axes(x: f16[M, J, K], w: f16[J, N, K]) -> f32[M, N] { sum(x * w, (J, K)) }
}

/// Returns pseudo-random integers from -2 to 2, the same for the same seed.
fn integers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = seed as u32 ^ 0x9e37_79b9;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as f32 % 5.0 - 2.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// A matrix, or several of them.
struct Numbers(Vec<f32>);

impl Numbers {
    fn f16<const N: usize>(&self, device: &Device, shape: [usize; N]) -> Result<Tensor<f16>> {
        let elements: Vec<f16> = self.0.iter().map(|&x| f16::from_f32(x)).collect();
        Tensor::from_slice(device, &elements, shape)
    }

    fn bf16<const N: usize>(&self, device: &Device, shape: [usize; N]) -> Result<Tensor<bf16>> {
        let elements: Vec<bf16> = self.0.iter().map(|&x| bf16::from_f32(x)).collect();
        Tensor::from_slice(device, &elements, shape)
    }
}

/// Returns the product of `x` and `w`, by offsets of their rows and columns and strides of the depth.
fn product(
    [x, w]: [&Numbers; 2],
    (m, k, n): (usize, usize, usize),
    of_x: impl Fn(usize, usize) -> usize,
    of_w: impl Fn(usize, usize) -> usize,
) -> Vec<f32> {
    let sum = |row, col| (0..k).map(|step| x.0[of_x(row, step)] * w.0[of_w(step, col)]).sum();
    (0..m).flat_map(|row| (0..n).map(move |col| (row, col))).map(|(row, col)| sum(row, col)).collect()
}

/// Extents of rows, depth and columns: tiles with edges in each direction, one that lacks whole vectors, and depths of
/// several parts.
const SIZES: [(usize, usize, usize); 8] = [
    (64, 32, 64),
    (72, 40, 136),
    (200, 104, 72),
    (40, 8, 48),
    (128, 264, 64),
    (33, 21, 35),
    (40, 2056, 72),
    (36, 3072, 40),
];

#[test]
fn matrices_of_any_layout_are_multiplied() -> Result<()> {
    for (_, device) in devices() {
        let device = &device;
        for (m, k, n) in SIZES {
            let at = format!("{device} {m} {k} {n}");
            let (x, w) = (Numbers(integers(1, m * k)), Numbers(integers(2, k * n)));
            let b = Numbers(integers(3, n));
            let bias = Tensor::from_slice(device, &b.0, [n])?;
            let expected =
                product([&x, &w], (m, k, n), |row, step| row * k + step, |step, col| col * k + step);
            let made = nt(&x.f16(device, [m, k])?, &w.f16(device, [n, k])?, &bias)?.to_vec()?;
            let is_right = |(i, (made, sum)): (usize, (&f16, &f32))| made.to_f32() == sum + b.0[i % n];
            assert!(made.iter().zip(&expected).enumerate().all(is_right), "{at} NT");

            let expected =
                product([&x, &w], (m, k, n), |row, step| row * k + step, |step, col| step * n + col);
            assert!(nn(&x.bf16(device, [m, k])?, &w.bf16(device, [k, n])?)?.to_vec()? == expected, "{at} NN");

            let r = integers(4, m * n);
            let (first, second) = tn(
                &x.f16(device, [k, m])?,
                &w.f16(device, [k, n])?,
                &Tensor::from_slice(device, &r, [n, m])?,
            )?;
            let expected =
                product([&x, &w], (m, k, n), |row, step| step * m + row, |step, col| step * n + col);
            assert!(first.to_vec()? == expected, "{at} TN");
            for (i, made) in second.to_vec()?.into_iter().enumerate() {
                let (y, r) = (f64::from(expected[i]), f64::from(r[i % n * m + i / n]));
                assert!(
                    (f64::from(made) - (y.tanh() + r * y)).abs() < 1e-4 * (1.0 + y.abs()),
                    "{at} TN, {i}"
                );
            }

            let batch = [Numbers(integers(5, 3 * m * k)), Numbers(integers(6, 3 * k * n))];
            let made =
                tt(&batch[0].bf16(device, [3, k, m])?, &batch[1].bf16(device, [3, n, k])?)?.to_vec()?;
            for b in 0..3 {
                let expected = product(
                    [&batch[0], &batch[1]],
                    (m, k, n),
                    |row, step| (b * k + step) * m + row,
                    |step, col| (b * n + col) * k + step,
                );
                let is_right = |i: usize| made[(i / n * 3 + b) * n + i % n] == expected[i].max(0.0);
                assert!((0..m * n).all(is_right), "{at} TT {b}");
            }
        }
    }
    Ok(())
}

/// The first kernel of each layout multiplies matrices, so the other tests run it.
#[cfg(feature = "cuda")]
#[test]
fn first_kernels_are_of_matrices() {
    for (name, text, shape) in [
        ("NT", nt::PTX, "m16n8k16"),
        ("NN", nn::PTX, "m16n8k16"),
        ("TN", tn::PTX, "m16n8k16"),
        ("TT", tt::PTX, "m16n8k16"),
        ("NT of f32", fast_nt::PTX, "m16n8k8.row.col.f32.tf32"),
        ("NN of f32", fast_nn::PTX, "m16n8k8.row.col.f32.tf32"),
        ("TN of f32", fast_tn::PTX, "m16n8k8.row.col.f32.tf32"),
        ("TT of f32", fast_tt::PTX, "m16n8k8.row.col.f32.tf32"),
    ] {
        let product = format!("mma.sync.aligned.{shape}");
        assert!(text.contains(&product) && text.contains(".target sm_80"), "{name}: {text}");
        assert!(text.contains("cp.async.cg.shared.global"), "{name}: {text}");
        assert!(text.contains("ldmatrix") != name.starts_with("TN of f32"), "{name}: {text}");
        // The kernel stores results, and no sums of parts.
        assert!(text.contains("_tiles128x128_matrices("), "{name}: {text}");
        assert!(text.len() <= 40_000, "{name}: {} bytes", text.len());
    }
}

/// GPUs with products of matrices have an instruction for the conversion to `bf16`, which rounds as others do.
#[test]
fn results_are_rounded_to_bf16() -> Result<()> {
    let (m, k, n) = (64, 8, 64);
    let special = [
        f32::NAN,
        -f32::NAN,
        f32::from_bits(0x7f80_0001),
        f32::INFINITY,
        -f32::INFINITY,
        f32::MAX,
        f32::from_bits(0x7f7f_7fff),
        f32::from_bits(0x3f80_8000),
        f32::from_bits(0x3f81_8000),
        f32::from_bits(0x3f80_8001),
        f32::from_bits(0x0080_8000),
        -0.0,
    ];
    let mut state = 7_u32;
    let r: Vec<f32> = (0..m * n)
        .map(|i| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            special.get(i).copied().unwrap_or(f32::from_bits(state))
        })
        // A sum with 0 may flush subnormal numbers.
        .map(|x| if x.is_subnormal() { 1.0 } else { x })
        .collect();
    for device in exact_devices() {
        let zeros = |shape| Tensor::from_slice(&device, &[bf16::ZERO; 64 * 8], shape);
        let (x, w) = (zeros([m, k])?, zeros([k, n])?);
        let made = rounded(&x, &w, &Tensor::from_slice(&device, &r, [m, n])?)?.to_vec()?;
        for (made, &r) in made.into_iter().zip(&r) {
            let expected = bf16::from_f32(r + 0.0);
            let is_right = made.to_bits() == expected.to_bits() || made.is_nan() && r.is_nan();
            assert!(is_right, "{device}: {r:?} to {made:?}");
        }
    }
    Ok(())
}

#[test]
fn rounded_matrices_of_any_layout_are_multiplied() -> Result<()> {
    for (_, device) in devices() {
        let device = &device;
        for (m, k, n) in SIZES.into_iter().step_by(2).chain([(33, 21, 35)]) {
            let at = format!("{device} {m} {k} {n}");
            let tensor = |of: &Numbers, shape: [usize; 2]| Tensor::from_slice(device, &of.0, shape);
            let (x, w) = (Numbers(integers(1, m * k)), Numbers(integers(2, k * n)));
            let (b, r) = (integers(3, n), integers(4, m * n));
            let sums = |of_x: fn(usize, usize, [usize; 3]) -> usize,
                        of_w: fn(usize, usize, [usize; 3]) -> usize| {
                product(
                    [&x, &w],
                    (m, k, n),
                    |row, step| of_x(row, step, [m, k, n]),
                    |step, col| of_w(step, col, [m, k, n]),
                )
            };
            let (x_n, x_t) = (
                |row, step, [_, k, _]: [usize; 3]| row * k + step,
                |row, step, [m, ..]: [usize; 3]| step * m + row,
            );
            let (w_n, w_t) = (
                |step, col, [.., n]: [usize; 3]| step * n + col,
                |step, col, [_, k, _]: [usize; 3]| col * k + step,
            );

            let bias = Tensor::from_slice(device, &b, [n])?;
            let made = fast_nt(&tensor(&x, [m, k])?, &tensor(&w, [n, k])?, &bias)?.to_vec()?;
            let expected = sums(x_n, w_t).into_iter().enumerate().map(|(i, sum)| (sum + b[i % n]).max(0.0));
            assert!(made.into_iter().eq(expected), "{at} NT");

            let made = fast_nn(&tensor(&x, [m, k])?, &tensor(&w, [k, n])?)?.to_vec()?;
            assert!(made == sums(x_n, w_n), "{at} NN");

            let residual = Tensor::from_slice(device, &r, [n, m])?;
            let made = fast_tn(&tensor(&x, [k, m])?, &tensor(&w, [k, n])?, &residual)?.to_vec()?;
            let expected = sums(x_t, w_n).into_iter().enumerate().map(|(i, sum)| sum + r[i % n * m + i / n]);
            assert!(made.into_iter().eq(expected), "{at} TN");

            let twice = |of: &Numbers| [of.0.as_slice(), &of.0].concat();
            let (xs, ws) = (twice(&x), twice(&w));
            let (xs, ws) =
                (Tensor::from_slice(device, &xs, [2, k, m])?, Tensor::from_slice(device, &ws, [2, n, k])?);
            let expected = sums(x_t, w_t);
            let made = fast_tt(&xs, &ws)?.to_vec()?;
            assert!(made[..m * n] == expected && made[m * n..] == expected, "{at} TT");
        }
    }
    Ok(())
}

/// Tensor cores multiply factors of `f32` with significands of 11 bits. Only `fast_math` allows that.
#[test]
fn factors_are_rounded_to_the_nearest() -> Result<()> {
    let (m, k, n) = (64, 32, 32);
    let mut state = 3_u32;
    let random = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Exponents from -32 to 31.
        f32::from_bits(state & 0x9f7f_ffff | 0x2f80_0000)
    });
    let ties = [0x3f80_1000, 0x3f80_3000, 0xbf80_1000, 0x3f80_0fff, 0x7f7f_ffff].map(f32::from_bits);
    let x: Vec<f32> = ties.into_iter().chain(random).take(m * k).collect();
    let unit: Vec<f32> = (0..k * n).map(|i| if i / n == i % n { 1.0 } else { 0.0 }).collect();
    let rounded = |x: f32| f32::from_bits((x.to_bits() + 0x1000) & !0x1fff);
    for (_, device) in devices() {
        let (x_tensor, w) =
            (Tensor::from_slice(&device, &x, [m, k])?, Tensor::from_slice(&device, &unit, [k, n])?);
        let made = fast_nn(&x_tensor, &w)?.to_vec()?;
        let is_whole = made == x;
        // FLT_MAX rounds to infinity, and 0 times infinity is no number.
        let is_rounded = made.iter().zip(&x).skip(k).all(|(made, x)| *made == rounded(*x));
        let is_tensor_core = device.to_string().contains("CUDA");
        assert!(if is_tensor_core { is_rounded } else { is_whole }, "{device}: {made:?} of {x:?}");
    }
    Ok(())
}

/// Tiles of 128 rows and columns, for results of so many elements that small tiles are not needed.
#[test]
fn large_matrices_are_multiplied() -> Result<()> {
    for device in exact_devices() {
        let (m, k, n) = (1416, 40, 1504);
        let (x, w) = (Numbers(integers(1, m * k)), Numbers(integers(2, k * n)));
        let expected = product([&x, &w], (m, k, n), |row, step| row * k + step, |step, col| step * n + col);
        let made = nn(&x.bf16(&device, [m, k])?, &w.bf16(&device, [k, n])?)?;
        assert!(made.to_vec()? == expected, "{device}");
    }
    Ok(())
}

#[test]
fn several_summed_axes_are_one_depth() -> Result<()> {
    for (_, device) in devices() {
        let (m, j, k, n) = (40, 3, 24, 72);
        let (x, w) = (Numbers(integers(1, m * j * k)), Numbers(integers(2, j * n * k)));
        let expected = product(
            [&x, &w],
            (m, j * k, n),
            |row, step| row * j * k + step,
            |step, col| (step / k * n + col) * k + step % k,
        );
        let made = two_axes(&x.f16(&device, [m, j, k])?, &w.f16(&device, [j, n, k])?)?;
        assert!(made.to_vec()? == expected, "{device}");
    }
    Ok(())
}

/// Values that are no numbers stay in their rows and columns, and large products do not overflow.
#[test]
fn special_values_stay_in_their_sums() -> Result<()> {
    for device in exact_devices() {
        let (m, k, n) = (70, 40, 72);
        let (mut x, w) = (Numbers(integers(1, m * k)), Numbers(vec![1.0; n * k]));
        (x.0[3 * k + 5], x.0[69 * k + 39]) = (f32::NAN, f32::INFINITY);
        x.0[7 * k..8 * k].fill(60_000.0);
        let made = nt(&x.f16(&device, [m, k])?, &w.f16(&device, [n, k])?, &Tensor::zeros(&device, [n])?)?;
        for (i, made) in made.to_vec()?.into_iter().enumerate() {
            let is_right = match i / n {
                3 => made.is_nan(),
                7 | 69 => made == f16::INFINITY,
                row => made.to_f32() == x.0[row * k..(row + 1) * k].iter().sum::<f32>(),
            };
            assert!(is_right, "{device} {i}: {made}");
        }
    }
    Ok(())
}

/// Both factors have a batch only by broadcasts, and the depth has several parts.
#[test]
fn broadcast_factors_have_parts_of_the_depth() -> Result<()> {
    let (m, k, n) = (64, 2048, 64);
    let (x, w) = (Numbers(integers(1, m * k)), Numbers(integers(2, n * k)));
    let expected = product([&x, &w], (m, k, n), |row, step| row * k + step, |step, col| col * k + step);
    for device in exact_devices() {
        let z = Tensor::from_slice(&device, &[1.0, 2.0], [2])?;
        let made = broadcast(&x.f16(&device, [m, k])?, &w.f16(&device, [n, k])?, &z)?.to_vec()?;
        let all = expected.iter().copied().chain(expected.iter().map(|sum| 2.0 * sum));
        assert!(made.into_iter().eq(all), "{device}");
    }
    Ok(())
}
