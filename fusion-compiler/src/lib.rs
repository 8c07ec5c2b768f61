//! The compiler behind `fuse!`: tensor expressions to fused PTX, WGSL and Rust kernels.
//!
//! The crate is a plain library: it does no I/O and knows no device. The function `compile` shows the
//! pipeline from top to bottom. Without the feature `compile`, the crate has only the data of plans and their
//! reports, which programs need at run time.

#[cfg(feature = "compile")]
extern crate proc_macro;

use ir::kernel::Kernel;
use ir::plan::{Code, Text};

#[cfg(feature = "compile")]
pub mod check;
#[cfg(feature = "compile")]
pub mod diag;
#[cfg(feature = "compile")]
pub mod emit;
#[cfg(feature = "compile")]
pub mod fuse;
pub mod ir;
#[cfg(feature = "compile")]
pub mod legalize;
pub mod ops;
#[cfg(feature = "compile")]
mod parse;
#[cfg(feature = "compile")]
mod pipeline;
#[cfg(feature = "compile")]
pub mod plan;
pub mod report;
#[cfg(feature = "compile")]
pub mod rewrite;
#[cfg(feature = "compile")]
pub mod schedule;
pub mod target;

#[cfg(feature = "compile")]
pub use pipeline::{
    Expansion, KernelBoundaries, KernelBoundary, compile, expand, kernel_boundaries, lower, optimize,
};

/// Kernel for the CPU, in two forms.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuKernel {
    /// Legal kernel, for the interpreter.
    pub kernel: Kernel,
    /// Rust code of the kernel.
    pub rust: Text,
    /// True if the loops of the kernel are memory bound, whatever the number of lanes.
    pub is_memory_bound: bool,
}

/// Code of a kernel for one target, at compile time.
pub type KernelCode = Code<CpuKernel>;
