//! Launches on the CPU: threads take items in chunks, each chunk with the window of elements it writes.
//!
//! Invariant: windows of different chunks do not overlap, so safe generated code cannot race.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::kernel::Kernel;
use fusion_compiler::ir::plan::{Code, Footprint, Space, UniformArg};
use fusion_compiler::target::tuning_table::runtime;
use smallvec::SmallVec;

use super::contraction::Failure;
use super::memory::Pool;
use super::wake_policy::POOL;
use super::work_sharing::with_sharing;
use super::{at, contraction, stream, tile};
use crate::cpu_args::{CpuArgs, CpuBuffer, CpuUniform, Share};
use crate::device::Call;
use crate::error::{Error, Result};
use crate::isa::Isa;
use crate::kernel::{CpuCode, CpuFn, Launch, PARAMS};
use crate::prefetch::Prefetcher;
use crate::window::StridedLayout;

thread_local! {
    /// Memory for the elements of a row, kept for the next launch.
    static ROWS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Arguments of a launch, before items are assigned to threads.
pub(super) struct PreparedLaunch<'a> {
    program: SelectedCode<'a>,
    pub(super) buffers: SmallVec<[CpuBuffer; 8]>,
    uniforms: SmallVec<[CpuUniform; PARAMS]>,
    pub(super) items: Items,
    /// Number of elements of row memory.
    row: usize,
    /// Prefetches of the loops.
    prefetcher: Prefetcher,
    call: std::marker::PhantomData<&'a Call<'a>>,
}

/// The program that runs the items.
#[derive(Clone, Copy)]
enum SelectedCode<'a> {
    /// A function that this processor can run.
    Function(CpuFn),
    /// A kernel for the tile interpreter.
    Kernel(&'a Kernel),
}

// SAFETY: the pointers are valid for `'a`, the lifetime of the call. Threads write disjoint windows.
unsafe impl Sync for PreparedLaunch<'_> {}

/// Memory that a kernel has in place of a buffer: for the items that it runs, or for their elements.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Number of the buffer.
    pub(super) buffer: usize,
    /// Address of the first item or element.
    pub(super) at: *mut u8,
}

/// The items of a launch, resolved for its extents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items {
    cols: usize,
    per_row: usize,
    grain: usize,
    count: usize,
    pub(super) elements: usize,
    /// Elements that a loop traverses for each element of the space.
    each: usize,
}

