//! Formation of fused multiply-adds, so that all schedules and targets round at the same places.
//!
//! A product whose only use is a sum, a difference or a reduction is fused with its use: one rounding instead
//! of two. A sum of two such products takes the left one. A difference of two products stays as it is: with
//! one of them fused, equal products would not cancel to 0, as they must on the diagonal of
//! `y - rename(y, N -> M)`.

use super::{rebuild, uses};
use crate::ir::dtype::DType;
use crate::ir::graph::{Graph, Node, NodeId, NodeKind, Reduce};
use crate::ir::op::Op;

/// Replaces `x * y ± z` and `z − x * y` by fused multiply-adds, and `sum(x * y)` by `Reduce::Dot`. A
/// difference of two products stays.
pub fn fma(graph: Graph) -> Graph {
    let uses = uses(&graph);
    let once: Vec<bool> = uses.iter().map(|&uses| uses == 1).collect();
    // Old number of each new node. Uses are counted on the old graph.
    let mut old: Vec<usize> = Vec::new();
    let mut next = 0;
    rebuild(graph, |graph, node| {
        let fused = fuse(graph, &node, |id| once[old[id.0 as usize]]);
        let id = match fused {
            Some(node) => graph.push(node),
            None => graph.push(node),
        };
        old.resize(graph.nodes.len(), next);
        next += 1;
        id
    })
}

fn fuse(graph: &mut Graph, node: &Node, once: impl Fn(NodeId) -> bool) -> Option<Node> {
    if node.dtype != DType::F32 && node.dtype != DType::F64 {
        return None;
    }
    let is_product = |id: &NodeId| graph.node(*id).kind == NodeKind::Apply(Op::Mul);
    let product =
        |id: NodeId| (is_product(&id) && once(id)).then(|| [graph.node(id).args[0], graph.node(id).args[1]]);
    if let NodeKind::Reduce(Reduce::Sum, axes) = node.kind {
        let args = product(node.args[0])?.to_vec();
        return Some(Node { kind: NodeKind::Reduce(Reduce::Dot, axes), args, ..node.clone() });
    }
    let NodeKind::Apply(op @ (Op::Add | Op::Sub)) = node.kind else { return None };
    if op == Op::Sub && node.args.iter().all(is_product) {
        return None;
    }
    let (left, right) = (node.args[0], node.args[1]);
    let args = match (op, product(left), product(right)) {
        (Op::Add, Some([x, y]), _) => [x, y, right],
        (Op::Add, None, Some([x, y])) => [x, y, left],
        (Op::Sub, Some([x, y]), _) => [x, y, negative(graph, right)],
        (Op::Sub, None, Some([x, y])) => [negative(graph, x), y, left],
        (_, None, None) => return None,
        (op, _, _) => unreachable!("{op:?} is neither a sum nor a difference"),
    };
    Some(Node { kind: NodeKind::Apply(Op::Fma), args: args.to_vec(), ..node.clone() })
}

fn negative(graph: &mut Graph, x: NodeId) -> NodeId {
    let span = graph.node(x).span;
    graph.apply(Op::Neg, &[x], span)
}
