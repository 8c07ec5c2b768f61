//! Rows that are long: each is cut into parts (`partition.rs`), which blocks or CPU threads combine by themselves, and a second kernel
//! combines what they made of each row. If elements are stored, a third makes them; or the second, where the parts of the only
//! row are so few that whoever stores elements combines them for itself. So does whoever goes through rows after all of them.
//!
//! Each of these kernels is a group of its own, of a graph in which parts are one more axis, or two; so the schedules of rows,
//! columns and elements write them. What takes several runs along a row takes as many rounds, unless `combine_partials.rs` knows better.
//! Parts depend on extents alone, and so does the order of every sum.

use std::collections::BTreeMap;

use super::body::is_windowed;
use super::partition::{Partition, partitions};
use super::space::{bytes, cols, line, product, width_conditions, widths};
use super::staging::{reduction, steps};
use super::{Config, Operand, Schedule, Scheduled, Scratch, Work, column, pointwise, row};
use crate::fuse::{Load, Store};
use crate::ir::dim::DimExpr;
use crate::ir::dtype::DType;
use crate::ir::graph::{Access, AxisId, AxisSet, Graph, Node, NodeId, NodeKind};
use crate::ir::kernel::{BufferId, IndexWidth};
use crate::ir::plan::{Condition, Footprint, Slot};
use crate::target::{TargetFacts, Vectors};
use combine_partials::{Merge, merges};

mod combine_partials;
mod global_then_rows;
mod graph_writer;
pub(super) mod rebuild;
mod stage;

pub(super) use global_then_rows::global_then_rows;
pub(super) use rebuild::GraphCopy;
pub(super) use stage::{Stage, StageKind};

/// The ways to run a group of this schedule whose rows are long, and the memory between their kernels.
pub(super) fn split(work: &Work<'_>, facts: &TargetFacts, schedule: Schedule) -> (Vec<Config>, Vec<Scratch>) {
    let (mut all, mut scratch) = (Vec::new(), Vec::new());
    for (partition, when) in partitions(work, facts, schedule) {
        let mut split = SplitReduction { work, partition, scratch, stages: vec![] };
        let mut left = Some(split.all());
        while let Some(stage) = left {
            left = match stage.kind {
                StageKind::Elements => {
                    split.stages.push(stage);
                    None
                }
                StageKind::Parts | StageKind::Rows | StageKind::Folded => split.round(&stage),
            };
        }
        all.extend(configs(&split, facts, &when));
        scratch = split.scratch;
    }
    (all, scratch)
}

/// The kernels of reductions whose parts the kernel of another group combines.
pub(super) struct SplitInTiles {
    /// The kernel of the parts.
    pub(super) parts: Stage,
    /// The number of each node of the function in the graph of that kernel.
    pub(super) map: Vec<NodeId>,
    /// The kernel that combines what parts gave.
    pub(super) whole: Stage,
    /// The kernel that computes elements from the results, if the group stores elements.
    pub(super) elements: Option<Stage>,
    /// Memory for what parts gave, and for results that elements are computed from.
    pub(super) scratch: Vec<Scratch>,
}

/// The kernels of reductions of a group, if one round combines them. Parts have axes in this order.
pub(super) fn in_tiles(work: &Work<'_>, partition: Partition, order: Vec<AxisId>) -> Option<SplitInTiles> {
    let mut split = SplitReduction { work, partition, scratch: vec![], stages: vec![] };
    let all = split.all();
    let round = split.of_order(&all, order);
    let map = split.parts(&round);
    let elements = split.whole(&round);
    let (whole, parts) = (split.stages.pop()?, split.stages.pop()?);
    let is_last = elements.as_ref().is_none_or(|stage| stage.kind == StageKind::Elements);
    is_last.then_some(SplitInTiles { parts, map, whole, elements, scratch: split.scratch })
}

/// How many of the ways to run a row group as a whole come first: those that are for shorter rows alone.
pub(super) fn before(work: &Work<'_>, facts: &TargetFacts, configs: &[Config]) -> usize {
    let all = cols(work.graph, work.group, &work.operands);
    let is_line = line(facts, &all) == all.len();
    let shorter = |condition: &Condition| match condition {
        Condition::AtMost(extent, most) => is_line && *extent == product(&all) && *most < facts.parts.row_min,
        // What a cluster holds of a row is read once.
        Condition::Clusters(_) => true,
        Condition::AtLeast(..)
        | Condition::Divides(..)
        | Condition::Binds(_)
        | Condition::Shares(_)
        | Condition::Subgroups(_)
        | Condition::Arch(_) => false,
    };
    configs
        .iter()
        .take_while(|config| config.iter().any(|scheduled| scheduled.when.iter().any(shorter)))
        .count()
}

