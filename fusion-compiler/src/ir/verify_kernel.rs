//! Verifier of Kernel IR, which runs between passes. A violation is a bug in the compiler.
//!
//! Every operand is defined before its use and still in scope. Types agree with the op table, and accesses
//! agree with the declared access of the buffer. `Lanes::Loop` occurs only inside `Stmt::Vector`. All threads
//! reach the statements that they execute together.

use super::dtype::{Const, DType};
use super::graph::Access;
use super::kernel::{
    ASYNC_COPY_BYTES, Address, AsyncCopy, Builtin, Carried, ClusterExchange, Expr, Fold, Kernel, Lanes,
    LoopKind, Scope, SharedId, SharedLen, Shuffle, Stmt, Type, Value, WARP,
};
use super::op::{Op, Typing};

/// Verifies a kernel.
///
/// # Errors
/// Returns a description of the first violation, with the text of the kernel.
pub fn kernel(kernel: &Kernel) -> Result<(), String> {
    let count = kernel.types.len();
    let mut verifier = Verifier {
        kernel,
        scope: vec![false; count],
        varies: vec![Varies::Nowhere; count],
        made_by: vec![None; count],
        vector: false,
        branched: false,
        conditional: false,
        exchange_buffers: ExchangeState::Closed,
    };
    verifier.enter(&[], &kernel.body, &[]).map_err(|error| format!("{error} in\n{kernel}"))
}

/// The threads of a team in which a value may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Varies {
    Nowhere,
    /// The value may differ between warps.
    ByWarp,
    /// The value may differ between any two threads.
    ByThread,
}

struct Verifier<'k> {
    kernel: &'k Kernel,
    scope: Vec<bool>,
    varies: Vec<Varies>,
    /// The defining expression of each value, if the value has one.
    made_by: Vec<Option<&'k Expr>>,
    vector: bool,
    /// True if some threads of a team may not be here, or may be here more often than others.
    branched: bool,
    /// True if some threads of a warp may not be here.
    conditional: bool,
    exchange_buffers: ExchangeState,
}

/// The state of the exchange buffers in the blocks of a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExchangeState {
    Closed,
    /// The exchange buffers of this block are open.
    Open,
    /// The exchange buffers of all blocks are open.
    AllOpen,
}

const INDEX: Type = Type { dtype: DType::Index, lanes: Lanes::ONE };

impl<'k> Verifier<'k> {
    fn statement(&mut self, stmt: &'k Stmt, made: &mut Vec<Value>) -> Result<(), String> {
        let mut operands = Vec::new();
        stmt.for_each_operand(|operand| operands.push(*operand));
        if let Some(operand) =
            operands.iter().find(|operand| self.scope.get(operand.0 as usize) != Some(&true))
        {
            return Err(format!("{operand} is used where it is not defined"));
        }
        match stmt {
            Stmt::Let(..) => {}
            Stmt::Store(at, value) => self.access(at, self.kernel.ty(*value), Access::Write)?,
            Stmt::Loop { var, kind, start, end, step, carried, body } => {
                for operand in [start, end, step] {
                    self.expect(*operand, INDEX)?;
                }
                if *kind != LoopKind::Serial && !carried.is_empty() {
                    return Err("iterations that are dealt out hand nothing on".into());
                }
                let uneven = self.most_varying(&[*start, *end, *step]);
                let before = self.branched;
                let is_split = matches!(kind, LoopKind::Grid | LoopKind::Remainder);
                self.branched |= is_split || uneven > Varies::Nowhere;
                let exchange_buffers = self.exchange_buffers;
                self.looped((*var, uneven), carried, body)?;
                self.branched = before;
                if self.exchange_buffers != exchange_buffers {
                    return Err("a cluster exchange that an iteration leaves in another state".into());
                }
            }
            Stmt::Vector { len, body, folds } => {
                self.expect(*len, INDEX)?;
                if std::mem::replace(&mut self.vector, true) {
                    return Err("a vector loop within another".into());
                }
                let terms = folds.iter().flat_map(|fold| fold.over.iter().chain(&fold.times));
                self.enter(&[], body, &terms.copied().collect::<Vec<_>>())?;
                self.vector = false;
                folds.iter().try_for_each(|fold| self.fold(fold, Lanes::Loop))?;
            }
            Stmt::AllReduce(fold) => self.all_reduce(fold)?,
            Stmt::StoreShared(id, index, value) => self.shared(*id, *index, self.kernel.ty(*value))?,
            Stmt::AsyncCopy(copy) => self.async_copy(copy)?,
            Stmt::ClusterExchange(exchange) => self.cluster_exchange(*exchange)?,
            Stmt::Barrier(among) => self.barrier(*among)?,
            Stmt::If { cond, body } => {
                self.condition(*cond, body)?;
                let before = (self.branched, self.conditional);
                let varies = self.varies[cond.0 as usize];
                self.branched |= varies > Varies::Nowhere;
                self.conditional |= varies > Varies::ByWarp;
                self.enter(&[], body, &[])?;
                (self.branched, self.conditional) = before;
            }
        }
        let varies = self.makes_varying(stmt, &operands);
        for value in stmt.made() {
            self.known(value)?;
            if let Stmt::Let(_, expr) = stmt {
                self.expression(value, expr)?;
                self.made_by[value.0 as usize] = Some(expr);
            }
            self.define(value)?;
            self.varies[value.0 as usize] = varies;
            made.push(value);
        }
        Ok(())
    }

