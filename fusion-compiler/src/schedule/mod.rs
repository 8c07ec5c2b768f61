//! Group → kernels: how the work of a group is spread over a launch. One schedule a file.
//!
//! Invariant: a schedule knows the target only by its facts, and writes the same body for all of them.

use std::collections::BTreeMap;

use crate::fuse::{Group, Load};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, AxisId, Graph};
use crate::ir::kernel::{BufferId, Kernel};
use crate::ir::plan::{BufferArg, Condition, Slot, Space};
use crate::target::TargetFacts;

mod body;
mod column;
mod held;
mod pointwise;
mod position;
mod row;
mod runs;
mod space;

/// The ways to run a group, of which some call may take each.
pub fn schedule(work: &Work<'_>, facts: &TargetFacts) -> Vec<Scheduled> {
    let mut ways = if work.group.cols.is_empty() {
        pointwise::pointwise(work, facts)
    } else if column::fits(work) {
        column::column(work, facts)
    } else {
        row::row(work, facts)
    };
    ways.retain(|way| way.when.iter().all(|condition| condition.known() != Some(false)));
    ways.iter_mut().for_each(|way| way.when.retain(|condition| condition.known() != Some(true)));
    if let Some(sure) = ways.iter().position(|way| way.when.is_empty()) {
        ways.truncate(sure + 1);
    }
    ways
}

/// A group with the memory that it reads and writes.
pub struct Work<'g> {
    /// The function.
    pub graph: &'g Graph,
    /// The part of it.
    pub group: &'g Group,
    /// Base of the kernels' names.
    pub name: &'g str,
    /// What is read and written, in the order of the kernel's buffers.
    pub operands: Vec<Operand>,
    /// Which of them holds a value to read.
    pub loads: BTreeMap<Load, BufferId>,
    /// Which of them each store writes.
    pub stores: Vec<BufferId>,
}

/// A tensor that a kernel reads or writes.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Whose memory.
    pub slot: Slot,
    /// For readers of the text.
    pub name: String,
    /// Of its elements.
    pub dtype: DType,
    /// What is done with it.
    pub access: Access,
    /// Outermost first.
    pub axes: Vec<AxisId>,
    /// Whether it is read at other places than those of the elements at hand.
    pub moved: bool,
}

/// One way to run a group.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// When it may be used; of several the first that may.
    pub when: Vec<Condition>,
    /// The program.
    pub kernel: Kernel,
    /// What is behind its buffers: the operands in order, then those that are seen through more than one window.
    pub buffers: Vec<BufferArg>,
    /// What a launch iterates over.
    pub space: Space,
    /// Bytes of shared memory that each team gets at launch.
    pub row_memory: DimExpr,
}
