//! Runs a grid: clusters on all cores, their blocks and the warps of these in turn, a warp's lanes together. A block is a
//! cluster of its own where nobody says otherwise.
//!
//! Invariant: clusters begin in order, so that a block may wait for one of a cluster before its own.

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

/// A grid to run.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block: together at most 1024.
    pub block: [u32; 3],
    /// Blocks of a cluster, where the launch says: along each axis a divisor of the grid's, and together at most 255. It is
    /// what the kernel requires, if it does.
    pub cluster: Option<[u32; 3]>,
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
    /// Instructions of the text, one for each thread that executed it.
    pub instructions: u64,
    /// Bytes that threads loaded from global memory.
    pub loaded: u64,
    /// Bytes that threads stored to global memory.
    pub stored: u64,
    /// Sectors of 32 bytes that the loads of a warp touch, each counted once for each instruction of a warp.
    pub load_sectors: u64,
    /// The same of stores.
    pub store_sectors: u64,
    /// Bytes that threads loaded from and stored to their block's shared memory.
    pub shared: u64,
    /// Rounds that took: in one, each of its 32 banks gives a word or takes one.
    pub shared_rounds: u64,
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
    /// An access outside every allocation, freed memory included; or by the address of a variable of shared, local or
    /// parameter memory outside of that variable. One to shared memory of a block of the cluster that there is not, that is
    /// not known to have begun, or that may have ended.
    OutOfBounds,
    /// An address that is no multiple of the access.
    Misaligned,
    /// An undefined register that decides an address, a way or what is stored in global memory: nothing wrote it or what it
    /// was made of, it was loaded from shared or local memory that nothing wrote, or a shuffle took it from a lane that took
    /// no part. An atomic on shared memory that nothing wrote.
    Uninitialized,
    /// Two threads, at least one of them writing, with nothing that orders them. Writing the same value is no
    /// excuse. An mbarrier that the thread does not know to have been initialised.
    Race,
    /// Memory that the launch writes and reads by `ld.global.nc`, in whatever order; a variable of `.const` written.
    Constant,
    /// A barrier that not all threads reach, or that more reach than it is for; an mbarrier used as it may not be.
    Barrier,
    /// A `.sync` instruction whose mask names a lane that does not come.
    Mask,
    /// `trap`, or a call of `assert`.
    Trap,
    /// More instructions than the limit for one launch.
    Endless,
}

/// Most instructions of warps in a launch: about a minute.
pub const LIMIT: u64 = 1 << 30;

/// What went wrong in a lane.
#[derive(Debug)]
struct Trouble {
    kind: FaultKind,
    what: String,
    lane: usize,
}

/// One step of a warp.
type Step = Result<(), Box<Trouble>>;

#[cold]
fn trouble<T>(kind: FaultKind, lane: usize, what: impl FnOnce() -> String) -> Result<T, Box<Trouble>> {
    Err(Box::new(Trouble { kind, what: what(), lane }))
}

/// Runs all blocks, on all cores.
///
/// # Errors
/// The fault of the lowest cluster that has one, of those that it takes a million more instructions to find.
pub fn run(kernel: &Kernel, launch: &Launch<'_>, memory: &Memory) -> Result<Counters, Fault> {
    run_limited(kernel, launch, memory, LIMIT)
}

/// The same with a lower limit on the instructions of all warps together.
///
/// # Errors
/// As for [`run`].
pub fn run_limited(
    kernel: &Kernel,
    launch: &Launch<'_>,
    memory: &Memory,
    limit: u64,
) -> Result<Counters, Fault> {
    // Times in stamps are as many as there may be instructions.
    let grid = grid::Grid::new(kernel, launch, memory, limit.min(LIMIT));
    let (clusters, next) = (grid.clusters(), AtomicU64::new(0));
    let faulty = AtomicU64::new(u64::MAX);
    let done: Mutex<(Counters, Vec<(u64, Fault)>)> = Mutex::default();
    let work = || {
        let mut cluster = cluster::Cluster::new(&grid);
        let mut faults = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            // Nobody asks about clusters after a faulty one.
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
    // A block that waits for one that a fault has ended waits for ever.
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
