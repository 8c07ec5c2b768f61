//! Pipelines: kernels compiled once per text and constants.
//!
//! Invariant: a text with uniforms declares `@group(1) @binding(0) var<uniform> args: Args;` in exactly this
//! form. The declaration can then be replaced to pass immediates on devices that support them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use fusion_compiler::ir::graph::Access;
use fusion_compiler::ir::plan::Text;
use fusion_compiler::ir::plan::wgsl::{IMMEDIATE_DECLARATION, SUBGROUPS, UNIFORM_DECLARATION};

use crate::error::{Error, Result};
use crate::kernel::Launch;

use super::fault::{Gpu, lock};
use super::stream::UNIFORM_BYTES;

/// Bytes of a uniform.
pub(super) const WORD: usize = 4;

/// The way in which a kernel receives its uniforms.
#[derive(Clone, Debug)]
pub(super) enum Passing {
    /// The kernel has no uniforms.
    None,
    /// Immediates, as part of the commands.
    Immediates,
    /// A binding of the uniform buffer: group 1, with its layout.
    Bound(wgpu::BindGroup, wgpu::BindGroupLayout),
}

/// A compiled kernel.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// Number of the pipeline, unique on its device.
    pub(super) id: u64,
    pub(super) pipeline: wgpu::ComputePipeline,
    /// Layout of group 0.
    pub(super) buffers: wgpu::BindGroupLayout,
    pub(super) passing: Passing,
}

/// The way in which kernels are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checks {
    /// Without checks: the compiler of this project proves bounds and loops.
    Trusted,
    /// With every check that wgpu can add.
    Checked,
}

/// The pipelines of a device.
#[derive(Debug)]
pub(super) struct Pipelines {
    gpu: Gpu,
    checks: Checks,
    immediate_bytes_max: usize,
    uniforms: wgpu::Buffer,
    known: Mutex<Known>,
    ids: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    /// Pipelines by address and length of a static text, which never changes.
    by_address: HashMap<(usize, usize, OverrideConstants), Arc<Pipeline>>,
    by_text: HashMap<(String, OverrideConstants), Arc<Pipeline>>,
}

/// The constants that a kernel is compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OverrideConstants {
    /// Number of threads of a workgroup.
    pub(super) block: u32,
    /// True if whole vectors leave elements.
    pub(super) rest: bool,
    /// True if the kernel starts after the first element of its space, or of a binding.
    pub(super) shifted: bool,
}

impl Pipelines {
    /// Makes an empty cache. `uniforms` is the buffer for uniforms that do not fit in `immediate_bytes_max`.
    pub(super) fn new(
        gpu: Gpu,
        checks: Checks,
        immediate_bytes_max: usize,
        uniforms: wgpu::Buffer,
    ) -> Pipelines {
        Pipelines {
            gpu,
            checks,
            immediate_bytes_max,
            uniforms,
            known: Mutex::default(),
            ids: AtomicU64::new(0),
        }
    }

    /// Returns the pipeline of a launch, which is compiled at its first use.
    pub(super) fn get(
        &self,
        launch: &Launch,
        text: &Text,
        constants: OverrideConstants,
    ) -> Result<Arc<Pipeline>> {
        let mut known = lock(&self.known);
        let address = match text {
            Cow::Borrowed(text) => Some((text.as_ptr() as usize, text.len(), constants)),
            Cow::Owned(_) => None,
        };
        if let Some(pipeline) = address.and_then(|address| known.by_address.get(&address)) {
            return Ok(Arc::clone(pipeline));
        }
        let key = (text.to_string(), constants);
        let pipeline = match known.by_text.get(&key) {
            Some(pipeline) => Arc::clone(pipeline),
            None => {
                let pipeline = Arc::new(self.compile(launch, text, constants)?);
                known.by_text.insert(key, Arc::clone(&pipeline));
                pipeline
            }
        };
        if let Some(address) = address {
            known.by_address.insert(address, Arc::clone(&pipeline));
        }
        Ok(pipeline)
    }

    /// Returns the names of the kernels compiled so far.
    #[cfg(test)]
    pub(super) fn kernels(&self) -> Vec<String> {
        let text = |(text, _): &(String, OverrideConstants)| {
            let name = text.split_once("\nfn ").and_then(|(_, rest)| rest.split_once('('));
            name.map_or_else(String::new, |(name, _)| name.into())
        };
        lock(&self.known).by_text.keys().map(text).collect()
    }

