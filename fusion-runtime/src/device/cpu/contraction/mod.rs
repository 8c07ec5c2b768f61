//! Contractions: products of two operands, summed over the axes that both have and the result lacks.
//!
//! A box of rows and columns of the result is one task. It packs its operands block by block of the depth,
//! multiplies the panels into a tile, and runs the launch's kernel on the finished tile while the tile is in a
//! cache. All boxes of a strip of columns share the packed right operand, unless the depth is long. Planes of
//! windows (`planes.rs`) are packed for the whole depth at once, since the steps of a window share them.
//!
//! Invariant: a sum is a chain over blocks of `DEPTH` elements, each from zero, added in order. The sizes of
//! boxes and the number of threads never change a result.

#[cfg(all(test, target_arch = "x86_64"))]
mod assembly;
mod attention;
mod microkernel;
mod pack;
mod planes;
mod source;
mod strips;
#[cfg(test)]
mod tests;
mod windows;

use std::marker::PhantomData;
use std::num::Wrapping;
use std::sync::{Arc, Mutex, PoisonError};

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::plan::{
    self, Blocks, Contraction, DEPTH, Factor, ROW_PART, TileAxis, WINDOW_BOUNDS_MAX,
};
use fusion_compiler::target::tuning_table::runtime;

use super::launch::{PreparedLaunch, Tile, distribute};
use super::memory::{CpuMemory, Pool};
use crate::isa::Isa;
use attention::Attend;
use microkernel::{Accumulate, Microkernels, Panels};
use pack::{Direction, Operand};
use planes::{Layout, Planes};
use source::{BlockKernel, LaneBlock, OperandSource, PackedLanes, PanelMemory, RUN_STEPS};
use strips::{Boxes, Strip, Strips};
use windows::{WindowAxes, WindowAxis, WindowBounds, Windows};

/// A contraction whose extents and operands are known.
struct Resolved<'a, T: 'static> {
    launch: &'a PreparedLaunch<'a>,
    kernels: &'static Microkernels<T>,
    left: OperandSource<'a, T>,
    right: OperandSource<'a, T>,
    /// Row of the launch's space for each coordinate of the batch.
    batch: Direction,
    /// Row of the launch's space for each row of a product.
    rows: Direction,
    /// Number of the buffer that the launch's kernel reads tiles from.
    tile: usize,
    /// Columns of a strip.
    cols: usize,
    /// Number of adjacent coordinates of the batch that have the same left operand.
    alike: usize,
    /// The launch that combines parts of columns.
    parts: Option<&'a PreparedLaunch<'a>>,
    pool: &'a Arc<Pool>,
}

/// A stride of an axis: in the space or in one of the operands.
type Stride = fn(&TileAxis) -> &DimExpr;

// SAFETY: operands are only read while the launch runs, and each task writes memory of its own.
unsafe impl<T> Sync for Resolved<'_, T> {}

/// Packed columns of a strip for the whole depth.
struct Columns<'a, T> {
    strip: Strip,
    first: *mut T,
    /// Elements of a product's columns.
    each: usize,
    /// The layout of columns in planes.
    layout: Option<&'a Layout>,
}

// SAFETY: threads pack different parts, and only read packed ones.
unsafe impl<T> Sync for Columns<'_, T> {}

/// The reason why a contraction did not run.
pub(super) enum Failure {
    /// The plan does not fit its launch.
    Malformed,
    /// The system has no memory for panels and tiles: the bytes asked for.
    NoMemory(usize),
}

/// A launch of the same variant, with its number, whose kernel computes blocks of an operand.
pub(super) type PreparedProducer<'a> = (usize, PreparedLaunch<'a>);

/// A launch, and those whose kernels the driver runs for it.
type Launches<'a> = (&'a PreparedLaunch<'a>, &'a [PreparedProducer<'a>]);

/// Instructions of the processor, memory, and extents.
type Context<'a> = (Isa, &'a Arc<Pool>, &'a [i64]);

/// Runs a launch whose kernel finishes the tiles of a contraction.
pub(super) fn run<'a>(
    launch: &'a PreparedLaunch<'a>,
    of: &'a Contraction,
    producers: &'a [PreparedProducer<'a>],
    context: Context<'a>,
) -> Result<(), Failure> {
    let launches = (launch, producers);
    if of.attention.is_some() {
        return Attend::new(launches, of, context).ok_or(Failure::Malformed)?.run();
    }
    match launch.buffers.get(usize::from(of.tile)).map(|tile| tile.dtype) {
        Some(DType::F32) => Resolved::<f32>::new(launches, of, context).ok_or(Failure::Malformed)?.run(),
        Some(DType::F64) => Resolved::<f64>::new(launches, of, context).ok_or(Failure::Malformed)?.run(),
        // Sums that wrap have the same bits with and without a sign.
        Some(DType::I32 | DType::U32) => {
            Resolved::<Wrapping<i32>>::new(launches, of, context).ok_or(Failure::Malformed)?.run()
        }
        _ => Err(Failure::Malformed),
    }
}