    fn all_reduce(&mut self, fold: &'k Fold) -> Result<(), String> {
        if self.branched {
            return Err("threads combine what not all of them have".into());
        }
        let lanes = fold.over.first().map_or(Lanes::ONE, |&value| self.kernel.ty(value).lanes);
        if lanes != Lanes::ONE && !lanes.is_tile() {
            return Err("threads combine single elements or tiles".into());
        }
        self.fold(fold, lanes)
    }

    fn condition(&self, cond: Value, body: &[Stmt]) -> Result<(), String> {
        let lanes = Some(self.kernel.ty(cond).lanes).filter(|lanes| lanes.is_tile());
        self.expect(cond, Type { dtype: DType::Bool, lanes: lanes.unwrap_or(Lanes::ONE) })?;
        if lanes.is_some() && body.iter().any(|stmt| !matches!(stmt, Stmt::Store(..))) {
            return Err("elements of a tile are stored only".into());
        }
        Ok(())
    }

    fn barrier(&self, among: Scope) -> Result<(), String> {
        let misses = match among {
            Scope::Cluster if !self.kernel.threads.cluster => {
                return Err("a barrier of a cluster without one".into());
            }
            Scope::Block | Scope::Team | Scope::Cluster => self.branched,
            Scope::Warp => self.conditional,
        };
        if misses { Err("a barrier that not all threads reach".into()) } else { Ok(()) }
    }

    fn cluster_exchange(&mut self, exchange: ClusterExchange) -> Result<(), String> {
        if !self.kernel.threads.cluster {
            return Err("mail in a kernel without clusters".into());
        }
        let exchange_buffer = |id: SharedId| match self.kernel.shared.get(usize::from(id.0)) {
            Some(shared) if shared.len == SharedLen::ExchangeBuffer => Ok(()),
            Some(_) | None => Err(format!("shared memory {} is no exchange buffer", id.0)),
        };
        match exchange {
            ClusterExchange::Send(id, to, from, value) => {
                self.expect(to, INDEX)?;
                self.shared(id, from, self.kernel.ty(value))?;
                exchange_buffer(id)
            }
            ClusterExchange::Receive(id) => exchange_buffer(id),
            ClusterExchange::Init | ClusterExchange::Wait | ClusterExchange::Invalidate => Ok(()),
        }?;
        let (before, after) = match exchange {
            ClusterExchange::Init
            | ClusterExchange::Wait
            | ClusterExchange::Invalidate
            | ClusterExchange::Receive(_)
                if self.branched =>
            {
                return Err("a cluster exchange that not all threads reach".into());
            }
            ClusterExchange::Init => (ExchangeState::Closed, ExchangeState::Open),
            ClusterExchange::Wait => (ExchangeState::Open, ExchangeState::AllOpen),
            ClusterExchange::Send(..) | ClusterExchange::Receive(_) => {
                (ExchangeState::AllOpen, ExchangeState::AllOpen)
            }
            ClusterExchange::Invalidate => (ExchangeState::AllOpen, ExchangeState::Closed),
        };
        if std::mem::replace(&mut self.exchange_buffers, after) != before {
            return Err(format!("{exchange:?} of a cluster exchange that is not ready for it"));
        }
        Ok(())
    }

