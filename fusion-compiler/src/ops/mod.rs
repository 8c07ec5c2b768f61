//! Properties of the operations: the table, derivative rules, expansions and an interpreter.
//!
//! Invariant: `ops` imports nothing of the crate but `ir`.

pub mod derive;
pub mod expand;
mod info;
pub mod scalar;
mod table;

pub use info::{Dialect, Double, Eval, Grad, GradRule, Lower, Lowering, OpInfo, Ulp};
