//! Sums of a factor along axes that the other factor lacks, before the products, and products for each contraction.
//!
//! A contraction has products of its own, whatever else uses such products: its kernel computes none of them.
//! `sum(x * w, (K, L))` of a `w` without `L` is `sum(sum(x, L) * w, K)`, a contraction. The order of the operations
//! changes, so the sums of floats in strict functions stay as they are.

use super::rebuild;
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisSet, Graph, Math, Node, NodeId, NodeKind, Reduce};
use crate::ir::op::Op;

/// Reduces factors along axes of their own, where the sum of products is then a contraction of products of its own.
pub fn reduce_factors(graph: Graph) -> Graph {
    rebuild(graph, |graph, node| {
        let node = match own_sums(graph, &node) {
            Some((along, factors, own)) => {
                let mut reduced = |side: usize| match own[side] {
                    AxisSet::EMPTY => factors[side],
                    own => {
                        let axes = graph.node(factors[side]).axes.minus(own);
                        let kind = NodeKind::Reduce(Reduce::Sum, own);
                        graph.push(Node { kind, args: vec![factors[side]], axes, ..node.clone() })
                    }
                };
                let factors = [reduced(0), reduced(1)];
                let product = graph.apply(Op::Mul, &factors, node.span);
                Node { kind: NodeKind::Reduce(Reduce::Sum, along), args: vec![product], ..node }
            }
            None => node,
        };
        graph.push(node)
    })
}

/// Returns the axes of a sum that both factors have, the factors, and the axes of the sum that each has alone.
fn own_sums(graph: &Graph, node: &Node) -> Option<(AxisSet, [NodeId; 2], [AxisSet; 2])> {
    let NodeKind::Reduce(Reduce::Sum, along) = node.kind else { return None };
    let may_reorder = match node.dtype {
        DType::I32 | DType::U32 => true,
        dtype => dtype.is_float() && graph.math != Math::Strict,
    };
    if !may_reorder {
        return None;
    }
    let product = graph.node(node.args[0]);
    let &[left, right] = product.args.as_slice() else { return None };
    if product.kind != NodeKind::Apply(Op::Mul) {
        return None;
    }
    let axes = [left, right].map(|factor| graph.node(factor).axes);
    let only = [axes[0].minus(axes[1]), axes[1].minus(axes[0])];
    let own = only.map(|axes| axes.intersection(along));
    let both = along.minus(own[0]).minus(own[1]);
    let is_contraction = !both.is_empty() && only.iter().all(|axes| !axes.minus(along).is_empty());
    is_contraction.then_some((both, [left, right], own))
}
