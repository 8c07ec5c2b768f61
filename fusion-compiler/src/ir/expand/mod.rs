//! Operations written in other operations, for targets that lack them.
//!
//! Every expansion is branchless and free of calls and saturating casts, so that a loop of it vectorises.
//! Invariant: outside of `double`, no bound relies on `fma` being rounded once, but on constants short enough for exact
//! products; a sum whose rounding is used later is `opaque`, since WGSL lets drivers take `(x - y) + y` for `x`.

pub(crate) mod approximate;
pub(crate) mod double;
pub(crate) mod error;
pub(crate) mod exp;
pub(crate) mod float;
pub(crate) mod hyperbolic;
pub(crate) mod int;
pub(crate) mod log;
pub(crate) mod narrow;
pub(crate) mod pow;
mod range_reduction;
pub(crate) mod remainder;
pub(crate) mod root;
mod term;
pub(crate) mod trig;
