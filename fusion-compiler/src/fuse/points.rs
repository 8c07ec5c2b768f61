//! Coordinates at which a group needs each value, as index operations ask for them.
//!
//! A value at other coordinates than those of the current element is computed once more, for these
//! coordinates alone. Invariant: a group computes no reduction in a loop at other coordinates. A group
//! computes a value at several points only if the value is cheap.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{elements, is_bound_by_memory, is_cheap};
use super::{Group, Load, storable};
use crate::ir::graph::{AxisId, AxisSet, Graph, NodeId, NodeKind};
use crate::ir::point::{Coordinate, Coordinates, Gathered, Moves, Point, is_moved, point};

/// Points of each value.
type Points = BTreeMap<NodeId, BTreeSet<Coordinates>>;

/// Returns the last value that a group must not compute at all points where it is needed.
pub(super) fn misplaced(graph: &Graph, group: &Group) -> Option<NodeId> {
    points(graph, group).err()
}

/// Returns the loads at other coordinates, with the axes of the elements read.
pub(super) fn moved(graph: &Graph, group: &Group) -> BTreeMap<Load, AxisSet> {
    let Ok((points, moves)) = points(graph, group) else { return BTreeMap::new() };
    let mut moved = BTreeMap::new();
    for &load in &group.loads {
        let read = points.iter().filter(|(id, _)| group.load_of(graph, **id) == Some(load));
        let all: BTreeSet<(NodeId, &Coordinates)> =
            read.flat_map(|(&id, points)| points.iter().map(move |at| (id, at))).collect();
        if all.iter().any(|(_, at)| is_moved(at)) {
            moved.insert(load, read_axes(graph, &moves, &all));
        }
    }
    moved
}

/// Returns the axes of the elements that a group reads from a tensor at these points. The result is the
/// tensor's own axes, unless the tensor is read at a single point that is never outside, or whose index
/// depends on a tensor.
fn read_axes(graph: &Graph, moves: &Moves, all: &BTreeSet<(NodeId, &Coordinates)>) -> AxisSet {
    let own = all.first().map_or(AxisSet::EMPTY, |(id, _)| graph.node(*id).axes);
    match all.first() {
        Some(&(id, at)) if all.len() == 1 && (moves.within(at).is_empty() || gathers(graph, moves, at)) => {
            moves.axes(graph, &(id, at.clone()))
        }
        Some(_) | None => own,
    }
}

/// Returns true if an index depends on a tensor.
fn gathers(graph: &Graph, moves: &Moves, at: &[(AxisId, Coordinate)]) -> bool {
    let by_tensor = |id: NodeId| {
        let mut found = false;
        super::walk(graph, id, &mut |node| {
            found |= matches!(graph.node(node).kind, NodeKind::Input(_));
            !found
        });
        found
    };
    at.iter().any(|(_, coordinate)| match coordinate {
        Coordinate::Fixed(_) => false,
        Coordinate::Moved(moved) => by_tensor(moves.get(*moved).index.0),
    })
}

impl Group {
    /// Returns the load of a value that the group reads instead of computing it.
    pub fn load_of(&self, graph: &Graph, id: NodeId) -> Option<Load> {
        let stored = Some(Load::Stored(id)).filter(|load| self.loads.contains(load));
        // A parameter may also be a result of its own, which another kernel stores.
        stored.or_else(|| graph.input_of(id).map(Load::Param))
    }
}

/// Returns the points of all nodes of a group, or the last value that breaks the invariant.
fn points(graph: &Graph, group: &Group) -> Result<(Points, Moves), NodeId> {
    let (mut points, mut moves) = (Points::new(), Moves::default());
    let moving =
        |&id: &NodeId| matches!(graph.node(id).kind, NodeKind::Gather(_)) && graph.static_index(id).is_none();
    if !group.nodes.iter().any(moving) {
        return Ok((points, moves));
    }
    for store in &group.stores {
        points.entry(store.node).or_default().insert(vec![]);
    }
    let storable = storable(graph);
    let read = |id: NodeId| group.load_of(graph, id).is_some();
    let cols = group.cols.iter().copied().filter(|_| !is_bound_by_memory(graph, group));
    let again = group.unrolled.union(cols.collect());
    // The reverse order visits the users of a value before the value.
    for &id in group.nodes.iter().rev().filter(|&&id| !read(id)) {
        let all: Vec<Coordinates> = points.get(&id).into_iter().flatten().cloned().collect();
        let combined = !graph.looped_axes(id).is_empty() && all.iter().any(|at| is_moved(at));
        let times = all.iter().map(|at| times(graph, &moves, (id, at), again)).fold(0, usize::saturating_add);
        let is_stored = |id: NodeId| storable(&id) && !is_of_windows(graph, id);
        if combined || times > 1 && is_stored(id) && !is_cheap(graph, (id, times), read) {
            return Err(id);
        }
        for at in all {
            for (id, at) in operands(graph, &mut moves, &(id, at)) {
                points.entry(id).or_default().insert(at);
            }
        }
    }
    Ok((points, moves))
}

/// Returns true for windows, which have more elements than the value that they move along. The value is stored instead of
/// them.
fn is_of_windows(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    graph.gather_of(id).is_some() && {
        let of = graph.node(node.args[0]).axes;
        node.axes.minus(of).iter().count() > of.minus(node.axes).iter().count()
    }
}

/// Returns how often a group computes each element of a node for one point, on average. The group computes
/// the point anew along the axes `again`. Example: in a sum over `R` of elements at `index(P) + index(R)`, an
/// element is computed once for each coordinate along `R`. Other axes count as a substitute for the node's
/// own.
fn times(graph: &Graph, moves: &Moves, (id, at): (NodeId, &Coordinates), again: AxisSet) -> usize {
    let (own, axes) = (graph.node(id).axes, moves.axes(graph, &(id, at.clone())));
    let (added, replaced) = (axes.minus(own), own.minus(axes));
    let times = elements(graph, added.intersection(again).iter());
    if added.minus(again).is_empty() { times.div_ceil(elements(graph, replaced.iter())) } else { times }
}

/// Returns the points of a node's operands. All coordinates along an axis that a thread unrolls are one
/// point.
pub(super) fn operands(graph: &Graph, moves: &mut Moves, of: &Point) -> Vec<Point> {
    if graph.gather_of(of.0).is_none() {
        return graph.node(of.0).args.iter().map(|&arg| point(graph, arg, &of.1)).collect();
    }
    let Gathered { of: (id, mut at), by } = moves.gathered(graph, of);
    at.retain(|(_, coordinate)| matches!(coordinate, Coordinate::Moved(_)));
    [(id, at)].into_iter().chain(by).collect()
}
