//! Rows after what is combined of all of them: a norm of all elements, and what becomes of each row by it.
//!
//! One kernel combines parts of all elements, and the one that goes through the rows combines what those gave, once in each
//! thread. Of few elements a block or a CPU thread combines all. It is two kernels either way.

use std::collections::BTreeMap;

use super::super::partition::into_few;
use super::super::row::{self, Teams};
use super::super::space::width_conditions;
use super::super::{Config, Operand, Scheduled, Scratch, Work};
use super::{Round, SplitReduction, Stage, StageKind, binds, launch, memory, once, same_for_all, word};
use crate::fuse::{Load, Store};
use crate::ir::graph::NodeId;
use crate::ir::kernel::{BufferId, Lanes};
use crate::ir::plan::Condition;
use crate::target::{TargetFacts, Vectors};

/// The ways to run a row group in which something is combined of all rows, and the memory between its kernels.
pub(in crate::schedule) fn global_then_rows(
    work: &Work<'_>,
    facts: &TargetFacts,
) -> (Vec<Config>, Vec<Scratch>) {
    let reduces = work.group.of_all(work.graph);
    let mut scratch = Vec::new();
    let [all, rows] = at_once(work, &reduces, &mut scratch);
    let mut configs = Vec::new();
    if let Some((partition, pays)) = into_few(&all.work(), facts) {
        let mut split = SplitReduction { work, partition, scratch, stages: vec![] };
        configs = in_parts(&mut split, facts, (reduces, &pays));
        scratch = split.scratch;
    }
    let firsts = row::row(&all.work(), facts, Teams::All);
    configs.extend(row::row(&rows.work(), facts, Teams::All).into_iter().map(|mut rows| {
        let when = std::mem::take(&mut rows.when);
        let holds = |condition: &Condition| condition.known() == Some(true) || condition.follows(&when);
        let does = |first: &&Scheduled| first.when.iter().all(holds);
        let first = firsts.iter().find(does).or(firsts.last());
        let first = first.unwrap_or_else(|| unreachable!("each group has a config")).clone();
        vec![Scheduled { when, ..first }, rows]
    }));
    (configs, scratch)
}

/// The kernel that combines all, which also stores what is of no row, and then that of the rows.
fn at_once(work: &Work<'_>, reduces: &[NodeId], scratch: &mut Vec<Scratch>) -> [Stage; 2] {
    let Work { graph, group, operands, loads, .. } = work;
    let operand = |buffer: BufferId| operands[usize::from(buffer.0)].clone();
    let mut known: BTreeMap<Load, Operand> =
        loads.iter().map(|(&load, &buffer)| (load, operand(buffer))).collect();
    let elements = [group.order.as_slice(), &group.cols].concat();
    let mut all = Stage::new(StageKind::Rows, (*graph).clone(), known.clone(), (vec![], elements));
    for &node in reduces {
        let (name, dtype) = (word(graph, node), graph.node(node).dtype);
        let operand = memory(work, scratch, graph, name, dtype, vec![]);
        known.insert(Load::Stored(node), operand.clone());
        all.store(Store { node, output: None, order: vec![] }, operand);
    }
    let of_rows = (group.order.clone(), group.cols.clone());
    let mut rows = Stage::new(StageKind::Rows, (*graph).clone(), known, of_rows);
    for (store, &buffer) in group.stores.iter().zip(&work.stores) {
        let stage = if group.is_of_none(store) { &mut all } else { &mut rows };
        stage.store(store.clone(), operand(buffer));
    }
    for (stage, what) in [(&mut all, "all"), (&mut rows, "each")] {
        stage.fill(&[]);
        stage.name = format!("{}_{what}", work.name);
    }
    [all, rows]
}

/// The ways to run the rows after parts of all of them, where that pays.
fn in_parts(
    split: &mut SplitReduction<'_>,
    facts: &TargetFacts,
    (reduces, pays): (Vec<NodeId>, &Condition),
) -> Vec<Config> {
    let mut stage = split.all();
    let order = split.partition.parts();
    // There may be few parts, but they are gone through as many are.
    stage.graph.looped = stage.graph.looped.union(order.iter().copied().collect());
    let partials = reduces.iter().map(|&id| {
        let (name, dtype) = (format!("parts of {}", word(&stage.graph, id)), stage.graph.node(id).dtype);
        let made = split.memory(&stage.graph, name, dtype, order.clone());
        (id, split.of_few(made))
    });
    let partials = partials.collect();
    let of_rows = (stage.group.order.clone(), stage.group.cols.clone());
    let round = Round { stage: &stage, reduces, merges: vec![], order, partials };
    split.parts(&round);
    let (copy, partials) = split.of_partials(&round);
    let mut rows = split.after_parts(&round, (&copy, &partials), of_rows);
    split.name(&mut rows, "rows");
    let parts = &split.stages[0];
    let schedule = split.partition.schedule;
    let same: Vec<Vec<Scheduled>> =
        split.stages.iter().map(|stage| same_for_all(stage, facts, schedule)).collect();
    let binds = if facts.rebased { binds(split, &same) } else { vec![] };
    let config = |mut rows: Scheduled| {
        let (index, lanes) = (rows.kernel.index, lanes(&rows, facts));
        let mut when = std::mem::take(&mut rows.when);
        when.push(pays.clone());
        when.extend(width_conditions(&parts.work(), facts, index));
        when.extend(binds.clone());
        if lanes > 1 {
            when.push(Condition::Divides(split.partition.innermost.clone(), lanes.into()));
        }
        let parts = launch((parts, &same[0]), &split.partition, facts, (index, lanes), &when);
        vec![Scheduled { when: once(when), ..parts }, rows]
    };
    row::row(&rows.work(), facts, Teams::All).into_iter().map(config).collect()
}

/// The lanes of vectors along parts, if rows have some.
fn lanes(rows: &Scheduled, facts: &TargetFacts) -> u8 {
    let is_vector = |lanes: Lanes| matches!(lanes, Lanes::Const(2..));
    match facts.vector {
        Vectors::Lanes(lanes) if rows.kernel.types.iter().any(|ty| is_vector(ty.lanes)) => lanes,
        Vectors::Lanes(_) | Vectors::Loops(_) => 1,
    }
}
