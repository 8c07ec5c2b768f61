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

/// What a step is divided by at least, so that nothing by nothing is nothing: far below the root of any number.
const EPS_MIN: f32 = 1e-30;

/// The means of the large tensors of an arena.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Of each element that of the mean, in the low half, and that of the squares.
    codes: Tensor<u16>,
    /// Of each block that of means, in the high half, and that of squares, as bits of `bf16`.
    units: Tensor<u32>,
}

impl Blocks {
    pub(super) fn new(params: &Arena) -> Result<Blocks> {
        let (device, count) = (params.device(), params.large() / BLOCK);
        Ok(Blocks { codes: Tensor::zeros(device, [count, BLOCK])?, units: Tensor::zeros(device, [count])? })
    }

    pub(super) fn to(&self, device: &Device) -> Result<Blocks> {
        Ok(Blocks { codes: self.codes.to(device)?, units: self.units.to(device)? })
    }

    /// Codes of means and of squares.
    pub(super) fn codes(&self) -> Result<[Vec<u8>; 2]> {
        let both = self.codes.to_vec()?;
        let codes = |shift: u32| both.iter().map(|both| (both >> shift) as u8).collect();
        Ok([codes(0), codes(8)])
    }

    /// Takes codes of means and of squares.
    pub(super) fn set_codes(&mut self, [mean, squares]: [&[u8]; 2]) -> Result<()> {
        let both = mean.iter().zip(squares).map(|(&m, &v)| u16::from_le_bytes([m, v])).collect();
        self.codes = Tensor::from_vec(self.codes.device(), both, self.codes.shape())?;
        Ok(())
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

    /// One launch, with these means of what is in no block; one before, for the norm, if gradients are clipped.
    pub(super) fn step<T: Float>(
        &mut self,
        [m, v]: [&mut Tensor<f32>; 2],
        numbers: AdamNumbers,
        step: Step<'_, T>,
    ) -> Result<()> {
        let AdamNumbers { fresh: [fresh1, fresh2], logs: [log1, log2], eps, up, l2, decay } = numbers;
        // What has no gradient yet stays where it is, as what fills the last block does: one that is no number would spoil its block.
        let eps = eps.max(EPS_MIN);
        let Step { p, g, lr, how, followed } = step;
        let Blocks { codes, units } = self;
        let rows = Shape::from([p.len() / BLOCK, BLOCK]);
        let g = &g.part(0, rows.clone());
        p.lend(0, rows.clone(), |p| match (how, followed) {
            (Gradients::Plain(t), None) => update::adam_8bit(
                p, codes, units, m, v, g, t as f32, lr, fresh1, log1, fresh2, log2, eps, up, l2, decay,
                t as u32,
            ),
            (Gradients::Clipped { scale, most, calls, skipped }, None) => update::adam_8bit_clipped(
                p,
                codes,
                units,
                m,
                v,
                skipped,
                g,
                scale,
                most as f32,
                calls as f32,
                lr,
                fresh1,
                log1,
                fresh2,
                log2,
                eps,
                up,
                l2,
                decay,
                calls as u32,
            ),
            (Gradients::Plain(t), Some((q, taken))) => q.lend(0, rows, |q| {
                update::adam_8bit_followed(
                    p, codes, units, m, v, q, g, taken, t as f32, lr, fresh1, log1, fresh2, log2, eps, up,
                    l2, decay, t as u32,
                )
            }),
            (Gradients::Clipped { scale, most, calls, skipped }, Some((q, taken))) => q.lend(0, rows, |q| {
                update::adam_8bit_followed_clipped(
                    p,
                    codes,
                    units,
                    m,
                    v,
                    q,
                    skipped,
                    g,
                    scale,
                    most as f32,
                    taken,
                    calls as f32,
                    lr,
                    fresh1,
                    log1,
                    fresh2,
                    log2,
                    eps,
                    up,
                    l2,
                    decay,
                    calls as u32,
                )
            }),
        })
    }

    /// Bytes for each element of the blocks.
    pub(super) fn bytes(&self) -> usize {
        self.codes.len() * size_of::<u16>() + self.units.len() * size_of::<u32>()
    }
}
