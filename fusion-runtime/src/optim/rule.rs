//! Update rules: options with PyTorch's names, defaults and meaning.
//!
//! Invariant: values that depend on options only are computed in `f64`, in this module. Kernels take them
//! rounded once.

use super::state_8bit::State8Bit;
use super::state_bf16::StateBf16;
use super::update;
use crate::error::Result;
use crate::shape::Shape;
use crate::tensor::{Float, Tensor};

/// Stochastic gradient descent, `torch.optim.SGD`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// Momentum: the share of the last direction that is kept. A momentum of 0 needs no state.
    pub momentum: f64,
    /// Share of the gradient that the direction leaves out.
    pub dampening: f64,
    /// Weight decay: the gradients get this multiple of the parameters.
    pub weight_decay: f64,
    /// Nesterov momentum: a step looks ahead along the new direction.
    pub nesterov: bool,
    /// True to ascend along the gradient instead of descending.
    pub maximize: bool,
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false, maximize: false }
    }
}

/// Storage type of an optimizer's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 4 bytes per value.
    #[default]
    F32,
    /// 2 bytes per value, with 8 significant bits, updated in the same launch.
    ///
    /// Stochastic rounding keeps the stored value right on average: a moment moves even by less than its last
    /// bit. Random bits are the same in each run.
    Bf16,
    /// 1 byte per value for tensors of 4096 elements or more, and `F32` for smaller ones: a launch for each kind.
    ///
    /// Each block of 256 elements has a scale, its largest value (Dettmers et al. 2022). A gradient that is
    /// not finite, in a step that is not skipped, therefore destroys the moments of its block. A byte encodes
    /// an exponent and three bits of a number from 2 on, minus 2. Stochastic rounding keeps values below the
    /// smallest code right on average. Random bits are the same in each run.
    Bits8,
}

/// Adam (Kingma and Ba 2015), `torch.optim.Adam`, with weight decay added to gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the first and the second moment.
    pub betas: [f64; 2],
    /// Constant added to the root of the second moment.
    pub eps: f64,
    /// Weight decay: the gradients get this multiple of the parameters.
    pub weight_decay: f64,
    /// True to divide by the largest second moment so far (Reddi et al. 2018).
    pub amsgrad: bool,
    /// True to ascend along the gradient instead of descending.
    pub maximize: bool,
    /// Storage type of the moments.
    pub state: Precision,
}

impl Default for Adam {
    fn default() -> Adam {
        let (lr, betas, eps, weight_decay) = (1e-3, [0.9, 0.999], 1e-8, 0.0);
        Adam { lr, betas, eps, weight_decay, amsgrad: false, maximize: false, state: Precision::F32 }
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019), `torch.optim.AdamW`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the first and the second moment.
    pub betas: [f64; 2],
    /// Constant added to the root of the second moment.
    pub eps: f64,
    /// Weight decay: parameters lose this share, times the learning rate, per step.
    pub weight_decay: f64,
    /// True to divide by the largest second moment so far (Reddi et al. 2018).
    pub amsgrad: bool,
    /// True to ascend along the gradient instead of descending.
    pub maximize: bool,
    /// Storage type of the moments.
    pub state: Precision,
}

impl Default for AdamW {
    fn default() -> AdamW {
        let Adam { lr, betas, eps, amsgrad, maximize, state, .. } = Adam::default();
        AdamW { lr, betas, eps, weight_decay: 1e-2, amsgrad, maximize, state }
    }
}

/// RMSprop (Hinton 2012), `torch.optim.RMSprop`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// Learning rate.
    pub lr: f64,
    /// Decay rate of the mean of squares.
    pub alpha: f64,
    /// Constant added to the root of the mean of squares.
    pub eps: f64,
    /// Weight decay: the gradients get this multiple of the parameters.
    pub weight_decay: f64,
    /// Momentum: the share of the last direction that is kept. A momentum of 0 needs no state.
    pub momentum: f64,
    /// True to divide by the standard deviation around the mean gradient.
    pub centered: bool,
    /// True to ascend along the gradient instead of descending.
    pub maximize: bool,
}

impl Default for RmsProp {
    fn default() -> RmsProp {
        RmsProp {
            lr: 1e-2,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
        }
    }
}

