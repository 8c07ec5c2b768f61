//! What the targets can do, as far as the compiler asks.
//!
//! Invariant: schedules and fusion see only `TargetFacts`, never which target it is.

use crate::ir::dtype::DType;
use crate::ir::graph::{Graph, UNROLLED_MAX};
use crate::ir::kernel::Lanes;
pub use crate::ir::ops::Dialect;
use crate::ir::plan::{Limits, Target, Text};

/// What fusion and schedules ask of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    /// How a thread works on several elements at once.
    pub vector: Vectors,
    /// Lanes of vectors where some elements are narrow, so that an access of those is not.
    pub narrow_lanes: u8,
    /// Lanes of vectors that are read at a time where each scales a sum of exponentials once.
    pub scaling_lanes: u8,
    /// Most buffers that a kernel can bind.
    pub buffers_max: usize,
    /// Most tensors of one element that it can read besides, as uniforms.
    pub uniform_buffers_max: usize,
    /// Whether a kernel may access a buffer by vectors and by single elements, and others those next to them.
    pub mixes: bool,
    /// Whether positions must be rebased to the binding of their buffer.
    pub rebased: bool,
    /// Whether a tensor can have 2³¹ elements or more.
    pub wide: bool,
    /// Teams that work on rows together, smallest first; none where a thread has a row for itself.
    pub teams: &'static [Team],
    /// Threads of the team that has what no team can hold, and parts of rows; none where there are no teams.
    pub block: Option<u32>,
    /// Where teams hold the elements of a row that they need more than once.
    pub row_memory: RowMemory,
    /// Elements of the longest line that a thread combines by itself, all written out, where a loop takes no more kernels.
    pub unrolled_max: i64,
    /// How rows that are few and long are cut into parts.
    pub parts: Parts,
    /// How long rows that lie side by side are.
    pub columns: Columns,
}

/// How rows that are few and long are cut into parts, so that all of the device works on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Elements of a part: a multiple of a vector, and few enough to be in a cache when they are needed again.
    pub len: i64,
    /// More rows than this keep the device busy by themselves.
    pub rows_max: i64,
    /// Elements of the shortest rows that are worth a second kernel …
    pub row_min: i64,
    /// … and of those worth a third, where elements are stored.
    pub stored_row_min: i64,
}

/// How long rows that lie side by side are cut into parts: for all of the device, and so that no sum takes too many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Elements that parts should have side by side, where there are fewer rows.
    pub width: i64,
    /// Steps of a part where rows are few.
    pub steps: i64,
    /// Elements of the shortest rows that are worth a second kernel …
    pub row_min: i64,
    /// … and of those worth a third, and a second read, where elements are stored.
    pub stored_row_min: i64,
}

/// Threads that work on a row together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    /// How many.
    pub threads: u32,
    /// Rows that they have at a time, each the same part of them.
    pub rows: u32,
    /// The longest rows that they are not too few for.
    pub longest: Longest,
    /// Rows of which there are enough for as many of these as keep a device at work.
    pub rows_min: i64,
    /// Most of them that a block has.
    pub per_block: u32,
    /// Whether there is one in each block of a cluster, and each has a part of a row.
    pub cluster: bool,
    /// Most bytes of a row's elements that it holds, if it goes on with those of longer rows without.
    pub staged_max: Option<i64>,
    /// Whether its rows fill the memory that a multiprocessor has for them, so that few blocks work at once.
    pub fills: bool,
    /// Vectors that each thread reads before it goes on, of rows that it holds, whose length is not known, and that fill that memory or
    /// are not whole vectors; 1 where the target's compiler decides.
    pub load_unroll: u32,
}

/// Elements of the longest rows that a team has, none where it has no such rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// Of whole vectors of no more than four lanes, and held.
    pub staged: i64,
    /// Of whole vectors of more lanes, and held: what takes half as much to read may take as much to hold.
    pub staged_wide: i64,
    /// Of no whole vectors, and held.
    pub staged_uneven: i64,
    /// Of whole vectors, and read once.
    pub once: i64,
    /// Of no whole vectors, and read once.
    pub once_uneven: i64,
}

/// Memory for the elements of rows that are needed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowMemory {
    /// What threads share, given at launch, as much as the device has.
    AtLaunch,
    /// What threads share: so many elements of four bytes for each block.
    Fixed(u32),
    /// The thread's own, as much as it takes; what is in memory already is in its cache.
    Scratch,
}

/// How a thread works on several elements at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// By values of this many lanes.
    Lanes(u8),
    /// By loops that the target's compiler vectorises, over runs of at most this many elements.
    Loops(u32),
}

impl Vectors {
    /// The lanes of a vectorised value.
    pub fn lanes(self) -> Lanes {
        match self {
            Vectors::Lanes(lanes) => Lanes::Const(lanes),
            Vectors::Loops(_) => Lanes::Loop,
        }
    }
}

/// What a function needs that a target has not, if there is something.
pub fn lacks(graph: &Graph, target: Target) -> Option<Text> {
    match target {
        Target::Cpu | Target::Ptx => None,
        Target::Wgsl => graph.nodes.iter().any(|node| node.dtype == DType::F64).then(|| "f64".into()),
    }
}

