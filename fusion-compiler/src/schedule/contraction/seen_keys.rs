//! Keys that some query of a tile sees, as one interval for all threads of a team.
//!
//! The ends of the keys that a row sees (`visible.rs`) are sums of coordinates, extents and other integers without
//! rows, so their bounds follow from the first and the last row of a tile. Larger numbers than `LEAF_MAX` may wrap,
//! and then all keys count as seen.

use super::super::body::{Body, Level, Place};
use super::super::space::SpaceDim;
use crate::ir::dtype::{Const, DType};
use crate::ir::graph::{AxisId, NodeId, NodeKind};
use crate::ir::kernel::{Builder, Lanes, Value};
use crate::ir::op::Op;

/// Largest size of a number whose sums do not wrap, of which an end has at most `LEAVES_MAX`.
const LEAF_MAX: i64 = 1 << 28;

const LEAVES_MAX: usize = 8;

/// The rows of a tile.
pub(super) struct TileRows<'p> {
    /// Dims of the rows.
    pub(super) dims: &'p [SpaceDim],
    /// The first row.
    pub(super) first: Value,
    /// Number of rows of a whole tile.
    pub(super) count: u16,
    /// A place in the tile.
    pub(super) place: &'p Place,
}

/// The smallest and the largest of some integers.
#[derive(Clone, Copy)]
struct Range {
    least: Value,
    most: Value,
}

/// A search for the bounds of an end.
struct Search<'s, 'b, 'w> {
    body: &'s mut Body<'b>,
    rows: &'s TileRows<'w>,
    /// Conditions under which no sum wraps.
    are_small: Vec<Value>,
}

/// Returns the first key that some row sees, and the key past the last one, of `count` keys. The first key is a multiple
/// of `at_once`. Returns all keys where there are no bounds.
pub(super) fn seen_keys(
    body: &mut Body<'_>,
    rows: &TileRows<'_>,
    [first, last]: [Option<NodeId>; 2],
    (count, at_once): (Value, u16),
) -> (Value, Value) {
    let mut search = Search { body, rows, are_small: vec![] };
    search.must_be_small(count);
    let first = first.and_then(|end| search.range(end)).map(|range| range.least);
    let last = last.and_then(|end| search.range(end)).map(|range| range.most);
    let Search { body, are_small, .. } = search;
    let are_small = are_small.into_iter().reduce(|all, one| body.item().apply(Op::And, &[all, one]));
    let is_small = are_small.unwrap_or_else(|| unreachable!("the number of keys must be small"));
    let (zero, one) = (body.top().i32(0), body.top().i32(1));
    let [nothing, step] = [0, i64::from(at_once)].map(|number| body.top().index(number));
    let mut b = body.item();
    let all = b.cast(count, DType::I32);
    let bounded = |b: &mut Builder<'_>, end| {
        let end = b.apply(Op::Max, &[end, zero]);
        let end = b.apply(Op::Min, &[end, all]);
        b.cast(end, DType::Index)
    };
    let start = first.map_or(nothing, |first| {
        let first = bounded(&mut b, first);
        let number = b.apply(Op::IntDiv, &[first, step]);
        let first = b.apply(Op::Mul, &[number, step]);
        b.apply(Op::Select, &[is_small, first, nothing])
    });
    let end = last.map_or(count, |last| {
        let end = b.apply(Op::Add, &[last, one]);
        let end = bounded(&mut b, end);
        b.apply(Op::Select, &[is_small, end, count])
    });
    (start, end)
}

