//! State of Adam in 16 bits: the means of all elements.

use half::bf16;

use super::Arena;
use super::blocks::Given;
use super::rule::with_numbers;
use super::update;
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

/// The means of gradients and of their squares.
#[derive(Debug)]
pub(super) struct Halves(pub(super) [Tensor<bf16>; 2]);

impl Halves {
    pub(super) fn new(params: &Arena) -> Result<Halves> {
        let zeros = || Tensor::zeros(params.device(), [params.flat().len()]);
        Ok(Halves([zeros()?, zeros()?]))
    }

    pub(super) fn to(&self, device: &Device) -> Result<Halves> {
        let [mean, squares] = &self.0;
        Ok(Halves([mean.to(device)?, squares.to(device)?]))
    }

    /// One launch.
    pub(super) fn step(&mut self, p: &mut Tensor<f32>, g: &Tensor<f32>, given: Given<'_>) -> Result<()> {
        let Given { numbers, factor, skipped, calls } = given;
        let [m, v] = &mut self.0;
        with_numbers!(numbers, update::adam_bf16, p, m, v, g, factor, skipped, calls as u32, calls as f32)
    }

    /// Bytes of both.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|mean| mean.len() * size_of::<bf16>()).sum()
    }
}
