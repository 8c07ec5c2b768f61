//! What the interpreter computes and what it refuses: hand-written kernels, whose results were worked out from the PTX ISA,
//! nvcc's, our own, and all of them broken on purpose.

mod arrays;
mod atomics;
mod barriers;
mod cases;
mod clusters;
mod conversions;
mod emitted;
mod faults;
mod floats;
mod forms;
mod functions;
mod halves;
mod harness;
mod integers;
mod matrix;
mod mbarriers;
mod memory;
mod mutations;
mod needs;
mod nvcc;
mod order;
mod parsing;
mod undefined;
mod warps;
