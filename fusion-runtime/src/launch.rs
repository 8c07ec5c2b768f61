//! Launch configuration: threads of a block, blocks of a grid, and the alignment of memory.
//!
//! Invariant: a block is a whole number of warps and no larger than the device allows.

use crate::device::{Device, DeviceFacts};

/// How a GPU deals out the elements of a kernel: blocks of threads, each thread taking elements in turn.
///
/// ```
/// use fusion_runtime::LaunchConfig;
/// let config = LaunchConfig::h100(1 << 24, 4);
/// assert_eq!((config.block, config.grid), (256, 16384));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Threads of a block; a multiple of the warp size.
    pub block: u32,
    /// Blocks. With fewer threads than iterations, threads stride over the grid.
    pub grid: u32,
}

/// Elements that a block has at least, unless there are too few for all multiprocessors: to start a block costs as much as to
/// move a kilobyte or two.
const BLOCK_ELEMENTS: u64 = 1024;

/// Most threads of a launch: kernels count them in 32 bits, and add their number to that of an element.
const THREADS_MAX: u64 = 1 << 31;

/// Threads of a block where nothing asks for fewer: enough warps to hide latency, and small enough that blocks
/// of many registers still fit.
const BLOCK: u32 = 256;

/// Threads of a block of several teams.
const TEAM_BLOCK: u32 = 128;

impl LaunchConfig {
    /// For `elements`, of which a thread takes `grain` at a time, on a device of these facts.
    ///
    /// The block is the smallest whole number of warps that covers the iterations, at most 256 threads, which divide what
    /// multiprocessors keep resident. The grid covers the iterations: the device hands out blocks as multiprocessors get
    /// free, so that none waits for others at the end. Only where blocks would have fewer than 1024 elements and are more
    /// than the whole device keeps resident, or where there would be more than 2³¹ threads, do threads stride.
    pub fn new(facts: &DeviceFacts, elements: u64, grain: u32) -> LaunchConfig {
        let iterations = elements.div_ceil(u64::from(grain.max(1))).max(1);
        let threads_max = u64::from(facts.block_threads_max.clamp(1, BLOCK));
        let warp = u64::from(facts.warp_size).clamp(1, threads_max);
        let block_max = threads_max / warp * warp;
        let block = iterations.min(block_max).next_multiple_of(warp);
        LaunchConfig::covering(facts, elements, block as u32, iterations.div_ceil(block))
    }

    /// For as many iterations, each the work of a team of `team` threads on `each` elements, on a device of these facts.
    ///
    /// A team of more than a warp is a block; smaller ones share a block of four warps, or of as many as there are teams.
    /// The grid is as for single threads.
    pub fn teams(facts: &DeviceFacts, iterations: u64, each: u64, team: u32) -> LaunchConfig {
        let warp = facts.warp_size.max(1);
        let teams_max = if team > warp { 1 } else { u64::from((TEAM_BLOCK / team.max(1)).max(1)) };
        let teams = iterations.clamp(1, teams_max);
        let threads = (teams as u32).saturating_mul(team);
        let block = threads.checked_next_multiple_of(warp).unwrap_or(u32::MAX / warp * warp);
        LaunchConfig::covering(facts, iterations.saturating_mul(each), block, iterations.div_ceil(teams))
    }

    /// The same for teams that are the blocks of clusters, so many of each.
    pub fn clusters(
        facts: &DeviceFacts,
        iterations: u64,
        each: u64,
        (team, blocks): (u32, u32),
    ) -> LaunchConfig {
        let LaunchConfig { block, grid } = LaunchConfig::teams(facts, iterations, each, team);
        let blocks = blocks.max(1);
        let clusters_max =
            (THREADS_MAX / u64::from(block.max(1))).min(facts.grid_max.max(1).into()) / u64::from(blocks);
        LaunchConfig { block, grid: u64::from(grid).min(clusters_max.max(1)) as u32 * blocks }
    }

