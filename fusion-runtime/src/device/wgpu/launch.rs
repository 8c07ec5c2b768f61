//! A launch: dispatches that respect the binding limit (`cut`), each folded into the limits of the grid.
//!
//! Invariant: `UniformArg::Offset` shifts positions to match the bindings of their dispatch.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::plan::{BufferArg, Code, Text, UniformArg};

use crate::device::{Backend, Call, Memory, Region};
use crate::error::Result;
use crate::kernel::{Launch, ScalarValue};

use super::cut::{Chunk, Cut, chunk_elements};
use super::fault::Gpu;
use super::pipeline::{OverrideConstants, Passing, Pipeline, WORD};
use super::pool::{Block, UNIFORM};
use super::stream::{Arguments, Stream};
use super::{WgpuBackend, block_of};

/// Limit of elements: positions of surplus threads, and counters of a row's elements, must not overflow 32
/// bits.
const ELEMENTS_MAX: u64 = 1 << 31;
/// Limit of loop iterations: Mesa's software renderer silently ends all loops of a thread after this many.
const TRIPS_MAX: i64 = 65_535;
/// Maximum number of bind groups kept for later launches of the same buffers.
const BIND_GROUPS_MAX: usize = 4096;

/// The recorder of launches, used by one thread at a time.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) stream: Stream,
    pub(super) groups: BindGroups,
    words: Vec<u8>,
}

/// The cache of bind groups, by pipeline and windows.
#[derive(Debug, Default)]
pub(super) struct BindGroups {
    known: HashMap<Box<[u64]>, wgpu::BindGroup>,
    key: Vec<u64>,
    /// Number of bind groups made so far.
    pub(super) made: AtomicU64,
}

impl Recorder {
    pub(super) fn new(stream: Stream) -> Recorder {
        Recorder { stream, groups: BindGroups::default(), words: Vec::new() }
    }
}

/// Records a launch.
pub(super) fn launch(backend: &WgpuBackend, launch: &Launch, call: &Call<'_>) -> Result<()> {
    backend.gpu.check()?;
    let Code::Wgsl(text) = &launch.code else { unreachable!("a WGSL program has WGSL launches") };
    let fits = |count: Option<i64>| {
        count.and_then(|count| u64::try_from(count).ok()).filter(|&count| count < ELEMENTS_MAX)
    };
    let row = fits(launch.space.each.eval(call.symbols));
    let elements = fits(launch.space.elements(call.symbols)).filter(|_| row.is_some()).ok_or_else(|| {
        backend.gpu.unsupported(format!(
            "2³¹ elements or more at once, as `{}` would compute; call it on pieces of its tensors, or on another device",
            launch.kernel
        ))
    })?;
    if backend.software && launch.trips.eval(call.symbols).is_none_or(|trips| trips >= TRIPS_MAX) {
        return Err(backend.gpu.unsupported(format!(
            "{TRIPS_MAX} steps of a loop or more, as `{}` would take; call it on `Device::cpu()` or on a GPU",
            launch.kernel
        )));
    }
    let copies = copy_reads(backend, launch, call)?;
    let substituted: Vec<Region<'_>>;
    let mut call =
        Call { symbols: call.symbols, scalars: call.scalars, buffers: call.buffers, producers: &[] };
    if !copies.is_empty() {
        substituted = substitute(call.buffers, &copies);
        call.buffers = &substituted;
    }
    let step = chunk_elements(backend, launch, &call, elements)?.min(dispatch_elements(backend, launch));
    let block = if launch.team > 1 { launch.team } else { backend.block };
    // All chunks except the last have the same length. A team processes whole rows of any length.
    let is_even = |count: &u64| count.is_multiple_of(launch.space.grain.max(1).into());
    let rest = launch.team == 1 && ![elements, step.min(elements)].iter().all(is_even);
    // All chunks use one pipeline.
    let constants = OverrideConstants { block, rest, shifted: step < elements };
    let mut recorder = backend.recorder()?;
    if backend.pool.forgotten.swap(false, Relaxed) {
        recorder.groups.clear();
    }
    let mut start = 0;
    while start < elements {
        let chunk = Chunk { start, end: elements.min(start + step) };
        let mut cut = Cut::first(backend, launch, &call, chunk)?;
        loop {
            record(backend, &mut recorder, (launch, text, constants), &call, &cut)?;
            if !cut.advance(backend, launch, &call) {
                break;
            }
        }
        start = chunk.end;
    }
    if call.buffers.iter().any(|region| region.memory.is_external()) {
        recorder.stream.submit()
    } else {
        Ok(())
    }
}