/// What a round goes through.
struct Round<'s> {
    stage: &'s Stage,
    /// What is combined: of the elements alone …
    reduces: Vec<NodeId>,
    /// … and, among them, relative to what the part alone gives.
    merges: Vec<Merge>,
    /// The axes of parts.
    order: Vec<AxisId>,
    /// What the parts give, by the nodes.
    partials: BTreeMap<NodeId, Operand>,
}

/// A split reduction while it is made.
struct SplitReduction<'w> {
    work: &'w Work<'w>,
    partition: Partition,
    scratch: Vec<Scratch>,
    stages: Vec<Stage>,
}

impl SplitReduction<'_> {
    /// All that is to be done, with parts as an axis.
    fn all(&self) -> Stage {
        let Work { graph, group, operands, stores, .. } = self.work;
        let mut graph = (*graph).clone();
        self.partition.extend(&mut graph);
        let operand = |buffer: &BufferId| operands[usize::from(buffer.0)].clone();
        Stage {
            kind: StageKind::Rows,
            graph,
            group: (*group).clone(),
            name: String::new(),
            known: self.work.known(),
            stores: stores.iter().map(operand).collect(),
        }
    }

    /// Combines what is made of the elements alone, and says what is left to be done.
    fn round(&mut self, stage: &Stage) -> Option<Stage> {
        let round = self.of_order(stage, self.partition.order(&stage.group.order));
        self.parts(&round);
        self.whole(&round)
    }

    /// The round whose parts have axes in this order.
    fn of_order<'s>(&mut self, stage: &'s Stage, order: Vec<AxisId>) -> Round<'s> {
        let steps = steps(&stage.work());
        let of_step = |wanted| steps.iter().filter(move |(step, _)| *step == wanted).map(|(_, id)| *id);
        let mut reduces: Vec<NodeId> = of_step(0).collect();
        let merges = merges(&stage.graph, &stage.group, of_step(1), &reduces);
        reduces.extend(merges.iter().map(Merge::reduce));
        let part_of = |id| format!("parts of {}", word(&stage.graph, id));
        let is_few = self.partition.chunk.is_some();
        let partials = reduces.iter().map(|&id| {
            let dtype = stage.graph.node(id).dtype;
            let made = self.memory(&stage.graph, part_of(id), dtype, order.clone());
            (id, if is_few { self.of_few(made) } else { made })
        });
        let partials = partials.collect();
        Round { stage, reduces, merges, order, partials }
    }

    /// The kernel that combines each part, and the numbers of nodes in its graph.
    fn parts(&mut self, round: &Round<'_>) -> Vec<NodeId> {
        let Round { stage, order, .. } = round;
        let axes: AxisSet = order.iter().copied().collect();
        let mut copy = GraphCopy::new(&stage.graph);
        let asked: Vec<NodeId> = [Some(self.partition.part), self.partition.alone]
            .into_iter()
            .flatten()
            .map(|axis| copy.coordinate(axis))
            .collect();
        for (id, node) in stage.graph.iter() {
            let merged =
                round.merges.iter().find_map(|merge| merge.of_part(id, node, &mut copy, &self.partition));
            let made = match merged {
                Some(made) => made,
                None if round.reduces.contains(&id) => copy.partial(node, &self.partition, axes),
                None => copy.of_part(node, &self.partition, axes),
            };
            copy.map.push(made);
        }
        let mut known = copy.known(&stage.known);
        known.values_mut().for_each(|operand| interleave(operand, &self.partition));
        let mut made =
            Stage::new(StageKind::Parts, copy.graph, known, (order.clone(), self.partition.inner.clone()));
        for &id in &round.reduces {
            let store = Store { node: copy.map[id.0 as usize], output: None, order: order.clone() };
            made.store(store, round.partials[&id].clone());
        }
        made.fill(&[]);
        made.keep_apart(asked);
        self.push(made, "parts");
        copy.map
    }

    /// The graph in which what is combined is combined of what parts gave, and that by the nodes.
    fn of_partials(&self, round: &Round<'_>) -> (GraphCopy, BTreeMap<NodeId, NodeId>) {
        let Round { stage, order, .. } = round;
        let (axes, along) = (order.iter().copied().collect(), self.partition.parts().into_iter().collect());
        let mut copy = GraphCopy::new(&stage.graph);
        let mut partials = BTreeMap::new();
        for (id, node) in stage.graph.iter() {
            let made = if round.reduces.contains(&id) {
                let partial = copy.partial(node, &self.partition, axes);
                partials.insert(id, partial);
                let merge = round.merges.iter().find(|merge| merge.reduce() == id);
                let term = merge.map_or(partial, |merge| merge.term(&mut copy, &self.partition, &partials));
                let kind = NodeKind::Reduce(reduction(node).of_parts(), along);
                copy.graph.push(Node { kind, args: vec![term], ..node.clone() })
            } else {
                copy.node(node, AxisSet::EMPTY)
            };
            copy.map.push(made);
        }
        (copy, partials)
    }

    /// The kernel that combines the parts of each row, and what is left to be done then.
    fn whole(&mut self, round: &Round<'_>) -> Option<Stage> {
        let stage = round.stage;
        let (copy, partials) = self.of_partials(round);
        let parts = self.partition.parts();
        let along: AxisSet = parts.iter().copied().collect();
        let known = copy.known(&stage.known);
        if let Some(chunk) = self.partition.chunk.filter(|_| copy.graph.is_looped(along)) {
            let of_rows = (vec![chunk], self.partition.inner.clone());
            let made = self.after_parts(round, (&copy, &partials), of_rows);
            self.push(made, "elements");
            return None;
        }
        let rest = self.rest(round, &copy, &known);
        let cols = if copy.graph.is_looped(along) { parts } else { vec![] };
        let mut made =
            Stage::new(StageKind::Rows, copy.graph.clone(), known, (stage.group.order.clone(), cols));
        for (id, partial) in partials {
            made.known.insert(Load::Stored(partial), round.partials[&id].clone());
        }
        for (store, operand) in stage.group.stores.iter().zip(&stage.stores) {
            if stage.is_ready(store, &round.reduces) {
                made.store(Store { node: copy.of(store.node), ..store.clone() }, operand.clone());
            }
        }
        // What the rest needs is stored for it.
        for load in rest.iter().flat_map(|rest| &rest.group.loads) {
            if let (Load::Stored(node), Some(rest)) = (*load, &rest)
                && !made.known.contains_key(load)
            {
                let order = stage.group.order.clone();
                made.store(Store { node, output: None, order }, rest.known[load].clone());
            }
        }
        made.fill(&[]);
        self.push(made, "whole");
        rest
    }

    /// The kernel that combines what parts gave in each thread, as that is not worth a kernel, and then does all that is left to be
    /// done.
    fn after_parts(
        &self,
        round: &Round<'_>,
        (copy, partials): (&GraphCopy, &BTreeMap<NodeId, NodeId>),
        of_rows: (Vec<AxisId>, Vec<AxisId>),
    ) -> Stage {
        let stage = round.stage;
        let mut made = Stage::new(StageKind::Folded, copy.graph.clone(), copy.known(&stage.known), of_rows);
        for (id, &partial) in partials {
            made.known.insert(Load::Stored(partial), round.partials[id].clone());
        }
        for (store, operand) in stage.group.stores.iter().zip(&stage.stores) {
            made.store(Store { node: copy.of(store.node), ..store.clone() }, operand.clone());
        }
        made.fill(&[]);
        made
    }

    /// What is left to be done once rows have been combined.
    fn rest(
        &mut self,
        round: &Round<'_>,
        copy: &GraphCopy,
        known: &BTreeMap<Load, Operand>,
    ) -> Option<Stage> {
        let Round { stage, reduces, .. } = round;
        let of = &stage.group;
        let of_rows = (of.order.clone(), of.cols.clone());
        let mut rest = Stage::new(StageKind::Rows, copy.graph.clone(), known.clone(), of_rows);
        for (store, operand) in of.stores.iter().zip(&stage.stores) {
            if !stage.is_ready(store, reduces) {
                rest.store(Store { node: copy.of(store.node), ..store.clone() }, operand.clone());
            }
        }
        if rest.stores.is_empty() {
            return None;
        }
        let reduces: Vec<NodeId> = reduces.iter().map(|&id| copy.of(id)).collect();
        rest.fill(&reduces);
        for id in reduces.into_iter().filter(|&id| rest.group.loads.contains(&Load::Stored(id))) {
            let (name, dtype) = (word(&rest.graph, id), rest.graph.node(id).dtype);
            let operand = self.memory(&rest.graph, name, dtype, of.order.clone());
            rest.known.insert(Load::Stored(id), operand);
        }
        if !rest.combines() {
            rest.kind = StageKind::Elements;
            // Where no row is combined all is stored of elements, in one order.
            rest.group.order = rest.group.stores[0].order.clone();
            rest.group.cols.clear();
            self.name(&mut rest, "elements");
        }
        Some(rest)
    }

    /// Memory between kernels for a value of these axes.
    fn memory(&mut self, graph: &Graph, name: String, dtype: DType, axes: Vec<AxisId>) -> Operand {
        memory(self.work, &mut self.scratch, graph, name, dtype, axes)
    }

    /// The memory that was just made, as that of few elements whatever the extents.
    fn of_few(&mut self, made: Operand) -> Operand {
        self.scratch.last_mut().unwrap_or_else(|| unreachable!("some was made")).fits_uniform = true;
        Operand { fits_uniform: true, ..made }
    }

    fn name(&self, stage: &mut Stage, what: &str) {
        let rounds = self.stages.len() / 2;
        let number = if rounds > 0 { format!("_{rounds}") } else { String::new() };
        stage.name = format!("{}_{what}{number}{}", self.work.name, self.partition.tag());
    }

    fn push(&mut self, mut stage: Stage, what: &str) {
        self.name(&mut stage, what);
        self.stages.push(stage);
    }
}

