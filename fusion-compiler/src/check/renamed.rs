//! Cheap values that are renamed, once more along their new dims: so kernels read as it lies what else is read elsewhere.
//!
//! `rename` gives an index operation, and where that asks for what costs much, the value is stored. What costs little is made
//! again instead, down to tensors that are read at other axes. Invariant: what a renaming makes again is counted through all
//! that it is made of, and is little, so that a function grows no faster than its source.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use super::build::Builder;
use super::rename::substitute;
use crate::ir::graph::{AxisId, AxisSet, Graph, Node, NodeId, NodeKind, Sum, Use};

/// What is made again reads at most this many tensors …
const TENSORS_MAX: usize = 4;
/// … and takes at most this many operations.
const OPERATIONS_MAX: usize = 30;

/// An old axis, and the new one in its place.
type Axes = (AxisId, AxisId);

/// A renaming that a result needs.
struct Renaming {
    of: NodeId,
    axes: Axes,
    /// Whether elements along the new axis are a result's, or combined: not only picked.
    is_seen: bool,
    /// What has the old axis and is needed along it, too: with what it is made of, it would be made again.
    again: Vec<NodeId>,
}

/// What has been made along the new axis instead of the old one.
type Made = BTreeMap<Axes, BTreeMap<NodeId, NodeId>>;

/// Makes what is renamed once more along its new axis, where that is cheap.
pub(super) fn expand(b: &mut Builder<'_>) {
    let renamings = renamings(&b.graph);
    if renamings.is_empty() {
        return;
    }
    let nodes = std::mem::take(&mut b.graph.nodes);
    let mut views: FxHashMap<NodeId, Vec<AxisId>> = std::mem::take(&mut b.views).into_iter().collect();
    let mut made = Made::new();
    let mut moved: Vec<NodeId> = Vec::with_capacity(nodes.len());
    for (i, node) in nodes.into_iter().enumerate() {
        let before = NodeId(i as u32);
        let view = renamings.get(&before).and_then(|renaming| view(b, renaming, &moved, &mut made));
        moved.push(view.unwrap_or_else(|| {
            let args = node.args.iter().map(|arg| moved[arg.0 as usize]).collect();
            let id = b.graph.push(Node { args, ..node });
            b.views.extend(views.remove(&before).map(|axes| (id, axes)));
            id
        }));
    }
    for output in &mut b.graph.outputs {
        output.node = moved[output.node.0 as usize];
    }
    for (_, Renaming { axes: (old, _), .. }) in self::renamings(&b.graph) {
        reaches(&mut b.graph, old);
    }
}

/// What is renamed along the new axis, if it is cheap and can be made there. `moved` has the nodes in place of those before.
fn view(b: &mut Builder<'_>, renaming: &Renaming, moved: &[NodeId], made: &mut Made) -> Option<NodeId> {
    let now = |id: &NodeId| moved[id.0 as usize];
    let Renaming { of, axes, is_seen, again } = renaming;
    if !is_seen || !is_cheap(&b.graph, axes.0, again.iter().map(now).collect()) {
        return None;
    }
    substitute(b, now(of), *axes, made.entry(*axes).or_default()).ok().flatten()
}

/// Has a call check that coordinates along a dim are within `i32`.
fn reaches(graph: &mut Graph, axis: AxisId) {
    let own = graph.axis(axis).clone();
    let of = Use::Coordinates("rename".into());
    graph.check(Sum { whole: own.clone(), parts: vec![own], of });
}

/// Whether these values, along an axis, cost little to make again.
fn is_cheap(graph: &Graph, axis: AxisId, again: Vec<NodeId>) -> bool {
    let (mut seen, mut open) = (FxHashSet::default(), again);
    let (mut tensors, mut operations) = (0, 0);
    while let Some(id) = open.pop() {
        let node = graph.node(id);
        if !node.axes.contains(axis) || !seen.insert(id) {
            continue;
        }
        match node.kind {
            NodeKind::Input(_) => tensors += 1,
            NodeKind::Apply(_) | NodeKind::Reduce(..) | NodeKind::At(_) => operations += 1,
            NodeKind::Scalar(_)
            | NodeKind::Literal(_)
            | NodeKind::Coord(_)
            | NodeKind::Extent(_)
            | NodeKind::Cast => {}
        }
        let is_looped = !graph.looped_axes(id).is_empty();
        if is_looped || tensors > TENSORS_MAX || operations > OPERATIONS_MAX {
            return false;
        }
        open.extend(&node.args);
    }
    true
}

/// The renamings that results need.
fn renamings(graph: &Graph) -> BTreeMap<NodeId, Renaming> {
    let mut users: Vec<Vec<NodeId>> = vec![vec![]; graph.nodes.len()];
    // The axes of each value that a result has, or that it is combined along.
    let mut seen = vec![AxisSet::EMPTY; graph.nodes.len()];
    let results: BTreeSet<NodeId> = graph.outputs.iter().map(|output| output.node).collect();
    results.iter().for_each(|id| seen[id.0 as usize] = graph.node(*id).axes);
    let mut found = BTreeMap::new();
    // Users come after what they use.
    for (id, node) in graph.iter().rev() {
        if users[id.0 as usize].is_empty() && !results.contains(&id) {
            continue;
        }
        let own = seen[id.0 as usize];
        let renamed = graph.renamed(id);
        for (i, arg) in node.args.iter().enumerate() {
            users[arg.0 as usize].push(id);
            let along = match (&node.kind, renamed) {
                (_, Some((_, old, new))) if i == 0 && own.contains(new) => own.with(old),
                (&NodeKind::At(axis), _) if i == 0 => own.minus(AxisSet::EMPTY.with(axis)),
                (&NodeKind::Reduce(_, axes), _) => own.union(axes),
                // What the same elements are called otherwise, as parts of a dim are.
                (NodeKind::Cast, _) => own.union(graph.node(*arg).axes.minus(node.axes)),
                _ => own,
            };
            let along = along.intersection(graph.node(*arg).axes);
            seen[arg.0 as usize] = seen[arg.0 as usize].union(along);
        }
        if let Some((of, old, new)) = renamed {
            found.insert(id, Renaming { of, axes: (old, new), is_seen: own.contains(new), again: vec![] });
        }
    }
    for renaming in found.values_mut().filter(|renaming| renaming.is_seen) {
        renaming.again = again(graph, (&users, &results), renaming);
    }
    found
}

/// What of a renamed value and of what it is made of others need along the old axis: the last of it.
fn again(
    graph: &Graph,
    (users, results): (&[Vec<NodeId>], &BTreeSet<NodeId>),
    &Renaming { of, axes: (old, new), .. }: &Renaming,
) -> Vec<NodeId> {
    let (mut again, mut alone, mut open) = (vec![], FxHashSet::default(), BTreeSet::from([of]));
    while let Some(id) = open.pop_last() {
        let is_ours = |user: &NodeId| alone.contains(user) || graph.renamed(*user) == Some((of, old, new));
        if results.contains(&id) || !users[id.0 as usize].iter().all(is_ours) {
            again.push(id);
            continue;
        }
        alone.insert(id);
        open.extend(graph.node(id).args.iter().filter(|arg| graph.node(**arg).axes.contains(old)));
    }
    again
}
