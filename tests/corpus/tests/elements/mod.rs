//! Tensors and scalars of several types as numbers in `f64`.
#![allow(dead_code, reason = "each test crate that includes this uses a part of it")]

use fusion::__private::RawTensor;
use fusion::run::Arg;
use fusion::{DType, Device, Tensor, bf16, f16};

/// A tensor or scalar whose elements the type can represent.
pub(crate) enum Elements {
    F64(Tensor<f64>),
    F32(Tensor<f32>),
    F16(Tensor<f16>),
    BF16(Tensor<bf16>),
    I32(Tensor<i32>),
    U8(Tensor<u8>),
    Scalar(DType, f64),
}

impl Elements {
    pub(crate) fn new(device: &Device, dtype: DType, x: &[f64], shape: &[usize]) -> Elements {
        fn tensor<T: fusion::Element>(device: &Device, x: Vec<T>, shape: &[usize]) -> Tensor<T> {
            Tensor::from_vec(device, x, shape).expect("it fits")
        }
        match dtype {
            DType::F16 => Elements::F16(tensor(device, x.iter().map(|&x| f16::from_f64(x)).collect(), shape)),
            DType::BF16 => {
                Elements::BF16(tensor(device, x.iter().map(|&x| bf16::from_f64(x)).collect(), shape))
            }
            DType::F64 => Elements::F64(tensor(device, x.to_vec(), shape)),
            DType::U8 => Elements::U8(tensor(device, x.iter().map(|&x| x as u8).collect(), shape)),
            DType::I32 => Elements::I32(tensor(device, x.iter().map(|&x| x as i32).collect(), shape)),
            _ => Elements::F32(tensor(device, x.iter().map(|&x| x as f32).collect(), shape)),
        }
    }

    pub(crate) fn arg(&self) -> Arg<'_> {
        match self {
            Elements::F64(x) => Arg::from(x),
            Elements::F32(x) => Arg::from(x),
            Elements::F16(x) => Arg::from(x),
            Elements::BF16(x) => Arg::from(x),
            Elements::I32(x) => Arg::from(x),
            Elements::U8(x) => Arg::from(x),
            Elements::Scalar(DType::F16, x) => Arg::from(f16::from_f64(*x)),
            Elements::Scalar(DType::BF16, x) => Arg::from(bf16::from_f64(*x)),
            Elements::Scalar(DType::I32, x) => Arg::from(*x as i32),
            Elements::Scalar(_, x) => Arg::from(*x as f32),
        }
    }

    pub(crate) fn arg_mut(&mut self) -> Arg<'_> {
        match self {
            Elements::F64(x) => Arg::from(x),
            Elements::F32(x) => Arg::from(x),
            Elements::F16(x) => Arg::from(x),
            Elements::BF16(x) => Arg::from(x),
            Elements::I32(_) | Elements::U8(_) | Elements::Scalar(..) => unreachable!("floats are written"),
        }
    }

    pub(crate) fn to_vec(&self) -> Vec<f64> {
        let read = "it can be read";
        match self {
            Elements::F64(x) => x.to_vec().expect(read),
            Elements::F32(x) => x.to_vec().expect(read).into_iter().map(f64::from).collect(),
            Elements::F16(x) => x.to_vec().expect(read).into_iter().map(f64::from).collect(),
            Elements::BF16(x) => x.to_vec().expect(read).into_iter().map(f64::from).collect(),
            Elements::I32(x) => x.to_vec().expect(read).into_iter().map(f64::from).collect(),
            Elements::U8(x) => x.to_vec().expect(read).into_iter().map(f64::from).collect(),
            Elements::Scalar(_, x) => vec![*x],
        }
    }
}

/// Returns the elements of a result.
pub(crate) fn result(raw: RawTensor) -> Vec<f64> {
    let known = "results are floats";
    let elements = Tensor::<f16>::from_raw(raw.clone()).map(Elements::F16);
    let elements = elements.or_else(|_| Tensor::<bf16>::from_raw(raw.clone()).map(Elements::BF16));
    let elements = elements.or_else(|_| Tensor::<f32>::from_raw(raw.clone()).map(Elements::F32));
    elements.or_else(|_| Tensor::<f64>::from_raw(raw).map(Elements::F64)).expect(known).to_vec()
}
