//! Expansions.

use crate::ir::kernel::{Builder, Value};

/// `ceil`.
pub(crate) fn ceil(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// Reference.
pub(crate) fn erf_reference(x: f64) -> f64 {
    x
}

/// `floor`.
pub(crate) fn floor(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `is_finite`.
pub(crate) fn is_finite(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `is_inf`.
pub(crate) fn is_inf(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `is_nan`.
pub(crate) fn is_nan(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `max`.
pub(crate) fn max(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `min`.
pub(crate) fn min(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `mul_then_add`.
pub(crate) fn mul_then_add(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `rem`.
pub(crate) fn rem(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `round`.
pub(crate) fn round(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `sign`.
pub(crate) fn sign(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

/// `trunc`.
pub(crate) fn trunc(_b: &mut Builder<'_>, x: &[Value]) -> Value {
    x[0]
}

