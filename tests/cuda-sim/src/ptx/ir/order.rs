//! Which instructions order some threads and not others.

use super::{Op, Reg, Together};

/// How an instruction orders threads, but not all of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orders {
    /// A fence, or an access that is half of one.
    Fence,
    /// A barrier that need not be of all: of the block, or of the warp, whose mask of all is in a register. Or one of more
    /// than the block.
    Barrier,
}

impl Op {
    /// How it orders some threads, if it does; `everyone` is the register with the mask of all.
    pub(crate) fn orders_some(&self, everyone: Option<Reg>) -> Option<Orders> {
        let access = match self {
            Op::Load(access) | Op::Store(access) => access.order,
            Op::Atom(atom) => atom.order,
            Op::Fence { .. } => return Some(Orders::Fence),
            // Of more than a block, or of those that come.
            Op::ClusterBar { .. } | Op::StoreAsync(_) | Op::Mbarrier { .. } | Op::FenceInit => {
                return Some(Orders::Barrier);
            }
            Op::Bar { threads, .. } => return threads.is_some().then_some(Orders::Barrier),
            Op::Together { mask, what: Together::Sync } => {
                return (everyone != Some(*mask)).then_some(Orders::Barrier);
            }
            Op::Nop
            | Op::Alu(_)
            | Op::Special { .. }
            | Op::Cvta { .. }
            | Op::IsSpace { .. }
            | Op::MapRank { .. }
            | Op::RankOf { .. }
            | Op::CopyAsync { .. }
            | Op::CopyCommit
            | Op::CopyWait(_)
            | Op::Branch { .. }
            | Op::BranchTable { .. }
            | Op::Exit
            | Op::Trap
            | Op::Together { .. }
            | Op::ActiveMask { .. } => return None,
        };
        (access.acquires || access.releases).then_some(Orders::Fence)
    }
}
