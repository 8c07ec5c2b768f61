//! Skips loops that would write back the values that they read. Example:
//! `p = if ok { p - lr * g } else { p }` with one condition for all elements. The select disappears, and
//! nothing is read or written if the condition is false.
//!
//! Invariant: memory is the same afterwards, except for the bits of a NaN that was converted to another type
//! and back.

use rustc_hash::FxHashMap;

use crate::ir::dtype::DType;
use crate::ir::graph::Access;
use crate::ir::kernel::{Address, Builder, Expr, Kernel, Lanes, LoopKind, Stmt, Type, Value};
use crate::ir::op::Op;

/// Moves the loops of a kernel under the condition without which they change nothing. Kernels whose threads
/// wait for each other stay as they are: a device must see that all threads agree on the condition.
pub fn skip_unchanged(mut kernel: Kernel) -> Kernel {
    let is_distributed = |stmt: &Stmt| matches!(stmt, Stmt::Loop { kind: LoopKind::Grid, .. });
    let begin = kernel.body.iter().position(is_distributed);
    let is_kept = kernel.buffers.iter().all(|buffer| buffer.access != Access::Write);
    let Some(begin) = begin.filter(|_| is_kept) else { return kernel };
    let before = kernel.body[..begin].iter().flat_map(Stmt::made);
    let before = before.filter(|&value| kernel.ty(value) == Type { dtype: DType::Bool, lanes: Lanes::ONE });
    let conds = before.flat_map(|value| [true, false].map(|changes| Predicate { value, changes }));
    let conds: Vec<Predicate> = conds.collect();
    if conds.is_empty() {
        return kernel;
    }
    let mut definitions = Definitions::default();
    definitions.collect(&kernel.body[begin..]);
    if definitions.is_together {
        return kernel;
    }
    let Some(cond) = conds.into_iter().find(|&cond| definitions.is_skipped(&kernel, cond)) else {
        return kernel;
    };
    let mut body = kernel.body.split_off(begin);
    body.iter_mut().for_each(|stmt| definitions.choose(&kernel, stmt, cond));
    let Kernel { types, uniforms, body: before, .. } = &mut kernel;
    let mut b = Builder { types, uniforms, body: before };
    let cond = if cond.changes { cond.value } else { b.apply(Op::Not, &[cond.value]) };
    b.body.push(Stmt::If { cond, body });
    kernel
}

/// Condition under which memory changes: a `bool` value, and the truth of that value.
#[derive(Clone, Copy)]
struct Predicate {
    value: Value,
    changes: bool,
}

/// Definitions and stores in the loops of a kernel.
#[derive(Default)]
struct Definitions {
    exprs: FxHashMap<Value, Expr>,
    stores: Vec<(Address, Value)>,
    /// True if threads wait for each other.
    is_together: bool,
}

