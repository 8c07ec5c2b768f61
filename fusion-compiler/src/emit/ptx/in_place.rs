//! Sums in the registers of the values that they are added to.
//!
//! A loop hands a sum on by moves, unless the instruction of the sum writes the registers of the carried value.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::{lanes, renames};
use crate::ir::kernel::{Carried, Expr, Kernel, Stmt, Value, statements};
use crate::ir::op::Op;

/// A lane of a value.
pub(super) type LaneOf = (Value, u8);

/// The lanes whose registers a value shares, in order.
pub(super) type LaneList = SmallVec<[LaneOf; 4]>;

/// Returns the sums of a loop's body that may overwrite the carried values whose next values they are, each with the
/// carried lanes in order: no later instruction of an iteration reads these. A sum that only such a sum reads, as the
/// value that it adds to, overwrites the same lanes.
pub(super) fn sums_in_place(
    kernel: &Kernel,
    carried: &[Carried],
    body: &[Stmt],
) -> FxHashMap<Value, LaneList> {
    let reads = Reads::new(kernel, carried, body);
    let mut targets: FxHashMap<LaneOf, LaneOf> = FxHashMap::default();
    let mut twice = Vec::new();
    for of in carried {
        for (lane, from) in reads.lanes(of.next).into_iter().enumerate() {
            twice.extend(targets.insert(from, (of.var, lane as u8)).map(|_| from));
        }
    }
    let mut found = FxHashMap::default();
    for (at, stmt) in body.iter().enumerate().rev() {
        let Stmt::Let(value, expr) = stmt else { continue };
        let all = (0..lanes(kernel.ty(*value))).map(|lane| (*value, lane));
        let own: Option<LaneList> = all.clone().map(|lane| targets.get(&lane).copied()).collect();
        let is_free = |own: &LaneList| own.iter().all(|target| reads.last[target] <= at);
        let is_once = !all.clone().any(|lane| twice.contains(&lane));
        let own = own.filter(|own| is_free(own) && is_once && reads.is_sum_into(expr, own));
        let Some(own) = own else { continue };
        if let Some(before) = added_to(expr) {
            let before = reads.lanes(before).into_iter().zip(own.iter().copied());
            targets.extend(before.filter(|(lane, _)| reads.count.get(lane) == Some(&1)));
        }
        found.insert(*value, own);
    }
    found
}

/// Returns the value that a sum adds products to.
fn added_to(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::MatrixProduct(_, sum, ..) => Some(*sum),
        Expr::Apply(Op::Fma, args) => args.last().copied(),
        _ => None,
    }
}

/// Reads in the body of a loop.
struct Reads<'k> {
    kernel: &'k Kernel,
    /// The lanes that other values rename.
    renamed: FxHashMap<Value, LaneList>,
    /// Number of the last statement that reads a carried lane.
    last: FxHashMap<LaneOf, usize>,
    /// Number of reads of a lane that is not carried.
    count: FxHashMap<LaneOf, usize>,
}

impl<'k> Reads<'k> {
    fn new(kernel: &'k Kernel, carried: &[Carried], body: &[Stmt]) -> Reads<'k> {
        let [last, count] = [(); 2].map(|()| FxHashMap::default());
        let mut reads = Reads { kernel, renamed: FxHashMap::default(), last, count };
        for of in carried {
            reads.last.extend(reads.lanes(of.var).into_iter().map(|lane| (lane, 0)));
        }
        for (at, stmt) in body.iter().enumerate() {
            if let Stmt::Let(value, expr) = stmt
                && let Some(lanes) = reads.renaming(*value, expr)
            {
                reads.renamed.insert(*value, lanes);
                continue;
            }
            for stmt in std::iter::once(stmt).chain(statements(stmt.body())) {
                stmt.for_each_operand(|value| reads.read(*value, at));
                stmt.for_each_body(|_, leaving| leaving.iter().for_each(|value| reads.read(**value, at)));
            }
        }
        // The next iteration gets some values as they are.
        let next = carried.iter().map(|of| of.next);
        next.for_each(|value| reads.read(value, usize::MAX));
        reads
    }

    /// Returns the lanes that a value has registers of: its own, or these that it renames.
    fn lanes(&self, value: Value) -> LaneList {
        let own = || (0..lanes(self.kernel.ty(value))).map(|lane| (value, lane)).collect();
        self.renamed.get(&value).cloned().unwrap_or_else(own)
    }

    fn renaming(&self, value: Value, expr: &Expr) -> Option<LaneList> {
        let one = |value: &Value, lane: u8| self.lanes(*value)[usize::from(lane)];
        match expr {
            Expr::Splat(arg) => Some(smallvec![one(arg, 0); usize::from(lanes(self.kernel.ty(value)))]),
            Expr::Pack(args) => Some(args.iter().map(|arg| one(arg, 0)).collect()),
            Expr::Lane(arg, lane) => Some(smallvec![one(arg, *lane)]),
            Expr::Bitcast(arg) if renames(self.kernel, *arg, value) => Some(self.lanes(*arg)),
            _ => None,
        }
    }

    fn read(&mut self, value: Value, at: usize) {
        for lane in self.lanes(value) {
            match self.last.get_mut(&lane) {
                Some(last) => *last = at,
                None => *self.count.entry(lane).or_default() += 1,
            }
        }
    }

    /// Returns true for a sum of floats whose instructions may write these lanes. An instruction for each lane must
    /// not overwrite another lane's operand.
    fn is_sum_into(&self, expr: &Expr, targets: &[LaneOf]) -> bool {
        match expr {
            Expr::MatrixProduct(..) => true,
            Expr::Apply(Op::Fma | Op::Add, args) if self.kernel.ty(args[0]).dtype.is_float() => {
                args.iter().all(|arg| {
                    let read = self.lanes(*arg);
                    let is_own = |(i, lane): (usize, &LaneOf)| {
                        targets.iter().enumerate().all(|(j, target)| i == j || target != lane)
                    };
                    read.iter().enumerate().all(is_own)
                })
            }
            _ => false,
        }
    }
}
