//! NVIDIA GPUs.

use super::facts::{GPU_COLUMNS, GPU_PARTS, Longest, RowMemory, TargetFacts, Team, Vectors, all, team};
use crate::ir::graph::UNROLLED_MAX;

/// Facts that all devices have in common.
pub(super) const FACTS: TargetFacts = TargetFacts {
    vector: Vectors::Lanes(4),
    narrow_lanes: 8,
    scaling_lanes: 8,
    buffers_max: 64,
    uniform_buffers_max: 0,
    mixes: true,
    rebased: false,
    wide: true,
    teams: &TEAMS,
    block: Some(256),
    row_memory: RowMemory::AtLaunch,
    unrolled_max: UNROLLED_MAX,
    parts: GPU_PARTS,
    columns: GPU_COLUMNS,
};

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
const TEAMS: [Team; 9] = [
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
