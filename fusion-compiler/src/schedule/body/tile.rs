//! Reads of the elements of a tile, and tensors whose halves a kernel binds by themselves.

use super::{Body, Level, Place};
use crate::ir::dtype::DType;
use crate::ir::kernel::{Address, BufferId, Expr, Lanes, Type, Value};
use crate::ir::op::Op;
use crate::ir::plan::{Footprint, UniformArg};
use crate::ir::point::Point;

impl Body<'_> {
    /// The elements that the rows and columns at a place read.
    pub(super) fn load_tile(
        &mut self,
        buffer: BufferId,
        point: &Point,
        level: Level,
        place: &Place,
    ) -> Value {
        let dtype = self.work.graph.node(point.0).dtype;
        let at = self.position(buffer, level, (&point.1, Lanes::ONE), place);
        let aligned = self.aligned && point.1.is_empty();
        let moved: Vec<Value> =
            self.moves.within(&point.1).iter().map(|point| self.values[point].1).collect();
        let lanes = |value: Value| self.kernel.ty(value).lanes;
        let all = moved.iter().try_fold(lanes(at.index), |all, &mask| all.broadcast(lanes(mask)));
        let lanes_of_all =
            all.unwrap_or_else(|| unreachable!("masks have the rows and columns of the place"));
        // A mask of further rows or columns is none of this value.
        let own = |mask: &Value| lanes(*mask).broadcast(lanes_of_all) == Some(lanes_of_all);
        let masks: Vec<Value> = self.masks.iter().copied().filter(own).chain(moved).collect();
        let mask = masks.into_iter().reduce(|all, one| self.at(level).apply(Op::And, &[all, one]));
        let at = Address { aligned, ..at };
        let ty = Type { dtype, lanes: lanes_of_all };
        let Some(halves) = self.halves(level, at) else {
            let read = mask.map_or(Expr::Load(at), |mask| Expr::LoadWhere(at, mask));
            return self.at(level).bind(ty, read);
        };
        let mut b = self.at(level);
        let [lower, upper] = halves.map(|(at, within)| {
            let mask = mask.map_or(within, |mask| b.apply(Op::And, &[mask, within]));
            b.bind(ty, Expr::LoadWhere(at, mask))
        });
        let [(_, within), _] = halves;
        b.apply(Op::Select, &[within, lower, upper])
    }

    /// Binds the halves of operands by themselves.
    pub(in crate::schedule) fn halve(&mut self, operands: &[BufferId]) {
        for &lower in operands {
            self.buffers[usize::from(lower.0)].footprint = Footprint::LowerHalf;
            let upper = self.bind(&self.work.operands[usize::from(lower.0)], Footprint::UpperHalf);
            self.uppers.push((lower, upper));
        }
    }

    /// Returns the places in both halves that a place stands for, each with a mask that is true for one of them, if
    /// the operand is bound in halves.
    pub(in crate::schedule) fn halves(&mut self, level: Level, at: Address) -> Option<[(Address, Value); 2]> {
        let &(lower, upper) = self.uppers.iter().find(|(lower, _)| *lower == at.buffer)?;
        let name = &self.kernel.buffer(lower).name;
        let [window, ahead] = ["window", "offset"].map(|what| format!("{what} of {name}"));
        let window = self.uniform(UniformArg::Window(lower.0), DType::Index, &window);
        let [from, to] =
            [lower, upper].map(|of| self.uniform(UniformArg::Offset(of.0), DType::Index, &ahead));
        let ahead = self.top().apply(Op::Sub, &[to, from]);
        let mut b = self.at(level);
        let index = b.apply(Op::Add, &[at.index, ahead]);
        let within = b.apply(Op::Lt, &[at.index, window]);
        let beyond = b.apply(Op::Le, &[window, at.index]);
        Some([(at, within), (Address { buffer: upper, index, ..at }, beyond)])
    }
}
