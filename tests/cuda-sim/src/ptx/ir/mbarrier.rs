//! Instructions of mbarriers, and stores whose bytes they count.

use super::super::types::Type;
use super::{Addr, Reg, Wide};

/// Maximum number of arrivals, and of bytes, that a phase of an mbarrier counts.
pub(crate) const MOST_COUNTED: u32 = (1 << 20) - 1;

/// Operation of a thread on an mbarrier of its block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mbarrier {
    /// Initialization with the number of arrivals of each phase.
    Init {
        count: Reg,
    },
    Inval,
    /// One arrival, which releases. If given, `bytes` is added to the expected bytes of the phase before the
    /// arrival.
    Arrive {
        bytes: Option<Reg>,
    },
    /// `try_wait.parity`, which acquires. `wide` is true for the scope of the cluster, and false for that of
    /// the block.
    TryWait {
        wide: bool,
        p: Reg,
        parity: Reg,
    },
}

/// `st.async`: a store of adjacent elements whose bytes an mbarrier counts.
#[derive(Clone, Debug)]
pub(crate) struct AsyncStore {
    pub(crate) ty: Type,
    /// Addresses of the elements and of the mbarrier, both in the shared memory of the cluster.
    pub(crate) to: Addr,
    pub(crate) mbarrier: Addr,
    pub(crate) regs: Box<[(Reg, Wide)]>,
}
