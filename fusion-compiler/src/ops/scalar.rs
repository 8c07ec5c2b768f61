//! Interpreter of straight-line Kernel IR on one lane. The interpreter evaluates expansions and folds
//! constants.
//!
//! Invariant: an operation that is native on a target is computed by the rules of IEEE 754 in the precision
//! of its type. An operation that the target lacks is computed through the same expansion that `legalize`
//! applies.

use super::{Dialect, Lower};
use crate::ir::dtype::{Class, Const, DType, saturate, wrap};
use crate::ir::kernel::{Builder, Expr, Lanes, Stmt, Type, Value};
use crate::ir::op::Op;

/// One element of a value, with its type.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// An `f32`.
    F32(f32),
    /// An `f64`.
    F64(f64),
    /// An integer or index within the range of its type.
    Int(DType, i64),
    /// A truth value.
    Bool(bool),
}

impl Scalar {
    /// Converts the constant `value` to `dtype`, rounding floats and wrapping integers.
    ///
    /// # Panics
    /// Panics if the kind of the constant does not fit `dtype`, or if `dtype` is `F16` or `BF16`.
    pub fn new(dtype: DType, value: Const) -> Scalar {
        match (dtype, value) {
            (DType::F32, Const::Float(x)) => Scalar::F32(x as f32),
            (DType::F64, Const::Float(x)) => Scalar::F64(x),
            (DType::Bool, Const::Bool(x)) => Scalar::Bool(x),
            (dtype, Const::Int(x)) if dtype.is_int() => Scalar::Int(dtype, wrap(dtype, x)),
            (dtype, Const::Float(_) | Const::Int(_) | Const::Bool(_)) => {
                unreachable!("a {dtype} constant {value}")
            }
        }
    }

    /// Converts the integer result `y` of an operation to `dtype`.
    ///
    /// Integers are wrapped. Floats take `y` as their bit pattern. A `Bool` is the lowest bit of `y`.
    pub fn of_int(dtype: DType, y: i64) -> Scalar {
        match dtype {
            DType::Bool => Scalar::Bool(y & 1 != 0),
            DType::F32 => Scalar::F32(f32::from_bits(y as u32)),
            DType::F64 => Scalar::F64(f64::from_bits(y.cast_unsigned())),
            DType::I32 | DType::U32 | DType::I16 | DType::U16 | DType::I8 | DType::U8 | DType::Index => {
                Scalar::Int(dtype, wrap(dtype, y))
            }
            DType::F16 | DType::BF16 => unreachable!("no operation gives {dtype}"),
        }
    }

    /// Returns the type of the element.
    pub fn dtype(self) -> DType {
        match self {
            Scalar::F32(_) => DType::F32,
            Scalar::F64(_) => DType::F64,
            Scalar::Int(dtype, _) => dtype,
            Scalar::Bool(_) => DType::Bool,
        }
    }

    /// Returns the exact value as a constant.
    pub fn to_const(self) -> Const {
        match self {
            Scalar::F32(x) => Const::Float(f64::from(x)),
            Scalar::F64(x) => Const::Float(x),
            Scalar::Int(_, x) => Const::Int(x),
            Scalar::Bool(x) => Const::Bool(x),
        }
    }

