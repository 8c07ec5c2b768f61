//! Normalisation of the weights of a softmax after the sum of products that uses them.
//!
//! `sum(e * (1 / sum(e, S)) * v, S)` is `sum(e * v, S) * (1 / sum(e, S))`: the sum of the weights is needed once for each
//! sum of products, and no weight waits for it. The order of the operations changes, so strict functions stay as
//! they are.

use super::{rebuild, uses};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisSet, Graph, Math, Node, NodeId, NodeKind, Reduce};
use crate::ir::op::Op;

/// Replaces sums of products with normalised weights by normalised sums.
pub fn normalize_late(graph: Graph) -> Graph {
    let uses = uses(&graph);
    // Old number of each new node. Uses are counted on the old graph.
    let mut old: Vec<usize> = Vec::new();
    let mut next = 0;
    rebuild(graph, |graph, node| {
        let has_one_use = |id: NodeId| uses[old[id.0 as usize]] == 1;
        let id = match normalized(graph, &node, has_one_use) {
            Some(Normalized { weights, factor, values }) => {
                let product = graph.apply(Op::Mul, &[weights, values], node.span);
                let sum = graph.push(Node { args: vec![product], ..node.clone() });
                let factor = unless_empty(graph, &node, factor);
                graph.apply(Op::Mul, &[sum, factor], node.span)
            }
            None => graph.push(node),
        };
        old.resize(graph.nodes.len(), next);
        next += 1;
        id
    })
}

/// Returns the factor, or 1 for a sum without terms, which is 0.
fn unless_empty(graph: &mut Graph, sum: &Node, factor: NodeId) -> NodeId {
    let NodeKind::Reduce(_, along) = sum.kind else { return factor };
    let count = DimExpr::product(along.iter().map(|axis| &graph.axis(axis).extent));
    if count.as_const().is_some_and(|count| count > 0) {
        return factor;
    }
    let (span, axes) = (sum.span, AxisSet::EMPTY);
    let kind = NodeKind::Extent(count);
    let count = graph.push(Node { kind, args: vec![], dtype: DType::I32, axes, span });
    let none = graph.literal(Const::Int(0), DType::I32, span);
    let one = graph.literal(Const::Float(1.0), sum.dtype, span);
    let is_empty = graph.apply(Op::Eq, &[count, none], span);
    graph.apply(Op::Select, &[is_empty, one, factor], span)
}

/// The terms `weights * factor * values` of a sum, where the factor is the same for all terms.
struct Normalized {
    weights: NodeId,
    factor: NodeId,
    values: NodeId,
}

/// Returns the terms of a sum of products with normalised weights.
fn normalized(graph: &Graph, node: &Node, has_one_use: impl Fn(NodeId) -> bool) -> Option<Normalized> {
    let NodeKind::Reduce(Reduce::Sum, along) = node.kind else { return None };
    if !node.dtype.is_float() || graph.math == Math::Strict || !has_one_use(node.args[0]) {
        return None;
    }
    let [left, right] = factors(graph, node.args[0])?;
    let of = |share: NodeId, values: NodeId| {
        let [weights, factor] = factors(graph, share).filter(|_| has_one_use(share))?;
        is_share(graph, (weights, factor), along).then_some(Normalized { weights, factor, values })
    };
    of(left, right).or_else(|| of(right, left))
}

/// Returns true for exponentials, and a factor that is computed from their sum along these axes.
fn is_share(graph: &Graph, (weights, factor): (NodeId, NodeId), along: AxisSet) -> bool {
    let is_total = |id: NodeId| {
        let node = graph.node(id);
        node.kind == NodeKind::Reduce(Reduce::Sum, along) && node.args == [weights]
    };
    // The reciprocal of the sum, or 0 for a sum of 0.
    let divides = |id: &NodeId| graph.operands_of(*id, Op::Div).is_some_and(|of| is_total(of[1]));
    let is_factor = match graph.operands_of(factor, Op::Select) {
        Some(choices) => choices[1..].iter().any(divides),
        None => divides(&factor),
    };
    let is_same_for_all = graph.node(factor).axes.intersection(along).is_empty();
    is_factor && is_same_for_all && graph.operands_of(weights, Op::Exp).is_some()
}

fn factors(graph: &Graph, product: NodeId) -> Option<[NodeId; 2]> {
    graph.operands_of(product, Op::Mul)?.try_into().ok()
}