/// More memory between the kernels of a group, for a value of these axes.
pub(super) fn memory(
    work: &Work<'_>,
    scratch: &mut Vec<Scratch>,
    graph: &Graph,
    name: String,
    dtype: DType,
    axes: Vec<AxisId>,
) -> Operand {
    let slot = Slot::Temp(work.temporaries + scratch.len() as u16);
    let len = DimExpr::product(axes.iter().map(|&axis| &graph.axis(axis).extent));
    scratch.push(Scratch { dtype, len, fits_uniform: false });
    Operand {
        slot,
        name,
        dtype,
        access: Access::Read,
        axes,
        fits_uniform: false,
        moved: false,
        interleave_axis: None,
    }
}

/// Shows parts that take turns what they read: each every so many of the coordinates along what is cut.
fn interleave(operand: &mut Operand, partition: &Partition) {
    let along = operand.axes.iter().position(|&axis| axis == partition.along());
    if let (Some(along), Some(interleave)) = (along, &partition.interleave) {
        operand.axes.insert(along + 1, interleave.axis);
        operand.interleave_axis = Some(interleave.axis);
    }
}

/// What a value is called in texts.
fn word(graph: &Graph, id: NodeId) -> String {
    format!("{:?}", reduction(graph.node(id))).to_lowercase()
}

