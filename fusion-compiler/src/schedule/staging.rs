//! What of the elements of a row is kept from one run along it to the next.
//!
//! A run makes anew whatever it needs of each element. What costs too much for that is made in the first run that needs
//! it, and held in memory close by. Where several such values are only needed for one that is made of them, that is held.

use std::collections::{BTreeMap, BTreeSet};

use super::Work;
use crate::fuse::{Load, is_op, is_transcendental};
use crate::ir::dtype::DType;
use crate::ir::graph::{Node, NodeId, NodeKind, Reduce};
use crate::ir::kernel::BufferId;
use crate::target::tuning_table::cpu;
use crate::target::{RowMemory, TargetFacts};

/// The values of the elements of a row that are kept, because several runs along it need them and it costs too much to
/// make them again: what is transcendental, what takes many operations, and what is read from far. Of those that may be.
pub(super) fn staged_values(
    work: &Work<'_>,
    facts: &TargetFacts,
    may_be: &dyn Fn(NodeId) -> bool,
) -> Vec<NodeId> {
    let mut staged = BTreeSet::new();
    let passes = passes(work, &staged);
    let several = |id: NodeId| passes.get(&id).is_some_and(|passes| passes.len() > 1);
    let again = |id: NodeId| several(id) && is_element(work, id) && may_be(id);
    let mut costly: BTreeSet<NodeId> = BTreeSet::new();
    for &id in work.group.nodes.iter().filter(|&&id| again(id)) {
        let node = work.graph.node(id);
        let op_costs = matches!(node.kind, NodeKind::Apply(op) if is_transcendental(op))
            || facts.row_memory == RowMemory::Scratch
                && operations(work, id, &staged) > cpu::RECOMPUTED_OPS_MAX;
        if !op_costs && !node.args.iter().any(|arg| costly.contains(arg)) {
            continue;
        }
        let within = |user: &&NodeId| again(**user) && !is_reduced(work, **user);
        let users = || work.group.nodes.iter().filter(|&&user| work.graph.node(user).args.contains(&id));
        let stored = work.group.stores.iter().any(|store| store.node == id);
        // Kept where it leaves what all of those runs make.
        if stored || users().any(|user| !within(&user)) {
            staged.insert(id);
        } else {
            costly.insert(id);
        }
    }
    if facts.row_memory != RowMemory::Scratch {
        staged.extend(joints(work, &staged, may_be));
        let passes = self::passes(work, &staged);
        let far = |id: &NodeId| is_far(work, *id) && is_element(work, *id) && may_be(*id);
        let again = passes.iter().filter(|(id, passes)| far(id) && passes.len() > 1);
        staged.extend(again.map(|(id, _)| *id).collect::<Vec<_>>());
    }
    staged.into_iter().collect()
}

/// What these values are converted from, where each is a float that is read from far in two bytes: to convert them again takes less than
/// to hold twice as much.
pub(super) fn as_read(work: &Work<'_>, staged: &[NodeId]) -> Option<Vec<NodeId>> {
    let read = |id: &NodeId| {
        let node = work.graph.node(*id);
        let of_two_bytes = |arg: &NodeId| matches!(work.graph.node(*arg).dtype, DType::F16 | DType::BF16);
        let converts = node.kind == NodeKind::Cast && load_of(work, *id).is_none();
        let from = node.args.first().filter(|_| converts);
        from.copied().filter(|arg| of_two_bytes(arg) && is_far(work, *arg))
    };
    let read: Vec<NodeId> = staged.iter().map(read).collect::<Option<_>>()?;
    let dtype = |id: &NodeId| work.graph.node(*id).dtype;
    read.iter().all(|id| dtype(id) == dtype(&read[0])).then_some(read)
}

/// The places in memory for these values, in their order, each as long as a row, and whether a value is the first there: one whose
/// value is needed for the last time where another is made of it has room for that.
pub(super) fn places(work: &Work<'_>, of: &[NodeId]) -> Vec<(usize, bool)> {
    let staged: BTreeSet<NodeId> = of.iter().copied().collect();
    let passes = passes(work, &staged);
    let (first, last) = (|id: &NodeId| passes[id].first(), |id: &NodeId| passes[id].last());
    let mut in_order: Vec<NodeId> = staged.iter().copied().collect();
    in_order.sort_by_key(|id| (first(id), *id));
    let (mut kept, mut places): (Vec<NodeId>, BTreeMap<NodeId, (usize, bool)>) = (vec![], BTreeMap::new());
    for id in in_order {
        let made_of = made_of(work, id, &staged);
        let is_free =
            |other: &NodeId| last(other) < first(&id) || last(other) == first(&id) && made_of.contains(other);
        let place = kept.iter().position(is_free).unwrap_or(kept.len());
        places.insert(id, (place, place == kept.len()));
        match kept.get_mut(place) {
            Some(other) => *other = id,
            None => kept.push(id),
        }
    }
    of.iter().map(|id| places[id]).collect()
}

