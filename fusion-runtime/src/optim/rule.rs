//! How parameters follow from gradients: options with PyTorch's names, defaults and meaning.
//!
//! Invariant: what depends on options alone is worked out here in `f64`, so that kernels take what is left after rounding once.

use super::update;
use crate::error::Result;
use crate::tensor::Tensor;

/// Stochastic gradient descent, `torch.optim.SGD`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// How much of the last direction is kept; 0 keeps no state.
    pub momentum: f64,
    /// How much of the gradient is left out of the direction.
    pub dampening: f64,
    /// Added to gradients, times parameters.
    pub weight_decay: f64,
    /// Goes on along the new direction once more.
    pub nesterov: bool,
    /// Follows gradients upwards.
    pub maximize: bool,
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false, maximize: false }
    }
}

/// What an optimizer stores its state in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 4 bytes for each number.
    #[default]
    F32,
    /// 2 bytes for each number, of 8 binary digits, in the launch that updates. Numbers are rounded up or down at random, the same way in
    /// each run, so often that what is stored is right on average: means move by less than their last digit, too.
    Bf16,
    /// A byte for each number, of tensors of 4096 elements or more; of others as `F32`. A step is a launch for each of the two. Each 256
    /// elements have a unit, the largest of them, as with Dettmers et al. 2022; a byte is an exponent and three digits of a
    /// number from 2 on, less 2, and numbers are rounded up or down at random, the same way in each run, so that what is too
    /// small for a code is not lost.
    Bits8,
}

/// Adam (Kingma and Ba 2015), `torch.optim.Adam`: weight decay is added to gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Learning rate.
    pub lr: f64,
    /// How much of the means of gradients and of their squares is kept.
    pub betas: [f64; 2],
    /// Added to the root of the mean of squares.
    pub eps: f64,
    /// Added to gradients, times parameters.
    pub weight_decay: f64,
    /// Divides by the largest mean of squares that there was (Reddi et al. 2018).
    pub amsgrad: bool,
    /// Follows gradients upwards.
    pub maximize: bool,
    /// What means are stored in.
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
    /// How much of the means of gradients and of their squares is kept.
    pub betas: [f64; 2],
    /// Added to the root of the mean of squares.
    pub eps: f64,
    /// What parameters lose at each step, times the learning rate.
    pub weight_decay: f64,
    /// Divides by the largest mean of squares that there was.
    pub amsgrad: bool,
    /// Follows gradients upwards.
    pub maximize: bool,
    /// What means are stored in.
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
    /// How much of the mean of squares is kept.
    pub alpha: f64,
    /// Added to the root of the mean of squares.
    pub eps: f64,
    /// Added to gradients, times parameters.
    pub weight_decay: f64,
    /// How much of the last direction is kept; 0 keeps none.
    pub momentum: f64,
    /// Divides by the deviation from the mean gradient.
    pub centered: bool,
    /// Follows gradients upwards.
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
    /// The rate is divided by 1 + this for each step before.
    pub lr_decay: f64,
    /// Added to gradients, times parameters.
    pub weight_decay: f64,
    /// What sums of squares begin with.
    pub initial_accumulator_value: f64,
    /// Added to the root of the sum of squares.
    pub eps: f64,
    /// Follows gradients upwards.
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

/// Lion (Chen et al. 2023): steps of one size, along the sign of a mean of gradients; weight decay is decoupled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// Learning rate.
    pub lr: f64,
    /// How much of the mean of gradients is kept for the step, and for the mean.
    pub betas: [f64; 2],
    /// What parameters lose at each step, times the learning rate.
    pub weight_decay: f64,
    /// Follows gradients upwards.
    pub maximize: bool,
}

impl Default for Lion {
    fn default() -> Lion {
        Lion { lr: 1e-4, betas: [0.9, 0.99], weight_decay: 0.0, maximize: false }
    }
}

/// One of the ways to update parameters, with its options.
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
            /// The learning rate.
            pub fn lr(&self) -> f64 {
                match self { $( Rule::$rule(options) => options.lr, )* }
            }

            /// The learning rate, to be changed.
            pub(super) fn lr_mut(&mut self) -> &mut f64 {
                match self { $( Rule::$rule(options) => &mut options.lr, )* }
            }

            /// Its name.
            pub(super) fn name(&self) -> &'static str {
                match self { $( Rule::$rule(_) => stringify!($rule), )* }
            }
        }
    };
}

