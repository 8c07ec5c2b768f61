//! Launch configurations: threads per block, blocks per grid, and the alignment of memory.
//!
//! Invariant: a block is a whole number of warps, and no larger than the device allows.

use fusion_compiler::target::tuning_table::runtime;

/// Properties of a device that launches and the choice of variants depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Threads of a warp, which run in lockstep; 1 on the CPU.
    pub warp_size: u32,
    /// Maximum number of threads per block.
    pub block_threads_max: u32,
    /// Maximum number of resident threads per multiprocessor.
    pub multiprocessor_threads_max: u32,
    /// Number of multiprocessors, or of cores on the CPU.
    pub multiprocessors: u32,
    /// Maximum number of blocks of a launch, along one dimension.
    pub grid_max: u32,
    /// Maximum number of buffers that a kernel can bind.
    pub buffers_max: u32,
    /// Maximum number of bytes of one buffer that a kernel can bind.
    pub binding_bytes_max: u64,
    /// Maximum size of one buffer, in bytes.
    pub buffer_bytes_max: u64,
    /// Maximum shared memory per block, in bytes.
    pub block_shared_bytes_max: u32,
    /// Threads of a subgroup, if kernels can use subgroups and all have one size; else 0.
    pub subgroup_size: u32,
    /// Maximum number of blocks per cluster, which reach each other's shared memory; 1 on a device without
    /// clusters.
    pub cluster_blocks_max: u32,
    /// Compute capability of an NVIDIA GPU, where 80 is 8.0; 0 for other devices.
    pub compute_capability: u32,
}

/// A launch configuration of a GPU kernel: blocks of threads, and a grid of blocks.
///
/// ```
/// use fusion_runtime::LaunchConfig;
/// let config = LaunchConfig::h100(1 << 24, 4);
/// assert_eq!((config.block, config.grid), (256, 16384));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Threads per block; a multiple of the warp size.
    pub block: u32,
    /// Blocks per grid. Threads loop with the stride of the grid if there are fewer threads than iterations.
    pub grid: u32,
    /// Bytes of shared memory per block that the launch sets.
    pub shared_bytes: u32,
}

/// Bytes of shared memory per block that the system takes from compute capability 8.0 on (CUDA programming guide).
const SYSTEM_SHARED_BYTES: u32 = 1024;

/// Maximum threads per launch. Kernels count threads in 32 bits, and add a thread's number to that of an
/// element.
const THREADS_MAX: u64 = 1 << 31;

impl LaunchConfig {
    /// Returns the configuration for `elements`, with `grain` elements per thread and iteration, on a device
    /// with these facts.
    ///
    /// The block is the smallest whole number of warps that covers the iterations, at most 256 threads. 256
    /// divides the resident threads of a multiprocessor. The grid covers the iterations: the device assigns
    /// blocks to multiprocessors as they become free, which balances the tail. Threads loop with the stride
    /// of the grid in two cases only. One is a grid beyond 2³¹ threads. The other is a grid of more blocks
    /// than the device keeps resident, with fewer than 1024 elements per block.
    pub fn new(facts: &DeviceFacts, elements: u64, grain: u32) -> LaunchConfig {
        let iterations = elements.div_ceil(u64::from(grain.max(1))).max(1);
        let threads_max = u64::from(facts.block_threads_max.clamp(1, runtime::BLOCK));
        let warp = u64::from(facts.warp_size).clamp(1, threads_max);
        let block_max = threads_max / warp * warp;
        let block = iterations.min(block_max).next_multiple_of(warp);
        LaunchConfig::covering(facts, elements, block as u32, iterations.div_ceil(block))
    }

