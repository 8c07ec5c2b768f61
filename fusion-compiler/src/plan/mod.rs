//! Groups and their kernels → the plan: launches with conditions, the data of reports, and costs.

pub mod assemble;
pub(crate) mod cost;
pub(crate) mod nonempty;
mod products;
pub mod summary;
pub(crate) mod variant_summary;

use std::sync::Arc;

use crate::fuse::Grouping;
use crate::ir::graph::Graph;
use crate::ir::kernel::Kernel;
use crate::ir::plan::{Program, Target, VariantSummary};
use crate::schedule::Schedule;
use crate::target::TargetFacts;

/// Kernel before a target has made it legal. Kernels are lowered once, though variants share them.
pub(crate) type UnloweredKernel = Arc<Kernel>;

/// A graph fused for one target.
pub struct FusedGraph {
    /// Target of the program.
    pub target: Target,
    /// Facts about the target.
    pub facts: TargetFacts,
    /// Graph, with the axes that are looped on the target.
    pub graph: Graph,
    /// Groups of the graph.
    pub fused: Grouping,
}

/// The compiled program of a fused graph.
pub struct Compiled<'g> {
    /// Graph that the program computes.
    pub of: &'g FusedGraph,
    /// Program, with unlowered kernels.
    pub program: Program<UnloweredKernel>,
    /// Schedule and variants of each group.
    pub kernels: Vec<(Schedule, VariantSummary)>,
}
