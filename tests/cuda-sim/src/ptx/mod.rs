//! PTX text → [`Module`]: tokens, then declarations, then instructions whose operands are rows of a register
//! file.
//!
//! Invariant: an instruction that parses is one that `exec` runs as the ISA says. Anything else is a
//! [`ParseError`] that names it; no modifier is passed over, but for hints that change no result. What the text's
//! `.version` or `.target` does not have is refused, as NVIDIA's assembler does.

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

/// Why a text is not PTX that this crate knows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

/// A module: kernels and global variables.
#[derive(Debug)]
pub struct Module {
    /// `.version`: major and minor.
    pub version: (u32, u32),
    /// `.target`: the number after `sm_`.
    pub target: u32,
    /// The `.entry` functions.
    pub kernels: Vec<Kernel>,
    /// Variables of `.global` and `.const`; the driver allocates them when it loads the module.
    pub globals: Vec<Global>,
}

/// A variable of the module.
#[derive(Debug)]
pub struct Global {
    /// Its name.
    pub name: String,
    /// Its alignment in bytes.
    pub align: u64,
    /// What it holds at first, all its bytes.
    pub init: Vec<u8>,
    /// Whether it is of `.const`, not of `.global`.
    pub is_constant: bool,
}

/// An `.entry`.
#[derive(Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<Param>,
    /// Bytes of all parameters with their padding.
    pub params_bytes: u32,
    /// Bytes of its `.shared` variables.
    pub static_shared: u32,
    /// Registers of 32 bits that a thread needs at once, as a compiler would count them roughly.
    pub registers: u32,
    /// What it asks of its launches.
    pub limits: Limits,
    pub(crate) code: ir::Code,
    pub(crate) text: Arc<str>,
}

/// A kernel's parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Where it is among the parameters, in bytes.
    pub offset: u32,
    /// Its length in bytes.
    pub bytes: u32,
}
