//! Operator overloading that emits Kernel IR: `x * y + 1.0` on `Term`s appends the statements that compute
//! it.
//!
//! `Term`s let the source of an expansion read like its formula.
//!
//! Invariant: an operator means the operation of that name in the op table, in the dtype of the left term. A
//! number takes the dtype of the term it meets.

use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Shl, Shr, Sub};

use crate::ir::dtype::{Const, DType, wrap};
use crate::ir::kernel::{Builder, Value};
use crate::ir::op::Op;

/// A value under construction.
#[derive(Clone, Copy)]
pub(super) struct Term<'b> {
    body: &'b RefCell<Builder<'b>>,
    value: Value,
}

/// A term, or a number that takes the dtype of the term it meets.
pub(super) trait IntoTerm<'b> {
    /// Returns the operand as a term. A number becomes a constant of the dtype of `like`.
    fn meet(self, like: Term<'b>) -> Term<'b>;
}

impl<'b> IntoTerm<'b> for Term<'b> {
    fn meet(self, _like: Term<'b>) -> Term<'b> {
        self
    }
}

impl<'b> IntoTerm<'b> for f32 {
    fn meet(self, like: Term<'b>) -> Term<'b> {
        match like.dtype() {
            DType::F32 | DType::F64 => like.constant(Const::Float(f64::from(self))),
            other => unreachable!("a float expansion of {other}"),
        }
    }
}

impl<'b> IntoTerm<'b> for i32 {
    fn meet(self, like: Term<'b>) -> Term<'b> {
        like.constant(Const::Int(wrap(like.dtype(), i64::from(self))))
    }
}

/// Emits a function of one operand.
pub(super) fn unary(b: &mut Builder<'_>, x: &[Value], f: impl for<'b> Fn(Term<'b>) -> Term<'b>) -> Value {
    let body = RefCell::new(b.reborrow());
    f(Term { body: &body, value: x[0] }).value
}

/// Emits a function of two operands.
pub(super) fn binary(
    b: &mut Builder<'_>,
    x: &[Value],
    f: impl for<'b> Fn(Term<'b>, Term<'b>) -> Term<'b>,
) -> Value {
    let body = RefCell::new(b.reborrow());
    f(Term { body: &body, value: x[0] }, Term { body: &body, value: x[1] }).value
}

/// Emits a function of three operands.
pub(super) fn ternary(
    b: &mut Builder<'_>,
    x: &[Value],
    f: impl for<'b> Fn(Term<'b>, Term<'b>, Term<'b>) -> Term<'b>,
) -> Value {
    let body = RefCell::new(b.reborrow());
    let [x, y, z] = [0, 1, 2].map(|i| Term { body: &body, value: x[i] });
    f(x, y, z).value
}

impl<'b> Term<'b> {
    /// Returns the dtype of each lane.
    pub(super) fn dtype(self) -> DType {
        self.body.borrow().ty(self.value).dtype
    }

    /// Returns a constant of the term's dtype.
    pub(super) fn constant(self, value: Const) -> Term<'b> {
        self.number(self.dtype(), value)
    }

    /// Reinterprets an `f32` as `i32` bits.
    pub(super) fn bits(self) -> Term<'b> {
        self.bitcast(DType::I32)
    }

