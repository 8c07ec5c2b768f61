//! Contractions: sums of products over axes that both factors have, in rows that one factor has and columns
//! that the other has.
//!
//! On the CPU, the device's driver computes the products in tiles, and one kernel of elements finishes each
//! tile. A kernel computes a factor of few operations whenever the driver packs a block of it, and stores another
//! factor before (`factor.rs`). Few rows or columns are reductions (`few.rs`). On GPUs, one kernel computes factors,
//! products and elements (`tiles.rs`), or two where there are few tiles (`parts.rs`).

mod attention;
mod attention_parts;
mod attention_tiles;
mod factor;
mod few;
mod partials;
mod parts;
mod reduced_tiles;
mod seen_keys;
mod tiles;
mod visible;
mod window;

use std::collections::BTreeMap;

use attention::Attend;
use factor::FactorSource;
use partials::Direction;
pub use partials::{Partials, TilePartials};
pub use visible::has_ends;

use super::items::Grain;
use super::pointwise::on_cpu;
use super::space::dims_along;
use super::split_reduction::{Stage, StageKind, memory};
use super::{Config, Operand, Scheduled, Scratch, Work};
use crate::fuse::products::{NoContraction, factors, obstacle};
use crate::fuse::{Group, Load, Store};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{Access, AxisId, AxisSet, Graph, NodeId, NodeKind, Reduce};
use crate::ir::plan::{Condition, Contraction, RowParts, TileAxis};
use crate::target::{Contractions, TargetFacts, Tiles};

/// A sum of products, and the roles of its axes.
#[derive(Clone)]
pub struct Product {
    sum: NodeId,
    left: NodeId,
    right: NodeId,
    /// Axes with a product for each coordinate.
    pub batch: Vec<AxisId>,
    /// Axes of the left factor.
    pub rows: Vec<AxisId>,
    /// Axes of the right factor: the innermost ones of the space.
    pub cols: Vec<AxisId>,
    /// Axes that are summed over.
    pub depth: Vec<AxisId>,
}

/// Returns the configs of a group that is a contraction, in order of preference, and appends the memory between
/// their kernels.
pub(super) fn contraction(work: &Work<'_>, facts: &TargetFacts, scratch: &mut Vec<Scratch>) -> Vec<Config> {
    if let Some(attend) = Attend::new(work, facts) {
        return attend.configs(scratch);
    }
    let Some((product, when)) = Product::in_tiles(work, facts) else { return vec![] };
    let (mut configs, few): (Vec<Config>, Vec<Config>) = match facts.contractions.tiles {
        Tiles::Driver { cols_min, cols_max } => (
            product.by_driver(work, facts, ((cols_min, cols_max), scratch)),
            product.by_few(work, facts, scratch),
        ),
        Tiles::Teams(shapes) => (tiles::tiles(&product, work, facts, (shapes, scratch)), vec![]),
    };
    for kernel in configs.iter_mut().filter_map(|config| config.last_mut()) {
        kernel.when.extend(when.clone());
    }
    configs.extend(few);
    configs
}

impl Product {
    /// Returns the product that a group consists of, apart from elements that are computed from its sum.
    pub fn of(graph: &Graph, group: &Group) -> Option<Product> {
        let mut sums = group.nodes.iter().copied().filter(|&id| factors(graph, id).is_some());
        sums.find_map(|sum| Product::at(graph, group, sum).ok())
    }

    /// Returns the product that tiles compute for some calls of a group, and the conditions on these calls.
    pub fn in_tiles(work: &Work<'_>, facts: &TargetFacts) -> Option<(Product, Vec<Condition>)> {
        let product = Product::of(work.graph, work.group)?;
        let when = product.conditions(work.graph, &facts.contractions);
        when.iter().all(|condition| condition.known() != Some(false)).then_some((product, when))
    }

    /// Returns the product of a sum, if the group consists of the product and of elements that are computed from
    /// the sum.
    pub fn at(graph: &Graph, group: &Group, sum: NodeId) -> Result<Product, NoContraction> {
        let Some((along, of)) = factors(graph, sum) else { return Err(NoContraction::Elements) };
        let node = graph.node(sum);
        if let Some(obstacle) = obstacle(graph, sum, (along, of)) {
            return Err(obstacle);
        }
        if graph.looped_axes(sum).is_empty() {
            return Err(NoContraction::Unrolled);
        }
        let is_known = |id: NodeId| group.nodes.contains(&id);
        if matches!(node.kind, NodeKind::Reduce(Reduce::Sum, _)) && !is_known(node.args[0]) {
            return Err(NoContraction::Used);
        }
        let axes = of.map(|factor| graph.node(factor).axes);
        let only = |side: usize| axes[side].minus(axes[1 - side]);
        if group.nodes.iter().any(|&id| id != sum && !graph.looped_axes(id).is_empty()) {
            return Err(NoContraction::Several);
        }
        let of_elements = group.stores.iter().any(|store| group.is_of_elements(store));
        let is_along = |axes: AxisSet, order: &[AxisId]| axes == order.iter().copied().collect();
        if of_elements
            || !is_along(along, &group.cols)
            || !is_along(node.axes, &group.order)
            || !group.unrolled.is_empty()
        {
            return Err(NoContraction::Elements);
        }
        // The columns are the innermost axes of the space.
        let inner = group.order.last().copied();
        let right = usize::from(inner.is_some_and(|inner| only(1).contains(inner)));
        let is_col = |axis: &&AxisId| only(right).contains(**axis);
        let cols = group.order.iter().rev().take_while(is_col).count();
        if cols == 0 {
            return Err(NoContraction::Elements);
        }
        let (outer, cols) = group.order.split_at(group.order.len() - cols);
        let is_row = |axis: &AxisId| only(1 - right).contains(*axis);
        let (rows, batch) = outer.iter().copied().partition(is_row);
        Ok(Product {
            sum,
            left: of[1 - right],
            right: of[right],
            batch,
            rows,
            cols: cols.to_vec(),
            depth: group.cols.clone(),
        })
    }

