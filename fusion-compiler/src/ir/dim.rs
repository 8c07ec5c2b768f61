//! Extents: expressions over the sizes that are only known at run time.
//!
//! A `DimExpr` is stored in postfix order in one flat list, so that a macro can print it as a constant
//! and a launch can evaluate it without allocating.

use std::borrow::Cow;
use std::fmt;
use std::ops;

use serde::{Deserialize, Serialize};

/// One step of a postfix expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DimOp {
    /// Push a number.
    Const(i64),
    /// Push the extent of a symbol.
    Sym(u16),
    /// Replace the two topmost by their sum.
    Add,
    /// Replace the two topmost by their difference.
    Sub,
    /// Replace the two topmost by their product.
    Mul,
    /// Replace the two topmost by their quotient, rounded towards 0.
    Div,
    /// Replace the two topmost by their quotient, rounded up.
    CeilDiv,
    /// Replace the two topmost by the lesser.
    Min,
}

/// An extent, as a function of the symbols of its plan. All symbols are ≥ 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DimExpr(pub Cow<'static, [DimOp]>);

/// 0 is a multiple of every number.
fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Deepest expression that can be evaluated.
const STACK: usize = 32;

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

    /// Quotient rounded up.
    pub fn ceil_div(self, divisor: DimExpr) -> DimExpr {
        self.binary(divisor, DimOp::CeilDiv)
    }

    /// The lesser of both.
    pub fn min(self, other: DimExpr) -> DimExpr {
        self.binary(other, DimOp::Min)
    }

    /// The value for these symbols, or nothing where it overflows or divides by zero.
    pub fn eval(&self, symbols: &[i64]) -> Option<i64> {
        // What most are, and every call evaluates a dozen.
        match *self.0 {
            [DimOp::Const(extent)] => return Some(extent),
            [DimOp::Sym(sym)] => return symbols.get(usize::from(sym)).copied(),
            _ => {}
        }
        let mut stack = [0i64; STACK];
        let mut depth = 0usize;
        for &op in self.0.iter() {
            let value = match op {
                DimOp::Const(extent) => extent,
                DimOp::Sym(sym) => *symbols.get(usize::from(sym))?,
                DimOp::Add | DimOp::Sub | DimOp::Mul | DimOp::Div | DimOp::CeilDiv | DimOp::Min => {
                    depth = depth.checked_sub(2)?;
                    apply(op, stack[depth], stack[depth + 1])?
                }
            };
            *stack.get_mut(depth)? = value;
            depth += 1;
        }
        (depth == 1).then(|| stack[0])
    }

    /// A number that it is a multiple of, whatever the symbols are.
    pub fn factor(&self) -> i64 {
        let mut stack: Vec<i64> = Vec::new();
        for &op in self.0.iter() {
            let factor = match op {
                DimOp::Const(extent) => extent.saturating_abs(),
                DimOp::Sym(_) => 1,
                DimOp::Add | DimOp::Sub | DimOp::Mul | DimOp::Div | DimOp::CeilDiv | DimOp::Min => {
                    let right = stack.pop().unwrap_or(1);
                    let left = stack.pop().unwrap_or(1);
                    match op {
                        DimOp::Add | DimOp::Sub | DimOp::Min => greatest_common_divisor(left, right),
                        DimOp::Mul => left.checked_mul(right).unwrap_or(1),
                        DimOp::Const(_) | DimOp::Sym(_) | DimOp::Div | DimOp::CeilDiv => 1,
                    }
                }
            };
            stack.push(factor);
        }
        stack.pop().unwrap_or(1)
    }

    /// The symbols it mentions.
    pub fn symbols(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().filter_map(|op| match op {
            DimOp::Sym(sym) => Some(*sym),
            DimOp::Const(_)
            | DimOp::Add
            | DimOp::Sub
            | DimOp::Mul
            | DimOp::Div
            | DimOp::CeilDiv
            | DimOp::Min => None,
        })
    }

    /// The expression as users would write it, with the names of its symbols.
    pub fn display<'a, S: AsRef<str>>(&'a self, names: &'a [S]) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| f.write_str(&self.infix(names)))
    }

    fn infix<S: AsRef<str>>(&self, names: &[S]) -> String {
        // How tightly the outermost operation of each binds: a sum, a quotient, a product, a name.
        let mut stack: Vec<(String, u8)> = Vec::new();
        for &op in self.0.iter() {
            // With it, how tightly its operands have to bind to stand without parentheses.
            let (symbol, binds, (of_left, of_right)) = match op {
                DimOp::Const(extent) => {
                    stack.push((extent.to_string(), 3));
                    continue;
                }
                DimOp::Sym(sym) => {
                    let name = names
                        .get(usize::from(sym))
                        .map_or_else(|| format!("?{sym}"), |name| name.as_ref().into());
                    stack.push((name, 3));
                    continue;
                }
                DimOp::Add => (" + ", 0, (0, 0)),
                DimOp::Sub => (" - ", 0, (0, 1)),
                DimOp::Mul => ("*", 2, (1, 2)),
                DimOp::Div => ("/", 1, (1, 3)),
                DimOp::CeilDiv => ("⌈/⌉", 1, (1, 3)),
                DimOp::Min => (", ", 3, (0, 0)),
            };
            let (right, left) = (stack.pop(), stack.pop());
            let part = |part: Option<(String, u8)>, least: u8| match part {
                Some((text, binds)) if binds < least => format!("({text})"),
                Some((text, _)) => text,
                None => String::from("?"),
            };
            let text = format!("{}{symbol}{}", part(left, of_left), part(right, of_right));
            stack.push((if op == DimOp::Min { format!("min({text})") } else { text }, binds));
        }
        stack.pop().map_or_else(String::new, |(text, _)| text)
    }

    fn binary(self, right: DimExpr, op: DimOp) -> DimExpr {
        if let (Some(a), Some(b)) = (self.as_const(), right.as_const())
            && let Some(value) = apply(op, a, b)
        {
            return DimExpr::constant(value);
        }
        let mut steps = self.0.into_owned();
        steps.extend_from_slice(&right.0);
        steps.push(op);
        DimExpr(Cow::Owned(steps))
    }
}

