//! The cut of a launch into dispatches: chunks of the iteration space, and for each the windows on what is read out of
//! order.
//!
//! Invariant: a binding starts at a multiple of the device's alignment, ends at a multiple of 16 bytes, holds all that its
//! dispatch touches, and is no larger than the device allows. The windows on a buffer do not overlap, so that each
//! element of the space is done for one combination of them.

use fusion_compiler::ir::plan::{BufferArg, IndexMap, Reach};
use smallvec::SmallVec;

use crate::device::{Call, Region};
use crate::error::Result;
use crate::kernel::Launch;

use super::WgpuBackend;
use super::pool::GRANULE;

/// Chunks start at multiples of this many elements, so that vector accesses stay aligned.
const CHUNK: u64 = 64;
/// Positions are 32 bits.
const POSITIONS: u64 = 1 << 32;

/// Elements of the iteration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What a dispatch sees of a buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What one dispatch works on.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) chunk: Chunk,
    /// In the order of the launch's buffers.
    pub(super) windows: SmallVec<[Window; 8]>,
    slides: SmallVec<[Slide; 2]>,
}

/// Buffers whose windows move together, because they are read at the same positions.
#[derive(Debug)]
struct Slide {
    buffers: SmallVec<[usize; 2]>,
    /// The number of the window, among those that the chunk needs.
    at: u64,
    first: u64,
    last: u64,
}

impl Cut {
    /// The first dispatch of a chunk.
    pub(super) fn first(
        backend: &WgpuBackend,
        launch: &Launch,
        call: &Call<'_>,
        chunk: Chunk,
    ) -> Result<Cut> {
        let mut cut = Cut { chunk, windows: SmallVec::new(), slides: SmallVec::new() };
        let align = backend.limits.offset_align;
        for (i, (arg, region)) in launch.buffers.iter().zip(call.buffers).enumerate() {
            let window = match &arg.reach {
                Reach::Linear(per) => {
                    let per = u64::from(*per);
                    binding(arg, region, Chunk { start: chunk.start * per, end: chunk.end * per }, align)
                }
                Reach::Whole => whole(arg, region, align),
                Reach::Windows(map) => {
                    let number = cut.slide(backend, launch, call, (i, map))?;
                    numbered(backend, arg, region, number)
                }
            };
            cut.windows.push(window);
        }
        Ok(cut)
    }

    /// Goes on to the next combination of windows, if there is one.
    pub(super) fn advance(&mut self, backend: &WgpuBackend, launch: &Launch, call: &Call<'_>) -> bool {
        for slide in &mut self.slides {
            let moves = slide.at < slide.last;
            slide.at = if moves { slide.at + 1 } else { slide.first };
            for &i in &slide.buffers {
                self.windows[i] = numbered(backend, &launch.buffers[i], &call.buffers[i], slide.at);
            }
            if moves {
                return true;
            }
        }
        false
    }

    /// Has the windows on a buffer move, and says which comes first.
    fn slide(
        &mut self,
        backend: &WgpuBackend,
        launch: &Launch,
        call: &Call<'_>,
        (i, map): (usize, &IndexMap),
    ) -> Result<u64> {
        let (arg, region) = (&launch.buffers[i], &call.buffers[i]);
        let lead = |region: &Region<'_>| region.offset as u64 % backend.limits.offset_align;
        let size = |arg: &BufferArg| arg.dtype.size() as u64;
        let alike = self.slides.iter_mut().find(|slide| {
            let (other, at) = (&launch.buffers[slide.buffers[0]], &call.buffers[slide.buffers[0]]);
            other.reach == arg.reach && size(other) == size(arg) && lead(at) == lead(region)
        });
        if let Some(slide) = alike {
            slide.buffers.push(i);
            return Ok(slide.first);
        }
        let (first, last) = (self.chunk.start as i64, self.chunk.end as i64 - 1);
        let bounds = map.bounds(first, last, call.symbols).filter(|(low, _)| *low >= 0);
        let (low, high) = bounds.ok_or_else(|| {
            backend.gpu.unsupported(format!("`{}` reading positions beyond 63 bits", launch.kernel))
        })?;
        let number = |position: i64| (lead(region) + position as u64 * size(arg)) / window_bytes(backend);
        let (first, last) = (number(low), number(high));
        self.slides.push(Slide { buffers: [i].into_iter().collect(), at: first, first, last });
        Ok(first)
    }
}

/// The most elements that one dispatch may cover.
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
        if all.end - all.start <= most {
            continue;
        }
        let needed = match arg.reach {
            Reach::Linear(per) => {
                let element = size * u64::from(per);
                let room = most.saturating_sub(align + GRANULE) / element / CHUNK * CHUNK;
                step = step.min(room);
                if room == 0 { CHUNK * element + align + GRANULE } else { 0 }
            }
            Reach::Whole => all.end - all.start,
            Reach::Windows(_) if region.len as u64 > POSITIONS => {
                let what = format!(
                    "`{}` reading {} elements of one tensor out of order: at most 2³² can be; call it on pieces of the tensor",
                    launch.kernel, region.len
                );
                return Err(backend.gpu.unsupported(what));
            }
            Reach::Windows(_) if window_bytes(backend) == 0 => align,
            Reach::Windows(_) => 0,
        };
        if needed > 0 {
            return Err(backend.gpu.unsupported(format!(
                "binding {needed} bytes of a tensor at once, as `{}` needs; the most is {most}: raise the device's limit `max_storage_buffer_binding_size`, or FUSION_WGPU_BINDING_MAX",
                launch.kernel
            )));
        }
    }
    Ok(step)
}

/// The window of this number on a buffer.
fn numbered(backend: &WgpuBackend, arg: &BufferArg, region: &Region<'_>, number: u64) -> Window {
    let all = whole(arg, region, backend.limits.offset_align);
    let start = all.start + number * window_bytes(backend);
    Window { start, end: all.end.min(start + window_bytes(backend)) }
}

/// Bytes of all windows but the last of a buffer.
fn window_bytes(backend: &WgpuBackend) -> u64 {
    let align = backend.limits.offset_align;
    backend.limits.binding_bytes_max / align * align
}

fn whole(arg: &BufferArg, region: &Region<'_>, align: u64) -> Window {
    binding(arg, region, Chunk { start: 0, end: region.len as u64 }, align)
}

/// What holds these elements of a region.
fn binding(arg: &BufferArg, region: &Region<'_>, elements: Chunk, align: u64) -> Window {
    let (offset, size) = (region.offset as u64, arg.dtype.size() as u64);
    let start = (offset + elements.start * size) / align * align;
    let end = (offset + elements.end * size).next_multiple_of(GRANULE).max(start + GRANULE);
    Window { start, end }
}