impl<'a, T: Accumulate> Resolved<'a, T> {
    fn new(
        (launch, producers): Launches<'a>,
        of: &Contraction,
        (isa, pool, symbols): Context<'a>,
    ) -> Option<Resolved<'a, T>> {
        let kernels = T::microkernels(isa);
        let source = |factor: Factor, windows, (axes, width): (&[TileAxis], usize), stride: Stride| {
            let axes = [&*of.batch, axes, &of.depth];
            source((launch, producers), (factor, windows), axes, (stride, Some(width)), symbols)
        };
        let direction = |axes: &[TileAxis], stride| directions(axes, stride, symbols);
        let [space, left, right]: [Stride; 3] = [|axis| &axis.space, |axis| &axis.left, |axis| &axis.right];
        let mut alike = 1;
        for axis in of.batch.iter().rev() {
            if axis.left.eval(symbols)? != 0 {
                break;
            }
            alike *= usize::try_from(axis.extent.eval(symbols)?).ok()?;
        }
        let parts = of.parts.as_ref().map(|parts| {
            let is_it = |(number, _): &&PreparedProducer<'_>| *number == usize::from(parts.launch);
            producers.iter().find(is_it).map(|(_, launch)| launch)
        });
        let parts = match parts {
            // A part has all columns.
            Some(parts) => Some(parts.filter(|of| of.items.per_row() <= 1 && launch.items.per_row() <= 1)?),
            None => None,
        };
        Some(Resolved {
            launch,
            alike,
            parts,
            kernels,
            left: source(of.left, &of.windows[0], (&of.rows, kernels.rows), left)?,
            right: source(of.right, &of.windows[1], (&of.cols, kernels.cols), right)?,
            batch: direction(&of.batch, space)?,
            rows: direction(&of.rows, space)?,
            tile: usize::from(of.tile),
            cols: launch.items.grain(),
            pool,
        })
    }

    fn run(&self) -> Result<(), Failure> {
        let (batches, rows, cols) = (self.batch.len(), self.left.lanes(), self.right.lanes());
        let depth = self.left.operand.depth();
        let work = batches.saturating_mul(rows).saturating_mul(cols).saturating_mul(depth);
        let threads = if work < runtime::PARALLEL_PRODUCTS_MIN { 1 } else { rayon::current_num_threads() };
        let strips = Strips::new((batches, self.alike), (cols, self.cols));
        // Threads with as many strips of almost equal lengths share nothing.
        let are_even = strips.count.is_multiple_of(threads) && strips.are_alike;
        let by_strips = threads == 1 || are_even || strips.count >= 2 * threads;
        // Parts of columns are those of a box.
        let unit = if self.parts.is_some() { ROW_PART } else { self.kernels.rows };
        // A box that is alone in its strip packs each column once, and has only a block of the depth at hand.
        let is_one_box = rows <= if by_strips { runtime::BOX_ROWS } else { self.kernels.rows };
        if self.right.planes.is_none() && (is_one_box || depth > runtime::SHARED_DEPTH_MAX) {
            // A thread that is done takes one of the boxes that are left.
            let wanted = if by_strips { 1 } else { (4 * threads).div_ceil(strips.count.max(1)) };
            let boxes = Boxes::new((rows, unit), rows.div_ceil(runtime::LONE_BOX_ROWS).max(wanted));
            return all(threads, strips.count * boxes.count, &|task| {
                let strip = strips.strip(task / boxes.count);
                self.lone_box(strip, boxes.rows(task % boxes.count))
            });
        }
        let (outer, inner) = if by_strips { (threads, 1) } else { (1, threads) };
        let wanted = rows.div_ceil(runtime::BOX_ROWS).max(4 * inner).next_multiple_of(inner);
        let boxes = Boxes::new((rows, unit), wanted);
        all(outer, strips.count, &|task| {
            let strip = strips.strip(task);
            let layout = self.right.layout(strip.cols, self.kernels.cols);
            let panels = strip.len().div_ceil(self.kernels.cols);
            let each = layout.as_ref().map_or(panels * self.kernels.cols * depth, |layout| layout.len);
            let products = strip.batch.1 - strip.batch.0;
            let memory = Workspace::<T>::new(self.pool, products * each)?;
            let columns = Columns { strip, first: memory.ptr(0), each, layout: layout.as_ref() };
            let parts = self.column_parts(&columns);
            all(inner, products * parts, &|task| self.pack_columns(&columns, (task / parts, task % parts)))?;
            all(inner, boxes.count, &|number| {
                let at = |product, block| Ok(self.columns(&columns, product, block));
                self.run_box(strip, boxes.rows(number), &at)
            })
        })
    }

    /// Runs a box that packs its columns itself, block by block.
    fn lone_box(&self, of: Strip, rows: (usize, usize)) -> Result<(), Failure> {
        let width = self.kernels.cols;
        let panels = of.len().div_ceil(width);
        let memory = Workspace::<T>::new(self.pool, panels * width * DEPTH)?;
        self.run_box(of, rows, &|product, block| {
            let panels = PanelMemory { first: memory.ptr(0), width };
            for part in 0..self.right_parts(of.cols) {
                self.pack_right((of.batch.0 + product, of.cols), (block, part), panels)?;
            }
            Ok(self.panels(of, block, panels))
        })
    }

    /// Returns the number of tasks that pack the columns of a product for the whole depth.
    fn column_parts(&self, of: &Columns<'_, T>) -> usize {
        match &self.right.planes {
            Some(planes) => planes.count(),
            None => self.right_parts(of.strip.cols) * self.right.operand.depth().div_ceil(DEPTH),
        }
    }

    /// Packs a part of the columns of a product.
    fn pack_columns(&self, of: &Columns<'_, T>, (product, part): (usize, usize)) -> Result<(), Failure> {
        let first = of.first.wrapping_add(product * of.each);
        let batch = of.strip.batch.0 + product;
        if let Some(layout) = of.layout {
            // SAFETY: there is room for all planes.
            unsafe { self.right.pack_plane(layout, (batch, part), first) };
            return Ok(());
        }
        let parts = self.right_parts(of.strip.cols);
        let (block, part) = (part / parts, part % parts);
        let panels = PanelMemory { first: self.block(of, first, block), width: self.kernels.cols };
        self.pack_right((batch, of.strip.cols), (block, part), panels)
    }

    /// Returns the columns of a product for a block of the depth.
    fn columns<'c>(&self, of: &Columns<'c, T>, product: usize, block: usize) -> PackedLanes<'c, T> {
        let (first, width) = (of.first.wrapping_add(product * of.each), self.kernels.cols);
        if let Some(layout) = of.layout {
            return PackedLanes::Planes { panels: PanelMemory { first, width }, layout, from: block * DEPTH };
        }
        self.panels(of.strip, block, PanelMemory { first: self.block(of, first, block), width })
    }

    /// Returns the panels of a block of the depth, from those of the first block on.
    fn block(&self, of: &Columns<'_, T>, first: *mut T, block: usize) -> *mut T {
        first.wrapping_add(block * DEPTH * of.strip.len().next_multiple_of(self.kernels.cols))
    }

    /// Returns the columns of a product in panels for a block of the depth.
    fn panels(&self, of: Strip, block: usize, panels: PanelMemory<T>) -> PackedLanes<'static, T> {
        let depth = DEPTH.min(self.right.operand.depth() - block * DEPTH);
        PackedLanes::Panels { panels, depth, count: of.len() }
    }

    /// Returns the number of tasks that pack the columns of a strip for a block of the depth.
    fn right_parts(&self, cols: (usize, usize)) -> usize {
        match self.right.has_runs_of_lanes() {
            true => DEPTH / RUN_STEPS,
            false => (cols.1 - cols.0).div_ceil(self.kernels.cols),
        }
    }

    /// Packs a part of a block of the depth into the panels of the block.
    ///
    /// A part is a panel of columns, or some steps of all columns if a kernel computes runs of columns.
    fn pack_right(
        &self,
        (batch, cols): (usize, (usize, usize)),
        (block, part): (usize, usize),
        panels: PanelMemory<T>,
    ) -> Result<(), Failure> {
        let width = self.kernels.cols;
        let depth = (block * DEPTH, (block * DEPTH + DEPTH).min(self.right.operand.depth()));
        let (lanes, steps, first) = if self.right.has_runs_of_lanes() {
            let from = depth.0 + part * RUN_STEPS;
            // The last block may have fewer parts.
            if from >= depth.1 {
                return Ok(());
            }
            (cols, (from, (from + RUN_STEPS).min(depth.1)), 0)
        } else {
            let first = cols.0 + part * width;
            ((first, (first + width).min(cols.1)), depth, part)
        };
        let first = panels.first.wrapping_add((depth.1 - depth.0) * first * width);
        // SAFETY: the columns and depths are those of the operand. The memory has room for the panels of the block.
        unsafe {
            self.right.pack(LaneBlock { batch, lanes, depth, steps }, PanelMemory { first, width }, self.pool)
        }
    }

    /// Computes a box and runs the launch's kernel on it. `right` returns the packed columns of a product for a block
    /// of the depth.
    fn run_box<'c>(
        &self,
        of: Strip,
        rows: (usize, usize),
        right: &dyn Fn(usize, usize) -> Result<PackedLanes<'c, T>, Failure>,
    ) -> Result<(), Failure> {
        let kernels = self.kernels;
        let (count, cols, products) = (rows.1 - rows.0, of.len(), of.batch.1 - of.batch.0);
        let depth = self.left.operand.depth();
        let layout = self.left.layout(rows, kernels.rows);
        let own = layout.as_ref().map_or(count.next_multiple_of(kernels.rows) * DEPTH, |layout| layout.len);
        let memory = Workspace::<T>::new(self.pool, own + products * count * cols)?;
        let (left, tile) = (PanelMemory { first: memory.ptr(0), width: kernels.rows }, memory.ptr(own));
        if depth == 0 {
            // SAFETY: the memory has room for the tiles.
            unsafe { std::slice::from_raw_parts_mut(tile, products * count * cols).fill(T::default()) };
        }
        if let (Some(layout), Some(planes)) = (&layout, &self.left.planes) {
            for plane in 0..planes.count() {
                // SAFETY: there is room for all planes.
                unsafe { self.left.pack_plane(layout, (of.batch.0, plane), left.first) };
            }
        }
        for (block, from) in (0..depth).step_by(DEPTH).enumerate() {
            let len = DEPTH.min(depth - from);
            let lanes = match &layout {
                Some(layout) => PackedLanes::Planes { panels: left, layout, from },
                None => {
                    let depth = (from, from + len);
                    let lanes = LaneBlock { batch: of.batch.0, lanes: rows, depth, steps: depth };
                    // SAFETY: the rows and depths are those of the operand, and there is room for all rows.
                    unsafe { self.left.pack(lanes, left, self.pool)? };
                    PackedLanes::Panels { panels: left, depth: len, count }
                }
            };
            for product in 0..products {
                let tile = tile.wrapping_add(product * count * cols);
                right(product, block)?.each(|right, cols_of| {
                    lanes.each(|left, rows| {
                        let panels =
                            Panels { depth: len, left, right, product: tile, stride: cols, adds: block > 0 };
                        // SAFETY: the panels were packed with `len` steps, and the tile has all rows and columns.
                        unsafe { kernels.multiply(panels, rows, cols_of) };
                    });
                });
            }
        }
        for product in 0..products {
            let tile = tile.wrapping_add(product * count * cols);
            self.finish((of.batch.0 + product, rows, of.cols), tile);
        }
        if let Some(parts) = self.parts {
            parts.run(rows.0 / ROW_PART, rows.1.div_ceil(ROW_PART), false);
        }
        Ok(())
    }

    /// Runs the launch's kernel on the rows of a tile.
    fn finish(&self, (batch, rows, cols): (usize, (usize, usize), (usize, usize)), tile: *mut T) {
        let per_row = self.launch.items.per_row();
        let (start, strip) = (self.batch.offset(batch), cols.0 / self.cols);
        let item = |row: usize| (start + self.rows.offset(row)) * per_row + strip;
        let mut row = rows.0;
        while row < rows.1 {
            let (first, mut count) = (item(row), 1);
            // Consecutive items are one call.
            while row + count < rows.1 && item(row + count) == first + count {
                count += 1;
            }
            let at = tile.wrapping_add((row - rows.0) * (cols.1 - cols.0)).cast::<u8>();
            self.launch.run_tiles(first, first + count, &[Tile { buffer: self.tile, at }]);
            row += count;
        }
    }
}