    /// Returns in which threads the values that a statement defines may differ.
    fn makes_varying(&self, stmt: &Stmt, operands: &[Value]) -> Varies {
        match stmt {
            Stmt::Let(_, expr) if self.is_of_warp(expr) => Varies::ByWarp,
            Stmt::Let(_, expr) if is_of_thread(expr) => Varies::ByThread,
            Stmt::Let(..) => self.most_varying(operands),
            // A conservative answer, because no check needs a better one.
            Stmt::Loop { .. } | Stmt::Vector { .. } => Varies::ByThread,
            Stmt::AllReduce(_) if self.kernel.threads.rows > 1 => Varies::ByThread,
            Stmt::AllReduce(_)
            | Stmt::Store(..)
            | Stmt::StoreShared(..)
            | Stmt::AsyncCopy(_)
            | Stmt::ClusterExchange(_)
            | Stmt::Barrier(_)
            | Stmt::If { .. } => Varies::Nowhere,
        }
    }

    fn most_varying(&self, operands: &[Value]) -> Varies {
        operands.iter().map(|operand| self.varies[operand.0 as usize]).max().unwrap_or(Varies::Nowhere)
    }

    /// Returns true if the expression shifts a thread's number right by at least the bits of the lane in its
    /// warp.
    fn is_of_warp(&self, expr: &Expr) -> bool {
        let made_by = |value: Value| self.made_by[value.0 as usize];
        let Expr::Apply(Op::ShrRaw, args) = expr else { return false };
        let is_number = matches!(made_by(args[0]), Some(Expr::Builtin(Builtin::GridId | Builtin::ThreadId)));
        let bits = i64::from(WARP.trailing_zeros());
        is_number && matches!(made_by(args[1]), Some(Expr::Const(Const::Int(by))) if *by >= bits)
    }

    /// Verifies a body, given the values that it gets and the values that leave it.
    fn enter(&mut self, given: &[Value], body: &'k [Stmt], leaving: &[Value]) -> Result<(), String> {
        given.iter().try_for_each(|value| self.known(*value).and_then(|()| self.define(*value)))?;
        let mut made = given.to_vec();
        for stmt in body {
            self.statement(stmt, &mut made)?;
        }
        if let Some(value) = leaving.iter().find(|value| self.scope.get(value.0 as usize) != Some(&true)) {
            return Err(format!("{value} is used where it is not defined"));
        }
        made.iter().for_each(|value| self.scope[value.0 as usize] = false);
        Ok(())
    }

    /// Verifies a loop, given its counter and the threads in which the counter may differ.
    fn looped(
        &mut self,
        (var, varies): (Value, Varies),
        carried: &[Carried],
        body: &'k [Stmt],
    ) -> Result<(), String> {
        self.known(var)?;
        self.expect(var, INDEX)?;
        self.varies[var.0 as usize] = varies;
        for Carried { start, var, next, out } in carried {
            for value in [var, next, out] {
                self.known(*value)?;
                self.expect(*value, self.kernel.ty(*start))?;
            }
            self.varies[var.0 as usize] = Varies::ByThread;
        }
        let given: Vec<Value> = std::iter::once(var).chain(carried.iter().map(|one| one.var)).collect();
        let next: Vec<Value> = carried.iter().map(|carried| carried.next).collect();
        self.enter(&given, body, &next)
    }

