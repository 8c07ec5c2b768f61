//! Expansions.

use crate::ir::kernel::{Builder, Value};

/// `div`.
pub(crate) fn div(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `div_unsigned`.
pub(crate) fn div_unsigned(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `rem`.
pub(crate) fn rem(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `rem_unsigned`.
pub(crate) fn rem_unsigned(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `same`.
pub(crate) fn same(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `select_bool`.
pub(crate) fn select_bool(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `shl_masked`.
pub(crate) fn shl_masked(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `shr_masked`.
pub(crate) fn shr_masked(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `sign`.
pub(crate) fn sign(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