    /// Returns the configs whose tiles the driver of the device computes, with at most `cols` columns each. Those that combine
    /// parts of columns, if any, are for rows of so many columns at most.
    fn by_driver(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        (cols, scratch): ((u32, u32), &mut Vec<Scratch>),
    ) -> Vec<Config> {
        let mut configs = Vec::new();
        if let Some(Partials::Stores(partials)) = work.partials
            && partials.direction == Direction::AlongRows
        {
            // A strip has all columns of the rows of a part.
            let whole = (cols.1, cols.1);
            configs = self.driven(work, facts, (whole, scratch), Some(partials));
            let columns = DimExpr::product(self.cols.iter().map(|&axis| &work.graph.axis(axis).extent));
            let are_few = Condition::AtMost(columns, cols.1.into());
            let last = configs.iter_mut().filter_map(|config| config.last_mut());
            last.for_each(|last| last.when.push(are_few.clone()));
        }
        configs.extend(self.driven(work, facts, (cols, scratch), None));
        configs
    }

    /// Returns the configs with factors in blocks, and with stored factors for calls whose runs of elements are too short.
    /// The driver may combine parts of columns.
    fn driven(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        (cols, scratch): ((u32, u32), &mut Vec<Scratch>),
        partials: Option<&TilePartials>,
    ) -> Vec<Config> {
        let mut configs: Vec<Config> = Vec::new();
        for in_blocks in [true, false] {
            let mut config = Config::new();
            let mut source = |of| self.source(work, facts, (scratch, in_blocks), of, &mut config);
            let factors = (source((self.left, "left")), source((self.right, "right")));
            if let (Some(left), Some(right)) = factors {
                let parts = partials.map(|partials| {
                    let (kernel, parts) = partials.of_rows(work, facts, config.len());
                    config.push(kernel);
                    parts
                });
                config.push(self.finish(work, facts, (cols, scratch), ([left, right], parts)));
                configs.push(config);
            }
            if configs.iter().flatten().all(|kernel| kernel.when.is_empty()) {
                break;
            }
        }
        configs
    }

    /// Returns all axes.
    pub fn axes(&self) -> impl Iterator<Item = AxisId> {
        [&self.batch, &self.rows, &self.cols, &self.depth].into_iter().flatten().copied()
    }

    /// Returns the conditions under which the products are large enough for tiles.
    fn conditions(&self, graph: &Graph, sizes: &Contractions) -> Vec<Condition> {
        let extent = |axes: &[AxisId]| DimExpr::product(axes.iter().map(|&axis| &graph.axis(axis).extent));
        let [rows, cols, depth] = [&self.rows, &self.cols, &self.depth].map(|axes| extent(axes));
        let conditions = [(rows, sizes.rows_min), (cols, sizes.cols_min), (depth, sizes.depth_min)];
        let conditions = conditions.map(|(extent, least)| Condition::AtLeast(extent, least));
        conditions.into_iter().filter(|condition| condition.known() != Some(true)).collect()
    }

    /// Returns the kernel that computes the elements of the group from tiles of the sum.
    fn finish(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        (cols, scratch): ((u32, u32), &mut Vec<Scratch>),
        (factors, parts): ([FactorSource; 2], Option<RowParts>),
    ) -> Scheduled {
        let (sum, order) = (work.graph.node(self.sum), work.group.order.clone());
        // A tile has no memory of its own in the plan.
        let tile = memory(work, scratch, work.graph, "tile".into(), sum.dtype, order);
        if let Some(scratch) = scratch.last_mut() {
            scratch.len = DimExpr::constant(0);
        }
        let of_blocks = if factors.iter().any(FactorSource::is_in_blocks) { "_of_blocks" } else { "" };
        let suffix = match work.partials {
            _ if parts.is_some() => "_in_parts",
            Some(Partials::Stores(partials)) if partials.is_alone => "_reduced",
            _ => "",
        };
        let name = format!("{}_tiles{of_blocks}{suffix}", work.name);
        let (finish, inner) = match work.partials {
            Some(Partials::Stores(partials)) if partials.direction == Direction::AlongCols => {
                (partials.finish(self, work, (facts, &tile), name), self.cols.clone())
            }
            Some(_) | None => self.elements_of_tiles(work, facts, (cols, &tile), name),
        };
        // The kernel has one buffer for all views of a tensor, so the number is known only now.
        let number = finish.buffers.iter().position(|buffer| buffer.slot == tile.slot);
        let number = number.unwrap_or_else(|| unreachable!("the elements are computed from the sum"));
        let mut finish = self.with_tiles(work, finish, (number as u16, &inner), &factors);
        if let Some(contraction) = &mut finish.contraction {
            contraction.parts = parts;
        }
        finish
    }

