//! 16-bit state of Adam: both moments of an element in one word, which a kernel loads and stores at once.

use half::bf16;

use super::Arena;
use super::rule::{AdamNumbers, UpdateArgs, call};
use super::update;
use crate::device::Device;
use crate::error::Result;
use crate::tensor::{Float, Tensor};

/// The moments: the first in the high half of each word, the second in the low half.
#[derive(Debug)]
pub(super) struct StateBf16(Tensor<u32>);

impl StateBf16 {
    pub(super) fn new(params: &Arena) -> Result<StateBf16> {
        Ok(StateBf16(Tensor::zeros(params.device(), [params.flat().len()])?))
    }

    /// Makes the state from the first and the second moment.
    pub(super) fn from_means(device: &Device, [mean, squares]: [&[bf16]; 2]) -> Result<StateBf16> {
        let both =
            |(mean, squares): (&bf16, &bf16)| u32::from(mean.to_bits()) << 16 | u32::from(squares.to_bits());
        let both: Vec<u32> = mean.iter().zip(squares).map(both).collect();
        let len = both.len();
        Ok(StateBf16(Tensor::from_vec(device, both, [len])?))
    }

    /// Returns the first and the second moment.
    pub(super) fn means(&self) -> Result<[Vec<bf16>; 2]> {
        let both = self.0.to_vec()?;
        let half = |shift: u32| both.iter().map(|both| bf16::from_bits((both >> shift) as u16)).collect();
        Ok([half(16), half(0)])
    }

    pub(super) fn to(&self, device: &Device) -> Result<StateBf16> {
        Ok(StateBf16(self.0.to(device)?))
    }

    /// Runs one step as one launch.
    pub(super) fn step<T: Float>(&mut self, numbers: AdamNumbers, step: UpdateArgs<'_, T>) -> Result<()> {
        let AdamNumbers { fresh: [fresh1, fresh2], logs: [log1, log2], eps, up, l2, decay } = numbers;
        let seed = step.calls as u32;
        call!(
            step,
            [adam_bf16 adam_bf16_followed],
            [&mut self.0],
            [fresh1, log1, fresh2, log2, eps, up, l2, decay, seed]
        )
    }

    /// Returns the size of both moments in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<u32>()
    }
}
