//! Points: where along its axes a node's value is wanted.
//!
//! A node has a value for each coordinate along its axes. Index operations want it at other coordinates than those of the
//! element that is computed: so a point is a node with what some of its axes are there. Invariant: a coordinate belongs to
//! the point that it is written at, not to where it is used: what binds the same axis further in does not change it.

use rustc_hash::FxHashMap;

use super::graph::{AxisId, AxisSet, Graph, NodeId, NodeKind};

/// Where along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coordinate {
    /// There.
    Fixed(i64),
    /// Where a value says.
    Moved(MoveId),
}

/// Where along those axes that are not what they are for the element at hand, each axis once.
pub type Coordinates = Vec<(AxisId, Coordinate)>;

/// A node, and where its value is wanted; only axes that it has.
pub type Point = (NodeId, Coordinates);

/// A move of the table it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoveId(pub u32);

/// A coordinate that a value gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The value, an `i32`.
    pub index: Point,
    /// Truth values, of which all must hold for there to be something at the coordinate.
    pub within: Vec<Point>,
}

/// All moves met so far, each once.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    all: Vec<(Move, AxisSet)>,
    known: FxHashMap<Move, MoveId>,
}

/// What a node picks elements of, and where.
pub struct Gathered {
    /// What they are elements of, there.
    pub of: Point,
    /// What says where, and where there are some: nothing for a place that is known.
    pub by: Vec<Point>,
}

/// The point of a node, given where the point lies that it is a part of.
pub fn point(graph: &Graph, id: NodeId, at: &[(AxisId, Coordinate)]) -> Point {
    let axes = graph.node(id).axes;
    (id, at.iter().copied().filter(|&(axis, _)| axes.contains(axis)).collect())
}

/// Whether it is the value of another element than the one at hand.
pub fn is_moved(at: &[(AxisId, Coordinate)]) -> bool {
    at.iter().any(|(_, coordinate)| matches!(coordinate, Coordinate::Moved(_)))
}

impl Moves {
    /// The move of this number.
    pub fn get(&self, id: MoveId) -> &Move {
        &self.all[id.0 as usize].0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The axes of the element at hand along which the value at a point varies, or may.
    pub fn axes(&self, graph: &Graph, (id, at): &Point) -> AxisSet {
        let own = graph.node(*id).axes.minus(at.iter().map(|(axis, _)| *axis).collect());
        at.iter().fold(own, |axes, (_, coordinate)| match coordinate {
            Coordinate::Fixed(_) => axes,
            Coordinate::Moved(moved) => axes.union(self.all[moved.0 as usize].1),
        })
    }

    /// What must hold for there to be something at a point.
    pub fn within(&self, at: &[(AxisId, Coordinate)]) -> Vec<Point> {
        let mut all: Vec<Point> = Vec::new();
        for (_, coordinate) in at {
            let Coordinate::Moved(moved) = coordinate else { continue };
            for point in &self.get(*moved).within {
                if !all.contains(point) {
                    all.push(point.clone());
                }
            }
        }
        all
    }

    /// What a node of `NodeKind::Gather` picks elements of at a point.
    pub fn gathered(&mut self, graph: &Graph, (id, at): &Point) -> Gathered {
        let node = graph.node(*id);
        let NodeKind::Gather(axis) = node.kind else { unreachable!("only `at` picks") };
        let by: Vec<Point> = match graph.static_index(*id) {
            Some(_) => vec![],
            None => node.args[1..].iter().map(|&arg| point(graph, arg, at)).collect(),
        };
        let coordinate = match graph.static_index(*id) {
            Some((_, place)) => Some(Coordinate::Fixed(place)),
            None => self.coordinate(graph, axis, &by),
        };
        let others = at.iter().copied().filter(|&(other, _)| other != axis);
        let there: Coordinates = others.chain(coordinate.map(|coordinate| (axis, coordinate))).collect();
        Gathered { of: point(graph, node.args[0], &there), by }
    }

    /// Where along an axis these say; nothing for where the element at hand is. The coordinate along another axis is what that is
    /// there, so that a value is at one place however many names lead to it.
    fn coordinate(&mut self, graph: &Graph, axis: AxisId, by: &[Point]) -> Option<Coordinate> {
        if let [(id, at)] = by
            && let NodeKind::Coord(along) = graph.node(*id).kind
        {
            match at.first() {
                Some(&(_, there @ Coordinate::Moved(_))) => return Some(there),
                None if along == axis => return None,
                Some(_) | None => {}
            }
        }
        Some(Coordinate::Moved(self.moved(graph, by)))
    }

    /// The coordinate that the first of these says, where the second holds and wherever there is something at both.
    fn moved(&mut self, graph: &Graph, by: &[Point]) -> MoveId {
        let (index, own) = (&by[0], &by[1..]);
        let mut within = own.to_vec();
        for point in self.within(&index.1) {
            if !within.contains(&point) {
                within.push(point);
            }
        }
        let moved = Move { index: index.clone(), within };
        if let Some(&known) = self.known.get(&moved) {
            return known;
        }
        let parts = [&moved.index].into_iter().chain(&moved.within);
        let axes = parts.map(|part| self.axes(graph, part)).fold(AxisSet::EMPTY, AxisSet::union);
        self.all.push((moved.clone(), axes));
        let id = MoveId(self.all.len() as u32 - 1);
        self.known.insert(moved, id);
        id
    }
}