    /// Verifies a fold. The combined values have `lanes`. The results have an element for each row of a tile, and all
    /// other values have one lane.
    fn fold(&mut self, fold: &'k Fold, lanes: Lanes) -> Result<(), String> {
        let Fold { over, times, identity, left, right, body, results, out } = fold;
        if let Some(times) = times {
            if over.len() != 1 || lanes != Lanes::Loop || !self.kernel.ty(over[0]).dtype.is_float() {
                return Err("only one float of lanes is multiplied".into());
            }
            self.known(*times)?;
            self.expect(*times, self.kernel.ty(over[0]))?;
        }
        let of_rows = match lanes {
            Lanes::Tile(rows, _) => Lanes::Tile(rows, 1),
            _ => Lanes::ONE,
        };
        let one = Lanes::ONE;
        for (part, own) in [(identity, one), (left, one), (right, one), (results, one), (out, of_rows)] {
            if part.len() != over.len() {
                return Err(format!("a fold of {} values makes {}", over.len(), part.len()));
            }
            for (value, over) in part.iter().zip(over) {
                self.known(*value)?;
                self.known(*over)?;
                self.expect(*over, Type { lanes, ..self.kernel.ty(*value) })?;
                self.expect(*value, Type { lanes: own, ..self.kernel.ty(*over) })?;
            }
        }
        if body.iter().any(|stmt| !matches!(stmt, Stmt::Let(_, expr) if expr.is_pure())) {
            return Err("the function of a fold does more than compute".into());
        }
        self.enter(&[left.as_slice(), right].concat(), body, results)
    }

    fn shared(&self, id: SharedId, index: Value, ty: Type) -> Result<(), String> {
        let Some(shared) = self.kernel.shared.get(usize::from(id.0)) else {
            return Err(format!("there is no shared memory {}", id.0));
        };
        self.expect(index, INDEX)?;
        // `legalize` replaces narrow elements by their bits.
        let bits = shared.dtype.size() < 4 && ty.dtype == DType::U32;
        if ty.dtype == shared.dtype || bits {
            Ok(())
        } else {
            Err(format!("{ty} in shared memory of {}", shared.dtype))
        }
    }

    /// Checks that a value to be defined has a type in the kernel.
    fn known(&self, value: Value) -> Result<(), String> {
        let known = (value.0 as usize) < self.scope.len();
        if known { Ok(()) } else { Err(format!("{value} has no type")) }
    }

    fn define(&mut self, value: Value) -> Result<(), String> {
        if self.kernel.ty(value).lanes == Lanes::Loop && !self.vector {
            return Err(format!("{value} has the lanes of a loop outside of one"));
        }
        if std::mem::replace(&mut self.scope[value.0 as usize], true) {
            return Err(format!("{value} is defined twice"));
        }
        Ok(())
    }

    fn expect(&self, value: Value, ty: Type) -> Result<(), String> {
        let is = self.kernel.ty(value);
        if is == ty { Ok(()) } else { Err(format!("{value} is {is}, not {ty}")) }
    }

