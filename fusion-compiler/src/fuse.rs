//! Graph → groups: the nodes that share a kernel, with the reason for every boundary.
//!
//! A group is a set of stored values over one space. All its stores have one order of axes or, with a
//! reduction in a loop, some have one value for each row and some one for each element of a row. A group
//! computes every value that its stores need and no group stores, from the nodes alone; several groups may
//! compute the same value. This pass only decides which values to store, and which stores share a kernel. The
//! search starts from the results of the function and adds stores until no rule is broken. The outcome is
//! deterministic, and the same for every target up to the budget of buffers.

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::dtype::DType;
use crate::ir::graph::{
    AxisId, AxisSet, Dest, Fusing, Graph, Node, NodeId, NodeKind, Output, Param, ParamId,
};
use crate::ir::op::Op;
use crate::ops::Lower;
use crate::target::TargetFacts;
use rules::Budget;

pub mod attention;
mod in_place;
mod loops;
mod points;
pub mod products;
mod rules;
mod space;

pub use loops::fuse_for;

/// Result of fusion.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouping {
    /// Groups, in an order in which they can run.
    pub groups: Vec<Group>,
    /// Temporaries, which only other groups read, each with its reason.
    pub boundaries: BTreeMap<NodeId, Reason>,
    /// Results that share no group with an earlier result, by position in the graph's outputs, each with its
    /// reason.
    pub apart: BTreeMap<usize, Reason>,
    /// `&mut` parameters that cannot be overwritten in place, because the old value is read late.
    pub double_buffered: BTreeSet<ParamId>,
}

/// Nodes of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Stored values, in topological order.
    pub stores: Vec<Store>,
    /// Axes that threads are spread over, outermost first: those of all stores, or those of the rows.
    pub order: Vec<AxisId>,
    /// Axes of a row, outermost first: the axes of reductions in loops.
    pub cols: Vec<AxisId>,
    /// Computed nodes, in topological order.
    pub nodes: Vec<NodeId>,
    /// Loaded values.
    pub loads: BTreeSet<Load>,
    /// Loads at other coordinates than those of the current element, with the axes of the elements read, as
    /// far as known.
    pub moved: BTreeMap<Load, AxisSet>,
    /// Fixed axes that each thread unrolls. Unrolled axes of `order` are its innermost ones.
    pub unrolled: AxisSet,
}

/// Value that a group writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// Node of the value.
    pub node: NodeId,
    /// Position in the graph's outputs, or none for a temporary.
    pub output: Option<usize>,
    /// Axes in memory, outermost first.
    pub order: Vec<AxisId>,
}

/// Value that a group reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Tensor of the caller.
    Param(ParamId),
    /// Value that another group stores.
    Stored(NodeId),
}

/// Reason why a value is stored between kernels, or why a result has a kernel of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The function has `#[fuse(off)]`.
    Off,
    /// Several kernels need the value, and computing it again costs more than reading it.
    Shared,
    /// The value is reduced or indexed along an axis that the kernel does not write innermost.
    Layout(AxisId),
    /// The value is reduced along these axes, and its user does not iterate over the rows along them.
    Rows(AxisSet),
    /// The value is needed at other coordinates, and computing it for each of them costs more than reading
    /// it.
    Moved,
    /// The kernel would compute the value again along these axes, which costs more than reading it.
    Repeated(AxisSet),
    /// The group needs more buffers than a kernel can bind: the number needed, and the limit.
    Buffers(usize, usize),
    /// No earlier kernel writes these axes in this order.
    Order,
    /// A contraction has a kernel of its own, in which tiles compute the products.
    Product,
    /// The store needs a value that another kernel computes from the results of this one.
    Waits,
}

/// Fuses a graph. Kernels bind the parameters in `twice` as two buffers: old and new value.
pub fn fuse(graph: &Graph, facts: &TargetFacts, twice: &BTreeSet<ParamId>) -> Grouping {
    let budget = Budget::new(facts, twice);
    let mut cuts = BTreeMap::new();
    if graph.fusing == Fusing::Off {
        let ops = graph.iter().map(|(id, _)| id).filter(storable(graph));
        cuts.extend(ops.map(|id| (id, Reason::Off)));
    }
    loop {
        let (groups, apart) = assign(graph, &cuts, budget);
        match rules::broken(graph, &groups, budget) {
            Some((node, reason)) => {
                let before = cuts.insert(node, reason);
                assert!(before.is_none(), "storing a value mends the rule that asked for it");
            }
            None => return without_unread(graph, budget, (groups, apart), cuts),
        }
    }
}

