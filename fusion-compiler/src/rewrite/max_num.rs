//! Replaces NaN-propagating maxima by maxima of numbers where NaN reaches the result anyway. A softmax, for
//! example, divides by a sum that is then NaN.
//!
//! A NaN-propagating maximum takes three operations on a target where a maximum of numbers takes one.
//! Invariant: the stored values stay the same to the bit, except for the bits of a NaN.

use crate::ir::graph::{AxisSet, Graph, Node, NodeId, NodeKind, Reduce};
use crate::ir::op::Op;

/// Replaces each maximum whose NaN reaches all results anyway.
pub fn max_num(mut graph: Graph) -> Graph {
    for i in 0..graph.nodes.len() {
        let id = NodeId(i as u32);
        if let NodeKind::Reduce(Reduce::Max, axes) = graph.node(id).kind
            && graph.node(id).dtype.is_float()
            && shows_anyway(&graph, id, axes)
        {
            graph.nodes[i].kind = NodeKind::Reduce(Reduce::MaxNum, axes);
        }
    }
    graph
}

/// Facts about a value in a row with a NaN element.
#[derive(Clone, Copy, Default)]
struct NanFacts {
    /// True if the value depends on the maximum, and may change if the maximum ignores NaN.
    differs: bool,
    /// True if the value is NaN at the position of the NaN element. The value then has all dims of the row.
    has_element: bool,
    /// True if the value is NaN along the whole row, whatever the maximum.
    is_nan: bool,
}

/// Returns true if all stored values are the same if the maximum ignores NaN. A reduction along the row over
/// a value that is NaN at the element is NaN.
fn shows_anyway(graph: &Graph, largest: NodeId, axes: AxisSet) -> bool {
    let x = graph.node(largest).args[0];
    let mut all: Vec<NanFacts> = Vec::with_capacity(graph.nodes.len());
    for (id, node) in graph.iter() {
        let any = |test: fn(&NanFacts) -> bool| node.args.iter().any(|arg| test(&all[arg.0 as usize]));
        let differs = id == largest || any(|arg| arg.differs);
        let (of_element, of_nan) = (any(|arg| arg.has_element), any(|arg| arg.is_nan));
        let known = if let NodeKind::Reduce(reduce, along) = node.kind
            && id != largest
            && reduce != Reduce::MaxNum
        {
            let is_nan = of_element && along.contains_all(axes);
            NanFacts { differs: differs && !is_nan, has_element: false, is_nan }
        } else if passes_nan(node) {
            NanFacts { differs: differs && !of_nan, has_element: of_element, is_nan: of_nan }
        } else {
            NanFacts { differs, ..NanFacts::default() }
        };
        // Reductions and gathers may combine several rows, or read another row. The analysis ends at such a
        // node.
        if known.differs && id != largest && matches!(node.kind, NodeKind::Reduce(..) | NodeKind::Gather(_)) {
            return false;
        }
        all.push(NanFacts { has_element: known.has_element || id == x, ..known });
    }
    graph.outputs.iter().all(|output| !all[output.node.0 as usize].differs)
}

/// Returns true if an operation is NaN wherever an operand is.
fn passes_nan(node: &Node) -> bool {
    let NodeKind::Apply(op) = node.kind else { return node.kind == NodeKind::Cast && node.dtype.is_float() };
    let all = [
        Op::Add,
        Op::Sub,
        Op::Mul,
        Op::Div,
        Op::DivNearOne,
        Op::Fma,
        Op::Neg,
        Op::Abs,
        Op::Max,
        Op::Min,
        Op::Sqrt,
        Op::Exp,
        Op::Exp2,
        Op::Expm1,
        Op::Log,
        Op::Log2,
        Op::Log1p,
        Op::Tanh,
    ];
    all.contains(&op)
}
