//! Attention: sums of values, with weights that follow from products.
//!
//! A box of rows is one task. It computes the scores of a part of the keys in a tile, runs the kernel that turns
//! them into weights, and adds the products of weights and values to its sums. Weights of a part are relative to the
//! largest score of the part, so sums are scaled whenever a part has a larger one (Milakov and Gimelshein 2018). All
//! boxes of a coordinate of the batch share the packed keys and values.
//!
//! Groups of parts start anew and are then combined, so that threads without a box of their own take groups.
//!
//! Invariant: parts have `DEPTH` keys, groups have `GROUP` parts, and both are combined in order, so the number of
//! threads never changes a result.

use std::ops::Range;
use std::sync::Arc;

use fusion_compiler::ir::plan::{self, Blocks, Contraction, DEPTH, StateKind};
use fusion_compiler::target::tuning_table::runtime;
use smallvec::SmallVec;

use super::microkernel::{Accumulate, Microkernels, Panels};
use super::pack::Direction;
use super::source::{BlockKernel, LaneBlock, OperandSource, PackedLanes, PanelMemory};
use super::strips::Boxes;
use super::{Context, Failure, Launches, PreparedProducer, Workspace, all, directions, source};
use crate::device::cpu::launch::{PreparedLaunch, Tile};
use crate::device::cpu::memory::Pool;

/// Most values of a row that parts combine.
const STATES: usize = 4;

/// Parts of a group. The order of a sum depends on the number, so it is the same for all processors.
const GROUP: usize = 4;

/// Attention whose extents and operands are known.
pub(super) struct Attend<'a> {
    of: &'a plan::Attention,
    /// Launch whose kernel computes results.
    finish: &'a PreparedLaunch<'a>,
    /// Launch whose kernel computes weights.
    weights: &'a PreparedLaunch<'a>,
    kernels: &'static Microkernels<f32>,
    queries: OperandSource<'a, f32>,
    keys: OperandSource<'a, f32>,
    values: OperandSource<'a, f32>,
    /// Kernels that compute the first and the last key of each row that is not masked.
    visible: [Option<BlockKernel<'a>>; 2],
    /// Row of the results for each coordinate of the batch.
    batch: Direction,
    /// Row of the results for each query.
    rows: Direction,
    /// Number of the buffer that the kernel of results reads sums from.
    tile: usize,
    pool: &'a Arc<Pool>,
}

// SAFETY: operands are only read while the launch runs, and each task writes memory of its own.
unsafe impl Sync for Attend<'_> {}

/// Packed keys and values of a coordinate of the batch.
#[derive(Clone, Copy)]
struct KeyPanels {
    batch: usize,
    /// The first key.
    first: usize,
    keys: *mut f32,
    values: *mut f32,
}

// SAFETY: threads pack different parts, and only read packed ones.
unsafe impl Sync for KeyPanels {}

/// Packed queries of a box, and the memory of what its groups of parts give.
#[derive(Clone, Copy)]
struct RowBox {
    batch: usize,
    rows: (usize, usize),
    queries: *mut f32,
    /// Memory of the first group: values of rows, then sums.
    groups: *mut f32,
    /// Elements of the values of rows.
    states: usize,
    /// Elements of the sums.
    sums: usize,
}

// SAFETY: threads only read queries, and write the memory of different groups.
unsafe impl Sync for RowBox {}

impl RowBox {
    fn count(&self) -> usize {
        self.rows.1 - self.rows.0
    }

    /// Returns the memory of a group.
    fn group(&self, number: usize) -> *mut f32 {
        self.groups.wrapping_add(number * (self.states + self.sums))
    }
}

/// Sums over parts of the keys for the rows of a box.
struct States<'m> {
    /// Values of a row, in the order of the plan.
    kinds: SmallVec<[StateKind; STATES]>,
    /// Values of all rows, kind by kind.
    whole: &'m mut [f32],
    /// Sums of values times weights, row by row.
    sums: &'m mut [f32],
    rows: usize,
}

