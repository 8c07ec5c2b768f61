//! Kernel IR: one structured program that the threads of a launch run together.
//!
//! Values are SSA and typed by an element type and a number of *lanes*. On a GPU a value has 1, 2 or 4 lanes
//! (a 128-bit access is a 4-lane load); on the CPU the lanes of `Lanes::Loop` are the iterations of the
//! enclosing `Stmt::Vector`, which the emitter prints as a loop for the compiler to vectorise. So one
//! schedule writes one body for every target. An `At` says which element each lane of an access touches.
//!
//! Work is dealt out by `LoopKind::Grid`, whose iterations are spread over the launch in no order; `legalize`
//! turns it into what the target has. Bodies of `If` and `Loop` see all values above them, and values made
//! in them end with them. Shared memory, barriers, subgroup operations and tiles (a matrix with an opaque
//! layout, the operand of a matrix product) join as further `Type`s, `Expr`s and `Stmt`s.

use super::dim::DimExpr;
use super::dtype::{Const, DType};
use super::graph::Access;
use super::ops::Op;

/// A value of the kernel it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A buffer of the kernel it belongs to, in the order of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u16);

/// A uniform of the kernel it belongs to, in the order of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UniformId(pub u16);

/// How many elements a value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// This many: 1, 2 or 4.
    Const(u8),
    /// As many as the enclosing `Stmt::Vector` has iterations.
    Loop,
}

impl Lanes {
    /// A single element.
    pub const ONE: Lanes = Lanes::Const(1);
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Of each lane.
    pub dtype: DType,
    /// Number of lanes.
    pub lanes: Lanes,
}

/// Memory that a kernel reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// For readers of the text.
    pub name: String,
    /// Of its elements.
    pub dtype: DType,
    /// What the kernel does with it.
    pub access: Access,
}

/// A number that is the same for all threads, set at launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uniform {
    /// For readers of the text.
    pub name: String,
    /// `F32`, `F64`, `I32`, `U32`, `Bool` (0 or 1 in a `u32`) or `Index`.
    pub dtype: DType,
    /// Its value.
    pub arg: UniformArg,
}

/// The value of a uniform at launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UniformArg {
    /// An extent.
    Extent(DimExpr),
    /// The scalar parameter of this number (position in `Plan::params`).
    Scalar(u16),
    /// First element of the space that this launch covers; 0 unless cut into chunks. GPUs only.
    Start,
    /// One past the last element of the space that this launch covers. GPUs only.
    End,
    /// What to add to a position to find the element in the binding of this buffer, modulo 2³². WGSL only.
    Offset(u16),
    /// Elements of the binding of this buffer, a window on part of it. WGSL only.
    Window(u16),
}

/// Bits of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexWidth {
    /// Indices and extents below 2³¹.
    Bits32,
    /// Any.
    Bits64,
}

/// How the iterations of a loop are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoopKind {
    /// Dealt out to the threads of the launch.
    Grid,
    /// One after another in this thread.
    Serial,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stmt {
    /// Names the value of an expression.
    Let(Value, Expr),
    /// Writes the lanes of a value.
    Store(At, Value),
    /// Runs `body` for `var` = `start`, `start + step`, … below `end`.
    Loop {
        /// The counter, an index of one lane.
        var: Value,
        /// Dealt out or serial.
        kind: LoopKind,
        /// First value.
        start: Value,
        /// One past the last.
        end: Value,
        /// Distance, > 0.
        step: Value,
        /// What to run.
        body: Vec<Stmt>,
    },
    /// Runs `body` once, its `Lanes::Loop` values having `len` lanes. The CPU only; not nested.
    Vector {
        /// How many lanes.
        len: Value,
        /// What to run.
        body: Vec<Stmt>,
    },
    /// Runs `body` if `cond` (one lane) holds.
    If {
        /// A `Bool` of one lane.
        cond: Value,
        /// What to run.
        body: Vec<Stmt>,
    },
}

