//! The interpreter computes right results and refuses invalid kernels. The kernels are hand-written with
//! results worked out from the PTX ISA, nvcc's, Fusion's, and all of them broken on purpose.

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
