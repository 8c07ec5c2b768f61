//! Matrices of pseudo-random numbers, and comparisons with sums in `f64`.

use fusion::prelude::*;

/// Returns pseudo-random numbers from -1 to 1, the same for the same seed.
pub(crate) fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = seed as u32 ^ 0x9e37_79b9;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Compares each element with its terms' sum. Sums of few terms are exact. `NaN` equals itself.
#[track_caller]
pub(crate) fn check(
    what: &str,
    made: &Tensor<f32>,
    terms: impl Fn(&[usize]) -> Vec<f64>,
    finish: fn(f64) -> f64,
) -> Result<()> {
    let shape = made.shape().to_vec();
    for (i, made) in made.to_vec()?.into_iter().enumerate() {
        let mut at = vec![0; shape.len()];
        let mut rest = i;
        for (at, extent) in at.iter_mut().zip(&shape).rev() {
            (*at, rest) = (rest % extent, rest / extent);
        }
        let terms = terms(&at);
        let size: f64 = terms.iter().map(|term| term.abs()).sum();
        let expected = finish(terms.iter().sum());
        let is_near = size.is_finite() && (f64::from(made) - expected).abs() <= 3e-6 * (size + 1.0);
        let is_same = f64::from(made) == expected || made.is_nan() && expected.is_nan();
        assert!(is_near || is_same, "{what} {shape:?}: {made} at {at:?}, not {expected}");
    }
    Ok(())
}

pub(crate) fn same(sum: f64) -> f64 {
    sum
}

/// A matrix or a batch of them, with its numbers.
pub(crate) struct Numbers {
    pub(crate) elements: Vec<f32>,
    pub(crate) shape: Vec<usize>,
}

impl Numbers {
    pub(crate) fn new(seed: usize, shape: &[usize]) -> Numbers {
        Numbers { elements: numbers(seed, shape.iter().product()), shape: shape.to_vec() }
    }

    pub(crate) fn on(&self, device: &Device) -> Result<Tensor<f32>> {
        Tensor::from_slice(device, &self.elements, self.shape.as_slice())
    }

    pub(crate) fn offset(&self, at: &[usize]) -> usize {
        self.shape.iter().zip(at).fold(0, |offset, (extent, at)| offset * extent + at)
    }

    pub(crate) fn at(&self, at: &[usize]) -> f64 {
        f64::from(self.elements[self.offset(at)])
    }
}
