//! Empty input, for functions and for an expression.

use fusion::prelude::*;

fuse! {}

fuse!();

fn main() -> Result<()> {
    let x: Tensor<f32> = fuse!()?;
    fuse! {}
    fuse!(x)?;
    Ok(())
}
