//! Parser from PTX text to a [`Module`].
//!
//! The parser reads tokens, then declarations, then instructions. Operands become rows of a register file.
//!
//! Invariant: `exec` runs every instruction that parses as the ISA defines it. Anything else is a
//! [`ParseError`] that names the instruction. The parser ignores no modifier except for hints that change no
//! result. An instruction that the text's `.version` or `.target` does not have is refused, as NVIDIA's
//! assembler does.

mod body;
mod call;
mod decode;
pub(crate) mod ir;
mod lex;
mod limits;
mod live;
mod module;
mod operand;
mod origin;
pub(crate) mod types;

pub use limits::Limits;
pub(crate) use module::header;
pub use module::parse;

use std::sync::Arc;

use thiserror::Error;

/// Error of a text that is not PTX, or that is PTX that this crate does not support.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: u32,
    /// Column, counted from 1.
    pub column: u32,
    /// Description of the error.
    pub message: String,
}

/// A module: kernels and global variables.
#[derive(Debug)]
pub struct Module {
    /// Major and minor number of `.version`.
    pub version: (u32, u32),
    /// Number after `sm_` in `.target`.
    pub target: u32,
    /// Functions declared by `.entry`.
    pub kernels: Vec<Kernel>,
    /// Variables of `.global` and `.const`. The driver allocates them when it loads the module.
    pub globals: Vec<Global>,
}

/// Variable of a module.
#[derive(Debug)]
pub struct Global {
    /// Name of the variable.
    pub name: String,
    /// Alignment in bytes.
    pub align: u64,
    /// Initial value, with all bytes of the variable.
    pub init: Vec<u8>,
    /// True if the variable is in `.const`, not in `.global`.
    pub is_constant: bool,
}

/// Kernel: a function declared by `.entry`.
#[derive(Debug)]
pub struct Kernel {
    /// Name of the kernel.
    pub name: String,
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// Bytes of all parameters with their padding.
    pub params_bytes: u32,
    /// Bytes of the kernel's `.shared` variables.
    pub static_shared: u32,
    /// Number of 32-bit registers that a thread needs at once, an estimate of a compiler's count.
    pub registers: u32,
    /// Limits that the kernel sets for its launches.
    pub limits: Limits,
    pub(crate) code: ir::Code,
    pub(crate) text: Arc<str>,
}

/// Parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name of the parameter.
    pub name: String,
    /// Offset from the first parameter, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
}
