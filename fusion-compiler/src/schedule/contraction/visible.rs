//! Keys that masks leave to a row: an interval, whose ends are computed for each row.
//!
//! A masked score is `-INF`, and a masked weight without a softmax is 0. A comparison of the coordinate of a key with
//! anything else bounds the keys that are not masked, as in causal masks, windows and lengths. Other conditions bound
//! nothing. Ends are computed in `f64`, which has all sums of integers.

use crate::fuse::attention::Attention;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisId, Graph, Node, NodeId, NodeKind};
use crate::ir::op::Op;

/// Ends of an interval, each a node of floats, or none where there is no end.
#[derive(Clone, Copy)]
pub(super) struct Interval {
    /// The first coordinate.
    pub(super) first: Option<NodeId>,
    /// The last coordinate.
    pub(super) last: Option<NodeId>,
}

const ALL: Interval = Interval { first: None, last: None };

/// Returns the interval outside of which all keys are masked, and appends the nodes of its ends to the graph.
pub(super) fn visible(graph: &mut Graph, of: &Attention) -> Interval {
    let (scores, masked) = match &of.softmax {
        Some(softmax) => (graph.node(softmax.largest).args[0], f64::NEG_INFINITY),
        None => (of.weights, 0.0),
    };
    let Some(&[condition, chosen, otherwise]) = graph.operands_of(scores, Op::Select) else { return ALL };
    let is_masked = |id: NodeId| graph.literal_of(id) == Some(Const::Float(masked));
    let holds = match [chosen, otherwise].map(is_masked) {
        [false, true] => true,
        [true, false] => false,
        _ => return ALL,
    };
    Bounds { graph, along: of.along }.of(condition, holds)
}

/// Returns true for the ends beyond which keys are not computed: before the first one that a row sees, and after the
/// last one.
pub fn has_ends(graph: &Graph, of: &Attention) -> [bool; 2] {
    let Interval { first, last } = visible(&mut graph.clone(), of);
    [first.is_some(), last.is_some()]
}

/// A search for the bounds of a coordinate.
struct Bounds<'g> {
    graph: &'g mut Graph,
    along: AxisId,
}

impl Bounds<'_> {
    /// Returns an interval with all coordinates where a condition holds, or where it does not.
    fn of(&mut self, condition: NodeId, holds: bool) -> Interval {
        let node = self.graph.node(condition).clone();
        let NodeKind::Apply(op) = node.kind else { return ALL };
        match (op, node.args.as_slice()) {
            (Op::Not, &[of]) => self.of(of, !holds),
            (Op::And | Op::Or, &[left, right]) => {
                let sides = [left, right].map(|side| self.of(side, holds));
                let both = (op == Op::And) == holds;
                let [firsts, lasts] = [sides.map(|side| side.first), sides.map(|side| side.last)];
                let (inner, outer) = ((Op::Max, Op::Min), (Op::Min, Op::Max));
                let (of_first, of_last) = if both { inner } else { outer };
                Interval { first: self.end(firsts, of_first, both), last: self.end(lasts, of_last, both) }
            }
            (Op::Lt | Op::Le | Op::Gt | Op::Ge, &[left, right]) => {
                let op = if holds { op } else { opposite(op) };
                let interval = self.compared(left, op, right);
                interval.or_else(|| self.compared(right, mirrored(op), left)).unwrap_or(ALL)
            }
            _ => ALL,
        }
    }

    /// Returns an end of the intersection of two intervals, or of the smallest interval that has both.
    fn end(&mut self, ends: [Option<NodeId>; 2], op: Op, both: bool) -> Option<NodeId> {
        match ends {
            [Some(left), Some(right)] => Some(self.apply(op, &[left, right])),
            [one, other] if both => one.or(other),
            _ => None,
        }
    }

    /// Returns the interval where a sum with the coordinate compares like this with a value that has no keys.
    fn compared(&mut self, sum: NodeId, op: Op, with: NodeId) -> Option<Interval> {
        let node = self.graph.node(with);
        if node.axes.contains(self.along) || !matches!(node.dtype, DType::I32) {
            return None;
        }
        let limit = self.float(with);
        let (limit, op) = self.solved(sum, (limit, op))?;
        // Coordinates are whole numbers.
        Some(match op {
            Op::Lt => Interval { last: Some(self.plus(limit, -1.0)), ..ALL },
            Op::Le => Interval { last: Some(limit), ..ALL },
            Op::Gt => Interval { first: Some(self.plus(limit, 1.0)), ..ALL },
            _ => Interval { first: Some(limit), ..ALL },
        })
    }

    /// Returns what the coordinate itself compares with, and how, if a sum of it compares with the limit.
    fn solved(&mut self, sum: NodeId, (limit, op): (NodeId, Op)) -> Option<(NodeId, Op)> {
        let node = self.graph.node(sum).clone();
        match (&node.kind, node.args.as_slice()) {
            (NodeKind::Coord(axis), []) => (*axis == self.along).then_some((limit, op)),
            (NodeKind::Apply(Op::Add), &[left, right]) => {
                let (with, other) = if self.has_keys(left) { (left, right) } else { (right, left) };
                let other = self.small(other)?;
                let limit = self.apply(Op::Sub, &[limit, other]);
                self.solved(with, (limit, op))
            }
            (NodeKind::Apply(Op::Sub), &[left, right]) if self.has_keys(left) => {
                let right = self.small(right)?;
                let limit = self.apply(Op::Add, &[limit, right]);
                self.solved(left, (limit, op))
            }
            (NodeKind::Apply(Op::Sub), &[left, right]) => {
                let left = self.small(left)?;
                let limit = self.apply(Op::Sub, &[left, limit]);
                self.solved(right, (limit, mirrored(op)))
            }
            _ => None,
        }
    }

    fn has_keys(&self, id: NodeId) -> bool {
        self.graph.node(id).axes.contains(self.along)
    }

    /// Returns a coordinate or an extent as a float. The difference of two coordinates does not wrap; sums with other
    /// integers may.
    fn small(&mut self, id: NodeId) -> Option<NodeId> {
        let is_small = matches!(self.graph.node(id).kind, NodeKind::Coord(_) | NodeKind::Extent(_));
        (is_small && !self.has_keys(id)).then(|| self.float(id))
    }

    fn float(&mut self, id: NodeId) -> NodeId {
        let Node { axes, span, .. } = *self.graph.node(id);
        self.graph.push(Node { kind: NodeKind::Cast, args: vec![id], dtype: DType::F64, axes, span })
    }

    fn plus(&mut self, id: NodeId, number: f64) -> NodeId {
        let number = self.graph.literal(Const::Float(number), DType::F64, self.graph.node(id).span);
        self.apply(Op::Add, &[id, number])
    }

    fn apply(&mut self, op: Op, args: &[NodeId]) -> NodeId {
        self.graph.apply(op, args, self.graph.node(args[0]).span)
    }
}

/// Returns the comparison that holds where another one does not.
fn opposite(op: Op) -> Op {
    match op {
        Op::Lt => Op::Ge,
        Op::Le => Op::Gt,
        Op::Gt => Op::Le,
        _ => Op::Lt,
    }
}

/// Returns the comparison of the operands in the other order.
fn mirrored(op: Op) -> Op {
    match op {
        Op::Lt => Op::Gt,
        Op::Le => Op::Ge,
        Op::Gt => Op::Lt,
        _ => Op::Le,
    }
}
