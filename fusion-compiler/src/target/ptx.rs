//! NVIDIA GPUs.

use super::facts::{
    AttentionShape, Contractions, DepthParts, GPU_COLUMNS, GPU_CONTRACTIONS, GPU_PARTS, Longest, PANEL_BYTES,
    RowMemory, TargetFacts, Team, TileShape, Tiles, Vectors, team,
};
use super::tuning_table::{gpu, ptx};
use crate::ir::graph::UNROLLED_MAX;
use crate::ir::kernel::Panels;

/// Facts that all devices have in common.
pub(super) const FACTS: TargetFacts = TargetFacts {
    vector: Vectors::Lanes(4),
    narrow_lanes: 8,
    scaling_lanes: ptx::SCALING_LANES,
    buffers_max: 64,
    uniform_buffers_max: 0,
    mixes: true,
    rebased: false,
    wide: true,
    teams: &TEAMS,
    block: Some(gpu::BLOCK),
    row_memory: RowMemory::AtLaunch,
    unrolled_max: UNROLLED_MAX,
    parts: GPU_PARTS,
    columns: GPU_COLUMNS,
    contractions: Contractions {
        tiles: Tiles::Teams(&TILES),
        attention: &ATTENTION,
        parts: Some(DEPTH_PARTS),
        ..GPU_CONTRACTIONS
    },
};

/// Teams of NVIDIA GPUs, smallest first. Short rows share a warp, because the cost of a warp for each row does
/// not shrink with the row.
const TEAMS: [Team; 9] = [
    Team { rows: 8, ..sized(0, 32, 4) },
    Team { rows: 4, ..sized(1, 32, 4) },
    Team { rows: 2, ..sized(2, 32, 4) },
    Team { rows_min: ptx::WARP_ROWS_MIN, ..sized(3, 32, 4) },
    sized(4, 128, 1),
    Team { load_unroll: ptx::LOAD_UNROLL, ..sized(5, 256, 1) },
    Team { load_unroll: ptx::LOAD_UNROLL, fills: true, ..sized(6, 512, 1) },
    Team {
        load_unroll: ptx::LOAD_UNROLL,
        fills: true,
        cluster: true,
        rows_min: ptx::CLUSTER_ROWS_MIN,
        ..team(512, CLUSTER_MAX * ptx::CLUSTER_PART_MAX, 1)
    },
    Team { staged_max: Some(ptx::STAGED_BYTES), ..team(1024, i64::MAX, 1) },
];

/// Returns the team of this place in the table, for one row at a time.
const fn sized(place: usize, threads: u32, per_block: u32) -> Team {
    let longest = Longest {
        staged: ptx::TEAM_STAGED_MAX[place],
        staged_wide: ptx::TEAM_STAGED_WIDE_MAX[place],
        staged_uneven: ptx::TEAM_STAGED_UNEVEN_MAX[place],
        once: ptx::TEAM_ONCE_MAX[place],
        once_uneven: ptx::TEAM_ONCE_UNEVEN_MAX[place],
    };
    Team { longest, ..team(threads, 0, per_block) }
}

/// Largest number of blocks of a cluster that all devices with clusters support.
pub(crate) const CLUSTER_MAX: i64 = 8;

/// Tiles of NVIDIA GPUs: these of matrices, then these of which a thread computes 64 or 16 elements, with panels that
/// are copied or stored.
const TILES: [TileShape; 6] = [
    TileShape { elements_min: ptx::LARGE_TILE_ELEMENTS_MIN, ..of_matrices(128) },
    of_matrices(64),
    TileShape { panels: Panels::Copied, ..LARGE },
    TileShape { panels: Panels::Copied, ..TileShape::SMALL },
    LARGE,
    TileShape::SMALL,
];

/// A tile of 16 × 16 threads with 64 elements each.
const LARGE: TileShape = TileShape {
    rows: 128,
    cols: 128,
    depth: 8,
    threads: 256,
    size_max: 4,
    elements_min: ptx::LARGE_TILE_ELEMENTS_MIN,
    panels: Panels::Stored,
};

/// Tiles of attention: 16 threads share 8 rows, or 2 where there are few.
const ATTENTION: [AttentionShape; 3] = [
    AttentionShape { rows: 16, part: Some(gpu::ATTENTION_PART_KEYS), ..of_values(128) },
    of_values(64),
    of_values(128),
];

/// Returns a tile of attention for values with so many columns.
const fn of_values(cols: u16) -> AttentionShape {
    AttentionShape { rows: 64, keys: 64, cols, depth: 16, threads: 128, part: None }
}

/// Parts of the depth of contractions.
const DEPTH_PARTS: DepthParts = DepthParts {
    len: ptx::DEPTH_PART_LEN,
    depth_min: ptx::DEPTH_PARTS_MIN * ptx::DEPTH_PART_LEN,
    tiles_max: ptx::DEPTH_PARTS_TILES_MAX,
};

/// Returns a square tile of four warps, for factors of 16-bit floats.
const fn of_matrices(rows: u16) -> TileShape {
    let (cols, panels) = (rows, Panels::Matrices);
    TileShape { rows, cols, depth: PANEL_BYTES / 2, threads: 128, size_max: 4, elements_min: 0, panels }
}
