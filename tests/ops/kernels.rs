//! A function of the language for each operation of the table.
//!
//! Invariant: the matches have no wildcard, so an operation without its function does not compile.

use fusion::prelude::*;
use fusion_compiler::ir::op::Op;

type OfThree<T, R> = fn(&Tensor<T>, &Tensor<T>, &Tensor<T>) -> Result<Tensor<R>>;

/// A function of one, two or three tensors of one shape.
pub(crate) enum Function<T: Element, R: Element> {
    Unary(fn(&Tensor<T>) -> Result<Tensor<R>>),
    Binary(fn(&Tensor<T>, &Tensor<T>) -> Result<Tensor<R>>),
    Ternary(OfThree<T, R>),
}

impl<T: Element, R: Element> Function<T, R> {
    pub(crate) fn call(&self, args: &[Tensor<T>]) -> Result<Tensor<R>> {
        match (self, args) {
            (Unary(f), [x]) => f(x),
            (Binary(f), [x, y]) => f(x, y),
            (Ternary(f), [x, y, z]) => f(x, y, z),
            _ => panic!("{} operands", args.len()),
        }
    }
}

use Function::{Binary, Ternary, Unary};

/// Operations without a function here. The compiler creates them from others (`fast.rs`, `sign_analysis.rs`,
/// `tests/rows`), or they are conversions of stored types (`tests/dtypes`) or bits of floats (`numerics.rs`).
macro_rules! made {
    () => {
        Op::ToF16
            | Op::FromF16
            | Op::ToBf16
            | Op::FromBf16
            | Op::ToBits
            | Op::FromBits
            | Op::High
            | Op::OfHigh
            | Op::ToTf32
            | Op::SaturatedFma
            | Op::MinNum
            | Op::MaxNum
            | Op::DivNearOne
            | Op::ExpOfNonpositive
            | Op::ExpBelow
            | Op::ApproxDiv
            | Op::ApproxRecip
            | Op::ApproxSqrt
            | Op::ApproxRsqrt
            | Op::ApproxExp
            | Op::ApproxExpBelow
            | Op::ApproxExp2
            | Op::ApproxLog
            | Op::ApproxLog2
            | Op::ApproxSin
            | Op::ApproxCos
    };
}

/// Returns the operation on `f32`. Comparisons and tests give 1 and 0, and `select` tests its first operand
/// against 0.
#[rustfmt::skip]
pub(crate) fn float(op: Op) -> Option<Function<f32, f32>> {
    Some(match op {
        Op::Add => Binary(f_add), Op::Sub => Binary(f_sub), Op::Mul => Binary(f_mul), Op::Div => Binary(f_div),
        Op::Rem => Binary(f_rem), Op::Remainder => Binary(f_remainder), Op::FloorDiv => Binary(f_floor_div),
        Op::Copysign => Binary(f_copysign), Op::Erfc => Unary(f_erfc), Op::Fma => Ternary(f_fma), Op::Neg => Unary(f_neg), Op::Abs => Unary(f_abs),
        Op::Sign => Unary(f_sign), Op::Min => Binary(f_min), Op::Max => Binary(f_max), Op::Floor => Unary(f_floor),
        Op::Ceil => Unary(f_ceil), Op::Round => Unary(f_round), Op::Trunc => Unary(f_trunc), Op::Sqrt => Unary(f_sqrt),
        Op::Rsqrt => Unary(f_rsqrt), Op::Cbrt => Unary(f_cbrt), Op::Exp => Unary(f_exp), Op::Exp2 => Unary(f_exp2),
        Op::Expm1 => Unary(f_expm1), Op::Log => Unary(f_log), Op::Log2 => Unary(f_log2), Op::Log1p => Unary(f_log1p),
        Op::Pow => Binary(f_pow), Op::Sin => Unary(f_sin), Op::Cos => Unary(f_cos), Op::Tan => Unary(f_tan),
        Op::Asin => Unary(f_asin), Op::Acos => Unary(f_acos), Op::Atan => Unary(f_atan), Op::Atan2 => Binary(f_atan2),
        Op::Sinh => Unary(f_sinh), Op::Cosh => Unary(f_cosh), Op::Tanh => Unary(f_tanh), Op::Erf => Unary(f_erf),
        Op::Lt => Binary(f_lt), Op::Le => Binary(f_le), Op::Gt => Binary(f_gt), Op::Ge => Binary(f_ge),
        Op::Eq => Binary(f_eq), Op::Ne => Binary(f_ne), Op::Select => Ternary(f_select),
        Op::IsNan => Unary(f_isnan), Op::IsInf => Unary(f_isinf), Op::IsFinite => Unary(f_isfinite),
        // Operations on integers and truth values, and operations that only the compiler creates.
        Op::And | Op::Or | Op::Xor | Op::Not | Op::Shl | Op::Shr => return None,
        Op::IntDiv | Op::IntRem | Op::MulHigh | Op::ShlRaw | Op::ShrRaw | Op::Opaque => return None,
        made!() => return None,
    })
}

