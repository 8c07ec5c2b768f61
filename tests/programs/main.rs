//! Adversarial programs agree with references written in plain Rust, on every device, fused and unfused.
//!
//! Elements are multiples of 1/8 up to 4, so that sums and products of a few are exact and compared for
//! equality.

use devices::on_devices;
use fusion::prelude::*;

/// Defines the same functions twice: as written in `fused`, and with a kernel for each operation in
/// `unfused`.
///
/// Each exported function stands in braces of its own, after the templates that all of them may call.
macro_rules! both {
    ($(templates { $($template:tt)* })? $({ $($function:tt)* })*) => {
        pub(crate) mod fused {
            fusion::fuse! { $($($template)*)? $($($function)*)* }
        }
        pub(crate) mod unfused {
            fusion::fuse! { $($($template)*)? $(#[fuse(off)] $($function)*)* }
        }
    };
}

#[path = "../devices/mod.rs"]
mod devices;
mod errors;
mod forms;
mod in_place;
mod numbers;
mod outputs;
mod shapes;

/// A tensor on the host: extents and elements, outermost dim first.
#[derive(Clone, Debug)]
struct Host {
    shape: Vec<usize>,
    elements: Vec<f32>,
}

impl Host {
    /// Creates a tensor of pseudo-random elements, the same for the same seed.
    fn new(seed: u32, shape: &[usize]) -> Host {
        let element = |i: usize| {
            let mixed = (i as u32 ^ seed << 24).wrapping_mul(0x9e37_79b1);
            let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca77);
            ((mixed >> 16) % 65) as f32 / 8.0 - 4.0
        };
        Host { shape: shape.to_vec(), elements: (0..shape.iter().product()).map(element).collect() }
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
}

/// Returns all positions of a shape, in the order of its elements.
fn positions(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..shape.iter().product()).map(move |number: usize| {
        let mut rest = number;
        let mut at: Vec<usize> = shape
            .iter()
            .rev()
            .map(|extent| {
                let coordinate = rest % extent;
                rest /= extent;
                coordinate
            })
            .collect();
        at.reverse();
        at
    })
}

/// Asserts the shape and every element of a tensor, given the exact value at each position.
#[track_caller]
fn check(tensor: &Tensor<f32>, shape: &[usize], expected: impl Fn(&[usize]) -> f64) -> Result<()> {
    assert_eq!(tensor.shape().dims(), shape, "shape on {}", tensor.device().name());
    let got = tensor.to_vec()?;
    assert_eq!(got.len(), shape.iter().product::<usize>());
    for (at, got) in positions(shape).zip(got) {
        let expected = expected(&at) as f32;
        assert!(got == expected, "{got}, not {expected}, at {at:?} on {}", tensor.device().name());
    }
    Ok(())
}
