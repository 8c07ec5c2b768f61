//! What was fused, as reports tell it.
//!
//! Invariant: what does not depend on the call; what a call runs and moves, a report finds in the plan's variants.

use serde::{Deserialize, Serialize};

use super::super::dim::DimExpr;
use super::super::graph::Math;
use super::{List, Text};

/// What was fused, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Kernels without fusion: one per op.
    pub ops: u32,
    /// Bytes moved without fusion.
    pub unfused_bytes: DimExpr,
    /// How operations are computed: `#[fuse(fast_math)]`, `#[fuse(strict)]` or neither.
    pub math: Math,
    /// What kernels read and write: parameters, then what is made, in order.
    pub arrays: List<Array>,
    /// One per kernel, in order.
    pub groups: List<GroupSummary>,
    /// Why what is not in one kernel is not.
    pub boundaries: List<Boundary>,
    /// The programs that have these kernels, by position in `Plan::programs`.
    pub programs: List<u16>,
    /// Of the programs whose kernels are not these, because they may bind fewer buffers, or more.
    pub others: List<Summary>,
}

/// A tensor that kernels read or write, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Array {
    /// The parameter, `result`, or the operation that makes it.
    pub name: Text,
    /// Dtype and dims, as users would write them.
    pub shape: Text,
    /// In memory.
    pub bytes: DimExpr,
    /// Whose it is.
    pub kind: ArrayKind,
}

/// Whose a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArrayKind {
    /// What the caller passes.
    Param,
    /// The new content of a `&mut` parameter.
    InPlace,
    /// What is returned, at this position.
    Returned(u16),
    /// Stored only to be read by other kernels.
    Temporary,
}

/// One kernel of a plan, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// Name of the kernel.
    pub kernel: Text,
    /// The schedule's name.
    pub schedule: Text,
    /// What the kernel is about: what is combined in it and along which dims, if anything is.
    pub hero: Text,
    /// The ops in it, in order.
    pub ops: List<Text>,
    /// The iteration space, as users would write it.
    pub space: Text,
    /// What is read.
    pub reads: List<Traffic>,
    /// What is written.
    pub writes: List<Traffic>,
    /// What there is of it in each program.
    pub variants: List<VariantSummary>,
}

/// What a kernel reads or writes of a tensor, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Of which, by position in `Summary::arrays`.
    pub array: u16,
    /// How much: all of it, or what is picked of it.
    pub bytes: DimExpr,
}

/// The variants of a kernel in one program, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantSummary {
    /// How many there are.
    pub variants: u16,
    /// What sets them apart: each says what some of them have`|`what others have, or what all have.
    pub kinds: List<Text>,
}

/// Two kernels that are not one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boundary {
    /// The value that is stored between them.
    pub value: Text,
    /// The same, by position in `Summary::arrays`.
    pub array: u16,
    /// Why.
    pub reason: Text,
    /// In the user's source; 0 if unknown.
    pub line: u32,
    /// In the user's source; 0 if unknown.
    pub column: u32,
}