/// Drops the temporaries that no group reads once later rules have stored more values.
fn without_unread(
    graph: &Graph,
    budget: Budget<'_>,
    (groups, apart): (Vec<Group>, BTreeMap<usize, Reason>),
    mut cuts: BTreeMap<NodeId, Reason>,
) -> Grouping {
    let read = |node| groups.iter().any(|group| group.loads.contains(&Load::Stored(node)));
    let unread = |store: &Store| store.output.is_none() && !read(store.node);
    let mut kept = groups.clone();
    kept.iter_mut().for_each(|group| group.stores.retain(|store| !unread(store)));
    kept.retain(|group| !group.stores.is_empty());
    cuts.retain(|&node, _| read(node));
    let (fewer, others) = assign(graph, &cuts, budget);
    if rules::broken(graph, &fewer, budget).is_none() {
        return finish(graph, fewer, cuts, others);
    }
    // A new distribution of the stores may break the rules again. The groups then stay, without the unread
    // stores.
    settle(graph, &mut kept);
    let groups = if rules::broken(graph, &kept, budget).is_none() { kept } else { groups };
    finish(graph, groups, cuts, apart)
}

fn finish(
    graph: &Graph,
    groups: Vec<Group>,
    boundaries: BTreeMap<NodeId, Reason>,
    apart: BTreeMap<usize, Reason>,
) -> Grouping {
    let double_buffered = graph.outputs.iter().enumerate().filter_map(|(i, output)| match output.dest {
        Dest::InPlace(param) => in_place::is_read_late(graph, &groups, i, param).then_some(param),
        Dest::Fresh => None,
    });
    Grouping { double_buffered: double_buffered.collect(), boundaries, apart, groups: ordered(groups) }
}

/// Sorts groups topologically: each comes after the groups it reads from.
fn ordered(mut groups: Vec<Group>) -> Vec<Group> {
    let mut done: Vec<Group> = Vec::with_capacity(groups.len());
    while !groups.is_empty() {
        let waits = |group: &Group| {
            groups
                .iter()
                .any(|other| other.stores.iter().any(|s| group.loads.contains(&Load::Stored(s.node))))
        };
        let ready = groups.iter().position(|group| !waits(group));
        done.push(
            groups
                .remove(ready.unwrap_or_else(|| unreachable!("groups that wait for each other never merge"))),
        );
    }
    done
}

/// Distributes results and temporaries over groups. Returns the groups, and the reason for each result that
/// begins one.
fn assign(
    graph: &Graph,
    cuts: &BTreeMap<NodeId, Reason>,
    budget: Budget<'_>,
) -> (Vec<Group>, BTreeMap<usize, Reason>) {
    let stores = stores(graph, cuts);
    let stored: BTreeSet<NodeId> = stores.iter().map(|store| store.node).collect();
    let with = |group: &Group, store: &Store| {
        let mut both = group.clone();
        both.stores.push(store.clone());
        both.fill(graph, |node| stored.contains(&node));
        both
    };
    let off = (graph.fusing == Fusing::Off).then_some(Reason::Off);
    let (mut groups, mut apart): (Vec<Group>, BTreeMap<usize, Reason>) = (Vec::new(), BTreeMap::new());
    // All stores may share one group where they do not pairwise. A global reduction shares a group only with
    // row reductions, which may come later.
    if let Some((first, others)) = stores.split_first().filter(|_| cuts.is_empty()) {
        let mut all = Group::new(first.clone());
        all.stores.extend_from_slice(others);
        all.fill(graph, |_| false);
        if others.is_empty() || off.is_none() && all.obstacle(graph, budget).is_none() {
            groups.push(all);
        }
    }
    let left = if groups.is_empty() { stores } else { vec![] };
    let (mut reads, mut writers): (Vec<BTreeSet<usize>>, Writers) = (Vec::new(), Writers::new());
    for store in left {
        let from = sources(graph, &writers, std::slice::from_ref(&store));
        let waits = waiting(&reads, &from);
        let broken = |home: usize| {
            // Reports give no reasons for temporaries, so the costly check is skipped.
            if waits[home] && store.output.is_none() {
                return Some(Reason::Waits);
            }
            let both = with(&groups[home], &store);
            both.obstacle(graph, budget).or_else(|| waits[home].then_some(Reason::Waits))
        };
        let obstacle = |home| off.clone().or_else(|| broken(home));
        let obstacles: Vec<Option<Reason>> = (0..groups.len()).map(obstacle).collect();
        let home = obstacles.iter().position(Option::is_none);
        writers.entry(store.node).or_default().push(home.unwrap_or(groups.len()));
        if let Some(home) = home {
            groups[home].stores.push(store);
            reads[home] = sources(graph, &writers, &groups[home].stores);
            continue;
        }
        let others = groups.iter().zip(obstacles).filter(|(group, _)| group.has_result());
        let reasons = others.filter_map(|(_, obstacle)| obstacle);
        let telling = reasons.max_by_key(|reason| *reason != Reason::Order);
        if let (Some(output), Some(reason)) = (store.output, telling) {
            apart.insert(output, reason);
        }
        groups.push(Group::new(store));
        reads.push(from);
    }
    settle(graph, &mut groups);
    (groups, apart)
}

