//! Facts about the targets, as far as the compiler depends on them.
//!
//! Invariant: schedules and fusion see only `TargetFacts`, never the target itself.

use crate::ir::dtype::DType;
use crate::ir::graph::{Graph, UNROLLED_MAX};
use crate::ir::kernel::Lanes;
pub use crate::ir::ops::Dialect;
use crate::ir::plan::{Limits, Target, Text};

/// Facts about a target that fusion and schedules depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    /// Way in which a thread works on several elements at once.
    pub vector: Vectors,
    /// Number of lanes of a vector where some operands have narrow elements, so that accesses of these are
    /// wide too.
    pub narrow_lanes: u8,
    /// Number of lanes of a load in unstaged rows that rescale a sum of exponentials once for each load.
    pub scaling_lanes: u8,
    /// Largest number of storage buffers that a kernel can bind.
    pub buffers_max: usize,
    /// Largest number of small tensors that a kernel can bind as uniforms, in addition to the storage
    /// buffers.
    pub uniform_buffers_max: usize,
    /// True if a kernel may mix vector and scalar accesses to one buffer, even of adjacent elements by
    /// different threads.
    pub mixes: bool,
    /// True if positions must be rebased to the binding of their buffer.
    pub rebased: bool,
    /// True if a tensor can have 2³¹ elements or more.
    pub wide: bool,
    /// Teams that share rows, smallest first; empty where each thread has rows of its own.
    pub teams: &'static [Team],
    /// Number of threads of the team for parts of rows, and for rows that no other team can stage. None
    /// without teams.
    pub block: Option<u32>,
    /// Memory in which elements of a row are staged between passes.
    pub row_memory: RowMemory,
    /// Length of the longest line that a thread reduces unrolled, where a loop would take no more kernels.
    pub unrolled_max: i64,
    /// Splitting of rows that are few and long.
    pub parts: Parts,
    /// Splitting of long column-major rows.
    pub columns: Columns,
}

/// Parameters for splitting rows that are few and long, so that all of the device works on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Number of elements of a part: a multiple of a vector, and few enough to stay in a cache until the
    /// second pass.
    pub len: i64,
    /// Largest number of rows that are split. More rows keep the device busy by themselves.
    pub rows_max: i64,
    /// Length of the shortest rows that are worth a second kernel.
    pub row_min: i64,
    /// Length of the shortest rows that are worth a third kernel, where elements are stored.
    pub stored_row_min: i64,
}

/// Parameters for splitting long column-major rows. Parts keep all of the device busy, and limit the number
/// of steps of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Number of adjacent elements that parts should cover together, where there are fewer rows.
    pub width: i64,
    /// Number of steps of a part where rows are few.
    pub steps: i64,
    /// Length of the shortest rows that are worth a second kernel.
    pub row_min: i64,
    /// Length of the shortest rows that are worth a third kernel and a second read, where elements are
    /// stored.
    pub stored_row_min: i64,
}

/// Threads that share rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    /// Number of threads.
    pub threads: u32,
    /// Number of rows that the team works on at a time. Each row gets the same share of the threads.
    pub rows: u32,
    /// Lengths of the longest rows that the team has enough threads for.
    pub longest: Longest,
    /// Smallest number of rows for which such teams keep a device busy.
    pub rows_min: i64,
    /// Largest number of teams in a block.
    pub per_block: u32,
    /// True if the blocks of a cluster, each of which is a team, share a row.
    pub cluster: bool,
    /// Most bytes of a row that the team stages, if it also takes longer rows and reads their other elements
    /// again.
    pub staged_max: Option<i64>,
    /// True if the rows fill the shared memory of a multiprocessor, so that few blocks run at once.
    pub fills: bool,
    /// Number of vectors that each thread loads before it uses the first. The number applies to staged rows
    /// of unknown length that are unaligned or fill the shared memory; 1 leaves the choice to the target's
    /// compiler.
    pub load_unroll: u32,
}

/// Lengths of the longest rows that a team takes, 0 if it takes none of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// Longest staged rows of whole vectors with at most four lanes.
    pub staged: i64,
    /// Longest staged rows of whole vectors with more lanes. Elements of two bytes take half the traffic, but
    /// may take as much shared memory.
    pub staged_wide: i64,
    /// Longest staged rows that are not whole vectors.
    pub staged_uneven: i64,
    /// Longest rows of whole vectors that are read once.
    pub once: i64,
    /// Longest rows that are not whole vectors and are read once.
    pub once_uneven: i64,
}

