//! Products of matrices in the registers of a warp, and asynchronous copies of their elements to shared memory.

use super::memory::list;
use super::{Bank, Emitter, Register};
use crate::ir::dtype::DType;
use crate::ir::kernel::{ASYNC_COPY_BYTES, AsyncCopy, Lanes, SharedId, Type, Value};

impl Emitter<'_> {
    pub(super) fn load_matrices(&mut self, d: &[Register], id: SharedId, index: Value, transposed: bool) {
        let place = self.shared_places(id, index, 1).remove(0);
        let (transposed, d) = (if transposed { ".trans" } else { "" }, list(d));
        self.line(format_args!("ldmatrix.sync.aligned.m8n8.x4{transposed}.shared.b16 {{{d}}}, {place};"));
    }

    pub(super) fn matrix_product(&mut self, d: &[Register], of: DType, operands: [Value; 3]) {
        let [sum, left, right] = operands.map(|operand| list(&self.registers[operand.0 as usize]));
        let (shape, t) = match of {
            DType::F32 => ("m16n8k8", "tf32"),
            _ => ("m16n8k16", of.name()),
        };
        let d = list(d);
        self.line(format_args!(
            "mma.sync.aligned.{shape}.row.col.f32.{t}.{t}.f32 {{{d}}}, {{{left}}}, {{{right}}}, {{{sum}}};"
        ));
    }

    pub(super) fn async_copy(&mut self, copy: &AsyncCopy) {
        match copy {
            AsyncCopy::Start(at, id, index, mask) => {
                let dtype = self.kernel.buffer(at.buffer).dtype;
                let from = self.places(Type { dtype, lanes: Lanes::ONE }, at).remove(0);
                let to = self.shared_places(*id, *index, 1).remove(0);
                let (read, mask) = (self.register(Bank::Bits32), self.one(*mask));
                // A copy of fewer bytes than a vector passes through the cache of the multiprocessor.
                let (cache, bytes) = if at.aligned { ("cg", ASYNC_COPY_BYTES) } else { ("ca", dtype.size()) };
                // Bytes that are not read are zeros.
                self.line(format_args!("selp.b32 {read}, {bytes}, 0, {mask};"));
                self.line(format_args!("cp.async.{cache}.shared.global {to}, {from}, {bytes}, {read};"));
            }
            AsyncCopy::Commit => self.line("cp.async.commit_group;"),
            AsyncCopy::Wait(groups) => self.line(format_args!("cp.async.wait_group {groups};")),
        }
    }
}
