//! Kernel → the largest number of trips that a thread makes through its loops: some devices end loops early.
//!
//! Invariant: the number is an upper bound, including the trip on which each loop ends. The bounds of the
//! loops in the launched kernel determine the number.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::ir::dim::DimExpr;
use crate::ir::dtype::Const;
use crate::ir::kernel::{Expr, Kernel, LoopKind, Stmt, UniformArg, Value, statements};
use crate::ir::op::Op;

/// Largest number of trips for a reduction over a team. A team of 256 threads has 64 subgroups of four, the
/// smallest size of WebGPU. A thread makes 64 trips over the subgroups' results, two trips in each of two
/// reductions over a subgroup, and one trip more at the end of each loop. A reduction through memory makes 20
/// trips.
const TRIPS_OF_TEAM: i64 = 71;

/// Returns the largest number of trips for one iteration of a launch, or none if the bound of a loop is
/// unknown.
pub(crate) fn trips(kernel: &Kernel) -> Option<DimExpr> {
    let (made, starts, known) = (FxHashMap::default(), FxHashMap::default(), RefCell::default());
    let mut loops = Loops { kernel, made, starts, known };
    for stmt in statements(&kernel.body) {
        if let Stmt::Let(value, expr) = stmt {
            loops.made.insert(*value, expr);
        } else if let Stmt::Loop { var, start, .. } = stmt {
            loops.starts.insert(*var, *start);
        }
    }
    loops.trips(&kernel.body)
}

struct Loops<'k> {
    kernel: &'k Kernel,
    /// Definition of each value.
    made: FxHashMap<Value, &'k Expr>,
    /// Start of each loop counter.
    starts: FxHashMap<Value, Value>,
    /// Upper bounds of values computed so far.
    known: RefCell<FxHashMap<Value, Option<DimExpr>>>,
}

impl Loops<'_> {
    fn trips(&self, stmts: &[Stmt]) -> Option<DimExpr> {
        let mut sum = DimExpr::constant(0);
        for stmt in stmts {
            sum = sum + self.of(stmt)?;
        }
        Some(sum)
    }

    fn of(&self, stmt: &Stmt) -> Option<DimExpr> {
        match stmt {
            Stmt::Loop { var, kind: LoopKind::Serial, start, end, step, body, .. } => {
                let one = || DimExpr::constant(1);
                let distance = self.distance(*start, *end)?;
                let (mut each, mut all) = (one(), one());
                for stmt in body {
                    match stmt {
                        // All strips together traverse the range of the loop once.
                        Stmt::Loop { start, end, step, body, .. } if self.is_strip(*var, *start, *end) => {
                            let times = distance.clone().ceil_div(self.least(*step));
                            each = each + one();
                            all = all + times * (one() + self.trips(body)?);
                        }
                        stmt => each = each + self.of(stmt)?,
                    }
                }
                Some(distance.ceil_div(self.least(*step)) * each + all)
            }
            Stmt::AllReduce(_) => Some(DimExpr::constant(TRIPS_OF_TEAM)),
            stmt => self.trips(stmt.body()),
        }
    }

    /// Returns true if a loop iterates over a strip of the loop around it: from that loop's counter on, over
    /// a limited number of elements.
    fn is_strip(&self, counter: Value, start: Value, end: Value) -> bool {
        let of = |end| self.operands(end, Op::Add);
        start == counter
            && of(end).is_some_and(|[from, len]| from == counter && self.operands(len, Op::Min).is_some())
    }

    /// Returns an upper bound of `end - start`. The bounds may have four forms: an end that is a sum with the
    /// start, or with the start's first operand; a start that is a difference from the end; an end that is a
    /// difference; a start that is a loop counter.
    fn distance(&self, start: Value, end: Value) -> Option<DimExpr> {
        if let Some([from, len]) = self.operands(end, Op::Add) {
            let first = self.operands(start, Op::Add).map(|[first, _]| first);
            if from == start || first == Some(from) {
                return self.most(len);
            }
        }
        if let Some([past, rest]) = self.operands(start, Op::Sub)
            && past == end
        {
            return self.most(rest);
        }
        match (self.operands(end, Op::Sub), self.starts.get(&start)) {
            (Some([end, _]), _) => self.distance(start, end),
            (None, Some(&start)) => self.distance(start, end),
            (None, None) => self.most(end),
        }
    }

    /// Returns an upper bound of a position.
    fn most(&self, value: Value) -> Option<DimExpr> {
        if let Some(known) = self.known.borrow().get(&value) {
            return known.clone();
        }
        let most = self.most_of(value);
        self.known.borrow_mut().insert(value, most.clone());
        most
    }

    fn most_of(&self, value: Value) -> Option<DimExpr> {
        match self.made.get(&value)? {
            Expr::Const(_) | Expr::Uniform(_) => self.exact(value),
            Expr::Cast(of) => self.most(*of),
            Expr::Apply(op, operands) => match (op, operands.as_slice()) {
                (Op::Add, &[left, right]) => Some(self.most(left)? + self.most(right)?),
                (Op::Mul, &[left, right]) => Some(self.most(left)? * self.most(right)?),
                (Op::Sub, &[left, _]) => self.most(left),
                (Op::IntDiv, &[left, by]) => Some(self.most(left)? / self.least(by)),
                (Op::IntRem, &[_, of]) => self.most(of),
                // The second operand is the largest number that is wanted; the first is the number that is
                // left.
                (Op::Min, &[left, most]) => self.most(most).or_else(|| self.most(left)),
                (Op::Select, &[_, left, right]) => Some(larger(self.most(left)?, self.most(right)?)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns a lower bound of a step, at least 1.
    fn least(&self, step: Value) -> DimExpr {
        self.exact(step).unwrap_or_else(|| DimExpr::constant(1))
    }

    fn exact(&self, value: Value) -> Option<DimExpr> {
        match self.made.get(&value)? {
            Expr::Const(Const::Int(value)) => Some(DimExpr::constant(*value)),
            Expr::Uniform(id) => match &self.kernel.uniforms[usize::from(id.0)].arg {
                UniformArg::Extent(extent) => Some(extent.clone()),
                UniformArg::Start
                | UniformArg::End
                | UniformArg::Scalar(_)
                | UniformArg::Offset(_)
                | UniformArg::Window(_) => None,
            },
            Expr::Apply(Op::Mul, operands) => {
                let product =
                    operands.iter().map(|&operand| self.exact(operand)).reduce(|all, one| Some(all? * one?));
                product.flatten()
            }
            _ => None,
        }
    }

    fn operands(&self, value: Value, wanted: Op) -> Option<[Value; 2]> {
        match self.made.get(&value)? {
            Expr::Apply(op, operands) if *op == wanted => operands.as_slice().try_into().ok(),
            _ => None,
        }
    }
}

/// Returns an upper bound of both.
fn larger(left: DimExpr, right: DimExpr) -> DimExpr {
    match (left.as_const(), right.as_const()) {
        (Some(a), Some(b)) => DimExpr::constant(a.max(b)),
        _ => left + right,
    }
}