    /// Returns the configuration for `iterations`, each by a team of `team` threads on `each` elements.
    ///
    /// A team larger than a warp is a block. Smaller teams share a block of four warps, or of as many warps
    /// as the teams need. The grid follows the rules of `new`.
    pub fn teams(facts: &DeviceFacts, iterations: u64, each: u64, team: u32) -> LaunchConfig {
        let warp = facts.warp_size.max(1);
        let teams_max = if team > warp { 1 } else { u64::from((runtime::TEAM_BLOCK / team.max(1)).max(1)) };
        let teams = iterations.clamp(1, teams_max);
        let threads = (teams as u32).saturating_mul(team);
        let block = threads.checked_next_multiple_of(warp).unwrap_or(u32::MAX / warp * warp);
        LaunchConfig::covering(facts, iterations.saturating_mul(each), block, iterations.div_ceil(teams))
    }

    /// Returns the configuration for `tiles` tiles, each by a team of `team` threads with so many bytes of shared memory.
    ///
    /// A team, which is larger than a warp, is a block. The grid covers the tiles, as far as the device allows;
    /// `resident` makes blocks loop over tiles. `KernelText` has the team and the bytes of a kernel.
    ///
    /// ```
    /// use fusion_runtime::{DeviceFacts, LaunchConfig};
    /// // The tiles of 128 × 128 elements of a result of 4096 × 4096.
    /// let facts = DeviceFacts::h100();
    /// let config = LaunchConfig::tiles(&facts, 32 * 32, 128, 69_632);
    /// assert_eq!((config.block, config.grid), (128, 1024));
    /// // Three blocks share the memory of a multiprocessor.
    /// assert_eq!(config.resident(&facts, 1).grid, 3 * 132);
    /// assert_eq!(config.occupancy(&facts), 3.0 * 128.0 / 2048.0);
    /// ```
    pub fn tiles(facts: &DeviceFacts, tiles: u64, team: u32, shared_bytes: u32) -> LaunchConfig {
        let config = LaunchConfig::teams(facts, tiles, runtime::BLOCK_ELEMENTS_MIN, team);
        LaunchConfig { shared_bytes, ..config }
    }

    /// Returns the configuration for teams that are the blocks of clusters, `blocks` per cluster.
    pub fn clusters(
        facts: &DeviceFacts,
        iterations: u64,
        each: u64,
        (team, blocks): (u32, u32),
    ) -> LaunchConfig {
        let config = LaunchConfig::teams(facts, iterations, each, team);
        let blocks = blocks.max(1);
        let clusters_max = (THREADS_MAX / u64::from(config.block.max(1))).min(facts.grid_max.max(1).into())
            / u64::from(blocks);
        LaunchConfig { grid: u64::from(config.grid).min(clusters_max.max(1)) as u32 * blocks, ..config }
    }

    /// Returns a grid that covers all iterations, or a smaller one with a minimum of elements per block.
    fn covering(facts: &DeviceFacts, elements: u64, block: u32, blocks: u64) -> LaunchConfig {
        let enough = elements.div_ceil(runtime::BLOCK_ELEMENTS_MIN).max(resident(facts, block, 0));
        let grid_max = (THREADS_MAX / u64::from(block.max(1))).min(facts.grid_max.max(1).into());
        let grid = blocks.min(enough).clamp(1, grid_max.max(1));
        LaunchConfig { block, grid: grid as u32, shared_bytes: 0 }
    }

    /// Limits the grid to the blocks that the device keeps resident at once, in whole clusters of `cluster`
    /// blocks.
    ///
    /// The limit suits kernels with a prologue per thread: fewer threads repeat the prologue less often.
    pub fn resident(self, facts: &DeviceFacts, cluster: u32) -> LaunchConfig {
        let cluster = u64::from(cluster.max(1));
        let most = (resident(facts, self.block, self.shared_bytes) / cluster).max(1) * cluster;
        LaunchConfig { grid: u64::from(self.grid).min(most) as u32, ..self }
    }

    /// Returns the configuration for an NVIDIA A100: 108 multiprocessors of 2048 threads (NVIDIA A100
    /// whitepaper, 2020).
    pub fn a100(elements: u64, grain: u32) -> LaunchConfig {
        LaunchConfig::new(&DeviceFacts::a100(), elements, grain)
    }

