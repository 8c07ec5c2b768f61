//! What is combined relative to what else is combined, in one run along the parts of a row.
//!
//! The distances from the mean and their squares, those from the largest and their exponentials, and where the largest is take two
//! runs along a row. A part knows only its own mean and its own largest; so it combines relative to those, and what that is
//! relative to the row's follows from both.

use std::collections::{BTreeMap, BTreeSet};

use super::super::partition::Partition;
use super::GraphCopy;
use super::graph_writer::GraphWriter;
use crate::fuse::Group;
use crate::ir::dim::DimExpr;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisId, AxisSet, Graph, Node, NodeId, NodeKind, Reduce};
use crate::ir::op::Op;

/// A reduction that can be made of parts, although it needs another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schedule) enum Merge {
    /// `Σ (t − m)²`, or `Σ (t − m)`, where `m` is the mean of `t`.
    FromMean {
        /// The sum.
        reduce: NodeId,
        /// Whether of squares.
        squares: bool,
        /// Of squares, the sum of the distances themselves, if that is made before.
        distances: Option<NodeId>,
        /// `m`.
        mean: NodeId,
        /// `Σ t`.
        sum: NodeId,
    },
    /// `Σ exp(t − s)` where `s` is the largest `t`, or 0 in its place where that is infinite.
    Exponentials {
        /// The sum.
        reduce: NodeId,
        /// `t − s`.
        difference: NodeId,
        /// `s`.
        shift: NodeId,
        /// The largest `t`.
        most: NodeId,
    },
    /// `Σ (t − most)`, or `Σ w (t − most)`, where `most` is the largest `t`.
    Distances {
        /// The sum.
        reduce: NodeId,
        /// `t − most`.
        difference: NodeId,
        /// The largest.
        most: NodeId,
        /// `Σ w`.
        weights: Option<NodeId>,
    },
    /// The least `place` where `t == most`, the largest or smallest `t`; what there is instead is the same for all `t`. Neither follows
    /// from what else is combined of the row.
    Places {
        /// The least.
        reduce: NodeId,
        /// `t == most`, or also where `t` is NaN, which is `most` then.
        found: NodeId,
        /// What there is instead.
        instead: NodeId,
        /// The largest or smallest.
        most: NodeId,
    },
}

/// Those of the candidates that can be made of parts, given what else is.
pub(in crate::schedule) fn merges(
    graph: &Graph,
    group: &Group,
    candidates: impl Iterator<Item = NodeId>,
    known: &[NodeId],
) -> Vec<Merge> {
    let inside = |merge: &Merge| merge.needs().iter().all(|id| group.nodes.contains(id));
    let merge = |id| {
        let from_mean = from_mean(graph, group, id, known);
        let largest = || exponentials(graph, id, known).or_else(|| distances(graph, id, known));
        from_mean.or_else(largest).or_else(|| places(graph, id, known))
    };
    let mut all: Vec<Merge> = candidates.filter_map(merge).filter(inside).collect();
    let sums: Vec<(NodeId, NodeId)> = all.iter().filter_map(Merge::sum_from_mean).collect();
    for merge in &mut all {
        if let Merge::FromMean { squares: true, distances, mean, reduce, .. } = merge {
            *distances = sums.iter().find(|(of, sum)| of == mean && sum < reduce).map(|(_, sum)| *sum);
        }
    }
    all
}

fn from_mean(graph: &Graph, group: &Group, reduce: NodeId, known: &[NodeId]) -> Option<Merge> {
    let (axes, distance, squares) = match combined(graph, reduce, Reduce::Dot) {
        Some((axes, [distance, same])) => (distance == same).then_some((axes, distance, true))?,
        None => {
            let (axes, [term]) = combined(graph, reduce, Reduce::Sum)?;
            let square = operands(graph, term, Op::Mul).filter(|[distance, same]| distance == same);
            square.map_or((axes, term, false), |[distance, _]| (axes, distance, true))
        }
    };
    let [of, mean] = operands(graph, distance, Op::Sub)?;
    let [sum, count] = operands(graph, mean, Op::Div)?;
    let all_elements =
        combined(graph, sum, Reduce::Sum)? == (axes, [of]) && is_count(graph, group, count, axes);
    (known.contains(&sum) && all_elements).then_some(Merge::FromMean {
        reduce,
        squares,
        distances: None,
        mean,
        sum,
    })
}