/// Records one dispatch.
fn record(
    backend: &WgpuBackend,
    recorder: &mut Recorder,
    (launch, text, mut constants): (&Launch, &Text, OverrideConstants),
    call: &Call<'_>,
    cut: &Cut,
) -> Result<()> {
    let Recorder { stream, groups, words } = recorder;
    words.clear();
    for uniform in launch.uniforms.iter() {
        let word = uniform_word(backend, launch, call, uniform, cut)?;
        constants.shifted |= word != 0 && matches!(uniform, UniformArg::Start | UniformArg::Offset(_));
        words.extend_from_slice(&word.to_le_bytes());
    }
    let pipeline = backend.pipelines.get(launch, text, constants)?;
    let grid = grid(launch, cut.chunk, backend);
    let group = groups.get(backend, call, &pipeline, cut)?;
    let arguments = match &pipeline.passing {
        Passing::None => Arguments::None,
        Passing::Immediates => Arguments::Immediates(words),
        Passing::Bound(uniforms, _) => {
            words.resize(words.len().next_multiple_of(16), 0);
            Arguments::Bound(uniforms, stream.push_uniforms(words)?)
        }
    };
    stream.dispatch((pipeline.id, &pipeline.pipeline), group, &arguments, grid);
    stream.submit_if_full()
}

/// Returns the bits of a uniform.
fn uniform_word(
    backend: &WgpuBackend,
    launch: &Launch,
    call: &Call<'_>,
    uniform: &UniformArg,
    cut: &Cut,
) -> Result<u32> {
    Ok(match uniform {
        UniformArg::Start => cut.chunk.start as u32,
        UniformArg::End => cut.chunk.end as u32,
        UniformArg::Extent(extent) => {
            let value = extent.eval(call.symbols);
            let range = i64::from(i32::MIN)..=i64::from(u32::MAX);
            value.filter(|value| range.contains(value)).ok_or_else(|| {
                backend.gpu.unsupported(format!("an extent of `{}` beyond 32 bits", launch.kernel))
            })? as u32
        }
        UniformArg::Scalar(param) => match call.scalars.get(usize::from(*param)).copied().flatten() {
            Some(ScalarValue::F32(value)) => value.to_bits(),
            Some(ScalarValue::I32(value)) => value.cast_unsigned(),
            Some(ScalarValue::U32(value)) => value,
            Some(ScalarValue::Bool(value)) => u32::from(value),
            Some(ScalarValue::F64(_)) => unreachable!("WGSL has no f64"),
            None => unreachable!("uniform scalars are scalar parameters of the plan"),
        },
        UniformArg::Offset(buffer) => {
            let i = usize::from(*buffer);
            let bytes = (call.buffers[i].offset as u64).wrapping_sub(cut.windows[i].start).cast_signed();
            (bytes / launch.buffers[i].dtype.size() as i64) as u32
        }
        UniformArg::Window(buffer) => {
            let i = usize::from(*buffer);
            ((cut.windows[i].end - cut.windows[i].start) / launch.buffers[i].dtype.size() as u64) as u32
        }
    })
}

/// Returns the maximum number of elements that the threads, or blocks, of one grid cover.
fn dispatch_elements(backend: &WgpuBackend, launch: &Launch) -> u64 {
    u64::from(backend.limits.groups_max).pow(2).saturating_mul(group_elements(backend, launch))
}

/// Returns the number of elements of a workgroup.
fn group_elements(backend: &WgpuBackend, launch: &Launch) -> u64 {
    let iterations = if launch.team > 1 { 1 } else { backend.block };
    u64::from(iterations) * u64::from(launch.space.grain.max(1))
}

