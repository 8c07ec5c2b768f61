//! Optimizers that update all parameters of a model in one launch.
//!
//! Parameters, gradients and state lie in an [`Arena`] each: named tensors one after another in one allocation. A step is one
//! kernel over the whole of it, on any device; where gradients are clipped or scaled, one or two take their norm before. A group of parameters with
//! options of its own is an arena and an [`Optimizer`] of its own.
//!
//! ```
//! use fusion_runtime::optim::{AdamW, Arena, Optimizer};
//! use fusion_runtime::{Device, Tensor};
//!
//! # fn main() -> fusion_runtime::Result<()> {
//! let device = Device::cpu();
//! let weight = Tensor::full(&device, 1.0, [3, 2])?;
//! let mut params = Arena::new(&device, [("weight", &weight), ("bias", &Tensor::zeros(&device, [2])?)])?;
//! let mut grads = params.zeros_like()?;
//! let mut optimizer = Optimizer::new(AdamW { lr: 0.1, ..AdamW::default() }, &params)?;
//! for _ in 0..3 {
//!     // The gradient of half the sum of squares is the weight itself.
//!     let gradient = params["weight"].clone();
//!     grads.set("weight", &gradient)?;
//!     drop(gradient);
//!     optimizer.step(&mut params, &grads)?;
//! }
//! assert!((params["weight"].to_vec()?[0] - 0.7).abs() < 0.01);
//! # Ok(())
//! # }
//! ```
//!
//! Modules: `arena` is memory, `rule` what PyTorch calls an optimizer's options, `update` the formulas, `blocks` states of 8 bits,
//! `halves` of 16, `follow` copies and averages, `scaler` loss scales, `schedule` learning rates, `file` what is saved, `options` the text of what rules have there, `statistics` bytes and bandwidth.

mod arena;
mod blocks;
mod file;
mod follow;
mod halves;
#[cfg(all(test, feature = "cuda"))]
mod large;
#[cfg(test)]
mod launches;
mod optimizer;
mod options;
mod rule;
mod scaler;
mod schedule;
mod statistics;
mod update;

pub use arena::Arena;
pub use optimizer::Optimizer;
pub use rule::{Adagrad, Adam, AdamW, Lion, Precision, RmsProp, Rule, Sgd};
pub use scaler::GradScaler;
pub use schedule::Schedule;
pub use statistics::{Measured, Statistics};