/// Returns axes as one direction, by their strides.
fn directions(axes: &[TileAxis], stride: Stride, symbols: &[i64]) -> Option<Direction> {
    let number = |extent: &DimExpr| usize::try_from(extent.eval(symbols)?).ok();
    let axis = |axis: &TileAxis| Some((number(&axis.extent)?, number(stride(axis))?));
    axes.iter().map(axis).collect::<Option<Vec<_>>>().map(Direction::new)
}

/// Returns an operand with axes of the batch, the lanes and the depth. Panels have so many lanes, if windows may be
/// packed in planes.
fn source<'a, T: Accumulate>(
    (launch, producers): Launches<'a>,
    (factor, windows): (Factor, &plan::Windows),
    axes: [&[TileAxis]; 3],
    (stride, width): (Stride, Option<usize>),
    symbols: &[i64],
) -> Option<OperandSource<'a, T>> {
    let [batch, lanes, depth] = axes;
    let direction = |axes: &[TileAxis]| directions(axes, stride, symbols);
    let windows = windows_of(windows, (axes, stride), symbols)?;
    let planes = windows.as_ref().zip(width).and_then(|(windows, width)| Planes::new(windows, width));
    let (buffer, blocks) = match factor {
        Factor::Buffer(number) => (launch.buffers.get(usize::from(number))?, None),
        Factor::Blocks(Blocks { launch, buffer, along_depth }) => {
            let is_it = |(number, _): &&PreparedProducer<'_>| *number == usize::from(launch);
            let (launch, buffer) = (&producers.iter().find(is_it)?.1, usize::from(buffer));
            (launch.buffers.get(buffer)?, Some(BlockKernel { launch, buffer, along_depth }))
        }
    };
    let operand = Operand::new(buffer.ptr, T::packer(buffer.dtype)?, direction(lanes)?, direction(depth)?);
    Some(OperandSource { operand, batch: direction(batch)?, blocks, windows, planes })
}