/// The kernels in the ways in which parts can be gone through.
fn configs(split: &SplitReduction<'_>, facts: &TargetFacts, when: &[Condition]) -> Vec<Config> {
    let lanes: &[u8] = match facts.vector {
        Vectors::Loops(_) => &[1],
        Vectors::Lanes(lanes) => &[lanes, 1],
    };
    let same: Vec<Vec<Scheduled>> =
        split.stages.iter().map(|stage| same_for_all(stage, facts, split.partition.schedule)).collect();
    let binds = if facts.rebased { binds(split, &same) } else { vec![] };
    let config = |index: IndexWidth, lanes: u8, many: &[Condition]| {
        let mut when = [when, many, &width_conditions(split.work, facts, index), &binds].concat();
        for stage in split.stages.iter().filter(|stage| stage.kind == StageKind::Elements) {
            let more = width_conditions(&stage.work(), facts, index);
            let more: Vec<Condition> =
                more.into_iter().filter(|condition| !condition.follows(&when)).collect();
            when.extend(more);
        }
        if lanes > 1 {
            when.extend(aligned(split, &same, lanes.into()));
        }
        let mut launches: Vec<Scheduled> = split
            .stages
            .iter()
            .zip(&same)
            .map(|(stage, same)| launch((stage, same), &split.partition, facts, (index, lanes), &when))
            .collect();
        launches[0].when = when;
        launches
    };
    let of_rows = split
        .stages
        .iter()
        .zip(&same)
        .filter(|(stage, _)| stage.kind == StageKind::Rows && !stage.group.cols.is_empty());
    let many = once(of_rows.flat_map(|(_, same)| same[0].when.clone()));
    let many: &[&[Condition]] = if many.is_empty() { &[&[]] } else { &[&many, &[]] };
    let mut configs = Vec::new();
    for index in widths(split.work, facts) {
        for &lanes in lanes {
            configs.extend(many.iter().map(|many| config(index, lanes, many)));
        }
    }
    configs
}

/// The kernels of a stage that are the same in whichever way parts are gone through, of which a way takes the first that does.
fn same_for_all(stage: &Stage, facts: &TargetFacts, schedule: Schedule) -> Vec<Scheduled> {
    match stage.kind {
        StageKind::Parts | StageKind::Folded => vec![],
        StageKind::Rows if !stage.group.cols.is_empty() => row::of_partials(&stage.work(), facts, schedule),
        StageKind::Rows | StageKind::Elements => pointwise::pointwise(&stage.work(), facts),
    }
}

