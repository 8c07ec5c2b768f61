//! The compiler behind `fuse!`: tokens → graph → fused kernels → text.

#[cfg(feature = "syntax")]
pub mod check;
#[cfg(feature = "syntax")]
pub mod diag;
pub mod ir;
#[cfg(feature = "syntax")]
mod parse;
