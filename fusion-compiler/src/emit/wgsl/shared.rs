//! Memory of a group: an array of `vec4` where every access takes four elements, which start at a multiple of four.

use std::fmt::{self, Display};

use smallvec::SmallVec;

use super::{Component, Emitter, Listed, Plus, TypeName, Writer, lanes, scalar};
use crate::ir::kernel::{Kernel, Lanes, SharedId, SharedLen, Stmt, Type, Value, statements};

/// Elements of the vectors that memory is an array of.
const WIDE: u8 = 4;

/// Which memory is an array of vectors.
pub(super) fn wide(kernel: &Kernel) -> Vec<bool> {
    let mut wide = vec![true; kernel.shared.len()];
    for (id, _, value) in statements(&kernel.body).filter_map(Stmt::shared_access) {
        wide[usize::from(id.0)] &= lanes(kernel.ty(value)) == WIDE;
    }
    wide
}

impl Emitter<'_> {
    pub(super) fn declare_shared(&self, out: &mut Writer) {
        for (i, shared) in self.kernel.shared.iter().enumerate() {
            let SharedLen::Fixed(len) = shared.len else { unreachable!("WGSL's memory has a fixed length") };
            if self.wide_shared[i] {
                debug_assert!(len.is_multiple_of(WIDE.into()), "memory for vectors has whole ones");
                let (ty, len) =
                    (Type { dtype: shared.dtype, lanes: Lanes::Const(WIDE) }, len / u32::from(WIDE));
                out.line(format_args!("var<workgroup> s{i}: array<{}, {len}>;", TypeName(ty)));
            } else {
                out.line(format_args!("var<workgroup> s{i}: array<{}, {len}>;", scalar(shared.dtype)));
            }
        }
    }

    pub(super) fn store_shared(&self, out: &mut Writer, (id, index): (SharedId, Value), value: Value) {
        let (lanes, inline_values) = (lanes(self.kernel.ty(value)), self.inline_values.operand(value));
        if self.wide_shared[usize::from(id.0)] {
            return out.line(format_args!("{} = {inline_values};", self.shared_vector(id, index)));
        }
        for lane in 0..lanes {
            let place = self.shared(id, index, lane);
            out.line(format_args!("{place} = {};", Component { inline_values, lane, lanes }));
        }
    }

    pub(super) fn load_shared(
        &self,
        f: &mut fmt::Formatter<'_>,
        ty: Type,
        (id, index): (SharedId, Value),
    ) -> fmt::Result {
        match lanes(ty) {
            1 => self.shared(id, index, 0).fmt(f),
            _ if self.wide_shared[usize::from(id.0)] => self.shared_vector(id, index).fmt(f),
            lanes => {
                let parts: SmallVec<[_; 4]> = (0..lanes).map(|lane| self.shared(id, index, lane)).collect();
                write!(f, "{}({})", TypeName(ty), Listed(&parts))
            }
        }
    }

    /// The element that a lane has.
    fn shared(&self, id: SharedId, index: Value, lane: u8) -> impl Display + '_ {
        fmt::from_fn(move |f| {
            write!(f, "s{}[{}]", id.0, Plus(self.inline_values.operand(index), lane.into()))
        })
    }

    /// The vector that starts with an element.
    fn shared_vector(&self, id: SharedId, index: Value) -> impl Display + '_ {
        fmt::from_fn(move |f| write!(f, "s{}[{} >> 2u]", id.0, self.inline_values.operand(index)))
    }
}