/// Memory for elements of rows that several passes need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowMemory {
    /// Shared memory whose size is set at launch, up to the limit of the device.
    AtLaunch,
    /// Shared memory of a fixed number of four-byte elements for each block.
    Fixed(u32),
    /// Memory of the thread, of any size. Operands need no staging, because they stay in the thread's cache.
    Scratch,
}

/// Way in which a thread works on several elements at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// Values of this many lanes.
    Lanes(u8),
    /// Loops that the target's compiler vectorises, over runs of at most this many elements.
    Loops(u32),
}

impl Vectors {
    /// Returns the lanes of a vectorised value.
    pub fn lanes(self) -> Lanes {
        match self {
            Vectors::Lanes(lanes) => Lanes::Const(lanes),
            Vectors::Loops(_) => Lanes::Loop,
        }
    }
}

/// Returns the feature that a function needs and the target lacks, if any.
pub fn lacks(graph: &Graph, target: Target) -> Option<Text> {
    match target {
        Target::Cpu | Target::Ptx => None,
        Target::Wgsl => graph.nodes.iter().any(|node| node.dtype == DType::F64).then(|| "f64".into()),
    }
}

/// Returns the facts of devices with higher limits than their target guarantees, if a second program may pay.
pub fn larger(target: Target) -> Option<TargetFacts> {
    match target {
        Target::Ptx | Target::Cpu => None,
        // Mesa's software Vulkan binds 32.
        Target::Wgsl => Some(TargetFacts { buffers_max: 16, ..facts(target) }),
    }
}

/// Returns the facts that all devices of a target have in common.
pub fn facts(target: Target) -> TargetFacts {
    match target {
        Target::Ptx => TargetFacts {
            vector: Vectors::Lanes(4),
            narrow_lanes: 8,
            scaling_lanes: 8,
            buffers_max: 64,
            uniform_buffers_max: 0,
            mixes: true,
            rebased: false,
            wide: true,
            teams: &PTX_TEAMS,
            block: Some(256),
            row_memory: RowMemory::AtLaunch,
            unrolled_max: UNROLLED_MAX,
            parts: GPU_PARTS,
            columns: GPU_COLUMNS,
        },
        // Every WebGPU device has eight storage buffers, twelve uniform buffers and 256 threads of a
        // workgroup.
        Target::Wgsl => TargetFacts {
            vector: Vectors::Lanes(4),
            narrow_lanes: 4,
            scaling_lanes: 4,
            buffers_max: 8,
            uniform_buffers_max: 8,
            mixes: false,
            rebased: true,
            wide: false,
            teams: &WGSL_TEAMS,
            block: Some(256),
            // Every device has 16 KiB. The rest is for the partial results of threads.
            row_memory: RowMemory::Fixed(3072),
            unrolled_max: UNROLLED_MAX,
            parts: GPU_PARTS,
            columns: GPU_COLUMNS,
        },
        // A run has 16 KiB of each f32 array, so that several arrays fit in the first two caches.
        Target::Cpu => TargetFacts {
            vector: Vectors::Loops(4096),
            narrow_lanes: 1,
            scaling_lanes: 1,
            buffers_max: 64,
            uniform_buffers_max: 0,
            mixes: true,
            rebased: false,
            wide: false,
            teams: &[],
            block: None,
            row_memory: RowMemory::Scratch,
            // Longer sums take less time in a loop than unrolled.
            unrolled_max: 8,
            // A part has 256 KiB of each f32 array, so the overhead of a part is negligible. A single thread
            // is no slower with parts of rows this long. Where elements are stored, that is true only if
            // memory is the bottleneck.
            parts: Parts { len: 1 << 16, rows_max: 16, row_min: 1 << 18, stored_row_min: 1 << 22 },
            // The width is at least half of the rows that a thread reduces together. A part has 512 KiB of
            // each f32 array.
            columns: Columns { steps: 256, ..GPU_COLUMNS },
        },
    }
}

/// Returns the limits that reports assume without a device: WebGPU's defaults, or the shared memory of a
/// block on NVIDIA's A100.
pub fn limits(target: Target) -> Limits {
    match target {
        Target::Ptx => Limits {
            buffers: u32::MAX,
            binding_bytes: u64::MAX,
            shared_bytes: 163 << 10,
            subgroup: 32,
            cluster: 1,
        },
        Target::Wgsl => {
            Limits { buffers: 8, binding_bytes: 128 << 20, shared_bytes: 16 << 10, subgroup: 0, cluster: 1 }
        }
        Target::Cpu => {
            Limits { buffers: u32::MAX, binding_bytes: u64::MAX, shared_bytes: 0, subgroup: 0, cluster: 1 }
        }
    }
}

