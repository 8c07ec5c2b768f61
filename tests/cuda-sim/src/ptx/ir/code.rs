//! A kernel: its instructions, and the constants and arrays that they name.

use std::sync::Arc;

use super::{Inst, Reg};

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
    /// The arrays of shared memory: all of it, the dynamic part, then each variable.
    pub(crate) arrays: Vec<SharedArray>,
}

/// A part of shared memory that has a name, by its number in [`Code::arrays`].
pub(crate) type Array = u16;
/// All shared memory: where it is not known which part an address is of.
pub(crate) const WHOLE: Array = 0;
/// What the launch adds, whatever its names.
pub(crate) const DYNAMIC: Array = 1;

/// Where a part of shared memory is.
#[derive(Debug)]
pub(crate) struct SharedArray {
    pub(crate) name: String,
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
    /// The start of an array of shared memory, and so many bytes further.
    Shared(Array, i64),
}