    /// Returns the configuration for an NVIDIA H100 SXM: 132 multiprocessors of 2048 threads (NVIDIA H100
    /// whitepaper, 2022).
    pub fn h100(elements: u64, grain: u32) -> LaunchConfig {
        LaunchConfig::new(&DeviceFacts::h100(), elements, grain)
    }

    /// Returns the configuration for an NVIDIA RTX 4090: 128 multiprocessors of 1536 threads (NVIDIA Ada
    /// whitepaper, 2022).
    pub fn rtx4090(elements: u64, grain: u32) -> LaunchConfig {
        LaunchConfig::new(&DeviceFacts::rtx4090(), elements, grain)
    }

    /// Returns the occupancy: the share of a multiprocessor's resident threads that blocks of this size can
    /// fill, from 0 to 1.
    ///
    /// The shared memory that the launch sets counts, registers do not.
    pub fn occupancy(&self, facts: &DeviceFacts) -> f64 {
        let max = facts.multiprocessor_threads_max.max(1);
        let blocks = (max / self.block.max(1)).min(sharing(facts, self.shared_bytes));
        f64::from(blocks * self.block) / f64::from(max)
    }
}

/// Returns the number of blocks that have room in the shared memory of a multiprocessor.
fn sharing(facts: &DeviceFacts, bytes: u32) -> u32 {
    let system = if facts.compute_capability >= 80 { SYSTEM_SHARED_BYTES } else { 0 };
    let all = facts.block_shared_bytes_max.saturating_add(system);
    if bytes == 0 { u32::MAX } else { all / bytes.saturating_add(system) }
}

/// Returns the number of blocks of `block` threads that a device keeps resident, if only threads and shared memory
/// limit it.
///
/// The number is at least one per multiprocessor, for any facts.
fn resident(facts: &DeviceFacts, block: u32, shared_bytes: u32) -> u64 {
    let each = (facts.multiprocessor_threads_max / block.max(1)).min(sharing(facts, shared_bytes)).max(1);
    u64::from(facts.multiprocessors.max(1)) * u64::from(each)
}

impl DeviceFacts {
    /// Returns the facts of an NVIDIA A100 with 80 GB.
    pub fn a100() -> DeviceFacts {
        nvidia(108, 2048, 80 << 30, (163 << 10, 1), 80)
    }

    /// Returns the facts of an NVIDIA H100 SXM with 80 GB.
    pub fn h100() -> DeviceFacts {
        nvidia(132, 2048, 80 << 30, (227 << 10, 8), 90)
    }

    /// Returns the facts of an NVIDIA RTX 4090 with 24 GB.
    pub fn rtx4090() -> DeviceFacts {
        nvidia(128, 1536, 24 << 30, (99 << 10, 1), 89)
    }
}

/// Returns the facts of an NVIDIA GPU (CUDA programming guide, technical specifications per compute
/// capability).
fn nvidia(
    multiprocessors: u32,
    multiprocessor_threads_max: u32,
    memory: u64,
    (shared, cluster_blocks_max): (u32, u32),
    compute_capability: u32,
) -> DeviceFacts {
    DeviceFacts {
        warp_size: 32,
        block_threads_max: 1024,
        multiprocessor_threads_max,
        multiprocessors,
        grid_max: i32::MAX as u32,
        buffers_max: u32::MAX,
        binding_bytes_max: memory,
        buffer_bytes_max: memory,
        block_shared_bytes_max: shared,
        subgroup_size: 32,
        cluster_blocks_max,
        compute_capability,
    }
}

/// Alignment of memory, which decides how many transactions the accesses of a warp become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coalescing {
    /// Alignment to one element: 4 bytes.
    None,
    /// Alignment to a sector of the L2 cache: 32 bytes.
    Basic,
    /// Alignment to a cache line, 32 lanes of a warp at 4 bytes each: 128 bytes.
    Advanced,
    /// Alignment of the allocators of CUDA and Vulkan: 256 bytes.
    Optimal,
}

