//! Reductions of a contraction's elements along its columns. The kernel that stores elements of a tile also
//! combines parts of their rows, and another kernel combines the parts, so that nobody reads the elements again.
//!
//! A part has as many columns as the largest tile of the CPU, or as the smallest tile of a GPU. So the order of a sum
//! depends on extents alone.

use super::super::partition::Partition;
use super::super::row_space::RowSpace;
use super::super::space::{self, cols};
use super::super::split_reduction::{Stage, in_tiles};
use super::super::{Config, Operand, Schedule, Scheduled, Scratch, Work, row};
use super::Product;
use crate::fuse::{Load, Store};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AXES_MAX, Access, AxisId, AxisSet, Fusing, NodeId};
use crate::ir::kernel::{BufferId, IndexWidth};
use crate::ir::plan::{Condition, Footprint, Slot, Space};
use crate::target::{TargetFacts, Tiles};

/// Reductions of a group whose parts the kernels of a contraction combine.
pub struct TilePartials {
    /// Number of the temporary that has the partial results of the first reduction.
    first: u16,
    /// Memory of the partial results of each reduction.
    scratch: Vec<Scratch>,
    partition: Partition,
    /// The kernel that combines parts.
    parts: Stage,
    /// Number of each node of the function in the graph of that kernel.
    map: Vec<NodeId>,
    /// The kernel that combines the results of parts.
    whole: Stage,
}

/// The use that a group makes of partial results.
#[derive(Clone, Copy)]
pub enum Partials<'g> {
    /// The kernels of tiles store them.
    Stores(&'g TilePartials),
    /// Reductions read them for calls with these conditions, under which they are stored.
    Reads(&'g TilePartials, &'g [Condition]),
}

impl<'g> Partials<'g> {
    /// Returns the memory that has this slot, if it has partial results.
    pub(crate) fn scratch_of(self, slot: Slot) -> Option<&'g Scratch> {
        let (Partials::Stores(of) | Partials::Reads(of, _)) = self;
        of.scratch_of(slot)
    }
}

impl TilePartials {
    /// Returns the partial results of `reductions` that the tiles of `contraction` can store. The temporaries of
    /// `reductions` are followed by those of the partial results.
    pub fn of(contraction: &Work<'_>, reductions: &Work<'_>, facts: &TargetFacts) -> Option<TilePartials> {
        let (graph, group) = (contraction.graph, reductions.group);
        let is_stored = |load: &Load| {
            let node = match load {
                Load::Stored(node) => node,
                Load::Param(_) => return false,
            };
            contraction.group.stores.iter().any(|store| store.node == *node)
        };
        let is_reduction = !group.cols.is_empty()
            && !group.stores.iter().any(|store| group.is_of_elements(store))
            && group.unrolled.is_empty()
            && group.moved.is_empty()
            && group.of_all(graph).is_empty();
        if graph.fusing == Fusing::Off || !is_reduction || !group.loads.iter().any(is_stored) {
            return None;
        }
        let (product, _) = Product::in_tiles(contraction, facts)?;
        let (outer, inner) = product.reduced_along(contraction, &group.cols, &group.order)?;
        let len = match facts.contractions.tiles {
            Tiles::Driver { cols_max, .. } => cols_max.into(),
            Tiles::Teams(shapes) => shapes.iter().map(|shape| shape.cols).min()?.into(),
        };
        if graph.axes.len() >= AXES_MAX {
            return None;
        }
        let partition = Partition::of_tiles(graph, (outer, inner), len);
        let Product { batch, rows, .. } = &product;
        // The rows of a tile lie next to each other for the team that has the tile, and the items of the CPU are parts
        // of the rows of the space.
        let order = match facts.contractions.tiles {
            Tiles::Driver { .. } => [batch.as_slice(), rows, &[partition.part]].concat(),
            Tiles::Teams(_) => [batch.as_slice(), &[partition.part], rows].concat(),
        };
        let mut split = in_tiles(reductions, partition.clone(), order)?;
        split.whole.name = format!("{}_of_tiles", reductions.name);
        let parts = split.parts.work();
        let is_line = cols(&split.parts.graph, parts.group, &parts.operands).len() == 1;
        let is_read = parts.operands.iter().all(|operand| operand.access != Access::ReadWrite);
        drop(parts);
        (is_line && is_read).then_some(TilePartials {
            first: reductions.temporaries,
            scratch: split.scratch,
            partition,
            parts: split.parts,
            map: split.map,
            whole: split.whole,
        })
    }

    /// Returns the memory of the partial results.
    pub fn scratch(&self) -> &[Scratch] {
        &self.scratch
    }

    /// Returns the memory that has this slot, if it has partial results.
    pub(crate) fn scratch_of(&self, slot: Slot) -> Option<&Scratch> {
        match slot {
            Slot::Temp(number) => self.scratch.get(usize::from(number.checked_sub(self.first)?)),
            Slot::Param(_) | Slot::Output(_) => None,
        }
    }

