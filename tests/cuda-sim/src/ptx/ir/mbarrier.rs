//! Barriers in shared memory, and stores that they wait for.

use super::super::types::Type;
use super::{Addr, Reg, Wide};

/// The most arrivals, and the most bytes, that a phase of an mbarrier counts.
pub(crate) const MOST_COUNTED: u32 = (1 << 20) - 1;

/// What a thread does to an mbarrier of its block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mbarrier {
    /// For so many arrivals in each phase.
    Init {
        count: Reg,
    },
    Inval,
    /// One arrival, which releases; before it, bytes that the phase waits for, if any.
    Arrive {
        bytes: Option<Reg>,
    },
    /// `try_wait.parity`, which acquires; whether from the cluster, and not from the block alone.
    TryWait {
        wide: bool,
        p: Reg,
        parity: Reg,
    },
}

/// `st.async`: elements side by side, to where an mbarrier counts their bytes.
#[derive(Clone, Debug)]
pub(crate) struct AsyncStore {
    pub(crate) ty: Type,
    /// Both in the shared memory of the cluster.
    pub(crate) to: Addr,
    pub(crate) mbarrier: Addr,
    pub(crate) regs: Box<[(Reg, Wide)]>,
}
