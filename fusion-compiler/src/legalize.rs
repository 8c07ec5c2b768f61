//! Kernel × dialect → kernel whose every operation is native to the target.
//!
//! Invariant: afterwards every loop is `LoopKind::Serial`, no `Stmt::AllReduce` is left, and every `Apply` is
//! `Native` in the dialect's column. The target's own conversion is right for every cast. Loads and stores of
//! elements of one or two bytes access their bits, the low ones of a `u32`.

mod cluster;
mod narrow;
mod subgroups;
mod tiles;

use rustc_hash::FxHashMap;

use crate::ir::dtype::{Const, DType};
use crate::ir::kernel::{
    Buffer, Builder, Builtin, Carried, Expr, Fold, Kernel, Lanes, LoopKind, Scope, Shared, SharedId,
    SharedLen, Shuffle, Stmt, ThreadMap, Type, Uniform, Value, Values, WARP,
};
use crate::ir::op::Op;
use crate::ops::Lower;
use crate::target::Dialect;
use crate::target::tuning_table::gpu;
pub use subgroups::by_subgroups;
pub use tiles::tiles;

/// Rewrites a kernel into operations that the dialect has.
pub fn legalize(mut kernel: Kernel, dialect: Dialect) -> Kernel {
    let body = std::mem::take(&mut kernel.body);
    let narrow = narrow::as_bits(&mut kernel.types);
    let mut legalizer = Legalizer {
        dialect,
        narrow,
        buffers: &kernel.buffers,
        types: &mut kernel.types,
        uniforms: &mut kernel.uniforms,
        shared: &mut kernel.shared,
        threads: kernel.threads,
        has_exchange: false,
        renamed: FxHashMap::default(),
    };
    let mut out = Vec::new();
    legalizer.block(body, &mut out);
    kernel.body = out;
    kernel
}

struct Legalizer<'k> {
    dialect: Dialect,
    /// Dtype of each value that is now the bits of an element of one or two bytes.
    narrow: FxHashMap<Value, DType>,
    buffers: &'k [Buffer],
    types: &'k mut Vec<Type>,
    uniforms: &'k mut Vec<Uniform>,
    shared: &'k mut Vec<Shared>,
    threads: ThreadMap,
    /// True if the blocks of a cluster have exchanged values in the current iteration.
    has_exchange: bool,
    renamed: FxHashMap<Value, Value>,
}

