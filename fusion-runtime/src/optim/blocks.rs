//! State of Adam in 8 bits: a code for each element, and the largest of each block as the unit of its codes.
//!
//! Small tensors are in no block and have means of their own; a step is one launch for both.

use super::Arena;
use super::arena::BLOCK;
use super::rule::{AdamNumbers, Gradients, Step};
use super::update;
use crate::device::Device;
use crate::error::Result;
use crate::shape::Shape;
use crate::tensor::{Float, Tensor};

/// The means of the large tensors of an arena.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) mean: Tensor<u8>,
    pub(super) squares: Tensor<u8>,
    /// Of each block that of means, in the high half, and that of squares, as bits of `bf16`.
    units: Tensor<u32>,
    /// What gradients are multiplied by, and how many steps were skipped, where neither is asked for.
    one: Tensor<f32>,
    none: Tensor<f32>,
}

impl Blocks {
    pub(super) fn new(params: &Arena) -> Result<Blocks> {
        let (device, count) = (params.device(), params.large() / BLOCK);
        Ok(Blocks {
            mean: Tensor::zeros(device, [count, BLOCK])?,
            squares: Tensor::zeros(device, [count, BLOCK])?,
            units: Tensor::zeros(device, [count])?,
            one: Tensor::full(device, 1.0, [])?,
            none: Tensor::zeros(device, [])?,
        })
    }

    pub(super) fn to(&self, device: &Device) -> Result<Blocks> {
        Ok(Blocks {
            mean: self.mean.to(device)?,
            squares: self.squares.to(device)?,
            units: self.units.to(device)?,
            one: self.one.to(device)?,
            none: self.none.to(device)?,
        })
    }

    /// Units of means and of squares.
    pub(super) fn units(&self) -> Result<[Vec<f32>; 2]> {
        let both = self.units.to_vec()?;
        let units =
            |shift: u32| both.iter().map(|both| f32::from_bits(both << shift & 0xffff_0000)).collect();
        Ok([units(0), units(16)])
    }

    /// Takes units of means and of squares, that are as `units` gives them.
    pub(super) fn set_units(&mut self, [mean, squares]: [&[f32]; 2]) -> Result<()> {
        let both = mean.iter().zip(squares);
        let both: Vec<u32> = both.map(|(m, v)| m.to_bits() & 0xffff_0000 | v.to_bits() >> 16).collect();
        self.units = Tensor::from_vec(self.units.device(), both, self.units.shape())?;
        Ok(())
    }

    /// One launch, with these means of what is in no block; two more, for the norm, if gradients are clipped.
    pub(super) fn step<T: Float>(
        &mut self,
        [m, v]: [&mut Tensor<f32>; 2],
        numbers: AdamNumbers,
        step: Step<'_, T>,
    ) -> Result<()> {
        let AdamNumbers { fresh: [fresh1, fresh2], logs: [log1, log2], eps, up, l2, decay } = numbers;
        let Step { p, g, lr, how, followed } = step;
        let Blocks { mean, squares, units, one, none } = self;
        let factor;
        let (factor, skipped, calls) = match how {
            Gradients::Plain(calls) => (&*one, &*none, calls),
            Gradients::Clipped { scale, most, calls, skipped } => {
                factor = update::factor(skipped, g, scale, most as f32)?;
                (&factor, &*skipped, calls)
            }
        };
        let (seed, calls) = (calls as u32, calls as f32);
        let rows = Shape::from([p.len() / BLOCK, BLOCK]);
        let g = &g.part(0, rows.clone());
        p.lend(0, rows.clone(), |p| match followed {
            None => update::adam_8bit(
                p, mean, squares, units, m, v, g, factor, skipped, calls, lr, fresh1, log1, fresh2, log2,
                eps, up, l2, decay, seed,
            ),
            Some((q, taken)) => q.lend(0, rows, |q| {
                update::adam_8bit_followed(
                    p, mean, squares, units, m, v, q, g, taken, factor, skipped, calls, lr, fresh1, log1,
                    fresh2, log2, eps, up, l2, decay, seed,
                )
            }),
        })
    }

    /// Bytes for each element of the blocks.
    pub(super) fn bytes(&self) -> usize {
        self.mean.len() + self.squares.len() + self.units.len() * size_of::<u32>()
    }
}