/// Computes the nodes, loads and space of each group from its stores.
fn settle(graph: &Graph, groups: &mut [Group]) {
    let homes: BTreeMap<NodeId, usize> = groups
        .iter()
        .enumerate()
        .flat_map(|(i, group)| group.stores.iter().map(move |s| (s.node, i)))
        .collect();
    for (i, group) in groups.iter_mut().enumerate() {
        let stores = std::mem::take(&mut group.stores);
        *group = Group { stores: stores.clone(), ..Group::new(stores[0].clone()) };
        group.fill(graph, |node| homes.get(&node).is_some_and(|&home| home != i));
        if let Ok((order, cols)) = group.space_of(graph) {
            (group.order, group.cols) = (order, cols);
        }
        group.moved = points::moved(graph, group);
    }
}

/// Returns all stores, in topological order.
fn stores(graph: &Graph, cuts: &BTreeMap<NodeId, Reason>) -> Vec<Store> {
    let outputs = graph.outputs.iter().enumerate();
    let result = |(i, output): (usize, &Output)| Store {
        node: output.node,
        output: Some(i),
        order: graph.parts(&output.axes),
    };
    let mut stores: Vec<Store> = outputs.map(result).collect();
    for &node in cuts.keys() {
        if output_of(graph, node).is_none() {
            stores.push(Store { node, output: None, order: natural_order(graph, node) });
        }
    }
    stores.sort_by_key(|store| store.node);
    stores
}

/// Returns the memory order of a temporary's axes: that of an operand, or else of a result or parameter, that
/// has all of them. A contraction has its columns or rows innermost.
fn natural_order(graph: &Graph, node: NodeId) -> Vec<AxisId> {
    products::with_outer_batch(graph, node, order_of(graph, node, graph.node(node).axes))
}

/// Returns the order of `axes` in the operands of a value, or else in a result or parameter that has all of
/// them.
fn order_of(graph: &Graph, node: NodeId, axes: AxisSet) -> Vec<AxisId> {
    let along = |order: &[AxisId]| {
        let has_all = axes.iter().all(|axis| order.contains(&axis));
        has_all.then(|| order.iter().copied().filter(|&axis| axes.contains(axis)).collect::<Vec<_>>())
    };
    let of_param = |param: &Param| along(param.kind.axes()?);
    let results = graph.outputs.iter().filter_map(|output| along(&graph.parts(&output.axes)));
    let others: Vec<Vec<AxisId>> = results.chain(graph.params.iter().filter_map(of_param)).collect();
    let Some(first) = others.first() else { return axes.iter().collect() };
    // Most functions have one order, so the operands do not matter.
    if others.iter().all(|other| other == first) {
        return first.clone();
    }
    let mut read = BTreeSet::new();
    walk(graph, node, &mut |node| {
        if let NodeKind::Input(param) = graph.node(node).kind {
            read.insert(param);
        }
        true
    });
    let read = read.into_iter().find_map(|param| of_param(graph.param(param)));
    read.unwrap_or_else(|| first.clone())
}

/// Returns true if rows along `cols` are column-major in a tensor with these axes, or if the tensor lacks
/// `next`. `next` is the innermost axis of the rows; a tensor without it has equal elements for neighbouring
/// rows.
pub fn is_column_major(axes: &[AxisId], cols: AxisSet, next: Option<AxisId>) -> bool {
    let has_next = next.is_some_and(|next| axes.contains(&next));
    !has_next || axes.last().is_some_and(|&last| !cols.contains(last))
}

/// Returns the first result that stores a value.
fn output_of(graph: &Graph, node: NodeId) -> Option<&Output> {
    graph.outputs.iter().find(|output| output.node == node)
}

/// Returns the axes of a load, outermost first.
fn load_order(graph: &Graph, load: Load) -> Vec<AxisId> {
    match load {
        Load::Param(param) => graph.param(param).kind.axes().cloned().unwrap_or_default(),
        Load::Stored(node) => {
            let result = output_of(graph, node);
            result.map_or_else(|| natural_order(graph, node), |output| graph.parts(&output.axes))
        }
    }
}

