//! Extents: expressions over the sizes that are only known at run time.
//!
//! A `DimExpr` is a flat list of steps, so that a plan stores it as bytes and a launch evaluates it without allocating.
//! Equal subexpressions are one step: an extent that is computed from itself twice per stage grows linearly with the stages.

use std::borrow::Cow;
use std::fmt;
use std::ops;

use serde::{Deserialize, Serialize};

/// A named dim of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dim {
    /// Name of the dim in the user's code, for messages.
    pub name: Cow<'static, str>,
    /// Extent of the dim: a symbol, a constant (`C = 3`), or an expression of both. The first parameter of a
    /// plan with a lone symbol binds the symbol; all other extents are checked.
    pub extent: DimExpr,
}

/// One step of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DimOp {
    /// A number.
    Const(i64),
    /// The extent of a symbol.
    Sym(u16),
    /// An operation on the values of two earlier steps.
    Binary(DimBinary, u16, u16),
}

/// An operation on two extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DimBinary {
    /// The sum.
    Add,
    /// The difference.
    Sub,
    /// The product.
    Mul,
    /// The quotient, rounded towards 0.
    Div,
    /// The quotient, rounded up.
    CeilDiv,
    /// The lesser of both.
    Min,
}

/// An extent, as a function of the symbols of its plan. All symbols are ≥ 0.
///
/// The last step is the value. Every other step is an operand of a later one, and no two steps are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DimExpr(pub Cow<'static, [DimOp]>);

/// Returns the greatest common divisor. 0 is a multiple of every number.
fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Most steps that are evaluated without allocating.
const STEPS: usize = 32;

/// Most characters of an operand that [`DimExpr::display`] writes out.
const OPERAND_LEN: usize = 120;

impl DimExpr {
    /// A fixed extent.
    pub fn constant(extent: i64) -> DimExpr {
        DimExpr(Cow::Owned(vec![DimOp::Const(extent)]))
    }

    /// The extent that symbol number `sym` stands for.
    pub fn sym(sym: u16) -> DimExpr {
        DimExpr(Cow::Owned(vec![DimOp::Sym(sym)]))
    }

