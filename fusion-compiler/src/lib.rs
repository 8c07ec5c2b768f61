//! The compiler behind `fuse!`: tokens → graph → fused kernels → text.

pub mod ir;
pub mod reference;
