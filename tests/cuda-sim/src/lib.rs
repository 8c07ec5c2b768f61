//! Simulator of an NVIDIA GPU for machines without one: a PTX interpreter, and the CUDA driver's functions
//! over it.
//!
//! The interpreter follows the PTX ISA, and also detects errors that a GPU would let pass.
//!
//! Data flow: `ptx` parses a text to a [`ptx::Module`]. `exec` runs one of its kernels over a
//! [`memory::Memory`]. `driver` puts the driver's handles and result codes over both.
//!
//! # Barriers that not all threads reach
//!
//! The ISA lets `exit` release a barrier that waits for the exiting threads. The ISA requires all threads of
//! a warp to execute an `.aligned` barrier, and `bar.sync` is one. Therefore it is a fault if some lanes of a
//! warp arrive at such a barrier and other living lanes do not. A guard may keep those lanes away, or they
//! may exit.
//!
//! A barrier does not wait for threads that exited before their first barrier of the whole block
//! (`if (i >= n) return;`). In one respect the simulator is stricter than the ISA. A barrier of the whole
//! block is a fault if it completes without an exited thread that took part in a barrier before, or that its
//! guard led past this barrier.
//!
//! # Orderings of accesses
//!
//! The following operations order accesses:
//! - A barrier orders the threads that take part in it.
//! - `bar.warp.sync` orders the lanes of its mask.
//! - The release and acquire patterns of the ISA order two threads. One thread makes a fence, then a strong
//!   write or an atomic. Another thread sees the value by a strong read or an atomic, then makes a fence.
//! - An access that releases or acquires (`st.release`, `ld.acquire`) does so at its own place only.
//!
//! A fence alone orders nothing, and a fence of a block (`.cta`) orders nothing beyond the block. Shuffles,
//! votes and matches order no memory. An exited thread takes part in no barrier: its accesses since its last
//! barrier are not ordered with later accesses of other threads.
//!
//! Atomics, strong reads and strong writes of elements of one length do not race with one another. With
//! different lengths the accesses race, because the ISA says that they are not morally strong together.
//!
//! A barrier for a number of threads counts warps, as the ISA does: a warp counts for 32 threads when all its
//! lanes that have not exited have arrived. The warps that make up the number complete the barrier, and later
//! arrivals belong to its next phase. More threads than the number, or two numbers in one phase, are a fault.
//!
//! # Clusters
//!
//! The blocks of a cluster run together, and blocks of different clusters do not. `barrier.cluster` orders
//! the accesses of its threads before they arrive with those of the others after they have waited. With
//! `.relaxed` it orders nothing. An exited thread counts as arrived, and publishes nothing. A second arrival
//! without a wait, and a wait without an arrival, are faults.
//!
//! A thread may access the shared memory of another block once it knows that the block has begun. The thread
//! knows that once it, or a thread that it learns from, has waited for an arrival of that block, relaxed or
//! not. The memory lives until the last thread of the block exits, so some thread of that block has to learn
//! of every access of other blocks before it exits. The simulator checks the two rules independently of the
//! order in which it runs blocks.
//!
//! # mbarriers
//!
//! An mbarrier is 8 bytes of shared memory. From `init` to `inval` only its own instructions may touch it. A
//! thread that uses an mbarrier has to know that it was initialised. There are two ways:
//! - The initialisation is ordered before the use, like any write.
//! - The initialising thread executes `fence.mbarrier_init` and then arrives at the barrier of the cluster,
//!   relaxed or not. A thread of any block that has waited there knows of the initialisation.
//!
//! A phase is complete when the expected number of threads have arrived and the expected bytes of `st.async`
//! have come. More of either is a fault. An operation that counts for a phase that its thread does not know
//! to have begun is also a fault, because it may count for the phase before.
//!
//! No thread may read or write the target of an `st.async` unless it knows that the store's phase is
//! complete. A thread knows that from `try_wait`, or from a thread that knows. For stores from other blocks
//! only a `try_wait` in the scope of the cluster (`.cluster`) counts. An arrival releases: it orders accesses
//! before it with those of threads that have waited. Some thread of the block has to see the phase complete
//! before the block ends.
//!
//! `try_wait` fails the first time a thread asks for an incomplete phase, as it may on hardware, and waits
//! the second time. Code that does not ask again therefore fails. A thread that asks two mbarriers in turn
//! waits for the first.
//!
//! Waits and arrivals are supported only at mbarriers of the block's own shared memory, and without a state.
//! Only `st.async` counts bytes.
//!
//! # Undefined values
//!
//! The following values are undefined:
//! - A register that nothing wrote.
//! - A value loaded from shared or local memory that nothing wrote.
//! - A value that a shuffle takes from a lane that takes no part, or whose own value is undefined.
//! - A result computed from an undefined value. A selection ignores the operand that it does not select.
//!
//! An undefined value is a fault where it decides an address or a branch, where other lanes get a result
//! computed from it (except by a shuffle), and where it is stored to global memory. A store of it to shared
//! or local memory leaves the bytes unwritten. An atomic on unwritten memory is a fault at once, and so is an
//! `st.async` of an undefined value.
//!
//! Structs are copied with their padding. A value that was loaded together with written bytes may therefore
//! be stored to global memory as well, as long as it was only moved. The undefined bytes of the value become
//! [`memory::POISON`] there.
//!
//! # Addresses of variables
//!
//! An address in shared, local or parameter memory that is computed from one variable's address and from
//! numbers has to stay in that variable. An address that may be of several variables, was loaded, or went
//! through bit operations has to stay in the whole memory of the block, of the thread or of the parameters.
//! `.extern` memory is one variable under all its names.
//!
//! # Known limitations
//!
//! The simulator does not detect, or simplifies:
//! - An unwritten part of a vector or word that is copied to global memory together with written parts. The
//!   part cannot be distinguished from padding, and is NaN in global memory.
//! - Writes to a place with too many readers to record: 64 warps, or in shared memory 64 for each block of
//!   the cluster. A thread that knows of an event in every block so far may write the place.
//! - Scopes of atomics, strong reads and strong writes. Each is assumed to include both threads. Scopes of
//!   fences are checked.
//! - The scope `.cluster` of a fence, and of an access that is half of one, which counts as that of the GPU.
//! - Accesses of an exited thread that was one of several readers of a place, which the barriers of others
//!   count as ordering. The same applies to all its accesses in a kernel with a fence, or a barrier of some
//!   threads, that may have ordered them.
//! - All but the last of several atomics of different blocks to one place, and all but the last of several
//!   plain writes.
//! - Races between blocks whose numbers are 2^23 - 2 apart, which the race detector does not distinguish.
//! - Other orders of execution. Blocks run in order on few cores, and warps in turns. Races that do not show
//!   in memory are still detected, but a result that depends on the order is only the one of this order.
//! - Delays of `st.async`. A store counts at once, and never for a later phase than the one in which it was
//!   made.
//! - Early completion of `cp.async`. A copy reads its source at its start, and writes its target only at the
//!   wait.
//! - Threads that use one barrier both by `bar.sync` and `bar.red`, or both with a number and without one,
//!   and a `bar.arrive` that nobody waits for.
//!
//! In three cases the simulator is stricter than some hardware:
//! - The mask of a shuffle that names an exited lane is a fault.
//! - A mask that names a lane that never existed is a fault, except for `bar.warp.sync`.
//! - A thread makes a fence, its block meets at a barrier, and another thread of the block makes an atomic.
//!   The atomic orders the first thread with other blocks only if the second thread has made a fence too, as
//!   the ISA says.

pub mod driver;
pub mod exec;
pub mod memory;
pub mod ptx;
