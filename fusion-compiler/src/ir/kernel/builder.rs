//! Construction of kernels.

use smallvec::SmallVec;

use super::{Builtin, Expr, Lanes, Stmt, Type, Uniform, UniformId, Value, Values};
use crate::ir::dtype::{Const, DType};
use crate::ir::op::Op;

/// Appends statements to a body. Every expansion and every schedule uses a builder.
pub struct Builder<'k> {
    /// Types of all values defined so far in the kernel.
    pub types: &'k mut Vec<Type>,
    /// Uniforms used so far in the kernel.
    pub uniforms: &'k mut Vec<Uniform>,
    /// Body to which statements are appended.
    pub body: &'k mut Vec<Stmt>,
}

impl Builder<'_> {
    /// Returns the same builder with a shorter lifetime.
    pub fn reborrow(&mut self) -> Builder<'_> {
        Builder { types: self.types, uniforms: self.uniforms, body: self.body }
    }

    /// Returns the type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.types[value.0 as usize]
    }

    /// Creates a value that another statement defines.
    pub fn declare(&mut self, ty: Type) -> Value {
        self.types.push(ty);
        Value(self.types.len() as u32 - 1)
    }

    /// Adds a uniform, or reuses the one with the same argument, and returns its value of one lane.
    pub fn uniform(&mut self, uniform: Uniform) -> Value {
        let ty = Type { dtype: uniform.dtype, lanes: Lanes::ONE };
        let known = self.uniforms.iter().position(|known| known.arg == uniform.arg);
        let id = known.unwrap_or_else(|| {
            self.uniforms.push(uniform);
            self.uniforms.len() - 1
        });
        self.bind(ty, Expr::Uniform(UniformId(id as u16)))
    }

    /// Defines a value as the result of an expression.
    pub fn bind(&mut self, ty: Type, expr: Expr) -> Value {
        let value = self.declare(ty);
        self.body.push(Stmt::Let(value, expr));
        value
    }

    /// Appends an operation of the table. Operands of one lane are splat to the lanes of the others, unless these
    /// are tiles.
    pub fn apply(&mut self, op: Op, args: &[Value]) -> Value {
        let all = args.iter().map(|&arg| self.ty(arg).lanes);
        let lanes = all.fold(Lanes::ONE, |all, lanes| {
            let lanes = all.broadcast(lanes);
            lanes.unwrap_or_else(|| unreachable!("the operands of {op:?} have different lanes"))
        });
        let args: Values = match lanes {
            Lanes::Tile(..) => args.iter().copied().collect(),
            lanes => args.iter().map(|&arg| self.splat(arg, lanes)).collect(),
        };
        let dtypes: SmallVec<[DType; 4]> = args.iter().map(|&arg| self.ty(arg).dtype).collect();
        let dtype = op.info().typing.result(&dtypes);
        self.bind(Type { dtype, lanes }, Expr::Apply(op, args))
    }

    /// Returns the value in `lanes` lanes. A value that has them already is returned as it is.
    pub fn splat(&mut self, value: Value, lanes: Lanes) -> Value {
        let ty = self.ty(value);
        if ty.lanes == lanes {
            return value;
        }
        self.bind(Type { lanes, ..ty }, Expr::Splat(value))
    }

    /// Returns a constant of any type, in one lane.
    pub fn constant(&mut self, dtype: DType, value: Const) -> Value {
        self.bind(Type { dtype, lanes: Lanes::ONE }, Expr::Const(value))
    }

    /// Returns an `f32` constant, in one lane.
    pub fn f32(&mut self, value: f32) -> Value {
        self.constant(DType::F32, Const::Float(f64::from(value)))
    }

    /// Returns an `i32` constant, in one lane.
    pub fn i32(&mut self, value: i32) -> Value {
        self.constant(DType::I32, Const::Int(i64::from(value)))
    }

    /// Returns a `u32` constant, in one lane.
    pub fn u32(&mut self, value: u32) -> Value {
        self.constant(DType::U32, Const::Int(i64::from(value)))
    }

    /// Returns an index constant, in one lane.
    pub fn index(&mut self, value: i64) -> Value {
        self.constant(DType::Index, Const::Int(value))
    }

    /// Returns an index that the machine provides, in one lane.
    pub fn builtin(&mut self, builtin: Builtin) -> Value {
        self.bind(Type { dtype: DType::Index, lanes: Lanes::ONE }, Expr::Builtin(builtin))
    }

    /// Converts a value to a dtype, lane by lane. A value that has the dtype already is returned as it is.
    pub fn cast(&mut self, value: Value, dtype: DType) -> Value {
        let ty = self.ty(value);
        if ty.dtype == dtype {
            return value;
        }
        self.bind(Type { dtype, ..ty }, Expr::Cast(value))
    }

    /// Reinterprets the bits as another type of the same size, lane by lane.
    pub fn bitcast(&mut self, value: Value, dtype: DType) -> Value {
        let ty = self.ty(value);
        self.bind(Type { dtype, ..ty }, Expr::Bitcast(value))
    }
}
