//! Attention: scores, which are sums of products, become weights of a sum of values along the keys. A kernel that
//! knows both products stores no scores.
//!
//! The weights are exponentials of scores relative to their largest (a softmax), or any function of each score.
//! Scores are computed from one sum of products and anything else that has no loop of its own: coordinates,
//! tables, masks.

use std::collections::BTreeSet;

use super::products::factors;
use super::{Group, Reason};
use crate::ir::dtype::DType;
use crate::ir::graph::{AXES_MAX, AxisId, AxisSet, Dest, Fusing, Graph, Math, NodeId, Reduce};
use crate::ir::op::Op;

/// Attention, and the roles of its axes.
#[derive(Clone, Debug)]
pub struct Attention {
    /// The sum of values times weights.
    pub sum: NodeId,
    /// Factor of the sum that is computed from scores.
    pub weights: NodeId,
    /// Factor of the sum that has no rows.
    pub values: NodeId,
    /// The sum of products that scores are computed from.
    pub products: NodeId,
    /// Factor of the products that has no keys.
    pub queries: NodeId,
    /// Factor of the products that has keys.
    pub keys: NodeId,
    /// The largest score of each row, and sums of exponentials relative to it; none without a softmax.
    pub softmax: Option<Softmax>,
    /// Axes with keys or values for each coordinate.
    pub batch: AxisSet,
    /// Other axes that weights have beside the keys.
    pub rows: AxisSet,
    /// Axes of the values that weights lack.
    pub cols: AxisSet,
    /// Axis that scores and values are summed over.
    pub along: AxisId,
}

/// Reductions of the scores of a row.
#[derive(Clone, Debug)]
pub struct Softmax {
    /// The largest score.
    pub largest: NodeId,
    /// Number that is subtracted from a score for its weight: the largest, or 0 where the largest is infinite.
    pub shift: NodeId,
    /// Sums of exponentials of scores, each with the number that is subtracted from a score.
    pub sums: Vec<(NodeId, NodeId)>,
}

impl Softmax {
    /// Returns true if a sum is relative to the largest score where that is infinite, too.
    pub fn is_raw(&self, sum: NodeId) -> bool {
        self.sums.iter().any(|&(own, shift)| own == sum && shift == self.largest)
    }

    /// Returns the largest score and a sum of weights.
    pub fn state(&self) -> Vec<NodeId> {
        [self.largest].into_iter().chain(self.sums.first().map(|(sum, _)| *sum)).collect()
    }
}

impl Attention {
    /// Returns the attention that a group consists of, apart from values that are computed from its results.
    pub fn of(graph: &Graph, group: &Group) -> Option<Attention> {
        let attention = Attention::within(graph, group)?;
        let Attention { batch, rows, cols, .. } = &attention;
        let is_fresh = |output: usize| graph.outputs[output].dest == Dest::Fresh;
        let outer = batch.union(*rows);
        let fits = |order: &[AxisId]| {
            let inner = order.len().saturating_sub(cols.iter().count());
            let axes = |of: &[AxisId]| of.iter().copied().collect::<AxisSet>();
            axes(&order[..inner]) == outer && axes(&order[inner..]) == *cols
        };
        let order = attention.order(group)?;
        let rows_of = &order[..order.len() - cols.iter().count()];
        let is_stored = |id: NodeId| group.stores.iter().any(|store| store.node == id);
        let is_whole = fits(order)
            && group.stores.iter().all(|store| store.order == order || store.order == rows_of)
            && group.stores.iter().all(|store| store.output.is_none_or(is_fresh))
            && attention.foreign(graph, group).is_none()
            && !is_stored(attention.products)
            && group.unrolled.is_empty();
        is_whole.then_some(attention)
    }