impl Coalescing {
    /// Returns the alignment in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Coalescing::None => 4,
            Coalescing::Basic => 32,
            Coalescing::Advanced => 128,
            Coalescing::Optimal => 256,
        }
    }

    /// Returns the next aligned offset in bytes, or `None` if it overflows `usize`.
    pub const fn align(self, offset: usize) -> Option<usize> {
        offset.checked_next_multiple_of(self.bytes())
    }

    /// Returns the highest level of alignment of an offset in bytes; `Coalescing::None` for no multiple of
    /// 32.
    pub const fn of(offset: usize) -> Coalescing {
        match offset.trailing_zeros() {
            0..=4 => Coalescing::None,
            5..=6 => Coalescing::Basic,
            7 => Coalescing::Advanced,
            _ => Coalescing::Optimal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(facts: &DeviceFacts, elements: u64, grain: u32, block: u32, grid: u32) {
        let config = LaunchConfig::new(facts, elements, grain);
        assert_eq!(
            config,
            LaunchConfig { block, grid, shared_bytes: 0 },
            "{elements} elements, {grain} at a time"
        );
    }

    #[test]
    fn blocks_are_whole_warps_and_grids_fill_the_device() {
        let h100 = DeviceFacts::h100();
        check(&h100, 0, 4, 32, 1);
        check(&h100, 1, 1, 32, 1);
        check(&h100, 33, 1, 64, 1);
        // 1000 elements by 4 are 250 iterations: 8 warps.
        check(&h100, 1000, 4, 256, 1);
        check(&h100, 1025, 4, 256, 2);
        check(&h100, 1 << 24, 4, 256, 1 << 14);
        check(&h100, (1 << 31) + 256, 4, 256, (1 << 21) + 1);
        check(&h100, u64::MAX, 1, 256, 1 << 23);
        // 2048 / 256 = 8 blocks on each of 132 multiprocessors. Larger spaces get blocks of at least 1024
        // elements.
        check(&h100, 1 << 16, 1, 256, 256);
        check(&h100, 1 << 19, 1, 256, 1056);
        check(&h100, 1 << 24, 1, 256, 1 << 14);
        check(&h100, 1 << 24, 8, 256, 1 << 13);
    }

    #[test]
    fn teams_share_blocks_and_grids_cover_rows() {
        let check = |rows, each, team, block, grid| {
            let config = LaunchConfig::teams(&DeviceFacts::h100(), rows, each, team);
            assert_eq!(
                config,
                LaunchConfig { block, grid, shared_bytes: 0 },
                "{rows} rows of {each} by {team}"
            );
        };
        check(0, 0, 16, 32, 1);
        check(3, 128, 16, 64, 1);
        check(1 << 19, 128, 16, 128, 1 << 16);
        check(1 << 19, 32, 16, 128, 1 << 14);
        check(1 << 14, 4096, 128, 128, 1 << 14);
        check(40, 1 << 14, 1024, 1024, 40);
        // The number of threads is limited to 32 bits.
        check(1 << 27, 512, 32, 128, 1 << 24);
        check(u64::MAX, 1 << 20, 1024, 1024, 1 << 21);
        // The team is larger than on any device, so the grid has one block.
        check(5, 1, (1 << 31) + 32, (1 << 31) + 32, 1);
        check(5, 1, u32::MAX, u32::MAX - 31, 1);
    }

    #[test]
    fn what_is_resident_fills_the_device_once() {
        let grid =
            |facts: &DeviceFacts, elements| LaunchConfig::new(facts, elements, 4).resident(facts, 1).grid;
        assert_eq!(grid(&DeviceFacts::h100(), 1 << 24), 1056);
        assert_eq!(grid(&DeviceFacts::h100(), 1 << 12), 4);
        assert_eq!(grid(&DeviceFacts::a100(), 1 << 24), 864);
        // 1536 / 256 = 6 blocks on each of 128 multiprocessors.
        assert_eq!(grid(&DeviceFacts::rtx4090(), 1 << 24), 768);
    }

    #[test]
    fn what_is_resident_are_whole_clusters() {
        let h100 = DeviceFacts::h100();
        let grid = |rows, cluster| {
            LaunchConfig::clusters(&h100, rows, 1 << 16, (512, cluster)).resident(&h100, cluster).grid
        };
        // 2048 / 512 = 4 blocks on each of 132 multiprocessors are 528.
        assert_eq!([1, 3, 4, 5, 7].map(|cluster| grid(1000, cluster)), [528, 528, 528, 525, 525]);
        assert_eq!(grid(2, 5), 10);
        // A device that keeps fewer blocks than a cluster has still starts one.
        let tiny = DeviceFacts { multiprocessors: 1, multiprocessor_threads_max: 1024, ..h100.clone() };
        assert_eq!(LaunchConfig { block: 512, grid: 35, shared_bytes: 0 }.resident(&tiny, 5).grid, 5);
    }

    #[test]
    fn limits_of_small_devices_hold() {
        let facts = DeviceFacts { warp_size: 24, block_threads_max: 100, grid_max: 3, ..DeviceFacts::h100() };
        check(&facts, 1 << 20, 1, 96, 3);
        let unknown =
            DeviceFacts { multiprocessor_threads_max: 0, multiprocessors: 0, warp_size: 0, ..facts };
        check(&unknown, 1 << 20, 0, 100, 3);
        // The device has less than a warp, or no threads at all. One block still has a legal number of
        // threads.
        let tiny = DeviceFacts { block_threads_max: 16, warp_size: 32, grid_max: 0, ..facts };
        check(&tiny, 1 << 20, 1, 16, 1);
        check(&DeviceFacts { block_threads_max: 0, ..tiny }, 1 << 20, 1, 1, 1);
    }

    #[test]
    fn occupancy_is_what_whole_blocks_fill() {
        let occupancy = |block, shared_bytes| {
            LaunchConfig { block, grid: 1, shared_bytes }.occupancy(&DeviceFacts::rtx4090())
        };
        assert_eq!(occupancy(256, 0), 1.0);
        // One block fills 1024 of 1536 threads.
        assert_eq!(occupancy(1024, 0), 2.0 / 3.0);
        // Two blocks have 49 KiB each, of 100; a block has more than there is.
        assert_eq!(
            [49 << 10, (49 << 10) + 1, 100 << 10].map(|bytes| occupancy(384, bytes)),
            [0.5, 0.25, 0.0]
        );
    }

    #[test]
    fn tiles_have_a_block_each() {
        let facts = DeviceFacts::a100();
        let config = LaunchConfig::tiles(&facts, 1000, 128, 61_440);
        assert_eq!(config, LaunchConfig { block: 128, grid: 1000, shared_bytes: 61_440 });
        // 164 KiB hold two blocks of 61 KiB.
        assert_eq!(config.resident(&facts, 1).grid, 216);
        // 64 KiB hold two blocks of 32 KiB, where the system takes none.
        let turing =
            DeviceFacts { block_shared_bytes_max: 64 << 10, compute_capability: 75, ..facts.clone() };
        assert_eq!(LaunchConfig::tiles(&turing, 1000, 128, 32 << 10).resident(&turing, 1).grid, 216);
        assert_eq!(LaunchConfig::tiles(&facts, 0, 256, 0).grid, 1);
        assert_eq!(LaunchConfig::tiles(&facts, u64::MAX, 256, 0).grid, 1 << 23);
    }

    #[test]
    fn alignment_by_level() {
        let levels = [Coalescing::None, Coalescing::Basic, Coalescing::Advanced, Coalescing::Optimal];
        assert_eq!(levels.map(Coalescing::bytes), [4, 32, 128, 256]);
        assert_eq!(levels.map(|level| level.align(129)), [Some(132), Some(160), Some(256), Some(256)]);
        assert_eq!(
            [4, 96, 384, 512, 0].map(Coalescing::of),
            [levels[0], levels[1], levels[2], levels[3], levels[3]]
        );
        assert_eq!(Coalescing::Optimal.align(usize::MAX), None);
    }
}
