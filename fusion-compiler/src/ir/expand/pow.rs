//! Expansions.

use crate::ir::kernel::{Builder, Value};

/// `pow`.
pub(crate) fn pow(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

