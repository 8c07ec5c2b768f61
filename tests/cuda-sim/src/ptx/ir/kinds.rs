//! The kinds of arithmetic: types, roundings and the names of operations.

/// Types of whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int {
    U16,
    U32,
    U64,
    S16,
    S32,
    S64,
}

/// Types of floats that are computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float {
    F32,
    F64,
    F16,
    BF16,
    F16x2,
    BF16x2,
}

/// A type that values are compared as.
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
    /// Subnormals are zeros, with their sign.
    pub(crate) ftz: bool,
    /// Clamped to [0, 1]; NaN becomes 0.
    pub(crate) sat: bool,
    /// NaN if any operand is.
    pub(crate) nan: bool,
    /// Negative results are 0.
    pub(crate) relu: bool,
    /// The sign is that of the product.
    pub(crate) xorsign: bool,
    /// The coarse division of f32, or reciprocal of f64.
    pub(crate) approx: bool,
}

/// Without any of them.
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

/// Those whose result has 32 bits whatever they look at.
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
    /// Of factors of 24 bits: the lower and the upper 32 bits of 48.
    Mul24Lo,
    Mul24Hi,
    Div,
    Rem,
    Min,
    Max,
    /// The same, and no less than 0.
    MinRelu,
    MaxRelu,
    And,
    Or,
    Xor,
}

/// What `dp4a` and `dp2a` multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dot {
    /// Four bytes with four.
    Bytes,
    /// Two halves with the lower two bytes, or with the upper two.
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

/// What carries.
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

/// The comparisons; those of unsigned numbers have the names of the others here.
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
