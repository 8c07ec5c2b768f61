//! Sums of products whose factors both have dims of their own: contractions, which have kernels of their own.

use super::{Group, Reason};
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, Graph, Math, Node, NodeId, NodeKind, Reduce};
use crate::ir::op::Op;
use crate::target::tuning_table::all;

/// The reason why a sum of products is no contraction.
pub enum NoContraction {
    /// The function has `#[fuse(strict)]`.
    Strict,
    /// The products have another use than the sum.
    Used,
    /// Products of these integers wrap before they are added.
    Wraps(DType),
    /// A thread adds the few terms by itself.
    Unrolled,
    /// The first factor has no axis that the second lacks.
    NoDim([NodeId; 2]),
    /// The factor's own axes have so few coordinates that tiles would be empty.
    Few(NodeId),
    /// The factor lacks an axis that is summed over.
    Lacks(NodeId, AxisId),
    /// The kernel reduces other values, too.
    Several,
    /// The kernel computes elements that the sum has none of.
    Elements,
}

/// Returns the axes of a sum of products, and the factors.
pub fn factors(graph: &Graph, sum: NodeId) -> Option<(AxisSet, [NodeId; 2])> {
    let node = graph.node(sum);
    let NodeKind::Reduce(reduce @ (Reduce::Sum | Reduce::Dot), along) = node.kind else { return None };
    let factors = match reduce {
        Reduce::Dot => node,
        _ => product(graph, sum).0,
    };
    let is_product = reduce == Reduce::Dot || factors.kind == NodeKind::Apply(Op::Mul);
    is_product.then(|| (along, [factors.args[0], factors.args[1]]))
}

/// Returns the values that a sum adds, before they wrap to narrow integers, and the type of these.
fn product(graph: &Graph, sum: NodeId) -> (&Node, Option<DType>) {
    let added = graph.node(graph.node(sum).args[0]);
    let operand = |node: &Node| graph.node(node.args[0]);
    if added.kind == NodeKind::Cast && operand(added).kind == NodeKind::Cast {
        let wrapped = operand(added);
        if wrapped.dtype.is_int() && wrapped.dtype.is_narrow() {
            return (operand(wrapped), Some(wrapped.dtype));
        }
    }
    (added, None)
}

/// Returns true if a sum is a contraction wherever a kernel computes nothing else but elements of it.
pub fn is_contraction(graph: &Graph, sum: NodeId) -> bool {
    factors(graph, sum).is_some_and(|(along, of)| {
        let is_long = elements(graph, along).is_none_or(|terms| terms >= all::CONTRACTION_TERMS_MIN);
        is_long && obstacle(graph, sum, (along, of)).is_none()
    })
}

/// Returns the reason in the graph why a sum of products is no contraction, if there is one.
pub fn obstacle(graph: &Graph, sum: NodeId, (along, of): (AxisSet, [NodeId; 2])) -> Option<NoContraction> {
    let node = graph.node(sum);
    // The products of integers are exact, so they stay nodes of their own.
    let has_one_use =
        |of: NodeId| graph.nodes.iter().flat_map(|node| &node.args).filter(|&&arg| arg == of).count() == 1;
    match (&node.kind, node.dtype) {
        (NodeKind::Reduce(Reduce::Dot, _), _) => {}
        _ if let Some(dtype) = product(graph, sum).1 => return Some(NoContraction::Wraps(dtype)),
        (_, DType::I32 | DType::U32) if has_one_use(node.args[0]) => {}
        (_, dtype) if dtype.is_float() && graph.math == Math::Strict => return Some(NoContraction::Strict),
        _ => return Some(NoContraction::Used),
    }
    let axes = of.map(|factor| graph.node(factor).axes);
    [0, 1].into_iter().find_map(|side| {
        let own = axes[side].minus(axes[1 - side]);
        if let Some(axis) = along.minus(axes[side]).iter().next() {
            Some(NoContraction::Lacks(of[side], axis))
        } else if own.is_empty() {
            Some(NoContraction::NoDim([of[side], of[1 - side]]))
        } else {
            let few = elements(graph, own).is_some_and(|count| count < all::CONTRACTION_SIDE_MIN);
            few.then_some(NoContraction::Few(of[side]))
        }
    })
}

