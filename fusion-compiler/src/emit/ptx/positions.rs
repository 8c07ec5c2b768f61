//! Positions in memory as sums, from which addresses are computed.
//!
//! ptxas computes the parts of an address that a loop leaves alone outside of the loop, if they are added first.
//! Accesses that differ by constants share one address.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use crate::ir::dtype::{Const, DType};
use crate::ir::kernel::{AsyncCopy, Builtin, Expr, IndexWidth, Kernel, Lanes, Stmt, Type, Value};
use crate::ir::op::Op;

/// The positions of a kernel, as sums.
pub(super) struct Positions {
    /// Positions that are sums of counts, none of which is larger than its sum.
    counts: FxHashMap<Value, SmallVec<[Count; 4]>>,
    /// Positions as sums that may wrap.
    sums: FxHashMap<Value, Sum>,
    /// True for the values that instructions read.
    needed: Vec<bool>,
}

/// A term of a sum of counts.
#[derive(Clone, Copy)]
struct Count {
    value: Value,
    depth: u32,
}

/// Products of values and constants, and a constant, which are added.
#[derive(Clone, Default)]
struct Sum {
    terms: SmallVec<[Term; 4]>,
    constant: i64,
}

/// The product of a value and a constant.
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub(super) value: Value,
    pub(super) factor: i64,
    /// The innermost of the enclosing loops that changes the value: 0 for none, 1 for the outermost.
    depth: u32,
}

impl Sum {
    fn one(value: Value, depth: u32) -> Sum {
        Sum { terms: smallvec![Term { value, factor: 1, depth }], constant: 0 }
    }

    fn times(&self, by: i64) -> Sum {
        let terms = self.terms.iter().map(|term| Term { factor: term.factor.wrapping_mul(by), ..*term });
        Sum { terms: terms.collect(), constant: self.constant.wrapping_mul(by) }
    }

    fn plus(&self, other: &Sum) -> Sum {
        let mut sum = self.clone();
        sum.constant = sum.constant.wrapping_add(other.constant);
        for term in &other.terms {
            match sum.terms.iter_mut().find(|known| known.value == term.value) {
                Some(known) => known.factor = known.factor.wrapping_add(term.factor),
                None => sum.terms.push(*term),
            }
        }
        sum.terms.retain(|term| term.factor != 0);
        sum
    }

    /// Returns the innermost of the loops that change the sum.
    fn depth(&self) -> u32 {
        self.terms.iter().map(|term| term.depth).max().unwrap_or(0)
    }
}

impl Positions {
    pub(super) fn new(kernel: &Kernel) -> Positions {
        let mut positions = Positions {
            counts: FxHashMap::default(),
            sums: FxHashMap::default(),
            needed: (0..kernel.types.len() as u32).map(|value| !is_position(kernel, Value(value))).collect(),
        };
        // Positions of 64 bits are added as they are.
        if kernel.index == IndexWidth::Bits32 {
            positions.add_up(kernel, &kernel.body, 0);
        }
        positions.need_operands(&kernel.body);
        positions
    }

    /// Returns the parts of a position in a buffer, if some change in inner loops only. Those that change less
    /// come first.
    pub(super) fn in_buffer(&self, index: Value) -> Option<SmallVec<[Value; 4]>> {
        let mut terms = self.counts.get(&index)?.clone();
        terms.sort_by_key(|term| term.depth);
        let changes = terms.first()?.depth < terms.last()?.depth;
        changes.then(|| terms.iter().map(|term| term.value).collect())
    }

    /// Returns the parts of a position in shared memory and a constant, if positions have 32 bits. Parts that change
    /// less come first.
    pub(super) fn in_shared(&self, index: Value) -> Option<(SmallVec<[Term; 4]>, i64)> {
        let Sum { mut terms, constant } = self.sums.get(&index)?.clone();
        terms.sort_by_key(|term| term.depth);
        Some((terms, constant))
    }

    /// Returns false for a position that no instruction reads.
    pub(super) fn is_needed(&self, value: Value) -> bool {
        self.needed[value.0 as usize]
    }

    /// Finds the sums of the positions of a body that so many loops enclose.
    fn add_up(&mut self, kernel: &Kernel, body: &[Stmt], depth: u32) {
        for stmt in body {
            match stmt {
                Stmt::Let(value, expr) if is_position(kernel, *value) => {
                    let sum = self.sum(*value, expr, depth);
                    let counts = self.sum_of_counts(*value, expr, sum.depth());
                    self.sums.insert(*value, sum);
                    self.counts.extend(counts.map(|counts| (*value, counts)));
                }
                Stmt::Loop { var, start, step, body, .. } => {
                    if [start, step].iter().all(|value| self.counts.contains_key(value)) {
                        self.counts.insert(*var, smallvec![Count { value: *var, depth: depth + 1 }]);
                    }
                    self.sums.insert(*var, Sum::one(*var, depth + 1));
                    self.add_up(kernel, body, depth + 1);
                }
                _ => self.add_up(kernel, stmt.body(), depth),
            }
        }
    }