/// Returns the operation on `i32`. Comparisons give 1 and 0, and `select` tests its first operand against 0.
#[rustfmt::skip]
pub(crate) fn int(op: Op) -> Option<Function<i32, i32>> {
    Some(match op {
        Op::Add => Binary(i_add), Op::Sub => Binary(i_sub), Op::Mul => Binary(i_mul), Op::Div => Binary(i_div),
        Op::Rem => Binary(i_rem), Op::Remainder => Binary(i_remainder), Op::FloorDiv => Binary(i_floor_div), Op::Neg => Unary(i_neg), Op::Abs => Unary(i_abs), Op::Sign => Unary(i_sign),
        Op::Min => Binary(i_min), Op::Max => Binary(i_max), Op::Lt => Binary(i_lt), Op::Le => Binary(i_le),
        Op::Gt => Binary(i_gt), Op::Ge => Binary(i_ge), Op::Eq => Binary(i_eq), Op::Ne => Binary(i_ne),
        Op::And => Binary(i_and), Op::Or => Binary(i_or), Op::Xor => Binary(i_xor), Op::Not => Unary(i_not),
        Op::Shl => Binary(i_shl), Op::Shr => Binary(i_shr), Op::Select => Ternary(i_select),
        Op::IntDiv | Op::IntRem | Op::MulHigh | Op::ShlRaw | Op::ShrRaw | Op::Opaque => return None,
        made!() => return None,
        Op::Fma | Op::Floor | Op::Ceil | Op::Round | Op::Trunc | Op::Sqrt | Op::Rsqrt | Op::Cbrt | Op::Exp => return None,
        Op::Exp2 | Op::Expm1 | Op::Log | Op::Log2 | Op::Log1p | Op::Pow | Op::Sin | Op::Cos | Op::Tan => return None,
        Op::Asin | Op::Acos | Op::Atan | Op::Atan2 | Op::Sinh | Op::Cosh | Op::Tanh | Op::Erf | Op::Erfc => return None,
        Op::Copysign | Op::IsNan | Op::IsInf | Op::IsFinite => return None,
    })
}

