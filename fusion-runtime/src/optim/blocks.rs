//! State of Adam in 8 bits: a code for each element, and the largest of each block as the unit of its codes.

use super::Arena;
use super::arena::BLOCK;
use super::rule::AdamNumbers;
use super::update;
use crate::device::Device;
use crate::error::Result;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The means of the large tensors of an arena.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) mean: Tensor<u8>,
    pub(super) squares: Tensor<u8>,
    /// Of means and of squares, one a block.
    pub(super) units: [Tensor<f32>; 2],
}

/// What all launches of a step know.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) numbers: AdamNumbers,
    pub(super) lr: &'a Tensor<f32>,
    /// What gradients are multiplied by; below 0 where they are not finite.
    pub(super) factor: &'a Tensor<f32>,
    pub(super) skipped: &'a Tensor<f32>,
    pub(super) calls: u64,
}

impl Blocks {
    pub(super) fn new(params: &Arena) -> Result<Blocks> {
        let (device, count) = (params.device(), params.large() / BLOCK);
        let unit = || Tensor::zeros(device, [count]);
        let (mean, squares) =
            (Tensor::zeros(device, [count, BLOCK])?, Tensor::zeros(device, [count, BLOCK])?);
        Ok(Blocks { mean, squares, units: [unit()?, unit()?] })
    }

    pub(super) fn to(&self, device: &Device) -> Result<Blocks> {
        let [first, second] = &self.units;
        let units = [first.to(device)?, second.to(device)?];
        Ok(Blocks { mean: self.mean.to(device)?, squares: self.squares.to(device)?, units })
    }

    /// Two launches: over blocks, and over the tensors that have none, of which these are the means.
    pub(super) fn step(
        &mut self,
        p: &mut Tensor<f32>,
        [m, v]: [&mut Tensor<f32>; 2],
        g: &Tensor<f32>,
        given: Given<'_>,
    ) -> Result<()> {
        let Given { numbers, lr, factor, skipped, calls } = given;
        let AdamNumbers { fresh: [fresh1, fresh2], logs: [log1, log2], eps, up, l2, decay } = numbers;
        let (seed, calls) = (calls as u32, calls as f32);
        let Blocks { mean, squares, units: [m_unit, v_unit] } = self;
        let (shape, large) = (mean.shape().clone(), mean.len());
        let blocks = g.part(0, shape.clone());
        p.lend(0, shape, |p| {
            update::adam_8bit(
                p, mean, squares, m_unit, v_unit, &blocks, factor, skipped, seed, calls, lr, fresh1, log1,
                fresh2, log2, eps, up, l2, decay,
            )
        })?;
        let others = Shape::from([p.len() - large]);
        let g = g.part(large, others.clone());
        p.lend(large, others, |p| {
            update::adam_given(
                p, m, v, &g, factor, skipped, calls, lr, fresh1, log1, fresh2, log2, eps, up, l2, decay,
            )
        })
    }

    /// Bytes for each element of the blocks.
    pub(super) fn bytes(&self) -> usize {
        let units: usize = self.units.iter().map(|unit| unit.len() * size_of::<f32>()).sum();
        self.mean.len() + self.squares.len() + units
    }
}