    fn sum(&self, value: Value, expr: &Expr, depth: u32) -> Sum {
        let of = |value: &Value| self.sums.get(value);
        match expr {
            Expr::Const(Const::Int(constant)) => Sum { terms: smallvec![], constant: *constant },
            Expr::Uniform(_) => Sum::one(value, 0),
            Expr::Builtin(builtin) if is_count(*builtin) => Sum::one(value, 0),
            Expr::Apply(op, args) => match (op, args.first().and_then(of), args.last().and_then(of)) {
                (Op::Add, Some(left), Some(right)) => left.plus(right),
                (Op::Sub, Some(left), Some(right)) => left.plus(&right.times(-1)),
                (Op::Mul, Some(sum), Some(Sum { terms, constant }))
                | (Op::Mul, Some(Sum { terms, constant }), Some(sum))
                    if terms.is_empty() =>
                {
                    sum.times(*constant)
                }
                (_, Some(left), Some(right)) => Sum::one(value, left.depth().max(right.depth())),
                (_, None, _) | (_, _, None) => Sum::one(value, depth),
            },
            _ => Sum::one(value, depth),
        }
    }

    /// Returns the terms of a sum of counts, if the value is one. The innermost loop that changes it is `depth`.
    fn sum_of_counts(&self, value: Value, expr: &Expr, depth: u32) -> Option<SmallVec<[Count; 4]>> {
        let one = || smallvec![Count { value, depth }];
        match expr {
            Expr::Const(Const::Int(0..)) | Expr::Uniform(_) => Some(one()),
            Expr::Builtin(builtin) => is_count(*builtin).then(one),
            Expr::Apply(op, args) => {
                let left = self.counts.get(args.first()?)?;
                let right = self.counts.get(args.last()?)?;
                match op {
                    Op::Add => Some(left.iter().chain(right).copied().collect()),
                    Op::Mul | Op::IntDiv | Op::IntRem | Op::And | Op::ShrRaw => Some(one()),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Notes the values that the instructions of a body need, from the last to the first.
    fn need_operands(&mut self, body: &[Stmt]) {
        for stmt in body.iter().rev() {
            stmt.for_each_body(|body, leaving| {
                leaving.iter().for_each(|value| self.need(**value));
                self.need_operands(body);
            });
            match stmt {
                Stmt::Let(value, _) if !self.is_needed(*value) => {}
                Stmt::Let(_, Expr::Load(at)) => self.need_in_buffer(at.index),
                Stmt::Let(_, Expr::LoadWhere(at, other)) | Stmt::Store(at, other) => {
                    self.need_in_buffer(at.index);
                    self.need(*other);
                }
                Stmt::Let(_, Expr::LoadShared(_, index) | Expr::LoadMatrices(_, index, _)) => {
                    self.need_in_shared(*index);
                }
                Stmt::StoreShared(_, index, value) => {
                    self.need_in_shared(*index);
                    self.need(*value);
                }
                Stmt::AsyncCopy(AsyncCopy::Start(at, _, index, mask)) => {
                    self.need_in_buffer(at.index);
                    self.need_in_shared(*index);
                    self.need(*mask);
                }
                _ => stmt.for_each_operand(|value| self.need(*value)),
            }
        }
    }

    fn need(&mut self, value: Value) {
        self.needed[value.0 as usize] = true;
    }

    fn need_in_buffer(&mut self, index: Value) {
        let parts = self.in_buffer(index);
        parts.unwrap_or_else(|| smallvec![index]).into_iter().for_each(|value| self.need(value));
    }

    fn need_in_shared(&mut self, index: Value) {
        match self.in_shared(index) {
            Some((terms, _)) => terms.iter().for_each(|term| self.need(term.value)),
            None => self.need(index),
        }
    }
}

/// Returns true for the position of one element.
fn is_position(kernel: &Kernel, value: Value) -> bool {
    kernel.ty(value) == Type { dtype: DType::Index, lanes: Lanes::ONE }
}

/// Returns true for numbers of threads and blocks, which no loop changes.
fn is_count(builtin: Builtin) -> bool {
    matches!(
        builtin,
        Builtin::ThreadId
            | Builtin::BlockId
            | Builtin::Blocks
            | Builtin::ClusterRank
            | Builtin::ClusterSize
            | Builtin::ClusterId
            | Builtin::Clusters
            | Builtin::GridId
            | Builtin::GridSize
    )
}
