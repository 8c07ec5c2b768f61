//! Recomputation of cheap renamed values along their new dims, so that kernels read them in memory order.
//!
//! `rename` creates an index operation. An expensive operand is stored. A cheap operand is recomputed along
//! the new dim instead, down to tensors that are read at other axes.
//!
//! Invariant: the recomputed nodes of a renaming are counted through all their operands, and are few. A
//! function therefore grows no faster than its source.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use super::axes::substitute;
use super::build::Builder;
use crate::ir::graph::{AxisId, AxisSet, ConcatDim, Graph, Node, NodeId, NodeKind, Use};
use crate::target::tuning_table::all;

/// Old and new axis of a renaming.
type Axes = (AxisId, AxisId);

/// A renaming that needs all elements along the new axis, for a result or a reduction.
struct Renaming {
    of: NodeId,
    axes: Axes,
    /// The values that are also needed along the old axis. A view would recompute these values and their
    /// operands along the new axis.
    again: Vec<NodeId>,
}

/// Recomputed values along a new axis, by the corresponding values along the old axis.
type Recomputed = BTreeMap<Axes, BTreeMap<NodeId, NodeId>>;

/// New node of each old node.
type Moved = FxHashMap<NodeId, NodeId>;

/// Recomputes renamed values along their new axes where that is cheap. Drops nodes that no result needs,
/// since index operations on renamed values leave such nodes behind.
pub(super) fn expand(b: &mut Builder<'_>) {
    if !b.has_reused && !b.graph.iter().any(|(id, _)| b.graph.renamed(id).is_some()) {
        return;
    }
    let uses = Uses::of(&b.graph);
    let renamings = renamings(&b.graph, &uses);
    let nodes = std::mem::take(&mut b.graph.nodes);
    let mut views: FxHashMap<NodeId, Vec<AxisId>> = std::mem::take(&mut b.views).into_iter().collect();
    let (mut recomputed, mut moved) = (Recomputed::new(), Moved::default());
    for (i, node) in nodes.into_iter().enumerate() {
        let before = NodeId(i as u32);
        if !uses.needs(before) {
            continue;
        }
        let view = renamings.get(&before).and_then(|renaming| view(b, renaming, &moved, &mut recomputed));
        let now = view.unwrap_or_else(|| {
            let args = node.args.iter().map(|arg| moved[arg]).collect();
            let id = b.graph.push(Node { args, ..node });
            b.views.extend(views.remove(&before).map(|axes| (id, axes)));
            id
        });
        moved.insert(before, now);
    }
    for output in &mut b.graph.outputs {
        output.node = moved[&output.node];
    }
    let uses = Uses::of(&b.graph);
    let kept = b.graph.iter().filter(|(id, _)| uses.needs(*id));
    let kept: BTreeSet<AxisId> = kept.filter_map(|(id, _)| Some(b.graph.renamed(id)?.1)).collect();
    kept.into_iter().for_each(|axis| reaches(&mut b.graph, axis));
}

/// Recomputes a renamed value along the new axis, if that is cheap and possible.
fn view(
    b: &mut Builder<'_>,
    renaming: &Renaming,
    moved: &Moved,
    recomputed: &mut Recomputed,
) -> Option<NodeId> {
    let Renaming { of, axes, again } = renaming;
    let is_cheap = is_cheap(&b.graph, axes.0, again.iter().map(|id| moved[id]).collect());
    is_cheap
        .then(|| substitute(b, moved[of], *axes, recomputed.entry(*axes).or_default()).ok())
        .flatten()
        .flatten()
}

/// Records a call-time check that coordinates along a dim fit `i32`.
fn reaches(graph: &mut Graph, axis: AxisId) {
    let own = graph.axis(axis).clone();
    let of = Use::Coordinates("rename".into());
    graph.check(ConcatDim { whole: own.clone(), parts: vec![own].into(), of });
}

