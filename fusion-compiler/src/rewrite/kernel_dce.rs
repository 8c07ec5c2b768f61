//! Dead code elimination in kernels: removes values that no store needs, and loops and conditions without
//! stores.

use crate::ir::kernel::{Kernel, Stmt};

/// Removes values that no store needs.
pub fn kernel_dce(mut kernel: Kernel) -> Kernel {
    let mut live = vec![false; kernel.types.len()];
    let body = std::mem::take(&mut kernel.body);
    kernel.body = block(&mut live, body);
    kernel
}

/// Visits statements backwards, so that every use comes before its definition.
fn block(live: &mut [bool], body: Vec<Stmt>) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(body.len());
    for mut stmt in body.into_iter().rev() {
        if writes(&stmt) || stmt.made().iter().any(|value| live[value.0 as usize]) {
            stmt.for_each_body_mut(|body, leaving| {
                leaving.iter().for_each(|value| live[value.0 as usize] = true);
                *body = block(live, std::mem::take(body));
            });
            stmt.for_each_operand_mut(|operand| live[operand.0 as usize] = true);
            out.push(stmt);
        }
    }
    out.reverse();
    out
}

/// Returns true if a statement, or one of its bodies, has a side effect.
fn writes(stmt: &Stmt) -> bool {
    let is_effect = matches!(
        stmt,
        Stmt::Store(..)
            | Stmt::StoreShared(..)
            | Stmt::AsyncCopy(_)
            | Stmt::ClusterExchange(_)
            | Stmt::Barrier(_)
    );
    is_effect || stmt.body().iter().any(writes)
}
