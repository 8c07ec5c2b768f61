//! One group of parameters: a rule, its states, and what is counted.

use std::sync::Arc;

use super::arena::{BLOCK, Layout};
use super::blocks::Blocks;
use super::follow::{Follow, Follower};
use super::halves::Halves;
use super::rule::{Precision, Rule, States, Step};
use super::update;
use super::{Arena, GradScaler};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::{Float, Tensor};

/// Updates the parameters of one arena, all in one launch.
#[derive(Debug)]
pub struct Optimizer {
    pub(super) rule: Rule,
    /// Of the parameters that it was made for.
    layout: Arc<Layout>,
    /// In the order of `Rule::states`: of all elements, or of those that are in no block; none where they are of 16 bits.
    pub(super) states: Vec<Tensor<f32>>,
    /// States of 8 bits.
    pub(super) blocks: Option<Blocks>,
    /// States of 16 bits.
    pub(super) halves: Option<Halves>,
    /// What follows the parameters; the first by the launch that updates them.
    pub(super) followers: Vec<Box<dyn Follow>>,
    /// Steps that were asked for.
    pub(super) calls: u64,
    /// Those of them that changed nothing, since gradients were not finite.
    pub(super) skipped: Tensor<f32>,
    /// How many there were before the last step.
    pub(super) before: Tensor<f32>,
    /// How many there were when a `GradScaler` was last told of them.
    pub(super) noted: Tensor<f32>,
    /// The learning rate.
    pub(super) lr: Tensor<f32>,
    /// A scale of 1.
    one: Tensor<f32>,
    pub(super) max_norm: Option<f64>,
    /// Whether a skipped step is an error.
    pub(super) errors: bool,
}

impl Optimizer {
    /// An optimizer for these parameters, on their device.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; `Error::Parameter` for an option that no step can be taken with, and for `amsgrad` with a state that
    /// is not `Precision::F32`, which there is not.
    pub fn new(rule: impl Into<Rule>, params: &Arena) -> Result<Optimizer> {
        let (rule, device) = (rule.into(), params.device());
        rule.check()?;
        let [in_blocks, in_halves] = [Precision::Bits8, Precision::Bf16].map(|kind| rule.precision() == kind);
        if (in_blocks || in_halves) && rule.states().len() > 2 {
            let what = format!("has no state in `Precision::{:?}`: take `Precision::F32`", rule.precision());
            return Err(Error::Parameter { name: "amsgrad".into(), what });
        }
        let len = params.flat().len();
        let shape =
            if in_blocks { [(len - params.large()) / BLOCK, BLOCK].into() } else { Shape::from([len]) };
        let state = |(_, value): (&str, f32)| Tensor::full(device, value, shape.clone());
        let states = if in_halves { vec![] } else { rule.states() };
        Ok(Optimizer {
            states: states.into_iter().map(state).collect::<Result<_>>()?,
            blocks: if in_blocks { Some(Blocks::new(params)?) } else { None },
            halves: if in_halves { Some(Halves::new(params)?) } else { None },
            lr: Tensor::full(device, rule.lr() as f32, [])?,
            rule,
            layout: params.layout().clone(),
            followers: vec![],
            calls: 0,
            skipped: Tensor::zeros(device, [])?,
            before: Tensor::zeros(device, [])?,
            noted: Tensor::zeros(device, [])?,
            one: Tensor::full(device, 1.0, [])?,
            max_norm: None,
            errors: false,
        })
    }

    /// The same that multiplies gradients so that the norm of all that this optimizer updates is at most this, as
    /// `torch.nn.utils.clip_grad_norm_` of its group of parameters, in the read that updates: the norm takes a launch before, or two. A step whose gradients
    /// are not all finite, or have a norm that is not, changes nothing and does not count. A norm below 0, or none, is an `Error::Parameter` of each step.
    pub fn with_max_norm(mut self, max_norm: f64) -> Optimizer {
        self.max_norm = Some(max_norm);
        self
    }

