//! The optimizer of one parameter group: a rule, its states, and step counts.

use std::sync::Arc;

use super::arena::Layout;
use super::rule::{Precision, Rule, States, UpdateArgs};
use super::shadow_copy::{AnyShadowCopy, ShadowCopy};
use super::state_8bit::State8Bit;
use super::state_bf16::StateBf16;
use super::update;
use super::{Arena, GradScaler};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::{Float, Tensor};

/// An optimizer, which updates the parameters of one arena in one launch per step, or two with 8-bit states.
#[derive(Debug)]
pub struct Optimizer {
    pub(super) rule: Rule,
    /// Layout of the parameters.
    layout: Arc<Layout>,
    /// `f32` states, in the order of `Rule::states`. The states cover all elements, or the small tensors if
    /// `state_8bit` is set. The list is empty if `state_bf16` is set.
    pub(super) states: Vec<Tensor<f32>>,
    /// 8-bit states.
    pub(super) state_8bit: Option<State8Bit>,
    /// 16-bit states.
    pub(super) state_bf16: Option<StateBf16>,
    /// Shadow copies of the parameters. The launches of the step update the first one too.
    pub(super) shadow_copies: Vec<Box<dyn AnyShadowCopy>>,
    /// Number of calls of `step`, skipped ones included.
    pub(super) calls: u64,
    /// Number of skipped steps, whose gradients were not finite.
    pub(super) skipped: Tensor<f32>,
    /// Number of skipped steps before the last step.
    pub(super) before: Tensor<f32>,
    /// Number of skipped steps at the last update of a `GradScaler`.
    pub(super) noted: Tensor<f32>,
    /// Learning rate.
    pub(super) lr: Tensor<f32>,
    /// A constant scale of 1.
    one: Tensor<f32>,
    pub(super) max_norm: Option<f64>,
    /// True if a skipped step is an error.
    pub(super) errors: bool,
}

impl Optimizer {
    /// Returns an optimizer for these parameters, on their device.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; `Error::Parameter` for an invalid option, and for `amsgrad` with a `state` other
    /// than `Precision::F32`, which is not supported.
    pub fn new(rule: impl Into<Rule>, params: &Arena) -> Result<Optimizer> {
        let (rule, device) = (rule.into(), params.device());
        rule.check()?;
        let [is_8bit, is_bf16] = [Precision::Bits8, Precision::Bf16].map(|kind| rule.precision() == kind);
        if (is_8bit || is_bf16) && rule.states().len() > 2 {
            let what = format!("has no state in `Precision::{:?}`: take `Precision::F32`", rule.precision());
            return Err(Error::Parameter { name: "amsgrad".into(), what });
        }
        let len = params.flat().len() - if is_8bit { params.large() } else { 0 };
        let state = |(_, value): (&str, f32)| Tensor::full(device, value, [len]);
        let states = if is_bf16 { vec![] } else { rule.states() };
        Ok(Optimizer {
            states: states.into_iter().map(state).collect::<Result<_>>()?,
            state_8bit: if is_8bit { Some(State8Bit::new(params)?) } else { None },
            state_bf16: if is_bf16 { Some(StateBf16::new(params)?) } else { None },
            lr: Tensor::full(device, rule.lr() as f32, [])?,
            rule,
            layout: params.layout().clone(),
            shadow_copies: vec![],
            calls: 0,
            skipped: Tensor::zeros(device, [])?,
            before: Tensor::zeros(device, [])?,
            noted: Tensor::zeros(device, [])?,
            one: Tensor::full(device, 1.0, [])?,
            max_norm: None,
            errors: false,
        })
    }

    /// Clips gradients to a norm of at most `max_norm`, as `torch.nn.utils.clip_grad_norm_` does for a
    /// parameter group.
    ///
    /// The norm covers all gradients of this optimizer, and takes one or two launches before the step. The
    /// step itself scales gradients as it loads them. A step with a gradient or a norm that is not finite
    /// changes nothing and does not count. Every step returns an `Error::Parameter` if `max_norm` is negative
    /// or NaN.
    pub fn with_max_norm(mut self, max_norm: f64) -> Optimizer {
        self.max_norm = Some(max_norm);
        self
    }

    /// Makes a step with gradients that are not finite an error, as `error_if_nonfinite` of
    /// `torch.nn.utils.clip_grad_norm_`.
    ///
    /// The step returns `Error::NotFinite`, or `Error::NormNotFinite` if only the norm is not finite. Each
    /// step waits for the device.
    pub fn with_error_if_nonfinite(mut self) -> Optimizer {
        self.errors = true;
        self
    }

    /// Keeps a copy of the parameters in another type, for a model that computes in that type.
    ///
    /// The launch of the step writes the copy, if it is the first shadow copy. Every further shadow copy takes
    /// a launch of its own.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; the errors of a call of a function.
    pub fn with_copy<T: Float>(self, params: &Arena) -> Result<Optimizer> {
        self.with_shadow_copy(ShadowCopy::<T>::new(params, None)?)
    }