    /// Returns the axes of the results of a group, with those of the values innermost.
    pub fn order<'g>(&self, group: &'g Group) -> Option<&'g [AxisId]> {
        let has_cols = |order: &&[AxisId]| self.cols.iter().all(|axis| order.contains(&axis));
        group.stores.iter().map(|store| store.order.as_slice()).find(has_cols)
    }

    /// Returns an attention among other values of a group.
    fn within(graph: &Graph, group: &Group) -> Option<Attention> {
        if graph.math == Math::Strict || graph.fusing == Fusing::Off || graph.axes.len() >= AXES_MAX {
            return None;
        }
        let reduces: Vec<NodeId> =
            group.nodes.iter().copied().filter(|&id| !graph.looped_axes(id).is_empty()).collect();
        if reduces.len() < 2 {
            return None;
        }
        let read = |id: NodeId| group.load_of(graph, id).is_some();
        reduces.iter().find_map(|&sum| {
            let (_, [left, right]) = factors(graph, sum)?;
            let at = |of| Attention::at(graph, sum, of, (&reduces, &read));
            at([left, right]).or_else(|| at([right, left]))
        })
    }

    /// Returns the attention of a sum of values times weights.
    fn at(
        graph: &Graph,
        sum: NodeId,
        [weights, values]: [NodeId; 2],
        (reduces, read): (&[NodeId], &dyn Fn(NodeId) -> bool),
    ) -> Option<Attention> {
        let looped = |id: NodeId| reduces.contains(&id);
        let along = graph.reduced_axes(sum);
        let mut keys = along.iter();
        let (Some(along_keys), None) = (keys.next(), keys.next()) else { return None };
        let axes = |id: NodeId| graph.node(id).axes;
        let is_f32 = |id: NodeId| graph.node(id).dtype == DType::F32;
        // The last sum of products below the weights has the scores.
        let scores = below(graph, weights, &|id| !read(id));
        let products = scores.into_iter().rev().find(|&id| looped(id) && graph.looped_axes(id) != along)?;
        let (depth, of) = factors(graph, products)?;
        let is_keys = |id: NodeId| axes(id).contains(along_keys);
        let [queries, keys] = match of.map(is_keys) {
            [false, true] => of,
            [true, false] => [of[1], of[0]],
            _ => return None,
        };
        let has_depth = |id: NodeId| depth.minus(axes(id)).is_empty();
        let softmax = softmax(graph, weights, reduces.iter().copied());
        let own = axes(weights).minus(along);
        let batch = own.intersection(axes(keys).union(axes(values)));
        let attention = Attention {
            sum,
            weights,
            values,
            products,
            queries,
            keys,
            softmax,
            batch,
            rows: own.minus(batch),
            cols: axes(values).minus(along).minus(own),
            along: along_keys,
        };
        let is_attention = [sum, weights, products].into_iter().all(is_f32)
            && [queries, keys].into_iter().all(|id| has_depth(id) && is_f32(id))
            && is_f32(values)
            && axes(values).contains(along_keys)
            && axes(products).minus(own).minus(along).is_empty()
            && !attention.cols.is_empty()
            && (attention.rows.is_empty() || !attention.rows.intersection(axes(queries)).is_empty())
            // Chains of wide products have a kernel each.
            && (attention.softmax.is_some() || !batch.is_empty());
        is_attention.then_some(attention)
    }

    /// Returns all reductions of the attention.
    fn reduces(&self) -> impl Iterator<Item = NodeId> {
        let of_rows = self.softmax.iter().flat_map(|softmax| {
            [softmax.largest].into_iter().chain(softmax.sums.iter().map(|(sum, _)| *sum))
        });
        [self.sum, self.products].into_iter().chain(of_rows)
    }

    /// Returns the last reduction of a group that is none of the attention.
    fn foreign(&self, graph: &Graph, group: &Group) -> Option<NodeId> {
        let own: BTreeSet<NodeId> = self.reduces().collect();
        let is_foreign = |id: &NodeId| !own.contains(id) && !graph.looped_axes(*id).is_empty();
        group.nodes.iter().rev().copied().find(is_foreign)
    }

    /// Returns the normalised sum of a group, or else the sum.
    fn result(&self, graph: &Graph, group: &Group) -> NodeId {
        let uses = |id: &NodeId| graph.node(*id).args.contains(&self.sum);
        let mut users = group.nodes.iter().copied().filter(uses);
        match (users.next(), users.next()) {
            (Some(user), None) if graph.operands_of(user, Op::Mul).is_some() => user,
            _ => self.sum,
        }
    }
}

/// Returns a value whose storing leaves attention a kernel of its own, and the reason.
pub(super) fn mixed(graph: &Graph, groups: &[Group]) -> Option<(NodeId, Reason)> {
    groups.iter().find_map(|group| {
        let attention = Attention::within(graph, group)?;
        if Attention::of(graph, group).is_some() {
            return None;
        }
        let foreign = attention.foreign(graph, group)?;
        let follows = below(graph, foreign, &|_| true).contains(&attention.sum);
        let apart = if follows { attention.result(graph, group) } else { foreign };
        let is_stored = group.stores.iter().any(|store| store.node == apart);
        (!is_stored).then_some((apart, Reason::Product))
    })
}

/// Returns the largest score and the sums of exponentials among reductions, if the weights are exponentials of scores
/// relative to the largest one.
fn softmax(graph: &Graph, weights: NodeId, reduces: impl Iterator<Item = NodeId>) -> Option<Softmax> {
    let difference = |exponential: NodeId| -> Option<[NodeId; 2]> {
        let &[difference] = graph.operands_of(exponential, Op::Exp)? else { return None };
        graph.operands_of(difference, Op::Sub)?.try_into().ok()
    };
    let [scores, shift] = difference(weights)?;
    let largest = match graph.operands_of(shift, Op::Select) {
        Some(&[_, _, largest]) => largest,
        _ => shift,
    };
    let is_largest = matches!(graph.reduce_of(largest), Some(Reduce::Max | Reduce::MaxNum));
    if !is_largest || graph.node(largest).args != [scores] {
        return None;
    }
    let is_shift = |id: NodeId| id == largest || is_finite(graph, id, largest);
    let sum = |id: NodeId| {
        let &[exponential] = graph.node(id).args.as_slice() else { return None };
        let [of, shift] = difference(exponential)?;
        let is_sum = graph.reduce_of(id) == Some(Reduce::Sum)
            && graph.reduced_axes(id) == graph.reduced_axes(largest)
            && of == scores;
        (is_sum && is_shift(shift)).then_some((id, shift))
    };
    is_shift(shift).then(|| Softmax { largest, shift, sums: reduces.filter_map(sum).collect() })
}

/// Returns true for a number, or 0 where the number is infinite.
fn is_finite(graph: &Graph, id: NodeId, of: NodeId) -> bool {
    match graph.operands_of(id, Op::Select) {
        Some(&[condition, _, otherwise]) => {
            otherwise == of && graph.operands_of(condition, Op::IsInf) == Some(&[of])
        }
        _ => false,
    }
}

/// Returns the values that a value is computed from, and itself, in topological order. Values that `enter` refuses
/// are not looked into.
fn below(graph: &Graph, id: NodeId, enter: &dyn Fn(NodeId) -> bool) -> BTreeSet<NodeId> {
    let mut all = BTreeSet::new();
    super::walk(graph, id, &mut |node| {
        all.insert(node);
        enter(node)
    });
    all
}
