//! Text of the IRs, for people and for snapshots.
