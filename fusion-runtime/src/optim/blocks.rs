//! State of Adam in 8 bits: a code for each element, and the largest of each block as the unit of its codes.

use super::Arena;
use super::arena::BLOCK;
use super::rule::{AdamNumbers, with_numbers};
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
    pub(super) numbers: AdamNumbers<'a>,
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
        let Given { numbers, factor, skipped, calls } = given;
        let Blocks { mean, squares, units: [m_unit, v_unit] } = self;
        let (shape, large) = (mean.shape().clone(), mean.len());
        let blocks = g.part(0, shape.clone());
        p.lend(0, shape, |p| {
            with_numbers!(
                numbers,
                update::adam_8bit,
                p,
                mean,
                squares,
                m_unit,
                v_unit,
                &blocks,
                factor,
                skipped,
                calls as u32,
                calls as f32,
            )
        })?;
        let others = Shape::from([p.len() - large]);
        let g = g.part(large, others.clone());
        p.lend(large, others, |p| {
            with_numbers!(numbers, update::adam_given, p, m, v, &g, factor, skipped, calls as f32)
        })
    }

    /// Bytes for each element of the blocks.
    pub(super) fn bytes(&self) -> usize {
        let units: usize = self.units.iter().map(|unit| unit.len() * size_of::<f32>()).sum();
        self.mean.len() + self.squares.len() + units
    }
}