/// Runs a kernel with its best function that `isa` supports.
pub(super) fn launch(
    (isa, device, pool): (Isa, &str, &Arc<Pool>),
    launch: &Launch,
    call: &Call<'_>,
) -> Result<()> {
    let Code::Cpu(_) = &launch.code else {
        return Err(Error::Unsupported {
            device: device.into(),
            what: format!("the code of kernel `{}`", launch.kernel),
        });
    };
    let is_lent = |buffer: usize| launch.contraction.as_ref().is_some_and(|of| of.lends_own(buffer));
    let prepared = PreparedLaunch::of(isa, launch, call, &is_lent).ok_or_else(|| malformed(launch))?;
    if prepared.items.count == 0 {
        return Ok(());
    }
    let Some(of) = &launch.contraction else {
        prepared.run_all();
        return Ok(());
    };
    let mut producers: SmallVec<[contraction::PreparedProducer<'_>; 2]> = SmallVec::new();
    for producer in call.producers {
        let call = Call { buffers: &producer.buffers, ..*call };
        let is_lent = |buffer: usize| of.lends(producer.number, buffer);
        let prepared = PreparedLaunch::of(isa, producer.launch, &call, &is_lent);
        producers.push((producer.number, prepared.ok_or_else(|| malformed(producer.launch))?));
    }
    contraction::run(&prepared, of, &producers, (isa, pool, call.symbols)).map_err(|failure| {
        let device = device.into();
        match failure {
            Failure::Malformed => malformed(launch),
            Failure::NoMemory(bytes) => {
                Error::OutOfMemory { bytes: Some(bytes), device, tensor_bytes_max: None }
            }
        }
    })
}

impl<'a> PreparedLaunch<'a> {
    /// Resolves a launch, some of whose buffers have memory only when items run. Returns `None` if `isa` supports
    /// none of the launch's functions, or an extent has no value.
    fn of(
        isa: Isa,
        launch: &'a Launch,
        call: &Call<'a>,
        is_lent: &dyn Fn(usize) -> bool,
    ) -> Option<PreparedLaunch<'a>> {
        let Code::Cpu(code) = &launch.code else { return None };
        let program = match code {
            CpuCode::Compiled(functions) => {
                let &(_, function) = functions.iter().find(|(needs, _)| *needs <= isa)?;
                SelectedCode::Function(function)
            }
            CpuCode::Interpreted(kernel) => SelectedCode::Kernel(kernel),
        };
        let items = Items::new(launch, call.symbols)?;
        let mut buffers = SmallVec::new();
        for (arg, region) in launch.buffers.iter().zip(call.buffers) {
            let ptr = at(region.memory, region.offset, region.len * arg.dtype.size());
            let extent = |extent: &DimExpr| usize::try_from(extent.eval(call.symbols)?).ok();
            let (mut strided, is_lent) = (None, is_lent(buffers.len()));
            let share = match &arg.footprint {
                Footprint::Linear(per) => Share::PerElement(extent(per)?),
                Footprint::Strided { each, inner } => {
                    strided = Some(StridedLayout { each: extent(each)?, inner: extent(inner)? });
                    Share::PerElement(extent(each)?)
                }
                Footprint::Item if region.len < items.count && !is_lent => return None,
                Footprint::Item => Share::PerItem,
                Footprint::Whole | Footprint::Windows(_) | Footprint::LowerHalf | Footprint::UpperHalf => {
                    Share::Whole
                }
            };
            if let Some(per) = share.per_element().filter(|_| arg.access != Access::Read && !is_lent) {
                // The last element of the space may have fewer buffer elements than the others.
                let missing = items.elements.checked_mul(per)?.checked_sub(region.len)?;
                if missing >= per.max(1) {
                    return None;
                }
            }
            let (len, dtype, access) = (region.len, arg.dtype, arg.access);
            let own = (0, 0);
            let (has_writer, streams) = (false, false);
            let first = 0;
            buffers.push(CpuBuffer {
                ptr,
                len,
                first,
                share,
                dtype,
                access,
                has_writer,
                strided,
                own,
                streams,
            });
        }
        let mut uniforms = SmallVec::new();
        for uniform in launch.uniforms.iter() {
            uniforms.push(resolve(uniform, call)?);
        }
        if buffers.len() != launch.buffers.len() {
            return None;
        }
        let row = usize::try_from(launch.row_memory.eval(call.symbols)?).ok()? / size_of::<f32>();
        let prefetcher = Prefetcher::of(stream::bytes(&buffers));
        Some(PreparedLaunch {
            program,
            buffers,
            uniforms,
            items,
            row,
            prefetcher,
            call: std::marker::PhantomData,
        })
    }

    fn run_all(&self) {
        let items = self.items.count;
        let streams = matches!(self.program, SelectedCode::Function(_)) && stream::may_pay(self);
        let run = |first: usize, end: usize| {
            if streams { stream::run(self, first, end) } else { self.run(first, end, false) }
        };
        // A short call makes no further queries, which would take longer than the start of a kernel.
        if items <= self.items.of(runtime::PROBE_ELEMENTS) {
            return run(0, items);
        }
        let threads = rayon::current_num_threads();
        if threads == 1 || self.items.work() >= runtime::PARALLEL_ELEMENTS_MIN {
            return distribute((0, items), threads, runtime::CHUNKS_PER_THREAD, run);
        }
        let (done, left) = self.begin();
        let threads = threads.min(1 + (left.as_nanos() / runtime::THREAD_WORK_MIN.as_nanos()) as usize);
        let chunks = if left < runtime::LONG_CALL_MIN {
            runtime::SHORT_CHUNKS_PER_THREAD
        } else {
            runtime::CHUNKS_PER_THREAD
        };
        distribute((done, items), threads, chunks, run);
    }

    /// Runs items on this thread until the expected remaining time justifies asking other threads.
    ///
    /// Returns the number of items done, and the time that one thread would need for the rest.
    fn begin(&self) -> (usize, Duration) {
        let items = self.items.count;
        let (mut done, mut next) = (0, self.items.of(runtime::PROBE_ELEMENTS));
        let start = Instant::now();
        let pays = POOL.help_pays(start);
        while next < items {
            self.run(done, next, false);
            done = next;
            let left = start.elapsed().mul_f64((items - done) as f64 / done as f64);
            if left > pays {
                return (done, left);
            }
            // The estimate allows for a slower pace of the rest.
            next = if left * runtime::SLOWDOWN_MAX < pays { items } else { 2 * next };
        }
        self.run(done, items, false);
        POOL.done_alone(start, Instant::now());
        (items, Duration::ZERO)
    }

    /// Returns the bytes that these items read and write. A buffer without a share per element counts as one
    /// element each.
    pub(super) fn bytes(&self, first: usize, end: usize) -> usize {
        let elements = self.items.start(end) - self.items.start(first);
        let each =
            |buffer: &CpuBuffer| buffer.share.per_element().map_or(1, |per| per.max(1)) * buffer.dtype.size();
        self.buffers.iter().map(|buffer| elements * each(buffer)).sum()
    }

    /// Runs the items `first..end`. `streams` permits non-temporal stores to write-only buffers.
    pub(super) fn run(&self, first: usize, end: usize, streams: bool) {
        self.run_with((first, end), streams, (&[], None));
    }

    /// Runs the items `first..end` on their elements of tiles.
    pub(super) fn run_tiles(&self, first: usize, end: usize, tiles: &[Tile]) {
        self.run_with((first, end), false, (tiles, None));
    }

    /// Runs the item of a row on the `len` columns from `col` on, which are the elements of a tile.
    pub(super) fn run_block(&self, row: usize, (col, len): (usize, usize), tile: Tile) {
        self.run_with((row, row + 1), false, (&[tile], Some((col, len))));
    }

    fn run_with(
        &self,
        (first, end): (usize, usize),
        streams: bool,
        (tiles, block): (&[Tile], Option<(usize, usize)>),
    ) {
        let (from, to) = match block {
            None => (self.items.start(first), self.items.start(end)),
            Some((col, len)) => (first * self.items.cols + col, first * self.items.cols + col + len),
        };
        assert!(from <= to && to <= self.items.elements, "items are in order and within the space");
        let mut memory = ROWS.take();
        if memory.len() < self.row {
            memory.resize(self.row, 0.0);
        }
        let rows = &mut memory[..self.row];
        let mut buffers: SmallVec<[CpuBuffer; 8]> = SmallVec::from_slice(&self.buffers);
        for buffer in buffers.iter_mut().filter(|buffer| buffer.access != Access::Read) {
            if buffer.strided.is_some() {
                buffer.own = (from, to);
                continue;
            }
            let at = |item: usize, element: usize| match buffer.share {
                Share::PerElement(per) => (element * per).min(buffer.len),
                Share::PerItem => item,
                Share::Whole if element > 0 => buffer.len,
                Share::Whole => 0,
            };
            let [start, end] = [at(first, from), at(end, to)];
            (buffer.first, buffer.len) = (start, end - start);
            buffer.ptr = buffer.ptr.wrapping_add(buffer.first * buffer.dtype.size());
            buffer.streams = streams && buffer.access == Access::Write;
        }
        for &Tile { buffer, at } in tiles {
            let buffer = &mut buffers[buffer];
            let (from, to) = match buffer.share {
                Share::PerElement(per) => (from * per, to * per),
                Share::PerItem => (first, end),
                Share::Whole => (from, to),
            };
            (buffer.ptr, buffer.first, buffer.len) = (at, from, to - from);
        }
        // SAFETY: `PreparedLaunch::of` took the buffers from `at`, which checked their bytes. Each buffer
        // belongs to a tensor, whose memory is initialised and aligned to 16 bytes. Windows and the elements of
        // `own` are within their buffers (`to <= elements`), and disjoint from the windows of other items. The
        // executor lets no other argument overlap a written one. A tile has the elements or items of the run.
        let mut args = unsafe { CpuArgs::new((first, end), &mut buffers, &self.uniforms, rows) }
            .with_grain(self.items.grain)
            .with_block(block.unwrap_or_default())
            .prefetching(self.prefetcher);
        match self.program {
            // SAFETY: `launch` chose a function whose instructions this processor has.
            SelectedCode::Function(function) => unsafe { function(&mut args) },
            SelectedCode::Kernel(kernel) => tile::run(kernel, &mut args),
        }
        ROWS.set(memory);
    }
}

