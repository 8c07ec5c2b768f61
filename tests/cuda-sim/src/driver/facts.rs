//! Properties of the simulated device.
//!
//! Invariant: sizes are those that NVIDIA's programming guide lists for the compute capability. The number of
//! multiprocessors and the memory are smaller.

use super::code::Code;
use super::entry::Answer;

/// Properties of a device, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Compute capability: 90 is 9.0.
    pub(super) arch: u32,
    /// Bytes of memory.
    pub(super) memory: u64,
    /// Maximum number of threads resident on a multiprocessor.
    pub(super) threads: u32,
    /// Maximum number of blocks resident on a multiprocessor.
    pub(super) blocks: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub(super) shared: u32,
    /// Maximum number of bytes of shared memory of a block that opts in.
    pub(super) shared_opt_in: u32,
}

impl Facts {
    /// Values that `CUDA_SIM_ARCH` may have.
    pub(super) const ARCHES: [u32; 8] = [75, 80, 86, 87, 89, 90, 100, 120];
    /// Number of threads of a warp.
    pub(super) const WARP: u32 = 32;
    /// Maximum number of threads of a block.
    pub(super) const BLOCK_THREADS: u32 = 1024;
    /// Maximum number of threads along each dimension of a block.
    pub(super) const BLOCK: [u32; 3] = [1024, 1024, 64];
    /// Maximum number of blocks along each dimension of a grid.
    pub(super) const GRID: [u32; 3] = [0x7fff_ffff, 0xffff, 0xffff];
    /// Maximum number of blocks of a cluster, on every device of compute capability [`Self::CLUSTERS_FROM`]
    /// or later.
    pub(super) const CLUSTER: u32 = 8;
    pub(super) const CLUSTERS_FROM: u32 = 90;
    /// Bytes of shared memory that every block may have without opting in.
    pub(super) const SHARED: u32 = 48 << 10;
    /// Number of registers of a multiprocessor, and of a block.
    pub(super) const REGISTERS: u32 = 65_536;
    /// Maximum number of registers of a thread.
    pub(super) const THREAD_REGISTERS: u32 = 255;
    /// Number of multiprocessors.
    pub(super) const MULTIPROCESSORS: u32 = 4;

    pub(super) fn of(arch: u32, memory: u64) -> Option<Facts> {
        let (threads, blocks, shared) = match arch {
            75 => (1024, 16, 64),
            80 => (2048, 32, 164),
            86 => (1536, 16, 100),
            87 => (1536, 16, 164),
            89 => (1536, 24, 100),
            90 | 100 => (2048, 32, 228),
            120 => (1536, 24, 100),
            _ => return None,
        };
        // The system reserves 1 KiB for each block from compute capability 8.0 on.
        let kept = if arch < 80 { 0 } else { 1 };
        Some(Facts {
            arch,
            memory,
            threads,
            blocks,
            shared: shared << 10,
            shared_opt_in: (shared - kept) << 10,
        })
    }

    /// Returns the bytes of shared memory that the system reserves for each block.
    pub(super) fn shared_kept(&self) -> u32 {
        self.shared - self.shared_opt_in
    }

    /// Returns the value of a `CUdevice_attribute`. Attributes without a meaning here have the value of a
    /// device without the ability.
    pub(super) fn attribute(&self, attribute: i32) -> Answer<i32> {
        if !(1..=161).contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        let value = match attribute {
            1..=3 => Facts::BLOCK_THREADS,
            4 => Facts::BLOCK[2],
            5 => Facts::GRID[0],
            6 | 7 => Facts::GRID[1],
            8 => Facts::SHARED,
            9 => 64 << 10,
            10 => Facts::WARP,
            11 => 0x7fff_ffff,
            12 | 82 => Facts::REGISTERS,
            // Clock rates of the cores and of the memory, in kHz.
            13 => 1_000_000,
            36 => 1_000_000,
            14 | 30 => 512,
            51 => 32,
            16 => Facts::MULTIPROCESSORS,
            37 => 256,
            38 => 4 << 20,
            39 => self.threads,
            40 => 1,
            // Copies that overlap kernels, mapped host memory, concurrent kernels and unified addressing.
            15 | 19 | 31 | 41 => 1,
            75 => self.arch / 10,
            76 => self.arch % 10,
            78..=80 => 1,
            81 => self.shared,
            83 | 89 | 115 => 1,
            87 => 2,
            90 => 1,
            97 => self.shared_opt_in,
            106 => self.blocks,
            111 => self.shared_kept(),
            120 => u32::from(self.arch >= Facts::CLUSTERS_FROM),
            _ => 0,
        };
        Ok(i32::try_from(value).unwrap_or(i32::MAX))
    }