/// Factors of the sums of a row before a part, and of the part.
#[derive(Clone, Copy)]
struct Scales {
    before: f32,
    part: f32,
}

impl<'a> Attend<'a> {
    pub(super) fn new(
        (launch, producers): Launches<'a>,
        of: &'a Contraction,
        (isa, pool, symbols): Context<'a>,
    ) -> Option<Attend<'a>> {
        let attention = of.attention.as_ref()?;
        let weights = producers.iter().find(|(number, _)| *number == usize::from(attention.launch));
        let kernels = f32::microkernels(isa);
        let launches = (launch, producers);
        let factor = |factor, windows, axes, stride| {
            source::<f32>(launches, (factor, windows), axes, (stride, None), symbols)
        };
        let attend = Attend {
            of: attention,
            finish: launch,
            weights: &weights?.1,
            kernels,
            queries: factor(of.left, &of.windows[0], [&of.batch, &of.rows, &of.depth], |axis| &axis.left)?,
            keys: factor(of.right, &of.windows[1], [&of.batch, &of.cols, &of.depth], |axis| &axis.right)?,
            values: factor(
                attention.values,
                &attention.windows,
                [&attention.batch, &attention.cols, &attention.depth],
                |axis| &axis.right,
            )?,
            visible: attention.visible.map(|blocks| {
                let Blocks { launch, buffer, along_depth } = blocks?;
                let is_it = |(number, _): &&PreparedProducer<'_>| *number == usize::from(launch);
                let (launch, buffer) = (&producers.iter().find(is_it)?.1, usize::from(buffer));
                Some(BlockKernel { launch, buffer, along_depth })
            }),
            batch: directions(&of.batch, |axis| &axis.space, symbols)?,
            rows: directions(&of.rows, |axis| &axis.space, symbols)?,
            tile: usize::from(of.tile),
            pool,
        };
        let fits = attend.weights.items.grain() == DEPTH
            && DEPTH.is_multiple_of(kernels.cols)
            && attend.finish.items.per_row() == 1
            && attention.state.len() <= STATES;
        fits.then_some(attend)
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        let (batches, rows, keys) = (self.batch.len(), self.rows.len(), self.keys.lanes());
        let (depth, cols) = (self.keys.operand.depth(), self.values.lanes());
        let work = batches.saturating_mul(rows).saturating_mul(keys).saturating_mul(depth + cols);
        let threads = if work < runtime::PARALLEL_PRODUCTS_MIN { 1 } else { rayon::current_num_threads() };
        let are_even = batches.is_multiple_of(threads) || batches >= 4 * threads;
        let is_lone = rows <= self.kernels.rows;
        let by_groups = is_lone && !are_even && keys > GROUP * DEPTH;
        let by_batches = threads == 1 || are_even || is_lone && !by_groups;
        let (outer, inner) = if by_batches { (threads, 1) } else { (1, threads) };
        let wanted = if is_lone { 1 } else { rows.div_ceil(runtime::ATTENTION_BOX_ROWS) };
        let wanted = wanted.max(if inner > 1 && !by_groups { 4 * inner } else { 1 });
        let boxes = Boxes::new((rows, self.kernels.rows), wanted);
        // A box that is alone has only the keys of a part at hand.
        if boxes.count == 1 {
            return all(outer, batches, &|batch| self.run_box(batch, boxes.rows(0), inner, None));
        }
        let (key_len, value_len) = self.panel_lens(keys);
        all(outer, batches, &|batch| {
            let memory = Workspace::<f32>::new(self.pool, key_len + value_len)?;
            let panels = KeyPanels { batch, first: 0, keys: memory.ptr(0), values: memory.ptr(key_len) };
            all(inner, keys.div_ceil(DEPTH), &|part| self.pack_part(&panels, part))?;
            all(inner, boxes.count, &|number| self.run_box(batch, boxes.rows(number), 1, Some(panels)))
        })
    }

    /// Returns the elements of the panels of so many keys, and of their values.
    fn panel_lens(&self, keys: usize) -> (usize, usize) {
        let (width, depth) = (self.kernels.cols, self.keys.operand.depth());
        (keys.next_multiple_of(width) * depth, self.values.lanes().next_multiple_of(width) * keys)
    }

    /// Returns the parts with keys that are not masked for some row of a box.
    fn visible_parts(&self, (batch, rows): (usize, (usize, usize))) -> Result<Range<usize>, Failure> {
        let (keys, start) = (self.keys.lanes(), self.batch.offset(batch));
        let mut ends = [0, keys];
        for (number, kernel) in self.visible.iter().enumerate() {
            let Some(kernel) = kernel else { continue };
            let memory = Workspace::<f64>::new(self.pool, rows.1 - rows.0)?;
            kernel.compute([start].into_iter(), || self.rows.contiguous(rows), memory.ptr(0).cast());
            // SAFETY: the kernel has computed a number for each row.
            let all = unsafe { std::slice::from_raw_parts(memory.ptr(0), rows.1 - rows.0) };
            let end = match number {
                0 => all.iter().copied().fold(f64::INFINITY, f64::min),
                _ => all.iter().copied().fold(f64::NEG_INFINITY, f64::max) + 1.0,
            };
            ends[number] = end.clamp(0.0, keys as f64) as usize;
        }
        let [first, end] = ends;
        Ok(if first < end { first / DEPTH..end.div_ceil(DEPTH) } else { 0..0 })
    }

    /// Returns the first key of a part, and the key past its last one.
    fn part(&self, number: usize) -> (usize, usize) {
        (number * DEPTH, (number * DEPTH + DEPTH).min(self.keys.lanes()))
    }

    /// Returns the panels of the keys of a part for a block of the depth.
    fn key_panels(&self, of: &KeyPanels, (first, end): (usize, usize), from: usize) -> PanelMemory<f32> {
        let (width, depth) = (self.kernels.cols, self.keys.operand.depth());
        let ahead = (first - of.first) * depth + from * (end - first).next_multiple_of(width);
        PanelMemory { first: of.keys.wrapping_add(ahead), width }
    }

    /// Returns the panels of the values of a part.
    fn value_panels(&self, of: &KeyPanels, first: usize) -> PanelMemory<f32> {
        let width = self.kernels.cols;
        let ahead = (first - of.first) * self.values.lanes().next_multiple_of(width);
        PanelMemory { first: of.values.wrapping_add(ahead), width }
    }

    /// Packs the keys and values of a part.
    fn pack_part(&self, of: &KeyPanels, number: usize) -> Result<(), Failure> {
        let keys = self.part(number);
        for depth in blocks(self.keys.operand.depth()) {
            let block = LaneBlock { batch: of.batch, lanes: keys, depth, steps: depth };
            // SAFETY: the operand has these keys, and the memory has room for all panels.
            unsafe { self.keys.pack(block, self.key_panels(of, keys, depth.0), self.pool)? };
        }
        let lanes = (0, self.values.lanes());
        let block = LaneBlock { batch: of.batch, lanes, depth: keys, steps: keys };
        // SAFETY: the operand has these keys, and the memory has room for all panels.
        unsafe { self.values.pack(block, self.value_panels(of, keys.0), self.pool) }
    }

    /// Computes the results of a box of rows by so many threads. Without packed keys, each of them packs the keys of a part
    /// at a time.
    fn run_box(
        &self,
        batch: usize,
        rows: (usize, usize),
        threads: usize,
        packed: Option<KeyPanels>,
    ) -> Result<(), Failure> {
        let (count, height, depth) = (rows.1 - rows.0, self.kernels.rows, self.queries.operand.depth());
        let (states, sums) = (self.of.state.len() * count, count * self.values.lanes());
        let parts = self.visible_parts((batch, rows))?;
        let groups = parts.start / GROUP..parts.end.div_ceil(GROUP);
        let padded = count.next_multiple_of(height);
        let memory =
            Workspace::<f32>::new(self.pool, padded * depth + groups.len().max(1) * (states + sums))?;
        let queries = memory.ptr(0);
        for depth in blocks(depth) {
            let block = LaneBlock { batch, lanes: rows, depth, steps: depth };
            let panels = PanelMemory { first: queries.wrapping_add(depth.0 * padded), width: height };
            // SAFETY: the operand has these rows, and there is room for all of them.
            unsafe { self.queries.pack(block, panels, self.pool)? };
        }
        let of = RowBox { batch, rows, queries, groups: memory.ptr(padded * depth), states, sums };
        // Without parts, a group gives the sums of nothing.
        all(threads, groups.len().max(1), &|number| {
            let first = (groups.start + number) * GROUP;
            self.run_group(&of, number, first.max(parts.start)..(first + GROUP).min(parts.end), packed)
        })?;
        let mut whole = self.group(&of, 0);
        for number in 1..groups.len() {
            let part = self.group(&of, number);
            whole.combine(&part);
        }
        // The sums of nothing are 0.
        if self.keys.lanes() > 0 {
            whole.finish(self.of.is_finite);
        }
        self.results((batch, rows), &mut whole);
        Ok(())
    }

    /// Returns the sums of a group of parts.
    fn group<'m>(&self, of: &'m RowBox, number: usize) -> States<'m> {
        let first = of.group(number);
        // SAFETY: each group has a part of the memory, all of whose bytes are floats.
        let (whole, sums) = unsafe {
            let whole = std::slice::from_raw_parts_mut(first, of.states);
            (whole, std::slice::from_raw_parts_mut(first.wrapping_add(of.states), of.sums))
        };
        States {
            kinds: self.of.state.iter().map(|state| state.kind).collect(),
            whole,
            sums,
            rows: of.count(),
        }
    }

    /// Computes the sums of some parts.
    fn run_group(
        &self,
        of: &RowBox,
        number: usize,
        parts: Range<usize>,
        packed: Option<KeyPanels>,
    ) -> Result<(), Failure> {
        let (count, held) = (of.count(), if packed.is_none() { DEPTH.min(self.keys.lanes()) } else { 0 });
        let (key_len, value_len) = self.panel_lens(held);
        let lens = [count * DEPTH, count * DEPTH, of.states, key_len, value_len];
        let memory = Workspace::<f32>::new(self.pool, lens.iter().sum())?;
        let mut ahead = 0;
        let [tile, weights, state, keys, values] = lens.map(|len| {
            ahead += len;
            memory.ptr(ahead - len)
        });
        let mut states = self.group(of, number);
        states.start();
        for part in parts {
            let at = self.part(part);
            let panels = packed.unwrap_or(KeyPanels { batch: of.batch, first: at.0, keys, values });
            if packed.is_none() {
                self.pack_part(&panels, part)?;
            }
            let len = at.1 - at.0;
            self.scores((&panels, at), (of.queries, count), tile);
            self.weigh((of.batch, of.rows), (part, len), [tile, weights, state]);
            // SAFETY: the kernel has written weights of so many rows and keys, and the state of each row.
            let (weights, state) = unsafe {
                let weights = std::slice::from_raw_parts_mut(weights, count * len);
                (weights, std::slice::from_raw_parts(state, of.states))
            };
            states.add(state, weights);
            self.add_values((&panels, at), (weights, count), states.sums.as_mut_ptr());
        }
        Ok(())
    }

    /// Computes the products of all queries of a box and the keys of a part.
    fn scores(
        &self,
        (of, keys): (&KeyPanels, (usize, usize)),
        (queries, count): (*mut f32, usize),
        tile: *mut f32,
    ) {
        let (height, len, depth) = (self.kernels.rows, keys.1 - keys.0, self.keys.operand.depth());
        if depth == 0 {
            // SAFETY: the tile has room for all products.
            unsafe { std::slice::from_raw_parts_mut(tile, count * len).fill(0.0) };
        }
        for (from, to) in blocks(depth) {
            let first = queries.wrapping_add(from * count.next_multiple_of(height));
            let depth = to - from;
            let left = PackedLanes::Panels { panels: PanelMemory { first, width: height }, depth, count };
            let right = PackedLanes::Panels { panels: self.key_panels(of, keys, from), depth, count: len };
            self.multiply(left, right, (depth, tile, len, from > 0));
        }
    }

    /// Adds products of weights and values to the sums.
    fn add_values(
        &self,
        (of, keys): (&KeyPanels, (usize, usize)),
        (weights, count): (&[f32], usize),
        sums: *mut f32,
    ) {
        let (width, cols, len) = (self.kernels.rows, self.values.lanes(), keys.1 - keys.0);
        let left = PackedLanes::Rows { first: weights.as_ptr(), apart: len, count, width };
        let right = PackedLanes::Panels { panels: self.value_panels(of, keys.0), depth: len, count: cols };
        self.multiply(left, right, (len, sums, cols, true));
    }

    /// Computes the product of packed rows and columns.
    fn multiply(
        &self,
        rows: PackedLanes<'_, f32>,
        cols: PackedLanes<'_, f32>,
        (depth, product, stride, adds): (usize, *mut f32, usize, bool),
    ) {
        cols.each(|right, cols| {
            rows.each(|left, rows| {
                let panels = Panels { depth, left, right, product, stride, adds };
                // SAFETY: the panels have the steps of the depth, and the product has all rows and columns.
                unsafe { self.kernels.multiply(panels, rows, cols) };
            });
        });
    }

    /// Turns the scores of a part into weights, and computes the states of the part.
    fn weigh(
        &self,
        (batch, rows): (usize, (usize, usize)),
        (part, len): (usize, usize),
        [scores, weights, states]: [*mut f32; 3],
    ) {
        let (per_row, all) = (self.weights.items.per_row(), rows.1 - rows.0);
        self.each_run((batch, rows), per_row, part, |row, first, count| {
            let mut tiles: SmallVec<[Tile; STATES + 2]> = SmallVec::new();
            for (buffer, at) in [(self.of.scores, scores), (self.of.weights, weights)] {
                tiles.push(Tile { buffer: buffer.into(), at: at.wrapping_add(row * len).cast() });
            }
            for (number, state) in self.of.state.iter().enumerate() {
                let at = states.wrapping_add(number * all + row).cast();
                tiles.push(Tile { buffer: state.part.into(), at });
            }
            self.weights.run_tiles(first, first + count, &tiles);
        });
    }

    /// Computes the results of rows from their sums.
    fn results(&self, (batch, rows): (usize, (usize, usize)), states: &mut States<'_>) {
        let (cols, sums) = (self.values.lanes(), states.sums.as_mut_ptr());
        self.each_run((batch, rows), 1, 0, |row, first, count| {
            let mut tiles: SmallVec<[Tile; STATES + 1]> = SmallVec::new();
            tiles.push(Tile { buffer: self.tile, at: sums.wrapping_add(row * cols).cast() });
            for (number, state) in self.of.state.iter().enumerate() {
                if let Some(buffer) = state.whole {
                    tiles.push(Tile { buffer: buffer.into(), at: states.whole_at(number, row) });
                }
            }
            self.finish.run_tiles(first, first + count, &tiles);
        });
    }

    /// Calls a function with each run of rows of a box whose items follow each other. Each row has so many items, of
    /// which one runs. The function gets the number of the first row in the box, its item, and the number of rows.
    fn each_run(
        &self,
        (batch, rows): (usize, (usize, usize)),
        per_row: usize,
        number: usize,
        mut run: impl FnMut(usize, usize, usize),
    ) {
        let start = self.batch.offset(batch);
        let item = |row: usize| (start + self.rows.offset(row)) * per_row + number;
        let mut row = rows.0;
        while row < rows.1 {
            let (first, mut count) = (item(row), 1);
            while row + count < rows.1 && item(row + count) == first + count {
                count += 1;
            }
            run(row - rows.0, first, count);
            row += count;
        }
    }
}