    /// The same of which a step with gradients that are not all finite is an `Error::NotFinite`, and one whose norm alone is not is an
    /// `Error::NormNotFinite`, as `error_if_nonfinite` of `torch.nn.utils.clip_grad_norm_`: each step waits for the device.
    pub fn with_error_if_nonfinite(mut self) -> Optimizer {
        self.errors = true;
        self
    }

    /// The same that keeps a copy of the parameters in another type, for a model that computes in it: written from each new
    /// parameter in the launch that makes it. If it is not the first that follows, it is written by a launch of
    /// its own.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; as a call of a function.
    pub fn with_copy<T: Float>(self, params: &Arena) -> Result<Optimizer> {
        self.with_follower(Follower::<T>::new(params, None)?)
    }

    /// The same that keeps an exponential moving average of the parameters, of which it keeps so much at each step: that of
    /// `torch.optim.swa_utils.get_ema_avg_fn`. It begins with the parameters as they are now, where an `AveragedModel` takes those
    /// after the first step; written as a copy is.
    ///
    /// # Errors
    /// As `with_copy`; `Error::Parameter` if there is one, or for a decay that is not from 0 to 1.
    pub fn with_average(self, decay: f64, params: &Arena) -> Result<Optimizer> {
        if !(0.0..=1.0).contains(&decay) {
            let what = format!("cannot have the decay {decay}: it must be from 0 to 1");
            return Err(Error::Parameter { name: "average".into(), what });
        }
        if self.average().is_some() {
            let what = "is there already: an optimizer keeps one".into();
            return Err(Error::Parameter { name: "average".into(), what });
        }
        self.with_follower(Follower::<f32>::new(params, Some(decay))?)
    }

    fn with_follower(mut self, follower: impl Follow + 'static) -> Result<Optimizer> {
        self.followers.push(Box::new(follower));
        Ok(self)
    }

    /// The copy of the parameters in this type, if one is kept.
    pub fn copy<T: Float>(&self) -> Option<&Arena<T>> {
        let mut copies = self.followers.iter().filter(|follower| !follower.is_average());
        copies.find_map(|copy| copy.arena().downcast_ref())
    }

    /// The moving average of the parameters, if one is kept.
    pub fn average(&self) -> Option<&Arena> {
        let average = self.followers.iter().find(|follower| follower.is_average())?;
        average.arena().downcast_ref()
    }

