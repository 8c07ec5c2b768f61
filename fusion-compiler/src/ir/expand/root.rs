//! Expansions.

use crate::ir::kernel::{Builder, Value};

/// `cbrt`.
pub(crate) fn cbrt(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `rsqrt`.
pub(crate) fn rsqrt(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

