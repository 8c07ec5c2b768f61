//! The table of pointwise operations. The row of an operation has all its properties.
//!
//! Invariant: a new row adds its operation to the language, the reference, every target and every test.
//!
//! Loads, stores, loops, reductions, casts and matrix products are not operations. Kernel IR has closed enums
//! with variants for these.

use super::derive;
use super::expand::{
    approximate as fast, double, error, exp, float, hyperbolic, int, log, narrow, pow, remainder, root, trig,
};
use super::info::{
    Double, Eval, Grad, Lower, Lowering, OpInfo, all, approximate, bits, decode, encode, everywhere, float,
    floats, numbers, ops, test, ulp,
};
use crate::ir::op::{Op, Typing};

use Double::{By, Same};
use Lower::{Expand, Native, Never, Recent};

ops! {
    Add = OpInfo {
        double: Same, name: "add", arity: 2,
        eval: Eval { float: |x| x[0] + x[1], int: |x, _| x[0].wrapping_add(x[1]) },
        grad: Grad::Rule(derive::add),
        cpu: numbers(Native("{0} + {1}"), Native("{0}.wrapping_add({1})"), Native("{0}.wrapping_add({1})")),
        ptx: numbers(Native("add.rn.{t} {d}, {0}, {1};"), Native("add.{t} {d}, {0}, {1};"), Native("add.{t} {d}, {0}, {1};")),
        wgsl: all(Native("{0} + {1}")),
        ..OpInfo::NONE
    };
    Sub = OpInfo {
        double: Same, name: "sub", arity: 2,
        eval: Eval { float: |x| x[0] - x[1], int: |x, _| x[0].wrapping_sub(x[1]) },
        grad: Grad::Rule(derive::sub),
        cpu: numbers(Native("{0} - {1}"), Native("{0}.wrapping_sub({1})"), Native("{0}.wrapping_sub({1})")),
        ptx: numbers(Native("sub.rn.{t} {d}, {0}, {1};"), Native("sub.{t} {d}, {0}, {1};"), Native("sub.{t} {d}, {0}, {1};")),
        wgsl: all(Native("{0} - {1}")),
        ..OpInfo::NONE
    };
    Mul = OpInfo {
        double: Same, name: "mul", arity: 2,
        eval: Eval { float: |x| x[0] * x[1], int: |x, _| x[0].wrapping_mul(x[1]) },
        grad: Grad::Rule(derive::mul),
        cpu: numbers(Native("{0} * {1}"), Native("{0}.wrapping_mul({1})"), Native("{0}.wrapping_mul({1})")),
        ptx: numbers(Native("mul.rn.{t} {d}, {0}, {1};"), Native("mul.lo.{t} {d}, {0}, {1};"), Native("mul.lo.{t} {d}, {0}, {1};")),
        wgsl: all(Native("{0} * {1}")),
        ..OpInfo::NONE
    };
    Div = OpInfo {
        double: Same, name: "div", arity: 2, ulp: ulp(0, 3),
        eval: Eval { float: |x| x[0] / x[1], int: |x, _| if x[1] == 0 { x[0] } else { x[0].wrapping_div(x[1]) } },
        grad: Grad::Rule(derive::div),
        cpu: numbers(Native("{0} / {1}"), Native("{0}.checked_div({1}).unwrap_or({0})"), Native("{0}.checked_div({1}).unwrap_or({0})")),
        ptx: numbers(Native("div.rn.{t} {d}, {0}, {1};"), Expand(int::div), Expand(int::div_unsigned)),
        wgsl: numbers(Native("{0} / {1}"), Expand(int::div), Expand(int::div_unsigned)),
        ..OpInfo::NONE
    };
    DivNearOne = OpInfo {
        double: Double::Never, typing: Typing::Float, arity: 2, ulp: ulp(1, 3),
        eval: Eval { float: |x| x[0] / x[1], int: |_, _| 0 },
        cpu: float(Native("{0} / {1}")), ptx: float(Expand(float::div_near_one)), wgsl: float(Native("{0} / {1}")),
        ..OpInfo::NONE
    };
    Rem = OpInfo {
        double: By(Native("{0} % {1}"), Expand(double::rem)), name: "fmod", arity: 2,
        eval: Eval { float: |x| x[0] % x[1], int: |x, _| if x[1] == 0 { 0 } else { x[0].wrapping_rem(x[1]) } },
        grad: Grad::Rule(derive::rem),
        cpu: numbers(Native("{0} % {1}"), Native("{0}.checked_rem({1}).unwrap_or(0)"), Native("{0}.checked_rem({1}).unwrap_or(0)")),
        ptx: numbers(Expand(remainder::rem), Expand(int::rem), Expand(int::rem_unsigned)),
        wgsl: numbers(Expand(remainder::rem), Expand(int::rem), Expand(int::rem_unsigned)),
        ..OpInfo::NONE
    };
    Remainder = OpInfo {
        double: Same, name: "remainder", arity: 2,
        eval: Eval { float: |x| remainder::floor_rem_reference(x[0], x[1]), int: |x, _| int::floor_rem_reference(x[0], x[1]) },
        grad: Grad::Rule(derive::remainder),
        cpu: numbers(Expand(remainder::floor_rem), Expand(int::floor_rem), Native("{0}.checked_rem({1}).unwrap_or(0)")),
        ptx: numbers(Expand(remainder::floor_rem), Expand(int::floor_rem), Expand(int::rem_unsigned)),
        wgsl: numbers(Expand(remainder::floor_rem), Expand(int::floor_rem), Expand(int::rem_unsigned)),
        ..OpInfo::NONE
    };
    FloorDiv = OpInfo {
        double: Same, name: "floor_div", arity: 2, ulp: ulp(1, 4),
        eval: Eval { float: |x| remainder::floor_div_reference(x[0], x[1]), int: |x, _| int::floor_div_reference(x[0], x[1]) },
        cpu: numbers(Expand(remainder::floor_div), Expand(int::floor_div), Native("{0}.checked_div({1}).unwrap_or({0})")),
        ptx: numbers(Expand(remainder::floor_div), Expand(int::floor_div), Expand(int::div_unsigned)),
        wgsl: numbers(Expand(remainder::floor_div), Expand(int::floor_div), Expand(int::div_unsigned)),
        ..OpInfo::NONE
    };
    IntDiv = OpInfo {
        arity: 2, typing: Typing::Int,
        eval: Eval { float: |_| f64::NAN, int: |x, _| x[0].checked_div(x[1]).unwrap_or(x[0]) },
        cpu: bits(Native("{0}.checked_div({1}).unwrap_or({0})"), Never),
        ptx: bits(Native("div.{t} {d}, {0}, {1};"), Never),
        wgsl: bits(Native("{0} / {1}"), Never),
        ..OpInfo::NONE
    };
    IntRem = OpInfo {
        arity: 2, typing: Typing::Int,
        eval: Eval { float: |_| f64::NAN, int: |x, _| x[0].checked_rem(x[1]).unwrap_or(0) },
        cpu: bits(Native("{0}.checked_rem({1}).unwrap_or(0)"), Never),
        ptx: bits(Native("rem.{t} {d}, {0}, {1};"), Never),
        wgsl: bits(Native("{0} % {1}"), Never),
        ..OpInfo::NONE
    };
    MulHigh = OpInfo {
        arity: 2, typing: Typing::Int,
        eval: Eval { float: |_| f64::NAN, int: |x, bits| ((i128::from(x[0]) * i128::from(x[1])) >> bits) as i64 },
        cpu: numbers(Never, Never, Native("((u64::from({0}) * u64::from({1})) >> 32) as u32")),
        ptx: numbers(Never, Never, Native("mul.hi.{t} {d}, {0}, {1};")),
        wgsl: numbers(Never, Never, Expand(int::mul_high)),
        ..OpInfo::NONE
    };
    Fma = OpInfo {
        double: By(Native("{0}.mul_add({1}, {2})"), Native("fma.rn.{t} {d}, {0}, {1}, {2};")), name: "fma", arity: 3, ulp: ulp(0, 1),
        eval: Eval { float: |x| x[0].mul_add(x[1], x[2]), int: |_, _| 0 },
        grad: Grad::Rule(derive::fma),
        ..floats([Native("ops.mul_add({0}, {1}, {2})"), Native("fma.rn.{t} {d}, {0}, {1}, {2};"), Native("fma({0}, {1}, {2})")])
    };
    SaturatedFma = OpInfo {
        double: Double::Never, arity: 3, ulp: ulp(0, 1),
        eval: Eval { float: |x| match x[0].mul_add(x[1], x[2]) { y if y > 0.0 => y.min(1.0), _ => 0.0 }, int: |_, _| 0 },
        ptx: float(Native("fma.rn.sat.{t} {d}, {0}, {1}, {2};")), ..everywhere(float::saturated_fma)
    };
    Neg = OpInfo {
        double: Same, name: "neg",
        eval: Eval { float: |x| -x[0], int: |x, _| x[0].wrapping_neg() },
        grad: Grad::Rule(derive::neg),
        cpu: numbers(Native("-{0}"), Native("{0}.wrapping_neg()"), Native("{0}.wrapping_neg()")),
        ptx: numbers(Native("neg.{t} {d}, {0};"), Native("neg.{t} {d}, {0};"), Native("sub.{t} {d}, 0, {0};")),
        wgsl: numbers(Native("-{0}"), Native("-{0}"), Native("{t}() - {0}")),
        ..OpInfo::NONE
    };
    Abs = OpInfo {
        double: Same, name: "abs",
        eval: Eval { float: |x| x[0].abs(), int: |x, _| x[0].wrapping_abs() },
        grad: Grad::Rule(derive::abs),
        cpu: numbers(Native("{0}.abs()"), Native("{0}.wrapping_abs()"), Native("{0}")),
        ptx: numbers(Native("abs.{t} {d}, {0};"), Native("abs.{t} {d}, {0};"), Native("mov.{t} {d}, {0};")),
        wgsl: all(Native("abs({0})")),
        ..OpInfo::NONE
    };
    Copysign = OpInfo {
        double: Same, name: "copysign", arity: 2,
        eval: Eval { float: |x| x[0].copysign(x[1]), int: |_, _| 0 },
        grad: Grad::Rule(derive::copysign),
        ..floats([Native("{0}.copysign({1})"), Native("copysign.{t} {d}, {1}, {0};"), Expand(float::copysign)])
    };
    Sign = OpInfo {
        double: Same, name: "sign",
        eval: Eval { float: |x| if x[0] == 0.0 || x[0].is_nan() { x[0] } else { x[0].signum() }, int: |x, _| x[0].signum() },
        cpu: numbers(Expand(float::sign), Expand(int::sign), Expand(int::sign)),
        ptx: numbers(Expand(float::sign), Expand(int::sign), Expand(int::sign)),
        wgsl: numbers(Expand(float::sign), Expand(int::sign), Expand(int::sign)),
        ..OpInfo::NONE
    };
    Min = OpInfo {
        double: Same, name: "min", arity: 2,
        eval: Eval { float: |x| if x[0].is_nan() || x[0] < x[1] { x[0] } else { x[1] }, int: |x, _| x[0].min(x[1]) },
        grad: Grad::Rule(derive::min),
        cpu: numbers(Expand(float::min_by_instruction), Native("{0}.min({1})"), Native("{0}.min({1})")),
        ptx: numbers(Expand(float::min), Native("min.{t} {d}, {0}, {1};"), Native("min.{t} {d}, {0}, {1};")),
        wgsl: numbers(Expand(float::min), Native("min({0}, {1})"), Native("min({0}, {1})")),
        ..OpInfo::NONE
    };
    Max = OpInfo {
        double: Same, name: "max", arity: 2,
        eval: Eval { float: |x| if x[0].is_nan() || x[0] > x[1] { x[0] } else { x[1] }, int: |x, _| x[0].max(x[1]) },
        grad: Grad::Rule(derive::max),
        cpu: numbers(Expand(float::max_by_instruction), Native("{0}.max({1})"), Native("{0}.max({1})")),
        ptx: numbers(Expand(float::max), Native("max.{t} {d}, {0}, {1};"), Native("max.{t} {d}, {0}, {1};")),
        wgsl: numbers(Expand(float::max), Native("max({0}, {1})"), Native("max({0}, {1})")),
        ..OpInfo::NONE
    };
    MaxNum = OpInfo {
        double: Same, arity: 2,
        eval: Eval { float: |x| if x[1] > x[0] { x[1] } else { x[0] }, int: |_, _| 0 },
        ..floats([Expand(float::max_num), Native("max.{t} {d}, {0}, {1};"), Expand(float::max_num)])
    };
    MinNum = OpInfo {
        double: Same, arity: 2,
        eval: Eval { float: |x| if x[1] < x[0] { x[1] } else { x[0] }, int: |_, _| 0 },
        ..floats([Expand(float::min_num), Native("min.{t} {d}, {0}, {1};"), Expand(float::min_num)])
    };
    Floor = OpInfo {
        double: By(Native("{0}.floor()"), Native("cvt.rmi.{t}.{t} {d}, {0};")), name: "floor",
        eval: Eval { float: |x| x[0].floor(), int: |_, _| 0 },
        ..floats([Native("ops.floor({0})"), Native("cvt.rmi.{t}.{t} {d}, {0};"), Native("floor({0})")])
    };
    Ceil = OpInfo {
        double: By(Native("{0}.ceil()"), Native("cvt.rpi.{t}.{t} {d}, {0};")), name: "ceil",
        eval: Eval { float: |x| x[0].ceil(), int: |_, _| 0 },
        ..floats([Native("ops.ceil({0})"), Native("cvt.rpi.{t}.{t} {d}, {0};"), Native("ceil({0})")])
    };
    Round = OpInfo {
        double: By(Native("{0}.round_ties_even()"), Native("cvt.rni.{t}.{t} {d}, {0};")), name: "round",
        eval: Eval { float: |x| x[0].round_ties_even(), int: |_, _| 0 },
        ..floats([Native("ops.round_ties_even({0})"), Native("cvt.rni.{t}.{t} {d}, {0};"), Native("round({0})")])
    };
    Trunc = OpInfo {
        double: By(Native("{0}.trunc()"), Native("cvt.rzi.{t}.{t} {d}, {0};")), name: "trunc",
        eval: Eval { float: |x| x[0].trunc(), int: |_, _| 0 },
        ..floats([Native("ops.trunc({0})"), Native("cvt.rzi.{t}.{t} {d}, {0};"), Native("trunc({0})")])
    };
    Sqrt = OpInfo {
        double: Same, name: "sqrt", domain: &[(0.0, 1e6)], ulp: ulp(0, 3),
        eval: Eval { float: |x| x[0].sqrt(), int: |_, _| 0 },
        grad: Grad::Rule(derive::sqrt),
        ..floats([Native("{0}.sqrt()"), Native("sqrt.rn.{t} {d}, {0};"), Native("sqrt({0})")])
    };
    Rsqrt = OpInfo {
        double: Same, name: "rsqrt", domain: &[(1e-3, 1e6)], ulp: ulp(2, 5),
        eval: Eval { float: |x| 1.0 / x[0].sqrt(), int: |_, _| 0 },
        grad: Grad::Rule(derive::rsqrt),
        ..everywhere(root::rsqrt)
    };
    Cbrt = OpInfo {
        double: By(Native("{0}.cbrt()"), Expand(double::cbrt)), name: "cbrt", domain: &[(-1e6, 1e6)], ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].cbrt(), int: |_, _| 0 },
        grad: Grad::Rule(derive::cbrt),
        ..everywhere(root::cbrt)
    };
    Exp = OpInfo {
        double: By(Native("{0}.exp()"), Expand(double::exp)), name: "exp", domain: &[(-87.0, 88.0)], ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].exp(), int: |_, _| 0 },
        grad: Grad::Rule(derive::exp),
        ptx: float(Expand(exp::exp_by_power)), ..everywhere(exp::exp)
    };
    ExpOfNonpositive = OpInfo {
        double: By(Native("{0}.exp()"), Expand(double::exp)), ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].exp(), int: |_, _| 0 },
        ptx: float(Expand(exp::exp_of_nonpositive_by_power)), ..everywhere(exp::exp_of_nonpositive)
    };
    ExpBelow = OpInfo {
        // The subtraction rounds by up to 2⁻¹⁸ at a difference of 104, beyond which the exponential is 0.
        double: Double::Never, arity: 2, ulp: ulp(66, 68),
        eval: Eval { float: |x| if x[0] == x[1] { 1.0 } else { (x[0] - x[1]).exp() }, int: |_, _| 0 },
        ptx: float(Expand(exp::exp_below_finite)), ..everywhere(exp::exp_below)
    };
    Exp2 = OpInfo {
        double: By(Native("{0}.exp2()"), Expand(double::exp2)), name: "exp2", domain: &[(-126.0, 127.9)], ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].exp2(), int: |_, _| 0 },
        grad: Grad::Rule(derive::exp2),
        ..everywhere(exp::exp2)
    };
    Expm1 = OpInfo {
        double: By(Native("{0}.exp_m1()"), Expand(double::expm1)), name: "expm1", domain: &[(-20.0, 88.0)], ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].exp_m1(), int: |_, _| 0 },
        grad: Grad::Rule(derive::expm1),
        ..everywhere(exp::expm1)
    };
    Log = OpInfo {
        double: By(Native("{0}.ln()"), Expand(double::log)), name: "log", domain: &[(1e-30, 1e30)], ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].ln(), int: |_, _| 0 },
        grad: Grad::Rule(derive::log),
        ..everywhere(log::log)
    };
    Log2 = OpInfo {
        double: By(Native("{0}.log2()"), Expand(double::log2)), name: "log2", domain: &[(1e-30, 1e30)], ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].log2(), int: |_, _| 0 },
        grad: Grad::Rule(derive::log2),
        ..everywhere(log::log2)
    };
    Log1p = OpInfo {
        double: By(Native("{0}.ln_1p()"), Expand(double::log1p)), name: "log1p", domain: &[(-0.999, 1e10)], ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].ln_1p(), int: |_, _| 0 },
        grad: Grad::Rule(derive::log1p),
        ..everywhere(log::log1p)
    };
    Pow = OpInfo {
        double: By(Native("{0}.powf({1})"), Expand(double::pow)), name: "pow", arity: 2, domain: &[(1e-3, 1e3), (-10.0, 10.0)], ulp: ulp(4, 8),
        eval: Eval { float: |x| x[0].powf(x[1]), int: |_, _| 0 },
        grad: Grad::Rule(derive::pow),
        ..everywhere(pow::pow)
    };
    Sin = OpInfo {
        double: By(Native("{0}.sin()"), Expand(double::sin)), name: "sin", domain: &[(-1e5, 1e5)], ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].sin(), int: |_, _| 0 },
        grad: Grad::Rule(derive::sin),
        ..everywhere(trig::sin)
    };
    Cos = OpInfo {
        double: By(Native("{0}.cos()"), Expand(double::cos)), name: "cos", domain: &[(-1e5, 1e5)], ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].cos(), int: |_, _| 0 },
        grad: Grad::Rule(derive::cos),
        ..everywhere(trig::cos)
    };
    Tan = OpInfo {
        double: By(Native("{0}.tan()"), Expand(double::tan)), name: "tan", domain: &[(-1e5, 1e5)], ulp: ulp(4, 8),
        eval: Eval { float: |x| x[0].tan(), int: |_, _| 0 },
        grad: Grad::Rule(derive::tan),
        ..everywhere(trig::tan)
    };
    Asin = OpInfo {
        double: By(Native("{0}.asin()"), Expand(double::asin)), name: "asin", domain: &[(-1.0, 1.0)], ulp: ulp(4, 8),
        eval: Eval { float: |x| x[0].asin(), int: |_, _| 0 },
        grad: Grad::Rule(derive::asin),
        ..everywhere(trig::asin)
    };
    Acos = OpInfo {
        double: By(Native("{0}.acos()"), Expand(double::acos)), name: "acos", domain: &[(-1.0, 1.0)], ulp: ulp(4, 8),
        eval: Eval { float: |x| x[0].acos(), int: |_, _| 0 },
        grad: Grad::Rule(derive::acos),
        ..everywhere(trig::acos)
    };
    Atan = OpInfo {
        double: By(Native("{0}.atan()"), Expand(double::atan)), name: "atan", domain: &[(-1e4, 1e4)], ulp: ulp(4, 8),
        eval: Eval { float: |x| x[0].atan(), int: |_, _| 0 },
        grad: Grad::Rule(derive::atan),
        ..everywhere(trig::atan)
    };
    Atan2 = OpInfo {
        double: By(Native("{0}.atan2({1})"), Expand(double::atan2)), name: "atan2", arity: 2, ulp: ulp(4, 8),
        eval: Eval { float: |x| x[0].atan2(x[1]), int: |_, _| 0 },
        grad: Grad::Rule(derive::atan2),
        ..everywhere(trig::atan2)
    };
    Sinh = OpInfo {
        double: By(Native("{0}.sinh()"), Expand(double::sinh)), name: "sinh", domain: &[(-88.0, 88.0)], ulp: ulp(4, 8),
        eval: Eval { float: |x| x[0].sinh(), int: |_, _| 0 },
        grad: Grad::Rule(derive::sinh),
        ..everywhere(hyperbolic::sinh)
    };
    Cosh = OpInfo {
        double: By(Native("{0}.cosh()"), Expand(double::cosh)), name: "cosh", domain: &[(-88.0, 88.0)], ulp: ulp(4, 8),
        eval: Eval { float: |x| x[0].cosh(), int: |_, _| 0 },
        grad: Grad::Rule(derive::cosh),
        ..everywhere(hyperbolic::cosh)
    };
    Tanh = OpInfo {
        double: By(Native("{0}.tanh()"), Expand(double::tanh)), name: "tanh", domain: &[(-10.0, 10.0)], ulp: ulp(2, 4),
        eval: Eval { float: |x| x[0].tanh(), int: |_, _| 0 },
        grad: Grad::Rule(derive::tanh),
        cpu: float(Expand(hyperbolic::tanh_of_one_exponential)), ptx: float(Expand(hyperbolic::tanh_by_power)),
        ..everywhere(hyperbolic::tanh)
    };
    Erf = OpInfo {
        double: By(Expand(double::erf), Expand(double::erf)), name: "erf", domain: &[(-4.5, 4.5)], ulp: ulp(2, 4),
        eval: Eval { float: |x| error::erf_reference(x[0]), int: |_, _| 0 },
        grad: Grad::Rule(derive::erf),
        ptx: float(Expand(error::erf_by_power)), ..everywhere(error::erf)
    };
    Erfc = OpInfo {
        double: By(Expand(double::erfc), Expand(double::erfc)), name: "erfc", domain: &[(-4.5, 9.0)], ulp: ulp(5, 10),
        eval: Eval { float: |x| error::erfc_reference(x[0]), int: |_, _| 0 },
        grad: Grad::Rule(derive::erfc),
        ..everywhere(error::erfc)
    };
    Lt = OpInfo {
        double: Same, eval: Eval { float: |x| f64::from(x[0] < x[1]), int: |x, _| i64::from(x[0] < x[1]) },
        cpu: all(Native("{0} < {1}")), ptx: all(Native("setp.lt.{t} {d}, {0}, {1};")), wgsl: all(Native("{0} < {1}")),
        ..COMPARE
    };
    Le = OpInfo {
        double: Same, eval: Eval { float: |x| f64::from(x[0] <= x[1]), int: |x, _| i64::from(x[0] <= x[1]) },
        cpu: all(Native("{0} <= {1}")), ptx: all(Native("setp.le.{t} {d}, {0}, {1};")), wgsl: all(Native("{0} <= {1}")),
        ..COMPARE
    };
    Gt = OpInfo {
        double: Same, eval: Eval { float: |x| f64::from(x[0] > x[1]), int: |x, _| i64::from(x[0] > x[1]) },
        cpu: all(Native("{0} > {1}")), ptx: all(Native("setp.gt.{t} {d}, {0}, {1};")), wgsl: all(Native("{0} > {1}")),
        ..COMPARE
    };
    Ge = OpInfo {
        double: Same, eval: Eval { float: |x| f64::from(x[0] >= x[1]), int: |x, _| i64::from(x[0] >= x[1]) },
        cpu: all(Native("{0} >= {1}")), ptx: all(Native("setp.ge.{t} {d}, {0}, {1};")), wgsl: all(Native("{0} >= {1}")),
        ..COMPARE
    };
    Eq = OpInfo {
        double: Same, eval: Eval { float: |x| f64::from(x[0] == x[1]), int: |x, _| i64::from(x[0] == x[1]) },
        cpu: all(Native("{0} == {1}")),
        ptx: Lowering { bool: Expand(int::same), ..all(Native("setp.eq.{t} {d}, {0}, {1};")) },
        wgsl: all(Native("{0} == {1}")),
        ..COMPARE
    };
    Ne = OpInfo {
        double: Same, eval: Eval { float: |x| f64::from(x[0] != x[1]), int: |x, _| i64::from(x[0] != x[1]) },
        cpu: all(Native("{0} != {1}")),
        ptx: Lowering {
            float: Native("setp.neu.{t} {d}, {0}, {1};"),
            bool: Native("xor.pred {d}, {0}, {1};"),
            ..all(Native("setp.ne.{t} {d}, {0}, {1};"))
        },
        // naga translates `!=` to an ordered comparison, which is false for NaN.
        wgsl: Lowering { float: Native("!({0} == {1})"), ..all(Native("{0} != {1}")) },
        ..COMPARE
    };
    And = OpInfo {
        arity: 2, typing: Typing::Bits,
        eval: Eval { float: |_| f64::NAN, int: |x, _| x[0] & x[1] },
        cpu: all(Native("{0} & {1}")), ptx: all(Native("and.{b} {d}, {0}, {1};")), wgsl: all(Native("{0} & {1}")),
        ..OpInfo::NONE
    };
    Or = OpInfo {
        arity: 2, typing: Typing::Bits,
        eval: Eval { float: |_| f64::NAN, int: |x, _| x[0] | x[1] },
        cpu: all(Native("{0} | {1}")), ptx: all(Native("or.{b} {d}, {0}, {1};")), wgsl: all(Native("{0} | {1}")),
        ..OpInfo::NONE
    };
    Xor = OpInfo {
        arity: 2, typing: Typing::Bits,
        eval: Eval { float: |_| f64::NAN, int: |x, _| x[0] ^ x[1] },
        cpu: all(Native("{0} ^ {1}")),
        ptx: all(Native("xor.{b} {d}, {0}, {1};")),
        wgsl: bits(Native("{0} ^ {1}"), Native("{0} != {1}")),
        ..OpInfo::NONE
    };
    Not = OpInfo {
        typing: Typing::Bits,
        eval: Eval { float: |_| f64::NAN, int: |x, _| !x[0] },
        cpu: all(Native("!{0}")),
        ptx: all(Native("not.{b} {d}, {0};")),
        wgsl: bits(Native("~{0}"), Native("!{0}")),
        ..OpInfo::NONE
    };
    Shl = OpInfo {
        arity: 2, typing: Typing::Int,
        eval: Eval { float: |_| f64::NAN, int: |x, bits| x[0] << (x[1] & i64::from(bits - 1)) },
        cpu: bits(Native("{0}.wrapping_shl({1} as u32)"), Never),
        ptx: bits(Expand(int::shl_masked), Never),
        wgsl: bits(Native("{0} << ({u}({1}) & {u}(31u))"), Never),
        ..OpInfo::NONE
    };
    Shr = OpInfo {
        arity: 2, typing: Typing::Int,
        eval: Eval { float: |_| f64::NAN, int: |x, bits| x[0] >> (x[1] & i64::from(bits - 1)) },
        cpu: bits(Native("{0}.wrapping_shr({1} as u32)"), Never),
        ptx: bits(Expand(int::shr_masked), Never),
        wgsl: bits(Native("{0} >> ({u}({1}) & {u}(31u))"), Never),
        ..OpInfo::NONE
    };
    ShlRaw = OpInfo {
        arity: 2, typing: Typing::Int,
        eval: Eval { float: |_| f64::NAN, int: |x, bits| x[0] << (x[1] & i64::from(bits - 1)) },
        cpu: bits(Native("{0}.wrapping_shl({1} as u32)"), Never),
        ptx: bits(Native("shl.{b} {d}, {0}, {amount};"), Never),
        wgsl: bits(Native("{0} << {u}({1})"), Never),
        ..OpInfo::NONE
    };
    ShrRaw = OpInfo {
        arity: 2, typing: Typing::Int,
        eval: Eval { float: |_| f64::NAN, int: |x, bits| x[0] >> (x[1] & i64::from(bits - 1)) },
        cpu: bits(Native("{0}.wrapping_shr({1} as u32)"), Never),
        ptx: bits(Native("shr.{t} {d}, {0}, {amount};"), Never),
        wgsl: bits(Native("{0} >> {u}({1})"), Never),
        ..OpInfo::NONE
    };
    Opaque = OpInfo {
        eval: Eval { float: |x| x[0], int: |_, _| 0 },
        ..floats([Expand(float::same), Expand(float::same), Expand(float::opaque)])
    };
    ApproxDiv = OpInfo {
        arity: 2, ..approximate(|x| x[0] / x[1], [Expand(fast::div), Native("div.approx.ftz.{t} {d}, {0}, {1};"), Native("{0} / {1}")])
    };
    ApproxRecip = approximate(|x| 1.0 / x[0],
        [Expand(fast::recip), Native("rcp.approx.ftz.{t} {d}, {0};"), Native("1.0 / {0}")]);
    ApproxSqrt = approximate(|x| x[0].sqrt(),
        [Expand(fast::sqrt), Native("sqrt.approx.ftz.{t} {d}, {0};"), Native("sqrt({0})")]);
    ApproxRsqrt = approximate(|x| 1.0 / x[0].sqrt(),
        [Expand(root::rsqrt), Native("rsqrt.approx.ftz.{t} {d}, {0};"), Native("inverseSqrt({0})")]);
    ApproxExp = approximate(|x| x[0].exp(), [Expand(exp::exp), Expand(fast::exp), Native("exp({0})")]);
    ApproxExpBelow = OpInfo {
        arity: 2,
        ..approximate(|x| if x[0] == x[1] { 1.0 } else { (x[0] - x[1]).exp() },
            [Expand(exp::exp_below), Expand(fast::exp_below_finite), Expand(fast::exp_below)])
    };
    ApproxExp2 = approximate(|x| x[0].exp2(),
        [Expand(exp::exp2), Native("ex2.approx.ftz.{t} {d}, {0};"), Native("exp2({0})")]);
    ApproxLog = approximate(|x| x[0].ln(), [Expand(log::log), Expand(fast::log), Native("log({0})")]);
    ApproxLog2 = approximate(|x| x[0].log2(),
        [Expand(log::log2), Native("lg2.approx.ftz.{t} {d}, {0};"), Native("log2({0})")]);
    ApproxSin = approximate(|x| x[0].sin(),
        [Expand(trig::sin), Native("sin.approx.{t} {d}, {0};"), Native("sin({0})")]);
    ApproxCos = approximate(|x| x[0].cos(),
        [Expand(trig::cos), Native("cos.approx.{t} {d}, {0};"), Native("cos({0})")]);
    Select = OpInfo {
        double: Same, name: "select", arity: 3, typing: Typing::Select,
        eval: Eval { float: |x| if x[0] != 0.0 { x[1] } else { x[2] }, int: |x, _| if x[0] != 0 { x[1] } else { x[2] } },
        grad: Grad::Rule(derive::select),
        cpu: all(Native("select_unpredictable({0}, {1}, {2})")),
        ptx: Lowering { bool: Expand(int::select_bool), ..all(Native("selp.{b} {d}, {1}, {2}, {0};")) },
        wgsl: all(Native("select({2}, {1}, {0})")),
        ..OpInfo::NONE
    };
    High = OpInfo {
        double: By(Never, Native("{ .reg .b32 low; mov.b64 {low, {d}}, {0}; }")), typing: Typing::Encode,
        eval: Eval { float: |x| (x[0].to_bits() >> 32) as f64, int: |_, _| 0 }, ..OpInfo::NONE
    };
    OfHigh = OpInfo {
        ptx: numbers(Never, Never, Native("{ .reg .b32 low; mov.b32 low, 0; mov.b64 {d}, {low, {0}}; }")), typing: Typing::Double,
        eval: Eval { float: |_| f64::NAN, int: |x, _| x[0] << 32 },
        ..OpInfo::NONE
    };
    ToBits = OpInfo { name: "to_bits", typing: Typing::ToBits,
        ..encode(|x| (x[0] as f32).to_bits().into(), Expand(narrow::to_bits), narrow::to_bits) };
    FromBits = OpInfo { name: "from_bits",
        ..decode(|x, _| x[0] & 0xffff_ffff, Expand(narrow::from_bits), narrow::from_bits) };
    ToF16 = encode(|x| half::f16::from_f32(x[0] as f32).to_bits().into(),
        Native("{ .reg .b16 h; cvt.rn.f16.f32 h, {0}; cvt.u32.u16 {d}, h; }"), narrow::to_f16);
    FromF16 = decode(|x, _| half::f16::from_bits(x[0] as u16).to_f32().to_bits().into(),
        Native("{ .reg .b16 h; cvt.u16.u32 h, {0}; cvt.f32.f16 {d}, h; }"), narrow::from_f16);
    ToBf16 = encode(|x| half::bf16::from_f32(x[0] as f32).to_bits().into(),
        Recent("cvt.rn.bf16x2.f32 {d}, 0f00000000, {0};", narrow::to_bf16), narrow::to_bf16);
    ToTf32 = OpInfo {
        ptx: numbers(Native("cvt.rna.tf32.f32 {d}, {0};"), Never, Never), typing: Typing::Encode,
        eval: Eval { float: |x| narrow::tf32_bits(x[0] as f32).into(), int: |_, _| 0 }, ..OpInfo::NONE
    };
    FromBf16 = decode(|x, _| half::bf16::from_bits(x[0] as u16).to_f32().to_bits().into(), Expand(narrow::from_bf16), narrow::from_bf16);
    IsNan = test("isnan", |x| f64::from(x[0].is_nan()),
        [Native("{0}.is_nan()"), Native("setp.nan.{t} {d}, {0}, {0};"), Expand(float::is_nan)]);
    IsInf = test("isinf", |x| f64::from(x[0].is_infinite()),
        [Native("{0}.is_infinite()"), Native("testp.infinite.{t} {d}, {0};"), Expand(float::is_inf)]);
    IsFinite = test("isfinite", |x| f64::from(x[0].is_finite()),
        [Native("{0}.is_finite()"), Native("testp.finite.{t} {d}, {0};"), Expand(float::is_finite)]);
}

const COMPARE: OpInfo = OpInfo { arity: 2, typing: Typing::Compare, ..OpInfo::NONE };
