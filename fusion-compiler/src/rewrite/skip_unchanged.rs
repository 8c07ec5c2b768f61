//! Goes through nothing where all of it stays as it is: of `p = if ok { p - lr * g } else { p }`, whose condition is one for all
//! elements, no choice is made for each, and nothing is read or written where it does not hold.
//!
//! Invariant: memory is the same afterwards, but for which NaN it is that was read and written back in another type.

use rustc_hash::FxHashMap;

use crate::ir::dtype::DType;
use crate::ir::graph::Access;
use crate::ir::kernel::{Address, Builder, Expr, Kernel, Lanes, LoopKind, Stmt, Type, Value};
use crate::ir::ops::Op;

/// Puts the loops of such a kernel under the condition. What teams do together is left alone: there a device has to see that all threads
/// agree.
pub fn skip_unchanged(mut kernel: Kernel) -> Kernel {
    let is_dealt = |stmt: &Stmt| matches!(stmt, Stmt::Loop { kind: LoopKind::Grid, .. });
    let begin = kernel.body.iter().position(is_dealt);
    let is_kept = kernel.buffers.iter().all(|buffer| buffer.access != Access::Write);
    let Some(begin) = begin.filter(|_| is_kept) else { return kernel };
    let before = kernel.body[..begin].iter().flat_map(Stmt::made);
    let before = before.filter(|&value| kernel.ty(value) == Type { dtype: DType::Bool, lanes: Lanes::ONE });
    let conds = before.flat_map(|value| [true, false].map(|changes| Condition { value, changes }));
    let conds: Vec<Condition> = conds.collect();
    if conds.is_empty() {
        return kernel;
    }
    let mut made = Made::default();
    made.collect(&kernel.body[begin..]);
    if made.is_together {
        return kernel;
    }
    let Some(cond) = conds.into_iter().find(|&cond| made.is_skipped(&kernel, cond)) else { return kernel };
    let mut body = kernel.body.split_off(begin);
    body.iter_mut().for_each(|stmt| made.choose(&kernel, stmt, cond));
    let Kernel { types, uniforms, body: before, .. } = &mut kernel;
    let mut b = Builder { types, uniforms, body: before };
    let cond = if cond.changes { cond.value } else { b.apply(Op::Not, &[cond.value]) };
    b.body.push(Stmt::If { cond, body });
    kernel
}

/// A truth value, and which one changes something.
#[derive(Clone, Copy)]
struct Condition {
    value: Value,
    changes: bool,
}

/// What the loops of a kernel are made of.
#[derive(Default)]
struct Made {
    exprs: FxHashMap<Value, Expr>,
    stores: Vec<(Address, Value)>,
    /// Whether threads wait for each other.
    is_together: bool,
}

impl Made {
    fn collect(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(value, expr) => _ = self.exprs.insert(*value, expr.clone()),
                Stmt::Store(at, value) => self.stores.push((*at, *value)),
                Stmt::AllReduce(_) | Stmt::ClusterExchange(_) | Stmt::Barrier(_) => self.is_together = true,
                Stmt::Loop { .. } | Stmt::Vector { .. } | Stmt::If { .. } | Stmt::StoreShared(..) => {}
            }
            stmt.for_each_body(|body, _| self.collect(body));
        }
    }

    /// Whether this is a condition without which nothing changes.
    fn is_skipped(&self, kernel: &Kernel, cond: Condition) -> bool {
        let stays = |&(at, value): &(Address, Value)| self.place(kernel, cond, at, value).is_some();
        !self.stores.is_empty() && self.stores.iter().all(stays)
    }

    /// Where a value was read, if that is what lies there unless the condition holds.
    fn place(&self, kernel: &Kernel, cond: Condition, at: Address, value: Value) -> Option<Value> {
        let expr = self.exprs.get(&self.otherwise(cond, value))?;
        if let Expr::Load(read) = expr {
            let is_there =
                Address { index: at.index, ..*read } == at && self.are_same(kernel, read.index, at.index);
            return is_there.then_some(read.index);
        }
        // Read as a wider type, and back.
        let Expr::Cast(wide) = expr else { return None };
        let Expr::Cast(narrow) = self.exprs.get(&self.otherwise(cond, *wide))? else { return None };
        let [from, through, to] = [*narrow, *wide, value].map(|value| kernel.ty(value).dtype);
        let is_exact = from.is_narrow() && through == from.computed();
        if is_exact && from == to { self.place(kernel, cond, at, *narrow) } else { None }
    }

    /// What a value is unless the condition holds.
    fn otherwise(&self, cond: Condition, value: Value) -> Value {
        self.choice(cond, value).map_or(value, |[_, otherwise]| self.otherwise(cond, otherwise))
    }

    /// What it is where it holds.
    fn chosen(&self, cond: Condition, value: Value) -> Value {
        self.choice(cond, value).map_or(value, |[chosen, _]| self.chosen(cond, chosen))
    }

    /// What a value is where the condition holds, and else.
    fn choice(&self, cond: Condition, value: Value) -> Option<[Value; 2]> {
        let Expr::Apply(Op::Select, args) = self.exprs.get(&value)? else { return None };
        let is_it = args[0] == cond.value || self.exprs.get(&args[0]) == Some(&Expr::Splat(cond.value));
        is_it.then_some(if cond.changes { [args[1], args[2]] } else { [args[2], args[1]] })
    }

    /// Whether both are made in the same way.
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

    /// Takes what there is where the condition holds, instead of choosing.
    fn choose(&self, kernel: &Kernel, stmt: &mut Stmt, cond: Condition) {
        if let Stmt::Store(at, value) = stmt {
            // Known as soon as what was there.
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

/// Stores what is made as soon as it is, so that what takes long comes after: of vector loops, since GPUs read no vector of what is written
/// before what was stored. A step of AdamW within the caches of a Cascade Lake took 4 % longer with all stores at its end.
fn store_early(body: &mut [Stmt]) {
    for i in 0..body.len() {
        let Stmt::Store(at, value) = body[i] else { continue };
        let can_pass = |stmt: &Stmt| match stmt {
            Stmt::Let(made, Expr::Load(read) | Expr::LoadWhere(read, _)) => {
                read.buffer != at.buffer && ![value, at.index].contains(made)
            }
            Stmt::Let(made, _) => ![value, at.index].contains(made),
            Stmt::Store(other, _) => other.buffer != at.buffer,
            Stmt::Loop { .. }
            | Stmt::Vector { .. }
            | Stmt::AllReduce(_)
            | Stmt::StoreShared(..)
            | Stmt::ClusterExchange(_)
            | Stmt::Barrier(_)
            | Stmt::If { .. } => false,
        };
        let before = body[..i].iter().rev().take_while(|stmt| can_pass(stmt)).count();
        body[i - before..=i].rotate_right(1);
    }
}
