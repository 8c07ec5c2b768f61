//! Parameters once more: in a type of 16 bits for a model that computes in it, or averaged over steps.

use std::any::Any;
use std::fmt::Debug;

use super::Arena;
use super::rule::{Rule, States, Step, fresh};
use super::update;
use crate::device::Device;
use crate::error::Result;
use crate::tensor::{Float, Tensor};

/// An arena that follows the parameters at each step.
#[derive(Debug)]
pub(super) struct Follower<T: Float> {
    arena: Arena<T>,
    /// How much of what is new is taken at each step, all of it by a copy.
    taken: f32,
    is_average: bool,
}

/// A follower of any type.
pub(super) trait Follow: Debug + Send + Sync {
    /// Its `Arena<T>`.
    fn arena(&self) -> &dyn Any;

    /// That its tensors are those of the parameters.
    fn check(&self, params: &Arena) -> Result<()>;

    /// Whether it is an average of steps, and not a copy.
    fn is_average(&self) -> bool;

    /// Its arena, if it is an average.
    fn average(&mut self) -> Option<&mut Arena>;

    /// Bytes of its arena.
    fn bytes(&self) -> usize;

    /// A step by which it follows too, in the same launch.
    fn step(&mut self, rule: &Rule, states: States<'_>, step: Step<'_, f32>) -> Result<()>;

    /// Follows by a launch of its own, unless the step was skipped, so that the count is another than before.
    fn follow(&mut self, p: &Tensor<f32>, before: &Tensor<f32>, skipped: &Tensor<f32>) -> Result<()>;

    fn to(&self, device: &Device) -> Result<Box<dyn Follow>>;
}

impl<T: Float> Follower<T> {
    /// Begins as the parameters are; a copy if nothing is said of an average.
    pub(super) fn new(params: &Arena, average: Option<f64>) -> Result<Follower<T>> {
        let mut follower = Follower { arena: params.zeros_of()?, taken: 1.0, is_average: average.is_some() };
        let zero = Tensor::zeros(params.device(), [])?;
        follower.follow(params.flat(), &zero, &zero)?;
        follower.taken = average.map_or(1.0, fresh);
        Ok(follower)
    }
}

impl<T: Float> Follow for Follower<T> {
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

    fn step(&mut self, rule: &Rule, states: States<'_>, step: Step<'_, f32>) -> Result<()> {
        let taken = self.taken;
        self.arena.update(|q| rule.step(states, step.followed_by(q, taken)))
    }

    fn follow(&mut self, p: &Tensor<f32>, before: &Tensor<f32>, skipped: &Tensor<f32>) -> Result<()> {
        let taken = self.taken;
        self.arena.update(|q| update::follow(q, p, before, skipped, taken))
    }

    fn to(&self, device: &Device) -> Result<Box<dyn Follow>> {
        Ok(Box::new(Follower { arena: self.arena.to(device)?, ..*self }))
    }
}