/// Returns the operation on `u32`.
#[rustfmt::skip]
pub(crate) fn uint(op: Op) -> Option<Function<u32, u32>> {
    Some(match op {
        Op::Add => Binary(u_add), Op::Sub => Binary(u_sub), Op::Mul => Binary(u_mul), Op::Div => Binary(u_div),
        Op::Rem => Binary(u_rem), Op::Remainder => Binary(u_remainder), Op::FloorDiv => Binary(u_floor_div), Op::Neg => Unary(u_neg), Op::Abs => Unary(u_abs), Op::Sign => Unary(u_sign),
        Op::Min => Binary(u_min), Op::Max => Binary(u_max), Op::Lt => Binary(u_lt), Op::Le => Binary(u_le),
        Op::Gt => Binary(u_gt), Op::Ge => Binary(u_ge), Op::Eq => Binary(u_eq), Op::Ne => Binary(u_ne),
        Op::And => Binary(u_and), Op::Or => Binary(u_or), Op::Xor => Binary(u_xor), Op::Not => Unary(u_not),
        Op::Shl => Binary(u_shl), Op::Shr => Binary(u_shr), Op::Select => Ternary(u_select),
        Op::IntDiv | Op::IntRem | Op::MulHigh | Op::ShlRaw | Op::ShrRaw | Op::Opaque => return None,
        made!() => return None,
        Op::Fma | Op::Floor | Op::Ceil | Op::Round | Op::Trunc | Op::Sqrt | Op::Rsqrt | Op::Cbrt | Op::Exp => return None,
        Op::Exp2 | Op::Expm1 | Op::Log | Op::Log2 | Op::Log1p | Op::Pow | Op::Sin | Op::Cos | Op::Tan => return None,
        Op::Asin | Op::Acos | Op::Atan | Op::Atan2 | Op::Sinh | Op::Cosh | Op::Tanh | Op::Erf | Op::Erfc => return None,
        Op::Copysign | Op::IsNan | Op::IsInf | Op::IsFinite => return None,
    })
}

