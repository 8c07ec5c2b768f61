//! Facts about the targets, as far as the compiler depends on them: one table a target.
//!
//! Invariant: schedules and fusion see only `TargetFacts`, never the target itself.

mod cpu;
mod facts;
mod ptx;
pub mod tuning_table;
mod wgsl;

#[cfg(feature = "compile")]
pub(crate) use facts::team;
pub use facts::{
    AttentionShape, Columns, Contractions, DepthParts, LINE_PADDING, Longest, PANEL_BYTES, PANEL_PADDING,
    PANEL_STAGES, Parts, RowMemory, TargetFacts, Team, TileShape, Tiles, Vectors,
};
#[cfg(feature = "compile")]
pub(crate) use ptx::CLUSTER_MAX;

use crate::ir::dtype::DType;
use crate::ir::graph::Graph;
use crate::ir::plan::{Limits, Target, Text};
pub use crate::ops::Dialect;

/// Returns the feature that a function needs and the target lacks, if any.
pub fn lacks(graph: &Graph, target: Target) -> Option<Text> {
    match target {
        Target::Cpu | Target::Ptx => None,
        Target::Wgsl => graph.nodes.iter().any(|node| node.dtype == DType::F64).then(|| "f64".into()),
    }
}

/// Returns the facts that all devices of a target have in common.
pub fn facts(target: Target) -> TargetFacts {
    match target {
        Target::Ptx => ptx::FACTS,
        Target::Wgsl => wgsl::FACTS,
        Target::Cpu => cpu::FACTS,
    }
}

/// Returns the limits that reports assume without a device: WebGPU's defaults, or these of NVIDIA's A100.
pub fn limits(target: Target) -> Limits {
    match target {
        Target::Ptx => {
            Limits { binding_bytes: u64::MAX, shared_bytes: 163 << 10, subgroup: 32, cluster: 1, arch: 80 }
        }
        Target::Wgsl => {
            Limits { binding_bytes: 128 << 20, shared_bytes: 16 << 10, subgroup: 0, cluster: 1, arch: 0 }
        }
        Target::Cpu => Limits { binding_bytes: u64::MAX, shared_bytes: 0, subgroup: 0, cluster: 1, arch: 0 },
    }
}
