//! Element types of tensors and of values in kernels.
//!
//! Invariant: every property that follows from the type alone is defined here and nowhere else.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16. The type is for storage only; arithmetic is in `f32`.
    F16,
    /// The upper half of a binary32. The type is for storage only; arithmetic is in `f32`.
    BF16,
    /// IEEE 754 binary64.
    F64,
    /// A 32-bit integer in two's complement.
    I32,
    /// An unsigned 32-bit integer.
    U32,
    /// A 16-bit integer in two's complement.
    I16,
    /// An unsigned 16-bit integer.
    U16,
    /// An 8-bit integer in two's complement.
    I8,
    /// An unsigned 8-bit integer.
    U8,
    /// `true` or `false`.
    Bool,
    /// An unsigned position in a buffer, in elements. Only kernels have this type; `IndexWidth` sets its
    /// width.
    Index,
}

/// The class of types that share an instruction for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Binary floating point.
    Float,
    /// Signed integers.
    Int,
    /// Unsigned integers and indices.
    Uint,
    /// Truth values.
    Bool,
}

impl DType {
    /// All types that a tensor can have.
    pub const STORAGE: [DType; 11] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::I32,
        DType::U32,
        DType::I16,
        DType::U16,
        DType::I8,
        DType::U8,
        DType::Bool,
    ];

    /// All types that generic functions are instantiated for.
    pub const GENERIC: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

    /// Returns the name of the type in user code.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F64 => "f64",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::Bool => "bool",
            DType::Index => "index",
        }
    }

    /// Returns the storage type with this name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::STORAGE.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Returns the size of one element in memory, in bytes.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::Index => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Returns the size of one element in memory, in bits.
    pub const fn bits(self) -> u32 {
        8 * self.size() as u32
    }

    /// Returns the class of instructions that operate on the type.
    pub const fn class(self) -> Class {
        match self {
            DType::F32 | DType::F16 | DType::BF16 | DType::F64 => Class::Float,
            DType::I32 | DType::I16 | DType::I8 => Class::Int,
            DType::U32 | DType::U16 | DType::U8 | DType::Index => Class::Uint,
            DType::Bool => Class::Bool,
        }
    }

    /// Returns the type in which values of this type are computed; integers and floats have at least 32 bits
    /// there.
    pub const fn computed(self) -> DType {
        match self {
            DType::F32 | DType::F16 | DType::BF16 => DType::F32,
            DType::F64 => DType::F64,
            DType::I32 | DType::I16 | DType::I8 => DType::I32,
            DType::U32 | DType::U16 | DType::U8 => DType::U32,
            DType::Bool => DType::Bool,
            DType::Index => DType::Index,
        }
    }

    /// Returns true if the type is for storage only: kernels only load, store and convert its values.
    pub const fn is_narrow(self) -> bool {
        self.size() < 4 && !matches!(self, DType::Bool)
    }

    /// Returns true if the type has the same memory layout in a uniform binding as in a tensor.
    pub const fn is_uniform(self) -> bool {
        matches!(self, DType::F32 | DType::I32 | DType::U32)
    }

    /// Returns the least and the greatest integer of the type; floats and indices have those of 64 bits.
    pub const fn range(self) -> (i64, i64) {
        let above = 64 - self.bits();
        match self.class() {
            Class::Int => (i64::MIN >> above, i64::MAX >> above),
            Class::Uint if above == 0 => (0, i64::MAX),
            Class::Uint => (0, (1 << self.bits()) - 1),
            Class::Bool => (0, 1),
            Class::Float => (i64::MIN, i64::MAX),
        }
    }

    /// Returns true if the type is a binary floating point type.
    pub const fn is_float(self) -> bool {
        matches!(self.class(), Class::Float)
    }

    /// Returns true if the type is a signed or unsigned integer, or an index.
    pub const fn is_int(self) -> bool {
        matches!(self.class(), Class::Int | Class::Uint)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value known at compile time.
///
/// Floats are stored as `f64`. Integers of every width are stored as `i64`, within the range of their type.
#[derive(Clone, Copy, Debug)]
pub enum Const {
    /// A floating point value before it is rounded to its type.
    Float(f64),
    /// An integer within its type's range.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

impl Const {
    /// Returns 0 or `false`, the value that reads outside of a tensor have.
    pub const fn zero(dtype: DType) -> Const {
        match dtype.class() {
            Class::Float => Const::Float(0.0),
            Class::Int | Class::Uint => Const::Int(0),
            Class::Bool => Const::Bool(false),
        }
    }

    /// Returns the kind and bits that equality compares: a NaN equals itself, and −0 differs from 0.
    fn key(self) -> (u8, u64) {
        match self {
            Const::Float(x) => (0, x.to_bits()),
            Const::Int(x) => (1, x.cast_unsigned()),
            Const::Bool(x) => (2, u64::from(x)),
        }
    }
}

impl PartialEq for Const {
    fn eq(&self, other: &Const) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Const {}

impl std::hash::Hash for Const {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for Const {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Const::Float(x) => write!(f, "{x:?}"),
            Const::Int(x) => write!(f, "{x}"),
            Const::Bool(x) => write!(f, "{x}"),
        }
    }
}

/// Rounds `x` to the nearest value of a float type, ties to even. Values beyond the range become infinite.
pub fn round(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(x as f32),
        DType::F16 => half::f16::from_f32(to_odd(x)).to_f64(),
        DType::BF16 => half::bf16::from_f32(to_odd(x)).to_f64(),
        DType::F64
        | DType::I32
        | DType::U32
        | DType::I16
        | DType::U16
        | DType::I8
        | DType::U8
        | DType::Bool
        | DType::Index => x,
    }
}

/// Rounds `x` to odd in `f32`: truncates it and sets the last bit if the truncation was inexact.
///
/// A second rounding to fewer digits then gives the same result as a single rounding of `x` (Boldo and
/// Melquiond 2008).
fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) == x || x.is_nan() {
        return nearest;
    }
    let above = f64::from(nearest).abs() > x.abs();
    f32::from_bits((nearest.to_bits() - u32::from(above)) | 1)
}

/// Returns the bits of a constant of a type with one or two bytes.
pub fn narrow_bits(dtype: DType, value: Const) -> u32 {
    match (dtype, value) {
        (DType::F16, Const::Float(x)) => half::f16::from_f32(to_odd(x)).to_bits().into(),
        (DType::BF16, Const::Float(x)) => half::bf16::from_f32(to_odd(x)).to_bits().into(),
        (_, Const::Int(x)) => x as u32 & (u32::MAX >> (32 - dtype.bits())),
        (_, Const::Bool(x)) => x.into(),
        (_, Const::Float(_)) => unreachable!("{dtype} holds no {value}"),
    }
}

/// Wraps an integer into the range of `dtype`, like integer arithmetic does.
pub fn wrap(dtype: DType, x: i64) -> i64 {
    let above = 64 - dtype.bits();
    match dtype.class() {
        Class::Int => x << above >> above,
        Class::Uint => (x.cast_unsigned() << above >> above).cast_signed(),
        Class::Bool => x & 1,
        Class::Float => x,
    }
}

/// Truncates a number and clamps it to the range of `dtype`; NaN becomes 0.
pub fn saturate(dtype: DType, x: f64) -> i64 {
    let (low, high) = dtype.range();
    (x as i64).clamp(low, high)
}