    /// Keeps an exponential moving average of the parameters, as `torch.optim.swa_utils.get_ema_avg_fn` with
    /// this decay.
    ///
    /// The average starts from the current parameters. An `AveragedModel` of PyTorch starts from the
    /// parameters after the first step. The launch of the step writes the average, if it is the first
    /// shadow copy. Otherwise the average takes a launch of its own.
    ///
    /// # Errors
    /// The errors of `with_copy`; `Error::Parameter` for a second average, or a decay outside of 0 to 1.
    pub fn with_average(self, decay: f64, params: &Arena) -> Result<Optimizer> {
        if !(0.0..=1.0).contains(&decay) {
            let what = format!("cannot have the decay {decay}: it must be from 0 to 1");
            return Err(Error::Parameter { name: "average".into(), what });
        }
        if self.average().is_some() {
            let what = "is there already: an optimizer keeps one".into();
            return Err(Error::Parameter { name: "average".into(), what });
        }
        self.with_shadow_copy(ShadowCopy::<f32>::new(params, Some(decay))?)
    }

    fn with_shadow_copy(mut self, shadow_copy: impl AnyShadowCopy + 'static) -> Result<Optimizer> {
        self.shadow_copies.push(Box::new(shadow_copy));
        Ok(self)
    }

    /// Returns the copy of the parameters in this type, if the optimizer keeps one.
    pub fn copy<T: Float>(&self) -> Option<&Arena<T>> {
        let mut copies = self.shadow_copies.iter().filter(|shadow_copy| !shadow_copy.is_average());
        copies.find_map(|copy| copy.arena().downcast_ref())
    }

    /// Returns the moving average of the parameters, if the optimizer keeps one.
    pub fn average(&self) -> Option<&Arena> {
        let average = self.shadow_copies.iter().find(|shadow_copy| shadow_copy.is_average())?;
        average.arena().downcast_ref()
    }

    /// Returns the optimizer with its state on another device.
    ///
    /// # Errors
    /// The errors of `Tensor::to`.
    pub fn to(&self, device: &Device) -> Result<Optimizer> {
        Ok(Optimizer {
            rule: self.rule,
            layout: self.layout.clone(),
            states: self.states.iter().map(|state| state.to(device)).collect::<Result<_>>()?,
            state_8bit: self.state_8bit.as_ref().map(|state_8bit| state_8bit.to(device)).transpose()?,
            state_bf16: self.state_bf16.as_ref().map(|state_bf16| state_bf16.to(device)).transpose()?,
            shadow_copies: self
                .shadow_copies
                .iter()
                .map(|shadow_copy| shadow_copy.to(device))
                .collect::<Result<_>>()?,
            calls: self.calls,
            skipped: self.skipped.to(device)?,
            before: self.before.to(device)?,
            noted: self.noted.to(device)?,
            lr: self.lr.to(device)?,
            one: self.one.to(device)?,
            max_norm: self.max_norm,
            errors: self.errors,
        })
    }

