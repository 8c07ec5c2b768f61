//! Special registers.

/// Special register, with the axis where it has three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    GridId,
    MaskEq,
    MaskLe,
    MaskLt,
    MaskGe,
    MaskGt,
    Clock,
    ClockHi,
    GlobalTimer,
    TotalShared,
    DynamicShared,
    ClusterRank,
    ClusterBlocks,
    ClusterId(usize),
    NClusterId(usize),
    ClusterCtaid(usize),
    ClusterNctaid(usize),
    /// The only special register that is a predicate.
    IsExplicitCluster,
}
