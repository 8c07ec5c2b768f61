//! What the simulated device is.
//!
//! Invariant: sizes are those that NVIDIA's programming guide lists for the compute capability, but for the number
//! of multiprocessors and the memory, which are small.

use super::code::Code;
use super::entry::Answer;

/// A device, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Compute capability: 90 is 9.0.
    pub(super) arch: u32,
    /// Bytes of memory.
    pub(super) memory: u64,
    /// Threads resident on a multiprocessor.
    pub(super) threads: u32,
    /// Blocks resident on a multiprocessor.
    pub(super) blocks: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub(super) shared: u32,
    /// Most bytes of shared memory of a block, asked for.
    pub(super) shared_opt_in: u32,
}

impl Facts {
    /// What `CUDA_SIM_ARCH` may be.
    pub(super) const ARCHES: [u32; 8] = [75, 80, 86, 87, 89, 90, 100, 120];
    /// Threads in lockstep.
    pub(super) const WARP: u32 = 32;
    /// Most threads of a block.
    pub(super) const BLOCK_THREADS: u32 = 1024;
    /// Most threads along each dimension of a block.
    pub(super) const BLOCK: [u32; 3] = [1024, 1024, 64];
    /// Most blocks along each dimension of a grid.
    pub(super) const GRID: [u32; 3] = [0x7fff_ffff, 0xffff, 0xffff];
    /// Most blocks of a cluster on every device that has them, and the first compute capability of these.
    pub(super) const CLUSTER: u32 = 8;
    pub(super) const CLUSTERS_FROM: u32 = 90;
    /// Bytes of shared memory that every block may have.
    pub(super) const SHARED: u32 = 48 << 10;
    /// Registers of a multiprocessor and of a block.
    pub(super) const REGISTERS: u32 = 65_536;
    /// Most registers of a thread.
    pub(super) const THREAD_REGISTERS: u32 = 255;
    /// Multiprocessors.
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
        // From 8.0 on the system keeps a KiB for each block.
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

    /// Bytes of shared memory that the system takes for each block.
    pub(super) fn shared_kept(&self) -> u32 {
        self.shared - self.shared_opt_in
    }

    /// The value of a `CUdevice_attribute`; of those that make no sense here, what a device without the ability has.
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
            // kHz of the cores and of the memory.
            13 => 1_000_000,
            36 => 1_000_000,
            14 | 30 => 512,
            51 => 32,
            16 => Facts::MULTIPROCESSORS,
            37 => 256,
            38 => 4 << 20,
            39 => self.threads,
            40 => 1,
            // Copies beside kernels, host memory in kernels, several kernels at once, one space of addresses.
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

    /// Registers that a warp takes of its multiprocessor, whose unit is 256.
    fn warp_registers(registers: u32) -> u32 {
        (registers.clamp(1, Facts::THREAD_REGISTERS) * Facts::WARP).next_multiple_of(256)
    }

    /// Most threads of a block whose threads need so many registers.
    pub(super) fn block_threads(registers: u32) -> u32 {
        let warps = Facts::REGISTERS / Facts::warp_registers(registers);
        // Warps come by four, one for each part of a multiprocessor.
        (warps / 4 * 4 * Facts::WARP).min(Facts::BLOCK_THREADS)
    }

    /// Most registers of a thread in a block of so many, as they come by eight.
    pub(super) fn thread_registers(threads: u32) -> u32 {
        let warps = threads.div_ceil(Facts::WARP).max(1).next_multiple_of(4);
        (Facts::REGISTERS / (warps * Facts::WARP) / 8 * 8).clamp(8, Facts::THREAD_REGISTERS)
    }

    /// Blocks that a multiprocessor holds at once.
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
        // Worked out with NVIDIA's occupancy calculator's rules: 65,536 registers, 256 a unit, 64 warps.
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
