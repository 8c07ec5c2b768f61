//! Optimizers that update all parameters of a model in one or two launches.
//!
//! Parameters, gradients and state are stored in an [`Arena`] each: named tensors in one allocation. A step
//! is one kernel over the whole arena, on any device. With 8-bit states it is two kernels: one for large
//! tensors, and one for small tensors. Gradient clipping or loss scaling adds one or two launches for the
//! norm. A parameter group with its own options is an arena and an [`Optimizer`] of its own.
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
//! | module | contents |
//! |---|---|
//! | `arena` | memory |
//! | `optimizer` | the optimizer of one parameter group |
//! | `rule` | update rules with PyTorch's options |
//! | `update` | the update formulas |
//! | `state_8bit`, `state_bf16` | states of 8 and of 16 bits |
//! | `shadow_copy` | copies and averages of parameters |
//! | `scaler` | loss scaling |
//! | `schedule` | learning rates by step |
//! | `file`, `options` | checkpoints, and options as text in them |
//! | `statistics` | memory and bandwidth |

mod arena;
mod file;
#[cfg(all(test, feature = "cuda"))]
mod large;
#[cfg(test)]
mod launches;
mod optimizer;
mod options;
mod rule;
mod scaler;
mod schedule;
mod shadow_copy;
mod state_8bit;
mod state_bf16;
mod statistics;
mod update;

pub use arena::Arena;
pub use optimizer::Optimizer;
pub use rule::{Adagrad, Adam, AdamW, Lion, Precision, RmsProp, Rule, Sgd};
pub use scaler::GradScaler;
pub use schedule::Schedule;
pub use statistics::{Measured, Statistics};
