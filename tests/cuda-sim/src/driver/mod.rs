//! Functions of the CUDA driver over simulated devices: the exports of `libcuda.so.1`.
//!
//! Handles are numbers that are looked up and never dereferenced. Work is queued and runs as late as the
//! driver may run it (see `queue`). A kernel's fault ends all work on its device. The launch succeeds, and
//! the call that waits for the launch and every later one return the fault's code. A message on stderr
//! describes the fault.
//!
//! # Environment
//!
//! | variable | effect | default |
//! |---|---|---|
//! | `CUDA_SIM_DEVICES=n` | devices, 0 to 16; with none `cuInit` answers 100 | 1 |
//! | `CUDA_SIM_ARCH=n` | compute capability: 75, 80, 86, 87, 89, 90, 100 or 120 | 90 |
//! | `CUDA_SIM_MEMORY=n` | bytes of memory of each device | 4 GiB |
//! | `CUDA_SIM_DRIVER=n` | CUDA version of the driver, from 9000 on; it bounds the PTX version | 13000 |
//! | `CUDA_SIM_FAIL=f:n=c,…` | call `n` of function `f`, or with `n+` all from `n` on, answers `c` | |
//! | `CUDA_SIM_REPORT=path`, `-` | a line per launch, fault and leak, and totals at exit; `-` is stderr | |
//! | `CUDA_SIM_LOG=path` | messages on stderr are appended there too | |
//!
//! The first call reports a value that cannot be parsed on stderr, and every call answers
//! `CUDA_ERROR_UNKNOWN`.
//!
//! # The report
//!
//! ```text
//! launch kernel=k grid=4x1x1 block=256x1x1 shared=0 instructions=… loaded=… stored=… load_sectors=… …
//! fault kernel=k line=7 block=0x0x0 thread=31x0x0 code=700 text=…
//! leak address=0x… bytes=…
//! total launches=… faults=… instructions=… … allocations=… peak_bytes=… leaks=… leaked_bytes=…
//! ```
//!
//! `loaded` and `stored` are the bytes that threads access in global memory. `load_sectors` and
//! `store_sectors` count the sectors of 32 bytes that an instruction of a warp touches there. `shared_moved`
//! is the bytes that threads access in shared memory. `shared_rounds` counts the rounds that its 32 banks
//! need for the accesses: at least one for 128 bytes.
//!
//! # Unsupported features
//!
//! The simulator has no arrays, textures, graphs, linker, external memory or binaries in place of PTX.
//! Attributes of launches are not simulated either, except for the blocks of a cluster. The functions answer
//! `CUDA_ERROR_NOT_SUPPORTED` or `CUDA_ERROR_NO_BINARY_FOR_GPU` and report that on stderr.

pub mod alloc;
pub mod code;
mod config;
pub mod context;
pub mod copy;
pub mod device;
pub mod entry;
pub mod event;
mod exports;
mod facts;
mod jit;
pub mod launch;
pub mod module;
pub mod occupancy;
mod queue;
mod report;
mod state;
pub mod stream;
pub mod unsupported;
