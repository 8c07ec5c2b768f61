//! Reductions over a team by subgroups: kernel → kernel without `Stmt::AllReduce`.
//!
//! The pass is for devices whose subgroups are all of one size, which divides the team. A team is a block.
//! The first thread of each subgroup gets the subgroup's result by shuffles, whose number is the logarithm of
//! the size. The results of all subgroups pass through shared memory with one barrier, and each subgroup
//! combines them alike. WebGPU does not say which threads of a block form a subgroup, and the pass does not
//! depend on it: every thread writes an element of its own, and only the first thread of a subgroup writes
//! more than the identity.

use rustc_hash::FxHashMap;

use crate::ir::dtype::DType;
use crate::ir::kernel::{
    Builder, Builtin, Carried, Expr, Fold, Kernel, Lanes, LoopKind, Scope, Shared, SharedId, SharedLen,
    Shuffle, Stmt, Type, Uniform, Value,
};
use crate::ir::op::Op;

/// Largest number of threads of a subgroup (WGSL, §15.6.3).
const SUBGROUP_MAX: u32 = 128;

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// Returns the kernel with reductions by subgroups, under a name of its own.
pub fn by_subgroups(mut kernel: Kernel) -> Kernel {
    let body = std::mem::take(&mut kernel.body);
    let Kernel { types, uniforms, shared, threads, .. } = &mut kernel;
    kernel.body = SubgroupLowering { types, uniforms, shared, team: threads.team }.block(body);
    kernel.name.push_str("_subgroups");
    kernel
}

struct SubgroupLowering<'k> {
    types: &'k mut Vec<Type>,
    uniforms: &'k mut Vec<Uniform>,
    shared: &'k mut Vec<Shared>,
    team: u32,
}