    /// Returns the kernel that computes the elements of the group from tiles of the sum, and the axes of the innermost dim
    /// of its space.
    fn elements_of_tiles(
        &self,
        work: &Work<'_>,
        facts: &TargetFacts,
        (cols, tile): ((u32, u32), &Operand),
        name: String,
    ) -> (Scheduled, Vec<AxisId>) {
        let mut known = work.known();
        known.insert(Load::Stored(self.sum), tile.clone());
        let mut stage = self.elements(work, known, vec![]);
        stage.fill(&[]);
        stage.name = name;
        let mut own = stage.work();
        for operand in own.operands.iter_mut().filter(|operand| operand.slot == tile.slot) {
            operand.access = Access::ReadWrite;
        }
        let outer: Vec<AxisId> =
            own.group.order.iter().copied().filter(|axis| !self.cols.contains(axis)).collect();
        let mut dims = dims_along(&own, &outer);
        dims.extend(dims_along(&own, &self.cols));
        let mut finish = on_cpu(&own, facts, &dims, Grain::AtLaunch);
        (finish.space.grain_min, finish.space.grain) = cols;
        (finish, dims.last().map(|dim| dim.axes.clone()).unwrap_or_default())
    }

    /// Returns the stage of the elements of the group, which are computed from what is known: the sum, or factors of
    /// terms along `cols`.
    fn elements(&self, work: &Work<'_>, known: BTreeMap<Load, Operand>, cols: Vec<AxisId>) -> Stage {
        let mut graph = work.graph.clone();
        // A stored sum is a value of its own, computed from the known one.
        let of_sum = known.contains_key(&Load::Stored(self.sum)).then(|| graph.copy(self.sum));
        let mut stage = Stage::new(StageKind::Elements, graph, known, (work.group.order.clone(), cols));
        for (store, &buffer) in work.group.stores.iter().zip(&work.stores) {
            let node = of_sum.filter(|_| store.node == self.sum).unwrap_or(store.node);
            stage.store(Store { node, ..store.clone() }, work.operands[usize::from(buffer.0)].clone());
        }
        stage
    }

    /// Adds the contraction that computes the tiles of a kernel. The space of the kernel has the columns `inner`.
    fn with_tiles(
        &self,
        work: &Work<'_>,
        mut finish: Scheduled,
        (tile, inner): (u16, &[AxisId]),
        factors: &[FactorSource; 2],
    ) -> Scheduled {
        let graph = work.graph;
        let extent = |axis: &AxisId| &graph.axis(*axis).extent;
        let outer = |axis: &&AxisId| !inner.contains(*axis);
        let axis = |&axis: &AxisId| {
            let within = work.group.order.iter().skip_while(|&&other| other != axis).skip(1).filter(outer);
            let in_rows = work.group.order.contains(&axis) && !inner.contains(&axis);
            let zero = || DimExpr::constant(0);
            TileAxis {
                extent: extent(&axis).clone(),
                space: if in_rows { DimExpr::product(within.map(extent)) } else { zero() },
                left: factors[0].stride(graph, axis).unwrap_or_else(zero),
                right: factors[1].stride(graph, axis).unwrap_or_else(zero),
            }
        };
        // Columns that are none of the space have products of their own.
        let all = self.batch.iter().chain(self.cols.iter().filter(outer)).copied();
        // Products with the same left factor lie next to each other, so that they share its panels.
        let has_left = |axis: &AxisId| factors[0].stride(graph, *axis).is_some();
        let (mut batch, alike): (Vec<AxisId>, Vec<AxisId>) = all.partition(has_left);
        batch.extend(alike);
        let windows = [
            factors[0].windows(graph, [&batch, &self.rows, &self.depth]),
            factors[1].windows(graph, [&batch, inner, &self.depth]),
        ];
        let axes = |of: &[AxisId]| of.iter().map(axis).collect::<Vec<_>>().into();
        finish.contraction = Some(Contraction {
            batch: axes(&batch),
            windows,
            rows: axes(&self.rows),
            cols: axes(inner),
            depth: axes(&self.depth),
            left: factors[0].bind(&mut finish),
            right: factors[1].bind(&mut finish),
            tile,
            attention: None,
            parts: None,
        });
        finish
    }
}
