//! Elements of one or two bytes: bits in memory and in registers, numbers only between conversions.
//!
//! Invariant: a `u32` has the bits of a value in its low bits, and zeros above.

use rustc_hash::FxHashMap;

use super::Legalizer;
use crate::ir::dtype::{Const, DType, narrow_bits};
use crate::ir::kernel::{Address, Builder, Expr, Stmt, Type, Value};
use crate::ir::op::Op;

/// Gives narrow values the type `u32`. Returns the original dtype of each value.
pub(super) fn as_bits(types: &mut [Type]) -> FxHashMap<Value, DType> {
    let mut narrow = FxHashMap::default();
    for (i, ty) in types.iter_mut().enumerate().filter(|(_, ty)| ty.dtype.is_narrow()) {
        narrow.insert(Value(i as u32), ty.dtype);
        ty.dtype = DType::U32;
    }
    narrow
}

impl Legalizer<'_> {
    pub(super) fn constant(&mut self, value: Value, constant: Const, out: &mut Vec<Stmt>) {
        let constant = match self.narrow.get(&value) {
            Some(&dtype) => Const::Int(narrow_bits(dtype, constant).into()),
            None => constant,
        };
        out.push(Stmt::Let(value, Expr::Const(constant)));
    }

    /// Lowers a load. A `bool` is loaded as bits and compared with 0; other narrow values are bits already.
    pub(super) fn load(&mut self, value: Value, read: Expr, out: &mut Vec<Stmt>) {
        let ty = self.types[value.0 as usize];
        if ty.dtype != DType::Bool {
            out.push(Stmt::Let(value, read));
            return;
        }
        self.replace(value, out, |b| {
            let bits = b.bind(Type { dtype: DType::U32, ..ty }, read);
            let zero = b.u32(0);
            b.apply(Op::Ne, &[bits, zero])
        });
    }

    pub(super) fn store(&mut self, at: Address, value: Value, out: &mut Vec<Stmt>) {
        let is_truth = self.buffers[usize::from(at.buffer.0)].dtype == DType::Bool;
        let bits = if is_truth && self.types[value.0 as usize].dtype == DType::Bool {
            self.write(out, |b| {
                let (one, zero) = (b.u32(1), b.u32(0));
                b.apply(Op::Select, &[value, one, zero])
            })
        } else {
            value
        };
        out.push(Stmt::Store(at, bits));
    }

    /// Expands a conversion between a stored and a computed dtype. Returns false for other conversions.
    pub(super) fn narrow_cast(&mut self, value: Value, arg: Value, out: &mut Vec<Stmt>) -> bool {
        match (self.narrow.get(&arg).copied(), self.narrow.get(&value).copied()) {
            (None, None) => return false,
            (Some(from), Some(to)) => {
                debug_assert_eq!(from, to, "what is narrow is converted by way of what is computed with");
                self.renamed.insert(value, arg);
            }
            (Some(from), None) => self.replace(value, out, |b| decode(b, from, arg)),
            (None, Some(to)) => {
                self.replace(value, out, |b| encode(b, to, arg));
                // Later conversions refer to the new value.
                self.narrow.insert(self.renamed[&value], to);
            }
        }
        true
    }
}

/// Converts bits to a number of the dtype that the value is computed in.
fn decode(b: &mut Builder<'_>, dtype: DType, bits: Value) -> Value {
    match dtype {
        DType::F16 => b.apply(Op::FromF16, &[bits]),
        DType::BF16 => b.apply(Op::FromBf16, &[bits]),
        // The bits of a `u8` or `u16` are its value, but the result needs a name of its own.
        DType::U16 | DType::U8 => b.bitcast(bits, DType::U32),
        DType::I16 | DType::I8 => {
            let bits = b.bitcast(bits, DType::I32);
            let places = b.i32(32 - dtype.bits() as i32);
            let high = b.apply(Op::ShlRaw, &[bits, places]);
            b.apply(Op::ShrRaw, &[high, places])
        }
        DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::Bool | DType::Index => {
            unreachable!("{dtype} is not narrow")
        }
    }
}

/// Converts a number to the bits of a stored dtype: floats round, integers wrap.
fn encode(b: &mut Builder<'_>, dtype: DType, value: Value) -> Value {
    match dtype {
        DType::F16 | DType::BF16 => {
            let single = match b.ty(value).dtype {
                DType::F64 => odd_single(b, value),
                DType::I32 | DType::U32 => sticky_single(b, value),
                _ => value,
            };
            b.apply(if dtype == DType::F16 { Op::ToF16 } else { Op::ToBf16 }, &[single])
        }
        DType::I16 | DType::U16 | DType::I8 | DType::U8 => {
            let bits = if b.ty(value).dtype == DType::U32 { value } else { b.bitcast(value, DType::U32) };
            let low = b.u32(u32::MAX >> (32 - dtype.bits()));
            b.apply(Op::And, &[bits, low])
        }
        DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::Bool | DType::Index => {
            unreachable!("{dtype} is not narrow")
        }
    }
}

/// Converts an `f64` to an `f32` by rounding to odd: truncated, with the last bit set if digits were lost. A
/// second rounding to fewer digits then gives the same result as one rounding.
fn odd_single(b: &mut Builder<'_>, value: Value) -> Value {
    let nearest = b.cast(value, DType::F32);
    let back = b.cast(nearest, DType::F64);
    let sizes = [back, value].map(|x| b.apply(Op::Abs, &[x]));
    let (above, lost) = (b.apply(Op::Gt, &sizes), b.apply(Op::Ne, &[back, value]));
    let bits = b.bitcast(nearest, DType::I32);
    let one = b.i32(1);
    let below = b.apply(Op::Sub, &[bits, one]);
    let cut = b.apply(Op::Select, &[above, below, bits]);
    let odd = b.apply(Op::Or, &[cut, one]);
    let bits = b.apply(Op::Select, &[lost, odd, bits]);
    b.bitcast(bits, DType::F32)
}

/// Converts an integer to an `f32` that rounds to 16 bits as the integer does. In large integers, one sticky
/// bit replaces the last eight bits. The sticky bit is far below the bit where 16-bit floats round.
fn sticky_single(b: &mut Builder<'_>, value: Value) -> Value {
    let dtype = b.ty(value).dtype;
    let number = |b: &mut Builder<'_>, x: i64| b.constant(dtype, Const::Int(x));
    let (low, zero, sticky) = (number(b, 0xff), number(b, 0), number(b, 0x100));
    let rest = b.apply(Op::And, &[value, low]);
    let is_whole = b.apply(Op::Eq, &[rest, zero]);
    let high = b.apply(Op::Xor, &[value, rest]);
    let cut = b.apply(Op::Or, &[high, sticky]);
    let cut = b.apply(Op::Select, &[is_whole, value, cut]);
    let most = number(b, 1 << 24);
    let mut large = b.apply(Op::Gt, &[value, most]);
    if dtype == DType::I32 {
        let least = number(b, -(1 << 24));
        let below = b.apply(Op::Lt, &[value, least]);
        large = b.apply(Op::Or, &[large, below]);
    }
    let value = b.apply(Op::Select, &[large, cut, value]);
    b.cast(value, DType::F32)
}