/// Returns the windows that choose the elements of an operand. The axes are those of the batch, the lanes and the depth.
/// The inner option is none for an operand that is a tensor.
fn windows_of(
    of: &plan::Windows,
    (axes, stride): ([&[TileAxis]; 3], Stride),
    symbols: &[i64],
) -> Option<Option<Windows>> {
    let plan::Windows { start, bounds } = of;
    let number = |extent: &DimExpr| isize::try_from(extent.eval(symbols)?).ok();
    let count = |extent: &DimExpr| usize::try_from(extent.eval(symbols)?).ok();
    let start = number(start)?;
    if start == 0 && bounds.is_empty() {
        return Some(None);
    }
    let along = |axes: &[TileAxis], strides: fn(&plan::WindowBounds) -> &[DimExpr]| {
        let axis = |(i, axis): (usize, &TileAxis)| {
            let mut at = [0; WINDOW_BOUNDS_MAX];
            for (at, bounds) in at.iter_mut().zip(bounds.iter()) {
                *at = count(strides(bounds).get(i)?)?;
            }
            Some(WindowAxis { extent: count(&axis.extent)?, offset: count(stride(axis))?, at })
        };
        axes.iter().enumerate().map(axis).collect::<Option<Vec<_>>>()
    };
    let axes = WindowAxes {
        batch: along(axes[0], |of| &of.batch)?,
        lanes: along(axes[1], |of| &of.lanes)?,
        depth: along(axes[2], |of| &of.depth)?,
    };
    let bounds =
        bounds.iter().map(|of| Some(WindowBounds { extent: number(&of.extent)?, start: number(&of.start)? }));
    let windows = Windows::new(start, bounds.collect::<Option<_>>()?, axes)?;
    Some((!windows.are_a_tensor()).then_some(windows))
}

/// Runs tasks on up to `threads` threads, and returns the failure of one of them, if any.
fn all(
    threads: usize,
    tasks: usize,
    run: &(dyn Fn(usize) -> Result<(), Failure> + Sync),
) -> Result<(), Failure> {
    let failure = Mutex::new(Ok(()));
    distribute((0, tasks), threads, runtime::CHUNKS_PER_THREAD, |first, end| {
        if let Err(failed) = (first..end).try_for_each(run) {
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Err(failed);
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Memory for panels and tiles.
struct Workspace<T> {
    memory: CpuMemory,
    elements: PhantomData<T>,
}

impl<T> Workspace<T> {
    fn new(pool: &Arc<Pool>, len: usize) -> Result<Workspace<T>, Failure> {
        let bytes = len.saturating_mul(size_of::<T>());
        let memory = pool.allocate(bytes).ok_or(Failure::NoMemory(bytes))?;
        Ok(Workspace { memory, elements: PhantomData })
    }

    /// Returns the address of an element.
    fn ptr(&self, element: usize) -> *mut T {
        self.memory.ptr().cast::<T>().wrapping_add(element)
    }
}
