//! Costs of a launch, as formulas of the extents.

pub(crate) mod traffic;
pub(crate) mod trips;
