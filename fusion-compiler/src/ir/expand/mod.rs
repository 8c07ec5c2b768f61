//! Operations written in other operations, for targets that lack them.

pub(crate) mod exp;
pub(crate) mod float;
pub(crate) mod int;
pub(crate) mod pow;
pub(crate) mod root;
pub(crate) mod trig;
