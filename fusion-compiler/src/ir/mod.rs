//! The compiler's data: element types, extents, operations, Graph IR, Kernel IR and the plan.
//!
//! Invariant: no module of `ir` imports anything else of the crate, and no module of `ir` makes scheduling
//! decisions.

mod axes;
pub mod dim;
pub mod dtype;
pub mod graph;
pub mod kernel;
pub mod op;
pub mod plan;
pub mod point;
pub mod print;
pub mod print_kernel;
mod sign_analysis;
pub mod verify;
pub mod verify_kernel;
