//! Products of models agree with PyTorch's values: linear layers, attention, and a transformer block.

use fusion::prelude::*;
use safetensors::{Dtype, SafeTensors};

use super::{check, on_devices, ulps};

fuse! {
    pub(crate) fn linear_gelu(x: f32[M, K], w: f32[N, K], b: f32[N]) -> f32[M, N] { gelu(matmul(x, w, K) + b) }
    pub(crate) fn linear_nn(x: f32[M, K], w: f32[K, N], b: f32[N]) -> f32[M, N] { relu(matmul(x, w, K) + b) }
    pub(crate) fn linear_tn(x: f32[K, M], w: f32[K, N]) -> f32[M, N] { matmul(x, w, K) }
    pub(crate) fn swiglu_ffn(x: f32[M, E], w1: f32[F, E], w3: f32[F, E], w2: f32[E, F]) -> f32[M, E] {
        matmul(silu(matmul(x, w1, E)) * matmul(x, w3, E), w2, F)
    }
    pub(crate) fn ln_linear(x: f32[M, K], g: f32[K], c: f32[K], w: f32[N, K], b: f32[N]) -> f32[M, N] {
        matmul(layer_norm(x, K) * g + c, w, K) + b
    }
    pub(crate) fn residual_rms(r: f32[M, N], x: f32[M, K], w: f32[N, K], g: f32[N]) -> f32[M, N] {
        rms_norm(r + matmul(x, w, K), N) * g
    }
    pub(crate) fn lora(x: f32[M, K], w: f32[N, K], a: f32[R, K], b: f32[N, R]) -> f32[M, N] {
        matmul(x, w, K) + 0.5 * matmul(matmul(x, a, K), b, R)
    }
    pub(crate) fn batched(x: f32[B, H, T, C], w: f32[H, C, D]) -> f32[B, H, T, D] { matmul(x, w, C) }
    pub(crate) fn bilinear(x: f32[N, I], w: f32[O, I, J], y: f32[N, J]) -> f32[N, O] { sum(x * w * y, (I, J)) }
    pub(crate) fn bilinear_in_two(x: f32[N, I], w: f32[O, I, J], y: f32[N, J]) -> f32[N, O] {
        matmul(matmul(x, w, I), y, J)
    }
    pub(crate) fn logits_loss(x: f32[N, E], e: f32[V, E], t: i32[N]) -> f32[] {
        cross_entropy_mean(matmul(x, e, E), V, t)
    }
    pub(crate) fn pointwise_convolution(x: f32[N, C, H, W], w: f32[O, C], b: f32[O]) -> f32[N, O, H, W] {
        matmul(x, w, C) + b
    }
}

