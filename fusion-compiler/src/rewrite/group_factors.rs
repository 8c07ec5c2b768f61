//! Grouping of the factors of a sum of products into two operands, so that `sum(x * w * s, K)` is a contraction.
//!
//! A factor joins an operand that has all of its axes, and each operand keeps an axis that the other lacks. A
//! factor with the rows and the columns leaves no such grouping, and the sum stays as it is. The order of the
//! multiplications changes, so the sums of floats in strict functions stay, too.

use super::{rebuild, uses};
use crate::ir::graph::{AxisSet, Graph, Math, Node, NodeId, NodeKind, Reduce};
use crate::ir::op::Op;

/// Most factors of a sum whose groupings are tried.
const FACTORS_MAX: usize = 6;

/// Replaces `sum(x * w * s)` by the sum of a product of two operands, where two operands make a contraction.
pub fn group_factors(graph: Graph) -> Graph {
    let uses = uses(&graph);
    // Old number of each new node. Uses are counted on the old graph.
    let mut old: Vec<usize> = Vec::new();
    let mut next = 0;
    rebuild(graph, |graph, node| {
        let has_one_use = |id: NodeId| uses[old[id.0 as usize]] == 1;
        let node = match grouping(graph, &node, has_one_use) {
            Some((along, operands)) => {
                let operands = operands.map(|factors| multiply(graph, &factors));
                let product = multiply(graph, &operands);
                Node { kind: NodeKind::Reduce(Reduce::Sum, along), args: vec![product], ..node }
            }
            None => node,
        };
        let id = graph.push(node);
        old.resize(graph.nodes.len(), next);
        next += 1;
        id
    })
}

/// Returns the axes of a sum and the factors of its two operands, if another grouping than the present one
/// makes the sum a contraction.
fn grouping(
    graph: &Graph,
    node: &Node,
    has_one_use: impl Fn(NodeId) -> bool,
) -> Option<(AxisSet, [Vec<NodeId>; 2])> {
    let NodeKind::Reduce(Reduce::Sum, along) = node.kind else { return None };
    if node.dtype.is_float() && graph.math == Math::Strict {
        return None;
    }
    let mut factors = Vec::new();
    push_factors(graph, node.args[0], &has_one_use, &mut factors);
    if !(3..=FACTORS_MAX).contains(&factors.len()) {
        return None;
    }
    let axes = |id: NodeId| graph.node(id).axes;
    let has_roles = |[left, right]: [AxisSet; 2]| {
        let is_operand = |own: AxisSet, other| along.minus(own).is_empty() && !own.minus(other).is_empty();
        is_operand(left, right) && is_operand(right, left)
    };
    let root = graph.node(node.args[0]);
    if has_roles([axes(root.args[0]), axes(root.args[1])]) {
        return None;
    }
    // The first factor is in the left operand.
    let groupings = (1..1 << (factors.len() - 1)).map(|right: usize| {
        let is_right = |number: usize| number > 0 && right >> (number - 1) & 1 == 1;
        [false, true].map(|side| {
            let of_side = factors.iter().enumerate().filter(|(number, _)| is_right(*number) == side);
            of_side.map(|(_, &factor)| factor).collect::<Vec<_>>()
        })
    });
    let mut fitting = groupings.filter(|operands| {
        let all =
            operands.each_ref().map(|of| of.iter().fold(AxisSet::EMPTY, |all, &id| all.union(axes(id))));
        let has_all = |side: usize| operands[side].iter().any(|&id| all[side].minus(axes(id)).is_empty());
        has_roles(all) && has_all(0) && has_all(1)
    });
    fitting.next().map(|operands| (along, operands))
}

/// Appends the factors of a value: of products that have no other use, from left to right.
fn push_factors(graph: &Graph, id: NodeId, has_one_use: &impl Fn(NodeId) -> bool, factors: &mut Vec<NodeId>) {
    let node = graph.node(id);
    if node.kind == NodeKind::Apply(Op::Mul) && has_one_use(id) {
        for &arg in &node.args {
            push_factors(graph, arg, has_one_use, factors);
        }
    } else {
        factors.push(id);
    }
}

/// Appends the product of factors, from left to right, and returns its node.
fn multiply(graph: &mut Graph, factors: &[NodeId]) -> NodeId {
    let product = |left: NodeId, right: &NodeId| {
        let span = graph.node(left).span;
        graph.apply(Op::Mul, &[left, *right], span)
    };
    factors[1..].iter().fold(factors[0], product)
}
