//! The CPU device: pooled host memory, and launches over the threads of `rayon`'s pool.
//!
//! Invariant: work is done when a call returns. The instruction set is chosen once, when the device is
//! opened.

mod column;
mod column_loops;
mod contraction;
mod launch;
mod memory;
pub(crate) mod stream;
mod tile;
mod wake_policy;
mod work_sharing;

use std::sync::Arc;

use fusion_compiler::ir::plan::Target;

use super::{Backend, Call, Device, DeviceFacts, Memory};
use crate::error::{Error, Result};
use crate::isa::Isa;
use crate::kernel::Launch;
pub(crate) use memory::CpuMemory;
use memory::Pool;

/// The CPU device.
#[derive(Debug)]
struct Cpu {
    name: String,
    facts: DeviceFacts,
    isa: Isa,
    pool: Arc<Pool>,
}

/// Opens the CPU device.
pub(super) fn open() -> Device {
    // A profile that leaves this crate unoptimised also leaves the user's kernels unoptimised, unless it
    // names packages.
    if env!("FUSION_OPT_LEVEL") == "0" {
        eprintln!(
            "fusion: this build is not optimised, so CPU kernels run up to 48 times slower; \
             add `[profile.dev] opt-level = 1` to Cargo.toml, or use --release"
        );
    }
    let isa = Isa::best(std::env::var("FUSION_CPU_ISA").ok().as_deref());
    let cores = rayon::current_num_threads();
    let facts = DeviceFacts {
        warp_size: 1,
        block_threads_max: 1,
        multiprocessor_threads_max: 1,
        multiprocessors: cores as u32,
        grid_max: u32::MAX,
        buffers_max: u32::MAX,
        binding_bytes_max: isize::MAX as u64,
        buffer_bytes_max: isize::MAX as u64,
        block_shared_bytes_max: 0,
        subgroup_size: 0,
        cluster_blocks_max: 1,
        compute_capability: 0,
    };
    Device(Arc::new(Cpu {
        name: format!("CPU ({cores} threads, {})", isa.name()),
        facts,
        isa,
        pool: Pool::new(),
    }))
}

impl Backend for Cpu {
    fn target(&self) -> Target {
        Target::Cpu
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn allocate(&self, bytes: usize) -> Result<Memory> {
        let memory = self.pool.allocate(bytes).map(Memory::Cpu);
        memory.ok_or_else(|| Error::OutOfMemory {
            bytes: Some(bytes),
            device: self.name.clone(),
            tensor_bytes_max: None,
        })
    }

    fn write(&self, memory: &Memory, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = at(memory, offset, bytes.len());
        // SAFETY: `at` checked the range. Only the tensor that is being made or written uses the range, and
        // host slices never overlap it.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = at(memory, offset, bytes.len());
        // SAFETY: `at` checked the range. No code writes the range while the tensor is borrowed.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn copy(&self, from: (&Memory, usize), to: (&Memory, usize), bytes: usize) -> Result<()> {
        let (from, to) = (at(from.0, from.1, bytes), at(to.0, to.1, bytes));
        // SAFETY: `at` checked both ranges, which belong to different allocations.
        unsafe { from.copy_to_nonoverlapping(to, bytes) };
        Ok(())
    }

    fn launch(&self, launch: &Launch, call: &Call<'_>) -> Result<()> {
        launch::launch((self.isa, &self.name, &self.pool), launch, call)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// Returns the address of `bytes` bytes at `offset`.
fn at(memory: &Memory, offset: usize, bytes: usize) -> *mut u8 {
    let memory = host(memory);
    let within = offset.checked_add(bytes).is_some_and(|end| end <= memory.bytes());
    assert!(within, "{bytes} bytes at {offset} are within the allocation");
    memory.ptr().wrapping_add(offset)
}

/// Returns the host memory of a tensor of this device.
#[allow(
    clippy::infallible_destructuring_match,
    irrefutable_let_patterns,
    reason = "there are other kinds of memory when their features are on"
)]
fn host(memory: &Memory) -> &CpuMemory {
    let Memory::Cpu(memory) = memory else {
        unreachable!("the executor checks that all tensors of a call are on its device")
    };
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_use_does_not_grow_the_pool() {
        let pool = Pool::new();
        let mut bytes = Vec::new();
        for round in 0..100 {
            let blocks: Vec<_> = [100, 5000, 1 << 20].map(|size| pool.allocate(size).unwrap()).into();
            if round > 0 {
                assert_eq!(pool.bytes().0, 0, "all blocks were reused");
            }
            drop(blocks);
            bytes.push(pool.bytes());
        }
        assert!(bytes.iter().all(|&each| each == bytes[0]), "{bytes:?}");
    }
}
