//! Dead code of a kernel: values that no store needs go, and so do loops and conditions that store nothing.

use crate::ir::kernel::{Kernel, Stmt};

/// Removes values that no store needs.
pub fn kernel_dce(mut kernel: Kernel) -> Kernel {
    let mut live = vec![false; kernel.types.len()];
    let body = std::mem::take(&mut kernel.body);
    kernel.body = block(&mut live, body);
    kernel
}

/// Goes backwards, so that every use is seen before its definition.
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

/// Whether it, or something within it, does more than make values.
fn writes(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Store(..) | Stmt::StoreShared(..) | Stmt::ClusterExchange(_) | Stmt::Barrier(_) => true,
        Stmt::Let(..) | Stmt::AllReduce(_) => false,
        Stmt::Loop { body, .. } | Stmt::Vector { body, .. } | Stmt::If { body, .. } => {
            body.iter().any(writes)
        }
    }
}
