//! Shadow copies: a copy of the parameters in a 16-bit type, or an average of them over steps.

use std::any::Any;
use std::fmt::Debug;

use super::Arena;
use super::rule::{Rule, States, UpdateArgs, fresh};
use super::update;
use crate::device::Device;
use crate::error::Result;
use crate::tensor::{Float, Tensor};

/// A shadow copy: an arena that is updated after the parameters at each step.
#[derive(Debug)]
pub(super) struct ShadowCopy<T: Float> {
    arena: Arena<T>,
    /// Weight of the new parameters at each step; 1 for a copy.
    ema_weight: f32,
    is_average: bool,
}

/// A shadow copy of any element type.
pub(super) trait AnyShadowCopy: Debug + Send + Sync {
    /// Returns the `Arena<T>`.
    fn arena(&self) -> &dyn Any;

    /// Checks that the shadow copy has the tensors of the parameters.
    fn check(&self, params: &Arena) -> Result<()>;

    /// Returns true for an average, false for a copy.
    fn is_average(&self) -> bool;

    /// Returns the arena of an average.
    fn average(&mut self) -> Option<&mut Arena>;

    /// Returns the size of the arena in bytes.
    fn bytes(&self) -> usize;

    /// Runs a step that updates the shadow copy in the same launch.
    fn step(&mut self, rule: &Rule, states: States<'_>, step: UpdateArgs<'_, f32>) -> Result<()>;

    /// Updates the shadow copy in a launch of its own. A skipped step, with counts `before` < `skipped`,
    /// changes nothing.
    fn follow(&mut self, p: &Tensor<f32>, before: &Tensor<f32>, skipped: &Tensor<f32>) -> Result<()>;

    fn to(&self, device: &Device) -> Result<Box<dyn AnyShadowCopy>>;
}

impl<T: Float> ShadowCopy<T> {
    /// Makes a shadow copy with the current parameters: an average with this decay, or a copy for `None`.
    pub(super) fn new(params: &Arena, average: Option<f64>) -> Result<ShadowCopy<T>> {
        let mut shadow_copy =
            ShadowCopy { arena: params.zeros_of()?, ema_weight: 1.0, is_average: average.is_some() };
        let zero = Tensor::zeros(params.device(), [])?;
        shadow_copy.follow(params.flat(), &zero, &zero)?;
        shadow_copy.ema_weight = average.map_or(1.0, fresh);
        Ok(shadow_copy)
    }
}

impl<T: Float> AnyShadowCopy for ShadowCopy<T> {
    fn arena(&self) -> &dyn Any {
        &self.arena
    }

    fn check(&self, params: &Arena) -> Result<()> {
        params.check_layout(&self.arena, "what follows them: make it of these parameters")
    }

    fn is_average(&self) -> bool {
        self.is_average
    }

    fn average(&mut self) -> Option<&mut Arena> {
        if self.is_average { (&mut self.arena as &mut dyn Any).downcast_mut() } else { None }
    }

    fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    fn step(&mut self, rule: &Rule, states: States<'_>, step: UpdateArgs<'_, f32>) -> Result<()> {
        let ema_weight = self.ema_weight;
        self.arena.update(|q| rule.step(states, step.followed_by(q, ema_weight)))
    }

    fn follow(&mut self, p: &Tensor<f32>, before: &Tensor<f32>, skipped: &Tensor<f32>) -> Result<()> {
        let ema_weight = self.ema_weight;
        self.arena.update(|q| update::follow(q, p, before, skipped, ema_weight))
    }

    fn to(&self, device: &Device) -> Result<Box<dyn AnyShadowCopy>> {
        Ok(Box::new(ShadowCopy { arena: self.arena.to(device)?, ..*self }))
    }
}
