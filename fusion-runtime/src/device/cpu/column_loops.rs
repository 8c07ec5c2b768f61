//! Operations on all lanes of a column in one loop, which the compiler makes vectors of.
//!
//! Invariant: a loop computes the bits of the op table's reference. The functions return false for operations
//! without a loop, and then have changed nothing.

use fusion_compiler::ir::dtype::{Class, DType, saturate, wrap};
use fusion_compiler::ir::op::Op;
use half::{bf16, f16};

/// Defines a function that runs with AVX2 and FMA where the processor has them.
macro_rules! dispatched {
    ($(#[$meta:meta])* $name:ident($($arg:ident: $ty:ty),*) $body:block) => {
        $(#[$meta])*
        pub(super) fn $name($($arg: $ty),*) -> bool {
            #[inline(always)]
            fn portable($($arg: $ty),*) -> bool $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn with_avx2($($arg: $ty),*) -> bool {
                    portable($($arg),*)
                }

                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has both features.
                    return unsafe { with_avx2($($arg),*) };
                }
            }
            portable($($arg),*)
        }
    };
}

/// Appends a function of each lane, pair or triple of lanes.
///
/// The loop is in the function that uses the macro, and not in an iterator's, so it has the features of that
/// function.
macro_rules! map {
    ($out:ident, |$first:ident $(, $lane:ident)*| $value:expr) => {{
        let (start, count) = ($out.len(), $first.len());
        $(let $lane = &$lane[..count];)*
        $out.resize(start + count, Default::default());
        let to = &mut $out[start..start + count];
        for i in 0..count {
            let $first = $first[i];
            $(let $lane = $lane[i];)*
            to[i] = $value;
        }
        true
    }};
}

/// Appends the results of a comparison of two lanes.
macro_rules! compare {
    ($op:ident, $out:ident, $x:ident, $y:ident) => {
        match $op {
            Op::Lt => map!($out, |$x, $y| $x < $y),
            Op::Le => map!($out, |$x, $y| $x <= $y),
            Op::Gt => map!($out, |$x, $y| $x > $y),
            Op::Ge => map!($out, |$x, $y| $x >= $y),
            Op::Eq => map!($out, |$x, $y| $x == $y),
            Op::Ne => map!($out, |$x, $y| $x != $y),
            _ => false,
        }
    };
}

dispatched! {
    /// Appends the results of an operation on `f32`s.
    ///
    /// The reference computes in `f64` and rounds. Its quotient and root round to the same `f32` as the exact
    /// ones, since `f64` has more than twice the bits.
    floats(op: Op, x: &[f32], y: &[f32], z: &[f32], out: &mut Vec<f32>) {
        match op {
            Op::Add => map!(out, |x, y| x + y),
            Op::Sub => map!(out, |x, y| x - y),
            Op::Mul => map!(out, |x, y| x * y),
            Op::Div | Op::DivNearOne => map!(out, |x, y| x / y),
            Op::Fma => map!(out, |x, y, z| x.mul_add(y, z)),
            Op::Neg => map!(out, |x| -x),
            Op::Abs => map!(out, |x| x.abs()),
            Op::Copysign => map!(out, |x, y| x.copysign(y)),
            Op::Min => map!(out, |x, y| if x.is_nan() || x < y { x } else { y }),
            Op::Max => map!(out, |x, y| if x.is_nan() || x > y { x } else { y }),
            Op::MinNum => map!(out, |x, y| if y < x { y } else { x }),
            Op::MaxNum => map!(out, |x, y| if y > x { y } else { x }),
            Op::Floor => map!(out, |x| x.floor()),
            Op::Ceil => map!(out, |x| x.ceil()),
            Op::Round => map!(out, |x| x.round_ties_even()),
            Op::Trunc => map!(out, |x| x.trunc()),
            Op::Sqrt => map!(out, |x| x.sqrt()),
            _ => false,
        }
    }
}

dispatched! {
    /// Appends the results of a comparison of `f32`s.
    comparisons(op: Op, x: &[f32], y: &[f32], out: &mut Vec<bool>) {
        compare!(op, out, x, y)
    }
}

