//! Elements of one or two bytes: bits in memory and in registers, values only between conversions.
//!
//! Invariant: the bits of a value are the low ones of a `u32`, of which the others are 0.

use rustc_hash::FxHashMap;

use super::Legalizer;
use crate::ir::dtype::{Const, DType, narrow_bits};
use crate::ir::kernel::{Address, Builder, Expr, Stmt, Type, Value};
use crate::ir::ops::Op;

/// Makes narrow values bits, and says of what.
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

    /// Truth values are read as bits; the others are bits already.
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

    /// Writes out a conversion between what is stored and what is computed with, if it is one.
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
                // What it is renamed to is what conversions of it see.
                self.narrow.insert(self.renamed[&value], to);
            }
        }
        true
    }
}

/// The value that bits are of, in the type that it is computed in.
fn decode(b: &mut Builder<'_>, dtype: DType, bits: Value) -> Value {
    match dtype {
        DType::F16 => b.apply(Op::FromF16, &[bits]),
        DType::BF16 => b.apply(Op::FromBf16, &[bits]),
        // A name of its own: the bits of a `u8` or `u16` are its value.
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

/// The bits of a value that is stored as this type: floats round, integers wrap.
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

/// An `f64` as an `f32` that rounds to fewer digits as it does: cut off, with the last bit set where anything was lost.
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

/// An integer as such an `f32`: of large ones the last eight bits become one that says whether any was set, which is far from
/// where 16 bits are rounded.
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
