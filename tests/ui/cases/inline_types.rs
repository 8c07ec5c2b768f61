//! Captured values of the wrong Rust type: rustc reports them at the user's tokens.

use fusion::prelude::*;

fuse! {
    pub fn double(x: f32[N]) -> f32[N] { x * 2.0 }
}

fn main() -> Result<()> {
    let a = Tensor::zeros(&Device::cpu(), [2])?;
    let ids = Tensor::<i32>::zeros(&Device::cpu(), [2])?;
    let rate = 0.5;
    let list = vec![1.0f32];
    fuse!(a * rate)?;
    fuse!(a + ids)?;
    fuse!(a + {list})?;
    fuse!(a * scalar(1.0f64))?;
    fuse!(a * scalar("x"))?;
    fuse!(a * scalar(1))?;
    fuse!(i32: ids * scalar(list.len()))?;
    let mask = Tensor::<bool>::zeros(&Device::cpu(), [2])?;
    fuse!(bool: if mask { 1 } else { 0 })?;
    fuse!(a * scalar(&list[0]))?;
    fuse!(a + nothing)?;
    let b: Tensor<i32> = fuse!(a + 1.0)?;
    double(&ids)?;
    double(a)?;
    let _ = b;
    Ok(())
}
