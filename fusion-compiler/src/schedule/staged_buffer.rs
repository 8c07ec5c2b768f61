//! Values of the elements of a row that a body keeps in memory, from the run along it that makes them to those that need them
//! again.
//!
//! They lie in shared memory, or where the row's result goes. Invariant: a value is read there only once a run before the one
//! at hand has made it.

use rustc_hash::{FxHashMap, FxHashSet};

use super::body::{Body, Level, Place};
use crate::ir::dtype::DType;
use crate::ir::graph::NodeId;
use crate::ir::kernel::{BufferId, Expr, SharedId, Stmt, Type, Value};
use crate::ir::op::Op;
use crate::ir::point::Point;

/// Where a value of each element of a row is held.
#[derive(Clone, Copy)]
pub(super) enum StagedBuffer {
    /// In shared memory, that of the first element here.
    Shared(SharedId, Value),
    /// Where the row is that is written last, and in its type.
    Written(BufferId),
}

/// A value of each element of a row that is held.
#[derive(Clone, Copy)]
struct StagedValue {
    stage: StagedBuffer,
    /// Whether none is held there before it.
    is_first: bool,
    /// Whether a run along the row before this one has made them.
    filled: bool,
}

/// What a body holds.
#[derive(Default)]
pub(super) struct StagedBuffers {
    by_node: FxHashMap<NodeId, StagedValue>,
    /// How far the elements of a row are apart in shared memory, if they are not next to each other.
    apart: Option<i64>,
    /// The element of a row that the first of those values is of, if not the first of all.
    from: Option<Value>,
    /// How far from the first place that is given it is held, if not there.
    ahead: Option<Value>,
    /// Whether the elements at hand are none of those.
    outside: bool,
    /// Whether they are some of those, and the run at hand comes to others yet.
    unfinished: bool,
}

