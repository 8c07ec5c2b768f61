//! Takes the largest of numbers alone where what is no number shows anyway: a softmax, say, divides by a sum that is NaN then.
//!
//! Of largest values that are NaN if an element is, a target computes three operations where one would do. Invariant: what the
//! graph stores stays the same, to the bit but for which NaN it is.

use crate::ir::graph::{AxisSet, Graph, Node, NodeId, NodeKind, Reduce};
use crate::ir::ops::Op;

/// Replaces each such reduction.
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

/// What is known of a value where an element of the row is NaN.
#[derive(Clone, Copy, Default)]
struct Known {
    /// It is made of the largest, and may be another where that passes over NaN.
    differs: bool,
    /// It is NaN in the place of that element; it has all dims of the row.
    has_element: bool,
    /// It is NaN all along the row, whether the largest is or not.
    is_nan: bool,
}

/// Whether all that is stored is the same if the largest passes over NaN. A sum along the row of what NaN makes NaN is NaN.
fn shows_anyway(graph: &Graph, largest: NodeId, axes: AxisSet) -> bool {
    let x = graph.node(largest).args[0];
    let mut all: Vec<Known> = Vec::with_capacity(graph.nodes.len());
    for (id, node) in graph.iter() {
        let any = |test: fn(&Known) -> bool| node.args.iter().any(|arg| test(&all[arg.0 as usize]));
        let differs = id == largest || any(|arg| arg.differs);
        let (of_element, of_nan) = (any(|arg| arg.has_element), any(|arg| arg.is_nan));
        let known = if let NodeKind::Reduce(reduce, along) = node.kind
            && id != largest
            && reduce != Reduce::MaxNum
        {
            let is_nan = of_element && along.contains_all(axes);
            Known { differs: differs && !is_nan, has_element: false, is_nan }
        } else if passes_nan(node) {
            Known { differs: differs && !of_nan, has_element: of_element, is_nan: of_nan }
        } else {
            Known { differs, ..Known::default() }
        };
        // What is of other rows as well, or of another, is followed no further.
        if known.differs && id != largest && matches!(node.kind, NodeKind::Reduce(..) | NodeKind::Gather(_)) {
            return false;
        }
        all.push(Known { has_element: known.has_element || id == x, ..known });
    }
    graph.outputs.iter().all(|output| !all[output.node.0 as usize].differs)
}

/// Whether it is NaN wherever an operand is.
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
