//! Interpreter of kernels whose teams work on tiles, before and after `tiles`.
//!
//! All threads execute a statement before any of them executes the next. A kernel with tiles is executed by
//! one thread, which has all elements of a tile.

use std::collections::HashMap;

use fusion_compiler::ir::dtype::{Const, DType};
use fusion_compiler::ir::kernel::{
    ASYNC_COPY_BYTES, Address, AsyncCopy, Builtin, Carried, Expr, Kernel, Lanes, SharedId, SharedLen, Stmt,
    Type, UniformArg, Value, statements,
};
use fusion_compiler::ir::op::Op;
use fusion_compiler::ops::Dialect;
use fusion_compiler::ops::scalar::{Scalar, eval_op};

/// Elements of a value, or of memory.
pub(crate) type Elements = Vec<Scalar>;

/// Returns true if a statement makes a tile.
pub(crate) fn has_tiles(kernel: &Kernel) -> bool {
    statements(&kernel.body).flat_map(Stmt::made).any(|value| kernel.ty(value).lanes.is_tile())
}

/// A team that executes one iteration after another.
pub(crate) struct Team<'k> {
    kernel: &'k Kernel,
    uniforms: Vec<Scalar>,
    /// Elements that each thread has of each value.
    values: HashMap<Value, Vec<Elements>>,
    /// Memory of the kernel's buffers.
    buffers: Vec<Elements>,
    shared: Vec<Elements>,
    /// Groups of asynchronous copies that no thread has waited for: elements and their places.
    copies: Vec<Vec<(SharedId, usize, Scalar)>>,
    /// True for the threads that execute the statement at hand.
    active: Vec<bool>,
}

impl<'k> Team<'k> {
    /// Executes a kernel over `iterations` iterations, with so many bytes of memory that is given at launch, and
    /// returns its buffers.
    pub(crate) fn run(
        kernel: &'k Kernel,
        buffers: Vec<Elements>,
        (symbols, iterations, bytes): (&[i64], i64, usize),
    ) -> Vec<Elements> {
        let threads = if has_tiles(kernel) { 1 } else { kernel.threads.team as usize };
        let argument = |arg: &UniformArg| match arg {
            UniformArg::Extent(extent) => extent.eval(symbols).expect("the extents are known"),
            UniformArg::End => iterations,
            UniformArg::Start | UniformArg::Offset(_) => 0,
            UniformArg::Scalar(_) | UniformArg::Window(_) => panic!("the kernels of tests have no {arg:?}"),
        };
        let uniforms =
            kernel.uniforms.iter().map(|uniform| Scalar::of_int(uniform.dtype, argument(&uniform.arg)));
        let shared = kernel.shared.iter().map(|shared| match shared.len {
            SharedLen::Fixed(len) => vec![unknown(shared.dtype); len as usize],
            SharedLen::AtLaunch => vec![unknown(shared.dtype); bytes / shared.dtype.size()],
            SharedLen::ExchangeBuffer => panic!("tiles exchange nothing between blocks"),
        });
        let mut team = Team {
            kernel,
            uniforms: uniforms.collect(),
            values: HashMap::default(),
            buffers,
            shared: shared.collect(),
            copies: vec![vec![]],
            active: vec![true; threads],
        };
        team.block(&kernel.body);
        team.buffers
    }

    fn block(&mut self, body: &[Stmt]) {
        body.iter().for_each(|stmt| self.statement(stmt));
    }

    /// Returns the threads that execute the statement at hand.
    fn active(&self) -> impl Iterator<Item = usize> + use<> {
        self.active.clone().into_iter().enumerate().filter(|(_, active)| *active).map(|(thread, _)| thread)
    }

