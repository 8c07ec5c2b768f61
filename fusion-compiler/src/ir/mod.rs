//! The compiler's data: element types, extents, the table of operations, Graph IR, Kernel IR and the plan.
//!
//! Invariant: no module of `ir` imports anything else of the crate, and no module of `ir` makes scheduling
//! decisions.

pub mod derive;
pub mod dim;
pub mod dtype;
pub mod expand;
pub mod graph;
pub mod kernel;
mod op_info;
pub mod ops;
pub mod plan;
pub mod point;
pub mod print;
pub mod print_kernel;
pub mod scalar;
mod sign_analysis;
pub mod verify;
pub mod verify_kernel;
