//! WebGPU devices.

use super::facts::{GPU_COLUMNS, GPU_CONTRACTIONS, GPU_PARTS, RowMemory, TargetFacts, Team, Vectors, team};
use super::tuning_table::{gpu, wgsl};
use crate::ir::graph::UNROLLED_MAX;

/// Facts that all devices have in common. Each has eight storage buffers, twelve uniform buffers and 256 threads
/// of a workgroup.
pub(super) const FACTS: TargetFacts = TargetFacts {
    vector: Vectors::Lanes(4),
    narrow_lanes: 4,
    scaling_lanes: 4,
    buffers_max: 8,
    uniform_buffers_max: 8,
    mixes: false,
    rebased: true,
    wide: false,
    teams: &TEAMS,
    block: Some(gpu::BLOCK),
    // Every device has 16 KiB. The rest is for the partial results of threads.
    row_memory: RowMemory::Fixed(3072),
    unrolled_max: UNROLLED_MAX,
    parts: GPU_PARTS,
    columns: GPU_COLUMNS,
    contractions: GPU_CONTRACTIONS,
};

/// Teams of WebGPU devices, smallest first. A workgroup has several short rows at a time, which is faster on
/// Mesa's software Vulkan.
const TEAMS: [Team; 3] = [
    Team { rows: 8, ..team(64, wgsl::TEAM_ROW_MAX[0], 1) },
    Team { rows: 2, ..team(64, wgsl::TEAM_ROW_MAX[1], 1) },
    team(gpu::BLOCK, i64::MAX, 1),
];