fn exponentials(graph: &Graph, reduce: NodeId, known: &[NodeId]) -> Option<Merge> {
    let (axes, [exponential]) = combined(graph, reduce, Reduce::Sum)?;
    let [difference] = operands(graph, exponential, Op::Exp)?;
    let [of, shift] = operands(graph, difference, Op::Sub)?;
    let most = match operands(graph, shift, Op::Select) {
        None => shift,
        Some([condition, _, most]) => (operands(graph, condition, Op::IsInf)? == [most]).then_some(most)?,
    };
    let zero = |[_, zero, _]: [NodeId; 3]| is_zero(graph, zero);
    let finite = operands(graph, shift, Op::Select).is_none_or(zero);
    let all_elements = largest(graph, most)? == (axes, [of]);
    (finite && known.contains(&most) && all_elements).then_some(Merge::Exponentials {
        reduce,
        difference,
        shift,
        most,
    })
}

/// What the largest is taken of, and along which axes.
fn largest(graph: &Graph, id: NodeId) -> Option<(AxisSet, [NodeId; 1])> {
    combined(graph, id, Reduce::Max).or_else(|| combined(graph, id, Reduce::MaxNum))
}

fn distances(graph: &Graph, reduce: NodeId, known: &[NodeId]) -> Option<Merge> {
    let (axes, difference, weights) = match combined(graph, reduce, Reduce::Dot) {
        None => {
            let (axes, [difference]) = combined(graph, reduce, Reduce::Sum)?;
            (axes, difference, None)
        }
        Some((axes, [weight, difference])) => {
            let adds_up = |id: &&NodeId| combined(graph, **id, Reduce::Sum) == Some((axes, [weight]));
            (axes, difference, Some(*known.iter().find(adds_up)?))
        }
    };
    let [of, most] = operands(graph, difference, Op::Sub)?;
    let all_elements = largest(graph, most)? == (axes, [of]);
    let merge = Merge::Distances { reduce, difference, most, weights };
    (known.contains(&most) && all_elements).then_some(merge)
}

fn places(graph: &Graph, reduce: NodeId, known: &[NodeId]) -> Option<Merge> {
    let (axes, [place]) = reduced(graph, reduce, Reduce::Min)?;
    let [found, own, instead] = operands(graph, place, Op::Select)?;
    let [of, most] = extreme(graph, found)?;
    let same_row = |how| reduced(graph, most, how) == Some((axes, [of]));
    let is_of_row = same_row(Reduce::Max) || same_row(Reduce::Min);
    let is_same = graph.node(instead).axes.minus(axes) == graph.node(instead).axes;
    let is_alone = !follows(graph, &[own, instead], known);
    let is_merged = is_of_row && is_same && is_alone && known.contains(&most);
    is_merged.then_some(Merge::Places { reduce, found, instead, most })
}

/// Whether some of these values are made of some of those.
fn follows(graph: &Graph, values: &[NodeId], of: &[NodeId]) -> bool {
    let (mut open, mut seen) = (values.to_vec(), BTreeSet::new());
    while let Some(id) = open.pop() {
        if of.contains(&id) {
            return true;
        }
        if seen.insert(id) {
            open.extend(&graph.node(id).args);
        }
    }
    false
}

/// What is compared where something is the extreme, or also no number.
fn extreme(graph: &Graph, found: NodeId) -> Option<[NodeId; 2]> {
    let Some([equal, nan]) = operands(graph, found, Op::Or) else { return operands(graph, found, Op::Eq) };
    let [of, most] = operands(graph, equal, Op::Eq)?;
    (operands(graph, nan, Op::Ne)? == [of; 2]).then_some([of, most])
}

/// The axes that floats are combined along in this way, and what is combined.
fn combined<const N: usize>(graph: &Graph, id: NodeId, how: Reduce) -> Option<(AxisSet, [NodeId; N])> {
    reduced(graph, id, how).filter(|_| graph.node(id).dtype == DType::F32)
}