/// Elements of a buffer: lane `j` of a one-lane `index` is the element `index + j·stride + phase`. An index with the
/// lanes of the value gathers (`stride` 1, `phase` 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct At {
    /// Which buffer.
    pub buffer: BufferId,
    /// In elements.
    pub index: Value,
    /// Elements from lane to lane, > `phase`.
    pub stride: u32,
    /// Elements from the index on.
    pub phase: u32,
}

impl At {
    /// Consecutive elements from `index` on, or those of an index per lane.
    pub fn new(buffer: BufferId, index: Value) -> At {
        At { buffer, index, stride: 1, phase: 0 }
    }
}

/// How a value is made. The type of the result is the value's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A number, in every lane.
    Const(Const),
    /// A uniform; one lane.
    Uniform(UniformId),
    /// An operation of the table, lane by lane; all operands have the lanes of the result.
    Apply(Op, Vec<Value>),
    /// Conversion to the type of the result, lane by lane.
    Cast(Value),
    /// The same bits as another type of the same size.
    Bitcast(Value),
    /// A one-lane value in every lane.
    Splat(Value),
    /// One-lane values as the lanes of one.
    Pack(Vec<Value>),
    /// One lane of a value with a constant number of lanes.
    Lane(Value, u8),
    /// The number of each lane: 0, 1, 2, …
    LaneIndex,
    /// Reads elements.
    Load(At),
    /// Number of this thread in the launch; GPUs only, made by `legalize`.
    GridId,
    /// Number of threads in the launch; GPUs only, made by `legalize`.
    GridSize,
    /// First item of this thread; the CPU only, made by `legalize`.
    RangeStart,
    /// One past the last item of this thread; the CPU only, made by `legalize`.
    RangeEnd,
}

impl Stmt {
    /// Visits the operands of this statement itself, not of those within it.
    pub fn for_each_operand_mut(&mut self, mut visit: impl FnMut(&mut Value)) {
        match self {
            Stmt::Let(_, expr) => expr.for_each_operand_mut(visit),
            Stmt::Store(at, value) => [&mut at.index, value].into_iter().for_each(visit),
            Stmt::Loop { start, end, step, .. } => [start, end, step].into_iter().for_each(visit),
            Stmt::Vector { len: operand, .. } | Stmt::If { cond: operand, .. } => visit(operand),
        }
    }
}

impl Expr {
    /// Whether its value depends on nothing but its operands and the thread.
    pub fn is_pure(&self) -> bool {
        !matches!(self, Expr::Load(_))
    }

    /// Visits the operands.
    pub fn for_each_operand_mut(&mut self, mut visit: impl FnMut(&mut Value)) {
        match self {
            Expr::Apply(_, args) | Expr::Pack(args) => args.iter_mut().for_each(visit),
            Expr::Cast(arg) | Expr::Bitcast(arg) | Expr::Splat(arg) | Expr::Lane(arg, _) => visit(arg),
            Expr::Load(at) => visit(&mut at.index),
            Expr::Const(_)
            | Expr::Uniform(_)
            | Expr::LaneIndex
            | Expr::GridId
            | Expr::GridSize
            | Expr::RangeStart
            | Expr::RangeEnd => {}
        }
    }
}

/// A program and its arguments: the buffers in order, then the uniforms in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Unique within its plan; valid in every target's language.
    pub name: String,
    /// Memory.
    pub buffers: Vec<Buffer>,
    /// Numbers set at launch.
    pub uniforms: Vec<Uniform>,
    /// Type of each value.
    pub types: Vec<Type>,
    /// What each thread runs.
    pub body: Vec<Stmt>,
    /// Width of `DType::Index`.
    pub index: IndexWidth,
}

impl Kernel {
    /// The type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.types[value.0 as usize]
    }

    /// The buffer of this number.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[usize::from(id.0)]
    }

    /// The uniform of this number.
    pub fn uniform(&self, id: UniformId) -> &Uniform {
        &self.uniforms[usize::from(id.0)]
    }
}