/// Returns true if a load has one element, of a dtype that uniforms support.
fn is_one(graph: &Graph, load: Load) -> bool {
    let dtype = match load {
        Load::Param(param) => graph.param(param).dtype,
        Load::Stored(node) => graph.node(node).dtype,
    };
    dtype.is_uniform() && load_order(graph, load).is_empty()
}

/// Returns for each group whether it would depend on itself if it also wrote a store with these sources. A
/// source reads from such a group, directly or through other groups. `reads` has the sources of each group.
fn waiting(reads: &[BTreeSet<usize>], sources: &BTreeSet<usize>) -> Vec<bool> {
    let mut waiting = vec![false; reads.len()];
    let mut open: Vec<usize> = sources.iter().flat_map(|&source| &reads[source]).copied().collect();
    while let Some(group) = open.pop() {
        if !std::mem::replace(&mut waiting[group], true) {
            open.extend(&reads[group]);
        }
    }
    waiting
}

/// Groups that write a value, by value.
type Writers = BTreeMap<NodeId, Vec<usize>>;

/// Returns the groups that write the operands of these stores.
fn sources(graph: &Graph, writers: &Writers, stores: &[Store]) -> BTreeSet<usize> {
    let own = |node: NodeId| stores.iter().any(|store| store.node == node);
    let mut sources = BTreeSet::new();
    for store in stores {
        walk(graph, store.node, &mut |node| {
            let writers = writers.get(&node).filter(|_| !own(node));
            sources.extend(writers.into_iter().flatten());
            writers.is_none()
        });
    }
    sources
}

impl Group {
    fn new(store: Store) -> Group {
        let (order, cols, nodes, loads) = (store.order.clone(), Vec::new(), Vec::new(), BTreeSet::new());
        let (moved, unrolled) = (BTreeMap::new(), AxisSet::EMPTY);
        Group { stores: vec![store], order, cols, nodes, loads, moved, unrolled }
    }

    /// Returns the reason why the stores of the group cannot share a kernel, or none.
    fn obstacle(&self, graph: &Graph, budget: Budget<'_>) -> Option<Reason> {
        if self.space_of(graph).is_err() {
            return Some(Reason::Order);
        }
        let is_stored = |id: NodeId| self.stores.iter().any(|store| store.node == id);
        if points::misplaced(graph, self).is_some_and(is_stored) {
            return Some(Reason::Moved);
        }
        if self.is_crowded(graph) {
            return Some(Reason::Product);
        }
        let needed = self.buffers(graph, budget);
        (needed > budget.max).then_some(Reason::Buffers(needed, budget.max))
    }

    /// Computes the nodes and loads of the group, given the values that other groups store.
    pub(crate) fn fill(&mut self, graph: &Graph, elsewhere: impl Fn(NodeId) -> bool) {
        let mut computed = vec![false; graph.nodes.len()];
        for store in &self.stores {
            walk(graph, store.node, &mut |node| {
                if elsewhere(node) && !self.stores.iter().any(|s| s.node == node) {
                    self.loads.insert(Load::Stored(node));
                    return false;
                }
                !std::mem::replace(&mut computed[node.0 as usize], true)
            });
        }
        self.nodes = graph.iter().map(|(id, _)| id).filter(|id| computed[id.0 as usize]).collect();
        for &id in &self.nodes {
            if let NodeKind::Input(param) = graph.node(id).kind {
                self.loads.insert(Load::Param(param));
            }
            self.unrolled = self.unrolled.union(graph.written_out(id));
        }
    }

    /// Returns true if a store has a value for each element of a row, not for each row.
    pub fn is_of_elements(&self, store: &Store) -> bool {
        store.order.iter().any(|axis| self.cols.contains(axis))
    }

    /// Returns true if a store with a value for each element of a row is column-major.
    pub fn writes_columns(&self) -> bool {
        let inner_is_row = |store: &Store| store.order.last().is_some_and(|last| !self.cols.contains(last));
        self.stores.iter().any(|store| self.is_of_elements(store) && inner_is_row(store))
    }

    fn has_result(&self) -> bool {
        self.stores.iter().any(|store| store.output.is_some())
    }

    /// Returns the largest number of storage buffers that a kernel of the group binds.
    fn buffers(&self, graph: &Graph, budget: Budget<'_>) -> usize {
        let of_all = self.space_of(graph).map(|(rows, cols)| self.combined_of_all(graph, (&rows, &cols)));
        let of_all = of_all.unwrap_or_default();
        if of_all.is_empty() {
            return self.bound(graph, budget, 0);
        }
        // A kernel of its own writes the global reductions. The partial results are few, so the next kernel
        // can bind them as uniforms.
        let small = of_all.iter().filter(|&&id| graph.node(id).dtype.is_uniform()).count();
        let rows = self.bound(graph, budget, small) + of_all.len();
        self.before_rows(graph, of_all).bound(graph, budget, 0).max(rows)
    }

