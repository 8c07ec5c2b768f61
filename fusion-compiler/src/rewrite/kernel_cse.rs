//! Common subexpressions of a kernel: expressions that are pure and the same become one value.
//!
//! A value made in the body of a loop or condition is known only there. Loads are not pure: a store may lie
//! between two of them. A lane of a splat is what is splat: not every compiler of WGSL takes a lane of a constant vector.

use std::collections::hash_map::Entry;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::ir::kernel::{Expr, Kernel, Stmt, Type, Value};

/// Merges values that are made by the same pure expression.
pub fn kernel_cse(mut kernel: Kernel) -> Kernel {
    let count = kernel.types.len();
    let known = FxHashMap::with_capacity_and_hasher(count, FxBuildHasher);
    let renamed = (0..count).map(|i| Value(i as u32)).collect();
    let mut scope =
        Scope { types: &kernel.types, known, renamed, splat: FxHashMap::default(), is_open: vec![] };
    kernel.body = scope.block(std::mem::take(&mut kernel.body));
    kernel
}

struct Scope<'k> {
    types: &'k [Type],
    /// The value that an expression made first, and the number of the block that it was made in.
    known: FxHashMap<(Type, Expr), (Value, usize)>,
    /// What stands for each value.
    renamed: Vec<Value>,
    /// The value that all lanes of a splat have.
    splat: FxHashMap<Value, Value>,
    /// Of each block, in the order that they begin, whether it has not ended.
    is_open: Vec<bool>,
}

impl Scope<'_> {
    fn block(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        let number = self.is_open.len();
        self.is_open.push(true);
        let mut out = Vec::with_capacity(body.len());
        for mut stmt in body {
            stmt.for_each_operand_mut(|operand| *operand = self.renamed[operand.0 as usize]);
            match stmt {
                Stmt::Let(value, Expr::Lane(of, _)) if self.splat.contains_key(&of) => {
                    self.renamed[value.0 as usize] = self.splat[&of];
                }
                Stmt::Let(value, expr) if expr.is_pure() => {
                    if let Expr::Splat(of) = expr {
                        self.splat.insert(value, of);
                    }
                    let ty = self.types[value.0 as usize];
                    match self.known.entry((ty, expr)) {
                        Entry::Occupied(first) if self.is_open[first.get().1] => {
                            self.renamed[value.0 as usize] = first.get().0;
                        }
                        Entry::Occupied(mut ended) => {
                            out.push(Stmt::Let(value, ended.key().1.clone()));
                            ended.insert((value, number));
                        }
                        Entry::Vacant(new) => {
                            out.push(Stmt::Let(value, new.key().1.clone()));
                            new.insert((value, number));
                        }
                    }
                }
                mut stmt => {
                    stmt.for_each_body_mut(|body, leaving| {
                        *body = self.block(std::mem::take(body));
                        for value in leaving {
                            **value = self.renamed[value.0 as usize];
                        }
                    });
                    out.push(stmt);
                }
            }
        }
        self.is_open[number] = false;
        out
    }
}
