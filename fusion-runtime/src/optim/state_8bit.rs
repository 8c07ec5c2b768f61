//! 8-bit state of Adam: a code per element, and a scale per block, which is the largest value of the block.
//!
//! Small tensors have `f32` moments instead of blocks, and a launch of their own.

use super::Arena;
use super::arena::BLOCK;
use super::rule::{AdamNumbers, UpdateArgs, call};
use super::update;
use crate::device::Device;
use crate::error::Result;
use crate::tensor::{Float, Tensor};

/// Minimum of `eps`, so that 0 divided by 0 gives 0. The constant is far below the root of any number.
const EPS_MIN: f32 = 1e-30;

/// The moments of the large tensors of an arena.
#[derive(Debug)]
pub(super) struct State8Bit {
    /// Codes of each element: the first moment in the low byte, the second in the high byte.
    codes: Tensor<u16>,
    /// Scales of each block, as bits of `bf16`: the first moment's in the high half, the second's in the low
    /// half.
    units: Tensor<u32>,
}

impl State8Bit {
    pub(super) fn new(params: &Arena) -> Result<State8Bit> {
        let (device, count) = (params.device(), params.large() / BLOCK);
        Ok(State8Bit {
            codes: Tensor::zeros(device, [count, BLOCK])?,
            units: Tensor::zeros(device, [count])?,
        })
    }

    pub(super) fn to(&self, device: &Device) -> Result<State8Bit> {
        Ok(State8Bit { codes: self.codes.to(device)?, units: self.units.to(device)? })
    }

    /// Returns the codes of the first and of the second moment.
    pub(super) fn codes(&self) -> Result<[Vec<u8>; 2]> {
        let both = self.codes.to_vec()?;
        let codes = |shift: u32| both.iter().map(|both| (both >> shift) as u8).collect();
        Ok([codes(0), codes(8)])
    }

    /// Sets the codes of the first and of the second moment.
    pub(super) fn set_codes(&mut self, [mean, squares]: [&[u8]; 2]) -> Result<()> {
        let both = mean.iter().zip(squares).map(|(&m, &v)| u16::from_le_bytes([m, v])).collect();
        self.codes = Tensor::from_vec(self.codes.device(), both, self.codes.shape())?;
        Ok(())
    }

    /// Returns the scales of the first and of the second moment.
    pub(super) fn units(&self) -> Result<[Vec<f32>; 2]> {
        let both = self.units.to_vec()?;
        let units =
            |shift: u32| both.iter().map(|both| f32::from_bits(both << shift & 0xffff_0000)).collect();
        Ok([units(0), units(16)])
    }

    /// Sets the scales of the first and of the second moment. The scales must be values that `units` returns.
    pub(super) fn set_units(&mut self, [mean, squares]: [&[f32]; 2]) -> Result<()> {
        let both = mean.iter().zip(squares);
        let both: Vec<u32> = both.map(|(m, v)| m.to_bits() & 0xffff_0000 | v.to_bits() >> 16).collect();
        self.units = Tensor::from_vec(self.units.device(), both, self.units.shape())?;
        Ok(())
    }

    /// Runs one step as two launches: one over the blocks, and one over the small tensors with these moments.
    pub(super) fn step<T: Float>(
        &mut self,
        small: &mut [Tensor<f32>],
        numbers: AdamNumbers,
        mut step: UpdateArgs<'_, T>,
    ) -> Result<()> {
        // Elements without a gradient so far do not move, nor does the padding of the last block. A NaN would
        // destroy its block.
        let numbers = AdamNumbers { eps: numbers.eps.max(EPS_MIN), ..numbers };
        let AdamNumbers { fresh: [fresh1, fresh2], logs: [log1, log2], eps, up, l2, decay } = numbers;
        let State8Bit { codes, units } = self;
        let (large, all, seed) = (codes.len(), step.p.len(), step.calls as u32);
        step.over(0, codes.shape().clone(), |blocks| {
            call!(
                blocks,
                [adam_8bit adam_8bit_followed],
                [codes, units],
                [fresh1, log1, fresh2, log2, eps, up, l2, decay, seed]
            )
        })?;
        step.over(large, [all - large].into(), |rest| numbers.step(small, rest))
    }

    /// Returns the size of codes and scales in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.codes.len() * size_of::<u16>() + self.units.len() * size_of::<u32>()
    }
}
