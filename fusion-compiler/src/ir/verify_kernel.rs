//! What must hold of a kernel between passes. A violation is a bug in the compiler.
//!
//! Every operand is defined before its use and still in scope, types agree with the op table, buffers are used
//! as their access says, and `Lanes::Loop` occurs only within `Stmt::Vector`.

use super::dtype::DType;
use super::graph::Access;
use super::kernel::{At, Expr, Kernel, Lanes, Stmt, Type, Value};
use super::ops::{Op, Typing};

/// Checks a kernel; the error says what is wrong with which statement.
///
/// # Errors
/// The first violation, in words.
pub fn kernel(kernel: &Kernel) -> Result<(), String> {
    let mut verifier = Verifier { kernel, scope: vec![false; kernel.types.len()], vector: false };
    verifier.block(&kernel.body).map_err(|error| format!("{error} in\n{kernel}"))
}

struct Verifier<'k> {
    kernel: &'k Kernel,
    scope: Vec<bool>,
    vector: bool,
}

impl Verifier<'_> {
    fn block(&mut self, body: &[Stmt]) -> Result<(), String> {
        let mut made = Vec::new();
        for stmt in body {
            self.statement(stmt, &mut made)?;
        }
        made.iter().for_each(|value: &Value| self.scope[value.0 as usize] = false);
        Ok(())
    }

    fn statement(&mut self, stmt: &Stmt, made: &mut Vec<Value>) -> Result<(), String> {
        let mut operands = Vec::new();
        stmt.clone().for_each_operand_mut(|operand| operands.push(*operand));
        if let Some(operand) = operands.iter().find(|operand| !self.scope[operand.0 as usize]) {
            return Err(format!("{operand} is not defined where {stmt:?} uses it"));
        }
        match stmt {
            Stmt::Let(value, expr) => {
                self.expression(*value, expr)?;
                self.define(*value)?;
                made.push(*value);
            }
            Stmt::Store(at, value) => {
                self.access(at, self.kernel.ty(*value), Access::Write)?;
            }
            Stmt::Loop { var, start, end, step, body, .. } => {
                for operand in [var, start, end, step] {
                    self.expect(*operand, Type { dtype: DType::Index, lanes: Lanes::ONE })?;
                }
                self.define(*var)?;
                self.block(body)?;
                self.scope[var.0 as usize] = false;
            }
            Stmt::Vector { len, body } => {
                self.expect(*len, Type { dtype: DType::Index, lanes: Lanes::ONE })?;
                if std::mem::replace(&mut self.vector, true) {
                    return Err("a vector loop within another".into());
                }
                self.block(body)?;
                self.vector = false;
            }
            Stmt::If { cond, body } => {
                self.expect(*cond, Type { dtype: DType::Bool, lanes: Lanes::ONE })?;
                self.block(body)?;
            }
        }
        Ok(())
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
            Expr::Pack(args) => {
                args.iter().try_for_each(|arg| self.expect(*arg, Type { lanes: Lanes::ONE, ..ty }))?;
                let fits = ty.lanes == Lanes::Const(args.len() as u8);
                if fits { Ok(()) } else { Err(format!("{} values make no {ty}", args.len())) }
            }
            Expr::Lane(arg, lane) => match self.kernel.ty(*arg).lanes {
                Lanes::Const(lanes) if *lane < lanes => self.expect(value, Type { lanes: Lanes::ONE, ..ty }),
                Lanes::Const(_) | Lanes::Loop => Err(format!("{arg} has no lane {lane}")),
            },
            Expr::Load(at) => self.access(at, ty, Access::Read),
            Expr::Uniform(id) => {
                let dtype = self.kernel.uniform(*id).dtype;
                self.expect(value, Type { dtype, lanes: Lanes::ONE })
            }
            Expr::Const(_) => self.expect(value, Type { lanes: Lanes::ONE, ..ty }),
            Expr::GridId | Expr::GridSize | Expr::RangeStart | Expr::RangeEnd => {
                self.expect(value, Type { dtype: DType::Index, lanes: Lanes::ONE })
            }
            Expr::LaneIndex => self.expect(value, Type { dtype: DType::Index, ..ty }),
        }
    }

    fn operation(&self, ty: Type, op: Op, args: &[Value]) -> Result<(), String> {
        let info = op.info();
        let types: Vec<Type> = args.iter().map(|&arg| self.kernel.ty(arg)).collect();
        let dtypes: Vec<DType> = types.iter().map(|ty| ty.dtype).collect();
        let data = if info.typing == Typing::Select { &dtypes[1..] } else { &dtypes[..] };
        let fits = args.len() == info.arity
            && types.iter().all(|arg| arg.lanes == ty.lanes)
            && data.windows(2).all(|pair| pair[0] == pair[1])
            && (info.typing != Typing::Select || dtypes[0] == DType::Bool)
            && info.typing.accepts(data[0])
            && info.typing.result(&dtypes) == ty.dtype;
        if fits { Ok(()) } else { Err(format!("{op:?} of {dtypes:?} does not give {ty}")) }
    }

    fn access(&self, at: &At, ty: Type, how: Access) -> Result<(), String> {
        let buffer = self.kernel.buffer(at.buffer);
        let allowed = buffer.access == how || buffer.access == Access::ReadWrite;
        let index = self.kernel.ty(at.index);
        let indexed = index.dtype == DType::Index && (index.lanes == Lanes::ONE || index.lanes == ty.lanes);
        if allowed && indexed && buffer.dtype == ty.dtype && at.phase < at.stride {
            Ok(())
        } else {
            Err(format!("an access of {ty} at {index} does not fit buffer {}", buffer.name))
        }
    }
}