/// Returns the axes of a temporary with those that both factors of a contraction have outermost, if one of them
/// would be innermost. The innermost axis is then the columns' or the rows'.
pub(super) fn with_outer_batch(graph: &Graph, id: NodeId, order: Vec<AxisId>) -> Vec<AxisId> {
    let batch = batch(graph, id);
    match order.last() {
        Some(&inner) if batch.contains(inner) => {
            let (mut order, others): (Vec<AxisId>, _) =
                order.into_iter().partition(|axis| batch.contains(*axis));
            order.extend::<Vec<_>>(others);
            order
        }
        Some(_) | None => order,
    }
}

/// Returns a graph in which results with a batch innermost are copies of the contractions that they are.
pub fn copy_products(mut graph: Graph) -> Graph {
    for number in 0..graph.outputs.len() {
        let output = &graph.outputs[number];
        let inner = graph.parts(&output.axes).last().copied();
        if inner.is_some_and(|inner| batch(&graph, output.node).contains(inner)) {
            graph.outputs[number].node = graph.copy(output.node);
        }
    }
    graph
}

/// Returns the axes that both factors of a contraction have and that are not summed over; none for other values.
fn batch(graph: &Graph, id: NodeId) -> AxisSet {
    match factors(graph, id).filter(|_| is_contraction(graph, id)) {
        Some((along, of)) => {
            let [left, right] = of.map(|factor| graph.node(factor).axes);
            left.intersection(right).minus(along)
        }
        None => AxisSet::EMPTY,
    }
}

/// Returns the number of elements along axes, if it is known.
fn elements(graph: &Graph, axes: AxisSet) -> Option<i64> {
    axes.iter().map(|axis| graph.axis(axis).extent.as_const()).product()
}

impl Group {
    /// Returns a contraction of a kernel whose innermost axis is a batch.
    fn batched_inside(&self, graph: &Graph) -> Option<NodeId> {
        let inner = *self.order.last()?;
        let stored = |id: NodeId| self.stores.iter().any(|store| store.node == id);
        let is_inside = |id: &NodeId| !graph.looped_axes(*id).is_empty() && batch(graph, *id).contains(inner);
        self.nodes.iter().copied().find(|id| is_inside(id) && !stored(*id))
    }

    /// Returns a contraction of a kernel that reduces other values, too, and does not store the contraction.
    pub(super) fn crowded(&self, graph: &Graph) -> Option<NodeId> {
        let stored = |id: &NodeId| self.stores.iter().any(|store| store.node == *id);
        self.shared_contraction(graph, |id| !stored(id))
    }

    /// Returns true if a contraction and another reduction share the kernel.
    pub(super) fn is_crowded(&self, graph: &Graph) -> bool {
        self.shared_contraction(graph, |_| true).is_some()
    }

    fn shared_contraction(&self, graph: &Graph, may: impl Fn(&NodeId) -> bool) -> Option<NodeId> {
        let reduces = self.nodes.iter().copied().filter(|&id| !graph.looped_axes(id).is_empty());
        let mut reduces: Vec<NodeId> = reduces.collect();
        if reduces.len() < 2 || !reduces.iter().any(|&id| is_contraction(graph, id)) {
            return None;
        }
        reduces.retain(may);
        // A contraction comes first, since the other reductions may not be storable.
        reduces.iter().copied().find(|&id| is_contraction(graph, id)).or(reduces.first().copied())
    }
}

/// Returns a value whose storing leaves a contraction a kernel of its own, and the reason.
pub(super) fn crowded(graph: &Graph, groups: &[Group]) -> Option<(NodeId, Reason)> {
    let alone = |group: &Group| group.crowded(graph).or_else(|| group.batched_inside(graph));
    groups.iter().find_map(alone).map(|node| (node, Reason::Product))
}
