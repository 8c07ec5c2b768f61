//! Processors.

use super::facts::{Columns, Contractions, GPU_COLUMNS, Parts, RowMemory, TargetFacts, Tiles, Vectors};
use super::tuning_table::cpu;

/// Facts that all devices have in common.
pub(super) const FACTS: TargetFacts = TargetFacts {
    vector: Vectors::Loops(cpu::RUN_LEN),
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
    unrolled_max: cpu::UNROLLED_MAX,
    parts: Parts {
        len: cpu::PART_LEN,
        rows_max: cpu::PART_ROWS_MAX,
        row_min: cpu::PART_ROW_MIN,
        stored_row_min: cpu::PART_STORED_ROW_MIN,
    },
    columns: Columns { steps: cpu::COLUMN_PART_STEPS, ..GPU_COLUMNS },
    contractions: Contractions {
        rows_min: cpu::CONTRACTION_ROWS_MIN,
        cols_min: cpu::CONTRACTION_COLS_MIN,
        depth_min: cpu::CONTRACTION_DEPTH_MIN,
        tiles: Tiles::Driver {
            cols_min: cpu::CONTRACTION_TILE_COLS_MIN,
            cols_max: cpu::CONTRACTION_TILE_COLS,
        },
        attention: &[],
        parts: None,
    },
};
