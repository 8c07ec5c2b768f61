//! Derivatives of the operations.

use super::graph::{Graph, NodeId};

/// `abs`.
pub(crate) fn abs(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `acos`.
pub(crate) fn acos(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `add`.
pub(crate) fn add(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `asin`.
pub(crate) fn asin(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `atan`.
pub(crate) fn atan(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `atan2`.
pub(crate) fn atan2(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `cbrt`.
pub(crate) fn cbrt(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `cos`.
pub(crate) fn cos(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `cosh`.
pub(crate) fn cosh(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `div`.
pub(crate) fn div(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `erf`.
pub(crate) fn erf(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `exp`.
pub(crate) fn exp(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `exp2`.
pub(crate) fn exp2(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `expm1`.
pub(crate) fn expm1(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `fma`.
pub(crate) fn fma(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `log`.
pub(crate) fn log(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `log1p`.
pub(crate) fn log1p(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `log2`.
pub(crate) fn log2(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `max`.
pub(crate) fn max(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `min`.
pub(crate) fn min(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `mul`.
pub(crate) fn mul(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `neg`.
pub(crate) fn neg(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `pow`.
pub(crate) fn pow(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `rem`.
pub(crate) fn rem(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `rsqrt`.
pub(crate) fn rsqrt(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `select`.
pub(crate) fn select(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `sin`.
pub(crate) fn sin(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `sinh`.
pub(crate) fn sinh(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `sqrt`.
pub(crate) fn sqrt(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `sub`.
pub(crate) fn sub(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `tan`.
pub(crate) fn tan(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

/// `tanh`.
pub(crate) fn tanh(_g: &mut Graph, _x: &[NodeId], _y: NodeId, dy: NodeId) -> Vec<Option<NodeId>> {
    vec![Some(dy)]
}

