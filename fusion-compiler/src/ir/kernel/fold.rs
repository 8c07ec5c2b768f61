//! Folds: reductions of the values of lanes or threads, and the order of their combinations.

use super::{Expr, Kernel, Stmt, Value};
use crate::ir::dtype::DType;
use crate::ir::op::Op;

/// A reduction of many lanes or threads by an associative function of two values.
///
/// The order of the combinations depends on nothing but the number of lanes or threads. The values may be
/// tuples; each list has one value for each component.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    /// Value of each lane or thread.
    pub over: Vec<Value>,
    /// Factor of the lanes' values in a sum of one component. The product and the sum are rounded once.
    pub times: Option<Value>,
    /// Identity of the function.
    pub identity: Vec<Value>,
    /// First argument of the function.
    pub left: Vec<Value>,
    /// Second argument of the function.
    pub right: Vec<Value>,
    /// Body of the function.
    pub body: Vec<Stmt>,
    /// Result of the function, defined in its body.
    pub results: Vec<Value>,
    /// Result of the reduction.
    pub out: Vec<Value>,
}

impl Fold {
    /// Returns the type of the floats that the fold sums, if the fold is a sum of floats.
    pub fn sums(&self, kernel: &Kernel) -> Option<DType> {
        let ([left], [right], [result], [Stmt::Let(made, Expr::Apply(Op::Add, args))]) =
            (&self.left[..], &self.right[..], &self.results[..], &self.body[..])
        else {
            return None;
        };
        let dtype = kernel.ty(*result).dtype;
        (made == result && args[..] == [*left, *right] && dtype.is_float()).then_some(dtype)
    }
}

/// Numbers of lanes that a fold over a vector loop takes at a time, longest groups first.
///
/// Lanes that the longer groups leave go to the next shorter groups. The groups of one length share an array
/// with one partial result for each lane. The partial results are then halved repeatedly: the second half is
/// combined with the first, and the last one with the result. For the longest groups, that happens after
/// every `fold_rounds` groups.
///
/// A row of eight elements therefore takes two small vectors instead of 64 partial results. LLVM vectorises
/// loops over 64 lanes and straight-line code of 16. LLVM unrolls a loop over 32 lanes before vectorisation,
/// and the code is then too long to be vectorised.
pub const FOLD_LANES: [usize; 4] = [64, 16, 4, 1];

/// Number of partial results that are added in `f64` to a sum of `f32`. Longer groups are halved down to this
/// number first.
pub const FOLD_LANES_WIDE: usize = 4;

/// Returns the number of longest groups after which these folds of one loop combine partial results into the
/// results.
///
/// Sums have few rounds, so that a partial result has few roundings, and none if equal numbers are added. The
/// result of a sum is compensated for its rounding.
pub fn fold_rounds<'f>(kernel: &Kernel, folds: impl IntoIterator<Item = &'f Fold>) -> usize {
    if folds.into_iter().any(|fold| fold.sums(kernel).is_some()) { 4 } else { 128 }
}