/// Conditions for vectors of so many lanes.
fn aligned(split: &SplitReduction<'_>, same: &[Vec<Scheduled>], lanes: i64) -> Vec<Condition> {
    let partition = &split.partition;
    let of_stage = |(stage, same): (&Stage, &Vec<Scheduled>)| match (stage.kind, partition.schedule) {
        (StageKind::Parts, Schedule::Column) => {
            vec![Condition::Divides(column::aligned(&stage.work(), partition), lanes)]
        }
        (StageKind::Elements, Schedule::Column) => {
            let conditions = same.iter().flat_map(|config| config.when.clone());
            conditions
                .filter(|condition| matches!(condition, Condition::Divides(_, by) if *by == lanes))
                .collect()
        }
        (StageKind::Parts | StageKind::Folded, Schedule::Row | Schedule::Pointwise) => {
            vec![Condition::Divides(partition.innermost.clone(), lanes)]
        }
        (StageKind::Elements, Schedule::Row | Schedule::Pointwise)
        | (StageKind::Folded, Schedule::Column)
        | (StageKind::Rows, _) => vec![],
    };
    once(split.stages.iter().zip(same).flat_map(of_stage))
}

/// Conditions, each once.
fn once(conditions: impl IntoIterator<Item = Condition>) -> Vec<Condition> {
    let mut all: Vec<Condition> = Vec::new();
    for condition in conditions {
        if !all.contains(&condition) {
            all.push(condition);
        }
    }
    all
}

/// A kernel as it is in a way of these conditions.
fn launch(
    (stage, same): (&Stage, &[Scheduled]),
    partition: &Partition,
    facts: &TargetFacts,
    (index, lanes): (IndexWidth, u8),
    when: &[Condition],
) -> Scheduled {
    let work = stage.work();
    let mut made = match stage.kind {
        StageKind::Parts => match partition.schedule {
            Schedule::Column => column::parts(&work, facts, partition, (index, lanes)),
            Schedule::Row | Schedule::Pointwise => row::parts(&work, facts, partition, (index, lanes)),
        },
        StageKind::Folded => row::folded(&work, facts, partition, (index, lanes)),
        StageKind::Rows | StageKind::Elements => {
            let holds = |config: &&Scheduled| config.when.iter().all(|condition| condition.follows(when));
            let first = same.iter().find(holds);
            first.unwrap_or_else(|| unreachable!("the last config has no conditions")).clone()
        }
    };
    let buffers = made.buffers.iter_mut().zip(&mut made.kernel.buffers);
    for (arg, buffer) in buffers {
        let mut views = work.operands.iter().filter(|operand| operand.slot == arg.slot);
        let is_line = views.all(|operand| is_line(stage, partition, operand));
        if is_line && (facts.rebased || arg.access != Access::Read) {
            (arg.footprint, buffer.strided) = (Footprint::Linear(partition.whole()), false);
        }
    }
    made.when.clear();
    made
}

/// Whether the parts of an operand follow each other in it, as they do in all.
fn is_line(stage: &Stage, partition: &Partition, operand: &Operand) -> bool {
    let by_parts = match stage.kind {
        StageKind::Parts => stage.group.order == [partition.part],
        StageKind::Folded => true,
        StageKind::Rows | StageKind::Elements => false,
    };
    by_parts && !operand.moved && operand.axes == partition.inner
}

/// What must be bound for elements to be read in any order.
fn binds(split: &SplitReduction<'_>, same: &[Vec<Scheduled>]) -> Vec<Condition> {
    let mut all: Vec<Condition> = Vec::new();
    for (stage, same) in split.stages.iter().zip(same) {
        let work = stage.work();
        let needed: Vec<Condition> = match stage.kind {
            StageKind::Parts | StageKind::Folded => {
                let whole = work.operands.iter().filter(|operand| is_windowed(&work, operand));
                let whole = whole.filter(|operand| !is_line(stage, &split.partition, operand));
                whole.map(|operand| Condition::Binds(bytes(work.graph, operand))).collect()
            }
            // Few, and each read where it is written.
            StageKind::Rows => vec![],
            StageKind::Elements => {
                let conditions = same.iter().flat_map(|config| config.when.clone());
                conditions.filter(|condition| matches!(condition, Condition::Binds(_))).collect()
            }
        };
        all.extend(needed);
    }
    once(all)
}
