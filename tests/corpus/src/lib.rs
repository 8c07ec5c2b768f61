//! Random functions in the language of `fuse!`, compiled by `cargo build`, and the items that their tests
//! share.

use fusion::run::Arg;
use fusion::{Device, Result, Tensor};

pub mod generate;

/// An argument of a corpus function.
#[derive(Clone, Debug)]
pub enum Argument {
    /// `f32[…]`.
    Floats(Tensor<f32>),
    /// `i32[…]`.
    Ints(Tensor<i32>),
    /// `f32`.
    Float(f32),
    /// `i32`.
    Int(i32),
}

/// Calls a function of the corpus and returns its in-place result, then the returned ones.
pub type Call = fn(&mut [Argument]) -> Result<Vec<Tensor<f32>>>;

impl Argument {
    /// Returns the argument in the executor's form, in place if `mutable`.
    pub fn arg(&mut self, mutable: Access) -> Arg<'_> {
        match (self, mutable) {
            (Argument::Floats(tensor), Access::Written) => Arg::from(tensor),
            (Argument::Floats(tensor), Access::Read) => Arg::from(&*tensor),
            (Argument::Ints(tensor), _) => Arg::from(&*tensor),
            (Argument::Float(x), _) => Arg::from(*x),
            (Argument::Int(x), _) => Arg::from(*x),
        }
    }

    /// Copies the argument to a device.
    ///
    /// # Panics
    /// Panics if the device has no room for the copy.
    #[must_use]
    pub fn to(&self, device: &Device) -> Argument {
        match self {
            Argument::Floats(tensor) => Argument::Floats(tensor.to(device).expect("the device has room")),
            Argument::Ints(tensor) => Argument::Ints(tensor.to(device).expect("the device has room")),
            Argument::Float(x) => Argument::Float(*x),
            Argument::Int(x) => Argument::Int(*x),
        }
    }

    fn floats(&mut self) -> &mut Tensor<f32> {
        let Argument::Floats(tensor) = self else { unreachable!("it is made for its parameter") };
        tensor
    }

    fn ints(&mut self) -> &mut Tensor<i32> {
        let Argument::Ints(tensor) = self else { unreachable!("it is made for its parameter") };
        tensor
    }

    fn float(&self) -> f32 {
        let Argument::Float(x) = self else { unreachable!("it is made for its parameter") };
        *x
    }

    fn int(&self) -> i32 {
        let Argument::Int(x) = self else { unreachable!("it is made for its parameter") };
        *x
    }
}

/// The access of a function to an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The function reads the argument.
    Read,
    /// The function writes the argument in place.
    Written,
}

include!(concat!(env!("OUT_DIR"), "/corpus.rs"));