    /// Returns the configs of the reductions that combine partial results.
    pub(in crate::schedule) fn combined(&self, facts: &TargetFacts, when: &[Condition]) -> Vec<Config> {
        let kernels = row::of_partials(&self.whole.work(), facts, Schedule::Column).into_iter();
        let config = |kernel: Scheduled| {
            let when = kernel.when.iter().chain(when).cloned().collect();
            vec![Scheduled { when, ..kernel }]
        };
        kernels.map(config).collect()
    }

    /// Returns the kernel of a team that combines parts of the rows of a tile, which the team has stored.
    pub(super) fn by_team(&self, facts: &TargetFacts, threads: u32, of: (IndexWidth, u8)) -> Scheduled {
        row::parts_by_team(&self.parts.work(), facts, (&self.partition, threads), of)
    }

    /// Returns the number of parts of a row, and the columns of each but the last.
    pub(super) fn parts(&self) -> (DimExpr, DimExpr) {
        (self.partition.last() + DimExpr::constant(1), self.partition.whole())
    }

    /// Returns the kernel of the CPU that computes elements from tiles of the sum, and combines their parts.
    pub(super) fn finish(
        &self,
        product: &Product,
        contraction: &Work<'_>,
        (facts, tile): (&TargetFacts, &Operand),
        name: String,
    ) -> Scheduled {
        let stage = self.elements(product, contraction, (tile, name));
        let mut own = stage.work();
        for operand in own.operands.iter_mut().filter(|operand| operand.slot == tile.slot) {
            operand.access = Access::ReadWrite;
        }
        let dims = RowSpace::of_parts(&own, facts, &self.partition);
        let ((mut kernel, mut buffers), row_memory) = row::kernel_on_cpu(&own, facts, &dims);
        for (arg, buffer) in buffers.iter_mut().zip(&mut kernel.buffers) {
            let is_partial = self.scratch_of(arg.slot).is_some();
            if arg.access != Access::Read {
                let elements = Footprint::Linear(DimExpr::constant(1));
                (arg.footprint, buffer.strided) =
                    (if is_partial { Footprint::Item } else { elements }, false);
            }
        }
        let extent =
            |axes: &[AxisId]| DimExpr::product(axes.iter().map(|&axis| &contraction.graph.axis(axis).extent));
        let grain = self.partition.whole().as_const().unwrap_or_else(|| unreachable!("parts have a length"));
        let grain = grain as u32;
        let launched = Space {
            rows: extent(&product.batch) * extent(&product.rows),
            cols: space::product(dims.cols()),
            grain,
            grain_min: grain,
            each: DimExpr::constant(1),
        };
        Scheduled { row_memory, ..Scheduled::new(vec![], (kernel, buffers), launched) }
    }

    /// Returns the stage that stores elements and the results of parts, both from tiles of the sum.
    fn elements(&self, product: &Product, contraction: &Work<'_>, (tile, name): (&Operand, String)) -> Stage {
        let mut stage = self.parts.clone();
        let of = |id: NodeId| self.map[id.0 as usize];
        let slots: Vec<Slot> = contraction
            .stores
            .iter()
            .map(|buffer| contraction.operands[usize::from(buffer.0)].slot)
            .collect();
        stage.known.retain(|_, operand| !slots.contains(&operand.slot));
        for (load, operand) in contraction.known() {
            let load = match load {
                Load::Param(param) => Load::Param(param),
                Load::Stored(node) => Load::Stored(of(node)),
            };
            stage.known.insert(load, operand);
        }
        let sum = of(product.sum);
        stage.known.insert(Load::Stored(sum), tile.clone());
        for (store, &BufferId(buffer)) in contraction.group.stores.iter().zip(&contraction.stores) {
            // A stored sum is a value of its own, computed from the known one.
            let node = if of(store.node) == sum { stage.copy(sum) } else { of(store.node) };
            let operand = contraction.operands[usize::from(buffer)].clone();
            stage.store(Store { node, ..store.clone() }, operand);
        }
        stage.fill_anew(self.partition.part);
        stage.name = name;
        stage
    }
}

impl Product {
    /// Returns the axes of the batch and the columns along which reductions over these axes go, with results in this
    /// order, if the rows of a tile are rows of the reductions.
    fn reduced_along(
        &self,
        work: &Work<'_>,
        along: &[AxisId],
        results: &[AxisId],
    ) -> Option<(Vec<AxisId>, Vec<AxisId>)> {
        let Product { batch, rows, cols, .. } = self;
        let along: AxisSet = along.iter().copied().collect();
        let (outer, kept): (Vec<AxisId>, Vec<AxisId>) = batch.iter().partition(|axis| along.contains(**axis));
        let is_all = outer.iter().chain(cols).copied().collect::<AxisSet>() == along;
        let is_in_order = work.group.order == [kept.as_slice(), &outer, rows, cols].concat()
            && results == [kept.as_slice(), rows].concat();
        (is_all && is_in_order).then(|| (outer, cols.clone()))
    }
}
