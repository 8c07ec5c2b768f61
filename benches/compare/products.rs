//! Products of matrices by Fusion's functions.

use fusion::prelude::*;

use super::extents::extents;
use super::workloads::{Candidates, input, ours};

fuse! {
    pub(crate) fn nn(x: f32[M, K], w: f32[K, N]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn nt(x: f32[M, K], w: f32[N, K]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn tn(x: f32[K, M], w: f32[K, N]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn tt(x: f32[K, M], w: f32[N, K]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn batched(x: f32[B, M, K], w: f32[B, K, N]) -> f32[B, M, N] { matmul(x, w, K) }
    pub(crate) fn linear_gelu(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { gelu(matmul(x, w, K) + b) }
}

/// Returns the candidate for a workload, if it is a product.
pub(crate) fn candidates(workload: &str, size: &str, device: &Device) -> Option<Candidates> {
    let [b, m, k, n] = extents(workload, size);
    let tensor = |salt: usize, shape: &[usize]| {
        Tensor::from_slice(device, &input(shape.iter().product(), salt), shape)
    };
    type Function = fn(&mut Tensor<f32>, &Tensor<f32>, &Tensor<f32>) -> Result<()>;
    let (function, left, right): (Function, &[usize], &[usize]) = match workload {
        "matmul_nn" | "matmul_row" => (nn::into, &[m, k], &[k, n]),
        "matmul_nt" => (nt::into, &[m, k], &[n, k]),
        "matmul_tn" => (tn::into, &[k, m], &[k, n]),
        "matmul_tt" => (tt::into, &[k, m], &[n, k]),
        "matmul_batched" => (batched::into, &[b, m, k], &[b, k, n]),
        "linear_gelu" => {
            let made = || {
                let (x, w, bias) = (tensor(1, &[m, k])?, tensor(2, &[n, k])?, tensor(3, &[n])?);
                let out = Tensor::zeros(device, [m, n])?;
                Ok(vec![ours(out, move |out| linear_gelu::into(out, &x, &w, &bias))])
            };
            return Some(made());
        }
        _ => return None,
    };
    let made = || {
        let (x, w) = (tensor(1, left)?, tensor(2, right)?);
        let shape: &[usize] = if workload == "matmul_batched" { &[b, m, n] } else { &[m, n] };
        Ok(vec![ours(Tensor::zeros(device, shape)?, move |out| function(out, &x, &w))])
    };
    Some(made())
}
