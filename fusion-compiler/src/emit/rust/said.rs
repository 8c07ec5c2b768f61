//! How values are said where they are used.
//!
//! Invariant: what has no `let` is pure, so that it may be computed where it is said.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Emitter, literal};
use crate::ir::dtype::DType;
use crate::ir::kernel::{Expr, Stmt, Value};

/// What is said in place of values that have no `let`: constants, other names, and what is used once and nearby. The
/// user's compiler has each name to resolve, so that fewer are less to wait for.
#[derive(Default)]
pub(super) struct Said {
    pub(super) texts: FxHashMap<Value, String>,
    /// Which of them are `f32` constants.
    floats: FxHashSet<Value>,
    /// The constants that LLVM is not to know as such.
    pub(super) kept: Vec<String>,
}

/// Constants of a vector loop beyond which there are too few registers for all of them. As constants, LLVM then broadcasts
/// them from memory for every vector; as what it does not know they stay in registers, or are operands in memory.
const CONSTANTS_MAX: usize = 8;

/// The longest expression that is part of another.
const NESTED_MAX: usize = 100;

impl Emitter<'_> {
    /// The values that are operands once, of an operation or a store of this run, where they can be said in full.
    pub(super) fn nested(&self, run: &[Stmt]) -> FxHashSet<Value> {
        let operands = |stmt: &Stmt| match stmt {
            Stmt::Let(_, Expr::Apply(_, args)) => args.to_vec(),
            // What has another name is said wherever that is.
            Stmt::Let(value, expr) if self.other_name(*value, expr).is_some() => vec![],
            Stmt::Let(_, Expr::Cast(arg) | Expr::Bitcast(arg)) | Stmt::Store(_, arg) => vec![*arg],
            Stmt::Let(..)
            | Stmt::Loop { .. }
            | Stmt::Vector { .. }
            | Stmt::Team(_)
            | Stmt::StoreShared(..)
            | Stmt::Barrier(_)
            | Stmt::If { .. } => vec![],
        };
        run.iter().flat_map(operands).filter(|value| self.uses.get(value) == Some(&1)).collect()
    }

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

    /// Whether a value is said where it is used, and how.
    pub(super) fn has_no_let(&self, value: Value, expr: &Expr, nested: &FxHashSet<Value>) -> bool {
        if self.said.borrow().texts.contains_key(&value) {
            return true;
        }
        let dtype = self.kernel.ty(value).dtype;
        let text = if let Expr::Const(constant) = expr {
            if dtype == DType::F32 {
                self.said.borrow_mut().floats.insert(value);
            }
            match literal(*constant, dtype) {
                negative if negative.starts_with('-') => format!("({negative})"),
                literal => literal,
            }
        } else if let Some(other) = self.other_name(value, expr) {
            self.operand(other)
        } else if nested.contains(&value)
            && matches!(expr, Expr::Apply(..) | Expr::Cast(_) | Expr::Bitcast(_))
        {
            let text = self.expr(value, expr, &[]);
            // Deep trees are hard to read, and compilers go through them by recursion.
            if text.len() > NESTED_MAX {
                return false;
            }
            format!("({text})")
        } else {
            return false;
        };
        self.said.borrow_mut().texts.insert(value, text);
        true
    }

    /// Keeps the constants of a vector loop in registers, if they are many.
    pub(super) fn keep_constants(&self, lanes: &[Stmt]) {
        let mut said = self.said.borrow_mut();
        let mut splats = Vec::new();
        for stmt in lanes {
            if let Stmt::Let(value, Expr::Splat(arg)) = stmt
                && said.floats.contains(arg)
            {
                splats.push((*value, said.texts[arg].clone()));
            }
        }
        if splats.len() <= CONSTANTS_MAX {
            return;
        }
        for (value, literal) in splats {
            let number = said.kept.iter().position(|kept| *kept == literal).unwrap_or(said.kept.len());
            if number == said.kept.len() {
                said.kept.push(literal);
            }
            said.texts.insert(value, format!("k{number}"));
        }
    }

    /// A value where it is used.
    pub(super) fn operand(&self, value: Value) -> String {
        self.said.borrow().texts.get(&value).cloned().unwrap_or_else(|| format!("v{}", value.0))
    }

    pub(super) fn operands(&self, values: &[Value]) -> Vec<String> {
        values.iter().map(|&value| self.operand(value)).collect()
    }
}
