//! Attention by Fusion's functions, with five score functions.

use fusion::prelude::*;

use super::workloads::{Candidates, input, ours};

fuse! {
    fn scores(q, k, C: dim) { matmul(q, k, C) * rsqrt(C) }
    fn attend(s, v, S: dim) { matmul(softmax(s, S), v, S) }

    pub(crate) fn plain(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]) -> f32[H, T, D] {
        attend(scores(q, k, C), v, S)
    }
    pub(crate) fn causal(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]) -> f32[H, T, D] {
        attend(if index(S) <= index(T) { scores(q, k, C) } else { -INF }, v, S)
    }
    pub(crate) fn window(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]) -> f32[H, T, D] {
        let is_seen = index(S) <= index(T) && index(T) - index(S) < 256;
        attend(if is_seen { scores(q, k, C) } else { -INF }, v, S)
    }
    pub(crate) fn alibi(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]) -> f32[H, T, D] {
        let slope = exp2(-(index(H) as f32 + 1.0));
        let s = scores(q, k, C) + slope * (index(S) - index(T)) as f32;
        attend(if index(S) <= index(T) { s } else { -INF }, v, S)
    }
    pub(crate) fn soft_cap(q: f32[H, T, C], k: f32[H, S, C], v: f32[H, S, D]) -> f32[H, T, D] {
        attend(20.0 * tanh(scores(q, k, C) / 20.0), v, S)
    }
}

/// A function of queries, keys and values.
type Attention = fn(&mut Tensor<f32>, &Tensor<f32>, &Tensor<f32>, &Tensor<f32>) -> Result<()>;

/// Returns the candidate for a workload, if it is attention: `attention_SCORES_CHANNELS`, with as many heads, queries and
/// keys as `peers.py` has.
pub(crate) fn candidates(workload: &str, size: &str, device: &Device) -> Option<Candidates> {
    let (scores, channels) = workload.strip_prefix("attention_")?.rsplit_once('_')?;
    let channels: usize = channels.parse().ok()?;
    let function: Attention = match scores {
        "plain" => plain::into,
        "causal" => causal::into,
        "window" => window::into,
        "alibi" => alibi::into,
        "softcap" => soft_cap::into,
        _ => return None,
    };
    let len = match size {
        "small" => 512,
        "huge" => 4096,
        _ => 2048,
    };
    let shape = [8, len, channels];
    let tensor = |salt: usize| Tensor::from_slice(device, &input(shape.iter().product(), salt), shape);
    let made = || {
        let (q, k, v, out) = (tensor(1)?, tensor(2)?, tensor(3)?, Tensor::zeros(device, shape)?);
        Ok(vec![ours(out, move |out| function(out, &q, &k, &v))])
    };
    Some(made())
}
