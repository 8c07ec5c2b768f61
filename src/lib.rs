//! Compile-time kernel fusion.

pub use fusion_runtime::*;

#[doc(hidden)]
pub use fusion_runtime::__private;

/// What programs that use Fusion name: `use fusion::prelude::*`.
pub mod prelude {
    pub use fusion_runtime::{
        Coalescing, DType, Device, Element, Error, LaunchConfig, Report, Result, Shape, Tensor, fuse,
    };
}
