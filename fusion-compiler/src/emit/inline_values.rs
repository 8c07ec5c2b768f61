//! How values are said where they are used, for languages that have expressions.
//!
//! Invariant: what has no `let` is pure, so that it may be computed where it is said.

use std::cell::OnceCell;
use std::fmt;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::ir::kernel::{ClusterExchange, Expr, Kernel, Stmt, Value};

/// The longest expression that is part of another: deep trees are hard to read, and compilers go through them by recursion.
const NESTED_MAX: usize = 100;

/// What is said in place of values that have no `let`: constants, other names, and what is used once and nearby. Whoever compiles
/// the text has each name to resolve, so that fewer are less to wait for.
pub(super) struct InlineValues {
    /// How often each value is an operand.
    uses: Vec<u32>,
    /// What is said in place of each.
    texts: Vec<OnceCell<String>>,
}

/// A value where it is used.
#[derive(Clone, Copy)]
pub(super) enum OperandText<'t> {
    Text(&'t str),
    Name(Value),
}

/// Values where they are used.
pub(super) type OperandTexts<'t> = SmallVec<[OperandText<'t>; 4]>;

impl fmt::Display for OperandText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperandText::Text(text) => f.write_str(text),
            OperandText::Name(value) => write!(f, "v{}", value.0),
        }
    }
}

impl InlineValues {
    pub(super) fn new(kernel: &Kernel) -> InlineValues {
        let values = kernel.types.len();
        let mut uses = vec![0; values];
        count_uses(&kernel.body, &mut uses);
        InlineValues { uses, texts: vec![OnceCell::new(); values] }
    }

    /// How often a value is an operand.
    pub(super) fn uses(&self, value: Value) -> u32 {
        self.uses[value.0 as usize]
    }

    /// Whether a value has no `let`.
    pub(super) fn contains(&self, value: Value) -> bool {
        self.texts[value.0 as usize].get().is_some()
    }

    /// Says a value in place from here on.
    pub(super) fn insert(&self, value: Value, text: String) {
        let new = self.texts[value.0 as usize].set(text);
        new.unwrap_or_else(|text| unreachable!("{value} is computed in place in one way, not as {text} too"));
    }

    /// Says a value in place if its expression is short enough to be part of another.
    pub(super) fn nest(&self, value: Value, text: String) -> bool {
        let fits = text.len() <= NESTED_MAX;
        if fits {
            self.insert(value, text);
        }
        fits
    }

    /// A value where it is used.
    pub(super) fn operand(&self, value: Value) -> OperandText<'_> {
        match self.texts[value.0 as usize].get() {
            Some(text) => OperandText::Text(text),
            None => OperandText::Name(value),
        }
    }

    pub(super) fn operands(&self, values: &[Value]) -> OperandTexts<'_> {
        values.iter().map(|&value| self.operand(value)).collect()
    }

    /// The values that are operands once, of statements of this run that say theirs once.
    pub(super) fn nested(&self, run: &[Stmt], says_once: impl Fn(&Stmt) -> bool) -> FxHashSet<Value> {
        let mut nested = FxHashSet::default();
        for stmt in run.iter().filter(|stmt| says_once(stmt)) {
            let operands = match stmt {
                Stmt::Let(_, Expr::Apply(_, args) | Expr::Pack(args)) => args.as_slice(),
                Stmt::Let(_, Expr::Cast(arg) | Expr::Bitcast(arg) | Expr::Splat(arg))
                | Stmt::Store(_, arg)
                | Stmt::StoreShared(_, _, arg)
                | Stmt::ClusterExchange(ClusterExchange::Send(_, _, _, arg)) => std::slice::from_ref(arg),
                _ => &[],
            };
            nested.extend(operands.iter().filter(|value| self.uses(**value) == 1));
        }
        nested
    }

    /// The values made by these statements that others use.
    pub(super) fn used_later(&self, run: &[Stmt]) -> FxHashSet<Value> {
        let mut inside = vec![0; self.uses.len()];
        count_uses(run, &mut inside);
        let made = run.iter().flat_map(Stmt::made);
        made.filter(|value| self.uses(*value) > inside[value.0 as usize]).collect()
    }
}

/// Adds how often each value is an operand of the statements and of those within.
fn count_uses(body: &[Stmt], uses: &mut [u32]) {
    for stmt in body {
        stmt.for_each_operand(|operand| uses[operand.0 as usize] += 1);
        stmt.for_each_body(|body, leaving| {
            leaving.iter().for_each(|value| uses[value.0 as usize] += 1);
            count_uses(body, uses);
        });
    }
}
