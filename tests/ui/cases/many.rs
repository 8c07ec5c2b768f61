//! All mistakes of a block are reported at once, and callers of a faulty function get no error.

use fusion::prelude::*;

fuse! {
    pub fn first(x: f32[N], bias: f32[N]) -> f32[N] { rleu(x) + bais }
    pub fn second(p: &mut f32[N], lr: f32, H: dim) -> (f32[N], i32[N]) { p = q; (p * lr * H, index(M)) }
    pub fn third(x: f16[N]) -> f32[N] { let y = ; x }
    pub fn right(x: f32[N]) -> f32[N] { first(x, x) }
}

/// A module that uses the functions and their items from outside.
mod other {
    use super::{first, second};

    pub fn calls(x: &fusion::Tensor<f32>) -> fusion::Result<usize> {
        let mut p = x.clone();
        let (mut a, mut b) = second(&mut p, 0.1, 3)?;
        second::into(&mut a, &mut b, &mut p, 0.1, 3)?;
        let first = first(x, x)?.to_vec()?.len();
        Ok(first + crate::second::report().kernels() + second::kernels().len() + crate::first::WGSL.len())
    }
}

fn main() -> Result<()> {
    let x = Tensor::zeros(&Device::cpu(), [3])?;
    let mut p = x.clone();
    let y: Tensor<f32> = first(&x, &x)?;
    let (a, b): (Tensor<f32>, Tensor<i32>) = second(&mut p, 0.1, 3)?;
    second::into(&mut p.clone(), &mut b.clone(), &mut p, 0.1, 3)?;
    println!("{} {} {}", right::report(), right::WGSL, other::calls(&y)?);
    let z = right(&a)?;
    let w = fuse!(y + zz * missing(z))?;
    w.to_vec()?;
    Ok(())
}