/// The values that take the place of several that are read from far, because nothing else is made of those again: the sum of
/// an input and its residual, say. The last such value of a row, so that the least is made of it again.
fn joints(work: &Work<'_>, staged: &BTreeSet<NodeId>, may_be: &dyn Fn(NodeId) -> bool) -> Vec<NodeId> {
    let (graph, group) = (work.graph, work.group);
    let passes = passes(work, staged);
    let several = |id: NodeId| passes.get(&id).is_some_and(|passes| passes.len() > 1);
    let again = |id: NodeId| several(id) && is_element(work, id) && may_be(id);
    let mut joints: Vec<NodeId> = Vec::new();
    let mut joined: BTreeSet<NodeId> = BTreeSet::new();
    let candidates = group.nodes.iter().rev().filter(|&&id| again(id) && !is_reduced(work, id));
    for &joint in candidates {
        let made_of = made_of(work, joint, staged);
        let far: BTreeSet<NodeId> =
            made_of.iter().copied().filter(|&id| is_far(work, id) && again(id)).collect();
        if staged.contains(&joint) || far.len() < 2 || !far.is_disjoint(&joined) {
            continue;
        }
        // What is made of those that are far, in order.
        let mut between = BTreeSet::new();
        for &id in &made_of {
            let of_far = graph.node(id).args.iter().any(|arg| between.contains(arg));
            if far.contains(&id) || of_far && !is_far(work, id) {
                between.insert(id);
            }
        }
        between.remove(&joint);
        let stored = |id: NodeId| group.stores.iter().any(|store| store.node == id);
        let is_of_joint = |user: NodeId| user == joint || between.contains(&user);
        let used_elsewhere = |id: NodeId| {
            let mut users = group.nodes.iter().filter(|&&user| graph.node(user).args.contains(&id));
            users.any(|&user| !is_of_joint(user))
        };
        if !between.iter().any(|&id| stored(id) || used_elsewhere(id)) {
            joints.push(joint);
            joined.extend(far);
        }
    }
    joints
}

/// What a value of an element is made of in the run that makes it, itself included.
fn made_of(work: &Work<'_>, made: NodeId, staged: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
    let (mut all, mut open) = (BTreeSet::new(), vec![made]);
    while let Some(id) = open.pop() {
        let known = is_reduced(work, id) || is_far(work, id) || staged.contains(&id) && id != made;
        if all.insert(id) && !known {
            open.extend(&work.graph.node(id).args);
        }
    }
    all
}

/// How many operations each element of a value takes in the run that makes it.
fn operations(work: &Work<'_>, id: NodeId, staged: &BTreeSet<NodeId>) -> usize {
    let takes = |id: &&NodeId| is_op(work.graph, work.graph.node(**id)) && is_of_elements(work, **id);
    let known = |id: &&NodeId| is_reduced(work, **id) || staged.contains(id);
    made_of(work, id, staged).iter().filter(|id| takes(id) && !known(id)).count()
}

/// Whether a value is an `f32` of each element of a row.
fn is_element(work: &Work<'_>, id: NodeId) -> bool {
    work.graph.node(id).dtype == DType::F32 && is_of_elements(work, id)
}

fn is_of_elements(work: &Work<'_>, id: NodeId) -> bool {
    work.group.cols.iter().all(|&axis| work.graph.node(id).axes.contains(axis))
}

fn is_reduced(work: &Work<'_>, id: NodeId) -> bool {
    !work.graph.looped_axes(id).is_empty()
}

/// Whether a value is read from far: from memory, at its own place or at another, in the type that it is computed in or as what
/// that is converted from.
fn is_far(work: &Work<'_>, id: NodeId) -> bool {
    let node = work.graph.node(id);
    let is_gather = matches!(node.kind, NodeKind::Gather(_));
    let widens = |arg: &NodeId| work.graph.node(*arg).dtype.is_narrow() && is_far(work, *arg);
    let converts = node.kind == NodeKind::Cast && node.args.iter().any(widens);
    load_of(work, id).is_some() || is_gather && work.graph.static_index(id).is_none() || converts
}

/// The buffer that a value is read from.
fn load_of(work: &Work<'_>, id: NodeId) -> Option<BufferId> {
    work.group.load_of(work.graph, id).and_then(|load| work.loads.get(&load)).copied()
}

/// The runs along a row that make each value anew, by number; those `staged` are made in the first that needs them.
fn passes(work: &Work<'_>, staged: &BTreeSet<NodeId>) -> BTreeMap<NodeId, BTreeSet<usize>> {
    let mut roots = steps(work);
    let elements = work.group.stores.iter().filter(|store| work.group.is_of_elements(store));
    roots.extend(elements.map(|store| (usize::MAX, store.node)));
    roots.sort();
    let mut passes: BTreeMap<NodeId, BTreeSet<usize>> = BTreeMap::new();
    for (pass, root) in roots {
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            let before = passes.entry(id).or_default();
            let kept = staged.contains(&id) && before.iter().any(|&other| other != pass);
            let known = !before.insert(pass) && id != root;
            // What is combined along the row is known from the runs before.
            let combined = id != root && is_reduced(work, id);
            if !kept && !known && !combined && !work.loads.contains_key(&Load::Stored(id)) {
                let args = &work.graph.node(id).args;
                // A gather reads its operand at another element.
                let is_gather = matches!(work.graph.node(id).kind, NodeKind::Gather(_));
                open.extend(if is_gather && is_far(work, id) {
                    args.get(1..).unwrap_or_default()
                } else {
                    args
                });
            }
        }
    }
    passes
}

/// What is combined along rows, each with how many times the row has to have been gone through before.
pub(super) fn steps(work: &Work<'_>) -> Vec<(usize, NodeId)> {
    let mut steps: Vec<(usize, NodeId)> = Vec::new();
    let mut depth = vec![0usize; work.graph.nodes.len()];
    for &id in &work.group.nodes {
        let node = work.graph.node(id);
        let before = node.args.iter().map(|arg| depth[arg.0 as usize]).max().unwrap_or(0);
        let combines = work.combines_row(id);
        depth[id.0 as usize] = before + usize::from(combines);
        if combines {
            steps.push((before, id));
        }
    }
    steps
}

/// How a value is combined along rows.
pub(super) fn reduce_of(work: &Work<'_>, id: NodeId) -> Reduce {
    reduction(work.graph.node(id))
}

/// How a reduction combines.
pub(super) fn reduction(node: &Node) -> Reduce {
    let NodeKind::Reduce(reduce, _) = node.kind else { unreachable!("only reductions combine") };
    reduce
}