    /// Returns the registers that a warp takes. The allocation unit is 256 registers.
    fn warp_registers(registers: u32) -> u32 {
        (registers.clamp(1, Facts::THREAD_REGISTERS) * Facts::WARP).next_multiple_of(256)
    }

    /// Returns the maximum number of threads of a block whose threads need this many registers.
    pub(super) fn block_threads(registers: u32) -> u32 {
        let warps = Facts::REGISTERS / Facts::warp_registers(registers);
        // Warps are allocated in fours, one for each partition of a multiprocessor.
        (warps / 4 * 4 * Facts::WARP).min(Facts::BLOCK_THREADS)
    }

    /// Returns the maximum number of registers of a thread in a block of this many threads, a multiple of
    /// eight.
    pub(super) fn thread_registers(threads: u32) -> u32 {
        let warps = threads.div_ceil(Facts::WARP).max(1).next_multiple_of(4);
        (Facts::REGISTERS / (warps * Facts::WARP) / 8 * 8).clamp(8, Facts::THREAD_REGISTERS)
    }

    /// Returns the number of blocks that are resident on a multiprocessor at once.
    pub(super) fn resident_blocks(&self, threads: u32, registers: u32, shared: u32) -> u32 {
        let warps = threads.div_ceil(Facts::WARP).max(1);
        let by_threads = self.threads / (warps * Facts::WARP);
        let by_registers = Facts::REGISTERS / Facts::warp_registers(registers) / 4 * 4 / warps;
        let by_shared = self.shared / (shared + self.shared_kept()).next_multiple_of(128).max(1);
        self.blocks.min(by_threads).min(by_registers).min(by_shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_device() {
        let facts = Facts::of(90, 4 << 30).unwrap();
        for (attribute, value) in [
            (1, 1024),
            (5, i32::MAX),
            (8, 49_152),
            (10, 32),
            (16, 4),
            (39, 2048),
            (75, 9),
            (97, 232_448),
            (120, 1),
        ] {
            assert_eq!(facts.attribute(attribute), Ok(value), "{attribute}");
        }
        let before = Facts::of(89, 4 << 30).unwrap();
        assert_eq!(before.attribute(120), Ok(0), "clusters");
        assert_eq!(facts.attribute(0), Err(Code::INVALID_VALUE));
        assert_eq!(facts.attribute(1000), Err(Code::INVALID_VALUE));
        assert!(Facts::ARCHES.iter().all(|&arch| Facts::of(arch, 1).is_some()));
    }

    #[test]
    fn registers_and_shared_memory_bound_what_is_resident() {
        let facts = Facts::of(90, 4 << 30).unwrap();
        // Computed by the rules of NVIDIA's occupancy calculator: 65,536 registers, a unit of 256 registers,
        // 64 warps.
        for (threads, registers, shared, blocks) in [
            (256, 32, 0, 8),
            (256, 40, 0, 6),
            (256, 255, 0, 1),
            (1024, 32, 0, 2),
            (1024, 33, 0, 1),
            (32, 16, 0, 32),
            (128, 16, 48 << 10, 4),
            (128, 16, 227 << 10, 1),
        ] {
            assert_eq!(
                facts.resident_blocks(threads, registers, shared),
                blocks,
                "{threads} {registers} {shared}"
            );
        }
        assert_eq!([32, 64, 65, 128, 255].map(Facts::block_threads), [1024, 1024, 896, 512, 256]);
        assert_eq!([32, 256, 257, 512, 768, 1024].map(Facts::thread_registers), [255, 255, 168, 128, 80, 64]);
    }
}