    /// Returns the options. The learning rate is the last value passed to `new`, `set_lr` or `load`. A value
    /// written on the device is ignored.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Sets the learning rate of later steps, without waiting for earlier ones.
    ///
    /// # Errors
    /// The errors of `Tensor::full`; `Error::Parameter` for an invalid learning rate.
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        let mut rule = self.rule;
        *rule.lr_mut() = lr;
        rule.check()?;
        self.lr = Tensor::full(self.lr.device(), lr as f32, [])?;
        self.rule = rule;
        Ok(())
    }

    /// Returns the learning rate, on the device.
    pub fn lr(&self) -> &Tensor<f32> {
        &self.lr
    }

    /// Returns the learning rate for writing on the device, for example by a schedule that is a function of
    /// `fuse!`.
    pub fn lr_mut(&mut self) -> &mut Tensor<f32> {
        &mut self.lr
    }

    /// Runs one step.
    ///
    /// # Errors
    /// `Error::Parameter` if the gradients do not belong to the parameters; the errors of a call of a
    /// function; `Error::NotFinite` or `Error::NormNotFinite` after `with_error_if_nonfinite`.
    pub fn step(&mut self, params: &mut Arena, grads: &Arena) -> Result<()> {
        self.advance(params, grads, None)
    }

    /// Runs one step with gradients of a loss that was multiplied by the scale.
    ///
    /// The step changes nothing and does not count in three cases: a gradient is not finite, the sum of
    /// squares overflows, or the inverse of the scale overflows.
    ///
    /// # Errors
    /// The errors of `step`.
    pub fn step_scaled(&mut self, params: &mut Arena, grads: &Arena, scaler: &GradScaler) -> Result<()> {
        self.advance(params, grads, Some(scaler.scale()))
    }

    /// Runs one step, with gradients of a loss that was multiplied by `scale`.
    fn advance(&mut self, params: &mut Arena, grads: &Arena, scale: Option<&Tensor<f32>>) -> Result<()> {
        params.check_layout(grads, "the gradients: use `zeros_like`")?;
        self.check_params(params)?;
        self.check_device("gradients", grads.device())?;
        self.check_number("lr", &self.lr)?;
        scale.map_or(Ok(()), |scale| self.check_number("scale", scale))?;
        if let Some(norm) = self.max_norm.filter(|norm| norm.is_nan() || *norm < 0.0) {
            let what = format!("cannot be {norm}: it must be a number from 0 on");
            return Err(Error::Parameter { name: "max_norm".into(), what });
        }
        let calls = self.calls + 1;
        self.before = self.skipped.clone();
        let measured;
        let factor = if scale.is_some() || self.takes_norm() {
            let most = self.max_norm.unwrap_or(f64::from(f32::MAX)) as f32;
            measured = update::measure(grads.flat(), scale.unwrap_or(&self.one), most, &mut self.skipped)?;
            &measured
        } else {
            &self.one
        };
        let states = match (&mut self.state_8bit, &mut self.state_bf16) {
            (Some(state_8bit), _) => States::Bits8(state_8bit, &mut self.states),
            (None, Some(state_bf16)) => States::Bf16(state_bf16),
            (None, None) => States::F32(&mut self.states),
        };
        let (rule, skipped, lr, g) = (&self.rule, &self.skipped, &self.lr, grads.flat());
        let (first, others) = match self.shadow_copies.split_first_mut() {
            Some((first, others)) => (Some(first), others),
            None => (None, Default::default()),
        };
        let taken = params.update(|p| {
            let step = UpdateArgs { p, g, factor, calls, skipped, lr, followed: None };
            match first {
                Some(first) => first.step(rule, states, step),
                None => rule.step(states, step),
            }
        });
        if let Err(why) = taken {
            // A failed step does not count as a skipped one.
            self.skipped = self.before.clone();
            return Err(why);
        }
        self.calls = calls;
        others.iter_mut().try_for_each(|other| other.follow(params.flat(), &self.before, &self.skipped))?;
        self.check_finite(grads)
    }

    /// Returns true if every step computes the norm of the gradients, even without a loss scale.
    pub(super) fn takes_norm(&self) -> bool {
        self.max_norm.is_some() || self.errors
    }

    /// Checks that the parameters belong to this optimizer, and are on its device.
    pub(super) fn check_params(&self, params: &Arena) -> Result<()> {
        params.check_as(&self.layout, "those that the optimizer was made for")?;
        self.shadow_copies.iter().try_for_each(|shadow_copy| shadow_copy.check(params))?;
        self.check_device("parameters", params.device())
    }

    /// Checks that an argument is on the device of the optimizer.
    fn check_device(&self, name: &str, device: &Device) -> Result<()> {
        let own = self.lr.device();
        if device == own {
            return Ok(());
        }
        let what = format!("are on {device}, and the optimizer is on {own}: move one of them with `to`");
        Err(Error::Parameter { name: name.into(), what })
    }

    /// Checks that a tensor is still a single number. A caller may have replaced it.
    pub(super) fn check_number(&self, name: &str, number: &Tensor<f32>) -> Result<()> {
        let (device, own) = (number.device(), self.lr.device());
        if number.shape().dims().is_empty() && device == own {
            return Ok(());
        }
        let shape = number.shape();
        let what =
            format!("has shape {shape} and is on {device}: it must be one number, of shape [], on {own}");
        Err(Error::Parameter { name: name.into(), what })
    }

    /// Reads the gradients of a skipped step again, to distinguish gradients that are not finite from a norm
    /// that is not finite.
    fn check_finite(&mut self, grads: &Arena) -> Result<()> {
        if !self.errors || self.skipped.item()? == self.before.item()? {
            return Ok(());
        }
        let step = self.calls;
        let are_finite = update::all_finite(grads.flat())?.item()?;
        Err(if are_finite { Error::NormNotFinite { step } } else { Error::NotFinite { step } })
    }

    /// Returns the number of steps that were not skipped. The call waits for the device.
    ///
    /// # Errors
    /// The errors of `Tensor::item`.
    pub fn steps(&self) -> Result<u64> {
        // The device counts in `f32`, so a count of 2²⁴ or more is rounded.
        Ok(self.calls.saturating_sub(self.skipped.item()? as u64))
    }

    /// Returns the number of skipped steps, on the device.
    pub fn skipped(&self) -> &Tensor<f32> {
        &self.skipped
    }

    /// Returns the size of states and shadow copies in bytes.
    pub fn bytes(&self) -> usize {
        let states: usize = self.states.iter().map(|state| state.len() * size_of::<f32>()).sum();
        states
            + self.state_8bit.as_ref().map_or(0, State8Bit::bytes)
            + self.state_bf16.as_ref().map_or(0, StateBf16::bytes)
            + self.shadow_copies.iter().map(|f| f.bytes()).sum::<usize>()
    }
}