    /// Returns the value as a float; `true` is 1.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::F32(x) => f64::from(x),
            Scalar::F64(x) => x,
            Scalar::Int(_, x) => x as f64,
            Scalar::Bool(x) => f64::from(u8::from(x)),
        }
    }

    /// Returns the value as an integer. Floats truncate and saturate; `true` is 1.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::F32(x) => x as i64,
            Scalar::F64(x) => x as i64,
            Scalar::Int(_, x) => x,
            Scalar::Bool(x) => i64::from(x),
        }
    }

    /// Converts the value like Rust's `as`: floats truncate and saturate to integers, and integers wrap.
    pub fn cast(self, dtype: DType) -> Scalar {
        match dtype {
            DType::F32 => match self {
                Scalar::Int(_, x) => Scalar::F32(x as f32),
                Scalar::F32(_) | Scalar::F64(_) | Scalar::Bool(_) => Scalar::F32(self.to_f64() as f32),
            },
            DType::F64 => Scalar::F64(self.to_f64()),
            DType::Bool => Scalar::Bool(self.to_f64() != 0.0),
            DType::I32 | DType::U32 | DType::I16 | DType::U16 | DType::I8 | DType::U8 | DType::Index => {
                match self {
                    Scalar::F32(_) | Scalar::F64(_) => Scalar::Int(dtype, saturate(dtype, self.to_f64())),
                    Scalar::Int(..) | Scalar::Bool(_) => Scalar::Int(dtype, wrap(dtype, self.to_i64())),
                }
            }
            DType::F16 | DType::BF16 => unreachable!("f16 and bf16 are for storage only"),
        }
    }

    /// Reinterprets the bits as another type of the same size.
    pub fn bitcast(self, dtype: DType) -> Scalar {
        let bits = match self {
            Scalar::F32(x) => i64::from(x.to_bits().cast_signed()),
            Scalar::F64(x) => x.to_bits().cast_signed(),
            Scalar::Int(_, x) => x,
            Scalar::Bool(x) => i64::from(x),
        };
        match dtype {
            DType::F32 => Scalar::F32(f32::from_bits(bits as u32)),
            DType::F64 => Scalar::F64(f64::from_bits(bits.cast_unsigned())),
            DType::I32 | DType::U32 | DType::I16 | DType::U16 | DType::I8 | DType::U8 | DType::Index => {
                Scalar::Int(dtype, wrap(dtype, bits))
            }
            DType::Bool | DType::F16 | DType::BF16 => {
                unreachable!("nothing is made of the bits of a {dtype}")
            }
        }
    }
}

/// Computes an operation like the code of `dialect` does.
///
/// # Panics
/// Panics if the operands do not fit the operation.
pub fn eval_op(op: Op, args: &[Scalar], dialect: Dialect) -> Scalar {
    let dtypes: Vec<DType> = args.iter().map(|arg| arg.dtype()).collect();
    ExpandedOp::new(op, &dtypes, dialect).run(args)
}

/// An operation expanded to native operations of a dialect, for fixed operand types.
pub struct ExpandedOp {
    steps: Vec<Instruction>,
    result: usize,
}

/// A step that defines the next value. Values are numbered consecutively, operands first.
enum Instruction {
    Const(Scalar),
    Native { op: Op, args: [usize; 3], dtype: DType },
    Cast(usize, DType),
    Bitcast(usize, DType),
    Copy(usize),
}

impl ExpandedOp {
    /// Expands `op` for operands of these types, like `legalize` does for the dialect.
    ///
    /// # Panics
    /// Panics if the operand types do not fit the operation.
    pub fn new(op: Op, dtypes: &[DType], dialect: Dialect) -> ExpandedOp {
        let mut steps = Vec::new();
        let args: Vec<usize> = (0..dtypes.len()).collect();
        let result = expand(&mut steps, op, &args, dtypes, dialect, dtypes.len());
        ExpandedOp { steps, result }
    }

    /// Evaluates the program for these operands.
    pub fn run(&self, args: &[Scalar]) -> Scalar {
        let mut values = Vec::with_capacity(args.len() + self.steps.len());
        values.extend_from_slice(args);
        for step in &self.steps {
            let value = match *step {
                Instruction::Const(value) => value,
                Instruction::Native { op, args, dtype } => native(op, args, dtype, &values),
                Instruction::Cast(value, dtype) => values[value].cast(dtype),
                Instruction::Bitcast(value, dtype) => values[value].bitcast(dtype),
                Instruction::Copy(value) => values[value],
            };
            values.push(value);
        }
        values[self.result]
    }
}

