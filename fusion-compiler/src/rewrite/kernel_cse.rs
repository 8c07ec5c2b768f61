//! Common subexpressions of a kernel: expressions that are pure and the same become one value.
//!
//! A value made in the body of a loop or condition is known only there. Loads are not pure: a store may lie
//! between two of them.

use rustc_hash::FxHashMap;

use crate::ir::kernel::{Expr, Kernel, Stmt, Type, Value};

/// Merges values that are made by the same pure expression.
pub fn kernel_cse(mut kernel: Kernel) -> Kernel {
    let mut scope = Scope { known: FxHashMap::default(), renamed: FxHashMap::default() };
    let body = std::mem::take(&mut kernel.body);
    kernel.body = scope.block(&kernel.types, body);
    kernel
}

struct Scope {
    known: FxHashMap<(Type, Expr), Value>,
    renamed: FxHashMap<Value, Value>,
}

impl Scope {
    fn block(&mut self, types: &[Type], body: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(body.len());
        let mut made = Vec::new();
        for mut stmt in body {
            stmt.for_each_operand_mut(|operand| {
                *operand = self.renamed.get(operand).copied().unwrap_or(*operand)
            });
            match stmt {
                Stmt::Let(value, expr) if expr.is_pure() => {
                    let key = (types[value.0 as usize], expr);
                    if let Some(&first) = self.known.get(&key) {
                        self.renamed.insert(value, first);
                    } else {
                        out.push(Stmt::Let(value, key.1.clone()));
                        made.push(key.clone());
                        self.known.insert(key, value);
                    }
                }
                mut stmt => {
                    stmt.for_each_body_mut(|body, leaving| {
                        *body = self.block(types, std::mem::take(body));
                        for value in leaving {
                            **value = self.renamed.get(value).copied().unwrap_or(**value);
                        }
                    });
                    out.push(stmt);
                }
            }
        }
        for key in &made {
            self.known.remove(key);
        }
        out
    }
}
