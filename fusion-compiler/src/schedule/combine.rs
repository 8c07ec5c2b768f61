//! How values are combined.

use rustc_hash::FxHashSet;

use super::Work;
use crate::fuse::Load;
use crate::ir::graph::{NodeId, Reduce};
use crate::ir::kernel::{Builder, Value};
use crate::ir::ops::Op;

/// The values that follow from what is combined along rows.
pub(super) fn of_rows(work: &Work<'_>) -> FxHashSet<NodeId> {
    let mut found = FxHashSet::default();
    for &id in &work.group.nodes {
        let node = work.graph.node(id);
        let loaded = work.loads.contains_key(&Load::Stored(id));
        let follows = work.combines_row(id) || node.args.iter().any(|arg| found.contains(arg));
        if follows && !loaded {
            found.insert(id);
        }
    }
    found
}

/// What was combined so far, with what one more element has.
pub(super) fn with_term(b: &mut Builder<'_>, reduce: Reduce, so_far: Value, term: &[Value]) -> Value {
    match *term {
        [x, y] => b.apply(Op::Fma, &[x, y, so_far]),
        _ => b.apply(combine(reduce), &[so_far, term[0]]),
    }
}

/// The operation that combines two partial results.
pub(super) fn combine(reduce: Reduce) -> Op {
    match reduce {
        Reduce::Sum | Reduce::Dot => Op::Add,
        Reduce::Prod => Op::Mul,
        Reduce::Max => Op::Max,
        Reduce::MaxNum => Op::MaxNum,
        Reduce::Min => Op::Min,
    }
}
