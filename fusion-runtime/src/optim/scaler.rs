//! Loss scales that follow from whether gradients were finite, without asking the device.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::fuse;
use crate::tensor::Tensor;

use super::Optimizer;
use super::file::replace;

/// Of the layout of a file.
const VERSION: &str = "1";

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
        let error = |what: String| Error::File { path: path.display().to_string(), what };
        let numbers = self.numbers();
        let bytes = numbers.map(|(_, number)| number.item().map(f32::to_le_bytes));
        let views = numbers.iter().zip(bytes).map(|((name, _), bytes)| Ok((*name, bytes?)));
        let views = views.collect::<Result<Vec<(&str, [u8; 4])>>>()?;
        let view = |(name, bytes)| Ok((name, TensorView::new(Dtype::F32, vec![], bytes)?));
        let views = views
            .iter()
            .map(|(name, bytes)| view((*name, &bytes[..])))
            .collect::<std::result::Result<Vec<_>, _>>();
        let facts = [
            ("version", VERSION.to_string()),
            ("growth_factor", format!("{:?}", self.growth_factor)),
            ("backoff_factor", format!("{:?}", self.backoff_factor)),
            ("growth_interval", self.growth_interval.to_string()),
            ("hysteresis", self.hysteresis.to_string()),
        ];
        let facts: HashMap<String, String> = facts.map(|(name, value)| (name.to_string(), value)).into();
        let bytes = views.and_then(|views| serialize(views, Some(facts)));
        let bytes = bytes.map_err(|refused: safetensors::SafeTensorError| error(refused.to_string()))?;
        replace(path, &bytes).map_err(|refused| error(refused.to_string()))
    }

    /// Takes all of it from a file that `save` wrote.
    ///
    /// # Errors
    /// `Error::File` where it cannot be read, or is no such file; nothing has changed then. `Error::OutOfMemory`.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let error = |what: String| Error::File { path: path.display().to_string(), what };
        let bytes = fs::read(path).map_err(|refused| error(refused.to_string()))?;
        let refused = |why| error(format!("is no whole file of safetensors: {why}"));
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(refused)?;
        let file = SafeTensors::deserialize(&bytes).map_err(refused)?;
        let known = |name: &str| header.metadata().as_ref()?.get(name).map(String::as_str);
        if known("version") != Some(VERSION) || known("growth_interval").is_none() {
            return Err(error("holds no loss scale of this version".into()));
        }
        fn parsed<T: std::str::FromStr>(name: &str, text: Option<&str>) -> std::result::Result<T, String> {
            let text = text.unwrap_or_default();
            text.parse().map_err(|_| format!("the option `{name}` cannot be `{text}`"))
        }
        let (growth_factor, backoff_factor, growth_interval, hysteresis) = (
            parsed("growth_factor", known("growth_factor")).map_err(error)?,
            parsed("backoff_factor", known("backoff_factor")).map_err(error)?,
            parsed("growth_interval", known("growth_interval")).map_err(error)?,
            parsed("hysteresis", known("hysteresis")).map_err(error)?,
        );
        let number = |(name, own): (&str, &Tensor<f32>)| {
            let tensor = file.tensor(name).ok().filter(|tensor| tensor.dtype() == Dtype::F32);
            let bytes = tensor.and_then(|tensor| <[u8; 4]>::try_from(tensor.data()).ok());
            let value = bytes.map(f32::from_le_bytes).filter(|value| *value >= 0.0 && value.is_finite());
            let value = value.ok_or_else(|| error(format!("`{name}` is missing, or no number from 0 on")))?;
            Tensor::full(own.device(), value, [])
        };
        let [scale, good, used] = self.numbers().map(number);
        (self.scale, self.good, self.used) = (scale?, good?, used?);
        self.bad = Tensor::zeros(self.scale.device(), [])?;
        (self.growth_factor, self.backoff_factor) = (growth_factor, backoff_factor);
        (self.growth_interval, self.hysteresis) = (growth_interval, hysteresis);
        Ok(())
    }

    /// What is saved, by PyTorch's names, of which the last is Megatron's.
    fn numbers(&self) -> [(&'static str, &Tensor<f32>); 3] {
        [("scale", &self.scale), ("growth_tracker", &self.good), ("hysteresis_tracker", &self.used)]
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