/// Appends the steps of `op` applied to the values `args` and returns the number of the result.
fn expand(
    steps: &mut Vec<Instruction>,
    op: Op,
    args: &[usize],
    dtypes: &[DType],
    dialect: Dialect,
    operands: usize,
) -> usize {
    match dialect.lower(op, dtypes[dtypes.len() - 1]) {
        Lower::Native(_) => {
            let mut numbers = [0; 3];
            numbers[..args.len()].copy_from_slice(args);
            let dtype = op.info().typing.result(dtypes);
            push(steps, Instruction::Native { op, args: numbers, dtype }, operands)
        }
        Lower::Expand(rule) | Lower::Recent(_, rule) => {
            let mut types: Vec<Type> =
                dtypes.iter().map(|&dtype| Type { dtype, lanes: Lanes::ONE }).collect();
            let (mut uniforms, mut body) = (Vec::new(), Vec::new());
            let parameters: Vec<Value> = (0..dtypes.len() as u32).map(Value).collect();
            let result = rule(
                &mut Builder { types: &mut types, uniforms: &mut uniforms, body: &mut body },
                &parameters,
            );
            let mut numbers = args.to_vec();
            numbers.resize(types.len(), usize::MAX);
            for stmt in &body {
                let Stmt::Let(value, expr) = stmt else { unreachable!("an expansion is straight-line") };
                numbers[value.0 as usize] = inline(steps, expr, *value, &types, &numbers, dialect, operands);
            }
            numbers[result.0 as usize]
        }
        Lower::Never => unreachable!("{op:?} of {dtypes:?} passes no check"),
    }
}

fn inline(
    steps: &mut Vec<Instruction>,
    expr: &Expr,
    value: Value,
    types: &[Type],
    numbers: &[usize],
    dialect: Dialect,
    operands: usize,
) -> usize {
    let number = |value: Value| numbers[value.0 as usize];
    let dtype = types[value.0 as usize].dtype;
    let step = match expr {
        Expr::Apply(op, args) => {
            let dtypes: Vec<DType> = args.iter().map(|arg| types[arg.0 as usize].dtype).collect();
            let args: Vec<usize> = args.iter().map(|&arg| number(arg)).collect();
            return expand(steps, *op, &args, &dtypes, dialect, operands);
        }
        Expr::Const(value) => Instruction::Const(Scalar::new(dtype, *value)),
        Expr::Cast(value) => Instruction::Cast(number(*value), dtype),
        Expr::Bitcast(value) => Instruction::Bitcast(number(*value), dtype),
        Expr::Splat(value) => Instruction::Copy(number(*value)),
        // The only uniform in expansions is the zero that `expand::float::opaque` adds.
        Expr::Uniform(_) => Instruction::Const(Scalar::new(dtype, Const::Int(0))),
        Expr::Pack(_)
        | Expr::Lane(..)
        | Expr::Load { .. }
        | Expr::Shuffle(..)
        | Expr::LoadShared(..)
        | Expr::Product(..)
        | Expr::LoadMatrices(..)
        | Expr::MatrixProduct(..)
        | Expr::LoadWhere(..)
        | Expr::Builtin(_) => unreachable!("an expansion computes from its operands alone"),
    };
    push(steps, step, operands)
}

fn push(steps: &mut Vec<Instruction>, step: Instruction, operands: usize) -> usize {
    steps.push(step);
    operands + steps.len() - 1
}

/// Evaluates a native operation.
///
/// An `f32` sum, difference, product, quotient, remainder or square root is computed in `f64` and rounded.
/// The result is the correctly rounded one because `f64` has more than twice the bits of `f32`. `fma` is the
/// exception, so `f32` operands use `f32::mul_add`.
fn native(op: Op, args: [usize; 3], dtype: DType, values: &[Scalar]) -> Scalar {
    let args = args.map(|arg| values[arg]);
    if op == Op::Select {
        return if args[0].to_i64() != 0 { args[1] } else { args[2] };
    }
    if let (Op::Fma, [Scalar::F32(x), Scalar::F32(y), Scalar::F32(z)]) = (op, args) {
        return Scalar::F32(x.mul_add(y, z));
    }
    let eval = op.info().eval;
    match args[op.info().arity - 1].dtype().class() {
        Class::Float => {
            let y = (eval.float)(&args.map(Scalar::to_f64));
            match dtype {
                DType::F32 => Scalar::F32(y as f32),
                DType::Bool => Scalar::Bool(y != 0.0),
                DType::F16
                | DType::BF16
                | DType::F64
                | DType::I32
                | DType::U32
                | DType::I16
                | DType::U16
                | DType::I8
                | DType::U8
                | DType::Index => Scalar::F64(y).cast(dtype),
            }
        }
        class @ (Class::Int | Class::Uint | Class::Bool) => {
            let bits = if class == Class::Bool { 1 } else { args[0].dtype().bits() };
            let y = (eval.int)(&args.map(Scalar::to_i64), bits);
            Scalar::of_int(dtype, y)
        }
    }
}
