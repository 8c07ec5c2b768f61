//! Convolutions by Fusion's functions: 3 × 3 of the four stages of ResNet, and depthwise.

use fusion::prelude::*;

use super::workloads::{Candidates, input, ours};

fuse! {
    pub(crate) fn conv_3x3(x: f32[N, C, H, W], w: f32[O, C, KH = 3, KW = 3]) -> f32[N, O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1)
    }
    pub(crate) fn depthwise(x: f32[N, C, H, W], w: f32[C, KH = 3, KW = 3]) -> f32[N, C, P, Q] {
        conv(x, w, (H, KH) -> P, (W, KW) -> Q, padding = 1)
    }
}

/// Returns the candidate for a workload, if it is a convolution: `conv_SIDE` or `depthwise_SIDE`, with as many channels as
/// `peers.py` has.
pub(crate) fn candidates(workload: &str, size: &str, device: &Device) -> Option<Candidates> {
    let (kind, side) = workload.rsplit_once('_')?;
    let side: usize = side.parse().ok().filter(|_| matches!(kind, "conv" | "depthwise"))?;
    let images = match size {
        "small" => 1,
        "huge" => 64,
        _ => 8,
    };
    let channels = 64 * 56 / side;
    let tensor = |salt: usize, shape: &[usize]| {
        Tensor::from_slice(device, &input(shape.iter().product(), salt), shape)
    };
    let made = || {
        let shape = [images, channels, side, side];
        let (x, out) = (tensor(1, &shape)?, Tensor::zeros(device, shape)?);
        if kind == "conv" {
            let w = tensor(2, &[channels, channels, 3, 3])?;
            return Ok(vec![ours(out, move |out| conv_3x3::into(out, &x, &w))]);
        }
        let w = tensor(2, &[channels, 3, 3])?;
        Ok(vec![ours(out, move |out| depthwise::into(out, &x, &w))])
    };
    Some(made())
}
