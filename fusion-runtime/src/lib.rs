//! Devices, tensors and launches for the kernels that `fuse!` compiles.
//!
//! Programs use this crate through the facade `fusion`.
//!
//! - `tensor`, `shape` and `error`: the types of the public interface.
//! - `run`: the executor, which runs plans.
//! - `kernel`: the contract with generated code.
//! - `device`: the devices, one backend per file.

mod arg;
mod bind;
mod cpu_args;
pub mod device;
pub mod error;
mod extents;
#[cfg(feature = "graph")]
pub mod graph;
#[cfg(feature = "cust")]
mod interop;
mod isa;
#[doc(hidden)]
pub mod kernel;
mod lanes;
pub mod launch;
pub mod optim;
mod prefetch;
pub mod report;
#[doc(hidden)]
pub mod run;
pub mod shape;
pub mod tensor;
mod window;

pub use device::{Device, DeviceFacts};
pub use error::{Error, Result};
pub use fusion_compiler::ir::dtype::DType;
pub use half::{bf16, f16};
pub use launch::{Coalescing, LaunchConfig};
pub use report::{KernelText, Report};
pub use shape::Shape;
pub use tensor::{Element, Float, Tensor};

#[doc = include_str!("language.md")]
#[macro_export]
macro_rules! fuse {
    ($($tokens:tt)*) => {
        $crate::__private::fuse_for! { $crate $($tokens)* }
    };
}

/// Names that generated code uses. The names are not a public interface and change without notice.
#[doc(hidden)]
pub mod __private {
    pub use std::borrow::Cow;

    pub use fusion_macros::fuse_for;

    pub use crate::arg::{Arg, IntoScalar};
    #[cfg(target_arch = "x86_64")]
    pub use crate::isa::{Avx2, Avx512};
    pub use crate::isa::{Base, Instructions, Isa};
    pub use crate::kernel::{Code, CpuArgs, CpuCode, CpuFn, Plan, ScalarValue, StaticPlan};
    pub use crate::lanes::{Lines, Total, around, doubles, fold_lanes, tiles};
    pub use crate::report::kernels;
    pub use crate::run::{instance, mistaken, run, run_into, run_one};
    pub use crate::tensor::{AsTensor, RawTensor};
    pub use crate::window::{Rows, Run};
}
