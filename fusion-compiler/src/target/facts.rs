//! Facts about a target that fusion and schedules depend on.

use super::tuning_table::gpu;
use crate::ir::kernel::{ASYNC_COPY_BYTES, Lanes, Panels};

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
    /// Tiles of contractions.
    pub contractions: Contractions,
}

/// Parameters of contractions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contractions {
    /// Smallest number of rows that are worth tiles.
    pub rows_min: i64,
    /// Smallest number of columns that are worth tiles.
    pub cols_min: i64,
    /// Shortest sums that are worth tiles.
    pub depth_min: i64,
    /// Way in which tiles are computed.
    pub tiles: Tiles,
    /// Tiles of attention that teams compute, the smallest first.
    pub attention: &'static [AttentionShape],
    /// Parts of the depth, if different teams compute them where there are few tiles.
    pub parts: Option<DepthParts>,
}

/// Parts of the depth of contractions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthParts {
    /// Length of a part, a multiple of the depth of every tile.
    pub len: i64,
    /// Shortest depth that is worth parts.
    pub depth_min: i64,
    /// Largest number of tiles that leave most of a device idle.
    pub tiles_max: i64,
}

/// Way in which a target computes the tiles of a contraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiles {
    /// The driver of the device computes them. The launch chooses the number of columns of each.
    Driver {
        /// Smallest number of columns, if other threads would have none.
        cols_min: u32,
        /// Largest number of columns.
        cols_max: u32,
    },
    /// A team computes each. The shapes are in order of preference, and the last one is for all sizes.
    Teams(&'static [TileShape]),
}

/// A tile that a team of threads computes. All numbers are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// Number of rows.
    pub rows: u16,
    /// Number of columns.
    pub cols: u16,
    /// Steps of the depth between two barriers.
    pub depth: u16,
    /// Number of threads of the team.
    pub threads: u32,
    /// Largest number of bytes of an element of the sum.
    pub size_max: usize,
    /// Smallest number of elements of a result whose tiles keep a device busy.
    pub elements_min: i64,
    /// Way in which the team multiplies.
    pub panels: Panels,
}

/// A tile of attention that a team of threads computes. All numbers are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Number of queries.
    pub rows: u16,
    /// Number of keys at a time: four for each of the threads that share rows.
    pub keys: u16,
    /// Number of columns of the values.
    pub cols: u16,
    /// Steps of the depth of scores between two barriers.
    pub depth: u16,
    /// Number of threads of the team.
    pub threads: u32,
    /// Keys of a part, if different teams may take parts of the keys: a multiple of the keys at a time.
    pub part: Option<u16>,
}

/// Bytes along the depth of a panel of matrices.
pub const PANEL_BYTES: u16 = 64;

/// Number of stages of panels that asynchronous copies fill: one in use, the others being copied.
pub const PANEL_STAGES: u16 = 3;

/// Elements from the end of a line of a panel, or of sums, to the next line. A load of matrices reads eight lines of
/// 16 bytes at once, which then lie in different banks. So do the sums that a warp stores at once.
pub const PANEL_PADDING: u16 = 8;

/// Elements from the end of a line of a panel of elements to the next line. Threads that store a column of a panel
/// then use different banks.
pub const LINE_PADDING: u16 = 4;

impl TileShape {
    /// Returns a tile of 16 × 16 threads with 16 elements each.
    pub(super) const SMALL: TileShape = TileShape {
        rows: 64,
        cols: 64,
        depth: 16,
        threads: 256,
        size_max: 8,
        elements_min: 0,
        panels: Panels::Stored,
    };

    /// Returns the bytes of shared memory whose size is set at launch, for elements of `size` bytes.
    ///
    /// The memory has the stages of panels, and later the sums of products of matrices.
    pub fn launch_bytes(&self, size: usize) -> i64 {
        let [rows, cols, depth] = [self.rows, self.cols, self.depth].map(i64::from);
        let stages = |line: i64, lines: i64| i64::from(PANEL_STAGES) * lines * line;
        match self.panels {
            Panels::Stored => 0,
            Panels::Copied => stages(size as i64 * (rows + cols + 2 * i64::from(LINE_PADDING)), depth),
            Panels::Matrices => {
                let panels = stages(i64::from(PANEL_BYTES) + ASYNC_COPY_BYTES as i64, rows + cols);
                panels.max(4 * rows * (cols + i64::from(PANEL_PADDING)))
            }
        }
    }
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

/// Splitting of rows on GPUs.
pub(super) const GPU_PARTS: Parts = Parts {
    len: gpu::PART_LEN,
    rows_max: gpu::PART_ROWS_MAX,
    row_min: gpu::PART_ROW_MIN,
    stored_row_min: gpu::PART_STORED_ROW_MIN,
};

/// Splitting of column-major rows on GPUs.
pub(super) const GPU_COLUMNS: Columns = Columns {
    width: gpu::COLUMN_PART_WIDTH,
    steps: gpu::COLUMN_PART_STEPS,
    row_min: gpu::COLUMN_PART_ROW_MIN,
    stored_row_min: gpu::COLUMN_PART_STORED_ROW_MIN,
};

/// Contractions on GPUs, with the smallest tile.
pub(super) const GPU_CONTRACTIONS: Contractions = Contractions {
    rows_min: gpu::CONTRACTION_ROWS_MIN,
    cols_min: gpu::CONTRACTION_COLS_MIN,
    depth_min: gpu::CONTRACTION_DEPTH_MIN,
    tiles: Tiles::Teams(&[TileShape::SMALL]),
    attention: &[
        AttentionShape {
            rows: 16,
            keys: 32,
            cols: 64,
            depth: 8,
            threads: 64,
            part: Some(gpu::ATTENTION_PART_KEYS),
        },
        AttentionShape { rows: 64, keys: 32, cols: 64, depth: 8, threads: 128, part: None },
    ],
    parts: None,
};

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
pub(super) const fn all(row_max: i64) -> Longest {
    Longest {
        staged: row_max,
        staged_wide: row_max,
        staged_uneven: row_max,
        once: row_max,
        once_uneven: row_max,
    }
}