/// Returns the grid of a chunk: its workgroups in even rows within the limit. Surplus workgroups are idle.
fn grid(launch: &Launch, chunk: Chunk, backend: &WgpuBackend) -> [u32; 2] {
    let groups = (chunk.end - chunk.start).div_ceil(group_elements(backend, launch)).max(1);
    let rows = groups.div_ceil(u64::from(backend.limits.groups_max));
    debug_assert!(rows <= u64::from(backend.limits.groups_max), "a chunk is what a grid has groups for");
    [groups.div_ceil(rows) as u32, rows as u32]
}

impl BindGroups {
    /// Returns the bind group of a dispatch, cached if it exists.
    fn get(
        &mut self,
        backend: &WgpuBackend,
        call: &Call<'_>,
        pipeline: &Pipeline,
        cut: &Cut,
    ) -> Result<&wgpu::BindGroup> {
        self.key.clear();
        self.key.push(pipeline.id);
        for (region, window) in call.buffers.iter().zip(&cut.windows) {
            self.key.extend([block_of(region.memory).id, window.start, window.end]);
        }
        if !self.known.contains_key(self.key.as_slice()) {
            if self.known.len() >= BIND_GROUPS_MAX {
                self.known.clear();
            }
            let blocks = call.buffers.iter().map(|region| block_of(region.memory));
            let group = make(&backend.gpu, pipeline, blocks, &self.key[1..])?;
            self.made.fetch_add(1, Relaxed);
            self.known.insert(self.key.as_slice().into(), group);
        }
        Ok(&self.known[self.key.as_slice()])
    }

    /// Drops all bind groups, and with them their buffers.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}

fn make<'a>(
    gpu: &Gpu,
    pipeline: &Pipeline,
    blocks: impl Iterator<Item = &'a Block>,
    windows: &[u64],
) -> Result<wgpu::BindGroup> {
    let entry = |((binding, block), window): ((u32, &'a Block), &[u64])| {
        let (offset, size) = (window[1], wgpu::BufferSize::new(window[2] - window[1]));
        let buffer = wgpu::BufferBinding { buffer: &block.buffer, offset, size };
        wgpu::BindGroupEntry { binding, resource: wgpu::BindingResource::Buffer(buffer) }
    };
    let entries: Vec<wgpu::BindGroupEntry<'_>> =
        (0..).zip(blocks).zip(windows.chunks_exact(3)).map(entry).collect();
    let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &pipeline.buffers, entries: &entries };
    gpu.caught(|| gpu.device.create_bind_group(&descriptor))
        .map_err(|error| gpu.failed("create_bind_group", &error))
}

/// Copies buffers that the kernel reads and cannot bind in place. Each copy comes with the number of its
/// argument.
///
/// A dispatch may not bind a buffer for reads that another argument of the dispatch writes. Reads of the copy
/// see the old content. A uniform binding needs the alignment of uniforms, and a buffer with the usage
/// `UNIFORM`, which a caller's buffer may lack.
fn copy_reads(backend: &WgpuBackend, launch: &Launch, call: &Call<'_>) -> Result<Vec<(usize, Memory)>> {
    let mut copies = Vec::new();
    for (i, (arg, region)) in launch.buffers.iter().zip(call.buffers).enumerate() {
        let buffer = &block_of(region.memory).buffer;
        let written = |(other, at): (&BufferArg, &Region<'_>)| {
            other.access != Access::Read && block_of(at.memory).buffer == *buffer
        };
        let aligned = (region.offset as u64).is_multiple_of(backend.limits.uniform_align);
        let binds = !arg.uniform || aligned && buffer.usage().contains(UNIFORM);
        if arg.access != Access::Read || binds && !launch.buffers.iter().zip(call.buffers).any(written) {
            continue;
        }
        let bytes = (region.len * arg.dtype.size()).next_multiple_of(WORD);
        let copy = backend.allocate(bytes)?;
        backend.copy((region.memory, region.offset), (&copy, 0), bytes)?;
        copies.push((i, copy));
    }
    Ok(copies)
}

fn substitute<'a>(regions: &[Region<'a>], copies: &'a [(usize, Memory)]) -> Vec<Region<'a>> {
    let mut regions = regions.to_vec();
    for (i, memory) in copies {
        regions[*i] = Region { memory, offset: 0, ..regions[*i] };
    }
    regions
}