/// Adagrad (Duchi et al. 2011), `torch.optim.Adagrad`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the learning rate, which is divided by 1 + `lr_decay` × (number of earlier steps).
    pub lr_decay: f64,
    /// Weight decay: the gradients get this multiple of the parameters.
    pub weight_decay: f64,
    /// Initial value of the sums of squares.
    pub initial_accumulator_value: f64,
    /// Constant added to the root of the sum of squares.
    pub eps: f64,
    /// True to ascend along the gradient instead of descending.
    pub maximize: bool,
}

impl Default for Adagrad {
    fn default() -> Adagrad {
        Adagrad {
            lr: 1e-2,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
        }
    }
}

/// Lion (Chen et al. 2023): steps of one size along the sign of a mean gradient, with decoupled weight decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the mean gradient: the first for the step, the second for the stored mean.
    pub betas: [f64; 2],
    /// Weight decay: parameters lose this share, times the learning rate, per step.
    pub weight_decay: f64,
    /// True to ascend along the gradient instead of descending.
    pub maximize: bool,
}

impl Default for Lion {
    fn default() -> Lion {
        Lion { lr: 1e-4, betas: [0.9, 0.99], weight_decay: 0.0, maximize: false }
    }
}

/// An update rule with its options.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// Adam.
    Adam(Adam),
    /// Adam with decoupled weight decay.
    AdamW(AdamW),
    /// RMSprop.
    RmsProp(RmsProp),
    /// Adagrad.
    Adagrad(Adagrad),
    /// Lion.
    Lion(Lion),
}

macro_rules! rules {
    ($($rule:ident)*) => {
        $( impl From<$rule> for Rule {
            fn from(options: $rule) -> Rule {
                Rule::$rule(options)
            }
        } )*

        impl Rule {
            /// Returns the learning rate.
            pub fn lr(&self) -> f64 {
                match self { $( Rule::$rule(options) => options.lr, )* }
            }

            /// Returns the learning rate for writing.
            pub(super) fn lr_mut(&mut self) -> &mut f64 {
                match self { $( Rule::$rule(options) => &mut options.lr, )* }
            }

            /// Returns the name of the rule.
            pub(super) fn name(&self) -> &'static str {
                match self { $( Rule::$rule(_) => stringify!($rule), )* }
            }
        }
    };
}

rules! { Sgd Adam AdamW RmsProp Adagrad Lion }

/// Arguments of every update kernel, except the states.
pub(super) struct UpdateArgs<'a, T: Float> {
    pub(super) p: &'a mut Tensor<f32>,
    pub(super) g: &'a Tensor<f32>,
    /// Factor of the gradients; negative for a skipped step.
    pub(super) factor: &'a Tensor<f32>,
    /// Number of this call, from 1.
    pub(super) calls: u64,
    /// Number of skipped calls.
    pub(super) skipped: &'a Tensor<f32>,
    pub(super) lr: &'a Tensor<f32>,
    /// Shadow copy of the parameters, with the weight of the new parameters.
    pub(super) followed: Option<(&'a mut Tensor<T>, f32)>,
}