impl Definitions {
    fn collect(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(value, expr) => _ = self.exprs.insert(*value, expr.clone()),
                Stmt::Store(at, value) => self.stores.push((*at, *value)),
                Stmt::AllReduce(_) | Stmt::ClusterExchange(_) | Stmt::Barrier(_) => self.is_together = true,
                _ => {}
            }
            stmt.for_each_body(|body, _| self.collect(body));
        }
    }

    /// Returns true if no store changes memory unless the condition is true.
    fn is_skipped(&self, kernel: &Kernel, cond: Predicate) -> bool {
        let stays = |&(at, value): &(Address, Value)| self.place(kernel, cond, at, value).is_some();
        !self.stores.is_empty() && self.stores.iter().all(stays)
    }

    /// Returns the index that a stored value was loaded from, if the store writes back the loaded value
    /// unless the condition is true.
    fn place(&self, kernel: &Kernel, cond: Predicate, at: Address, value: Value) -> Option<Value> {
        let expr = self.exprs.get(&self.otherwise(cond, value))?;
        if let Expr::Load(read) = expr {
            let is_there =
                Address { index: at.index, ..*read } == at && self.are_same(kernel, read.index, at.index);
            return is_there.then_some(read.index);
        }
        // The value was converted to a wider type and back.
        let Expr::Cast(wide) = expr else { return None };
        let Expr::Cast(narrow) = self.exprs.get(&self.otherwise(cond, *wide))? else { return None };
        let [from, through, to] = [*narrow, *wide, value].map(|value| kernel.ty(value).dtype);
        let is_exact = from.is_narrow() && through == from.computed();
        if is_exact && from == to { self.place(kernel, cond, at, *narrow) } else { None }
    }

    /// Returns a value as it is where the condition is false.
    fn otherwise(&self, cond: Predicate, value: Value) -> Value {
        self.choice(cond, value).map_or(value, |[_, otherwise]| self.otherwise(cond, otherwise))
    }

    /// Returns a value as it is where the condition is true.
    fn chosen(&self, cond: Predicate, value: Value) -> Value {
        self.choice(cond, value).map_or(value, |[chosen, _]| self.chosen(cond, chosen))
    }

    /// Returns the two operands of a select by the condition: the one where it is true, then the other.
    fn choice(&self, cond: Predicate, value: Value) -> Option<[Value; 2]> {
        let Expr::Apply(Op::Select, args) = self.exprs.get(&value)? else { return None };
        let is_it = args[0] == cond.value || self.exprs.get(&args[0]) == Some(&Expr::Splat(cond.value));
        is_it.then_some(if cond.changes { [args[1], args[2]] } else { [args[2], args[1]] })
    }

    /// Returns true if both values have the same pure expression.
    fn are_same(&self, kernel: &Kernel, left: Value, right: Value) -> bool {
        let made = [left, right].map(|value| self.exprs.get(&value).cloned());
        let [Some(mut first), Some(mut second)] = made else { return left == right };
        let (mut operands, mut others) = (vec![], vec![]);
        first.for_each_operand_mut(|operand| operands.push(std::mem::replace(operand, left)));
        second.for_each_operand_mut(|operand| others.push(std::mem::replace(operand, left)));
        let are_same =
            || operands.iter().zip(&others).all(|(&left, &right)| self.are_same(kernel, left, right));
        let is_alike = kernel.ty(left) == kernel.ty(right) && operands.len() == others.len();
        left == right || is_alike && first.is_pure() && first == second && are_same()
    }

    /// Replaces selects by the operand that they take where the condition is true.
    fn choose(&self, kernel: &Kernel, stmt: &mut Stmt, cond: Predicate) {
        if let Stmt::Store(at, value) = stmt {
            // The index of the load is available as early as the loaded value.
            at.index = self.place(kernel, cond, *at, *value).unwrap_or(at.index);
        }
        stmt.for_each_operand_mut(|operand| *operand = self.chosen(cond, *operand));
        let is_vector = matches!(stmt, Stmt::Vector { .. });
        stmt.for_each_body_mut(|body, leaving| {
            body.iter_mut().for_each(|stmt| self.choose(kernel, stmt, cond));
            if is_vector {
                store_early(body);
            }
            for value in leaving {
                **value = self.chosen(cond, **value);
            }
        });
    }
}

/// Moves each store of a vector loop up to the definition of its value, so that slow computations come after
/// the store. An AdamW step within the caches of a Cascade Lake is slower with all stores at its end. Loops
/// on GPUs stay: a GPU does not move a vector load from a written buffer above an earlier store.
fn store_early(body: &mut [Stmt]) {
    for i in 0..body.len() {
        let Stmt::Store(at, value) = body[i] else { continue };
        let can_pass = |stmt: &Stmt| match stmt {
            Stmt::Let(made, Expr::Load(read) | Expr::LoadWhere(read, _)) => {
                read.buffer != at.buffer && ![value, at.index].contains(made)
            }
            Stmt::Let(made, _) => ![value, at.index].contains(made),
            Stmt::Store(other, _) => other.buffer != at.buffer,
            _ => false,
        };
        let before = body[..i].iter().rev().take_while(|stmt| can_pass(stmt)).count();
        body[i - before..=i].rotate_right(1);
    }
}
