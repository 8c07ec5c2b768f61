//! The `wgpu` device: GPUs through Vulkan, Metal or DirectX 12, and the processor through a software Vulkan.
//!
//! Invariant: a device has one ordered stream of commands (`stream`), so dropped memory is reused at once
//! (`pool`). Every error of wgpu becomes an error of this crate (`fault`). No answer of a device causes a
//! panic here.

mod cut;
mod exclusive;
mod fault;
mod launch;
mod pipeline;
mod pool;
mod staging;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use fusion_compiler::ir::plan::Target;

use crate::error::{Error, Result};
use crate::kernel::Launch;
use crate::launch::LaunchConfig;

use super::{Backend, Call, Device, DeviceFacts, Memory};
use exclusive::{Exclusive, Held};
use fault::Gpu;
use launch::Recorder;
use pipeline::{Checks, Pipelines};
use pool::{Block, GRANULE, Pool};
use staging::{Idle, STAGE_BYTES_MAX};
use stream::{Stream, UNIFORM_BYTES};

pub(crate) use pool::WgpuMemory;

/// Maximum number of workgroups per dimension, since some drivers report more than they accept.
const GROUPS_MAX: u32 = 65_535;
/// Maximum bytes of a binding, since drivers count them in 31 bits.
const BINDING_BYTES_MAX: u64 = (1 << 31) - GRANULE;
/// Maximum number of concurrent read-backs of one call.
const READ_BACKS: usize = 3;

/// A device of wgpu.
#[derive(Debug)]
pub(super) struct WgpuBackend {
    gpu: Gpu,
    pool: Arc<Pool>,
    pipelines: Pipelines,
    recorder: Exclusive<Recorder>,
    limits: Limits,
    block: u32,
    facts: DeviceFacts,
    software: bool,
}

/// The limits of a dispatch.
#[derive(Clone, Debug)]
struct Limits {
    /// Alignment of storage bindings, in bytes.
    offset_align: u64,
    /// Alignment of uniform bindings, in bytes.
    uniform_align: u64,
    binding_bytes_max: u64,
    groups_max: u32,
}

/// The options of a device.
#[derive(Clone, Copy, Debug)]
struct Options {
    checks: Checks,
    /// Upper bound on the device's limit.
    binding_bytes_max: u64,
    /// Upper bound on the device's limit.
    groups_max: u32,
    /// Upper bound on the device's limit.
    immediate_bytes_max: u32,
    subgroups: Subgroups,
}

/// Use of subgroups to combine values of a block's threads. Subgroups must have one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subgroups {
    Never,
    /// On hardware only, since a software Vulkan is slower with subgroups.
    Hardware,
    Always,
}

impl Options {
    /// Reads the options from the environment.
    ///
    /// - `FUSION_WGPU_CHECKED=1` compiles kernels with wgpu's checks.
    /// - `FUSION_WGPU_BINDING_MAX=<bytes>` lowers the limit of a binding, which cuts launches earlier.
    /// - `FUSION_WGPU_UNIFORMS=1` binds uniforms instead of passing immediates.
    /// - `FUSION_WGPU_SUBGROUPS=0` combines values through memory, `1` through subgroups on every device with
    ///   one size.
    fn from_env() -> Options {
        let is_on = |name| std::env::var(name).is_ok_and(|value| value != "0" && !value.is_empty());
        let (checked, uniforms) = (is_on("FUSION_WGPU_CHECKED"), is_on("FUSION_WGPU_UNIFORMS"));
        let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        Options {
            checks: if checked { Checks::Checked } else { Checks::Trusted },
            binding_bytes_max: number("FUSION_WGPU_BINDING_MAX").unwrap_or(u64::MAX),
            groups_max: GROUPS_MAX,
            immediate_bytes_max: if uniforms { 0 } else { u32::MAX },
            subgroups: match std::env::var("FUSION_WGPU_SUBGROUPS").as_deref() {
                Ok("0") => Subgroups::Never,
                Ok("1") => Subgroups::Always,
                Ok(_) | Err(_) => Subgroups::Hardware,
            },
        }
    }
}