impl<'a, T: Float> UpdateArgs<'a, T> {
    /// Returns the step with a shadow copy.
    pub(super) fn followed_by<U: Float>(self, q: &'a mut Tensor<U>, taken: f32) -> UpdateArgs<'a, U> {
        let UpdateArgs { p, g, factor, calls, skipped, lr, .. } = self;
        UpdateArgs { p, g, factor, calls, skipped, lr, followed: Some((q, taken)) }
    }

    /// Runs a step over the elements from `start` on, as tensors of this shape.
    pub(super) fn over(
        &mut self,
        start: usize,
        shape: Shape,
        run: impl FnOnce(UpdateArgs<'_, T>) -> Result<()>,
    ) -> Result<()> {
        let UpdateArgs { p, g, factor, calls, skipped, lr, followed } = self;
        let g = &g.part(start, shape.clone());
        let (calls, factor, skipped, lr) = (*calls, *factor, *skipped, *lr);
        p.lend(start, shape.clone(), |p| match followed {
            None => run(UpdateArgs { p, g, factor, calls, skipped, lr, followed: None }),
            Some((q, taken)) => q.lend(start, shape, |q| {
                run(UpdateArgs { p, g, factor, calls, skipped, lr, followed: Some((q, *taken)) })
            }),
        })
    }
}

/// The states of a rule, by storage type.
pub(super) enum States<'a> {
    /// States in the order of `Rule::states`.
    F32(&'a mut [Tensor<f32>]),
    Bf16(&'a mut StateBf16),
    /// States of blocks, and of small tensors.
    Bits8(&'a mut State8Bit, &'a mut [Tensor<f32>]),
}

/// Calls the update kernel for a step, with or without a shadow copy, for these states and options.
macro_rules! call {
    ($step:expr, [$plain:ident $followed:ident], [$($s:expr),*], [$($option:expr),*]) => {{
        let $crate::optim::rule::UpdateArgs { p, g, factor, calls, skipped, lr, followed } = $step;
        match followed {
            None => update::$plain(p, $($s,)* g, factor, calls as f32, skipped, lr, $($option),*),
            Some((q, taken)) => {
                update::$followed(p, $($s,)* q, g, taken, factor, calls as f32, skipped, lr, $($option),*)
            }
        }
    }};
}
pub(super) use call;

/// Returns the states as an array of the rule's size.
fn all_of<const N: usize>(states: &mut [Tensor<f32>]) -> [&mut Tensor<f32>; N] {
    let states: &mut [Tensor<f32>; N] =
        states.try_into().unwrap_or_else(|_| unreachable!("the states are those of the rule"));
    states.each_mut()
}

impl Rule {
    /// Returns the names of the states, as in PyTorch, with their initial values.
    pub(super) fn states(&self) -> Vec<(&'static str, f32)> {
        let some = |states: &[(bool, &'static str)]| {
            states.iter().filter(|(has, _)| *has).map(|&(_, name)| (name, 0.0)).collect()
        };
        let adam = |amsgrad| some(&[(true, "exp_avg"), (true, "exp_avg_sq"), (amsgrad, "max_exp_avg_sq")]);
        match self {
            Rule::Sgd(options) => some(&[(options.momentum != 0.0, "momentum_buffer")]),
            Rule::Adam(options) => adam(options.amsgrad),
            Rule::AdamW(options) => adam(options.amsgrad),
            Rule::RmsProp(options) => some(&[
                (true, "square_avg"),
                (options.centered, "grad_avg"),
                (options.momentum != 0.0, "momentum_buffer"),
            ]),
            Rule::Adagrad(options) => vec![("sum", options.initial_accumulator_value as f32)],
            Rule::Lion(_) => vec![("exp_avg", 0.0)],
        }
    }

    /// Returns the numbers of Adam's kernels, if the rule is Adam or AdamW.
    pub(super) fn adam(&self) -> Option<AdamNumbers> {
        let (betas, eps, maximize, [l2, decay]) = match *self {
            Rule::Adam(Adam { betas, eps, weight_decay, maximize, .. }) => {
                (betas, eps, maximize, [weight_decay, 0.0])
            }
            Rule::AdamW(AdamW { betas, eps, weight_decay, maximize, .. }) => {
                (betas, eps, maximize, [0.0, weight_decay])
            }
            Rule::Sgd(_) | Rule::RmsProp(_) | Rule::Adagrad(_) | Rule::Lion(_) => return None,
        };
        Some(AdamNumbers {
            fresh: betas.map(fresh),
            logs: betas.map(|beta| beta.ln() as f32),
            eps: eps as f32,
            up: sign(maximize),
            l2: l2 as f32,
            decay: decay as f32,
        })
    }

    /// Returns the storage type of the state.
    pub(super) fn precision(&self) -> Precision {
        match self {
            Rule::Adam(options) => options.state,
            Rule::AdamW(options) => options.state,
            Rule::Sgd(_) | Rule::RmsProp(_) | Rule::Adagrad(_) | Rule::Lion(_) => Precision::F32,
        }
    }

    /// Runs one step as one launch, or two with states of 8 bits.
    pub(super) fn step<T: Float>(&self, states: States<'_>, step: UpdateArgs<'_, T>) -> Result<()> {
        let states = match (states, self.adam()) {
            (States::F32(states), Some(numbers)) => return numbers.step(states, step),
            (States::Bf16(state_bf16), Some(numbers)) => return state_bf16.step(numbers, step),
            (States::Bits8(state_8bit, states), Some(numbers)) => {
                return state_8bit.step(states, numbers, step);
            }
            (States::F32(states), None) => states,
            (States::Bf16(_) | States::Bits8(..), None) => unreachable!("fewer bits are of Adam's states"),
        };
        match *self {
            Rule::Sgd(options) => options.step(states, step),
            Rule::Adam(_) | Rule::AdamW(_) => unreachable!("Adam has its numbers"),
            Rule::RmsProp(options) => options.step(states, step),
            Rule::Adagrad(Adagrad { lr_decay, weight_decay, eps, maximize, .. }) => {
                let [s] = all_of(states);
                let (lr_decay, eps, l2) = (lr_decay as f32, eps as f32, weight_decay as f32);
                call!(
                    step,
                    [adagrad adagrad_followed],
                    [s],
                    [lr_decay, eps, sign(maximize), l2]
                )
            }
            Rule::Lion(Lion { betas: [beta1, beta2], weight_decay, maximize, .. }) => {
                let ([m], decay) = (all_of(states), weight_decay as f32);
                call!(
                    step,
                    [lion lion_followed],
                    [m],
                    [fresh(beta1), fresh(beta2), sign(maximize), decay]
                )
            }
        }
    }
}

impl Sgd {
    fn step<T: Float>(self, states: &mut [Tensor<f32>], step: UpdateArgs<'_, T>) -> Result<()> {
        let Sgd { momentum, dampening, weight_decay, nesterov, maximize, .. } = self;
        let (up, l2) = (sign(maximize), weight_decay as f32);
        if momentum == 0.0 {
            return call!(step, [sgd sgd_followed], [], [up, l2]);
        }
        let [b] = all_of(states);
        call!(
            step,
            [sgd_momentum sgd_momentum_followed],
            [b],
            [momentum as f32, fresh(dampening), nesterov, up, l2]
        )
    }
}

impl RmsProp {
    fn step<T: Float>(self, states: &mut [Tensor<f32>], step: UpdateArgs<'_, T>) -> Result<()> {
        let RmsProp { alpha, eps, weight_decay, momentum, centered, maximize, .. } = self;
        let (fresh, eps, up, l2) = (fresh(alpha), eps as f32, sign(maximize), weight_decay as f32);
        let kept = momentum as f32;
        match (centered, momentum != 0.0) {
            (false, false) => {
                let [v] = all_of(states);
                call!(
                    step,
                    [rmsprop rmsprop_followed],
                    [v],
                    [fresh, eps, up, l2]
                )
            }
            (false, true) => {
                let [v, b] = all_of(states);
                call!(
                    step,
                    [rmsprop_momentum rmsprop_momentum_followed],
                    [v, b],
                    [kept, fresh, eps, up, l2]
                )
            }
            (true, false) => {
                let [v, a] = all_of(states);
                call!(
                    step,
                    [rmsprop_centered rmsprop_centered_followed],
                    [v, a],
                    [fresh, eps, up, l2]
                )
            }
            (true, true) => {
                let [v, a, b] = all_of(states);
                call!(
                    step,
                    [rmsprop_centered_momentum rmsprop_centered_momentum_followed],
                    [v, a, b],
                    [kept, fresh, eps, up, l2]
                )
            }
        }
    }
}

/// Numbers of Adam's kernels, with coupled or decoupled weight decay.
#[derive(Clone, Copy)]
pub(super) struct AdamNumbers {
    pub(super) fresh: [f32; 2],
    /// Logarithms of the decay rates.
    pub(super) logs: [f32; 2],
    pub(super) eps: f32,
    pub(super) up: f32,
    pub(super) l2: f32,
    pub(super) decay: f32,
}

impl AdamNumbers {
    pub(super) fn step<T: Float>(self, states: &mut [Tensor<f32>], step: UpdateArgs<'_, T>) -> Result<()> {
        let AdamNumbers { fresh: [fresh1, fresh2], logs: [log1, log2], eps, up, l2, decay } = self;
        if let [m, v, w] = states {
            return call!(
                step,
                [amsgrad amsgrad_followed],
                [m, v, w],
                [fresh1, log1, fresh2, log2, eps, up, l2, decay]
            );
        }
        let [m, v] = all_of(states);
        call!(
            step,
            [adam adam_followed],
            [m, v],
            [fresh1, log1, fresh2, log2, eps, up, l2, decay]
        )
    }
}

/// Returns the weight of a new value, for a decay rate of `kept`.
pub(super) fn fresh(kept: f64) -> f32 {
    (1.0 - kept) as f32
}

fn sign(maximize: bool) -> f32 {
    if maximize { -1.0 } else { 1.0 }
}