    /// Executes a step of asynchronous copies. Copies arrive when all threads wait for them.
    fn copy(&mut self, copy: &AsyncCopy) {
        match copy {
            AsyncCopy::Start(at, id, place, mask) => {
                let dtype = self.kernel.buffer(at.buffer).dtype;
                let count = if at.aligned { ASYNC_COPY_BYTES / dtype.size() } else { 1 };
                for thread in self.active() {
                    let place = self.int(*place, thread);
                    for i in 0..count {
                        let element = match is_true(self.values[mask][thread][0]) {
                            true => self.buffers[usize::from(at.buffer.0)][self.int(at.index, thread) + i],
                            false => Scalar::of_int(dtype, 0),
                        };
                        let group = self.copies.last_mut().expect("a group is open");
                        group.push((*id, place + i, element));
                    }
                }
            }
            AsyncCopy::Commit => self.copies.push(vec![]),
            AsyncCopy::Wait(groups) => {
                let done = (self.copies.len() - 1).saturating_sub(*groups as usize);
                for (id, place, element) in self.copies.drain(..done).flatten() {
                    self.shared[usize::from(id.0)][place] = element;
                }
            }
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Let(value, expr) => {
                let mut made = self.values.remove(value).unwrap_or_else(|| vec![vec![]; self.active.len()]);
                for thread in self.active() {
                    made[thread] = self.expression(self.kernel.ty(*value), expr, thread);
                }
                self.values.insert(*value, made);
            }
            Stmt::Store(at, value) => {
                for thread in self.active() {
                    self.store((at, *value), thread, &|_| true);
                }
            }
            Stmt::StoreShared(id, index, value) => {
                for thread in self.active() {
                    let first = self.int(*index, thread);
                    for (i, &element) in self.values[value][thread].iter().enumerate() {
                        self.shared[usize::from(id.0)][first + i] = element;
                    }
                }
            }
            Stmt::Loop { var, start, end, step, carried, body, .. } => {
                let [start, end, step] = [start, end, step].map(|&value| self.int(value, 0));
                for Carried { start, var, .. } in carried {
                    self.values.insert(*var, self.values[start].clone());
                }
                for counter in (start..end).step_by(step) {
                    let counter = Scalar::of_int(DType::Index, counter as i64);
                    self.values.insert(*var, vec![vec![counter]; self.active.len()]);
                    self.block(body);
                    let next: Vec<_> = carried.iter().map(|one| self.values[&one.next].clone()).collect();
                    self.values.extend(carried.iter().map(|one| one.var).zip(next));
                }
                for Carried { var, out, .. } in carried {
                    self.values.insert(*out, self.values[var].clone());
                }
            }
            Stmt::If { cond, body } if self.kernel.ty(*cond).lanes.is_tile() => {
                let inside = self.values[cond][0].clone();
                for stmt in body {
                    let Stmt::Store(at, value) = stmt else { panic!("elements of a tile are stored only") };
                    self.store((at, *value), 0, &|element| is_true(inside[element]));
                }
            }
            Stmt::If { cond, body } => {
                let before = self.active.clone();
                for thread in self.active() {
                    self.active[thread] = is_true(self.values[cond][thread][0]);
                }
                self.block(body);
                self.active = before;
            }
            Stmt::Barrier(_) => {}
            Stmt::AsyncCopy(copy) => self.copy(copy),
            _ => panic!("tiles have no {stmt:?}"),
        }
    }

    fn store(&mut self, (at, value): (&Address, Value), thread: usize, stores: &dyn Fn(usize) -> bool) {
        let lanes = self.kernel.ty(at.index).lanes;
        let lanes = if lanes.is_tile() { lanes } else { self.kernel.ty(value).lanes };
        for element in (0..count(lanes)).filter(|&element| stores(element)) {
            let made = self.element(value, lanes, element, thread);
            let place = self.place(at, lanes, element, thread);
            self.buffers[usize::from(at.buffer.0)][place] = made;
        }
    }

    /// Returns the place of an element in a buffer.
    fn place(&self, at: &Address, lanes: Lanes, element: usize, thread: usize) -> usize {
        let run = self.kernel.ty(at.index).lanes == Lanes::ONE && !lanes.is_tile();
        let index = self.element(at.index, lanes, element, thread).to_i64() as usize;
        if run { index + element * at.stride as usize + at.phase as usize } else { index }
    }

    fn int(&self, value: Value, thread: usize) -> usize {
        self.values[&value][thread][0].to_i64() as usize
    }