    /// As many blocks as cover all, or fewer that have enough elements each.
    fn covering(facts: &DeviceFacts, elements: u64, block: u32, blocks: u64) -> LaunchConfig {
        let enough = elements.div_ceil(BLOCK_ELEMENTS).max(resident(facts, block));
        let grid_max = (THREADS_MAX / u64::from(block.max(1))).min(facts.grid_max.max(1).into());
        let grid = blocks.min(enough).clamp(1, grid_max.max(1));
        LaunchConfig { block, grid: grid as u32 }
    }

    /// The same with no more blocks than the whole device keeps resident at once, in whole clusters of so many: for kernels whose
    /// threads each do something before the first of their elements, which the fewer do, the less it costs.
    pub fn resident(self, facts: &DeviceFacts, cluster: u32) -> LaunchConfig {
        let cluster = u64::from(cluster.max(1));
        let most = (resident(facts, self.block) / cluster).max(1) * cluster;
        LaunchConfig { grid: u64::from(self.grid).min(most) as u32, ..self }
    }

    /// For `elements`, of which a thread takes `grain` at a time, on a device as it reports itself.
    pub fn detect(device: &Device, elements: u64, grain: u32) -> LaunchConfig {
        LaunchConfig::new(device.facts(), elements, grain)
    }

    /// For an NVIDIA A100: 108 multiprocessors of 2048 threads (NVIDIA A100 whitepaper, 2020).
    pub fn a100(elements: u64, grain: u32) -> LaunchConfig {
        LaunchConfig::new(&DeviceFacts::a100(), elements, grain)
    }

    /// For an NVIDIA H100 SXM: 132 multiprocessors of 2048 threads (NVIDIA H100 whitepaper, 2022).
    pub fn h100(elements: u64, grain: u32) -> LaunchConfig {
        LaunchConfig::new(&DeviceFacts::h100(), elements, grain)
    }

    /// For an NVIDIA RTX 4090: 128 multiprocessors of 1536 threads (NVIDIA Ada whitepaper, 2022).
    pub fn rtx4090(elements: u64, grain: u32) -> LaunchConfig {
        LaunchConfig::new(&DeviceFacts::rtx4090(), elements, grain)
    }

    /// The part of a multiprocessor's resident threads that blocks of this size can fill, from 0 to 1.
    ///
    /// Registers and shared memory are not counted.
    pub fn occupancy(&self, facts: &DeviceFacts) -> f64 {
        let max = facts.multiprocessor_threads_max.max(1);
        f64::from(max / self.block.max(1) * self.block) / f64::from(max)
    }
}

/// Blocks of as many threads that a device keeps at work at once, if nothing but threads limits it: never fewer than one for each
/// multiprocessor, whatever the facts say of residency.
fn resident(facts: &DeviceFacts, block: u32) -> u64 {
    let each = (facts.multiprocessor_threads_max / block.max(1)).max(1);
    u64::from(facts.multiprocessors.max(1)) * u64::from(each)
}

impl DeviceFacts {
    /// Of an NVIDIA A100 with 80 GB.
    pub fn a100() -> DeviceFacts {
        nvidia(108, 2048, 80 << 30, (163 << 10, 1))
    }

    /// Of an NVIDIA H100 SXM with 80 GB.
    pub fn h100() -> DeviceFacts {
        nvidia(132, 2048, 80 << 30, (227 << 10, 8))
    }

    /// Of an NVIDIA RTX 4090 with 24 GB.
    pub fn rtx4090() -> DeviceFacts {
        nvidia(128, 1536, 24 << 30, (99 << 10, 1))
    }
}

/// What NVIDIA GPUs have in common (CUDA programming guide, technical specifications per compute capability).
fn nvidia(
    multiprocessors: u32,
    multiprocessor_threads_max: u32,
    memory: u64,
    (shared, cluster_blocks_max): (u32, u32),
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
    }
}

/// How far memory is aligned, so that the accesses of a warp become few transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coalescing {
    /// Of one element: 4 bytes.
    None,
    /// A sector of the L2 cache: 32 bytes.
    Basic,
    /// A cache line, the 32 lanes of a warp at 4 bytes each: 128 bytes.
    Advanced,
    /// What the allocators of CUDA and Vulkan give: 256 bytes.
    Optimal,
}

