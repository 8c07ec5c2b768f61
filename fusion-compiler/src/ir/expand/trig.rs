//! Expansions.

use crate::ir::kernel::{Builder, Value};

/// `acos`.
pub(crate) fn acos(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `asin`.
pub(crate) fn asin(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `atan`.
pub(crate) fn atan(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `atan2`.
pub(crate) fn atan2(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `cos`.
pub(crate) fn cos(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `sin`.
pub(crate) fn sin(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `tan`.
pub(crate) fn tan(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