    /// The product of all factors, 1 for none.
    pub fn product<'a>(factors: impl IntoIterator<Item = &'a DimExpr>) -> DimExpr {
        factors.into_iter().fold(DimExpr::constant(1), |product, factor| product * factor.clone())
    }

    /// The value, when no symbol is in it.
    pub fn as_const(&self) -> Option<i64> {
        match *self.0 {
            [DimOp::Const(extent)] => Some(extent),
            _ => None,
        }
    }

    /// Returns the number of the symbol that the extent is, if it is a lone one.
    pub fn as_sym(&self) -> Option<u16> {
        match *self.0 {
            [DimOp::Sym(symbol)] => Some(symbol),
            _ => None,
        }
    }

    /// Quotient rounded up.
    pub fn ceil_div(self, divisor: DimExpr) -> DimExpr {
        self.binary(divisor, DimBinary::CeilDiv)
    }

    /// The lesser of both.
    pub fn min(self, other: DimExpr) -> DimExpr {
        self.binary(other, DimBinary::Min)
    }

    /// The value for these symbols, or nothing where it overflows or divides by zero.
    pub fn eval(&self, symbols: &[i64]) -> Option<i64> {
        // Most extents are one step, and every call evaluates a dozen.
        match *self.0 {
            [DimOp::Const(extent)] => return Some(extent),
            [DimOp::Sym(sym)] => return symbols.get(usize::from(sym)).copied(),
            _ => {}
        }
        match self.0.len() {
            0..=STEPS => self.eval_into(symbols, &mut [0; STEPS]),
            many => self.eval_into(symbols, &mut vec![0; many]),
        }
    }

    /// Evaluates all steps, each into its element of `values`.
    fn eval_into(&self, symbols: &[i64], values: &mut [i64]) -> Option<i64> {
        for (i, &step) in self.0.iter().enumerate() {
            values[i] = match step {
                DimOp::Const(extent) => extent,
                DimOp::Sym(sym) => *symbols.get(usize::from(sym))?,
                DimOp::Binary(op, a, b) => {
                    op.apply(*values.get(usize::from(a))?, *values.get(usize::from(b))?)?
                }
            };
        }
        values.get(self.0.len().checked_sub(1)?).copied()
    }

    /// Folds the steps: `leaf` gives the value of a number or symbol, `binary` of an operation on two values.
    pub fn fold<T>(
        &self,
        mut leaf: impl FnMut(DimOp) -> Option<T>,
        mut binary: impl FnMut(DimBinary, &T, &T) -> Option<T>,
    ) -> Option<T> {
        let mut values: Vec<T> = Vec::with_capacity(self.0.len());
        for &step in self.0.iter() {
            let value = match step {
                DimOp::Const(_) | DimOp::Sym(_) => leaf(step)?,
                DimOp::Binary(op, a, b) => {
                    binary(op, values.get(usize::from(a))?, values.get(usize::from(b))?)?
                }
            };
            values.push(value);
        }
        values.pop()
    }

    /// Returns true if the value is not negative, whatever the symbols are. Differences have no such promise.
    pub fn is_nonnegative(&self) -> bool {
        let is_free = |step: &DimOp| match step {
            DimOp::Const(number) => *number >= 0,
            DimOp::Sym(_) => true,
            DimOp::Binary(op, ..) => *op != DimBinary::Sub,
        };
        self.0.iter().all(is_free)
    }

    /// A number that the extent is a multiple of, whatever the symbols are.
    pub fn factor(&self) -> i64 {
        let leaf = |step| match step {
            DimOp::Const(extent) => Some(extent.saturating_abs()),
            DimOp::Sym(_) | DimOp::Binary(..) => Some(1),
        };
        let binary = |op, &left: &i64, &right: &i64| match op {
            DimBinary::Add | DimBinary::Sub | DimBinary::Min => Some(greatest_common_divisor(left, right)),
            DimBinary::Mul => Some(left.checked_mul(right).unwrap_or(1)),
            DimBinary::Div | DimBinary::CeilDiv => Some(1),
        };
        self.fold(leaf, binary).unwrap_or(1)
    }

    /// The symbols in the expression, each once.
    pub fn symbols(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().filter_map(|op| match op {
            DimOp::Sym(sym) => Some(*sym),
            DimOp::Const(_) | DimOp::Binary(..) => None,
        })
    }

    /// The expression as users would write it, with the names of its symbols. Operands of more than 120 characters are left out.
    pub fn display<'a, S: AsRef<str>>(&'a self, names: &'a [S]) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| f.write_str(&self.infix(names)))
    }

    fn infix<S: AsRef<str>>(&self, names: &[S]) -> String {
        // A text, and how tightly its outermost operation binds: a sum 0, a quotient 1, a product 2, a name 3.
        type Infix = (String, u8);
        let leaf = |step| match step {
            DimOp::Const(extent) => Some((extent.to_string(), 3)),
            DimOp::Sym(sym) => {
                let name = names.get(usize::from(sym));
                Some((name.map_or_else(|| format!("?{sym}"), |name| name.as_ref().into()), 3))
            }
            DimOp::Binary(..) => None,
        };
        let binary = |op, left: &Infix, right: &Infix| {
            // With it, how tightly its operands have to bind to stand without parentheses.
            let (symbol, binds, (of_left, of_right)) = match op {
                DimBinary::Add => (" + ", 0, (0, 0)),
                DimBinary::Sub => (" - ", 0, (0, 1)),
                DimBinary::Mul => ("*", 2, (1, 2)),
                DimBinary::Div => ("/", 1, (1, 3)),
                DimBinary::CeilDiv => ("⌈/⌉", 1, (1, 3)),
                DimBinary::Min => (", ", 3, (0, 0)),
            };
            let operand = |(text, binds): &Infix, least: u8| match text {
                long if long.len() > OPERAND_LEN => "(…)".into(),
                text if *binds < least => format!("({text})"),
                text => text.clone(),
            };
            let text = format!("{}{symbol}{}", operand(left, of_left), operand(right, of_right));
            Some((if op == DimBinary::Min { format!("min({text})") } else { text }, binds))
        };
        self.fold(leaf, binary).map_or_else(String::new, |(text, _)| text)
    }

    fn binary(self, right: DimExpr, op: DimBinary) -> DimExpr {
        if let (Some(a), Some(b)) = (self.as_const(), right.as_const())
            && let Some(value) = op.apply(a, b)
        {
            return DimExpr::constant(value);
        }
        let mut steps = self.0.into_owned();
        let left = steps.len() as u16 - 1;
        // The numbers of the right operand's steps among those of both.
        let mut numbers: Vec<u16> = Vec::with_capacity(right.0.len());
        for &step in right.0.iter() {
            let step = match step {
                DimOp::Binary(op, a, b) => {
                    DimOp::Binary(op, numbers[usize::from(a)], numbers[usize::from(b)])
                }
                DimOp::Const(_) | DimOp::Sym(_) => step,
            };
            let number = steps.iter().position(|known| *known == step).unwrap_or_else(|| {
                steps.push(step);
                steps.len() - 1
            });
            numbers.push(number as u16);
        }
        steps.push(DimOp::Binary(op, left, numbers[numbers.len() - 1]));
        DimExpr(Cow::Owned(steps))
    }
}

impl ops::Add for DimExpr {
    type Output = DimExpr;

    fn add(self, right: DimExpr) -> DimExpr {
        match (self.as_const(), right.as_const()) {
            (Some(0), _) => right,
            (_, Some(0)) => self,
            _ => self.binary(right, DimBinary::Add),
        }
    }
}

impl ops::Sub for DimExpr {
    type Output = DimExpr;

    fn sub(self, right: DimExpr) -> DimExpr {
        match right.as_const() {
            Some(0) => self,
            _ => self.binary(right, DimBinary::Sub),
        }
    }
}

