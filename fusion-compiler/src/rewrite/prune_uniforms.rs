//! Removes uniforms that the kernel does not use.
//!
//! Invariant: the other uniforms keep their order.

use crate::ir::kernel::{Expr, Kernel, Stmt, UniformId};

/// Returns the kernel without unused uniforms.
pub fn prune_uniforms(mut kernel: Kernel) -> Kernel {
    let mut used = vec![false; kernel.uniforms.len()];
    for_each_uniform(&mut kernel.body, &mut |id| used[usize::from(id.0)] = true);
    let kept: Vec<u16> =
        used.iter().scan(0, |next, &used| Some(std::mem::replace(next, *next + u16::from(used)))).collect();
    for_each_uniform(&mut kernel.body, &mut |id| id.0 = kept[usize::from(id.0)]);
    let mut keep = used.into_iter();
    kernel.uniforms.retain(|_| keep.next() == Some(true));
    kernel
}

fn for_each_uniform(body: &mut [Stmt], visit: &mut impl FnMut(&mut UniformId)) {
    for stmt in body {
        if let Stmt::Let(_, Expr::Uniform(id)) = stmt {
            visit(id);
        }
        stmt.for_each_body_mut(|body, _| for_each_uniform(body, visit));
    }
}