/// The same of devices that have more, if there are some that a program of their own may be worth.
pub fn larger(target: Target) -> Option<TargetFacts> {
    match target {
        Target::Ptx | Target::Cpu => None,
        // Mesa's software Vulkan binds 32.
        Target::Wgsl => Some(TargetFacts { buffers_max: 16, ..facts(target) }),
    }
}

/// The facts of every device of a target.
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
        // Eight storage buffers, twelve uniform ones, and 256 threads of a group, are what every WebGPU device has.
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
            // Of the 16 KiB that every device has; the rest is for what threads combine.
            row_memory: RowMemory::Fixed(3072),
            unrolled_max: UNROLLED_MAX,
            parts: GPU_PARTS,
            columns: GPU_COLUMNS,
        },
        // Sixteen kilobytes of each f32 array: a handful of arrays stays in the first two caches.
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
            // Sums of 12 took 4.0 ns a row written out and take 1.6 in a loop, of 64 12.3 and 5.2; of 8, 0.7 written out.
            unrolled_max: 8,
            // A quarter of a megabyte of each array, so that what a part takes beside its elements is nothing. One thread
            // alone is no slower for rows this long; of elements, only where memory is what it waits for.
            parts: Parts { len: 1 << 16, rows_max: 16, row_min: 1 << 18, stored_row_min: 1 << 22 },
            // Half of what a thread goes through together, at least, and half a megabyte of each array.
            columns: Columns { steps: 256, ..GPU_COLUMNS },
        },
    }
}

/// What a device of a target has if none is at hand: WebGPU's default limits, and of NVIDIA's GPUs the memory of an A100's
/// blocks.
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

/// A thread has some four vectors of a row, so that enough of memory is on its way, but what a warp does for each row takes as long for
/// short ones. On an H200, a softmax of rows of 32 elements took half a warp 263 us, a fourth of one 145 and an eighth 134; of 64 146,
/// 130 and 135; of 128 halves 100, 77 and 77, of 384 82 and 77; sums of 64 85, 67 and 68. A layer norm of 128 is a third faster by half
/// a warp than by a whole one, of 4096 a twentieth by 256 threads than by 128, of 7168 a twelfth by 512 than by 256, and of 16,384 a fifth
/// by 512 than by 1024. Of 6144 halves, a softmax took 128 threads 74 us and 256 86, of 12,288 a layer norm 256 threads 74 and 512 86; of
/// 24,576 a softmax took 512 threads 89 and clusters 104. Of rows that are no vectors, every element of which is read from shared memory
/// by itself, threads have more to do, and combining what each has is less of it: a softmax of 1001 took a warp 152 us, 128 threads 168
/// and 256 197, a layer norm of 1501 178, 156 and 182, one of 3001 181 by 128 and 149 by 256; sums of 6001 70, 65 and 66,
/// cross-entropies 82, 72 and 77.
///
/// Of a loop that ptxas unrolls, a thread with as many vectors reads one, then four, then two and one. That matters where blocks are
/// few: with four at a time, a softmax of 16,384 took an H200 141 us before and 134 after, a layer norm 148 and 142. Teams of 256 were
/// no faster for it, and those of 128 two hundredths. Loops over elements it does not unroll if there is much in them: a softmax of
/// 4097 took teams of 256 150 us before and 135 after.
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
    // What blocks of all GPUs since Ampere can share, and less than half of what a multiprocessor of an H100 has, so that one
    // block reads while another combines.
    Team { staged_max: Some(96 << 10), ..team(1024, i64::MAX, 1) },
];
/// Most blocks of a cluster, on all devices that have clusters.
pub(crate) const CLUSTER_MAX: i64 = 8;
/// A group has several short rows at a time. On Mesa's software Vulkan a softmax of 2²³ elements in rows of 32 took 64 threads for each
/// 390 ms and eight 72, in rows of 256 77 and 38; of 512 it took 64 threads 57 and 32 of them 48, of 1024 48 and 44.
const WGSL_TEAMS: [Team; 3] =
    [Team { rows: 8, ..team(64, 256, 1) }, Team { rows: 2, ..team(64, 1024, 1) }, team(256, i64::MAX, 1)];

/// Eight 128-bit accesses for each thread of a block, and fewer rows than a large GPU has room for blocks. Rows of 32,768
/// elements, as long as a vocabulary, are one kernel's. What a block can hold of a row it need not read twice, so elements are
/// stored by parts only of longer ones.
const GPU_PARTS: Parts =
    Parts { len: 1 << 13, rows_max: 512, row_min: (1 << 15) + 1, stored_row_min: 1 << 16 };

/// A kilobyte or two side by side. A sum of a thousand is as exact as an f32 can be asked to be.
const GPU_COLUMNS: Columns = Columns { width: 256, steps: 64, row_min: 1025, stored_row_min: 1 << 13 };

/// A team that has a row at a time, no longer than that.
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

/// The same of all rows.
const fn all(row_max: i64) -> Longest {
    Longest {
        staged: row_max,
        staged_wide: row_max,
        staged_uneven: row_max,
        once: row_max,
        once_uneven: row_max,
    }
}