/// Appends statements to a body. Every expansion and every schedule writes through one.
pub struct Builder<'k> {
    /// Types of all values made so far in the kernel.
    pub types: &'k mut Vec<Type>,
    /// Uniforms asked for so far in the kernel.
    pub uniforms: &'k mut Vec<Uniform>,
    /// The body that grows.
    pub body: &'k mut Vec<Stmt>,
}

impl Builder<'_> {
    /// The same, for a shorter time.
    pub fn reborrow(&mut self) -> Builder<'_> {
        Builder { types: self.types, uniforms: self.uniforms, body: self.body }
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.types[value.0 as usize]
    }

    /// A fresh value that some other statement defines.
    pub fn declare(&mut self, ty: Type) -> Value {
        self.types.push(ty);
        Value(self.types.len() as u32 - 1)
    }

    /// A uniform, the same one for the same argument; one lane.
    pub fn uniform(&mut self, uniform: Uniform) -> Value {
        let ty = Type { dtype: uniform.dtype, lanes: Lanes::ONE };
        let known = self.uniforms.iter().position(|known| known.arg == uniform.arg);
        let id = known.unwrap_or_else(|| {
            self.uniforms.push(uniform);
            self.uniforms.len() - 1
        });
        self.bind(ty, Expr::Uniform(UniformId(id as u16)))
    }

    /// Names an expression.
    pub fn bind(&mut self, ty: Type, expr: Expr) -> Value {
        let value = self.declare(ty);
        self.body.push(Stmt::Let(value, expr));
        value
    }

    /// An operation of the table. One-lane operands are splat to the lanes of the others.
    pub fn apply(&mut self, op: Op, args: &[Value]) -> Value {
        let lanes = args.iter().map(|&arg| self.ty(arg).lanes).find(|&lanes| lanes != Lanes::ONE);
        let lanes = lanes.unwrap_or(Lanes::ONE);
        let args: Vec<Value> = args.iter().map(|&arg| self.splat(arg, lanes)).collect();
        let dtypes: Vec<DType> = args.iter().map(|&arg| self.ty(arg).dtype).collect();
        let dtype = op.info().typing.result(&dtypes);
        self.bind(Type { dtype, lanes }, Expr::Apply(op, args))
    }

    /// The value in all `lanes`; itself if it has them already.
    pub fn splat(&mut self, value: Value, lanes: Lanes) -> Value {
        let ty = self.ty(value);
        if ty.lanes == lanes {
            return value;
        }
        self.bind(Type { lanes, ..ty }, Expr::Splat(value))
    }

    /// A number of any type, in one lane.
    pub fn constant(&mut self, dtype: DType, value: Const) -> Value {
        self.bind(Type { dtype, lanes: Lanes::ONE }, Expr::Const(value))
    }

    /// An `f32` number, in one lane.
    pub fn f32(&mut self, value: f32) -> Value {
        self.constant(DType::F32, Const::Float(f64::from(value)))
    }

    /// An `i32` number, in one lane.
    pub fn i32(&mut self, value: i32) -> Value {
        self.constant(DType::I32, Const::Int(i64::from(value)))
    }

    /// A `u32` number, in one lane.
    pub fn u32(&mut self, value: u32) -> Value {
        self.constant(DType::U32, Const::Int(i64::from(value)))
    }

    /// A position, in one lane.
    pub fn index(&mut self, value: i64) -> Value {
        self.constant(DType::Index, Const::Int(value))
    }

    /// Conversion, lane by lane.
    pub fn cast(&mut self, value: Value, dtype: DType) -> Value {
        let ty = self.ty(value);
        if ty.dtype == dtype {
            return value;
        }
        self.bind(Type { dtype, ..ty }, Expr::Cast(value))
    }

    /// The same bits as another type of the same size, lane by lane.
    pub fn bitcast(&mut self, value: Value, dtype: DType) -> Value {
        let ty = self.ty(value);
        self.bind(Type { dtype, ..ty }, Expr::Bitcast(value))
    }
}
