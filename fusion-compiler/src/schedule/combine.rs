//! How values are combined.

use rustc_hash::FxHashSet;

use super::Work;
use crate::fuse::Load;
use crate::ir::graph::{NodeId, Reduce};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;
use crate::target::tuning_table::all;

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

/// Combines a few terms. Short chains of terms are combined by twos, so that a sum is rounded seldom.
pub(super) fn written_out(b: &mut Builder<'_>, reduce: Reduce, terms: &[Value]) -> Value {
    let chain = |terms: &[Value]| {
        let mut terms = terms.chunks_exact(reduce.arity());
        let first = terms.next().unwrap_or_else(|| unreachable!("there is a term"));
        let first = if let [x, y] = *first { b.apply(Op::Mul, &[x, y]) } else { first[0] };
        terms.fold(first, |so_far, term| with_term(b, reduce, so_far, term))
    };
    // A product and the chain before it are one operation.
    let at_once =
        if reduce == Reduce::Dot || terms.len() <= all::CHAIN { all::CHAIN * reduce.arity() } else { 2 };
    let mut all: Vec<Value> = terms.chunks(at_once).map(chain).collect();
    while all.len() > 1 {
        let of_two = |two: &[Value]| if two.len() == 1 { two[0] } else { b.apply(combine(reduce), two) };
        all = all.chunks(2).map(of_two).collect();
    }
    all[0]
}
