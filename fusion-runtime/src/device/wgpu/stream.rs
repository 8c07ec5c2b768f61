//! The one ordered stream of a device's commands: recorded as they come, submitted when something waits for
//! them, a batch is full, or they are of a buffer of the application's, whose own commands come after them.
//!
//! Invariant: commands run in the order in which they were recorded. Whatever fails at submission is lost with all
//! that was recorded with it, so it poisons the device.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Result;

use super::fault::Gpu;
use super::staging::{self, Direction, STAGE_BYTES_MAX, Stages};

/// Commands of a full batch: few enough that the device does not starve, enough that a submission costs little each.
const BATCH_COMMANDS: usize = 64;
/// Submissions that may be under way; recording waits for the oldest beyond it.
const SUBMISSIONS_MAX: usize = 8;
/// Bytes of the uniforms of one batch, where they do not go as immediates.
pub(super) const UNIFORM_BYTES: usize = 64 << 10;

/// Commands on their way to the device. The pass is dropped before its encoder.
#[derive(Debug)]
pub(super) struct Stream {
    gpu: Gpu,
    pass: Option<wgpu::ComputePass<'static>>,
    encoder: Option<wgpu::CommandEncoder>,
    /// The pipeline that the pass is set to.
    pipeline: Option<u64>,
    commands: usize,
    under_way: VecDeque<wgpu::SubmissionIndex>,
    uploads: Stages,
    read_backs: Stages,
    /// Upload stages that the open batch reads.
    filled: Vec<wgpu::Buffer>,
    uniforms: Uniforms,
    /// Submissions made so far.
    pub(super) submissions: AtomicU64,
}

/// Uniforms of the open batch, where they do not go as immediates.
#[derive(Debug)]
struct Uniforms {
    buffer: wgpu::Buffer,
    bytes: Vec<u8>,
    align: usize,
}

