//! Loss scales that adapt to gradients on the device. The host does not wait for the device.

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

/// Version of the file format.
const VERSION: &str = "scale 1";

/// Names in a file, from PyTorch's `state_dict`, or from Megatron if PyTorch has none.
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
    // Records in `bad` if an optimizer skipped a step: its count of skipped steps is larger than the count
    // `before`.
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

/// A dynamic loss scale, which keeps small gradients from underflow in 16 bits.
///
/// The scale is that of `torch.amp.GradScaler`, entirely on the device.
///
/// Multiply the loss by `scale`. Run `Optimizer::step_scaled` for each parameter group, and then call
/// `update` once.
#[derive(Debug)]
pub struct GradScaler {
    scale: Tensor<f32>,
    /// Good steps since the last growth of the scale or bad step.
    good: Tensor<f32>,
    /// Bad steps since the last growth of the scale, up to `hysteresis`.
    used: Tensor<f32>,
    /// 1 if an optimizer skipped the current step, else 0.
    bad: Tensor<f32>,
    /// Factor of the scale after `growth_interval` good steps. The scale stays if the product is infinite.
    pub growth_factor: f32,
    /// Factor of the scale after bad steps.
    pub backoff_factor: f32,
    /// Good steps between growths. A step is good if its gradients are finite.
    pub growth_interval: u32,
    /// Number of bad steps since the last growth from which on a bad step shrinks the scale; 1 shrinks at
    /// once.
    pub hysteresis: u32,
}

impl GradScaler {
    /// Returns a scale with PyTorch's defaults. The scale starts at 65,536, doubles every 2,000 good steps,
    /// and halves after a bad step.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn new(device: &Device) -> Result<GradScaler> {
        GradScaler::with_scale(device, 65536.0, 1)
    }

    /// Returns a scale with this initial value and hysteresis.
    ///
    /// # Errors
    /// `Error::Parameter` for a scale that is not a finite number above 0; `Error::OutOfMemory`.
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

    /// Writes the scale, its step counts and its options to a safetensors file for `load`. The call waits for
    /// the device.
    ///
    /// A crash leaves the previous file intact, like a crash of `Optimizer::save`.
    ///
    /// # Errors
    /// `Error::File` if the file cannot be written; the errors of `Tensor::item`.
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

    /// Loads the scale, its step counts and its options from a file that `save` wrote.
    ///
    /// # Errors
    /// `Error::File` if the file cannot be read, or has another format, which leaves the scale unchanged;
    /// `Error::OutOfMemory`.
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

    /// Returns the scale of the loss, on the device.
    pub fn scale(&self) -> &Tensor<f32> {
        &self.scale
    }

    /// Updates the scale after a step of all its optimizers. A step is bad if one of them skipped it.
    ///
    /// # Errors
    /// `Error::Parameter` if an optimizer is on another device; the errors of a call of a function.
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
