//! Common subexpression elimination in kernels: equal pure expressions become one value.
//!
//! A value from the body of a loop or condition is visible only there. Loads are not pure, because a store
//! may come between two of them. A lane of a splat becomes the splatted value: not every WGSL compiler
//! accepts a lane of a constant vector.

use std::collections::hash_map::Entry;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::ir::kernel::{Expr, Kernel, Stmt, Type, Value};

/// Merges values with the same pure expression.
pub fn kernel_cse(mut kernel: Kernel) -> Kernel {
    let count = kernel.types.len();
    let known = FxHashMap::with_capacity_and_hasher(count, FxBuildHasher);
    let renamed = (0..count).map(|i| Value(i as u32)).collect();
    let mut available =
        AvailableExprs { types: &kernel.types, known, renamed, splat: FxHashMap::default(), is_open: vec![] };
    kernel.body = available.block(std::mem::take(&mut kernel.body));
    kernel
}

struct AvailableExprs<'k> {
    types: &'k [Type],
    /// First value of each expression, with the number of its block.
    known: FxHashMap<(Type, Expr), (Value, usize)>,
    /// Replacement of each value.
    renamed: Vec<Value>,
    /// Value in all lanes of each splat.
    splat: FxHashMap<Value, Value>,
    /// True for each block that has not ended, in the order of their starts.
    is_open: Vec<bool>,
}

impl AvailableExprs<'_> {
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
