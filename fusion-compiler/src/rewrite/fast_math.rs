//! Replaces operations by the device's approximations, as `#[fuse(fast_math)]` asks.
//!
//! The pass rewrites kernels, not graphs, so that fusion and the number of passes over a row stay the same.

use crate::ir::dtype::DType;
use crate::ir::kernel::{Expr, Kernel, Stmt};

/// Replaces each operation on `f32` that has an approximation.
pub fn fast_math(mut kernel: Kernel) -> Kernel {
    let mut body = std::mem::take(&mut kernel.body);
    block(&kernel, &mut body);
    kernel.body = body;
    kernel
}

fn block(kernel: &Kernel, body: &mut [Stmt]) {
    for stmt in body {
        if let Stmt::Let(value, Expr::Apply(op, _)) = stmt
            && kernel.ty(*value).dtype == DType::F32
            && let Some(approximation) = op.approximation()
        {
            *op = approximation;
        }
        stmt.for_each_body_mut(|body, _| block(kernel, body));
    }
}