/// Returns true if these values are cheap to recompute along another axis.
fn is_cheap(graph: &Graph, axis: AxisId, again: Vec<NodeId>) -> bool {
    // Each value with how often it is computed for an element: an unrolled reduction repeats its operand.
    let mut open: Vec<(NodeId, i64)> = again.into_iter().map(|id| (id, 1)).collect();
    let mut seen = FxHashSet::default();
    let (mut tensors, mut operations) = (0, 0);
    while let Some((id, mut times)) = open.pop() {
        let node = graph.node(id);
        if !node.axes.contains(axis) || !seen.insert(id) {
            continue;
        }
        match node.kind {
            NodeKind::Input(_) => tensors += 1,
            NodeKind::Apply(_) | NodeKind::Gather(_) => operations += times,
            NodeKind::Reduce(_, axes) => {
                let extents = axes.iter().filter_map(|axis| graph.axis(axis).extent.as_const());
                times = extents.fold(times, i64::saturating_mul);
                operations += times;
            }
            NodeKind::Scalar(_)
            | NodeKind::Literal(_)
            | NodeKind::Coord(_)
            | NodeKind::Extent(_)
            | NodeKind::Cast => {}
        }
        let is_looped = !graph.looped_axes(id).is_empty();
        if is_looped || tensors > all::CHEAP_LOADS || operations > all::CHEAP_OPS as i64 {
            return false;
        }
        open.extend(node.args.iter().map(|&arg| (arg, times)));
    }
    true
}

/// Returns the renamings whose new axis is needed in full, each with the values it would recompute.
fn renamings(graph: &Graph, uses: &Uses) -> BTreeMap<NodeId, Renaming> {
    let seen = graph.iter().filter_map(|(id, _)| {
        let (of, old, new) = graph.renamed(id).filter(|&(.., new)| uses.along(id).contains(new))?;
        Some((id, Renaming { of, axes: (old, new), again: again(graph, uses, (of, old, new)) }))
    });
    seen.collect()
}

/// Returns the first values that other users also need along the old axis, going from a renamed value to its
/// operands.
fn again(graph: &Graph, uses: &Uses, renaming: (NodeId, AxisId, AxisId)) -> Vec<NodeId> {
    let (of, old, _) = renaming;
    let (mut again, mut alone, mut open) = (vec![], FxHashSet::default(), BTreeSet::from([of]));
    while let Some(id) = open.pop_last() {
        let is_ours = |user: &NodeId| alone.contains(user) || graph.renamed(*user) == Some(renaming);
        if uses.results.contains(&id) || !uses.users[id.0 as usize].iter().all(is_ours) {
            again.push(id);
            continue;
        }
        alone.insert(id);
        open.extend(graph.node(id).args.iter().filter(|arg| graph.node(**arg).axes.contains(old)));
    }
    again
}

/// The uses of each value of a graph.
struct Uses {
    results: BTreeSet<NodeId>,
    /// Users of each node.
    users: Vec<Vec<NodeId>>,
    /// Axes along which all elements of each value are needed, because a result has them or a reduction
    /// combines them.
    along: Vec<AxisSet>,
}

impl Uses {
    fn of(graph: &Graph) -> Uses {
        let results = graph.outputs.iter().map(|output| output.node).collect();
        let (users, along) = (vec![vec![]; graph.nodes.len()], vec![AxisSet::EMPTY; graph.nodes.len()]);
        let mut uses = Uses { results, users, along };
        for id in &uses.results {
            uses.along[id.0 as usize] = graph.node(*id).axes;
        }
        // Users come after their operands.
        for (id, node) in graph.iter().rev() {
            if !uses.needs(id) {
                continue;
            }
            for (i, arg) in node.args.iter().enumerate() {
                let along = operand_along(graph, (id, i), uses.along(id));
                let place = arg.0 as usize;
                uses.users[place].push(id);
                uses.along[place] = uses.along[place].union(along);
            }
        }
        uses
    }

    fn needs(&self, id: NodeId) -> bool {
        !self.users[id.0 as usize].is_empty() || self.results.contains(&id)
    }

    fn along(&self, id: NodeId) -> AxisSet {
        self.along[id.0 as usize]
    }
}

/// Returns the axes along which all elements of an operand are needed, given those of its user.
fn operand_along(graph: &Graph, (id, i): (NodeId, usize), own: AxisSet) -> AxisSet {
    let node = graph.node(id);
    let has = graph.node(node.args[i]).axes;
    let along = match (&node.kind, graph.renamed(id)) {
        (NodeKind::Gather(_), Some((_, old, new))) if i == 0 && own.contains(new) => own.with(old),
        (NodeKind::Gather(axis), _) if i == 0 => own.minus(AxisSet::EMPTY.with(*axis)),
        (NodeKind::Reduce(_, axes), _) => own.union(*axes),
        // The parts of a dim are the same elements as the dim.
        (NodeKind::Cast, _) => own.union(has.minus(node.axes)),
        (_, _) => own,
    };
    along.intersection(has)
}
