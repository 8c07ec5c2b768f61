//! Kinds of arithmetic: types, roundings and operations.

/// Types of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int {
    U16,
    U32,
    U64,
    S16,
    S32,
    S64,
}

/// Types of floats for arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float {
    F32,
    F64,
    F16,
    BF16,
    F16x2,
    BF16x2,
}

/// Type of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Int(Int),
    Float(Float),
}

/// Widths of registers of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bits {
    B16,
    B32,
    B64,
}

/// Rounding to the precision of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// To nearest, ties to even.
    Nearest,
    /// To nearest, ties away from zero.
    Away,
    Zero,
    Down,
    Up,
}

/// Modifiers of arithmetic on floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) round: Round,
    /// True if subnormals are flushed to zeros that keep their sign.
    pub(crate) ftz: bool,
    /// True if results are clamped to [0, 1] and NaN becomes 0.
    pub(crate) sat: bool,
    /// True if the result is NaN where any operand is NaN.
    pub(crate) nan: bool,
    /// True if negative results become 0.
    pub(crate) relu: bool,
    /// True if the result has the sign of the product of the operands.
    pub(crate) xorsign: bool,
    /// True for the approximate division of f32, or reciprocal of f64.
    pub(crate) approx: bool,
}

/// No modifiers.
pub(crate) const PLAIN: Mode = Mode {
    round: Round::Nearest,
    ftz: false,
    sat: false,
    nan: false,
    relu: false,
    xorsign: false,
    approx: false,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntUn {
    Neg,
    Abs,
    Not,
    Cnot,
    Brev,
}

/// Operations whose result has 32 bits for operands of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Popc,
    Clz,
    Bfind,
    BfindShift,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntBin {
    Add,
    Sub,
    AddSat,
    SubSat,
    MulLo,
    MulHi,
    /// Lower and upper 32 bits of the 48-bit product of two 24-bit factors.
    Mul24Lo,
    Mul24Hi,
    Div,
    Rem,
    Min,
    Max,
    /// Minimum and maximum, clamped to no less than 0.
    MinRelu,
    MaxRelu,
    And,
    Or,
    Xor,
}

/// Elements that `dp4a` and `dp2a` multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dot {
    /// Four bytes of one operand with four of the other.
    Bytes,
    /// Two halves of one operand with the lower two bytes of the other, or with the upper two.
    HalvesLow,
    HalvesHigh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    Left,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntTri {
    MadLo,
    MadHi,
    MadHiSat,
    Mad24Lo,
    Mad24Hi,
    Mad24HiSat,
    Sad,
}

/// Operations with a carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarryOp {
    Add,
    Sub,
    MadLo,
    MadHi,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatUn {
    Neg,
    Abs,
    Sqrt,
    Rcp,
    Rsqrt,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatBin {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    CopySign,
}

/// Comparisons. Unsigned integers use the same names as signed ones here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prmt {
    Index,
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uni,
    Ballot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redux {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}
