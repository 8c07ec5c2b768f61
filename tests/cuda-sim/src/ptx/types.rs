//! Types of registers, variables and instructions, and the rules by which they match.

/// Fundamental type of PTX, or a type that only instructions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    U16x2,
    S16x2,
    F16,
    F16x2,
    BF16,
    BF16x2,
    TF32,
    F32,
    F64,
}

/// Class of a register's type, as far as instructions distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Pred,
    Bits,
    Int,
    Float,
}

impl Type {
    /// All types by name.
    pub(crate) const NAMES: [(&'static str, Type); 22] = [
        ("pred", Type::Pred),
        ("b8", Type::B8),
        ("b16", Type::B16),
        ("b32", Type::B32),
        ("b64", Type::B64),
        ("u8", Type::U8),
        ("u16", Type::U16),
        ("u32", Type::U32),
        ("u64", Type::U64),
        ("s8", Type::S8),
        ("s16", Type::S16),
        ("s32", Type::S32),
        ("s64", Type::S64),
        ("u16x2", Type::U16x2),
        ("s16x2", Type::S16x2),
        ("f16", Type::F16),
        ("f16x2", Type::F16x2),
        ("bf16", Type::BF16),
        ("bf16x2", Type::BF16x2),
        ("tf32", Type::TF32),
        ("f32", Type::F32),
        ("f64", Type::F64),
    ];

    /// Returns the type of a name.
    pub(crate) fn named(name: &str) -> Option<Type> {
        Type::NAMES.iter().find(|(known, _)| *known == name).map(|(_, ty)| *ty)
    }

    /// Returns the length in memory, in bytes. A predicate has none.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Type::Pred => 0,
            Type::B8 | Type::U8 | Type::S8 => 1,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::BF16 => 2,
            Type::U16x2
            | Type::S16x2
            | Type::B32
            | Type::U32
            | Type::S32
            | Type::F16x2
            | Type::BF16x2
            | Type::TF32
            | Type::F32 => 4,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
        }
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64 | Type::S16x2)
    }

    pub(crate) fn class(self) -> Class {
        match self {
            Type::Pred => Class::Pred,
            // The ISA requires operands of pairs, of bf16 and of tf32 to be of type `.bN`.
            Type::B8
            | Type::B16
            | Type::B32
            | Type::B64
            | Type::U16x2
            | Type::S16x2
            | Type::F16x2
            | Type::BF16
            | Type::BF16x2
            | Type::TF32 => Class::Bits,
            Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::S8 | Type::S16 | Type::S32 | Type::S64 => {
                Class::Int
            }
            Type::F16 | Type::F32 | Type::F64 => Class::Float,
        }
    }

    /// Returns true if operands are registers of bits of exactly this length, and never constants.
    ///
    /// The types are the pairs, and types that no register is declared as.
    pub(crate) fn is_packed(self) -> bool {
        matches!(self, Type::U16x2 | Type::S16x2 | Type::F16x2 | Type::BF16 | Type::BF16x2 | Type::TF32)
    }

    /// Returns true if an instruction of this type accepts a register of the declared type.
    pub(crate) fn takes(self, declared: Type) -> bool {
        let bits = !self.is_packed() || declared.class() == Class::Bits;
        bits && self.bytes() == declared.bytes() && self.takes_class(declared)
    }

    /// Returns true if `ld`, `st` or `cvt` of this type accepts a register of the declared type, which may be
    /// wider.
    pub(crate) fn takes_wider(self, declared: Type) -> bool {
        let narrow_float = self.class() == Class::Float && declared.class() == Class::Float;
        if self.is_packed() || narrow_float {
            return self.takes(declared);
        }
        declared.bytes() >= self.bytes() && self.takes_class(declared)
    }

    fn takes_class(self, declared: Type) -> bool {
        match (self.class(), declared.class()) {
            (Class::Pred, other) | (other, Class::Pred) => other == Class::Pred,
            (Class::Bits, Class::Bits | Class::Int | Class::Float)
            | (Class::Int | Class::Float, Class::Bits) => true,
            (Class::Int, Class::Int) | (Class::Float, Class::Float) => true,
            (Class::Int, Class::Float) | (Class::Float, Class::Int) => false,
        }
    }
}
