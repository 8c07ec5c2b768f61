//! The compiler behind `fuse!`: tokens → graph → fused kernels → text.

pub mod ir;
