//! Dead code of a kernel: values that no store needs go, and so do loops and conditions left empty.

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
        let needed = match &mut stmt {
            Stmt::Let(value, _) => live[value.0 as usize],
            Stmt::Store(..) => true,
            Stmt::Loop { body, .. } | Stmt::Vector { body, .. } | Stmt::If { body, .. } => {
                *body = block(live, std::mem::take(body));
                !body.is_empty()
            }
        };
        if needed {
            stmt.for_each_operand_mut(|operand| live[operand.0 as usize] = true);
            out.push(stmt);
        }
    }
    out.reverse();
    out
}
