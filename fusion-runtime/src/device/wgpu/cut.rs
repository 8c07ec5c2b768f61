//! The cut of a launch into dispatches: chunks of the iteration space, and windows of buffers that are read
//! out of order.
//!
//! Invariant: a binding starts at a multiple of the device's alignment and ends at a multiple of 16 bytes.
//! The binding contains all elements that its dispatch touches, and is no larger than the device allows. The
//! windows of a buffer do not overlap, so each element of the space is computed for exactly one combination
//! of windows.

use fusion_compiler::ir::dim::DimExpr;
use fusion_compiler::ir::plan::{BufferArg, Footprint, IndexMap};
use smallvec::SmallVec;

use crate::device::{Call, Region};
use crate::error::Result;
use crate::kernel::Launch;

use super::WgpuBackend;
use super::pool::GRANULE;

/// Alignment of the start of a chunk in every buffer, in elements. Vector accesses then stay aligned.
const CHUNK: u64 = 64;
/// Number of positions, which have 32 bits.
const POSITIONS: u64 = 1 << 32;

/// A range of elements of the iteration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The range of a buffer that a dispatch binds, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BindingWindow {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The work of one dispatch.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) chunk: Chunk,
    /// Windows, in the order of the launch's buffers.
    pub(super) windows: SmallVec<[BindingWindow; 8]>,
    slides: SmallVec<[Slide; 2]>,
}

/// Buffers that are read at the same offset `Σ coordinate · stride`, each from its own start.
///
/// The windows of these buffers move together as the offset grows. The number of combinations is therefore
/// the total number of windows, not the product.
#[derive(Debug)]
struct Slide {
    buffers: SmallVec<[Read; 4]>,
    /// Smallest offset with the current windows.
    at: u64,
    /// Smallest offset in the chunk.
    first: u64,
    /// Largest offset in the chunk.
    last: u64,
}

/// A buffer of a slide.
#[derive(Debug)]
struct Read {
    buffer: usize,
    /// Distance from the start of the first window to the position at offset 0, in bytes.
    start: u64,
    /// Size of an element, in bytes.
    size: u64,
}

impl Read {
    /// Returns the number of the window that contains the position at offset `sum`.
    fn window(&self, sum: u64, window_bytes: u64) -> u64 {
        (self.start + sum * self.size) / window_bytes
    }

    /// Returns the smallest offset in the next window.
    fn next(&self, sum: u64, window_bytes: u64) -> u64 {
        ((self.window(sum, window_bytes) + 1) * window_bytes - self.start).div_ceil(self.size)
    }
}

impl Cut {
    /// Returns the first dispatch of a chunk.
    pub(super) fn first(
        backend: &WgpuBackend,
        launch: &Launch,
        call: &Call<'_>,
        chunk: Chunk,
    ) -> Result<Cut> {
        let mut cut = Cut { chunk, windows: SmallVec::new(), slides: SmallVec::new() };
        let align = backend.limits.offset_align;
        for (i, (arg, region)) in launch.buffers.iter().zip(call.buffers).enumerate() {
            if arg.uniform {
                cut.windows.push(whole(arg, region, backend.limits.uniform_align));
                continue;
            }
            cut.windows.push(match &arg.footprint {
                Footprint::Linear(each) => {
                    let each = extent(backend, launch, call, each)?;
                    // The last element of the space may read fewer buffer elements than the others.
                    let at = |element: u64| (element * each).min(region.len as u64);
                    binding(arg, region, Chunk { start: at(chunk.start), end: at(chunk.end) }, align)
                }
                Footprint::LowerHalf => halves(arg, region, align)[0],
                Footprint::UpperHalf => halves(arg, region, align)[1],
                Footprint::Strided { .. } | Footprint::Item | Footprint::Whole | Footprint::Windows(_) => {
                    whole(arg, region, align)
                }
            });
            if let Footprint::Windows(map) = &arg.footprint {
                let added = cut.add(launch, call, (i, map), region.offset as u64 % align);
                added.ok_or_else(|| {
                    let what = format!("positions beyond 63 bits, as `{}` would read", launch.kernel);
                    backend.gpu.unsupported(what)
                })?;
            }
        }
        (0..cut.slides.len()).for_each(|slide| cut.place(backend, launch, call, slide));
        Ok(cut)
    }

    /// Advances to the next combination of windows. Returns false if there is none.
    pub(super) fn advance(&mut self, backend: &WgpuBackend, launch: &Launch, call: &Call<'_>) -> bool {
        let bytes = window_bytes(backend);
        for i in 0..self.slides.len() {
            let slide = &mut self.slides[i];
            let next = slide.buffers.iter().map(|read| read.next(slide.at, bytes)).min();
            let next = next.filter(|&next| next <= slide.last);
            slide.at = next.unwrap_or(slide.first);
            self.place(backend, launch, call, i);
            if next.is_some() {
                return true;
            }
        }
        false
    }

    /// Adds moving windows for a buffer. Returns `None` if the positions have no value.
    fn add(
        &mut self,
        launch: &Launch,
        call: &Call<'_>,
        (buffer, map): (usize, &IndexMap),
        lead: u64,
    ) -> Option<()> {
        let size = launch.buffers[buffer].dtype.size() as u64;
        let start = u64::try_from(map.start.eval(call.symbols)?).ok()?;
        let read = Read { buffer, start: lead + start.checked_mul(size)?, size };
        let same = |slide: &&mut Slide| match &launch.buffers[slide.buffers[0].buffer].footprint {
            Footprint::Windows(other) => other.dims == map.dims,
            _ => false,
        };
        if let Some(slide) = self.slides.iter_mut().find(same) {
            slide.buffers.push(read);
            return Some(());
        }
        let (first, last) = (i64::try_from(self.chunk.start).ok()?, i64::try_from(self.chunk.end).ok()?);
        let (low, high) = map.bounds(first, last - 1, call.symbols)?;
        let (first, last) = (u64::try_from(low).ok()?, u64::try_from(high).ok()?);
        self.slides.push(Slide { buffers: [read].into_iter().collect(), at: first, first, last });
        Some(())
    }

