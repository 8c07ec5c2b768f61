//! Which instructions order some threads and not others.

use super::{Op, Reg, Together};

impl Op {
    /// Whether it makes a fence, or an access that is half of one.
    pub(crate) fn is_fence(&self) -> bool {
        let order = match self {
            Op::Load(access) | Op::Store(access) => access.order,
            Op::Atom(atom) => atom.order,
            Op::Fence { .. } => return true,
            Op::Nop
            | Op::Alu(_)
            | Op::Special { .. }
            | Op::Cvta { .. }
            | Op::IsSpace { .. }
            | Op::CopyAsync { .. }
            | Op::CopyCommit
            | Op::CopyWait(_)
            | Op::Branch { .. }
            | Op::BranchTable { .. }
            | Op::Exit
            | Op::Trap
            | Op::Together { .. }
            | Op::ActiveMask { .. }
            | Op::Bar { .. } => return false,
        };
        order.acquires || order.releases
    }

    /// Whether it is a barrier that need not be of all: of the block, or of the warp, whose mask of all is in a register.
    pub(crate) fn is_of_some(&self, everyone: Option<Reg>) -> bool {
        match self {
            Op::Bar { threads, .. } => threads.is_some(),
            Op::Together { mask, what: Together::Sync } => everyone != Some(*mask),
            Op::Load(_)
            | Op::Store(_)
            | Op::Atom(_)
            | Op::Fence { .. }
            | Op::Nop
            | Op::Alu(_)
            | Op::Special { .. }
            | Op::Cvta { .. }
            | Op::IsSpace { .. }
            | Op::CopyAsync { .. }
            | Op::CopyCommit
            | Op::CopyWait(_)
            | Op::Branch { .. }
            | Op::BranchTable { .. }
            | Op::Exit
            | Op::Trap
            | Op::Together { .. }
            | Op::ActiveMask { .. } => false,
        }
    }
}
