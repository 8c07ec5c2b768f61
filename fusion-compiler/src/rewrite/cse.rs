//! Common subexpressions: nodes that compute the same become one.

use std::collections::HashMap;

use super::rebuild;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisId, AxisSet, Graph, Node, NodeId, NodeKind, ParamId, Reduce};
use crate::ir::ops::Op;

/// What makes two nodes the same; spans do not.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    kind: KindKey,
    args: Vec<NodeId>,
    dtype: DType,
    axes: AxisSet,
}

#[derive(PartialEq, Eq, Hash)]
enum KindKey {
    Param(ParamId),
    Literal(Const),
    Coord(AxisId),
    Extent(DimExpr),
    Apply(Op),
    Cast,
    Reduce(Reduce, AxisSet),
    At(AxisId, i64),
}

/// Merges nodes that compute the same.
pub fn cse(graph: Graph) -> Graph {
    let mut seen: HashMap<Key, NodeId> = HashMap::new();
    rebuild(graph, |graph, node| *seen.entry(key(&node)).or_insert_with(|| graph.push(node)))
}

fn key(node: &Node) -> Key {
    let kind = match &node.kind {
        NodeKind::Input(param) | NodeKind::Scalar(param) => KindKey::Param(*param),
        NodeKind::Literal(value) => KindKey::Literal(*value),
        NodeKind::Coord(axis) => KindKey::Coord(*axis),
        NodeKind::Extent(extent) => KindKey::Extent(extent.clone()),
        NodeKind::Apply(op) => KindKey::Apply(*op),
        NodeKind::Cast => KindKey::Cast,
        NodeKind::Reduce(reduce, axes) => KindKey::Reduce(*reduce, *axes),
        NodeKind::At(axis, at) => KindKey::At(*axis, *at),
    };
    Key { kind, args: node.args.clone(), dtype: node.dtype, axes: node.axes }
}
