//! One group of parameters: a rule, its states, and what is counted.

use super::rule::{Gradients, Rule};
use super::{Arena, GradScaler};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Updates the parameters of one arena, all in one launch.
#[derive(Debug)]
pub struct Optimizer {
    pub(super) rule: Rule,
    /// In the order of `Rule::states`.
    pub(super) states: Vec<Tensor<f32>>,
    /// Steps that were asked for.
    pub(super) calls: u64,
    /// Those of them that changed nothing, since gradients were not finite.
    pub(super) skipped: Tensor<f32>,
    /// A scale of 1.
    one: Tensor<f32>,
    max_norm: Option<f64>,
    /// Whether a step may have been skipped, so that the device alone knows how many were taken.
    pub(super) skips: bool,
}

impl Optimizer {
    /// An optimizer for these parameters, on their device.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn new(rule: impl Into<Rule>, params: &Arena) -> Result<Optimizer> {
        let (rule, device) = (rule.into(), params.device());
        let state = |(_, value): (&str, f32)| params.state(value);
        Ok(Optimizer {
            states: rule.states().into_iter().map(state).collect::<Result<_>>()?,
            rule,
            calls: 0,
            skipped: Tensor::zeros(device, [])?,
            one: Tensor::full(device, 1.0, [])?,
            max_norm: None,
            skips: false,
        })
    }

    /// The same that multiplies gradients so that the norm of all of them together is at most this, as
    /// `torch.nn.utils.clip_grad_norm_`, in the read that updates: a step is two launches. One whose gradients are not all finite,
    /// or have a norm that is not, changes nothing and does not count.
    pub fn with_max_norm(mut self, max_norm: f64) -> Optimizer {
        self.max_norm = Some(max_norm);
        self
    }

    /// The options.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The learning rate of the steps to come.
    pub fn set_lr(&mut self, lr: f64) {
        *self.rule.lr_mut() = lr;
    }

    /// One step.
    ///
    /// # Errors
    /// `Error::Parameter` where the gradients are not those of the parameters; as a call of a function.
    pub fn step(&mut self, params: &mut Arena, grads: &Arena) -> Result<()> {
        self.advance(params, grads, None)
    }

    /// One step with gradients of a loss that was multiplied by the scale. It changes nothing and does not count where they are
    /// not finite.
    ///
    /// # Errors
    /// As `step`.
    pub fn step_scaled(&mut self, params: &mut Arena, grads: &Arena, scaler: &GradScaler) -> Result<()> {
        self.advance(params, grads, Some(scaler.scale()))
    }

    fn advance(&mut self, params: &mut Arena, grads: &Arena, scale: Option<&Tensor<f32>>) -> Result<()> {
        params.check_layout(grads)?;
        if self.states.iter().any(|state| state.len() != params.flat().len()) {
            let name = params.iter().next().map_or_else(String::new, |(name, _)| name.into());
            let what = "is of another arena than the optimizer was made for".into();
            return Err(Error::Parameter { name, what });
        }
        let calls = self.calls + 1;
        let how = match (scale, self.max_norm) {
            (None, None) if !self.skips => Gradients::Plain(calls),
            (scale, most) => Gradients::Clipped {
                scale: scale.unwrap_or(&self.one),
                most: most.unwrap_or(f64::from(f32::MAX)),
                calls,
                skipped: &mut self.skipped,
            },
        };
        self.skips |= matches!(how, Gradients::Clipped { .. });
        params.update(|flat| self.rule.step(flat, &mut self.states, grads.flat(), how))?;
        self.calls = calls;
        Ok(())
    }

    /// Steps that changed something. Waits for the device.
    ///
    /// # Errors
    /// As `Tensor::item`.
    pub fn steps(&self) -> Result<u64> {
        Ok(self.calls - self.skipped.item()? as u64)
    }

    /// Steps that changed nothing, on the device.
    pub fn skipped(&self) -> &Tensor<f32> {
        &self.skipped
    }

    /// Bytes of its states.
    pub fn bytes(&self) -> usize {
        self.states.iter().map(|state| state.len() * size_of::<f32>()).sum()
    }
}