rules! { Sgd Adam AdamW RmsProp Adagrad Lion }

/// What a step does besides following its rule.
pub(super) enum Gradients<'a> {
    /// Gradients are taken as they are, at the step of this number.
    Plain(u64),
    /// They have this factor, and their norm is at most that; the number of calls, and of those that were skipped.
    Clipped { scale: &'a Tensor<f32>, most: f64, calls: u64, skipped: &'a mut Tensor<f32> },
}

/// Calls an update, or its clipped twin, with these states; `t` where it counts steps.
macro_rules! call {
    ($how:ident, $plain:ident, $clipped:ident, $p:ident, $states:ident, [$($s:ident),*], $g:ident, [$($option:expr),*]) => {{
        let [$($s),*] = $states else { unreachable!("the states are those of the rule") };
        match $how {
            Gradients::Plain(_) => update::$plain($p, $($s,)* $g, $($option),*),
            Gradients::Clipped { scale, most, skipped, .. } => {
                update::$clipped($p, $($s,)* skipped, $g, scale, most as f32, $($option),*)
            }
        }
    }};
    ($how:ident, $plain:ident, $clipped:ident, $p:ident, $states:ident, [$($s:ident),*], $g:ident, t, [$($option:expr),*]) => {{
        let [$($s),*] = $states else { unreachable!("the states are those of the rule") };
        match $how {
            Gradients::Plain(t) => update::$plain($p, $($s,)* $g, t as f32, $($option),*),
            Gradients::Clipped { scale, most, calls, skipped } => {
                update::$clipped($p, $($s,)* skipped, $g, scale, most as f32, calls as f32, $($option),*)
            }
        }
    }};
}

impl Rule {
    /// Names of its states, as in PyTorch, and what they begin with.
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

    /// What kernels of Adam take, if that is the rule.
    pub(super) fn adam<'a>(&self, lr: &'a Tensor<f32>) -> Option<AdamNumbers<'a>> {
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
            lr,
            fresh: betas.map(fresh),
            logs: betas.map(|beta| beta.ln() as f32),
            eps: eps as f32,
            up: sign(maximize),
            l2: l2 as f32,
            decay: decay as f32,
        })
    }

    /// What its state is stored in.
    pub(super) fn precision(&self) -> Precision {
        match self {
            Rule::Adam(options) => options.state,
            Rule::AdamW(options) => options.state,
            Rule::Sgd(_) | Rule::RmsProp(_) | Rule::Adagrad(_) | Rule::Lion(_) => Precision::F32,
        }
    }

    /// One step of this rate: a launch, or two if gradients are clipped.
    pub(super) fn step(
        &self,
        p: &mut Tensor<f32>,
        states: &mut [Tensor<f32>],
        g: &Tensor<f32>,
        lr: &Tensor<f32>,
        how: Gradients<'_>,
    ) -> Result<()> {
        match *self {
            Rule::Sgd(options) => options.step(p, states, g, lr, how),
            Rule::Adam(_) | Rule::AdamW(_) => match self.adam(lr) {
                Some(numbers) => numbers.step(p, states, g, how),
                None => unreachable!("the rule is Adam"),
            },
            Rule::RmsProp(options) => options.step(p, states, g, lr, how),
            Rule::Adagrad(options) => {
                let Adagrad { lr_decay, weight_decay, eps, maximize, .. } = options;
                call!(
                    how,
                    adagrad,
                    adagrad_clipped,
                    p,
                    states,
                    [s],
                    g,
                    t,
                    [lr, lr_decay as f32, eps as f32, sign(maximize), weight_decay as f32]
                )
            }
            Rule::Lion(Lion { betas: [beta1, beta2], weight_decay, maximize, .. }) => {
                call!(
                    how,
                    lion,
                    lion_clipped,
                    p,
                    states,
                    [m],
                    g,
                    [lr, fresh(beta1), fresh(beta2), sign(maximize), weight_decay as f32]
                )
            }
        }
    }
}