    /// Returns the group of the first kernel: the global reductions, and the stores of one element that all
    /// rows share.
    fn before_rows(&self, graph: &Graph, of_all: Vec<NodeId>) -> Group {
        let combined = of_all.into_iter().map(|node| Store { node, output: None, order: Vec::new() });
        let of_none = self.stores.iter().filter(|store| store.order.is_empty()).cloned();
        let stores: Vec<Store> = combined.chain(of_none).collect();
        let mut before = Group { stores, ..Group::new(self.stores[0].clone()) };
        before.fill(graph, |node| self.loads.contains(&Load::Stored(node)));
        before
    }

    /// Returns the number of storage buffers of one kernel for the whole group, with `more` loads from an
    /// earlier kernel bound as uniforms. Views of one tensor are one buffer. A parameter that is read and
    /// written is one buffer too, unless it is bound twice.
    fn bound(&self, graph: &Graph, budget: Budget<'_>, more: usize) -> usize {
        let in_place = |store: &Store| match store.output.map(|output| graph.outputs[output].dest) {
            Some(Dest::InPlace(param)) => Some(Load::Param(param)),
            Some(Dest::Fresh) | None => None,
        };
        let both = |load: &Load| self.loads.contains(load) && !budget.is_twice(*load);
        let both: BTreeSet<Load> = self.stores.iter().filter_map(in_place).filter(both).collect();
        let ones = self.loads.iter().filter(|load| !both.contains(load) && is_one(graph, **load)).count();
        let memory = |load: &Load| match *load {
            Load::Param(param) => Load::Param(graph.memory_of(param)),
            Load::Stored(_) => *load,
        };
        let read: BTreeSet<Load> = self.loads.iter().map(memory).collect();
        read.len() + self.stores.len() - both.len() - (ones + more).min(budget.uniforms_max)
    }

    /// Returns the axes that threads are spread over: those of `order` that no thread unrolls.
    pub fn space(&self) -> Vec<AxisId> {
        self.order.iter().copied().filter(|&axis| !self.unrolled.contains(axis)).collect()
    }
}

/// Visits a node and its transitive operands, each once. `enter` returns true if the operands of a node are
/// to be visited.
fn walk(graph: &Graph, node: NodeId, enter: &mut impl FnMut(NodeId) -> bool) {
    let (mut seen, mut open) = (vec![false; graph.nodes.len()], vec![node]);
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut seen[node.0 as usize], true) && enter(node) {
            open.extend(&graph.node(node).args);
        }
    }
}

/// Returns true if an operation is an approximation that even the CPU has no instruction for.
pub fn is_transcendental(op: Op) -> bool {
    let info = op.info();
    info.ulp.native > 0 && matches!(info.cpu.float, Lower::Expand(_))
}

/// Returns true if a node is an operation, not just a number or a name. Conversions between stored and
/// computed dtypes are part of loads and stores.
pub fn is_op(graph: &Graph, node: &Node) -> bool {
    if node.kind == NodeKind::Cast {
        let from = graph.node(node.args[0]).dtype;
        return from == node.dtype || !from.is_narrow() && !node.dtype.is_narrow();
    }
    matches!(node.kind, NodeKind::Apply(_) | NodeKind::Reduce(..) | NodeKind::Gather(..))
}

/// Returns a predicate for values that may be stored between kernels: operations on tensors. A `bool` belongs
/// to the operation that uses it.
fn storable(graph: &Graph) -> impl Fn(&NodeId) -> bool + '_ {
    let of_tensors = of_tensors(graph);
    move |id| of_tensors(id) && graph.node(*id).dtype != DType::Bool
}

/// Returns a predicate for operations on tensors, those with a `bool` result included.
fn of_tensors(graph: &Graph) -> impl Fn(&NodeId) -> bool + '_ {
    let varies = varying(graph);
    move |id| is_op(graph, graph.node(*id)) && varies[id.0 as usize]
}

/// Returns for each node whether it depends on a tensor or a coordinate. Other nodes are one number per call.
fn varying(graph: &Graph) -> Vec<bool> {
    let mut varies: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let source = matches!(node.kind, NodeKind::Input(_) | NodeKind::Coord(_));
        varies.push(source || node.args.iter().any(|arg| varies[arg.0 as usize]));
    }
    varies
}