/// Distributes items over `threads` threads, including this one, in `each` chunks per thread.
///
/// A thread that finishes a chunk takes the next. At most one thread per chunk is asked, since a thread
/// without a chunk would wake for nothing.
pub(super) fn distribute(
    (first, end): (usize, usize),
    threads: usize,
    each: usize,
    run: impl Fn(usize, usize) + Sync,
) {
    let left = end - first;
    let chunks = (threads * each).min(left);
    let bound = |chunk: usize| first + left * chunk / chunks;
    let next = AtomicUsize::new(0);
    let task = || {
        let chunks_taken = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        chunks_taken
            .take_while(|&chunk| chunk < chunks)
            .for_each(|chunk| run(bound(chunk), bound(chunk + 1)));
    };
    match threads.min(chunks) {
        0 => {}
        1 => run(first, end),
        threads => with_sharing(threads - 1, &task),
    }
}

impl Items {
    fn new(launch: &Launch, symbols: &[i64]) -> Option<Items> {
        let number = |extent: &DimExpr| usize::try_from(extent.eval(symbols)?).ok();
        let rows_apart = match &launch.contraction {
            // A strip of columns of all rows of a product is the work of a thread.
            Some(of) => {
                of.batch.iter().try_fold(1, |all: usize, axis| all.checked_mul(number(&axis.extent)?))?
            }
            None => number(&launch.space.rows)?,
        };
        Items::of_space(&launch.space, symbols, rows_apart)
    }

