//! Reductions of a contraction's elements along its columns or along its rows. Whoever stores elements of a tile also
//! combines parts of their rows or columns, and another kernel combines the parts, so that nobody reads the elements
//! again.
//!
//! A part has as many columns as the largest tile of the CPU, or as the smallest tile of a GPU; or as many rows as
//! the boxes of the CPU are multiples of. So the order of a sum depends on extents alone.

use super::super::partition::Partition;
use super::super::pointwise::pointwise;
use super::super::row_space::RowSpace;
use super::super::space::{self, cols};
use super::super::split_reduction::{Stage, in_tiles};
use super::super::{Config, Operand, Schedule, Scheduled, Scratch, Work, column, row};
use super::Product;
use super::reduced_tiles::Reduced;
use crate::fuse::{Load, Store};
use crate::ir::dim::DimExpr;
use crate::ir::graph::{AXES_MAX, Access, AxisId, AxisSet, Fusing, NodeId};
use crate::ir::kernel::{BufferId, IndexWidth};
use crate::ir::plan::{Condition, Footprint, ROW_PART, RowParts, Slot, Space};
use crate::target::{TargetFacts, Tiles};

/// The direction in a tile that reductions go along.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Reductions of rows.
    AlongCols,
    /// Reductions of columns.
    AlongRows,
}

