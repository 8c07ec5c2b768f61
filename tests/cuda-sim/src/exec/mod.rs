//! Execution of grids.
//!
//! Clusters run on all cores. The blocks of a cluster, and the warps of a block, run in turn. The lanes of a
//! warp run together. Without a cluster size each block is a cluster of its own.
//!
//! Invariant: clusters begin in order, so that a block may wait for one of an earlier cluster.

mod alu;
mod atomic;
mod bits;
mod block;
mod choice;
mod clock;
mod cluster;
mod convert;
mod copy;
mod float;
mod grid;
mod half;
mod incoming;
mod int;
mod matrix;
mod mbarrier;
mod memory;
mod order;
mod race;
mod readers;
mod regs;
mod shared;
mod soft;
mod special;
mod step;
mod sync;
mod unset;
mod warp;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::Memory;
use crate::ptx::Kernel;

/// Launch of a grid.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Number of blocks along each axis.
    pub grid: [u32; 3],
    /// Number of threads of a block along each axis: together at most 1024.
    pub block: [u32; 3],
    /// Number of blocks of a cluster along each axis, if the launch gives it.
    ///
    /// Each number is a divisor of the grid's number of blocks, and their product is at most 255. The numbers
    /// equal those that the kernel requires, if any.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory of a block.
    pub dynamic_shared: u32,
    /// Bytes of the parameters, at the offsets of [`crate::ptx::Param::offset`].
    pub params: &'a [u8],
    /// Addresses of the module's variables, in order.
    pub globals: &'a [u64],
}

/// Counts of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of instructions of the text, one for each thread that executed it.
    pub instructions: u64,
    /// Bytes that threads loaded from global memory.
    pub loaded: u64,
    /// Bytes that threads stored to global memory.
    pub stored: u64,
    /// Number of sectors of 32 bytes that loads touch. Each instruction of a warp counts a sector once.
    pub load_sectors: u64,
    /// Number of sectors of 32 bytes that stores touch. Each instruction of a warp counts a sector once.
    pub store_sectors: u64,
    /// Bytes that threads loaded from and stored to their block's shared memory.
    pub shared: u64,
    /// Number of rounds of those accesses. In one round each of the 32 banks moves one word.
    pub shared_rounds: u64,
}

/// Fault of a kernel: an operation that breaks a rule.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{kernel}`, line {line}: {what} (block {block:?}, thread {thread:?}): {instruction}")]
pub struct Fault {
    /// Rule that the kernel breaks.
    pub kind: FaultKind,
    /// Name of the kernel.
    pub kernel: String,
    /// Line of the text, counted from 1.
    pub line: u32,
    /// Instruction, as written.
    pub instruction: String,
    /// Description with numbers.
    pub what: String,
    /// Coordinates of the block.
    pub block: [u32; 3],
    /// Coordinates of the first thread with the fault.
    pub thread: [u32; 3],
}

/// Rules of the sanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Access out of bounds.
    ///
    /// The access is outside of every allocation, in freed memory, or outside of the variable of its address
    /// in shared, local or parameter memory. An access to shared memory of another block has this kind if the
    /// block does not exist, is not known to have begun, or may have ended.
    OutOfBounds,
    /// Address that is no multiple of the access.
    Misaligned,
    /// Use of an undefined value.
    ///
    /// An undefined register decides an address, a branch or a store to global memory. A register is
    /// undefined if nothing wrote it or its operands, if it was loaded from unwritten shared or local memory,
    /// or if a shuffle took it from a lane that took no part. An atomic on unwritten shared memory has this
    /// kind, too.
    Uninitialized,
    /// Data race: unordered accesses of two threads, at least one of them a write. Writing the same value is
    /// a race, too.
    ///
    /// Use of an mbarrier that the thread does not know to have been initialised has this kind, too.
    Race,
    /// Write to memory that the launch reads by `ld.global.nc`, in any order, or write to a variable of
    /// `.const`.
    Constant,
    /// Barrier that not all threads reach, or that too many threads reach, or invalid use of an mbarrier.
    Barrier,
    /// A `.sync` instruction whose mask names a lane that does not arrive.
    Mask,
    /// Execution of `trap`, or a call of `assert`.
    Trap,
    /// More instructions than the limit of a launch.
    Endless,
}

/// Maximum number of warp instructions in a launch, which ends kernels that never terminate.
pub const LIMIT: u64 = 1 << 30;

/// Fault of a lane, without its place in the grid.
#[derive(Debug)]
struct Trouble {
    kind: FaultKind,
    what: String,
    lane: usize,
}

/// Result of a step of a warp.
type Step = Result<(), Box<Trouble>>;

#[cold]
fn trouble<T>(kind: FaultKind, lane: usize, what: impl FnOnce() -> String) -> Result<T, Box<Trouble>> {
    Err(Box::new(Trouble { kind, what: what(), lane }))
}

/// Runs all blocks of a launch on all cores.
///
/// # Errors
/// Returns the fault of the lowest cluster that has one. After the first fault the other clusters run at most
/// a million more instructions to find theirs.
pub fn run(kernel: &Kernel, launch: &Launch<'_>, memory: &Memory) -> Result<Counters, Fault> {
    run_limited(kernel, launch, memory, LIMIT)
}

/// Runs all blocks of a launch, with a lower limit on the instructions of all warps together.
///
/// # Errors
/// The errors of [`run`].
pub fn run_limited(
    kernel: &Kernel,
    launch: &Launch<'_>,
    memory: &Memory,
    limit: u64,
) -> Result<Counters, Fault> {
    // The times of stamps suffice for as many instructions.
    let grid = grid::Grid::new(kernel, launch, memory, limit.min(LIMIT));
    let (clusters, next) = (grid.clusters(), AtomicU64::new(0));
    let faulty = AtomicU64::new(u64::MAX);
    let done: Mutex<(Counters, Vec<(u64, Fault)>)> = Mutex::default();
    let work = || {
        let mut cluster = cluster::Cluster::new(&grid);
        let mut faults = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            // Clusters after a faulty one do not matter.
            if number >= clusters || number > faulty.load(Ordering::Relaxed) {
                break;
            }
            if let Err(fault) = cluster.run(&grid, number) {
                faulty.fetch_min(number, Ordering::Relaxed);
                grid.end_soon();
                faults.push((number, fault));
            }
        }
        let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        done.0.add(cluster.counters());
        done.1.append(&mut faults);
    };
    let workers = (rayon::current_num_threads() as u64).min(clusters);
    rayon::scope(|scope| {
        (1..workers).for_each(|_| scope.spawn(|_| work()));
        work();
    });
    let (counters, faults) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A block that waits for one that a fault has ended never ends, so its fault has the lowest rank.
    let rank = |(number, fault): &(u64, Fault)| (fault.kind == FaultKind::Endless, *number);
    match faults.into_iter().min_by_key(rank) {
        Some((_, fault)) => Err(fault),
        None => Ok(counters),
    }
}

impl Counters {
    fn add(&mut self, o: Counters) {
        self.instructions += o.instructions;
        self.loaded += o.loaded;
        self.stored += o.stored;
        self.load_sectors += o.load_sectors;
        self.store_sectors += o.store_sectors;
        self.shared += o.shared;
        self.shared_rounds += o.shared_rounds;
    }
}
