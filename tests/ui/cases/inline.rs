//! The inline form.

use fusion::prelude::*;

struct Layer {
    bias: Tensor<f32>,
}

fn main() -> Result<()> {
    let a = Tensor::zeros(&Device::cpu(), [2, 2])?;
    let b = Tensor::zeros(&Device::cpu(), [2])?;
    let layer = Layer { bias: b.clone() };
    fuse!(a[N] * b[M])?;
    fuse!(a[N, D] * b)?;
    fuse!(a[N, D] + layer.bias)?;
    fuse!(a[N, D] * a[D, N])?;
    fuse!(sum(a, D))?;
    fuse!(var(a))?;
    fuse!(softmax(a, D))?;
    fuse!(group_norm(a[N, C, H], C, G, H))?;
    fuse!(a * index(D))?;
    fuse!(at(a, D, 0))?;
    fuse!(a * b => [N, D])?;
    fuse!(a[N, D] => [N])?;
    fuse!(b[N] + a[N, D] => [N, M])?;
    fuse!((a, b))?;
    fuse!(scalar(3.0))?;
    fuse!(1.0 + PI)?;
    fuse!(a > b)?;
    fuse!(a as i32)?;
    fuse!(f16: a as i8)?;
    fuse!(f31: a + b)?;
    fuse!(let c = a; c)?;
    fuse!(if a > 0.0 { let c = a; c } else { b })?;
    fuse!(a; b)?;
    fuse!(a = b)?;
    fuse!(a, b)?;
    fuse!(relu(a)?)?;
    fuse!(rleu(a))?;
    fuse!(a + crate::TENSOR)?;
    fuse!(a + tensors::BIAS)?;
    fuse!(a * scalar())?;
    fuse!(a * scalar(1.0 +))?;
    fuse!(a + {b +})?;
    fuse!(a => N)?;
    fuse!(f32:)?;
    fuse!(&a + &b)?;
    fuse!(a[n] + 1.0)?;
    fuse!(list[0] + a)?;
    fuse!(list[1] + a)?;
    fuse!(layer.biases[i + 1][N] + a[N, D])?;
    fuse!(a.clone() + b)?;
    fuse!(a[N, D].to(device) + b[D])?;
    fuse!(a * load(b))?;
    fuse!(a + layers[1].bias[N])?;
    fuse!(a + vec![1.0])?;
    Ok(())
}
