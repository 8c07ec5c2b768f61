//! Reductions along rows of any length agree with plain loops in f64, on every device.
//!
//! Invariant: only the error of f32 arithmetic is allowed. The bound is 2⁻²⁴ of the sum of magnitudes for
//! each addition that an element takes part in.

#[path = "../devices/mod.rs"]
mod devices;

mod bits;
mod clusters;
mod columns;
mod dims;
mod edges;
mod elsewhere;
mod global_then_rows;
mod lengths;
mod losses;
mod narrow;
mod one_hot_gathers;
mod products;
mod results;
mod split;
mod unaligned;
mod unstaged;

use fusion::prelude::*;

/// Largest error of one rounding, relative to the rounded value.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// A tensor on the host: extents and elements, outermost dim first.
#[derive(Clone, Debug)]
struct Host {
    shape: Vec<usize>,
    elements: Vec<f32>,
}

impl Host {
    /// Creates a tensor of pseudo-random numbers from −2 to 2, the same for the same seed (Knuth's generator,
    /// as in Numerical Recipes).
    fn new(seed: u32, shape: &[usize]) -> Host {
        let mut state = seed;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 22) as f32 - 2.0
        };
        let count = shape.iter().product();
        Host { shape: shape.to_vec(), elements: std::iter::repeat_with(next).take(count).collect() }
    }

    fn of(shape: &[usize], elements: impl Into<Vec<f32>>) -> Host {
        Host { shape: shape.to_vec(), elements: elements.into() }
    }

    fn on(&self, device: &Device) -> Result<Tensor<f32>> {
        Tensor::from_slice(device, &self.elements, self.shape.as_slice())
    }

    /// Returns the element at a position.
    fn at(&self, at: &[usize]) -> f64 {
        assert_eq!(at.len(), self.shape.len(), "a position has as many coordinates as there are dims");
        let offset = at.iter().zip(&self.shape).fold(0, |offset, (at, extent)| offset * extent + at);
        f64::from(self.elements[offset])
    }

    /// Returns the rows along the innermost dim, in f64.
    fn rows(&self) -> impl Iterator<Item = Vec<f64>> {
        let (&len, outer) = self.shape.split_last().expect("it has rows");
        let row = move |i: usize| &self.elements[i * len..][..len];
        (0..outer.iter().product()).map(move |i| row(i).iter().map(|&x| f64::from(x)).collect())
    }
}

/// Returns all positions of a shape, in the order of its elements.
fn positions(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = shape.to_vec();
    (0..shape.iter().product()).map(move |number: usize| {
        let mut rest = number;
        let mut at = vec![0; shape.len()];
        for (coordinate, extent) in at.iter_mut().zip(&shape).rev() {
            *coordinate = rest % extent;
            rest /= extent;
        }
        at
    })
}

/// A sum of terms, with the sum of their magnitudes.
#[derive(Clone, Copy, Debug, Default)]
struct ReferenceSum {
    value: f64,
    magnitude: f64,
    terms: usize,
}

impl ReferenceSum {
    fn of(terms: impl IntoIterator<Item = f64>) -> ReferenceSum {
        let mut sum = ReferenceSum::default();
        terms.into_iter().for_each(|term| sum.add(term));
        sum
    }

    fn add(&mut self, term: f64) {
        self.value += term;
        self.magnitude += term.abs();
        self.terms += 1;
    }

    /// Returns the bound of the value's error. Schedules combine at least 32 elements in parallel along one
    /// dim.
    fn bound(&self) -> f64 {
        roundings(self.terms) * UNIT * self.magnitude
    }
}

/// Returns the number of additions that an element of a row takes part in, plus a few roundings.
fn roundings(terms: usize) -> f64 {
    (terms / 32 + 24) as f64
}

/// Returns the sums of `term` over the dims `over` of a space, one for each position along the other dims.
fn sums(shape: &[usize], over: &[usize], term: impl Fn(&[usize]) -> f64) -> Vec<ReferenceSum> {
    let left: Vec<usize> = (0..shape.len()).filter(|dim| !over.contains(dim)).collect();
    let mut sums = vec![ReferenceSum::default(); left.iter().map(|&dim| shape[dim]).product()];
    for at in positions(shape) {
        let place = left.iter().fold(0, |place, &dim| place * shape[dim] + at[dim]);
        sums[place].add(term(&at));
    }
    sums
}

/// Normalises a row to mean 0 and variance 1, as `layer_norm` does, and returns each element with its bound.
/// The sums have `roundings`.
fn normalized(row: &[f64], eps: f64, roundings: f64) -> Vec<(f64, f64)> {
    let (len, sum) = (row.len() as f64, ReferenceSum::of(row.iter().copied()));
    let mean = sum.value / len;
    let scale = (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / len + eps).sqrt().recip();
    let shift = roundings * UNIT * sum.magnitude / len;
    let element = |x: &f64| {
        let z = (x - mean) * scale;
        (z, shift * scale * (1.0 + z.abs()) + roundings * UNIT * z.abs())
    };
    row.iter().map(element).collect()
}

/// Asserts the shape and every element of a tensor, each within its own bound.
#[track_caller]
fn check(what: &str, tensor: &Tensor<f32>, shape: &[usize], expected: impl IntoIterator<Item = (f64, f64)>) {
    let place = format!("{what} of {shape:?} on {}", tensor.device().name());
    assert_eq!(tensor.shape().dims(), shape, "shape of {place}");
    let got = tensor.to_vec().expect("results can be read");
    let expected: Vec<(f64, f64)> = expected.into_iter().collect();
    assert_eq!(got.len(), expected.len(), "elements of {place}");
    for (i, (got, (expected, bound))) in got.into_iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs();
        assert!(error <= bound, "{place}: element {i} is {got}, not {expected} ± {bound:e}");
    }
}

/// Asserts sums whose terms may have been added in any order.
#[track_caller]
fn check_sums(what: &str, tensor: &Tensor<f32>, shape: &[usize], expected: &[ReferenceSum]) {
    let any_order = |sum: &ReferenceSum| (sum.value, (sum.terms + 24) as f64 * UNIT * sum.magnitude);
    check(what, tensor, shape, expected.iter().map(any_order));
}
