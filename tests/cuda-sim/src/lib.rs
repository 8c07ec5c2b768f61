//! PTX on machines without an NVIDIA GPU: an interpreter that follows the PTX ISA and watches for what a GPU would
//! let pass, and the functions of the CUDA driver over it.
//!
//! Data flow: `ptx` makes a [`ptx::Module`] of text, `exec` runs one of its kernels over a [`memory::Memory`],
//! `driver` keeps both behind the driver's handles and codes.
//!
//! # What counts as a barrier that not all reach
//!
//! The ISA lets `exit` release a barrier that waits for the threads that exit, and has all threads of a warp execute one
//! that is `.aligned`, as `bar.sync` is. So it is a fault if some lanes of a warp come to such a barrier and others, alive
//! at the time, do not: a guard keeps them away, or they end meanwhile. Threads that end before they were at any barrier
//! of the whole block (`if (i >= n) return;`) are not waited for. Stricter than the ISA, it is a fault if a barrier of the
//! whole block completes without a thread that has ended after it took part in one before, or that its guard led past.
//!
//! # What orders accesses
//!
//! Barriers, of those threads that they are of; `bar.warp.sync`, the lanes of its mask; and the release and acquire
//! patterns of the ISA: a fence and then a strong write or an atomic of one thread, that a strong read or an atomic of
//! another sees, which makes a fence then. A fence alone orders nothing, and a fence of a block (`.cta`) nothing beyond it;
//! what releases or acquires itself (`st.release`, `ld.acquire`) does so at its own place only. Shuffles, votes and matches
//! order no memory. A thread that has ended takes part in no barrier: what it did since its last is not ordered with those
//! that go on.
//!
//! Atomics, strong reads and strong writes do not race with one another, where they are of elements of one length: of
//! others they do, as the ISA says that they are not morally strong together.
//!
//! A barrier for a number of threads counts warps, as the ISA does: one is there for 32 threads when all its lanes that
//! have not exited are. It is over with those that make up the number; who comes after them is of the next turn. More, or
//! two numbers in one turn, are a fault.
//!
//! # Clusters
//!
//! The blocks of a cluster run together, those of different ones do not. `barrier.cluster` orders what its threads did before
//! they arrived with what the others do after they have waited; with `.relaxed`, nothing. A thread that has exited counts as
//! one that has arrived, and tells nothing. To arrive twice without waiting, and to wait without having arrived, are faults.
//!
//! The shared memory of another block is there from when the thread knows that the block has begun: after it, or one that it
//! learns from, has waited for an arrival there, relaxed or not. It is there up to the end of the block's last thread, so
//! that some thread of that block has to learn of every access of others before it ends. Both are told whatever the order in
//! which blocks run here.
//!
//! # mbarriers
//!
//! An mbarrier is 8 bytes of shared memory that nothing but its own instructions touches from `init` to `inval`. Who uses it
//! has to know that it was initialised: as of all that is written, or, of the block or of another, from having waited at the
//! barrier of the cluster where the one that did it arrived, relaxed or not, after `fence.mbarrier_init`.
//!
//! A phase is complete when as many threads have arrived as it is for, and as many bytes of `st.async` have come as are
//! expected; more of either is a fault, and so is what counts for a phase that the thread does not know to have begun: it
//! may as well count for the one before. What `st.async` writes is for nobody to touch, to read it or to write it again,
//! who does not know that its phase is complete. That is known from `try_wait`, of stores from other blocks from one of
//! the cluster (`.cluster`) alone, and as all else from those who know it. An arrival, which releases, orders what was done
//! before with those that have waited. Some thread of the block has to have seen the phase complete before the block ends.
//!
//! `try_wait` says no when a thread asks for the first time for a phase that is not complete, as hardware may, and waits the
//! second time, so that what does not ask again goes wrong. A thread that asks two mbarriers in turn waits for the first.
//!
//! Only mbarriers of the block's own shared memory are waited and arrived at, without a state, and only `st.async` counts
//! bytes.
//!
//! # What is undefined
//!
//! A register that nothing wrote, what is loaded of shared or local memory that nothing wrote, what a shuffle takes from a
//! lane that takes no part or has nothing, and what is computed of these; of a choice, what it chooses. It is a fault where
//! it decides an address, a way, what other lanes get of it but by a shuffle, or what is stored in global memory. In shared
//! and local memory a store of it leaves nothing. An atomic on what nothing wrote is a fault at once, and an `st.async` of it.
//!
//! Structs are copied with their padding: of what is loaded as one, some of which was written, the rest may be stored in
//! global memory too, as long as it was only moved. It is [`memory::POISON`] there.
//!
//! # Addresses of variables
//!
//! An address in shared, local or parameter memory that is made of that of one variable and of numbers stays in that
//! variable. Where it may be of one variable or another, was loaded, or was mixed by bits, the whole memory of the block, of
//! the thread or of the parameters is its bound. `.extern` memory is one variable, whatever names it has.
//!
//! # What is missed
//!
//! Let pass:
//! - A part of a vector or of a word that nothing wrote, and that is copied to global memory with parts that were: it cannot
//!   be told from padding. What is there then is no number.
//! - A place that so many warps have read at a time that nobody notes them all, 64, or in shared memory 64 for each block of
//!   the cluster, may be written by a thread that knows of an event in every block so far.
//! - The scope of an atomic, of a strong read and of a strong write is taken to reach both threads; that of a fence is not.
//! - A fence of a cluster (`.cluster`), and an access that is half of one, counts as one of the GPU.
//! - What a thread did before it ended counts as told by the barriers of others where it was one of several to read a place,
//!   and in a kernel with a fence, or a barrier of some threads, that it may have been told by.
//! - Of several atomics of different blocks to one place only the last is known, and of plain writes.
//! - Blocks whose numbers are 2^23 - 2 apart are one to the detector of races.
//! - Blocks run in order on few cores, and warps in turns: a race that does not show in memory is still found, but a result
//!   that depends on the order is only what this order gives.
//! - A store by `st.async` counts at once, and never for a later phase than that in which it was made.
//! - A copy by `cp.async` lands at the wait, never before, and has read its source where it began.
//! - Threads that come to one barrier with `bar.sync` and `bar.red`, with a number and without one, and a `bar.arrive` that
//!   nobody waits for.
//!
//! The other way around, a shuffle's mask that names a lane which has exited is a fault, and any mask that names one which
//! never was, though hardware lets some of them pass; and the threads that a fence and a barrier are between are ordered
//! with another block only where the one that makes the atomic has made a fence too, as the ISA says.

pub mod driver;
pub mod exec;
pub mod memory;
pub mod ptx;
