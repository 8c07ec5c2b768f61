//! Loss scales that follow from whether gradients were finite, without asking the device.

use crate::device::Device;
use crate::error::Result;
use crate::fuse;
use crate::tensor::Tensor;

use super::Optimizer;

fuse! {
    // `found` steps were skipped so far, `seen` when this last ran.
    pub(super) fn rescale(
        scale: &mut f32[], good: &mut f32[], left: &mut f32[], seen: &mut f32[],
        found: f32[], growth: f32, backoff: f32, interval: f32, hysteresis: f32,
    ) {
        let bad = found > seen;
        let grows = !bad && good + 1.0 >= interval;
        let shrinks = bad && left <= 1.0;
        scale = if grows { scale * growth } else { if shrinks { scale * backoff } else { scale } };
        good = if bad || grows { 0.0 } else { good + 1.0 };
        left = if grows { hysteresis } else { if bad { max(left - 1.0, 0.0) } else { left } };
        seen = found;
    }
}

/// A factor of the loss, so that small gradients are not lost in 16 bits: `torch.amp.GradScaler`, all of it on the device.
///
/// Multiply the loss by `scale`, take steps with `Optimizer::step_scaled`, and call `update` after each.
#[derive(Debug)]
pub struct GradScaler {
    scale: Tensor<f32>,
    good: Tensor<f32>,
    left: Tensor<f32>,
    seen: Tensor<f32>,
    /// What the scale is multiplied by after `growth_interval` steps with finite gradients.
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
            left: number(hysteresis as f32)?,
            seen: number(0.0)?,
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

    /// Follows what the optimizer's last step found.
    ///
    /// # Errors
    /// As a call of a function.
    pub fn update(&mut self, optimizer: &Optimizer) -> Result<()> {
        let GradScaler {
            scale,
            good,
            left,
            seen,
            growth_factor,
            backoff_factor,
            growth_interval,
            hysteresis,
        } = self;
        rescale(
            scale,
            good,
            left,
            seen,
            optimizer.skipped(),
            *growth_factor,
            *backoff_factor,
            *growth_interval as f32,
            *hysteresis as f32,
        )
    }
}