impl ops::Add for DimExpr {
    type Output = DimExpr;

    fn add(self, right: DimExpr) -> DimExpr {
        match (self.as_const(), right.as_const()) {
            (Some(0), _) => right,
            (_, Some(0)) => self,
            _ => self.binary(right, DimOp::Add),
        }
    }
}

impl ops::Sub for DimExpr {
    type Output = DimExpr;

    fn sub(self, right: DimExpr) -> DimExpr {
        match right.as_const() {
            Some(0) => self,
            _ => self.binary(right, DimOp::Sub),
        }
    }
}

impl ops::Mul for DimExpr {
    type Output = DimExpr;

    fn mul(self, right: DimExpr) -> DimExpr {
        match (self.as_const(), right.as_const()) {
            (Some(1), _) => right,
            (_, Some(1)) => self,
            _ => self.binary(right, DimOp::Mul),
        }
    }
}

/// Rounded towards 0, as whole numbers are divided by.
impl ops::Div for DimExpr {
    type Output = DimExpr;

    fn div(self, right: DimExpr) -> DimExpr {
        self.binary(right, DimOp::Div)
    }
}

fn apply(op: DimOp, a: i64, b: i64) -> Option<i64> {
    match op {
        DimOp::Add => a.checked_add(b),
        DimOp::Sub => a.checked_sub(b),
        DimOp::Mul => a.checked_mul(b),
        DimOp::Div => a.checked_div(b),
        DimOp::CeilDiv => a.checked_add(b.checked_sub(1)?)?.checked_div_euclid(b),
        DimOp::Min => Some(a.min(b)),
        DimOp::Const(_) | DimOp::Sym(_) => unreachable!("a leaf takes no operands"),
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
