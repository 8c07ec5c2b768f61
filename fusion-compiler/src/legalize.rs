//! Kernel × dialect → kernel in which every operation is one that the target has.
//!
//! Invariant: afterwards no `LoopKind::Grid` is left, every `Apply` is `Native` in the dialect's column, and
//! every cast is one that the target's own conversion gets right.

use std::collections::HashMap;

use crate::ir::dtype::{Const, DType};
use crate::ir::kernel::{Builder, Expr, Kernel, Lanes, LoopKind, Stmt, Type, Uniform, Value};
use crate::ir::ops::{Lower, Op};
use crate::target::Dialect;

/// Rewrites a kernel into what the dialect has.
pub fn legalize(mut kernel: Kernel, dialect: Dialect) -> Kernel {
    let body = std::mem::take(&mut kernel.body);
    let mut legalizer = Legalizer {
        dialect,
        types: &mut kernel.types,
        uniforms: &mut kernel.uniforms,
        renamed: HashMap::new(),
    };
    let mut out = Vec::new();
    legalizer.block(body, &mut out);
    kernel.body = out;
    kernel
}

struct Legalizer<'k> {
    dialect: Dialect,
    types: &'k mut Vec<Type>,
    uniforms: &'k mut Vec<Uniform>,
    renamed: HashMap<Value, Value>,
}

impl Legalizer<'_> {
    fn block(&mut self, body: Vec<Stmt>, out: &mut Vec<Stmt>) {
        for mut stmt in body {
            stmt.for_each_operand_mut(|operand| {
                *operand = self.renamed.get(operand).copied().unwrap_or(*operand)
            });
            match stmt {
                Stmt::Let(value, Expr::Apply(op, args)) => self.apply(value, op, args, out),
                Stmt::Let(value, Expr::Cast(arg)) => self.cast(value, arg, out),
                Stmt::Let(..) | Stmt::Store(..) => out.push(stmt),
                Stmt::Loop { var, kind, start, end, step, body } => {
                    let (start, end, step) = match kind {
                        LoopKind::Grid => self.deal(start, end, step, out),
                        LoopKind::Serial => (start, end, step),
                    };
                    let body = self.nested(body);
                    out.push(Stmt::Loop { var, kind: LoopKind::Serial, start, end, step, body });
                }
                Stmt::Vector { len, body } => {
                    let body = self.nested(body);
                    out.push(Stmt::Vector { len, body });
                }
                Stmt::If { cond, body } => {
                    let body = self.nested(body);
                    out.push(Stmt::If { cond, body });
                }
            }
        }
    }

    fn nested(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(body.len());
        self.block(body, &mut out);
        out
    }

    fn apply(&mut self, value: Value, op: Op, args: Vec<Value>, out: &mut Vec<Stmt>) {
        let class = self.types[args[args.len() - 1].0 as usize].dtype.class();
        match self.dialect.lower(op, class) {
            Lower::Native(_) => out.push(Stmt::Let(value, Expr::Apply(op, args))),
            Lower::Expand(expand) => self.replace(value, out, |b| expand(b, &args)),
            Lower::Never => unreachable!("{op:?} takes no {class:?} operands"),
        }
    }

    /// Conversions that the target leaves open are written out.
    fn cast(&mut self, value: Value, arg: Value, out: &mut Vec<Stmt>) {
        let (from, to) = (self.types[arg.0 as usize], self.types[value.0 as usize].dtype);
        if self.dialect != Dialect::Wgsl || !from.dtype.is_float() || !to.is_int() {
            out.push(Stmt::Let(value, Expr::Cast(arg)));
            return;
        }
        let range = Range::of(to);
        let inside = self.write(out, |b| range.clamp(b, arg));
        let whole = self.builder(out).declare(Type { dtype: to, ..from });
        out.push(Stmt::Let(whole, Expr::Cast(inside)));
        let made = self.write(out, |b| range.saturate(b, arg, whole));
        self.renamed.insert(value, made);
    }

    /// Puts what `make` writes in the place of `value`.
    fn replace(&mut self, value: Value, out: &mut Vec<Stmt>, make: impl FnOnce(&mut Builder<'_>) -> Value) {
        let lanes = self.types[value.0 as usize].lanes;
        let made = self.write(out, |b| {
            let made = make(b);
            b.splat(made, lanes)
        });
        self.renamed.insert(value, made);
    }

    /// Legalizes what `make` writes.
    fn write(&mut self, out: &mut Vec<Stmt>, make: impl FnOnce(&mut Builder<'_>) -> Value) -> Value {
        let mut body = Vec::new();
        let made = make(&mut self.builder(&mut body));
        self.block(body, out);
        self.renamed.get(&made).copied().unwrap_or(made)
    }

    fn builder<'b>(&'b mut self, body: &'b mut Vec<Stmt>) -> Builder<'b> {
        Builder { types: self.types, uniforms: self.uniforms, body }
    }

    /// The part of a grid loop that this thread runs: first, end and distance.
    fn deal(&mut self, start: Value, end: Value, step: Value, out: &mut Vec<Stmt>) -> (Value, Value, Value) {
        let dialect = self.dialect;
        let mut b = self.builder(out);
        let index = Type { dtype: DType::Index, lanes: Lanes::ONE };
        match dialect {
            Dialect::Ptx | Dialect::Wgsl => {
                let (id, size) = (b.bind(index, Expr::GridId), b.bind(index, Expr::GridSize));
                let skip = b.apply(Op::Mul, &[id, step]);
                (b.apply(Op::Add, &[start, skip]), end, b.apply(Op::Mul, &[size, step]))
            }
            Dialect::Cpu | Dialect::CpuBase => {
                (b.bind(index, Expr::RangeStart), b.bind(index, Expr::RangeEnd), step)
            }
        }
    }
}

/// The floats that convert to an integer type.
struct Range {
    to: DType,
    low: f32,
    /// The largest float that fits.
    high: f32,
    /// The largest integer.
    max: i64,
}

impl Range {
    fn of(to: DType) -> Range {
        match to {
            DType::I32 => Range { to, low: -2_147_483_648.0, high: 2_147_483_520.0, max: i32::MAX.into() },
            DType::U32 => Range { to, low: 0.0, high: 4_294_967_040.0, max: u32::MAX.into() },
            DType::I8 => Range { to, low: -128.0, high: 127.0, max: i8::MAX.into() },
            DType::U8 => Range { to, low: 0.0, high: 255.0, max: u8::MAX.into() },
            DType::F32 | DType::F16 | DType::BF16 | DType::F64 | DType::Bool | DType::Index => {
                unreachable!("{to} is no integer that users convert to")
            }
        }
    }

    /// The nearest float in range; 0 for NaN.
    fn clamp(&self, b: &mut Builder<'_>, x: Value) -> Value {
        let (zero, low, high) = (b.f32(0.0), b.f32(self.low), b.f32(self.high));
        let nan = b.apply(Op::IsNan, &[x]);
        let number = b.apply(Op::Select, &[nan, zero, x]);
        let under = b.apply(Op::Lt, &[number, low]);
        let raised = b.apply(Op::Select, &[under, low, number]);
        let over = b.apply(Op::Gt, &[raised, high]);
        b.apply(Op::Select, &[over, high, raised])
    }

    /// `whole`, unless `x` lies above the range.
    fn saturate(&self, b: &mut Builder<'_>, x: Value, whole: Value) -> Value {
        let high = b.f32(self.high);
        let over = b.apply(Op::Gt, &[x, high]);
        let max = b.constant(self.to, Const::Int(self.max));
        b.apply(Op::Select, &[over, max, whole])
    }
}