/// What a dispatch sets besides its bindings.
pub(super) enum Arguments<'a> {
    /// The kernel has no uniforms.
    None,
    /// They go with the commands.
    Immediates(&'a [u8]),
    /// They lie in the buffer of uniforms, from this offset on.
    Bound(&'a wgpu::BindGroup, u32),
}

impl Stream {
    pub(super) fn new(gpu: Gpu, uniforms: wgpu::Buffer) -> Stream {
        let align = gpu.device.limits().min_uniform_buffer_offset_alignment as usize;
        Stream {
            pass: None,
            encoder: None,
            pipeline: None,
            commands: 0,
            under_way: VecDeque::new(),
            uploads: Stages::new(gpu.clone(), Direction::Upload),
            read_backs: Stages::new(gpu.clone(), Direction::ReadBack),
            filled: Vec::new(),
            uniforms: Uniforms { buffer: uniforms, bytes: Vec::new(), align },
            submissions: AtomicU64::new(0),
            gpu,
        }
    }

    /// Records a dispatch.
    pub(super) fn dispatch(
        &mut self,
        pipeline: (u64, &wgpu::ComputePipeline),
        buffers: &wgpu::BindGroup,
        arguments: &Arguments<'_>,
        groups: [u32; 2],
    ) {
        let changed = self.pipeline.replace(pipeline.0) != Some(pipeline.0);
        let (encoder, pass) = (&mut self.encoder, &mut self.pass);
        let pass = pass.get_or_insert_with(|| {
            let encoder = encoder.get_or_insert_with(|| begin(&self.gpu));
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime()
        });
        if changed {
            pass.set_pipeline(pipeline.1);
        }
        pass.set_bind_group(0, buffers, &[]);
        match *arguments {
            Arguments::None => {}
            Arguments::Immediates(bytes) => pass.set_immediates(0, bytes),
            Arguments::Bound(group, offset) => pass.set_bind_group(1, group, &[offset]),
        }
        pass.dispatch_workgroups(groups[0], groups[1], 1);
        self.commands += 1;
    }

    /// Submits if the batch is full.
    pub(super) fn submit_if_full(&mut self) -> Result<()> {
        if self.commands >= BATCH_COMMANDS { self.submit() } else { Ok(()) }
    }

    /// Records a copy between buffers; offsets and length are multiples of 4.
    pub(super) fn copy(&mut self, from: (&wgpu::Buffer, u64), to: (&wgpu::Buffer, u64), bytes: u64) {
        self.encoder().copy_buffer_to_buffer(from.0, from.1, to.0, to.1, bytes);
        self.commands += 1;
    }

    /// The encoder, with no pass open.
    fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        self.pass = None;
        self.pipeline = None;
        self.encoder.get_or_insert_with(|| begin(&self.gpu))
    }

    /// Records an upload. The bytes are taken over before this returns.
    pub(super) fn upload(&mut self, to: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        for (i, part) in bytes.chunks(STAGE_BYTES_MAX).enumerate() {
            let stage = self.stage(Direction::Upload, part.len())?;
            staging::fill(&self.gpu, &stage, part)?;
            let start = offset + (i * STAGE_BYTES_MAX) as u64;
            self.copy((&stage, 0), (to, start), part.len().next_multiple_of(4) as u64);
            self.filled.push(stage);
            self.submit_if_full()?;
        }
        Ok(())
    }

    /// Records a copy to the host and submits it. The stage is to be mapped, and given back to `read_backs()`.
    pub(super) fn read_back(&mut self, from: &wgpu::Buffer, start: u64, end: u64) -> Result<wgpu::Buffer> {
        let stage = self.stage(Direction::ReadBack, (end - start) as usize)?;
        self.copy((from, start), (&stage, 0), end - start);
        self.submit()?;
        Ok(stage)
    }

    /// Where the stages of read-backs go.
    pub(super) fn read_backs(&self) -> &Stages {
        &self.read_backs
    }

    /// Where the stages of uploads come from.
    #[cfg(test)]
    pub(super) fn uploads(&self) -> &Stages {
        &self.uploads
    }

    /// A staging buffer, waiting until one is free.
    fn stage(&mut self, direction: Direction, bytes: usize) -> Result<wgpu::Buffer> {
        loop {
            let stages = match direction {
                Direction::Upload => &mut self.uploads,
                Direction::ReadBack => &mut self.read_backs,
            };
            if let Some(stage) = stages.take(bytes)? {
                return Ok(stage);
            }
            self.submit()?;
            match self.under_way.pop_front() {
                Some(oldest) => self.gpu.wait(Some(oldest))?,
                None => self.gpu.wait(None)?,
            }
        }
    }

    /// Puts uniforms among those of the batch and returns their offset.
    pub(super) fn push_uniforms(&mut self, words: &[u8]) -> Result<u32> {
        if self.uniforms.end(words) > UNIFORM_BYTES {
            self.submit()?;
        }
        let offset = self.uniforms.bytes.len();
        self.uniforms.bytes.resize(self.uniforms.end(words), 0);
        self.uniforms.bytes[offset..][..words.len()].copy_from_slice(words);
        Ok(offset as u32)
    }

    /// Hands all recorded commands to the device.
    pub(super) fn submit(&mut self) -> Result<()> {
        self.gpu.check()?;
        let Some(encoder) = self.encoder.take() else { return Ok(()) };
        let pass = self.pass.take();
        self.pipeline = None;
        self.commands = 0;
        let submission = self.gpu.caught(|| {
            drop(pass);
            if !self.uniforms.bytes.is_empty() {
                // Written after what was submitted before, and before what is submitted now.
                self.gpu.queue.write_buffer(&self.uniforms.buffer, 0, &self.uniforms.bytes);
            }
            self.uniforms.bytes.clear();
            let submission = self.gpu.queue.submit([encoder.finish()]);
            self.filled.drain(..).for_each(|stage| give_back_when_done(&self.uploads, stage));
            submission
        });
        let submission = submission.map_err(|error| self.gpu.poison(self.gpu.failed("submit", &error)))?;
        self.submissions.fetch_add(1, Relaxed);
        self.under_way.push_back(submission);
        while self.under_way.len() > SUBMISSIONS_MAX {
            let oldest = self.under_way.pop_front();
            self.gpu.wait(oldest)?;
        }
        Ok(())
    }

    /// The latest submission that may still be under way.
    pub(super) fn latest(&self) -> Option<wgpu::SubmissionIndex> {
        self.under_way.back().cloned()
    }
}

impl Uniforms {
    /// Where the next but one would lie.
    fn end(&self, words: &[u8]) -> usize {
        (self.bytes.len() + words.len()).next_multiple_of(self.align)
    }
}

fn begin(gpu: &Gpu) -> wgpu::CommandEncoder {
    gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("fusion") })
}

/// Maps an upload stage for its next use once the device has read it.
fn give_back_when_done(uploads: &Stages, stage: wgpu::Buffer) {
    let idle = uploads.idle();
    let mapped = stage.clone();
    stage.map_async(wgpu::MapMode::Write, .., move |result| {
        if result.is_ok() {
            idle.give_back(mapped);
        }
    });
}