dispatched! {
    /// Appends the results of an operation on integers of this type.
    integers(op: Op, dtype: DType, x: &[i64], y: &[i64], out: &mut Vec<i64>) {
        let mask = i64::from(dtype.bits() - 1);
        match op {
            Op::Add => map!(out, |x, y| wrap(dtype, x.wrapping_add(y))),
            Op::Sub => map!(out, |x, y| wrap(dtype, x.wrapping_sub(y))),
            Op::Mul => map!(out, |x, y| wrap(dtype, x.wrapping_mul(y))),
            Op::And => map!(out, |x, y| x & y),
            Op::Or => map!(out, |x, y| x | y),
            Op::Xor => map!(out, |x, y| x ^ y),
            Op::Not => map!(out, |x| wrap(dtype, !x)),
            Op::Shl | Op::ShlRaw => map!(out, |x, y| wrap(dtype, x << (y & mask))),
            Op::Shr | Op::ShrRaw => map!(out, |x, y| wrap(dtype, x >> (y & mask))),
            Op::Min => map!(out, |x, y| x.min(y)),
            Op::Max => map!(out, |x, y| x.max(y)),
            Op::Neg => map!(out, |x| wrap(dtype, x.wrapping_neg())),
            Op::Abs => map!(out, |x| wrap(dtype, x.wrapping_abs())),
            _ => false,
        }
    }
}

dispatched! {
    /// Appends `f32`s as integers of this type: truncated, and clamped to its range.
    rounded(dtype: DType, x: &[f32], out: &mut Vec<i64>) {
        match dtype {
            DType::I32 => map!(out, |x| i64::from(x as i32)),
            DType::U32 => map!(out, |x| i64::from(x as u32)),
            dtype => map!(out, |x| saturate(dtype, f64::from(x))),
        }
    }
}

dispatched! {
    /// Appends integers as `f32`s.
    converted(x: &[i64], out: &mut Vec<f32>) {
        map!(out, |x| x as f32)
    }
}

dispatched! {
    /// Appends the bits of `f32`s as integers of 32 bits.
    bits_of_floats(dtype: DType, x: &[f32], out: &mut Vec<i64>) {
        match dtype.class() {
            Class::Int => map!(out, |x| i64::from(x.to_bits().cast_signed())),
            Class::Uint => map!(out, |x| i64::from(x.to_bits())),
            Class::Float | Class::Bool => false,
        }
    }
}

dispatched! {
    /// Appends the `f32`s of these bits.
    floats_of_bits(x: &[i64], out: &mut Vec<f32>) {
        map!(out, |x| f32::from_bits(x as u32))
    }
}

dispatched! {
    /// Appends the results of a comparison of integers.
    integer_comparisons(op: Op, x: &[i64], y: &[i64], out: &mut Vec<bool>) {
        compare!(op, out, x, y)
    }
}

dispatched! {
    /// Appends the results of an operation on truth values.
    truths(op: Op, x: &[bool], y: &[bool], out: &mut Vec<bool>) {
        match op {
            Op::And => map!(out, |x, y| x & y),
            Op::Or => map!(out, |x, y| x | y),
            Op::Xor | Op::Ne => map!(out, |x, y| x ^ y),
            Op::Eq => map!(out, |x, y| x == y),
            Op::Not => map!(out, |x| !x),
            _ => false,
        }
    }
}

dispatched! {
    /// Appends the results of a test of `f32`s.
    tests(op: Op, x: &[f32], out: &mut Vec<bool>) {
        match op {
            Op::IsNan => map!(out, |x| x.is_nan()),
            Op::IsInf => map!(out, |x| x.is_infinite()),
            Op::IsFinite => map!(out, |x| x.is_finite()),
            _ => false,
        }
    }
}

dispatched! {
    /// Appends `f32`s in another encoding.
    encoded(op: Op, x: &[f32], out: &mut Vec<i64>) {
        match op {
            Op::ToBits => map!(out, |x| i64::from(x.to_bits())),
            Op::ToF16 => map!(out, |x| i64::from(f16::from_f32(x).to_bits())),
            Op::ToBf16 => map!(out, |x| i64::from(bf16::from_f32(x).to_bits())),
            _ => false,
        }
    }
}

dispatched! {
    /// Appends the `f32`s of an encoding.
    decoded(op: Op, x: &[i64], out: &mut Vec<f32>) {
        match op {
            Op::FromBits => map!(out, |x| f32::from_bits(x as u32)),
            Op::FromF16 => map!(out, |x| f16::from_bits(x as u16).to_f32()),
            Op::FromBf16 => map!(out, |x| bf16::from_bits(x as u16).to_f32()),
            _ => false,
        }
    }
}

dispatched! {
    /// Appends the chosen ones of two `f32`s.
    chosen_floats(condition: &[bool], x: &[f32], y: &[f32], out: &mut Vec<f32>) {
        map!(out, |condition, x, y| if condition { x } else { y })
    }
}

dispatched! {
    /// Appends the chosen ones of two integers.
    chosen_integers(condition: &[bool], x: &[i64], y: &[i64], out: &mut Vec<i64>) {
        map!(out, |condition, x, y| if condition { x } else { y })
    }
}