/// The same of any type.
fn reduced<const N: usize>(graph: &Graph, id: NodeId, how: Reduce) -> Option<(AxisSet, [NodeId; N])> {
    graph.reduce_of(id).filter(|reduce| *reduce == how)?;
    Some((graph.reduced_axes(id), graph.node(id).args.as_slice().try_into().ok()?))
}

/// The operands of an operation, if it is this one.
fn operands<const N: usize>(graph: &Graph, id: NodeId, op: Op) -> Option<[NodeId; N]> {
    graph.operands_of(id, op)?.try_into().ok()
}

/// Whether a number is that of the elements along these axes.
fn is_count(graph: &Graph, group: &Group, id: NodeId, axes: AxisSet) -> bool {
    let product = |order: &mut dyn Iterator<Item = AxisId>| {
        let extents: Vec<&DimExpr> = order.map(|axis| &graph.axis(axis).extent).collect();
        DimExpr::product(extents)
    };
    let counts = [product(&mut axes.iter()), product(&mut group.cols.iter().copied())];
    match &graph.node(id).kind {
        NodeKind::Extent(extent) => counts.contains(extent),
        NodeKind::Literal(Const::Float(x)) => counts[0].as_const().is_some_and(|count| count as f64 == *x),
        _ => false,
    }
}

fn is_zero(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).kind == NodeKind::Literal(Const::Float(0.0))
}

impl Merge {
    /// Of a sum of distances from a mean, that and the mean.
    fn sum_from_mean(&self) -> Option<(NodeId, NodeId)> {
        match *self {
            Merge::FromMean { reduce, squares: false, mean, .. } => Some((mean, reduce)),
            Merge::FromMean { .. }
            | Merge::Exponentials { .. }
            | Merge::Distances { .. }
            | Merge::Places { .. } => None,
        }
    }

    /// The reduction.
    pub(in crate::schedule) fn reduce(&self) -> NodeId {
        match *self {
            Merge::FromMean { reduce, .. }
            | Merge::Exponentials { reduce, .. }
            | Merge::Distances { reduce, .. }
            | Merge::Places { reduce, .. } => reduce,
        }
    }

    /// What the group has to compute for it.
    fn needs(&self) -> Vec<NodeId> {
        match *self {
            Merge::FromMean { mean, sum, .. } => vec![mean, sum],
            Merge::Exponentials { difference, shift, most, .. } => vec![difference, shift, most],
            Merge::Distances { difference, most, weights, .. } => {
                [difference, most].into_iter().chain(weights).collect()
            }
            Merge::Places { found, instead, most, .. } => vec![found, instead, most],
        }
    }

    /// What stands in the place of a node where parts are combined, if something does: the mean and the largest of the part.
    pub(in crate::schedule) fn of_part(
        &self,
        id: NodeId,
        node: &Node,
        copy: &mut GraphCopy,
        partition: &Partition,
    ) -> Option<NodeId> {
        match *self {
            Merge::FromMean { mean, sum, .. } if mean == id => {
                let sum = copy.of(sum);
                let mut write = GraphWriter { graph: &mut copy.graph, span: node.span };
                let count = write.count(partition);
                Some(write.mean(partition, sum, count))
            }
            Merge::Exponentials { difference, most, .. } | Merge::Distances { difference, most, .. }
                if difference == id =>
            {
                let (of, most) = (copy.of(node.args[0]), copy.of(most));
                let mut write = GraphWriter { graph: &mut copy.graph, span: node.span };
                let shift = write.finite(most);
                let difference = write.apply(Op::Sub, &[of, shift]);
                Some(if partition.flushes { write.unless_negligible(difference) } else { difference })
            }
            // What is compared with the largest is so with that of the part.
            Merge::FromMean { .. }
            | Merge::Exponentials { .. }
            | Merge::Distances { .. }
            | Merge::Places { .. } => None,
        }
    }