    /// Reinterprets bits as an `f32`.
    pub(super) fn float_of_bits(self) -> Term<'b> {
        self.bitcast(DType::F32)
    }

    /// Reinterprets the bits as another dtype.
    pub(super) fn bitcast(self, dtype: DType) -> Term<'b> {
        let value = self.body.borrow_mut().bitcast(self.value, dtype);
        Term { value, ..self }
    }

    /// Converts an integer to `f32`.
    pub(super) fn to_float(self) -> Term<'b> {
        let value = self.body.borrow_mut().cast(self.value, DType::F32);
        Term { value, ..self }
    }

    /// Converts an integer to `f64`.
    pub(super) fn to_double(self) -> Term<'b> {
        let value = self.body.borrow_mut().cast(self.value, DType::F64);
        Term { value, ..self }
    }

    /// Converts a float to `i32`.
    pub(super) fn to_int(self) -> Term<'b> {
        let value = self.body.borrow_mut().cast(self.value, DType::I32);
        Term { value, ..self }
    }

    /// Returns the same value, hidden from drivers that may reassociate. No such driver supports `f64`.
    pub(super) fn opaque(self) -> Term<'b> {
        if self.dtype() == DType::F64 { self } else { self.unary(Op::Opaque) }
    }

    /// Computes `self * y + z`, rounded once where the target can do so.
    pub(super) fn fma(self, y: impl IntoTerm<'b>, z: impl IntoTerm<'b>) -> Term<'b> {
        self.apply(Op::Fma, &[y.meet(self), z.meet(self)])
    }

    /// Computes `self * y + z`, clamped to the range 0 to 1. NaN gives 0.
    pub(super) fn saturated_fma(self, y: impl IntoTerm<'b>, z: impl IntoTerm<'b>) -> Term<'b> {
        self.apply(Op::SaturatedFma, &[y.meet(self), z.meet(self)])
    }

    /// Clamps to the range of finite numbers. NaN gives some finite number.
    pub(super) fn finite(self) -> Term<'b> {
        let limit = |x: f32| x.meet(self);
        limit(f32::MAX).binary(Op::MinNum, limit(f32::MIN).binary(Op::MaxNum, self))
    }

    /// Computes `c₀ + c₁x + c₂x² + …`.
    pub(super) fn polynomial(self, coefficients: &[f32]) -> Term<'b> {
        let mut highest_first = coefficients.iter().rev().copied();
        let Some(highest) = highest_first.next() else { unreachable!("a polynomial has a coefficient") };
        highest_first.fold(highest.meet(self), |sum, c| sum.fma(self, c))
    }

    /// Computes the polynomial by Estrin's scheme, which combines pairs of terms first. The scheme needs more
    /// products than Horner's, but its dependency chains are short. A CPU keeps no more than some sixty
    /// operations waiting, so long chains prevent it from starting the next elements.
    pub(super) fn polynomial_by_pairs(self, coefficients: &[f32]) -> Term<'b> {
        let mut power = self;
        let mut terms: Vec<Term<'b>> = coefficients.iter().map(|c| c.meet(self)).collect();
        while terms.len() > 1 {
            let pair = |pair: &[Term<'b>]| match *pair {
                [low, high] => high.fma(power, low),
                _ => pair[0],
            };
            terms = terms.chunks(2).map(pair).collect();
            if terms.len() > 1 {
                power = power * power;
            }
        }
        terms.first().copied().unwrap_or_else(|| unreachable!("a polynomial has a coefficient"))
    }

    /// Computes `|self|`.
    pub(super) fn abs(self) -> Term<'b> {
        self.unary(Op::Abs)
    }

    /// Applies an operation of one operand.
    pub(super) fn unary(self, op: Op) -> Term<'b> {
        self.apply(op, &[])
    }

    /// Applies an operation of two operands.
    pub(super) fn binary(self, op: Op, y: impl IntoTerm<'b>) -> Term<'b> {
        self.apply(op, &[y.meet(self)])
    }

    /// Computes `self < y`.
    pub(super) fn lt(self, y: impl IntoTerm<'b>) -> Term<'b> {
        self.binary(Op::Lt, y)
    }

    /// Computes `self <= y`.
    pub(super) fn le(self, y: impl IntoTerm<'b>) -> Term<'b> {
        self.binary(Op::Le, y)
    }

    /// Computes `self > y`.
    pub(super) fn gt(self, y: impl IntoTerm<'b>) -> Term<'b> {
        self.binary(Op::Gt, y)
    }

    /// Computes `self >= y`.
    pub(super) fn ge(self, y: impl IntoTerm<'b>) -> Term<'b> {
        self.binary(Op::Ge, y)
    }

    /// Computes `self == y`.
    pub(super) fn eq(self, y: impl IntoTerm<'b>) -> Term<'b> {
        self.binary(Op::Eq, y)
    }

    /// Computes `self != y`.
    pub(super) fn ne(self, y: impl IntoTerm<'b>) -> Term<'b> {
        self.binary(Op::Ne, y)
    }

    /// Computes `if self { x } else { y }`. `y` may be a number.
    pub(super) fn select(self, x: Term<'b>, y: impl IntoTerm<'b>) -> Term<'b> {
        self.apply(Op::Select, &[x, y.meet(x)])
    }

    /// Computes `if condition { x } else { self }`.
    pub(super) fn but(self, x: impl IntoTerm<'b>, condition: Term<'b>) -> Term<'b> {
        condition.select(x.meet(self), self)
    }

    /// Clamps to the range `low ..= high`. NaN stays NaN.
    pub(super) fn clamp(self, low: f32, high: f32) -> Term<'b> {
        let x = self.but(low, self.lt(low));
        // Comparing the result of the first step lets each step become one minimum or maximum instruction of
        // a CPU.
        x.but(high, x.gt(high))
    }

    fn number(self, dtype: DType, value: Const) -> Term<'b> {
        let value = self.body.borrow_mut().constant(dtype, value);
        Term { value, ..self }
    }

    fn apply(self, op: Op, others: &[Term<'b>]) -> Term<'b> {
        let args: Vec<Value> = [self].iter().chain(others).map(|term| term.value).collect();
        let value = self.body.borrow_mut().apply(op, &args);
        Term { value, ..self }
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:expr;)*) => {$(
        impl<'b, T: IntoTerm<'b>> $trait<T> for Term<'b> {
            type Output = Term<'b>;

            fn $method(self, y: T) -> Term<'b> {
                self.binary($op, y)
            }
        }
    )*};
}

operators! {
    Add add Op::Add;
    Sub sub Op::Sub;
    Mul mul Op::Mul;
    Div div Op::Div;
    BitAnd bitand Op::And;
    BitOr bitor Op::Or;
    BitXor bitxor Op::Xor;
    Shl shl Op::ShlRaw;
    Shr shr Op::ShrRaw;
}

macro_rules! numbers_on_the_left {
    ($($trait:ident $method:ident;)*) => {$(
        impl<'b> $trait<Term<'b>> for f32 {
            type Output = Term<'b>;

            fn $method(self, y: Term<'b>) -> Term<'b> {
                self.meet(y).$method(y)
            }
        }
    )*};
}

numbers_on_the_left! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

impl<'b> Neg for Term<'b> {
    type Output = Term<'b>;

    fn neg(self) -> Term<'b> {
        self.unary(Op::Neg)
    }
}

impl<'b> Not for Term<'b> {
    type Output = Term<'b>;

    fn not(self) -> Term<'b> {
        self.unary(Op::Not)
    }
}
