//! Points: the coordinates along its axes at which a node's value is needed.
//!
//! A node has a value for each coordinate along its axes. Index operations read a value at other coordinates
//! than those of the current element. A point is a node with the coordinates of the axes that differ.
//!
//! Invariant: a coordinate is evaluated in the scope of the point that contains it. An inner binding of the
//! same axis does not change the coordinate.

use rustc_hash::FxHashMap;

use super::graph::{AxisId, AxisSet, Graph, NodeId, NodeKind};

/// A coordinate along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coordinate {
    /// A constant coordinate.
    Fixed(i64),
    /// A coordinate that a value gives.
    Moved(MoveId),
}

/// Coordinates along the axes that differ from the current element's, with each axis once.
pub type Coordinates = Vec<(AxisId, Coordinate)>;

/// A node and the coordinates at which its value is needed. The coordinates are along axes of the node only.
pub type Point = (NodeId, Coordinates);

/// A move of the table that the id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoveId(pub u32);

/// A coordinate that is computed by a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The value, an `i32`.
    pub index: Point,
    /// Conditions of type `bool`. All must be true for an element to exist at the coordinate.
    pub within: Vec<Point>,
}

/// A table of all moves met so far, without duplicates.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    all: Vec<(Move, AxisSet)>,
    known: FxHashMap<Move, MoveId>,
}

/// The operands of a gather at a point.
pub struct Gathered {
    /// The point of the gathered value.
    pub of: Point,
    /// The points of the index and of the optional condition. A static index has none.
    pub by: Vec<Point>,
}

/// Returns the point of the operand `id` of a node at the coordinates `at`, keeping only axes of the operand.
pub fn point(graph: &Graph, id: NodeId, at: &[(AxisId, Coordinate)]) -> Point {
    let axes = graph.node(id).axes;
    (id, at.iter().copied().filter(|&(axis, _)| axes.contains(axis)).collect())
}

/// Returns true if any coordinate is computed by a value.
pub fn is_moved(at: &[(AxisId, Coordinate)]) -> bool {
    at.iter().any(|(_, coordinate)| matches!(coordinate, Coordinate::Moved(_)))
}

impl Moves {
    /// Returns the move of this number.
    pub fn get(&self, id: MoveId) -> &Move {
        &self.all[id.0 as usize].0
    }

    /// Returns the number of moves.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if the table has no moves.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the axes of the current element along which the value at a point may vary.
    pub fn axes(&self, graph: &Graph, (id, at): &Point) -> AxisSet {
        let own = graph.node(*id).axes.minus(at.iter().map(|(axis, _)| *axis).collect());
        at.iter().fold(own, |axes, (_, coordinate)| match coordinate {
            Coordinate::Fixed(_) => axes,
            Coordinate::Moved(moved) => axes.union(self.all[moved.0 as usize].1),
        })
    }

    /// Returns the conditions under which an element exists at these coordinates, without duplicates.
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

    /// Returns the operands of the `NodeKind::Gather` node at a point.
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

    /// Returns the coordinate along `axis` for an index and its optional condition; `None` is the current
    /// element's.
    ///
    /// A bare coordinate of another axis is resolved to the coordinate of that axis if that coordinate is
    /// moved. So equal places get equal points through any number of renamed axes.
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

    /// Returns the move by the index `by[0]` under the condition `by[1]`, with the conditions of the index'
    /// own coordinates.
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
