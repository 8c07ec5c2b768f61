//! Values that the machine or the enclosing loop provides.

/// A value of the machine or of the enclosing loop. `HasRest` is a `Bool`, all others are indices.
///
/// All but `LaneIndex`, `TileRow` and `TileCol` have one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// The number of each lane: 0, 1, 2, …
    LaneIndex,
    /// The number of each row of a tile with one column.
    TileRow,
    /// The number of each column of a tile with one row.
    TileCol,
    /// Number of this thread in its team; GPUs only.
    TeamId,
    /// Number of this thread's team in its block; GPUs only.
    TeamSlot,
    /// Number of this thread in its subgroup; WGSL only, formed by `legalize`.
    SubgroupLane,
    /// Number of threads in a subgroup; WGSL only, formed by `legalize`.
    SubgroupSize,
    /// Number of this thread in its block; GPUs only, formed by `legalize`.
    ThreadId,
    /// Number of this thread's block; GPUs only, formed by `legalize`.
    BlockId,
    /// Number of blocks; GPUs only, formed by `legalize`.
    Blocks,
    /// Number of this thread's block in its cluster; PTX only.
    ClusterRank,
    /// Number of blocks in a cluster; PTX only, formed by `legalize`.
    ClusterSize,
    /// Number of this thread's cluster; PTX only, formed by `legalize`.
    ClusterId,
    /// Number of clusters; PTX only, formed by `legalize`.
    Clusters,
    /// True if whole vectors leave a remainder, a constant when the kernel is compiled; WGSL only, formed by
    /// `legalize`.
    HasRest,
    /// Number of this thread in the launch; GPUs only, formed by `legalize`.
    GridId,
    /// Number of threads in the launch; GPUs only, formed by `legalize`.
    GridSize,
    /// Elements of an item that does not end its row; the CPU only.
    Grain,
    /// First column of the block at hand, if an item is a block of a row; the CPU only.
    BlockStart,
    /// Columns of the block at hand; the CPU only.
    BlockLen,
    /// First item of this thread; the CPU only, formed by `legalize`.
    RangeStart,
    /// One past the last item of this thread; the CPU only, formed by `legalize`.
    RangeEnd,
}

impl Builtin {
    /// Returns the name in texts of kernels.
    pub const fn name(self) -> &'static str {
        match self {
            Builtin::LaneIndex => "lane index",
            Builtin::TileRow => "tile row",
            Builtin::TileCol => "tile column",
            Builtin::TeamId => "team id",
            Builtin::TeamSlot => "team slot",
            Builtin::SubgroupLane => "subgroup lane",
            Builtin::SubgroupSize => "subgroup size",
            Builtin::ThreadId => "thread id",
            Builtin::BlockId => "block id",
            Builtin::Blocks => "blocks",
            Builtin::ClusterRank => "cluster rank",
            Builtin::ClusterSize => "cluster size",
            Builtin::ClusterId => "cluster id",
            Builtin::Clusters => "clusters",
            Builtin::HasRest => "has rest",
            Builtin::GridId => "grid id",
            Builtin::GridSize => "grid size",
            Builtin::Grain => "grain",
            Builtin::BlockStart => "block start",
            Builtin::BlockLen => "block length",
            Builtin::RangeStart => "range start",
            Builtin::RangeEnd => "range end",
        }
    }
}
