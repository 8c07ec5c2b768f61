//! Arguments of calls.

use fusion_compiler::ir::dtype::DType;

use crate::kernel::ScalarValue;
use crate::tensor::{Element, RawTensor, Tensor};

/// An argument of a call, in the order of `Plan::params`.
#[derive(Debug)]
pub enum Arg<'a> {
    /// A tensor that the call reads.
    Tensor(&'a RawTensor),
    /// A tensor that the call updates in place.
    TensorMut(&'a mut RawTensor),
    /// A number with its type.
    Scalar(DType, ScalarValue),
    /// An extent.
    Dim(usize),
}

impl<'a, T: Element> From<&'a Tensor<T>> for Arg<'a> {
    fn from(tensor: &'a Tensor<T>) -> Arg<'a> {
        Arg::Tensor(tensor.as_raw())
    }
}

impl<'a, T: Element> From<&'a mut Tensor<T>> for Arg<'a> {
    fn from(tensor: &'a mut Tensor<T>) -> Arg<'a> {
        Arg::TensorMut(tensor.as_raw_mut())
    }
}

impl<T: Element> From<T> for Arg<'_> {
    fn from(value: T) -> Self {
        Arg::Scalar(T::DTYPE, value.scalar())
    }
}

impl From<usize> for Arg<'_> {
    fn from(extent: usize) -> Self {
        Arg::Dim(extent)
    }
}

/// A number of the host that converts to the scalar type of a kernel.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`scalar(…)` takes a number of type `{T}` here, found `{Self}`",
    label = "not `{T}`",
    note = "a number of another type is cast, as in `scalar(x as {T})`; an expression of another type begins with it, as in `fuse!(i32: …)`"
)]
pub trait IntoScalar<T> {
    /// Returns the number in the type of the kernel.
    fn into_scalar(self) -> T;
}

// Each type implements `IntoScalar` for itself only. The type of a literal, and the target of an `into()`,
// follow.
macro_rules! scalars {
    ($($element:ty),*) => { $(
        #[diagnostic::do_not_recommend]
        impl IntoScalar<$element> for $element {
            fn into_scalar(self) -> $element {
                self
            }
        }
    )* };
}

scalars!(f32, half::f16, half::bf16, f64, i32, i16, i8, u32, u16, u8, bool);
