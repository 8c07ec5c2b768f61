//! Contractions: products of two operands, summed over the axes that both have and the result lacks.
//!
//! A box of rows and columns of the result is one task. It packs its operands block by block of the depth,
//! multiplies the panels into a tile, and runs the launch's kernel on the finished tile while the tile is in a
//! cache. All boxes of some columns share the packed right operand, unless the depth is long.
//!
//! Invariant: a sum is a chain over blocks of `DEPTH` elements, each from zero, added in order. The sizes of
//! boxes and the number of threads never change a result.

#[cfg(all(test, target_arch = "x86_64"))]
mod assembly;
mod microkernel;
mod pack;
mod source;
#[cfg(test)]
mod tests;
mod windows;

use std::marker::PhantomData;
use std::num::Wrapping;
use std::sync::{Arc, Mutex, PoisonError};

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::dtype::DType;
use fusion_compiler::ir::plan::{self, Blocks, Contraction, DEPTH, Factor, TileAxis};
use fusion_compiler::target::tuning_table::runtime;

use super::launch::{PreparedLaunch, Tile, distribute};
use super::memory::{CpuMemory, Pool};
use crate::isa::Isa;
use microkernel::{Accumulate, Microkernels, Panels};
use pack::{Direction, Operand};
use source::{BlockKernel, LaneBlock, OperandSource, PanelMemory, RUN_STEPS};
use windows::{WindowBounds, Windows};

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
    /// Columns of a box.
    cols: usize,
    pool: &'a Arc<Pool>,
}

/// A stride of an axis: in the space or in one of the operands.
type Stride = fn(&TileAxis) -> &DimExpr;

// SAFETY: operands are only read while the launch runs, and each task writes memory of its own.
unsafe impl<T> Sync for Resolved<'_, T> {}

/// Rows and columns of one product, which one task computes.
#[derive(Clone, Copy)]
struct Bounds {
    /// Coordinate of the batch.
    batch: usize,
    rows: (usize, usize),
    cols: (usize, usize),
}

/// Boxes of rows with almost equal numbers of panels, so that threads are done at the same time.
struct Boxes {
    count: usize,
    rows: usize,
    /// Rows of a panel.
    panel: usize,
}

impl Boxes {
    /// Makes so many boxes, if there are as many panels.
    fn new<T: Accumulate>(of: &Resolved<'_, T>, wanted: usize) -> Boxes {
        let (rows, panel) = (of.left.lanes(), of.kernels.rows);
        Boxes { count: wanted.min(rows.div_ceil(panel)), rows, panel }
    }

    /// Returns the rows of a box.
    fn rows(&self, number: usize) -> (usize, usize) {
        let panels = self.rows.div_ceil(self.panel);
        let bound = |number: usize| (panels * number / self.count * self.panel).min(self.rows);
        (bound(number), bound(number + 1))
    }
}

/// The reason why a contraction did not run.
pub(super) enum Failure {
    /// The plan does not fit its launch.
    Malformed,
    /// The system has no memory for panels and tiles: the bytes asked for.
    NoMemory(usize),
}

/// A launch of the same variant, with its number, whose kernel computes blocks of an operand.
pub(super) type PreparedProducer<'a> = (usize, PreparedLaunch<'a>);

