//! Expansions of operations into other operations, for targets that lack them.
//!
//! Every expansion is free of branches, calls and saturating casts, so that loops over it vectorize.
//!
//! Invariant: outside of `double`, no error bound relies on a singly rounded `fma`. Bounds rely on constants
//! short enough for exact products instead. A sum whose rounding error is used later is `opaque`, because
//! WGSL lets drivers simplify `(x - y) + y` to `x`.

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
