//! Convolutions and pools agree with PyTorch's values.

use fusion::prelude::*;

use super::models::{Model, on_models};
use super::ulps;

fuse! {
    pub(crate) fn conv_3x3(x: f32[N, C, H, W], w: f32[O, C, KH, KW], b: f32[O]) -> f32[N, O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1) + b
    }
    pub(crate) fn conv_stride(x: f32[N, C, H, W], w: f32[O, C, KH, KW], b: f32[O]) -> f32[N, O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, stride = 2, padding = 1) + b
    }
    pub(crate) fn conv_5x3(x: f32[N, C, H, W], w: f32[O, C, KH, KW], b: f32[O]) -> f32[N, O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = (2, 0)) + b
    }
    pub(crate) fn conv_dilated(x: f32[N, C, H, W], w: f32[O, C, KH, KW], b: f32[O]) -> f32[N, O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, dilation = 2, padding = 2) + b
    }
    pub(crate) fn conv_grouped(
        x: f32[N, G, C, H, W],
        w: f32[G, O, C, KH, KW],
        b: f32[G, O],
    ) -> f32[N, G, O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1) + b
    }
    pub(crate) fn conv_depthwise(x: f32[N, C, H, W], w: f32[C, KH, KW], b: f32[C]) -> f32[N, C, P, Q] {
        conv(x, w, (H, KH) -> P, (W, KW) -> Q, padding = same) + b
    }
    pub(crate) fn conv_1x1(x: f32[N, C, H, W], w: f32[O, C, KH = 1, KW = 1], b: f32[O]) -> f32[N, O, P, Q] {
        conv(x, w, C, (H, KH) -> P, (W, KW) -> Q) + b
    }
    pub(crate) fn conv_bn_relu(
        x: f32[N, C, H, W],
        w: f32[O, C, KH = 3, KW = 3],
        g: f32[O],
        c: f32[O],
        mean: f32[O],
        var: f32[O],
    ) -> f32[N, O, P, Q] {
        relu(batch_norm(conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1), mean, var) * g + c)
    }
    pub(crate) fn conv_bn_train(
        x: f32[N, C, H, W],
        w: f32[O, C, KH, KW],
        g: f32[O],
        c: f32[O],
    ) -> f32[N, O, P, Q] {
        let y = conv(x, w, C, (H, KH) -> P, (W, KW) -> Q, padding = 1);
        relu(batch_norm(y, (N, P, Q)) * g + c)
    }
    pub(crate) fn conv1d_causal(x: f32[N, C, T], w: f32[C, K]) -> f32[N, C, S] {
        conv(x, w, (T, K) -> S, padding = ((3, 0),))
    }
    pub(crate) fn up_convolved(x: f32[N, C, H, W], w: f32[C, O, KH, KW]) -> f32[N, O, P, Q] {
        conv_transpose(x, w, C, (H, KH) -> P, (W, KW) -> Q, stride = 2, padding = 1, output_padding = 1)
    }
    pub(crate) fn largest(x: f32[N, C, H, W]) -> f32[N, C, P, Q] {
        max_pool(x, (H, 3) -> P, (W, 3) -> Q, stride = 2, padding = 1)
    }
    pub(crate) fn averages(x: f32[N, C, H, W]) -> f32[N, C, P, Q] { avg_pool(x, (H, 2) -> P, (W, 2) -> Q) }
}

/// A function of values, weights and biases.
type Convolution = fn(&Tensor<f32>, &Tensor<f32>, &Tensor<f32>) -> Result<Tensor<f32>>;

#[test]
fn convolutions_agree_with_pytorch() {
    let all: [(&str, Convolution); 5] = [
        ("conv_3x3", conv_3x3),
        ("conv_stride", conv_stride),
        ("conv_5x3", conv_5x3),
        ("conv_dilated", conv_dilated),
        ("conv_1x1", conv_1x1),
    ];
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    on_models(&names, |model| {
        let (_, function) = all.iter().find(|(name, _)| *name == model.name).expect("the name is one of all");
        model.check(&function(&model.input("x")?, &model.input("w")?, &model.input("b")?)?, BOUND)
    });
}

/// Bounds of convolutions: of the error of an element, and of its share of the largest element.
const BOUND: (f64, f64) = (ulps(4.0), 1e-5);

/// Returns an input with another shape.
fn shaped(model: &Model<'_>, name: &str, shape: &[usize]) -> Result<Tensor<f32>> {
    model.input(name)?.reshape(shape)
}

#[test]
fn groups_of_channels_agree_with_pytorch() {
    on_models(&["conv_grouped", "conv_depthwise", "conv1d_causal"], |model| {
        let of = |name: &str, shape: &[usize]| shaped(model, name, shape);
        let y = match model.name {
            "conv_grouped" => {
                let (x, w) = (of("x", &[2, 2, 3, 12, 11])?, of("w", &[2, 4, 3, 3, 3])?);
                conv_grouped(&x, &w, &of("b", &[2, 4])?)?
            }
            "conv_depthwise" => {
                conv_depthwise(&model.input("x")?, &of("w", &[8, 3, 3])?, &model.input("b")?)?
            }
            _ => conv1d_causal(&model.input("x")?, &of("w", &[6, 4])?)?,
        };
        model.check(&y, BOUND)
    });
}

#[test]
fn convolutions_with_batch_norm_agree_with_pytorch() {
    on_models(&["conv_bn_relu", "conv_bn_train"], |model| {
        let of = |name: &str| model.input(name);
        let (x, w, g, c) = (of("x")?, of("w")?, of("g")?, of("c")?);
        let y = match model.name {
            "conv_bn_relu" => conv_bn_relu(&x, &w, &g, &c, &of("mean")?, &of("var")?)?,
            _ => conv_bn_train(&x, &w, &g, &c)?,
        };
        model.check(&y, BOUND)
    });
}

#[test]
fn transposed_convolutions_and_pools_agree_with_pytorch() {
    on_models(&["conv_transpose", "max_pool", "avg_pool"], |model| {
        let x = model.input("x")?;
        let y = match model.name {
            "conv_transpose" => up_convolved(&x, &model.input("w")?)?,
            "max_pool" => largest(&x)?,
            _ => averages(&x)?,
        };
        model.check(&y, BOUND)
    });
}
