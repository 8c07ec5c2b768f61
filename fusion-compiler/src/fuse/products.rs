//! Sums of products whose factors both have dims of their own: contractions, which have kernels of their own.

use super::attention::Attention;
use super::{Group, Reason};
use crate::ir::dtype::DType;
use crate::ir::graph::{AxisId, AxisSet, Graph, Math, Node, NodeId, NodeKind, Output, Reduce};
use crate::ir::op::Op;
use crate::target::Contractions;
use crate::target::tuning_table::{all, gpu};

/// The reason why a sum of products is no contraction.
pub enum NoContraction {
    /// The function has `#[fuse(strict)]`.
    Strict,
    /// The kernel reads products that another one stores.
    Used,
    /// The products become numbers of this narrow type before they are added.
    Narrow(DType),
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

/// Returns the values that a sum adds, before they become narrow numbers, and the type of these.
fn product(graph: &Graph, sum: NodeId) -> (&Node, Option<DType>) {
    let added = graph.node(graph.node(sum).args[0]);
    let operand = |node: &Node| graph.node(node.args[0]);
    if added.kind == NodeKind::Cast && operand(added).kind == NodeKind::Cast {
        let narrow = operand(added);
        if narrow.dtype.is_narrow() {
            return (operand(narrow), Some(narrow.dtype));
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
    let axes = of.map(|factor| graph.node(factor).axes);
    let of_side = |side: usize| {
        let own = axes[side].minus(axes[1 - side]);
        if let Some(axis) = along.minus(axes[side]).iter().next() {
            Some(NoContraction::Lacks(of[side], axis))
        } else if own.is_empty() {
            Some(NoContraction::NoDim([of[side], of[1 - side]]))
        } else {
            let few = elements(graph, own).is_some_and(|count| count < all::CONTRACTION_SIDE_MIN);
            few.then_some(NoContraction::Few(of[side]))
        }
    };
    let of_sum = || match (product(graph, sum).1, &node.kind) {
        _ if node.dtype.is_float() && graph.math == Math::Strict => Some(NoContraction::Strict),
        (_, NodeKind::Reduce(Reduce::Dot, _)) => None,
        (Some(narrow), _) => Some(NoContraction::Narrow(narrow)),
        // The products of integers are exact, so they stay nodes of their own.
        (None, _) => node.dtype.is_float().then_some(NoContraction::Used),
    };
    of_side(0).or_else(|| of_side(1)).or_else(of_sum)
}

/// Returns true if each side of a contraction may have enough lanes for the tiles of a target.
pub(super) fn has_tiles(graph: &Graph, sum: NodeId, sizes: &Contractions) -> bool {
    let least = sizes.rows_min.min(sizes.cols_min);
    is_contraction(graph, sum)
        && own_elements(graph, sum).all(|count| count.is_none_or(|count| count >= least))
}

/// Returns the number of elements along the axes that each factor has alone, if it is known.
fn own_elements(graph: &Graph, sum: NodeId) -> impl Iterator<Item = Option<i64>> {
    let axes = factors(graph, sum).map(|(_, of)| of.map(|factor| graph.node(factor).axes));
    let own = axes.map(|[left, right]| [left.minus(right), right.minus(left)]);
    own.into_iter().flatten().map(|own| elements(graph, own))
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

/// Returns a graph in which some results are copies of contractions. Without the copies, a batch would be
/// innermost, or a contraction would be computed again for another order.
pub fn copy_products(mut graph: Graph) -> Graph {
    for number in 0..graph.outputs.len() {
        let Output { node, axes, .. } = &graph.outputs[number];
        let is_again = |earlier: &Output| earlier.node == *node && earlier.axes != *axes;
        let has_two_orders = graph.outputs[..number].iter().any(is_again) && is_contraction(&graph, *node);
        let inner = graph.parts(axes).last().copied();
        if has_two_orders || inner.is_some_and(|inner| batch(&graph, *node).contains(inner)) {
            graph.outputs[number].node = graph.copy(*node);
        }
    }
    graph
}

/// Returns the axes that both factors of a contraction have and that are not summed over; none for other values. Small
/// matrices have none, either: threads next to each other compute them for neighbours in a batch.
fn batch(graph: &Graph, id: NodeId) -> AxisSet {
    let is_small = |count: Option<i64>| count.is_some_and(|count| count < gpu::CONTRACTION_COLS_MIN);
    let has_matrices = || is_contraction(graph, id) && !own_elements(graph, id).any(is_small);
    match factors(graph, id).filter(|_| has_matrices()) {
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
        if reduces.len() < 2
            || Attention::of(graph, self).is_some()
            || !reduces.iter().any(|&id| is_contraction(graph, id))
        {
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
