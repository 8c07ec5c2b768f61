//! Products where a tensor exceeds one binding, and where there are more tiles than groups of a dispatch.

use half::f16;

use super::windows::device;
use super::*;
use crate::tensor::Tensor;
use crate::{Device, fuse};

fuse! {
    pub(crate) fn product(x: f32[M, K], w: f32[K, N], b: f32[N]) -> f32[M, N] { max(sum(x * w, K) + b, -20.0) }
    pub(crate) fn of_halves(x: f16[M, K], w: f16[N, K]) -> (f32[M, N], f16[M, N]) {
        let y = sum((2.0 * x) as f32 * w as f32, K);
        (y, (0.5 * y) as f16)
    }
    pub(crate) fn of_rows(x: f32[R, K], i: i32[M], w: f32[N, K]) -> f32[M, N] {
        sum(take(x, R, i) * w, K)
    }
    pub(crate) fn residual(r: &mut f32[M, N], x: f32[M, K], w: f32[K, N]) { r = r + sum(x * w, K); }
}

/// Returns small whole numbers, whose sums of products are exact in any order.
fn whole(len: usize, salt: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7 + salt) % 5) as f32 - 2.0).collect()
}

/// Checks a product, and returns the names of the kernels that the device has made.
fn check(options: Options, [m, k, n]: [usize; 3]) -> Option<Result<Vec<String>>> {
    let (device, gpu) = device(options)?;
    let (x, w, b) = (whole(m * k, 1), whole(k * n, 2), whole(n, 3));
    let run = || -> Result<Vec<f32>> {
        let tensor = |of: &[f32], shape: &[usize]| Tensor::from_slice(&device, of, shape.to_vec());
        product(&tensor(&x, &[m, k])?, &tensor(&w, &[k, n])?, &tensor(&b, &[n])?)?.to_vec()
    };
    Some(run().map(|made| {
        for (i, made) in made.into_iter().enumerate() {
            let (row, col) = (i / n, i % n);
            let sum: f32 = (0..k).map(|step| x[row * k + step] * w[step * n + col]).sum();
            assert_eq!(made, (sum + b[col]).max(-20.0), "{m} x {k} x {n}: {row}, {col}");
        }
        gpu.pipelines.kernels().into_iter().map(|name| name.to_string()).collect()
    }))
}

/// Bindings of 2048 elements.
const SMALL: Options = Options { binding_bytes_max: 8192, ..PLAIN };

#[test]
fn tensors_that_exceed_a_binding_are_bound_in_halves() {
    let has = |names: &[String], part: &str| names.iter().any(|name| name.contains(part));
    let Some(made) = check(SMALL, [36, 40, 44]) else { return };
    let names = made.expect("all tensors fit");
    assert!(has(&names, "_tiles") && !has(&names, "_halved"), "{names:?}");
    let check = |extents| check(SMALL, extents).expect("the device opened before");
    // Each tensor is larger than a binding: the result, both factors, one factor, all.
    for extents in [[50, 40, 48], [50, 44, 47], [36, 40, 80], [70, 40, 36], [36, 64, 44], [60, 60, 60]] {
        let names = check(extents).expect("halves of the tensors fit");
        assert!(has(&names, "_halved"), "{extents:?}: {names:?}");
    }
    // Rows of the result are bound part by part.
    let names = check([80, 24, 80]).expect("the factors fit");
    assert!(!has(&names, "_tiles"), "{names:?}");
    // Rows and columns of factors are read from anywhere.
    for extents in [[36, 120, 44], [36, 40, 120], [110, 40, 36]] {
        let told = check(extents).expect_err("a factor is larger than two bindings").to_string();
        assert!(told.contains("the most is 8192: raise FUSION_WGPU_BINDING_MAX"), "{extents:?}: {told}");
    }
}

#[test]
fn halves_of_all_kinds_of_tensors_hold_what_the_cpu_computes() {
    let Some((gpu, backend)) = device(SMALL) else { return };
    let cpu = Device::cpu();
    let [m, n, rows] = [61, 60, 45];
    let half = |values: Vec<f32>| values.into_iter().map(f16::from_f32).collect::<Vec<_>>();
    let of_halves = |device: &Device| -> Result<(Vec<f32>, Vec<f16>)> {
        let k = 75;
        let x = Tensor::from_slice(device, &half(whole(m * k, 1)), [m, k])?;
        let w = Tensor::from_slice(device, &half(whole(n * k, 2)), [n, k])?;
        let (y, z) = of_halves(&x, &w)?;
        Ok((y.to_vec()?, z.to_vec()?))
    };
    assert_eq!(of_halves(&gpu).expect("halves fit"), of_halves(&cpu).expect("the CPU has no bindings"));
    let of_rows = |device: &Device| -> Result<Vec<f32>> {
        let k = 61;
        let x = Tensor::from_slice(device, &whole(rows * k, 1), [rows, k])?;
        let w = Tensor::from_slice(device, &whole(n * k, 2), [n, k])?;
        let i = (0..m).map(|i| (i * 29 % rows) as i32).collect::<Vec<_>>();
        of_rows(&x, &Tensor::from_slice(device, &i, [m])?, &w)?.to_vec()
    };
    assert_eq!(of_rows(&gpu).expect("halves fit"), of_rows(&cpu).expect("the CPU has no bindings"));
    let names = backend.pipelines.kernels();
    assert_eq!(names.iter().filter(|name| name.contains("_halved")).count(), 2, "{names:?}");
    let residual = |device: &Device| -> Result<Vec<f32>> {
        let mut r = Tensor::from_slice(device, &whole(m * n, 3), [m, n])?;
        let x = Tensor::from_slice(device, &whole(m * 30, 1), [m, 30])?;
        residual(&mut r, &x, &Tensor::from_slice(device, &whole(30 * n, 2), [30, n])?)?;
        r.to_vec()
    };
    assert_eq!(residual(&gpu).expect("rows fit"), residual(&cpu).expect("the CPU has no bindings"));
}

#[test]
fn tiles_are_more_than_the_groups_of_a_dispatch() {
    let options = Options { groups_max: 2, ..PLAIN };
    let Some(made) = check(options, [200, 24, 264]) else { return };
    let names = made.expect("the tensors fit");
    assert!(names.iter().any(|name| name.contains("_tiles")), "{names:?}");
}