impl Sgd {
    fn step(
        self,
        p: &mut Tensor<f32>,
        states: &mut [Tensor<f32>],
        g: &Tensor<f32>,
        lr: &Tensor<f32>,
        how: Gradients<'_>,
    ) -> Result<()> {
        let Sgd { momentum, dampening, weight_decay, nesterov, maximize, .. } = self;
        let (up, l2) = (sign(maximize), weight_decay as f32);
        if momentum == 0.0 {
            return call!(how, sgd, sgd_clipped, p, states, [], g, [lr, up, l2]);
        }
        call!(
            how,
            sgd_momentum,
            sgd_momentum_clipped,
            p,
            states,
            [b],
            g,
            t,
            [lr, momentum as f32, fresh(dampening), nesterov, up, l2]
        )
    }
}

impl RmsProp {
    fn step(
        self,
        p: &mut Tensor<f32>,
        states: &mut [Tensor<f32>],
        g: &Tensor<f32>,
        lr: &Tensor<f32>,
        how: Gradients<'_>,
    ) -> Result<()> {
        let RmsProp { alpha, eps, weight_decay, momentum, centered, maximize, .. } = self;
        let (fresh, eps, up, l2) = (fresh(alpha), eps as f32, sign(maximize), weight_decay as f32);
        let kept = momentum as f32;
        match (centered, momentum != 0.0) {
            (false, false) => {
                call!(how, rmsprop, rmsprop_clipped, p, states, [v], g, [lr, fresh, eps, up, l2])
            }
            (false, true) => call!(
                how,
                rmsprop_momentum,
                rmsprop_momentum_clipped,
                p,
                states,
                [v, b],
                g,
                [kept, lr, fresh, eps, up, l2]
            ),
            (true, false) => call!(
                how,
                rmsprop_centered,
                rmsprop_centered_clipped,
                p,
                states,
                [v, a],
                g,
                [lr, fresh, eps, up, l2]
            ),
            (true, true) => call!(
                how,
                rmsprop_centered_momentum,
                rmsprop_centered_momentum_clipped,
                p,
                states,
                [v, a, b],
                g,
                [kept, lr, fresh, eps, up, l2]
            ),
        }
    }
}

/// What kernels of Adam take, whose weight decay is coupled or not.
#[derive(Clone, Copy)]
pub(super) struct AdamNumbers<'a> {
    pub(super) lr: &'a Tensor<f32>,
    pub(super) fresh: [f32; 2],
    /// Logarithms of betas.
    pub(super) logs: [f32; 2],
    pub(super) eps: f32,
    pub(super) up: f32,
    pub(super) l2: f32,
    pub(super) decay: f32,
}

/// Calls an update with what is given and then these numbers.
macro_rules! with_numbers {
    ($numbers:expr, $update:path, $($argument:expr),+ $(,)?) => {{
        let $crate::optim::rule::AdamNumbers { lr, fresh: [fresh1, fresh2], logs: [log1, log2], eps, up, l2, decay } =
            $numbers;
        $update($($argument,)+ lr, fresh1, log1, fresh2, log2, eps, up, l2, decay)
    }};
}
pub(super) use with_numbers;

impl AdamNumbers<'_> {
    fn step(
        self,
        p: &mut Tensor<f32>,
        states: &mut [Tensor<f32>],
        g: &Tensor<f32>,
        how: Gradients<'_>,
    ) -> Result<()> {
        let AdamNumbers { lr, fresh: [fresh1, fresh2], logs: [log1, log2], eps, up, l2, decay } = self;
        match states {
            [_, _] => call!(
                how,
                adam,
                adam_clipped,
                p,
                states,
                [m, v],
                g,
                t,
                [lr, fresh1, log1, fresh2, log2, eps, up, l2, decay]
            ),
            _ => call!(
                how,
                amsgrad,
                amsgrad_clipped,
                p,
                states,
                [m, v, w],
                g,
                t,
                [lr, fresh1, log1, fresh2, log2, eps, up, l2, decay]
            ),
        }
    }
}

/// What is taken of something new where so much of the old is kept.
fn fresh(kept: f64) -> f32 {
    (1.0 - kept) as f32
}

fn sign(maximize: bool) -> f32 {
    if maximize { -1.0 } else { 1.0 }
}