    /// Moves the windows of a slide to its current offset.
    fn place(&mut self, backend: &WgpuBackend, launch: &Launch, call: &Call<'_>, slide: usize) {
        let (bytes, slide) = (window_bytes(backend), &self.slides[slide]);
        for read in &slide.buffers {
            let (arg, region) = (&launch.buffers[read.buffer], &call.buffers[read.buffer]);
            let all = whole(arg, region, backend.limits.offset_align);
            let start = all.start + read.window(slide.at, bytes) * bytes;
            self.windows[read.buffer] = BindingWindow { start, end: all.end.min(start + bytes) };
        }
    }
}

/// Returns the maximum number of elements that one dispatch may cover.
pub(super) fn chunk_elements(
    backend: &WgpuBackend,
    launch: &Launch,
    call: &Call<'_>,
    elements: u64,
) -> Result<u64> {
    let (align, most) = (backend.limits.offset_align, backend.limits.binding_bytes_max);
    let mut step = elements;
    for (arg, region) in launch.buffers.iter().zip(call.buffers) {
        let (size, all) = (arg.dtype.size() as u64, whole(arg, region, align));
        // A uniform binding is always small.
        if arg.uniform || all.end - all.start <= most {
            continue;
        }
        let needed = match &arg.footprint {
            Footprint::Linear(per) => {
                let per = extent(backend, launch, call, per)?;
                let room = most.saturating_sub(align + GRANULE) / (size * per);
                let aligned = CHUNK >> per.trailing_zeros().min(CHUNK.trailing_zeros());
                // Rows of teams, and elements computed one at a time, may start anywhere. Only long rows need
                // that freedom.
                let anywhere = launch.team > 1 || launch.space.grain == 1;
                let quantum = if anywhere && room < aligned { 1 } else { aligned };
                let room = room / quantum * quantum;
                step = step.min(room);
                if room == 0 { quantum * size * per + align + GRANULE } else { 0 }
            }
            Footprint::Strided { .. } | Footprint::Item | Footprint::Whole => all.end - all.start,
            Footprint::LowerHalf | Footprint::UpperHalf => {
                let bytes = halves(arg, region, align).map(|half| half.end - half.start);
                bytes.into_iter().max().filter(|&bytes| bytes > most).unwrap_or(0)
            }
            Footprint::Windows(_) if region.len as u64 > POSITIONS => {
                let what = format!(
                    "`{}` reading {} elements of one tensor out of order: at most 2³² can be; call it on pieces of the tensor",
                    launch.kernel, region.len
                );
                return Err(backend.gpu.unsupported(what));
            }
            Footprint::Windows(_) if window_bytes(backend) == 0 => align,
            Footprint::Windows(_) => 0,
        };
        if needed > 0 {
            return Err(backend.gpu.unsupported(format!(
                "binding {needed} bytes of a tensor at once, as `{}` needs; the most is {most}: raise FUSION_WGPU_BINDING_MAX, or the limit `max_storage_buffer_binding_size` of a device that has less than its adapter; else call it on pieces of the tensor",
                launch.kernel
            )));
        }
    }
    Ok(step)
}

/// Returns the value of an extent in a call.
fn extent(backend: &WgpuBackend, launch: &Launch, call: &Call<'_>, extent: &DimExpr) -> Result<u64> {
    let value = extent.eval(call.symbols).and_then(|value| u64::try_from(value).ok());
    value.ok_or_else(|| backend.gpu.unsupported(format!("an extent of `{}` beyond 63 bits", launch.kernel)))
}

/// Returns the bytes of every window of a buffer except the last.
fn window_bytes(backend: &WgpuBackend) -> u64 {
    let align = backend.limits.offset_align;
    backend.limits.binding_bytes_max / align * align
}

fn whole(arg: &BufferArg, region: &Region<'_>, align: u64) -> BindingWindow {
    binding(arg, region, Chunk { start: 0, end: region.len as u64 }, align)
}

/// Returns windows for both halves of a region. The upper half of a region that has only one is never read.
fn halves(arg: &BufferArg, region: &Region<'_>, align: u64) -> [BindingWindow; 2] {
    let all = whole(arg, region, align);
    let middle = all.start + ((all.end - all.start) / 2).next_multiple_of(align);
    if middle >= all.end {
        // Every binding has a size.
        return [all, BindingWindow { start: 0, end: GRANULE }];
    }
    [BindingWindow { end: middle, ..all }, BindingWindow { start: middle, ..all }]
}

/// Returns the window for elements of a region. An empty range binds the start of the buffer, which always
/// exists.
fn binding(arg: &BufferArg, region: &Region<'_>, elements: Chunk, align: u64) -> BindingWindow {
    if elements.start == elements.end {
        return BindingWindow { start: 0, end: GRANULE };
    }
    let (offset, size) = (region.offset as u64, arg.dtype.size() as u64);
    let start = (offset + elements.start * size) / align * align;
    let end = (offset + elements.end * size).next_multiple_of(GRANULE);
    BindingWindow { start, end }
}
