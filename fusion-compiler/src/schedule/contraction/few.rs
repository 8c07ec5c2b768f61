//! Products of few rows or few columns on the CPU: reductions, which read the large factor along its memory.
//!
//! The kernels of the reductions are the general ones. Two more kernels pay here: one that stores the small factor
//! where it lies across the rows of the large one, and one that computes elements from stored sums, in a loop over
//! many of them.

use std::collections::BTreeMap;

use super::{Product, factor};
use crate::fuse::{Load, Store, is_transcendental};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AxisId, AxisSet, NodeId, NodeKind};
use crate::ir::plan::Condition;
use crate::schedule::row::{self, Teams};
use crate::schedule::split_reduction::{Stage, StageKind, memory};
use crate::schedule::{Config, Operand, Schedule, Scheduled, Scratch, Work, chosen, column, pointwise};
use crate::target::TargetFacts;

/// The kernels beside that of a reduction.
#[derive(PartialEq)]
struct More {
    /// The factor that is stored first, with its axes in memory.
    stored: Option<(NodeId, Vec<AxisId>)>,
    /// Axes of the sums in memory, if elements are computed from stored sums.
    sums: Option<Vec<AxisId>>,
}

impl Product {
    /// Returns the configs for few rows and for few columns, where more kernels pay than that of the reduction.
    pub(super) fn by_few(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        scratch: &mut Vec<Scratch>,
    ) -> Vec<Config> {
        let sizes = &facts.contractions;
        let rows = (self.left, self.rows.as_slice(), sizes.rows_min);
        let cols = (self.right, self.cols.as_slice(), sizes.cols_min);
        let mut made: Vec<(More, Vec<Config>)> = Vec::new();
        for (name, few, many) in [("few_rows", rows, cols), ("few_cols", cols, rows)] {
            let axes = [few.0, many.0].map(|factor| work.graph.node(factor).axes);
            let extent =
                |axes: AxisSet| DimExpr::product(axes.iter().map(|axis| &work.graph.axis(axis).extent));
            let when = vec![
                Condition::AtMost(extent(axes[0].minus(axes[1])), few.2 - 1),
                // Fewer rows may be split.
                Condition::AtLeast(extent(axes[1].minus(axes[0])), many.2.max(facts.parts.rows_max + 1)),
                Condition::AtLeast(extent(self.depth.iter().copied().collect()), sizes.depth_min),
            ];
            let is_possible = when.iter().all(|condition| condition.known() != Some(false));
            let Some(more) = self.more(work, (few.0, many.0), many.1).filter(|_| is_possible) else {
                continue;
            };
            let same = made.iter().find(|(other, _)| *other == more).map(|(_, configs)| configs.clone());
            let mut configs = same.unwrap_or_else(|| self.few(work, facts, (&more, name), scratch));
            configs.iter_mut().for_each(|config| config[0].when.clone_from(&when));
            made.push((more, configs));
        }
        made.into_iter().flat_map(|(_, configs)| configs).collect()
    }

    /// Returns the kernels that pay for a factor with few lanes and one with these many lanes, if any do.
    fn more(&self, work: &Work<'_>, (few, many): (NodeId, NodeId), lanes: &[AxisId]) -> Option<More> {
        let order = &work.group.order;
        let is_in = |axes: &[AxisId], lies: &[AxisId]| lies.last().is_some_and(|axis| axes.contains(axis));
        let [lies_few, lies_many] = [few, many].map(|of| factor::order(work, of));
        let lies_across = is_in(&self.depth, &lies_many) && !is_in(&self.depth, &lies_few);
        let is_exchanged = is_in(lanes, &lies_many) && !is_in(lanes, order);
        let is_apart = is_exchanged || self.has_transcendental_elements(work);
        let axes = work.graph.node(few).axes;
        let along_depth = order.iter().chain(&self.depth).copied().filter(|axis| axes.contains(*axis));
        // Neighbouring lanes of the large factor have neighbouring sums.
        let mut sums = order.clone();
        sums.sort_by_key(|axis| is_exchanged && lanes.contains(axis));
        let more = More {
            stored: lies_across.then(|| (few, along_depth.collect())),
            sums: is_apart.then_some(sums),
        };
        (lies_across || is_apart).then_some(more)
    }

    /// Returns the configs for a factor with few lanes, which differ in the kernel of elements.
    fn few(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        (more, name): (&More, &str),
        scratch: &mut Vec<Scratch>,
    ) -> Vec<Config> {
        let (mut stages, mut known, mut cols) = (Vec::new(), work.known(), self.depth.clone());
        let mut store =
            |known: &mut BTreeMap<Load, Operand>, (id, of): (NodeId, &str), order: &[AxisId], cols| {
                let (mut graph, order) = (work.graph.clone(), order.to_vec());
                // A value that is stored already is copied.
                let is_known = known.contains_key(&Load::Stored(id));
                let node = if is_known { graph.copy(id) } else { id };
                let made = memory(work, scratch, &graph, of.into(), graph.node(id).dtype, order.clone());
                let mut stage = Stage::new(StageKind::Rows, graph, known.clone(), (order.clone(), cols));
                stage.store(Store { node, output: None, order }, made.clone());
                stage.name = format!("{}_{name}_{of}", work.name);
                stages.push(stage);
                known.insert(Load::Stored(id), made);
            };
        if let Some((id, order)) = &more.stored {
            store(&mut known, (*id, "factor"), order, vec![]);
        }
        if let Some(order) = &more.sums {
            store(&mut known, (self.sum, "sums"), order, std::mem::take(&mut cols));
        }
        let mut elements = self.elements(work, known, cols);
        elements.name = format!("{}_{name}", work.name);
        // The last kernel of a schedule is for all calls.
        let before: Config = stages.into_iter().filter_map(|stage| kernels(stage, facts).pop()).collect();
        let after = kernels(elements, facts).into_iter();
        after.map(|last| before.iter().cloned().chain([last]).collect()).collect()
    }

    /// Returns true if the elements that are computed from a sum need an approximation.
    fn has_transcendental_elements(&self, work: &Work<'_>) -> bool {
        let of = |id: &NodeId| work.graph.node(*id);
        let is_dear = |id: &NodeId| matches!(of(id).kind, NodeKind::Apply(op) if is_transcendental(op));
        let depth: AxisSet = self.depth.iter().copied().collect();
        work.group.nodes.iter().any(|id| is_dear(id) && of(id).axes.intersection(depth).is_empty())
    }
}

/// Returns the kernels of a stage, of which a call runs the first whose conditions hold.
pub(super) fn kernels(mut stage: Stage, facts: &TargetFacts) -> Vec<Scheduled> {
    stage.fill(&[]);
    let work = stage.work();
    match chosen(&work) {
        Schedule::Pointwise => pointwise::pointwise(&work, facts),
        Schedule::Row => row::row(&work, facts, Teams::All),
        Schedule::Column => column::column(&work, facts),
    }
}
