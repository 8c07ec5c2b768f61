//! Compile-time kernel fusion: tensor maths in Rust, fused at `cargo build` for CUDA, WebGPU and the CPU.
//!
//! ```
//! use fusion::prelude::*;
//!
//! fuse! {
//!     /// SwiGLU gate (Shazeer 2020).
//!     pub fn swiglu(x: f32[N, D], y: f32[N, D]) -> f32[N, D] {
//!         silu(x) * y
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let device = Device::cpu();
//! let x = Tensor::from_slice(&device, &[0.0, 1.0, 2.0, 3.0], [2, 2])?;
//! let bias = Tensor::from_slice(&device, &[1.0, -1.0], [2])?;
//! let h = swiglu(&x, &x)?;
//! let y = fuse!(relu(h[N, D] + bias[D]) * scalar(2.0))?;
//! assert_eq!(y.to_vec()?[0], 2.0);
//! assert_eq!(swiglu::report().kernels(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`fuse!`] documents the language.

pub use fusion_runtime::*;

#[doc(inline)]
pub use fusion_runtime::fuse;

#[doc(hidden)]
pub use fusion_runtime::__private;

/// The names that programs import: `use fusion::prelude::*`.
pub mod prelude {
    pub use fusion_runtime::{
        Coalescing, DType, Device, Element, Error, Float, LaunchConfig, Report, Result, Shape, Tensor, bf16,
        f16, fuse,
    };
}

/// The program of the README, compiled as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
