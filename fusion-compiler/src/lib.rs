//! The compiler behind `fuse!`: tensor expressions to fused PTX, WGSL and Rust kernels.
//!
//! A plain library: no I/O, and it knows no device. Read `compile` for the pipeline, top to bottom. Without the feature `compile` it is
//! the data that plans are made of, and reports of those: what programs need at run time.

#[cfg(feature = "compile")]
extern crate proc_macro;

use ir::kernel::Kernel;
use ir::plan::{Code, Text};

#[cfg(feature = "compile")]
pub mod assemble;
#[cfg(feature = "compile")]
pub mod check;
#[cfg(feature = "compile")]
pub mod diag;
#[cfg(feature = "compile")]
mod dump;
#[cfg(feature = "compile")]
pub mod emit;
#[cfg(feature = "compile")]
pub mod fuse;
pub mod ir;
#[cfg(feature = "compile")]
pub mod larger;
#[cfg(feature = "compile")]
pub mod legalize;
#[cfg(feature = "compile")]
mod nonempty;
#[cfg(feature = "compile")]
mod parse;
#[cfg(feature = "compile")]
mod pipeline;
#[cfg(feature = "compile")]
pub mod reference;
pub mod report;
#[cfg(feature = "compile")]
pub mod rewrite;
#[cfg(feature = "compile")]
pub mod schedule;
#[cfg(feature = "compile")]
pub mod summary;
pub mod target;
#[cfg(feature = "compile")]
mod traffic;
#[cfg(feature = "compile")]
mod trips;
#[cfg(feature = "compile")]
pub mod ulp;
#[cfg(feature = "compile")]
mod variant_summary;

#[cfg(feature = "compile")]
pub use pipeline::{Expansion, compile, expand, lower, optimize};

/// What the CPU runs.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuKernel {
    /// To be interpreted.
    pub kernel: Kernel,
    /// As Rust.
    pub rust: Text,
    /// Whether its loops wait for memory, however many lanes a vector has.
    pub is_memory_bound: bool,
}

/// What a target runs, while compiling.
pub type KernelCode = Code<CpuKernel>;
