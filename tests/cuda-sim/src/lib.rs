//! PTX on machines without an NVIDIA GPU: an interpreter that follows the PTX ISA and watches for what a GPU would
//! let pass, and the functions of the CUDA driver over it.
//!
//! Data flow: `ptx` makes a [`ptx::Module`] of text, `exec` runs one of its kernels over a [`memory::Memory`],
//! `driver` keeps both behind the driver's handles and codes.

pub mod driver;
pub mod exec;
pub mod memory;
pub mod ptx;