    /// The same with its state on another device.
    ///
    /// # Errors
    /// As `Tensor::to`.
    pub fn to(&self, device: &Device) -> Result<Optimizer> {
        Ok(Optimizer {
            rule: self.rule,
            layout: self.layout.clone(),
            states: self.states.iter().map(|state| state.to(device)).collect::<Result<_>>()?,
            blocks: self.blocks.as_ref().map(|blocks| blocks.to(device)).transpose()?,
            halves: self.halves.as_ref().map(|halves| halves.to(device)).transpose()?,
            followers: self.followers.iter().map(|follower| follower.to(device)).collect::<Result<_>>()?,
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

    /// The options. Of the learning rate it knows what `set_lr` said.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Sets the learning rate of the steps to come, without waiting for those before.
    ///
    /// # Errors
    /// As `Tensor::full`, and as `new` for a rate that no step can be taken with.
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        let mut rule = self.rule;
        *rule.lr_mut() = lr;
        rule.check()?;
        self.lr = Tensor::full(self.lr.device(), lr as f32, [])?;
        self.rule = rule;
        Ok(())
    }

    /// The learning rate, on the device.
    pub fn lr(&self) -> &Tensor<f32> {
        &self.lr
    }

    /// The learning rate, to be written on the device: by a schedule that is a function of `fuse!`, say.
    pub fn lr_mut(&mut self) -> &mut Tensor<f32> {
        &mut self.lr
    }

    /// One step.
    ///
    /// # Errors
    /// `Error::Parameter` where the gradients are not those of the parameters; as a call of a function; `Error::NotFinite` or
    /// `Error::NormNotFinite` if that is asked for.
    pub fn step(&mut self, params: &mut Arena, grads: &Arena) -> Result<()> {
        self.advance(params, grads, None)
    }

    /// One step with gradients of a loss that was multiplied by the scale. It changes nothing and does not count where they are
    /// not finite, or so large that the sum of their squares is not, or where the scale is so small that its inverse is not.
    ///
    /// # Errors
    /// As `step`.
    pub fn step_scaled(&mut self, params: &mut Arena, grads: &Arena, scaler: &GradScaler) -> Result<()> {
        self.advance(params, grads, Some(scaler.scale()))
    }

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
        let states = match (&mut self.blocks, &mut self.halves) {
            (Some(blocks), _) => States::Bits8(blocks, &mut self.states),
            (None, Some(halves)) => States::Bf16(halves),
            (None, None) => States::F32(&mut self.states),
        };
        let (rule, skipped, lr, g) = (&self.rule, &self.skipped, &self.lr, grads.flat());
        let (first, others) = match self.followers.split_first_mut() {
            Some((first, others)) => (Some(first), others),
            None => (None, Default::default()),
        };
        let taken = params.update(|p| {
            let step = Step { p, g, factor, calls, skipped, lr, followed: None };
            match first {
                Some(first) => first.step(rule, states, step),
                None => rule.step(states, step),
            }
        });
        if let Err(why) = taken {
            // A step that was not taken was not skipped either.
            self.skipped = self.before.clone();
            return Err(why);
        }
        self.calls = calls;
        others.iter_mut().try_for_each(|other| other.follow(params.flat(), &self.before, &self.skipped))?;
        self.check_finite(grads)
    }

    /// Whether steps take the norm of all gradients, whatever their scale.
    pub(super) fn takes_norm(&self) -> bool {
        self.max_norm.is_some() || self.errors
    }

    /// Whether the parameters are those that it was made for, where it is.
    pub(super) fn check_params(&self, params: &Arena) -> Result<()> {
        params.check_as(&self.layout, "those that the optimizer was made for")?;
        self.followers.iter().try_for_each(|follower| follower.check(params))?;
        self.check_device("parameters", params.device())
    }

    /// Whether what it is given is on its device.
    fn check_device(&self, name: &str, device: &Device) -> Result<()> {
        let own = self.lr.device();
        if device == own {
            return Ok(());
        }
        let what = format!("are on {device}, and the optimizer is on {own}: move one of them with `to`");
        Err(Error::Parameter { name: name.into(), what })
    }

    /// Whether what others may have written is one number still.
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

    /// Reads the gradients of a skipped step once more, to tell whether they or their norm is not finite.
    fn check_finite(&mut self, grads: &Arena) -> Result<()> {
        if !self.errors || self.skipped.item()? == self.before.item()? {
            return Ok(());
        }
        let step = self.calls;
        let are_finite = update::all_finite(grads.flat())?.item()?;
        Err(if are_finite { Error::NormNotFinite { step } } else { Error::NotFinite { step } })
    }

    /// Steps that changed something. Waits for the device.
    ///
    /// # Errors
    /// As `Tensor::item`.
    pub fn steps(&self) -> Result<u64> {
        // A count of 2²⁴ and more is rounded.
        Ok(self.calls.saturating_sub(self.skipped.item()? as u64))
    }

    /// Steps that changed nothing, on the device.
    pub fn skipped(&self) -> &Tensor<f32> {
        &self.skipped
    }

    /// Bytes of its states, and of what follows the parameters.
    pub fn bytes(&self) -> usize {
        let states: usize = self.states.iter().map(|state| state.len() * size_of::<f32>()).sum();
        states
            + self.blocks.as_ref().map_or(0, Blocks::bytes)
            + self.halves.as_ref().map_or(0, Halves::bytes)
            + self.followers.iter().map(|f| f.bytes()).sum::<usize>()
    }
}
