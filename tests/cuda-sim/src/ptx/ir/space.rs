//! The spaces of memory.

/// A space that an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Const,
    Shared,
    /// `.shared::cluster`: the shared memory of all blocks of the cluster.
    Cluster,
    Local,
    Param,
}

impl Space {
    /// Whether an access to a space may be to a variable of this one.
    pub(crate) fn is_reached_by(self, access: Space) -> bool {
        match access {
            Space::Generic => true,
            Space::Cluster => self == Space::Shared,
            Space::Global | Space::Const | Space::Shared | Space::Local | Space::Param => self == access,
        }
    }
}