fuse! {
    pub(crate) fn f_add(x: f32[N], y: f32[N]) -> f32[N] { x + y }
    pub(crate) fn f_sub(x: f32[N], y: f32[N]) -> f32[N] { x - y }
    pub(crate) fn f_mul(x: f32[N], y: f32[N]) -> f32[N] { x * y }
    pub(crate) fn f_div(x: f32[N], y: f32[N]) -> f32[N] { x / y }
    pub(crate) fn f_rem(x: f32[N], y: f32[N]) -> f32[N] { x % y }
    pub(crate) fn f_remainder(x: f32[N], y: f32[N]) -> f32[N] { remainder(x, y) }
    pub(crate) fn f_floor_div(x: f32[N], y: f32[N]) -> f32[N] { floor_div(x, y) }
    pub(crate) fn f_copysign(x: f32[N], y: f32[N]) -> f32[N] { copysign(x, y) }
    pub(crate) fn f_min(x: f32[N], y: f32[N]) -> f32[N] { min(x, y) }
    pub(crate) fn f_max(x: f32[N], y: f32[N]) -> f32[N] { max(x, y) }
    pub(crate) fn f_neg(x: f32[N]) -> f32[N] { -x }
    pub(crate) fn f_abs(x: f32[N]) -> f32[N] { abs(x) }
    pub(crate) fn f_sign(x: f32[N]) -> f32[N] { sign(x) }
    pub(crate) fn f_lt(x: f32[N], y: f32[N]) -> f32[N] { if x < y { 1.0 } else { 0.0 } }
    pub(crate) fn f_le(x: f32[N], y: f32[N]) -> f32[N] { if x <= y { 1.0 } else { 0.0 } }
    pub(crate) fn f_gt(x: f32[N], y: f32[N]) -> f32[N] { if x > y { 1.0 } else { 0.0 } }
    pub(crate) fn f_ge(x: f32[N], y: f32[N]) -> f32[N] { if x >= y { 1.0 } else { 0.0 } }
    pub(crate) fn f_eq(x: f32[N], y: f32[N]) -> f32[N] { if x == y { 1.0 } else { 0.0 } }
    pub(crate) fn f_ne(x: f32[N], y: f32[N]) -> f32[N] { if x != y { 1.0 } else { 0.0 } }
    pub(crate) fn f_select(x: f32[N], y: f32[N], z: f32[N]) -> f32[N] { select(x != 0.0, y, z) }
    pub(crate) fn f_floor(x: f32[N]) -> f32[N] { floor(x) }
    pub(crate) fn f_ceil(x: f32[N]) -> f32[N] { ceil(x) }
    pub(crate) fn f_round(x: f32[N]) -> f32[N] { round(x) }
    pub(crate) fn f_trunc(x: f32[N]) -> f32[N] { trunc(x) }
    pub(crate) fn f_sqrt(x: f32[N]) -> f32[N] { sqrt(x) }
    pub(crate) fn f_rsqrt(x: f32[N]) -> f32[N] { rsqrt(x) }
    pub(crate) fn f_cbrt(x: f32[N]) -> f32[N] { cbrt(x) }
    pub(crate) fn f_exp(x: f32[N]) -> f32[N] { exp(x) }
    pub(crate) fn f_exp2(x: f32[N]) -> f32[N] { exp2(x) }
    pub(crate) fn f_expm1(x: f32[N]) -> f32[N] { expm1(x) }
    pub(crate) fn f_log(x: f32[N]) -> f32[N] { log(x) }
    pub(crate) fn f_log2(x: f32[N]) -> f32[N] { log2(x) }
    pub(crate) fn f_log1p(x: f32[N]) -> f32[N] { log1p(x) }
    pub(crate) fn f_sin(x: f32[N]) -> f32[N] { sin(x) }
    pub(crate) fn f_cos(x: f32[N]) -> f32[N] { cos(x) }
    pub(crate) fn f_tan(x: f32[N]) -> f32[N] { tan(x) }
    pub(crate) fn f_asin(x: f32[N]) -> f32[N] { asin(x) }
    pub(crate) fn f_acos(x: f32[N]) -> f32[N] { acos(x) }
    pub(crate) fn f_atan(x: f32[N]) -> f32[N] { atan(x) }
    pub(crate) fn f_sinh(x: f32[N]) -> f32[N] { sinh(x) }
    pub(crate) fn f_cosh(x: f32[N]) -> f32[N] { cosh(x) }
    pub(crate) fn f_tanh(x: f32[N]) -> f32[N] { tanh(x) }
    pub(crate) fn f_erf(x: f32[N]) -> f32[N] { erf(x) }
    pub(crate) fn f_erfc(x: f32[N]) -> f32[N] { erfc(x) }
    pub(crate) fn f_pow(x: f32[N], y: f32[N]) -> f32[N] { pow(x, y) }
    pub(crate) fn f_atan2(x: f32[N], y: f32[N]) -> f32[N] { atan2(x, y) }
    pub(crate) fn f_fma(x: f32[N], y: f32[N], z: f32[N]) -> f32[N] { fma(x, y, z) }
    pub(crate) fn f_isnan(x: f32[N]) -> f32[N] { if isnan(x) { 1.0 } else { 0.0 } }
    pub(crate) fn f_isinf(x: f32[N]) -> f32[N] { if isinf(x) { 1.0 } else { 0.0 } }
    pub(crate) fn f_isfinite(x: f32[N]) -> f32[N] { if isfinite(x) { 1.0 } else { 0.0 } }
    pub(crate) fn i_add(x: i32[N], y: i32[N]) -> i32[N] { x + y }
    pub(crate) fn i_sub(x: i32[N], y: i32[N]) -> i32[N] { x - y }
    pub(crate) fn i_mul(x: i32[N], y: i32[N]) -> i32[N] { x * y }
    pub(crate) fn i_div(x: i32[N], y: i32[N]) -> i32[N] { x / y }
    pub(crate) fn i_rem(x: i32[N], y: i32[N]) -> i32[N] { x % y }
    pub(crate) fn i_remainder(x: i32[N], y: i32[N]) -> i32[N] { remainder(x, y) }
    pub(crate) fn i_floor_div(x: i32[N], y: i32[N]) -> i32[N] { floor_div(x, y) }
    pub(crate) fn i_min(x: i32[N], y: i32[N]) -> i32[N] { min(x, y) }
    pub(crate) fn i_max(x: i32[N], y: i32[N]) -> i32[N] { max(x, y) }
    pub(crate) fn i_neg(x: i32[N]) -> i32[N] { -x }
    pub(crate) fn i_abs(x: i32[N]) -> i32[N] { abs(x) }
    pub(crate) fn i_sign(x: i32[N]) -> i32[N] { sign(x) }
    pub(crate) fn i_lt(x: i32[N], y: i32[N]) -> i32[N] { if x < y { 1 } else { 0 } }
    pub(crate) fn i_le(x: i32[N], y: i32[N]) -> i32[N] { if x <= y { 1 } else { 0 } }
    pub(crate) fn i_gt(x: i32[N], y: i32[N]) -> i32[N] { if x > y { 1 } else { 0 } }
    pub(crate) fn i_ge(x: i32[N], y: i32[N]) -> i32[N] { if x >= y { 1 } else { 0 } }
    pub(crate) fn i_eq(x: i32[N], y: i32[N]) -> i32[N] { if x == y { 1 } else { 0 } }
    pub(crate) fn i_ne(x: i32[N], y: i32[N]) -> i32[N] { if x != y { 1 } else { 0 } }
    pub(crate) fn i_select(x: i32[N], y: i32[N], z: i32[N]) -> i32[N] { select(x != 0, y, z) }
    pub(crate) fn i_shl(x: i32[N], y: i32[N]) -> i32[N] { x << y }
    pub(crate) fn i_shr(x: i32[N], y: i32[N]) -> i32[N] { x >> y }
    pub(crate) fn i_and(x: i32[N], y: i32[N]) -> i32[N] { x & y }
    pub(crate) fn i_or(x: i32[N], y: i32[N]) -> i32[N] { x | y }
    pub(crate) fn i_xor(x: i32[N], y: i32[N]) -> i32[N] { x ^ y }
    pub(crate) fn i_not(x: i32[N]) -> i32[N] { !x }
    pub(crate) fn u_add(x: u32[N], y: u32[N]) -> u32[N] { x + y }
    pub(crate) fn u_sub(x: u32[N], y: u32[N]) -> u32[N] { x - y }
    pub(crate) fn u_mul(x: u32[N], y: u32[N]) -> u32[N] { x * y }
    pub(crate) fn u_div(x: u32[N], y: u32[N]) -> u32[N] { x / y }
    pub(crate) fn u_rem(x: u32[N], y: u32[N]) -> u32[N] { x % y }
    pub(crate) fn u_remainder(x: u32[N], y: u32[N]) -> u32[N] { remainder(x, y) }
    pub(crate) fn u_floor_div(x: u32[N], y: u32[N]) -> u32[N] { floor_div(x, y) }
    pub(crate) fn u_min(x: u32[N], y: u32[N]) -> u32[N] { min(x, y) }
    pub(crate) fn u_max(x: u32[N], y: u32[N]) -> u32[N] { max(x, y) }
    pub(crate) fn u_neg(x: u32[N]) -> u32[N] { -x }
    pub(crate) fn u_abs(x: u32[N]) -> u32[N] { abs(x) }
    pub(crate) fn u_sign(x: u32[N]) -> u32[N] { sign(x) }
    pub(crate) fn u_lt(x: u32[N], y: u32[N]) -> u32[N] { (x < y) as u32 }
    pub(crate) fn u_le(x: u32[N], y: u32[N]) -> u32[N] { (x <= y) as u32 }
    pub(crate) fn u_gt(x: u32[N], y: u32[N]) -> u32[N] { (x > y) as u32 }
    pub(crate) fn u_ge(x: u32[N], y: u32[N]) -> u32[N] { (x >= y) as u32 }
    pub(crate) fn u_eq(x: u32[N], y: u32[N]) -> u32[N] { (x == y) as u32 }
    pub(crate) fn u_ne(x: u32[N], y: u32[N]) -> u32[N] { (x != y) as u32 }
    pub(crate) fn u_select(x: u32[N], y: u32[N], z: u32[N]) -> u32[N] { select(x != 0, y, z) }
    pub(crate) fn u_shl(x: u32[N], y: u32[N]) -> u32[N] { x << y }
    pub(crate) fn u_shr(x: u32[N], y: u32[N]) -> u32[N] { x >> y }
    pub(crate) fn u_and(x: u32[N], y: u32[N]) -> u32[N] { x & y }
    pub(crate) fn u_or(x: u32[N], y: u32[N]) -> u32[N] { x | y }
    pub(crate) fn u_xor(x: u32[N], y: u32[N]) -> u32[N] { x ^ y }
    pub(crate) fn u_not(x: u32[N]) -> u32[N] { !x }
}
