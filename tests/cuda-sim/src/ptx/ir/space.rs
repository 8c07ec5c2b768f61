//! State spaces of memory.

/// State space of an address.
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
    /// Returns true if an access to a space may reach a variable of this one.
    pub(crate) fn is_reached_by(self, access: Space) -> bool {
        match access {
            Space::Generic => true,
            Space::Cluster => self == Space::Shared,
            Space::Global | Space::Const | Space::Shared | Space::Local | Space::Param => self == access,
        }
    }
}