/// Returns the blocks of a depth.
fn blocks(depth: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..depth).step_by(DEPTH).map(move |from| (from, depth.min(from + DEPTH)))
}

/// Returns a number, or 0 where the number is infinite.
fn finite(number: f32) -> f32 {
    if number.is_infinite() { 0.0 } else { number }
}

impl States<'_> {
    /// Starts all rows without parts.
    fn start(&mut self) {
        for (kind, whole) in self.kinds.iter().zip(self.whole.chunks_mut(self.rows.max(1))) {
            whole.fill(if *kind == StateKind::Largest { f32::NEG_INFINITY } else { 0.0 });
        }
        self.sums.fill(0.0);
    }

    fn whole_at(&mut self, number: usize, row: usize) -> *mut u8 {
        self.whole[number * self.rows + row..].as_mut_ptr().cast()
    }

    /// Returns the number of the largest score among the values.
    fn largest(&self) -> Option<usize> {
        self.kinds.iter().position(|kind| *kind == StateKind::Largest)
    }

    /// Combines the values of a row with those of further keys. Returns the factors of both.
    fn combine_row(&mut self, row: usize, further: &[f32]) -> Option<Scales> {
        let (largest, rows) = (self.largest()?, self.rows);
        let (before, part) = (self.whole[largest * rows + row], further[largest * rows + row]);
        let scales = scales(before, part);
        self.whole[largest * rows + row] = larger(before, part);
        for number in (0..self.kinds.len()).filter(|number| *number != largest) {
            let at = number * rows + row;
            self.whole[at] = self.whole[at] * scales.before + further[at] * scales.part;
        }
        Some(scales)
    }

    /// Combines the values of a part with those of the parts before, and scales the weights of the part and the sums
    /// alike.
    fn add(&mut self, part: &[f32], weights: &mut [f32]) {
        let (keys, cols) = (weights.len() / self.rows, self.sums.len() / self.rows);
        for row in 0..self.rows {
            let Some(scales) = self.combine_row(row, part) else { return };
            scale(&mut weights[row * keys..][..keys], scales.part);
            scale(&mut self.sums[row * cols..][..cols], scales.before);
        }
    }

    /// Adds the sums of further parts.
    fn combine(&mut self, further: &States<'_>) {
        let cols = self.sums.len() / self.rows;
        for row in 0..self.rows {
            let Scales { before, part } =
                self.combine_row(row, further.whole).unwrap_or(Scales { before: 1.0, part: 1.0 });
            let sums = self.sums[row * cols..][..cols].iter_mut().zip(&further.sums[row * cols..]);
            sums.for_each(|(sum, further)| *sum = *sum * before + further * part);
        }
    }

    /// Makes sums relative to an infinite number NaN, where they are not relative to 0 instead.
    fn finish(&mut self, is_finite: bool) {
        let (Some(largest), rows) = (self.largest(), self.rows) else { return };
        let cols = self.sums.len() / rows;
        for row in 0..rows {
            if !self.whole[largest * rows + row].is_infinite() {
                continue;
            }
            for (number, kind) in self.kinds.iter().enumerate() {
                if *kind == StateKind::Sum {
                    self.whole[number * rows + row] = f32::NAN;
                }
            }
            if !is_finite {
                self.sums[row * cols..][..cols].fill(f32::NAN);
            }
        }
    }
}

/// Returns the larger number, or NaN if one is NaN.
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

/// Smallest factor of a sum that changes another one. Smaller numbers would become too small for normal floats.
const NEGLIGIBLE: f32 = f32::from_bits((127 - 100) << 23);

/// Returns the factors that make sums relative to the larger of two numbers. Sums relative to −∞ are 0, and stay so.
fn scales(before: f32, part: f32) -> Scales {
    let shift = finite(larger(before, part));
    let factor = |of: f32| match of {
        f32::NEG_INFINITY => 0.0,
        of => match (finite(of) - shift).exp() {
            factor if factor < NEGLIGIBLE => 0.0,
            factor => factor,
        },
    };
    Scales { before: factor(before), part: factor(part) }
}

/// Multiplies numbers, unless that would change none.
fn scale(numbers: &mut [f32], by: f32) {
    if by != 1.0 {
        numbers.iter_mut().for_each(|number| *number *= by);
    }
}
