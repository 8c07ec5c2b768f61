//! Classification of instructions that order some threads and not others.

use super::{Op, Reg, Together};

/// Kind of an instruction that orders threads, but not exactly all threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orders {
    /// Fence, or an access that is half of one.
    Fence,
    /// Barrier that may exclude threads of the block or lanes of the warp, or that includes other blocks.
    ///
    /// A `bar.warp.sync` includes all lanes only if its mask is the register `everyone`.
    Barrier,
}

impl Op {
    /// Returns the kind if the instruction orders some threads. `everyone` is the register with the mask of
    /// all lanes.
    pub(crate) fn orders_some(&self, everyone: Option<Reg>) -> Option<Orders> {
        let access = match self {
            Op::Load(access) | Op::Store(access) => access.order,
            Op::Atom(atom) => atom.order,
            Op::Fence { .. } => return Some(Orders::Fence),
            // The instructions order threads of several blocks, or only the threads that arrive.
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