    /// What a part adds to the reduction, from what `partials` give by the old nodes.
    pub(in crate::schedule) fn term(
        &self,
        copy: &mut GraphCopy,
        partition: &Partition,
        partials: &BTreeMap<NodeId, NodeId>,
    ) -> NodeId {
        let own = partials[&self.reduce()];
        let span = copy.graph.node(own).span;
        match *self {
            // Distances from another mean are more by that of the means, for each element, and their squares by its square (Chan,
            // Golub and LeVeque 1979): that is exact of a mean that is not rounded, and else with twice the product of both.
            Merge::FromMean { squares, distances, mean, sum, .. } => {
                let mean = copy.of(mean);
                let mut write = GraphWriter { graph: &mut copy.graph, span };
                let count = write.count(partition);
                let of_part = write.mean(partition, partials[&sum], count);
                let distance = write.apply(Op::Sub, &[of_part, mean]);
                let each = if squares { write.apply(Op::Mul, &[distance, distance]) } else { distance };
                let more = write.apply(Op::Mul, &[count, each]);
                let mut all = write.apply(Op::Add, &[own, more]);
                if squares {
                    // Squares that overflow do so whatever is added, and where both means do, too.
                    all = write.unless_infinite(own, all);
                }
                if let Some(distances) = distances {
                    let product = write.apply(Op::Mul, &[distance, partials[&distances]]);
                    let twice = write.apply(Op::Add, &[product, product]);
                    let corrected = write.apply(Op::Add, &[all, twice]);
                    // What takes off the rounding of a mean may overflow to the other side.
                    all = write.unless_infinite(all, corrected);
                }
                match partition.interleave {
                    None => all,
                    // Nothing times an infinite distance is no number.
                    Some(_) => {
                        let zero = write.literal(0.0);
                        let none = write.apply(Op::Eq, &[count, zero]);
                        write.apply(Op::Select, &[none, own, all])
                    }
                }
            }
            // Σ exp(t − s) = exp(s' − s) Σ exp(t − s') (Milakov and Gimelshein 2018). Without any finite element a part has
            // nothing to add, but NaN where it would have: −∞ − −∞.
            Merge::Exponentials { shift, most, .. } => {
                let shift = copy.of(shift);
                let mut write = GraphWriter { graph: &mut copy.graph, span };
                let of_part = write.finite(partials[&most]);
                let distance = write.apply(Op::Sub, &[of_part, shift]);
                let factor = write.apply(Op::Exp, &[distance]);
                let scaled = write.apply(Op::Mul, &[own, factor]);
                let zero = write.literal(0.0);
                let none = write.apply(Op::Eq, &[own, zero]);
                let nothing = write.apply(Op::Mul, &[zero, shift]);
                write.apply(Op::Select, &[none, nothing, scaled])
            }
            // Each element is as much farther from the row's largest as that of the part is, or 0 where that is infinite: then
            // so is what the part gives.
            Merge::Distances { most, weights, .. } => {
                let row = copy.of(most);
                let mut write = GraphWriter { graph: &mut copy.graph, span };
                let of_part = write.finite(partials[&most]);
                let distance = write.apply(Op::Sub, &[of_part, row]);
                let count = weights.map_or_else(|| write.count(partition), |weights| partials[&weights]);
                let more = write.apply(Op::Mul, &[count, distance]);
                write.apply(Op::Add, &[own, more])
            }
            // Of a part whose largest is not the row's nothing is found. NaN is the row's where it is a part's.
            Merge::Places { instead, most: old, .. } => {
                let (instead, most) = (copy.of(instead), copy.of(old));
                let mut write = GraphWriter { graph: &mut copy.graph, span };
                let of_part = partials[&old];
                let same = write.apply(Op::Eq, &[of_part, most]);
                let nan = write.apply(Op::Ne, &[of_part, of_part]);
                let found = write.apply(Op::Or, &[same, nan]);
                let place = write.apply(Op::Select, &[found, own, instead]);
                match partition.interleave {
                    None => place,
                    // A part without elements has nothing instead either.
                    Some(_) => {
                        let (count, zero) = (write.count(partition), write.literal(0.0));
                        let none = write.apply(Op::Eq, &[count, zero]);
                        write.apply(Op::Select, &[none, own, place])
                    }
                }
            }
        }
    }
}
