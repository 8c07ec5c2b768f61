//! Element types: what tensors store and what kernels compute with.
//!
//! Invariant: everything about a type that depends on nothing else is said here and nowhere else.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16; storage only, arithmetic is `f32`.
    F16,
    /// The upper half of a binary32; storage only, arithmetic is `f32`.
    BF16,
    /// IEEE binary64.
    F64,
    /// Two's complement, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Two's complement, 16 bits.
    I16,
    /// Unsigned, 16 bits.
    U16,
    /// Two's complement, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// `true` or `false`.
    Bool,
    /// An unsigned position in a buffer, in elements. Kernels only; its width is the kernel's.
    Index,
}

/// What decides which instruction an operation becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Binary floating point.
    Float,
    /// Signed integers.
    Int,
    /// Unsigned integers and positions.
    Uint,
    /// Truth values.
    Bool,
}

impl DType {
    /// Every type a tensor can have.
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

    /// Every type that generic functions are made for.
    pub const GENERIC: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

    /// The name users write.
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

    /// The type a user's name stands for.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::STORAGE.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Bytes of one element in memory.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::Index => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Bits of one element in memory.
    pub const fn bits(self) -> u32 {
        8 * self.size() as u32
    }

    /// The class of instructions that work on it.
    pub const fn class(self) -> Class {
        match self {
            DType::F32 | DType::F16 | DType::BF16 | DType::F64 => Class::Float,
            DType::I32 | DType::I16 | DType::I8 => Class::Int,
            DType::U32 | DType::U16 | DType::U8 | DType::Index => Class::Uint,
            DType::Bool => Class::Bool,
        }
    }

    /// The type that its values are computed in: nothing is computed in less than 32 bits.
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

    /// Whether it is for storage only: its values are loaded, stored and converted, no more.
    pub const fn is_narrow(self) -> bool {
        self.size() < 4 && !matches!(self, DType::Bool)
    }

    /// Whether a uniform's memory is what a tensor's is.
    pub const fn is_uniform(self) -> bool {
        matches!(self, DType::F32 | DType::I32 | DType::U32)
    }

    /// The least and the greatest integer that it holds; of floats and positions those of 64 bits.
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

    /// Whether it is a binary floating point type.
    pub const fn is_float(self) -> bool {
        matches!(self.class(), Class::Float)
    }

    /// Whether it is a signed or unsigned integer.
    pub const fn is_int(self) -> bool {
        matches!(self.class(), Class::Int | Class::Uint)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value known while compiling.
///
/// Floats are kept in `f64`; integers of every width in `i64`, within the range of their type.
#[derive(Clone, Copy, Debug)]
pub enum Const {
    /// A floating point value, before rounding to its type.
    Float(f64),
    /// An integer within its type's range.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

impl Const {
    /// What stands where there is no element: 0, or `false`.
    pub const fn zero(dtype: DType) -> Const {
        match dtype.class() {
            Class::Float => Const::Float(0.0),
            Class::Int | Class::Uint => Const::Int(0),
            Class::Bool => Const::Bool(false),
        }
    }

    /// The bits that decide whether two constants are the same (NaN is, −0 and 0 are not).
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

/// The number rounded to the nearest of this type, ties to even; to an infinity where it is too large.
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

/// The number as an `f32` that a second rounding, to fewer digits, rounds as the number itself: cut off, and the last bit set
/// where anything was lost (Boldo and Melquiond 2008).
fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) == x || x.is_nan() {
        return nearest;
    }
    let above = f64::from(nearest).abs() > x.abs();
    f32::from_bits((nearest.to_bits() - u32::from(above)) | 1)
}

/// The bits of a value of a type of one or two bytes.
pub fn narrow_bits(dtype: DType, value: Const) -> u32 {
    match (dtype, value) {
        (DType::F16, Const::Float(x)) => half::f16::from_f32(to_odd(x)).to_bits().into(),
        (DType::BF16, Const::Float(x)) => half::bf16::from_f32(to_odd(x)).to_bits().into(),
        (_, Const::Int(x)) => x as u32 & (u32::MAX >> (32 - dtype.bits())),
        (_, Const::Bool(x)) => x.into(),
        (_, Const::Float(_)) => unreachable!("{dtype} holds no {value}"),
    }
}

/// Wraps an integer into the range of `dtype`, as integer arithmetic does.
pub fn wrap(dtype: DType, x: i64) -> i64 {
    let above = 64 - dtype.bits();
    match dtype.class() {
        Class::Int => x << above >> above,
        Class::Uint => (x.cast_unsigned() << above >> above).cast_signed(),
        Class::Bool => x & 1,
        Class::Float => x,
    }
}

/// The integer of `dtype` that is nearest to a number without its fraction; 0 for NaN.
pub fn saturate(dtype: DType, x: f64) -> i64 {
    let (low, high) = dtype.range();
    (x as i64).clamp(low, high)
}
