//! Vectors of a loop side by side.
//!
//! What is made step by step, a polynomial of an exponential of a root, has a processor wait for each step: it looks no further
//! ahead than a vector or two of such a loop. So statements are written for several vectors in turn. Invariant: each lane computes
//! what it does in a loop of one vector, in the same order.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Emitter;
use super::stream::LANE;
use crate::emit::Writer;
use crate::ir::kernel::{Expr, Stmt, Value};
use crate::ir::op::Op;
use crate::target::tuning_table::cpu;

/// Lanes of the widest vectors, of which `JAM_COPIES` are interleaved.
pub(super) const VECTOR_LANES: usize = 16;

/// Whether the lanes of a loop wait for themselves.
pub(super) fn pays(lanes: &[Stmt]) -> bool {
    if lanes.len() > cpu::JAM_STATEMENTS_MAX {
        return false;
    }
    let mut depths: FxHashMap<Value, usize> = FxHashMap::default();
    let mut deepest = 0;
    for stmt in lanes {
        let mut before = 0;
        stmt.for_each_operand(|operand| {
            before = before.max(depths.get(operand).copied().unwrap_or(0));
        });
        if let Stmt::Let(value, expr) = stmt {
            let takes = matches!(expr, Expr::Apply(op, _) if *op != Op::Select);
            let depth = before + usize::from(takes);
            depths.insert(*value, depth);
            deepest = deepest.max(depth);
        }
    }
    deepest >= cpu::JAM_DEPTH_MIN
}

impl Emitter<'_> {
    /// Statements for the lanes `j`, `j + 16`, … in turn; of those values each has its own.
    pub(super) fn side_by_side(
        &self,
        out: &mut Writer,
        stmts: &[Stmt],
        own: &FxHashSet<Value>,
        print: impl Fn(&mut Writer, &Stmt),
    ) {
        let copies = |text: String| (0..cpu::JAM_COPIES).map(|copy| of_copy(&text, own, copy)).collect();
        self.blocks(out, stmts, &copies, &print);
    }
}

/// The text of a copy: with names and lanes of its own.
fn of_copy(text: &str, own: &FxHashSet<Value>, copy: usize) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut all = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(word);
        all += name;
        let number = name.strip_prefix('v').and_then(|number| number.parse().ok());
        if name == "j" {
            all += &format!(" + {}", VECTOR_LANES * copy);
        } else if name == LANE || number.is_some_and(|number| own.contains(&Value(number))) {
            all += &format!("_{copy}");
        }
        let gap = after.find(is_word).unwrap_or(after.len());
        all += &after[..gap];
        rest = &after[gap..];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_names_and_lanes_of_their_own() {
        let own = FxHashSet::from_iter([Value(1), Value(12)]);
        let text =
            "let v1: f32 = p0[j] * v2 + x.v12.mul_add(k3, (first + (j) as u32) as f32) - v123 + b[lane];";
        let copy = "let v1_2: f32 = p0[j + 32] * v2 + x.v12_2.mul_add(k3, (first + (j + 32) as u32) as f32) - v123 + b[lane_2];";
        assert_eq!(of_copy(text, &own, 2), copy);
    }
}
