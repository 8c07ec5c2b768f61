//! Summary of the fusion, for reports.
//!
//! Invariant: the summary has only what is independent of a call. A report reads the launches and bytes of a
//! call from the plan's variants.

use serde::{Deserialize, Serialize};

use super::super::dim::DimExpr;
use super::super::graph::Math;
use super::{List, Text};

/// A summary of the fusion, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of kernels without fusion, one for each op.
    pub ops: u32,
    /// Number of bytes moved without fusion.
    pub unfused_bytes: DimExpr,
    /// Accuracy mode, from `#[fuse(fast_math)]`, `#[fuse(strict)]` or neither.
    pub math: Math,
    /// Tensors that kernels read and write: the parameters, then the created tensors, in order.
    pub arrays: List<Array>,
    /// Summaries of the groups, one for each kernel, in order.
    pub groups: List<GroupSummary>,
    /// Boundaries between kernels, with their reasons.
    pub boundaries: List<Boundary>,
    /// Programs that have these kernels, by position in `Plan::programs`.
    pub programs: List<u16>,
    /// Summaries of programs with other kernels, because they may bind fewer or more buffers.
    pub others: List<Summary>,
}

/// A tensor that kernels read or write, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Array {
    /// Name of the parameter, `result`, or the operation that computes the tensor.
    pub name: Text,
    /// Dtype and dims, in the syntax of user code.
    pub shape: Text,
    /// Size in memory, in bytes.
    pub bytes: DimExpr,
    /// Owner of the tensor.
    pub kind: ArrayKind,
}

/// The owner of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArrayKind {
    /// A parameter that the caller passes.
    Param,
    /// The new content of a `&mut` parameter.
    InPlace,
    /// The returned tensor at this position.
    Returned(u16),
    /// A tensor that is stored only for other kernels to read.
    Temporary,
}

/// A kernel of a plan, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// Name of the kernel.
    pub kernel: Text,
    /// Name of the schedule.
    pub schedule: Text,
    /// Hero of the group: the name of the schedule, with the reductions and their dims, if any.
    pub hero: Text,
    /// Ops of the group, in order.
    pub ops: List<Text>,
    /// Iteration space, in the syntax of user code.
    pub space: Text,
    /// Tensors that the kernel reads.
    pub reads: List<Traffic>,
    /// Tensors that the kernel writes.
    pub writes: List<Traffic>,
    /// Variants of the kernel in each program.
    pub variants: List<VariantSummary>,
    /// Class of each sum of products, with its operations as a formula, or the reason why tiles do not compute it.
    pub products: List<Text>,
}

/// The bytes of a tensor that a kernel reads or writes, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// The tensor, by position in `Summary::arrays`.
    pub array: u16,
    /// Number of bytes: all of the tensor, or the gathered elements.
    pub bytes: DimExpr,
}

/// The variants of a kernel in one program, for reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantSummary {
    /// Number of variants.
    pub variants: u16,
    /// Properties of the variants: `a|b` if some variants have `a` and others `b`, else a property of all
    /// variants.
    pub kinds: List<Text>,
}

/// A boundary between two kernels that are not fused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boundary {
    /// Name of the value that is stored at the boundary.
    pub value: Text,
    /// The stored value, by position in `Summary::arrays`.
    pub array: u16,
    /// Reason for the boundary.
    pub reason: Text,
    /// Line in the user's source; 0 if unknown.
    pub line: u32,
    /// Column in the user's source; 0 if unknown.
    pub column: u32,
}