/// Reductions of a group whose parts the kernels of a contraction combine.
pub struct TilePartials {
    pub(super) direction: Direction,
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
    /// The kernel that computes elements from what is combined, if the group stores elements.
    elements: Option<Stage>,
    /// True if the kernels of tiles store no elements, since nobody reads them.
    pub(super) is_alone: bool,
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
            && group.unrolled.is_empty()
            && group.moved.is_empty()
            && group.of_all(graph).is_empty();
        if graph.fusing == Fusing::Off || !is_reduction || !group.loads.iter().any(is_stored) {
            return None;
        }
        let (product, _) = Product::in_tiles(contraction, facts)?;
        let (direction, outer) = product.direction(contraction, (&group.cols, &group.order))?;
        // A row that also has elements is in a cache when these are computed.
        let has_elements = group.stores.iter().any(|store| group.is_of_elements(store));
        if has_elements && direction == Direction::AlongCols {
            return None;
        }
        let (kept, inner) = match direction {
            Direction::AlongCols => (&product.rows, &product.cols),
            Direction::AlongRows => (&product.cols, &product.rows),
        };
        let len = part_len(direction, facts)?;
        if graph.axes.len() >= AXES_MAX {
            return None;
        }
        let partition = Partition::of_tiles(graph, (outer, inner.clone()), len);
        let batch = &product.batch;
        // The rows of a tile lie next to each other for the team that has the tile, and the items of the CPU are parts
        // of the rows of the space.
        let order = match (facts.contractions.tiles, direction) {
            (Tiles::Driver { .. }, Direction::AlongCols) => {
                [batch.as_slice(), kept, &[partition.part]].concat()
            }
            _ => [batch.as_slice(), &[partition.part], kept].concat(),
        };
        let mut split = in_tiles(reductions, partition.clone(), order)?;
        split.whole.name = format!("{}_of_tiles", reductions.name);
        split.parts.name = format!("{}_in_tiles", reductions.name);
        if let Some(elements) = &mut split.elements {
            elements.name = format!("{}_after_tiles", reductions.name);
        }
        let parts = split.parts.work();
        let is_line = cols(&split.parts.graph, parts.group, &parts.operands).len() == 1;
        let is_read = parts.operands.iter().all(|operand| operand.access != Access::ReadWrite);
        drop(parts);
        let made = TilePartials {
            direction,
            first: reductions.temporaries,
            scratch: split.scratch,
            partition,
            parts: split.parts,
            map: split.map,
            whole: split.whole,
            elements: split.elements,
            is_alone: false,
        };
        let fits = match (facts.contractions.tiles, direction) {
            (Tiles::Driver { .. }, Direction::AlongRows) => made.is_run_of_rows(&product, contraction),
            _ => true,
        };
        (is_line && is_read && fits).then_some(made)
    }

    /// Returns the partial results alone, without the elements of the contraction. Only readers of partial results may
    /// follow then.
    pub fn alone(mut self, contraction: &Work<'_>, facts: &TargetFacts) -> Option<TilePartials> {
        let lent = self.lent(contraction);
        let reads = |stage: &Stage| stage.work().operands.iter().any(|operand| lent.contains(&operand.slot));
        let binds = |kernel: &Scheduled| kernel.storage_buffers() <= facts.buffers_max;
        // Products of matrices have no rows that threads share.
        let has_tiles = match facts.contractions.tiles {
            Tiles::Driver { .. } => true,
            Tiles::Teams(_) => Product::in_tiles(contraction, facts)?.0.matrices(contraction).is_none(),
        };
        self.is_alone = has_tiles
            && self.direction == Direction::AlongCols
            && !reads(&self.whole)
            && !self.elements.iter().any(reads)
            && self.combined(facts, &[]).iter().flatten().all(binds);
        self.is_alone.then_some(self)
    }

    /// Returns true if the rows of a part are contiguous elements of what the contraction stores.
    fn is_run_of_rows(&self, product: &Product, contraction: &Work<'_>) -> bool {
        let (lent, parts) = (self.lent(contraction), self.parts.work());
        let mut of_contraction = parts.operands.iter().filter(|operand| lent.contains(&operand.slot));
        let axes = [product.rows.as_slice(), &product.cols].concat();
        product.batch.is_empty() && of_contraction.all(|operand| operand.axes == axes && !operand.moved)
    }

    /// Returns the memory that a contraction stores elements in.
    fn lent(&self, contraction: &Work<'_>) -> Vec<Slot> {
        let operand = |buffer: &BufferId| contraction.operands[usize::from(buffer.0)].slot;
        contraction.stores.iter().map(operand).collect()
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
        let whole = row::of_partials(&self.whole.work(), facts, Schedule::Column);
        let elements = match &self.elements {
            Some(stage) => pointwise(&stage.work(), facts).into_iter().map(Some).collect(),
            None => vec![None],
        };
        let pairs = elements.iter().flat_map(|elements| whole.iter().map(move |whole| (whole, elements)));
        let config = |(whole, elements): (&Scheduled, &Option<Scheduled>)| {
            let when = whole.when.iter().chain(when).cloned().collect();
            [Scheduled { when, ..whole.clone() }].into_iter().chain(elements.clone()).collect()
        };
        pairs.map(config).collect()
    }

    /// Returns the kernel of a team that combines parts of the rows or columns of a tile, which the team has stored.
    pub(super) fn by_team(
        &self,
        facts: &TargetFacts,
        threads: u32,
        (index, lanes): (IndexWidth, u8),
    ) -> Scheduled {
        let of = match self.direction {
            Direction::AlongCols => (index, Some(lanes)),
            Direction::AlongRows => (index, None),
        };
        row::parts_by_team(&self.parts.work(), facts, (&self.partition, threads), of)
    }

    /// Returns the kernel of the CPU that combines parts of columns, when the rows of a part are stored, and the number of
    /// the launch as what follows a tile.
    pub(super) fn of_rows(
        &self,
        contraction: &Work<'_>,
        facts: &TargetFacts,
        launch: usize,
    ) -> (Scheduled, RowParts) {
        let (lent, mut own) = (self.lent(contraction), self.parts.work());
        for operand in own.operands.iter_mut().filter(|operand| lent.contains(&operand.slot)) {
            operand.access = Access::ReadWrite;
        }
        let mut made = column::parts(&own, facts, &self.partition, (IndexWidth::Bits64, 1));
        made.space.grain_min = made.space.grain;
        let mut elements = Vec::new();
        for (i, (arg, buffer)) in made.buffers.iter_mut().zip(&mut made.kernel.buffers).enumerate() {
            if lent.contains(&arg.slot) {
                (arg.footprint, buffer.strided) = (Footprint::Linear(self.partition.whole()), false);
                elements.push(i as u16);
            }
        }
        let parts = RowParts { launch: launch as u16, elements: elements.into() };
        (Scheduled { when: vec![], of_blocks: true, ..made }, parts)
    }

    /// Returns the number of parts of a row or column, and the elements of each but the last.
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

    /// Returns the product and the reductions of its parts as one stage, which stores partial results alone.
    pub(super) fn reduced(&self, product: &Product, contraction: &Work<'_>) -> Reduced {
        let of = |id: NodeId| self.map[id.0 as usize];
        let (lent, mut stage) = (self.lent(contraction), self.parts.clone());
        stage.known.retain(|_, operand| !lent.contains(&operand.slot));
        for (load, operand) in contraction.known() {
            let load = match load {
                Load::Param(param) => Load::Param(param),
                Load::Stored(node) => Load::Stored(of(node)),
            };
            stage.known.insert(load, operand);
        }
        stage.fill_anew(self.partition.part);
        stage.extend_rows(&product.depth);
        stage.name = format!("{}_reduced", contraction.name);
        let [sum, left, right] = [product.sum, product.left, product.right].map(of);
        let product = Product { sum, left, right, ..product.clone() };
        let along = self.partition.inner.iter().copied().collect();
        Reduced { product, stage, part: self.partition.part, len: self.partition.len.clone(), along }
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
        let stores = contraction.group.stores.iter().zip(&contraction.stores);
        for (store, &BufferId(buffer)) in stores.filter(|_| !self.is_alone) {
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

/// Returns the number of elements of a part.
fn part_len(direction: Direction, facts: &TargetFacts) -> Option<i64> {
    Some(match (facts.contractions.tiles, direction) {
        (Tiles::Driver { cols_max, .. }, Direction::AlongCols) => cols_max.into(),
        (Tiles::Driver { .. }, Direction::AlongRows) => ROW_PART as i64,
        (Tiles::Teams(shapes), Direction::AlongCols) => shapes.iter().map(|shape| shape.cols).min()?.into(),
        (Tiles::Teams(shapes), Direction::AlongRows) => shapes.iter().map(|shape| shape.rows).min()?.into(),
    })
}

impl Product {
    /// Returns the direction in tiles that reductions over these axes go along, with results in this order, and the axes
    /// of the batch among these axes.
    fn direction(
        &self,
        work: &Work<'_>,
        (along, results): (&[AxisId], &[AxisId]),
    ) -> Option<(Direction, Vec<AxisId>)> {
        let Product { batch, rows, cols, .. } = self;
        let along: AxisSet = along.iter().copied().collect();
        let (outer, kept): (Vec<AxisId>, Vec<AxisId>) = batch.iter().partition(|axis| along.contains(**axis));
        if work.group.order != [kept.as_slice(), &outer, rows, cols].concat() {
            return None;
        }
        let directions = [(Direction::AlongCols, cols, rows), (Direction::AlongRows, rows, cols)];
        let found = directions.into_iter().find(|(_, reduced, left)| {
            outer.iter().chain(reduced.iter()).copied().collect::<AxisSet>() == along
                && results == [kept.as_slice(), left].concat()
        });
        found.map(|(direction, ..)| (direction, outer))
    }
}
