//! Runs a grid. (Contract: what the driver uses of it.)
use crate::memory::Memory;
use crate::ptx::Kernel;

/// A grid to run.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub dynamic_shared: u32,
    /// The parameters, laid out as [`crate::ptx::Param::offset`] says.
    pub params: &'a [u8],
    /// Addresses of the module's variables, in order.
    pub globals: &'a [u64],
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Instructions, one for each thread that executed it.
    pub instructions: u64,
    /// Bytes that threads loaded from global memory.
    pub loaded: u64,
    /// Bytes that threads stored to global memory.
    pub stored: u64,
    /// Sectors of 32 bytes that the loads of a warp touch, each counted once for each instruction of a warp.
    pub load_sectors: u64,
    /// The same of stores.
    pub store_sectors: u64,
}

/// What a kernel did that it must not do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{kernel}`, line {line}: {what} (block {block:?}, thread {thread:?}): {instruction}")]
pub struct Fault {
    /// Which rule.
    pub kind: FaultKind,
    /// The entry.
    pub kernel: String,
    /// Line of the text, from 1.
    pub line: u32,
    /// The instruction, as written.
    pub instruction: String,
    /// What happened, with numbers.
    pub what: String,
    /// The block.
    pub block: [u32; 3],
    /// The first thread to which it happened.
    pub thread: [u32; 3],
}

/// The rules of the sanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An access outside every allocation, freed memory included.
    OutOfBounds,
    /// An address that is no multiple of the access.
    Misaligned,
    /// Shared memory, or a register, read before anything wrote it.
    Uninitialized,
    /// Two threads, at least one of them writing, with nothing that orders them.
    Race,
    /// A barrier that not all threads reach.
    Barrier,
    /// A `.sync` instruction whose mask names a lane that does not come.
    Mask,
    /// `trap`, or a call of `assert`.
    Trap,
    /// More instructions than the limit for one launch.
    Endless,
}

/// Runs all blocks, on all cores.
///
/// # Errors
/// The fault of the lowest block that has one.
pub fn run(kernel: &Kernel, launch: &Launch<'_>, memory: &Memory) -> Result<Counters, Fault> {
    let _ = (kernel, launch, memory);
    unimplemented!()
}
