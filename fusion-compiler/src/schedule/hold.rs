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
use crate::ir::ops::Op;
use crate::ir::point::Point;

/// Where a value of each element of a row is held.
#[derive(Clone, Copy)]
pub(super) enum Hold {
    /// In shared memory, that of the first element here.
    Shared(SharedId, Value),
    /// Where the row is that is written last, and in its type.
    Written(BufferId),
}

/// A value of each element of a row that is held.
#[derive(Clone, Copy)]
struct Held {
    hold: Hold,
    /// Whether none is held there before it.
    is_first: bool,
    /// Whether a run along the row before this one has made them.
    filled: bool,
}

/// What a body holds.
#[derive(Default)]
pub(super) struct Holds {
    by_node: FxHashMap<NodeId, Held>,
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
    pub(super) fn hold(&mut self, id: NodeId, hold: Hold, is_first: bool) {
        self.holds.by_node.insert(id, Held { hold, is_first, filled: false });
    }

    /// Says that elements in shared memory are so far apart.
    pub(super) fn hold_apart(&mut self, apart: i64) {
        self.holds.apart = Some(apart);
    }

    /// Says that values are held from this element of a row on.
    pub(super) fn hold_from(&mut self, element: Value) {
        self.holds.from = Some(element);
    }

    /// Says that the first of those is held so far from the place that is given for it.
    pub(super) fn hold_ahead(&mut self, ahead: Value) {
        self.holds.ahead = Some(ahead);
    }

    /// Does what a run does at some of its elements, before it comes to the others.
    pub(super) fn at_first<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.holds.unfinished = true;
        let made = work(self);
        self.holds.unfinished = false;
        made
    }

    /// Does what is to be done at elements of which nothing is held.
    pub(super) fn without_holds<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.holds.outside = true;
        let made = work(self);
        self.holds.outside = false;
        made
    }

    /// Whether some held value is there.
    pub(super) fn holds_something(&self) -> bool {
        self.holds.by_node.values().any(|held| held.filled)
    }

    /// The held values that are known before the row has been gone through. None takes the place of another, nor is made of what
    /// does: to make it would be to hold that.
    pub(super) fn known_before_rows(&self) -> Vec<NodeId> {
        let all = self.holds.by_node.keys().copied();
        let mut known: Vec<NodeId> =
            all.filter(|id| !self.is_made_of_rows(*id) && !self.takes_a_place(*id)).collect();
        known.sort();
        known
    }

    /// Whether to make a value is to hold one in the place of another.
    fn takes_a_place(&self, id: NodeId) -> bool {
        let (mut seen, mut open) = (FxHashSet::default(), vec![id]);
        while let Some(id) = open.pop() {
            if self.holds.by_node.get(&id).is_some_and(|held| !held.is_first) {
                return true;
            }
            if seen.insert(id) {
                open.extend(&self.work.graph.node(id).args);
            }
        }
        false
    }

    /// Whether values are held once they are made.
    pub(super) fn holds_values(&self) -> bool {
        !self.holds.by_node.is_empty()
    }

    /// Says that a held value is there.
    pub(super) fn fill(&mut self, id: NodeId) {
        if let Some(held) = self.holds.by_node.get_mut(&id) {
            held.filled = true;
        }
    }

    /// Says that no held value is there.
    pub(super) fn unfill(&mut self) {
        self.holds.by_node.values_mut().for_each(|held| held.filled = false);
    }

    /// Says that those held values are there that the run at hand has made.
    pub(super) fn fill_made(&mut self) {
        let is_some = self.holds.outside || self.holds.unfinished;
        for (id, held) in self.holds.by_node.iter_mut().filter(|_| !is_some) {
            held.filled |= self.values.contains_key(&(*id, vec![]));
        }
    }

    /// Where a value is held that has yet to be made, if it is asked for at the element at hand.
    pub(super) fn to_hold(&self, point: &Point) -> Option<Hold> {
        self.held(point).filter(|held| !held.filled).map(|held| held.hold)
    }

    /// Where a value is held that is there, if it is asked for at the element at hand.
    pub(super) fn filled(&self, point: &Point) -> Option<Hold> {
        self.held(point).filter(|held| held.filled).map(|held| held.hold)
    }

    fn held(&self, (id, at): &Point) -> Option<Held> {
        self.holds.by_node.get(id).filter(|_| at.is_empty() && !self.holds.outside).copied()
    }

    /// The value that is held of a place.
    pub(super) fn read_held(&mut self, hold: Hold, dtype: DType, place: &Place) -> Value {
        let ty = Type { dtype, lanes: place.lanes };
        match hold {
            Hold::Shared(memory, first) => {
                let index = self.held_at(first, place);
                self.recall(memory, index, ty)
            }
            Hold::Written(buffer) => {
                let at = self.position(buffer, Level::Inner, (&vec![], place.lanes), place);
                self.inner().bind(ty, Expr::Load(at))
            }
        }
    }

    /// Holds a value of a place, and gives it with a lane for each element.
    pub(super) fn write_held(&mut self, hold: Hold, value: Value, place: &Place) -> Value {
        let value = self.inner().splat(value, place.lanes);
        match hold {
            Hold::Shared(memory, first) => {
                let index = self.held_at(first, place);
                self.keep(memory, index, value);
            }
            Hold::Written(buffer) => {
                let at = self.position(buffer, Level::Inner, (&vec![], place.lanes), place);
                self.push_inner(Stmt::Store(at, value));
            }
        }
        value
    }

    /// Keeps a value in shared memory, which holds `f64`, narrow floats, or whatever has four bytes as `f32`.
    pub(super) fn keep(&mut self, memory: SharedId, index: Value, value: Value) {
        let held = self.kernel.shared[usize::from(memory.0)].dtype;
        let bits =
            if self.kernel.ty(value).dtype == held { value } else { self.inner().bitcast(value, held) };
        self.push_inner(Stmt::StoreShared(memory, index, bits));
    }

    /// A value that is kept there.
    pub(super) fn recall(&mut self, memory: SharedId, index: Value, ty: Type) -> Value {
        let bits = Type { dtype: self.kernel.shared[usize::from(memory.0)].dtype, ..ty };
        let value = self.inner().bind(bits, Expr::LoadShared(memory, index));
        if ty.dtype == bits.dtype { value } else { self.inner().bitcast(value, ty.dtype) }
    }

    /// The elements of shared memory that hold values of a place, where the first is that.
    fn held_at(&mut self, first: Value, place: &Place) -> Value {
        let Some(mut number) = place.in_row else { return first };
        if let Some(from) = self.holds.from {
            number = self.inner().apply(Op::Sub, &[number, from]);
        }
        if let Some(ahead) = self.holds.ahead {
            number = self.inner().apply(Op::Add, &[number, ahead]);
        }
        if let Some(apart) = self.holds.apart {
            let apart = self.top().index(apart);
            number = self.inner().apply(Op::Mul, &[number, apart]);
        }
        self.inner().apply(Op::Add, &[first, number])
    }
}