/// Teams of NVIDIA GPUs, smallest first. The limits follow from measurements on an H200: softmax, layer norm,
/// sums and cross-entropies.
///
/// A thread has about four vectors of a row, so that enough loads are in flight. Short rows share a warp,
/// because the cost of a warp for each row does not shrink with the row. Rows that are not whole vectors load
/// each staged element from shared memory by itself, so that a thread has more work, and the reduction is a
/// smaller share of the work.
///
/// In a loop that ptxas unrolls, a thread loads one vector, then four, then two, then one. Loading four at
/// once pays where few blocks run at a time. ptxas does not unroll loops over single elements with large
/// bodies, so `load_unroll` also helps rows that are not whole vectors.
const PTX_TEAMS: [Team; 9] = [
    Team { rows: 8, longest: Longest { staged: 32, ..all(64) }, ..team(32, 64, 4) },
    Team {
        rows: 4,
        longest: Longest { staged: 96, staged_wide: 384, staged_uneven: 192, once: 256, once_uneven: 96 },
        ..team(32, 384, 4)
    },
    Team { rows: 2, longest: Longest { staged_wide: 768, once: 1024, ..all(512) }, ..team(32, 512, 4) },
    Team {
        longest: Longest { staged: 0, staged_wide: 1536, once: 0, once_uneven: 3072, ..all(1024) },
        rows_min: 1 << 13,
        ..team(32, 1024, 4)
    },
    Team {
        longest: Longest { staged_wide: 7168, once: 4096, once_uneven: 8192, ..all(2048) },
        ..team(128, 8192, 1)
    },
    Team { longest: Longest { staged_wide: 12_288, ..all(6144) }, load_unroll: 4, ..team(256, 6144, 1) },
    Team {
        longest: Longest { staged_wide: 24_576, ..all(16_384) },
        load_unroll: 4,
        fills: true,
        ..team(512, 24_576, 1)
    },
    Team { load_unroll: 4, fills: true, cluster: true, rows_min: 64, ..team(512, CLUSTER_MAX * 24_576, 1) },
    // Blocks of all GPUs since Ampere can share this much memory. The size is less than half of an H100's
    // multiprocessor, so that one block reads while another combines.
    Team { staged_max: Some(96 << 10), ..team(1024, i64::MAX, 1) },
];
/// Largest number of blocks of a cluster that all devices with clusters support.
pub(crate) const CLUSTER_MAX: i64 = 8;
/// Teams of WebGPU devices, smallest first. A workgroup has several short rows at a time, which is faster on
/// Mesa's software Vulkan.
const WGSL_TEAMS: [Team; 3] =
    [Team { rows: 8, ..team(64, 256, 1) }, Team { rows: 2, ..team(64, 1024, 1) }, team(256, i64::MAX, 1)];

/// Splitting of rows on GPUs. A part is eight 128-bit accesses for each thread of a block. The limit of rows
/// is below the number of blocks that a large GPU can run. Rows of 32,768 elements, as long as a vocabulary,
/// stay in one kernel. A block need not read staged elements twice, so parts store elements only for longer
/// rows.
const GPU_PARTS: Parts =
    Parts { len: 1 << 13, rows_max: 512, row_min: (1 << 15) + 1, stored_row_min: 1 << 16 };

/// Splitting of column-major rows on GPUs: one or two kilobytes of adjacent elements. A sum of a thousand
/// terms is as exact as an f32 can be expected to be.
const GPU_COLUMNS: Columns = Columns { width: 256, steps: 64, row_min: 1025, stored_row_min: 1 << 13 };

/// Returns a team for one row at a time, of at most `row_max` elements.
pub(crate) const fn team(threads: u32, row_max: i64, per_block: u32) -> Team {
    Team {
        threads,
        rows: 1,
        longest: all(row_max),
        rows_min: 0,
        per_block,
        cluster: false,
        staged_max: None,
        fills: false,
        load_unroll: 1,
    }
}

/// Returns one limit for all kinds of rows.
const fn all(row_max: i64) -> Longest {
    Longest {
        staged: row_max,
        staged_wide: row_max,
        staged_uneven: row_max,
        once: row_max,
        once_uneven: row_max,
    }
}
