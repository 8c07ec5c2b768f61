//! Loss scales that follow from whether gradients were finite, without asking the device.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::fuse;
use crate::tensor::Tensor;

use super::Optimizer;
use super::file::{read_file, write_file};

/// Of the layout of a file.
const VERSION: &str = "scale 1";

/// What is in a file, by the names of PyTorch's `state_dict`, and of Megatron's where PyTorch has none.
const NAMES: [&str; 7] = [
    "scale",
    "growth_tracker",
    "hysteresis_tracker",
    "growth_factor",
    "backoff_factor",
    "growth_interval",
    "hysteresis",
];

fuse! {
    // Whether one of several optimizers skipped a step: as many were skipped `before`, and by now.
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
    /// `Error::Parameter` for a scale that is no number above 0; `Error::OutOfMemory`.
    pub fn with_scale(device: &Device, scale: f32, hysteresis: u32) -> Result<GradScaler> {
        if !(scale > 0.0 && scale.is_finite()) {
            let what = format!("cannot be {scale}: it must be a number above 0");
            return Err(Error::Parameter { name: "scale".into(), what });
        }
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

    /// Writes the scale, what is counted of steps, and the options to a file of safetensors, so that `load` goes on as if nothing had
    /// been between; by way of one beside it, as `Optimizer::save`. Waits for the device.
    ///
    /// # Errors
    /// `Error::File` where it cannot be written; as `Tensor::item`.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let numbers = [
            self.scale.item()?,
            self.good.item()?,
            self.used.item()?,
            self.growth_factor,
            self.backoff_factor,
            self.growth_interval as f32,
            self.hysteresis as f32,
        ];
        let bytes = numbers.map(f32::to_le_bytes);
        let view = |(name, bytes)| Ok((name, TensorView::new(Dtype::F32, vec![], bytes)?));
        let views = NAMES.into_iter().zip(bytes.iter().map(<[u8; 4]>::as_slice)).map(view);
        let views = views.collect::<std::result::Result<Vec<_>, SafeTensorError>>();
        let views = views.unwrap_or_else(|why| unreachable!("a number is four bytes: {why}"));
        write_file(path, views, HashMap::from([("version".into(), VERSION.into())]))
    }

    /// Takes all of it from a file that `save` wrote.
    ///
    /// # Errors
    /// `Error::File` where it cannot be read, or is no such file; nothing has changed then. `Error::OutOfMemory`.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let numbers = read_file(path.as_ref(), |file, facts| {
            if facts.and_then(|facts| facts.get("version")).is_none_or(|version| version != VERSION) {
                return Err("holds no loss scale of this version".into());
            }
            let number = |name: &str| {
                let tensor = file.tensor(name).ok().filter(|tensor| tensor.dtype() == Dtype::F32)?;
                let value = f32::from_le_bytes(tensor.data().try_into().ok()?);
                (value >= 0.0 && value.is_finite()).then_some(value)
            };
            let all = NAMES.map(|name| number(name).ok_or(name));
            let wrong = all.iter().find_map(|number| number.err());
            match wrong {
                Some(name) => {
                    Err(format!("has no `{name}` that is a number from 0 on: it is of no loss scale"))
                }
                None => Ok(all.map(|number| number.unwrap_or_default())),
            }
        })?;
        let [scale, good, used, growth_factor, backoff_factor, growth_interval, hysteresis] = numbers;
        let device = self.scale.device();
        let number = |value| Tensor::full(device, value, []);
        *self = GradScaler {
            scale: number(scale)?,
            good: number(good)?,
            used: number(used)?,
            bad: number(0.0)?,
            growth_factor,
            backoff_factor,
            growth_interval: growth_interval as u32,
            hysteresis: hysteresis as u32,
        };
        Ok(())
    }

    /// The factor of the loss, on the device.
    pub fn scale(&self) -> &Tensor<f32> {
        &self.scale
    }

    /// Follows what the steps of all these optimizers found since the last time: gradients that are not finite in one of them make a bad
    /// step.
    ///
    /// # Errors
    /// `Error::Parameter` where one is on another device; as a call of a function.
    pub fn update<'o>(&mut self, optimizers: impl IntoIterator<Item = &'o mut Optimizer>) -> Result<()> {
        let optimizers: Vec<&mut Optimizer> = optimizers.into_iter().collect();
        optimizers.iter().try_for_each(|optimizer| optimizer.check_number("scale", &self.scale))?;
        let GradScaler { scale, good, used, bad, growth_factor, backoff_factor, growth_interval, hysteresis } =
            self;
        for optimizer in optimizers {
            note(bad, &optimizer.noted, optimizer.skipped())?;
            optimizer.noted = optimizer.skipped().clone();
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
