//! Loss scales that follow from whether gradients were finite, without asking the device.

use crate::device::Device;
use crate::error::Result;
use crate::fuse;
use crate::tensor::Tensor;

use super::Optimizer;

fuse! {
    // Whether one of several optimizers skipped its last step: as many were `before` it, and after.
    pub(super) fn note(bad: &mut f32[], before: f32[], skipped: f32[]) {
        bad = if skipped > before { 1.0 } else { bad };
    }

    pub(super) fn rescale(
        scale: &mut f32[], good: &mut f32[], used: &mut f32[], bad: &mut f32[],
        growth: f32, backoff: f32, interval: f32, hysteresis: f32,
    ) {
        let bad_step = bad > 0.0;
        let grows = !bad_step && good + 1.0 >= interval;
        let shrinks = bad_step && used + 1.0 >= hysteresis;
        let grown = if isfinite(scale * growth) { scale * growth } else { scale };
        scale = if grows { grown } else { if shrinks { scale * backoff } else { scale } };
        good = if bad_step || grows { 0.0 } else { good + 1.0 };
        used = if grows { 0.0 } else { if bad_step { min(used + 1.0, hysteresis) } else { used } };
        bad = 0.0;
    }
}

/// A factor of the loss, so that small gradients are not lost in 16 bits: `torch.amp.GradScaler`, all of it on the device.
///
/// Multiply the loss by `scale`, take a step with `Optimizer::step_scaled` for each group of parameters, and then call `update` once.
#[derive(Debug)]
pub struct GradScaler {
    scale: Tensor<f32>,
    good: Tensor<f32>,
    /// Bad steps since the scale has grown, as far as they matter.
    used: Tensor<f32>,
    bad: Tensor<f32>,
    /// What the scale is multiplied by after `growth_interval` steps with finite gradients, unless that is infinite.
    pub growth_factor: f32,
    /// What it is multiplied by after steps without.
    pub backoff_factor: f32,
    /// Steps with finite gradients between growths.
    pub growth_interval: u32,
    /// Steps without that are tolerated before the scale shrinks, and again after it has grown; 1 shrinks at once.
    pub hysteresis: u32,
}

impl GradScaler {
    /// A scale that begins with 65,536, grows twofold every 2,000 steps, and halves where gradients are not finite.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn new(device: &Device) -> Result<GradScaler> {
        GradScaler::with_scale(device, 65536.0, 1)
    }

    /// The same that begins with this scale, and tolerates so many bad steps less one.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn with_scale(device: &Device, scale: f32, hysteresis: u32) -> Result<GradScaler> {
        let number = |value: f32| Tensor::full(device, value, []);
        Ok(GradScaler {
            scale: number(scale)?,
            good: number(0.0)?,
            used: number(0.0)?,
            bad: number(0.0)?,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            hysteresis,
        })
    }

    /// The factor of the loss, on the device.
    pub fn scale(&self) -> &Tensor<f32> {
        &self.scale
    }

    /// Follows what the last steps of all these optimizers found: gradients that are not finite in one of them make a bad step.
    ///
    /// # Errors
    /// As a call of a function.
    pub fn update<'o>(&mut self, optimizers: impl IntoIterator<Item = &'o Optimizer>) -> Result<()> {
        let GradScaler { scale, good, used, bad, growth_factor, backoff_factor, growth_interval, hysteresis } =
            self;
        for optimizer in optimizers {
            note(bad, &optimizer.before, optimizer.skipped())?;
        }
        rescale(
            scale,
            good,
            used,
            bad,
            *growth_factor,
            *backoff_factor,
            *growth_interval as f32,
            *hysteresis as f32,
        )
    }
}