    /// Returns the element of a value that an operation on these lanes uses.
    fn element(&self, value: Value, lanes: Lanes, element: usize, thread: usize) -> Scalar {
        let own = match (self.kernel.ty(value).lanes, lanes) {
            (Lanes::ONE, _) => 0,
            (Lanes::Tile(rows, cols), Lanes::Tile(_, width)) => {
                let (row, col) = (element / usize::from(width), element % usize::from(width));
                usize::from(cols) * if rows == 1 { 0 } else { row } + if cols == 1 { 0 } else { col }
            }
            (..) => element,
        };
        self.values[&value][thread][own]
    }

    fn expression(&self, ty: Type, expr: &Expr, thread: usize) -> Elements {
        let one = |element: usize| match expr {
            Expr::Const(value) => Scalar::new(ty.dtype, *value),
            Expr::Uniform(id) => self.uniforms[usize::from(id.0)],
            Expr::Apply(op, args) => {
                let args: Elements =
                    args.iter().map(|&arg| self.element(arg, ty.lanes, element, thread)).collect();
                eval_op(*op, &args, Dialect::Ptx)
            }
            Expr::Cast(arg) => self.element(*arg, ty.lanes, element, thread).cast(ty.dtype),
            Expr::Bitcast(arg) => self.element(*arg, ty.lanes, element, thread).bitcast(ty.dtype),
            Expr::Splat(arg) => self.element(*arg, ty.lanes, element, thread),
            Expr::Lane(arg, lane) => self.values[arg][thread][usize::from(*lane)],
            Expr::Builtin(Builtin::TeamId) => index(thread),
            Expr::Builtin(Builtin::LaneIndex | Builtin::TileRow | Builtin::TileCol) => index(element),
            Expr::Load(at) => self.load(at, ty, element, thread),
            Expr::LoadWhere(at, mask) if is_true(self.element(*mask, ty.lanes, element, thread)) => {
                self.load(at, ty, element, thread)
            }
            Expr::LoadWhere(..) => Scalar::of_int(ty.dtype, 0),
            Expr::LoadShared(id, index) => self.shared[usize::from(id.0)][self.int(*index, thread) + element],
            Expr::Product(sum, left, right) => self.product(ty, [*sum, *left, *right], element),
            _ => panic!("tiles have no {expr:?}"),
        };
        (0..count(ty.lanes)).map(one).collect()
    }

    fn load(&self, at: &Address, ty: Type, element: usize, thread: usize) -> Scalar {
        self.buffers[usize::from(at.buffer.0)][self.place(at, ty.lanes, element, thread)]
    }

    /// Computes one element of a product: a chain of multiply-adds.
    fn product(&self, ty: Type, [sum, left, right]: [Value; 3], element: usize) -> Scalar {
        let Lanes::Tile(_, cols) = ty.lanes else { panic!("a product is a tile") };
        let Lanes::Tile(_, depth) = self.kernel.ty(left).lanes else { panic!("a factor is a tile") };
        let (row, col) = (element / usize::from(cols), element % usize::from(cols));
        let [sum, left, right] = [sum, left, right].map(|value| &self.values[&value][0]);
        (0..usize::from(depth)).fold(sum[element], |sum, step| {
            let factors = [left[row * usize::from(depth) + step], right[step * usize::from(cols) + col]];
            if ty.dtype.is_float() {
                return eval_op(Op::Fma, &[factors[0], factors[1], sum], Dialect::Ptx);
            }
            let product = eval_op(Op::Mul, &factors, Dialect::Ptx);
            eval_op(Op::Add, &[sum, product], Dialect::Ptx)
        })
    }
}

fn count(lanes: Lanes) -> usize {
    match lanes {
        Lanes::Const(lanes) => lanes.into(),
        Lanes::Tile(rows, cols) => usize::from(rows) * usize::from(cols),
        Lanes::Loop => panic!("a GPU's vectors are lanes"),
    }
}

fn index(number: usize) -> Scalar {
    Scalar::of_int(DType::Index, number as i64)
}

fn is_true(value: Scalar) -> bool {
    value.to_i64() != 0
}

/// Returns the content of memory that nothing was written to: NaN, or a large integer.
fn unknown(dtype: DType) -> Scalar {
    let value = if dtype.is_float() { Const::Float(f64::NAN) } else { Const::Int(i64::from(i32::MIN)) };
    Scalar::new(dtype, value)
}