impl SubgroupLowering<'_> {
    fn block(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(body.len());
        for stmt in body {
            match stmt {
                Stmt::AllReduce(fold) => self.combine(&fold, &mut out),
                mut stmt => {
                    stmt.for_each_body_mut(|body, _| *body = self.block(std::mem::take(body)));
                    out.push(stmt);
                }
            }
        }
        out
    }

    fn combine(&mut self, fold: &Fold, out: &mut Vec<Stmt>) {
        let memory = self.memory(fold);
        let mut b = self.builder(out);
        let (lane, size) = (b.builtin(Builtin::SubgroupLane), b.builtin(Builtin::SubgroupSize));
        let steps = steps(&mut b, size);
        let of_subgroup = fresh(&mut b, &fold.over);
        self.gather(fold, steps, &fold.over, &of_subgroup, out);
        let mut b = self.builder(out);
        let (thread, zero) = (b.builtin(Builtin::ThreadId), b.index(0));
        let first = b.apply(Op::Eq, &[lane, zero]);
        for ((&id, &value), &nothing) in memory.iter().zip(&of_subgroup).zip(&fold.identity) {
            let kept = b.apply(Op::Select, &[first, value, nothing]);
            b.body.push(Stmt::StoreShared(id, thread, kept));
        }
        b.body.push(Stmt::Barrier(Scope::Block));
        let part = self.part(fold, &memory, (lane, size), out);
        // The next fold overwrites this memory, so all threads must have read it.
        out.push(Stmt::Barrier(Scope::Block));
        let mut b = self.builder(out);
        let all = fresh(&mut b, &fold.over);
        self.gather(fold, steps, &part, &all, out);
        let shuffle = |(&made, value)| Stmt::Let(made, Expr::Shuffle(value, Shuffle::First));
        out.extend(fold.out.iter().zip(all).map(shuffle));
    }

    /// Reduces over the threads of a subgroup. The first thread gets the result.
    fn gather(&mut self, fold: &Fold, steps: Value, values: &[Value], made: &[Value], out: &mut Vec<Stmt>) {
        let mut b = self.builder(out);
        let (zero, one) = (b.index(0), b.index(1));
        let (var, so_far) = (b.declare(INDEX), fresh(&mut b, values));
        let mut body = Vec::new();
        let mut b = self.builder(&mut body);
        let distance = b.apply(Op::ShlRaw, &[one, var]);
        let shuffle = |value: &Value| b.bind(b.ty(*value), Expr::Shuffle(*value, Shuffle::DownBy(distance)));
        let others: Vec<Value> = so_far.iter().map(shuffle).collect();
        let next = self.call(fold, &so_far, &others, &mut body);
        let carried = carried(values, &so_far, &next, made);
        out.push(Stmt::Loop {
            var,
            kind: LoopKind::Serial,
            start: zero,
            end: steps,
            step: one,
            carried,
            body,
        });
    }

    /// Combines the elements of shared memory that are this thread's share, as if its subgroup were the only
    /// one.
    fn part(
        &mut self,
        fold: &Fold,
        memory: &[SharedId],
        (lane, size): (Value, Value),
        out: &mut Vec<Stmt>,
    ) -> Vec<Value> {
        let team = i64::from(self.team);
        let mut b = self.builder(out);
        let (end, var) = (b.index(team), b.declare(INDEX));
        let (so_far, made) = (fresh(&mut b, &fold.over), fresh(&mut b, &fold.over));
        let mut body = Vec::new();
        let mut b = self.builder(&mut body);
        let load = |(&id, value): (&SharedId, &Value)| b.bind(b.ty(*value), Expr::LoadShared(id, var));
        let others: Vec<Value> = memory.iter().zip(&so_far).map(load).collect();
        let next = self.call(fold, &so_far, &others, &mut body);
        let carried = carried(&fold.identity, &so_far, &next, &made);
        let (kind, start, step) = (LoopKind::Serial, lane, size);
        out.push(Stmt::Loop { var, kind, start, end, step, carried, body });
        made
    }

    /// Returns shared memory for each component of a fold, with one element for each thread. All folds use
    /// the same memory.
    fn memory(&mut self, fold: &Fold) -> Vec<SharedId> {
        let mut ids: Vec<SharedId> = Vec::new();
        for &value in &fold.over {
            let len = SharedLen::Fixed(self.team);
            let wanted = Shared { dtype: self.types[value.0 as usize].dtype, len };
            let free = |i: &usize| self.shared[*i] == wanted && !ids.contains(&SharedId(*i as u16));
            let known = (0..self.shared.len()).find(free);
            ids.push(SharedId(known.unwrap_or_else(|| {
                self.shared.push(wanted);
                self.shared.len() - 1
            }) as u16));
        }
        ids
    }

    /// Inlines the function of a fold for these arguments.
    fn call(&mut self, fold: &Fold, left: &[Value], right: &[Value], out: &mut Vec<Stmt>) -> Vec<Value> {
        let params = fold.left.iter().chain(&fold.right).copied();
        let mut map: FxHashMap<Value, Value> = params.zip(left.iter().chain(right).copied()).collect();
        for mut stmt in fold.body.iter().cloned() {
            stmt.for_each_operand_mut(|operand| *operand = map.get(operand).copied().unwrap_or(*operand));
            let Stmt::Let(value, expr) = stmt else { unreachable!("the function of a fold only computes") };
            let ty = self.types[value.0 as usize];
            map.insert(value, self.builder(out).bind(ty, expr));
        }
        fold.results.iter().map(|value| map.get(value).copied().unwrap_or(*value)).collect()
    }

    fn builder<'b>(&'b mut self, body: &'b mut Vec<Stmt>) -> Builder<'b> {
        Builder { types: self.types, uniforms: self.uniforms, body }
    }
}

/// Returns the number of shuffles of a subgroup: the logarithm of its size.
fn steps(b: &mut Builder<'_>, size: Value) -> Value {
    let (mut steps, one) = (b.index(0), b.index(1));
    for bit in 0..SUBGROUP_MAX.ilog2() {
        let distance = b.index(1 << bit);
        let below = b.apply(Op::Lt, &[distance, size]);
        let more = b.apply(Op::Add, &[steps, one]);
        steps = b.apply(Op::Select, &[below, more, steps]);
    }
    steps
}

/// Declares values of the same types.
fn fresh(b: &mut Builder<'_>, like: &[Value]) -> Vec<Value> {
    like.iter().map(|&value| b.declare(b.ty(value))).collect()
}

fn carried(start: &[Value], var: &[Value], next: &[Value], out: &[Value]) -> Vec<Carried> {
    let one = |i: usize| Carried { start: start[i], var: var[i], next: next[i], out: out[i] };
    (0..start.len()).map(one).collect()
}