    /// Compiles a kernel. The error contains the messages of wgpu and the driver.
    fn compile(&self, launch: &Launch, text: &str, constants: OverrideConstants) -> Result<Pipeline> {
        self.gpu.check()?;
        let uniform_bytes = launch.uniforms.len() * WORD;
        if uniform_bytes > UNIFORM_BYTES {
            return Err(self
                .gpu
                .unsupported(format!("the {uniform_bytes} bytes of uniforms of `{}`", launch.kernel)));
        }
        // The compiler assumes eight buffers. Several windows of one tensor may need more.
        let bound = launch.buffers.iter().filter(|buffer| !buffer.uniform).count();
        let most = self.gpu.device.limits().max_storage_buffers_per_shader_stage;
        if bound > most as usize {
            let what = format!(
                "binding {bound} buffers at once, as `{}` needs; the most is {most}: raise the device's limit `max_storage_buffers_per_shader_stage`, or call it on smaller tensors",
                launch.kernel
            );
            return Err(self.gpu.unsupported(what));
        }
        let as_immediates = uniform_bytes <= self.immediate_bytes_max && text.contains(UNIFORM_DECLARATION);
        let compiled = self.gpu.caught(|| match (uniform_bytes, as_immediates) {
            (0, _) => self.build(launch, text, constants, Passing::None),
            (_, true) => self.build(
                launch,
                &text.replacen(UNIFORM_DECLARATION, IMMEDIATE_DECLARATION, 1),
                constants,
                Passing::Immediates,
            ),
            (_, false) => self.build(launch, text, constants, self.bind_uniforms(uniform_bytes)),
        });
        compiled.map_err(|error| match self.gpu.failed("create_compute_pipeline", &error) {
            lost @ Error::DeviceLost { .. } => lost,
            _ => Error::Jit { kernel: launch.kernel.to_string(), log: error.to_string() },
        })
    }

    fn build(&self, launch: &Launch, text: &str, constants: OverrideConstants, passing: Passing) -> Pipeline {
        let device = &self.gpu.device;
        let label = Some(&*launch.kernel);
        let uniform_bytes = launch.uniforms.len() * WORD;
        let buffers = self.buffer_layout(launch);
        let (groups, immediate_size) = match &passing {
            Passing::None => (vec![Some(&buffers)], 0),
            Passing::Immediates => (vec![Some(&buffers)], uniform_bytes as u32),
            Passing::Bound(_, uniforms) => (vec![Some(&buffers), Some(uniforms)], 0),
        };
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &groups,
            immediate_size,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&layout),
            module: &self.module(launch, text),
            entry_point: Some(&launch.kernel),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[
                    ("block", f64::from(constants.block)),
                    ("rest", f64::from(u8::from(constants.rest))),
                    ("shifted", f64::from(u8::from(constants.shifted))),
                ],
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        });
        Pipeline { id: self.ids.fetch_add(1, Relaxed), pipeline, buffers, passing }
    }

    fn module(&self, launch: &Launch, text: &str) -> wgpu::ShaderModule {
        // naga supports subgroups, but does not accept the line that enables them.
        let source = wgpu::ShaderSource::Wgsl(text.trim_start_matches(SUBGROUPS).into());
        let descriptor = wgpu::ShaderModuleDescriptor { label: Some(&launch.kernel), source };
        match self.checks {
            Checks::Checked => self.gpu.device.create_shader_module(descriptor),
            Checks::Trusted => {
                let checks = wgpu::ShaderRuntimeChecks::unchecked();
                // SAFETY: the text comes from the compiler. The kernels touch elements of their iteration
                // space only, their loops end, and integer divisions are guarded. A launch binds all these
                // elements, or the kernel skips elements outside of its windows. Text from another source
                // cannot get here, since only the compiler makes plans.
                unsafe { self.gpu.device.create_shader_module_trusted(descriptor, checks) }
            }
        }
    }

    fn buffer_layout(&self, launch: &Launch) -> wgpu::BindGroupLayout {
        let types = launch.buffers.iter().map(|buffer| match buffer.access {
            Access::Read if buffer.uniform => wgpu::BufferBindingType::Uniform,
            Access::Read => wgpu::BufferBindingType::Storage { read_only: true },
            Access::Write | Access::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
        });
        let entries: Vec<wgpu::BindGroupLayoutEntry> =
            (0..).zip(types).map(|(i, ty)| layout_entry(i, ty, false)).collect();
        let label = Some(&*launch.kernel);
        self.gpu
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries })
    }

    /// Binds the uniform buffer for a struct of this size. Each dispatch sets the offset.
    fn bind_uniforms(&self, bytes: usize) -> Passing {
        let device = &self.gpu.device;
        let entry = layout_entry(0, wgpu::BufferBindingType::Uniform, true);
        let label = Some("fusion uniforms");
        let layout =
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &[entry] });
        let size = wgpu::BufferSize::new(bytes.next_multiple_of(16) as u64);
        let resource =
            wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer: &self.uniforms, offset: 0, size });
        let entries = &[wgpu::BindGroupEntry { binding: 0, resource }];
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor { label, layout: &layout, entries });
        Passing::Bound(group, layout)
    }
}

fn layout_entry(
    binding: u32,
    ty: wgpu::BufferBindingType,
    has_dynamic_offset: bool,
) -> wgpu::BindGroupLayoutEntry {
    let ty = wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None };
    wgpu::BindGroupLayoutEntry { binding, visibility: wgpu::ShaderStages::COMPUTE, ty, count: None }
}
