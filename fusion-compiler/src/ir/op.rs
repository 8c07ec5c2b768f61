//! Pointwise operations. `ops/` has the table of their properties.

use super::dtype::DType;

/// Declares the operations.
macro_rules! operations {
    ($($(#[$doc:meta])* $op:ident,)*) => {
        /// A pointwise operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op {
            $($(#[$doc])* $op,)*
        }

        impl Op {
            /// All operations.
            pub const ALL: &'static [Op] = &[$(Op::$op),*];
        }
    };
}

operations! {
    /// `x + y`.
    Add,
    /// `x - y`.
    Sub,
    /// `x * y`.
    Mul,
    /// `x / y`. Integer quotients truncate, with `x / 0 = x` and `MIN / -1 = MIN`.
    Div,
    /// `x / y` for a `y` between 1 and 2.
    DivNearOne,
    /// `x % y` with the sign of `x`, exact. Integers have `x % 0 = 0` and `MIN % -1 = 0`.
    Rem,
    /// `x − floor(x / y) y` with the sign of `y`, like `x % y` of PyTorch and Python.
    ///
    /// The integer result is 0 for `y = 0`, and for `MIN` and −1.
    Remainder,
    /// `floor(x / y)`, like `x // y` of PyTorch and Python.
    ///
    /// The integer result is `x` for `y = 0`, and `MIN` for `MIN` and −1.
    FloorDiv,
    /// Integer quotient of operands that neither divide by zero nor overflow. Expansions and schedules use
    /// this operation.
    IntDiv,
    /// Integer remainder of operands that neither divide by zero nor overflow. Expansions and schedules use
    /// this operation.
    IntRem,
    /// The high 32 bits of the product of two `u32`. Only expansions use this operation.
    MulHigh,
    /// `x * y + z`, rounded once if the target can.
    Fma,
    /// `x * y + z` clamped to the range from 0 to 1, and 0 instead of NaN. Only expansions use this
    /// operation.
    SaturatedFma,
    /// `-x`.
    Neg,
    /// `|x|`; `MIN` stays `MIN`.
    Abs,
    /// `x` with the sign of `y`, which may be −0 or NaN.
    Copysign,
    /// −1, 0 or 1 with the sign of `x`; NaN stays NaN.
    Sign,
    /// The minimum; NaN if either operand is NaN.
    Min,
    /// The maximum; NaN if either operand is NaN.
    Max,
    /// The maximum of a number `x` and `y`; `x` if `y` is NaN.
    ///
    /// Reductions use this operation if a NaN reaches the result anyway.
    MaxNum,
    /// The minimum of a number `x` and `y`; `x` if `y` is NaN. Only expansions use this operation.
    MinNum,
    /// The largest integer that is not greater than `x`.
    Floor,
    /// The smallest integer that is not less than `x`.
    Ceil,
    /// The nearest integer, ties to even.
    Round,
    /// The integer part of `x`, rounded towards zero.
    Trunc,
    /// `√x`.
    Sqrt,
    /// `1 / √x`.
    Rsqrt,
    /// `∛x`.
    Cbrt,
    /// `eˣ`.
    Exp,
    /// `eˣ` for an `x` that is known to be nonpositive. Only schedules use this operation.
    ExpOfNonpositive,
    /// `e^(x − y)` for `x ≤ y`. The result is an unspecified nonnegative number if `y` is infinite.
    ///
    /// Only schedules use this operation.
    ExpBelow,
    /// `2ˣ`.
    Exp2,
    /// `eˣ − 1`, accurate near 0.
    Expm1,
    /// Natural logarithm.
    Log,
    /// Logarithm to base 2.
    Log2,
    /// `ln(1 + x)`, accurate near 0.
    Log1p,
    /// `xʸ`.
    Pow,
    /// Sine of an angle in radians.
    Sin,
    /// Cosine of an angle in radians.
    Cos,
    /// Tangent of an angle in radians.
    Tan,
    /// Arcsine, in radians.
    Asin,
    /// Arccosine, in radians.
    Acos,
    /// Arctangent, in radians.
    Atan,
    /// The angle of the point `(x, y)`, in radians. The operands are `y` and `x`, in that order.
    Atan2,
    /// Hyperbolic sine.
    Sinh,
    /// Hyperbolic cosine.
    Cosh,
    /// Hyperbolic tangent.
    Tanh,
    /// The error function `2/√π ∫₀ˣ exp(−t²) dt`.
    Erf,
    /// `1 − erf x`, accurate near 0, too.
    Erfc,
    /// `x < y`.
    Lt,
    /// `x <= y`.
    Le,
    /// `x > y`.
    Gt,
    /// `x >= y`.
    Ge,
    /// `x == y`; NaN is not equal to anything.
    Eq,
    /// `x != y`; NaN differs from everything.
    Ne,
    /// `x & y`, bitwise.
    And,
    /// `x | y`, bitwise.
    Or,
    /// `x ^ y`, bitwise.
    Xor,
    /// `!x`, bitwise.
    Not,
    /// `x << y`, with `y` modulo the bits of the type.
    Shl,
    /// `x >> y`, keeping the sign, with `y` modulo the bits of the type.
    Shr,
    /// `x << y` for a `y` below the bits of the type. Expansions and `legalize` use this operation.
    ShlRaw,
    /// `x >> y` for a `y` below the bits of the type. Expansions and `legalize` use this operation.
    ShrRaw,
    /// The value `x`, hidden from drivers that may reassociate float arithmetic.
    ///
    /// Expansions and `rewrite::hide_arithmetic` use this operation. Rust and PTX compilers round every
    /// operation as written, so the operation is the identity there.
    Opaque,
    /// `x / y` with the approximation of the GPU. `fast_math` forms this operation and the following ones.
    ApproxDiv,
    /// `1 / x`, approximated. Only expansions use this operation.
    ApproxRecip,
    /// `√x`, approximated.
    ApproxSqrt,
    /// `1 / √x`, approximated.
    ApproxRsqrt,
    /// `eˣ`, approximated.
    ApproxExp,
    /// `e^(x − y)` for `x ≤ y`, approximated. The operands are those of `ExpBelow`.
    ApproxExpBelow,
    /// `2ˣ`, approximated.
    ApproxExp2,
    /// Natural logarithm, approximated.
    ApproxLog,
    /// Logarithm to base 2, approximated.
    ApproxLog2,
    /// Sine of an angle in radians, approximated.
    ApproxSin,
    /// Cosine of an angle in radians, approximated.
    ApproxCos,
    /// `if c { x } else { y }`, element by element. Both operands are computed.
    Select,
    /// The high 32 bits of an `f64`. Only expansions use this operation and the next one.
    High,
    /// The `f64` with these high 32 bits and low bits of 0.
    OfHigh,
    /// The IEEE 754 bit pattern of an `f32`; for NaN, any bit pattern that is a NaN.
    ToBits,
    /// The `f32` with this IEEE 754 bit pattern.
    FromBits,
    /// The bit pattern of the nearest `f16`, ties to even. `legalize` uses this operation for stores.
    ToF16,
    /// The `f32` value of an `f16` bit pattern. `legalize` uses this operation for loads.
    FromF16,
    /// The bit pattern of the nearest `bf16`, ties to even. `legalize` uses this operation for stores.
    ///
    /// PTX has an instruction for the conversion on sm_80 and newer only, so the conversion is expanded.
    ToBf16,
    /// The bits of the nearest number with a significand of 11 bits, ties away from zero (`tf32`). PTX only.
    ToTf32,
    /// The `f32` value of a `bf16` bit pattern. `legalize` uses this operation for loads.
    FromBf16,
    /// True if `x` is NaN.
    IsNan,
    /// True if `x` is +∞ or −∞.
    IsInf,
    /// True if `x` is neither infinite nor NaN.
    IsFinite,
}

/// The dtypes that an operation accepts and returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typing {
    /// Numbers of one dtype; the result has that dtype.
    Number,
    /// Floats of one dtype; the result has that dtype.
    Float,
    /// Integers of one dtype; the result has that dtype.
    Int,
    /// Integers or truth values of one dtype; the result has that dtype.
    Bits,
    /// Two operands of one dtype; the result is a `bool`. Truth values are compared for equality only.
    Compare,
    /// A float; the result is a `bool`.
    Test,
    /// A `bool` and two operands of one dtype; the result has that dtype.
    Select,
    /// An `f32`; the result is its bit pattern in a `u32`.
    ToBits,
    /// A float; the result is the bit pattern of a narrower float, or the high bits, in a `u32`.
    Encode,
    /// The bit pattern of an `f32` or of a narrower float in a `u32`; the result is the `f32`.
    Decode,
    /// The high bits of an `f64` in a `u32`; the result is that `f64`.
    Double,
}

impl Typing {
    /// Returns the dtype of the result for operands of accepted dtypes.
    pub fn result(self, args: &[DType]) -> DType {
        match self {
            Typing::Number | Typing::Float | Typing::Int | Typing::Bits => args[0],
            Typing::Compare | Typing::Test => DType::Bool,
            Typing::Select => args[1],
            Typing::ToBits | Typing::Encode => DType::U32,
            Typing::Decode => DType::F32,
            Typing::Double => DType::F64,
        }
    }

    /// Returns true if operands of this dtype are accepted, apart from the condition of a select.
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Typing::Number => dtype.is_float() || dtype.is_int(),
            Typing::Float | Typing::Test => dtype.is_float(),
            Typing::Int => dtype.is_int(),
            Typing::Bits => dtype.is_int() || dtype == DType::Bool,
            Typing::Compare | Typing::Select => true,
            Typing::ToBits => dtype == DType::F32,
            Typing::Encode => dtype.is_float(),
            Typing::Decode | Typing::Double => dtype == DType::U32,
        }
    }
}