impl Legalizer<'_> {
    fn block(&mut self, body: Vec<Stmt>, out: &mut Vec<Stmt>) {
        let (dialect, team) = (self.dialect, self.threads.team);
        for mut stmt in body {
            stmt.for_each_operand_mut(|operand| {
                *operand = self.renamed.get(operand).copied().unwrap_or(*operand)
            });
            match stmt {
                Stmt::Let(value, Expr::Apply(op, args)) => self.apply(value, op, args, out),
                Stmt::Let(value, Expr::Cast(arg)) => self.cast(value, arg, out),
                Stmt::Let(value, Expr::Const(constant)) => self.constant(value, constant, out),
                Stmt::Let(value, read @ (Expr::Load(_) | Expr::LoadWhere(..))) => self.load(value, read, out),
                Stmt::Store(at, value) => self.store(at, value, out),
                Stmt::Let(value, Expr::Builtin(Builtin::TeamSlot)) => {
                    self.replace(value, out, |b| team_slot(b, dialect, team))
                }
                Stmt::Let(value, Expr::Builtin(Builtin::TeamId)) => {
                    self.replace(value, out, |b| team_id(b, dialect, team))
                }
                Stmt::AllReduce(fold) => self.combine(&fold, out),
                Stmt::Barrier(Scope::Team) if dialect == Dialect::Ptx => {
                    out.push(Stmt::Barrier(if team > WARP { Scope::Block } else { Scope::Warp }));
                }
                Stmt::Loop {
                    var,
                    kind: kind @ (LoopKind::Grid | LoopKind::Team | LoopKind::Remainder),
                    start,
                    end,
                    step,
                    carried,
                    body,
                } => {
                    let distributed = if self.dialect == Dialect::Wgsl {
                        let cond = self.distribute_once(kind, var, (start, end, step), out);
                        Stmt::If { cond, body }
                    } else {
                        let (start, end, step) = self.distribute(kind, (start, end, step), out);
                        Stmt::Loop { var, kind: LoopKind::Serial, start, end, step, carried, body }
                    };
                    let legal = self.within(distributed);
                    out.push(self.begun(legal));
                }
                stmt => out.push(self.within(stmt)),
            }
        }
    }

    /// Legalizes the bodies of a statement.
    fn within(&mut self, mut stmt: Stmt) -> Stmt {
        stmt.for_each_body_mut(|body, leaving| {
            let mut legal = Vec::with_capacity(body.len());
            self.block(std::mem::take(body), &mut legal);
            *body = legal;
            for value in leaving {
                **value = self.renamed.get(value).copied().unwrap_or(**value);
            }
        });
        stmt
    }

    /// Lowers an all-reduce over the threads of a team.
    fn combine(&mut self, fold: &Fold, out: &mut Vec<Stmt>) {
        let made = match self.dialect {
            Dialect::Ptx if self.threads.cluster => self.by_cluster(fold, out),
            Dialect::Ptx if self.threads.rows == 1 || !self.threads.cyclic => self.by_shuffles(fold, out),
            Dialect::Ptx | Dialect::Wgsl => self.through_memory(fold, out),
            Dialect::Cpu => unreachable!("the CPU has no teams"),
        };
        self.renamed.extend(fold.out.iter().copied().zip(made));
    }

    /// Reduces over a team: first in each warp by shuffles, then over the partial results of the warps. Each
    /// thread combines few partial results by itself, in the order of the shuffles. The redundant work takes
    /// no more instructions than shuffles, and does not wait for a chain of them.
    fn by_shuffles(&mut self, fold: &Fold, out: &mut Vec<Stmt>) -> Vec<Value> {
        if self.threads.per_row() <= WARP {
            return self.fold_warp(fold, fold.over.clone(), self.threads.per_row(), out);
        }
        let of_warp = self.fold_down(fold, fold.over.clone(), WARP, out);
        let warps = self.threads.team / WARP;
        let memory = self.shared_memory(fold, warps);
        let mut b = self.builder(out);
        let thread = b.builtin(Builtin::ThreadId);
        let (bits, mask, zero) =
            (b.index(WARP.trailing_zeros().into()), b.index(i64::from(WARP) - 1), b.index(0));
        let warp = b.apply(Op::ShrRaw, &[thread, bits]);
        let lane = b.apply(Op::And, &[thread, mask]);
        let first = b.apply(Op::Eq, &[lane, zero]);
        let body =
            memory.iter().zip(&of_warp).map(|(&id, &value)| Stmt::StoreShared(id, warp, value)).collect();
        b.body.extend([Stmt::If { cond: first, body }, Stmt::Barrier(Scope::Block)]);
        if let [id] = memory[..]
            && fold.body.len() <= gpu::ALONE_OPS_MAX
            && warps <= gpu::ALONE_WARPS_MAX
        {
            return vec![self.fold_alone(fold, id, warps, out)];
        }
        let last = b.index(i64::from(warps) - 1);
        let place = b.apply(Op::And, &[lane, last]);
        let parts = memory
            .iter()
            .zip(&fold.over)
            .map(|(&id, &value)| b.bind(b.ty(value), Expr::LoadShared(id, place)));
        let parts = parts.collect();
        // The next fold overwrites this memory, so all threads must have read it.
        b.body.push(Stmt::Barrier(Scope::Block));
        self.fold_warp(fold, parts, warps, out)
    }

    /// Reduces `count` elements of shared memory in each thread, in the order of `fold_warp`.
    fn fold_alone(&mut self, fold: &Fold, id: SharedId, count: u32, out: &mut Vec<Stmt>) -> Value {
        let mut b = self.builder(out);
        let (one, lanes) = (b.ty(fold.over[0]), count.min(4) as u8);
        let mut values: Vec<Value> = Vec::new();
        for first in (0..count).step_by(lanes.into()) {
            let place = b.index(first.into());
            let together = b.bind(Type { lanes: Lanes::Const(lanes), ..one }, Expr::LoadShared(id, place));
            values.extend((0..lanes).map(|lane| b.bind(one, Expr::Lane(together, lane))));
        }
        // The next fold overwrites this memory, so all threads must have read it.
        b.body.push(Stmt::Barrier(Scope::Block));
        while values.len() > 1 {
            let (left, right) = values.split_at(values.len() / 2);
            let pairs = left.iter().zip(right);
            values = pairs.flat_map(|(&left, &right)| self.call(fold, &[left], &[right], out)).collect();
        }
        values[0]
    }

    /// Reduces over each run of `threads` adjacent threads of a warp. All of them get the result.
    fn fold_warp(
        &mut self,
        fold: &Fold,
        values: Vec<Value>,
        threads: u32,
        out: &mut Vec<Stmt>,
    ) -> Vec<Value> {
        let values = self.fold_down(fold, values, threads, out);
        self.shuffle(&values, Shuffle::First, out)
    }

    /// Reduces over each run of `threads` adjacent threads of a warp. Only the first of them gets the result.
    fn fold_down(
        &mut self,
        fold: &Fold,
        mut values: Vec<Value>,
        threads: u32,
        out: &mut Vec<Stmt>,
    ) -> Vec<Value> {
        let mut distance = threads / 2;
        while distance > 0 {
            let others = self.shuffle(&values, Shuffle::Down(distance), out);
            values = self.call(fold, &values, &others, out);
            distance /= 2;
        }
        values
    }

    fn shuffle(&mut self, values: &[Value], from: Shuffle, out: &mut Vec<Stmt>) -> Vec<Value> {
        let mut b = self.builder(out);
        values.iter().map(|&value| b.bind(b.ty(value), Expr::Shuffle(value, from))).collect()
    }

    /// Reduces over a team through shared memory: in each stage, fewer threads combine several elements each.
    /// Elements of rows that share the team alternate in memory.
    fn through_memory(&mut self, fold: &Fold, out: &mut Vec<Stmt>) -> Vec<Value> {
        let memory = self.shared_memory(fold, self.threads.team);
        let ThreadMap { team, rows, cyclic, .. } = self.threads;
        let mut b = self.builder(out);
        let thread = b.builtin(Builtin::ThreadId);
        let (place, row) = match (rows, cyclic) {
            (1, _) => (thread, b.index(0)),
            (_, true) => {
                let mask = b.index(i64::from(rows) - 1);
                (thread, b.apply(Op::And, &[thread, mask]))
            }
            (_, false) => {
                let threads = team / rows;
                let (bits, mask) = (b.index(threads.ilog2().into()), b.index(i64::from(threads) - 1));
                let (row, number) = (b.apply(Op::ShrRaw, &[thread, bits]), b.apply(Op::And, &[thread, mask]));
                let rows = b.index(rows.into());
                let first = b.apply(Op::Mul, &[number, rows]);
                (b.apply(Op::Add, &[first, row]), row)
            }
        };
        b.body.extend(memory.iter().zip(&fold.over).map(|(&id, &value)| Stmt::StoreShared(id, place, value)));
        b.body.push(Stmt::Barrier(Scope::Block));
        let mut left = team;
        while left > rows {
            let next = (left / gpu::RADIX.min(left)).max(rows);
            let mut b = self.builder(out);
            let limit = b.index(next.into());
            let cond = b.apply(Op::Lt, &[thread, limit]);
            let mut body = Vec::new();
            let values = self.fold_strided(fold, &memory, (thread, limit, left), &mut body);
            body.extend(memory.iter().zip(&values).map(|(&id, &value)| Stmt::StoreShared(id, thread, value)));
            out.extend([Stmt::If { cond, body }, Stmt::Barrier(Scope::Block)]);
            left = next;
        }
        let made = self.read_shared(fold, &memory, row, out);
        out.push(Stmt::Barrier(Scope::Block));
        made
    }

    /// Reduces the elements of shared memory from `first` to below `end`, `step` apart. A loop keeps the text
    /// short; drivers unroll it.
    fn fold_strided(
        &mut self,
        fold: &Fold,
        memory: &[SharedId],
        (first, step, end): (Value, Value, u32),
        out: &mut Vec<Stmt>,
    ) -> Vec<Value> {
        let start = self.read_shared(fold, memory, first, out);
        let mut b = self.builder(out);
        let (second, end, var) = (b.apply(Op::Add, &[first, step]), b.index(end.into()), b.declare(INDEX));
        let fresh = |b: &mut Builder<'_>| -> Vec<Value> {
            fold.over.iter().map(|&value| b.declare(b.ty(value))).collect()
        };
        let (so_far, made) = (fresh(&mut b), fresh(&mut b));
        let mut body = Vec::new();
        let others = self.read_shared(fold, memory, var, &mut body);
        let next = self.call(fold, &so_far, &others, &mut body);
        let carried = (0..made.len())
            .map(|i| Carried { start: start[i], var: so_far[i], next: next[i], out: made[i] })
            .collect();
        let kind = LoopKind::Serial;
        out.push(Stmt::Loop { var, kind, start: second, end, step, carried, body });
        made
    }

    fn read_shared(
        &mut self,
        fold: &Fold,
        memory: &[SharedId],
        place: Value,
        out: &mut Vec<Stmt>,
    ) -> Vec<Value> {
        let mut b = self.builder(out);
        memory
            .iter()
            .zip(&fold.over)
            .map(|(&id, &value)| b.bind(b.ty(value), Expr::LoadShared(id, place)))
            .collect()
    }

    /// Returns shared memory for each component of a fold. All folds use the same memory.
    fn shared_memory(&mut self, fold: &Fold, len: u32) -> Vec<SharedId> {
        let mut ids: Vec<SharedId> = Vec::new();
        for &value in &fold.over {
            let wanted = Shared { dtype: self.types[value.0 as usize].dtype, len: SharedLen::Fixed(len) };
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
        let mut copy = Vec::with_capacity(fold.body.len());
        for mut stmt in fold.body.iter().cloned() {
            stmt.for_each_operand_mut(|operand| *operand = map.get(operand).copied().unwrap_or(*operand));
            let Stmt::Let(value, expr) = stmt else { unreachable!("the function of a fold only computes") };
            let ty = self.types[value.0 as usize];
            let fresh = self.builder(&mut copy).bind(ty, expr);
            map.insert(value, fresh);
        }
        self.block(copy, out);
        let made = fold.results.iter().map(|value| map.get(value).copied().unwrap_or(*value));
        made.map(|value| self.renamed.get(&value).copied().unwrap_or(value)).collect()
    }

    fn apply(&mut self, value: Value, op: Op, args: Values, out: &mut Vec<Stmt>) {
        let dtype = self.types[args[args.len() - 1].0 as usize].dtype;
        match self.dialect.lower(op, dtype) {
            Lower::Native(_) => out.push(Stmt::Let(value, Expr::Apply(op, args))),
            Lower::Recent(..) if self.threads.panels.are_copied() => {
                out.push(Stmt::Let(value, Expr::Apply(op, args)))
            }
            Lower::Expand(expand) | Lower::Recent(_, expand) => {
                self.replace(value, out, |b| expand(b, &args))
            }
            Lower::Never => unreachable!("{op:?} takes no operands of {dtype}"),
        }
    }

    /// Lowers a conversion. Conversions whose result the target leaves open are expanded, and so are those
    /// from and to bits.
    fn cast(&mut self, value: Value, arg: Value, out: &mut Vec<Stmt>) {
        if self.narrow_cast(value, arg, out) {
            return;
        }
        let (from, to) = (self.types[arg.0 as usize], self.types[value.0 as usize].dtype);
        // PTX does not define the integer that a NaN of 64 bits converts to.
        if self.dialect == Dialect::Ptx && from.dtype == DType::F64 && to.is_int() {
            let number = self.write(out, |b| {
                let (nan, zero) = (b.apply(Op::IsNan, &[arg]), b.constant(DType::F64, Const::Float(0.0)));
                b.apply(Op::Select, &[nan, zero, arg])
            });
            out.push(Stmt::Let(value, Expr::Cast(number)));
            return;
        }
        if self.dialect != Dialect::Wgsl || !from.dtype.is_float() || !to.is_int() {
            out.push(Stmt::Let(value, Expr::Cast(arg)));
            return;
        }
        let range = FloatRange::of(to);
        let inside = self.write(out, |b| range.clamp(b, arg));
        let whole = self.builder(out).declare(Type { dtype: to, ..from });
        out.push(Stmt::Let(whole, Expr::Cast(inside)));
        let made = self.write(out, |b| range.saturate(b, arg, whole));
        self.renamed.insert(value, made);
    }

    /// Replaces `value` by the result of `make`.
    fn replace(&mut self, value: Value, out: &mut Vec<Stmt>, make: impl FnOnce(&mut Builder<'_>) -> Value) {
        let lanes = self.types[value.0 as usize].lanes;
        let made = self.write(out, |b| {
            let made = make(b);
            b.splat(made, lanes)
        });
        self.renamed.insert(value, made);
    }

    /// Legalizes the statements of `make`.
    fn write(&mut self, out: &mut Vec<Stmt>, make: impl FnOnce(&mut Builder<'_>) -> Value) -> Value {
        let mut body = Vec::new();
        let made = make(&mut self.builder(&mut body));
        self.block(body, out);
        self.renamed.get(&made).copied().unwrap_or(made)
    }

    fn builder<'b>(&'b mut self, body: &'b mut Vec<Stmt>) -> Builder<'b> {
        Builder { types: self.types, uniforms: self.uniforms, body }
    }

    /// Maps a distributed loop to one iteration for each thread or block of a dispatch. Returns the condition
    /// under which this thread has an iteration.
    fn distribute_once(
        &mut self,
        kind: LoopKind,
        var: Value,
        (start, end, step): (Value, Value, Value),
        out: &mut Vec<Stmt>,
    ) -> Value {
        let mut b = self.builder(out);
        let id = b.builtin(if kind == LoopKind::Team { Builtin::BlockId } else { Builtin::GridId });
        let skip = b.apply(Op::Mul, &[id, step]);
        let this = b.apply(Op::Add, &[start, skip]);
        let has = if kind == LoopKind::Remainder {
            // The loop inside iterates over the elements that whole vectors leave.
            b.bind(BOOL, Expr::Builtin(Builtin::HasRest))
        } else {
            // The condition is not `this < end`: Mesa's software renderer, up to 22.3 at least, writes beyond
            // its memory where a condition starts with one of many uniform buffers.
            let count = b.apply(Op::Sub, &[end, start]);
            b.apply(Op::Lt, &[skip, count])
        };
        self.renamed.insert(var, this);
        has
    }

    /// Returns the iterations of a distributed loop that this thread runs: start, end and step.
    fn distribute(
        &mut self,
        kind: LoopKind,
        (start, end, step): (Value, Value, Value),
        out: &mut Vec<Stmt>,
    ) -> (Value, Value, Value) {
        let (dialect, ThreadMap { team, cluster, .. }) = (self.dialect, self.threads);
        let mut b = self.builder(out);
        match dialect {
            Dialect::Wgsl => unreachable!("a thread has one iteration"),
            Dialect::Ptx => {
                let (id, size) = match kind {
                    LoopKind::Team if cluster => {
                        (b.builtin(Builtin::ClusterId), b.builtin(Builtin::Clusters))
                    }
                    LoopKind::Team if is_block(dialect, team) => {
                        (b.builtin(Builtin::BlockId), b.builtin(Builtin::Blocks))
                    }
                    LoopKind::Team => {
                        let (id, size) = (b.builtin(Builtin::GridId), b.builtin(Builtin::GridSize));
                        let bits = b.index(team.trailing_zeros().into());
                        (b.apply(Op::ShrRaw, &[id, bits]), b.apply(Op::ShrRaw, &[size, bits]))
                    }
                    LoopKind::Grid | LoopKind::Remainder | LoopKind::Serial => {
                        (b.builtin(Builtin::GridId), b.builtin(Builtin::GridSize))
                    }
                };
                let skip = b.apply(Op::Mul, &[id, step]);
                (b.apply(Op::Add, &[start, skip]), end, b.apply(Op::Mul, &[size, step]))
            }
            Dialect::Cpu => (b.builtin(Builtin::RangeStart), b.builtin(Builtin::RangeEnd), step),
        }
    }
}

const BOOL: Type = Type { dtype: DType::Bool, lanes: Lanes::ONE };
const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

/// Returns true if a team is a whole block. WebGPU does not say how the threads of a block are grouped.
fn is_block(dialect: Dialect, team: u32) -> bool {
    dialect == Dialect::Wgsl || team > WARP
}

fn team_slot(b: &mut Builder<'_>, dialect: Dialect, team: u32) -> Value {
    if is_block(dialect, team) {
        return b.index(0);
    }
    let (thread, bits) = (b.builtin(Builtin::ThreadId), b.index(team.trailing_zeros().into()));
    b.apply(Op::ShrRaw, &[thread, bits])
}

fn team_id(b: &mut Builder<'_>, dialect: Dialect, team: u32) -> Value {
    let thread = b.builtin(Builtin::ThreadId);
    if is_block(dialect, team) {
        return thread;
    }
    let mask = b.index(i64::from(team) - 1);
    b.apply(Op::And, &[thread, mask])
}

/// Range of the floats that convert to an integer type.
struct FloatRange {
    to: DType,
    low: f32,
    /// Largest float in the range.
    high: f32,
    /// Largest integer of the type.
    max: i64,
}

impl FloatRange {
    fn of(to: DType) -> FloatRange {
        debug_assert!(to.is_int() && to != DType::Index, "{to} is no integer that users convert to");
        let (low, max) = to.range();
        let nearest = max as f32;
        let high = if nearest as i64 > max { nearest.next_down() } else { nearest };
        FloatRange { to, low: low as f32, high, max }
    }

    /// Returns the nearest float in the range, or 0 for NaN.
    fn clamp(&self, b: &mut Builder<'_>, x: Value) -> Value {
        let (zero, low, high) = (b.f32(0.0), b.f32(self.low), b.f32(self.high));
        let nan = b.apply(Op::IsNan, &[x]);
        let number = b.apply(Op::Select, &[nan, zero, x]);
        let under = b.apply(Op::Lt, &[number, low]);
        let raised = b.apply(Op::Select, &[under, low, number]);
        let over = b.apply(Op::Gt, &[raised, high]);
        b.apply(Op::Select, &[over, high, raised])
    }

    /// Returns `whole`, or the largest integer if `x` is above the range.
    fn saturate(&self, b: &mut Builder<'_>, x: Value, whole: Value) -> Value {
        let high = b.f32(self.high);
        let over = b.apply(Op::Gt, &[x, high]);
        let max = b.constant(self.to, Const::Int(self.max));
        b.apply(Op::Select, &[over, max, whole])
    }
}

#[cfg(test)]
mod tests;