/// Runs a launch whose kernel finishes the tiles of a contraction.
pub(super) fn run(
    launch: &PreparedLaunch<'_>,
    of: &Contraction,
    producers: &[PreparedProducer<'_>],
    context: (Isa, &Arc<Pool>, &[i64]),
) -> Result<(), Failure> {
    let launches = (launch, producers);
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
        (launch, producers): (&'a PreparedLaunch<'a>, &'a [PreparedProducer<'a>]),
        of: &Contraction,
        (isa, pool, symbols): (Isa, &'a Arc<Pool>, &[i64]),
    ) -> Option<Resolved<'a, T>> {
        let direction = |axes: &[TileAxis], stride: Stride| {
            let number = |extent: &DimExpr| usize::try_from(extent.eval(symbols)?).ok();
            let axis = |axis: &TileAxis| Some((number(&axis.extent)?, number(stride(axis))?));
            axes.iter().map(axis).collect::<Option<Vec<_>>>().map(Direction::new)
        };
        let source = |factor: Factor, windows: &plan::Windows, axes: &[TileAxis], stride: Stride| {
            let (lanes, depth) = (direction(axes, stride)?, direction(&of.depth, stride)?);
            let windows = windows_of(windows, [&of.batch, axes, &of.depth], symbols)?;
            let (buffer, blocks) = match factor {
                Factor::Buffer(number) => (launch.buffers.get(usize::from(number))?, None),
                Factor::Blocks(Blocks { launch, buffer, along_depth }) => {
                    let is_it = |(number, _): &&PreparedProducer<'_>| *number == usize::from(launch);
                    let (launch, buffer) = (&producers.iter().find(is_it)?.1, usize::from(buffer));
                    (launch.buffers.get(buffer)?, Some(BlockKernel { launch, buffer, along_depth }))
                }
            };
            let operand = Operand::new(buffer.ptr, T::packer(buffer.dtype)?, lanes, depth);
            Some(OperandSource { operand, batch: direction(&of.batch, stride)?, blocks, windows })
        };
        let [space, left, right]: [Stride; 3] = [|axis| &axis.space, |axis| &axis.left, |axis| &axis.right];
        Some(Resolved {
            launch,
            kernels: T::microkernels(isa),
            left: source(of.left, &of.windows[0], &of.rows, left)?,
            right: source(of.right, &of.windows[1], &of.cols, right)?,
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
        let strips = cols.div_ceil(self.cols);
        let strip = |number: usize| {
            let first = number % strips * self.cols;
            (number / strips, (first, (first + self.cols).min(cols)))
        };
        let strip_count = batches * strips;
        // Threads with as many strips of almost equal lengths share nothing.
        let is_even = strip_count.is_multiple_of(threads) && 8 * (strips * self.cols - cols) <= self.cols;
        let by_strips = threads == 1 || is_even || strip_count >= 2 * threads;
        // A box that is alone in its strip packs each column once, and has only a block of the depth at hand.
        let is_one_box = rows <= if by_strips { runtime::BOX_ROWS } else { self.kernels.rows };
        if is_one_box || depth > runtime::SHARED_DEPTH_MAX {
            // A thread that is done takes one of the boxes that are left.
            let wanted = if by_strips { 1 } else { (4 * threads).div_ceil(strip_count) };
            let boxes = Boxes::new(self, rows.div_ceil(runtime::LONE_BOX_ROWS).max(wanted));
            return all(threads, strip_count * boxes.count, &|task| {
                let (batch, cols) = strip(task / boxes.count);
                self.lone_box(Bounds { batch, rows: boxes.rows(task % boxes.count), cols })
            });
        }
        let (outer, inner) = if by_strips { (threads, 1) } else { (1, threads) };
        let wanted = rows.div_ceil(runtime::BOX_ROWS).max(4 * inner).next_multiple_of(inner);
        let boxes = Boxes::new(self, wanted);
        all(outer, strip_count, &|task| {
            let (batch, cols) = strip(task);
            let panels = (cols.1 - cols.0).div_ceil(self.kernels.cols);
            let memory = Workspace::<T>::new(self.pool, panels * self.kernels.cols * depth)?;
            let right = &memory;
            let (blocks, parts) = (depth.div_ceil(DEPTH), self.right_parts(cols));
            all(inner, parts * blocks, &|task| {
                self.pack_right((batch, cols), (task / parts, task % parts), right.ptr(0))
            })?;
            all(inner, boxes.count, &|number| {
                let of = Bounds { batch, rows: boxes.rows(number), cols };
                self.run_box(of, &|block| Ok(right.ptr(block * DEPTH * panels * self.kernels.cols)))
            })
        })
    }

    /// Runs a box that packs its columns itself.
    fn lone_box(&self, of: Bounds) -> Result<(), Failure> {
        let panels = (of.cols.1 - of.cols.0).div_ceil(self.kernels.cols);
        let memory = Workspace::<T>::new(self.pool, panels * self.kernels.cols * DEPTH)?;
        self.run_box(of, &|block| {
            let before = block * DEPTH * panels * self.kernels.cols;
            for part in 0..self.right_parts(of.cols) {
                self.pack_right((of.batch, of.cols), (block, part), memory.ptr(0).wrapping_sub(before))?;
            }
            Ok(memory.ptr(0))
        })
    }

    /// Returns the number of tasks that pack the columns of a strip for a block of the depth.
    fn right_parts(&self, cols: (usize, usize)) -> usize {
        match self.right.has_runs_of_lanes() {
            true => DEPTH / RUN_STEPS,
            false => (cols.1 - cols.0).div_ceil(self.kernels.cols),
        }
    }

    /// Packs a part of a block of the depth into memory for the whole depth.
    ///
    /// A part is a panel of columns, or some steps of all columns if a kernel computes runs of columns.
    fn pack_right(
        &self,
        (batch, cols): (usize, (usize, usize)),
        (block, part): (usize, usize),
        memory: *mut T,
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
        let before = depth.0 * (cols.1 - cols.0).div_ceil(width) + (depth.1 - depth.0) * first;
        let panels = PanelMemory { first: memory.wrapping_add(before * width), width };
        // SAFETY: the columns and depths are those of the operand. The memory has room for the panels of all
        // blocks, or of this one.
        unsafe { self.right.pack(LaneBlock { batch, lanes, depth, steps }, panels, self.pool) }
    }

    /// Computes a box and runs the launch's kernel on it. `right` returns the packed columns of a block of the
    /// depth.
    fn run_box(&self, of: Bounds, right: &dyn Fn(usize) -> Result<*mut T, Failure>) -> Result<(), Failure> {
        let kernels = self.kernels;
        let (rows, cols) = (of.rows.1 - of.rows.0, of.cols.1 - of.cols.0);
        let depth = self.left.operand.depth();
        let padded = rows.next_multiple_of(kernels.rows);
        let memory = Workspace::<T>::new(self.pool, padded * DEPTH + rows * cols)?;
        let (left, tile) = (memory.ptr(0), memory.ptr(padded * DEPTH));
        if depth == 0 {
            // SAFETY: the memory has room for the tile.
            unsafe { std::slice::from_raw_parts_mut(tile, rows * cols).fill(T::default()) };
        }
        for (block, from) in (0..depth).step_by(DEPTH).enumerate() {
            let len = DEPTH.min(depth - from);
            let right = right(block)?;
            let depth = (from, from + len);
            let lanes = LaneBlock { batch: of.batch, lanes: of.rows, depth, steps: depth };
            let panels = PanelMemory { first: left, width: kernels.rows };
            // SAFETY: the rows and depths are those of the operand, and there is room for all rows.
            unsafe { self.left.pack(lanes, panels, self.pool)? };
            for col in (0..cols).step_by(kernels.cols) {
                for row in (0..rows).step_by(kernels.rows) {
                    // SAFETY: the panels were packed with `len` steps, and the tile has all rows and columns.
                    unsafe {
                        let panels = Panels {
                            depth: len,
                            left: left.add(row * len),
                            right: right.add(col * len),
                            product: tile.add(row * cols + col),
                            stride: cols,
                            adds: block > 0,
                        };
                        kernels.multiply(panels, kernels.rows.min(rows - row), kernels.cols.min(cols - col));
                    }
                }
            }
        }
        self.finish(of, tile);
        Ok(())
    }

    /// Runs the launch's kernel on the rows of a tile.
    fn finish(&self, of: Bounds, tile: *mut T) {
        let (cols, per_row) = (of.cols.1 - of.cols.0, self.launch.items.per_row());
        let (start, strip) = (self.batch.offset(of.batch), of.cols.0 / self.cols);
        let item = |row: usize| (start + self.rows.offset(row)) * per_row + strip;
        let mut row = of.rows.0;
        while row < of.rows.1 {
            let (first, mut count) = (item(row), 1);
            // Consecutive items are one call.
            while row + count < of.rows.1 && item(row + count) == first + count {
                count += 1;
            }
            let at = tile.wrapping_add((row - of.rows.0) * cols).cast::<u8>();
            self.launch.run_tile(first, first + count, Tile { buffer: self.tile, at });
            row += count;
        }
    }
}

/// Returns the windows that choose the elements of an operand. The axes are those of the batch, the lanes and the depth.
/// The inner option is none for an operand that is a tensor.
fn windows_of(of: &plan::Windows, axes: [&[TileAxis]; 3], symbols: &[i64]) -> Option<Option<Windows>> {
    let plan::Windows { start, bounds } = of;
    let number = |extent: &DimExpr| isize::try_from(extent.eval(symbols)?).ok();
    let direction = |axes: &[TileAxis], strides: &[DimExpr]| {
        let count = |extent: &DimExpr| usize::try_from(extent.eval(symbols)?).ok();
        let pairs = axes.iter().zip(strides);
        let pairs = pairs.map(|(axis, stride)| Some((count(&axis.extent)?, count(stride)?)));
        pairs.collect::<Option<Vec<_>>>().map(Direction::new)
    };
    let start = number(start)?;
    if start == 0 && bounds.is_empty() {
        return Some(None);
    }
    let bounds = bounds.iter().map(|of| {
        let [batch, lanes, depth] = [&of.batch, &of.lanes, &of.depth];
        Some(WindowBounds {
            extent: number(&of.extent)?,
            start: number(&of.start)?,
            batch: direction(axes[0], batch)?,
            lanes: direction(axes[1], lanes)?,
            depth: direction(axes[2], depth)?,
        })
    });
    Windows::new(start, bounds.collect::<Option<_>>()?).map(Some)
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
