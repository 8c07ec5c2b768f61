//! A kernel: its instructions, and the constants and variables that they name.

use std::sync::Arc;

use super::{Inst, Reg, Space};

/// A kernel's instructions and what they need.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) insts: Vec<Inst>,
    /// Rows of the register file.
    pub(crate) rows: u32,
    /// Rows that are filled beforehand.
    pub(crate) constants: Vec<(Reg, Wide, Constant)>,
    /// What each instruction reads, one after the other.
    pub(crate) reads: Vec<Reg>,
    /// What each writes, special registers aside.
    pub(crate) writes: Vec<Reg>,
    /// Bytes of local memory of a thread.
    pub(crate) local: u32,
    /// Where `.extern .shared` memory is, which follows the static.
    pub(crate) dynamic_at: u32,
    /// Whether anything in it orders accesses by a fence.
    pub(crate) has_fences: bool,
    /// Whether anything orders some threads of a block, or of blocks, and leaves others: a fence, a barrier of some warps,
    /// or one of some lanes.
    pub(crate) orders_some: bool,
    /// The module's variables of `.const`: their numbers and lengths.
    pub(crate) constant_memory: Arc<[(u32, u64)]>,
    /// The variables of shared, local and parameter memory.
    pub(crate) vars: Vec<Placed>,
}

/// A variable of shared, local or parameter memory, by its number in [`Code::vars`].
pub(crate) type Var = u32;
/// The shared memory that the launch adds, whatever its names.
pub(crate) const DYNAMIC: Var = 0;

/// Where a variable is.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) name: String,
    pub(crate) space: Space,
    pub(crate) start: u32,
    /// None: up to the end of what the block has.
    pub(crate) bytes: Option<u32>,
}

/// How many rows a register has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wide {
    One,
    Two,
}

/// What a constant row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Bits(u64),
    /// The address of a variable of the module, and so many bytes further.
    Global(u32, i64),
    /// The start of a variable of another memory, and so many bytes further.
    Placed(Var, i64),
}
