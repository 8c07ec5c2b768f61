//! Products where a tensor exceeds one binding, and where there are more tiles than groups of a dispatch.

use super::windows::device;
use super::*;
use crate::fuse;
use crate::tensor::Tensor;

fuse! {
    pub(crate) fn product(x: f32[M, K], w: f32[K, N], b: f32[N]) -> f32[M, N] { max(sum(x * w, K) + b, -20.0) }
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
fn tensors_that_exceed_a_binding_take_other_kernels_or_are_refused() {
    let has_tiles = |names: &[String]| names.iter().any(|name| name.contains("_tiles"));
    let Some(made) = check(SMALL, [36, 40, 44]) else { return };
    let names = made.expect("all tensors fit");
    assert!(has_tiles(&names), "{names:?}");
    // The result is bound part by part.
    let names = check(SMALL, [50, 40, 48]).expect("the device opened before").expect("the factors fit");
    assert!(!has_tiles(&names), "{names:?}");
    // Rows and columns of factors are read from anywhere.
    for extents in [[36, 64, 44], [36, 40, 80], [70, 40, 44]] {
        let refused =
            check(SMALL, extents).expect("the device opened before").expect_err("a factor is larger");
        let told = refused.to_string();
        assert!(told.contains("the most is 8192: raise FUSION_WGPU_BINDING_MAX"), "{extents:?}: {told}");
    }
}

#[test]
fn tiles_are_more_than_the_groups_of_a_dispatch() {
    let options = Options { groups_max: 2, ..PLAIN };
    let Some(made) = check(options, [200, 24, 264]) else { return };
    let names = made.expect("the tensors fit");
    assert!(names.iter().any(|name| name.contains("_tiles")), "{names:?}");
}