impl Search<'_, '_, '_> {
    /// Asks for an index that is small.
    fn must_be_small(&mut self, index: Value) {
        let most = self.body.top().index(LEAF_MAX);
        let is_small = self.body.item().apply(Op::Le, &[index, most]);
        self.are_small.push(is_small);
    }

    /// Returns the bounds of a node for the rows of the tile.
    fn range(&mut self, id: NodeId) -> Option<Range> {
        if self.are_small.len() > LEAVES_MAX {
            return None;
        }
        let graph = self.body.work.graph;
        let node = graph.node(id);
        let is_of_rows =
            self.rows.dims.iter().any(|dim| dim.axes.iter().any(|&axis| node.axes.contains(axis)));
        match (&node.kind, node.args.as_slice()) {
            (NodeKind::Cast, &[of]) => self.range(of),
            (NodeKind::Coord(axis), []) => self.coordinate(*axis),
            (NodeKind::Literal(Const::Float(number)), []) => {
                let is_small = number.abs() <= LEAF_MAX as f64;
                is_small.then(|| self.body.top().i32(*number as i32)).map(same)
            }
            (NodeKind::Apply(op @ (Op::Add | Op::Min | Op::Max)), &[left, right]) => {
                let (left, right) = (self.range(left)?, self.range(right)?);
                let mut b = self.body.item();
                let [least, most] = [[left.least, right.least], [left.most, right.most]];
                Some(Range { least: b.apply(*op, &least), most: b.apply(*op, &most) })
            }
            (NodeKind::Apply(Op::Sub), &[left, right]) => {
                let (left, right) = (self.range(left)?, self.range(right)?);
                let mut b = self.body.item();
                let [least, most] = [[left.least, right.most], [left.most, right.least]];
                Some(Range { least: b.apply(Op::Sub, &least), most: b.apply(Op::Sub, &most) })
            }
            (NodeKind::Apply(Op::Neg), &[of]) => {
                let Range { least, most } = self.range(of)?;
                let mut b = self.body.item();
                Some(Range { least: b.apply(Op::Neg, &[most]), most: b.apply(Op::Neg, &[least]) })
            }
            _ if !is_of_rows && node.dtype == DType::I32 => self.number(id),
            _ => None,
        }
    }

    /// Returns an integer that is the same for all rows.
    fn number(&mut self, id: NodeId) -> Option<Range> {
        let value = self.body.value(id, &vec![], self.rows.place);
        if self.body.level(&(id, vec![])) == Level::Inner || self.body.top().ty(value).lanes != Lanes::ONE {
            return None;
        }
        let [least, most] = [-LEAF_MAX, LEAF_MAX].map(|number| self.body.top().i32(number as i32));
        let mut b = self.body.item();
        let is_small = [b.apply(Op::Le, &[least, value]), b.apply(Op::Le, &[value, most])];
        self.are_small.extend(is_small);
        Some(same(value))
    }

    /// Returns the bounds of a coordinate.
    fn coordinate(&mut self, axis: AxisId) -> Option<Range> {
        let extent = self.body.work.graph.axis(axis).extent.clone();
        let extent = self.body.extent(&extent);
        self.must_be_small(extent);
        let own = |dim: &&SpaceDim| dim.axes == [axis];
        if let Some(dim) = self.body.dims.iter().position(|dim| own(&dim))
            && !self.rows.dims.iter().any(|dim| own(&dim))
        {
            let coordinate = self.rows.place.coordinates[dim];
            let is_one = self.body.top().ty(coordinate).lanes == Lanes::ONE;
            return is_one.then(|| same(self.body.item().cast(coordinate, DType::I32)));
        }
        let [dim] = self.rows.dims else { return None };
        if !own(&dim) {
            return None;
        }
        let (one, ahead) = {
            let mut top = self.body.top();
            (top.index(1), top.index(i64::from(self.rows.count) - 1))
        };
        let mut b = self.body.item();
        let last = b.apply(Op::Sub, &[extent, one]);
        let most = b.apply(Op::Add, &[self.rows.first, ahead]);
        let most = b.apply(Op::Min, &[most, last]);
        let [least, most] = [self.rows.first, most].map(|row| b.cast(row, DType::I32));
        Some(Range { least, most })
    }
}

/// Returns the range of a number.
fn same(value: Value) -> Range {
    Range { least: value, most: value }
}
