//! References for the tests. No user builds this crate.

pub mod reference;
pub mod ulp;