impl ops::Mul for DimExpr {
    type Output = DimExpr;

    fn mul(self, right: DimExpr) -> DimExpr {
        match (self.as_const(), right.as_const()) {
            (Some(1), _) => right,
            (_, Some(1)) => self,
            _ => self.binary(right, DimBinary::Mul),
        }
    }
}

/// Rounded towards 0, as whole numbers are divided.
impl ops::Div for DimExpr {
    type Output = DimExpr;

    fn div(self, right: DimExpr) -> DimExpr {
        self.binary(right, DimBinary::Div)
    }
}

impl DimBinary {
    fn apply(self, a: i64, b: i64) -> Option<i64> {
        match self {
            DimBinary::Add => a.checked_add(b),
            DimBinary::Sub => a.checked_sub(b),
            DimBinary::Mul => a.checked_mul(b),
            DimBinary::Div => a.checked_div(b),
            DimBinary::CeilDiv => a.checked_add(b.checked_sub(1)?)?.checked_div_euclid(b),
            DimBinary::Min => Some(a.min(b)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluates_prints_and_folds() {
        let (n, d) = (DimExpr::sym(0), DimExpr::sym(1));
        let expr = (n.clone() + DimExpr::constant(1)) * d.ceil_div(DimExpr::constant(4));
        assert_eq!(expr.eval(&[2, 9]), Some(9));
        assert_eq!(expr.display(&["N", "D"]).to_string(), "(N + 1)*(D⌈/⌉4)");
        let (a, b, c) = (DimExpr::sym(0), DimExpr::sym(1), DimExpr::sym(2));
        let text = |expr: DimExpr| expr.display(&["A", "B", "C"]).to_string();
        assert_eq!(text(a.clone() - (b.clone() - c.clone())), "A - (B - C)");
        assert_eq!(text(a.clone() - b.clone() + c.clone()), "A - B + C");
        assert_eq!(text(a.clone() / (b.clone() * c.clone())), "A/(B*C)");
        assert_eq!(text(a.clone() * (b.clone() / c.clone())), "A*(B/C)");
        assert_eq!(text(a.clone() * (b.clone() - a).min(c)), "A*min(B - A, C)");
        assert_eq!(b.clone().min(DimExpr::constant(7)).eval(&[0, 9]), Some(7));
        assert_eq!(b.min(DimExpr::constant(7)).eval(&[0, 5]), Some(5));
        assert_eq!((n.clone() * DimExpr::constant(1)), n);
        for (whole, quotient) in [(7, 3), (-7, -3)] {
            assert_eq!((DimExpr::constant(whole) / DimExpr::constant(2)).as_const(), Some(quotient));
        }
    }

    /// `e = e - e/2`, as the upper half of a half, again and again.
    #[test]
    fn equal_parts_are_one_step() {
        let half = |e: DimExpr| e.clone() - e / DimExpr::constant(2);
        let mut expr = DimExpr::sym(0);
        for stage in 0..40 {
            assert_eq!(expr.0.len(), 1 + usize::from(stage > 0) + 2 * stage, "{expr:?}");
            let value = (0..stage).fold(1_000_003, |n, _| n - n / 2);
            assert_eq!(expr.eval(&[1_000_003]), Some(value));
            assert!(expr.display(&["N"]).to_string().len() < 300);
            expr = half(expr);
        }
        assert_eq!(expr, (0..40).fold(DimExpr::sym(0), |expr, _| half(expr)));
        assert_eq!(expr.clone().min(expr.clone()).symbols().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn factors_hold_for_all_symbols() {
        let (n, d, number) = (DimExpr::sym(0), DimExpr::sym(1), DimExpr::constant);
        let sum = n.clone() * number(12) + d.clone() * number(-8);
        for (expr, factor) in [
            (n.clone(), 1),
            (number(256) * n.clone() * d.clone(), 256),
            (sum.clone(), 4),
            (sum.clone() - number(6), 2),
            (sum * number(0), 0),
            (n.clone() * number(8) / number(2), 1),
            ((n.clone() * number(8)).min(d.clone() * number(12)), 4),
            // More than there are numbers for.
            (n * number(1 << 40) * number(1 << 40), 1),
        ] {
            assert_eq!(expr.factor(), factor, "{expr:?}");
            for symbols in [[0, 0], [1, 1], [5, 3], [7, 64]] {
                let value = expr.eval(&symbols);
                assert!(value.is_none_or(|x| x == 0 || x % expr.factor() == 0), "{expr:?} of {symbols:?}");
            }
        }
    }

    #[test]
    fn overflow_and_unknown_symbols_have_no_value() {
        let n = DimExpr::sym(0);
        assert_eq!((n.clone() * n.clone()).eval(&[i64::MAX]), None);
        assert_eq!(n.eval(&[]), None);
        assert_eq!((n.clone() / DimExpr::sym(1)).eval(&[1, 0]), None);
    }
}