fuse! {
    fn scores(q, k, C: dim) { matmul(q, k, C) * rsqrt(C) }
    fn attend(scores, v, S: dim) { matmul(softmax(scores, S), v, S) }

    pub(crate) fn attn_plain(q: f32[B, H, T, C], k: f32[B, H, S, C], v: f32[B, H, S, C]) -> f32[B, H, T, C] {
        attend(scores(q, k, C), v, S)
    }
    pub(crate) fn attn_causal(q: f32[B, H, T, C], k: f32[B, H, S, C], v: f32[B, H, S, C]) -> f32[B, H, T, C] {
        attend(if index(S) <= index(T) { scores(q, k, C) } else { -INF }, v, S)
    }
    pub(crate) fn attn_window(q: f32[B, H, T, C], k: f32[B, H, S, C], v: f32[B, H, S, C]) -> f32[B, H, T, C] {
        let is_seen = index(S) <= index(T) && index(T) - index(S) < 7;
        attend(if is_seen { scores(q, k, C) } else { -INF }, v, S)
    }
    pub(crate) fn attn_alibi(q: f32[B, H, T, C], k: f32[B, H, S, C], v: f32[B, H, S, C]) -> f32[B, H, T, C] {
        let slope = exp2(-8.0 * (index(H) as f32 + 1.0) / 3.0);
        let score = scores(q, k, C) + slope * (index(S) - index(T)) as f32;
        attend(if index(S) <= index(T) { score } else { -INF }, v, S)
    }
    pub(crate) fn attn_softcap(q: f32[B, H, T, C], k: f32[B, H, S, C], v: f32[B, H, S, C]) -> f32[B, H, T, C] {
        attend(20.0 * tanh(scores(q, k, C) / 20.0), v, S)
    }
    pub(crate) fn attn_gqa(q: f32[B, Q, T, C], k: f32[B, H, S, C], v: f32[B, H, S, C]) -> f32[B, Q, T, C] {
        let score = scores(split(q, Q -> (H, G)), k, C);
        merge(attend(if index(S) <= index(T) { score } else { -INF }, v, S), (H, G) -> Q)
    }
    pub(crate) fn attn_decode(q: f32[B, Q, T, C], k: f32[B, H, S, C], v: f32[B, H, S, C]) -> f32[B, Q, T, C] {
        merge(attend(scores(split(q, Q -> (H, G)), k, C), v, S), (H, G) -> Q)
    }
    pub(crate) fn attn_documents(
        q: f32[B, H, T, C],
        k: f32[B, H, T, C],
        v: f32[B, H, T, C],
        doc: i32[T],
    ) -> f32[B, H, T, C] {
        let is_seen = index(S) <= index(T) && rename(doc, T -> S) == doc;
        let score = scores(q, rename(k, T -> S), C);
        attend(if is_seen { score } else { -INF }, rename(v, T -> S), S)
    }
    pub(crate) fn attn_lengths(
        q: f32[B, H, T, C],
        k: f32[B, H, S, C],
        v: f32[B, H, S, C],
        len: i32[B],
    ) -> f32[B, H, T, C] {
        attend(if index(S) < len { scores(q, k, C) } else { -INF }, v, S)
    }
    pub(crate) fn attn_bias(
        q: f32[B, H, T, C],
        k: f32[B, H, S, C],
        v: f32[B, H, S, C],
        bias: f32[H, T, S],
    ) -> f32[B, H, T, C] {
        attend(scores(q, k, C) + bias, v, S)
    }
    pub(crate) fn attn_sigmoid(q: f32[B, H, T, C], k: f32[B, H, S, C], v: f32[B, H, S, C]) -> f32[B, H, T, C] {
        matmul(sigmoid(scores(q, k, C) - log(S)), v, S)
    }
    pub(crate) fn attn_linear(q: f32[B, H, T, C], k: f32[B, H, S, C], v: f32[B, H, S, D]) -> f32[B, H, T, D] {
        let (q, k) = (elu(q) + 1.0, elu(k) + 1.0);
        matmul(q, matmul(k, v, S), C) / matmul(q, sum(k, S), C)
    }
    /// Rotary embedding (Su et al. 2021).
    fn rotated(x, T: dim, C: dim) {
        let (a, b) = (slice(x, C -> Half, ..C / 2), slice(x, C -> Half, C / 2..));
        let angle = index(T) as f32 * pow(10000.0, -2.0 * index(Half) as f32 / C);
        concat((a * cos(angle) - b * sin(angle), Half), (a * sin(angle) + b * cos(angle), Half) -> C)
    }
    pub(crate) fn block(
        x: f32[B, T, E],
        g1: f32[E],
        wq: f32[E, H, C],
        wk: f32[E, H, C],
        wv: f32[E, H, C],
        wo: f32[H, C, E],
        g2: f32[E],
        w1: f32[E, F],
        w3: f32[E, F],
        w2: f32[F, E],
    ) -> f32[B, T, E] {
        let h = rms_norm(x, E) * g1;
        let (q, k) = (rotated(matmul(h, wq, E), T, C), rotated(matmul(h, wk, E), T, C));
        let (score, v) = (scores(q, rename(k, T -> S), C), rename(matmul(h, wv, E), T -> S));
        let heads = attend(if index(S) <= index(T) { score } else { -INF }, v, S);
        let r = x + matmul(heads, wo, (H, C));
        let m = rms_norm(r, E) * g2;
        r + matmul(silu(matmul(m, w1, E)) * matmul(m, w3, E), w2, F)
    }
}

static GOLDEN: &[u8] = include_bytes!("../golden/models.safetensors");

/// A model of the golden file on a device.
pub(crate) struct Model<'a> {
    device: &'a Device,
    pub(crate) name: &'a str,
    file: SafeTensors<'a>,
}

impl Model<'_> {
    fn elements<T>(&self, name: &str, dtype: Dtype, element: fn([u8; 4]) -> T) -> (Vec<T>, Vec<usize>) {
        let name = format!("{}.{name}", self.name);
        let tensor = self.file.tensor(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(tensor.dtype(), dtype, "{name}");
        let elements = tensor.data().chunks_exact(4).map(|bytes| element(bytes.try_into().unwrap()));
        (elements.collect(), tensor.shape().to_vec())
    }

    pub(crate) fn input(&self, name: &str) -> Result<Tensor<f32>> {
        let (elements, shape) = self.elements(&format!("in.{name}"), Dtype::F32, f32::from_le_bytes);
        Tensor::from_slice(self.device, &elements, shape)
    }

    fn indices(&self, name: &str) -> Result<Tensor<i32>> {
        let (elements, shape) = self.elements(&format!("in.{name}"), Dtype::I32, i32::from_le_bytes);
        Tensor::from_slice(self.device, &elements, shape)
    }

    pub(crate) fn check(&self, got: &Tensor<f32>, bound: (f64, f64)) -> Result<()> {
        let (expected, _) = self.elements("out.y", Dtype::F32, f32::from_le_bytes);
        let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();
        check(self.device, self.name, &got.to_vec()?, &expected, bound);
        Ok(())
    }
}

