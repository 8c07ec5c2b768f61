//! The ordered stream of a device's commands, recorded in order and submitted in batches.
//!
//! A batch is submitted when a caller waits for it, when it is full, or when it uses a buffer of the
//! application, whose later commands must run after it.
//!
//! Invariant: commands run in the order of recording. A failed submission loses all commands recorded with
//! it, so it poisons the device.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Result;

use super::fault::Gpu;
use super::staging::{self, STAGE_BYTES_MAX, Stages, Transfer};

/// Number of commands of a full batch: few enough that the device stays busy, many enough to amortise a
/// submission.
const BATCH_COMMANDS: usize = 64;
/// Maximum number of submissions in progress. Beyond it, recording waits for the oldest.
const SUBMISSIONS_MAX: usize = 8;
/// Bytes of the uniform buffer of one batch, for uniforms that are not immediates.
pub(super) const UNIFORM_BYTES: usize = 64 << 10;

/// The commands that the device has not finished. The pass is dropped before its encoder.
#[derive(Debug)]
pub(super) struct Stream {
    gpu: Gpu,
    pass: Option<wgpu::ComputePass<'static>>,
    encoder: Option<wgpu::CommandEncoder>,
    /// Number of the current pipeline of the pass.
    pipeline: Option<u64>,
    commands: usize,
    under_way: VecDeque<wgpu::SubmissionIndex>,
    uploads: Stages,
    read_backs: Stages,
    /// Upload buffers that the open batch reads.
    filled: Vec<wgpu::Buffer>,
    uniforms: Uniforms,
    /// Number of submissions so far.
    pub(super) submissions: AtomicU64,
}

/// Uniforms of the open batch that are not immediates.
#[derive(Debug)]
struct Uniforms {
    buffer: wgpu::Buffer,
    bytes: Vec<u8>,
    align: usize,
}

/// The uniforms of a dispatch.
pub(super) enum Arguments<'a> {
    /// No uniforms.
    None,
    /// Immediates, as part of the commands.
    Immediates(&'a [u8]),
    /// A range of the uniform buffer, from this offset on.
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
            uploads: Stages::new(gpu.clone(), Transfer::Upload),
            read_backs: Stages::new(gpu.clone(), Transfer::ReadBack),
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

    /// Submits the batch if it is full.
    pub(super) fn submit_if_full(&mut self) -> Result<()> {
        if self.commands >= BATCH_COMMANDS { self.submit() } else { Ok(()) }
    }

    /// Records a copy between buffers. Offsets and length are multiples of 4.
    pub(super) fn copy(&mut self, from: (&wgpu::Buffer, u64), to: (&wgpu::Buffer, u64), bytes: u64) {
        self.encoder().copy_buffer_to_buffer(from.0, from.1, to.0, to.1, bytes);
        self.commands += 1;
    }

    /// Returns the encoder, without an open pass.
    fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        self.pass = None;
        self.pipeline = None;
        self.encoder.get_or_insert_with(|| begin(&self.gpu))
    }

    /// Records an upload. The bytes are copied before the function returns.
    pub(super) fn upload(&mut self, to: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        for (i, part) in bytes.chunks(STAGE_BYTES_MAX).enumerate() {
            let stage = self.stage(Transfer::Upload, part.len())?;
            staging::fill(&self.gpu, &stage, part)?;
            let start = offset + (i * STAGE_BYTES_MAX) as u64;
            self.copy((&stage, 0), (to, start), part.len().next_multiple_of(4) as u64);
            self.filled.push(stage);
            self.submit_if_full()?;
        }
        Ok(())
    }

    /// Records a copy to the host and submits it. The caller maps the staging buffer, and returns it to
    /// `read_backs()`.
    pub(super) fn read_back(&mut self, from: &wgpu::Buffer, start: u64, end: u64) -> Result<wgpu::Buffer> {
        let stage = self.stage(Transfer::ReadBack, (end - start) as usize)?;
        self.copy((from, start), (&stage, 0), end - start);
        self.submit()?;
        Ok(stage)
    }

    /// Returns the staging buffers of read-backs.
    pub(super) fn read_backs(&self) -> &Stages {
        &self.read_backs
    }

    /// Returns the staging buffers of uploads.
    #[cfg(test)]
    pub(super) fn uploads(&self) -> &Stages {
        &self.uploads
    }

    /// Returns a staging buffer, and waits until one is free.
    fn stage(&mut self, direction: Transfer, bytes: usize) -> Result<wgpu::Buffer> {
        loop {
            let stages = match direction {
                Transfer::Upload => &mut self.uploads,
                Transfer::ReadBack => &mut self.read_backs,
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

    /// Appends uniforms to those of the batch and returns their offset.
    pub(super) fn push_uniforms(&mut self, words: &[u8]) -> Result<u32> {
        if self.uniforms.end(words) > UNIFORM_BYTES {
            self.submit()?;
        }
        let offset = self.uniforms.bytes.len();
        self.uniforms.bytes.resize(self.uniforms.end(words), 0);
        self.uniforms.bytes[offset..][..words.len()].copy_from_slice(words);
        Ok(offset as u32)
    }

    /// Submits all recorded commands to the device.
    pub(super) fn submit(&mut self) -> Result<()> {
        self.gpu.check()?;
        let Some(encoder) = self.encoder.take() else { return Ok(()) };
        let pass = self.pass.take();
        self.pipeline = None;
        self.commands = 0;
        let submission = self.gpu.caught(|| {
            drop(pass);
            if !self.uniforms.bytes.is_empty() {
                // The queue runs this write after earlier submissions and before this one.
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

    /// Returns the latest submission that may still be in progress.
    pub(super) fn latest(&self) -> Option<wgpu::SubmissionIndex> {
        self.under_way.back().cloned()
    }
}

impl Uniforms {
    /// Returns the end of the uniforms after `words`, aligned for the next.
    fn end(&self, words: &[u8]) -> usize {
        (self.bytes.len() + words.len()).next_multiple_of(self.align)
    }
}

fn begin(gpu: &Gpu) -> wgpu::CommandEncoder {
    gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("fusion") })
}

/// Maps an upload buffer for reuse once the device has read it.
fn give_back_when_done(uploads: &Stages, stage: wgpu::Buffer) {
    let idle = uploads.idle();
    let mapped = stage.clone();
    stage.map_async(wgpu::MapMode::Write, .., move |result| {
        if result.is_ok() {
            idle.give_back(mapped);
        }
    });
}