/// Opens the fastest adapter, or a software renderer if there is no other.
///
/// # Errors
/// `Error::NoDevice` if there is no adapter, or none opens.
pub(super) fn open() -> Result<Device> {
    Ok(Device(Arc::new(open_with(Options::from_env())?)))
}

/// Wraps the device of an application that uses wgpu itself. The application keeps its error callbacks.
///
/// # Errors
/// If the device is lost, or has no memory for the buffers that every device allocates.
pub(super) fn from_wgpu(device: wgpu::Device, queue: wgpu::Queue) -> Result<Device> {
    Ok(Device(Arc::new(from_wgpu_with(device, queue, Options::from_env())?)))
}

fn from_wgpu_with(device: wgpu::Device, queue: wgpu::Queue, options: Options) -> Result<WgpuBackend> {
    let gpu = Gpu::shared(device, queue);
    if gpu.is_lost() {
        return Err(gpu.lost("before it was given to us"));
    }
    WgpuBackend::new(gpu, options)
}

fn open_with(options: Options) -> Result<WgpuBackend> {
    let none = |why: &dyn std::fmt::Display| Error::NoDevice { kind: "wgpu", why: why.to_string() };
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.flags = match options.checks {
        Checks::Trusted => wgpu::InstanceFlags::empty(),
        Checks::Checked => wgpu::InstanceFlags::debugging(),
    };
    let instance = wgpu::Instance::new(descriptor);
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions {
        power_preference: wgpu::PowerPreference::HighPerformance,
        ..Default::default()
    }))
    .map_err(|error| none(&error))?;
    let wanted = wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP | wgpu::Features::TIMESTAMP_QUERY;
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        label: Some("fusion"),
        required_features: adapter.features() & wanted,
        required_limits: adapter.limits(),
        memory_hints: wgpu::MemoryHints::Performance,
        ..Default::default()
    }))
    .map_err(|error| none(&error))?;
    WgpuBackend::new(Gpu::owned(device, queue), options)
}

impl WgpuBackend {
    fn new(gpu: Gpu, options: Options) -> Result<WgpuBackend> {
        let device = gpu.device.limits();
        let limits = Limits {
            // Views start at multiples of 16 bytes, and vector accesses need the same alignment.
            offset_align: u64::from(device.min_storage_buffer_offset_alignment).max(GRANULE),
            binding_bytes_max: device
                .max_storage_buffer_binding_size
                .min(BINDING_BYTES_MAX)
                .min(options.binding_bytes_max)
                / GRANULE
                * GRANULE,
            uniform_align: u64::from(device.min_uniform_buffer_offset_alignment).max(GRANULE),
            groups_max: device.max_compute_workgroups_per_dimension.min(options.groups_max),
        };
        let uniforms = gpu.make_buffer(&wgpu::BufferDescriptor {
            label: Some("fusion uniforms"),
            size: UNIFORM_BYTES as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })?;
        // Without the feature, the limit is 0.
        let immediate_bytes_max = device.max_immediate_size.min(options.immediate_bytes_max) as usize;
        let info = gpu.device.adapter_info();
        let software = info.device_type == wgpu::DeviceType::Cpu;
        let facts = facts(&gpu.device, &info, &limits, &options);
        Ok(WgpuBackend {
            pool: Arc::new(Pool::new(gpu.clone(), device.max_buffer_size)),
            pipelines: Pipelines::new(gpu.clone(), options.checks, immediate_bytes_max, uniforms.clone()),
            recorder: Exclusive::new(Recorder::new(Stream::new(gpu.clone(), uniforms))),
            // The block is independent of the number of elements, so a kernel is compiled once.
            block: LaunchConfig::new(&facts, u64::MAX, 1).block,
            facts,
            limits,
            software,
            gpu,
        })
    }

