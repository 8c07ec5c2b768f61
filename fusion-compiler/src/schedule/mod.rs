//! Group → kernels: how the work of a group is spread over a launch. One schedule a file.
//!
//! Invariant: a schedule knows the target only by its facts, and writes the same body for all of them.

use std::collections::BTreeMap;

use crate::fuse::{Group, Load};
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, AxisId, Graph};
use crate::ir::kernel::{BufferId, Expr, Kernel, Stmt, UniformId};
use crate::ir::plan::{Condition, Reach, Slot, Space, UniformArg};

mod body;
mod pointwise;
mod space;

pub use pointwise::pointwise;

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
}

/// One way to run a group.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// When it may be used; of several the first that may.
    pub when: Vec<Condition>,
    /// The program, its buffers in the order of the operands.
    pub kernel: Kernel,
    /// In the order of the kernel's uniforms.
    pub uniforms: Vec<UniformArg>,
    /// In the order of the operands.
    pub reach: Vec<Reach>,
    /// What a launch iterates over.
    pub space: Space,
}

/// Drops uniforms that the kernel does not use.
pub fn prune_uniforms(mut scheduled: Scheduled) -> Scheduled {
    let mut used = vec![false; scheduled.uniforms.len()];
    for_each_uniform(&mut scheduled.kernel.body, &mut |id| used[usize::from(id.0)] = true);
    let kept: Vec<u16> =
        used.iter().scan(0, |next, &used| Some(std::mem::replace(next, *next + u16::from(used)))).collect();
    for_each_uniform(&mut scheduled.kernel.body, &mut |id| id.0 = kept[usize::from(id.0)]);
    let mut keep = used.iter().copied();
    scheduled.kernel.uniforms.retain(|_| keep.next() == Some(true));
    let mut keep = used.iter().copied();
    scheduled.uniforms.retain(|_| keep.next() == Some(true));
    scheduled
}

fn for_each_uniform(body: &mut [Stmt], visit: &mut impl FnMut(&mut UniformId)) {
    for stmt in body {
        match stmt {
            Stmt::Let(_, Expr::Uniform(id)) => visit(id),
            Stmt::Let(..) | Stmt::Store(..) => {}
            Stmt::Loop { body, .. } | Stmt::Vector { body, .. } | Stmt::If { body, .. } => {
                for_each_uniform(body, visit);
            }
        }
    }
}
