//! Operands whose elements lie across those that are written, as those of a transposed matrix do.
//!
//! Memory is read 32 bytes at a time. If threads next to each other took elements next to each other where they are written, each
//! would read 32 bytes for one element of such an operand. So a few of them take elements next to each other where they are read:
//! the order in which a launch takes its vectors is another, and all else the same.

use super::body::{Body, Level};
use super::space::{SpaceDim, product};
use super::{Operand, Work};
use crate::ir::dim::DimExpr;
use crate::ir::graph::Access;
use crate::ir::kernel::{Value, WARP};
use crate::ir::op::Op;

/// Bytes of a sector: a GPU reads and writes whole sectors.
pub(super) const SECTOR: i64 = 32;

/// How vectors are taken across.
pub(super) struct Across {
    /// Elements of the operand that are read together, each of a row of its own …
    rows: i64,
    /// … with as many elements, of all dims within that along which the operand lies.
    row: DimExpr,
    /// The extent of that dim.
    extent: DimExpr,
}

/// How to take vectors of so many lanes, if something is read across: a tensor with the innermost dim of the space that lies along
/// another.
pub(super) fn across(work: &Work<'_>, dims: &[SpaceDim], lanes: u8) -> Option<Across> {
    let (inner, outer) = dims.split_last()?;
    let last = |operand: &Operand| operand.in_memory().last();
    let is_in_order = |operand: &&Operand| last(operand).is_some_and(|axis| inner.axes.contains(&axis));
    let along = work.operands.iter().find_map(|operand| {
        let lies_across =
            operand.access == Access::Read && operand.in_memory().any(|axis| inner.axes.contains(&axis));
        let along = |axis| outer.iter().position(|dim| dim.axes.contains(&axis));
        lies_across.then(|| last(operand).and_then(along)).flatten()
    })?;
    let is_across = |operand: &&Operand| last(operand).is_some_and(|axis| dims[along].axes.contains(&axis));
    let sizes = |which: &dyn Fn(&&Operand) -> bool| -> Vec<i64> {
        let operands = work.operands.iter().filter(which);
        operands.map(|operand| operand.dtype.size() as i64).collect()
    };
    let (in_order, across) = (sizes(&is_in_order), sizes(&is_across));
    // Of those that are as good the most, but no more than a sector has.
    let most = SECTOR / across.iter().min()?;
    let rows = (0..=most.ilog2()).rev().map(|log| 1 << log);
    let rows = rows.min_by_key(|&rows| sectors(rows, i64::from(lanes), (&in_order, &across)))?;
    let (row, extent) = (product(&dims[along + 1..]), dims[along].extent.clone());
    let is_long = extent.as_const().is_none_or(|extent| extent >= rows);
    (rows > 1 && is_long).then_some(Across { rows, row, extent })
}

/// What a warp reads and writes if it takes vectors of so many rows: of operands with these sizes of elements, in order and across.
fn sectors(rows: i64, lanes: i64, (in_order, across): (&[i64], &[i64])) -> i64 {
    let columns = i64::from(WARP) / rows * lanes;
    let all = |elements: i64, sizes: &[i64]| -> i64 {
        sizes.iter().map(|size| (elements * size / SECTOR).max(1)).sum()
    };
    rows * all(columns, in_order) + columns * all(rows, across)
}

impl Across {
    /// The first element of the vector that takes the turn of the one at `var`, of a launch from `start` to `end`. Of so many rows
    /// at a time, whose vectors are in order, each vector is followed by those beside it; the last rows, which are fewer, are
    /// left in order, and so are all where the operand has not as many elements next to each other.
    pub(super) fn element(
        self,
        body: &mut Body<'_>,
        (start, end): (Value, Value),
        var: Value,
        lanes: u8,
    ) -> Value {
        let (row, extent) = (body.extent(&self.row), body.extent(&self.extent));
        let mut top = body.top();
        let (lanes, rows) = (top.index(i64::from(lanes)), top.index(self.rows));
        let row = top.apply(Op::IntDiv, &[row, lanes]);
        let count = top.apply(Op::Sub, &[end, start]);
        let count = top.apply(Op::IntDiv, &[count, lanes]);
        let (most, one) = (top.apply(Op::IntDiv, &[count, rows]), top.index(1));
        let (is_long, is_there) = (top.apply(Op::Ge, &[extent, rows]), top.apply(Op::Le, &[row, most]));
        let is_interleaved = top.apply(Op::And, &[is_long, is_there]);
        // Rows of one vector each are in order.
        let row = top.apply(Op::Select, &[is_interleaved, row, one]);
        let group = top.apply(Op::Mul, &[row, rows]);

        let mut b = body.item();
        let from = b.apply(Op::Sub, &[var, start]);
        let number = b.apply(Op::IntDiv, &[from, lanes]);
        let (of, within) = body.divide(Level::Item, number, group);
        let (place, row_of_place) = body.divide(Level::Item, within, rows);
        let mut b = body.item();
        let before = b.apply(Op::Mul, &[of, group]);
        let rows_before = b.apply(Op::Mul, &[row_of_place, row]);
        let in_group = b.apply(Op::Add, &[rows_before, place]);
        let after = b.apply(Op::Add, &[before, group]);
        let is_whole = b.apply(Op::Le, &[after, count]);
        let within = b.apply(Op::Select, &[is_whole, in_group, within]);
        let number = b.apply(Op::Add, &[before, within]);
        let ahead = b.apply(Op::Mul, &[number, lanes]);
        b.apply(Op::Add, &[start, ahead])
    }
}
