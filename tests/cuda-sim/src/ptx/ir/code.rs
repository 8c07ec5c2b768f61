//! Code of a kernel: its instructions, and the constants and variables that they name.

use std::sync::Arc;

use super::{Inst, Reg, Space};

/// Instructions of a kernel with their tables.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) insts: Vec<Inst>,
    /// Number of rows of the register file.
    pub(crate) rows: u32,
    /// Rows that are filled before the first instruction.
    pub(crate) constants: Vec<(Reg, Wide, Constant)>,
    /// Registers that the instructions read, one instruction after the other.
    pub(crate) reads: Vec<Reg>,
    /// Registers that the instructions write, without those that receive special registers.
    pub(crate) writes: Vec<Reg>,
    /// Bytes of local memory of a thread.
    pub(crate) local: u32,
    /// Offset of dynamic shared memory, which follows the static.
    pub(crate) dynamic_at: u32,
    /// True if any instruction orders accesses by a fence.
    pub(crate) has_fences: bool,
    /// True if any instruction orders only some threads of a block, or threads of several blocks.
    ///
    /// The instructions are fences, barriers of some warps and barriers of some lanes.
    pub(crate) orders_some: bool,
    /// Variables of the module in `.const`: their numbers and lengths.
    pub(crate) constant_memory: Arc<[(u32, u64)]>,
    /// Variables of shared, local and parameter memory.
    pub(crate) vars: Vec<Placed>,
}

/// Variable of shared, local or parameter memory, by its number in [`Code::vars`].
pub(crate) type Var = u32;
/// Dynamic shared memory, which is one variable under all its names.
pub(crate) const DYNAMIC: Var = 0;

/// Place of a variable.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) name: String,
    pub(crate) space: Space,
    pub(crate) start: u32,
    /// Length in bytes. None for a variable that extends to the end of the block's memory.
    pub(crate) bytes: Option<u32>,
}

/// Number of rows of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wide {
    One,
    Two,
}

/// Value of a constant row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Bits(u64),
    /// Address of a variable of the module, plus an offset in bytes.
    Global(u32, i64),
    /// Start of a variable of shared, local or parameter memory, plus an offset in bytes.
    Placed(Var, i64),
}
