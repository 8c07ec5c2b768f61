//! Sign analysis: derives the signs and ranges of values, so that operations on them take fewer steps.

use super::dtype::Const;
use super::graph::{Graph, NodeId, NodeKind, Reduce};
use super::op::Op;

/// A side of 0. Both sides include the zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Below,
    Above,
}

impl Graph {
    /// Returns true if the value is known to be at most 0, or NaN.
    pub fn is_nonpositive(&self, id: NodeId) -> bool {
        self.side(id, 4) == Some(Side::Below)
    }

    /// Returns the side of 0 of the value if it is not NaN, following its operands through at most `depth`
    /// operations.
    fn side(&self, id: NodeId, depth: u32) -> Option<Side> {
        let node = self.node(id);
        let depth = depth.checked_sub(1)?;
        let of = |i: usize| self.side(node.args[i], depth);
        let from_largest = || {
            let most = self.node(node.args[1]);
            matches!(most.kind, NodeKind::Reduce(Reduce::Max | Reduce::MaxNum, _))
                && most.args == node.args[..1]
        };
        if let Some(Const::Float(x)) = self.literal_of(id) {
            let side = if x < 0.0 { Side::Below } else { Side::Above };
            return Some(side).filter(|_| !x.is_nan());
        }
        let NodeKind::Apply(op) = node.kind else { return None };
        match op {
            Op::Abs | Op::Sqrt | Op::Exp => Some(Side::Above),
            Op::Mul if node.args[0] == node.args[1] => Some(Side::Above),
            Op::Mul => Some(if of(0)? == of(1)? { Side::Above } else { Side::Below }),
            Op::Neg => Some(if of(0)? == Side::Above { Side::Below } else { Side::Above }),
            Op::Add => of(0).filter(|side| of(1) == Some(*side)),
            Op::Sub if from_largest() => Some(Side::Below),
            _ => None,
        }
    }

    /// Returns true if the value is known to be between 1 and 2, or NaN.
    ///
    /// The recognised form is 1 plus the exponential of a nonpositive value.
    pub fn is_from_one_to_two(&self, id: NodeId) -> bool {
        let NodeKind::Apply(Op::Add) = self.node(id).kind else { return false };
        let is_one = |id| matches!(self.node(id).kind, NodeKind::Literal(Const::Float(x)) if x == 1.0);
        let is_part = |id| {
            let node = self.node(id);
            matches!(node.kind, NodeKind::Apply(Op::Exp)) && self.is_nonpositive(node.args[0])
        };
        let args = &self.node(id).args;
        is_one(args[0]) && is_part(args[1]) || is_part(args[0]) && is_one(args[1])
    }
}