    fn expression(&self, value: Value, expr: &Expr) -> Result<(), String> {
        let ty = self.kernel.ty(value);
        match expr {
            Expr::Apply(op, args) => self.operation(ty, *op, args),
            Expr::Cast(arg) => self.expect(*arg, Type { lanes: ty.lanes, ..self.kernel.ty(*arg) }),
            Expr::Bitcast(arg) => {
                let from = self.kernel.ty(*arg);
                let same = from.lanes == ty.lanes && from.dtype.size() == ty.dtype.size();
                if same { Ok(()) } else { Err(format!("{from} and {ty} have not the same bits")) }
            }
            Expr::Splat(arg) => self.expect(*arg, Type { lanes: Lanes::ONE, ..ty }),
            Expr::Product(..) if self.branched => Err("a product that not all threads reach".into()),
            Expr::Product(sum, left, right) => self.product(ty, [*sum, *left, *right]),
            Expr::Pack(args) => {
                args.iter().try_for_each(|arg| self.expect(*arg, Type { lanes: Lanes::ONE, ..ty }))?;
                let fits = ty.lanes == Lanes::Const(args.len() as u8);
                if fits { Ok(()) } else { Err(format!("{} values make no {ty}", args.len())) }
            }
            Expr::Lane(arg, lane) => match self.kernel.ty(*arg).lanes {
                Lanes::Const(lanes) if *lane < lanes => self.expect(value, Type { lanes: Lanes::ONE, ..ty }),
                Lanes::Const(_) | Lanes::Loop | Lanes::Tile(..) => Err(format!("{arg} has no lane {lane}")),
            },
            Expr::Load(at) => self.access(at, ty, Access::Read),
            Expr::LoadWhere(at, mask) => {
                let is = self.kernel.ty(*mask);
                if is.dtype != DType::Bool || is.lanes.broadcast(ty.lanes) != Some(ty.lanes) {
                    return Err(format!("{mask} is {is}, which does not say what of {ty} is read"));
                }
                self.access(at, ty, Access::Read)
            }
            Expr::Uniform(id) => {
                let Some(uniform) = self.kernel.uniforms.get(usize::from(id.0)) else {
                    return Err(format!("there is no uniform {}", id.0));
                };
                self.expect(value, Type { dtype: uniform.dtype, lanes: Lanes::ONE })
            }
            Expr::Const(_) => self.expect(value, Type { lanes: Lanes::ONE, ..ty }),
            Expr::Shuffle(..) if self.conditional => {
                Err("a shuffle that not all threads of a warp come to".into())
            }
            Expr::Shuffle(arg, from) => {
                if let Shuffle::DownBy(distance) = from {
                    self.expect(*distance, INDEX)?;
                }
                self.expect(*arg, ty)?;
                self.expect(value, Type { lanes: Lanes::ONE, ..ty })
            }
            Expr::LoadShared(id, index) => self.shared(*id, *index, ty),
            Expr::LoadMatrices(..) | Expr::MatrixProduct(..) => self.matrices(value, expr),
            Expr::Builtin(Builtin::HasRest) => {
                self.expect(value, Type { dtype: DType::Bool, lanes: Lanes::ONE })
            }
            Expr::Builtin(Builtin::LaneIndex) => self.expect(value, Type { dtype: DType::Index, ..ty }),
            Expr::Builtin(Builtin::TileRow | Builtin::TileCol) => match (expr, ty) {
                (Expr::Builtin(Builtin::TileRow), Type { dtype: DType::Index, lanes: Lanes::Tile(_, 1) })
                | (Expr::Builtin(_), Type { dtype: DType::Index, lanes: Lanes::Tile(1, _) }) => Ok(()),
                _ => Err(format!("{value} is {ty}, which are no numbers of rows or columns")),
            },
            Expr::Builtin(_) => self.expect(value, INDEX),
        }
    }

    fn operation(&self, ty: Type, op: Op, args: &[Value]) -> Result<(), String> {
        let info = op.info();
        let types: Vec<Type> = args.iter().map(|&arg| self.kernel.ty(arg)).collect();
        let dtypes: Vec<DType> = types.iter().map(|ty| ty.dtype).collect();
        let data = if info.typing == Typing::Select { &dtypes[1..] } else { &dtypes[..] };
        let fits = args.len() == info.arity
            && types.iter().all(|arg| self.is_operand(*arg, ty))
            && data.windows(2).all(|pair| pair[0] == pair[1])
            && (info.typing != Typing::Select || dtypes[0] == DType::Bool)
            && info.typing.accepts(data[0])
            && info.typing.result(&dtypes) == ty.dtype;
        if fits { Ok(()) } else { Err(format!("{op:?} of {dtypes:?} does not give {ty}")) }
    }

    /// Returns true if an operand has the lanes of the result, or may be broadcast to those of a tile.
    fn is_operand(&self, arg: Type, result: Type) -> bool {
        arg.lanes == result.lanes
            || result.lanes.is_tile() && arg.lanes.broadcast(result.lanes) == Some(result.lanes)
    }

    fn product(&self, ty: Type, [sum, left, right]: [Value; 3]) -> Result<(), String> {
        self.expect(sum, ty)?;
        // Products of narrow floats are exact, and their sum is an `f32`.
        let [of_left, of_right] = [left, right].map(|factor| self.kernel.ty(factor));
        let is_narrow = ty.dtype == DType::F32
            && matches!(of_left.dtype, DType::F16 | DType::BF16)
            && of_left.dtype == of_right.dtype;
        let lanes = [of_left, of_right].map(|of| (of.dtype == ty.dtype || is_narrow, of.lanes));
        match (ty.lanes, lanes) {
            (
                Lanes::Tile(rows, cols),
                [(true, Lanes::Tile(of_rows, depth)), (true, Lanes::Tile(steps, of_cols))],
            ) if rows == of_rows && cols == of_cols && depth == steps && is_summed(ty.dtype) => Ok(()),
            _ => Err(format!("{left} and {right} have no product of {ty}")),
        }
    }

