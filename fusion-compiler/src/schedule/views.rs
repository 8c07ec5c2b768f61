//! Views of one tensor are one buffer of a kernel.
//!
//! A body binds each operand by itself, as it knows by the operand how positions follow from the space. Once it is written, positions
//! are all that is left, and which of the views they are of makes no difference. Invariant: what is merged is only read, by
//! positions in all of the tensor or in the part that belongs to the elements of the space.

use crate::ir::graph::Access;
use crate::ir::kernel::{Address, BufferId, Expr, Kernel, Stmt, UniformArg, UniformId};
use crate::ir::plan::{BufferArg, Footprint};

/// Has one buffer stand for all views of a tensor.
pub(super) fn merge(kernel: &mut Kernel, buffers: &mut Vec<BufferArg>) {
    let (mut kept, mut stands, mut is_kept) = (Vec::<BufferArg>::new(), Vec::new(), Vec::new());
    for buffer in buffers.iter() {
        let known = kept.iter().position(|known| is_view(known, buffer));
        match known {
            Some(known) if kept[known].footprint != buffer.footprint => {
                kept[known].footprint = Footprint::Whole
            }
            Some(_) => {}
            None => kept.push(buffer.clone()),
        }
        stands.push(known.unwrap_or(kept.len() - 1) as u16);
        is_kept.push(known.is_none());
    }
    if kept.len() == buffers.len() {
        return;
    }
    *buffers = kept;
    let mut is_kept = is_kept.into_iter();
    kernel.buffers.retain(|_| is_kept.next() == Some(true));
    for_each_place(&mut kernel.body, &mut |at| at.buffer = BufferId(stands[usize::from(at.buffer.0)]));
    merge_uniforms(kernel, &stands);
}

/// Returns true if two buffers read the same tensor, either at any of its elements, or the same half of it.
fn is_view(known: &BufferArg, other: &BufferArg) -> bool {
    let is_read = |buffer: &BufferArg| buffer.access == Access::Read && !buffer.uniform;
    let is_plain = |buffer: &BufferArg| matches!(buffer.footprint, Footprint::Linear(_) | Footprint::Whole);
    let is_half =
        |buffer: &BufferArg| matches!(buffer.footprint, Footprint::LowerHalf | Footprint::UpperHalf);
    let are_alike =
        is_plain(known) && is_plain(other) || is_half(known) && known.footprint == other.footprint;
    known.slot == other.slot && is_read(known) && is_read(other) && are_alike
}

/// Visits the places in buffers that statements read and write.
pub(super) fn for_each_place(body: &mut [Stmt], visit: &mut impl FnMut(&mut Address)) {
    for stmt in body {
        if let Stmt::Let(_, Expr::Load(at) | Expr::LoadWhere(at, _)) | Stmt::Store(at, _) = stmt {
            visit(at);
        }
        stmt.for_each_body_mut(|body, _| for_each_place(body, visit));
    }
}

/// Has uniforms of buffers be those of the ones that stand for these, each read as the first that is the same.
fn merge_uniforms(kernel: &mut Kernel, stands: &[u16]) {
    for uniform in &mut kernel.uniforms {
        if let UniformArg::Offset(buffer) | UniformArg::Window(buffer) = &mut uniform.arg {
            *buffer = stands[usize::from(*buffer)];
        }
    }
    let uniforms = &kernel.uniforms;
    let first = |id: UniformId| {
        let arg = &uniforms[usize::from(id.0)].arg;
        let first = uniforms.iter().position(|uniform| uniform.arg == *arg);
        first.map_or(id, |first| UniformId(first as u16))
    };
    // A body reads each once, before all else.
    for stmt in &mut kernel.body {
        if let Stmt::Let(_, Expr::Uniform(id)) = stmt {
            *id = first(*id);
        }
    }
}
