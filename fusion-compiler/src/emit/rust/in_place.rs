//! What Rust says in place of values that have no `let`.

use rustc_hash::FxHashSet;

use super::stream::LANE;
use super::{Emitter, literal};
use crate::ir::dtype::DType;
use crate::ir::kernel::{Builtin, Expr, Stmt, Value};
use crate::target::tuning_table::cpu;

/// Constants of type `f32`.
#[derive(Default)]
pub(super) struct Floats {
    inline_values: FxHashSet<Value>,
    /// Those that LLVM is not to know as such.
    pub(super) kept: Vec<String>,
}

impl Emitter<'_> {
    /// The value that this is another name of.
    pub(super) fn other_name(&self, value: Value, expr: &Expr) -> Option<Value> {
        let dtype = |value: Value| self.kernel.ty(value).dtype;
        if let Expr::Splat(arg) = expr {
            return Some(*arg);
        }
        if let Expr::Bitcast(arg) = expr {
            Some(*arg).filter(|arg| dtype(*arg) == dtype(value))
        } else {
            None
        }
    }

    /// Whether a statement gives a value another name, and so says it wherever that is.
    pub(super) fn is_other_name(&self, stmt: &Stmt) -> bool {
        matches!(stmt, Stmt::Let(value, expr) if self.other_name(*value, expr).is_some())
    }

    /// Whether a value is said where it is used, and how.
    pub(super) fn has_no_let(&self, value: Value, expr: &Expr, nested: &FxHashSet<Value>) -> bool {
        if self.inline_values.contains(value) {
            return true;
        }
        let dtype = self.kernel.ty(value).dtype;
        if let Expr::Const(constant) = expr {
            if dtype == DType::F32 {
                self.floats.borrow_mut().inline_values.insert(value);
            }
            let literal = literal(*constant, dtype);
            let is_negative = literal.starts_with('-');
            self.inline_values.insert(value, if is_negative { format!("({literal})") } else { literal });
            return true;
        }
        if let Some(other) = self.other_name(value, expr) {
            self.inline_values.insert(value, self.inline_values.operand(other).to_string());
            return true;
        }
        if *expr == Expr::Builtin(Builtin::LaneIndex) {
            self.inline_values.insert(value, LANE.into());
            return true;
        }
        nested.contains(&value)
            && matches!(expr, Expr::Apply(..) | Expr::Cast(_) | Expr::Bitcast(_))
            && self.inline_values.nest(value, format!("({})", self.expr(value, expr, &[])))
    }

    /// Keeps the constants of a vector loop in registers, if they are many.
    pub(super) fn keep_constants(&self, lanes: &[Stmt]) {
        let mut floats = self.floats.borrow_mut();
        let mut splats = Vec::new();
        for stmt in lanes {
            if let Stmt::Let(value, Expr::Splat(arg)) = stmt
                && floats.inline_values.contains(arg)
            {
                splats.push((*value, self.inline_values.operand(*arg).to_string()));
            }
        }
        if splats.len() <= cpu::CONSTANTS_MAX {
            return;
        }
        for (value, literal) in splats {
            let number = floats.kept.iter().position(|kept| *kept == literal).unwrap_or(floats.kept.len());
            if number == floats.kept.len() {
                floats.kept.push(literal);
            }
            self.inline_values.insert(value, format!("k{number}"));
        }
    }
}
