//! Processors.

use super::facts::{Columns, GPU_COLUMNS, Parts, RowMemory, TargetFacts, Vectors};

/// Facts that all devices have in common. A run has 16 KiB of each f32 array, so that several arrays fit in the
/// first two caches.
pub(super) const FACTS: TargetFacts = TargetFacts {
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
};
