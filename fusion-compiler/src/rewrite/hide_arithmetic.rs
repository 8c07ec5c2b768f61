//! Hides results from the operations that use them, for languages whose compilers may reorder float
//! arithmetic.
//!
//! WGSL compilers may replace `(x + c) - c` by `x`, and `x - x` and `x * 0.0` by 0; results would then depend
//! on fusion. Invariant: each operation is rounded by itself, and treats NaN and infinities as IEEE 754
//! specifies.

use rustc_hash::FxHashSet;
use smallvec::smallvec;

use crate::ir::dtype::Const;
use crate::ir::kernel::{Builder, Expr, Kernel, Stmt, Type, Uniform, Value, Values};
use crate::ir::op::{Op, Typing};

/// Makes every computed float opaque that another operation uses.
pub fn hide_arithmetic(mut kernel: Kernel) -> Kernel {
    let body = std::mem::take(&mut kernel.body);
    let (mut operands, mut zeros) = (FxHashSet::default(), FxHashSet::default());
    look(&body, &mut operands, &mut zeros);
    let mut hider = Hider { types: &mut kernel.types, uniforms: &mut kernel.uniforms, operands, zeros };
    kernel.body = hider.block(body);
    kernel
}

/// Collects the values that are operands, and the values that are zero, splats included.
fn look(body: &[Stmt], operands: &mut FxHashSet<Value>, zeros: &mut FxHashSet<Value>) {
    for stmt in body {
        if let Stmt::Let(value, expr) = stmt {
            expr.for_each_operand(|operand| {
                operands.insert(*operand);
            });
            let zero = match expr {
                Expr::Splat(of) => zeros.contains(of),
                other => matches!(other, Expr::Const(Const::Float(x)) if *x == 0.0),
            };
            if zero {
                zeros.insert(*value);
            }
        }
        stmt.for_each_body(|body, leaving| {
            operands.extend(leaving.iter().map(|value| **value));
            look(body, operands, zeros);
        });
    }
}

struct Hider<'k> {
    types: &'k mut Vec<Type>,
    uniforms: &'k mut Vec<Uniform>,
    operands: FxHashSet<Value>,
    zeros: FxHashSet<Value>,
}

impl Hider<'_> {
    fn block(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(body.len());
        for stmt in body {
            match stmt {
                Stmt::Let(value, Expr::Apply(op, args)) => self.apply(value, op, args, &mut out),
                mut stmt => {
                    stmt.for_each_body_mut(|body, _| *body = self.block(std::mem::take(body)));
                    out.push(stmt);
                }
            }
        }
        out
    }

    fn apply(&mut self, value: Value, op: Op, mut args: Values, out: &mut Vec<Stmt>) {
        let ty = self.types[value.0 as usize];
        let computes = matches!(op.info().typing, Typing::Number | Typing::Float) && ty.dtype.is_float();
        if computes {
            self.hide_operands(&mut args, out);
        }
        if !computes || !self.operands.contains(&value) {
            out.push(Stmt::Let(value, Expr::Apply(op, args)));
            return;
        }
        let bare = self.builder(out).bind(ty, Expr::Apply(op, args));
        out.push(Stmt::Let(value, Expr::Apply(Op::Opaque, smallvec![bare])));
    }

    /// Makes known zeros and repeated operands opaque, so that compilers cannot simplify the operation.
    fn hide_operands(&mut self, args: &mut [Value], out: &mut Vec<Stmt>) {
        for i in 0..args.len() {
            if self.zeros.contains(&args[i]) || args[..i].contains(&args[i]) {
                args[i] = self.builder(out).apply(Op::Opaque, &[args[i]]);
            }
        }
    }

    fn builder<'b>(&'b mut self, body: &'b mut Vec<Stmt>) -> Builder<'b> {
        Builder { types: self.types, uniforms: self.uniforms, body }
    }
}
