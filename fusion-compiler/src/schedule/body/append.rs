//! The rows of another kernel, as statements of the kernel at hand.

use rustc_hash::FxHashMap;

use super::Body;
use crate::ir::graph::Access;
use crate::ir::kernel::{BufferId, Expr, Kernel, LoopKind, Stmt, UniformArg, Value};
use crate::ir::plan::{BufferArg, Footprint};
use crate::schedule::views::for_each_place;

impl Body<'_> {
    /// Returns a loop of the team at hand over rows of a kernel whose teams have as many threads. The loop has the rows
    /// from the first of these numbers to before the second one.
    pub(in crate::schedule) fn append_rows(
        &mut self,
        (mut kernel, buffers): (Kernel, &[BufferArg]),
        (first, past): (Value, Value),
    ) -> Stmt {
        let places: Vec<BufferId> =
            (0..buffers.len()).map(|i| self.bind_again(&kernel, buffers, i)).collect();
        for_each_place(&mut kernel.body, &mut |at| at.buffer = places[usize::from(at.buffer.0)]);
        // Values of both kernels that are the same, and the new numbers of the others.
        let (mut same, ahead) = (FxHashMap::default(), self.kernel.types.len() as u32);
        self.kernel.types.extend(&kernel.types);
        let mut rows = None;
        for mut stmt in std::mem::take(&mut kernel.body) {
            if let Stmt::Let(value, Expr::Uniform(id)) = stmt {
                let uniform = kernel.uniform(id);
                let again = |buffer: u16| places[usize::from(buffer)].0;
                let arg = match uniform.arg.clone() {
                    UniformArg::Offset(buffer) => UniformArg::Offset(again(buffer)),
                    UniformArg::Window(buffer) => UniformArg::Window(again(buffer)),
                    arg => arg,
                };
                let known = match arg {
                    UniformArg::Start => first,
                    UniformArg::End => past,
                    arg => self.uniform(arg, uniform.dtype, &uniform.name),
                };
                same.insert(value, known);
                continue;
            }
            let renumber = &mut |value: &mut Value| {
                *value = same.get(value).copied().unwrap_or(Value(value.0 + ahead));
            };
            stmt.for_each_value_mut(renumber);
            match stmt {
                Stmt::Loop { var, kind: LoopKind::Team, start, end, step, carried, body } => {
                    let kind = LoopKind::Serial;
                    rows = Some(Stmt::Loop { var, kind, start, end, step, carried, body });
                }
                stmt => self.push(stmt),
            }
        }
        rows.unwrap_or_else(|| unreachable!("teams share the rows of the kernel"))
    }

    /// Returns the buffer of this kernel for a buffer of another one.
    fn bind_again(&mut self, kernel: &Kernel, buffers: &[BufferArg], number: usize) -> BufferId {
        let (arg, buffer) = (&buffers[number], &kernel.buffers[number]);
        let is_same = |known: &BufferArg| known.slot == arg.slot && known.uniform == arg.uniform;
        if let Some(known) = self.buffers.iter().position(is_same) {
            if self.buffers[known].access != arg.access {
                self.buffers[known].access = Access::ReadWrite;
                self.kernel.buffers[known].access = Access::ReadWrite;
            }
            return BufferId(known as u16);
        }
        self.kernel.buffers.push(buffer.clone());
        self.buffers.push(BufferArg { footprint: Footprint::Whole, ..arg.clone() });
        BufferId(self.buffers.len() as u16 - 1)
    }
}
