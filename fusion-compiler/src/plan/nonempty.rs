//! Dims that must not be empty, because a result is a maximum or minimum along them.
//!
//! A dim may be empty where the result has it too, as in a softmax, or where the result is a sum over it.
//! Without elements along the dim, no element of the result needs the maximum.

use std::collections::BTreeSet;

use crate::ir::graph::{AxisId, AxisSet, Graph, Reduce};

/// Returns these axes, by number.
pub(crate) fn axes(graph: &Graph) -> Vec<AxisId> {
    let all = graph.all_axes();
    // Axes along which a node is needed even if they are empty, for each node.
    let mut asked = vec![AxisSet::EMPTY; graph.nodes.len()];
    for output in &graph.outputs {
        let without = &mut asked[output.node.0 as usize];
        *without = without.union(all.minus(graph.parts(&output.axes).into_iter().collect()));
    }
    let mut nonempty = BTreeSet::new();
    for (id, node) in graph.iter().rev() {
        let without = asked[id.0 as usize];
        if let Some(Reduce::Max | Reduce::MaxNum | Reduce::Min) = graph.reduce_of(id) {
            nonempty.extend(graph.reduced_axes(id).iter().filter(|&axis| without.contains(axis)));
        }
        // An element of a gather implies an element along the axis.
        let of_args = without.minus(graph.replaced_axes(id));
        for arg in &node.args {
            let known = &mut asked[arg.0 as usize];
            *known = known.union(of_args);
        }
    }
    let is_known = |axis: &AxisId| graph.axis(*axis).extent.as_const().is_some_and(|extent| extent > 0);
    nonempty.into_iter().filter(|axis| !is_known(axis)).collect()
}
