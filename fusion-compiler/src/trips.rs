//! Kernel → the most trips that a thread makes through its loops: there are devices that end loops early.
//!
//! Invariant: no fewer than there are, with that on which each loop ends. Counted in the kernel that is launched, by what the
//! bounds of its loops are made of.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::ir::dim::DimExpr;
use crate::ir::dtype::Const;
use crate::ir::kernel::{Expr, Kernel, LoopKind, Stmt, UniformArg, Value};
use crate::ir::ops::Op;

/// Trips through the loops in which the threads of a team combine what they have: of 256 in subgroups of four, the smallest that WebGPU
/// has, 64 over what those made and twice two in each, and that on which each loop ends. Through memory there are 20.
const TRIPS_OF_TEAM: i64 = 71;

/// The most trips for one iteration of a launch; nothing if the bound of a loop is made in an unknown way.
pub(crate) fn trips(kernel: &Kernel) -> Option<DimExpr> {
    let (made, starts, known) = (FxHashMap::default(), FxHashMap::default(), RefCell::default());
    let mut loops = Loops { kernel, made, starts, known };
    loops.collect(&kernel.body);
    loops.trips(&kernel.body)
}

struct Loops<'k> {
    kernel: &'k Kernel,
    /// What each value is made of.
    made: FxHashMap<Value, &'k Expr>,
    /// Where each counter of a loop starts.
    starts: FxHashMap<Value, Value>,
    /// What positions are no more than, once that is asked for.
    known: RefCell<FxHashMap<Value, Option<DimExpr>>>,
}

impl<'k> Loops<'k> {
    fn collect(&mut self, stmts: &'k [Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(value, expr) => {
                    self.made.insert(*value, expr);
                }
                Stmt::Loop { var, start, body, .. } => {
                    self.starts.insert(*var, *start);
                    self.collect(body);
                }
                Stmt::Vector { body, .. } | Stmt::If { body, .. } => self.collect(body),
                Stmt::Store(..)
                | Stmt::AllReduce(_)
                | Stmt::StoreShared(..)
                | Stmt::ClusterExchange(_)
                | Stmt::Barrier(_) => {}
            }
        }
    }

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
                        // Strips go through what the loop goes through, one after another.
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
            Stmt::Loop { kind: LoopKind::Grid | LoopKind::Team | LoopKind::Remainder, body, .. }
            | Stmt::If { body, .. }
            | Stmt::Vector { body, .. } => self.trips(body),
            Stmt::AllReduce(_) => Some(DimExpr::constant(TRIPS_OF_TEAM)),
            Stmt::Let(..)
            | Stmt::Store(..)
            | Stmt::StoreShared(..)
            | Stmt::ClusterExchange(_)
            | Stmt::Barrier(_) => Some(DimExpr::constant(0)),
        }
    }

    /// Whether a loop is of the next so many steps from where the one around it is.
    fn is_strip(&self, counter: Value, start: Value, end: Value) -> bool {
        let of = |end| self.operands(end, Op::Add);
        start == counter
            && of(end).is_some_and(|[from, len]| from == counter && self.operands(len, Op::Min).is_some())
    }

    /// How far it is, at most, from one to the other: an end may be so much past the start, or past what the start is past; and a
    /// start so much before the end, or a counter that begins there.
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

    /// No less than a position.
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
                // What is left, and the most that is wanted of it.
                (Op::Min, &[left, most]) => self.most(most).or_else(|| self.most(left)),
                (Op::Select, &[_, left, right]) => Some(larger(self.most(left)?, self.most(right)?)),
                _ => None,
            },
            _ => None,
        }
    }

    /// No more than a step, which is at least 1.
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

/// No less than either.
fn larger(left: DimExpr, right: DimExpr) -> DimExpr {
    match (left.as_const(), right.as_const()) {
        (Some(a), Some(b)) => DimExpr::constant(a.max(b)),
        _ => left + right,
    }
}