    /// Returns the recorder of commands, once no other thread uses it.
    ///
    /// # Errors
    /// If this thread uses the recorder already, because wgpu runs a callback within a call.
    fn recorder(&self) -> Result<Held<'_, Recorder>> {
        let again = || {
            self.gpu.unsupported(String::from(
                "a call from a callback of wgpu that runs within another call: have the callback say that it ran, and call then",
            ))
        };
        self.recorder.hold().ok_or_else(again)
    }

    /// Frees all memory that is not in use.
    fn trim(&self) -> Result<()> {
        {
            let mut recorder = self.recorder()?;
            recorder.stream.submit()?;
            recorder.groups.clear();
        }
        self.pool.trim();
        self.gpu.wait(None)
    }

    /// Starts a copy of part of a buffer to the host.
    fn start_read_back(&self, buffer: &wgpu::Buffer, start: u64, end: u64) -> Result<ReadBack> {
        let (stage, submission, home) = {
            let mut recorder = self.recorder()?;
            let stage = recorder.stream.read_back(buffer, start, end)?;
            (stage, recorder.stream.latest(), recorder.stream.read_backs().idle())
        };
        let (sender, mapped) = channel();
        let mapping = || {
            stage.map_async(wgpu::MapMode::Read, ..end - start, move |result| {
                // The receiver is gone if an earlier part has failed.
                let _ = sender.send(result.is_ok());
            });
        };
        let refused = |error| self.gpu.poison(self.gpu.failed("map_async", &error));
        self.gpu.caught(mapping).map_err(refused)?;
        Ok(ReadBack { stage, submission, home, mapped })
    }

    /// Waits for a copy and takes its bytes, from `skip` on.
    fn finish_read_back(&self, read_back: ReadBack, skip: usize, bytes: &mut [u8]) -> Result<()> {
        self.gpu.wait(read_back.submission)?;
        // Another thread's wait may have mapped the buffer, and may be about to send the result.
        if !read_back.mapped.recv().unwrap_or(false) {
            return Err(self.gpu.poison(self.gpu.lost("a read-back could not be mapped")));
        }
        staging::drain(&self.gpu, &read_back.stage, skip, bytes)?;
        read_back.home.give_back(read_back.stage);
        Ok(())
    }
}

/// A copy to the host in progress.
struct ReadBack {
    stage: wgpu::Buffer,
    submission: Option<wgpu::SubmissionIndex>,
    home: Idle,
    mapped: Receiver<bool>,
}

impl Backend for WgpuBackend {
    fn target(&self) -> Target {
        Target::Wgsl
    }

    fn name(&self) -> &str {
        &self.gpu.name
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn is_software(&self) -> bool {
        self.software
    }

    fn allocate(&self, bytes: usize) -> Result<Memory> {
        self.gpu.check()?;
        let memory = match self.pool.allocate(bytes) {
            Err(Error::OutOfMemory { tensor_bytes_max: None, .. }) => {
                self.trim()?;
                self.pool.allocate(bytes)
            }
            other => other,
        };
        memory.map(Memory::Wgpu)
    }

    fn adopt(&self, buffer: wgpu::Buffer) -> Result<Memory> {
        self.gpu.check()?;
        WgpuMemory::external(&self.pool, buffer).map(Memory::Wgpu)
    }

    fn write(&self, memory: &Memory, offset: usize, bytes: &[u8]) -> Result<()> {
        self.gpu.check()?;
        let stream = &mut self.recorder()?.stream;
        stream.upload(&block_of(memory).buffer, offset as u64, bytes)?;
        if memory.is_external() { stream.submit() } else { Ok(()) }
    }

    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return self.synchronize();
        }
        let buffer = &block_of(memory).buffer;
        let mut under_way = VecDeque::new();
        for (i, part) in bytes.chunks_mut(STAGE_BYTES_MAX - GRANULE as usize).enumerate() {
            if under_way.len() >= READ_BACKS
                && let Some((read_back, skip, part)) = under_way.pop_front()
            {
                self.finish_read_back(read_back, skip, part)?;
            }
            let start = offset + i * (STAGE_BYTES_MAX - GRANULE as usize);
            let skip = start % 4;
            let end = (start + part.len()).next_multiple_of(4);
            under_way.push_back((
                self.start_read_back(buffer, (start - skip) as u64, end as u64)?,
                skip,
                part,
            ));
        }
        under_way
            .into_iter()
            .try_for_each(|(read_back, skip, part)| self.finish_read_back(read_back, skip, part))
    }

    fn duplicate(&self, from: (&Memory, usize), bytes: usize) -> Result<Memory> {
        let fresh = self.allocate(bytes)?;
        // The bytes after them have no meaning yet, and may be overwritten.
        self.copy(from, (&fresh, 0), bytes.next_multiple_of(4))?;
        Ok(fresh)
    }

    fn copy(&self, from: (&Memory, usize), to: (&Memory, usize), bytes: usize) -> Result<()> {
        self.gpu.check()?;
        let (source, target) = (&block_of(from.0).buffer, &block_of(to.0).buffer);
        let words = bytes / 4 * 4;
        if words > 0 {
            let mut recorder = self.recorder()?;
            recorder.stream.copy((source, from.1 as u64), (target, to.1 as u64), words as u64);
            if from.0.is_external() || to.0.is_external() {
                recorder.stream.submit()?;
            } else {
                recorder.stream.submit_if_full()?;
            }
        }
        if bytes == words {
            return Ok(());
        }
        // Devices copy whole words. The last word is assembled on the host from the copied bytes and the
        // bytes after them.
        let mut last = [0; 4];
        self.read(to.0, to.1 + words, &mut last)?;
        self.read(from.0, from.1 + words, &mut last[..bytes - words])?;
        self.write(to.0, to.1 + words, &last)
    }

    fn launch(&self, launch: &Launch, call: &Call<'_>) -> Result<()> {
        launch::launch(self, launch, call)
    }

    fn synchronize(&self) -> Result<()> {
        let latest = {
            let mut recorder = self.recorder()?;
            recorder.stream.submit()?;
            recorder.stream.latest()
        };
        match latest {
            Some(submission) => self.gpu.wait(Some(submission)),
            None => Ok(()),
        }
    }
}

