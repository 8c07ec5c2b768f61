//! Nothing at all, where functions and where an expression could be.

use fusion::prelude::*;

fuse! {}

fuse!();

fn main() -> Result<()> {
    let x: Tensor<f32> = fuse!()?;
    fuse! {}
    fuse!(x)?;
    Ok(())
}
