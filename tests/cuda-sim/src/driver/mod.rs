//! The functions of the CUDA driver, over simulated devices: what `libcuda.so.1` exports.
//!
//! Handles are numbers that are looked up, never followed. Work is put into queues and runs as late as the driver
//! may run it (see `queue`). A kernel's fault ends all work on its device: the launch succeeds, the call that waits
//! for it and every later one give the fault's code, and what happened is said on stderr.
//!
//! # Environment
//!
//! | variable | effect | default |
//! |---|---|---|
//! | `CUDA_SIM_DEVICES=n` | devices, 0 to 16; with none `cuInit` answers 100 | 1 |
//! | `CUDA_SIM_ARCH=n` | compute capability: 75, 80, 86, 87, 89, 90, 100 or 120 | 90 |
//! | `CUDA_SIM_MEMORY=n` | bytes of memory of each device | 4 GiB |
//! | `CUDA_SIM_DRIVER=n` | CUDA version of the driver, from 9000 on; it bounds the PTX that is read | 13000 |
//! | `CUDA_SIM_FAIL=f:n=c,…` | call `n` of function `f`, or with `n+` all from `n` on, answers `c` | |
//! | `CUDA_SIM_REPORT=path`, `-` | a line for each launch, fault and leak, and one of sums at exit; `-` is stderr | |
//! | `CUDA_SIM_LOG=path` | what is said on stderr is appended there too | |
//!
//! A value that cannot be understood is said on stderr, and every call answers `CUDA_ERROR_UNKNOWN`.
//!
//! # The report
//!
//! ```text
//! launch kernel=k grid=4x1x1 block=256x1x1 shared=0 instructions=… loaded=… stored=… load_sectors=… store_sectors=… …
//! fault kernel=k line=7 block=0x0x0 thread=31x0x0 code=700 text=…
//! leak address=0x… bytes=…
//! total launches=… faults=… instructions=… … allocations=… peak_bytes=… leaks=… leaked_bytes=…
//! ```
//!
//! Bytes are those that threads access in global memory; a sector there is 32 bytes that an instruction of a warp touches. Then
//! come `shared_moved`, the bytes that they access in shared memory, and `shared_rounds`, how often its 32 banks have to serve for
//! that: no less than once for 128 bytes.
//!
//! # What is not simulated
//!
//! Arrays, textures, graphs, the linker, external memory, attributes of launches but for the blocks of a cluster, and
//! binaries in place of PTX: they answer `CUDA_ERROR_NOT_SUPPORTED` or `CUDA_ERROR_NO_BINARY_FOR_GPU` and say so.

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