impl Drop for WgpuBackend {
    /// Waits for all recorded work.
    ///
    /// Buffers of the application may receive its results. The callbacks of staging buffers, which own the
    /// buffers, run only if the work is waited for.
    fn drop(&mut self) {
        if self.gpu.check().is_ok() {
            // No caller is left to receive the error.
            let _ = self.synchronize();
        }
    }
}

/// Returns the buffer of memory of this kind of device.
fn block_of(memory: &Memory) -> &Block {
    match memory {
        Memory::Wgpu(memory) => memory.block(),
        Memory::Cpu(_) => unreachable!("the executor refuses arguments of different devices"),
        #[cfg(feature = "cuda")]
        Memory::Cuda(_) => unreachable!("the executor refuses arguments of different devices"),
    }
}

/// Returns the properties that launches and the choice of variants depend on.
///
/// wgpu does not report the number of multiprocessors, so a medium GPU is assumed. A software adapter has as
/// many as the processor has cores.
fn facts(device: &wgpu::Device, info: &wgpu::AdapterInfo, limits: &Limits, options: &Options) -> DeviceFacts {
    let wanted = match options.subgroups {
        Subgroups::Never => false,
        Subgroups::Hardware => info.device_type != wgpu::DeviceType::Cpu,
        Subgroups::Always => true,
    };
    // If subgroup sizes differ, the size for a kernel is unknown.
    let subgroups = wanted
        && device.features().contains(wgpu::Features::SUBGROUP)
        && info.subgroup_min_size == info.subgroup_max_size;
    let device = device.limits();
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    DeviceFacts {
        warp_size: info.subgroup_min_size.max(1),
        block_threads_max: device
            .max_compute_invocations_per_workgroup
            .min(device.max_compute_workgroup_size_x),
        multiprocessor_threads_max: 1024,
        multiprocessors: if info.device_type == wgpu::DeviceType::Cpu { cores() } else { 32 },
        grid_max: limits.groups_max,
        buffers_max: device.max_storage_buffers_per_shader_stage,
        // The limit allows for any start of a tensor within its buffer.
        binding_bytes_max: limits.binding_bytes_max.saturating_sub(limits.offset_align),
        buffer_bytes_max: device.max_buffer_size,
        block_shared_bytes_max: device.max_compute_workgroup_storage_size,
        subgroup_size: if subgroups { info.subgroup_min_size } else { 0 },
        cluster_blocks_max: 1,
        compute_capability: 0,
    }
}