impl Coalescing {
    /// Alignment in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Coalescing::None => 4,
            Coalescing::Basic => 32,
            Coalescing::Advanced => 128,
            Coalescing::Optimal => 256,
        }
    }

    /// The next offset in bytes that is aligned, or nothing where there is none in a `usize`.
    pub const fn align(self, offset: usize) -> Option<usize> {
        offset.checked_next_multiple_of(self.bytes())
    }

    /// The best level that an offset in bytes has; `None` for all that are not a multiple of 32.
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
        assert_eq!(config, LaunchConfig { block, grid }, "{elements} elements, {grain} at a time");
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
        // 2048 / 256 = 8 blocks on each of 132 multiprocessors, and from there on blocks of at least 1024 elements.
        check(&h100, 1 << 16, 1, 256, 256);
        check(&h100, 1 << 19, 1, 256, 1056);
        check(&h100, 1 << 24, 1, 256, 1 << 14);
        check(&h100, 1 << 24, 8, 256, 1 << 13);
    }

    #[test]
    fn teams_share_blocks_and_grids_cover_rows() {
        let check = |rows, each, team, block, grid| {
            let config = LaunchConfig::teams(&DeviceFacts::h100(), rows, each, team);
            assert_eq!(config, LaunchConfig { block, grid }, "{rows} rows of {each} by {team}");
        };
        check(0, 0, 16, 32, 1);
        check(3, 128, 16, 64, 1);
        check(1 << 19, 128, 16, 128, 1 << 16);
        check(1 << 19, 32, 16, 128, 1 << 14);
        check(1 << 14, 4096, 128, 128, 1 << 14);
        check(40, 1 << 14, 1024, 1024, 40);
        // Threads are counted in 32 bits.
        check(1 << 27, 512, 32, 128, 1 << 24);
        check(u64::MAX, 1 << 20, 1024, 1024, 1 << 21);
        // More than any device has, of which one block is left.
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
        // 1536 / 256 = 6 on each of 128.
        assert_eq!(grid(&DeviceFacts::rtx4090(), 1 << 24), 768);
    }

    #[test]
    fn what_is_resident_are_whole_clusters() {
        let h100 = DeviceFacts::h100();
        let grid = |rows, cluster| {
            LaunchConfig::clusters(&h100, rows, 1 << 16, (512, cluster)).resident(&h100, cluster).grid
        };
        // 2048 / 512 = 4 on each of 132 are 528.
        assert_eq!([1, 3, 4, 5, 7].map(|cluster| grid(1000, cluster)), [528, 528, 528, 525, 525]);
        assert_eq!(grid(2, 5), 10);
        // A device that keeps fewer blocks than a cluster has still starts one.
        let tiny = DeviceFacts { multiprocessors: 1, multiprocessor_threads_max: 1024, ..h100.clone() };
        assert_eq!(LaunchConfig { block: 512, grid: 35 }.resident(&tiny, 5).grid, 5);
    }

    #[test]
    fn limits_of_small_devices_hold() {
        let facts = DeviceFacts { warp_size: 24, block_threads_max: 100, grid_max: 3, ..DeviceFacts::h100() };
        check(&facts, 1 << 20, 1, 96, 3);
        let unknown =
            DeviceFacts { multiprocessor_threads_max: 0, multiprocessors: 0, warp_size: 0, ..facts };
        check(&unknown, 1 << 20, 0, 100, 3);
        // Less than a warp, and nothing at all: whatever is said, one block has a legal number of threads.
        let tiny = DeviceFacts { block_threads_max: 16, warp_size: 32, grid_max: 0, ..facts };
        check(&tiny, 1 << 20, 1, 16, 1);
        check(&DeviceFacts { block_threads_max: 0, ..tiny }, 1 << 20, 1, 1, 1);
    }

    #[test]
    fn occupancy_is_what_whole_blocks_fill() {
        assert_eq!(LaunchConfig { block: 256, grid: 1 }.occupancy(&DeviceFacts::rtx4090()), 1.0);
        // One block of 1024 of 1536 threads.
        assert_eq!(LaunchConfig { block: 1024, grid: 1 }.occupancy(&DeviceFacts::rtx4090()), 2.0 / 3.0);
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
