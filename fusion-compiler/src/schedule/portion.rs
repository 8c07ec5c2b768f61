//! The sides of the place where a graph is cut: each has statements of its own, that know which tensors have elements there.
//!
//! Invariant: what a tensor lacks is neither read nor written, and a choice that the side decides is none.

use super::body::{Body, Level};
use crate::ir::graph::{NodeKind, Portion};
use crate::ir::kernel::{BufferId, Stmt, Value};
use crate::ir::op::Op;
use crate::ir::point::{Point, point};

impl<'w> Body<'w> {
    /// The statements per item so far, and then those that are made for each portion of the space, under the condition that
    /// these coordinates are in it.
    pub(super) fn each_portion(
        &mut self,
        coordinates: &[Value],
        mut make: impl FnMut(&mut Body<'w>) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let mut all = self.take_item();
        for portion in self.work.portions() {
            self.begin(portion);
            let is_in = self.is_in_portion(coordinates);
            all.append(&mut self.item);
            let body = make(self);
            match is_in {
                Some(cond) => all.push(Stmt::If { cond, body }),
                None => all.extend(body),
            }
        }
        all
    }

    /// The statements per item so far, which go before what comes.
    pub(super) fn take_item(&mut self) -> Vec<Stmt> {
        std::mem::take(&mut self.item)
    }

    /// Begins with the statements for a portion, or for all: what others found is nothing to them.
    pub(super) fn begin(&mut self, portion: Option<Portion>) {
        self.portion = portion;
        self.values.retain(|_, (level, _)| *level == Level::Top);
        self.unfill();
    }

    /// Whether coordinates are in the portion at hand, if that is not all.
    fn is_in_portion(&mut self, coordinates: &[Value]) -> Option<Value> {
        let op = match self.portion? {
            Portion::Before => Op::Lt,
            Portion::After => Op::Ge,
        };
        let (dim, at) = self.cut()?;
        Some(self.item().apply(op, &[coordinates[dim], at]))
    }

    /// The dim that is cut, and where.
    pub(super) fn cut(&mut self) -> Option<(usize, Value)> {
        let cut = self.work.graph.cut.as_ref()?;
        let dim = self.dims.iter().position(|dim| dim.axes.contains(&cut.axis))?;
        Some((dim, self.extent(&cut.at)))
    }

    /// Whether what is written to an operand, or read of it, is none of the portion at hand.
    pub(super) fn is_left_out(&self, buffer: BufferId) -> bool {
        let has = self.work.operands[usize::from(buffer.0)].portion;
        has.is_some() && has != self.portion
    }

    /// Whether a value, if it compares a coordinate with the place of the cut, holds throughout the portion at hand.
    pub(super) fn holds(&self, (id, at): &Point) -> Option<bool> {
        self.work.graph.holds_in(*id, self.portion.filter(|_| at.is_empty())?)
    }

    /// What a choice is in the portion at hand, if that decides it.
    pub(super) fn choice(&self, of: &Point) -> Option<Point> {
        let node = self.work.graph.node(of.0);
        if node.kind != NodeKind::Apply(Op::Select) {
            return None;
        }
        let point = |arg: usize| point(self.work.graph, node.args[arg], &of.1);
        Some(point(if self.holds(&point(0))? { 1 } else { 2 }))
    }
}