impl Body<'_> {
    /// Holds a value of each element of a row, once it is made; at a place where it is the first, or where another is before it.
    pub(super) fn stage(&mut self, id: NodeId, stage: StagedBuffer, is_first: bool) {
        self.stages.by_node.insert(id, StagedValue { stage, is_first, filled: false });
    }

    /// Says that elements in shared memory are so far apart.
    pub(super) fn stage_apart(&mut self, apart: i64) {
        self.stages.apart = Some(apart);
    }

    /// Says that values are held from this element of a row on.
    pub(super) fn stage_from(&mut self, element: Value) {
        self.stages.from = Some(element);
    }

    /// Says that the first of those is held so far from the place that is given for it.
    pub(super) fn stage_ahead(&mut self, ahead: Value) {
        self.stages.ahead = Some(ahead);
    }

    /// Does what a run does at some of its elements, before it comes to the others.
    pub(super) fn at_first<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.stages.unfinished = true;
        let made = work(self);
        self.stages.unfinished = false;
        made
    }

    /// Does what is to be done at elements of which nothing is held.
    pub(super) fn without_staging<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.stages.outside = true;
        let made = work(self);
        self.stages.outside = false;
        made
    }

    /// Whether some held value is there.
    pub(super) fn stages_something(&self) -> bool {
        self.stages.by_node.values().any(|staged| staged.filled)
    }

    /// The held values that are known before the row has been gone through. None takes the place of another, nor is made of what
    /// does: to make it would be to hold that.
    pub(super) fn known_before_rows(&self) -> Vec<NodeId> {
        let all = self.stages.by_node.keys().copied();
        let mut known: Vec<NodeId> =
            all.filter(|id| !self.is_made_of_rows(*id) && !self.takes_a_place(*id)).collect();
        known.sort();
        known
    }

    /// Whether to make a value is to hold one in the place of another.
    fn takes_a_place(&self, id: NodeId) -> bool {
        let (mut seen, mut open) = (FxHashSet::default(), vec![id]);
        while let Some(id) = open.pop() {
            if self.stages.by_node.get(&id).is_some_and(|staged| !staged.is_first) {
                return true;
            }
            if seen.insert(id) {
                open.extend(&self.work.graph.node(id).args);
            }
        }
        false
    }

    /// Whether values are held once they are made.
    pub(super) fn stages_values(&self) -> bool {
        !self.stages.by_node.is_empty()
    }

    /// Says that a held value is there.
    pub(super) fn fill(&mut self, id: NodeId) {
        if let Some(staged) = self.stages.by_node.get_mut(&id) {
            staged.filled = true;
        }
    }

    /// Says that those held values are there that the run at hand has made.
    pub(super) fn fill_made(&mut self) {
        let is_some = self.stages.outside || self.stages.unfinished;
        for (id, staged) in self.stages.by_node.iter_mut().filter(|_| !is_some) {
            staged.filled |= self.values.contains_key(&(*id, vec![]));
        }
    }

    /// Where a value is held that has yet to be made, if it is asked for at the element at hand.
    pub(super) fn to_stage(&self, point: &Point) -> Option<StagedBuffer> {
        self.staged(point).filter(|staged| !staged.filled).map(|staged| staged.stage)
    }

    /// Where a value is held that is there, if it is asked for at the element at hand.
    pub(super) fn filled(&self, point: &Point) -> Option<StagedBuffer> {
        self.staged(point).filter(|staged| staged.filled).map(|staged| staged.stage)
    }

    /// Returns true if a buffer holds a value of all elements already.
    pub(super) fn is_written(&self, id: NodeId, buffer: BufferId) -> bool {
        match self.filled(&(id, vec![])) {
            Some(StagedBuffer::Written(written)) => written == buffer,
            Some(StagedBuffer::Shared(..)) | None => false,
        }
    }

    fn staged(&self, (id, at): &Point) -> Option<StagedValue> {
        self.stages.by_node.get(id).filter(|_| at.is_empty() && !self.stages.outside).copied()
    }

    /// The value that is held of a place.
    pub(super) fn read_staged(&mut self, stage: StagedBuffer, dtype: DType, place: &Place) -> Value {
        let ty = Type { dtype, lanes: place.lanes };
        match stage {
            StagedBuffer::Shared(memory, first) => {
                let index = self.staged_at(first, place);
                self.recall(memory, index, ty)
            }
            StagedBuffer::Written(buffer) => {
                let at = self.position(buffer, Level::Inner, (&vec![], place.lanes), place);
                self.inner().bind(ty, Expr::Load(at))
            }
        }
    }

    /// Holds a value of a place, and gives it with a lane for each element.
    pub(super) fn write_staged(&mut self, stage: StagedBuffer, value: Value, place: &Place) -> Value {
        let value = self.inner().splat(value, place.lanes);
        match stage {
            StagedBuffer::Shared(memory, first) => {
                let index = self.staged_at(first, place);
                self.keep(memory, index, value);
            }
            StagedBuffer::Written(buffer) => {
                let at = self.position(buffer, Level::Inner, (&vec![], place.lanes), place);
                self.push_inner(Stmt::Store(at, value));
            }
        }
        value
    }

    /// Keeps a value in shared memory, which holds `f64`, narrow floats, or whatever has four bytes as `f32`.
    pub(super) fn keep(&mut self, memory: SharedId, index: Value, value: Value) {
        let staged = self.kernel.shared[usize::from(memory.0)].dtype;
        let bits =
            if self.kernel.ty(value).dtype == staged { value } else { self.inner().bitcast(value, staged) };
        self.push_inner(Stmt::StoreShared(memory, index, bits));
    }

    /// A value that is kept there.
    pub(super) fn recall(&mut self, memory: SharedId, index: Value, ty: Type) -> Value {
        let bits = Type { dtype: self.kernel.shared[usize::from(memory.0)].dtype, ..ty };
        let value = self.inner().bind(bits, Expr::LoadShared(memory, index));
        if ty.dtype == bits.dtype { value } else { self.inner().bitcast(value, ty.dtype) }
    }

    /// The elements of shared memory that hold values of a place, where the first is that.
    fn staged_at(&mut self, first: Value, place: &Place) -> Value {
        let Some(mut number) = place.in_row else { return first };
        if let Some(from) = self.stages.from {
            number = self.inner().apply(Op::Sub, &[number, from]);
        }
        if let Some(ahead) = self.stages.ahead {
            number = self.inner().apply(Op::Add, &[number, ahead]);
        }
        if let Some(apart) = self.stages.apart {
            let apart = self.top().index(apart);
            number = self.inner().apply(Op::Mul, &[number, apart]);
        }
        self.inner().apply(Op::Add, &[first, number])
    }
}
