//! Extents as sums of products, so that formulas are short and comparable.
//!
//! Invariant: equal sums have one form, whatever the order of additions.

use std::collections::BTreeMap;

use crate::ir::dim::{DimBinary, DimExpr, DimOp};

/// Factor of a product: a dim by its number and name, or a minimum or quotient by its text. Dims come first.
type Factor = (u16, String);

/// Most characters of a factor.
const TEXT_LEN: usize = 200;

const LESSER: u16 = QUOTIENT - 1;
const QUOTIENT: u16 = u16::MAX;

/// `Σ coefficient · Π factors`, by the factors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Terms(BTreeMap<Vec<Factor>, i64>);

impl Terms {
    /// Returns the terms of an extent, given the names and the known extents of dims. There are none on overflow,
    /// or if a factor is too long to read.
    pub(super) fn of(extent: &DimExpr, names: &[String], known: &[Option<i64>]) -> Option<Terms> {
        let leaf = |step| match step {
            DimOp::Const(number) => Some(Terms::number(number)),
            DimOp::Sym(symbol) => Terms::symbol(symbol, names, known),
            DimOp::Binary(..) => None,
        };
        extent.fold(leaf, |op, left, right| left.apply(op, right))
    }

    fn number(number: i64) -> Terms {
        Terms(if number == 0 { BTreeMap::new() } else { BTreeMap::from([(vec![], number)]) })
    }

    fn symbol(symbol: u16, names: &[String], known: &[Option<i64>]) -> Option<Terms> {
        match known.get(usize::from(symbol))? {
            Some(extent) => Some(Terms::number(*extent)),
            None => {
                let factor = (symbol, names.get(usize::from(symbol))?.clone());
                Some(Terms(BTreeMap::from([(vec![factor], 1)])))
            }
        }
    }

    fn apply(&self, op: DimBinary, right: &Terms) -> Option<Terms> {
        match op {
            DimBinary::Add => self.plus(right, 1),
            DimBinary::Sub => self.plus(right, -1),
            DimBinary::Mul => self.times(right),
            DimBinary::Div => self.over(right, ("⌊", "⌋"), i64::checked_div),
            DimBinary::CeilDiv => {
                let up = |a: i64, b: i64| a.checked_add(b.checked_sub(1)?)?.checked_div_euclid(b);
                self.over(right, ("⌈", "⌉"), up)
            }
            DimBinary::Min => match (self.as_number(), right.as_number()) {
                (Some(a), Some(b)) => Some(Terms::number(a.min(b))),
                _ => Terms::factor(LESSER, format!("min({}, {})", self.text(), right.text())),
            },
        }
    }

    fn plus(&self, right: &Terms, sign: i64) -> Option<Terms> {
        let mut sum = self.0.clone();
        for (factors, &count) in &right.0 {
            let all = sum.entry(factors.clone()).or_default();
            *all = all.checked_add(count.checked_mul(sign)?)?;
        }
        sum.retain(|_, count| *count != 0);
        Some(Terms(sum))
    }

    fn times(&self, right: &Terms) -> Option<Terms> {
        let mut product = Terms::default();
        for (left, &a) in &self.0 {
            for (right, &b) in &right.0 {
                let mut factors = [left.as_slice(), right].concat();
                factors.sort();
                let term = Terms(BTreeMap::from([(factors, a.checked_mul(b)?)]));
                product = product.plus(&term, 1)?;
            }
        }
        Some(product)
    }

    fn over(
        &self,
        right: &Terms,
        (open, close): (&str, &str),
        divide: impl Fn(i64, i64) -> Option<i64>,
    ) -> Option<Terms> {
        if let (Some(a), Some(b)) = (self.as_number(), right.as_number()) {
            return divide(a, b).map(Terms::number);
        }
        let part =
            |terms: &Terms, alone: bool| if alone { terms.text() } else { format!("({})", terms.text()) };
        let (above, below) = (part(self, self.0.len() < 2), part(right, right.is_factor()));
        Terms::factor(QUOTIENT, format!("{open}{above}/{below}{close}"))
    }

    /// A lesser or a quotient by its text. Texts of nested ones double with each level, so they have a limit.
    fn factor(kind: u16, text: String) -> Option<Terms> {
        (text.len() <= TEXT_LEN).then(|| Terms(BTreeMap::from([(vec![(kind, text)], 1)])))
    }

    fn as_number(&self) -> Option<i64> {
        match self.0.iter().next() {
            None => Some(0),
            Some((factors, &count)) if factors.is_empty() && self.0.len() == 1 => Some(count),
            Some(_) => None,
        }
    }

    /// Returns true if the terms are a number or a single dim, which needs no parentheses.
    fn is_factor(&self) -> bool {
        let mut terms = self.0.iter();
        let first = terms
            .next()
            .is_none_or(|(factors, &count)| factors.is_empty() || factors.len() == 1 && count == 1);
        first && terms.next().is_none()
    }