/// Runs a test with each model of these names, on each device.
pub(crate) fn on_models(names: &[&str], test: impl Fn(&Model<'_>) -> Result<()>) {
    on_devices(|device| {
        for name in names {
            let file = SafeTensors::deserialize(GOLDEN).expect("the file is whole");
            test(&Model { device, name, file })?;
        }
        Ok(())
    });
}

#[test]
fn linear_layers_agree_with_pytorch() {
    let names = ["linear_gelu", "linear_nn", "linear_tn", "swiglu_ffn", "ln_linear", "residual_rms", "lora"];
    on_models(&names, |model| {
        let of = |name: &str| model.input(name);
        let y = match model.name {
            "linear_gelu" => linear_gelu(&of("x")?, &of("w")?, &of("b")?)?,
            "linear_nn" => linear_nn(&of("x")?, &of("w")?, &of("b")?)?,
            "linear_tn" => linear_tn(&of("x")?, &of("w")?)?,
            "swiglu_ffn" => swiglu_ffn(&of("x")?, &of("w1")?, &of("w3")?, &of("w2")?)?,
            "ln_linear" => ln_linear(&of("x")?, &of("g")?, &of("c")?, &of("w")?, &of("b")?)?,
            "residual_rms" => residual_rms(&of("r")?, &of("x")?, &of("w")?, &of("g")?)?,
            _ => lora(&of("x")?, &of("w")?, &of("a")?, &of("b")?)?,
        };
        model.check(&y, (ulps(4.0), 1e-5))
    });
}

#[test]
fn products_of_several_dims_agree_with_pytorch() {
    on_models(&["batched", "bilinear", "logits_loss", "conv_1x1"], |model| {
        let x = model.input("x")?;
        let y = match model.name {
            "batched" => batched(&x, &model.input("w")?)?,
            "bilinear" => {
                let (w, y) = (model.input("w")?, model.input("y")?);
                model.check(&bilinear_in_two(&x, &w, &y)?, (ulps(4.0), 1e-5))?;
                bilinear(&x, &w, &y)?
            }
            "logits_loss" => logits_loss(&x, &model.input("e")?, &model.indices("t")?)?,
            _ => {
                let w = model.input("w")?;
                let shape = [w.shape()[0], w.shape()[1]];
                pointwise_convolution(&x, &w.reshape(shape)?, &model.input("b")?)?
            }
        };
        model.check(&y, (ulps(4.0), 1e-5))
    });
}

/// A function of queries, keys and values.
type Attention = fn(&Tensor<f32>, &Tensor<f32>, &Tensor<f32>) -> Result<Tensor<f32>>;

#[test]
fn attention_agrees_with_pytorch() {
    let plain: [(&str, Attention); 8] = [
        ("attn_plain", attn_plain),
        ("attn_causal", attn_causal),
        ("attn_window", attn_window),
        ("attn_alibi", attn_alibi),
        ("attn_softcap", attn_softcap),
        ("attn_gqa", attn_gqa),
        ("attn_decode", attn_decode),
        ("attn_sigmoid", attn_sigmoid),
    ];
    let names = ["attn_linear", "attn_documents", "attn_lengths", "attn_bias"];
    let names: Vec<&str> = plain.iter().map(|(name, _)| *name).chain(names).collect();
    on_models(&names, |model| {
        let (q, k, v) = (model.input("q")?, model.input("k")?, model.input("v")?);
        let y = match (model.name, plain.iter().find(|(name, _)| *name == model.name)) {
            (_, Some((_, function))) => function(&q, &k, &v)?,
            ("attn_linear", _) => attn_linear(&q, &k, &v)?,
            ("attn_documents", _) => attn_documents(&q, &k, &v, &model.indices("doc")?)?,
            ("attn_lengths", _) => attn_lengths(&q, &k, &v, &model.indices("len")?)?,
            (_, _) => attn_bias(&q, &k, &v, &model.input("bias")?)?,
        };
        model.check(&y, (ulps(4.0), 2e-6))
    });
}

#[test]
fn a_transformer_block_agrees_with_pytorch() {
    on_models(&["block"], |model| {
        let of = |name: &str| model.input(name);
        let y = block(
            &of("x")?,
            &of("g1")?,
            &of("wq")?,
            &of("wk")?,
            &of("wv")?,
            &of("wo")?,
            &of("g2")?,
            &of("w1")?,
            &of("w3")?,
            &of("w2")?,
        )?;
        model.check(&y, (ulps(4.0), 1e-5))
    });
}
