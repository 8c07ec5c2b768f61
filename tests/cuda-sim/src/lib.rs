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
//! # What is missed
//!
//! Let pass:
//! - A barrier of some of the threads orders all of the block, and `bar.warp.sync` of some lanes all of the warp; so does
//!   one that lanes reach in different branches.
//! - Two blocks that both made a fence for the whole GPU are taken to have used it, before or after the accesses.
//! - Of several atomics of different blocks to one place only the last is known, and of plain writes.
//! - Blocks whose numbers are 2^24 - 2 apart are one to the detector of races.
//! - Blocks run in order on few cores, and warps in turns: a race that does not show in memory is still found, but a result
//!   that depends on the order is only what this order gives.
//! - A copy by `cp.async` lands at the wait, never before, and has read its source where it began.
//! - Threads that come to one barrier with different counts, or with `bar.sync` and `bar.red`, and a `bar.arrive` that
//!   nobody waits for.
//!
//! The other way around, threads of a block that are ordered by a flag or a lock and fences alone are told to race; and a
//! mask of a vote, match, reduction or shuffle that names a lane which has exited or never was is a
//! fault, though hardware lets some of them pass.

pub mod driver;
pub mod exec;
pub mod memory;
pub mod ptx;