    /// Resolves a space with so many rows, or groups of rows, that are work for different threads.
    fn of_space(space: &Space, symbols: &[i64], rows_apart: usize) -> Option<Items> {
        let number = |extent: &DimExpr| usize::try_from(extent.eval(symbols)?).ok();
        let (rows, cols) = (number(&space.rows)?, number(&space.cols)?);
        let number = |grain: u32| usize::try_from(grain).ok().filter(|&grain| grain > 0);
        let bounds = (number(space.grain_min)?, number(space.grain)?);
        let grain = match bounds.0 < bounds.1 {
            true => grain(rows_apart, cols, bounds, rayon::current_num_threads()),
            false => bounds.1,
        };
        let per_row = cols.div_ceil(grain);
        Some(Items {
            cols,
            per_row,
            grain,
            count: rows.checked_mul(per_row)?,
            elements: rows.checked_mul(cols)?,
            each: usize::try_from(space.each.eval(symbols)?).ok()?,
        })
    }

    /// Returns the number of items that traverse this many elements. The launch has items.
    pub(super) fn of(&self, elements: usize) -> usize {
        elements.div_ceil(self.grain.min(self.cols) * self.each.max(1))
    }

    /// Returns the number of items in a row of the space.
    pub(super) fn per_row(&self) -> usize {
        self.per_row
    }