    /// Returns the difference, or none on overflow.
    pub(super) fn minus(&self, right: &Terms) -> Option<Terms> {
        self.plus(right, -1)
    }

    /// Returns true if these terms are larger than `right` or equal, whatever the extents.
    pub(super) fn covers(&self, right: &Terms) -> bool {
        self.minus(right).is_some_and(|rest| rest.0.values().all(|count| *count > 0))
    }

    /// Returns the terms without a quotient.
    pub(super) fn without_quotients(&self) -> Terms {
        let is_whole = |factor: &Factor| factor.0 != QUOTIENT;
        let terms = self.0.iter().filter(|(factors, _)| factors.iter().all(is_whole));
        Terms(terms.map(|(factors, count)| (factors.clone(), *count)).collect())
    }

    /// Returns a number for comparisons: the value if all unknown dims are 1024.
    pub(super) fn weight(&self) -> f64 {
        self.0.iter().map(|(factors, &count)| count as f64 * 1024f64.powi(factors.len() as i32)).sum()
    }

    /// Formats the terms as users would write them. The products with the most factors come first.
    pub(super) fn text(&self) -> String {
        let mut terms: Vec<(&Vec<Factor>, &i64)> = self.0.iter().collect();
        terms.sort_by_key(|(factors, _)| std::cmp::Reverse(factors.len()));
        let mut text = String::new();
        for (i, (factors, &count)) in terms.into_iter().enumerate() {
            text.push_str(match (i, count < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            });
            let number =
                (count.unsigned_abs() != 1 || factors.is_empty()).then(|| count.unsigned_abs().to_string());
            let factors = factors.iter().map(|(_, name)| name.clone());
            text.push_str(&number.into_iter().chain(factors).collect::<Vec<_>>().join("*"));
        }
        if text.is_empty() { "0".into() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(extent: &DimExpr, known: [Option<i64>; 2]) -> Terms {
        Terms::of(extent, &["N".to_owned(), "D".to_owned()], &known).expect("nothing overflows")
    }

    #[test]
    fn one_form_whatever_the_order() {
        let (n, d, number) = (DimExpr::sym(0), DimExpr::sym(1), DimExpr::constant);
        let sum =
            d.clone() * number(8) + n.clone() * d.clone() * number(4) + d.clone() * n.clone() + number(3);
        assert_eq!(of(&sum, [None; 2]).text(), "5*N*D + 8*D + 3");
        assert_eq!(of(&sum, [Some(2), None]).text(), "18*D + 3");
        assert_eq!(of(&sum, [Some(2), Some(10)]).text(), "183");
        assert_eq!(of(&(n.clone() - n.clone()), [None; 2]).text(), "0");
        assert_eq!(of(&(n.clone() - (d.clone() + number(1))), [None; 2]).text(), "N - D - 1");
        assert_eq!(of(&(number(-1) * n.clone()), [None; 2]).text(), "-N");
        let huge = number(i64::MAX) * n + number(i64::MAX) * DimExpr::sym(0);
        assert_eq!(Terms::of(&huge, &["N".to_owned()], &[None]), None);
    }

    #[test]
    fn quotients_are_factors() {
        let (n, d, number) = (DimExpr::sym(0), DimExpr::sym(1), DimExpr::constant);
        let parts = n.clone().ceil_div(number(256)) * d.clone() * number(4);
        assert_eq!(of(&parts, [None; 2]).text(), "4*D*⌈N/256⌉");
        assert_eq!(of(&parts, [Some(257), None]).text(), "8*D");
        assert_eq!(of(&(parts.clone() + n.clone()), [None; 2]).without_quotients().text(), "N");
        let lesser = n.clone() * d.clone().min(number(24)) + n.clone().min(d.clone());
        assert_eq!(of(&lesser, [None; 2]).without_quotients().text(), "N*min(D, 24) + min(N, D)");
        assert_eq!(of(&lesser, [Some(2), Some(30)]).text(), "50");
        assert_eq!(
            of(&((n.clone() + number(1)) / (d.clone() * number(2))), [None; 2]).text(),
            "⌊(N + 1)/(2*D)⌋"
        );
    }

    #[test]
    fn sums_cover_their_parts() {
        let (n, d) = (of(&DimExpr::sym(0), [None; 2]), of(&DimExpr::sym(1), [None; 2]));
        let both = n.plus(&d, 1).expect("nothing overflows");
        assert_eq!(both.minus(&n), Some(d.clone()));
        assert_eq!(n.minus(&both).map(|rest| rest.text()), Some("-D".to_owned()));
        assert!(both.covers(&n) && n.covers(&n) && !n.covers(&both) && !n.covers(&d));
        assert!(both.weight() > n.weight());
    }
}