    /// Verifies the loads and the products of a warp's matrices.
    fn matrices(&self, value: Value, expr: &Expr) -> Result<(), String> {
        let words = |count| Type { dtype: DType::U32, lanes: Lanes::Const(count) };
        if self.conditional {
            return Err("matrices of a warp whose threads are not all here".into());
        }
        match expr {
            Expr::LoadMatrices(id, index, transposed) => {
                self.expect(value, words(4))?;
                let dtype = self.kernel.shared.get(usize::from(id.0)).map(|shared| shared.dtype);
                let has_floats = dtype == Some(DType::F32) && !transposed;
                self.shared(
                    *id,
                    *index,
                    if has_floats { Type { dtype: DType::F32, ..words(4) } } else { words(4) },
                )
            }
            Expr::MatrixProduct(DType::F16 | DType::BF16 | DType::F32, sum, left, right) => {
                self.expect(value, Type { dtype: DType::F32, lanes: Lanes::Const(4) })?;
                self.expect(*sum, self.kernel.ty(value))?;
                self.expect(*left, words(4))?;
                self.expect(*right, words(2))
            }
            _ => Err(format!("{value} is no matrix")),
        }
    }

    /// Verifies that a copy moves an aligned vector, or one element, between elements of one type.
    fn async_copy(&self, copy: &AsyncCopy) -> Result<(), String> {
        let AsyncCopy::Start(at, id, index, mask) = copy else { return Ok(()) };
        self.expect(*mask, Type { dtype: DType::Bool, lanes: Lanes::ONE })?;
        let buffer = self.kernel.buffers.get(usize::from(at.buffer.0));
        let shared = self.kernel.shared.get(usize::from(id.0));
        let (Some(dtype), Some(to)) = (buffer.map(|of| of.dtype), shared.map(|of| of.dtype)) else {
            return Err("a copy without memory".into());
        };
        let count = if at.aligned { ASYNC_COPY_BYTES / dtype.size() } else { 1 };
        let ty = Type { dtype, lanes: Lanes::Const(count as u8) };
        self.access(at, ty, Access::Read)?;
        self.shared(*id, *index, ty)?;
        let fits = (at.aligned || dtype.size() >= 4) && at.stride == 1 && at.phase == 0 && dtype == to;
        if fits { Ok(()) } else { Err(format!("a copy of {dtype} to {to} that no instruction makes")) }
    }

    fn access(&self, at: &Address, ty: Type, how: Access) -> Result<(), String> {
        let Some(buffer) = self.kernel.buffers.get(usize::from(at.buffer.0)) else {
            return Err(format!("there is no buffer {}", at.buffer.0));
        };
        let allowed = buffer.access == how || buffer.access == Access::ReadWrite;
        let index = self.kernel.ty(at.index);
        // A store may broadcast its value to the elements of a tile.
        let is_tile = index.lanes.is_tile() && how == Access::Write;
        let fits = index.lanes == ty.lanes
            || index.lanes == Lanes::ONE && !ty.lanes.is_tile()
            || is_tile && self.is_operand(ty, index);
        let indexed = index.dtype == DType::Index && fits;
        // `legalize` replaces narrow elements by their bits.
        let bits = buffer.dtype.size() < 4 && ty.dtype == DType::U32;
        if allowed && indexed && (buffer.dtype == ty.dtype || bits) && at.phase < at.stride {
            Ok(())
        } else {
            Err(format!("an access of {ty} at {index} does not fit buffer {}", buffer.name))
        }
    }
}

/// Returns true if tiles of this type have products.
fn is_summed(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::U32)
}

/// Returns true if the expression may have another value in each thread.
fn is_of_thread(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Shuffle(..)
            | Expr::Builtin(Builtin::TeamId | Builtin::SubgroupLane | Builtin::ThreadId | Builtin::GridId)
    )
}

#[cfg(test)]
mod tests;