    /// Returns the number of elements of an item that does not end its row.
    pub(super) fn grain(&self) -> usize {
        self.grain
    }

    /// Returns the number of elements that all items traverse.
    fn work(&self) -> usize {
        self.elements.saturating_mul(self.each)
    }

    /// Returns the number of elements in a row of the space.
    pub(super) fn cols(&self) -> usize {
        self.cols
    }

    /// Returns the first element of an item, or the number of elements for the item past the last.
    fn start(&self, item: usize) -> usize {
        item / self.per_row * self.cols + item % self.per_row * self.grain
    }
}

/// Items of one row begin at multiples of so many elements, which are whole vectors and cache lines.
const ITEM_LANES: usize = 64;

/// Returns the elements of an item such that threads have as many items each, if `least` elements are enough.
///
/// Longer items read memory in longer runs.
fn grain(rows: usize, cols: usize, (least, most): (usize, usize), threads: usize) -> usize {
    let is_even = |per_row: &usize| rows >= 4 * threads || (rows * per_row).is_multiple_of(threads);
    let fewest = cols.div_ceil(most).max(1);
    let is_enough = |per_row: &usize| cols / per_row >= least;
    let more = (fewest..fewest + threads).take_while(is_enough).find(is_even);
    let per_row = more.unwrap_or(fewest);
    cols.div_ceil(per_row).next_multiple_of(ITEM_LANES).clamp(least, most)
}

fn resolve(uniform: &UniformArg, call: &Call<'_>) -> Option<CpuUniform> {
    match uniform {
        UniformArg::Extent(extent) => {
            Some(CpuUniform::Index(usize::try_from(extent.eval(call.symbols)?).ok()?))
        }
        UniformArg::Scalar(param) => {
            call.scalars.get(usize::from(*param)).copied().flatten().map(CpuUniform::Scalar)
        }
        UniformArg::Start | UniformArg::End | UniformArg::Offset(_) | UniformArg::Window(_) => None,
    }
}

fn malformed(launch: &Launch) -> Error {
    Error::Argument {
        function: launch.kernel.to_string(),
        what: String::from("the plan has no valid CPU launch for it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(rows: i64, cols: i64, grain: u32, each: i64) -> Items {
        let number = DimExpr::constant;
        let (rows, cols, each) = (number(rows), number(cols), number(each));
        let space = Space { rows, cols, grain, grain_min: grain, each };
        Items::of_space(&space, &[], 1).expect("the extents have values")
    }

    #[test]
    fn items_go_through_elements_of_the_space_and_of_rows() {
        assert_eq!(items(1, 1 << 20, 1024, 1).of(1 << 14), 16);
        // An item covers a whole row of the space if the row is shorter than the grain.
        assert_eq!(items(1000, 100, 1024, 1).of(1 << 14), 164);
        // A reduced row is longer than the space shows.
        assert_eq!(items(8192, 1, 1, 768).of(1 << 14), 22);
        assert_eq!(items(8192, 1, 1, 0).of(100), 100);
    }

    #[test]
    fn items_are_long_and_even() {
        let bounds = (512, 4096);
        assert_eq!(grain(16, 4096, bounds, 2), 4096);
        assert_eq!(grain(3, 4096, bounds, 2), 2048);
        assert_eq!(grain(1, 3072, bounds, 2), 1536);
        assert_eq!(grain(1, 9000, bounds, 2), 2304);
        // Half of the elements are too few.
        assert_eq!([264, 520].map(|cols| grain(1, cols, (256, 512), 2)), [320, 320]);
        assert_eq!(grain(1, 1536, (256, 512), 2), 384);
        assert_eq!(grain(9, 8192, bounds, 16), 512);
        assert_eq!(grain(1, 50_257, bounds, 1), 3904);
        assert_eq!(grain(1, 100, bounds, 8), 512);
        assert_eq!(grain(0, 100, bounds, 3), 512);
    }
}
