//! Combinations of two partial results of a fold.

use super::stream::OPS;
use crate::ir::dtype::DType;
use crate::ir::kernel::{Expr, Fold, Stmt};
use crate::ir::op::Op;

/// Name of the results of folds, each an array of one.
pub(super) const RESULT: char = 'w';

/// Name of the partial results of folds.
pub(super) const PART: char = 'a';

/// Name of the totals of sums of floats, in `f64`.
const TOTAL: char = 't';

/// The combination of two partial results, a function `f0`, `f1`, … of the text.
pub(super) struct Combine<'a> {
    /// Number of the function.
    pub(super) number: usize,
    /// Fold whose values are combined.
    pub(super) fold: &'a Fold,
    /// Values of the kernel that the function takes.
    pub(super) captured: Vec<String>,
    /// True if there is one partial result, which LLVM splits as it likes: folds of integers are the same in any
    /// order.
    pub(super) is_one: bool,
    /// True if the result is an `f32`.
    pub(super) is_f32: bool,
    /// The dtype of the floats that the fold adds up, if it is a sum.
    pub(super) sums: Option<DType>,
}

impl Combine<'_> {
    /// Returns a call of the function.
    pub(super) fn call(&self, left: &str, right: &str) -> String {
        let captured = self.captured.iter().map(String::as_str);
        let args: Vec<&str> = [left, right].into_iter().chain(captured).collect();
        format!("f{}({})", self.number, args.join(", "))
    }

    /// Returns the partial result of a lane.
    pub(super) fn of_lane(&self) -> String {
        format!("a{}[{}]", self.number, if self.is_one { "0" } else { "j" })
    }

    /// Returns the statement that makes the result before the first lane.
    pub(super) fn start(&self, identity: &str) -> String {
        match self.sums {
            Some(DType::F64) => format!("let mut {TOTAL}{} = Total::default();", self.number),
            Some(_) => format!("let mut {TOTAL}{} = 0f64;", self.number),
            None => format!("let mut {RESULT}{} = [{identity}];", self.number),
        }
    }

    /// Returns the result.
    pub(super) fn result(&self) -> String {
        match self.sums {
            Some(DType::F64) => format!("({TOTAL}{}.sum(),)", self.number),
            Some(_) => format!("({TOTAL}{} as f32,)", self.number),
            None => format!("{RESULT}{}[0]", self.number),
        }
    }

    /// Returns the statement that combines the result with all partial results.
    pub(super) fn gather(&self) -> String {
        let (both, number) = (self.call("left", "right"), self.number);
        let lanes = format!("fold_lanes(&mut {PART}{number}, |left, right| {both})");
        match self.sums {
            Some(DType::F64) => format!("{TOTAL}{number}.add({lanes}.0);"),
            Some(_) => format!("{TOTAL}{number} += {OPS}.sum(&mut {PART}{number});"),
            None => {
                let result = format!("{RESULT}{number}[0]");
                let all = match self.method() {
                    Some(method) => format!("{OPS}.{method}(&mut {PART}{number})"),
                    None => lanes,
                };
                format!("{result} = {};", self.call(&result, &all))
            }
        }
    }

    /// Returns the method of `Instructions` for the partial results of an extremum, if there is one.
    fn method(&self) -> Option<&'static str> {
        let Fold { left, right, body, results, .. } = self.fold;
        let ([left], [right], [result]) = (&left[..], &right[..], &results[..]) else { return None };
        let [
            Stmt::Let(which, Expr::Apply(op @ (Op::Gt | Op::Lt), compared)),
            Stmt::Let(made, Expr::Apply(Op::Select, args)),
        ] = &body[..]
        else {
            return None;
        };
        let takes_right = compared[..] == [*right, *left] && args[..] == [*which, *right, *left];
        let method = if *op == Op::Gt { "reduce_max" } else { "reduce_min" };
        (self.is_f32 && made == result && takes_right).then_some(method)
    }
}
